//! What the port asks for, in terms of the database.
//!
//! Owns the translation of each method into statements that read and operations for the committer. Must not write by
//! itself. Invariant: whatever takes time (encoding, sealing) is done here, so that the committer only compares and
//! writes.

use async_trait::async_trait;
use tokio_postgres::Row;

use super::super::record::{self, Owner};
use super::super::{
    Change, ClaimedTasks, Creation, Error, HostStore as _, ListPosition, RowKind, RowState, RowStore, TaskStore, Usage,
    check_row, stored,
};
use super::operation::{Answer, Claim, Operation, Record, Tail, TaskHead, alias_digest};
use super::sql::Sql;
use super::writes::{Keys, signed, task_ref, unreadable};
use super::{PostgresStore, Trouble};
use crate::journal::layout::{self, HEAD, open_piece};
use crate::journal::{Append, Beside, JournalHead, JournalStore, TaskRef};
use crate::vault::SealingKey;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_domain::task::{Lease, NodeId, Task, TaskId, TaskOutput};
use bulkhead_domain::{Json, UnixMs};

/// Unfinished tasks that a claim looks at in one step.
const CLAIM_PAGE_ROWS: i64 = 1_024;

pub(super) fn limit(count_max: usize) -> i64 {
    i64::try_from(count_max).unwrap_or(i64::MAX)
}

pub(super) fn bytes(row: &Row, index: usize) -> Result<&[u8], Error> {
    row.try_get(index).map_err(|error| unreadable(&error))
}

fn maybe_bytes(row: &Row, index: usize) -> Result<Option<&[u8]>, Error> {
    row.try_get(index).map_err(|error| unreadable(&error))
}

fn id(row: &Row, index: usize) -> Result<[u8; 16], Error> {
    let unreadable = |_| Error::Corrupt("a task in the database has an unreadable name".to_owned());
    bytes(row, index)?.try_into().map_err(unreadable)
}

/// The lease by which a task is held.
pub(super) fn holder(row: &Row, index: usize) -> Result<Option<Lease>, Error> {
    let node = maybe_bytes(row, index)?.and_then(|node| node.try_into().ok()).map(NodeId);
    let until: Option<i64> = row.try_get(index + 1).map_err(|error| unreadable(&error))?;
    Ok(node.zip(until).map(|(node, until)| Lease { node, until: until.cast_unsigned() }))
}

/// What a host can take over.
pub(super) enum Claimable {
    AsItIs(Task),
    WithLease(Claim),
}

pub(super) fn unexpected() -> Error {
    Error::Engine("the committer answered something else".to_owned())
}

#[async_trait]
impl TaskStore for PostgresStore {
    async fn create(&self, creation: Creation) -> Result<Task, Error> {
        let Creation { mut task, arguments, output, reserved_bytes, caps, journal } = creation;
        task.revision = 1;
        let sealing = self.key_for_sealing(task.requestor.tenant).await?;
        let record = encode(&task, reserved_bytes, output.as_deref(), journal, sealing.as_ref())?;
        let arguments = match &sealing {
            None => arguments.as_str().into(),
            Some(key) => record::seal_arguments(arguments.as_str(), Owner::of(&task), key)?,
        };
        self.write(Operation::Create { record, arguments, caps }).await?;
        Ok(task)
    }

    async fn commit(&self, change: Change) -> Result<Task, Error> {
        let Change { mut task, output, journal, held_by, then } = change;
        task.revision = task.revision.saturating_add(1);
        let sealing = self.key_for_sealing(task.requestor.tenant).await?;
        let record = encode(&task, 0, output.as_deref(), journal, sealing.as_ref())?;
        self.write(Operation::Commit { record, held_by, then }).await?;
        Ok(task)
    }

    async fn get(&self, requestor: &Requestor, id: TaskId) -> Result<Option<Task>, Error> {
        let rows = self.of_task(Sql::Record, requestor, id).await?;
        self.first_task(&rows).await
    }

    async fn find(&self, id: TaskId) -> Result<Option<Task>, Error> {
        let rows = self.query(Sql::RecordById, &[&id.0.as_slice()]).await?;
        self.first_task(&rows).await
    }

