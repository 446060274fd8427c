//! Tasks that an earlier host left: this one takes them over at its start, or as soon as the store takes writes.
//!
//! Owns what of that is still to be done. Must not decide whether a call can be brought back:
//! [`crate::engine::run::resuming`] does. Invariants: all tasks are claimed before the first goes on, because one that
//! waits to go on has no lease and would be claimed twice; and a store that takes no writes keeps no host from its
//! start, and no task from going on later.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::Tasks;
use crate::engine::change::ApplyError;
use crate::engine::run::drive::{QueuePlace, RunStart};
use crate::engine::run::queued::NextRun;
use crate::engine::run::resuming::{holding, interrupted, interruption};
use crate::error::Error;
use crate::parts::admission::{IdleState, Purpose};
use crate::parts::pending_takeover::Takeover;
use crate::parts::run_state::is_running;
use crate::parts::watchers::NotificationMark;
use bulkhead_domain::lifecycle::{Event, Interruption, Refusal};
use bulkhead_domain::task::{Phase, Task};
use bulkhead_store as store;

/// Tasks that are claimed at once.
const BATCH: usize = 256;

/// What a start found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Tasks that wait for their turn, again or still.
    pub queued: usize,
    /// Tasks that were running and can only be reported as lost.
    pub interrupted: usize,
    /// Paused tasks that had not started.
    pub paused: usize,
    /// Tasks that go on where they were, at once or when they are woken.
    pub resumed: usize,
}

impl Recovered {
    /// Tells the operator's log of it, if anything was found.
    pub fn log(self) {
        if self == Self::default() {
            return;
        }
        let Self { queued, resumed, interrupted, paused } = self;
        tracing::info!(
            recovered.queued = queued,
            recovered.resumed = resumed,
            recovered.interrupted = interrupted,
            recovered.paused = paused,
            "took over what an earlier host left"
        );
    }
}

/// Whether the store takes nothing at the moment, and has taken nothing: all that is left waits for it.
fn takes_nothing(error: &store::Error) -> bool {
    matches!(error, store::Error::ReadOnly(_) | store::Error::Unavailable { .. })
}

impl Tasks {
    /// Takes over what no living host runs: queued tasks keep their place, interrupted ones go on where they were, fail honestly or run
    /// again where operator and tool allow it. To be called once, before the first request. What a store leaves over that takes no writes
    /// at the moment is done by [`Self::run_maintenance`].
    ///
    /// # Errors
    ///
    /// The store failed.
    pub async fn recover(&self) -> Result<Recovered, Error> {
        let inner = &self.inner;
        let takeover = Takeover { mark: inner.watchers.mark(), has_claimed_all: false, claimed: Vec::new() };
        inner.takeover.is_pending.store(true, Ordering::Release);
        *inner.takeover.takeover.lock().await = Some(takeover);
        let recovered = self.take_over().await.map_err(|error| inner.store_error(error))?;
        if self.is_taking_over() {
            tracing::warn!("tasks of an earlier host stand still until the store takes writes");
        }
        Ok(recovered)
    }

    /// Whether tasks of an earlier host are still to be taken over.
    pub(crate) fn is_taking_over(&self) -> bool {
        self.inner.takeover.is_pending.load(Ordering::Acquire)
    }

    /// Goes on with a takeover that the store did not let come to its end.
    pub(crate) async fn go_on_taking_over(&self) {
        if self.is_taking_over() {
            // This host's own tasks are not to be claimed, however long it stood still.
            self.extend_lease().await;
            match self.take_over().await {
                Ok(recovered) => recovered.log(),
                Err(error) => self.inner.takeover.warn(&error),
            }
        }
    }

