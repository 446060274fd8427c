//! PORT: where tasks and everything else that must survive live.
//!
//! Owns durability and atomicity: when a write returns `Ok`, it is on disk, record, payloads and indexes together. Must
//! not know the rules of the task life cycle: it compares revisions and counts, nothing more. Invariant: what was
//! acknowledged is found again, and a key never answers for another requestor.
//!
//! The trait takes data, not closures, so that an engine across machines can stand behind it: nothing here assumes that
//! there is only one process.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

mod error;
mod export_format;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod host_secret;
pub mod hosts;
pub mod journal;
pub mod keyvalue;
mod leases;
mod ledger;
pub mod memory;
pub mod postgres;
#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "only tests use it, and a server that does not start ends its test"
)]
pub mod postgres_server;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, reason = "only tests use it, and a disk that cannot be read ends its test")]
pub mod power_cut;
pub mod record;
pub mod replay_guard;
#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "only tests use it, and a fixture that fails ends its test"
)]
pub mod samples;
pub mod sled;
#[cfg(test)]
mod suite;
mod tenant_keys;
pub mod usage_days;
pub mod vault;

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;

pub use error::Error;
pub use host_secret::host_secret;
pub use hosts::HostStore;
use ledger::{Ledger, stored};
pub use ledger::{StoredCaps, Usage};

use crate::journal::{Append, Beside, JournalStore};
use crate::vault::SealingKey;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_domain::task::{Lease, NodeId, PluginVersion, Task, TaskId, TaskOutput};
use bulkhead_domain::{Json, UnixMs};

/// Tasks that are read at once where every one is.
const SCAN_PAGE_TASKS: usize = 256;

/// A new task with what belongs to it.
#[derive(Clone, Debug)]
pub struct Creation {
    /// `revision` is 0; the store makes it 1.
    pub task: Task,
    pub arguments: Json,
    /// Set for a task that is over from the start.
    pub output: Option<Arc<TaskOutput>>,
    /// Counted against the bytes quota until the output is there (or the task ends without one).
    pub reserved_bytes: u64,
    pub caps: StoredCaps,
    /// Begins the task's journal, in the same atomic step; `caps` hold for its bytes too.
    pub journal: Option<Append>,
}

/// One change of one task.
#[derive(Clone, Debug)]
pub struct Change {
    /// The whole new record; its `revision` is the one it was read at, which is the precondition.
    pub task: Task,
    /// Set with the change that ends the task with an output.
    pub output: Option<Arc<TaskOutput>>,
    /// Appended to the task's journal, in the same atomic step. A journal is removed with the end of its task, unless
    /// the change that ends it appends to it; and where the change raises the attempt and does not take it over
    /// ([`Append::resuming`]).
    pub journal: Option<Append>,
    /// The host that makes the change, because it holds the task: a run, or the host that goes on with one, names
    /// itself. [`Error::Lost`] where another one holds it.
    pub held_by: Option<NodeId>,
    pub then: Ownership,
}

impl Change {
    /// A change of the record alone, whichever host holds the task.
    pub fn of(task: Task) -> Self {
        Self { task, output: None, journal: None, held_by: None, then: Ownership::Stays }
    }
}

/// Who holds a task that is not over once it is changed. A lease in the record says that the task runs, and for whom; a
/// task that waits to go on has none, and is held all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The holder of the lease; without one, the host that held it before.
    Stays,
    /// Nobody: any host may claim it.
    Released,
}

/// A part of what a host takes over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimedTasks {
    pub tasks: Vec<Task>,
    /// After which task the next part begins; `None`: this is the last one.
    pub next: Option<(Requestor, TaskId)>,
}

/// A place in a requestor's list of tasks, newest first: strictly after this one comes the next page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListPosition {
    pub created_at: UnixMs,
    pub id: TaskId,
}