    async fn arguments(&self, requestor: &Requestor, id: TaskId) -> Result<Option<Json>, Error> {
        let rows = self.of_task(Sql::Arguments, requestor, id).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let stored = bytes(row, 0)?;
        let owner = Owner { requestor, id };
        let opened =
            self.unseal(|key| record::open_arguments(stored.to_vec(), owner, || key(requestor.tenant))).await?;
        let text = String::from_utf8(opened);
        let text = text.map_err(|_| Error::Corrupt(format!("the arguments of task {id} are not text")))?;
        Ok(Some(Json::new(text)))
    }

    async fn output(&self, requestor: &Requestor, id: TaskId) -> Result<Option<TaskOutput>, Error> {
        let rows = self.of_task(Sql::Output, requestor, id).await?;
        let Some(output) = rows.first().map(|row| maybe_bytes(row, 0)).transpose()?.flatten() else { return Ok(None) };
        self.open_output(output, requestor, id).await.map(Some)
    }

    async fn with_output(
        &self,
        requestor: &Requestor,
        id: TaskId,
    ) -> Result<Option<(Task, Option<TaskOutput>)>, Error> {
        let rows = self.of_task(Sql::RecordAndOutput, requestor, id).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let task = self.open_task(bytes(row, 0)?).await?;
        let output = match maybe_bytes(row, 1)? {
            Some(output) => Some(self.open_output(output, requestor, id).await?),
            None => None,
        };
        Ok(Some((task, output)))
    }

    async fn by_alias(&self, requestor: &Requestor, alias: &str) -> Result<Option<TaskId>, Error> {
        let digest = alias_digest(alias);
        let values = (requestor.tenant.0.as_slice(), requestor.id.0.as_slice(), digest.as_slice());
        let rows = self.query(Sql::TaskOfAlias, &[&values.0, &values.1, &values.2]).await?;
        rows.first().map(|row| id(row, 0).map(TaskId)).transpose()
    }

    async fn list(
        &self,
        requestor: &Requestor,
        after: Option<ListPosition>,
        count_max: usize,
    ) -> Result<Vec<Task>, Error> {
        let tenant = requestor.tenant.0.as_slice();
        let of = requestor.id.0.as_slice();
        let limit = limit(count_max);
        let rows = match after {
            None => self.query(Sql::ListFirst, &[&tenant, &of, &limit]).await?,
            Some(ListPosition { created_at, id }) => {
                let id = id.0.as_slice();
                self.query(Sql::ListAfter, &[&tenant, &of, &signed(created_at), &id, &limit]).await?
            }
        };
        self.tasks(&rows).await
    }

    async fn claim(
        &self,
        now: UnixMs,
        lease: Lease,
        after: Option<(Requestor, TaskId)>,
        count_max: usize,
    ) -> Result<ClaimedTasks, Error> {
        if self.shared.membership.is_some() {
            let tasks = self.claim_free(lease, &[], count_max).await?;
            return Ok(ClaimedTasks { tasks, next: None });
        }
        let free = self.free_tasks(now, after, count_max).await?;
        let next = free.last().filter(|_| free.len() == count_max).map(|free| (free.requestor, free.id));
        if free.is_empty() {
            return Ok(ClaimedTasks::default());
        }
        let keys = Keys::of(&free);
        let rows = self.query(Sql::Records, &[&keys.tenants, &keys.requestors, &keys.ids]).await?;
        let mut claims = Vec::new();
        let mut tasks = Vec::new();
        for row in &rows {
            let key = task_ref(row, 0)?;
            match self.claim_of(key, bytes(row, 3)?, holder(row, 4)?, lease).await {
                Ok(Claimable::AsItIs(task)) => tasks.push(task),
                Ok(Claimable::WithLease(claim)) => claims.push(claim),
                // One damaged task must not keep the others from being recovered.
                Err(Error::Corrupt(damage)) => {
                    tracing::error!(task.id = %key.id, damage, "a task cannot be recovered");
                }
                Err(error) => return Err(error),
            }
        }
        if !claims.is_empty() {
            match self.ask(Operation::Claim { claims, now, lease }).await? {
                Answer::Claimed(leased) => tasks.extend(leased),
                Answer::Done | Answer::Appended(_) | Answer::Held(_) => return Err(unexpected()),
            }
            tasks.sort_by_key(|task| (task.requestor, task.id));
        }
        Ok(ClaimedTasks { tasks, next })
    }

    async fn heartbeat(&self, node: NodeId, until: UnixMs) -> Result<(), Error> {
        // A host that shares the schema has a lease for all that it holds: see [`super::hosts`].
        self.shared.leases.lock().heartbeat(node, until);
        Ok(())
    }

