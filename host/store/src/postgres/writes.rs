//! The statements that a group writes with.
//!
//! Owns the columns, and the order: what goes, before what comes. Must not decide anything. Invariant: a group is a
//! bounded number of statements, however many operations it has.

use std::collections::{HashMap, HashSet};

use tokio_postgres::types::ToSql;

use super::super::RowKind;
use super::membership::FOLLOWED;
use super::overlay::{JournalCell, OF_TENANT, Overlay, TaskEntry};
use super::planner::Counted;
use super::sql::Sql;
use crate::Error;
use crate::journal::TaskRef;
use crate::journal::layout::HEAD;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_domain::task::{NodeId, TaskId};

pub(super) type Value = Box<dyn ToSql + Sync + Send>;

/// A statement with its parameters.
pub(super) struct Write {
    pub(super) sql: Sql,
    pub(super) values: Vec<Value>,
}

impl Write {
    pub(super) fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect()
    }
}

/// A number as the server keeps it.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Names of tasks, a column each.
#[derive(Default)]
pub(super) struct Keys {
    pub(super) tenants: Vec<Vec<u8>>,
    pub(super) requestors: Vec<Vec<u8>>,
    pub(super) ids: Vec<Vec<u8>>,
}

impl Keys {
    pub(super) fn of<'a>(keys: impl IntoIterator<Item = &'a TaskRef>) -> Self {
        let mut columns = Self::default();
        keys.into_iter().for_each(|key| columns.push(key));
        columns
    }

    pub(super) fn push(&mut self, key: &TaskRef) {
        self.tenants.push(key.requestor.tenant.0.to_vec());
        self.requestors.push(key.requestor.id.0.to_vec());
        self.ids.push(key.id.0.to_vec());
    }

    fn into_values(self) -> Vec<Value> {
        vec![Box::new(self.tenants), Box::new(self.requestors), Box::new(self.ids)]
    }
}

/// The name of a task in three columns of a row, from `first` on.
pub(super) fn task_ref(row: &tokio_postgres::Row, first: usize) -> Result<TaskRef, Error> {
    let part = |index: usize| -> Result<[u8; 16], Error> {
        let bytes: &[u8] = row.try_get(index).map_err(|error| unreadable(&error))?;
        bytes.try_into().map_err(|_| Error::Corrupt("a task in the database has an unreadable name".to_owned()))
    };
    let requestor = Requestor { tenant: TenantId(part(first)?), id: RequestorId(part(first + 1)?) };
    Ok(TaskRef { requestor, id: TaskId(part(first + 2)?) })
}

/// A column is not what the schema says.
pub(super) fn unreadable(error: &tokio_postgres::Error) -> Error {
    Error::Corrupt(format!("a row of the database cannot be read: {error}"))
}

/// What a group writes, and the kinds of rows that it changes.
pub(super) fn of_group(overlay: &mut Overlay) -> Result<(Vec<Write>, HashSet<RowKind>), Error> {
    let mut kinds = HashSet::new();
    let mut writes = tasks(overlay);
    writes.extend(journals(overlay)?);
    if overlay.journals.values().any(is_journal_changed) {
        kinds.insert(RowKind::Journal);
    }
    let rows = rows(overlay, &mut kinds);
    writes.extend(rows);
    writes.extend(letters(std::mem::take(&mut overlay.letters)));
    writes.extend(overlay.held.writes());
    Ok((writes, kinds))
}

/// What a group changes of what is stored, where hosts share the counts.
pub(super) fn usage(counted: &[Counted]) -> Option<Write> {
    let mut sums: HashMap<Requestor, [i64; 2]> = HashMap::new();
    for Counted { requestor, more, less } in counted {
        let change = [signed(more.tasks) - signed(less.tasks), signed(more.bytes) - signed(less.bytes)];
        for id in [requestor.id, OF_TENANT] {
            let sum = sums.entry(Requestor { id, ..*requestor }).or_default();
            sum.iter_mut().zip(change).for_each(|(sum, change)| *sum = sum.saturating_add(change));
        }
    }
    sums.retain(|_, sum| *sum != [0, 0]);
    add_usage(sums)
}

