//! Opening a database, and the checks that stand before it.
//!
//! Owns the layout of the data directory, the directory lock, the creation of a new database and the examination of an old one.
//! Must not write to a database that it has doubts about. Invariant: a database that lost acknowledged writes, or is not the one
//! that the state file belongs to, is refused, never used and never recreated.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::Error;
use super::super::record::{self, decode_checked, encode_checked};
use super::files::{self, Files, if_there, io_error};
use super::group::Totals;
use super::head::{PayloadLocation, RecordHeader};
use super::keys::{self, kind};
use super::shortage::shortage;
use super::space::statvfs;
use super::state::{self, DatabaseId, State};
use super::store_counts::{CountBuilder, StoreCounts};
use super::{engine_error, journal, rebuild, salvage};
use crate::journal::layout::HEAD;

/// sled's index over its log. Without it the log is read from its beginning, up to the first damaged place.
pub(super) const SNAPSHOT_PREFIX: &str = "snap.";

/// How long to wait for the threads of a database that was just closed: they hold sled's own lock a little longer.
const ENGINE_LOCK_TRIES: u32 = 500;
const ENGINE_LOCK_WAIT: Duration = Duration::from_millis(10);

/// A process that was just started from the last holder keeps the lock until it runs its own program.
const DIRECTORY_LOCK_TRIES: u32 = 25;
const DIRECTORY_LOCK_WAIT: Duration = Duration::from_millis(10);

/// Where things lie below the data directory.
#[derive(Clone)]
pub(super) struct Layout {
    pub(super) lock: PathBuf,
    pub(super) store: PathBuf,
    pub(super) database: PathBuf,
    pub(super) files: PathBuf,
    pub(super) state: PathBuf,
    /// What was counted when the store was closed.
    pub(super) counts: PathBuf,
}

impl Layout {
    pub(super) fn new(data: &Path) -> Self {
        Self::at(data, data.join("store"))
    }

    fn at(data: &Path, store: PathBuf) -> Self {
        Self {
            lock: data.join("lock"),
            database: store.join("sled"),
            files: store.join("files"),
            state: store.join("state"),
            counts: store.join("counts"),
            store,
        }
    }

    /// The same data directory with another folder than the usual one.
    pub(super) fn with_store(&self, store: PathBuf) -> Self {
        Self::at(self.store.parent().unwrap_or(&self.store), store)
    }

    /// Where a rebuild makes its new store.
    pub(super) fn rebuilt(&self) -> PathBuf {
        self.store.with_file_name("store.new")
    }

    /// The one file that has to be synced for a group to be durable.
    pub(super) fn database_file(&self) -> PathBuf {
        self.database.join("db")
    }
}

/// Holds the data directory until it is dropped.
pub(super) struct DirectoryLock(#[expect(dead_code, reason = "the lock lasts as long as the file is open")] File);

/// Takes the data directory for this process. That of a build before 0.1.0 is refused and left as it is.
pub(super) fn lock(layout: &Layout) -> Result<DirectoryLock, Error> {
    // That which an interrupted rebuild has made is the store once the rebuild is completed.
    for state in [&layout.state, &layout.with_store(layout.rebuilt()).state] {
        state::refuse_unreleased(state)?;
    }
    lock_any(layout)
}

/// The same, whatever is in it: for who puts another store in the place of that.
pub(super) fn lock_any(layout: &Layout) -> Result<DirectoryLock, Error> {
    let cannot = |error: std::io::Error| io_error("open", &layout.lock, &error);
    let data = layout.store.parent().unwrap_or(&layout.store);
    create_folder(data)?;
    let mut file =
        File::options().create(true).truncate(false).read(true).write(true).open(&layout.lock).map_err(cannot)?;
    let mut tries = 0;
    let locked = loop {
        match file.try_lock() {
            Err(fs::TryLockError::WouldBlock) if tries < DIRECTORY_LOCK_TRIES => {
                tries += 1;
                std::thread::sleep(DIRECTORY_LOCK_WAIT);
            }
            other => break other,
        }
    };
    match locked {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Only for the message.
            let _ = file.read_to_string(&mut holder);
            let path = layout.lock.display();
            return Err(Error::Locked(format!("{path} is held by process {}", holder.trim())));
        }
        Err(fs::TryLockError::Error(error)) => return Err(cannot(error)),
    }
    // Only for the message to somebody else: a full disk must not keep the holder away.
    let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
    rebuild::finish(layout)?;
    create_folder(&layout.store)?;
    Ok(DirectoryLock(file))
}

