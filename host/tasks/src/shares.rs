//! Each tenant's share of the guests' threads.
//!
//! Owns which share a tenant's calls run on: one for all of them, however many requestors, sessions or calls it makes. Its requestors
//! divide it evenly. There are as many shares as there are tenants, and tenants are made by the operator alone.

use std::collections::HashMap;
use std::sync::Mutex;

use rustc_hash::FxHashMap;

use super::feed::lock;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_runtime::Share;

/// The weight of a tenant of which nobody said anything.
const WEIGHT: u32 = 1;

#[derive(Debug)]
pub(super) struct Shares(Mutex<TenantShares>);

#[derive(Debug)]
struct TenantShares {
    weights: HashMap<TenantId, u32>,
    by_tenant: FxHashMap<TenantId, Share>,
}

impl TenantShares {
    fn weight(&self, tenant: &TenantId) -> u32 {
        self.weights.get(tenant).copied().unwrap_or(WEIGHT)
    }
}

impl Shares {
    pub(super) fn new(weights: HashMap<TenantId, u32>) -> Self {
        Self(Mutex::new(TenantShares { weights, by_tenant: FxHashMap::default() }))
    }

    /// What calls of a requestor run on: a part of its tenant's share.
    pub(super) fn of(&self, requestor: &Requestor) -> Share {
        let mut known = lock(&self.0);
        let weight = known.weight(&requestor.tenant);
        let share = known.by_tenant.entry(requestor.tenant).or_insert_with(|| Share::new(weight));
        share.part(u128::from_ne_bytes(requestor.id.0))
    }

    /// Other weights from now on, also for calls that run.
    pub(super) fn set_weights(&self, weights: HashMap<TenantId, u32>) {
        let mut known = lock(&self.0);
        known.weights = weights;
        for (tenant, share) in &known.by_tenant {
            share.set_weight(known.weight(tenant));
        }
    }
}