/// Adds tasks and bytes to what is counted in the tables. `None`: there is nothing to add.
pub(super) fn add_usage(sums: impl IntoIterator<Item = (Requestor, [i64; 2])>) -> Option<Write> {
    let mut tenants = Vec::new();
    let mut requestors = Vec::new();
    let mut tasks = Vec::new();
    let mut bytes = Vec::new();
    for (requestor, [tasks_more, bytes_more]) in sums {
        tenants.push(requestor.tenant.0.to_vec());
        requestors.push(requestor.id.0.to_vec());
        tasks.push(tasks_more);
        bytes.push(bytes_more);
    }
    if tenants.is_empty() {
        return None;
    }
    let values: Vec<Value> = vec![Box::new(tenants), Box::new(requestors), Box::new(tasks), Box::new(bytes)];
    Some(Write { sql: Sql::AddUsage, values })
}

/// Counts that rows of these kinds change, for other hosts that keep them in memory.
pub(super) fn row_changes(kinds: &HashSet<RowKind>) -> Option<Write> {
    let kinds: Vec<i16> = FOLLOWED.into_iter().filter(|kind| kinds.contains(kind)).map(|kind| kind as i16).collect();
    (!kinds.is_empty()).then(|| Write { sql: Sql::AdvanceRowChanges, values: vec![Box::new(kinds)] })
}

fn letters(letters: Vec<(NodeId, TaskRef)>) -> Option<Write> {
    if letters.is_empty() {
        return None;
    }
    let hosts: Vec<Vec<u8>> = letters.iter().map(|(host, _)| host.0.to_vec()).collect();
    let mut values: Vec<Value> = vec![Box::new(hosts)];
    values.extend(Keys::of(letters.iter().map(|(_, task)| task)).into_values());
    Some(Write { sql: Sql::PutLetters, values })
}

/// The columns of [`Sql::UpdateTasks`], and of [`Sql::InsertTasks`] with the last three.
#[derive(Default)]
struct Tasks {
    keys: Keys,
    revisions: Vec<i64>,
    ended: Vec<bool>,
    attempts: Vec<i64>,
    holders: Vec<Option<Vec<u8>>>,
    held_until: Vec<Option<i64>>,
    expires_at: Vec<Option<i64>>,
    aliases: Vec<Option<Vec<u8>>>,
    reserved: Vec<i64>,
    records: Vec<Vec<u8>>,
    outputs: Vec<Option<Vec<u8>>>,
    created_at: Vec<i64>,
    arguments: Vec<Vec<u8>>,
    versions: Vec<Option<Vec<u8>>>,
}

impl Tasks {
    fn push(&mut self, key: &TaskRef, entry: &mut TaskEntry) {
        let head = &entry.head;
        self.keys.push(key);
        self.revisions.push(signed(head.revision));
        self.ended.push(head.ended);
        self.attempts.push(i64::from(head.attempt));
        self.holders.push(head.lease.map(|lease| lease.node.0.to_vec()));
        self.held_until.push(head.lease.map(|lease| signed(lease.until)));
        self.expires_at.push(head.expires_at.map(signed));
        self.aliases.push(head.alias.map(|alias| alias.to_vec()));
        self.reserved.push(signed(head.reserved_bytes));
        self.records.push(entry.record.take().unwrap_or_default());
        self.outputs.push(entry.output.take());
        if let Some(arguments) = entry.arguments.take() {
            self.created_at.push(signed(head.created_at));
            self.arguments.push(arguments);
            self.versions.push(head.version.map(|version| version.to_vec()));
        }
    }

    fn into_write(self, sql: Sql) -> Option<Write> {
        if self.revisions.is_empty() {
            return None;
        }
        let mut values = self.keys.into_values();
        values.push(Box::new(self.revisions));
        values.push(Box::new(self.ended));
        values.push(Box::new(self.attempts));
        values.push(Box::new(self.holders));
        values.push(Box::new(self.held_until));
        values.push(Box::new(self.expires_at));
        values.push(Box::new(self.aliases));
        values.push(Box::new(self.reserved));
        values.push(Box::new(self.records));
        values.push(Box::new(self.outputs));
        if sql == Sql::InsertTasks {
            values.push(Box::new(self.created_at));
            values.push(Box::new(self.arguments));
            values.push(Box::new(self.versions));
        }
        Some(Write { sql, values })
    }
}

