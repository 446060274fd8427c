//! What a host did, over time, as an operator's program gets it.
//!
//! Must not name a tenant or a tool. Invariant: what a point holds is of its own span of time.

use std::collections::BTreeMap;

use bulkhead_domain::UnixMs;
use serde::{Deserialize, Serialize};

/// The last hour, oldest point first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryView {
    pub points: Vec<HistoryPointView>,
}

/// A span of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryPointView {
    /// When it ended.
    pub at: UnixMs,
    pub span_ms: u64,
    /// Calls that ended, by how: the labels of the metric `bulkhead_calls_total`.
    pub calls: BTreeMap<String, u64>,
    /// Within how many microseconds half of them ended, and 99 of 100.
    pub p50_us: Option<u64>,
    pub p99_us: Option<u64>,
    pub guests_cpu_us: u64,
    /// Of the whole process, with its guests.
    pub host_cpu_us: u64,
    /// The most of the span.
    pub calls_running: u64,
    pub calls_queued: u64,
    pub calls_resting: u64,
    /// Tasks that waited for a person.
    #[serde(default)]
    pub tasks_waiting: u64,
    /// Requests that were refused, by the limit that did.
    pub refusals: BTreeMap<String, u64>,
    /// How often the store was synced, and how long the disk took; `None`: it is not counted.
    pub store_syncs: Option<u64>,
    pub store_sync_p50_us: Option<u64>,
    pub store_sync_p99_us: Option<u64>,
}
