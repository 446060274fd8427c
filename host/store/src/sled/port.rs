//! What the port asks for, in terms of the engine.
//!
//! Owns the translation of each method into reads of the view and operations for the committer. Must not write by
//! itself. Invariant: whatever takes time (encoding, payload files) is done here, so that the committer only compares
//! and applies.

use std::sync::Arc;

use async_trait::async_trait;

use super::super::record::{self, Owner};
use super::super::{
    Change, ClaimedTasks, Creation, Error, ListPosition, RowKind, RowState, RowStore, TaskStore, Usage, check_row,
    stored,
};
use super::head::{self, PayloadLocation, RecordHeader};
use super::journal::{self, Tail};
use super::keys::{self, Part, TaskKey, kind};
use super::operation::{Holding, Operation, Payloads, RunJournal, Write};
use super::{SledStore, place_record};
use crate::journal::layout::HEAD;
use crate::journal::{Append, Beside, JournalHead, JournalStore, TaskRef};
use crate::vault::SealingKey;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_domain::task::{Lease, NodeId, Task, TaskId, TaskOutput};
use bulkhead_domain::{Json, UnixMs};

impl crate::HostStore for SledStore {}

#[async_trait]
impl TaskStore for SledStore {
    async fn create(&self, creation: Creation) -> Result<Task, Error> {
        let Creation { mut task, arguments, output, reserved_bytes, caps, journal } = creation;
        task.revision = 1;
        let sealing = self.key_for_sealing(task.requestor.tenant).await?;
        let (mut head, mut payloads) = self.prepare(&task, reserved_bytes, output.as_deref(), sealing.as_ref()).await?;
        let arguments = match &sealing {
            None => arguments.as_str().into(),
            Some(key) => record::seal_arguments(arguments.as_str(), Owner::of(&task), key)?,
        };
        head.arguments = self.place(Part::Arguments, arguments, &mut payloads).await?;
        let key = TaskKey::new(&task.requestor, task.id);
        let journal = run_journal(&task, journal, sealing.as_ref())?;
        self.write(Write::Create { key, head, payloads, caps, journal }).await?;
        Ok(task)
    }

    async fn commit(&self, change: Change) -> Result<Task, Error> {
        let Change { mut task, output, journal, held_by, then } = change;
        task.revision = task.revision.saturating_add(1);
        let sealing = self.key_for_sealing(task.requestor.tenant).await?;
        let (head, payloads) = self.prepare(&task, 0, output.as_deref(), sealing.as_ref()).await?;
        let key = TaskKey::new(&task.requestor, task.id);
        let journal = run_journal(&task, journal, sealing.as_ref())?;
        let holding = Holding { held_by, then };
        self.write(Write::Commit { key, head, payloads, journal, holding }).await?;
        Ok(task)
    }

    async fn get(&self, requestor: &Requestor, id: TaskId) -> Result<Option<Task>, Error> {
        self.read_task(&TaskKey::new(requestor, id))
    }

    /// A look for each requestor that has a task, without an index that every write would have to keep.
    async fn find(&self, id: TaskId) -> Result<Option<Task>, Error> {
        let mut start = vec![kind::TASK];
        loop {
            let rows = self.shared.view.scan(&[kind::TASK], &start, 1)?;
            let Some(first) = rows.first().and_then(|(key, _)| keys::parse_task(key)) else { return Ok(None) };
            if let Some(task) = self.read_task(&TaskKey::new(&first.requestor, id))? {
                return Ok(Some(task));
            }
            start = keys::successor(&TaskKey::new(&first.requestor, TaskId([u8::MAX; 16])).task());
        }
    }

    async fn arguments(&self, requestor: &Requestor, id: TaskId) -> Result<Option<Json>, Error> {
        let key = TaskKey::new(requestor, id);
        let bytes = self.payload(key, Part::Arguments, |head| Some(head.arguments)).await?;
        let open = |bytes| record::open_arguments(bytes, Owner { requestor, id }, || self.shared.key_of(requestor));
        let text = bytes.map(open).transpose()?.map(String::from_utf8).transpose();
        text.map(|text| text.map(Json::new))
            .map_err(|_| Error::Corrupt(format!("the arguments of task {id} are not text")))
    }

    async fn output(&self, requestor: &Requestor, id: TaskId) -> Result<Option<TaskOutput>, Error> {
        let bytes = self.payload(TaskKey::new(requestor, id), Part::Output, |head| head.output).await?;
        bytes.map(|bytes| self.shared.open_output(&bytes, requestor, id)).transpose()
    }

