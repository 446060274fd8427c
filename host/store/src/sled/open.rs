//! Taking a data directory, and the examination of the database in it.
//!
//! Owns the directory lock. Must not write to a database that it has doubts about. Invariant: a damaged database is
//! refused, never used and never recreated.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use super::super::Error;
use super::database::{DataState, database, find, open_error};
use super::examination::Examination;
use super::files::{create_folder, io_error, sync_folder};
use super::layout::Layout;
use super::state::{self, State};
use super::store_counts::StoreCounts;
use super::{reading, salvage};

/// A process that was just started from the last holder keeps the lock until it runs its own program.
const DIRECTORY_LOCK_TRIES: u32 = 25;
const DIRECTORY_LOCK_WAIT: Duration = Duration::from_millis(10);

/// Holds the data directory until it is dropped.
pub struct DirectoryLock(#[expect(dead_code, reason = "the lock lasts as long as the file is open")] File);

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
    let data = layout.store.parent().unwrap_or(&layout.store);
    let lock = lock_directory(data)?;
    finish_rebuild(layout)?;
    create_folder(&layout.store)?;
    Ok(lock)
}

/// Takes a data directory that has its store elsewhere.
///
/// # Errors
///
/// [`Error::Locked`]: another process has it.
pub fn lock_directory(data: &Path) -> Result<DirectoryLock, Error> {
    let layout = Layout::new(data);
    let cannot = |error: std::io::Error| io_error("open", &layout.lock, &error);
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
    Ok(DirectoryLock(file))
}

/// Completes a rebuild that ended between its two renames. The directory's lock is held.
fn finish_rebuild(layout: &Layout) -> Result<(), Error> {
    let fresh = layout.with_store(layout.rebuilt());
    // The state of a new store says more than 1 once everything else of it is on disk.
    if layout.store.exists() || !matches!(state::read(&fresh.state), Ok(Some(State { group: 2.., .. }))) {
        return Ok(());
    }
    fs::rename(&fresh.store, &layout.store).map_err(|error| io_error("rename", &fresh.store, &error))?;
    let data = layout.store.parent().unwrap_or(&layout.store);
    sync_folder(data).map_err(|error| io_error("sync", data, &error))?;
    tracing::info!("completed the rebuild of the database that was interrupted");
    Ok(())
}

/// Reads every row of a database and compares it with what was counted while writing. What reading alone does not show
/// to be sound is opened as a copy.
pub(super) fn examine(layout: &Layout) -> Result<StoreCounts, Error> {
    let DataState::Database(state) = find(layout)? else { return Ok(StoreCounts::default()) };
    salvage::remove_stale(&layout.store);
    match reading::examine(layout, &state) {
        Ok(counts) => Ok(counts),
        Err(doubt) => {
            tracing::info!(%doubt, "the database is examined as a copy");
            salvage::on_a_copy(layout, |copied| examine_rows(copied, &state))
        }
    }
}

/// Reads every row of the database itself and compares it with what was counted while writing.
pub(super) fn examine_rows(layout: &Layout, state: &State) -> Result<StoreCounts, Error> {
    let opened = database(layout, PROBE_CACHE_BYTES, state)?;
    let mut examination = Examination::default();
    for row in opened.tree.iter() {
        let (key, value) = row.map_err(open_error)?;
        examination.row(&key, &value)?;
    }
    examination.conclude(layout, &opened.last)
}

const PROBE_CACHE_BYTES: u64 = 16 << 20;
