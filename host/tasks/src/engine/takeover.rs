//! Tasks that an earlier host left: this one takes them over at its start, or as soon as the store takes writes.
//!
//! Owns what of that is still to be done. Must not decide whether a call can be brought back:
//! [`crate::engine::run::resuming`] does. Invariants: no task is claimed twice, because each claim begins after the one
//! before it; a task that is dormant costs its start no write, and nothing is made for it but its
//! [`Run`](crate::parts::run_state::Run); and a store that takes no writes keeps no host from its start, and no task
//! from going on later.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::Tasks;
use crate::engine::change::ApplyError;
use crate::engine::run::drive::RunStart;
use crate::engine::run::resuming::{HELD_AT_START, LostRun, holding, interrupted, lost_run};
use crate::error::Error;
use crate::parts::admission::IdleState;
use crate::parts::pending_takeover::Takeover;
use crate::parts::resting::{Dormancy, NextRun};
use crate::parts::run_state::is_running;
use crate::parts::watchers::NotificationMark;
use bulkhead_domain::lifecycle::{Event, Interruption, Refusal};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Phase, Task, TaskId};
use bulkhead_store::{self as store, ClaimedTasks};

/// Tasks that are claimed at once.
const BATCH: usize = 256;
/// The same where hosts share the store: the next ones come a second later.
const SHARED_BATCH: usize = 64;

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

/// A task whose record says what became of its run.
struct SettledTask {
    task: Arc<Task>,
    /// Set for one that goes on where it was, with what it waits for.
    resumed: Option<Option<Dormancy>>,
}

/// A task that the store refuses for now, and why it does.
struct RefusedTask {
    task: Task,
    error: store::Error,
}

impl RefusedTask {
    fn new(task: Arc<Task>, error: store::Error) -> Self {
        Self { task: Arc::unwrap_or_clone(task), error }
    }
}

/// Whether the store takes nothing at the moment, and has taken nothing: all that is left waits for it.
fn takes_nothing(error: &store::Error) -> bool {
    matches!(error, store::Error::ReadOnly(_) | store::Error::Unavailable { .. })
}

impl Tasks {
    /// Takes over what no living host runs: queued tasks keep their place, interrupted ones go on where they were, fail
    /// honestly or run again where operator and tool allow it. To be called once, before the first request. What a
    /// store leaves over that takes no writes at the moment is done by [`Self::run_maintenance`].
    ///
    /// # Errors
    ///
    /// The store failed.
    pub async fn recover(&self) -> Result<Recovered, Error> {
        self.begin_takeover(false).await
    }

    /// The same, with each of these tasks held until an operator releases it. What is created from now on runs.
    ///
    /// # Errors
    ///
    /// The store failed.
    pub async fn recover_held(&self) -> Result<Recovered, Error> {
        self.begin_takeover(true).await
    }

    async fn begin_takeover(&self, holds_all: bool) -> Result<Recovered, Error> {
        let inner = &self.inner;
        let takeover = Takeover {
            mark: inner.watchers.mark(),
            holds_all,
            has_claimed_all: false,
            after: None,
            claimed: Vec::new(),
        };
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
        let refused = std::mem::take(&mut takeover.claimed);
        let mut takes_more = self.take_up(refused, takeover, &mut recovered).await;
        while takes_more && !takeover.has_claimed_all {
            match self.claim_batch(takeover.after).await {
                Ok(ClaimedTasks { tasks, next }) => {
                    takeover.has_claimed_all = next.is_none();
                    takeover.after = next;
                    takes_more = self.take_up(tasks, takeover, &mut recovered).await;
                }
                Err(error) if takes_nothing(&error) => break,
                Err(error) => return Err(error),
            }
        }
        if let Some(metrics) = inner.audit.metrics.get() {
            let Recovered { queued, paused, interrupted, resumed } = recovered;
            metrics.recovered([queued, paused, interrupted, resumed].map(|count| count as u64));
        }
        if takeover.has_claimed_all && takeover.claimed.is_empty() {
            *pending = None;
            inner.takeover.is_pending.store(false, Ordering::Release);
        }
        Ok(recovered)
    }

    /// Claims the next tasks: where hosts share the store, as many as leave some to the others, and none that cannot
    /// run here.
    async fn claim_batch(&self, after: Option<(Requestor, TaskId)>) -> Result<ClaimedTasks, store::Error> {
        let inner = &self.inner;
        if !inner.store.is_shared() {
            return inner.store.claim(inner.clock.steady(), inner.lease(), after, BATCH).await;
        }
        let tasks = inner.store.claim_free(inner.lease(), &inner.others.lacking(), SHARED_BATCH).await?;
        Ok(ClaimedTasks { tasks, next: None })
    }

