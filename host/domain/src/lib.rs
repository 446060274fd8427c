//! What a task is and how it may change: pure values and functions over them.
//!
//! Owns the vocabulary that every other crate shares. Must not draw randomness, do I/O or know any wire or storage
//! format, nor read a clock: only `std` is imported here. Invariant: [`lifecycle::step`] is the only way a task
//! changes.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

pub mod call;
pub mod clock;
pub mod crash_points;
pub mod exports;
pub mod imports;
pub mod lifecycle;
pub mod limits;
pub mod names;
pub mod requestor;
pub mod rights;
pub mod route;
pub mod server_features;
pub mod skills;
pub mod task;
#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "only tests use it, and a fixture that fails ends its test"
)]
pub mod testing;
pub mod text;
pub mod timeline;
pub mod timestamp;
pub mod tool;
pub mod tool_names;
pub mod toolset;
pub mod trace;
pub mod uri_template;

use std::fmt;
use std::sync::Arc;

/// A JSON text that its maker has checked to be well-formed; opaque here.
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

/// The mark that some editors and shells write in front of a text.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// A text without the one byte order mark that may stand in front of it: a reader of JSON may ignore it (RFC 8259,
/// 8.1).
pub fn without_byte_order_mark(text: &str) -> &str {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// How many bytes of a message are the byte order mark in front of it.
pub fn byte_order_mark(message: &[u8]) -> usize {
    if message.starts_with(BYTE_ORDER_MARK.as_bytes()) { BYTE_ORDER_MARK.len() } else { 0 }
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| hex_digits(*byte)).map(char::from).collect()
}

/// The two digits of a byte, in ASCII.
pub fn hex_digits(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|nibble| if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 })
}

/// Writes 16 bytes as 32 lower-case hexadecimal digits.
fn write_hex(bytes: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut digits = [0; 32];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&hex_digits(*byte));
    }
    f.write_str(std::str::from_utf8(&digits).unwrap_or_default())
}

/// Reads hexadecimal digits of either case, exactly as many as fit.
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            *byte = *byte << 4 | u8::try_from(char::from(*digit).to_digit(16)?).ok()?;
        }
    }
    Some(bytes)
}

/// Reads 32 lower-case hexadecimal digits; anything else is `None`, so that every id has exactly one spelling.
fn read_hex(text: &str) -> Option<[u8; 16]> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) { None } else { unhex(text) }
}