    async fn expired(&self, now: UnixMs, count_max: usize) -> Result<Vec<(Requestor, TaskId)>, Error> {
        let rows = self.query(Sql::Expired, &[&signed(now), &limit(count_max)]).await?;
        rows.iter().map(|row| task_ref(row, 0).map(|TaskRef { requestor, id }| (requestor, id))).collect()
    }

    async fn next_expiry(&self) -> Result<Option<UnixMs>, Error> {
        let rows = self.query(Sql::NextExpiry, &[]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let at: Option<i64> = row.try_get(0).map_err(|error| unreadable(&error))?;
        Ok(at.map(i64::cast_unsigned))
    }

    async fn remove(&self, requestor: &Requestor, id: TaskId) -> Result<(), Error> {
        self.write(Operation::RemoveTask(TaskRef { requestor: *requestor, id })).await
    }

    async fn block_tenant(&self, tenant: TenantId) -> Result<(), Error> {
        self.write(Operation::BlockTenant(tenant)).await
    }

    async fn tasks_of(&self, tenant: TenantId, count_max: usize) -> Result<Vec<(Requestor, TaskId)>, Error> {
        let rows = self.query(Sql::TasksOfTenant, &[&tenant.0.as_slice(), &limit(count_max)]).await?;
        let task = |row: &Row| Ok((Requestor { tenant, id: RequestorId(id(row, 0)?) }, TaskId(id(row, 1)?)));
        rows.iter().map(task).collect()
    }

    async fn usage(&self, requestor: &Requestor) -> Result<(Usage, Usage), Error> {
        if self.shared.membership.is_some() {
            return self.shared_usage(requestor).await;
        }
        Ok(stored(&self.shared.ledger.lock(), requestor))
    }

    async fn scan(&self, after: Option<(Requestor, TaskId)>, count_max: usize) -> Result<Vec<Task>, Error> {
        let after = after.map(|(requestor, id)| TaskRef { requestor, id });
        let rows = self.after_task(Sql::Scan, after, limit(count_max)).await?;
        self.tasks(&rows).await
    }

    fn read_only(&self) -> Option<String> {
        self.shared.trouble().as_ref().map(Trouble::describe)
    }

    async fn close(&self) -> Result<(), Error> {
        let closed = self.write(Operation::Close).await;
        self.beside.lock().abort_all();
        self.readers.close().await;
        let committer = self.committer.lock().take();
        if let Some(committer) = committer
            && committer.await.is_err()
        {
            return Err(Error::Engine("the store's writer had broken".to_owned()));
        }
        closed
    }
}

impl PostgresStore {
    async fn of_task(&self, sql: Sql, requestor: &Requestor, id: TaskId) -> Result<Vec<Row>, Error> {
        let tenant = requestor.tenant.0.as_slice();
        let of = requestor.id.0.as_slice();
        let id = id.0.as_slice();
        self.query(sql, &[&tenant, &of, &id]).await
    }

    /// The next rows in the order of tasks' names.
    async fn after_task(&self, sql: Sql, after: Option<TaskRef>, limit: i64) -> Result<Vec<Row>, Error> {
        let name = after.map(|after| [after.requestor.tenant.0, after.requestor.id.0, after.id.0]);
        // Less than every name.
        let part = |index: usize| name.as_ref().and_then(|name| name.get(index)).map_or(&[][..], |part| &part[..]);
        self.query(sql, &[&part(0), &part(1), &part(2), &limit]).await
    }

    async fn open_task(&self, stored: &[u8]) -> Result<Task, Error> {
        self.unseal(|key| record::open_task(stored, |requestor| key(requestor.tenant))).await
    }

    async fn open_output(&self, stored: &[u8], requestor: &Requestor, id: TaskId) -> Result<TaskOutput, Error> {
        self.unseal(|key| record::open_output(stored, Owner { requestor, id }, || key(requestor.tenant))).await
    }

    async fn tasks(&self, rows: &[Row]) -> Result<Vec<Task>, Error> {
        let mut tasks = Vec::with_capacity(rows.len());
        for row in rows {
            tasks.push(self.open_task(bytes(row, 0)?).await?);
        }
        Ok(tasks)
    }

    async fn first_task(&self, rows: &[Row]) -> Result<Option<Task>, Error> {
        let Some(row) = rows.first() else { return Ok(None) };
        self.open_task(bytes(row, 0)?).await.map(Some)
    }

