//! `tools/call`: a plain answer, a task, or questions first. The host decides. And the conversation that `prompts/get`
//! and `resources/read` have with it in common: questions first, without the task.
//!
//! A call starts plainly unless its tool must be a task. It becomes one when it takes too long, or says that it will,
//! as soon as that is possible; what it asks before that is answered by a request of its own that goes on where this
//! one ended.

mod begin;
mod idempotent_call;
mod input_requests;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::to_raw_value;
use tokio::time::Instant;

use super::call_handle::{self, CallHandle};
use super::meta::RequestClient;
use super::multi_round_trip::{Claim, Outcome, Parked, PendingInputRequests, StateLease};
use super::request::{refused, respond};
use super::result::{Ending, EndingView, answered};
use super::state::{Answers, Binding, Position};
use crate::arguments::{self, CallRefusal};
use crate::digest::digest;
use crate::elsewhere;
use crate::error::RpcError;
use crate::exchange::{FrameSender, at};
use crate::input_requests::can_answer;
use crate::jsonrpc::RequestId;
use crate::notifications::{self, ProgressReports};
use crate::request_context::RequestContext;
use crate::{Frame, ProtocolContext};
use begin::related;
pub(super) use begin::{RetryParams, call};
use bulkhead_calls::Operation;
use bulkhead_domain::Json;
use bulkhead_domain::call::{CallError, ClientFeature, InputRequest, InputRequestKind};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Design, Era, Origin};
use bulkhead_domain::tool::{TaskSupport, ToolOutput};
use bulkhead_tasks::{CallNews, CallRequest, Fallback, Job, PluginRequest, RequestedTtl, TaskRequest};
use input_requests::{InputOutcome, issue};

/// When a call tries again to become a task that could not. A place among the running tasks is told of as soon as there
/// is one.
const PROMOTE_AGAIN: Duration = Duration::from_secs(5);

/// What is asked of plugins.
pub(super) enum PluginCall {
    Tool(CallRequest),
    PluginRequests(PluginRequests),
}

/// A request that is no call of a tool.
pub(super) struct PluginRequests {
    /// Tells it from others, with the arguments.
    pub(super) label: String,
    pub(super) arguments: Json,
    /// To whom it goes: to the next one when a plugin says that there is no such thing.
    pub(super) requests: Vec<PluginRequest>,
}

/// One request of a call, from its start or from a state.
pub(super) struct RoundTrip {
    shared: Arc<ProtocolContext>,
    requestor: Requestor,
    plugin_call: PluginCall,
    /// How many plugins did not have it.
    plugins_tried: usize,
    fallback: Fallback,
    client: RequestClient,
    progress: ProgressReports,
    /// The answers that came with this request.
    fresh: Answers,
    /// Whether one of them answered something.
    used_answer: bool,
    /// Whether the tool says that it failed.
    tool_error: bool,
    /// The state that this request goes on from.
    resumed_from: Option<(Position, String)>,
    /// The right to go on from it.
    lease: Option<StateLease>,
    /// When the call becomes a task, if it may.
    promote_at: Option<Instant>,
    /// The guest that is over, dropped after its result is rendered. Its permit is free as soon as it has finished
    /// (`PlainCall`).
    _finished_guest: Option<CallHandle>,
}

/// Why there is no ending.
enum RoundTripError {
    /// The call itself failed: this error is its outcome.
    Broken(RpcError),
    /// The request was refused; another one may do better.
    Refused(RpcError),
}

impl From<RpcError> for RoundTripError {
    fn from(error: RpcError) -> Self {
        Self::Refused(error)
    }
}

/// How a call came to begin.
enum Begun {
    Call(CallHandle),
    Task(Ending),
}

/// A call that runs.
struct ActiveCall {
    guest: CallHandle,
    issued: Vec<String>,
    answers: Answers,
}

