//! Reading, from any thread.
//!
//! Owns the rule that readers see durable state only: the tree, with the group that is on its way to disk taken off
//! again. Must not write. Invariant: what a reader was told is still true after a crash.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::{Condvar, Mutex};
use tokio::runtime::RuntimeFlavor;

use super::super::{Error, RowKind};
use super::errors::{closed, engine_error};
use super::files::Files;
use super::group::Group;
use super::head::{CHUNK_BYTES, PayloadLocation, RecordHeader};
use super::keys::{self, Part, TaskKey};

/// How often a read begins again because the task changed under it, before the data counts as damaged.
const ATTEMPTS: usize = 16;
/// How many rows are taken from the tree at once.
const SCAN_ROWS: usize = 256;

/// How long a reader waits while the engine is opened again.
const AWAY_MAX: Duration = Duration::from_secs(10);

type Row = (::sled::IVec, ::sled::IVec);

/// What readers share with the committer.
#[derive(Default)]
pub(super) struct View {
    tree: ArcSwapOption<::sled::Tree>,
    /// The group that is applied but not yet durable. After a failed write it stays here until the engine was opened
    /// again.
    pending: ArcSwapOption<Group>,
    generations: Generations,
    /// Whether the tree is coming back.
    away: Mutex<bool>,
    back: Condvar,
}

/// Counts up, for each kind of small rows, whenever readers may see others than before.
struct Generations([AtomicU64; RowKind::ALL.len()]);

impl Default for Generations {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Generations {
    fn counts(&self) -> impl Iterator<Item = (RowKind, &AtomicU64)> {
        RowKind::ALL.into_iter().zip(&self.0)
    }

    fn of(&self, kind: RowKind) -> u64 {
        self.counts().find(|(other, _)| *other == kind).map_or(0, |(_, count)| count.load(Ordering::Acquire))
    }

    fn count_up(&self, is_touched: impl Fn(RowKind) -> bool) {
        for (_, count) in self.counts().filter(|(kind, _)| is_touched(*kind)) {
            count.fetch_add(1, Ordering::Release);
        }
    }
}

impl View {
    /// Gives a newly opened tree to the readers.
    pub(super) fn give(&self, tree: ::sled::Tree) {
        self.set(Some(tree), false);
    }

    /// Takes the tree away for a moment: readers wait for the next one.
    pub(super) fn take_away(&self) {
        self.set(None, true);
    }

    /// Takes the tree away until further notice: readers are refused.
    pub(super) fn close(&self) {
        self.set(None, false);
    }

    fn set(&self, tree: Option<::sled::Tree>, away: bool) {
        let mut is_away = self.away.lock();
        self.tree.store(tree.map(Arc::new));
        self.generations.count_up(|_| true);
        *is_away = away;
        self.back.notify_all();
    }

    /// The tree, as soon as there is one.
    fn tree(&self) -> Guard<Option<Arc<::sled::Tree>>> {
        let tree = self.tree.load();
        if tree.is_some() {
            return tree;
        }
        let wait = || {
            let mut away = self.away.lock();
            let _ = self.back.wait_while_for(&mut away, |away| *away, AWAY_MAX);
        };
        // Readers are on the threads that serve everything else, which must go on meanwhile.
        match tokio::runtime::Handle::try_current() {
            Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => tokio::task::block_in_place(wait),
            _ => wait(),
        }
        self.tree.load()
    }

    /// What [`RowStore::generation`](super::super::RowStore::generation) says.
    pub(super) fn generation(&self, kind: RowKind) -> u64 {
        self.generations.of(kind)
    }

