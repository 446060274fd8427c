//! Trusting a database that was closed and not touched since.
//!
//! Owns the mark of a closed store: a digest over what the file system says of every file of the database, over what
//! the engine reads when it opens (its configuration, its snapshot, the end of its log) and over the counts that the
//! next run begins with. Must not be there while the database is open. Invariant: a start that finds the mark right
//! opens what was closed; every other start examines the database first.
//!
//! The rest of the log is not read: a page in it has a checksum that the engine compares whenever it reads the page.
//!
//! The mark lies behind the slots of `state`, and the counts (who has stored how much, which payload files no task
//! names) in the file `counts`. The mark belongs to one slot, and opening the store writes another one. The mark is
//! removed durably before the engine opens. What the file system says of a file is its inode, length and times.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::super::{Error, Ledger};
use super::database::{self, SNAPSHOT_PREFIX};
use super::files::{if_there, io_error, sync_folder};
use super::layout::Layout;
use super::state::{self, MarkDigest, State, StateFile};
use super::store_counts::{self, StoreCounts};

/// sled's default, which is never changed here.
const SEGMENT_BYTES: usize = 512 << 10;
const SEGMENT_HEADER_BYTES: usize = 20;
/// The end of the log that is read again at the next start; when it is longer, the engine is made to write a snapshot
/// first.
const TAIL_BYTES_MAX: usize = 4 << 20;
const CACHE_BYTES: u64 = 16 << 20;

/// Marks a store that was just closed. Without a mark the next start takes longer, nothing else.
pub(super) fn write(layout: &Layout, state: &StateFile, ledger: &Ledger) -> Result<(), Error> {
    database::wait_until_closed(layout)?;
    let cannot = |error: io::Error| io_error("read", &layout.database, &error);
    if tail(layout).map_err(cannot)?.len() * SEGMENT_BYTES > TAIL_BYTES_MAX {
        // It reads the log since the last snapshot, and writes one, when it opens.
        drop(database::engine(&layout.database, CACHE_BYTES)?);
        database::wait_until_closed(layout)?;
    }
    let counts = store_counts::encode(state.group(), ledger, Vec::new())?;
    let written = || {
        let mut file = File::create(&layout.counts)?;
        file.write_all(&counts)?;
        file.sync_all()?;
        sync_folder(&layout.database)?;
        sync_folder(&layout.store)
    };
    written().map_err(|error| io_error("write", &layout.counts, &error))?;
    state.write_mark(digest(layout).map_err(cannot)?)
}

/// What was counted when the store was closed, if nothing has touched it since.
pub(super) fn recall(layout: &Layout, state: &State) -> Option<StoreCounts> {
    let marked = state::read_mark(&layout.state, state)?;
    let counts = StoreCounts::decode(&fs::read(&layout.counts).ok()?).ok()?;
    (digest(layout).ok()? == marked && counts.group == state.group).then_some(counts)
}

/// Removes everything that [`recall`] needs: to be called before the database is opened.
pub(super) fn remove(layout: &Layout) -> Result<(), Error> {
    state::remove_mark(&layout.state)?;
    // Worth nothing any more, and it names requestors that may be erased.
    let removed = if_there(fs::remove_file(&layout.counts)).map(drop);
    removed.map_err(|error| io_error("remove", &layout.counts, &error))
}

