//! What can be asked of the committer.
//!
//! Owns the preconditions and the rows of each operation. Must not apply anything: it only adds to a plan. Invariant:
//! an operation that is refused has added nothing.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::super::leases::Leases;
use super::super::{Error, Ledger, Ownership, RowState, StoredCaps, Usage, blocked_tenant};
use super::change_capture::{Changes, Guard};
use super::files::NewFile;
use super::head::{CHUNK_BYTES, PayloadLocation, RecordHeader};
use super::journal::{Growth, Tail};
use super::keys::{Part, TaskKey};
use super::moved::Rebuilt;
use super::plan::Plan;
use super::sealing::row_key;
use super::store_inner::StoreInner;
use super::view::chunk_count;
use crate::journal::JournalHead;
use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::task::{Lease, NodeId, Task};

/// An operation on its way to the committer.
pub(super) struct Envelope {
    pub(super) operation: Operation,
    /// Bounds how many operations wait.
    pub(super) permit: OwnedSemaphorePermit,
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// Bytes that go into chunks with their place.
pub(super) struct Chunked {
    pub(super) part: Part,
    pub(super) bytes: Vec<u8>,
}

impl Chunked {
    /// The rows that hold the bytes.
    pub(super) fn rows(&self, key: &TaskKey) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        let chunks = (0..).zip(self.bytes.chunks(CHUNK_BYTES));
        chunks.map(|(number, chunk)| (key.chunk(self.part, number), chunk.to_vec()))
    }
}

/// A payload that is ready to be written.
#[derive(Default)]
pub(super) struct Payloads {
    pub(super) chunks: Vec<Chunked>,
    pub(super) files: Vec<NewFile>,
    /// Something of it is sealed with the key of its tenant, which therefore has to be there still.
    pub(super) sealed: bool,
}

/// What a record says about its journal.
pub(super) struct RunJournal {
    /// The run that the record is at.
    pub(super) attempt: u32,
    /// What is appended beside the record.
    pub(super) tail: Option<Box<Tail>>,
}

/// Which host has to hold the task of a commit, and which one does afterwards.
pub(super) struct Holding {
    pub(super) held_by: Option<NodeId>,
    pub(super) then: Ownership,
}

/// A write that is done or refused. Everything that takes time (encoding, files) was done by the caller.
pub(super) enum Write {
    Create {
        key: TaskKey,
        head: Box<RecordHeader>,
        payloads: Payloads,
        caps: StoredCaps,
        journal: RunJournal,
    },
    Commit {
        key: TaskKey,
        /// Complete but for the arguments, and for the output where none is given; its revision is the new one.
        head: Box<RecordHeader>,
        payloads: Payloads,
        journal: RunJournal,
        holding: Holding,
    },
    Remove(TaskKey),
    /// Of a task that is over.
    RemoveJournal(TaskKey),
    PutRow {
        key: Vec<u8>,
        value: Vec<u8>,
        absent_only: bool,
    },
    ChangeRows {
        /// With its checksum, like the changes.
        expected: Vec<RowState>,
        changes: Vec<RowState>,
        beside: Option<(TaskKey, Box<Tail>)>,
    },
    RemoveRow(Vec<u8>),
    /// Refuses what is new for a tenant from here on.
    BlockTenant(TenantId),
}

/// What the committer is asked for.
pub(super) enum Operation {
    Write {
        write: Write,
        reply: Reply<()>,
    },
    Append {
        key: TaskKey,
        tail: Box<Tail>,
        reply: Reply<JournalHead>,
    },
    Claim {
        candidates: Vec<TaskKey>,
        now: UnixMs,
        lease: Lease,
        reply: Reply<Vec<Task>>,
    },
    /// Answers when everything before it is durable, with what changed since a backup began.
    EndBackup {
        reply: Reply<Changes>,
    },
    /// Puts a newly made database in the place of the present one, between two groups.
    Rebuild {
        /// Keeps backups away.
        guard: Guard,
        reply: Reply<Rebuilt>,
    },
    Close {
        reply: Reply<()>,
    },
}

/// Answers with `outcome` once the group is durable.
fn answer<T: Send + 'static>(plan: &mut Plan, reply: Reply<T>, outcome: Result<T, Error>) {
    // A caller that went away does not want to know.
    plan.answers.push(Box::new(move |durable| drop(reply.send(durable.and(outcome)))));
}

impl Operation {
    /// Whether it leaves more room on the disk than before.
    pub(super) fn gives_room(&self) -> bool {
        match self {
            Self::Write { write, .. } => {
                matches!(
                    write,
                    Write::Remove(_) | Write::RemoveJournal(_) | Write::RemoveRow(_) | Write::BlockTenant(_)
                )
            }
            Self::EndBackup { .. } => true,
            Self::Append { .. } | Self::Claim { .. } | Self::Rebuild { .. } | Self::Close { .. } => false,
        }
    }

