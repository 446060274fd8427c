//! Tasks that nothing drives, because their calls have left memory or wait for a permit: how they come there, and when
//! they go on.
//!
//! Owns what the engine does for a task that rests: it holds no instance, no permit, no record and nothing that runs.
//! Must not start a guest. Invariants: a call leaves memory in one step with its record, after everything that it has
//! seen is kept; and what happens to the record meanwhile is looked at again once the task rests, so that no wake is
//! lost.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::change::{Applied, ApplyError, Author, Step};
use crate::engine::{EngineContext, Tasks};
use crate::parts::journal::TaskJournal;
use crate::parts::outcome::OUTCOME_RETRY;
use crate::parts::resting::{Dormancy, Followup, Rest};
use crate::parts::run_state::{Run, is_paused};
use bulkhead_calls::Fenced;
use bulkhead_domain::UnixMs;
use bulkhead_domain::call::{CallError, FaultKind};
use bulkhead_domain::lifecycle::{Event, Refusal};
use bulkhead_domain::task::{Active, Phase, PluginVersion, Retention, Task};
use bulkhead_store::journal::{JournalHead, TaskRef};

/// How long the end of a sleep may be late after a jump of the clock.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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
    pub(crate) fn rest(&self, run: &Run, plugin: &PluginVersion, rest: Rest) {
        for at in [rest.wake_at(), run.gives_up_at].into_iter().flatten() {
            self.deadlines.insert(at, run.task_ref.id);
        }
        self.watchers.follow(run, run.rest(self.watchers.shared_version(plugin), rest));
    }

    /// Nothing looks any more at what the run waited for.
    pub(crate) fn forget_deadlines(&self, run: &Run, wake_at: Option<UnixMs>) {
        for at in [wake_at, run.gives_up_at].into_iter().flatten() {
            self.deadlines.remove(at, run.task_ref.id);
        }
    }

    /// Does what a change of its record means for a task that rests.
    pub(crate) fn follow_up(&self, run: &Run, followup: Followup) {
        match followup {
            Followup::Enqueue { purpose, enqueue, number } => {
                let entry = self.admission.enqueue_task(run.task_ref, purpose, number);
                drop(run.keep_entry(entry, enqueue));
            }
            Followup::LeaveQueue(entry) => drop(entry),
            Followup::End(rest) => {
                self.forget_deadlines(run, rest.wake_at());
                self.watchers.end(run.task_ref.id);
            }
        }
    }

    /// When a task is ended that is kept from its end on, and does not come to it.
    pub(crate) fn gives_up_at(&self, task: &Task) -> Option<UnixMs> {
        let ttl_ms_max = || self.admission.limits(&task.requestor).ttl_ms_max;
        let is_kept_from_its_end = matches!(task.retention, Retention::FromCompletion { .. });
        is_kept_from_its_end.then(|| task.created_at.saturating_add(ttl_ms_max()))
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
                let Some(run) = inner.watchers.run(id) else { continue };
                if run.gives_up_at.is_none_or(|at| at > now) {
                    inner.watchers.follow(&run, run.end_sleep());
                    continue;
                }
                let given_up = inner.apply(&run.task_ref.requestor, id, given_up(), None).await;
                if let Err(ApplyError::Store(error)) = given_up {
                    tracing::warn!(task.id = %id, "a task that is over its time cannot be ended: {error}");
                    let again_ms = u64::try_from(OUTCOME_RETRY.as_millis()).unwrap_or(u64::MAX);
                    inner.deadlines.insert(now.saturating_add(again_ms), id);
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
