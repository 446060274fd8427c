//! What ends: new work is refused, versions and tenants are stopped, and the host goes down.
//!
//! Invariant: what has begun goes on, whatever the limits become; only an erased tenant's work and that of a withdrawn
//! version are stopped.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Tasks;
use crate::engine::change::{ApplyError, Author, Step};
use crate::engine::run::resuming::{LostRun, interrupted, lost_run};
use crate::error::Error;
use crate::parts::journal::GATHERED_FOR;
use crate::parts::resting::{SummaryPhase, TaskSummary};
use crate::parts::run_state::is_running;
use bulkhead_domain::call::{CallError, FaultKind};
use bulkhead_domain::lifecycle::{Event, Interruption};
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::task::{Active, Phase, PluginVersion, Task};
use bulkhead_store as store;
use bulkhead_store::journal::TaskRef;

/// Work that is left before the host is drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Calls for which a client holds a connection open. A parked call that waits for the next request is not counted.
    pub plain_calls: usize,
    pub tasks_running: usize,
    /// They stay for when the host takes work again, or starts again.
    pub tasks_queued: usize,
    /// They stay, too: the answer may never come.
    pub tasks_waiting: usize,
    pub tasks_paused: usize,
}

impl Unfinished {
    /// Whether nothing goes on any more that ends by itself.
    pub fn is_still(&self) -> bool {
        self.plain_calls == 0 && self.tasks_running == 0
    }
}

/// How tasks of a version end that the operator does not want any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    Cancel,
    Fail,
}

impl Tasks {
    /// Refuses new calls and tasks from now on, and leaves queued tasks in their queues. What runs goes on.
    pub fn stop_accepting(&self) {
        self.inner.availability.set_draining(true);
        self.inner.admission.hold_queues(true);
    }

    /// Takes [`stop_accepting`](Self::stop_accepting) back.
    pub fn accept_again(&self) {
        self.inner.availability.set_draining(false);
        self.inner.admission.hold_queues(false);
    }

    /// Whether nothing new is taken.
    pub fn is_draining(&self) -> bool {
        self.inner.availability.is_draining()
    }

    /// What has not ended yet.
    pub fn left_to_end(&self) -> Unfinished {
        let mut left = Unfinished { plain_calls: self.inner.availability.plain_calls(), ..Unfinished::default() };
        for task in self.inner.watchers.tasks() {
            match task.phase {
                // It sleeps, or waits for its turn to go on.
                SummaryPhase::Active(Active::Running) if !task.has_lease => left.tasks_waiting += 1,
                SummaryPhase::Active(Active::Running) => left.tasks_running += 1,
                SummaryPhase::Active(Active::Queued) => left.tasks_queued += 1,
                SummaryPhase::Active(Active::InputRequired) => left.tasks_waiting += 1,
                SummaryPhase::Paused => left.tasks_paused += 1,
                SummaryPhase::Ended => {}
            }
        }
        left
    }

    /// How many tasks that are not over belong to each version: those that run, wait, are paused or stand in the queue,
    /// and those of an earlier host that are still to be taken over; and those of every host that shares the store.
    ///
    /// # Errors
    ///
    /// There are such, and the store cannot be read.
    pub async fn by_version(&self) -> Result<HashMap<PluginVersion, usize>, store::Error> {
        if self.is_taking_over() || self.inner.store.is_shared() {
            return self.inner.store.unfinished_by_version().await;
        }
        let mut counts = HashMap::new();
        self.unfinished().iter().for_each(|task| *counts.entry(PluginVersion::clone(&task.plugin)).or_default() += 1);
        Ok(counts)
    }

    /// Ends every task of a version.
    pub async fn withdraw(&self, version: &PluginVersion, how: Withdrawal) {
        for task in self.unfinished().into_iter().filter(|task| *task.plugin == *version) {
            let TaskRef { requestor, id } = task.task;
            let event = match how {
                Withdrawal::Cancel => Event::Cancel,
                Withdrawal::Fail => {
                    let message = "the version of the plugin that this task runs was withdrawn".to_owned();
                    let error = CallError::Fault { kind: FaultKind::Deadline, reason: message.clone() };
                    Event::Abandon { error, message }
                }
            };
            match self.inner.apply(&requestor, id, event, None).await {
                Ok(_) | Err(ApplyError::Refused(_) | ApplyError::NotFound) => {}
                Err(ApplyError::Store(error)) => {
                    tracing::warn!(task.id = %id, %error, "a task of a withdrawn version cannot be ended yet");
                }
            }
        }
    }

    fn unfinished(&self) -> Vec<TaskSummary> {
        let mut tasks = self.inner.watchers.tasks();
        tasks.retain(|task| !task.is_over());
        tasks
    }

    /// Refuses new work of a tenant and stops its calls. Its records stay for the caller to remove.
    pub fn block_tenant(&self, tenant: TenantId) {
        self.inner.availability.block(tenant);
        self.inner.watchers.stop_tenant(tenant);
        self.inner.shares.with_activity(|activity| activity.forget(tenant));
    }

    /// Whether anything may still end by itself: what runs or sleeps does, what waits for an answer, is paused or
    /// dormant does not.
    pub(crate) fn works(&self) -> bool {
        let inner = &self.inner;
        let works = |task: &Arc<Task>| task.phase == Phase::Active(Active::Running) && task.lease.is_some();
        inner.availability.plain_calls() > 0 || inner.watchers.driven().iter().any(works)
    }

    /// Refuses new calls and lets running ones end for up to `grace`. The store stays open.
    pub async fn let_calls_end(&self, grace: Duration) {
        self.stop_accepting();
        let over = async {
            while self.works() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(grace, over).await;
    }

    /// Refuses new calls, lets running ones end for up to `grace`, then marks what is left as interrupted, or as
    /// dormant where a journal brings it back, and closes the store. Queued tasks stay queued for the next start, and
    /// dormant ones dormant.
    pub async fn drain(&self, grace: Duration) -> Result<(), Error> {
        let inner = &self.inner;
        inner.admission.residents.drain();
        self.let_calls_end(grace).await;
        let is_held_here = |task: &Arc<Task>| is_running(task) && task.lease.is_some();
        let running: Vec<_> = inner.watchers.driven().into_iter().filter(is_held_here).collect();
        for task in &running {
            let interrupted = match lost_run(inner, task).await {
                Ok(LostRun { how, .. }) => {
                    let event = match how {
                        Interruption::Resume => Event::Evict { attempt: task.attempt },
                        Interruption::Fail | Interruption::Rerun => interrupted(inner, task, how).await,
                    };
                    let step = Step { event, output: None, author: Author::LeavingHolder };
                    inner.apply_beside(TaskRef::of(task), step, &|_, _| None).await.map(drop)
                }
                Err(error) => Err(ApplyError::Store(error)),
            };
            // Refused: it has left memory by itself, or is over.
            if let Err(ApplyError::Store(error)) = interrupted {
                tracing::warn!(task.id = %task.id, "a running task could not be marked as interrupted: {error}");
            }
        }
        if !running.is_empty() {
            // What their calls have seen, and are about to keep, is written before the store is closed.
            tokio::time::sleep(2 * GATHERED_FOR).await;
        }
        self.write_usage().await;
        inner.store.close().await.map_err(|error| inner.store_error(error))
    }
}
