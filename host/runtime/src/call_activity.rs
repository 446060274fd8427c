//! Where an operator looks for what a call costs, for as long as it runs.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_metrics::{ActivityCounts, Outcome};

/// The counts that a call adds to.
#[derive(Debug)]
pub(super) struct CallActivity {
    /// Those of its tool, or of what else its plugin is called for.
    pub(super) tool: Arc<ActivityCounts>,
    pub(super) requestor: Option<Arc<ActivityCounts>>,
}

impl CallActivity {
    /// CPU time counts when it is used: a task may run for hours.
    pub(super) fn cpu_used(&self, used_us: u64) {
        self.tool.cpu_used(used_us);
        if let Some(requestor) = &self.requestor {
            requestor.cpu_used(used_us);
        }
    }

    pub(super) fn call_ended(&self, outcome: Outcome, busy: impl FnOnce() -> Duration) {
        self.tool.add_end(outcome);
        if !self.tool.is_watched() {
            return;
        }
        let busy = busy();
        self.tool.call_ended(outcome, busy);
        if let Some(requestor) = &self.requestor {
            requestor.call_ended(outcome, busy);
        }
    }
}
