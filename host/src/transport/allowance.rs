//! What each may take up at the edge: requests a second, open requests, sessions, and events that are kept.
//!
//! Owns the counts by requestor, by tenant and for the host. Must not know what a request says. Invariants: whatever a tenant does
//! with requestors, sessions, connections and tokens, what is counted for it stays within its limit; nothing is remembered of those
//! who have nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use super::refusal::Refusal;
use crate::domain::limits::Limits;
use crate::domain::requestor::{Requestor, TenantId};
use crate::tasks::LiveLimits;
use crate::tasks::rate::Rates;

/// A limit that has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    pub limit: &'static str,
    pub value: u64,
}

/// See the module.
pub struct Allowance {
    pub(super) limits: LiveLimits,
    rates: ArcSwap<Rates>,
    open: Arc<Tally>,
    pub(super) kept: Arc<Tally>,
}

impl Allowance {
    /// Of these limits.
    pub fn new(limits: LiveLimits) -> Self {
        let open = Tally::new(limits.clone(), |limits| {
            [
                ("requests_open_per_tenant", limits.requests_open_per_tenant.into()),
                ("requests_open_per_requestor", limits.requests_open_per_requestor.into()),
                ("requests_open_total", limits.requests_open_total.into()),
            ]
        });
        let kept = Tally::new(limits.clone(), |limits| {
            [
                ("event_bytes_per_tenant", limits.event_bytes_per_tenant),
                ("event_bytes_per_requestor", limits.event_bytes_per_requestor),
                ("event_bytes_total", limits.event_bytes_total),
            ]
        });
        let rates = ArcSwap::from_pointee(Rates::of_requests(&limits.table()));
        Self { rates, open: Arc::new(open), kept: Arc::new(kept), limits }
    }

    /// Takes one request from the rates.
    pub(super) fn admit(&self, requestor: &Requestor) -> Result<(), Refusal> {
        self.rates.load().check(requestor).map_err(|exceeded| Refusal::rate(&exceeded))
    }

    /// A place among the open requests.
    pub(super) fn open(&self, requestor: &Requestor) -> Result<Place, Full> {
        self.open.take(requestor)
    }

    /// Forgets the rates of those who have been quiet.
    pub fn forget_idle(&self) {
        self.rates.load().forget_idle();
    }

    /// Goes by the limits that were set. Buckets that are half empty stay so, unless a rate changes.
    pub fn limits_changed(&self) {
        let rates = Rates::of_requests(&self.limits.table());
        if self.rates.load().differ(&rates) {
            self.rates.store(Arc::new(rates));
        }
    }
}

