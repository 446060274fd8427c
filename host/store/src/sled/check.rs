//! Examining every row of a store, for operators.
//!
//! Owns what `store check` says. Must not change anything. Invariant: every record, payload and index row is looked at,
//! and an index row is right exactly when the head of its task calls for it.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::{Error, RowKind, record};
use super::SledStore;
use super::database;
use super::files::Files;
use super::head::{PayloadLocation, RecordHeader, verify_checksum};
use super::keys::{self, Part, TaskKey, kind};
use super::layout::Layout;
use super::open;
use super::salvage::{guarded, on_a_copy};
use super::view::View;
use crate::journal::check::JournalCheck;

const CACHE_BYTES: u64 = 32 << 20;
const PAGE_ROWS: usize = 512;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub tasks: u64,
    /// Small rows: sessions, tokens, principals and the like.
    pub rows: u64,
    /// Payloads in files of their own.
    pub files: u64,
    /// Records, arguments and outputs.
    pub bytes: u64,
    /// Everything that is wrong, one sentence each; at most [`PROBLEMS_MAX`].
    pub problems: Vec<String>,
}

/// Problems that are listed: the first ones say enough.
pub const PROBLEMS_MAX: usize = 100;

impl Report {
    pub(crate) fn problem(&mut self, text: String) {
        if self.problems.len() < PROBLEMS_MAX && !self.problems.contains(&text) {
            self.problems.push(text);
        }
    }
}

/// Takes a data directory that has a store; nothing is created where there is none.
pub(super) fn lock_existing(layout: &Layout) -> Result<open::DirectoryLock, Error> {
    if !layout.store.exists() && !layout.rebuilt().exists() {
        return Err(Error::Engine(format!("there is no store at {}", layout.store.display())));
    }
    open::lock(layout)
}

/// Checks the store of a data directory that no host uses: every record, payload and index.
///
/// # Errors
///
/// [`Error::Locked`] when a host runs on it. Damage is not an error but part of the report.
pub fn check(data: &Path) -> Result<Report, Error> {
    let layout = Layout::new(data);
    let _lock = lock_existing(&layout)?;
    let mut report = Report::default();
    if !layout.database_file().exists() && !layout.state.exists() {
        return Ok(report);
    }
    if let Err(error) = guarded(|| open::examine(&layout)) {
        report.problem(error.to_string());
    }
    if !layout.database_file().exists() {
        return Ok(report);
    }
    let rest = guarded(|| {
        on_a_copy(&layout, |copied| {
            let view = View::default();
            view.give((*database::engine(&copied.database, CACHE_BYTES)?).clone());
            examine_rows(&view, &Files::open(layout.files.clone())?, &mut report)
        })
    });
    if let Err(error) = rest {
        report.problem(error.to_string());
    }
    Ok(report)
}

/// Examinations of a store that is in use, at most.
const EXAMINATIONS_MAX: u32 = 5;

/// Between two of them: what was half done is done by then.
const SETTLED_AFTER: Duration = Duration::from_millis(20);

/// Checks a store that is in use. It blocks the thread.
pub fn check_running(store: &SledStore) -> Result<Report, Error> {
    settled(|| {
        let mut report = Report::default();
        examine_rows(&store.shared.view, &store.files, &mut report)?;
        Ok(report)
    })
}

/// What changes while it is examined looks like damage. So a problem counts only if every examination finds it.
fn settled(mut examine: impl FnMut() -> Result<Report, Error>) -> Result<Report, Error> {
    let mut report = examine()?;
    for _ in 1..EXAMINATIONS_MAX {
        if report.problems.is_empty() {
            break;
        }
        std::thread::sleep(SETTLED_AFTER);
        let earlier = std::mem::replace(&mut report, examine()?).problems;
        report.problems.retain(|problem| earlier.contains(problem));
    }
    Ok(report)
}

/// Index rows and payload chunks, as the heads say they must be.
#[derive(Default)]
struct Expected {
    index: BTreeMap<Vec<u8>, Vec<u8>>,
    chunks: HashSet<(TaskKey, u8)>,
}

