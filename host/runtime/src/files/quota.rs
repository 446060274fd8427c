//! How much a writable directory may hold.
//!
//! Owns the count of each directory that has a quota, shared by all calls and plugins that write there. Every growth is
//! counted before it happens. What becomes smaller is not followed: when there seems to be no room left, the directory
//! is measured. Invariant: what guests add is never counted late, so that they do not get past the quota together; a
//! count may be too high for a moment, never too low.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use super::walk::{ENTRY_BYTES, measure};
use crate::blocking::Blocking;

/// How soon a directory that only grew is measured again: others than guests may have made room.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// After a measurement, its directory rests this many times as long: measuring takes a tenth of one processor at most.
const REST: u32 = 9;
const ENOSPC: i32 = 28;

/// There is no room.
#[derive(Debug)]
pub(super) struct DirectoryFull;

impl From<DirectoryFull> for io::Error {
    fn from(_: DirectoryFull) -> Self {
        // Guests know this one as a full disk.
        Self::from_raw_os_error(ENOSPC)
    }
}

/// The counts of all directories that have a quota.
#[derive(Debug, Default)]
pub(crate) struct Quotas(Mutex<HashMap<PathBuf, Arc<Usage>>>);

impl Quotas {
    /// The quota of a directory, by whichever name it was found.
    pub(super) fn of_directory(&self, path: &Path, bytes_max: u64, blocking: &Blocking) -> io::Result<DirectoryQuota> {
        let path = path.canonicalize()?;
        let mut known = self.0.lock();
        let new = || Usage {
            path: path.clone(),
            bytes_max: AtomicU64::new(0),
            count: Mutex::default(),
            rest: Arc::default(),
        };
        let usage = Arc::clone(known.entry(path.clone()).or_insert_with(|| Arc::new(new())));
        usage.bytes_max.fetch_max(bytes_max, Ordering::Relaxed);
        Ok(DirectoryQuota { usage, bytes_max, blocking: blocking.clone() })
    }
}

/// What one plugin may make of a directory.
#[derive(Clone, Debug)]
pub(crate) struct DirectoryQuota {
    usage: Arc<Usage>,
    bytes_max: u64,
    /// Whose threads measure it.
    blocking: Blocking,
}

/// What is in a directory.
#[derive(Debug)]
struct Usage {
    path: PathBuf,
    /// The largest quota of this directory: one measurement serves all.
    bytes_max: AtomicU64,
    count: Mutex<Count>,
    /// Until when no measurement begins. Held by one that goes on, and while something moves that it must not miss.
    rest: Arc<tokio::sync::Mutex<Option<Instant>>>,
}

#[derive(Debug, Default)]
struct Count {
    /// `None`: not measured yet.
    bytes: Option<u64>,
    measured_at: Option<Instant>,
    /// Something may have become smaller since.
    may_be_less: bool,
    /// Counted, and perhaps not written yet, by its number.
    under_way: BTreeMap<u64, Pending>,
    last: u64,
    /// How many are going on by which a file may become shorter.
    shrinking: usize,
    /// Counted since the measurement began that is going on.
    meanwhile: u64,
    /// Removed files that a guest has open still take room.
    open: Vec<Weak<File>>,
}

/// What is about to be added.
#[derive(Clone, Debug)]
pub(super) enum Addition {
    /// So much, whatever happens before.
    Bytes(u64),
    /// What a file lacks up to there.
    UpTo(Arc<File>, u64),
}

impl Addition {
    /// By how much there will be more, as it is now.
    fn bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => *bytes,
            Self::UpTo(file, end) => end.saturating_sub(file.metadata().map_or(0, |found| found.len())),
        }
    }

    /// The same, if the file is emptied before.
    fn most(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => *bytes,
            Self::UpTo(_, end) => *end,
        }
    }
}

/// What a write that is going on may add to what a measurement finds.
#[derive(Debug)]
struct Pending {
    bytes: u64,
    most: u64,
}

