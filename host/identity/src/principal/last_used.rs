//! When each token was used last.
//!
//! Owns what was seen since the last write. Invariant: a request never waits for a write of this; at most one is made
//! every few seconds, for all tokens together, and it cannot undo what an operator wrote: it has rows of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Error, KEY_USED, Principals, Resolved, decode, encode};
use bulkhead_audit::{Audit, Entry};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::{UnixMs, hex};
use bulkhead_store::RowKind;

/// How long uses are collected before they are written.
const COLLECT: Duration = Duration::from_secs(5);
/// Between two lines of the audit log about one token of the host, or about the access tokens of one requestor.
pub const NOTE_EVERY_MS: u64 = 60_000;
/// Rows of one write.
const ROWS_MAX: usize = 256;

pub(super) type TokenId = [u8; 8];

#[derive(Clone, Copy)]
struct Use {
    requestor: Requestor,
    /// Where the token's own row is.
    row: [u8; 32],
    at: UnixMs,
}

/// Uses that are not written yet.
pub struct LastUsed {
    principals: Principals,
    seen: Mutex<HashMap<TokenId, Use>>,
    any: Notify,
}

impl LastUsed {
    pub fn new(principals: Principals) -> Arc<Self> {
        Arc::new(Self { principals, seen: Mutex::default(), any: Notify::new() })
    }

    pub fn note(&self, token: &Resolved, row: [u8; 32], now: UnixMs) {
        let mut seen = self.seen.lock();
        if seen.insert(token.id, Use { requestor: token.requestor, row, at: now }).is_none() {
            self.any.notify_one();
        }
    }

    /// Writes what is seen for as long as it is polled, and notes each token that is used, once in a while.
    pub async fn run_maintenance(&self, audit: &Audit) {
        let mut noted: HashMap<TokenId, UnixMs> = HashMap::new();
        loop {
            self.any.notified().await;
            tokio::time::sleep(COLLECT).await;
            let seen = self.seen.lock().clone();
            let newest = seen.values().map(|used| used.at).max().unwrap_or_default();
            noted.retain(|_, at| newest.saturating_sub(*at) < NOTE_EVERY_MS);
            for (id, Use { requestor, at, .. }) in seen {
                noted.entry(id).or_insert_with(|| {
                    audit.note(|| Entry::new("token.used").by(&requestor).named(&hex(&id)));
                    at
                });
            }
            if let Err(error) = self.write().await {
                // What cannot be written is seen again with the next use.
                tracing::debug!(%error, "the last uses of tokens were not written");
            }
        }
    }

    /// Writes what was seen so far.
    ///
    /// # Errors
    /// The store refuses.
    pub async fn write(&self) -> Result<(), Error> {
        let seen = std::mem::take(&mut *self.seen.lock());
        let mut changes = Vec::with_capacity(seen.len());
        for (id, Use { row, at, .. }) in seen {
            // Nothing may be left of a token that was removed with its tenant.
            if self.principals.store.row(RowKind::Token, &row).await?.is_none() {
                continue;
            }
            changes.push((key(&id), Some(encode(RowKind::Principal, &at)?)));
        }
        for changes in changes.chunks(ROWS_MAX) {
            self.principals.store.change_rows(RowKind::Principal, Vec::new(), changes.to_vec(), None).await?;
        }
        Ok(())
    }
}

impl Principals {
    /// When a token was used last, as far as it was written.
    pub async fn used_at(&self, id: &TokenId) -> Result<Option<UnixMs>, Error> {
        let row = self.store.row(RowKind::Principal, &key(id)).await?;
        row.map(|bytes| decode(RowKind::Principal, &bytes)).transpose()
    }
}

pub(super) fn key(id: &TokenId) -> Vec<u8> {
    let mut key = vec![KEY_USED];
    key.extend_from_slice(hex(id).as_bytes());
    key
}