fn examine_rows(view: &View, files: &Files, report: &mut Report) -> Result<(), Error> {
    let mut expected = Expected::default();
    each_row(view, &[kind::TASK], |key, value| {
        let Some(key) = keys::parse_task(key) else {
            report.problem("a task has an unreadable key".to_owned());
            return Ok(());
        };
        match examine_task(view, files, &key, value, &mut expected) {
            Ok(head) => {
                report.tasks += 1;
                for (_, location) in head.payloads() {
                    report.bytes += location.bytes();
                    report.files += u64::from(matches!(location, PayloadLocation::File { .. }));
                }
            }
            Err(error) => report.problem(format!("task {}: {error}", key.id)),
        }
        Ok(())
    })?;
    let mut journals = JournalCheck::default();
    each_row(view, &[], |key, value| {
        match key.first() {
            Some(&(kind::LIST | kind::EXPIRY | kind::UNFINISHED | kind::ALIAS)) => {
                if expected.index.remove(key).as_deref() != Some(value) {
                    report.problem(format!("an index row of kind {} belongs to no task", label(key)));
                }
            }
            Some(&kind::PAYLOAD) => {
                let part = keys::parse_task(key).zip(key.get(49).copied());
                if !part.is_some_and(|part| expected.chunks.contains(&part)) {
                    report.problem("a piece of a payload belongs to no task".to_owned());
                }
            }
            Some(&kind::TASK) => {}
            _ if key == keys::GROUP => {}
            _ => {
                report.rows += 1;
                match verify_checksum(value) {
                    Ok(row) if key.first() == Some(&(RowKind::Journal as u8)) => {
                        examine_journal_row(view, key, &row, &mut journals, report)?;
                    }
                    Ok(_) => {}
                    Err(error) => report.problem(format!("a row of kind {}: {error}", label(key))),
                }
            }
        }
        Ok(())
    })?;
    journals.end(report);
    for key in expected.index.into_keys() {
        report.problem(format!("an index row of kind {} is missing", label(&key)));
    }
    Ok(())
}

fn examine_journal_row(
    view: &View,
    key: &[u8],
    row: &[u8],
    journals: &mut JournalCheck,
    report: &mut Report,
) -> Result<(), Error> {
    let Some((task, number)) = keys::parse_journal(key) else {
        report.problem("a row of a journal has an unreadable key".to_owned());
        return Ok(());
    };
    let has_task = !journals.is_new(&task.name()) || view.get(&task.task())?.is_some();
    journals.row(&task.name(), number, row, has_task, report);
    Ok(())
}

pub(super) fn label(key: &[u8]) -> char {
    key.first().map_or('?', |kind| char::from(*kind))
}

fn examine_task(
    view: &View,
    files: &Files,
    key: &TaskKey,
    value: &[u8],
    expected: &mut Expected,
) -> Result<RecordHeader, Error> {
    let head = RecordHeader::decode(value)?;
    expected.index.extend(head.index_rows(key)?);
    let in_chunks = head.payloads().filter(|(_, location)| matches!(location, PayloadLocation::Chunks { .. }));
    expected.chunks.extend(in_chunks.map(|(part, _)| (*key, part as u8)));
    let read = Payloads::read(view, files, key)?;
    let task = record::decode_task(&read.record)?;
    let same = (task.id, task.requestor, task.revision) == (key.id, key.requestor, head.revision);
    if !same
        || RecordHeader::new(&task, head.record.clone(), head.arguments.clone(), head.reserved_bytes).index_rows(key)?
            != head.index_rows(key)?
    {
        return Err(Error::Corrupt("the record and its head differ".to_owned()));
    }
    read.output.map(|output| record::check_output(&output)).transpose()?;
    Ok(head)
}

/// All the bytes of a task.
pub(super) struct Payloads {
    pub(super) record: Vec<u8>,
    pub(super) arguments: Vec<u8>,
    pub(super) output: Option<Vec<u8>>,
}

impl Payloads {
    pub(super) fn read(view: &View, files: &Files, key: &TaskKey) -> Result<Self, Error> {
        let gone = || Error::Corrupt("it went away while it was read".to_owned());
        let record = view.payload(files, key, Part::Record, |head| Some(head.record))?;
        let arguments = view.payload(files, key, Part::Arguments, |head| Some(head.arguments))?;
        let output = view.payload(files, key, Part::Output, |head| head.output)?;
        Ok(Self { record: record.ok_or_else(gone)?, arguments: arguments.ok_or_else(gone)?, output })
    }
}

pub(super) fn each_row(
    view: &View,
    prefix: &[u8],
    mut act: impl FnMut(&[u8], &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut start = prefix.to_vec();
    loop {
        let rows = view.scan(prefix, &start, PAGE_ROWS)?;
        let Some((last, _)) = rows.last() else { return Ok(()) };
        start = keys::successor(last);
        for (key, value) in &rows {
            act(key, value)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examinations find these problems, one after the other.
    fn found(examinations: &[&[&str]]) -> Vec<String> {
        let mut next = examinations.iter();
        let examine = || {
            let problems = next.next().expect("no further examination").iter().map(|&text| text.to_owned()).collect();
            Ok(Report { problems, ..Report::default() })
        };
        settled(examine).unwrap().problems
    }

    #[test]
    fn problem_of_a_store_in_use_is_one_that_every_examination_finds() {
        assert_eq!(found(&[&[]]), [""; 0]);
        assert_eq!(found(&[&["a task goes away"], &[]]), [""; 0]);
        assert_eq!(found(&[&["a task goes away"], &["another one does"]]), [""; 0]);
        let damaged = ["a task goes away", "damage"].as_slice();
        assert_eq!(found(&[damaged, &["damage"], damaged, &["damage"], damaged]), ["damage"]);
    }
}
