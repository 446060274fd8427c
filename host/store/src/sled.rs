//! The store on one machine: sled 0.34, by the rules under which it loses nothing.
//!
//! Owns the data directory's folder `store`. Only this module and its children import sled. Must not let anybody but
//! the committer's thread write. Invariant: an acknowledged write is on disk (not merely with the operating system),
//! and a reader sees nothing that is not.
//!
//! The rules, each of which stands for a way in which sled loses data or hangs: one thread writes, a batch per group;
//! what sled writes to its log is synced before sled counts on it; `flush` and then `sync_data` on the database file,
//! before anybody is told; no `flush_async`, `watch_prefix` or merge operator; one tree; values of at most 4,000 bytes;
//! a probe before opening; free space before writing.

mod backup;
mod change_capture;
mod check;
mod claim;
mod committer;
mod database;
mod errors;
mod examination;
mod export;
mod files;
mod group;
mod head;
mod journal;
mod journal_writes;
mod keys;
mod layout;
mod log_sync;
mod mark;
mod moved;
mod open;
mod operation;
mod plan;
mod port;
mod probe;
mod reading;
mod rebuild;
mod rekey;
mod salvage;
mod sealing;
mod shortage;
mod space;
mod state;
mod store_counts;
mod store_inner;
mod view;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

pub use self::backup::backup;
pub use self::check::{PROBLEMS_MAX, Report, check, check_running};
pub use self::export::{export, export_running};
pub use self::moved::{Moved, Rebuilt};
pub use self::open::{DirectoryLock, lock_directory};
pub use self::probe::{PROBE_ARGUMENT, ProbeMode, probe_main};
pub use self::rebuild::{is_there, rebuild, rebuild_running, remove_old_stores};
pub use self::rekey::{Rekeyed, rekey};
pub use self::space::FreeSpace;

use self::committer::Committer;
use self::database::{DataState, Database, GroupRow};
use self::errors::{closed, engine_error};
use self::files::{FILE_BYTES_MIN, Files};
use self::head::{PAYLOAD_INLINE_BYTES, PayloadLocation, RECORD_INLINE_BYTES, RecordHeader};
use self::keys::{Part, TaskKey};
use self::layout::Layout;
use self::operation::{Chunked, Envelope, Operation, Payloads, Reply};
use self::sealing::Sealing;
use self::space::DiskSpace;
use self::state::{State, StateFile};
use self::store_counts::{CountBuilder, StoreCounts};
use self::store_inner::StoreInner;
use super::Error;
use crate::vault::VaultKeys;
use bulkhead_domain::task::Task;
use bulkhead_metrics::{Metrics, StoreMetrics};

/// How long something may take at a start before the log says what it is, and until it says so again.
const SLOW: Duration = Duration::from_secs(1);
const SLOW_AGAIN: Duration = Duration::from_secs(5);

/// Operations that wait for the committer; more wait outside.
const OPERATIONS_WAITING_MAX: usize = 1_024;

/// How to open a store.
#[derive(Clone)]
pub struct SledOptions {
    /// The data directory; the database goes to the folder `store` in it.
    pub dir: PathBuf,
    pub probe: ProbeMode,
    /// What is private of tasks is sealed with these, by way of a key for each tenant; nothing without them.
    pub keys: Option<VaultKeys>,
    /// sled's cache of pages.
    pub cache_bytes: u64,
    /// Below this much free space nothing is written; below half of it nothing is removed either.
    pub free_bytes_min: u64,
    /// Given up after a failed write, so that there is room for opening again.
    pub ballast_bytes: u64,
    /// How often a read-only store looks whether it may write again.
    pub retry_every: Duration,
    /// Another answer to "how much is free?", for tests.
    pub free_space: Option<FreeSpace>,
}

impl SledOptions {
    /// The defaults for a data directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            probe: ProbeMode::default(),
            keys: None,
            cache_bytes: 64 << 20,
            free_bytes_min: 64 << 20,
            ballast_bytes: 16 << 20,
            retry_every: Duration::from_secs(1),
            free_space: None,
        }
    }
}

/// The store. Dropping it closes it, and waits for that.
pub struct SledStore {
    shared: Arc<StoreInner>,
    files: Files,
    permits: Arc<Semaphore>,
    operations: Mutex<Option<Sender<Envelope>>>,
    committer: Mutex<Option<JoinHandle<()>>>,
}

impl SledStore {
    /// Counts what is written there from now on, once for ever.
    pub fn count(&self, metrics: &Metrics) {
        if let Some(metrics) = StoreMetrics::of(metrics, "sled") {
            self.shared.metrics.get_or_init(|| metrics);
        }
    }

    /// Operations that wait to be made durable, at most [`OPERATIONS_WAITING_MAX`].
    pub fn operations_waiting(&self) -> usize {
        OPERATIONS_WAITING_MAX.saturating_sub(self.permits.available_permits())
    }

