//! Sessions that other hosts serve, too, where several share a store.
//!
//! Owns what a host takes over of their rows, and how it writes its own beside them. Must not judge a credential.
//! Invariants: a session that was ended at one host is over at each; one that is in use at another does not end here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bulkhead_domain::UnixMs;

use super::{Digest, SESSIONS_MAX, SESSIONS_OF_ONE_MAX, Session, SessionEntry, Sessions, is_over};
use crate::session_store::{SessionRow, SessionStoreError, key, read_key};

/// The row of a session, to be written.
pub(super) struct WrittenRow<'a> {
    pub(super) digest: Digest,
    pub(super) session: &'a Arc<Session>,
    pub(super) bytes: Vec<u8>,
}

impl Sessions {
    /// Takes over what other hosts have made of a session: it was begun, used or ended there. False when that cannot be
    /// found out.
    pub(super) async fn hear_of(&self, digest: &Digest) -> bool {
        if !self.rows.is_shared() {
            return true;
        }
        let found = match self.rows.find(digest).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "a session of the dashboard cannot be looked up");
                return false;
            }
        };
        let row = found.as_ref().and_then(|(key, bytes)| read_key(key).zip(SessionRow::decode(bytes)));
        let row = row.filter(|(_, row)| self.session_rules.fits(&row.proof));
        let mut sessions = self.sessions.lock();
        let has_room = sessions.len() < SESSIONS_MAX + SESSIONS_OF_ONE_MAX || sessions.contains_key(digest);
        match (sessions.get_mut(digest), row) {
            (Some(SessionEntry::Open(session)), Some((_, row))) => {
                session.used_at.fetch_max(row.used_at, Ordering::Relaxed);
            }
            // One that is not written yet, or never, is in memory alone.
            (Some(SessionEntry::Open(session)), None) if !session.is_stored.load(Ordering::Relaxed) => {}
            (Some(_), None) => _ = sessions.remove(digest),
            (_, Some(((_, whose), row))) if has_room => {
                sessions.insert(*digest, SessionEntry::Stored { whose, row: Box::new(row) });
            }
            (_, Some(_)) | (None, None) => {}
        }
        true
    }

    /// Those of sessions that were not used here for too long which were used at no other host either. What cannot be
    /// read stays.
    pub(super) async fn ended_everywhere(&self, keys: Vec<Vec<u8>>, now: UnixMs) -> Vec<Vec<u8>> {
        let mut ended = Vec::new();
        for key in keys {
            let Some((digest, _)) = read_key(&key) else { continue };
            let row = self.rows.find(&digest).await.ok().flatten().and_then(|(_, bytes)| SessionRow::decode(&bytes));
            if row.is_some_and(|row| is_over(row.began_at, row.used_at, row.ends_at, now)) {
                ended.push(key);
            }
        }
        ended
    }

    /// Where hosts share the rows, one that is gone stays gone: its session was ended elsewhere.
    pub(super) async fn write_rows(&self, rows: Vec<WrittenRow<'_>>) -> Result<(), SessionStoreError> {
        let is_shared = self.rows.is_shared();
        let is_stored = |row: &WrittenRow<'_>| row.session.is_stored.load(Ordering::Relaxed);
        let (known, new): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| is_shared && is_stored(row));
        for row in known {
            let row_key = key(&row.digest, row.session.viewer.requestor());
            if !self.rows.replace(row_key, row.bytes).await? {
                self.sessions.lock().remove(&row.digest);
            }
        }
        let mut stored = Vec::with_capacity(new.len());
        let mut put = Vec::with_capacity(new.len());
        for row in new {
            put.push((key(&row.digest, row.session.viewer.requestor()), row.bytes));
            stored.push(row.session);
        }
        if !put.is_empty() {
            self.rows.put(put).await?;
        }
        stored.iter().for_each(|session| session.is_stored.store(true, Ordering::Relaxed));
        Ok(())
    }
}
