//! The small synced file beside the database that says how far the database had come.
//!
//! Owns the file `state`: database id, number of a group that was durable, and whether the store was closed properly. Must not
//! read the database. Invariant: what the file says is never ahead of what is durable, and at most a second behind it, so a
//! database that is older than the file has lost acknowledged writes.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::Error;
use super::super::record::{seal, unseal};
use super::files::{io_error, sync_folder};

/// Two slots, written in turns: a torn write leaves the other one. One slot is one sector.
const SLOT_BYTES: usize = 512;
const SLOTS: [u64; 2] = [0, 1];

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
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error("read", path, &error)),
    };
    let newest = bytes.chunks(SLOT_BYTES).filter_map(read_slot).max_by_key(|state| state.turn);
    newest.map(Some).ok_or_else(|| Error::Corrupt(format!("{} holds no valid state", path.display())))
}

/// A slot begins with the length of its sealed bytes.
fn read_slot(slot: &[u8]) -> Option<State> {
    let (length, rest) = slot.split_first_chunk::<2>()?;
    unseal(rest.get(..usize::from(u16::from_le_bytes(*length)))?, "state").ok()
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
        let sealed = seal(&state)?;
        let mut slot = Vec::with_capacity(SLOT_BYTES);
        slot.extend_from_slice(&u16::try_from(sealed.len()).unwrap_or(u16::MAX).to_le_bytes());
        slot.extend_from_slice(&sealed);
        slot.resize(SLOT_BYTES, 0);
        let offset = (state.turn % SLOTS.len() as u64) * SLOT_BYTES as u64;
        self.file
            .write_all_at(&slot, offset)
            .and_then(|()| self.file.sync_data())
            .map_err(|error| io_error("write", &self.path, &error))?;
        self.state = state;
        Ok(())
    }
}
