//! Answers about tenants.

use serde::{Deserialize, Serialize};

/// All tenants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TenantListView {
    pub tenants: Vec<TenantView>,
}

/// A tenant with what it has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TenantView {
    pub name: String,
    pub id: String,
    pub requestors: usize,
    /// Those that open the door at this moment.
    pub tokens: usize,
    pub tasks: u64,
    pub bytes: u64,
}

/// What was removed of a tenant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TenantPurgeView {
    /// The ids of those that were erased: with one whose erasure was interrupted, it can be more than one.
    pub tenants: Vec<String>,
    pub tasks: u64,
    pub tokens: u64,
    pub principals: u64,
    pub sessions: u64,
    pub rows: u64,
    /// That the tenant was in.
    pub canaries: u64,
    pub old_stores: u64,
    /// What is left for the operator to remove.
    pub directories: Vec<String>,
}
