//! What calls and tasks say of themselves while they run.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::error::incident;
use bulkhead_calls::Returned;
use bulkhead_domain::Json;
use bulkhead_domain::call::{CallError, InputRequest, InputRequestError, InputResponse, LogLevel};
use bulkhead_domain::task::{Task, TaskId};

/// What a plain call says while it runs.
#[derive(Debug)]
pub enum CallNews {
    Progress {
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    },
    Log {
        level: LogLevel,
        logger: Option<String>,
        data: Json,
    },
    /// The guest would rather be a task, or there is the place for it that a promotion did not find:
    /// [`PlainCall::promote`](crate::PlainCall::promote) it, or go on.
    Detach,
    /// Must be replied to; dropping the reply tells the guest that no client can be reached.
    InputRequests {
        requests: Vec<InputRequest>,
        reply: oneshot::Sender<Result<Vec<InputResponse>, InputRequestError>>,
    },
    /// Always last. [`of_kind`] takes out of it what was asked for.
    Finished(Result<Returned, CallError>),
}

/// What happens to tasks, for watchers. What comes too fast is dropped, oldest first (`broadcast` says so): read the
/// task again.
#[derive(Clone, Debug)]
pub enum TaskNews {
    /// There is a new one, as it was written first.
    Created(TaskId),
    /// The record after a commit.
    Changed(Arc<Task>),
    /// Expired or removed.
    Gone(TaskId),
    Progress {
        id: TaskId,
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    },
    Log {
        id: TaskId,
        level: LogLevel,
        logger: Option<String>,
        data: Json,
    },
}

/// What was asked for, out of what a plugin gave back.
///
/// # Errors
///
/// It belongs to another operation.
pub fn of_kind<T: TryFrom<Returned>>(returned: Returned) -> Result<T, CallError> {
    T::try_from(returned).map_err(|_| {
        let incident = incident();
        tracing::error!(incident, "an operation gave back what belongs to another one");
        CallError::Internal { incident }
    })
}
