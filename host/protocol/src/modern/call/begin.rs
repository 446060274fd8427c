//! The beginning of a `tools/call`: which version of a tool it is about, and whether it may be called like this.
//!
//! A call that goes on from a state goes on with the version that it began with, whatever is offered by now.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::super::meta::RequestClient;
use super::super::params_index::Members;
use super::super::request::{Request, refused};
use super::super::result::answered;
use super::super::state::{Answers, Binding};
use super::super::{declared, tools};
use super::{PluginCall, RoundTrip};
use crate::arguments::CallRefusal;
use crate::checked_call::{self, CallMode, CheckedCall, EraCall};
use crate::digest::digest;
use crate::error::RpcError;
use crate::exchange::{immediate, streaming};
use crate::request_context::RequestContext;
use crate::tool_search::ToolRequest;
use crate::{Declared, Exchange, jsonrpc, sep1686};
use bulkhead_calls::ToolEntry;
use bulkhead_domain::call::ClientFeature;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::TaskId;
use bulkhead_domain::tool::{TaskSupport, Tool, ToolOutput};
use bulkhead_tasks::{self as tasks, ClientContext, RequestedTtl, Tasks};

/// Tasks that one call may continue; more are left out.
const RELATED_MAX: usize = 16;

/// What a request brings to go on where another one ended.
pub(in super::super) struct RetryParams {
    pub(in super::super) fresh: Answers,
    pub(in super::super) state: Option<String>,
}

impl RetryParams {
    pub(in super::super) fn read(members: &Members<'_>) -> Result<Self, RpcError> {
        let fresh = match members.input_responses.raw("params.inputResponses")? {
            Some(raw) => jsonrpc::member(raw.get(), "params.inputResponses")?,
            None => Answers::new(),
        };
        Ok(Self { fresh, state: members.request_state.value::<Option<String>>("params.requestState")?.flatten() })
    }
}

/// What a request says of its call.
struct RequestCall<'a> {
    client: &'a RequestClient,
    /// Whether the requestor has the right to tasks.
    may_have_tasks: bool,
}

impl<'a> RequestCall<'a> {
    fn new(context: &RequestContext, client: &'a RequestClient) -> Self {
        Self { client, may_have_tasks: context.has_tasks }
    }
}

impl EraCall for RequestCall<'_> {
    fn requests_task(&self, offered: Option<&Tool>) -> bool {
        offered.is_some_and(|tool| tool.task_support == TaskSupport::Required)
    }

    fn mode(&self, tool: &Tool) -> Result<CallMode, RpcError> {
        match tool.task_support {
            TaskSupport::Required => self.client.check_tasks().map(|()| CallMode::Task(RequestedTtl::Default)),
            TaskSupport::Optional => {
                let has_extension = self.client.features.contains(ClientFeature::Tasks);
                Ok(CallMode::Plain { may_become_task: has_extension && self.may_have_tasks })
            }
            TaskSupport::Forbidden => Ok(CallMode::Plain { may_become_task: false }),
        }
    }

    fn no_task(&self, name: &str) -> RpcError {
        RpcError::invalid_params(format!("{name} can only be called as a task"))
    }

    fn client(&self, _: &CallMode) -> ClientContext {
        self.client.to_context()
    }
}

