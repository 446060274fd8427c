//! `tools/list`: what the requestor may call of the versions that it gets, in the order of names.

use std::sync::Arc;

use super::request::{Request, refused};
use super::result::{Cacheable, Complete, answered};
use crate::Exchange;
use crate::error::RpcError;
use crate::exchange::{deferred, immediate};
use crate::jsonrpc::response;
use crate::server_features::Page;
use crate::tool_search::{Query, ToolIndex};
use crate::wire::{PageBody, ToolMembers, ToolView};

/// The `cacheScope` of a list: public, unless another requestor may have another list.
pub(super) fn scope(request: &Request<'_>) -> &'static str {
    let context = &request.context;
    if context.catalog.is_for_everybody() && !context.rights.are_limited() { "public" } else { "private" }
}

pub(super) fn list(request: &Request<'_>) -> Result<Exchange, RpcError> {
    let Page { entries, next_cursor } = request.context.tools(request.params)?;
    let entries = entries.into_iter().map(|tool| ToolView { tool, members: ToolMembers::Modern }).collect();
    let list = Cacheable { body: PageBody { name: "tools", entries, next_cursor }, scope: scope(request) };
    Ok(immediate(response(&request.id, &Complete::new(&request.context.shared.modern, list))))
}

/// `tools/call` of `search_tools`.
pub(super) fn search(request: Request<'_>, index: Arc<ToolIndex>, query: Query) -> Exchange {
    let context = request.context;
    let id = request.id;
    deferred(async move {
        let shared = Arc::clone(&context.shared);
        match query.answer(context, index, ToolMembers::Modern).await {
            Ok(output) => answered(&shared, &id, output),
            Err(error) => refused(&id, &error),
        }
    })
}
