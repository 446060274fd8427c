//! Legacy sessions.
//!
//! Owns which sessions exist, whose they are, when they expire, and their rows. Must not know what a session's state
//! means. Invariant: a session answers to the requestor that opened it and to nobody else, and is never taken for idle
//! while a request of it is open. Only the digest of a session id is stored: who reads the database cannot take over a
//! session.

mod entries;
mod live;
mod row;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::SetOnce;

use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_protocol::Session;
use bulkhead_store::{self as store, RowKind, RowStore};

use entries::{Entries, SessionEntry};
use live::{Digest, Saved};
pub(crate) use live::{LiveSession, SessionRequest};
use row::Row;

use super::quota::EdgeQuota;
use super::sse::{ReplayBytes, Streams};
use bulkhead_domain::clock::SharedClock;
use bulkhead_limits::Full;
use bulkhead_metrics::Transport;

/// Rows read at once.
const PAGE_ROWS: usize = 256;
/// Bytes of one session's row; a store refuses larger values.
const ROW_BYTES_MAX: usize = 4000;

/// How many sessions, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// `server.session_idle_ms_max`.
    pub idle_ms_max: u64,
    /// `server.sessions_per_requestor`. When it is reached, a new session takes the place of the one that was idle
    /// longest.
    pub per_requestor: u32,
}

