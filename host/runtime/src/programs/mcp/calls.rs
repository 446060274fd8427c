//! Calls: one request, and another one for each time that the server wants to know something first.
//!
//! Invariants: each round has an instance of its own, and while the client is asked there is none; a call names only
//! what was listed.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value, json};
use wasmtime::component::InstancePre;

use super::content::tool_output;
use super::errors::{Failure, failure};
use super::exchange::{Answer, EntryPoint, exchange};
use super::features::{self, Page};
use super::messages::Reply;
use super::multi_round_trip::{self, InputNeeded, Round};
use super::requests::{Request, argument_headers};
use super::{McpEra, McpServer};
use crate::bindings::bulkhead::plugin::task::{AskError, Host as _};
use crate::bindings::bulkhead::plugin::types as wit;
use crate::bindings::exports::bulkhead::plugin::resources::ResourcePage;
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
use bulkhead_domain::server_features::Reference;

/// Rounds of one call. Stops a server that never comes to an end.
pub(super) const ROUNDS_MAX: u32 = 16;

/// Where the instances of one call come from.
pub(crate) struct Rooms<'a> {
    pub(crate) engine: &'a GuestEngine,
    pub(crate) component: &'a InstancePre<Call>,
    pub(crate) entry_point: EntryPoint<'a>,
    pub(crate) tenant: Option<TenantId>,
    pub(crate) limits: &'a CallLimits,
    pub(crate) has_begun: &'a AtomicBool,
}

/// What a round comes to.
enum RoundEnd {
    Output(RawOutput),
    Error(wit::CallError),
    InputNeeded(InputNeeded),
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
        let needed = match round_end(server.era, operation, answer)? {
            RoundEnd::InputNeeded(needed) => needed,
            ended => {
                call.leave_journal();
                return Ok(ended.returned());
            }
        };
        round = match ask(&mut call, operation, needed).await? {
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
            Self::InputNeeded(_) => Err(wit::CallError::Internal("a question was not asked".to_owned())),
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
            Ok(instance) => exchange(self.entry_point, &mut store, &instance, request).await,
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
    let new = |method| Request::new(server.era, server.path.as_deref(), method);
    let mut request = match operation {
        Operation::CallTool { tool, arguments } => {
            let schema = &entry?.declared().input_schema;
            let mut request = new("tools/call").named("name", tool).with("arguments", arguments.as_str().to_owned());
            request.headers = argument_headers(schema.as_str(), arguments.as_str());
            request
        }
        Operation::ListResources { cursor } => new("resources/list").at_cursor(cursor.as_deref()),
        Operation::ReadResource { uri } => new("resources/read").named("uri", uri),
        Operation::GetPrompt { prompt, arguments } => {
            new("prompts/get").named("name", prompt).with("arguments", object_of(arguments).to_string())
        }
        Operation::Complete { reference, argument } => {
            let reference = match reference {
                Reference::Prompt(name) => json!({"type": "ref/prompt", "name": name}),
                Reference::Template(uri) => json!({"type": "ref/resource", "uri": uri}),
            };
            let context = json!({"arguments": object_of(&argument.context)});
            let argument = json!({"name": argument.name, "value": argument.value});
            let request = new("completion/complete").with("ref", reference.to_string());
            request.with("argument", argument.to_string()).with("context", context.to_string())
        }
    };
    request.features = features;
    let Round { responses, state } = round;
    for (member, json) in [("inputResponses", responses), ("requestState", state)] {
        if let Some(json) = json {
            request = request.with(member, json.clone());
        }
    }
    Some(request)
}

fn object_of(pairs: &[(String, String)]) -> Value {
    pairs.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect::<Map<_, _>>().into()
}

fn round_end(era: McpEra, operation: &Operation, answer: Answer) -> Result<RoundEnd, BrokenAnswer> {
    let result = match answer.reply {
        Some(Reply::Result(result)) => result,
        Some(Reply::Error(error)) => {
            return Ok(match failure(error, matches!(operation, Operation::ReadResource { .. })) {
                Failure::Error(error) => RoundEnd::Error(error),
                Failure::InputNeeded(needed) => RoundEnd::InputNeeded(needed),
            });
        }
        None if answer.status.is_success() => {
            return Err(BrokenAnswer("the server ended without an answer to the call".into()));
        }
        None => return Err(BrokenAnswer(format!("the server answered with status {}", answer.status).into())),
    };
    let wrong = |what: String| BrokenAnswer(format!("the server's result: {what}").into());
    if era == McpEra::Modern
        && let Some(needed) = multi_round_trip::input_needed(&result).map_err(wrong)?
    {
        return Ok(RoundEnd::InputNeeded(needed));
    }
    let output = match operation {
        Operation::CallTool { .. } => tool_output(&result).map(RawOutput::Tool),
        Operation::ListResources { .. } => features::resource_page(&result)
            .map(|Page { items, next }| RawOutput::Resources(ResourcePage { items, next, meta: Vec::new() })),
        Operation::ReadResource { .. } => features::contents(&result).map(RawOutput::Contents),
        Operation::GetPrompt { .. } => features::prompt_output(&result).map(RawOutput::Prompt),
        Operation::Complete { .. } => features::completion(&result).map(RawOutput::Completion),
    };
    output.map(RoundEnd::Output).map_err(wrong)
}

/// Why a question has no answer: for the model where there is one.
fn unanswered(operation: &Operation, why: String) -> RoundEnd {
    match operation {
        Operation::CallTool { .. } => RoundEnd::Output(RawOutput::Tool(said(why))),
        _ => RoundEnd::Error(wit::CallError::Internal(why)),
    }
}

/// Asks the client, and makes the next round of its answers. `Err` in it: the call ends with that.
async fn ask(call: &mut Call, operation: &Operation, needed: InputNeeded) -> wasmtime::Result<Result<Round, RoundEnd>> {
    let InputNeeded { requests, state, is_agreement } = needed;
    if requests.is_empty() {
        return Ok(multi_round_trip::round(Vec::new(), state, is_agreement).map_err(|why| unanswered(operation, why)));
    }
    let responses = match call.ask(requests).await? {
        Ok(responses) => responses,
        Err(AskError::Unsupported(feature)) => {
            return Ok(Err(RoundEnd::Error(wit::CallError::MissingCapability(feature))));
        }
        Err(AskError::Invalid(wrong)) => {
            return Err(BrokenAnswer(format!("the server asks what nobody can be asked: {wrong}").into()).into());
        }
        Err(AskError::Unreachable(why)) => {
            return Ok(Err(unanswered(operation, format!("What the tool asked was not answered: {why}"))));
        }
        Err(AskError::Cancelled) => return Ok(Err(unanswered(operation, "The call was cancelled.".to_owned()))),
    };
    Ok(multi_round_trip::round(responses, state, is_agreement).map_err(|why| unanswered(operation, why)))
}