fn digest(layout: &Layout) -> io::Result<MarkDigest> {
    let mut hasher = Sha256::new();
    let mut paths = Vec::new();
    collect(&layout.database, &mut paths)?;
    paths.sort();
    for path in &paths {
        hasher.update(path.strip_prefix(&layout.database).unwrap_or(path).as_os_str().as_encoded_bytes());
        hasher.update([0]);
        facts(&mut hasher, path)?;
    }
    // A payload file that came or went.
    facts(&mut hasher, &layout.files)?;
    for path in [&layout.database.join("conf"), &layout.counts].into_iter().chain(&snapshots(layout)?) {
        let bytes = fs::read(path)?;
        hasher.update((bytes.len() as u64).to_be_bytes());
        hasher.update(&bytes);
    }
    let database = File::open(layout.database_file())?;
    let mut segment = Vec::with_capacity(SEGMENT_BYTES);
    for (lsn, offset) in tail(layout)? {
        hasher.update(lsn.to_be_bytes());
        hasher.update(offset.to_be_bytes());
        segment.clear();
        At { file: &database, offset }.take(SEGMENT_BYTES as u64).read_to_end(&mut segment)?;
        hasher.update(&segment);
    }
    Ok(hasher.finalize().into())
}

/// Every file below a folder.
fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), paths)?;
        } else {
            paths.push(entry.path());
        }
    }
    Ok(())
}

/// What changes when a file is written, exchanged or put back.
fn facts(hasher: &mut Sha256, path: &Path) -> io::Result<()> {
    let facts = fs::symlink_metadata(path)?;
    for number in [facts.ino(), if facts.is_dir() { 0 } else { facts.len() }] {
        hasher.update(number.to_be_bytes());
    }
    for time in [facts.mtime(), facts.mtime_nsec(), facts.ctime(), facts.ctime_nsec()] {
        hasher.update(time.to_be_bytes());
    }
    Ok(())
}

fn snapshots(layout: &Layout) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(&layout.database)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(SNAPSHOT_PREFIX) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// The segments of the log that the engine reads when it opens, in their order: from the one on that the newest
/// snapshot ends in.
fn tail(layout: &Layout) -> io::Result<BTreeMap<i64, u64>> {
    let snapshots = snapshots(layout)?;
    let newest = snapshots.last().and_then(|path| path.file_name()?.to_str()?.strip_prefix(SNAPSHOT_PREFIX));
    let covered = newest.and_then(|number| i64::from_str_radix(number, 16).ok()).unwrap_or(0);
    let from = covered - covered % SEGMENT_BYTES as i64;
    let database = File::open(layout.database_file())?;
    let length = database.metadata()?.len();
    let mut segments = BTreeMap::new();
    let mut header = [0; SEGMENT_HEADER_BYTES];
    for offset in (0..length).step_by(SEGMENT_BYTES) {
        if offset + SEGMENT_HEADER_BYTES as u64 > length {
            break;
        }
        database.read_exact_at(&mut header, offset)?;
        if let Some(lsn) = sequence_number(&header).filter(|lsn| *lsn >= from) {
            segments.insert(lsn, offset);
        }
    }
    Ok(segments)
}

/// The log sequence number that a segment begins with; `None` for one that is free.
fn sequence_number(header: &[u8; SEGMENT_HEADER_BYTES]) -> Option<i64> {
    let (checksum, rest) = header.split_first_chunk::<4>()?;
    let (lsn, _) = rest.split_first_chunk::<8>()?;
    let sound = crc32fast::hash(rest) == !u32::from_le_bytes(*checksum);
    sound.then_some(i64::from_le_bytes(*lsn) ^ i64::MAX)
}

/// The bytes that the engine reads at the end of its log.
#[cfg(test)]
pub(super) fn tail_bytes(layout: &Layout) -> io::Result<Vec<u8>> {
    let database = File::open(layout.database_file())?;
    let mut bytes = Vec::new();
    for (_, offset) in tail(layout)? {
        At { file: &database, offset }.take(SEGMENT_BYTES as u64).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Marks the files as they are now, as if nobody had touched them since the store was closed in this state.
#[cfg(test)]
pub(super) fn rewrite(layout: &Layout, state: &State) -> Result<(), Error> {
    let digest = digest(layout).map_err(|error| io_error("read", &layout.database, &error))?;
    StateFile::reopen(&layout.state, *state)?.write_mark(digest)
}

/// Reads from an offset on.
struct At<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}