/// Nobody else on the machine has to read what users stored.
pub(super) fn create_folder(folder: &Path) -> Result<(), Error> {
    let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    created.map_err(|error| io_error("create", folder, &error))
}

/// The row that is written with every group.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct GroupRow {
    pub(super) id: DatabaseId,
    pub(super) group: u64,
    pub(super) rows: u64,
    pub(super) sum: u64,
}

impl GroupRow {
    pub(super) fn census(&self) -> Totals {
        Totals { rows: self.rows, sum: self.sum }
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, Error> {
        encode_checked(self)
    }
}

/// An open database.
pub(super) struct Database {
    pub(super) tree: ::sled::Tree,
    /// For `sync_data`.
    pub(super) file: File,
    pub(super) last: GroupRow,
}

/// What there is in a data directory.
pub(super) enum DataState {
    /// Nothing that was ever used.
    Fresh,
    Database(State),
}

/// Looks at the files, without opening the database.
pub(super) fn find(layout: &Layout) -> Result<DataState, Error> {
    let exists = layout.database_file().exists();
    match state::read(&layout.state).map_err(|error| refuse(&error.to_string()))? {
        // A creation that never got as far as acknowledging anything.
        Some(State { group: 0, .. }) => Ok(DataState::Fresh),
        Some(state) if exists => Ok(DataState::Database(state)),
        Some(_) => Err(refuse(&format!("{} is missing", layout.database_file().display()))),
        None if exists => Err(refuse(&format!("{} is missing", layout.state.display()))),
        None => Ok(DataState::Fresh),
    }
}

/// The refusal of a damaged database, with what can be done about it.
pub(super) fn refuse(damage: &str) -> Error {
    Error::Corrupt(format!(
        "{damage}. Nothing is served from a damaged database. Save what can still be read with `bulkhead store export`, \
         make a sound database of it with `bulkhead store rebuild`, or put a backup of the whole folder back"
    ))
}

/// Opens the engine.
pub(super) fn engine(path: &Path, cache_bytes: u64) -> Result<::sled::Db, Error> {
    remove_unfinished_snapshots(path)?;
    let mut tries = 0;
    loop {
        let config = ::sled::Config::new().path(path).cache_capacity(cache_bytes).flush_every_ms(Some(500));
        match config.open() {
            Err(::sled::Error::Io(error))
                if tries < ENGINE_LOCK_TRIES && error.to_string().contains("acquire lock") =>
            {
                tries += 1;
                std::thread::sleep(ENGINE_LOCK_WAIT);
            }
            Err(::sled::Error::Io(error)) if error.kind() == ErrorKind::StorageFull => return Err(no_room(path)),
            other => return other.map_err(open_error),
        }
    }
}

fn no_room(path: &Path) -> Error {
    let free = statvfs()(path).map_or_else(|error| error.to_string(), |bytes| format!("{} KiB are free", bytes >> 10));
    Error::Engine(format!(
        "the disk is full ({free} at {}): opening the database needs a few MiB. Nothing was lost: make room and start again",
        path.display()
    ))
}

/// sled takes the snapshot that it was writing when it was killed, or when the disk was full, for the newest one, and itself for
/// damaged. The one before it is still there: it goes after the new one has its name.
fn remove_unfinished_snapshots(database: &Path) -> Result<(), Error> {
    let entries = if_there(fs::read_dir(database)).map_err(|error| io_error("list", database, &error))?;
    let entries = entries.into_iter().flatten().flatten();
    for entry in entries.filter(|entry| is_unfinished_snapshot(&entry.file_name().to_string_lossy())) {
        fs::remove_file(entry.path()).map_err(|error| io_error("remove", &entry.path(), &error))?;
    }
    Ok(())
}

pub(super) fn is_unfinished_snapshot(name: &str) -> bool {
    name.starts_with(SNAPSHOT_PREFIX) && name.ends_with(".generating")
}

/// A database that cannot be opened for a reason that has nothing to do with its bytes is not damaged.
/// Whether another process has the database open, or had a moment ago.
fn is_locked(error: &::sled::Error) -> bool {
    matches!(error, ::sled::Error::Io(io) if io.to_string().contains("acquire lock"))
}

fn open_error(error: ::sled::Error) -> Error {
    use std::io::ErrorKind::{NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull, WouldBlock};
    if let (::sled::Error::Io(io), false) = (&error, is_locked(&error))
        && let Some(shortage) = shortage(&io.to_string())
    {
        return shortage;
    }
    match &error {
        ::sled::Error::Io(io)
            if matches!(
                io.kind(),
                NotFound | PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull | WouldBlock
            ) || is_locked(&error) =>
        {
            Error::Engine(error.to_string())
        }
        ::sled::Error::Corruption { .. } => match engine_error(error) {
            Error::Corrupt(damage) => refuse(&damage),
            other => other,
        },
        _ => refuse(&error.to_string()),
    }
}

/// Opens a database that exists, and compares it with its state.
pub(super) fn database(layout: &Layout, cache_bytes: u64, state: &State) -> Result<Database, Error> {
    let opened = unchecked(layout, cache_bytes)?;
    compare(&opened.last, state)?;
    Ok(opened)
}

/// Opens a database that exists.
pub(super) fn unchecked(layout: &Layout, cache_bytes: u64) -> Result<Database, Error> {
    let tree = (*engine(&layout.database, cache_bytes)?).clone();
    let path = layout.database_file();
    let file = File::options().write(true).open(&path).map_err(|error| io_error("open", &path, &error))?;
    // A file that was cut may be missed only here, as a read beyond its end.
    let last = tree.get(keys::GROUP).map_err(open_error)?;
    let last = last.ok_or_else(|| refuse("the database has lost its own row"))?;
    let last = decode_checked::<GroupRow>(&last, "database").map_err(|error| refuse(&error.to_string()))?;
    Ok(Database { tree, file, last })
}

fn compare(last: &GroupRow, state: &State) -> Result<(), Error> {
    if last.id != state.id {
        return Err(refuse("the database and the file `state` beside it belong to different stores"));
    }
    let is = last.group;
    let was = state.group;
    if is < was {
        return Err(refuse(&format!("the database is at group {is}, but group {was} was acknowledged: it is older")));
    }
    if state.clean && is > was {
        return Err(refuse(&format!(
            "the database is at group {is}, but was closed at group {was}: it is another copy"
        )));
    }
    Ok(())
}

/// Reads every row of a copy of a database and compares it with what was counted while writing.
pub(super) fn examine(layout: &Layout) -> Result<StoreCounts, Error> {
    let DataState::Database(state) = find(layout)? else { return Ok(StoreCounts::default()) };
    salvage::on_a_copy(layout, |copied| examine_rows(copied, &state))
}

/// Reads every row of the database itself and compares it with what was counted while writing.
pub(super) fn examine_rows(layout: &Layout, state: &State) -> Result<StoreCounts, Error> {
    let opened = database(layout, PROBE_CACHE_BYTES, state)?;
    let mut census = Totals::default();
    let mut count = CountBuilder::default();
    for row in opened.tree.iter() {
        let (key, value) = row.map_err(open_error)?;
        if key.as_ref() == keys::GROUP {
            continue;
        }
        census.count(&key, &value);
        if key.first() == Some(&kind::TASK) {
            let head = RecordHeader::decode(&value).map_err(|error| refuse(&error.to_string()))?;
            count.task(&key, &head)?;
            if let PayloadLocation::Inline(bytes) = &head.record {
                record::decode_task(bytes).map_err(|error| refuse(&error.to_string()))?;
            }
        }
        if let Some((key, HEAD)) = keys::parse_journal(&key)
            && let Ok(head) = journal::decode_head(&value)
        {
            count.journal(&key, &head);
        }
    }
    let expected = opened.last.census();
    if census.rows != expected.rows {
        return Err(refuse(&format!("the database holds {} rows of {}", census.rows, expected.rows)));
    }
    if census != expected {
        return Err(refuse("the sum over all rows is wrong"));
    }
    let orphans = files::orphans(&layout.files, &count.named)?;
    Ok(StoreCounts { group: opened.last.group, ledger: count.ledger, orphans })
}

const PROBE_CACHE_BYTES: u64 = 16 << 20;

/// Waits until nothing in this process works on the database's files any more: sled finds them by their names, so a database that
/// is not closed yet must not change its place.
pub(super) fn wait_until_closed(layout: &Layout) -> Result<(), Error> {
    let path = layout.database_file();
    let file = File::options().write(true).open(&path).map_err(|error| io_error("open", &path, &error))?;
    for _ in 0..ENGINE_LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(fs::TryLockError::WouldBlock) => std::thread::sleep(ENGINE_LOCK_WAIT),
            Err(fs::TryLockError::Error(error)) => return Err(io_error("lock", &path, &error)),
        }
    }
    Err(Error::Engine(format!("{} is still in use", path.display())))
}

/// The folder of payload files.
pub(super) fn files(layout: &Layout) -> Result<Files, Error> {
    Files::open(layout.files.clone())
}
