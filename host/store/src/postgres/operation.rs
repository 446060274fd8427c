//! What the committer is asked to do.
//!
//! Owns the form of an operation when everything that takes time (encoding, sealing) is done. Must not decide whether
//! it may be done.

use tokio::sync::oneshot;

use super::super::hosts::{HeldChange, HeldOutcome};
use super::super::{Error, Ownership, RowKind, RowState, StoredCaps, Usage};
use crate::journal::{Append, JournalHead, TaskRef};
use crate::vault::SealingKey;
use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::task::{Lease, NodeId, PluginVersion, Task};

/// What a group needs to know of a task without its payloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaskHead {
    pub(super) revision: u64,
    pub(super) ended: bool,
    pub(super) attempt: u32,
    /// The lease by which the task is held: that of its run; and while it waits to continue, the one before.
    pub(super) lease: Option<Lease>,
    pub(super) created_at: UnixMs,
    pub(super) expires_at: Option<UnixMs>,
    /// SHA-256 of the alias.
    pub(super) alias: Option<[u8; 32]>,
    /// For an output that may still come.
    pub(super) reserved_bytes: u64,
    pub(super) record_bytes: u64,
    pub(super) arguments_bytes: u64,
    pub(super) output_bytes: Option<u64>,
    /// Digest of the version of the plugin; only of what is new.
    pub(super) version: Option<[u8; 32]>,
}

impl TaskHead {
    /// That of a task with this record, without arguments and output.
    pub(super) fn new(task: &Task, record: &[u8], reserved_bytes: u64) -> Self {
        let ended = task.outcome().is_some();
        Self {
            revision: task.revision,
            ended,
            attempt: task.attempt,
            lease: task.lease,
            created_at: task.created_at,
            expires_at: task.expires_at(),
            alias: task.alias.as_deref().map(alias_digest),
            reserved_bytes: if ended { 0 } else { reserved_bytes },
            record_bytes: record.len() as u64,
            arguments_bytes: 0,
            output_bytes: None,
            version: Some(version_digest(&task.plugin)),
        }
    }

    /// What the task counts.
    pub(super) fn usage(&self) -> Usage {
        let output = self.output_bytes.unwrap_or(self.reserved_bytes);
        Usage { tasks: 1, bytes: self.record_bytes.saturating_add(self.arguments_bytes).saturating_add(output) }
    }
}

/// By which a host says of which versions it claims no tasks.
pub(super) fn version_digest(version: &PluginVersion) -> [u8; 32] {
    use sha2::{Digest as _, Sha256};
    Sha256::new().chain_update(version.digest).chain_update(&version.name).finalize().into()
}

pub(super) fn alias_digest(alias: &str) -> [u8; 32] {
    use sha2::{Digest as _, Sha256};
    Sha256::digest(alias.as_bytes()).into()
}

/// An append that is ready to be written.
pub(super) struct Tail {
    pub(super) append: Append,
    pub(super) pieces: Vec<Vec<u8>>,
    /// They are sealed with the key of their tenant, which therefore has to be there still.
    pub(super) is_sealed: bool,
}

impl Tail {
    pub(super) fn new(task: &TaskRef, append: Append, sealing: Option<&SealingKey>) -> Result<Self, Error> {
        let pieces = append.pieces(task, sealing)?;
        Ok(Self { is_sealed: sealing.is_some() && !pieces.is_empty(), append, pieces })
    }

    fn bytes(&self) -> usize {
        self.pieces.iter().map(Vec::len).sum()
    }
}

/// A task's new record with what is written beside it.
pub(super) struct Record {
    pub(super) key: TaskRef,
    pub(super) head: TaskHead,
    pub(super) record: Vec<u8>,
    pub(super) output: Option<Vec<u8>>,
    pub(super) tail: Option<Tail>,
    /// What is private is sealed with the key of the tenant, which therefore has to be there still.
    pub(super) is_sealed: bool,
}

/// A task that may be claimed, as its record would be then.
pub(super) struct Claim {
    pub(super) key: TaskRef,
    /// The precondition, beside that nobody holds it.
    pub(super) revision: u64,
    /// Who held it last, which has to be so still where hosts share the store.
    pub(super) held_by: Option<NodeId>,
    pub(super) revision_after: u64,
    pub(super) record: Vec<u8>,
    /// None of a record that cannot be read: it is held so that others are not kept waiting by it.
    pub(super) task: Option<Task>,
}

pub(super) enum Operation {
    Create {
        record: Record,
        arguments: Vec<u8>,
        caps: StoredCaps,
    },
    Commit {
        record: Record,
        held_by: Option<NodeId>,
        then: Ownership,
    },
    Claim {
        claims: Vec<Claim>,
        now: UnixMs,
        lease: Lease,
    },
    Append {
        key: TaskRef,
        tail: Tail,
    },
    RemoveTask(TaskRef),
    RemoveJournal(TaskRef),
    PutRow {
        kind: RowKind,
        key: Vec<u8>,
        value: Vec<u8>,
        absent_only: bool,
    },
    ChangeRows {
        kind: RowKind,
        expected: Vec<RowState>,
        changes: Vec<RowState>,
        beside: Option<(TaskRef, Tail)>,
    },
    RemoveRow {
        kind: RowKind,
        key: Vec<u8>,
    },
    BlockTenant(TenantId),
    /// Counts tasks of this host beside those of the others.
    Hold(Vec<HeldChange>),
    /// Becomes one of the hosts of the schema again, under another name.
    Rejoin,
    Close,
}

impl Operation {
    /// What it adds to a group, roughly.
    pub(super) fn bytes(&self) -> usize {
        let of_record = |record: &Record| {
            let output = record.output.as_ref().map_or(0, Vec::len);
            record.record.len() + output + record.tail.as_ref().map_or(0, Tail::bytes)
        };
        let of_rows = |rows: &[RowState]| {
            rows.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len)).sum::<usize>()
        };
        match self {
            Self::Create { record, arguments, .. } => of_record(record) + arguments.len(),
            Self::Commit { record, .. } => of_record(record),
            Self::Claim { claims, .. } => claims.iter().map(|claim| claim.record.len()).sum(),
            Self::Append { tail, .. } => tail.bytes(),
            Self::PutRow { key, value, .. } => key.len() + value.len(),
            Self::ChangeRows { expected, changes, beside, .. } => {
                of_rows(expected) + of_rows(changes) + beside.as_ref().map_or(0, |(_, tail)| tail.bytes())
            }
            Self::RemoveTask(_)
            | Self::RemoveJournal(_)
            | Self::RemoveRow { .. }
            | Self::BlockTenant(_)
            | Self::Hold(_)
            | Self::Rejoin
            | Self::Close => 0,
        }
    }
}

/// What an operation did.
pub(super) enum Answer {
    Done,
    Appended(JournalHead),
    Claimed(Vec<Task>),
    Held(Vec<HeldOutcome>),
}

pub(super) type Reply = oneshot::Sender<Result<Answer, Error>>;

/// An operation on its way to the committer.
pub(super) struct Envelope {
    pub(super) operation: Operation,
    pub(super) reply: Reply,
}
