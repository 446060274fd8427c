//! Calls: one request, and another one for each time that the server wants to know something first.
//!
//! Invariants: each round has an instance of its own, and while the client is asked there is none; a call names only what was listed.

use std::sync::atomic::{AtomicBool, Ordering};

use wasmtime::component::InstancePre;
use wasmtime_wasi_http::p2::bindings::ProxyIndices;

use super::content::tool_output;
use super::errors::{Failure, failure};
use super::exchange::{Answer, exchange};
use super::messages::Reply;
use super::questions::{self, Asked, Round};
use super::requests::{Request, argument_headers};
use super::{McpEra, McpServer};
use crate::bindings::bulkhead::plugin::task::{AskError, Host as _};
use crate::bindings::bulkhead::plugin::types as wit;
use crate::call::Call;
use crate::engines::GuestEngine;
use crate::exports::RawOutput;
use crate::limits::LimitHit;
use crate::programs::answers::said;
use crate::trap_causes::BrokenAnswer;
use bulkhead_calls::{Operation, ToolEntry};
use bulkhead_domain::call::ClientFeatures;
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::requestor::TenantId;

/// Rounds of one call. Stops a server that never comes to an end.
const ROUNDS_MAX: u32 = 16;

/// Where the instances of one call come from.
pub(crate) struct Rooms<'a> {
    pub(crate) engine: &'a GuestEngine,
    pub(crate) component: &'a InstancePre<Call>,
    pub(crate) service: &'a ProxyIndices,
    pub(crate) tenant: Option<TenantId>,
    pub(crate) limits: &'a CallLimits,
    pub(crate) has_begun: &'a AtomicBool,
}

/// What a round comes to.
enum RoundEnd {
    Output(RawOutput),
    Error(wit::CallError),
    Asked(Asked),
}

/// Has the server do what the operation says. `entry`: the tool that it calls.
pub(crate) async fn perform(
    rooms: Rooms<'_>,
    server: &McpServer,
    entry: Option<&ToolEntry>,
    operation: &Operation,
    mut call: Box<Call>,
) -> wasmtime::Result<Result<RawOutput, wit::CallError>> {
    let mut round = Round::default();
    for _ in 0..ROUNDS_MAX {
        let features = call.shown_audience()?.features;
        let Some(request) = request(server, entry, operation, features, &round) else {
            return Ok(Err(wit::CallError::NotFound("this version of the plugin has no such thing".to_owned())));
        };
        let (after, answer) = rooms.visit(call, request).await?;
        call = after;
        let asked = match round_end(server.era, operation, answer)? {
            RoundEnd::Asked(asked) => asked,
            ended => {
                call.leave_journal();
                return Ok(ended.returned());
            }
        };
        round = match ask(&mut call, asked).await? {
            Ok(round) => round,
            Err(ended) => {
                call.leave_journal();
                return Ok(ended.returned());
            }
        };
    }
    Err(LimitHit::Rounds { count_max: ROUNDS_MAX }.into())
}

impl RoundEnd {
    fn returned(self) -> Result<RawOutput, wit::CallError> {
        match self {
            Self::Output(output) => Ok(output),
            Self::Error(error) => Err(error),
            Self::Asked(_) => Err(wit::CallError::Internal("a question was not asked".to_owned())),
        }
    }
}

impl Rooms<'_> {
    /// One request in an instance of its own, which is gone when this returns. Its place is free for others meanwhile.
    async fn visit(&self, call: Box<Call>, request: Request) -> wasmtime::Result<(Box<Call>, Answer)> {
        // Dropped after the store, which takes the place.
        let _slot = self.engine.slots.acquire(self.tenant).await;
        self.has_begun.store(true, Ordering::Relaxed);
        let mut store = call.into_store(&self.engine.engine, self.limits);
        let answer = match self.component.instantiate_async(&mut store).await {
            Ok(instance) => exchange(self.service, &mut store, &instance, request).await,
            Err(error) => Err(error),
        };
        if answer.is_err() {
            store.data_mut().leave_journal();
        }
        let answer = answer?;
        let mut call = Box::new(store.into_data());
        call.forget_instance();
        Ok((call, answer))
    }
}

/// `None`: the server has not listed such a thing.
fn request(
    server: &McpServer,
    entry: Option<&ToolEntry>,
    operation: &Operation,
    features: ClientFeatures,
    round: &Round,
) -> Option<Request> {
    let Operation::CallTool { tool, arguments } = operation else { return None };
    let schema = &entry?.declared().input_schema;
    let mut request = Request::new(server.era, &server.path, "tools/call")
        .with("name", serde_json::Value::from(&**tool).to_string())
        .with("arguments", arguments.as_str().to_owned());
    request.name = Some(tool.to_string());
    request.headers = argument_headers(schema.as_str(), arguments.as_str());
    request.features = features;
    let Round { responses, state } = round;
    for (member, json) in [("inputResponses", responses), ("requestState", state)] {
        if let Some(json) = json {
            request = request.with(member, json.clone());
        }
    }
    Some(request)
}

fn round_end(era: McpEra, operation: &Operation, answer: Answer) -> Result<RoundEnd, BrokenAnswer> {
    let result = match answer.reply {
        Some(Reply::Result(result)) => result,
        Some(Reply::Error(error)) => {
            return Ok(match failure(error, matches!(operation, Operation::ReadResource { .. })) {
                Failure::Error(error) => RoundEnd::Error(error),
                Failure::Asked(asked) => RoundEnd::Asked(asked),
            });
        }
        None if answer.status.is_success() => {
            return Err(BrokenAnswer("the server ended without an answer to the call".into()));
        }
        None => return Err(BrokenAnswer(format!("the server answered with status {}", answer.status).into())),
    };
    let wrong = |what: String| BrokenAnswer(format!("the server's result: {what}").into());
    if era == McpEra::Modern
        && let Some(asked) = questions::asked(&result).map_err(wrong)?
    {
        return Ok(RoundEnd::Asked(asked));
    }
    let output = tool_output(&result).map_err(wrong)?;
    Ok(RoundEnd::Output(RawOutput::Tool(output)))
}

/// Asks the client, and makes the next round of its answers. `Err` in it: the call ends with that.
async fn ask(call: &mut Call, asked: Asked) -> wasmtime::Result<Result<Round, RoundEnd>> {
    let Asked { questions, state, is_agreement } = asked;
    if questions.is_empty() {
        let round = questions::round(Vec::new(), state, is_agreement);
        return Ok(round.map_err(|why| RoundEnd::Output(RawOutput::Tool(said(why)))));
    }
    let responses = match call.ask(questions::requests(questions)).await? {
        Ok(responses) => responses,
        Err(AskError::Unsupported(feature)) => {
            return Ok(Err(RoundEnd::Error(wit::CallError::MissingCapability(feature))));
        }
        Err(AskError::Invalid(wrong)) => {
            return Err(BrokenAnswer(format!("the server asks what nobody can be asked: {wrong}").into()).into());
        }
        Err(AskError::Unreachable(why)) => {
            let why = format!("What the tool asked was not answered: {why}");
            return Ok(Err(RoundEnd::Output(RawOutput::Tool(said(why)))));
        }
        Err(AskError::Cancelled) => {
            return Ok(Err(RoundEnd::Output(RawOutput::Tool(said("The call was cancelled.")))));
        }
    };
    let round = questions::round(responses, state, is_agreement);
    Ok(round.map_err(|why| RoundEnd::Output(RawOutput::Tool(said(why)))))
}