    /// Tasks that are not over and that no living host holds.
    async fn free_tasks(
        &self,
        now: UnixMs,
        after: Option<(Requestor, TaskId)>,
        count_max: usize,
    ) -> Result<Vec<TaskRef>, Error> {
        let mut free = Vec::new();
        let mut after = after.map(|(requestor, id)| TaskRef { requestor, id });
        while free.len() < count_max {
            let rows = self.after_task(Sql::Unfinished, after, CLAIM_PAGE_ROWS).await?;
            let Some(last) = rows.last() else { break };
            after = Some(task_ref(last, 0)?);
            for row in &rows {
                let holder = holder(row, 3)?;
                if !self.shared.leases.lock().alive(holder, now) && free.len() < count_max {
                    free.push(task_ref(row, 0)?);
                }
            }
        }
        Ok(free)
    }

    /// A task, as its record would be once it is claimed.
    pub(super) async fn claim_of(
        &self,
        key: TaskRef,
        stored: &[u8],
        holder: Option<Lease>,
        lease: Lease,
    ) -> Result<Claimable, Error> {
        let mut task = self.open_task(stored).await?;
        let is_gone = self.shared.membership.is_some() || self.shared.leases.lock().is_gone(holder);
        if is_gone && task.dormant_since().is_some() {
            return Ok(Claimable::AsItIs(task));
        }
        let revision = task.revision;
        task.revision = revision.saturating_add(1);
        task.lease = Some(lease);
        let record = match self.key_for_sealing(key.requestor.tenant).await? {
            None => record::encode_task(&task)?,
            Some(sealing) => record::seal_task(&task, &sealing)?,
        };
        let held_by = holder.map(|lease| lease.node);
        let revision_after = task.revision;
        Ok(Claimable::WithLease(Claim { key, revision, held_by, revision_after, record, task: Some(task) }))
    }

    async fn tail(&self, beside: Beside) -> Result<(TaskRef, Tail), Error> {
        let (task, append) = beside;
        let sealing = self.key_for_sealing(task.requestor.tenant).await?;
        let tail = Tail::new(&task, append, sealing.as_ref())?;
        Ok((task, tail))
    }
}

/// A task's record, its output and what is appended to its journal, as they are kept.
fn encode(
    task: &Task,
    reserved_bytes: u64,
    output: Option<&TaskOutput>,
    journal: Option<Append>,
    sealing: Option<&SealingKey>,
) -> Result<Record, Error> {
    let key = TaskRef::of(task);
    let record = sealing.map_or_else(|| record::encode_task(task), |key| record::seal_task(task, key))?;
    let output = match (output, sealing) {
        (None, _) => None,
        (Some(output), None) => Some(record::encode_output(output)?),
        (Some(output), Some(key)) => Some(record::seal_output(output, Owner::of(task), key)?),
    };
    Ok(Record {
        key,
        head: TaskHead::new(task, &record, reserved_bytes),
        record,
        output,
        tail: journal.map(|append| Tail::new(&key, append, sealing)).transpose()?,
        is_sealed: sealing.is_some(),
    })
}

#[async_trait]
impl JournalStore for PostgresStore {
    async fn journal(&self, requestor: &Requestor, id: TaskId) -> Result<Option<JournalHead>, Error> {
        let rows = self.of_task(Sql::JournalHead, requestor, id).await?;
        rows.first().map(|row| JournalHead::decode(bytes(row, 0)?)).transpose()
    }

    async fn journal_bytes(&self, requestor: &Requestor, id: TaskId) -> Result<Vec<u8>, Error> {
        let task = TaskRef { requestor: *requestor, id };
        let rows = self.of_task(Sql::JournalRows, requestor, id).await?;
        let mut numbered = rows.iter();
        let Some(head) = numbered.next() else { return Ok(Vec::new()) };
        if number(head)? != HEAD {
            return Ok(Vec::new());
        }
        let head = JournalHead::decode(bytes(head, 1)?)?;
        let mut whole = Vec::new();
        for expected in 1..=head.rows {
            let row = numbered.next().map(|row| Ok::<_, Error>((number(row)?, bytes(row, 1)?))).transpose()?;
            let Some((_, piece)) = row.filter(|(number, _)| *number == expected) else {
                return Err(Error::Corrupt("a piece of a journal is missing".to_owned()));
            };
            whole.extend(self.unseal(|key| open_piece(&task, expected, piece, || key(requestor.tenant))).await?);
        }
        Ok(whole)
    }