    /// Answers without writing anything.
    pub(super) fn refuse(self, error: Error) {
        match self {
            Self::Write { reply, .. } | Self::Close { reply } => drop(reply.send(Err(error))),
            Self::Append { reply, .. } => drop(reply.send(Err(error))),
            Self::Claim { reply, .. } => drop(reply.send(Err(error))),
            Self::EndBackup { reply } => drop(reply.send(Err(error))),
            Self::Rebuild { reply, .. } => drop(reply.send(Err(error))),
        }
    }

    /// Checks the operation against the tree and the plan so far, and adds it to the plan.
    ///
    /// # Errors
    ///
    /// Only what ends the whole group: a refusal of this operation is an answer.
    pub(super) fn plan(self, tree: &::sled::Tree, shared: &StoreInner, plan: &mut Plan) -> Result<(), Error> {
        let mut writer = Writer { tree, shared, plan };
        match self {
            Self::Write { write, reply } => {
                let outcome = writer.write(write)?;
                answer(plan, reply, outcome);
            }
            Self::Append { key, tail, reply } => {
                let head = writer.append(&key, *tail)?;
                answer(plan, reply, head);
            }
            Self::Claim { candidates, now, lease, reply } => {
                let tasks = writer.claim(&candidates, now, lease)?;
                answer(plan, reply, Ok(tasks));
            }
            Self::EndBackup { reply } => {
                let change_capture = Arc::clone(&shared.change_capture);
                let view = Arc::clone(&shared.view);
                plan.answers.push(Box::new(move |durable| {
                    drop(reply.send(durable.and_then(|()| change_capture.changes(&view))))
                }));
            }
            Self::Rebuild { reply, .. } => answer(plan, reply, Err(Error::Engine("a rebuild is no group".to_owned()))),
            Self::Close { reply } => answer(plan, reply, Ok(())),
        }
        Ok(())
    }
}

/// One operation's access to the plan.
pub(super) struct Writer<'a> {
    pub(super) tree: &'a ::sled::Tree,
    pub(super) shared: &'a StoreInner,
    pub(super) plan: &'a mut Plan,
}

type Outcome = Result<(), Error>;

