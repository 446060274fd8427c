//! What the host speaks the protocol with: how it presents itself, the engine, and what each era keeps between
//! requests.
//!
//! Must not know what a request asks: that is its `RequestContext`. Invariant: there is one for each host, and every
//! request sees the same.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use serde::Serialize;

use super::legacy::StreamRouter;
use super::live_sessions::LiveSessions;
use super::modern::State;
use super::rights;
use super::tool_lists::{Offered, ToolLists};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::rights::Rights;
use bulkhead_metrics::Metrics;
use bulkhead_tasks::Tasks;

/// How the host presents itself, and what it needs to speak.
#[derive(Clone, Debug)]
pub struct ProtocolOptions {
    pub server_name: String,
    pub server_title: Option<String>,
    pub server_version: String,
    /// What a client may tell its model about this host.
    pub instructions: Option<String>,
    /// Authenticates cursors; the same after a restart, so that cursors stay good.
    pub cursor_key: [u8; 32],
    /// How long a request to a client (elicitation, sampling, roots) waits for its response.
    pub request_timeout_ms: u64,
    pub metrics: Metrics,
}

/// How the host presents itself.
#[derive(Serialize)]
pub(crate) struct ServerInfo<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    version: &'a str,
}

impl<'a> From<&'a ProtocolOptions> for ServerInfo<'a> {
    fn from(options: &'a ProtocolOptions) -> Self {
        let ProtocolOptions { server_name, server_title, server_version, .. } = options;
        Self { name: server_name, title: server_title.as_deref(), version: server_version }
    }
}

/// What every exchange needs.
pub(crate) struct ProtocolContext {
    pub(crate) tasks: Tasks,
    pub(crate) options: ProtocolOptions,
    pub(crate) stream_router: Arc<StreamRouter>,
    pub(crate) modern: State,
    pub(crate) tool_lists: ToolLists,
    /// A request that takes longer is a warning in the log; 0: none is.
    pub(crate) slow_ms: AtomicU64,
    /// For what other hosts tell; `None`: there are no others.
    pub(crate) live_sessions: Option<LiveSessions>,
}

impl ProtocolContext {
    /// What is offered to a requestor at this moment. A request takes it once, as it does the catalog.
    pub(crate) fn offered(&self, requestor: &Requestor, rights: &Rights) -> Offered {
        let Offered { catalog, search, page } = self.tool_lists.narrowed(rights, self.tasks.catalog(requestor));
        Offered { catalog: rights::visible(rights, catalog), search, page }
    }
}
