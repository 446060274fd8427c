//! What plugins keep: bytes under keys, for one plugin in one tenant.
//!
//! Owns the rows of [`RowKind::KeyValue`]: entries, the pieces of large values, the index of what expires, and the
//! count that quotas are checked against. Must not know a clock (times come in) or who may keep anything. Invariant: an
//! entry, its pieces and its place in the index change in one step, and a key begins with tenant and plugin, so that
//! nobody's keys are found by anybody else. Where a tenant has a sealing key, no value is written in the clear; keys,
//! sizes and times are, which listing and expiry need.

mod layout;
#[cfg(test)]
mod tests;
mod write_limiter;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::OnceCell;

pub(super) use self::layout::tenant_of;
use self::layout::{Entry, StoredValue, due};
use self::write_limiter::WriteLimiter;
use super::journal::Beside;
use super::{Error, RowKind, RowState, Store};
use bulkhead_domain::UnixMs;
use bulkhead_domain::limits::KeyValueLimits;
use bulkhead_domain::requestor::TenantId;
use bulkhead_limits::scoped::Amount;

/// Bytes of a kept value's key.
pub const KEY_BYTES_MAX: usize = 256;
/// Bytes of a kept value, whatever the operator grants: it is written in one step.
pub const VALUE_BYTES_MAX: u64 = 1 << 20;
/// Keys of kept values in one page.
pub const PAGE_KEYS_MAX: usize = 100;

/// Rows that one look takes on.
const PAGE_ROWS: usize = 128;
/// Entries that are removed in one step once they have expired.
const SWEEP_ROWS: usize = 64;
/// Writers of one key that may get in each other's way before something is wrong: every retry means that another one
/// won.
const CONFLICTS_MAX: u32 = 1_000;

/// Why something was not kept or found.
#[derive(Debug, thiserror::Error)]
pub enum KeyValueError {
    /// The value is larger than one may be.
    #[error("the value has {bytes} bytes; {bytes_max} is the most")]
    TooLarge { bytes: u64, bytes_max: u64 },
    /// The plugin's share in this tenant is used up.
    #[error("{limit} is at its limit of {value}")]
    Quota { limit: &'static str, value: u64 },
    #[error(transparent)]
    Store(#[from] Error),
}

/// A page of keys; `next` is where the next page begins, if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPage {
    pub keys: Vec<String>,
    pub next: Option<String>,
}

/// What a plugin keeps in a tenant, expired entries included until they are swept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyValueUsage {
    pub keys: u64,
    /// Keys and values.
    pub bytes: u64,
}

impl Amount for KeyValueUsage {
    fn zip(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        Self { keys: with(self.keys, other.keys), bytes: with(self.bytes, other.bytes) }
    }
}

/// Whose entries they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyValueNamespace {
    pub tenant: TenantId,
    /// Its name: versions share what they keep.
    pub plugin: Arc<str>,
}

/// What has been counted; a space is counted once, before it is first changed.
type Count = Arc<OnceCell<Mutex<KeyValueUsage>>>;

/// What has to be there so that a value is written.
pub struct Condition<'a> {
    pub is_expected: &'a (dyn Fn(Option<&[u8]>) -> bool + Send + Sync),
    /// What has expired by now is not there.
    pub now: UnixMs,
}

/// A value that is to be kept.
struct NewEntry<'a> {
    key: &'a str,
    value: &'a [u8],
    /// When it goes away by itself.
    expires_at: Option<UnixMs>,
}

/// Everything that plugins keep.
pub struct KeyValues {
    rows: Arc<dyn Store>,
    counts: Mutex<HashMap<KeyValueNamespace, Count>>,
    turns: WriteLimiter,
}

impl KeyValues {
    pub fn new(rows: Arc<dyn Store>) -> Self {
        Self { rows, counts: Mutex::default(), turns: WriteLimiter::default() }
    }

