//! What a task is and how it may change: pure values and functions over them.
//!
//! Owns the vocabulary that every other module shares. Must not read a clock, draw randomness, do I/O or know any wire or
//! storage format: only `std` is imported here. Invariant: [`lifecycle::step`] is the only way a task changes.

pub mod address;
pub mod call;
pub mod lifecycle;
pub mod limits;
pub mod names;
pub mod offer;
pub mod requestor;
pub mod rights;
pub mod route;
pub mod task;
pub mod timestamp;
pub mod tool;
pub mod uri_template;

use std::fmt;
use std::sync::Arc;

/// A JSON text that somebody else has checked to be well-formed; opaque here.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Arc<str>);

impl Json {
    /// Wraps a text without looking at it.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Lengths only: JSON holds arguments, answers and results, which do not belong in logs.
impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.0.len())
    }
}

/// Milliseconds since the Unix epoch.
pub type UnixMs = u64;

/// Writes 16 bytes as 32 lower-case hexadecimal digits.
fn write_hex(bytes: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut digits = [0; 32];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        for (digit, nibble) in pair.iter_mut().zip([byte >> 4, byte & 15]) {
            *digit = if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
        }
    }
    f.write_str(std::str::from_utf8(&digits).unwrap_or_default())
}

/// Reads 32 lower-case hexadecimal digits; anything else is `None`, so that every id has exactly one spelling.
fn read_hex(text: &str) -> Option<[u8; 16]> {
    let digits = text.as_bytes();
    if digits.len() != 32 {
        return None;
    }
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair.iter().try_fold(0u8, |value, digit| {
            let nibble = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            Some(value << 4 | nibble)
        })?;
    }
    Some(bytes)
}
