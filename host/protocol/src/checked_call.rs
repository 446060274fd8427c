//! The beginning of a `tools/call`, the same in both eras.
//!
//! Owns the order in which a call is checked, and the request to the engine that comes of it: the host's own tools, the
//! right to call a tool of this name, whether there is one, what the call is to become and the right to that, the shape
//! of the arguments. Whether they fit the tool's schema is checked last, because large ones take time. An era says what
//! a call is to become ([`EraCall`]) and renders answers. Must not start a call. Invariant: two calls that differ in
//! their era alone are refused at the same step.

use std::sync::Arc;

use super::apps;
use super::arguments::{self, CallRefusal};
use super::error::RpcError;
use super::request_context::RequestContext;
use super::rights;
use super::sep1686::TaskMetadata;
use super::tool_search::{self, ToolRequest};
use bulkhead_calls::ToolEntry;
use bulkhead_domain::Json;
use bulkhead_domain::rights::Need;
use bulkhead_domain::tool::Tool;
use bulkhead_tasks::{CallRequest, ClientContext, RequestedTtl};

/// What a call is to become.
pub(crate) enum CallMode {
    Plain {
        may_become_task: bool,
    },
    /// A task of the era's own.
    Task(RequestedTtl),
    /// A task of SEP-1686; the request is answered all the same.
    Augmented(TaskMetadata),
}

/// What only its era knows of a call.
pub(crate) trait EraCall {
    /// Whether the call is to be a task, as far as this is known before it is allowed. `offered`: the tool, if there is
    /// one.
    fn requests_task(&self, offered: Option<&Tool>) -> bool;

    /// What the call becomes, as far as its client and the tool allow it.
    fn mode(&self, tool: &Tool) -> Result<CallMode, RpcError>;

    /// The refusal of a task to a requestor that may have none.
    fn no_task(&self, name: &str) -> RpcError;

    /// The client, as a call of this mode is told of it.
    fn client(&self, mode: &CallMode) -> ClientContext;
}

/// Finds out what a call is about, and whether the requestor may call a tool of this name, whatever else is wrong.
pub(crate) fn named<'a>(
    context: &RequestContext,
    era: &impl EraCall,
    name: String,
    arguments: Option<&'a str>,
) -> Result<ToolRequest<'a>, CallRefusal> {
    let mut request = match tool_search::resolve(context.search.as_ref(), name, arguments) {
        Ok(request) => request,
        // A client that asked for a task does not expect a result.
        Err(text) if era.requests_task(None) => return Err(RpcError::invalid_params(text).into()),
        Err(text) => return Err(CallRefusal::ToolError(text)),
    };
    if let ToolRequest::Call { name, through: false, .. } = &mut request
        && let Some(entry) = apps::meant_by_view(&context.catalog, name, |tool| context.may_call(tool))
    {
        entry.tool.name.clone_into(name);
    }
    match &request {
        ToolRequest::Call { name, through, .. } => {
            check_name(context, era, name)?;
            // Only a model calls through another tool.
            if *through && context.catalog.get(name).is_some_and(|entry| !apps::is_for_model(&entry.tool)) {
                return Err(context.unknown_tool(name).into());
            }
        }
        // It runs as no task.
        ToolRequest::Search { .. } => drop(era.mode(tool_search::search_tool())?),
    }
    Ok(request)
}

fn check_name(context: &RequestContext, era: &impl EraCall, name: &str) -> Result<(), RpcError> {
    let call = Need::Tool(name);
    if context.rights.has(call) {
        return Ok(());
    }
    // All that it takes is said at once.
    let requests_task = era.requests_task(context.catalog.get(name).map(|entry| &entry.tool));
    let needs: &[Need<'_>] = if requests_task { &[call, Need::Tasks] } else { &[call] };
    rights::check(&context.rights, needs, || context.unknown_tool(name))
}

/// A call of a tool that may begin if its arguments fit.
pub(crate) struct CheckedCall {
    pub(crate) mode: CallMode,
    pub(crate) request: CallRequest,
}

impl CheckedCall {
    /// Checks the call of a tool that is there.
    pub(crate) fn new(
        context: &RequestContext,
        era: &impl EraCall,
        tool: &Arc<ToolEntry>,
        arguments: Option<&str>,
    ) -> Result<Self, RpcError> {
        let mode = era.mode(&tool.tool)?;
        let name = &tool.tool.name;
        if !matches!(mode, CallMode::Plain { .. }) {
            rights::check(&context.rights, &[Need::Tool(name), Need::Tasks], || era.no_task(name))?;
        }
        let arguments = arguments::object(tool, arguments)?;
        let request = CallRequest {
            tool: Arc::clone(tool),
            arguments: Json::new(arguments),
            client: era.client(&mode),
            related: Vec::new(),
            may_become_task: matches!(mode, CallMode::Plain { may_become_task: true }),
        };
        Ok(Self { mode, request })
    }
}
