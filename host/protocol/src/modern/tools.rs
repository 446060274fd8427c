//! `tools/list`: what the requestor may call of the versions that it gets, in the order of names.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::Request;
use super::result::{Complete, Entries};
use crate::Exchange;
use crate::cursor::{self, PAGE, Paged, bad_cursor};
use crate::error::RpcError;
use crate::exchange::immediate;
use crate::jsonrpc::{self, response};
use crate::wire::{HintsView, IconView, MetaView, Raw, entry_if};
use bulkhead_domain::rights::Need;
use bulkhead_domain::tool::{TaskSupport, Tool};

/// Plugins may be exchanged while the host runs; who wants to know at once listens.
const TTL_MS: u64 = 60_000;

struct Page<'a> {
    tools: Vec<ToolView<'a>>,
    next_cursor: Option<String>,
    scope: &'static str,
}

impl Entries for Page<'_> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry("tools", &self.tools)?;
        entry_if(map, "nextCursor", self.next_cursor.as_ref())?;
        map.serialize_entry("ttlMs", &TTL_MS)?;
        map.serialize_entry("cacheScope", self.scope)
    }
}

struct ToolView<'a>(&'a Tool);

impl Serialize for ToolView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tool = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &tool.name)?;
        entry_if(&mut map, "title", tool.title.as_ref())?;
        map.serialize_entry("description", &tool.description)?;
        map.serialize_entry("inputSchema", &Raw(&tool.input_schema))?;
        entry_if(&mut map, "outputSchema", tool.output_schema.as_ref().map(Raw))?;
        entry_if(&mut map, "annotations", tool.annotations.as_ref().map(HintsView::from))?;
        if !tool.icons.is_empty() {
            map.serialize_entry("icons", &tool.icons.iter().map(IconView::from).collect::<Vec<_>>())?;
        }
        entry_if(&mut map, "_meta", MetaView::new(&tool.meta, None))?;
        map.end()
    }
}

/// The `cacheScope` of a list: public, unless another requestor may have another list.
pub(super) fn scope(request: &Request<'_>) -> &'static str {
    if request.catalog.is_for_everybody() && !request.rights.are_limited() { "public" } else { "private" }
}

pub(super) fn list(request: &Request<'_>) -> Result<Exchange, RpcError> {
    const METHOD: &str = "tools/list";
    let paged: Paged = jsonrpc::params(request.params)?;
    let (key, requestor) = (&request.shared.options.cursor_key, &request.requestor);
    let after = match paged.cursor {
        Some(cursor) => Some(cursor::verify(key, METHOD, requestor, &cursor).ok_or_else(bad_cursor)?),
        None => None,
    };
    // Who may have no tasks cannot call what runs only as one.
    let tasks = request.rights.has(Need::Tasks);
    let mut left = request
        .catalog
        .tools()
        .iter()
        .map(|entry| &entry.tool)
        .filter(|tool| request.rights.has(Need::Tool(&tool.name)))
        .filter(|tool| tasks || tool.task_support != TaskSupport::Required)
        .filter(|tool| after.as_ref().is_none_or(|after| tool.name.as_bytes() > after.as_slice()));
    let tools: Vec<_> = left.by_ref().take(PAGE).map(ToolView).collect();
    let next_cursor = match (left.next(), tools.last()) {
        (Some(_), Some(last)) => cursor::sign(key, METHOD, requestor, last.0.name.as_bytes()),
        _ => None,
    };
    let scope = scope(request);
    Ok(immediate(response(&request.id, &Complete::new(&request.shared.modern, Page { tools, next_cursor, scope }))))
}