    async fn with_output(
        &self,
        requestor: &Requestor,
        id: TaskId,
    ) -> Result<Option<(Task, Option<TaskOutput>)>, Error> {
        match self.shared.view.head(&TaskKey::new(requestor, id))? {
            None => Ok(None),
            // Nearly every task: all of it is in its own row.
            Some(RecordHeader { record: PayloadLocation::Inline(record), output: None, .. }) => {
                Ok(Some((self.shared.open_task(&record)?, None)))
            }
            Some(RecordHeader {
                record: PayloadLocation::Inline(record),
                output: Some(PayloadLocation::Inline(output)),
                ..
            }) => {
                let output = self.shared.open_output(&output, requestor, id)?;
                Ok(Some((self.shared.open_task(&record)?, Some(output))))
            }
            Some(_) => {
                let Some(task) = self.get(requestor, id).await? else { return Ok(None) };
                Ok(Some((task, self.output(requestor, id).await?)))
            }
        }
    }

    async fn by_alias(&self, requestor: &Requestor, alias: &str) -> Result<Option<TaskId>, Error> {
        let row = self.shared.view.get(&keys::alias(requestor, &head::alias_digest(alias)))?;
        let id = row.map(|row| <[u8; 16]>::try_from(row.as_ref()).map(TaskId)).transpose();
        id.map_err(|_| Error::Corrupt("an alias does not point to a task".to_owned()))
    }

    async fn list(
        &self,
        requestor: &Requestor,
        after: Option<ListPosition>,
        count_max: usize,
    ) -> Result<Vec<Task>, Error> {
        let prefix = keys::list_prefix(requestor);
        let after = after.map(|position| keys::successor(&keys::list_position(requestor, position)));
        let task = |key: &[u8]| keys::parse_list(key).map(|id| TaskKey::new(requestor, id));
        self.read_tasks(&prefix, after, count_max, task)
    }

    async fn claim(
        &self,
        now: UnixMs,
        lease: Lease,
        after: Option<(Requestor, TaskId)>,
        count_max: usize,
    ) -> Result<ClaimedTasks, Error> {
        let free = self.free_tasks(now, after, count_max)?;
        let next = free.last().filter(|_| free.len() == count_max).map(|free| (free.key.requestor, free.key.id));
        let mut tasks = Vec::with_capacity(free.len());
        let mut candidates = Vec::new();
        for FreeTask { key, is_gone } in free {
            match self.read_task(&key) {
                Ok(Some(task)) if is_gone && task.dormant_since().is_some() => tasks.push(task),
                // What is damaged is noticed there.
                Ok(_) | Err(Error::Corrupt(_)) => candidates.push(key),
                Err(error) => return Err(error),
            }
        }
        if !candidates.is_empty() {
            tasks.extend(self.ask(|reply| Operation::Claim { candidates, now, lease, reply }).await?);
            tasks.sort_by_key(|task| (task.requestor, task.id));
        }
        Ok(ClaimedTasks { tasks, next })
    }

    async fn heartbeat(&self, node: NodeId, until: UnixMs) -> Result<(), Error> {
        self.shared.with_leases(|leases| leases.heartbeat(node, until));
        Ok(())
    }

    async fn expired(&self, now: UnixMs, count_max: usize) -> Result<Vec<(Requestor, TaskId)>, Error> {
        let rows = self.shared.view.scan(&[kind::EXPIRY], &[kind::EXPIRY], count_max)?;
        let keys = rows.iter().filter_map(|(key, _)| keys::parse_expiry(key));
        Ok(keys.take_while(|(at, _)| *at <= now).map(|(_, key)| (key.requestor, key.id)).collect())
    }

    async fn next_expiry(&self) -> Result<Option<UnixMs>, Error> {
        let rows = self.shared.view.scan(&[kind::EXPIRY], &[kind::EXPIRY], 1)?;
        Ok(rows.first().and_then(|(key, _)| keys::parse_expiry(key)).map(|(at, _)| at))
    }

    async fn remove(&self, requestor: &Requestor, id: TaskId) -> Result<(), Error> {
        self.write(Write::Remove(TaskKey::new(requestor, id))).await
    }

    async fn block_tenant(&self, tenant: TenantId) -> Result<(), Error> {
        self.write(Write::BlockTenant(tenant)).await
    }

