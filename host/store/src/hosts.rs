//! PORT: hosts that share a store.
//!
//! Owns what a host has to know of the others: whether it is still one of them, what they have changed of its tasks,
//! and which tasks they have left. Must not know what a task is about. Invariants: a host that the others have declared
//! dead writes nothing, whatever it believes itself; what another host tells is a reason to read again, never the
//! truth.

use async_trait::async_trait;

use super::{Error, RowKind, TaskStore};
use crate::journal::TaskRef;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Lease, NodeId, PluginVersion, Task};

/// Bytes of one message to another host.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Tasks that others have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    Tasks(Vec<TaskRef>),
    /// It is not known which: the store has lost what others told.
    Unknown,
}

/// A state of tasks that is limited over all hosts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldState {
    Queued,
    Running,
    Paused,
}

/// How many tasks of a requestor, or of its tenant, are in each of these states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldTasks {
    pub queued: u32,
    pub running: u32,
    pub paused: u32,
}

impl HeldTasks {
    pub fn of(&self, state: HeldState) -> u32 {
        match state {
            HeldState::Queued => self.queued,
            HeldState::Running => self.running,
            HeldState::Paused => self.paused,
        }
    }

    pub fn of_mut(&mut self, state: HeldState) -> &mut u32 {
        match state {
            HeldState::Queued => &mut self.queued,
            HeldState::Running => &mut self.running,
            HeldState::Paused => &mut self.paused,
        }
    }

    /// Each number with its counterpart.
    #[must_use]
    pub fn zip(self, other: Self, with: fn(u32, u32) -> u32) -> Self {
        Self {
            queued: with(self.queued, other.queued),
            running: with(self.running, other.running),
            paused: with(self.paused, other.paused),
        }
    }
}

/// A limit by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldBound {
    pub limit: &'static str,
    pub max: u32,
}

/// One task more in a state, if both limits have room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldRequest {
    pub state: HeldState,
    pub of_tenant: HeldBound,
    pub of_requestor: HeldBound,
}

/// What this host counts of one requestor from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldChange {
    pub requestor: Requestor,
    /// Whatever the limits are.
    pub held: HeldTasks,
    /// Beside that, one after the other.
    pub more: Vec<HeldRequest>,
}

/// What became of a [`HeldChange`].
#[derive(Debug)]
pub struct HeldOutcome {
    /// Of each request: [`Error::Quota`] where there is no room.
    pub more: Vec<Result<(), Error>>,
    /// Whether tasks of this requestor wait at other hosts for others to end.
    pub is_awaited_elsewhere: bool,
}

/// A component of a plugin with the text that documents its tools, as any host can have it that shares the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredComponent {
    pub bytes: Vec<u8>,
    pub wit: Option<String>,
    /// Whether the signer of the component signed that text, too, or that there is none.
    pub is_wit_vouched: bool,
}

/// The other hosts of a store. A store of one process has none, and every method has that answer.
#[async_trait]
pub trait HostStore: TaskStore {
    /// Whether other processes may work with the store at the same time.
    fn is_shared(&self) -> bool {
        false
    }

    /// The name under which this host holds tasks, another one after each [`HostStore::rejoin`]. `None`: the host names
    /// itself.
    fn node(&self) -> Option<NodeId> {
        None
    }

    /// Returns once this host is none of those that share the store any more, because it did not renew its lease in
    /// time. Everything is refused with [`Error::Lost`] from then on.
    async fn lost(&self) {
        std::future::pending().await
    }

    /// Becomes one of them again, under another name: to be called when nothing that began before goes on.
    async fn rejoin(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns when another host has changed some task, as soon as that is known. To be taken for a hint: it may not
    /// come.
    async fn news(&self) {
        std::future::pending().await
    }

    /// Tasks that this host holds and others have changed, at most so many; each is given until the call after this
    /// one.
    async fn changed_by_others(&self, _count_max: usize) -> Result<Changed, Error> {
        Ok(Changed::Tasks(Vec::new()))
    }

    /// Sends a message to another host that lives, or to all others. It arrives soon or never, maybe twice; one that
    /// waits for too many before it is dropped. [`Error::Quota`] when it is longer than [`MESSAGE_BYTES_MAX`].
    async fn send_message(&self, _to: Option<NodeId>, _message: Vec<u8>) -> Result<(), Error> {
        Ok(())
    }

    /// Takes messages of others to this host, oldest first, a bounded part of them.
    async fn take_messages(&self) -> Result<Vec<Vec<u8>>, Error> {
        Ok(Vec::new())
    }

    /// Takes tasks that are not over and that no living host holds, oldest first, but none of these versions. Each has
    /// this lease and a new revision, but a dormant one: that is held from now on, and as it was.
    async fn claim_free(
        &self,
        _lease: Lease,
        _not_of: &[PluginVersion],
        _count_max: usize,
    ) -> Result<Vec<Task>, Error> {
        Ok(Vec::new())
    }

    /// Counts tasks of this host beside those of the others, in one atomic step: within their limits, a request is
    /// granted only if there is room over all hosts. What a host counted is forgotten when it leaves, or is declared
    /// dead.
    async fn hold(&self, changes: Vec<HeldChange>) -> Result<Vec<HeldOutcome>, Error> {
        let granted = |change: &HeldChange| HeldOutcome {
            more: change.more.iter().map(|_| Ok(())).collect(),
            is_awaited_elsewhere: false,
        };
        Ok(changes.iter().map(granted).collect())
    }

    /// Returns when the number of hosts that live, this one included, is another one than that; gives it.
    async fn living(&self, _but: usize) -> usize {
        std::future::pending().await
    }

    /// Returns when rows of this kind may have changed since the store was at that
    /// [generation](crate::RowStore::generation); gives the present one. It comes within about a second of a change
    /// that another host made.
    async fn rows_changed(&self, _kind: RowKind, _since: Option<u64>) -> Option<u64> {
        std::future::pending().await
    }

    /// Keeps a component for the other hosts. One that is there stays.
    async fn keep_component(&self, _digest: &[u8; 32], _component: &StoredComponent) -> Result<(), Error> {
        Ok(())
    }

    /// Whether the other hosts can have this component.
    async fn has_component(&self, _digest: &[u8; 32]) -> Result<bool, Error> {
        Ok(true)
    }

    /// A component that some host has kept. Whether these are its bytes is for the caller to check.
    async fn component(&self, _digest: &[u8; 32]) -> Result<Option<StoredComponent>, Error> {
        Ok(None)
    }

    /// Removes a component; an absent one is fine.
    async fn remove_component(&self, _digest: &[u8; 32]) -> Result<(), Error> {
        Ok(())
    }

    /// The present revision of each of these tasks that is there.
    async fn revisions(&self, tasks: &[TaskRef]) -> Result<Vec<(TaskRef, u64)>, Error> {
        let mut found = Vec::new();
        for task in tasks {
            found.extend(self.get(&task.requestor, task.id).await?.map(|record| (*task, record.revision)));
        }
        Ok(found)
    }

    /// The tasks of these requestors that are not over, with their revisions, at most so many.
    async fn unfinished_of(&self, _requestors: &[Requestor], _count_max: usize) -> Result<Vec<(TaskRef, u64)>, Error> {
        Ok(Vec::new())
    }
}
