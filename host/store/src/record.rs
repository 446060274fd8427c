//! Versioned bytes: how tasks and outputs look on disk.
//!
//! Owns the envelope (version byte, body, checksum) and the choice of the version. Must not know any engine or key. Invariant:
//! decoding is total: whatever the bytes are, the answer is a value or [`Error::Corrupt`], never a panic.

mod repr;
mod sealed;
mod v1;
mod v2;
mod v3;
mod v4;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::sealed::{
    Owner, check_output, open_arguments, open_output, open_task, seal_arguments, seal_output, seal_task,
};

use self::repr::{Blob, Repr};
use super::Error;
use bulkhead_domain::task::{Task, TaskOutput, Work};

/// What the first version can say is written in it, so that an older program reads everything that it could have made.
const FIRST: u8 = 1;
/// Tasks that are no call of a tool, and their outputs.
const SECOND: u8 = 2;
/// Both, where the operator gave a key: see [`sealed`].
const THIRD: u8 = 3;
/// Tasks with a trace, a timeline, a holder or a durable marker, whether they are sealed or not.
const FOURTH: u8 = 4;
const CHECKSUM_BYTES: usize = 4;

/// A task as bytes.
pub fn encode_task(task: &Task) -> Result<Vec<u8>, Error> {
    if v4::is_needed(task) {
        return encode_checked_as(FOURTH, &v4::open(task));
    }
    match &task.work {
        Work::Tool(_) => encode_checked::<v1::TaskV1>(&task.to_repr()),
        Work::Resource | Work::Prompt | Work::Completion | Work::Answered => {
            encode_checked_as::<v2::TaskV2>(SECOND, &task.to_repr())
        }
    }
}

/// A task from bytes; of a sealed one ([`open_task`]) what is not private, the rest is blank.
pub fn decode_task(bytes: &[u8]) -> Result<Task, Error> {
    match split_checked(bytes, "task")? {
        (FIRST, body) => read::<v1::TaskV1>(body, "task").map(Repr::from_repr),
        (SECOND, body) => read::<v2::TaskV2>(body, "task").map(Repr::from_repr),
        (THIRD, body) => sealed::outline(body),
        (FOURTH, body) => match read::<v4::RecordV4>(body, "task")? {
            v4::RecordV4::Open(task, trace) => v4::read(task, trace),
            v4::RecordV4::Sealed { open, .. } => sealed::outline_v4(open),
        },
        (version, _) => Err(unknown(version, FOURTH, "task")),
    }
}

/// An output as bytes.
pub fn encode_output(output: &TaskOutput) -> Result<Vec<u8>, Error> {
    match output {
        TaskOutput::Tool(output) => encode_checked::<v1::ToolOutputV1>(&output.to_repr()),
        _ => encode_checked_as::<v2::TaskOutputV2>(SECOND, &output.to_repr()),
    }
}

/// An output from bytes.
pub fn decode_output(bytes: &[u8]) -> Result<TaskOutput, Error> {
    match split_checked(bytes, "output")? {
        (FIRST, body) => {
            read::<v1::ToolOutputV1>(body, "output").map(|output| TaskOutput::Tool(Repr::from_repr(output)))
        }
        (SECOND, body) => read::<v2::TaskOutputV2>(body, "output").map(Repr::from_repr),
        (THIRD, _) => Err(Error::Corrupt("an output is sealed, and no key was given".to_owned())),
        (version, _) => Err(unknown(version, THIRD, "output")),
    }
}

/// Version byte, body, CRC-32 of both.
pub(super) fn encode_checked<T: Serialize>(body: &T) -> Result<Vec<u8>, Error> {
    encode_checked_as(FIRST, body)
}

fn to_bytes<T: Serialize>(body: &T) -> Result<Vec<u8>, Error> {
    extend(body, Vec::new())
}

fn extend<T: Serialize>(body: &T, bytes: Vec<u8>) -> Result<Vec<u8>, Error> {
    postcard::to_extend(body, bytes).map_err(|error| Error::Engine(format!("a record cannot be written: {error}")))
}

/// The same with another version.
pub(super) fn encode_checked_as<T: Serialize>(version: u8, body: &T) -> Result<Vec<u8>, Error> {
    let mut bytes = extend(body, vec![version])?;
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    Ok(bytes)
}

/// The body of bytes from [`encode_checked`], if the checksum and the version are right and nothing is left over.
pub(super) fn decode_checked<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, Error> {
    match split_checked(bytes, what)? {
        (FIRST, body) => read(body, what),
        (version, _) => Err(unknown(version, FIRST, what)),
    }
}

/// A body that is nothing but this.
pub(super) fn read<T: DeserializeOwned>(body: &[u8], what: &str) -> Result<T, Error> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(Error::Corrupt(format!("a {what} record has {} bytes too many", rest.len()))),
        Err(error) => Err(Error::Corrupt(format!("a {what} record cannot be read: {error}"))),
    }
}

pub(super) fn unknown(version: u8, known: u8, what: &str) -> Error {
    Error::Corrupt(format!("a {what} record has version {version}; this program reads up to {known}: use a newer one"))
}

/// The version byte, and what lies between it and the checksum.
pub(super) fn split_checked<'a>(bytes: &'a [u8], what: &str) -> Result<(u8, &'a [u8]), Error> {
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