    /// Takes tasks up, and keeps those that the store refuses for now. `false`: it takes nothing of others either.
    async fn take_up(&self, tasks: Vec<Task>, takeover: &mut Takeover, recovered: &mut Recovered) -> bool {
        let settling: Vec<_> = tasks.into_iter().map(|task| self.settle(task, takeover.holds_all)).collect();
        let mut takes_more = true;
        for settled in futures::future::join_all(settling).await {
            match settled {
                Ok(Some(settled)) => self.go_on_with(settled, takeover.mark, recovered).await,
                Ok(None) => {}
                Err(RefusedTask { task, error }) => {
                    if takes_nothing(&error) {
                        takes_more = false;
                    } else {
                        self.inner.takeover.warn(&error);
                    }
                    takeover.claimed.push(task);
                }
            }
        }
        takes_more
    }

    /// Brings the record up to what became of its run. One that is dormant already is left as it is, if it is not to be
    /// held. `None`: it is over, or another host's.
    async fn settle(&self, task: Task, holds_all: bool) -> Result<Option<SettledTask>, RefusedTask> {
        let inner = &self.inner;
        let task = Arc::new(task);
        if inner.store.is_shared() && !inner.runs_here(&task).await {
            return match inner.leave_to_others(&task).await {
                Ok(()) => Ok(None),
                Err(error) => Err(RefusedTask::new(task, error)),
            };
        }
        if !is_running(&task) {
            let task = self.held(task, holds_all.then_some(HELD_AT_START)).await?;
            return Ok(Some(SettledTask { task, resumed: None }));
        }
        let LostRun { how, head } = match lost_run(inner, &task).await {
            Ok(lost) => lost,
            Err(error) => return Err(RefusedTask::new(task, error)),
        };
        let is_resumed = how == Interruption::Resume;
        // A host that was ended by its operator left it, and no crash: that says nothing of the task.
        let was_left = inner.store.is_shared() && task.dormant_since().is_some();
        let task = if is_resumed && task.dormant_since().is_some() {
            task
        } else {
            match inner.apply(&task.requestor, task.id, interrupted(inner, &task, how).await, None).await {
                Ok(applied) => applied.after,
                // Its requestor was faster, or another host has it.
                Err(ApplyError::Refused(Refusal::Ended | Refusal::Stale) | ApplyError::NotFound) => return Ok(None),
                Err(ApplyError::Store(error)) if !matches!(error, store::Error::Corrupt(_)) => {
                    return Err(RefusedTask::new(task, error));
                }
                Err(error) => {
                    tracing::warn!(task.id = %task.id, "a task could not be recovered: {error:?}");
                    return Ok(None);
                }
            }
        };
        let fruitless = || if is_resumed && !was_left { holding(&task, head.as_ref()) } else { None };
        let why = if holds_all { Some(HELD_AT_START) } else { fruitless() };
        let task = self.held(task, why).await?;
        let resumed = is_resumed.then(|| inner.dormancy(&task, head.as_ref()));
        Ok(Some(SettledTask { task, resumed }))
    }

    /// Lets a task lie dormant, go on, or stand in the queue.
    async fn go_on_with(
        &self,
        settled: SettledTask,
        missed_notifications: NotificationMark,
        recovered: &mut Recovered,
    ) {
        let inner = &self.inner;
        let SettledTask { task, resumed } = settled;
        if task.outcome().is_none()
            && let Some(Some(dormancy)) = resumed
        {
            recovered.resumed += 1;
            inner.keep_dormant(task, dormancy, missed_notifications).await;
            return;
        }
        let resumes = resumed.is_some();
        // What was acknowledged is taken even if the operator has lowered the limit since.
        let slot = || inner.admission.keep(&task.requestor, IdleState::Queued);
        let (count, next) = match task.phase {
            Phase::Ended(_) => {
                recovered.interrupted += 1;
                return;
            }
            _ if resumes => (&mut recovered.resumed, NextRun::Resume),
            Phase::Paused { .. } => (&mut recovered.paused, NextRun::Start),
            Phase::Active(_) => (&mut recovered.queued, NextRun::Start),
        };
        *count += 1;
        let begin = RunStart::queued(slot(), next);
        inner.start_run(task, begin, None, missed_notifications).await;
    }

    /// The task, held if there is a reason to, also where its requestor paused it.
    async fn held(&self, task: Arc<Task>, why: Option<&str>) -> Result<Arc<Task>, RefusedTask> {
        let inner = &self.inner;
        let Some(why) = why.filter(|_| !task.is_held() && task.outcome().is_none()) else { return Ok(task) };
        let hold = Event::Hold { message: why.to_owned() };
        match inner.apply(&task.requestor, task.id, hold, None).await {
            Ok(applied) => Ok(applied.after),
            Err(ApplyError::Store(error)) if !matches!(error, store::Error::Corrupt(_)) => {
                Err(RefusedTask::new(task, error))
            }
            Err(error) => {
                tracing::warn!(task.id = %task.id, "a task could not be held: {error:?}");
                Ok(task)
            }
        }
    }
}
