//! The end of a task: `tasks/result` waits for it, and carries the task's questions and reports meanwhile. So does the
//! request that became a task of SEP-1686 (see `augmented`), whose own `tasks/result` never waits.

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::call::in_flight;
use super::request::Request;
use super::server_requests::SentInputRequests;
use super::tasks::TaskQuery;
use crate::error::RpcError;
use crate::exchange::{FrameSender, streaming};
use crate::jsonrpc::{RequestId, error_response, response};
use crate::notifications::{self, ProgressReports};
use crate::session::{InFlight, Session};
use crate::wire::{RelatedTask, TaskFace, TaskOutputView, task_output};
use crate::{EncodedMessage, Exchange, ProtocolContext};
use bulkhead_domain::Json;
use bulkhead_domain::task::{Design, Outcome, Task, TaskId};
use bulkhead_tasks::{self as tasks, TaskNews};

/// `tasks/result`.
pub(super) fn result(request: Request<'_>) -> Result<Exchange, RpcError> {
    let query = TaskQuery::read(&request)?;
    let in_flight = in_flight(&request)?;
    let shared = request.context.shared;
    let session = Arc::clone(request.session);
    let id = request.id;
    let reads_events = request.reads_events;
    Ok(streaming(|frames| async move {
        let task = match query.task().await {
            Ok(task) if task.design() == Design::Sep1686 => {
                return Some(completed(&shared, &session, &id, &task).await);
            }
            Ok(task) => task,
            Err(error) => return Some(error_response(Some(&id), &error)),
        };
        let is_creator = task.origin.session == Some(session.digest());
        let progress_token = task.origin.progress_token.clone();
        let reports = ReportOptions { progress_token, are_wanted: is_creator, are_read: reads_events };
        let waiter = ResultWaiter::new(shared, session, frames, &task);
        match waiter.outcome(reports, &in_flight).await {
            Ok(Some(task)) => Some(waiter.response(&id, &task).await),
            Ok(None) => None,
            Err(error) => Some(error_response(Some(&id), &error.into())),
        }
    }))
}

/// SEP-1686: only a completed task has a result, and a request for one does not wait.
async fn completed(
    shared: &Arc<ProtocolContext>,
    session: &Arc<Session>,
    id: &RequestId,
    task: &Task,
) -> EncodedMessage {
    match task.outcome() {
        Some(Outcome::Output { .. }) => {
            ResultWaiter::new(Arc::clone(shared), Arc::clone(session), FrameSender::default(), task)
                .response(id, task)
                .await
        }
        Some(Outcome::Error(_) | Outcome::Cancelled) | None => {
            let status = TaskFace::new(task, session.settled.version).status();
            let text = format!("Cannot retrieve result: Task status is '{status}', not 'completed'");
            error_response(Some(id), &RpcError::invalid_params(text))
        }
    }
}

/// What of a task's progress and logs belongs on the stream of a request.
pub(super) struct ReportOptions {
    pub(super) progress_token: Option<Json>,
    pub(super) are_wanted: bool,
    /// Whether the client reads what is said before the response.
    pub(super) are_read: bool,
}

/// A request that is answered with what a task comes to.
pub(super) struct ResultWaiter {
    shared: Arc<ProtocolContext>,
    session: Arc<Session>,
    frames: FrameSender,
    id: TaskId,
    related: RelatedTask,
}

enum Next {
    News(Result<TaskNews, RecvError>),
    /// Another stream closed, or an offer came to its end: look again at who asks what.
    Look,
    Cancelled,
}

impl ResultWaiter {
    pub(super) fn new(shared: Arc<ProtocolContext>, session: Arc<Session>, frames: FrameSender, task: &Task) -> Self {
        Self { shared, session, frames, id: task.id, related: RelatedTask::from(task) }
    }

