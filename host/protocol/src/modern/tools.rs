//! `tools/list`: what the requestor may call of the versions that it gets, in the order of names.

use super::Request;
use super::result::Complete;
use super::server_features::{Cacheable, reader};
use crate::Exchange;
use crate::error::RpcError;
use crate::exchange::immediate;
use crate::jsonrpc::response;
use crate::server_features::Page;
use crate::wire::{PageBody, ToolMembers, ToolView};
use bulkhead_domain::rights::Need;
use bulkhead_domain::tool::{TaskSupport, Tool};

/// The `cacheScope` of a list: public, unless another requestor may have another list.
pub(super) fn scope(request: &Request<'_>) -> &'static str {
    if request.catalog.is_for_everybody() && !request.rights.are_limited() { "public" } else { "private" }
}

pub(super) fn list(request: &Request<'_>) -> Result<Exchange, RpcError> {
    // Who may have no tasks cannot call what runs only as one.
    let tasks = request.rights.has(Need::Tasks);
    let may = |tool: &Tool| {
        request.rights.has(Need::Tool(&tool.name)) && (tasks || tool.task_support != TaskSupport::Required)
    };
    let Page { entries, next_cursor } = reader(request).tools(request.params, may)?;
    let entries = entries.iter().map(|entry| ToolView { tool: &entry.tool, members: ToolMembers::Modern }).collect();
    let list = Cacheable { body: PageBody { name: "tools", entries, next_cursor }, scope: scope(request) };
    Ok(immediate(response(&request.id, &Complete::new(&request.shared.modern, list))))
}
