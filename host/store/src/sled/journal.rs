//! Journals of tasks, among the other rows.
//!
//! Owns how the rows of a journal are read, and the search for what is left of it. Invariant: the rows of a journal are
//! its head and as many pieces as the head says; whatever else begins with the name of a task is never read, and is
//! removed sooner or later.

use super::super::{Error, RowKind, StoredCaps, Usage};
use super::errors::engine_error;
use super::head::{verify_checksum, with_checksum};
use super::keys::{self, TaskKey};
use super::view::View;
use crate::journal::layout::{HEAD, open_piece};
use crate::journal::{Append, JournalHead, TaskRef};
use crate::vault::SealingKey;

/// An append that is ready to be written.
pub(super) struct Tail {
    pub(super) append: Append,
    /// The rows of its pieces, with their checksums.
    pub(super) pieces: Vec<Vec<u8>>,
    /// They are sealed with the key of their tenant, which therefore has to be there still.
    pub(super) is_sealed: bool,
}

impl Tail {
    pub(super) fn new(task: &TaskRef, append: Append, sealing: Option<&SealingKey>) -> Result<Self, Error> {
        let pieces: Vec<_> = append.pieces(task, sealing)?.into_iter().map(with_checksum).collect();
        Ok(Self { is_sealed: sealing.is_some() && !pieces.is_empty(), append, pieces })
    }

    pub(super) fn caps(&self) -> Option<&StoredCaps> {
        self.append.caps.as_ref()
    }
}

/// What an append makes of a journal.
pub(super) struct Growth {
    pub(super) before: Option<JournalHead>,
    pub(super) after: JournalHead,
}

impl Growth {
    /// What counts for more, and what for less.
    pub(super) fn usage(&self) -> (Usage, Usage) {
        (usage(Some(&self.after)), usage(self.before.as_ref()))
    }
}

/// What a journal counts.
pub(super) fn usage(head: Option<&JournalHead>) -> Usage {
    Usage { tasks: 0, bytes: head.map_or(0, |head| head.bytes) }
}

/// The head in a row, as it lies in the tree.
pub(super) fn decode_head(row: &[u8]) -> Result<JournalHead, Error> {
    JournalHead::decode(&verify_checksum(row)?)
}

/// How often a read begins again because the journal changed under it, before it counts as damaged.
const ATTEMPTS: usize = 16;

/// The whole stream of a journal; empty where there is none.
pub(super) fn read(
    view: &View,
    key: &TaskKey,
    sealing_key: impl Fn() -> Result<SealingKey, Error>,
) -> Result<Vec<u8>, Error> {
    let name = key.name();
    let prefix = key.journal_prefix();
    for _ in 0..ATTEMPTS {
        let Some(row) = view.get(&key.journal(HEAD))? else { return Ok(Vec::new()) };
        let head = decode_head(&row)?;
        let rows = view.scan(&prefix, &key.journal(1), head.rows as usize)?;
        let mut whole = Vec::new();
        for (number, (row, piece)) in (1..).zip(rows) {
            if row.as_ref() != key.journal(number) {
                break;
            }
            whole.extend(open_piece(&name, number, &verify_checksum(&piece)?, &sealing_key)?);
        }
        // A stream that was replaced meanwhile may be as long as the one before.
        if whole.len() as u64 == head.bytes && view.get(&key.journal(HEAD))? == Some(row) {
            return Ok(whole);
        }
    }
    Err(Error::Corrupt(format!("the journal of task {} does not match its head", key.id)))
}

/// Shows every head that can be read.
pub(super) fn each_head(tree: &::sled::Tree, mut see: impl FnMut(&TaskKey, &JournalHead)) -> Result<(), Error> {
    each_first(tree, |key, _, number, value| {
        if number == HEAD
            && let Ok(head) = decode_head(value)
        {
            see(key, &head);
        }
        Ok(())
    })
}

/// The journals of which something is left that no task needs, since a long removal did not come to its end. Looks at
/// the heads, not at the pieces.
pub(super) fn left(tree: &::sled::Tree) -> Result<Vec<TaskKey>, Error> {
    let mut left = Vec::new();
    each_first(tree, |key, end, number, value| {
        let is_whole = number == HEAD && tree.contains_key(key.task()).map_err(engine_error)? && {
            // What a newer program wrote is left alone.
            let rows = decode_head(value).map_or(u32::MAX, |head| head.rows);
            let beyond = rows.checked_add(1).map(|first| tree.range(key.journal(first).as_slice()..end).next());
            beyond.flatten().transpose().map_err(engine_error)?.is_none()
        };
        if !is_whole {
            left.push(*key);
        }
        Ok(())
    })?;
    Ok(left)
}

/// Shows the first row of each journal: its task, the end of its keys, the row's number and value. The other rows are
/// not read.
fn each_first(
    tree: &::sled::Tree,
    mut see: impl FnMut(&TaskKey, &[u8], u32, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut from = vec![RowKind::Journal as u8];
    loop {
        let row = tree.range(from.as_slice()..).next().transpose().map_err(engine_error)?;
        let Some((row, value)) = row.filter(|(row, _)| row.first() == Some(&(RowKind::Journal as u8))) else {
            return Ok(());
        };
        from = keys::successor(&row);
        if let Some((key, number)) = keys::parse_journal(&row) {
            from = keys::successor(&key.journal(u32::MAX));
            see(&key, &from, number, &value)?;
        }
    }
}
