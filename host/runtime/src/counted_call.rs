//! A call as the metrics count it.
//!
//! Must not decide anything about the call. Invariant: every call is counted once, also one that is dropped on its way.

use std::sync::Arc;
use std::time::Instant;

use super::ToolEntry;
use super::call::Plugin;
use super::call_state::CallState;
use super::operation::{Operation, Returned};
use bulkhead_domain::call::CallError;
use bulkhead_metrics::{Outcome, PluginMetrics};

/// A call that runs; counted when this is dropped.
pub(super) struct CountedCall<'a> {
    plugin: &'a PluginMetrics,
    /// None: it calls no tool.
    tool: Option<&'a ToolEntry>,
    call: Arc<CallState>,
    /// None: nothing is counted.
    since: Option<Instant>,
    outcome: Option<Outcome>,
}

impl<'a> CountedCall<'a> {
    pub(super) fn begin(plugin: &'a Plugin, operation: &Operation, call: &Arc<CallState>) -> Self {
        let since = plugin.metrics.is_on().then(Instant::now);
        let tool = since.and_then(|_| plugin.entry(operation)).map(|(tool, _)| &**tool);
        Self { plugin: &plugin.metrics, tool, call: Arc::clone(call), since, outcome: None }
    }

    /// It came to this.
    pub(super) fn with(mut self, result: Result<Returned, CallError>) -> Result<Returned, CallError> {
        self.outcome = Some(match &result {
            Ok(Returned::Tool(output)) if output.is_error => Outcome::ToolError,
            Ok(_) => Outcome::Ok,
            Err(error) => Outcome::from(error),
        });
        result
    }
}

impl Drop for CountedCall<'_> {
    fn drop(&mut self) {
        let Some(since) = self.since else { return };
        let left = if std::thread::panicking() { Outcome::Host } else { Outcome::Cancelled };
        self.plugin.call_ended(self.call.cpu(), since.elapsed());
        if let Some(tool) = self.tool {
            tool.metrics.call_ended(self.outcome.unwrap_or(left));
        }
    }
}