    /// The value, unless it has expired.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub async fn get(&self, space: &KeyValueNamespace, key: &str, now: UnixMs) -> Result<Option<Vec<u8>>, Error> {
        for _ in 0..CONFLICTS_MAX {
            let Some((entry, _)) = self.entry(&space.entry(key)).await? else { return Ok(None) };
            if entry.is_expired(now) {
                return Ok(None);
            }
            // A piece is missing where somebody wrote another value in between.
            let Some(value) = self.opened(space, key, &entry).await? else { continue };
            return Ok(Some(value));
        }
        Err(Error::Corrupt("pieces of a kept value are missing".to_owned()))
    }

    /// Keeps a value, durable on return, in the place of the one before; `expires_at` is when it goes away by itself.
    /// What is `beside` it goes to a task's journal in the same step.
    ///
    /// # Errors
    ///
    /// What does not fit, or the store's failure. Nothing was appended then, unless the store did not say.
    pub async fn set(
        &self,
        space: &KeyValueNamespace,
        limits: &KeyValueLimits,
        key: &str,
        value: &[u8],
        expires_at: Option<UnixMs>,
        beside: Option<Beside>,
    ) -> Result<(), KeyValueError> {
        self.write(space, limits, NewEntry { key, value, expires_at }, None, beside).await.map(|_| ())
    }

    /// Keeps a value, durable on return, if what is there is what its writer takes it for; says whether it was. An
    /// earlier time to live is gone. What is `beside` it goes to a task's journal in the same step, and only if the
    /// value was kept.
    ///
    /// # Errors
    ///
    /// As [`Self::set`].
    pub async fn set_if(
        &self,
        space: &KeyValueNamespace,
        limits: &KeyValueLimits,
        key: &str,
        value: &[u8],
        condition: Condition<'_>,
        beside: Option<Beside>,
    ) -> Result<bool, KeyValueError> {
        self.write(space, limits, NewEntry { key, value, expires_at: None }, Some(condition), beside).await
    }

    /// Whether the value was written, which only a condition can prevent.
    async fn write(
        &self,
        space: &KeyValueNamespace,
        limits: &KeyValueLimits,
        entry: NewEntry<'_>,
        condition: Option<Condition<'_>>,
        beside: Option<Beside>,
    ) -> Result<bool, KeyValueError> {
        let NewEntry { key, value, expires_at } = entry;
        let bytes = value.len() as u64;
        let bytes_max = limits.value_bytes_max.min(VALUE_BYTES_MAX);
        if bytes > bytes_max {
            return Err(KeyValueError::TooLarge { bytes, bytes_max });
        }
        let _turn = self.turns.take(space.tenant, bytes).await;
        let count = self.count(space).await?;
        let sealing = self.rows.sealing_key(space.tenant).await?;
        let at = space.entry(key);
        for _ in 0..CONFLICTS_MAX {
            let old = self.entry(&at).await?;
            if let Some(condition) = &condition {
                let present = old.as_ref().map(|(entry, _)| entry).filter(|entry| !entry.is_expired(condition.now));
                let value = match present {
                    None => None,
                    // A piece is missing where somebody wrote another value in between.
                    Some(entry) => match self.opened(space, key, entry).await? {
                        None => continue,
                        value => value,
                    },
                };
                if !(condition.is_expected)(value.as_deref()) {
                    return Ok(false);
                }
            }
            let (entry, pieces) = Entry::new(space, key, value, expires_at, sealing.as_ref())?;
            let before = old.as_ref().map(|(entry, _)| entry.counted(key)).unwrap_or_default();
            let after = entry.counted(key);
            reserve(&count, before, after, limits)?;
            let mut changes = old.iter().flat_map(|(old, _)| old.removal(space, key)).collect::<Vec<_>>();
            changes.push((at.clone(), Some(entry.encode())));
            changes.extend(pieces);
            changes.extend(expires_at.map(|due| (space.due(due, key), Some(Vec::new()))));
            match self.change(space, &at, old, changes, beside.clone()).await {
                Ok(()) => {
                    release(&count, after, before)?;
                    return Ok(true);
                }
                Err(Error::Conflict) => release(&count, before, after)?,
                // Certainly not written.
                Err(error) if is_refusal(&error) => {
                    release(&count, before, after)?;
                    return Err(error.into());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Conflict.into())
    }

    /// Forgets a key; an absent one is fine. Durable on return, with what is `beside` it in a task's journal.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub async fn delete(&self, space: &KeyValueNamespace, key: &str, beside: Option<Beside>) -> Result<(), Error> {
        let _turn = self.turns.take(space.tenant, 0).await;
        let count = self.count(space).await?;
        let at = space.entry(key);
        for _ in 0..CONFLICTS_MAX {
            let old = self.entry(&at).await?;
            if old.is_none() && beside.is_none() {
                return Ok(());
            }
            let gone = old.as_ref().map(|(old, _)| old.counted(key)).unwrap_or_default();
            let mut changes = old.iter().flat_map(|(old, _)| old.removal(space, key)).collect::<Vec<_>>();
            changes.push((at.clone(), None));
            match self.change(space, &at, old, changes, beside.clone()).await {
                Ok(()) => return release(&count, KeyValueUsage::default(), gone),
                Err(Error::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Conflict)
    }

    /// Keys that begin with `prefix` and have not expired, in their order, strictly after `after`.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub async fn keys(
        &self,
        space: &KeyValueNamespace,
        prefix: &str,
        after: Option<&str>,
        now: UnixMs,
    ) -> Result<KeyPage, Error> {
        let first = space.entry(prefix);
        let mut page = KeyPage::default();
        // The key that is the prefix itself is part of the answer.
        let at = match after {
            Some(after) => space.entry(after),
            None => match self.entry(&first).await? {
                Some((entry, _)) if !prefix.is_empty() && !entry.is_expired(now) => {
                    page.keys.push(prefix.to_owned());
                    first.clone()
                }
                _ => first.clone(),
            },
        };
        let see = |row: &[u8], entry: Entry| {
            if entry.is_expired(now) {
                return Ok(ControlFlow::Continue(()));
            }
            if page.keys.len() == PAGE_KEYS_MAX {
                page.next = page.keys.last().cloned();
                return Ok(ControlFlow::Break(()));
            }
            page.keys.push(space.key_of(row)?);
            Ok(ControlFlow::Continue(()))
        };
        self.each_entry(&first, at, see).await?;
        Ok(page)
    }

    /// What is kept.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub async fn kept(&self, space: &KeyValueNamespace) -> Result<KeyValueUsage, Error> {
        let count = self.count(space).await?;
        let kept = *lock(count.get())?;
        Ok(kept)
    }

    /// Removes entries that have expired, at most `count_max`; returns how many.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub async fn sweep(&self, now: UnixMs, count_max: usize) -> Result<usize, Error> {
        let mut swept = 0;
        while swept < count_max {
            // One row says whether there is anything to do.
            let first = self.rows.rows(RowKind::KeyValue, None, 1).await?;
            if first.first().and_then(|(row, _)| due(row)).is_none_or(|due| due.at > now) {
                break;
            }
            let rows = self.rows.rows(RowKind::KeyValue, None, SWEEP_ROWS.min(count_max - swept)).await?;
            let expired: Vec<_> = rows.iter().map_while(|(row, _)| due(row).filter(|due| due.at <= now)).collect();
            let together = self.forget(&expired).await;
            if matches!(together, Err(Error::Conflict)) {
                // Somebody wrote one of them again: the others go one by one.
                for due in &expired {
                    match self.forget(std::slice::from_ref(due)).await {
                        Ok(()) | Err(Error::Conflict) => {}
                        Err(error) => return Err(error),
                    }
                }
            } else {
                together?;
            }
            swept += expired.len();
        }
        Ok(swept)
    }

    /// Removes these entries in one step, unless one of them is another one by now.
    async fn forget(&self, expired: &[layout::Due]) -> Result<(), Error> {
        let mut expected = Vec::new();
        let mut changes = Vec::new();
        let mut gone = Vec::new();
        for due in expired {
            let at = due.space.entry(&due.key);
            // Counted before it is read, so that a count that begins now does not miss the removal.
            let count = self.count(&due.space).await?;
            changes.push((due.space.due(due.at, &due.key), None));
            let Some((entry, bytes)) = self.entry(&at).await? else { continue };
            if entry.expires_at == Some(due.at) {
                changes.extend(entry.removal(&due.space, &due.key));
                changes.push((at.clone(), None));
                gone.push((count, entry.counted(&due.key)));
            }
            expected.push((at, Some(bytes)));
        }
        self.rows.change_rows(RowKind::KeyValue, expected, changes, None).await?;
        gone.iter().try_for_each(|(count, gone)| release(count, KeyValueUsage::default(), *gone))
    }

    /// Makes changes if the entry is still the `old` one. Where nobody knows afterwards whether they were made, the
    /// space is counted again.
    async fn change(
        &self,
        space: &KeyValueNamespace,
        at: &[u8],
        old: Option<(Entry, Vec<u8>)>,
        changes: Vec<RowState>,
        beside: Option<Beside>,
    ) -> Result<(), Error> {
        let expected = vec![(at.to_vec(), old.map(|(_, bytes)| bytes))];
        let changed = self.rows.change_rows(RowKind::KeyValue, expected, changes, beside).await;
        if changed.as_ref().is_err_and(|error| !is_refusal(error) && !matches!(error, Error::Conflict)) {
            self.counts.lock().remove(space);
        }
        changed
    }

    /// Shows the entries after `at` whose rows begin with `prefix`, in their order, for as long as `see` goes on.
    async fn each_entry(
        &self,
        prefix: &[u8],
        mut at: Vec<u8>,
        mut see: impl FnMut(&[u8], Entry) -> Result<ControlFlow<()>, Error> + Send,
    ) -> Result<(), Error> {
        loop {
            let rows = self.rows.rows(RowKind::KeyValue, Some(&at), PAGE_ROWS).await?;
            let full = rows.len() == PAGE_ROWS;
            for (row, value) in rows {
                if !row.starts_with(prefix) || see(&row, Entry::decode(&value)?)?.is_break() {
                    return Ok(());
                }
                at = row;
            }
            if !full {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }

    /// An entry, and its bytes.
    async fn entry(&self, at: &[u8]) -> Result<Option<(Entry, Vec<u8>)>, Error> {
        let Some(bytes) = self.rows.row(RowKind::KeyValue, at).await? else { return Ok(None) };
        Ok(Some((Entry::decode(&bytes)?, bytes)))
    }

    /// The value of an entry; `None` when one of its pieces is not there.
    async fn opened(&self, space: &KeyValueNamespace, key: &str, entry: &Entry) -> Result<Option<Vec<u8>>, Error> {
        let Some(stored) = self.stored(space, entry).await? else { return Ok(None) };
        let sealing = if entry.is_sealed { self.rows.sealing_key(space.tenant).await? } else { None };
        entry.open(space, key, stored, sealing.as_ref()).map(Some)
    }

    /// What is stored for a value; `None` when one of its pieces is not there.
    async fn stored(&self, space: &KeyValueNamespace, entry: &Entry) -> Result<Option<Vec<u8>>, Error> {
        match &entry.value {
            StoredValue::Here(stored) => Ok(Some(stored.clone())),
            StoredValue::Pieces { stamp, count } => {
                let mut stored = Vec::new();
                for number in 0..*count {
                    match self.rows.row(RowKind::KeyValue, &space.piece(*stamp, number)).await? {
                        Some(piece) => stored.extend(piece),
                        None => return Ok(None),
                    }
                }
                Ok(Some(stored))
            }
        }
    }

    /// The count of a space; made at the first look, by reading it once.
    async fn count(&self, space: &KeyValueNamespace) -> Result<Count, Error> {
        let count = Arc::clone(self.counts.lock().entry(space.clone()).or_default());
        count.get_or_try_init(|| self.read_count(space)).await?;
        Ok(count)
    }

    async fn read_count(&self, space: &KeyValueNamespace) -> Result<Mutex<KeyValueUsage>, Error> {
        let prefix = space.entry("");
        let mut kept = KeyValueUsage::default();
        let see = |row: &[u8], entry: Entry| {
            kept = kept.zip(entry.counted(&space.key_of(row)?), u64::saturating_add);
            Ok(ControlFlow::Continue(()))
        };
        self.each_entry(&prefix, prefix.clone(), see).await?;
        Ok(Mutex::new(kept))
    }
}

/// Whether nothing was written, for certain, and trying again would change nothing.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::ReadOnly(_) | Error::Fenced | Error::Quota { .. })
}

