//! Versioned bytes: how tasks and outputs look on disk.
//!
//! Owns the envelope (version byte, body, checksum) and the choice of the version. Must not know any engine or key. Invariant:
//! decoding is total: whatever the bytes are, the answer is a value or [`Error::Corrupt`], never a panic.

mod twin;
mod v1;

use serde::Serialize;
use serde::de::DeserializeOwned;

use self::twin::Twin;
use super::Error;
use crate::domain::task::Task;
use crate::domain::tool::ToolOutput;

/// The version that is written. Older ones stay readable for as long as their module exists.
const VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 4;

/// A task as bytes.
pub fn encode_task(task: &Task) -> Result<Vec<u8>, Error> {
    seal::<v1::TaskV1>(&task.twin())
}

/// A task from bytes.
pub fn decode_task(bytes: &[u8]) -> Result<Task, Error> {
    unseal::<v1::TaskV1>(bytes, "task").map(Twin::back)
}

/// An output as bytes.
pub fn encode_output(output: &ToolOutput) -> Result<Vec<u8>, Error> {
    seal::<v1::ToolOutputV1>(&output.twin())
}

/// An output from bytes.
pub fn decode_output(bytes: &[u8]) -> Result<ToolOutput, Error> {
    unseal::<v1::ToolOutputV1>(bytes, "output").map(Twin::back)
}

/// Version byte, body, CRC-32 of both.
pub(super) fn seal<T: Serialize>(body: &T) -> Result<Vec<u8>, Error> {
    let mut bytes = postcard::to_extend(body, vec![VERSION])
        .map_err(|error| Error::Engine(format!("a record cannot be written: {error}")))?;
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    Ok(bytes)
}

/// The body of sealed bytes, if the checksum and the version are right and nothing is left over.
pub(super) fn unseal<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, Error> {
    let body = open_seal(bytes, what)?;
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(Error::Corrupt(format!("a {what} record has {} bytes too many", rest.len()))),
        Err(error) => Err(Error::Corrupt(format!("a {what} record cannot be read: {error}"))),
    }
}

/// What lies between the version byte and the checksum.
fn open_seal<'a>(bytes: &'a [u8], what: &str) -> Result<&'a [u8], Error> {
    let (sealed, checksum) = bytes
        .split_last_chunk::<CHECKSUM_BYTES>()
        .ok_or_else(|| Error::Corrupt(format!("a {what} record is cut short")))?;
    if crc32fast::hash(sealed) != u32::from_le_bytes(*checksum) {
        return Err(Error::Corrupt(format!("the checksum of a {what} record is wrong")));
    }
    match sealed.split_first() {
        Some((&VERSION, body)) => Ok(body),
        Some((version, _)) => Err(Error::Corrupt(format!(
            "a {what} record has version {version}; this program reads up to {VERSION}: use a newer one"
        ))),
        None => Err(Error::Corrupt(format!("a {what} record is empty"))),
    }
}

#[cfg(test)]
mod tests;