    async fn tasks_of(&self, tenant: TenantId, count_max: usize) -> Result<Vec<(Requestor, TaskId)>, Error> {
        let prefix = keys::tenant_prefix(tenant);
        let rows = self.shared.view.scan(&prefix, &prefix, count_max)?;
        let keys = rows.iter().filter_map(|(key, _)| keys::parse_task(key));
        Ok(keys.map(|key| (key.requestor, key.id)).collect())
    }

    async fn usage(&self, requestor: &Requestor) -> Result<(Usage, Usage), Error> {
        Ok(self.shared.with_ledger(|ledger| stored(ledger, requestor)))
    }

    async fn scan(&self, after: Option<(Requestor, TaskId)>, count_max: usize) -> Result<Vec<Task>, Error> {
        let after = after.map(|(requestor, id)| keys::successor(&TaskKey::new(&requestor, id).task()));
        self.read_tasks(&[kind::TASK], after, count_max, keys::parse_task)
    }

    fn read_only(&self) -> Option<String> {
        self.shared.read_only()
    }

    async fn close(&self) -> Result<(), Error> {
        let closed = self.ask(|reply| Operation::Close { reply }).await;
        let thread = self.committer.lock().take();
        if let Some(thread) = thread {
            let joined = tokio::task::spawn_blocking(move || thread.join().is_ok()).await;
            if !joined.unwrap_or(false) {
                return Err(Error::Engine("the store's thread had broken".to_owned()));
            }
        }
        closed
    }
}

/// A task that no living host holds.
struct FreeTask {
    key: TaskKey,
    /// Its holder has not been heard of since the store was opened.
    is_gone: bool,
}

impl SledStore {
    fn free_tasks(
        &self,
        now: UnixMs,
        after: Option<(Requestor, TaskId)>,
        count_max: usize,
    ) -> Result<Vec<FreeTask>, Error> {
        let mut free = Vec::new();
        let after = after.map(|(requestor, id)| TaskKey::new(&requestor, id).unfinished());
        let mut start = after.map_or_else(|| vec![kind::UNFINISHED], |key| keys::successor(&key));
        while free.len() < count_max {
            let rows = self.shared.view.scan(&[kind::UNFINISHED], &start, CLAIM_PAGE_ROWS)?;
            let Some((last, _)) = rows.last() else { break };
            start = keys::successor(last);
            let found = rows.iter().filter_map(|(key, row)| {
                let holder = head::parse_lease_row(row);
                let (is_alive, is_gone) =
                    self.shared.with_leases(|leases| (leases.alive(holder, now), leases.is_gone(holder)));
                keys::parse_task(key).filter(|_| !is_alive).map(|key| FreeTask { key, is_gone })
            });
            free.extend(found.take(count_max - free.len()));
        }
        Ok(free)
    }

    async fn write(&self, write: Write) -> Result<(), Error> {
        self.ask(|reply| Operation::Write { write, reply }).await
    }

    /// The head of a task without its arguments, and what of its record and its output does not lie in the head.
    async fn prepare(
        &self,
        task: &Task,
        reserved_bytes: u64,
        output: Option<&TaskOutput>,
        sealing: Option<&SealingKey>,
    ) -> Result<(Box<RecordHeader>, Payloads), Error> {
        let mut payloads = Payloads { sealed: sealing.is_some(), ..Payloads::default() };
        let record = sealing.map_or_else(|| record::encode_task(task), |key| record::seal_task(task, key))?;
        let (record, chunked) = place_record(record);
        payloads.chunks.extend(chunked);
        let no_arguments = PayloadLocation::Inline(Vec::new());
        let mut head = Box::new(RecordHeader::new(task, record, no_arguments, reserved_bytes));
        if let Some(output) = output {
            let bytes = match sealing {
                None => record::encode_output(output)?,
                Some(key) => record::seal_output(output, Owner::of(task), key)?,
            };
            head.output = Some(self.place(Part::Output, bytes, &mut payloads).await?);
        }
        Ok((head, payloads))
    }
}

/// What a record says about its journal, with the append that is written beside it.
fn run_journal(task: &Task, append: Option<Append>, sealing: Option<&SealingKey>) -> Result<RunJournal, Error> {
    let tail = append.map(|append| Tail::new(&TaskRef::of(task), append, sealing).map(Box::new)).transpose()?;
    Ok(RunJournal { attempt: task.attempt, tail })
}

