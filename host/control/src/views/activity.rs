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
