//! The guest behind a plain call, or another request to a plugin: cancelled when nobody wants it any more, made a task
//! without losing anything.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::error::RpcError;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Origin, Task};
use bulkhead_tasks::{CallNews, ClientContext, Error, PlainCall, RequestedTtl, TaskRequest, Tasks};
use bulkhead_traces::InSpan as _;

/// A plain call. Dropping it cancels it, with the grace period of a guest that looks for signals.
pub(super) struct CallHandle(Option<PlainCall>);

impl CallHandle {
    pub(super) fn new(call: PlainCall) -> Self {
        Self(Some(call))
    }

    /// What happens next; after `Finished` nothing does.
    pub(super) async fn next(&mut self) -> CallNews {
        let Some(call) = &mut self.0 else { return std::future::pending().await };
        let news = call.next().await;
        if matches!(news, CallNews::Finished(_)) {
            self.0 = None;
        }
        news
    }

    /// Another request listens from now on.
    pub(super) fn set_client(&self, client: ClientContext) {
        if let Some(call) = &self.0 {
            call.set_client(client);
        }
    }

    /// Parks the call until the next request continues it.
    pub(super) fn park(&mut self) {
        if let Some(call) = &mut self.0 {
            call.park();
        }
    }

    /// Makes a task of it. When that is refused the call goes on as it is, and comes back.
    pub(super) async fn promote(
        mut self,
        tasks: &Tasks,
        requestor: Requestor,
        origin: Origin,
    ) -> Result<Result<Arc<Task>, Self>, RpcError> {
        let Some(call) = self.0.take() else {
            return Err(RpcError::host_failure(format_args!("a call that is over cannot become a task")));
        };
        let promoted = async move {
            match call.promote(origin, RequestedTtl::Default).await {
                Ok(task) => Made::Task(task),
                Err((call, error)) => {
                    tracing::debug!(%error, "a call goes on plainly, because it cannot become a task");
                    Made::Other(Ok(Self::new(call)))
                }
            }
        };
        match making(tasks, requestor, promoted).await? {
            Made::Task(task) => Ok(Ok(task)),
            Made::Other(Ok(guest)) => Ok(Err(guest)),
            Made::Other(Err(error)) => Err(error.into()),
        }
    }
}

impl Drop for CallHandle {
    fn drop(&mut self) {
        // Without a runtime there is no grace period: dropping the call stops it.
        if let Some(call) = self.0.take().filter(|_| tokio::runtime::Handle::try_current().is_ok()) {
            call.cancel();
        }
    }
}

/// Makes a task from the start.
pub(super) async fn create(tasks: &Tasks, requestor: Requestor, request: TaskRequest) -> Result<Arc<Task>, RpcError> {
    let engine = tasks.clone();
    let created = async move {
        match engine.create(&requestor, request).await {
            Ok(task) => Made::Task(task),
            Err(error) => Made::Other(Err(error)),
        }
    };
    match making(tasks, requestor, created).await? {
        Made::Task(task) => Ok(task),
        Made::Other(Err(error)) => Err(error.into()),
        Made::Other(Ok(_)) => Err(RpcError::host_failure(format_args!("a task that was not created is a call"))),
    }
}

enum Made {
    Task(Arc<Task>),
    /// No task: the call as it was, or why.
    Other(Result<CallHandle, Error>),
}

/// Writes a task's record to the end once it is begun, even if the exchange is dropped meanwhile: a record that was
/// half waited for would be a task without a run. A task that nobody is there to be told of is removed again.
async fn making(
    tasks: &Tasks,
    requestor: Requestor,
    work: impl Future<Output = Made> + Send + 'static,
) -> Result<Made, RpcError> {
    let (sender, receiver) = oneshot::channel();
    let tasks = tasks.clone();
    // The task belongs to the trace of its request.
    let work = Box::pin(work).in_span(bulkhead_traces::current());
    tokio::spawn(async move {
        if let Err(Made::Task(task)) = sender.send(work.await)
            && let Err(error) = tasks.discard(&requestor, task.id).await
        {
            tracing::warn!(task.id = %task.id, %error, "a task that nobody knows could not be removed");
        }
    });
    receiver.await.map_err(|_| RpcError::host_failure(format_args!("the making of a task broke")))
}
