//! How a host is, as an operator's program gets it.
//!
//! Must not hold what a probe may not be told: only operators get it.

use serde::{Deserialize, Serialize};

/// Whether a host is healthy and ready, and what that is read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthView {
    /// What `/healthz` says.
    pub healthy: bool,
    /// What `/readyz` says.
    pub ready: bool,
    /// Why it is not.
    pub reasons: Vec<String>,
    pub draining: bool,
    pub store: StoreHealth,
    pub plugins: PluginsHealth,
    pub guests: GuestsHealth,
    pub audit: AuditHealth,
    /// Where the data directory lies; `None`: it cannot be asked.
    pub disk_free_bytes: Option<u64>,
    pub clock: ClockHealth,
}

/// Whether the store takes writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreHealth {
    pub writable: bool,
    /// Why not.
    pub problem: Option<String>,
}

/// How many plugins there should be, and which do not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginsHealth {
    pub configured: usize,
    pub serving: usize,
    pub broken: Vec<String>,
    /// Their components are still to be fetched.
    pub awaited: Vec<String>,
    /// Those of `server.ready_requires` that are not served.
    pub missing: Vec<String>,
}

/// Whether the guests' threads go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestsHealth {
    pub running: bool,
    /// How long ago a no-op passed through them last.
    pub silent_ms: u64,
}

/// Whether the audit log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditHealth {
    Off,
    Written,
    /// The disk does not take it. It is tried again, and what does not fit into the queue is counted.
    Refused,
}

/// How the host's time stands to that of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockHealth {
    pub now_ms: u64,
    /// After the system's clock was set back, until it has caught up.
    pub ahead_of_system_ms: u64,
}