impl Writer<'_> {
    fn write(&mut self, write: Write) -> Result<Outcome, Error> {
        match write {
            Write::Create { key, head, payloads, caps, journal } => self.create(&key, &head, payloads, &caps, journal),
            Write::Commit { key, head, payloads, journal, holding } => {
                self.commit(&key, *head, payloads, journal, holding)
            }
            Write::Remove(key) => self.remove(&key),
            Write::RemoveJournal(key) => self.remove_kept_journal(&key),
            Write::PutRow { key, value, absent_only } => self.put_row(key, value, absent_only),
            Write::ChangeRows { expected, changes, beside } => self.change_rows(&expected, changes, beside),
            Write::RemoveRow(key) => {
                self.shared.sealing.forget(&key);
                self.uncount_row(&key)?;
                self.set(key, None).map(Ok)
            }
            Write::BlockTenant(tenant) => {
                self.shared.with_blocked_tenants(|blocked| blocked.insert(tenant));
                Ok(Ok(()))
            }
        }
    }

    pub(super) fn head(&self, key: &TaskKey) -> Result<Option<RecordHeader>, Error> {
        self.plan.group.get(self.tree, &key.task())?.map(|value| RecordHeader::decode(&value)).transpose()
    }

    pub(super) fn set(&mut self, key: Vec<u8>, after: Option<Vec<u8>>) -> Result<(), Error> {
        self.plan.group.set(self.tree, key, after)
    }

    pub(super) fn present(&self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.plan.group.get(self.tree, key)?.is_some())
    }

    pub(super) fn ledger<R>(&self, act: impl FnOnce(&mut Ledger) -> R) -> R {
        self.shared.with_ledger(act)
    }

    /// The head, or a refusal of this one operation when its bytes are damaged: the others of the group go on.
    pub(super) fn sound_head(&self, key: &TaskKey) -> Result<Result<Option<RecordHeader>, Error>, Error> {
        match self.head(key) {
            Err(Error::Corrupt(damage)) => Ok(Err(Error::Corrupt(damage))),
            other => other.map(Ok),
        }
    }

    fn create(
        &mut self,
        key: &TaskKey,
        head: &RecordHeader,
        payloads: Payloads,
        caps: &StoredCaps,
        journal: RunJournal,
    ) -> Result<Outcome, Error> {
        if self.shared.with_blocked_tenants(|blocked| blocked.contains(&key.requestor.tenant)) {
            return Ok(Err(blocked_tenant()));
        }
        if self.present(&key.task())? {
            return Ok(Err(Error::Exists));
        }
        if !self.opens(key, &payloads)? {
            return Ok(Err(Error::Conflict));
        }
        if let Some(digest) = &head.alias
            && self.present(&super::keys::alias(&key.requestor, digest))?
        {
            return Ok(Err(Error::Exists));
        }
        let growth = match self.growth_beside(key, &journal)? {
            Ok(growth) => growth,
            Err(refused) => return Ok(Err(refused)),
        };
        let mut usage = head.usage();
        usage.bytes = usage.bytes.saturating_add(growth.as_ref().map_or(0, |growth| growth.after.bytes));
        if let Err(refused) = self.ledger(|ledger| caps.admit(ledger, &key.requestor, usage)) {
            return Ok(Err(refused));
        }
        self.plan.counted.push((key.requestor, usage, Usage::default()));
        if let Some((node, _)) = head.lease {
            self.shared.with_leases(|leases| leases.given(NodeId(node)));
        }
        // A task's keys all contain its id, so none of them is there. Only the row of a removal in this very group may
        // be.
        self.plan.group.set_new(key.task(), head.encode()?);
        for (row, value) in head.index_rows(key)? {
            self.plan.group.set_new(row, value);
        }
        self.write_payloads(key, payloads)?;
        if let Some((tail, growth)) = journal.tail.zip(growth) {
            self.write_growth(key, *tail, &growth)?;
        }
        Ok(Ok(()))
    }

    /// What an append beside a record makes of the journal, if there is one.
    fn growth_beside(&self, key: &TaskKey, journal: &RunJournal) -> Result<Result<Option<Growth>, Error>, Error> {
        let Some(tail) = &journal.tail else { return Ok(Ok(None)) };
        Ok(self.growth(key, tail, Some(journal.attempt))?.map(Some))
    }

    fn commit(
        &mut self,
        key: &TaskKey,
        mut head: RecordHeader,
        payloads: Payloads,
        journal: RunJournal,
        Holding { held_by, then }: Holding,
    ) -> Result<Outcome, Error> {
        let old = match self.sound_head(key)? {
            Ok(Some(old)) => old,
            Ok(None) => return Ok(Err(Error::Conflict)),
            Err(damage) => return Ok(Err(damage)),
        };
        if !old.ended
            && let Err(lost) = self.shared.with_leases(|leases| leases.check_holder(old.lease(), held_by))
        {
            return Ok(Err(lost));
        }
        if old.revision.checked_add(1) != Some(head.revision) || !self.opens(key, &payloads)? {
            return Ok(Err(Error::Conflict));
        }
        if let Some(digest) = head.alias.filter(|_| head.alias != old.alias)
            && self.present(&super::keys::alias(&key.requestor, &digest))?
        {
            return Ok(Err(Error::Exists));
        }
        let growth = match self.growth_beside(key, &journal)? {
            Ok(Some(_)) if old.ended => return Ok(Err(Error::Fenced)),
            Ok(growth) => growth,
            Err(refused) => return Ok(Err(refused)),
        };
        if let Some((tail, growth)) = journal.tail.as_ref().zip(growth.as_ref())
            && let Err(refused) = self.admit_growth(key, growth, tail.caps())
        {
            return Ok(Err(refused));
        }
        head.arguments = old.arguments.clone();
        if !head.ended {
            head.reserved_bytes = old.reserved_bytes;
            let holder = Leases::holder_after(old.lease(), head.lease(), then);
            head.lease = holder.map(|lease| (lease.node.0, lease.until));
        }
        match &head.output {
            None => head.output = old.output.clone(),
            Some(_) => self.drop_place(key, Part::Output, old.output.as_ref())?,
        }
        self.drop_place(key, Part::Record, Some(&old.record))?;
        if let Some((node, _)) = head.lease.filter(|lease| old.lease.is_none_or(|was| was.0 != lease.0)) {
            self.shared.with_leases(|leases| leases.given(NodeId(node)));
        }
        self.replace(key, &old, &head)?;
        self.write_payloads(key, payloads)?;
        match journal.tail.zip(growth) {
            Some((tail, growth)) => self.write_growth(key, *tail, &growth)?,
            None if !head.ended => self.remove_journal_of_other_run(key, journal.attempt)?,
            None if !old.ended => self.remove_journal(key)?,
            None => {}
        }
        Ok(Ok(()))
    }

    /// Whether sealed bytes can be read again: their tenant may have been erased since they were sealed.
    fn opens(&self, key: &TaskKey, payloads: &Payloads) -> Result<bool, Error> {
        Ok(!payloads.sealed || self.present(&row_key(key.requestor.tenant))?)
    }

    /// Writes the new head and moves the index rows that differ.
    pub(super) fn replace(&mut self, key: &TaskKey, old: &RecordHeader, new: &RecordHeader) -> Result<(), Error> {
        let rows_old = old.index_rows(key)?;
        let rows_new = new.index_rows(key)?;
        for (row, _) in rows_old.iter().filter(|(row, _)| !rows_new.iter().any(|(kept, _)| kept == row)) {
            self.set(row.clone(), None)?;
        }
        for (row, value) in rows_new.into_iter().filter(|row| !rows_old.contains(row)) {
            self.set(row, Some(value))?;
        }
        self.set(key.task(), Some(new.encode()?))?;
        let more = new.usage();
        let less = old.usage();
        self.ledger(|ledger| {
            ledger.add(&key.requestor, more);
            ledger.release(&key.requestor, less);
        });
        self.plan.counted.push((key.requestor, more, less));
        Ok(())
    }

    pub(super) fn write_payloads(&mut self, key: &TaskKey, payloads: Payloads) -> Result<(), Error> {
        for (row, chunk) in payloads.chunks.iter().flat_map(|chunked| chunked.rows(key)) {
            self.set(row, Some(chunk))?;
        }
        self.plan.files_new.extend(payloads.files);
        Ok(())
    }

    pub(super) fn drop_place(
        &mut self,
        key: &TaskKey,
        part: Part,
        location: Option<&PayloadLocation>,
    ) -> Result<(), Error> {
        match location {
            Some(PayloadLocation::Chunks { bytes, .. }) => {
                for number in 0..chunk_count(*bytes) {
                    self.set(key.chunk(part, number), None)?;
                }
            }
            Some(PayloadLocation::File { name, .. }) => self.plan.files_gone.push(*name),
            Some(PayloadLocation::Inline(_)) | None => {}
        }
        Ok(())
    }

    pub(super) fn record_bytes(&self, key: &TaskKey, location: &PayloadLocation) -> Result<Vec<u8>, Error> {
        match location {
            PayloadLocation::Inline(bytes) => Ok(bytes.clone()),
            PayloadLocation::Chunks { bytes, .. } => {
                let mut whole = Vec::new();
                for number in 0..chunk_count(*bytes) {
                    let chunk = self.plan.group.get(self.tree, &key.chunk(Part::Record, number))?;
                    whole.extend_from_slice(&chunk.ok_or_else(|| missing(key))?);
                }
                Ok(whole)
            }
            PayloadLocation::File { .. } => Err(missing(key)),
        }
    }

    fn remove(&mut self, key: &TaskKey) -> Result<Outcome, Error> {
        let old = match self.sound_head(key)? {
            Ok(Some(old)) => old,
            Ok(None) => return Ok(Ok(())),
            Err(damage) => return Ok(Err(damage)),
        };
        for (row, _) in old.index_rows(key)? {
            self.set(row, None)?;
        }
        for (part, location) in old.payloads() {
            self.drop_place(key, part, Some(location))?;
        }
        self.set(key.task(), None)?;
        self.remove_journal(key)?;
        let less = old.usage();
        self.ledger(|ledger| ledger.release(&key.requestor, less));
        self.plan.counted.push((key.requestor, Usage::default(), less));
        Ok(Ok(()))
    }

    fn change_rows(
        &mut self,
        expected: &[RowState],
        changes: Vec<RowState>,
        beside: Option<(TaskKey, Box<Tail>)>,
    ) -> Result<Outcome, Error> {
        for (key, value) in expected {
            let present = self.plan.group.get(self.tree, key)?;
            if present.as_deref() != value.as_deref() {
                return Ok(Err(Error::Conflict));
            }
        }
        if changes.iter().any(|(key, value)| value.is_some() && self.is_blocked(key)) {
            return Ok(Err(blocked_tenant()));
        }
        if let Some((key, tail)) = beside
            && let Err(refused) = self.append(&key, *tail)?
        {
            return Ok(Err(refused));
        }
        for (key, value) in changes {
            self.set(key, value)?;
        }
        Ok(Ok(()))
    }

    fn is_blocked(&self, row: &[u8]) -> bool {
        let tenant = super::keys::tenant_of_row(row);
        tenant.is_some_and(|tenant| self.shared.with_blocked_tenants(|blocked| blocked.contains(&tenant)))
    }

    fn put_row(&mut self, key: Vec<u8>, value: Vec<u8>, absent_only: bool) -> Result<Outcome, Error> {
        if self.is_blocked(&key) {
            return Ok(Err(blocked_tenant()));
        }
        if absent_only && self.present(&key)? {
            return Ok(Err(Error::Exists));
        }
        self.set(key, Some(value))?;
        Ok(Ok(()))
    }
}

fn missing(key: &TaskKey) -> Error {
    Error::Corrupt(format!("a part of the record of task {} is missing", key.id))
}
