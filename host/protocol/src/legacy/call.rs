//! A plain `tools/call`: the call's news on its own stream, its output as the response.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::oneshot;

use super::request::Request;
use super::server_requests::ask;
use super::tool_call::Call;
use crate::arguments::CallRefusal;
use crate::error::RpcError;
use crate::exchange::{FrameSender, streaming};
use crate::jsonrpc::{RequestId, error_response, response};
use crate::notifications::{self, ProgressReports};
use crate::session::{InFlight, Session};
use crate::version::Version;
use crate::wire::{OutputView, tool_output};
use crate::{EncodedMessage, Exchange, ProtocolContext};
use bulkhead_calls::Returned;
use bulkhead_domain::call::{CallError, InputRequest, InputRequestError, InputResponse};
use bulkhead_domain::tool::ToolOutput;
use bulkhead_tasks::{CallNews, PlainCall, of_kind};

/// Starts the exchange of a plain call.
pub(super) fn plain(request: Request<'_>, call: Call) -> Result<Exchange, RpcError> {
    let in_flight = in_flight(&request)?;
    let shared = request.context.shared;
    let id = request.id;
    Ok(streaming(|frames| async move {
        let work =
            StreamedRequest { shared, session: Arc::clone(&call.session), frames, reads_events: call.reads_events };
        work.run(&id, call, &in_flight).await
    }))
}

/// Notes the request as one that can be cancelled.
pub(super) fn in_flight(request: &Request<'_>) -> Result<InFlight, RpcError> {
    request
        .session
        .begin(&request.id)
        .ok_or_else(|| RpcError::invalid_request("a request with this id is still being served"))
}

/// A tool error as a response.
pub(super) fn failure(id: &RequestId, text: String) -> EncodedMessage {
    response(id, &OutputView { output: &ToolOutput::failure(text), related: None }).of_tool(true)
}

/// Why a call does not begin, as a response.
pub(super) fn unfit(id: &RequestId, refusal: CallRefusal) -> EncodedMessage {
    match refusal {
        CallRefusal::Error(error) => error_response(Some(id), &error),
        CallRefusal::ToolError(text) => failure(id, text),
    }
}

/// A request that is being served, with the client at the other end of its stream.
pub(super) struct StreamedRequest {
    pub(super) shared: Arc<ProtocolContext>,
    pub(super) session: Arc<Session>,
    pub(super) frames: FrameSender,
    /// Whether the client reads what is said there before the response.
    pub(super) reads_events: bool,
}

/// Questions that wait for their answers, and where those go.
struct PendingAnswers {
    answers: BoxFuture<'static, Result<Vec<InputResponse>, InputRequestError>>,
    reply: oneshot::Sender<Result<Vec<InputResponse>, InputRequestError>>,
}

enum Next {
    News(CallNews),
    Answers(Result<Vec<InputResponse>, InputRequestError>),
    Cancelled,
}

impl StreamedRequest {
    /// Asks the client something, and waits for the answers.
    pub(super) fn ask(
        &self,
        requests: Vec<InputRequest>,
    ) -> impl Future<Output = Result<Vec<InputResponse>, InputRequestError>> + Send + use<> {
        let shared = Arc::clone(&self.shared);
        let session = Arc::clone(&self.session);
        ask(shared, session, self.frames.clone(), self.reads_events, requests)
    }

    async fn run(self, id: &RequestId, mut call: Call, in_flight: &InFlight) -> Option<EncodedMessage> {
        let mut progress = ProgressReports::new(call.progress_token.take(), None);
        let starting = async {
            call.check(&self.shared.tasks).await.map_err(|refusal| unfit(id, refusal))?;
            let running = self.shared.tasks.call(self.session.requestor(), call.request).await;
            running.map_err(|error| error_response(Some(id), &error.into()))
        };
        let started = tokio::select! {
            biased;
            () = in_flight.cancelled() => return None,
            started = starting => started,
        };
        match started {
            Ok(running) => {
                // The guest is dropped after its result is rendered. Its permit is free as soon as it has finished
                // (`PlainCall`).
                let (result, _call) = self.converse(running, &mut progress, in_flight).await?;
                Some(finished(id, &result.and_then(of_kind), self.session.settled.version))
            }
            Err(response) => Some(response),
        }
    }

    /// Carries what a call says and asks until it is over: what it came to, and the call with its permit. `None` when
    /// the client cancelled the request.
    pub(super) async fn converse(
        &self,
        mut call: PlainCall,
        progress: &mut ProgressReports,
        in_flight: &InFlight,
    ) -> Option<(Result<Returned, CallError>, PlainCall)> {
        let mut asking: Option<PendingAnswers> = None;
        loop {
            let next = tokio::select! {
                biased;
                () = in_flight.cancelled() => Next::Cancelled,
                answers = answers(&mut asking) => Next::Answers(answers),
                news = call.next() => Next::News(news),
            };
            match next {
                Next::Cancelled => {
                    call.cancel();
                    return None;
                }
                Next::Answers(answers) => {
                    if let Some(pending) = asking.take() {
                        // The call may be over by now.
                        let _ = pending.reply.send(answers);
                    }
                }
                Next::News(CallNews::Progress { progress: at, total, message }) => {
                    self.frames.send(progress.report(at, total, message.as_deref()));
                }
                Next::News(CallNews::Log { level, logger, data }) if level >= self.session.log_level() => {
                    self.frames.send(notifications::log(level, logger.as_deref(), &data, None));
                }
                // In this era the client alone decides what becomes a task.
                Next::News(CallNews::Log { .. } | CallNews::Detach) => {}
                Next::News(CallNews::InputRequests { requests, reply }) => {
                    asking = Some(PendingAnswers { answers: Box::pin(self.ask(requests)), reply });
                }
                Next::News(CallNews::Finished(result)) => return Some((result, call)),
            }
        }
    }
}

async fn answers(asking: &mut Option<PendingAnswers>) -> Result<Vec<InputResponse>, InputRequestError> {
    match asking {
        Some(asking) => (&mut asking.answers).await,
        None => std::future::pending().await,
    }
}

fn finished(id: &RequestId, result: &Result<ToolOutput, CallError>, version: Version) -> EncodedMessage {
    match result {
        Ok(output) => {
            let view = OutputView { output: &tool_output(output, version), related: None };
            response(id, &view).of_tool(output.is_error)
        }
        Err(error) => error_response(Some(id), &RpcError::from(error)),
    }
}