/// `tools/call`.
pub(in super::super) fn call(request: Request<'_>) -> Result<Exchange, RpcError> {
    let context = &request.context;
    let members = &request.members;
    let name = members.name.required("params.name")?;
    let arguments = members.arguments.raw("params.arguments")?.filter(|raw| raw.get() != "null");
    let RetryParams { fresh, state } = RetryParams::read(members)?;
    let era = RequestCall::new(context, &request.client);
    let (name, arguments, through) = match checked_call::named(context, &era, name, arguments.map(RawValue::get)) {
        Ok(ToolRequest::Call { name, arguments, through }) => (name, arguments, through),
        Ok(ToolRequest::Search { index, query }) => return Ok(tools::search(request, index, query)),
        Err(CallRefusal::ToolError(text)) => {
            return Ok(immediate(answered(&context.shared, &request.id, ToolOutput::failure(text))));
        }
        Err(CallRefusal::Error(error)) => return Err(error),
    };
    // What was declared is about the tool of the host, whose schema wants nothing repeated.
    let declared = request.declared.filter(|_| !through);
    let Some(state) = state else {
        let tool = context.tool(&name)?;
        request.target.set_tool(tool);
        let round_trip = begin(context, tool, arguments, request.client, declared, fresh)?;
        let id = request.id;
        return Ok(streaming(|frames| async move { Some(round_trip.answer(&id, None, &frames).await) }));
    };
    if let Some(tool) = context.catalog.get(&name) {
        request.target.set_tool(tool);
    }
    let arguments = arguments.map(Box::<str>::from);
    let declared = declared.map(Declared::to_owned);
    let Request { context, client, id, .. } = request;
    Ok(streaming(|frames| async move {
        let round_trip = match begun_with(&context, &name, arguments.as_deref(), &state).await {
            Ok(tool) => begin(&context, &tool, arguments.as_deref(), client, declared.as_ref(), fresh),
            Err(error) => Err(error),
        };
        // A call may take long, and needs nothing else of what is offered.
        drop(context);
        Some(match round_trip {
            Ok(round_trip) => round_trip.answer(&id, Some(state), &frames).await,
            Err(error) => refused(&id, &error),
        })
    }))
}

/// The tool as it was offered when the call began that a state is of. What cannot be opened is refused later, in the
/// words for that.
async fn begun_with(
    context: &RequestContext,
    name: &str,
    arguments: Option<&str>,
    state: &str,
) -> Result<Arc<ToolEntry>, RpcError> {
    let RequestContext { shared, requestor, .. } = context;
    let arguments: Option<Value> = serde_json::from_str(arguments.unwrap_or("{}")).ok();
    let version = arguments.and_then(|arguments| {
        let binding = Binding { requestor, tool: name, arguments: digest(&arguments) };
        shared.modern.rounds.sealer.open(&binding, state)?.version()
    });
    let offered = context.catalog.get(name);
    let Some(version) = version.filter(|version| offered.is_none_or(|tool| tool.plugin != *version)) else {
        return context.tool(name).cloned();
    };
    let tool = shared.tasks.tool(&version, name).await.ok_or_else(|| {
        RpcError::invalid_params(
            "the version of the plugin that this call began with is gone; call the tool again without requestState",
        )
    })?;
    // What was taken out of its sight meanwhile is not there, whenever the call began.
    let is_shown = tool.tool.name == name && shared.tool_lists.shows(&context.rights, &tool);
    if is_shown { Ok(tool) } else { Err(context.unknown_tool(name)) }
}

/// The call, if it may be made like this.
fn begin(
    context: &RequestContext,
    tool: &Arc<ToolEntry>,
    arguments: Option<&str>,
    mut client: RequestClient,
    declared: Option<&Declared<'_>>,
    fresh: Answers,
) -> Result<RoundTrip, RpcError> {
    let era = RequestCall::new(context, &client);
    let CheckedCall { request: call, .. } = CheckedCall::new(context, &era, tool, arguments)?;
    if let Some(declared) = declared {
        declared::check_params(declared, &tool.tool.input_schema, call.arguments.as_str())?;
    }
    // A requestor that may not look at tasks names none.
    if !context.has_tasks {
        client.related.clear();
    }
    let promote_after = Duration::from_millis(tool.limits.promote_after_ms);
    let promote_at = call.may_become_task.then(|| Instant::now() + promote_after);
    let round_trip = RoundTrip::new(context, PluginCall::Tool(call), client, fresh);
    Ok(RoundTrip { promote_at, ..round_trip })
}

/// The tasks behind the names of those that a call continues: each is looked for as `tasks/get` does, and what is not
/// there is left out.
pub(super) async fn related(tasks: &Tasks, requestor: &Requestor, names: &[String]) -> Result<Vec<TaskId>, RpcError> {
    let mut seen = Vec::new();
    let mut found = Vec::new();
    for name in names {
        if seen.contains(&name) {
            continue;
        }
        if seen.len() == RELATED_MAX {
            break;
        }
        seen.push(name);
        match sep1686::find_call(tasks, requestor, name).await {
            Ok(task) => found.push(task.id),
            Err(tasks::Error::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}