/// Counts what a change will add, if it fits; what it takes away is counted once it is done.
fn reserve(
    count: &Count,
    before: KeyValueUsage,
    after: KeyValueUsage,
    limits: &KeyValueLimits,
) -> Result<(), KeyValueError> {
    let mut kept = lock(count.get())?;
    let more = after.zip(before, u64::saturating_sub);
    for (limit, kept, more, value) in [
        ("plugin.kv.keys_max", kept.keys, more.keys, u64::from(limits.keys_max)),
        ("plugin.kv.bytes_max", kept.bytes, more.bytes, limits.bytes_max),
    ] {
        if more > 0 && kept + more > value {
            return Err(KeyValueError::Quota { limit, value });
        }
    }
    *kept = kept.zip(more, u64::saturating_add);
    Ok(())
}

/// Takes back what was counted from `before` to `after`.
fn release(count: &Count, before: KeyValueUsage, after: KeyValueUsage) -> Result<(), Error> {
    let mut kept = lock(count.get())?;
    *kept = kept.zip(after.zip(before, u64::saturating_sub), u64::saturating_sub);
    Ok(())
}

fn lock(kept: Option<&Mutex<KeyValueUsage>>) -> Result<MutexGuard<'_, KeyValueUsage>, Error> {
    let kept = kept.ok_or_else(|| Error::Engine("a space was not counted".to_owned()))?;
    Ok(kept.lock())
}