fn tasks(overlay: &mut Overlay) -> Vec<Write> {
    let mut gone = Keys::default();
    let mut changed = Tasks::default();
    let mut new = Tasks::default();
    for (key, cell) in overlay.tasks.iter_mut().filter(|(_, cell)| cell.is_changed) {
        let is_new = cell.entry.as_ref().is_some_and(|entry| entry.arguments.is_some());
        if cell.is_stored && (is_new || cell.entry.is_none()) {
            gone.push(key);
        }
        match &mut cell.entry {
            Some(entry) if is_new => new.push(key, entry),
            Some(entry) => changed.push(key, entry),
            None => {}
        }
    }
    let gone = (!gone.ids.is_empty()).then(|| Write { sql: Sql::DeleteTasks, values: gone.into_values() });
    let written = [changed.into_write(Sql::UpdateTasks), new.into_write(Sql::InsertTasks)];
    gone.into_iter().chain(written.into_iter().flatten()).collect()
}

/// New tasks that need no look at what is there.
pub(super) fn insert_tasks(tasks: Vec<(TaskRef, TaskEntry)>) -> Option<Write> {
    let mut new = Tasks::default();
    for (key, mut entry) in tasks {
        new.push(&key, &mut entry);
    }
    new.into_write(Sql::InsertTasks)
}

fn is_journal_changed(cell: &JournalCell) -> bool {
    cell.is_cleared || cell.is_head_changed || !cell.pieces.is_empty() || !cell.removed.is_empty()
}

fn journals(overlay: &mut Overlay) -> Result<Vec<Write>, Error> {
    let mut cleared = Keys::default();
    let mut removed = Keys::default();
    let mut removed_numbers = Vec::new();
    let mut put = Keys::default();
    let mut numbers = Vec::new();
    let mut values = Vec::new();
    for (key, cell) in overlay.journals.iter_mut().filter(|(_, cell)| is_journal_changed(cell)) {
        if cell.is_cleared {
            cleared.push(key);
        }
        for number in &cell.removed {
            removed.push(key);
            removed_numbers.push(i64::from(*number));
        }
        let head = cell.head.as_ref().filter(|_| cell.is_head_changed).map(|head| head.encode()).transpose()?;
        for (number, value) in cell.pieces.drain(..).chain(head.map(|head| (HEAD, head))) {
            put.push(key);
            numbers.push(i64::from(number));
            values.push(value);
        }
    }
    let mut writes = Vec::new();
    if !cleared.ids.is_empty() {
        writes.push(Write { sql: Sql::ClearJournals, values: cleared.into_values() });
    }
    if !removed_numbers.is_empty() {
        let mut columns = removed.into_values();
        columns.push(Box::new(removed_numbers));
        writes.push(Write { sql: Sql::DeleteJournalRows, values: columns });
    }
    if !numbers.is_empty() {
        let mut columns = put.into_values();
        columns.push(Box::new(numbers));
        columns.push(Box::new(values));
        writes.push(Write { sql: Sql::PutJournalRows, values: columns });
    }
    Ok(writes)
}

fn rows(overlay: &mut Overlay, changed: &mut HashSet<RowKind>) -> Vec<Write> {
    let mut gone_kinds = Vec::new();
    let mut gone = Vec::new();
    let mut kinds = Vec::new();
    let mut keys = Vec::new();
    let mut values = Vec::new();
    for ((kind, key), cell) in overlay.rows.iter_mut().filter(|(_, cell)| cell.is_changed) {
        changed.insert(*kind);
        match cell.value.take() {
            Some(value) => {
                kinds.push(*kind as i16);
                keys.push(key.clone());
                values.push(value);
            }
            None => {
                gone_kinds.push(*kind as i16);
                gone.push(key.clone());
            }
        }
    }
    let mut writes = Vec::new();
    if !gone.is_empty() {
        writes.push(Write { sql: Sql::DeleteRows, values: vec![Box::new(gone_kinds), Box::new(gone)] });
    }
    if !keys.is_empty() {
        writes.push(Write { sql: Sql::PutRows, values: vec![Box::new(kinds), Box::new(keys), Box::new(values)] });
    }
    writes
}
