//! The journal of a call that an author runs without a host, in a file: the journal's bytes as they are.
//!
//! Owns that file, and what a call begins with that no journal holds. Must not read what a tool saw. Invariant: a file
//! that was written is the whole journal of a call that came to its end; what was there before and is no journal is
//! left alone.

use std::fmt;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bulkhead_calls::journal::{Class, JournalReport, list};
use bulkhead_calls::{CallSpec, OnDemand, Operation};
use bulkhead_domain::task::CallId;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

/// What the last entry of a journal is whose call came to its end.
const END: &str = "end";

/// How long a journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct JournalSize {
    entries: usize,
    /// Calls of imports that the journal counts.
    steps: u64,
    bytes: usize,
}

impl JournalSize {
    /// Of the journal of a call that came to its end. One without an end is not for replays here: behind its last mark,
    /// the call goes on with all that it may reach.
    pub(super) fn of(journal: &[u8]) -> anyhow::Result<Self> {
        let entries = list(journal)?;
        let last = entries.last().context("the file is empty")?;
        anyhow::ensure!(last.kind == END, "the journal has no end: its call did not come to its own");
        Ok(Self { entries: entries.len(), steps: last.step, bytes: journal.len() })
    }
}

impl fmt::Display for JournalSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self { entries, steps, bytes } = self;
        let entries_word = if entries == 1 { "entry" } else { "entries" };
        let steps_word = if steps == 1 { "step" } else { "steps" };
        write!(f, "{entries} {entries_word}, {steps} {steps_word}, {bytes} bytes")
    }
}

/// Where the journal of a call will be.
#[derive(Debug)]
pub(super) struct JournalFile {
    path: PathBuf,
    draft: NamedTempFile,
}

impl JournalFile {
    /// To be made before the call begins: a call whose journal has no place has not been made then. What it holds is
    /// for its user alone.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        require_replaceable(path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let draft = NamedTempFile::new_in(folder)
            .with_context(|| format!("the journal {} cannot be written", path.display()))?;
        Ok(Self { path: path.to_owned(), draft })
    }

    /// Writes the journal of a call that is over. What came of that, in a line.
    pub(super) fn write(self, report: Option<&JournalReport>) -> anyhow::Result<String> {
        let Self { path, mut draft } = self;
        let path_shown = path.display();
        let report =
            report.with_context(|| format!("{path_shown} is not written: the call was stopped before its end"))?;
        let class = report.class();
        if let Class::Restart(_) = class {
            anyhow::bail!("{path_shown} is not written: the call gave its journal up ({class})");
        }
        let journal = &report.history.0;
        let size = JournalSize::of(journal).with_context(|| format!("{path_shown} is not written"))?;
        let failed = || format!("the journal {path_shown} cannot be written");
        draft.write_all(journal).with_context(failed)?;
        draft.persist(&path).with_context(failed)?;
        Ok(format!("{path_shown}: {size}"))
    }
}

/// A name that was mistyped must not cost a component.
fn require_replaceable(path: &Path) -> anyhow::Result<()> {
    let there = match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        there => there.with_context(|| format!("the journal {} cannot be written", path.display()))?,
    };
    let is_replaceable = there.is_file() && {
        let bytes = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
        list(&bytes).is_ok()
    };
    anyhow::ensure!(is_replaceable, "{} is there and is no journal: name another file", path.display());
    Ok(())
}

/// Fixes the id and the randomness of a call, which a replay has to begin with, too, and which no journal holds: every
/// recorded call of this tool with these arguments has the same.
pub(super) fn fix_randomness(spec: &mut CallSpec) {
    let Operation::CallTool { tool, arguments } = &spec.operation else { return };
    let derived = |label: &str| -> [u8; 32] {
        let mut hash = Sha256::new();
        for part in [label.as_bytes(), spec.plugin.digest.as_slice(), tool.as_bytes(), arguments.as_str().as_bytes()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    };
    let id = derived("bulkhead recorded call");
    let seed = derived("bulkhead recorded randomness");
    let call_id = CallId(id.first_chunk().copied().unwrap_or_default());
    spec.facts.idempotency_key = OnDemand::Text(call_id.to_string());
    (spec.facts.call_id, spec.facts.seed) = (call_id, seed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header, a move of the clock two steps on, and the end three steps after it: what entries say is not looked at.
    const JOURNAL: [u8; 11] = [2, 0, 1, 3, 2, 2, 7, 3, 3, 11, 0];

    #[test]
    fn size_is_that_of_a_journal_with_an_end() {
        let size = JournalSize::of(&JOURNAL).unwrap();
        assert_eq!(size, JournalSize { entries: 3, steps: 5, bytes: 11 });
        assert_eq!(size.to_string(), "3 entries, 5 steps, 11 bytes");
        assert_eq!(JournalSize { entries: 2, steps: 1, bytes: 90 }.to_string(), "2 entries, 1 step, 90 bytes");
        let why = |bytes: &[u8]| JournalSize::of(bytes).unwrap_err().to_string();
        assert_eq!(why(&JOURNAL[..7]), "the journal has no end: its call did not come to its own");
        assert_eq!(why(&JOURNAL[..10]), "the bytes are no journal: entry 2 cannot be read");
        assert_eq!(why(b"words"), "the bytes are no journal: entry 0 cannot be read");
        assert_eq!(why(b""), "the file is empty");
    }

    #[test]
    fn only_a_journal_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        assert!(require_replaceable(&path).is_ok(), "nothing is there");
        let component = b"\0asm\x0d\0\x01\0".as_slice();
        for (bytes, is_replaced) in [(&JOURNAL[..], true), (&JOURNAL[..7], true), (&[], true), (component, false)] {
            std::fs::write(&path, bytes).unwrap();
            let refusal = require_replaceable(&path).err().map(|error| error.to_string());
            assert_eq!(refusal.is_none(), is_replaced, "{bytes:?}: {refusal:?}");
            assert!(refusal.is_none_or(|why| why.ends_with("is there and is no journal: name another file")));
        }
        assert!(require_replaceable(folder.path()).is_err(), "a folder");
    }

    #[test]
    fn journal_without_a_folder_to_be_in_fails_before_the_call() {
        let folder = tempfile::tempdir().unwrap();
        let why = JournalFile::create(&folder.path().join("none/file")).unwrap_err();
        assert!(format!("{why:#}").contains("none/file cannot be written"), "{why:#}");
    }
}