    /// Opens the store of a data directory, creating it if there is none. Takes as long as reading the database once:
    /// call it where blocking is fine.
    ///
    /// # Errors
    ///
    /// [`Error::Locked`] when another process has the directory, [`Error::Corrupt`] when the database is damaged, older
    /// than what was acknowledged, or not the one that belongs here, [`Error::Sealed`] when a key is missing,
    /// [`Error::Unreleased`] when a build before 0.1.0 wrote it.
    pub fn open(options: SledOptions) -> Result<Arc<Self>, Error> {
        log_sync::check_definition()?;
        let layout = Layout::new(&options.dir);
        let lock = open::lock(&layout)?;
        let free_space = options.free_space.unwrap_or_else(space::statvfs);
        let mut space = DiskSpace::new(&layout.store, free_space, options.free_bytes_min, options.ballast_bytes);
        let mut ballast_given_up = false;
        let mut is_examined = false;
        let (database, state, counts) = match database::find(&layout)? {
            DataState::Fresh => {
                let (database, state) = create(&layout, options.cache_bytes)?;
                let orphans = files::orphans(&layout.files, &HashSet::new())?;
                (database, state, StoreCounts { group: 1, orphans, ..StoreCounts::default() })
            }
            DataState::Database(state) => {
                ballast_given_up = space.make_room_to_open();
                let counts = match mark::recall(&layout, &state) {
                    Some(counts) => counts,
                    None => {
                        is_examined = true;
                        said_if_slow("examining the database", || probe::probe(options.probe, &options.dir))?
                    }
                };
                mark::remove(&layout)?;
                log_sync::sync_remains(&layout)?;
                let open = || salvage::guarded(|| database::database(&layout, options.cache_bytes, &state));
                let database = said_if_slow("opening the database", open)?;
                let state = StateFile::open(&layout.state, state.at(database.last.group))?;
                (database, state, counts)
            }
        };
        let ledger = match counts.group == database.last.group {
            true => counts.ledger,
            false => CountBuilder::of(&database.tree)?.ledger,
        };
        let left_journals = if is_examined { journal::left(&database.tree)? } else { Vec::new() };
        let sealing = Sealing::open(options.keys, &database.tree)?;
        let files = Files::open(layout.files.clone())?;
        files.remove_orphans(&counts.orphans)?;
        if !counts.orphans.is_empty() {
            tracing::info!(orphans = counts.orphans.len(), "removed payload files that no task names");
        }
        let shared = Arc::new(StoreInner { ledger: Mutex::new(ledger), sealing, ..StoreInner::default() });
        shared.view.give(database.tree.clone());
        if ballast_given_up || space.room() == space::FreeRoom::Enough {
            space.put_ballast();
        }
        let now = Instant::now();
        let committer = Committer {
            shared: Arc::clone(&shared),
            layout,
            cache_bytes: options.cache_bytes,
            retry_every: options.retry_every,
            files: files.clone(),
            space,
            last: database.last,
            database: Some(database),
            state,
            left_journals: left_journals.into_iter().collect(),
            trouble: None,
            state_written_at: now,
            retried_at: now,
            _lock: lock,
        };
        let (operations, waiting) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("store".to_owned()).spawn(move || committer.run(&waiting));
        let thread = thread.map_err(|error| Error::Engine(format!("no thread for the store: {error}")))?;
        Ok(Arc::new(Self {
            shared,
            files,
            permits: Arc::new(Semaphore::new(OPERATIONS_WAITING_MAX)),
            operations: Mutex::new(Some(operations)),
            committer: Mutex::new(Some(thread)),
        }))
    }