/// Room that was counted for a write that is going on.
#[derive(Debug)]
pub(super) struct UnderWay {
    usage: Arc<Usage>,
    number: u64,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.usage.count.lock().under_way.remove(&self.number);
    }
}

/// Held while a file may become shorter.
#[derive(Debug)]
pub(super) struct Shrinking(Arc<Usage>);

impl Drop for Shrinking {
    fn drop(&mut self) {
        let mut count = self.0.count.lock();
        count.shrinking = count.shrinking.saturating_sub(1);
        count.may_be_less = true;
    }
}

impl DirectoryQuota {
    /// Whether both are in the same directory: between two, nothing is moved.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.usage, &other.usage)
    }

    /// Counts what is about to be added, if there is room for it by what is known.
    pub(super) fn try_take(&self, what: &Addition) -> Option<UnderWay> {
        let mut count = self.usage.count.lock();
        // Looked at only now: a measurement may have found the file shorter than it was when the write was asked for.
        let bytes = what.bytes();
        let most = what.most();
        let sum = count.bytes?.checked_add(bytes).filter(|sum| *sum <= self.bytes_max || bytes == 0)?;
        let pending = Pending { bytes: if count.shrinking > 0 { most } else { bytes }, most };
        count.bytes = Some(sum);
        count.meanwhile = count.meanwhile.saturating_add(pending.bytes);
        count.last = count.last.wrapping_add(1);
        let number = count.last;
        count.under_way.insert(number, pending);
        Some(UnderWay { usage: Arc::clone(&self.usage), number })
    }

    /// The same, after a measurement if that may help.
    pub(super) async fn take(&self, what: &Addition) -> Result<UnderWay, DirectoryFull> {
        if let Some(taken) = self.try_take(what) {
            return Ok(taken);
        }
        let since = Instant::now();
        let is_known = {
            let count = self.usage.count.lock();
            let is_fresh = count.measured_at.is_some_and(|at| since.duration_since(at) < AGAIN_AFTER);
            is_fresh && !count.may_be_less
        };
        if what.bytes() > self.bytes_max || is_known {
            return Err(DirectoryFull);
        }
        self.usage.measure(since, &self.blocking).await;
        self.try_take(what).ok_or(DirectoryFull)
    }

    /// Room for an entry with so many bytes of its own.
    pub(super) async fn take_entry(&self, bytes: u64) -> Result<UnderWay, DirectoryFull> {
        self.take(&Addition::Bytes(ENTRY_BYTES.saturating_add(bytes))).await
    }

    /// A file may become shorter from now on. Nothing is released for it, but the next measurement finds less, and a
    /// write that goes on would then add more than was counted for it.
    pub(super) fn shrinking(&self) -> Shrinking {
        let mut count = self.usage.count.lock();
        let mut more = 0_u64;
        for pending in count.under_way.values_mut() {
            more = more.saturating_add(pending.most.saturating_sub(pending.bytes));
            pending.bytes = pending.bytes.max(pending.most);
        }
        count.meanwhile = count.meanwhile.saturating_add(more);
        count.shrinking = count.shrinking.saturating_add(1);
        Shrinking(Arc::clone(&self.usage))
    }

    /// Something went.
    pub(super) fn gave_back(&self) {
        self.usage.count.lock().may_be_less = true;
    }

    /// A file was opened: as long as it is, it takes room.
    pub(super) fn opened(&self, file: &Arc<File>) {
        let mut count = self.usage.count.lock();
        if count.open.len() == count.open.capacity() {
            count.open.retain(|file| file.strong_count() > 0);
        }
        count.open.push(Arc::downgrade(file));
    }

    /// Keeps measurements away while something moves.
    pub(super) async fn still(&self) -> OwnedMutexGuard<Option<Instant>> {
        Arc::clone(&self.usage.rest).lock_owned().await
    }
}

