//! Answers about a host that runs: limits in use, draining, another configuration.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// What is in use of each limit that counts something, by its name, in the order in which they are shown.
pub type LimitCounts = IndexMap<String, LimitCount>;

/// How much of a limit is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitCount {
    pub in_use: u64,
    pub max: u64,
}

/// What is in use, of the host, of tenants and of requestors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LimitsView {
    pub host: LimitCounts,
    pub tenants: Vec<TenantLimitsView>,
    pub requestors: Vec<RequestorLimitsView>,
    /// Whether there are more requestors.
    pub more: bool,
}

/// What a tenant has in use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TenantLimitsView {
    pub tenant: String,
    pub limits: LimitCounts,
}

/// What a requestor has in use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RequestorLimitsView {
    pub requestor: String,
    pub tenant: String,
    pub limits: LimitCounts,
}

/// What is left to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainView {
    /// Whether nothing new is taken.
    pub draining: bool,
    /// Whether nothing goes on any more that ends by itself.
    pub still: bool,
    pub plain_calls: usize,
    pub tasks_running: usize,
    pub tasks_queued: usize,
    pub tasks_waiting: usize,
    pub tasks_paused: usize,
}

/// What another configuration changes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReloadView {
    /// Whether it was taken over.
    pub done: bool,
    pub changed: Vec<String>,
    pub configuration_sha256: String,
    pub configuration_sha256_before: String,
}
