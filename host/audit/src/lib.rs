//! A record of who did what, for auditors.
//!
//! Owns the audit log in `DATA/audit`: lines of JSON, each with the digest of the one before, in files that are only
//! ever appended to. Must not see a token, an argument or a result, only their sizes and digests; must not slow a call
//! down: what it is told goes through a bounded queue to a thread of its own. Invariant: whatever could not be written
//! is counted in the log itself, so the chain of lines has no silent gap.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

mod entry;
mod page;
mod read;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bulkhead_domain::{UnixMs, hex, unhex};
use sha2::{Digest as _, Sha256};

pub use entry::Entry;
pub use page::{LogPage, PageChain, PageFilter, PagePosition, read_page};
pub use read::{Broken, LogLine, Tail, Verified, verify};

use writer::Writer;

/// Where the log is, and how long it gets.
#[derive(Clone, Debug)]
pub struct Options {
    /// Made if need be; for nobody else's eyes.
    pub folder: PathBuf,
    /// A file that is longer is followed by another one.
    pub file_bytes_max: u64,
    /// Older files are removed, which the log says; 0: never.
    pub files_max: u64,
}

/// SHA-256 of a line, without its line break.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LineHash([u8; 32]);

impl LineHash {
    /// In front of the first line.
    pub(crate) const NONE: Self = Self([0; 32]);

    pub(crate) fn of(line: &[u8]) -> Self {
        Self(Sha256::digest(line).into())
    }

    /// Reads 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        unhex(text).map(Self)
    }
}

impl fmt::Display for LineHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for LineHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The folder of the log in a data directory.
pub fn folder(data: &Path) -> PathBuf {
    data.join("audit")
}

/// Where entries go; cheap to clone. Without a log, noting one costs nothing.
#[derive(Clone, Default)]
pub struct Audit(Option<Arc<Writer>>);

impl Audit {
    /// Notes nothing.
    pub fn off() -> Self {
        Self(None)
    }

    /// Goes on with the log of a folder. `now` is asked once for each entry.
    ///
    /// # Errors
    ///
    /// The folder cannot be used, or its last file does not end in the way that this log writes.
    pub fn open(options: Options, now: impl Fn() -> UnixMs + Send + Sync + 'static) -> io::Result<Self> {
        Ok(Self(Some(Arc::new(Writer::open(options, Box::new(now))?))))
    }

    /// Records an event. `entry` is made only if the log is on.
    pub fn note(&self, entry: impl FnOnce() -> Entry) {
        if let Some(writer) = &self.0 {
            writer.note(entry());
        }
    }

    /// Notes what anybody can make happen as often as they like: in at most one line a second for each reason, which
    /// counts.
    pub fn note_seldom(&self, event: &'static str, reason: &'static str) {
        if let Some(writer) = &self.0 {
            writer.note_seldom(event, reason);
        }
    }

    /// Entries that wait to be written, and those that were lost since the start; `None` without a log.
    pub fn backlog(&self) -> Option<(u64, u64)> {
        self.0.as_ref().map(|writer| writer.backlog())
    }

    /// Whether anything is noted.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the disk refuses what there is to write. It is tried again.
    pub fn is_refused(&self) -> bool {
        self.0.as_ref().is_some_and(|writer| writer.is_refused())
    }

    /// Where the log is; `None`: there is none.
    pub fn folder(&self) -> Option<&Path> {
        self.0.as_ref().map(|writer| writer.folder())
    }

    /// Writes what waits, and says that the host went down in an orderly way. What is noted later is lost.
    pub fn close(&self) {
        if let Some(writer) = &self.0 {
            writer.close();
        }
    }
}