/// Tasks.
#[async_trait]
pub trait TaskStore: Send + Sync + 'static {
    /// Writes a new task, its arguments, its indexes and (when `task.alias` is set) its alias, if the caps allow.
    async fn create(&self, creation: Creation) -> Result<Task, Error>;

    /// Replaces a record if it is still at the revision it was read at; returns the record with its new revision.
    /// [`Error::Fenced`] when what goes to the journal does not go on from what is there; nothing was changed then.
    /// [`Error::Lost`] when another host than the one that the change names holds the task, at whatever revision.
    async fn commit(&self, change: Change) -> Result<Task, Error>;

    /// The record; `None` when this requestor has no such task. Expiry is the caller's business.
    async fn get(&self, requestor: &Requestor, id: TaskId) -> Result<Option<Task>, Error>;

    /// The record by the id alone, of any requestor: for the operator's commands.
    async fn find(&self, id: TaskId) -> Result<Option<Task>, Error>;

    /// The arguments, as they were given to [`TaskStore::create`].
    async fn arguments(&self, requestor: &Requestor, id: TaskId) -> Result<Option<Json>, Error>;

    /// The output, once there is one.
    async fn output(&self, requestor: &Requestor, id: TaskId) -> Result<Option<TaskOutput>, Error>;

    /// The record and the output, if there is one yet. Both together may be one read.
    async fn with_output(
        &self,
        requestor: &Requestor,
        id: TaskId,
    ) -> Result<Option<(Task, Option<TaskOutput>)>, Error> {
        let Some(task) = self.get(requestor, id).await? else { return Ok(None) };
        Ok(Some((task, self.output(requestor, id).await?)))
    }

    /// The task behind an alias.
    async fn by_alias(&self, requestor: &Requestor, alias: &str) -> Result<Option<TaskId>, Error>;

    /// Tasks of one requestor, newest first, at most `count_max`.
    async fn list(
        &self,
        requestor: &Requestor,
        after: Option<ListPosition>,
        count_max: usize,
    ) -> Result<Vec<Task>, Error>;

    /// Takes over tasks that are not over and that no living host holds (a host lives while the end of the lease that
    /// it got the task with, or its last heartbeat, is after `now`): each gets `lease` and a new revision in the same
    /// atomic step. Gives at most `count_max`, in a stable order, strictly after `after`. Paused and queued tasks are
    /// claimed too. A store that only one process can have open counts leases from before it was opened as not alive,
    /// so recovery after a restart does not wait for them.
    ///
    /// A [dormant](Task::dormant_since) task that nobody has held since the store was opened is given as it is, without
    /// a write and to each host that asks: the first one that goes on with it holds it from then on.
    async fn claim(
        &self,
        now: UnixMs,
        lease: Lease,
        after: Option<(Requestor, TaskId)>,
        count_max: usize,
    ) -> Result<ClaimedTasks, Error>;

    /// Extends every lease that `node` holds, without a revision: what it holds is what it claimed or created.
    async fn heartbeat(&self, node: NodeId, until: UnixMs) -> Result<(), Error>;

    /// The ids of tasks whose expiry is at or before `now`, oldest first, at most `count_max`. Walks the expiry index
    /// only.
    async fn expired(&self, now: UnixMs, count_max: usize) -> Result<Vec<(Requestor, TaskId)>, Error>;

    /// When the next task expires.
    async fn next_expiry(&self) -> Result<Option<UnixMs>, Error>;

    /// Removes a task with everything that belongs to it. Removing what is not there is fine.
    async fn remove(&self, requestor: &Requestor, id: TaskId) -> Result<(), Error>;

    /// Refuses whatever is new for a tenant from now on, until the store is closed, with [`Error::ReadOnly`]: tasks,
    /// and rows whose keys say whose they are. What was asked for before is done when this returns.
    async fn block_tenant(&self, tenant: TenantId) -> Result<(), Error>;

    /// The ids of tasks of a tenant, at most `count_max`, also of those whose records cannot be read.
    async fn tasks_of(&self, tenant: TenantId, count_max: usize) -> Result<Vec<(Requestor, TaskId)>, Error>;

    /// What the requestor and its tenant have stored.
    async fn usage(&self, requestor: &Requestor) -> Result<(Usage, Usage), Error>;

    /// Every task in the store, in key order, for the operator's commands: strictly after `after`.
    async fn scan(&self, after: Option<(Requestor, TaskId)>, count_max: usize) -> Result<Vec<Task>, Error>;

    /// How many tasks of each version of a plugin are not over yet. Reads every record.
    async fn unfinished_by_version(&self) -> Result<HashMap<PluginVersion, usize>, Error> {
        let mut counts = HashMap::new();
        let mut after = None;
        loop {
            let page = self.scan(after, SCAN_PAGE_TASKS).await?;
            after = page.last().map(|task| (task.requestor, task.id));
            let is_last = page.len() < SCAN_PAGE_TASKS;
            for task in page.into_iter().filter(|task| task.outcome().is_none()) {
                *counts.entry(task.plugin).or_default() += 1;
            }
            if is_last {
                return Ok(counts);
            }
        }
    }

    /// Why writes are refused at the moment, for readiness checks.
    fn read_only(&self) -> Option<String>;

    /// Makes everything durable and gives the files back. Nothing may be called afterwards.
    async fn close(&self) -> Result<(), Error>;
}

/// The kinds of small rows that live beside tasks. The numbers are key bytes on disk: never reuse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum RowKind {
    /// Legacy sessions: digest of the session id → state.
    Session = b'S',
    /// Bearer tokens: digest of the token → principal, name, expiry.
    Token = b'B',
    /// Principals: digest of (verifier, issuer, subject, client) → requestor and tenant.
    Principal = b'N',
    /// Secrets of the host itself: cursor keys, cache keys.
    Secret = b'Z',
    /// Plugins: the name, the name and a digest, or the name and a tool → what is remembered of it.
    Plugin = b'G',
    /// What plugins keep: see [`keyvalue`].
    KeyValue = b'K',
    /// Secrets that plugins may use: plugin, name and tenant → destinations and the sealed value.
    GuestSecret = b'Q',
    /// The keys that tenants' data is sealed with, each sealed with a key of the operator's: tenant → sealed key.
    TenantKey = b'W',
    /// Single-use tokens that were used: see [`replay_guard`]. And what tenants used, and how tools were called, by
    /// day: see [`usage_days`].
    UsedToken = b'R',
    /// Sessions of browsers at the dashboard: digest of the cookie and whose session it is → state.
    BrowserSession = b'H',
    /// Journals of tasks: see [`journal`]. Only appends write them.
    Journal = b'J',
}

