//! The shares of tenants in the threads of the guests, and where their calls are counted.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::parts::activity::RequestorActivity;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_metrics::{Activity, ActivityCounts};
use bulkhead_threads::Share;

/// The weight of a tenant without a configured one.
const WEIGHT: u32 = 1;

/// Each tenant's share of the guests' threads: one for all of its calls, however many requestors and sessions it has.
/// Its requestors divide it evenly. There are as many shares as there are tenants.
#[derive(Debug)]
pub(crate) struct Shares(Mutex<TenantShares>);

#[derive(Debug)]
struct TenantShares {
    weights: HashMap<TenantId, u32>,
    by_tenant: FxHashMap<TenantId, Share>,
    /// None: nothing is counted.
    activity: Option<RequestorActivity>,
}

impl TenantShares {
    fn weight(&self, tenant: &TenantId) -> u32 {
        self.weights.get(tenant).copied().unwrap_or(WEIGHT)
    }

    fn share(&mut self, requestor: &Requestor) -> Share {
        let weight = self.weight(&requestor.tenant);
        let share = self.by_tenant.entry(requestor.tenant).or_insert_with(|| Share::new(weight));
        share.part(u128::from_ne_bytes(requestor.id.0))
    }
}

impl Shares {
    pub(crate) fn new(weights: HashMap<TenantId, u32>) -> Self {
        Self(Mutex::new(TenantShares { weights, by_tenant: FxHashMap::default(), activity: None }))
    }

    /// What calls of a requestor run on: a part of its tenant's share.
    pub(crate) fn of(&self, requestor: &Requestor) -> Share {
        self.0.lock().share(requestor)
    }

    /// The same, and where its calls are counted: found under one lock.
    pub(crate) fn for_call(&self, requestor: &Requestor) -> (Share, Option<Arc<ActivityCounts>>) {
        let mut known = self.0.lock();
        let share = known.share(requestor);
        (share, known.activity.as_mut().map(|activity| activity.of(requestor)))
    }

    /// Counts calls by requestor from now on.
    pub(crate) fn count_in(&self, activity: &Arc<Activity>) {
        self.0.lock().activity.get_or_insert_with(|| RequestorActivity::new(activity));
    }

    /// Looks at the counts of requestors, if they are kept. Calls wait meanwhile.
    pub(crate) fn with_activity<T>(&self, look: impl FnOnce(&mut RequestorActivity) -> T) -> Option<T> {
        self.0.lock().activity.as_mut().map(look)
    }

    /// The CPU time that a tenant's calls have had, in microseconds.
    pub(crate) fn served_us(&self, tenant: &TenantId) -> u64 {
        self.0.lock().by_tenant.get(tenant).map_or(0, Share::served_us)
    }

    /// The CPU time of each tenant since the start, in microseconds.
    pub(crate) fn cpu_us(&self) -> Vec<(TenantId, u64)> {
        self.0.lock().by_tenant.iter().map(|(tenant, share)| (*tenant, share.used_us())).collect()
    }

    /// Other weights from now on, also for calls that run.
    pub(crate) fn set_weights(&self, weights: HashMap<TenantId, u32>) {
        let mut known = self.0.lock();
        known.weights = weights;
        for (tenant, share) in &known.by_tenant {
            share.set_weight(known.weight(tenant));
        }
    }
}