impl RoundTrip {
    pub(super) fn new(
        context: &RequestContext,
        plugin_call: PluginCall,
        client: RequestClient,
        fresh: Answers,
    ) -> Self {
        let progress = ProgressReports::new(client.progress_token.clone(), None);
        Self {
            shared: Arc::clone(&context.shared),
            requestor: context.requestor,
            plugin_call,
            plugins_tried: 0,
            fallback: Fallback::default(),
            client,
            progress,
            fresh,
            used_answer: false,
            tool_error: false,
            resumed_from: None,
            lease: None,
            promote_at: None,
            _finished_guest: None,
        }
    }

    pub(super) async fn answer(mut self, id: &RequestId, state: Option<String>, frames: &FrameSender) -> Frame {
        if let PluginCall::Tool(call) = &mut self.plugin_call {
            match arguments::check(&self.shared.tasks, &self.requestor, call).await {
                Ok(()) => {}
                Err(CallRefusal::ToolError(text)) => return answered(&self.shared, id, ToolOutput::failure(text)),
                Err(CallRefusal::Error(error)) => return refused(id, &error),
            }
            match related(&self.shared.tasks, &self.requestor, &self.client.related).await {
                Ok(tasks) => call.related = tasks,
                Err(error) => return refused(id, &error),
            }
        }
        if let Some(state) = state {
            let answer = Box::pin(self.resume(state, frames)).await;
            let mut frame = respond(id, answer);
            frame.message = frame.message.of_tool(self.tool_error);
            return frame;
        }
        let key = self.client.idempotency_key.take();
        // What is rare is boxed, so that the usual call is not as large.
        let ending = match (&self.plugin_call, key) {
            (PluginCall::Tool(call), Some(key)) => {
                let call = call.clone();
                Box::pin(self.once(call, &key, frames)).await
            }
            (PluginCall::Tool(call), None) if self.is_task_at_once(call) => Box::pin(self.create(call.clone())).await,
            (PluginCall::Tool(_) | PluginCall::PluginRequests(_), _) => {
                self.begin(frames).await.map_err(|stop| match stop {
                    RoundTripError::Broken(error) | RoundTripError::Refused(error) => error,
                })
            }
        };
        self.respond(id, ending)
    }

    fn respond(&self, id: &RequestId, ending: Result<Ending, RpcError>) -> Frame {
        let state = &self.shared.modern;
        match &ending {
            Ok(ending) => ending.frame(id, state),
            Err(error) => refused(id, error),
        }
    }

    fn is_task_at_once(&self, call: &CallRequest) -> bool {
        let tool = &call.tool;
        tool.tool.task_support == TaskSupport::Required
            || self.promote_at.is_some() && tool.limits.promote_after_ms == 0
    }

    fn origin(&self) -> Origin {
        Origin {
            era: Era::Modern,
            design: Design::Extension2026,
            session: None,
            features: self.client.features,
            log_level: self.client.log_level,
            progress_token: None,
            trace: None,
        }
    }

    async fn create(&self, mut call: CallRequest) -> Result<Ending, RpcError> {
        // Tasks of this era report nothing on any stream.
        call.client.wants_progress = false;
        let request = TaskRequest { job: Job::Call(call), origin: self.origin(), ttl: RequestedTtl::Default };
        call_handle::create(&self.shared.tasks, self.requestor, request).await.map(Ending::Task)
    }

    async fn begin(&mut self, frames: &FrameSender) -> Result<Ending, RoundTripError> {
        let guest = match self.start_or_queue().await? {
            Begun::Call(guest) => guest,
            Begun::Task(ending) => return Ok(ending),
        };
        self.begin_lease();
        let answers = self.resumed_from.as_ref().map(|(position, _)| position.answers.clone()).unwrap_or_default();
        self.converse(ActiveCall { guest, issued: Vec::new(), answers }, None, frames).await
    }

    /// A new call that still waits for its permit when it would become a task becomes one that waits: its client has
    /// something to poll.
    async fn start_or_queue(&self) -> Result<Begun, RpcError> {
        let mut started = pin!(self.start());
        let PluginCall::Tool(call) = &self.plugin_call else { return started.await.map(Begun::Call) };
        let promote_at = self.promote_at.filter(|_| self.resumed_from.is_none());
        tokio::select! {
            biased;
            started = &mut started => return started.map(Begun::Call),
            () = at(promote_at) => {}
        }
        // What is rare is boxed, so that the usual call is not as large.
        match Box::pin(self.create(call.clone())).await {
            Ok(ending) => Ok(Begun::Task(ending)),
            // It has a place in the queue of calls all the same.
            Err(_) => started.await.map(Begun::Call),
        }
    }

