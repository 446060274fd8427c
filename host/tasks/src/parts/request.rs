//! What callers ask of the engine: calls of tools and other requests to plugins.

use std::sync::Arc;

use bulkhead_calls::{CatalogPlugin, Operation, ToolEntry};
use bulkhead_domain::Json;
use bulkhead_domain::call::{ClientFeatures, LogLevel};
use bulkhead_domain::task::TaskId;

/// What a client declared with its request.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientContext {
    pub features: ClientFeatures,
    /// The lowest level it wants to see.
    pub log_level: Option<LogLevel>,
    pub wants_progress: bool,
}

/// A call to be made. The arguments have been checked against the tool's input schema.
#[derive(Clone, Debug)]
pub struct CallRequest {
    pub tool: Arc<ToolEntry>,
    pub arguments: Json,
    pub client: ClientContext,
    /// Earlier tasks that this call continues: calls that its requestor has looked at.
    pub related: Vec<TaskId>,
    /// Whether a plain call of it may be promoted: it keeps what its task is to be brought back from.
    pub may_become_task: bool,
}

/// A request to a plugin that is no call of a tool, on the terms of a plain call; a task is made of a
/// [`FallbackRequest`](crate::FallbackRequest).
#[derive(Clone, Debug)]
pub struct PluginRequest {
    pub library: Arc<CatalogPlugin>,
    pub operation: Operation,
    pub client: ClientContext,
}
