//! The chain: each line names the digest of the one before.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// SHA-256 of a line, without its line break.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LineHash([u8; 32]);

impl LineHash {
    /// In front of the first line.
    pub(super) const NONE: Self = Self([0; 32]);

    pub(super) fn of(line: &[u8]) -> Self {
        Self(Sha256::digest(line).into())
    }

    /// Reads 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for LineHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for LineHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
