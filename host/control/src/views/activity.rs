//! What calls cost, as an operator's program gets it: counts, of which two looks make rates.
//!
//! Must not hold a rate. Invariant: a count only grows until what it is of goes, or the host ends.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What has been counted of all tenants, plugins, tools or requestors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityView {
    /// For how long an operator has looked.
    pub sampled_ms: u64,
    pub rows: Vec<ActivityRowView>,
    /// Of requestors beyond those that are told apart.
    pub others: ActivityCountsView,
}

/// Of one tenant, plugin, tool or requestor: the members that name it are there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityRowView {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
    /// Without it, in a list of tools: what else the plugin is called for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requestor: Option<String>,
    #[serde(flatten)]
    pub counts: ActivityCountsView,
}

impl ActivityCountsView {
    /// Calls that ended.
    pub fn calls(&self) -> u64 {
        self.outcomes.values().sum()
    }

    /// Those of them that were errors; a call that was stopped is none.
    pub fn errors(&self) -> u64 {
        let is_error = |(name, _): &(&String, &u64)| !["ok", "cancelled"].contains(&name.as_str());
        self.outcomes.iter().filter(is_error).map(|(_, calls)| calls).sum()
    }

    /// Within how many microseconds so many per cent of them ended.
    pub fn busy_percentile_us(&self, percent: u64) -> Option<u64> {
        bulkhead_metrics::quantile(self.busy.iter().copied(), percent)
    }
}

/// Counts of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityCountsView {
    /// Calls that ended, by how: the labels of the metric `bulkhead_calls_total`.
    pub outcomes: BTreeMap<String, u64>,
    /// Calls and tasks that were refused before they began.
    pub refused: u64,
    pub cpu_us: u64,
    /// How long calls ran: steps by their longest time in microseconds, with how many.
    pub busy: Vec<(u64, u64)>,
}
