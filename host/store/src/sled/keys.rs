//! The keys of the one tree.
//!
//! Owns the byte layout: a kind, then tenant and requestor wherever a key belongs to one, so that a foreign id is not
//! refused but absent. Must not know what is stored under a key. Invariant: kinds are never used again, and numbers are
//! big-endian, so that byte order is the order of the index.

use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_domain::task::TaskId;

use super::super::{ListPosition, RowKind};
use crate::journal::{TaskRef, layout};

/// What a key is for. Small rows use the numbers of [`RowKind`]; `M` begins [`GROUP`].
pub(super) mod kind {
    /// Tenant, requestor, task → head and record.
    pub(in super::super) const TASK: u8 = b'T';
    /// Tenant, requestor, inverted creation time, task → nothing: the list, newest first.
    pub(in super::super) const LIST: u8 = b'L';
    /// Expiry time, tenant, requestor, task → nothing.
    pub(in super::super) const EXPIRY: u8 = b'E';
    /// Tenant, requestor, task → lease, for tasks that are not over.
    pub(in super::super) const UNFINISHED: u8 = b'U';
    /// Tenant, requestor, SHA-256 of the alias → task.
    pub(in super::super) const ALIAS: u8 = b'A';
    /// Tenant, requestor, task, part, number → a piece of a payload.
    pub(in super::super) const PAYLOAD: u8 = b'P';
}

/// The one row about the database: its id, and the number of the last group.
pub(super) const GROUP: &[u8] = b"Mgroup";

/// Which payload of a task a chunk belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Part {
    Record = b'r',
    Arguments = b'a',
    Output = b'o',
}

/// A task's full name: tenant, requestor, id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TaskKey {
    pub(super) requestor: Requestor,
    pub(super) id: TaskId,
}

const TASK_KEY_BYTES: usize = 48;

impl TaskKey {
    pub(super) fn new(requestor: &Requestor, id: TaskId) -> Self {
        Self { requestor: *requestor, id }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (tenant, rest) = bytes.split_first_chunk::<16>()?;
        let (requestor, rest) = rest.split_first_chunk::<16>()?;
        let id = <[u8; 16]>::try_from(rest).ok()?;
        Some(Self { requestor: Requestor { tenant: TenantId(*tenant), id: RequestorId(*requestor) }, id: TaskId(id) })
    }

    fn under(&self, kind: u8, more_bytes: usize) -> Vec<u8> {
        let mut key = of_requestor(kind, &self.requestor, more_bytes + 16);
        key.extend_from_slice(&self.id.0);
        key
    }

    pub(super) fn task(&self) -> Vec<u8> {
        self.under(kind::TASK, 0)
    }

    pub(super) fn unfinished(&self) -> Vec<u8> {
        self.under(kind::UNFINISHED, 0)
    }

    pub(super) fn list(&self, created_at: UnixMs) -> Vec<u8> {
        list_position(&self.requestor, ListPosition { created_at, id: self.id })
    }

    pub(super) fn expiry(&self, expires_at: UnixMs) -> Vec<u8> {
        let mut key = Vec::with_capacity(1 + 8 + TASK_KEY_BYTES);
        key.push(kind::EXPIRY);
        key.extend_from_slice(&expires_at.to_be_bytes());
        key.extend_from_slice(&self.requestor.tenant.0);
        key.extend_from_slice(&self.requestor.id.0);
        key.extend_from_slice(&self.id.0);
        key
    }

    pub(super) fn chunk(&self, part: Part, number: u32) -> Vec<u8> {
        let mut key = self.under(kind::PAYLOAD, 5);
        key.push(part as u8);
        key.extend_from_slice(&number.to_be_bytes());
        key
    }

    /// A row of its journal.
    pub(super) fn journal(&self, number: u32) -> Vec<u8> {
        row(RowKind::Journal, &layout::row_key(&self.name(), number))
    }

    /// What the keys of all rows of its journal begin with.
    pub(super) fn journal_prefix(&self) -> Vec<u8> {
        row(RowKind::Journal, &layout::prefix(&self.name()))
    }

    pub(super) fn name(&self) -> TaskRef {
        TaskRef { requestor: self.requestor, id: self.id }
    }
}

fn of_requestor(kind: u8, requestor: &Requestor, more_bytes: usize) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + 32 + more_bytes);
    key.push(kind);
    key.extend_from_slice(&requestor.tenant.0);
    key.extend_from_slice(&requestor.id.0);
    key
}

pub(super) fn list_position(requestor: &Requestor, position: ListPosition) -> Vec<u8> {
    let mut key = of_requestor(kind::LIST, requestor, 24);
    key.extend_from_slice(&(UnixMs::MAX - position.created_at).to_be_bytes());
    key.extend_from_slice(&position.id.0);
    key
}

/// What every list key of a requestor begins with.
pub(super) fn list_prefix(requestor: &Requestor) -> Vec<u8> {
    of_requestor(kind::LIST, requestor, 0)
}

/// What every task key of a tenant begins with.
pub(super) fn tenant_prefix(tenant: TenantId) -> Vec<u8> {
    [&[kind::TASK], &tenant.0[..]].concat()
}

/// The tenant whose small row it is, where the key says so.
pub(super) fn tenant_of_row(key: &[u8]) -> Option<TenantId> {
    let (kind, key) = key.split_first()?;
    RowKind::ALL.into_iter().find(|known| *known as u8 == *kind)?.tenant_of(key)
}

pub(super) fn alias(requestor: &Requestor, digest: &[u8; 32]) -> Vec<u8> {
    let mut key = of_requestor(kind::ALIAS, requestor, 32);
    key.extend_from_slice(digest);
    key
}

pub(super) fn row(kind: RowKind, key: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(1 + key.len());
    whole.push(kind as u8);
    whole.extend_from_slice(key);
    whole
}

/// The first key after everything that begins with `prefix`; `None` when there is none.
pub(super) fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}

/// The first key after `key`.
pub(super) fn successor(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

/// The task behind a key of the kinds task, unfinished or payload.
pub(super) fn parse_task(key: &[u8]) -> Option<TaskKey> {
    TaskKey::parse(key.get(1..1 + TASK_KEY_BYTES)?)
}

/// The task and the number of a journal's row.
pub(super) fn parse_journal(key: &[u8]) -> Option<(TaskKey, u32)> {
    let key = key.strip_prefix(&[RowKind::Journal as u8])?;
    layout::parse_key(key).map(|(task, number)| (TaskKey::new(&task.requestor, task.id), number))
}

/// The id at the end of a list key.
pub(super) fn parse_list(key: &[u8]) -> Option<TaskId> {
    key.split_last_chunk::<16>().map(|(_, id)| TaskId(*id))
}

/// The time and the task of an expiry key.
pub(super) fn parse_expiry(key: &[u8]) -> Option<(UnixMs, TaskKey)> {
    let (time, task) = key.get(1..)?.split_first_chunk::<8>()?;
    Some((UnixMs::from_be_bytes(*time), TaskKey::parse(task)?))
}
