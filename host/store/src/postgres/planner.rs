//! The rules of a group: which operations are done, and what they change.
//!
//! Owns the decisions, one operation after the other, on what was looked at. Must not talk to the server. Invariant: an
//! operation is done whole or refused without a trace; and whatever is counted for a group can be taken back.

use super::super::leases::Leases;
use super::super::{Error, Ledger, RowKind, RowState, StoredCaps, Usage, blocked_tenant};
use super::operation::{Answer, Claim, Operation, Record, Tail};
use super::overlay::{Overlay, TaskEntry};
use super::state::Shared;
use crate::journal::layout::{self, HEAD};
use crate::journal::{JournalHead, JournalState, TaskRef};
use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Lease, NodeId};

/// What was counted for a requestor, to be taken back if the group fails.
pub(super) struct Counted {
    pub(super) requestor: Requestor,
    pub(super) more: Usage,
    pub(super) less: Usage,
}

/// What an append makes of a journal.
struct Growth {
    before: Option<JournalHead>,
    after: JournalHead,
}

/// Others would go on writing for a tenant that is to be erased.
fn erased_by_one_host() -> Error {
    Error::ReadOnly(
        "several hosts share the database: end all of them, and erase the tenant with a configuration that has no [cluster]".to_owned(),
    )
}

fn journal_usage(head: Option<&JournalHead>) -> Usage {
    Usage { tasks: 0, bytes: head.map_or(0, |head| head.bytes) }
}

/// See the module.
pub(super) struct Planner<'a> {
    pub(super) shared: &'a Shared,
    pub(super) overlay: &'a mut Overlay,
    pub(super) counted: Vec<Counted>,
    /// What journals grew by, in bytes, and why others were given up: counted once the group is durable.
    pub(super) growths: Vec<u64>,
    pub(super) demotions: Vec<String>,
}

impl<'a> Planner<'a> {
    pub(super) fn new(shared: &'a Shared, overlay: &'a mut Overlay) -> Self {
        Self { shared, overlay, counted: Vec::new(), growths: Vec::new(), demotions: Vec::new() }
    }

    pub(super) fn plan(&mut self, operation: Operation) -> Result<Answer, Error> {
        match operation {
            Operation::Create { record, arguments, caps } => self.create(record, arguments, &caps)?,
            Operation::Commit { record, held_by, then } => self.commit(record, held_by, then)?,
            Operation::Claim { claims, now, lease } => return Ok(Answer::Claimed(self.claim(claims, now, lease))),
            Operation::Append { key, tail } => return self.append(&key, tail).map(Answer::Appended),
            Operation::RemoveTask(key) => self.remove_task(&key),
            Operation::RemoveJournal(key) => {
                if self.overlay.head(&key).is_none_or(|head| head.ended) {
                    self.remove_journal(&key);
                }
            }
            Operation::PutRow { kind, key, value, absent_only } => self.put_row(kind, key, value, absent_only)?,
            Operation::ChangeRows { kind, expected, changes, beside } => {
                self.change_rows(kind, &expected, changes, beside)?;
            }
            Operation::RemoveRow { kind, key } => self.remove_row(kind, key),
            Operation::BlockTenant(_) if self.shared.membership.is_some() => return Err(erased_by_one_host()),
            Operation::BlockTenant(tenant) => _ = self.shared.blocked_tenants.lock().insert(tenant),
            Operation::Hold(changes) => return Ok(Answer::Held(self.overlay.held.change(&changes))),
            Operation::Rejoin | Operation::Close => {}
        }
        Ok(Answer::Done)
    }

    fn ledger<R>(&mut self, act: impl FnOnce(&mut Ledger) -> R) -> R {
        match &mut self.overlay.ledger {
            Some(ledger) => act(ledger),
            None => act(&mut self.shared.ledger.lock()),
        }
    }

    /// Whether another host holds a task than the one that a write names. Among several, one that was not claimed yet
    /// is nobody's but the dead host's, and what this process began under an earlier name is over.
    fn check_holder(&self, holder: Option<Lease>, named: Option<NodeId>) -> Result<(), Error> {
        let Some(membership) = &self.shared.membership else {
            return self.shared.leases.lock().check_holder(holder, named);
        };
        let Some(named) = named else { return Ok(()) };
        let is_own = named == membership.node() && holder.is_none_or(|holder| holder.node == named);
        if is_own { Ok(()) } else { Err(Error::Lost) }
    }

