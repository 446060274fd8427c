//! Each tenant's share of the guests' threads.
//!
//! Owns which share a tenant's calls run on: one for all of them, however many requestors, sessions or calls it makes. There are as
//! many as there are tenants, and tenants are made by the operator alone.

use std::collections::HashMap;
use std::sync::Mutex;

use super::feed::lock;
use crate::domain::requestor::TenantId;
use crate::runtime::Share;

/// The weight of a tenant of which nobody said anything.
const WEIGHT: u32 = 1;

#[derive(Debug)]
pub(super) struct Shares {
    weights: HashMap<TenantId, u32>,
    by_tenant: Mutex<HashMap<TenantId, Share>>,
}

impl Shares {
    pub(super) fn new(weights: HashMap<TenantId, u32>) -> Self {
        Self { weights, by_tenant: Mutex::default() }
    }

    pub(super) fn of(&self, tenant: &TenantId) -> Share {
        let new = || Share::new(self.weights.get(tenant).copied().unwrap_or(WEIGHT));
        lock(&self.by_tenant).entry(*tenant).or_insert_with(new).clone()
    }
}