impl Usage {
    /// Measures the directory, unless another call did so since that time. What cannot be measured keeps its count;
    /// there is no room in what never was.
    async fn measure(self: &Arc<Self>, since: Instant, blocking: &Blocking) {
        let rest = Arc::clone(&self.rest).lock_owned().await;
        if self.count.lock().measured_at.is_some_and(|at| at >= since) {
            return;
        }
        // Whoever asked may go away, and the walk would go on: the next one waits for its end and its rest all the
        // same.
        let going_on = tokio::spawn(Arc::clone(self).measured(rest, blocking.clone()));
        if let Err(error) = going_on.await {
            tracing::warn!("a directory with a quota cannot be measured: {error}");
        }
    }

    async fn measured(self: Arc<Self>, mut rest: OwnedMutexGuard<Option<Instant>>, blocking: Blocking) {
        if let Some(until) = *rest {
            tokio::time::sleep_until(until.into()).await;
        }
        {
            let mut count = self.count.lock();
            let under_way = count.under_way.values().map(|pending| pending.bytes).fold(0, u64::saturating_add);
            (count.may_be_less, count.meanwhile) = (false, under_way);
        }
        let usage = Arc::clone(&self);
        let measured = blocking.on_files(move || {
            let begin = Instant::now();
            let there = measure(&usage.path, usage.bytes_max.load(Ordering::Relaxed))?.bytes;
            // Afterwards: what was removed before the walk came to it is seen here.
            let open: Vec<_> = usage.count.lock().open.iter().filter_map(Weak::upgrade).collect();
            let removed = open.iter().filter_map(|file| file.metadata().ok()).filter(|found| found.nlink() == 0);
            Ok::<_, io::Error>((there, removed.map(|found| found.len()).fold(0, u64::saturating_add), begin.elapsed()))
        });
        let begin = Instant::now();
        let measured = measured.await.and_then(|measured| measured);
        // Not while it waited for a thread.
        let took = measured.as_ref().map_or_else(|_| begin.elapsed(), |(.., took)| *took);
        *rest = Instant::now().checked_add(took.saturating_mul(REST));
        let mut count = self.count.lock();
        count.measured_at = Some(Instant::now());
        match measured {
            Ok((there, removed, _)) => {
                count.bytes = Some(there.saturating_add(removed).saturating_add(count.meanwhile));
                // What was under way may be counted twice, and nobody says when a removed file is closed.
                count.may_be_less |= count.meanwhile > 0 || removed > 0;
            }
            Err(error) => tracing::warn!("a directory with a quota cannot be measured: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_domain::requestor::TenantId;

    fn blocking() -> Blocking {
        Blocking::of(&Arc::default(), TenantId([7; 16]))
    }

    fn room(bytes_max: u64) -> (tempfile::TempDir, DirectoryQuota) {
        let folder = tempfile::tempdir().unwrap();
        let room = Quotas::default().of_directory(folder.path(), bytes_max, &blocking()).unwrap();
        (folder, room)
    }

    #[tokio::test]
    async fn directory_measurement_is_shared_by_quotas() {
        let folder = tempfile::tempdir().unwrap();
        let quotas = Quotas::default();
        let small = quotas.of_directory(folder.path(), ENTRY_BYTES, &blocking()).unwrap();
        let large = quotas.of_directory(folder.path(), 100 * ENTRY_BYTES, &blocking()).unwrap();
        for number in 0..60 {
            let below = folder.path().join(format!("{number}"));
            std::fs::create_dir(&below).unwrap();
            std::fs::write(below.join("a"), "").unwrap();
        }
        assert!(small.take(&Addition::Bytes(1)).await.is_err());
        assert!(large.take(&Addition::Bytes(1)).await.is_err(), "120 entries are there");
    }

    #[tokio::test]
    async fn directory_quota_counts_existing_and_reserved_bytes() {
        let (folder, room) = room(3 * ENTRY_BYTES);
        std::fs::write(folder.path().join("a"), [0; 100]).unwrap();
        let taken = room.take(&Addition::Bytes(2 * ENTRY_BYTES - 100)).await.unwrap();
        assert!(room.take(&Addition::Bytes(1)).await.is_err(), "it is not written yet, but counted");
        drop(taken);
        assert!(room.take(&Addition::Bytes(0)).await.is_ok() && room.take(&Addition::Bytes(u64::MAX)).await.is_err());
    }

    #[tokio::test]
    async fn directory_quota_sees_own_release_at_once() {
        let (folder, room) = room(2 * ENTRY_BYTES);
        std::fs::write(folder.path().join("a"), [0; 4096]).unwrap();
        assert!(room.take(&Addition::Bytes(1)).await.is_err());
        std::fs::remove_file(folder.path().join("a")).unwrap();
        assert!(room.take(&Addition::Bytes(1)).await.is_err(), "nobody said so");
        room.gave_back();
        assert!(room.take(&Addition::Bytes(1)).await.is_ok());
        std::fs::write(folder.path().join("b"), [0; 4096]).unwrap();
        room.gave_back();
        assert!(room.take(&Addition::Bytes(2 * ENTRY_BYTES)).await.is_err());
        std::fs::remove_file(folder.path().join("b")).unwrap();
        tokio::time::sleep(AGAIN_AFTER).await;
        assert!(room.take(&Addition::Bytes(2 * ENTRY_BYTES)).await.is_ok());
    }

    #[tokio::test]
    async fn removed_open_files_count_against_directory_quota() {
        let (folder, room) = room(3 * ENTRY_BYTES);
        let file = Arc::new(File::create(folder.path().join("a")).unwrap());
        room.opened(&file);
        file.set_len(3 * ENTRY_BYTES).unwrap();
        std::fs::remove_file(folder.path().join("a")).unwrap();
        room.gave_back();
        assert!(room.take(&Addition::Bytes(1)).await.is_err());
        drop(file);
        room.gave_back();
        assert!(room.take(&Addition::Bytes(1)).await.is_ok());
    }

    #[tokio::test]
    async fn directory_quota_covers_write_to_emptied_file() {
        let (folder, room) = room(3 * ENTRY_BYTES);
        let file = Arc::new(File::create(folder.path().join("a")).unwrap());
        room.opened(&file);
        file.set_len(ENTRY_BYTES).unwrap();
        let one_more = Addition::UpTo(Arc::clone(&file), ENTRY_BYTES + 1);
        let early = room.take(&one_more).await.unwrap();
        let shrinking = room.shrinking();
        let amid = room.take(&one_more).await.unwrap();
        file.set_len(0).unwrap();
        drop(shrinking);
        assert!(room.take(&Addition::Bytes(ENTRY_BYTES - 1)).await.is_err(), "the file is as long again in a moment");
        drop((early, amid));
        room.gave_back();
        let all_but = room.take(&Addition::Bytes(ENTRY_BYTES)).await.unwrap();
        assert!(room.try_take(&one_more).is_none(), "the file is empty, whatever it was when the write was asked for");
        drop(all_but);
        let free = 2 * ENTRY_BYTES;
        room.gave_back();
        assert!(room.take(&Addition::UpTo(file, free)).await.is_ok());
    }

    #[tokio::test]
    async fn directory_measurement_continues_after_caller_is_gone() {
        let (folder, room) = room(3 * ENTRY_BYTES);
        std::fs::write(folder.path().join("a"), [0; 100]).unwrap();
        let asked = tokio::spawn({
            let room = room.clone();
            async move { room.take(&Addition::Bytes(1)).await.map(drop) }
        });
        while Arc::clone(&room.usage.rest).try_lock_owned().is_ok() && room.usage.count.lock().measured_at.is_none() {
            tokio::task::yield_now().await;
        }
        asked.abort();
        _ = asked.await;
        drop(room.still().await);
        assert!(room.usage.count.lock().measured_at.is_some());
    }
}
