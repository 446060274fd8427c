//! What became of a journal: how far it is, why it was given up, and where a call left it.
//!
//! Owns those words and nothing that decides them. What they say may be read by operators: it names imports and
//! entries, never what they hold.

use std::fmt;

use super::class::Reason;

/// Bytes that are no journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are no journal: entry {number} cannot be read")]
pub struct Corrupt {
    pub number: u32,
}

/// A replay that is not what was recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {entry}: {recorded} was recorded, {requested} was asked for at step {step}: {why}")]
pub struct Divergence {
    pub entry: u32,
    pub recorded: String,
    pub requested: String,
    pub step: u64,
    pub why: &'static str,
}

/// What became of a journal so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalStatus {
    Recording,
    Replaying,
    /// The guest did again what it tells of, up to its last mark, and was to go no further.
    Reached,
    /// The guest is over, and this is written down.
    Ended,
    /// Nothing is recorded any more.
    Demoted(Reason),
    Diverged(Divergence),
    /// It is no journal.
    Corrupt(Corrupt),
}

impl fmt::Display for JournalStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recording => f.write_str("it is recorded"),
            Self::Replaying => f.write_str("it is replayed"),
            Self::Reached => f.write_str("it was replayed up to its last mark"),
            Self::Ended => f.write_str("it is complete"),
            Self::Demoted(reason) => write!(f, "it was given up: {reason}"),
            Self::Diverged(divergence) => divergence.fmt(f),
            Self::Corrupt(corrupt) => corrupt.fmt(f),
        }
    }
}
