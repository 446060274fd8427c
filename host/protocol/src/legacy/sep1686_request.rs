//! A request that its client made a task of SEP-1686: the task is announced, and the request is answered all the same.
//!
//! Must not matter to the task: it goes on when nobody waits for the response any more. Only a client that cancels the
//! request cancels the task. Invariant: a client's id names one request; asked for again with the same method and
//! params it is the same task, and with others a refusal.

use std::sync::Arc;

use super::call::{in_flight, unfit};
use super::request::Request;
use super::results::{ReportOptions, ResultWaiter};
use super::server_features::{TaskableRequest, progress_token};
use super::server_requests;
use super::tool_call::Call;
use crate::error::RpcError;
use crate::exchange::{FrameSender, streaming};
use crate::jsonrpc::{RequestId, error_response};
use crate::notifications;
use crate::sep1686::{TaskMetadata, id_in_use};
use crate::session::{InFlight, Session};
use crate::{EncodedMessage, Exchange, ProtocolContext, idempotency};
use bulkhead_domain::call::{CallError, ClientFeature};
use bulkhead_domain::task::{Design, Era, Origin, Outcome, Task, TaskId};
use bulkhead_tasks::{self as tasks, Job, TaskRequest};

/// Starts the exchange of a call.
pub(super) fn call(request: Request<'_>, call: Call, metadata: TaskMetadata) -> Result<Exchange, RpcError> {
    let in_flight = in_flight(&request)?;
    let shared = request.context.shared;
    let session = Arc::clone(request.session);
    let id = request.id;
    Ok(streaming(|frames| async move {
        let augmented = TaskAugmentedRequest { shared, session, frames, id, metadata };
        let progress_token = call.progress_token.clone();
        let reports = ReportOptions { progress_token, are_wanted: true, are_read: call.reads_events };
        let fit = tokio::select! {
            biased;
            () = in_flight.cancelled() => return None,
            fit = call.check(&augmented.shared.tasks) => fit,
        };
        match fit {
            Ok(()) => {
                let origin = call.origin(Design::Sep1686);
                let job = Job::Call(call.request);
                augmented.run(job, origin, reports, &in_flight, None).await
            }
            // What a plain call would say; there is nothing to wait for.
            Err(refusal) => Some(unfit(&augmented.id, refusal)),
        }
    }))
}

/// Starts the exchange of any other request that plugins carry out.
pub(super) fn request(
    request: Request<'_>,
    taskable: TaskableRequest,
    metadata: TaskMetadata,
) -> Result<Exchange, RpcError> {
    let TaskableRequest { fallback_request, uri } = taskable;
    let in_flight = in_flight(&request)?;
    let progress_token = progress_token(request.params)?;
    let are_read = request.reads_events;
    let shared = request.context.shared;
    let session = Arc::clone(request.session);
    let id = request.id;
    Ok(streaming(|frames| async move {
        let mut origin = origin(&session, are_read);
        origin.progress_token.clone_from(&progress_token);
        let augmented = TaskAugmentedRequest { shared, session, frames, id, metadata };
        let reports = ReportOptions { progress_token, are_wanted: true, are_read };
        augmented.run(Job::FallbackRequest(fallback_request), origin, reports, &in_flight, uri).await
    }))
}

/// Where a task that this session asks for comes from. `reads_events`: the client reads what is said before the
/// response.
pub(super) fn origin(session: &Session, reads_events: bool) -> Origin {
    Origin {
        era: Era::Legacy,
        design: Design::Sep1686,
        session: Some(session.digest()),
        features: server_requests::features(session, reads_events).with(ClientFeature::Tasks),
        log_level: Some(session.log_level()),
        progress_token: None,
        trace: None,
    }
}

/// A request that its client made a task.
pub(super) struct TaskAugmentedRequest {
    pub(super) shared: Arc<ProtocolContext>,
    pub(super) session: Arc<Session>,
    pub(super) frames: FrameSender,
    pub(super) id: RequestId,
    pub(super) metadata: TaskMetadata,
}

impl TaskAugmentedRequest {
    /// Makes the task or finds it, and stays with it to its end. `uri` is that of the resource that the request is
    /// about.
    async fn run(
        self,
        job: Job,
        origin: Origin,
        reports: ReportOptions,
        in_flight: &InFlight,
        uri: Option<String>,
    ) -> Option<EncodedMessage> {
        let task = tokio::select! {
            biased;
            // A creation that is given up leaves nothing behind.
            () = in_flight.cancelled() => return None,
            task = self.once(job, origin) => task,
        };
        let task = match task {
            Ok(task) => task,
            Err(error) => return Some(error_response(Some(&self.id), &error)),
        };
        let waiter = self.announced(&task);
        let error = match waiter.outcome(reports, in_flight).await {
            Ok(Some(task)) => match (task.outcome(), uri) {
                (Some(Outcome::Error(CallError::NotFound(_))), Some(uri)) => RpcError::resource_not_found(&uri),
                _ => return Some(waiter.response(&self.id, &task).await),
            },
            Ok(None) => {
                if in_flight.is_cancelled_by_client() {
                    self.cancel(task.id).await;
                }
                return None;
            }
            Err(error) => error.into(),
        };
        Some(error_response(Some(&self.id), &error))
    }

    /// The task, made now or before.
    pub(super) async fn once(&self, job: Job, origin: Origin) -> Result<Arc<Task>, RpcError> {
        let tasks = &self.shared.tasks;
        let requestor = self.session.requestor();
        // An id of the host's must stay the name of its own task.
        if let Some(id) = TaskId::parse(&self.metadata.task_id) {
            match tasks.get(requestor, id).await {
                Ok(_) => return Err(id_in_use()),
                Err(tasks::Error::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let request = TaskRequest { job, origin, ttl: self.metadata.ttl };
        idempotency::made_once(tasks, requestor, request, &self.metadata.alias()).await?.ok_or_else(id_in_use)
    }

    /// Says that the task is there to be looked at.
    pub(super) fn announced(&self, task: &Task) -> ResultWaiter {
        self.frames.send(notifications::created(task));
        ResultWaiter::new(Arc::clone(&self.shared), Arc::clone(&self.session), self.frames.clone(), task)
    }

    async fn cancel(&self, id: TaskId) {
        match self.shared.tasks.cancel(self.session.requestor(), id).await {
            Ok(_) | Err(tasks::Error::Ended | tasks::Error::NotFound) => {}
            // Nobody can be answered any more; its client polls and sees that the task goes on.
            Err(error) => tracing::warn!(task.id = %id, "a task could not be cancelled: {error}"),
        }
    }
}