impl RowKind {
    /// Every kind.
    pub const ALL: [Self; 11] = [
        Self::Session,
        Self::Token,
        Self::Principal,
        Self::Secret,
        Self::Plugin,
        Self::TenantKey,
        Self::KeyValue,
        Self::GuestSecret,
        Self::UsedToken,
        Self::BrowserSession,
        Self::Journal,
    ];

    /// The tenant whose row it is, where the key says so: those rows go with their tenant.
    pub fn tenant_of(self, key: &[u8]) -> Option<TenantId> {
        match self {
            Self::TenantKey | Self::Journal => key.first_chunk().copied().map(TenantId),
            Self::KeyValue => keyvalue::tenant_of(key),
            Self::GuestSecret => tenant_of_secret(key),
            Self::UsedToken => replay_guard::tenant_of(key),
            // An operator's key is the digest alone.
            Self::BrowserSession => key.get(32..)?.first_chunk().copied().map(TenantId),
            // The rooms that own these know whose each row is.
            Self::Session | Self::Token | Self::Principal | Self::Secret | Self::Plugin => None,
        }
    }
}

/// A secret's key: the length of the plugin's name, the name, 1 and the tenant (or 0), the secret's name.
fn tenant_of_secret(key: &[u8]) -> Option<TenantId> {
    let (length, rest) = key.split_first()?;
    let (is_for_one, rest) = rest.get(usize::from(*length)..)?.split_first()?;
    if *is_for_one == 1 { rest.first_chunk().copied().map(TenantId) } else { None }
}

/// A row's key and its value; `None`: there is no such row.
pub type RowState = (Vec<u8>, Option<Vec<u8>>);

/// The largest value of a row.
pub const ROW_BYTES_MAX: usize = 4_000;
/// The longest key of a row.
pub const ROW_KEY_BYTES_MAX: usize = 512;

/// The error of a write for a tenant that is being erased.
fn blocked_tenant() -> Error {
    Error::ReadOnly("the tenant is being erased".to_owned())
}

/// Refuses rows that are too large for every engine, and those that have a port of their own.
fn check_row(kind: RowKind, key: &[u8], value: &[u8]) -> Result<(), Error> {
    if kind == RowKind::Journal {
        return Err(Error::Engine("the rows of journals are written by appends".to_owned()));
    }
    for (limit, bytes, bytes_max) in
        [("row_key_bytes", key.len(), ROW_KEY_BYTES_MAX), ("row_bytes", value.len(), ROW_BYTES_MAX)]
    {
        if bytes > bytes_max {
            return Err(Error::Quota { limit, value: bytes_max as u64 });
        }
    }
    Ok(())
}

/// Small rows (values of at most [`ROW_BYTES_MAX`]) by kind and key.
#[async_trait]
pub trait RowStore: Send + Sync + 'static {
    /// The value.
    async fn row(&self, kind: RowKind, key: &[u8]) -> Result<Option<Vec<u8>>, Error>;

    /// Writes a row, durable on return; [`Error::Quota`] when the key or the value is too long. With `absent_only` an
    /// existing row is [`Error::Exists`].
    async fn put_row(&self, kind: RowKind, key: &[u8], value: Vec<u8>, absent_only: bool) -> Result<(), Error>;

    /// Writes and removes several rows of a kind in one atomic step, durable on return, if each row of `expected` is
    /// still what it was read as, else [`Error::Conflict`]. What is `beside` them goes to a task's journal in the same
    /// step, else [`Error::Fenced`].
    async fn change_rows(
        &self,
        kind: RowKind,
        expected: Vec<RowState>,
        changes: Vec<RowState>,
        beside: Option<Beside>,
    ) -> Result<(), Error>;

    /// Removes a row; an absent one is fine.
    async fn remove_row(&self, kind: RowKind, key: &[u8]) -> Result<(), Error>;

    /// A number that was counted up before the writer of any change of rows of this kind heard of it: as long as it
    /// stays the same, reading again gives the same. `None` where rows may change without this process.
    fn generation(&self, _kind: RowKind) -> Option<u64> {
        None
    }

    /// The key with which writers of a tenant's rows seal the values; `None` where nothing is sealed. A first key is
    /// durable on return.
    async fn sealing_key(&self, _tenant: TenantId) -> Result<Option<SealingKey>, Error> {
        Ok(None)
    }

    /// Rows of a kind in key order, strictly after `after`, at most `count_max`.
    async fn rows(
        &self,
        kind: RowKind,
        after: Option<&[u8]>,
        count_max: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Error>;
}

/// All parts of a store.
pub trait Store: TaskStore + RowStore + JournalStore + HostStore {}
impl<T: TaskStore + RowStore + JournalStore + HostStore> Store for T {}
