//! A component that is ready to be called, and how many calls of it there are.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;
use wasmtime::component::InstancePre;

use super::app_views::AppViews;
use super::call::Call;
use super::engines::GuestEngine;
use super::exports::Exports;
use super::manifest::RequestedPolicy;
use super::programs::mcp::McpServer;
use super::skills::Skills;
use crate::granted::GrantedTo;
use bulkhead_calls::{Operation, Returned, ToolEntry};
use bulkhead_domain::server_features::{Resource, ResourcePage};
use bulkhead_metrics::{ActivityCounts, PluginMetrics};

/// A component that is ready to be called.
pub(super) struct Plugin {
    /// Shared with every call.
    pub(super) name: Arc<str>,
    /// What runs it.
    pub(super) engine: Arc<GuestEngine>,
    pub(super) instance: InstancePre<Call>,
    pub(super) exports: Arc<Exports>,
    /// Of a component that is one.
    pub(super) server: Option<Arc<McpServer>>,
    pub(super) granted: Arc<GrantedTo>,
    /// Whether callers are shown the end of its standard error when it fails.
    pub(super) stderr_in_results: bool,
    /// What its manifest requests.
    pub(super) wanted: Arc<RequestedPolicy>,
    /// By the name inside the plugin.
    pub(super) entries: Vec<Arc<ToolEntry>>,
    pub(super) views: AppViews,
    pub(super) skills: Arc<Skills>,
    pub(super) call_count: CallCount,
    pub(super) metrics: PluginMetrics,
    /// Of calls of no tool.
    pub(super) activity: Arc<ActivityCounts>,
}

/// The calls of a version, whichever of its lists they found it in.
#[derive(Clone)]
pub(super) struct CallCount {
    /// Running and waiting.
    calls: Arc<AtomicUsize>,
    /// Whether they have to end.
    pub(super) withdrawn: watch::Sender<bool>,
}

impl Default for CallCount {
    fn default() -> Self {
        Self { calls: Arc::default(), withdrawn: watch::channel(false).0 }
    }
}

impl Plugin {
    /// How many calls of it there are at this moment, running and waiting.
    pub(super) fn calls(&self) -> usize {
        self.call_count.calls.load(Ordering::Acquire)
    }

    /// Whether its tools are made of what the component exports.
    pub(super) fn is_typed(&self) -> bool {
        self.exports.is_typed() && self.server.is_none()
    }

    /// What of an operation's answer its component carries, as far as that is all of it: the host gives it without a
    /// guest.
    pub(super) fn carried(&self, operation: &Operation) -> Option<Returned> {
        if let Operation::ListResources { .. } = operation {
            let is_server = self.server.as_ref().is_some_and(|server| server.features.resources);
            let lists_others = self.exports.has_resources() || is_server;
            let page = || ResourcePage { items: self.carried_resources(operation), next: None };
            return (!lists_others).then(|| Returned::Resources(page()));
        }
        let contents = self.skills.contents(&self.name, operation)?;
        Some(Returned::Contents(vec![contents]))
    }

    /// The resources that the first page of its list begins with: those of its skills.
    pub(super) fn carried_resources(&self, operation: &Operation) -> Vec<Resource> {
        match operation {
            Operation::ListResources { cursor: None } => self.skills.resources(&self.name),
            _ => Vec::new(),
        }
    }

    /// Done when its calls have to end.
    pub(super) async fn when_withdrawn(&self) {
        // The sender lives as long as the plugin.
        let _ = self.call_count.withdrawn.subscribe().wait_for(|withdrawn| *withdrawn).await;
    }

    /// The tool of an operation that calls one.
    pub(super) fn entry(&self, operation: &Operation) -> Option<&Arc<ToolEntry>> {
        let Operation::CallTool { tool, .. } = operation else { return None };
        self.entries.iter().find(|entry| entry.plugin_tool == *tool)
    }
}

/// A plugin in the hands of one call.
pub(super) struct InFlight(Arc<Plugin>);

impl InFlight {
    pub(super) fn new(plugin: Arc<Plugin>) -> Self {
        plugin.call_count.calls.fetch_add(1, Ordering::AcqRel);
        Self(plugin)
    }
}

impl Deref for InFlight {
    type Target = Plugin;

    fn deref(&self) -> &Plugin {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.call_count.calls.fetch_sub(1, Ordering::AcqRel);
    }
}
