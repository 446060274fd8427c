//! The writes of journals: appends, and the removal of what no task needs.
//!
//! Must not apply anything by itself: the committer does.

use super::super::{Error, StoredCaps, Usage, blocked_tenant, record};
use super::committer::Committer;
use super::errors::engine_error;
use super::head::with_checksum;
use super::journal::{Growth, Tail, decode_head, usage};
use super::keys::{self, TaskKey};
use super::operation::Writer;
use super::plan::Plan;
use super::sealing::row_key;
use super::space::FreeRoom;
use super::store_inner::StoreInner;
use crate::journal::layout::HEAD;
use crate::journal::{JournalHead, JournalState};

/// Rows of a journal that are removed in one step; the rest follows in steps of its own.
pub(super) const ROWS_AT_ONCE: u32 = 256;

/// A refusal of one operation, beside an error of the engine: the others of the group go on.
type Checked<T> = Result<Result<T, Error>, Error>;

/// Makes a damaged row a refusal.
fn sound<T>(read: Result<T, Error>) -> Checked<T> {
    match read {
        Err(Error::Corrupt(damage)) => Ok(Err(Error::Corrupt(damage))),
        other => other.map(Ok),
    }
}

impl Writer<'_> {
    /// Appends to the journal of a task that is there and not over.
    pub(super) fn append(&mut self, key: &TaskKey, tail: Tail) -> Checked<JournalHead> {
        let growth = match self.growth_of_present(key, &tail)? {
            Ok(growth) => growth,
            Err(refused) => return Ok(Err(refused)),
        };
        if let Err(refused) = self.admit_growth(key, &growth, tail.caps()) {
            return Ok(Err(refused));
        }
        self.write_growth(key, tail, &growth)?;
        Ok(Ok(growth.after))
    }

    /// What an append makes of the journal of a task whose record stays as it is.
    pub(super) fn growth_of_present(&self, key: &TaskKey, tail: &Tail) -> Checked<Growth> {
        let head = match self.sound_head(key)? {
            Ok(Some(head)) if !head.ended => head,
            Ok(_) => return Ok(Err(Error::Fenced)),
            Err(damage) => return Ok(Err(damage)),
        };
        let held_by = tail.append.held_by;
        if let Err(lost) = self.shared.with_leases(|leases| leases.check_holder(head.lease(), held_by)) {
            return Ok(Err(lost));
        }
        // Without a head the record alone says which run may begin the journal.
        let record = match self.present(&key.journal(HEAD))? {
            true => None,
            false => match sound(self.record_bytes(key, &head.record).and_then(|bytes| record::decode_task(&bytes)))? {
                Ok(task) => Some(task.attempt),
                Err(damage) => return Ok(Err(damage)),
            },
        };
        self.growth(key, tail, record)
    }

    /// What an append makes of a journal; `record` is the attempt in the task's record, where that is known.
    pub(super) fn growth(&self, key: &TaskKey, tail: &Tail, record: Option<u32>) -> Checked<Growth> {
        let tenant = key.requestor.tenant;
        if self.shared.with_blocked_tenants(|blocked| blocked.contains(&tenant)) {
            return Ok(Err(blocked_tenant()));
        }
        if tail.is_sealed && !self.present(&row_key(tenant))? {
            return Ok(Err(Error::Fenced));
        }
        let before = match sound(self.journal_head(key))? {
            Ok(before) => before,
            Err(damage) => return Ok(Err(damage)),
        };
        Ok(tail.append.onto(before.as_ref(), record).map(|after| Growth { before, after }))
    }

    /// Counts what a journal grows by, if there is room for it.
    pub(super) fn admit_growth(
        &mut self,
        key: &TaskKey,
        growth: &Growth,
        caps: Option<&StoredCaps>,
    ) -> Result<(), Error> {
        let (after, before) = growth.usage();
        let more = Usage { tasks: 0, bytes: after.bytes.saturating_sub(before.bytes) };
        if let Some(caps) = caps {
            self.ledger(|ledger| caps.admit(ledger, &key.requestor, more))?;
        } else {
            self.ledger(|ledger| ledger.add(&key.requestor, more));
        }
        let less = Usage { tasks: 0, bytes: before.bytes.saturating_sub(after.bytes) };
        self.ledger(|ledger| ledger.release(&key.requestor, less));
        self.plan.counted.push((key.requestor, more, less));
        Ok(())
    }

    /// Writes what was checked and counted.
    pub(super) fn write_growth(&mut self, key: &TaskKey, tail: Tail, growth: &Growth) -> Result<(), Error> {
        if let Some(before) = growth.before.as_ref().filter(|before| growth.after.rows < before.rows) {
            self.drop_pieces(key, before.rows)?;
        }
        match &growth.after.state {
            JournalState::Demoted { reason } => self.plan.demotions.push(reason.clone()),
            JournalState::Sound | JournalState::Diverged { .. } if tail.append.bytes.is_empty() => {}
            JournalState::Sound | JournalState::Diverged { .. } => {
                self.plan.growths.push(tail.append.bytes.len() as u64);
            }
        }
        for (number, piece) in tail.append.numbers().zip(tail.pieces) {
            self.set(key.journal(number), Some(piece))?;
        }
        self.set(key.journal(HEAD), Some(with_checksum(growth.after.encode()?)))
    }

    /// Removes a journal, if there is one. Of a long one the first rows go now, and the others once this is durable.
    pub(super) fn remove_journal(&mut self, key: &TaskKey) -> Result<(), Error> {
        let Some(row) = self.plan.group.get(self.tree, &key.journal(HEAD))? else { return Ok(()) };
        match decode_head(&row) {
            Ok(head) => {
                self.uncount_journal(key, &head);
                self.drop_pieces(key, head.rows)?;
            }
            // How many pieces there are is not known. It was never counted.
            Err(_) => self.plan.left_journals.push(*key),
        }
        self.set(key.journal(HEAD), None)
    }

    /// Removes the journal of another run than the present one, which has not taken it over.
    pub(super) fn remove_journal_of_other_run(&mut self, key: &TaskKey, attempt: u32) -> Result<(), Error> {
        match self.journal_head(key) {
            Ok(Some(head)) if head.attempt != attempt => self.remove_journal(key),
            // What cannot be read is told to whoever wants to read it.
            Ok(_) | Err(Error::Corrupt(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes the journal of a task that is over.
    pub(super) fn remove_kept_journal(&mut self, key: &TaskKey) -> Result<Result<(), Error>, Error> {
        match self.sound_head(key)? {
            Ok(Some(head)) if !head.ended => Ok(Ok(())),
            Ok(_) => self.remove_journal(key).map(Ok),
            Err(damage) => Ok(Err(damage)),
        }
    }

    /// A small row is about to be removed: if it is a head, its journal does not count any more.
    pub(super) fn uncount_row(&mut self, row: &[u8]) -> Result<(), Error> {
        if let Some((key, HEAD)) = keys::parse_journal(row)
            && let Some(row) = self.plan.group.get(self.tree, row)?
            && let Ok(head) = decode_head(&row)
        {
            self.uncount_journal(&key, &head);
        }
        Ok(())
    }

    fn uncount_journal(&mut self, key: &TaskKey, head: &JournalHead) {
        let less = usage(Some(head));
        self.ledger(|ledger| ledger.release(&key.requestor, less));
        self.plan.counted.push((key.requestor, Usage::default(), less));
    }

    fn drop_pieces(&mut self, key: &TaskKey, rows: u32) -> Result<(), Error> {
        for number in 1..=rows.min(ROWS_AT_ONCE - 1) {
            self.set(key.journal(number), None)?;
        }
        if rows >= ROWS_AT_ONCE {
            self.plan.left_journals.push(*key);
        }
        Ok(())
    }

    fn journal_head(&self, key: &TaskKey) -> Result<Option<JournalHead>, Error> {
        self.plan.group.get(self.tree, &key.journal(HEAD))?.map(|row| decode_head(&row)).transpose()
    }
}

impl Committer {
    /// Removes some rows that are left of journals, in a group of their own. `false`: there are none, or nothing can be
    /// written now.
    pub(super) fn sweep_journals(&mut self) -> bool {
        let Some(key) = self.left_journals.first().copied() else { return false };
        if self.room() == FreeRoom::None {
            return false;
        }
        let Some(database) = &self.database else { return false };
        let mut plan = Plan::default();
        match sweep(&database.tree, &self.shared, &key, &mut plan) {
            Ok(is_over) => {
                let is_durable = self.settle(plan);
                if is_over && is_durable {
                    self.left_journals.remove(&key);
                }
                is_durable
            }
            Err(error) => {
                tracing::error!(%error, task.id = %key.id, "what is left of a journal cannot be read");
                self.give_up(plan, || Error::Engine(error.to_string()));
                self.left_journals.remove(&key);
                true
            }
        }
    }
}

/// Plans the removal of rows of a journal that its head does not name, or all of them where there is no task; whether
/// these are the last.
fn sweep(tree: &::sled::Tree, shared: &StoreInner, key: &TaskKey, plan: &mut Plan) -> Result<bool, Error> {
    let mut writer = Writer { tree, shared, plan };
    let mut from = key.journal(HEAD);
    match (writer.present(&key.task())?, writer.journal_head(key)) {
        (true, Ok(Some(head))) => match head.rows.checked_add(1) {
            Some(first) => from = key.journal(first),
            None => return Ok(true),
        },
        // A newer program may be able to read it.
        (true, Err(_)) => return Ok(true),
        (true, Ok(None)) | (false, _) => {}
    }
    let until = keys::after_prefix(&key.journal_prefix());
    let rows: Result<Vec<_>, _> = tree.range(from..).keys().take(ROWS_AT_ONCE as usize).collect();
    let mut rows = rows.map_err(engine_error)?;
    rows.retain(|row| until.as_deref().is_none_or(|until| row.as_ref() < until));
    for row in &rows {
        writer.uncount_row(row)?;
        writer.set(row.to_vec(), None)?;
    }
    Ok(rows.len() < ROWS_AT_ONCE as usize)
}
