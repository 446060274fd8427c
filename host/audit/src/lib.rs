//! A record of who did what, for auditors.
//!
//! Owns the audit log in `DATA/audit`: lines of JSON, each with the digest of the one before, in files that are only ever appended
//! to. Must not see a token, an argument or a result, only their sizes and digests; must not slow a call down: what it is told goes
//! through a bounded queue to a thread of its own. Invariant: whatever could not be written is counted in the log itself, so the
//! chain of lines has no silent gap.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

mod chain;
mod entry;
mod read;
#[cfg(test)]
mod tests;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bulkhead_domain::UnixMs;

pub use chain::LineHash;
pub use entry::Entry;
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

    /// Notes what anybody can make happen as often as they like: in at most one line a second for each reason, which counts.
    pub fn note_seldom(&self, event: &'static str, reason: &'static str) {
        if let Some(writer) = &self.0 {
            writer.note_seldom(event, reason);
        }
    }

    /// Whether anything is noted.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Writes what waits, and says that the host went down in an orderly way. What is noted later is lost.
    pub fn close(&self) {
        if let Some(writer) = &self.0 {
            writer.close();
        }
    }
}
