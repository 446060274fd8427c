//! Actions that a requestor has no right to, and how they are refused.
//!
//! Owns the choice between two answers. Invariant: what further scopes would allow is refused with all of their names,
//! so that a client can ask for them at once; what nothing would allow this requestor reads like something that is not
//! there.

use std::sync::Arc;

use super::error::RpcError;
use bulkhead_calls::{Catalog, CatalogPlugin};
use bulkhead_domain::rights::{Need, Rights};
use bulkhead_domain::tool::{TaskSupport, Tool};

/// Lets a request through that needs all of this. `absent` is the answer where no scope would help.
pub(super) fn check(rights: &Rights, needs: &[Need<'_>], absent: impl FnOnce() -> RpcError) -> Result<(), RpcError> {
    if needs.iter().all(|need| rights.has(*need)) {
        return Ok(());
    }
    let scopes = rights.opening(needs);
    let tool = needs.iter().find_map(|need| if let Need::Tool(name) = need { Some(*name) } else { None });
    Err(if scopes.is_empty() { absent() } else { RpcError::insufficient_scope(scopes, tool) })
}

/// Whether the requestor may call a tool. One that runs only as a task cannot be called by a requestor that may have no
/// tasks.
pub(super) fn may_call(rights: &Rights, tool: &Tool, has_tasks: bool) -> bool {
    rights.has(Need::Tool(&tool.name)) && (has_tasks || tool.task_support != TaskSupport::Required)
}

/// The catalog without the resources and prompts of plugins that the requestor may not use: to it they are not there. A
/// requestor may use a plugin if it may call one of its tools, or if a scope names the plugin. Tools stay: which of
/// them may be called is asked for each.
pub(super) fn visible(rights: &Rights, catalog: Arc<Catalog>) -> Arc<Catalog> {
    if !rights.are_limited() {
        return catalog;
    }
    let may = |library: &CatalogPlugin| {
        let mut tools = catalog.tools().iter().filter(|entry| entry.plugin == library.plugin);
        rights.has(Need::Plugin(&library.plugin.name)) || tools.any(|entry| rights.has(Need::Tool(&entry.tool.name)))
    };
    let offering = catalog.libraries().iter().filter(|library| library.offers_anything());
    let hidden: Vec<_> = offering.filter(|library| !may(library)).map(|library| &library.plugin).collect();
    if hidden.is_empty() { Arc::clone(&catalog) } else { Arc::new(catalog.without_offers(&hidden)) }
}
