//! A task whose permit is there, and what its record says when it leaves the queue.
//!
//! Owns that change of the record, and the reading of the record before it: a task that waits has none in memory. Must
//! not start a guest. Invariant: nothing runs before the record says that it does, under the lease of this host and as
//! an attempt of its own.

use std::sync::Arc;

use super::resuming;
use crate::engine::EngineContext;
use crate::engine::change::{Applied, ApplyError};
use crate::parts::admission::{Permit, QueueNumber};
use crate::parts::journal::Beginning;
use crate::parts::outcome::OUTCOME_RETRY;
use crate::parts::resting::{NextRun, QueuedRun, Rest};
use crate::parts::run_state::{Run, TakenUp, is_paused, is_running};
use bulkhead_domain::lifecycle::{Event, Refusal};
use bulkhead_domain::task::Task;
use bulkhead_store as store;

/// A queued task, and the permit that it has got.
pub(crate) struct AdmittedRun {
    pub(crate) queued: Box<QueuedRun>,
    pub(crate) permit: Permit,
    /// Of its place in the queue.
    pub(crate) number: Option<QueueNumber>,
}

/// Whether the call of a task that starts is to keep a journal.
async fn keeps_journal(inner: &EngineContext, task: &Task) -> bool {
    let Some(name) = task.work.tool() else { return false };
    inner.executor.tool(&task.plugin, name).await.is_some_and(|tool| inner.health.may_keep_journal(&tool))
}

/// Marks the record as running.
async fn begin(next: NextRun, inner: &EngineContext, task: &Task) -> Result<Applied, ApplyError> {
    match next {
        NextRun::Resume => return resuming::mark_resumed(inner, task, None).await,
        NextRun::Wake(cause, _) => return resuming::mark_resumed(inner, task, Some(cause)).await,
        NextRun::Start => {}
    }
    let durable = match keeps_journal(inner, task).await {
        true => Beginning::of(task, task.starts().saturating_add(1)).marker(0, inner.executor.engine_hash()),
        false => None,
    };
    let event = Event::Start { lease: inner.lease(), durable };
    inner.apply(&task.requestor, task.id, event, None).await
}

/// Whether this host has begun a run since the task was this attempt.
fn is_begun(inner: &EngineContext, before: u32, task: &Task) -> bool {
    is_running(task) && task.attempt > before && task.lease.is_some_and(|lease| lease.node == inner.node())
}

/// Reads the record of a task that is admitted, which something drives from then on. `None`: the task is over, or waits
/// again.
pub(crate) async fn take_up(
    inner: &Arc<EngineContext>,
    run: &Run,
    admitted: AdmittedRun,
) -> Option<(AdmittedRun, Arc<Task>)> {
    let id = run.task_ref.id;
    let wake_at = admitted.queued.next.wake_at();
    let AdmittedRun { mut queued, mut permit, number } = admitted;
    if let Err(error) = permit.confirm().await {
        tracing::debug!(task.id = %id, "a task waits again for its permit: {error}");
        // Others may use it meanwhile.
        drop(permit);
        queued.number = number;
        inner.watchers.follow(run, run.rest_again(Rest::Queued(queued)));
        return None;
    }
    let admitted = AdmittedRun { queued, permit, number };
    loop {
        let error = match inner.store.get(&run.task_ref.requestor, id).await {
            Ok(Some(task)) => {
                let task = Arc::new(task);
                match run.take_up(&task) {
                    TakenUp::Driven => {
                        inner.forget_deadlines(run, wake_at);
                        return Some((admitted, task));
                    }
                    TakenUp::Outdated => continue,
                    TakenUp::Gone => break,
                }
            }
            Ok(None) | Err(store::Error::Lost) => break,
            Err(error) => error,
        };
        tracing::warn!(task.id = %id, "a queued task cannot be started: {error}");
        if let store::Error::Corrupt(_) = error {
            break;
        }
        // Another task may have the permit meanwhile.
        drop(admitted.permit);
        tokio::time::sleep(OUTCOME_RETRY).await;
        inner.watchers.follow(run, run.rest_again(Rest::Queued(admitted.queued)));
        return None;
    }
    inner.forget_deadlines(run, wake_at);
    inner.watchers.end(id);
    None
}

/// Marks the record of a task as running that leaves the queue. `None`: the task is over, or [is to wait
/// again](Run::leave).
pub(crate) async fn leave_queue(
    inner: &Arc<EngineContext>,
    run: &Run,
    admitted: AdmittedRun,
) -> Option<(Box<Permit>, Arc<Task>)> {
    let AdmittedRun { mut queued, permit, .. } = admitted;
    let record = run.task().filter(|task| task.outcome().is_none())?;
    let before = queued.tried_from.unwrap_or(record.attempt);
    if is_paused(&record) {
        run.leave(Rest::Queued(queued));
        return None;
    }
    // It takes a while, and many wait for it.
    match Box::pin(begin(queued.next, inner, &record)).await {
        Ok(applied) => return Some((Box::new(permit), applied.after)),
        // Its own try before came through, and nobody heard of it; or another run goes on with it.
        Err(ApplyError::Refused(Refusal::Illegal(_))) => {
            inner.catch_up(run, &record).await;
            let begun = run.task().filter(|task| is_begun(inner, before, task));
            return begun.map(|task| (Box::new(permit), task));
        }
        Err(ApplyError::Refused(Refusal::Paused)) => {}
        Err(ApplyError::Refused(_) | ApplyError::NotFound) => return None,
        Err(ApplyError::Store(error)) => {
            // Nothing has run yet: another task may have the permit that does not need to write.
            drop(permit);
            queued.tried_from = Some(before);
            tracing::warn!(task.id = %record.id, "a queued task cannot be started: {error}");
            tokio::time::sleep(OUTCOME_RETRY).await;
        }
    }
    run.leave(Rest::Queued(queued));
    None
}
