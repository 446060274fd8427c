//! A task that waits in the queue, and what its record says when it leaves it.
//!
//! Owns that change of the record. Must not start a guest. Invariant: nothing runs before the record says that it does, under the
//! lease of this host and as an attempt of its own.

use std::sync::Arc;

use super::drive::QueuePlace;
use super::resuming;
use crate::engine::EngineContext;
use crate::engine::change::{Applied, ApplyError};
use crate::parts::admission::{Permit, Purpose};
use crate::parts::journal::Beginning;
use crate::parts::outcome::OUTCOME_RETRY;
use crate::parts::run_state::{Dormancy, Run, Seen, is_paused, is_running};
use bulkhead_domain::lifecycle::{Event, Refusal};
use bulkhead_domain::task::Task;
use bulkhead_domain::timeline::WakeCause;

/// Whether the call of a task that starts is to keep a journal.
async fn keeps_journal(inner: &EngineContext, task: &Task) -> bool {
    let Some(name) = task.work.tool() else { return false };
    inner.executor.tool(&task.plugin, name).await.is_some_and(|tool| inner.health.may_keep_journal(&tool))
}

/// What a task does when it leaves the queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextRun {
    Start,
    /// It goes on where an earlier run was.
    Resume,
    /// The same of one that was dormant.
    Wake(WakeCause),
}

impl NextRun {
    /// What it needs a permit for.
    fn purpose(self) -> Purpose {
        match self {
            Self::Start | Self::Resume => Purpose::Task,
            Self::Wake(_) => Purpose::Wake,
        }
    }

    /// Marks the record as running.
    async fn begin(self, inner: &EngineContext, task: &Task) -> Result<Applied, ApplyError> {
        match self {
            Self::Resume => return resuming::mark_resumed(inner, task, None).await,
            Self::Wake(cause) => return resuming::mark_resumed(inner, task, Some(cause)).await,
            Self::Start => {}
        }
        let durable = match keeps_journal(inner, task).await {
            true => Beginning::of(task, task.starts().saturating_add(1)).marker(0, inner.executor.engine_hash()),
            false => None,
        };
        let event = Event::Start { lease: inner.lease(), durable };
        inner.apply(&task.requestor, task.id, event, None).await
    }
}

/// Whether this host has begun a run since the record said this.
fn is_begun(inner: &EngineContext, before: &Task, task: &Task) -> bool {
    is_running(task) && task.attempt > before.attempt && task.lease.is_some_and(|lease| lease.node == inner.node())
}

/// Waits in the queue, and marks the record as running when this task leaves it. `None`: the task is over.
pub(crate) async fn leave_queue(
    inner: &Arc<EngineContext>,
    run: &Arc<Run>,
    task: &Arc<Task>,
    mut queue_place: Box<QueuePlace>,
) -> Option<(Box<Permit>, Arc<Task>)> {
    let mut seen = run.watch();
    loop {
        let paused = match &*seen.borrow_and_update() {
            Seen::Record(task) if task.outcome().is_none() => is_paused(task),
            Seen::Record(_) | Seen::Gone => return None,
        };
        if paused && let NextRun::Wake(_) = queue_place.next {
            // It has not gone on, so it lies dormant again.
            if let (Some(record), Some(dormancy)) = (run.task(), inner.read_dormancy(task).await) {
                run.leave_memory(Dormancy { was_paused: is_paused(&record), ..dormancy });
                return None;
            }
        }
        if paused {
            queue_place.request = None;
            seen.changed().await.ok()?;
            continue;
        }
        let request = match &mut queue_place.request {
            Some(request) => request,
            None => {
                queue_place.request.insert(inner.admission.enqueue(&task.requestor, queue_place.next.purpose()).ok()?)
            }
        };
        let permit = tokio::select! {
            permit = request.permit() => Box::new(permit?),
            changed = seen.changed() => {
                changed.ok()?;
                continue;
            }
        };
        queue_place.request = None;
        let record = run.task()?;
        // It takes a while, and many wait for it.
        match Box::pin(queue_place.next.begin(inner, &record)).await {
            Ok(applied) => return Some((permit, applied.after)),
            // Its own try before came through, and nobody heard of it; or another run goes on with it.
            Err(ApplyError::Refused(Refusal::Illegal(_))) => {
                inner.catch_up(run, &record).await;
                return run.task().filter(|task| is_begun(inner, &record, task)).map(|task| (permit, task));
            }
            Err(ApplyError::Refused(Refusal::Paused)) => {}
            Err(ApplyError::Refused(_) | ApplyError::NotFound) => return None,
            Err(ApplyError::Store(error)) => {
                // Nothing has run yet: give the permit to somebody who does not need to write, and try again.
                drop(permit);
                tracing::warn!(task.id = %task.id, "a queued task cannot be started: {error}");
                tokio::time::sleep(OUTCOME_RETRY).await;
            }
        }
    }
}