    /// Lets the host know that holds a task which this one changes.
    fn tell_holder(&mut self, key: &TaskRef, holder: Option<Lease>) {
        if let Some(membership) = &self.shared.membership
            && let Some(holder) = holder.map(|lease| lease.node)
            && holder != membership.node()
        {
            self.overlay.letters.push((holder, *key));
        }
    }

    fn is_blocked(&self, requestor: &Requestor) -> bool {
        self.shared.blocked_tenants.lock().contains(&requestor.tenant)
    }

    fn count(&mut self, requestor: Requestor, more: Usage, less: Usage) {
        self.ledger(|ledger| {
            ledger.add(&requestor, more);
            ledger.release(&requestor, less);
        });
        self.counted.push(Counted { requestor, more, less });
    }

    /// Counts more if it fits.
    fn admit(&mut self, requestor: Requestor, more: Usage, caps: &StoredCaps) -> Result<(), Error> {
        self.ledger(|ledger| caps.admit(ledger, &requestor, more))?;
        self.counted.push(Counted { requestor, more, less: Usage::default() });
        Ok(())
    }

    fn create(&mut self, record: Record, arguments: Vec<u8>, caps: &StoredCaps) -> Result<(), Error> {
        let Record { key, mut head, record, output, tail, is_sealed } = record;
        if self.is_blocked(&key.requestor) {
            return Err(blocked_tenant());
        }
        if self.overlay.head(&key).is_some() {
            return Err(Error::Exists);
        }
        if is_sealed && !self.overlay.has_key(key.requestor.tenant) {
            return Err(Error::Conflict);
        }
        if head.alias.is_some_and(|alias| self.holder_of(&key, alias).is_some()) {
            return Err(Error::Exists);
        }
        if let Some(membership) = &self.shared.membership
            && !head.ended
        {
            // Also one that waits for its turn is this host's.
            head.lease = head.lease.or(Some(Lease { node: membership.node(), until: 0 }));
        }
        head.arguments_bytes = arguments.len() as u64;
        head.output_bytes = output.as_ref().map(|output| output.len() as u64);
        let growth = tail.as_ref().map(|tail| self.growth(&key, tail, Some(head.attempt))).transpose()?;
        let mut usage = head.usage();
        usage.bytes = usage.bytes.saturating_add(growth.as_ref().map_or(0, |growth| growth.after.bytes));
        self.admit(key.requestor, usage, caps)?;
        if let Some(lease) = head.lease {
            self.shared.leases.lock().given(lease.node);
        }
        self.overlay.put_task(key, TaskEntry { head, record: Some(record), arguments: Some(arguments), output });
        if let Some((tail, growth)) = tail.zip(growth) {
            self.write_growth(&key, tail, growth);
        }
        Ok(())
    }

    /// The other task that has an alias.
    fn holder_of(&self, key: &TaskRef, alias: [u8; 32]) -> Option<bulkhead_domain::task::TaskId> {
        let holder = self.overlay.aliases.get(&(key.requestor, alias)).copied().flatten();
        holder.filter(|holder| *holder != key.id)
    }

