//! A plain `tools/call` under an idempotency key: made once, and found again by a repeated request.
//!
//! To its client it is a plain call like any other: its notifications and input requests come on its own stream, its
//! output is the response. But it has a record from the start and goes on without its client; only one that cancels the
//! request cancels the call.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::call::{StreamedRequest, in_flight, unfit};
use super::request::Request;
use super::tool_call::Call;
use crate::error::RpcError;
use crate::exchange::streaming;
use crate::jsonrpc::{RequestId, error_response, response};
use crate::notifications::{self, ProgressReports};
use crate::session::InFlight;
use crate::wire::{OutputView, tool_output};
use crate::{EncodedMessage, Exchange, idempotency};
use bulkhead_domain::call::{CallError, InputRequestError, InputResponse};
use bulkhead_domain::task::{Active, Design, Origin, Outcome, Phase, Task, TaskOutput};
use bulkhead_tasks::{self as tasks, Job, RequestedTtl, TaskNews, TaskRequest};

/// Starts the exchange.
pub(super) fn call(request: Request<'_>, call: Call, key: String) -> Result<Exchange, RpcError> {
    let in_flight = in_flight(&request)?;
    let shared = request.context.shared;
    let session = request.session.clone();
    let id = request.id;
    Ok(streaming(|frames| async move {
        let streamed = StreamedRequest { shared, session, frames, reads_events: call.reads_events };
        let started = async {
            match call.check(&streamed.shared.tasks).await {
                Ok(()) => streamed.once(call, &key).await.map_err(|error| error_response(Some(&id), &error)),
                Err(refusal) => Err(unfit(&id, refusal)),
            }
        };
        let started = tokio::select! {
            biased;
            // A creation that is given up leaves nothing behind.
            () = in_flight.cancelled() => return None,
            started = started => started,
        };
        match started {
            Ok((call, task, news)) => streamed.follow(&id, call, task, news, &in_flight).await,
            Err(response) => Some(response),
        }
    }))
}

/// Questions of the call that its client was asked.
struct PendingTaskInput {
    keys: Vec<String>,
    answers: BoxFuture<'static, Result<Vec<InputResponse>, InputRequestError>>,
}

enum Next {
    News(Result<TaskNews, RecvError>),
    Answers(Result<Vec<InputResponse>, InputRequestError>),
    Cancelled,
}

impl StreamedRequest {
    /// Makes the call or finds it; its news are heard from here on.
    async fn once(&self, call: Call, key: &str) -> Result<(ProgressReports, Arc<Task>, Receiver<TaskNews>), RpcError> {
        let progress = ProgressReports::new(call.progress_token.clone(), None);
        // No session's: nothing of it is said anywhere but here.
        let origin = Origin { session: None, ..idempotency::heard_by_all(call.origin(Design::Core2025)) };
        let request = TaskRequest { job: Job::Call(call.request), origin, ttl: RequestedTtl::Default };
        let tasks = &self.shared.tasks;
        let requestor = self.session.requestor();
        let id = idempotency::once(tasks, requestor, request, key).await?.id;
        let (task, news) = tasks.watch(requestor, id).await?;
        Ok((progress, task, news))
    }

    /// Carries what the call says and asks until it is over; `None` when the client cancelled the request.
    async fn follow(
        &self,
        id: &RequestId,
        mut progress: ProgressReports,
        mut task: Arc<Task>,
        mut news: Receiver<TaskNews>,
        in_flight: &InFlight,
    ) -> Option<EncodedMessage> {
        let mut asking: Option<PendingTaskInput> = None;
        loop {
            if let Some(ended) = self.ended(id, &task).await {
                return Some(ended);
            }
            self.keep_asking(&task, &mut asking);
            let next = tokio::select! {
                biased;
                () = in_flight.cancelled() => Next::Cancelled,
                answers = answers(&mut asking) => Next::Answers(answers),
                news = news.recv() => Next::News(news),
            };
            let changed = match next {
                Next::Cancelled => {
                    if in_flight.is_cancelled_by_client() {
                        self.cancel(&task).await;
                    }
                    return None;
                }
                Next::Answers(answers) => self.answer(&task, asking.take(), answers).await,
                Next::News(news) => self.hear(news, &task, &mut progress).await,
            };
            match changed {
                Ok(Some(changed)) if changed.revision >= task.revision => task = changed,
                Ok(_) => {}
                Err(error) => return Some(error_response(Some(id), &error)),
            }
        }
    }