    /// Hides a group from the readers (before it is applied), or shows it (`None`, once it is durable).
    pub(super) fn hide(&self, group: Option<Arc<Group>>) {
        let before = self.pending.swap(group.clone());
        let groups = [before, group].into_iter().flatten();
        let is_touched = |kind| groups.clone().any(|group| group.touches(kind as u8));
        self.generations.count_up(is_touched);
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<::sled::IVec>, Error> {
        let tree = self.tree();
        let value = tree.as_ref().ok_or_else(closed)?.get(key).map_err(engine_error)?;
        // The tree first, the group second: a group that came and went in between has become durable.
        match self.pending.load().as_ref().and_then(|group| group.before(key).map(Option::<&_>::cloned)) {
            Some(before) => Ok(before),
            None => Ok(value),
        }
    }

    /// Rows from `start` up to the end of `prefix`, at most `rows_max`, in key order.
    pub(super) fn scan(&self, prefix: &[u8], start: &[u8], rows_max: usize) -> Result<Vec<Row>, Error> {
        let end = keys::after_prefix(prefix);
        let until = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rows = Vec::new();
        let mut from = start.to_vec();
        while rows.len() < rows_max {
            let (mut page, last) = self.page(&from, until, SCAN_ROWS.min(rows_max - rows.len()))?;
            rows.append(&mut page);
            match last {
                Some(last) => from = keys::successor(&last),
                None => break,
            }
        }
        Ok(rows)
    }

    /// One step of a scan, with the key up to which it got; `None` at the end.
    fn page(&self, from: &[u8], until: Bound<&[u8]>, rows_max: usize) -> Result<(Vec<Row>, Option<Vec<u8>>), Error> {
        let tree = self.tree();
        let tree = tree.as_ref().ok_or_else(closed)?;
        let found: Result<Vec<Row>, _> =
            tree.range::<&[u8], _>((Bound::Included(from), until)).take(rows_max).collect();
        let mut rows = found.map_err(engine_error)?;
        let last = if rows.len() < rows_max { None } else { rows.last().map(|(key, _)| key.to_vec()) };
        if let Some(group) = self.pending.load().as_ref() {
            let reached = last.as_deref().map_or(until, Bound::Included);
            let before: Vec<_> = group.range_before((Bound::Included(from), reached)).collect();
            if !before.is_empty() {
                rows.retain(|(key, _)| group.before(key).is_none());
                let absent = |(key, value): (&[u8], Option<&::sled::IVec>)| Some((key.into(), value?.clone()));
                rows.extend(before.into_iter().filter_map(absent));
                rows.sort_by(|(one, _), (other, _)| one.cmp(other));
            }
        }
        Ok((rows, last))
    }

    pub(super) fn head(&self, key: &TaskKey) -> Result<Option<RecordHeader>, Error> {
        self.get(&key.task())?.map(|value| RecordHeader::decode(&value)).transpose()
    }

    /// Reads one payload of a task; `None` when the task, or this payload of it, is not there.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] when the head names bytes that are not there.
    pub(super) fn payload(
        &self,
        files: &Files,
        key: &TaskKey,
        part: Part,
        location: impl Fn(RecordHeader) -> Option<PayloadLocation>,
    ) -> Result<Option<Vec<u8>>, Error> {
        // Record chunks change and everything goes with its task, in between two reads: then the head has changed as
        // well.
        for _ in 0..ATTEMPTS {
            let Some(location) = self.head(key)?.and_then(&location) else { return Ok(None) };
            if let Some(bytes) = self.read_place(files, key, part, location)? {
                return Ok(Some(bytes));
            }
        }
        Err(Error::Corrupt(format!("the {part:?} of task {} does not match its head", key.id)))
    }

    /// The bytes at a place, if all of them are there.
    fn read_place(
        &self,
        files: &Files,
        key: &TaskKey,
        part: Part,
        location: PayloadLocation,
    ) -> Result<Option<Vec<u8>>, Error> {
        let (bytes, bytes_expected, checksum) = match location {
            PayloadLocation::Inline(bytes) => return Ok(Some(bytes)),
            PayloadLocation::File { name, bytes, checksum } => {
                (files.read(&name)?.unwrap_or_default(), bytes, checksum)
            }
            PayloadLocation::Chunks { bytes, checksum } => {
                let mut whole = Vec::new();
                for number in 0..chunk_count(bytes) {
                    match self.get(&key.chunk(part, number))? {
                        Some(chunk) => whole.extend_from_slice(&chunk),
                        None => return Ok(None),
                    }
                }
                (whole, bytes, checksum)
            }
        };
        let intact = bytes.len() as u64 == bytes_expected && crc32fast::hash(&bytes) == checksum;
        Ok(intact.then_some(bytes))
    }
}

/// How many chunks hold this many bytes.
pub(super) fn chunk_count(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(CHUNK_BYTES as u64)).unwrap_or(u32::MAX)
}
