//! What every request has, of either era: who asks, and what is offered to them.
//!
//! Owns what the requestor may call of it, and how a tool that is not there is refused. Must not know what only one era
//! has. Invariant: it is taken once at the request's beginning, and only what a requestor is shown is named to them.
//!
//! It holds a whole catalog: what outlives its request keeps the parts that it needs.

use std::sync::Arc;

use super::error::RpcError;
use super::tool_lists::Offered;
use super::tool_search::{self, ToolIndex};
use super::{Peer, ProtocolContext, apps, rights, unknown};
use bulkhead_calls::{Catalog, ToolEntry};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::rights::{Need, Rights};
use bulkhead_domain::tool::Tool;

/// See the module.
#[derive(Clone)]
pub(crate) struct RequestContext {
    pub(crate) shared: Arc<ProtocolContext>,
    pub(crate) requestor: Requestor,
    pub(crate) rights: Rights,
    /// What is offered to the requestor, for the whole of the request.
    pub(crate) catalog: Arc<Catalog>,
    /// Where the requestor finds tools, if it searches for them.
    pub(crate) search: Option<Arc<ToolIndex>>,
    pub(crate) tools_page: usize,
    /// Whether the requestor may have tasks here; some revisions have none.
    pub(crate) has_tasks: bool,
}

impl RequestContext {
    /// Of a message that arrived now. `knows_tasks`: its revision has tasks.
    pub(crate) fn new(shared: &Arc<ProtocolContext>, peer: &Peer<'_>, knows_tasks: bool) -> Self {
        let Offered { catalog, search, page: tools_page } = shared.offered(&peer.requestor, &peer.rights);
        Self {
            shared: Arc::clone(shared),
            requestor: peer.requestor,
            rights: peer.rights.clone(),
            catalog,
            search,
            tools_page,
            has_tasks: knows_tasks && peer.rights.has(Need::Tasks),
        }
    }

    /// Whether the requestor may call a tool. One that runs only as a task cannot be called where there are no tasks.
    pub(crate) fn may_call(&self, tool: &Tool) -> bool {
        rights::may_call(&self.rights, tool, self.has_tasks)
    }

    /// The tool as it is offered now.
    pub(crate) fn tool(&self, name: &str) -> Result<&Arc<ToolEntry>, RpcError> {
        self.catalog.get(name).ok_or_else(|| self.unknown_tool(name))
    }

    /// The refusal of a name that no tool has, or none that the requestor may know of.
    pub(crate) fn unknown_tool(&self, name: &str) -> RpcError {
        self.shared.tasks.note_unknown_tool(&self.requestor, name);
        let tools = self.catalog.tools().iter().map(|entry| &entry.tool);
        let tools = tools.filter(|tool| self.may_call(tool) && apps::is_for_model(tool));
        let own = tool_search::suggestions(self.search.is_some(), name);
        unknown::refusal("tool", name, own.chain(tools.map(|tool| tool.name.as_str())))
    }
}