    async fn take_over(&self) -> Result<Recovered, store::Error> {
        let inner = &self.inner;
        let mut recovered = Recovered::default();
        let mut pending = inner.takeover.takeover.lock().await;
        let Some(takeover) = &mut *pending else { return Ok(recovered) };
        while !takeover.has_claimed_all {
            match inner.store.claim(inner.clock.steady(), inner.lease(), BATCH).await {
                Ok(batch) => {
                    takeover.has_claimed_all = batch.len() < BATCH;
                    takeover.claimed.extend(batch);
                }
                Err(error) if takes_nothing(&error) => return Ok(recovered),
                Err(error) => return Err(error),
            }
        }
        let mut claimed = std::mem::take(&mut takeover.claimed).into_iter();
        let mut later = Vec::new();
        while let Some(task) = claimed.next() {
            let Err((task, error)) = self.recover_task(task, takeover.mark, &mut recovered).await else { continue };
            later.push(task);
            if takes_nothing(&error) {
                // It takes nothing of the others either.
                later.extend(claimed);
                break;
            }
            inner.takeover.warn(&error);
        }
        takeover.claimed = later;
        if let Some(metrics) = inner.audit.metrics.get() {
            let Recovered { queued, paused, interrupted, resumed } = recovered;
            metrics.recovered([queued, paused, interrupted, resumed].map(|count| count as u64));
        }
        if takeover.claimed.is_empty() {
            *pending = None;
            inner.takeover.is_pending.store(false, Ordering::Release);
        }
        Ok(recovered)
    }

    /// Gives the task back where the store refuses for now, and why it does.
    async fn recover_task(
        &self,
        task: Task,
        missed_notifications: NotificationMark,
        recovered: &mut Recovered,
    ) -> Result<(), (Task, store::Error)> {
        let inner = &self.inner;
        let mut task = Arc::new(task);
        let mut resumes = false;
        if is_running(&task) {
            let how = match interruption(inner, &task).await {
                Ok(how) => how,
                Err(error) => return Err((Arc::unwrap_or_clone(task), error)),
            };
            match inner.apply(&task.requestor, task.id, interrupted(inner, &task, how).await, None).await {
                Ok(applied) => (task, resumes) = (applied.after, how == Interruption::Resume),
                // Its requestor was faster, or another host has it.
                Err(ApplyError::Refused(Refusal::Ended | Refusal::Stale) | ApplyError::NotFound) => return Ok(()),
                Err(ApplyError::Store(error)) if !matches!(error, store::Error::Corrupt(_)) => {
                    return Err((Arc::unwrap_or_clone(task), error));
                }
                Err(error) => {
                    tracing::warn!(task.id = %task.id, "a task could not be recovered: {error:?}");
                    return Ok(());
                }
            }
        }
        if resumes {
            task = self.held(task).await?;
        }
        if resumes
            && task.outcome().is_none()
            && let Some(dormancy) = inner.dormancy(&task).await
        {
            recovered.resumed += 1;
            inner.keep_dormant(task, dormancy, missed_notifications).await;
            return Ok(());
        }
        // What was acknowledged is taken even if the operator has lowered the limit since.
        let slot = |task: &Task| inner.admission.keep(&task.requestor, IdleState::Queued);
        let queued_start = |task: &Task, request, next| {
            RunStart::Queued(Box::new(QueuePlace { slot: Some(slot(task)), request, next }))
        };
        let (count, begin) = match task.phase {
            Phase::Ended(_) => {
                recovered.interrupted += 1;
                return Ok(());
            }
            Phase::Paused { .. } if resumes => (&mut recovered.resumed, queued_start(&task, None, NextRun::Resume)),
            Phase::Active(_) if resumes => {
                let request = inner.admission.enqueue(&task.requestor, Purpose::Task).ok();
                (&mut recovered.resumed, queued_start(&task, request, NextRun::Resume))
            }
            Phase::Paused { .. } => (&mut recovered.paused, queued_start(&task, None, NextRun::Start)),
            Phase::Active(_) => (&mut recovered.queued, inner.queue(&task.requestor, slot(&task))),
        };
        *count += 1;
        inner.start_run(task, begin, None, missed_notifications).await;
        Ok(())
    }

    /// The task, held if it was resumed too often already, also where its requestor paused it.
    async fn held(&self, task: Arc<Task>) -> Result<Arc<Task>, (Task, store::Error)> {
        let inner = &self.inner;
        let Some(why) = holding(inner, &task).await.filter(|_| !task.is_held()) else { return Ok(task) };
        let hold = Event::Hold { message: why.to_owned() };
        match inner.apply(&task.requestor, task.id, hold, None).await {
            Ok(applied) => Ok(applied.after),
            Err(ApplyError::Store(error)) if takes_nothing(&error) => Err((Arc::unwrap_or_clone(task), error)),
            Err(error) => {
                tracing::warn!(task.id = %task.id, "a task could not be held: {error:?}");
                Ok(task)
            }
        }
    }
}
