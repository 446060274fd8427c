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
use super::super::state::{Answers, Binding};
use super::super::{Request, declared, refused, tools};
use super::{PluginCall, RoundTrip};
use crate::digest::digest;
use crate::error::RpcError;
use crate::exchange::{immediate, streaming};
use crate::tool_search::{self, ToolRequest};
use crate::{Declared, Exchange, ProtocolContext, arguments, jsonrpc, rights, sep1686, unknown};
use bulkhead_calls::{Catalog, ToolEntry};
use bulkhead_domain::Json;
use bulkhead_domain::call::ClientFeature;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::rights::{Need, Rights};
use bulkhead_domain::task::TaskId;
use bulkhead_domain::tool::{TaskSupport, ToolOutput};
use bulkhead_domain::toolset::SEARCH_TOOLS;
use bulkhead_tasks::{self as tasks, CallRequest, Tasks};

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

/// `tools/call`.
pub(in super::super) fn call(request: Request<'_>) -> Result<Exchange, RpcError> {
    let members = &request.members;
    let name = members.name.required("params.name")?;
    let arguments = members.arguments.raw("params.arguments")?.filter(|raw| raw.get() != "null");
    let RetryParams { fresh, state } = RetryParams::read(members)?;
    let asked = match tool_search::resolve(request.search.is_some(), name, arguments.map(RawValue::get)) {
        Ok(asked) => asked,
        Err(text) => {
            return Ok(immediate(tools::answered(request.shared, &request.id, ToolOutput::failure(text))));
        }
    };
    let (name, arguments, through) = match (asked, &request.search) {
        (ToolRequest::Call { name, arguments, through }, _) => (name, arguments, through),
        (ToolRequest::Search(query), Some(index)) => return Ok(tools::search(&request, index, query)),
        (ToolRequest::Search(_), None) => return Err(unknown::refusal("tool", SEARCH_TOOLS, std::iter::empty())),
    };
    // What was declared is about the tool of the host, whose schema wants nothing repeated.
    let declared = request.declared.filter(|_| !through);
    let asked = ToolCallRequest {
        rights: request.rights,
        shared: Arc::clone(request.shared),
        requestor: request.requestor,
        catalog: request.catalog,
        searches: request.search.is_some(),
        client: request.client,
        name,
        arguments: arguments.map(Json::new),
        fresh,
    };
    asked.check_tool()?;
    let id = request.id;
    let Some(state) = state else {
        let tool = asked.offered()?;
        request.target.set_tool(&tool);
        let conversation = asked.conversation(&tool, declared)?;
        return Ok(streaming(|frames| async move { Some(conversation.answer(&id, None, &frames).await) }));
    };
    if let Some(tool) = asked.catalog.get(&asked.name) {
        request.target.set_tool(tool);
    }
    let declared = declared.map(Declared::to_owned);
    Ok(streaming(|frames| async move {
        let conversation = match asked.begun_with(&state).await {
            Ok(tool) => asked.conversation(&tool, declared.as_ref()),
            Err(error) => Err(error),
        };
        Some(match conversation {
            Ok(conversation) => conversation.answer(&id, Some(state), &frames).await,
            Err(error) => refused(&id, &error),
        })
    }))
}

/// The tasks behind the names of those that a call continues: each is looked for as `tasks/get` does, and what is not there is left
/// out.
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

/// A request, as far as it does not depend on the tool.
struct ToolCallRequest {
    rights: Rights,
    shared: Arc<ProtocolContext>,
    requestor: Requestor,
    catalog: Arc<Catalog>,
    /// Whether it searches for tools.
    searches: bool,
    client: RequestClient,
    name: String,
    arguments: Option<Json>,
    fresh: Answers,
}

