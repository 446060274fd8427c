//! What an operator orders of a task, in a running host and in a store that no host runs.
//!
//! Must not name or show a task. Invariant: without a host there is nothing to stop or to wake, so a change is one of
//! the record alone, by the same steps.

use std::sync::Arc;

use async_trait::async_trait;
use bulkhead_domain::clock::Clock;
use bulkhead_domain::lifecycle::{self, Event, Refusal};
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_domain::task::{Task, TaskId};
use bulkhead_store::{self as store, Change, Store};
use bulkhead_tasks::{self as tasks, Tasks};

/// Writers of one record that may come between; every retry means that another one won.
const CONFLICTS_MAX: u32 = 100;

/// What an operator may order of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskAction {
    Cancel,
    /// The message is what its requestor reads as its status.
    Pause {
        message: String,
    },
    /// Of one that nobody holds.
    Resume,
    /// The message is what its requestor reads as its status, and begins as that of every held task.
    Hold {
        message: String,
    },
    Release,
    /// The message is what its requestor reads.
    Fail {
        message: String,
    },
}

/// Carries out orders.
#[async_trait]
pub trait TaskControl: Send + Sync + 'static {
    async fn apply(&self, requestor: &Requestor, id: TaskId, order: TaskAction) -> Result<Arc<Task>, tasks::Error>;
    /// Stops what runs for a tenant, and begins nothing more for it.
    fn block_tenant(&self, tenant: TenantId);

    /// Removes a task with everything that belongs to it.
    async fn purge(&self, requestor: &Requestor, id: TaskId) -> Result<(), tasks::Error>;
}

#[async_trait]
impl TaskControl for Tasks {
    async fn apply(&self, requestor: &Requestor, id: TaskId, order: TaskAction) -> Result<Arc<Task>, tasks::Error> {
        match order {
            TaskAction::Cancel => self.cancel(requestor, id).await,
            TaskAction::Pause { message } => self.pause(requestor, id, Some(message)).await,
            TaskAction::Resume => self.resume(requestor, id).await,
            TaskAction::Hold { message } => self.hold(requestor, id, message).await,
            TaskAction::Release => self.release(requestor, id).await,
            TaskAction::Fail { message } => self.fail(requestor, id, message).await,
        }
    }

    fn block_tenant(&self, tenant: TenantId) {
        Tasks::block_tenant(self, tenant);
    }

    async fn purge(&self, requestor: &Requestor, id: TaskId) -> Result<(), tasks::Error> {
        self.discard(requestor, id).await
    }
}

/// Changes tasks of a store that no host runs: there is nothing to stop or to wake, only a record to change.
pub struct OfflineTasks {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
}

#[async_trait]
impl TaskControl for OfflineTasks {
    async fn apply(&self, requestor: &Requestor, id: TaskId, order: TaskAction) -> Result<Arc<Task>, tasks::Error> {
        let failed = |error: store::Error| {
            tracing::error!(task.id = %id, error = %error, "a task was not changed");
            tasks::Error::Host { incident: "offline".to_owned() }
        };
        let event = match order {
            TaskAction::Cancel => Event::Cancel,
            TaskAction::Pause { message } => Event::Pause { message: Some(message) },
            TaskAction::Resume => Event::Resume,
            TaskAction::Hold { message } => Event::Hold { message },
            TaskAction::Release => Event::Release,
            TaskAction::Fail { message } => Event::Fail { message },
        };
        for _ in 0..CONFLICTS_MAX {
            let task = self.store.get(requestor, id).await.map_err(failed)?.ok_or(tasks::Error::NotFound)?;
            let task = match lifecycle::step(&task, event.clone(), self.clock.now()) {
                Ok(task) => task,
                Err(Refusal::Ended) => return Err(tasks::Error::Ended),
                Err(Refusal::Held) => return Err(tasks::Error::Illegal(tasks::IS_HELD)),
                Err(Refusal::Illegal(why)) => return Err(tasks::Error::Illegal(why)),
                Err(_) => return Err(tasks::Error::Illegal("the task cannot be changed now")),
            };
            match self.store.commit(Change::of(task)).await {
                Err(store::Error::Conflict) => {}
                done => return done.map(Arc::new).map_err(failed),
            }
        }
        Err(failed(store::Error::Conflict))
    }

    fn block_tenant(&self, _: TenantId) {}

    async fn purge(&self, requestor: &Requestor, id: TaskId) -> Result<(), tasks::Error> {
        self.store.remove(requestor, id).await.map_err(|error| {
            tracing::error!(task.id = %id, error = %error, "a task was not removed");
            tasks::Error::Host { incident: "offline".to_owned() }
        })
    }
}