    async fn start(&self) -> Result<CallHandle, RpcError> {
        let tasks = &self.shared.tasks;
        let started = match &self.plugin_call {
            PluginCall::Tool(call) => tasks.call(&self.requestor, call.clone()).await,
            PluginCall::PluginRequests(plugin_requests) => {
                let request = plugin_requests.requests.get(self.plugins_tried).cloned();
                let request =
                    request.ok_or_else(|| RpcError::host_failure(format_args!("no plugin is left to ask")))?;
                tasks.request(&self.requestor, request).await
            }
        };
        Ok(CallHandle::new(started?))
    }

    /// What this client lacks to be asked these questions.
    fn unable<'a>(&self, requests: impl IntoIterator<Item = &'a InputRequest>) -> Option<ClientFeature> {
        let mut input_requests = requests.into_iter().map(|request| &request.kind);
        input_requests.find(|kind| !can_answer(self.client.features, kind)).map(InputRequestKind::feature)
    }

    /// Whether another plugin may have what this one has not.
    fn try_next_plugin(&mut self, error: &CallError) -> bool {
        let PluginCall::PluginRequests(plugin_requests) = &self.plugin_call else { return false };
        let falls_back = self.fallback.tries_next(error) && self.plugins_tried + 1 < plugin_requests.requests.len();
        self.plugins_tried += usize::from(falls_back);
        falls_back
    }

    fn error(&self, error: &CallError) -> RpcError {
        let operation = match &self.plugin_call {
            PluginCall::PluginRequests(plugin_requests) => {
                plugin_requests.requests.first().map(|request| &request.operation)
            }
            PluginCall::Tool(_) => None,
        };
        match (operation, error) {
            (Some(Operation::ReadResource { uri }), CallError::NotFound(_)) => RpcError::modern_resource_not_found(uri),
            _ => RpcError::modern(error),
        }
    }

    /// Continues a state: with the parked guest, or from the start with the answers so far.
    async fn resume(&mut self, state: String, frames: &FrameSender) -> Outcome {
        let opened = self.binding().and_then(|binding| self.shared.modern.rounds.sealer.open(&binding, &state));
        let position = opened.filter(|position| position.until > self.shared.tasks.now()).ok_or_else(|| {
            RpcError::invalid_params(
                "requestState is not one that was given for this call, or it is over its time; call the tool again without it",
            )
        })?;
        let rounds = Arc::clone(&self.shared.modern.rounds);
        let answers = self.fresh_digest();
        let may_run_again = self.may_run_again();
        match rounds.claim(&self.shared.tasks, self.requestor, &position, answers, may_run_again).await? {
            Claim::Granted(lease) => self.lease = Some(lease),
            Claim::Done(outcome) => return Outcome::clone(&outcome),
            Claim::Conflict => {
                return Err(RpcError::invalid_params(
                    "this requestState was answered before, with other inputResponses",
                ));
            }
            Claim::Forgotten => {
                return Err(RpcError::invalid_params(
                    "this requestState was answered before, the host does not know any more what came of it, and does not run its call a second time; call the tool again without it if that does no harm",
                ));
            }
        }
        let parked = rounds.unpark(&position.state_id);
        self.resumed_from = Some((position, state));
        let ending = match parked {
            Some(Parked { guest, pending, issued, answers }) => {
                guest.set_client(self.client.to_context());
                self.converse(ActiveCall { guest, issued, answers }, Some(pending), frames).await
            }
            None => {
                // It may be parked at another host, and take up room there.
                if let Some((position, _)) = &self.resumed_from {
                    elsewhere::tell_going_on(&self.shared, position.state_id).await;
                }
                self.begin(frames).await
            }
        };
        self.conclude(ending).await
    }

    /// What going on from a state came to. It is kept for equal requests, unless nothing was answered: then the state
    /// stays good.
    async fn conclude(&mut self, ending: Result<Ending, RoundTripError>) -> Outcome {
        let (outcome, counts_as_answer) = match ending {
            Ok(ending) => {
                self.tool_error = ending.is_tool_error();
                let result = to_raw_value(&EndingView { state: &self.shared.modern, ending: &ending })
                    .map_err(|cause| RpcError::host_failure(format_args!("a result cannot be written: {cause}")));
                (result, self.used_answer || !matches!(ending, Ending::InputRequired { .. }))
            }
            Err(RoundTripError::Broken(error)) => (Err(error), true),
            Err(RoundTripError::Refused(error)) => (Err(error), false),
        };
        match self.lease.take() {
            Some(lease) if counts_as_answer => lease.conclude(outcome.clone()),
            Some(lease) => lease.unmark().await,
            None => {}
        }
        outcome
    }

    fn begin_lease(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.begin();
        }
    }

    fn binding(&self) -> Option<Binding<'_>> {
        let (tool, arguments) = match &self.plugin_call {
            PluginCall::Tool(call) => (&call.tool.tool.name, &call.arguments),
            PluginCall::PluginRequests(plugin_requests) => (&plugin_requests.label, &plugin_requests.arguments),
        };
        let arguments: Value = serde_json::from_str(arguments.as_str()).ok()?;
        Some(Binding { requestor: &self.requestor, tool, arguments: digest(&arguments) })
    }

    /// Whether it does no harm to run this a second time: a call where plugin and operator say so, a read always.
    fn may_run_again(&self) -> bool {
        match &self.plugin_call {
            PluginCall::Tool(call) => call.tool.rerun_on_restart,
            PluginCall::PluginRequests(_) => true,
        }
    }

    fn fresh_digest(&self) -> [u8; 32] {
        let answers =
            self.fresh.iter().map(|(key, raw)| (key.clone(), serde_json::from_str(raw.get()).unwrap_or_default()));
        digest(&Value::Object(answers.collect()))
    }

    async fn converse(
        &mut self,
        mut active: ActiveCall,
        mut pending: Option<PendingInputRequests>,
        frames: &FrameSender,
    ) -> Result<Ending, RoundTripError> {
        loop {
            if let Some(pending) = pending.take() {
                match self.settle(active, pending)? {
                    InputOutcome::Answered(same) => active = *same,
                    InputOutcome::Left(ending) => return Ok(ending),
                }
            }
            let news = tokio::select! {
                biased;
                news = active.guest.next() => news,
                () = at(self.promote_at) => CallNews::Detach,
            };
            match news {
                CallNews::Progress { progress, total, message } => {
                    frames.send(self.progress.report(progress, total, message.as_deref()));
                }
                CallNews::Log { level, logger, data } => {
                    if self.client.log_level.is_some_and(|wanted| level >= wanted) {
                        frames.send(notifications::log(level, logger.as_deref(), &data, None));
                    }
                }
                CallNews::Detach => {
                    if self.promote_at.is_none() {
                        continue;
                    }
                    let origin = self.origin();
                    match Box::pin(active.guest.promote(&self.shared.tasks, self.requestor, origin)).await? {
                        Ok(task) => return Ok(Ending::Task(task)),
                        Err(guest) => active.guest = guest,
                    }
                    self.promote_at = Some(Instant::now() + PROMOTE_AGAIN);
                }
                CallNews::InputRequests { requests, reply } => {
                    let input_requests =
                        requests.into_iter().map(|request| (issue(&mut active.issued, &request.key), request));
                    pending = Some(PendingInputRequests { input_requests: input_requests.collect(), reply });
                }
                CallNews::Finished(Ok(output)) => {
                    self._finished_guest = Some(active.guest);
                    return Ok(Ending::Output(output));
                }
                CallNews::Finished(Err(error)) if self.try_next_plugin(&error) => {
                    active.guest = self.start().await?;
                    active.issued.clear();
                }
                CallNews::Finished(Err(error)) => {
                    let error = std::mem::take(&mut self.fallback).conclude(error);
                    return Err(RoundTripError::Broken(self.error(&error)));
                }
            }
        }
    }
}