/// A tenant's limit, a requestor's, and that of the host.
type Caps = [(&'static str, u64); 3];

/// How much of one thing is taken up.
pub(super) struct Tally {
    limits: LiveLimits,
    caps: fn(&Limits) -> Caps,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    all: u64,
    tenants: HashMap<TenantId, u64>,
    requestors: HashMap<Requestor, u64>,
}

/// One of something, given back when dropped.
pub(super) struct Place {
    tally: Arc<Tally>,
    requestor: Requestor,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.tally.give(&self.requestor, 1);
    }
}

impl Tally {
    fn new(limits: LiveLimits, caps: fn(&Limits) -> Caps) -> Self {
        Self { limits, caps, counts: Mutex::default() }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first limit that `more` would go beyond.
    fn full(&self, counts: &Counts, requestor: &Requestor, more: u64) -> Option<Full> {
        let limits = self.limits.read();
        let [tenant, own, _] = (self.caps)(limits.of(requestor));
        // What holds for the host is not a tenant's to change.
        let [_, _, total] = (self.caps)(&limits.base);
        let counted = [
            (tenant, counts.tenants.get(&requestor.tenant).copied().unwrap_or(0)),
            (own, counts.requestors.get(requestor).copied().unwrap_or(0)),
            (total, counts.all),
        ];
        let full = counted.into_iter().find(|((_, max), count)| count.saturating_add(more) > *max);
        full.map(|((limit, value), _)| Full { limit, value })
    }

    fn take(self: &Arc<Self>, requestor: &Requestor) -> Result<Place, Full> {
        let mut counts = self.counts();
        match self.full(&counts, requestor, 1) {
            Some(full) => Err(full),
            None => {
                counts.add(requestor, 1);
                Ok(Place { tally: Arc::clone(self), requestor: *requestor })
            }
        }
    }

    /// Counts so much, room or not.
    pub(super) fn add(&self, requestor: &Requestor, count: u64) {
        self.counts().add(requestor, count);
    }

    /// Gives so much back.
    pub(super) fn give(&self, requestor: &Requestor, count: u64) {
        let mut counts = self.counts();
        counts.all = counts.all.saturating_sub(count);
        give(&mut counts.tenants, requestor.tenant, count);
        give(&mut counts.requestors, *requestor, count);
    }

    /// Whether there is more than there may be.
    pub(super) fn is_over(&self, requestor: &Requestor) -> bool {
        self.full(&self.counts(), requestor, 0).is_some()
    }

    #[cfg(test)]
    pub(super) fn all(&self) -> u64 {
        self.counts().all
    }
}

impl Counts {
    fn add(&mut self, requestor: &Requestor, count: u64) {
        self.all = self.all.saturating_add(count);
        let tenant = self.tenants.entry(requestor.tenant).or_default();
        *tenant = tenant.saturating_add(count);
        let own = self.requestors.entry(*requestor).or_default();
        *own = own.saturating_add(count);
    }
}

fn give<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, u64>, key: K, count: u64) {
    if let Entry::Occupied(mut held) = counts.entry(key) {
        *held.get_mut() = held.get().saturating_sub(count);
        if *held.get() == 0 {
            held.remove();
        }
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use crate::domain::limits::LimitsTable;
    use crate::domain::requestor::RequestorId;

    fn requestor(tenant: u8, id: u8) -> Requestor {
        Requestor { tenant: TenantId([tenant; 16]), id: RequestorId([id; 16]) }
    }

    fn allowance() -> Allowance {
        let limits = Limits {
            requests_open_per_requestor: 2,
            requests_open_per_tenant: 5,
            requests_open_total: 9,
            ..Limits::generous()
        };
        let own = Limits { requests_open_per_tenant: 1, requests_open_total: 1_000, ..limits.clone() };
        let tenants = [(TenantId([9; 16]), Arc::new(own))].into();
        Allowance::new(LimitsTable { base: Arc::new(limits), tenants }.into())
    }

    #[test]
    fn a_tenant_has_no_more_open_by_making_requestors() {
        let allowance = allowance();
        let one: Vec<_> = (0..3).map(|_| allowance.open(&requestor(1, 1))).collect();
        assert_eq!(one[2].as_ref().err(), Some(&Full { limit: "requests_open_per_requestor", value: 2 }));
        let many: Vec<_> = (2..=255).map(|id| allowance.open(&requestor(1, id))).collect();
        assert_eq!(many.iter().filter(|place| place.is_ok()).count(), 3);
        assert_eq!(many[200].as_ref().err(), Some(&Full { limit: "requests_open_per_tenant", value: 5 }));
        let own: Vec<_> = (0..4).map(|id| allowance.open(&requestor(9, id))).collect();
        assert_eq!(own.iter().filter(|place| place.is_ok()).count(), 1, "a tenant with limits of its own");
        let others: Vec<_> = (2..8).map(|tenant| allowance.open(&requestor(tenant, 1))).collect();
        assert_eq!(others.iter().filter(|place| place.is_ok()).count(), 3);
        assert_eq!(others[5].as_ref().err(), Some(&Full { limit: "requests_open_total", value: 9 }));
        drop((one, many, own, others));
        let counts = allowance.open.counts();
        assert_eq!((counts.all, counts.tenants.len(), counts.requestors.len()), (0, 0, 0));
    }
}
