//! Tasks by their ids: create, get, list, cancel, delete, steer, pause, resume.
//!
//! Every task is shown so that the revision of the session can read it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::request::Request;
use super::tool_call::Call;
use crate::arguments::CallRefusal;
use crate::cursor::{self, PAGE, Paged, bad_cursor};
use crate::error::RpcError;
use crate::exchange::deferred;
use crate::jsonrpc::{self, RequestId, error_response, response};
use crate::server_features::Empty;
use crate::session::Session;
use crate::version::Version;
use crate::wire::{Created, ImmediateResponse, OnlyRelated, TaskFace, TaskResult, TaskView};
use crate::{EncodedMessage, Exchange, ProtocolContext, idempotency, sep1686};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Design, Task, TaskId};
use bulkhead_domain::tool::ToolOutput;
use bulkhead_store::ListPosition;
use bulkhead_tasks::{self as tasks, Job, RequestedTtl, TaskRequest};

/// Starts a call as a task. The reply leaves after the record is durable.
pub(super) fn create(request: Request<'_>, call: Call, ttl: RequestedTtl) -> Exchange {
    let shared = request.context.shared;
    replying(request.id, async move {
        // A tool error like that of a plain call, which the requestor fetches like any other result.
        let argument_error = match call.check(&shared.tasks).await {
            Ok(()) => None,
            Err(CallRefusal::ToolError(text)) => Some(ToolOutput::failure(text)),
            Err(CallRefusal::Error(error)) => return Err(error),
        };
        let origin = call.origin(Design::Core2025);
        let session = call.session;
        let tool = call.request.tool.tool.name.clone();
        let job = match argument_error {
            None => Job::Call(call.request),
            Some(output) => Job::Refused(call.request, output),
        };
        let request = TaskRequest { job, origin, ttl };
        let task = match call.idempotency_key {
            Some(key) => idempotency::once(&shared.tasks, session.requestor(), request, &key).await?,
            None => shared.tasks.create(session.requestor(), request).await?,
        };
        let created = Created { task: TaskView::from(&*task), meta: ImmediateResponse { tool } };
        Ok(move |id: &RequestId| response(id, &created))
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    task_id: String,
}

/// A request about one task.
pub(super) struct TaskQuery {
    shared: Arc<ProtocolContext>,
    session: Arc<Session>,
    wire_id: String,
}

impl TaskQuery {
    pub(super) fn read(request: &Request<'_>) -> Result<Self, RpcError> {
        let named: Named = jsonrpc::params(request.params)?;
        let shared = Arc::clone(&request.context.shared);
        let session = Arc::clone(request.session);
        Ok(Self { shared, session, wire_id: named.task_id })
    }

    /// The task that it names.
    pub(super) async fn task(&self) -> Result<Arc<Task>, RpcError> {
        let task = sep1686::find(&self.shared.tasks, self.requestor(), &self.wire_id).await?;
        if knows(&self.session, &task) { Ok(task) } else { Err(tasks::Error::NotFound.into()) }
    }

    fn requestor(&self) -> &Requestor {
        self.session.requestor()
    }
}

/// Sessions of a revision without tasks know those of SEP-1686 only: that was written for all of them.
fn knows(session: &Session, task: &Task) -> bool {
    session.settled.version.has_tasks() || task.design() == Design::Sep1686
}

/// An exchange whose response is a task as it stands after `change`.
fn showing<W>(request: Request<'_>, change: impl FnOnce(TaskQuery) -> W) -> Result<Exchange, RpcError>
where
    W: Future<Output = Result<Arc<Task>, RpcError>> + Send + 'static,
{
    let version = request.session.settled.version;
    let changed = change(TaskQuery::read(&request)?);
    Ok(replying(request.id, async move {
        let task = changed.await?;
        Ok(move |id: &RequestId| response(id, &TaskResult::new(&task, version)))
    }))
}

/// `tasks/get`.
pub(super) fn get(request: Request<'_>) -> Result<Exchange, RpcError> {
    showing(request, |query| async move { query.task().await })
}

/// `tasks/cancel`. The record says `cancelled` before the reply does.
pub(super) fn cancel(request: Request<'_>) -> Result<Exchange, RpcError> {
    showing(request, |query| async move {
        let task = query.task().await?;
        match query.shared.tasks.cancel(query.requestor(), task.id).await {
            Err(tasks::Error::Ended) => Err(over(&*query.task().await?, query.session.settled.version)),
            cancelled => Ok(cancelled?),
        }
    })
}

/// `tasks/steer`: a message for the run, stored before the acknowledgement.
pub(super) fn steer(request: Request<'_>) -> Result<Exchange, RpcError> {
    #[derive(Deserialize)]
    struct Steer {
        message: String,
    }
    let query = TaskQuery::read(&request)?;
    let steer: Steer = jsonrpc::params(request.params)?;
    Ok(replying(request.id, async move {
        let task = query.task().await?;
        query.shared.tasks.steer(query.requestor(), task.id, steer.message).await?;
        Ok(|id: &RequestId| response(id, &Empty {}))
    }))
}

/// `tasks/pause`. This era has no status for it: the one before stays, and the message says it.
pub(super) fn pause(request: Request<'_>) -> Result<Exchange, RpcError> {
    showing(request, |query| async move {
        let task = query.task().await?;
        Ok(query.shared.tasks.pause(query.requestor(), task.id, None).await?)
    })
}

/// `tasks/resume`.
pub(super) fn resume(request: Request<'_>) -> Result<Exchange, RpcError> {
    showing(request, |query| async move {
        let task = query.task().await?;
        Ok(query.shared.tasks.resume(query.requestor(), task.id).await?)
    })
}

/// `tasks/delete`, of SEP-1686: a task that is over goes before its time. Other designs have no such thing.
pub(super) fn delete(request: Request<'_>) -> Result<Exchange, RpcError> {
    let query = TaskQuery::read(&request)?;
    Ok(replying(request.id, async move {
        let task = query.task().await?;
        if task.design() != Design::Sep1686 {
            return Err(RpcError::invalid_params(format!(
                "Only tasks that were created with {} can be deleted; this one is kept for its ttl",
                sep1686::TASK
            )));
        }
        query.shared.tasks.delete(query.requestor(), task.id).await?;
        Ok(move |id: &RequestId| response(id, &OnlyRelated::from(&*task)))
    }))
}

/// Says in which status a task was over already.
fn over(task: &Task, version: Version) -> RpcError {
    let status = TaskFace::new(task, version).status();
    RpcError::invalid_params(format!("Cannot cancel task: already in terminal status '{status}'"))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    tasks: Vec<TaskFace>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// `tasks/list`: newest first.
pub(super) fn list(request: Request<'_>) -> Result<Exchange, RpcError> {
    const METHOD: &str = "tasks/list";
    let paged: Paged = jsonrpc::params(request.params)?;
    let shared = request.context.shared;
    let session = Arc::clone(request.session);
    let requestor = *session.requestor();
    let after = match paged.cursor {
        Some(cursor) => {
            let bytes =
                cursor::verify(&shared.options.cursor_key, METHOD, &requestor, &cursor).ok_or_else(bad_cursor)?;
            Some(position(&bytes).ok_or_else(bad_cursor)?)
        }
        None => None,
    };
    Ok(replying(request.id, async move {
        let mut tasks = shared.tasks.list(&requestor, after, PAGE + 1).await?;
        let more = tasks.len() > PAGE;
        tasks.truncate(PAGE);
        let last = tasks.last().filter(|_| more);
        let next_cursor = last.and_then(|task| {
            let mut bytes = task.created_at.to_be_bytes().to_vec();
            bytes.extend(task.id.0);
            cursor::sign(&shared.options.cursor_key, METHOD, &requestor, &bytes)
        });
        let shown = tasks.iter().filter(|task| knows(&session, task));
        let shown = shown.map(|task| TaskFace::new(task, session.settled.version));
        let page = Page { tasks: shown.collect(), next_cursor };
        Ok(move |id: &RequestId| response(id, &page))
    }))
}

fn position(bytes: &[u8]) -> Option<ListPosition> {
    let (created_at, id) = bytes.split_at_checked(8)?;
    let created_at = u64::from_be_bytes(created_at.try_into().ok()?);
    Some(ListPosition { created_at, id: TaskId(id.try_into().ok()?) })
}

/// An exchange whose only frame is the response.
fn replying<R: FnOnce(&RequestId) -> EncodedMessage>(
    id: RequestId,
    work: impl Future<Output = Result<R, RpcError>> + Send + 'static,
) -> Exchange {
    deferred(async move {
        match work.await {
            Ok(response) => response(&id),
            Err(error) => error_response(Some(&id), &error),
        }
    })
}
