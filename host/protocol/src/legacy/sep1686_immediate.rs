//! Tasks of SEP-1686 that are over when they are made: what the host answers itself is immediate, and the answer is
//! kept.
//!
//! Invariant: nothing is done for a request whose id belongs to another one, and what is refused makes no task.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt as _;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::dispatch::dispatch;
use super::request::Request;
use super::sep1686_request::{TaskAugmentedRequest, origin};
use crate::error::RpcError;
use crate::exchange::streaming;
use crate::jsonrpc::{self, error_response};
use crate::methods::Method;
use crate::operation::RequestTarget;
use crate::request_context::RequestContext;
use crate::sep1686::{TaskMetadata, id_in_use};
use crate::{EncodedMessage, Exchange, idempotency};
use bulkhead_domain::Json;
use bulkhead_domain::task::Task;
use bulkhead_tasks::Job;

/// Starts the exchange.
pub(super) fn answer(
    method: Method,
    name: &str,
    request: Request<'_>,
    metadata: TaskMetadata,
) -> Result<Exchange, RpcError> {
    let stored_request = stored_request(name, request.params)?;
    let params = request.params.map(Box::<str>::from);
    let context = request.context;
    let session = Arc::clone(request.session);
    let id = request.id;
    Ok(streaming(|frames| async move {
        let shared = Arc::clone(&context.shared);
        let augmented = TaskAugmentedRequest { shared, session, frames, id, metadata };
        match augmented.answer(context, method, stored_request, params).await {
            Ok(response) => response,
            Err(error) => Some(error_response(Some(&augmented.id), &error)),
        }
    }))
}

/// What tells one request from another: its method, and its params without their metadata.
fn stored_request(name: &str, params: Option<&str>) -> Result<Json, RpcError> {
    #[derive(Serialize)]
    struct StoredRequest<'a> {
        method: &'a str,
        params: BTreeMap<String, &'a RawValue>,
    }
    let mut params: BTreeMap<String, &RawValue> = jsonrpc::params(params)?;
    params.remove("_meta");
    let stored_request = serde_json::to_string(&StoredRequest { method: name, params });
    stored_request
        .map(Json::new)
        .map_err(|error| RpcError::host_failure(format_args!("a request cannot be written: {error}")))
}

impl TaskAugmentedRequest {
    async fn answer(
        &self,
        context: RequestContext,
        method: Method,
        stored_request: Json,
        params: Option<Box<str>>,
    ) -> Result<Option<EncodedMessage>, RpcError> {
        let found = self.found(&stored_request).await?;
        // A session that asks again has to get what it asks for, also when another one has asked before.
        let is_per_session =
            matches!(method, Method::SetLevel | Method::ResourcesSubscribe | Method::ResourcesUnsubscribe);
        if let Some(task) = found.filter(|_| !is_per_session) {
            return Ok(Some(self.announced(&task).response(&self.id, &task).await));
        }
        let Some(response) = self.dispatched(context, method, params.as_deref()).await? else {
            return Ok(None);
        };
        #[derive(Deserialize)]
        struct Response {
            result: Option<Box<RawValue>>,
        }
        let result = serde_json::from_str::<Response>(&response.text()).ok().and_then(|response| response.result);
        let Some(result) = result else { return Ok(Some(response)) };
        let answer = Json::new(result.get());
        let task = self.once(Job::Answered { request: stored_request, answer }, origin(&self.session, true)).await?;
        Ok(Some(self.announced(&task).response(&self.id, &task).await))
    }

    /// The task that was made of the same request before.
    async fn found(&self, stored_request: &Json) -> Result<Option<Arc<Task>>, RpcError> {
        let tasks = &self.shared.tasks;
        let requestor = self.session.requestor();
        let Some(task) = tasks.named(requestor, &self.metadata.alias()).await? else { return Ok(None) };
        let job = Job::Answered { request: stored_request.clone(), answer: Json::new("{}") };
        match idempotency::is_made_of(tasks, &task, &job.work(), stored_request).await? {
            true => Ok(Some(task)),
            false => {
                tasks.note_name_in_use(requestor, &job.work());
                Err(id_in_use())
            }
        }
    }

    /// The response that the request has without its metadata. `None`: it was cancelled.
    async fn dispatched(
        &self,
        context: RequestContext,
        method: Method,
        params: Option<&str>,
    ) -> Result<Option<EncodedMessage>, RpcError> {
        let session = &self.session;
        let id = self.id.clone();
        // None of these asks the client anything.
        let reads_events = true;
        // The request that it came with is counted as what it was.
        let target = &RequestTarget::default();
        let request = Request { context, session, id, params, reads_events, target };
        let mut exchange = dispatch(method, request)?;
        while let Some(frame) = exchange.next().await {
            if frame.last {
                return Ok(Some(frame.message));
            }
            self.frames.send_line(frame.message);
        }
        Ok(None)
    }
}
