//! The engine on the files of one database.
//!
//! Owns the opening of sled and the comparison with the state file. Invariant: a database that lost acknowledged
//! writes, or is not the one that the state file belongs to, is refused.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::Error;
use super::super::record::{decode_checked, encode_checked};
use super::errors::{engine_error, refuse};
use super::files::{if_there, io_error};
use super::group::Totals;
use super::keys;
use super::layout::Layout;
use super::shortage::shortage;
use super::space::statvfs;
use super::state::{self, DatabaseId, State};

/// sled's index over its log. Without it the log is read from its beginning, up to the first damaged place.
pub(super) const SNAPSHOT_PREFIX: &str = "snap.";

/// How long to wait for the threads of a database that was just closed: they hold sled's own lock a little longer.
const ENGINE_LOCK_TRIES: u32 = 500;

const ENGINE_LOCK_WAIT: Duration = Duration::from_millis(10);

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

/// sled takes the snapshot that it was writing when it was killed, or when the disk was full, for the newest one, and
/// itself for damaged. The one before it is still there: it goes after the new one has its name.
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

/// Whether another process has the database open, or had a moment ago.
fn is_locked(error: &::sled::Error) -> bool {
    matches!(error, ::sled::Error::Io(io) if io.to_string().contains("acquire lock"))
}

/// A database that cannot be opened for a reason that has nothing to do with its bytes is not damaged.
pub(super) fn open_error(error: ::sled::Error) -> Error {
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

/// Whether a database has come as far as its state says.
pub(super) fn compare(last: &GroupRow, state: &State) -> Result<(), Error> {
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

/// Waits until nothing in this process works on the database's files any more: sled finds them by their names, so a
/// database that is not closed yet must not change its place.
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