    async fn append(&self, requestor: &Requestor, id: TaskId, append: Append) -> Result<JournalHead, Error> {
        let (key, tail) = self.tail((TaskRef { requestor: *requestor, id }, append)).await?;
        match self.ask(Operation::Append { key, tail }).await? {
            Answer::Appended(head) => Ok(head),
            Answer::Done | Answer::Claimed(_) | Answer::Held(_) => Err(unexpected()),
        }
    }

    async fn remove_journal(&self, requestor: &Requestor, id: TaskId) -> Result<(), Error> {
        self.write(Operation::RemoveJournal(TaskRef { requestor: *requestor, id })).await
    }
}

/// The number of a row of a journal.
fn number(row: &Row) -> Result<u32, Error> {
    let number: i64 = row.try_get(0).map_err(|error| unreadable(&error))?;
    u32::try_from(number).map_err(|_| Error::Corrupt("a row of a journal has an unreadable number".to_owned()))
}

#[async_trait]
impl RowStore for PostgresStore {
    async fn row(&self, kind: RowKind, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        if kind == RowKind::Journal {
            let Some((task, wanted)) = layout::parse_key(key) else { return Ok(None) };
            let rows = self.of_task(Sql::JournalRows, &task.requestor, task.id).await?;
            let found = rows.iter().find(|row| number(row).is_ok_and(|number| number == wanted));
            return found.map(|row| bytes(row, 1).map(<[u8]>::to_vec)).transpose();
        }
        let rows = self.query(Sql::Row, &[&(kind as i16), &key]).await?;
        rows.first().map(|row| bytes(row, 0).map(<[u8]>::to_vec)).transpose()
    }

    async fn put_row(&self, kind: RowKind, key: &[u8], value: Vec<u8>, absent_only: bool) -> Result<(), Error> {
        check_row(kind, key, &value)?;
        self.write(Operation::PutRow { kind, key: key.to_vec(), value, absent_only }).await
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
        let beside = match beside {
            Some(beside) => Some(self.tail(beside).await?),
            None => None,
        };
        self.write(Operation::ChangeRows { kind, expected, changes, beside }).await
    }

    async fn remove_row(&self, kind: RowKind, key: &[u8]) -> Result<(), Error> {
        self.write(Operation::RemoveRow { kind, key: key.to_vec() }).await
    }

    fn generation(&self, kind: RowKind) -> Option<u64> {
        self.shared.generation(kind)
    }

    async fn sealing_key(&self, tenant: TenantId) -> Result<Option<SealingKey>, Error> {
        self.key_for_sealing(tenant).await
    }

    async fn rows(
        &self,
        kind: RowKind,
        after: Option<&[u8]>,
        count_max: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Error> {
        let limit = limit(count_max);
        if kind == RowKind::Journal {
            return self.journal_rows(after, limit).await;
        }
        let kind = kind as i16;
        let rows = match after {
            None => self.query(Sql::RowsFirst, &[&kind, &limit]).await?,
            Some(after) => self.query(Sql::RowsAfter, &[&kind, &after, &limit]).await?,
        };
        rows.iter().map(|row| Ok((bytes(row, 0)?.to_vec(), bytes(row, 1)?.to_vec()))).collect()
    }
}

impl PostgresStore {
    /// Rows of journals under the keys that they have in every store.
    async fn journal_rows(&self, after: Option<&[u8]>, limit: i64) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Error> {
        let name = after.and_then(layout::parse_key);
        // What is no key of a journal still is before or behind all that begin otherwise.
        let tenant =
            name.map_or_else(|| after.unwrap_or_default().to_vec(), |(task, _)| task.requestor.tenant.0.to_vec());
        let requestor = name.map_or_else(Vec::new, |(task, _)| task.requestor.id.0.to_vec());
        let id = name.map_or_else(Vec::new, |(task, _)| task.id.0.to_vec());
        let last = name.map_or(-1, |(_, number)| i64::from(number));
        let rows = self.query(Sql::JournalsAfter, &[&tenant, &requestor, &id, &last, &limit]).await?;
        let keyed = |row: &Row| {
            let number: i64 = row.try_get(3).map_err(|error| unreadable(&error))?;
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            Ok((layout::row_key(&task_ref(row, 0)?, number), bytes(row, 4)?.to_vec()))
        };
        rows.iter().map(keyed).collect()
    }
}