/// Why a session or a request in it was refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There are as many as there may be, and every one that could make room has a request open.
    #[error(transparent)]
    Full(#[from] Full),
    /// The rows cannot be read.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// All sessions.
pub struct Registry {
    rows: Arc<dyn RowStore>,
    options: SessionOptions,
    quota: Arc<EdgeQuota>,
    now: SharedClock,
    /// Tells the event ids of this run of the host from those of earlier ones.
    pub(super) epoch: u32,
    /// Whether other hosts use the same rows: then a row says more than what is in memory.
    is_shared: bool,
    inner: Mutex<Entries>,
}

impl Registry {
    /// Reads which sessions there are; each is restored when it is first used.
    pub async fn open(
        rows: Arc<dyn RowStore>,
        options: SessionOptions,
        quota: Arc<EdgeQuota>,
        now: SharedClock,
    ) -> Result<Self, store::Error> {
        let epoch = getrandom::u32().map_err(|error| store::Error::Engine(format!("no randomness: {error}")))?;
        let inner = Mutex::new(Entries::new(quota.count_sessions(options.per_requestor)));
        let registry = Self { rows, options, quota, now, epoch, is_shared: false, inner };
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = registry.rows.rows(RowKind::Session, after.as_deref(), PAGE_ROWS).await?;
            let Some((last, _)) = page.last() else { return Ok(registry) };
            after = Some(last.clone());
            for (key, value) in &page {
                match (Digest::try_from(key.as_slice()), Row::decode(value)) {
                    (Ok(digest), Some(row)) => {
                        let entry = SessionEntry::Dormant { requestor: row.requestor, used_at: row.used_at };
                        registry.inner.lock().put(digest, entry);
                    }
                    // Of another version or damaged: nobody can use it any more.
                    _ => registry.rows.remove_row(RowKind::Session, key).await?,
                }
            }
        }
    }

    /// Has sessions begun, used and ended at other hosts, too, that work with the same store.
    pub fn sharing(self, is_shared: bool) -> Self {
        Self { is_shared, ..self }
    }

    /// Takes in a new session. It is on disk when this returns, unless the store refuses writes: then it lives in
    /// memory only, so that what can still be read stays reachable.
    pub(super) async fn insert(&self, requestor: Requestor, session: Arc<Session>) -> Result<Arc<LiveSession>, Error> {
        let digest = digest(session.id());
        let now = self.now.steady();
        let (live, evicted) = {
            let mut inner = self.inner.lock();
            let evicted = self.make_room(&mut inner, requestor)?;
            let live = Arc::new(LiveSession {
                session,
                streams: Streams::default(),
                standalone: OnceLock::new(),
                digest,
                requestor,
                created_at: now,
                used_at: AtomicU64::new(now),
                requests_open: AtomicU32::new(0),
                saved: Mutex::new(Saved { revision: u64::MAX, used_at: now }),
                ended: SetOnce::new(),
                kept: self.kept(requestor),
            });
            inner.put(digest, SessionEntry::Live(live.clone()));
            (live, evicted)
        };
        if let Some(digest) = evicted {
            self.remove_row(&digest).await;
        }
        self.save(&live).await;
        Ok(live)
    }

    fn kept(&self, requestor: Requestor) -> ReplayBytes {
        ReplayBytes::new(Arc::clone(&self.quota.kept), requestor)
    }

    /// Ends one session if there are too many; says which. A requestor that has too many loses its own; a tenant, one
    /// of the requestor that has most in it and has an idle one; the host, one of the tenant that has most, likewise: a
    /// requestor never loses a session to one that has more.
    fn make_room(&self, inner: &mut Entries, requestor: Requestor) -> Result<Option<Digest>, Error> {
        let limits = self.quota.limits.of(&requestor);
        let own = inner.owned(&requestor);
        let tenant = inner.owned_by_tenant(&requestor.tenant);
        let total = self.quota.limits.base().sessions_total;
        let (oldest, limit, value) = if own >= self.options.per_requestor as usize {
            (inner.oldest_of(&requestor), "sessions_per_requestor", self.options.per_requestor)
        } else if tenant >= u64::from(limits.sessions_per_tenant) {
            (inner.oldest_in_tenant(&requestor), "sessions_per_tenant", limits.sessions_per_tenant)
        } else if inner.entries.len() >= total as usize {
            (inner.oldest_of_all(&requestor), "sessions_total", total)
        } else {
            return Ok(None);
        };
        let digest = oldest.ok_or(Full { limit, value: value.into() })?;
        self.take(inner, &digest);
        // At a level that nobody can flood a log with.
        tracing::debug!(tenant = %requestor.tenant, limit, value, "dropped the session that was idle longest for a newer one");
        Ok(Some(digest))
    }

    /// The session with this id, if it is this requestor's and not over.
    pub(super) async fn find(&self, requestor: &Requestor, id: &str) -> Result<Option<Arc<LiveSession>>, store::Error> {
        let digest = digest(id);
        loop {
            let now = self.now.steady();
            let (live, ends) = {
                let inner = self.inner.lock();
                match inner.entries.get(&digest) {
                    // Somebody else's.
                    Some(entry) if entry.requestor() != *requestor => (None, None),
                    Some(SessionEntry::Live(live)) if self.is_shared => (Some(live.clone()), None),
                    // Another host may have used it since.
                    Some(SessionEntry::Dormant { .. }) if self.is_shared => (None, Some(inner.ends)),
                    Some(entry) if entry.is_idle(now, self.options.idle_ms_max) => return Ok(None),
                    Some(SessionEntry::Live(live)) => return Ok(Some(live.clone())),
                    // Another process on the same store may have opened it, so that a missing entry says nothing.
                    Some(SessionEntry::Dormant { .. }) | None => (None, Some(inner.ends)),
                }
            };
            if let Some(live) = live {
                return self.shared_live(live, now).await;
            }
            let Some(ends) = ends else {
                // It takes as long as one that never was: the store is asked for what is not there.
                let absent = digest.map(|byte| !byte);
                return self.rows.row(RowKind::Session, &absent).await.map(|_| None);
            };
            let Some(live) = self.revived(requestor, id, now).await? else { return Ok(None) };
            let mut inner = self.inner.lock();
            if let Some(SessionEntry::Live(live)) = inner.entries.get(&digest) {
                return Ok(Some(live.clone()));
            }
            // If one ended while the row was read, it may be this one.
            if inner.ends == ends {
                let live = Arc::new(live);
                inner.put(digest, SessionEntry::Live(live.clone()));
                return Ok(Some(live));
            }
        }
    }

    /// A session in memory, as other hosts have left it: it may be over, or further than it is known here.
    async fn shared_live(&self, live: Arc<LiveSession>, now: UnixMs) -> Result<Option<Arc<LiveSession>>, store::Error> {
        let value = self.rows.row(RowKind::Session, &live.digest).await?;
        let mut saved = live.saved.lock();
        if saved.revision == u64::MAX {
            // The store has refused its row so far.
            return Ok(Some(Arc::clone(&live)));
        }
        let row = value.as_deref().and_then(Row::decode).filter(|row| row.requestor == live.requestor);
        let Some(row) = row else {
            drop(saved);
            self.take(&mut self.inner.lock(), &live.digest);
            return Ok(None);
        };
        live.used_at.fetch_max(row.used_at, Ordering::Relaxed);
        if live.is_idle(now, self.options.idle_ms_max) {
            return Ok(None);
        }
        if live.session.changes() == saved.revision {
            live.session.adopt(row.state);
            saved.revision = live.session.changes();
        }
        drop(saved);
        Ok(Some(live))
    }

    /// Whether another host has used a session that was idle here.
    async fn is_used_elsewhere(&self, digest: &Digest, now: UnixMs) -> bool {
        // Where the rows cannot be read, the session is looked at again.
        let Ok(value) = self.rows.row(RowKind::Session, digest).await else { return true };
        let Some(row) = value.as_deref().and_then(Row::decode) else { return false };
        let is_used = now <= row.used_at.saturating_add(self.options.idle_ms_max);
        match self.inner.lock().entries.get_mut(digest) {
            Some(SessionEntry::Dormant { used_at, .. }) => *used_at = row.used_at,
            Some(SessionEntry::Live(live)) => _ = live.used_at.fetch_max(row.used_at, Ordering::Relaxed),
            None => {}
        }
        is_used
    }

    /// Writes the row of a session. Where hosts share the rows, one that is gone stays gone: the session was ended
    /// elsewhere.
    async fn write_row(&self, live: &LiveSession, is_new: bool, value: Vec<u8>) -> Result<(), store::Error> {
        if !self.is_shared || is_new {
            return self.rows.put_row(RowKind::Session, &live.digest, value, false).await;
        }
        let Some(before) = self.rows.row(RowKind::Session, &live.digest).await? else {
            self.take(&mut self.inner.lock(), &live.digest);
            return Ok(());
        };
        let key = live.digest.to_vec();
        let expected = vec![(key.clone(), Some(before))];
        self.rows.change_rows(RowKind::Session, expected, vec![(key, Some(value))], None).await
    }

    /// A session as its row has it, if it is this requestor's and not over.
    async fn revived(&self, requestor: &Requestor, id: &str, now: UnixMs) -> Result<Option<LiveSession>, store::Error> {
        let digest = digest(id);
        let Some(value) = self.rows.row(RowKind::Session, &digest).await? else { return Ok(None) };
        let row = Row::decode(&value)
            .filter(|row| row.requestor == *requestor && now <= row.used_at.saturating_add(self.options.idle_ms_max));
        let Some(row) = row else { return Ok(None) };
        // A row never speaks for any requestor but the one under whose key it was found.
        let session = Session::restore(id, row.state).filter(|session| session.requestor() == requestor).map(Arc::new);
        Ok(session.map(|session| LiveSession {
            streams: Streams::default(),
            standalone: OnceLock::new(),
            digest,
            requestor: *requestor,
            created_at: row.created_at,
            used_at: AtomicU64::new(now),
            requests_open: AtomicU32::new(0),
            saved: Mutex::new(Saved { revision: session.changes(), used_at: row.used_at }),
            ended: SetOnce::new(),
            kept: self.kept(*requestor),
            session,
        }))
    }

    /// Ends a session in memory, and counts it; the row is the caller's business.
    fn take(&self, inner: &mut Entries, digest: &Digest) {
        if let Some(SessionEntry::Live(live)) = inner.take(digest) {
            let lasted = Duration::from_millis(self.now.steady().saturating_sub(live.created_at));
            self.quota.metrics.session_ended(Transport::Http, live.session.protocol_version(), lasted);
        }
    }

    /// Ends a session for good.
    pub(super) async fn end(&self, live: &LiveSession) {
        self.take(&mut self.inner.lock(), &live.digest);
        self.remove_row(&live.digest).await;
    }

    /// Writes the session if its state changed.
    pub(super) async fn save(&self, live: &LiveSession) {
        let used_at = live.used_at.load(Ordering::Relaxed);
        let saved = *live.saved.lock();
        // How long a session was idle need not be exact: a restart may cost it a quarter of its time, not a write a
        // request.
        let stale = used_at > saved.used_at.saturating_add(self.options.idle_ms_max / 4);
        let revision = live.session.changes();
        if (revision == saved.revision && !stale) || live.ended.initialized() {
            return;
        }
        let state = live.session.state();
        let row = Row { requestor: live.requestor, created_at: live.created_at, used_at, state: &state };
        let value = row.encode();
        if value.len() > ROW_BYTES_MAX {
            tracing::warn!(session.bytes = value.len(), "a session is too large to be kept over a restart");
        } else if let Err(error) = self.write_row(live, saved.revision == u64::MAX, value).await {
            tracing::warn!(%error, "a session could not be saved; it will not survive a restart");
            return;
        }
        *live.saved.lock() = Saved { revision, used_at };
        if live.ended.initialized() {
            // It ended while it was being written.
            self.remove_row(&live.digest).await;
        }
    }

    /// Removes the row of a session that was taken out of memory, and the session once more: a request that read the
    /// row before may have restored it.
    async fn remove_row(&self, digest: &Digest) {
        if let Err(error) = self.rows.remove_row(RowKind::Session, digest).await {
            tracing::warn!(%error, "the row of a session that is over could not be removed");
        }
        self.take(&mut self.inner.lock(), digest);
    }

    /// Ends sessions that were idle for too long, forgets old streams, and writes what changed.
    pub async fn sweep(&self) {
        let now = self.now.steady();
        let (expired, kept) = {
            let mut inner = self.inner.lock();
            let idle = inner.entries.iter().filter(|(_, entry)| entry.is_idle(now, self.options.idle_ms_max));
            let expired: Vec<Digest> = idle.map(|(digest, _)| *digest).collect();
            if !self.is_shared {
                expired.iter().for_each(|digest| {
                    self.take(&mut inner, digest);
                });
            }
            let live = inner.entries.values().filter_map(|entry| match entry {
                SessionEntry::Live(live) => Some(live.clone()),
                SessionEntry::Dormant { .. } => None,
            });
            (expired, live.collect::<Vec<_>>())
        };
        for digest in expired {
            if !self.is_shared || !self.is_used_elsewhere(&digest, now).await {
                self.remove_row(&digest).await;
            }
        }
        for live in kept {
            live.streams.sweep(now);
            self.save(&live).await;
        }
    }

    /// Forgets the sessions of a tenant; their rows are for the caller to remove.
    pub fn forget_tenant(&self, tenant: TenantId) {
        let mut inner = self.inner.lock();
        let own = inner.entries.iter().filter(|(_, entry)| entry.requestor().tenant == tenant);
        let own: Vec<Digest> = own.map(|(digest, _)| *digest).collect();
        own.iter().for_each(|digest| {
            self.take(&mut inner, digest);
        });
    }

    /// How often [`sweep`](Self::sweep) is due.
    pub(super) fn sweep_ms(&self) -> u64 {
        (self.options.idle_ms_max / 4).clamp(100, 10_000)
    }
}

/// Removes what is stored of a tenant's sessions; returns their number.
pub async fn remove_rows(rows: &dyn RowStore, tenant: TenantId) -> Result<u64, store::Error> {
    let mut removed = 0;
    let mut after = None::<Vec<u8>>;
    loop {
        let page = rows.rows(RowKind::Session, after.as_deref(), PAGE_ROWS).await?;
        let Some((last, _)) = page.last() else { return Ok(removed) };
        after = Some(last.clone());
        for (key, value) in &page {
            if Row::decode(value).is_some_and(|row| row.requestor.tenant == tenant) {
                rows.remove_row(RowKind::Session, key).await?;
                removed += 1;
            }
        }
    }
}

fn digest(id: &str) -> Digest {
    Sha256::digest(id.as_bytes()).into()
}
