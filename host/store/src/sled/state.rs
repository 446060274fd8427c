//! The small synced file beside the database that says how far the database had come.
//!
//! Owns the file `state`: database id, number of a group that was durable, whether the store was closed properly, and
//! the mark of a closed store (what it says is the business of `mark`). Must not read the database. Invariant: what the
//! file says is never ahead of what is durable, and at most a second behind it, so a database that is older than the
//! file has lost acknowledged writes; and a mark belongs to the newest slot, so whatever writes a slot leaves no mark
//! that counts.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::Error;
use super::super::record::{decode_checked, encode_checked};
use super::files::{if_there, io_error, sync_folder};

/// Two slots, written in turns: a torn write leaves the other one. One slot is one sector.
const SLOT_BYTES: usize = 512;
const SLOTS: [u64; 2] = [0, 1];
/// Where the mark lies: behind the slots.
const MARK_AT: u64 = SLOTS.len() as u64 * SLOT_BYTES as u64;

pub(super) type DatabaseId = [u8; 16];

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) id: DatabaseId,
    /// The number of the last group that it knows of; 0 while the database is being created.
    pub(super) group: u64,
    /// Whether that is exact.
    pub(super) clean: bool,
    turn: u64,
}

/// Written behind the slots when a store is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    /// The slot that it belongs to.
    of: State,
    digest: MarkDigest,
}

/// Of everything that an examination would find as it was.
pub(super) type MarkDigest = [u8; 32];

impl State {
    pub(super) fn new(id: DatabaseId) -> Self {
        Self { id, group: 0, clean: false, turn: 0 }
    }

    /// The same database, later.
    pub(super) fn at(self, group: u64) -> Self {
        Self { group, ..self }
    }
}

/// The open file.
pub(super) struct StateFile {
    file: File,
    path: PathBuf,
    state: State,
}

/// Reads the newest valid slot; `None` when there is no file.
pub(super) fn read(path: &Path) -> Result<Option<State>, Error> {
    let Some(bytes) = read_file(path)? else { return Ok(None) };
    // A slot begins with the length of its bytes, which end with a checksum.
    let slots = bytes.chunks(SLOT_BYTES).take(SLOTS.len());
    let states = slots.filter_map(|slot| decode_checked::<State>(sized(slot)?, "state").ok());
    let newest = states.max_by_key(|state| state.turn);
    newest.map(Some).ok_or_else(|| Error::Corrupt(format!("{} holds no valid state", path.display())))
}

/// Refuses the state of a build before 0.1.0.
pub(super) fn refuse_unreleased(path: &Path) -> Result<(), Error> {
    let bytes = read_file(path)?.unwrap_or_default();
    let mut slots = bytes.chunks(SLOT_BYTES).take(SLOTS.len()).filter_map(sized);
    match slots.any(|slot| matches!(decode_checked::<State>(slot, "state"), Err(Error::Unreleased))) {
        true => Err(Error::Unreleased),
        false => Ok(()),
    }
}

fn read_file(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    if_there(std::fs::read(path)).map_err(|error| io_error("read", path, &error))
}

fn sized(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.get(..usize::from(u16::from_le_bytes(*length)))
}

fn padded(sealed: &[u8]) -> Vec<u8> {
    let mut slot = Vec::with_capacity(SLOT_BYTES);
    slot.extend_from_slice(&u16::try_from(sealed.len()).unwrap_or(u16::MAX).to_le_bytes());
    slot.extend_from_slice(sealed);
    slot.resize(SLOT_BYTES, 0);
    slot
}

/// The digest in the mark, if there is one and it belongs to this state.
pub(super) fn read_mark(path: &Path, state: &State) -> Option<MarkDigest> {
    let bytes = std::fs::read(path).ok()?;
    let mark = bytes.chunks(SLOT_BYTES).nth(SLOTS.len())?;
    let Mark { of, digest } = decode_checked(sized(mark)?, "mark").ok()?;
    (state.clean && of == *state).then_some(digest)
}

/// Removes the mark, durably: to be called before the first write to the database.
pub(super) fn remove_mark(path: &Path) -> Result<(), Error> {
    // Without the file it is a damaged store, which is examined all the same.
    let Some(bytes) = read_file(path)? else { return Ok(()) };
    if bytes.chunks(SLOT_BYTES).skip(SLOTS.len()).flatten().all(|byte| *byte == 0) {
        return Ok(());
    }
    let removed = OpenOptions::new().write(true).open(path).and_then(|file| {
        // In place: on a full disk the file could not grow again.
        file.write_all_at(&[0; SLOT_BYTES], MARK_AT)?;
        file.sync_data()
    });
    removed.map_err(|error| io_error("write", path, &error))
}

impl StateFile {
    /// Opens the file for writing, creating it if needed, and writes `state` at once.
    pub(super) fn open(path: &Path, state: State) -> Result<Self, Error> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(|error| io_error("open", path, &error))?;
        let mut opened = Self { file, path: path.to_owned(), state };
        opened.write(state.group, false)?;
        if let Some(folder) = path.parent() {
            sync_folder(folder).map_err(|error| io_error("sync", folder, &error))?;
        }
        Ok(opened)
    }

    /// Opens the file without a change.
    #[cfg(test)]
    pub(super) fn reopen(path: &Path, state: State) -> Result<Self, Error> {
        let file = OpenOptions::new().write(true).open(path).map_err(|error| io_error("open", path, &error))?;
        Ok(Self { file, path: path.to_owned(), state })
    }

    /// The same file after its folder got another name.
    pub(super) fn moved_to(self, path: PathBuf) -> Self {
        Self { path, ..self }
    }

    /// The number that the file knows.
    pub(super) fn group(&self) -> u64 {
        self.state.group
    }

    /// Writes the next slot and syncs it.
    pub(super) fn write(&mut self, group: u64, clean: bool) -> Result<(), Error> {
        let state = State { group, clean, turn: self.state.turn + 1, ..self.state };
        let slot = padded(&encode_checked(&state)?);
        self.put((state.turn % SLOTS.len() as u64) * SLOT_BYTES as u64, &slot)?;
        self.state = state;
        Ok(())
    }

    /// Writes a mark that belongs to the newest slot.
    pub(super) fn write_mark(&self, digest: MarkDigest) -> Result<(), Error> {
        self.put(MARK_AT, &padded(&encode_checked(&Mark { of: self.state, digest })?))
    }

    fn put(&self, offset: u64, slot: &[u8]) -> Result<(), Error> {
        let written = self.file.write_all_at(slot, offset).and_then(|()| self.file.sync_data());
        written.map_err(|error| io_error("write", &self.path, &error))
    }
}
