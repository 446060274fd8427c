//! Versioned bytes: how tasks and outputs look on disk.
//!
//! Owns the envelope (version byte, body, checksum) and the choice of the version. Must not know any engine or key.
//! Invariant: decoding is total: whatever the bytes are, the answer is a value or an [`Error`], never a panic.
//!
//! A new member of [`Task`] is a new [`Format`] from the first release on: what was written in another one is still
//! read.

mod output;
mod repr;
mod sealed;
mod task;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::sealed::{
    Owner, check_output, open_arguments, open_output, open_task, seal_arguments, seal_output, seal_task,
};

use self::output::StoredOutput;
use self::repr::{Blob, Repr};
use self::task::{StoredTask, TaskRepr};
use super::Error;
use bulkhead_domain::task::{Task, TaskOutput};

/// What everything in the store begins with. Builds before 0.1.0 wrote the numbers below it, in other layouts: they are
/// refused by name.
pub(super) const VERSION: u8 = 5;
const CHECKSUM_BYTES: usize = 4;

/// How tasks are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Present,
    /// Shows that two formats can be read side by side: the present one with a number behind it.
    #[cfg(test)]
    Next,
}

impl Format {
    /// What this program writes; it reads every format.
    const WRITTEN: Self = Self::Present;

    fn of(version: u8) -> Result<Self, Error> {
        match version {
            VERSION => Ok(Self::Present),
            #[cfg(test)]
            tests::NEXT => Ok(Self::Next),
            _ => Err(unknown(version, "task")),
        }
    }
}

fn write_task(format: Format, task: StoredTask) -> Result<Vec<u8>, Error> {
    match format {
        Format::Present => encode_checked_as(VERSION, &task),
        #[cfg(test)]
        Format::Next => encode_checked_as(tests::NEXT, &(task, tests::NUMBER)),
    }
}

fn read_task(bytes: &[u8]) -> Result<StoredTask, Error> {
    let (version, body) = split_checked(bytes, "task")?;
    match Format::of(version)? {
        Format::Present => read(body, "task"),
        #[cfg(test)]
        Format::Next => read::<(StoredTask, u32)>(body, "task").map(|(task, _)| task),
    }
}

/// A task as bytes.
pub fn encode_task(task: &Task) -> Result<Vec<u8>, Error> {
    write_task(Format::WRITTEN, StoredTask::Open(task.to_repr()))
}

/// A task from bytes; of a sealed one ([`open_task`]) what is not private, the rest is blank.
pub fn decode_task(bytes: &[u8]) -> Result<Task, Error> {
    match read_task(bytes)? {
        StoredTask::Open(task) => Repr::from_repr(task),
        StoredTask::Sealed { open, .. } => outline(&open),
    }
}

fn outline(open: &Blob) -> Result<Task, Error> {
    Task::from_repr(read::<TaskRepr>(&open.0, "task")?)
}

/// An output as bytes.
pub fn encode_output(output: &TaskOutput) -> Result<Vec<u8>, Error> {
    encode_checked(&StoredOutput::Open(output.to_repr()))
}

/// An output from bytes.
pub fn decode_output(bytes: &[u8]) -> Result<TaskOutput, Error> {
    match decode_checked(bytes, "output")? {
        StoredOutput::Open(output) => Repr::from_repr(output),
        StoredOutput::Sealed(_) => Err(Error::Corrupt("an output is sealed, and no key was given".to_owned())),
    }
}

/// Version byte, body, CRC-32 of both.
pub(super) fn encode_checked<T: Serialize>(body: &T) -> Result<Vec<u8>, Error> {
    encode_checked_as(VERSION, body)
}

fn to_bytes<T: Serialize>(body: &T) -> Result<Vec<u8>, Error> {
    extend(body, Vec::new())
}

fn extend<T: Serialize>(body: &T, bytes: Vec<u8>) -> Result<Vec<u8>, Error> {
    postcard::to_extend(body, bytes).map_err(|error| Error::Engine(format!("a record cannot be written: {error}")))
}

fn encode_checked_as<T: Serialize>(version: u8, body: &T) -> Result<Vec<u8>, Error> {
    let mut bytes = extend(body, vec![version])?;
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    Ok(bytes)
}

/// The body of bytes from [`encode_checked`], if the checksum and the version are right and nothing is left over.
pub(super) fn decode_checked<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, Error> {
    match split_checked(bytes, what)? {
        (VERSION, body) => read(body, what),
        (version, _) => Err(unknown(version, what)),
    }
}

/// A body that is nothing but this.
fn read<T: DeserializeOwned>(body: &[u8], what: &str) -> Result<T, Error> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(Error::Corrupt(format!("a {what} record has {} bytes too many", rest.len()))),
        Err(error) => Err(Error::Corrupt(format!("a {what} record cannot be read: {error}"))),
    }
}

fn unknown(version: u8, what: &str) -> Error {
    if version < VERSION {
        return Error::Unreleased;
    }
    Error::Corrupt(format!(
        "a {what} record has version {version}; this program reads up to {VERSION}: use a newer one"
    ))
}

/// The version byte, and what lies between it and the checksum.
fn split_checked<'a>(bytes: &'a [u8], what: &str) -> Result<(u8, &'a [u8]), Error> {
    let (sealed, checksum) = bytes
        .split_last_chunk::<CHECKSUM_BYTES>()
        .ok_or_else(|| Error::Corrupt(format!("a {what} record is cut short")))?;
    if crc32fast::hash(sealed) != u32::from_le_bytes(*checksum) {
        return Err(Error::Corrupt(format!("the checksum of a {what} record is wrong")));
    }
    let (version, body) = sealed.split_first().ok_or_else(|| Error::Corrupt(format!("a {what} record is empty")))?;
    Ok((*version, body))
}

#[cfg(test)]
mod tests;
