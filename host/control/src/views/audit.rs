//! Lines of the audit log, as an operator's program gets them.
//!
//! Must not hold more than the lines themselves and the names behind their ids.

use std::collections::BTreeMap;

use bulkhead_domain::UnixMs;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A page of the log, the newest line first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPageView {
    pub lines: Vec<AuditLineView>,
    /// The names behind the ids of tenants and requestors in the lines, as far as they are known.
    pub names: BTreeMap<String, String>,
    /// Where the next page begins.
    pub next: Option<String>,
    pub chain: AuditChainView,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLineView {
    pub seq: u64,
    pub at_ms: UnixMs,
    pub event: String,
    /// What else it says.
    pub facts: BTreeMap<String, Value>,
}

/// How the chain stands of the lines that were read for a page: more than those that it shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditChainView {
    pub sound: bool,
    /// Of the newest line that does not fit.
    pub problem: Option<String>,
    /// The numbers of the oldest and the newest line that was read.
    pub first: u64,
    pub last: u64,
    /// Whether that is everything that is kept, up to the newest of them.
    pub whole: bool,
    /// The newest of them with its digest, as `audit verify --anchor` takes it.
    pub anchor: Option<String>,
}
