//! Tasks whose calls have left memory: how they leave it, and when they go on.
//!
//! Owns what a dormant task is beside its record: it holds no instance, no permit and nothing that runs. Must not start a guest: who lets a
//! task lie dormant says how it is woken. Invariants: a call leaves memory in one step with its record, after everything that it has seen
//! is kept; and what happens to the record meanwhile is looked at again once the task is dormant, so that no wake is lost.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::change::{Applied, ApplyError, Author, Step};
use crate::engine::{EngineContext, Tasks};
use crate::parts::journal::TaskJournal;
use crate::parts::outcome::OUTCOME_RETRY;
use crate::parts::run_state::{Dormancy, OnWake, Run, Wake, is_paused};
use bulkhead_calls::Fenced;
use bulkhead_domain::UnixMs;
use bulkhead_domain::call::{CallError, FaultKind};
use bulkhead_domain::lifecycle::{Event, Refusal};
use bulkhead_domain::task::{Active, Phase, Retention, Task};
use bulkhead_domain::timeline::WakeCause;
use bulkhead_store::journal::{JournalHead, TaskRef};

/// How long the end of a sleep may be late after a jump of the clock.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What wakes a task: it starts the run of one that goes on.
pub(crate) type StartRun = fn(Arc<EngineContext>, Arc<Run>, Arc<Task>, WakeCause);

impl EngineContext {
    /// Lets a call leave memory, with what its journal needs to bring it back.
    pub(crate) async fn evict(
        &self,
        task: &Task,
        journal: &Arc<TaskJournal>,
        is_cooperative: bool,
    ) -> Result<Applied, ApplyError> {
        let mut writer = journal.writer().await;
        let append = writer.at_rest(is_cooperative).await.map_err(|Fenced| ApplyError::Refused(Refusal::Stale))?;
        let append = append.ok_or(ApplyError::Refused(Refusal::Illegal("its journal cannot bring it back")))?;
        let event = Event::Evict { attempt: task.attempt };
        let step = Step { event, output: None, author: Author::Holder };
        let applied = self.apply_beside(TaskRef::of(task), step, &|_, _| Some(append.clone())).await?;
        writer.close();
        Ok(applied)
    }

    /// Nothing drives this run from now on, until its task goes on or is over.
    pub(crate) fn lie_dormant(self: &Arc<Self>, run: &Arc<Run>, task: &Task, dormancy: Dormancy, start: StartRun) {
        let id = task.id;
        let looks = [dormancy.wake_at.filter(|_| dormancy.is_asleep), self.gives_up_at(task)];
        for at in looks.into_iter().flatten() {
            self.deadlines.insert(at, id);
        }
        let context = Arc::downgrade(self);
        let woken = Arc::downgrade(run);
        let on_wake: OnWake = Box::new(move |wake| {
            let (Some(context), Some(run)) = (context.upgrade(), woken.upgrade()) else { return };
            for at in looks.into_iter().flatten() {
                context.deadlines.remove(at, id);
            }
            match (wake, run.task()) {
                (Wake::For(cause), Some(task)) => start(context, run, task, cause),
                _ => context.watchers.end(id),
            }
        });
        run.set_dormant(dormancy, on_wake);
    }

    /// When a task is ended that is kept from its end on, and does not come to it.
    pub(crate) fn gives_up_at(&self, task: &Task) -> Option<UnixMs> {
        let ttl_ms_max = || self.admission.limits(&task.requestor).ttl_ms_max;
        let is_kept_from_its_end = matches!(task.retention, Retention::FromCompletion { .. });
        is_kept_from_its_end.then(|| task.created_at.saturating_add(ttl_ms_max()))
    }

    /// The same as [`Self::dormancy`], of a task whose journal is to be read for it.
    pub(crate) async fn read_dormancy(&self, task: &Task) -> Option<Dormancy> {
        let head = self.store.journal(&task.requestor, task.id).await.ok()?;
        self.dormancy(task, head.as_ref())
    }

    /// What a task without a run waits for. `None`: for nothing, it goes on at once.
    pub(crate) fn dormancy(&self, task: &Task, head: Option<&JournalHead>) -> Option<Dormancy> {
        let wake_at = head.and_then(|head| head.wake_at);
        let is_asleep = wake_at.is_some_and(|at| at > self.clock.now());
        let was_paused = is_paused(task);
        let waits = was_paused || is_asleep || task.phase == Phase::Active(Active::InputRequired);
        let is_cooperative = head.is_some_and(|head| head.cooperative);
        let steering = task.steering.len();
        waits.then_some(Dormancy { wake_at, is_asleep, is_cooperative, steering, was_paused })
    }
}

/// What is told of a task that did not end within its time.
pub(crate) fn given_up() -> Event {
    let message = "the task did not end within the longest time that a task is kept".to_owned();
    let error = CallError::Fault { kind: FaultKind::Deadline, reason: message.clone() };
    Event::Abandon { error, message }
}

impl Tasks {
    /// Wakes sleepers, and ends tasks that are over their time, until dropped.
    pub(crate) async fn look_after_dormant(&self) {
        let inner = &self.inner;
        loop {
            let now = inner.clock.now();
            let (due, next) = inner.deadlines.take_due(now);
            for id in due {
                let Some((run, task)) = inner.watchers.run(id).and_then(|run| Some((Arc::clone(&run), run.task()?)))
                else {
                    continue;
                };
                if inner.gives_up_at(&task).is_some_and(|at| at <= now) {
                    if let Err(ApplyError::Store(error)) = inner.apply(&task.requestor, task.id, given_up(), None).await
                    {
                        tracing::warn!(task.id = %task.id, "a task that is over its time cannot be ended: {error}");
                        let again_ms = u64::try_from(OUTCOME_RETRY.as_millis()).unwrap_or(u64::MAX);
                        inner.deadlines.insert(now.saturating_add(again_ms), task.id);
                    }
                } else {
                    run.sleep_over();
                }
            }
            let wait = next.map_or(Duration::MAX, |at| Duration::from_millis(at.saturating_sub(now)).min(LOOK_EVERY));
            tokio::select! {
                () = inner.deadlines.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}