    fn commit(&mut self, record: Record, held_by: Option<NodeId>, then: super::super::Ownership) -> Result<(), Error> {
        let Record { key, mut head, record, output, tail, is_sealed } = record;
        let old = self.overlay.head(&key).cloned().ok_or(Error::Conflict)?;
        if !old.ended {
            self.check_holder(old.lease, held_by)?;
        }
        if old.revision.checked_add(1) != Some(head.revision)
            || (is_sealed && !self.overlay.has_key(key.requestor.tenant))
        {
            return Err(Error::Conflict);
        }
        if head.alias.is_some_and(|alias| self.holder_of(&key, alias).is_some()) {
            return Err(Error::Exists);
        }
        let growth = tail.as_ref().map(|tail| self.growth(&key, tail, Some(head.attempt))).transpose()?;
        if growth.is_some() && old.ended {
            return Err(Error::Fenced);
        }
        if let Some((tail, growth)) = tail.as_ref().zip(growth.as_ref()) {
            self.admit_growth(&key, growth, tail)?;
        }
        head.created_at = old.created_at;
        head.arguments_bytes = old.arguments_bytes;
        if head.ended {
            head.reserved_bytes = 0;
        } else {
            head.reserved_bytes = old.reserved_bytes;
            head.lease = Leases::holder_after(old.lease, head.lease, then);
        }
        head.output_bytes = output.as_ref().map_or(old.output_bytes, |output| Some(output.len() as u64));
        if let Some(lease) = head.lease.filter(|lease| old.lease.is_none_or(|was| was.node != lease.node)) {
            self.shared.leases.lock().given(lease.node);
        }
        let attempt = head.attempt;
        let ended = head.ended;
        self.tell_holder(&key, old.lease);
        self.count(key.requestor, head.usage(), old.usage());
        self.overlay.put_task(key, TaskEntry { head, record: Some(record), arguments: None, output });
        match tail.zip(growth) {
            Some((tail, growth)) => self.write_growth(&key, tail, growth),
            None if !ended => self.remove_journal_of_other_run(&key, attempt),
            None if !old.ended => self.remove_journal(&key),
            None => {}
        }
        Ok(())
    }

    /// Gives tasks without a living holder this lease. One that changed since it was looked at is left for the next
    /// claim.
    fn claim(&mut self, claims: Vec<Claim>, now: UnixMs, lease: Lease) -> Vec<bulkhead_domain::task::Task> {
        let mut claimed = Vec::new();
        for Claim { key, revision, held_by, revision_after, record, task } in claims {
            let Some(old) = self.overlay.head(&key).cloned() else { continue };
            let is_free = match self.shared.membership {
                // Who was dead when it was looked at is so for ever.
                Some(_) => old.lease.map(|lease| lease.node) == held_by,
                None => !self.shared.leases.lock().alive(old.lease, now),
            };
            if old.ended || old.revision != revision || !is_free {
                continue;
            }
            let mut head = old.clone();
            head.revision = revision_after;
            head.lease = Some(lease);
            head.record_bytes = record.len() as u64;
            self.count(key.requestor, head.usage(), old.usage());
            self.overlay.put_task(key, TaskEntry { head, record: Some(record), arguments: None, output: None });
            claimed.extend(task);
        }
        if !claimed.is_empty() {
            self.shared.leases.lock().given(lease.node);
        }
        claimed
    }

    fn remove_task(&mut self, key: &TaskRef) {
        let Some(old) = self.overlay.head(key).cloned() else { return };
        self.count(key.requestor, Usage::default(), old.usage());
        self.tell_holder(key, old.lease);
        self.overlay.remove_task(key);
        self.remove_journal(key);
    }

    /// Appends to the journal of a task that is there and not over.
    fn append(&mut self, key: &TaskRef, tail: Tail) -> Result<JournalHead, Error> {
        let growth = self.growth_of_present(key, &tail)?;
        self.admit_growth(key, &growth, &tail)?;
        let after = growth.after.clone();
        self.write_growth(key, tail, growth);
        Ok(after)
    }

    fn growth_of_present(&self, key: &TaskRef, tail: &Tail) -> Result<Growth, Error> {
        let head = self.overlay.head(key).filter(|head| !head.ended).ok_or(Error::Fenced)?;
        self.check_holder(head.lease, tail.append.held_by)?;
        // Without a head the record alone says which run may begin the journal.
        let record = if self.overlay.journal(key)?.is_some() { None } else { Some(head.attempt) };
        self.growth(key, tail, record)
    }

    /// What an append makes of a journal; `record` is the attempt in the task's record, where that is known.
    fn growth(&self, key: &TaskRef, tail: &Tail, record: Option<u32>) -> Result<Growth, Error> {
        if self.is_blocked(&key.requestor) {
            return Err(blocked_tenant());
        }
        if tail.is_sealed && !self.overlay.has_key(key.requestor.tenant) {
            return Err(Error::Fenced);
        }
        let before = self.overlay.journal(key)?.cloned();
        let after = tail.append.onto(before.as_ref(), record)?;
        Ok(Growth { before, after })
    }