impl ToolCallRequest {
    /// Whether the requestor may call it, whatever else is wrong.
    fn check_tool(&self) -> Result<(), RpcError> {
        let call = [Need::Tool(&self.name)];
        let both = [Need::Tool(&self.name), Need::Tasks];
        let is_task = |tool: &Arc<ToolEntry>| tool.tool.task_support == TaskSupport::Required;
        if self.rights.has(Need::Tool(&self.name)) {
            return Ok(());
        }
        // All that it takes is said at once.
        let needs: &[Need<'_>] = if self.catalog.get(&self.name).is_some_and(is_task) { &both } else { &call };
        rights::check(&self.rights, needs, || self.unknown())
    }

    fn unknown(&self) -> RpcError {
        self.shared.tasks.note_unknown_tool(&self.requestor, &self.name);
        let tools = self.catalog.tools().iter().map(|entry| entry.tool.name.as_str());
        let own = tool_search::suggestions(self.searches, &self.name);
        unknown::refusal("tool", &self.name, own.chain(tools.filter(|name| self.rights.has(Need::Tool(name)))))
    }

    /// The tool as it is offered now.
    fn offered(&self) -> Result<Arc<ToolEntry>, RpcError> {
        self.catalog.get(&self.name).cloned().ok_or_else(|| self.unknown())
    }

    /// The tool as it was offered when the call began that a state is of. What cannot be opened is refused later, in the words for
    /// that.
    async fn begun_with(&self, state: &str) -> Result<Arc<ToolEntry>, RpcError> {
        let arguments = self.arguments.as_ref().map_or("{}", Json::as_str);
        let arguments: Option<Value> = serde_json::from_str(arguments).ok();
        let version = arguments.and_then(|arguments| {
            let binding = Binding { requestor: &self.requestor, tool: &self.name, arguments: digest(&arguments) };
            self.shared.modern.rounds.sealer.open(&binding, state)?.version()
        });
        match (version, self.catalog.get(&self.name)) {
            (Some(version), offered) if offered.is_none_or(|tool| tool.plugin != version) => {
                let tool = self.shared.tasks.tool(&version, &self.name).await;
                let tool = tool.ok_or_else(|| {
                    RpcError::invalid_params(
                        "the version of the plugin that this call began with is gone; call the tool again without requestState",
                    )
                })?;
                // What was taken out of its sight meanwhile is not there, whenever the call began.
                let is_shown = tool.tool.name == self.name && self.shared.tool_lists.shows(&self.rights, &tool);
                if is_shown { Ok(tool) } else { Err(self.unknown()) }
            }
            _ => self.offered(),
        }
    }

    fn conversation(self, tool: &Arc<ToolEntry>, declared: Option<&Declared<'_>>) -> Result<RoundTrip, RpcError> {
        let Self { rights, shared, requestor, mut client, name, arguments, fresh, catalog: _, searches: _ } = self;
        if tool.tool.task_support == TaskSupport::Required {
            client.check_tasks()?;
            let needs = [Need::Tool(&name), Need::Tasks];
            rights::check(&rights, &needs, || {
                RpcError::invalid_params(format!("{name} can only be called as a task"))
            })?;
        }
        let text = arguments::object(tool, arguments.as_ref().map(Json::as_str))?;
        if let Some(declared) = declared {
            declared::check_params(declared, &tool.tool.input_schema, text)?;
        }
        let arguments = arguments.unwrap_or_else(|| Json::new("{}"));
        // Who may not look at tasks names none.
        if !rights.has(Need::Tasks) {
            client.related.clear();
        }
        let promotable = tool.tool.task_support == TaskSupport::Optional
            && client.features.contains(ClientFeature::Tasks)
            && rights.has(Need::Tasks);
        let promote_after = Duration::from_millis(tool.limits.promote_after_ms);
        let call = CallRequest {
            tool: Arc::clone(tool),
            arguments,
            client: client.to_context(),
            related: Vec::new(),
            may_become_task: promotable,
        };
        let mut conversation = RoundTrip::new(shared, requestor, PluginCall::Tool(call), client, fresh);
        conversation.promote_at = promotable.then(|| Instant::now() + promote_after);
        Ok(conversation)
    }
}
