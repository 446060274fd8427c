//! Tasks of the 2025-11-25 core: create, get, list, cancel.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::tools::Call;
use super::{Empty, Request};
use crate::domain::requestor::Requestor;
use crate::domain::task::{Design, Era, Origin, TaskId};
use crate::domain::tool::ToolOutput;
use crate::protocol::arguments::Misfit;
use crate::protocol::cursor::{self, PAGE, Paged, bad_cursor};
use crate::protocol::error::RpcError;
use crate::protocol::exchange::single;
use crate::protocol::jsonrpc::{self, RequestId, error_response, response};
use crate::protocol::wire::{Created, ImmediateResponse, TaskView};
use crate::protocol::{Exchange, Shared, idempotency};
use crate::store::ListPosition;
use crate::tasks::{self, RequestedTtl, TaskRequest};

/// Starts a call as a task. The reply leaves after the record is durable.
pub(super) fn create(request: Request<'_>, mut call: Call, ttl: RequestedTtl) -> Exchange {
    let shared = Arc::clone(request.shared);
    replying(request.id, async move {
        // A tool error like that of a plain call, which the requestor fetches like any other result.
        let output = match call.check().await {
            Ok(()) => None,
            Err(Misfit::Schema(text)) => Some(ToolOutput::failure(text)),
            Err(Misfit::Malformed(error)) => return Err(error),
        };
        let session = call.session;
        let origin = Origin {
            era: Era::Legacy,
            design: Design::Core2025,
            session: Some(session.digest()),
            features: call.request.client.features,
            log_level: call.request.client.log_level,
            progress_token: call.progress_token,
        };
        let tool = call.request.tool.tool.name.clone();
        let request = TaskRequest { call: call.request, origin, ttl, output };
        let task = match call.idempotency_key {
            Some(key) => idempotency::once(&shared.tasks, session.requestor(), request, &key).await?,
            None => {
                let created = shared.tasks.create(session.requestor(), request).await;
                created.map_err(|error| RpcError::from(&error))?
            }
        };
        let created = Created { task: TaskView::from(&task), meta: ImmediateResponse { tool } };
        Ok(move |id: &RequestId| response(id, &created))
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    task_id: String,
}

/// The task that a request names. What is no id at all is answered like an id that nobody has.
pub(super) fn named(request: &Request<'_>) -> Result<TaskId, RpcError> {
    let named: Named = jsonrpc::params(request.params)?;
    TaskId::parse(&named.task_id).ok_or_else(|| RpcError::from(&tasks::Error::NotFound))
}

/// `tasks/get`.
pub(super) fn get(request: Request<'_>) -> Result<Exchange, RpcError> {
    let id = named(&request)?;
    let (shared, requestor) = owned(&request);
    Ok(replying(request.id, async move {
        let task = shared.tasks.get(&requestor, id).await.map_err(|error| RpcError::from(&error))?;
        Ok(move |id: &RequestId| response(id, &TaskView::from(&task)))
    }))
}

/// `tasks/cancel`. The record says `cancelled` before the reply does.
pub(super) fn cancel(request: Request<'_>) -> Result<Exchange, RpcError> {
    let id = named(&request)?;
    let (shared, requestor) = owned(&request);
    Ok(replying(request.id, async move {
        let task = match shared.tasks.cancel(&requestor, id).await {
            Ok(task) => task,
            Err(tasks::Error::Ended) => return Err(over(&shared, &requestor, id).await),
            Err(error) => return Err(RpcError::from(&error)),
        };
        Ok(move |id: &RequestId| response(id, &TaskView::from(&task)))
    }))
}

/// `tasks/steer`: a message for the run, stored before the acknowledgement.
pub(super) fn steer(request: Request<'_>) -> Result<Exchange, RpcError> {
    #[derive(Deserialize)]
    struct Steer {
        message: String,
    }
    let id = named(&request)?;
    let steer: Steer = jsonrpc::params(request.params)?;
    let (shared, requestor) = owned(&request);
    Ok(replying(request.id, async move {
        shared.tasks.steer(&requestor, id, steer.message).await.map_err(|error| RpcError::from(&error))?;
        Ok(|id: &RequestId| response(id, &Empty {}))
    }))
}

/// `tasks/pause`. This era has no status for it: the one before stays, and the message says it.
pub(super) fn pause(request: Request<'_>) -> Result<Exchange, RpcError> {
    let id = named(&request)?;
    let (shared, requestor) = owned(&request);
    Ok(replying(request.id, async move {
        let task = shared.tasks.pause(&requestor, id, None).await.map_err(|error| RpcError::from(&error))?;
        Ok(move |id: &RequestId| response(id, &TaskView::from(&task)))
    }))
}

/// `tasks/resume`.
pub(super) fn resume(request: Request<'_>) -> Result<Exchange, RpcError> {
    let id = named(&request)?;
    let (shared, requestor) = owned(&request);
    Ok(replying(request.id, async move {
        let task = shared.tasks.resume(&requestor, id).await.map_err(|error| RpcError::from(&error))?;
        Ok(move |id: &RequestId| response(id, &TaskView::from(&task)))
    }))
}

/// Says in which status a task was over already.
async fn over(shared: &Shared, requestor: &Requestor, id: TaskId) -> RpcError {
    match shared.tasks.get(requestor, id).await {
        Ok(task) => {
            let status = TaskView::from(&task).status;
            RpcError::invalid_params(format!("Cannot cancel task: already in terminal status '{status}'"))
        }
        Err(error) => RpcError::from(&error),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    tasks: Vec<TaskView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// `tasks/list`: newest first.
pub(super) fn list(request: Request<'_>) -> Result<Exchange, RpcError> {
    const METHOD: &str = "tasks/list";
    let paged: Paged = jsonrpc::params(request.params)?;
    let (shared, requestor) = owned(&request);
    let after = match paged.cursor {
        Some(cursor) => {
            let bytes = cursor::open(&shared.options.cursor_key, METHOD, &requestor, &cursor).ok_or_else(bad_cursor)?;
            Some(position(&bytes).ok_or_else(bad_cursor)?)
        }
        None => None,
    };
    Ok(replying(request.id, async move {
        let mut tasks = shared.tasks.list(&requestor, after, PAGE + 1).await.map_err(|error| RpcError::from(&error))?;
        let more = tasks.len() > PAGE;
        tasks.truncate(PAGE);
        let last = tasks.last().filter(|_| more);
        let next_cursor = last.and_then(|task| {
            let mut bytes = task.created_at.to_be_bytes().to_vec();
            bytes.extend(task.id.0);
            cursor::seal(&shared.options.cursor_key, METHOD, &requestor, &bytes)
        });
        let page = Page { tasks: tasks.iter().map(TaskView::from).collect(), next_cursor };
        Ok(move |id: &RequestId| response(id, &page))
    }))
}

fn position(bytes: &[u8]) -> Option<ListPosition> {
    let (created_at, id) = bytes.split_at_checked(8)?;
    let created_at = u64::from_be_bytes(created_at.try_into().ok()?);
    Some(ListPosition { created_at, id: TaskId(id.try_into().ok()?) })
}

fn owned(request: &Request<'_>) -> (Arc<Shared>, Requestor) {
    (Arc::clone(request.shared), *request.session.requestor())
}

/// An exchange whose only frame is the response.
fn replying<R: FnOnce(&RequestId) -> String>(
    id: RequestId,
    work: impl Future<Output = Result<R, RpcError>> + Send + 'static,
) -> Exchange {
    single(async move {
        match work.await {
            Ok(response) => response(&id),
            Err(error) => error_response(Some(&id), &error),
        }
    })
}