    fn admit_growth(&mut self, key: &TaskRef, growth: &Growth, tail: &Tail) -> Result<(), Error> {
        let before = journal_usage(growth.before.as_ref()).bytes;
        let more = Usage { tasks: 0, bytes: growth.after.bytes.saturating_sub(before) };
        let less = Usage { tasks: 0, bytes: before.saturating_sub(growth.after.bytes) };
        if let Some(caps) = &tail.append.caps {
            self.admit(key.requestor, more, caps)?;
            self.count(key.requestor, Usage::default(), less);
        } else {
            self.count(key.requestor, more, less);
        }
        Ok(())
    }

    /// Writes what was checked and counted.
    fn write_growth(&mut self, key: &TaskRef, tail: Tail, growth: Growth) {
        match &growth.after.state {
            JournalState::Demoted { reason } => self.demotions.push(reason.clone()),
            JournalState::Sound | JournalState::Diverged { .. } if tail.append.bytes.is_empty() => {}
            JournalState::Sound | JournalState::Diverged { .. } => self.growths.push(tail.append.bytes.len() as u64),
        }
        let cell = self.overlay.journal_cell(key);
        if growth.before.is_some_and(|before| growth.after.rows < before.rows) {
            cell.clear();
        }
        if tail.append.replaces {
            cell.pieces.clear();
        }
        cell.pieces.extend(tail.append.numbers().zip(tail.pieces));
        cell.head = Some(growth.after);
        cell.is_head_changed = true;
    }

    fn remove_journal(&mut self, key: &TaskRef) {
        if let Ok(Some(head)) = self.overlay.journal(key) {
            let less = journal_usage(Some(head));
            self.count(key.requestor, Usage::default(), less);
        }
        self.overlay.journal_cell(key).clear();
    }

    /// Removes the journal of another run than the present one, which has not taken it over.
    fn remove_journal_of_other_run(&mut self, key: &TaskRef, attempt: u32) {
        if matches!(self.overlay.journal(key), Ok(Some(head)) if head.attempt != attempt) {
            self.remove_journal(key);
        }
    }

    fn admit_row(&self, kind: RowKind, key: &[u8]) -> Result<(), Error> {
        let is_blocked = |tenant| self.shared.blocked_tenants.lock().contains(&tenant);
        if kind.tenant_of(key).is_some_and(is_blocked) { Err(blocked_tenant()) } else { Ok(()) }
    }

    fn put_row(&mut self, kind: RowKind, key: Vec<u8>, value: Vec<u8>, absent_only: bool) -> Result<(), Error> {
        self.admit_row(kind, &key)?;
        if absent_only && self.overlay.row(kind, &key).is_some() {
            return Err(Error::Exists);
        }
        self.overlay.set_row(kind, key, Some(value));
        Ok(())
    }

    fn change_rows(
        &mut self,
        kind: RowKind,
        expected: &[RowState],
        changes: Vec<RowState>,
        beside: Option<(TaskRef, Tail)>,
    ) -> Result<(), Error> {
        if expected.iter().any(|(key, value)| self.overlay.row(kind, key) != value.as_ref()) {
            return Err(Error::Conflict);
        }
        for (key, _) in changes.iter().filter(|(_, value)| value.is_some()) {
            self.admit_row(kind, key)?;
        }
        if let Some((key, tail)) = beside {
            self.append(&key, tail)?;
        }
        for (key, value) in changes {
            self.overlay.set_row(kind, key, value);
        }
        Ok(())
    }

    /// Removes any row; what the head of a journal counted does not count any more.
    fn remove_row(&mut self, kind: RowKind, key: Vec<u8>) {
        if kind == RowKind::Journal {
            let Some((task, number)) = layout::parse_key(&key) else { return };
            if let Ok(Some(head)) = self.overlay.journal(&task)
                && number == HEAD
            {
                let less = journal_usage(Some(head));
                self.count(task.requestor, Usage::default(), less);
            }
            self.overlay.remove_journal_row(&task, number);
            return;
        }
        if kind == RowKind::TenantKey {
            self.shared.tenant_keys.forget(&key);
        }
        if self.overlay.row(kind, &key).is_some() {
            self.overlay.set_row(kind, key, None);
        }
    }
}
