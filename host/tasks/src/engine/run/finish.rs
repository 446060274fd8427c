//! The end of a run: its outcome, on its way to the record.
//!
//! Invariant: work that was done is not lost to a store that refuses; the outcome is kept until it is written, or the
//! task is gone.

use std::sync::Arc;

use crate::engine::EngineContext;
use crate::engine::change::ApplyError;
use crate::parts::outcome::{OUTCOME_RETRY, line, outcome};
use crate::parts::run_state::Run;
use bulkhead_domain::call::CallError;
use bulkhead_domain::crash_points;
use bulkhead_domain::lifecycle::{Event, Refusal};
use bulkhead_domain::task::{Outcome, Task, TaskOutput};

/// Writes the outcome. A store that refuses is asked again until it takes it or the task is gone: the work was done.
pub(crate) async fn finish(inner: &Arc<EngineContext>, run: &Run, task: &Task, result: Result<TaskOutput, CallError>) {
    let (outcome, message, output) = match result {
        Ok(output) => {
            let (outcome, message) = outcome(&output);
            (outcome, message, Some(Arc::new(output)))
        }
        Err(error) => {
            let message = Some(line(&error.to_string()));
            (Outcome::Error(error), message, None)
        }
    };
    write(inner, run, task, &Event::Finish { attempt: task.attempt, outcome, message }, output).await;
}

/// Commits an end, however often the store refuses. A call that ended just before its pause has an outcome that waits
/// for the resume: a paused task does not complete.
pub(crate) async fn write(
    inner: &Arc<EngineContext>,
    run: &Run,
    task: &Task,
    end: &Event,
    output: Option<Arc<TaskOutput>>,
) {
    let mut warned = false;
    crash_points::reach("finish.before");
    loop {
        match inner.apply(&task.requestor, task.id, end.clone(), output.clone()).await {
            Ok(_) | Err(ApplyError::NotFound) => return crash_points::reach("finish.after"),
            Err(ApplyError::Refused(refusal)) => {
                // The run may have yet to see what the record says: that it is paused, or over.
                inner.catch_up(run, task).await;
                if refusal != Refusal::Paused {
                    return;
                }
                run.resumed().await;
            }
            Err(ApplyError::Store(error)) => {
                if !std::mem::replace(&mut warned, true) {
                    tracing::warn!(task.id = %task.id, "an outcome cannot be written and is kept in memory: {error}");
                }
                tokio::time::sleep(OUTCOME_RETRY).await;
            }
        }
    }
}