    /// The task once it is over; `None` when the client does not want to know any more.
    pub(super) async fn outcome(
        &self,
        reports: ReportOptions,
        in_flight: &InFlight,
    ) -> Result<Option<Arc<Task>>, tasks::Error> {
        let (task, news) = self.shared.tasks.watch(self.session.requestor(), self.id).await?;
        if task.outcome().is_some() {
            return Ok(Some(task));
        }
        self.wait(task, news, reports, in_flight).await
    }

    async fn wait(
        &self,
        mut task: Arc<Task>,
        mut news: Receiver<TaskNews>,
        reports: ReportOptions,
        in_flight: &InFlight,
    ) -> Result<Option<Arc<Task>>, tasks::Error> {
        let stream_router = &self.shared.stream_router;
        let digest = self.session.digest();
        let mut closings = stream_router.closings();
        // What nobody would read is left to other streams.
        let waiter = reports.are_read.then(|| stream_router.wait(self.id, digest, self.session.settled.features));
        let carries = || reports.are_wanted && waiter.as_ref().is_some_and(|waiter| waiter.carries(digest));
        let mut offers = SentInputRequests::new(&self.shared, &self.session, self.frames.clone());
        let mut progress = ProgressReports::new(reports.progress_token.clone(), Some(self.related.clone()));
        let mut askable = pin!(self.session.askable());
        let mut asks = false;
        loop {
            let next = tokio::select! {
                biased;
                () = in_flight.cancelled() => Next::Cancelled,
                () = &mut askable, if !asks => {
                    asks = true;
                    if let Some(waiter) = &waiter {
                        offers.update(&task, |key, kind| waiter.claim(key, kind, true));
                    }
                    continue;
                }
                news = news.recv() => Next::News(news),
                () = offers.settle() => Next::Look,
                // Fails only when the sender is gone, and that lives as long as we do.
                _ = closings.changed() => Next::Look,
            };
            match next {
                Next::Cancelled => return Ok(None),
                Next::Look => {}
                Next::News(Ok(TaskNews::Changed(changed))) => task = changed,
                Next::News(Ok(TaskNews::Created(_))) => continue,
                Next::News(Ok(TaskNews::Gone(_))) => return Err(tasks::Error::NotFound),
                Next::News(Ok(TaskNews::Progress { progress: at, total, message, .. })) => {
                    if carries() {
                        self.frames.send(progress.report(at, total, message.as_deref()));
                    }
                    continue;
                }
                Next::News(Ok(TaskNews::Log { level, logger, data, .. })) => {
                    if level >= self.session.log_level() && carries() {
                        self.frames.send(notifications::log(level, logger.as_deref(), &data, Some(&self.related)));
                    }
                    continue;
                }
                Next::News(Err(RecvError::Lagged(_))) => {
                    task = self.shared.tasks.get(self.session.requestor(), self.id).await?;
                }
                Next::News(Err(RecvError::Closed)) => return Err(tasks::Error::draining()),
            }
            if task.outcome().is_some() {
                offers.close(self.id);
                stream_router.over(self.id);
                return Ok(Some(task));
            }
            if let Some(waiter) = waiter.as_ref().filter(|_| asks) {
                offers.update(&task, |key, kind| waiter.claim(key, kind, false));
            }
        }
    }

    /// What the request would have been answered with, had it been a plain one.
    pub(super) async fn response(&self, id: &RequestId, task: &Task) -> EncodedMessage {
        let error = match task.outcome() {
            Some(Outcome::Output { .. }) => match self.shared.tasks.output(self.session.requestor(), self.id).await {
                Ok(output) => {
                    let version = self.session.settled.version;
                    let related = self.related.clone().of_result(version);
                    let output = task_output(&output, version);
                    return response(id, &TaskOutputView { output: &output, related: &related });
                }
                Err(error) => error.into(),
            },
            Some(Outcome::Error(error)) => RpcError::from(error),
            Some(Outcome::Cancelled) => RpcError::task_cancelled(&self.related),
            None => RpcError::host_failure(format_args!("task {} was taken for ended", self.id)),
        };
        error_response(Some(id), &error)
    }
}