#[async_trait]
impl JournalStore for SledStore {
    async fn journal(&self, requestor: &Requestor, id: TaskId) -> Result<Option<JournalHead>, Error> {
        let row = self.shared.view.get(&TaskKey::new(requestor, id).journal(HEAD))?;
        row.map(|row| journal::decode_head(&row)).transpose()
    }

    async fn journal_bytes(&self, requestor: &Requestor, id: TaskId) -> Result<Vec<u8>, Error> {
        let key = TaskKey::new(requestor, id);
        let shared = Arc::clone(&self.shared);
        let read = move || journal::read(&shared.view, &key, || shared.key_of(&key.requestor));
        match self.journal(requestor, id).await? {
            Some(head) if head.rows > JOURNAL_ROWS_AT_ONCE => {
                let read = tokio::task::spawn_blocking(read).await;
                read.map_err(|error| Error::Engine(format!("a journal was not read: {error}")))?
            }
            _ => read(),
        }
    }

    async fn append(&self, requestor: &Requestor, id: TaskId, append: Append) -> Result<JournalHead, Error> {
        let (key, tail) = self.tail((TaskRef { requestor: *requestor, id }, append)).await?;
        self.ask(|reply| Operation::Append { key, tail, reply }).await
    }

    async fn remove_journal(&self, requestor: &Requestor, id: TaskId) -> Result<(), Error> {
        self.write(Write::RemoveJournal(TaskKey::new(requestor, id))).await
    }
}

impl SledStore {
    async fn tail(&self, beside: Beside) -> Result<(TaskKey, Box<Tail>), Error> {
        let (task, append) = beside;
        let sealing = self.key_for_sealing(task.requestor.tenant).await?;
        let tail = Tail::new(&task, append, sealing.as_ref())?;
        Ok((TaskKey::new(&task.requestor, task.id), Box::new(tail)))
    }
}

/// Pieces of a journal that are read where everything else is served; more are read elsewhere.
const JOURNAL_ROWS_AT_ONCE: u32 = 32;

/// Rows that a claim looks at in one step.
const CLAIM_PAGE_ROWS: usize = 1_024;

#[async_trait]
impl RowStore for SledStore {
    async fn row(&self, kind: RowKind, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.shared.view.get(&keys::row(kind, key))?.map(|row| head::verify_checksum(&row)).transpose()
    }

    async fn put_row(&self, kind: RowKind, key: &[u8], value: Vec<u8>, absent_only: bool) -> Result<(), Error> {
        check_row(kind, key, &value)?;
        let key = keys::row(kind, key);
        let value = head::with_checksum(value);
        self.write(Write::PutRow { key, value, absent_only }).await
    }

    async fn change_rows(
        &self,
        kind: RowKind,
        expected: Vec<RowState>,
        changes: Vec<RowState>,
        beside: Option<Beside>,
    ) -> Result<(), Error> {
        for (key, value) in &changes {
            check_row(kind, key, value.as_deref().unwrap_or_default())?;
        }
        let sealed = |rows: Vec<RowState>| {
            rows.into_iter().map(|(key, value)| (keys::row(kind, &key), value.map(head::with_checksum))).collect()
        };
        let expected = sealed(expected);
        let changes = sealed(changes);
        let beside = match beside {
            Some(beside) => Some(self.tail(beside).await?),
            None => None,
        };
        self.write(Write::ChangeRows { expected, changes, beside }).await
    }

    async fn remove_row(&self, kind: RowKind, key: &[u8]) -> Result<(), Error> {
        self.write(Write::RemoveRow(keys::row(kind, key))).await
    }

    fn generation(&self, kind: RowKind) -> Option<u64> {
        Some(self.shared.view.generation(kind))
    }

    async fn sealing_key(&self, tenant: TenantId) -> Result<Option<SealingKey>, Error> {
        Self::key_for_sealing(self, tenant).await
    }

    async fn rows(
        &self,
        kind: RowKind,
        after: Option<&[u8]>,
        count_max: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Error> {
        let start = after.map_or_else(|| keys::row(kind, &[]), |after| keys::successor(&keys::row(kind, after)));
        let rows = self.shared.view.scan(&[kind as u8], &start, count_max)?;
        rows.iter()
            .map(|(key, value)| Ok((key.iter().skip(1).copied().collect(), head::verify_checksum(value)?)))
            .collect()
    }
}