    /// Gives the committer an operation and waits for its answer.
    async fn ask<T>(&self, operation: impl FnOnce(Reply<T>) -> Operation) -> Result<T, Error> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| closed())?;
        let (reply, answer) = oneshot::channel();
        let envelope = Envelope { operation: operation(reply), permit };
        let sent = match &*self.operations.lock() {
            Some(operations) => operations.send(envelope).is_ok(),
            None => false,
        };
        if !sent {
            return Err(closed());
        }
        answer.await.map_err(|_| closed())?
    }

    /// Finds places for the payloads of a task; large ones are on disk when this returns.
    async fn place(&self, part: Part, bytes: Vec<u8>, payloads: &mut Payloads) -> Result<PayloadLocation, Error> {
        if bytes.len() < FILE_BYTES_MIN {
            return place_now(&self.files, part, bytes, payloads);
        }
        if let Some(reason) = self.shared.read_only() {
            return Err(Error::ReadOnly(reason));
        }
        let files = self.files.clone();
        let placed = tokio::task::spawn_blocking(move || {
            let mut own = Payloads::default();
            let location = place_now(&files, part, bytes, &mut own)?;
            Ok((location, own.files))
        });
        let placed = placed.await.map_err(|error| Error::Engine(format!("a file was not written: {error}")))?;
        let (location, written) = placed?;
        payloads.files.extend(written);
        Ok(location)
    }

    /// Reads a payload, off the asynchronous threads when it lies in a file.
    async fn payload(
        &self,
        key: TaskKey,
        part: Part,
        location: fn(RecordHeader) -> Option<PayloadLocation>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let Some(found) = self.shared.view.head(&key)?.and_then(location) else { return Ok(None) };
        match found {
            PayloadLocation::Inline(bytes) => Ok(Some(bytes)),
            PayloadLocation::Chunks { .. } => self.shared.view.payload(&self.files, &key, part, location),
            PayloadLocation::File { .. } => {
                let view = Arc::clone(&self.shared.view);
                let files = self.files.clone();
                let read = tokio::task::spawn_blocking(move || view.payload(&files, &key, part, location)).await;
                read.map_err(|error| Error::Engine(format!("a file was not read: {error}")))?
            }
        }
    }

    /// The tasks that the keys of an index point to, in its order. One that goes away meanwhile does not shorten the
    /// page.
    fn read_tasks(
        &self,
        prefix: &[u8],
        after: Option<Vec<u8>>,
        count_max: usize,
        task: impl Fn(&[u8]) -> Option<TaskKey>,
    ) -> Result<Vec<Task>, Error> {
        let mut start = after.unwrap_or_else(|| prefix.to_vec());
        let mut tasks = Vec::new();
        while tasks.len() < count_max {
            let rows = self.shared.view.scan(prefix, &start, count_max - tasks.len())?;
            let Some((last, _)) = rows.last() else { break };
            start = keys::successor(last);
            for key in rows.iter().filter_map(|(key, _)| task(key)) {
                tasks.extend(self.read_task(&key)?);
            }
        }
        Ok(tasks)
    }

    fn read_task(&self, key: &TaskKey) -> Result<Option<Task>, Error> {
        let record = self.shared.view.payload(&self.files, key, Part::Record, |head| Some(head.record))?;
        record.map(|bytes| self.shared.open_task(&bytes)).transpose()
    }
}

impl Drop for SledStore {
    fn drop(&mut self) {
        // Without senders the thread closes the store; the directory is free again once it has ended.
        self.operations.lock().take();
        let thread = self.committer.lock().take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the store's thread had broken");
        }
    }
}

/// Makes a new database. Group 1 is its own row; until the state file knows of it, nothing was ever acknowledged.
fn create(layout: &Layout, cache_bytes: u64) -> Result<(Database, StateFile), Error> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| Error::Engine(format!("no random bytes: {error}")))?;
    let mut state = StateFile::open(&layout.state, State::new(id))?;
    if layout.database.exists() {
        // An earlier creation did not come to its end.
        std::fs::remove_dir_all(&layout.database)
            .map_err(|error| files::io_error("remove", &layout.database, &error))?;
    }
    let db = database::engine(&layout.database, cache_bytes)?;
    let first = GroupRow { id, group: 1, rows: 0, sum: 0 };
    db.insert(keys::GROUP, first.encode()?).map_err(engine_error)?;
    db.flush().map_err(engine_error)?;
    drop(db);
    let database = database::unchecked(layout, cache_bytes)?;
    for folder in [Some(layout.database.as_path()), Some(&layout.store), layout.store.parent()].into_iter().flatten() {
        files::sync_folder(folder).map_err(|error| files::io_error("sync", folder, &error))?;
    }
    database.file.sync_all().map_err(|error| Error::Engine(format!("the database cannot be synced: {error}")))?;
    state.write(1, false)?;
    Ok((database, state))
}

/// Says in the log what takes so long, once that is more than a second.
fn said_if_slow<R>(what: &str, act: impl FnOnce() -> R) -> R {
    std::thread::scope(|scope| {
        let (done, waiting) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            let begun = Instant::now();
            let mut wait = SLOW;
            while waiting.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                tracing::info!(seconds = begun.elapsed().as_secs(), "still {what}");
                wait = SLOW_AGAIN;
            }
        });
        let result = act();
        drop(done);
        result
    })
}

/// Finds a place for a payload; a file is on disk when this returns.
fn place_now(files: &Files, part: Part, bytes: Vec<u8>, payloads: &mut Payloads) -> Result<PayloadLocation, Error> {
    if bytes.len() <= PAYLOAD_INLINE_BYTES {
        return Ok(PayloadLocation::Inline(bytes));
    }
    let length = bytes.len() as u64;
    let checksum = crc32fast::hash(&bytes);
    if bytes.len() < FILE_BYTES_MIN {
        payloads.chunks.push(Chunked { part, bytes });
        return Ok(PayloadLocation::Chunks { bytes: length, checksum });
    }
    let (name, file) = files.write(&bytes)?;
    payloads.files.push(file);
    Ok(PayloadLocation::File { name, bytes: length, checksum })
}

/// Splits a record into what stays in the task's row and what does not fit there.
fn place_record(bytes: Vec<u8>) -> (PayloadLocation, Option<Chunked>) {
    if bytes.len() <= RECORD_INLINE_BYTES {
        return (PayloadLocation::Inline(bytes), None);
    }
    let location = PayloadLocation::Chunks { bytes: bytes.len() as u64, checksum: crc32fast::hash(&bytes) };
    (location, Some(Chunked { part: Part::Record, bytes }))
}

#[cfg(test)]
mod tests;
