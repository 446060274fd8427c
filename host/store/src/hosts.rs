//! PORT: hosts that share a store.
//!
//! Owns what a host has to know of the others: whether it is still one of them, what they have changed of its tasks, and which tasks they
//! have left. Must not know what a task is about. Invariants: a host that the others have declared dead writes nothing, whatever it believes
//! itself; what another host tells is a reason to read again, never the truth.

use async_trait::async_trait;

use super::{Error, TaskStore};
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

/// The other hosts of a store. A store of one process has none, and every method has that answer.
#[async_trait]
pub trait HostStore: TaskStore {
    /// Whether other processes may work with the store at the same time.
    fn is_shared(&self) -> bool {
        false
    }

    /// The name under which this host holds tasks, another one after each [`HostStore::rejoin`]. `None`: the host names itself.
    fn node(&self) -> Option<NodeId> {
        None
    }

    /// Returns once this host is none of those that share the store any more, because it did not renew its lease in time. Everything is
    /// refused with [`Error::Lost`] from then on.
    async fn lost(&self) {
        std::future::pending().await
    }

    /// Becomes one of them again, under another name: to be called when nothing that began before goes on.
    async fn rejoin(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns when another host has changed some task, as soon as that is known. To be taken for a hint: it may not come.
    async fn news(&self) {
        std::future::pending().await
    }

    /// Tasks that this host holds and others have changed, at most so many; each is given until the call after this one.
    async fn changed_by_others(&self, _count_max: usize) -> Result<Changed, Error> {
        Ok(Changed::Tasks(Vec::new()))
    }

    /// Sends a message to another host that lives, or to all others. It arrives soon or never, maybe twice; one that waits for too many before
    /// it is dropped. [`Error::Quota`] when it is longer than [`MESSAGE_BYTES_MAX`].
    async fn send_message(&self, _to: Option<NodeId>, _message: Vec<u8>) -> Result<(), Error> {
        Ok(())
    }

    /// Takes messages of others to this host, oldest first, a bounded part of them.
    async fn take_messages(&self) -> Result<Vec<Vec<u8>>, Error> {
        Ok(Vec::new())
    }

    /// Takes tasks that are not over and that no living host holds, oldest first, but none of these versions. Each has this lease and a new
    /// revision, but a dormant one: that is held from now on, and as it was.
    async fn claim_free(
        &self,
        _lease: Lease,
        _not_of: &[PluginVersion],
        _count_max: usize,
    ) -> Result<Vec<Task>, Error> {
        Ok(Vec::new())
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
