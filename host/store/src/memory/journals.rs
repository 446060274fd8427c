//! Journals in memory: the same rows as on disk, but for the seals.
//!
//! Owns what an append and a removal do to the state. Must not be told from the journals on disk by any caller.

use async_trait::async_trait;

use super::{MemoryStore, State};
use crate::journal::layout::{self, HEAD};
use crate::journal::{Append, JournalHead, JournalStore, TaskRef};
use crate::{Error, RowKind, Usage};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Task, TaskId};

/// What an append makes of a journal.
pub(super) struct Growth {
    task: TaskRef,
    append: Append,
    before: Option<JournalHead>,
    pub(super) after: JournalHead,
}

fn usage(bytes: u64) -> Usage {
    Usage { tasks: 0, bytes }
}

impl State {
    fn journal(&self, task: &TaskRef) -> Result<Option<JournalHead>, Error> {
        let row = self.rows.get(&(RowKind::Journal, layout::row_key(task, HEAD)));
        row.map(|row| JournalHead::decode(row)).transpose()
    }

    /// What an append makes of the journal; `record` is the attempt in the task's record, where that is written in the
    /// same step.
    pub(super) fn growth(&self, task: &TaskRef, append: Append, record: Option<u32>) -> Result<Growth, Error> {
        if self.blocked_tenants.contains(&task.requestor.tenant) {
            return Err(crate::blocked_tenant());
        }
        let before = self.journal(task)?;
        let after = append.onto(before.as_ref(), record)?;
        Ok(Growth { task: *task, append, before, after })
    }

    pub(super) fn admit_growth(&mut self, growth: &Growth) -> Result<(), Error> {
        let requestor = &growth.task.requestor;
        let before = growth.before.as_ref().map_or(0, |head| head.bytes);
        let more = usage(growth.after.bytes.saturating_sub(before));
        match &growth.append.caps {
            Some(caps) => caps.admit(&mut self.ledger, requestor, more)?,
            None => self.ledger.add(requestor, more),
        }
        self.ledger.release(requestor, usage(before.saturating_sub(growth.after.bytes)));
        Ok(())
    }

    /// Writes what was checked and counted.
    pub(super) fn grow(&mut self, Growth { task, append, before, after }: Growth) -> Result<(), Error> {
        if before.is_some_and(|before| after.rows < before.rows) {
            self.rows.retain(|(kind, key), _| *kind != RowKind::Journal || !key.starts_with(&layout::prefix(&task)));
        }
        for (number, piece) in append.numbers().zip(append.pieces(&task, None)?) {
            self.rows.insert((RowKind::Journal, layout::row_key(&task, number)), piece);
        }
        self.rows.insert((RowKind::Journal, layout::row_key(&task, HEAD)), after.encode()?);
        Ok(())
    }

    pub(super) fn append(&mut self, task: &TaskRef, append: Append) -> Result<JournalHead, Error> {
        let present = self.task(&task.requestor, task.id)?.filter(|present| present.outcome().is_none());
        let attempt = present.ok_or(Error::Fenced)?.attempt;
        self.leases.check_holder(self.holder(&(task.requestor, task.id)), append.held_by)?;
        let record = if self.journal(task)?.is_none() { Some(attempt) } else { None };
        let growth = self.growth(task, append, record)?;
        self.admit_growth(&growth)?;
        let after = growth.after.clone();
        self.grow(growth)?;
        Ok(after)
    }

    pub(super) fn remove_journal(&mut self, task: &TaskRef) {
        let prefix = layout::prefix(task);
        let of_task = self.rows.range((RowKind::Journal, prefix.clone())..);
        let keys = of_task.map(|(key, _)| key.clone());
        let keys: Vec<_> =
            keys.take_while(|(kind, key)| *kind == RowKind::Journal && key.starts_with(&prefix)).collect();
        for (kind, key) in keys {
            self.remove_row(kind, &key);
        }
    }

    pub(super) fn remove_journal_of_other_run(&mut self, task: &Task) {
        if matches!(self.journal(&TaskRef::of(task)), Ok(Some(head)) if head.attempt != task.attempt) {
            self.remove_journal(&TaskRef::of(task));
        }
    }

    /// Removes any row; what it counted, if it is the head of a journal, does not count any more.
    pub(super) fn remove_row(&mut self, kind: RowKind, key: &[u8]) {
        let row = self.rows.remove(&(kind, key.to_vec()));
        if kind == RowKind::Journal
            && let Some((task, HEAD)) = layout::parse_key(key)
            && let Some(Ok(head)) = row.map(|row| JournalHead::decode(&row))
        {
            self.ledger.release(&task.requestor, usage(head.bytes));
        }
    }
}

#[async_trait]
impl JournalStore for MemoryStore {
    async fn journal(&self, requestor: &Requestor, id: TaskId) -> Result<Option<JournalHead>, Error> {
        self.look("journal", requestor, |state| state.journal(&TaskRef { requestor: *requestor, id }))
    }

    async fn journal_bytes(&self, requestor: &Requestor, id: TaskId) -> Result<Vec<u8>, Error> {
        let task = TaskRef { requestor: *requestor, id };
        self.look("journal", requestor, |state| {
            let rows = state.journal(&task)?.map_or(0, |head| head.rows);
            let mut whole = Vec::new();
            for number in 1..=rows {
                let row = state.rows.get(&(RowKind::Journal, layout::row_key(&task, number)));
                let row = row.ok_or_else(|| Error::Corrupt("a piece of a journal is missing".to_owned()))?;
                let no_key = || Err(Error::Sealed("nothing is in memory".to_owned()));
                whole.extend(layout::open_piece(&task, number, row, no_key)?);
            }
            Ok(whole)
        })
    }

    async fn append(&self, requestor: &Requestor, id: TaskId, append: Append) -> Result<JournalHead, Error> {
        self.write(|state| state.append(&TaskRef { requestor: *requestor, id }, append))
    }

    async fn remove_journal(&self, requestor: &Requestor, id: TaskId) -> Result<(), Error> {
        self.write(|state| {
            let is_over = state.task(requestor, id)?.is_none_or(|task| task.outcome().is_some());
            if is_over {
                state.remove_journal(&TaskRef { requestor: *requestor, id });
            }
            Ok(())
        })
    }
}
