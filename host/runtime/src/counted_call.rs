//! A call as the metrics and `bulkhead top` count it: one reading of how it ended and what it cost, for both.
//!
//! Must not decide anything about the call. Invariant: every call is counted once, also one that is dropped on its way;
//! the check of a journal is none.

use std::sync::Arc;
use std::time::Instant;

use super::call_activity::CallActivity;
use super::call_state::CallState;
use super::plugin::Plugin;
use bulkhead_calls::{Returned, ToolEntry};
use bulkhead_domain::call::CallError;
use bulkhead_metrics::{ActivityCounts, Outcome, PluginMetrics};

/// A call that runs; counted when this is dropped.
pub(super) struct CountedCall<'a> {
    plugin: &'a PluginMetrics,
    /// None: it calls no tool.
    tool: Option<&'a ToolEntry>,
    call: Arc<CallState>,
    /// None: there are no metrics.
    since: Option<Instant>,
    outcome: Option<Outcome>,
}

impl<'a> CountedCall<'a> {
    /// `tool`: none, if it calls none. `requestor`: where it is counted for its requestor.
    pub(super) fn begin(
        plugin: &'a Plugin,
        tool: Option<&'a ToolEntry>,
        requestor: Option<Arc<ActivityCounts>>,
        call: &Arc<CallState>,
    ) -> Self {
        let since = plugin.metrics.is_on().then(Instant::now);
        let counts = tool.map_or(&plugin.activity, |tool| &tool.activity);
        call.count_in(CallActivity { tool: Arc::clone(counts), requestor });
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
        let left = if std::thread::panicking() { Outcome::Host } else { Outcome::Cancelled };
        let outcome = self.outcome.unwrap_or(left);
        if let Some(activity) = self.call.activity() {
            activity.call_ended(outcome, || self.call.wall_elapsed().0);
        }
        let Some(since) = self.since else { return };
        self.plugin.call_ended(self.call.cpu(), since.elapsed());
        if let Some(tool) = self.tool {
            tool.metrics.call_ended(outcome);
        }
    }
}