    /// The response, if the call is over.
    async fn ended(&self, id: &RequestId, task: &Task) -> Option<EncodedMessage> {
        let error = match task.outcome()? {
            Outcome::Output { .. } => match self.shared.tasks.output(self.session.requestor(), task.id).await {
                Ok(TaskOutput::Tool(output)) => {
                    let output = tool_output(&output, self.session.settled.version);
                    return Some(response(id, &OutputView { output: &output, related: None }).of_tool(output.is_error));
                }
                Ok(_) => RpcError::host_failure(format_args!("task {} is no call of a tool", task.id)),
                Err(error) => error.into(),
            },
            Outcome::Error(error) => RpcError::from(error),
            Outcome::Cancelled => idempotency::cancelled(),
        };
        Some(error_response(Some(id), &error))
    }

    /// Asks what waits for an answer, and withdraws what was answered elsewhere.
    fn keep_asking(&self, task: &Task, asking: &mut Option<PendingTaskInput>) {
        let is_outstanding = |key: &String| task.outstanding().any(|input| input.issued_key == *key);
        if asking.as_ref().is_some_and(|asking| !asking.keys.iter().any(is_outstanding)) {
            *asking = None;
        }
        if task.phase == Phase::Active(Active::InputRequired) && asking.is_none() {
            let inputs = || task.outstanding();
            let requests = inputs().map(|input| input.request.clone()).collect();
            let answers = Box::pin(self.ask(requests));
            *asking =
                Some(PendingTaskInput { keys: inputs().map(|input| input.issued_key.clone()).collect(), answers });
        }
    }

    /// Hands answers on. Without them the questions wait for the next request with the key.
    async fn answer(
        &self,
        task: &Task,
        pending: Option<PendingTaskInput>,
        answers: Result<Vec<InputResponse>, InputRequestError>,
    ) -> Result<Option<Arc<Task>>, RpcError> {
        let answers = answers.map_err(|error| match error {
            InputRequestError::Unsupported(feature) => RpcError::from(&CallError::MissingCapability(feature)),
            InputRequestError::Invalid(_) | InputRequestError::Unreachable(_) | InputRequestError::Cancelled => {
                RpcError::invalid_request(
                    "No answer came to what the call asks; it waits, and asks again when it is repeated under its key",
                )
            }
        })?;
        let tasks = &self.shared.tasks;
        let requestor = self.session.requestor();
        let mut changed = None;
        for (key, answer) in pending.into_iter().flat_map(|pending| pending.keys).zip(answers) {
            let answered = match tasks.answer(requestor, task.id, &key, answer).await {
                Err(tasks::Error::Ended) => tasks.get(requestor, task.id).await,
                answered => answered,
            };
            changed = Some(answered?);
        }
        Ok(changed)
    }

    /// The record, if it changed; everything else goes to the stream, as for any plain call.
    async fn hear(
        &self,
        news: Result<TaskNews, RecvError>,
        task: &Task,
        progress: &mut ProgressReports,
    ) -> Result<Option<Arc<Task>>, RpcError> {
        match news {
            Ok(TaskNews::Changed(changed)) => return Ok(Some(changed)),
            Ok(TaskNews::Progress { progress: at, total, message, .. }) => {
                self.frames.send(progress.report(at, total, message.as_deref()));
            }
            Ok(TaskNews::Log { level, logger, data, .. }) if level >= self.session.log_level() => {
                self.frames.send(notifications::log(level, logger.as_deref(), &data, None));
            }
            Ok(TaskNews::Log { .. } | TaskNews::Created(_)) => {}
            Ok(TaskNews::Gone(_)) => return Err(tasks::Error::NotFound.into()),
            Err(RecvError::Closed) => return Err(tasks::Error::draining().into()),
            Err(RecvError::Lagged(_)) => {
                return Ok(Some(self.shared.tasks.get(self.session.requestor(), task.id).await?));
            }
        }
        Ok(None)
    }

    async fn cancel(&self, task: &Task) {
        match self.shared.tasks.cancel(self.session.requestor(), task.id).await {
            Ok(_) | Err(tasks::Error::Ended | tasks::Error::NotFound) => {}
            // Nobody can be answered any more.
            Err(error) => tracing::warn!(task.id = %task.id, "a call could not be cancelled: {error}"),
        }
    }
}

async fn answers(asking: &mut Option<PendingTaskInput>) -> Result<Vec<InputResponse>, InputRequestError> {
    match asking {
        Some(asking) => (&mut asking.answers).await,
        None => std::future::pending().await,
    }
}
