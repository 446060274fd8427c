//! `tools/list`: what the requestor may call of the versions that it gets, in the order of names.

use std::sync::Arc;

use super::result::{Complete, Ending};
use super::server_features::{Cacheable, reader};
use super::{Request, refused};
use crate::error::RpcError;
use crate::exchange::{deferred, immediate};
use crate::jsonrpc::{RequestId, response};
use crate::tool_search::{Query, ToolIndex};
use crate::wire::{PageBody, ToolMembers, ToolView};
use crate::{Exchange, Frame, ProtocolContext, rights};
use bulkhead_calls::{Returned, ToolEntry};
use bulkhead_domain::rights::{Need, Rights};
use bulkhead_domain::tool::{Tool, ToolOutput};

/// The `cacheScope` of a list: public, unless another requestor may have another list.
pub(super) fn scope(request: &Request<'_>) -> &'static str {
    if request.catalog.is_for_everybody() && !request.rights.are_limited() { "public" } else { "private" }
}

pub(super) fn list(request: &Request<'_>) -> Result<Exchange, RpcError> {
    let reader = reader(request);
    let view = |tool| ToolView { tool, members: ToolMembers::Modern };
    if request.search.is_some() {
        let entries = reader.host_tools(request.params)?.into_iter().map(view).collect();
        return Ok(listed(request, entries, None));
    }
    let may = Listed::of(request);
    let page = reader.tools(request.params, request.tools_page, |tool| may.shows(tool))?;
    Ok(listed(request, page.entries.iter().map(|entry| view(&entry.tool)).collect(), page.next_cursor))
}

fn listed(request: &Request<'_>, entries: Vec<ToolView<'_>>, next_cursor: Option<String>) -> Exchange {
    let list = Cacheable { body: PageBody { name: "tools", entries, next_cursor }, scope: scope(request) };
    immediate(response(&request.id, &Complete::new(&request.shared.modern, list)))
}

/// The tools that the requestor may call. Who may have no tasks cannot call what runs only as one.
struct Listed {
    rights: Rights,
    has_tasks: bool,
}

impl Listed {
    fn of(request: &Request<'_>) -> Self {
        Self { rights: request.rights.clone(), has_tasks: request.rights.has(Need::Tasks) }
    }

    fn shows(&self, tool: &Tool) -> bool {
        rights::may_call(&self.rights, tool, self.has_tasks)
    }
}

/// `tools/call` of `search_tools`.
pub(super) fn search(request: &Request<'_>, index: &Arc<ToolIndex>, query: Query) -> Exchange {
    let shared = Arc::clone(request.shared);
    let requestor = request.requestor;
    let id = request.id.clone();
    let index = Arc::clone(index);
    let catalog = Arc::clone(&request.catalog);
    let listed = Listed::of(request);
    let may = move |entry: &ToolEntry| catalog.get(&entry.tool.name).is_some() && listed.shows(&entry.tool);
    deferred(async move {
        match query.answer(&shared.tasks, &requestor, index, ToolMembers::Modern, may).await {
            Ok(output) => answered(&shared, &id, output),
            Err(error) => refused(&id, &error),
        }
    })
}

/// The answer of a tool of the host.
pub(super) fn answered(shared: &ProtocolContext, id: &RequestId, output: ToolOutput) -> Frame {
    let ending = Ending::Output(Returned::Tool(output));
    ending.frame(id, &shared.modern)
}
