//! What each may take up at the edge: requests a second, open requests, bytes of large bodies, sessions, events that are kept, and answers
//! that are not read.
//!
//! Owns the counts by requestor, by tenant and for the host, and says what is in use. Must not know what a request says. Invariants: whatever a tenant does
//! with requestors, sessions, connections and tokens, what is counted for it stays within its limit; nothing is remembered of those
//! who have nothing.

use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption};
use rustc_hash::FxHashMap;

use super::bodies::Bodies;
use super::refusal::Refusal;
use bulkhead_domain::limits::Limits;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_limits::LiveLimits;
use bulkhead_limits::rate::Rates;

pub use bulkhead_limits::Full;

/// How much of a limit is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitUsage {
    pub limit: &'static str,
    pub in_use: u64,
    pub max: u64,
}

/// What a requestor has in use, and what its tenant has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    pub requestor: Vec<LimitUsage>,
    pub tenant: Vec<LimitUsage>,
}

/// See the module.
pub struct EdgeQuota {
    pub(super) limits: LiveLimits,
    rates: ArcSwap<Rates>,
    open: Arc<QuotaCounter>,
    pub(super) bodies: Bodies,
    pub(super) kept: Arc<QuotaCounter>,
    /// Bytes of large answers that are not written.
    answers: Arc<QuotaCounter>,
    /// Where there are sessions.
    sessions: ArcSwapOption<QuotaCounter>,
    /// Where there are connections.
    connections: ArcSwapOption<Connections>,
}

/// How many connections are open.
pub(super) struct Connections {
    open: AtomicU64,
    max: u32,
}

/// One connection, counted until it is dropped.
pub(super) struct ConnectionGuard(Arc<Connections>);

impl Connections {
    pub(super) fn enter(self: &Arc<Self>) -> ConnectionGuard {
        self.open.fetch_add(1, Ordering::Relaxed);
        ConnectionGuard(Arc::clone(self))
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl EdgeQuota {
    /// Of these limits.
    pub fn new(limits: LiveLimits) -> Self {
        let open = QuotaCounter::new(limits.clone(), |limits| {
            [
                ("requests_open_per_tenant", limits.requests_open_per_tenant.into()),
                ("requests_open_per_requestor", limits.requests_open_per_requestor.into()),
                ("requests_open_total", limits.requests_open_total.into()),
            ]
        });
        let kept = QuotaCounter::new(limits.clone(), |limits| {
            [
                ("event_bytes_per_tenant", limits.event_bytes_per_tenant),
                ("event_bytes_per_requestor", limits.event_bytes_per_requestor),
                ("event_bytes_total", limits.event_bytes_total),
            ]
        });
        let answers = QuotaCounter::new(limits.clone(), |limits| {
            [
                ("answer_bytes_per_tenant", limits.answer_bytes_per_tenant),
                ("answer_bytes_per_requestor", limits.answer_bytes_per_requestor),
                ("answer_bytes_total", limits.answer_bytes_total),
            ]
        });
        let rates = ArcSwap::from_pointee(Rates::of_requests(&limits.table()));
        let (sessions, connections) = (ArcSwapOption::empty(), ArcSwapOption::empty());
        let bodies = Bodies::new(limits.clone());
        let (open, kept, answers) = (Arc::new(open), Arc::new(kept), Arc::new(answers));
        Self { rates, open, bodies, kept, answers, sessions, connections, limits }
    }

    /// Counts the sessions of a registry from now on.
    pub(super) fn count_sessions(&self, per_requestor: u32) -> Arc<QuotaCounter> {
        let tally = Arc::new(QuotaCounter::new(self.limits.clone(), move |limits| {
            [
                ("sessions_per_tenant", limits.sessions_per_tenant.into()),
                ("sessions_per_requestor", per_requestor.into()),
                ("sessions_total", limits.sessions_total.into()),
            ]
        }));
        self.sessions.store(Some(Arc::clone(&tally)));
        tally
    }

    /// Counts the connections of a server from now on; that there are no more is for its permits to see to.
    pub(super) fn count_connections(&self, max: u32) -> Arc<Connections> {
        let connections = Arc::new(Connections { open: AtomicU64::new(0), max });
        self.connections.store(Some(Arc::clone(&connections)));
        connections
    }

    /// What is in use of the limits of a requestor and of its tenant.
    pub fn in_use(&self, requestor: &Requestor) -> InUse {
        let mut in_use = InUse::default();
        for tally in self.tallies() {
            let [tenant, own, _] = tally.taken(&tally.counts(), requestor);
            in_use.tenant.push(tenant);
            in_use.requestor.push(own);
        }
        in_use
    }

    /// What is in use of the host's limits.
    pub fn in_use_of_all(&self) -> Vec<LimitUsage> {
        let mut taken: Vec<_> = self.tallies().map(|tally| tally.all_taken(&tally.counts())).collect();
        if let Some(connections) = &*self.connections.load() {
            let in_use = connections.open.load(Ordering::Relaxed);
            taken.push(LimitUsage { limit: "connections_max", in_use, max: connections.max.into() });
        }
        taken
    }

    fn tallies(&self) -> impl Iterator<Item = Arc<QuotaCounter>> {
        let sessions = self.sessions.load_full();
        [&self.open, self.bodies.tally(), &self.kept, &self.answers].map(Arc::clone).into_iter().chain(sessions)
    }

    /// Takes one request from the rates.
    pub(super) fn admit(&self, requestor: &Requestor) -> Result<(), Refusal> {
        self.rates.load().check(requestor).map_err(|exceeded| Refusal::rate(&exceeded))
    }

    /// A place among the open requests.
    pub(super) fn open(&self, requestor: &Requestor) -> Result<QuotaPermit, Full> {
        self.open.take(requestor, 1)
    }

    /// Room for the bytes of an answer, until they are written.
    pub(super) fn hold(&self, requestor: &Requestor, bytes: u64) -> Result<QuotaPermit, Full> {
        self.answers.take(requestor, bytes)
    }

    /// The first limit of unread answers that has less than a quarter left. That quarter is for the results of the calls that run: what
    /// has no room when it is there is lost, though the call was made.
    pub(super) fn full_of_answers(&self, requestor: &Requestor) -> Option<Full> {
        self.answers.nearly_full(requestor)
    }

    /// Forgets the rates of those who have been quiet.
    pub fn forget_idle(&self) {
        self.rates.load().forget_idle();
        self.bodies.forget_idle();
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
pub(super) struct QuotaCounter {
    limits: LiveLimits,
    caps: Box<dyn Fn(&Limits) -> Caps + Send + Sync>,
    /// Whether anybody has any of it: most of the time nobody has a large answer that waits, and then no lock is taken for it.
    any: AtomicBool,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    all: u64,
    tenants: FxHashMap<TenantId, u64>,
    requestors: FxHashMap<Requestor, u64>,
}

/// One or more units of a limit, released when dropped.
pub(super) struct QuotaPermit {
    tally: Arc<QuotaCounter>,
    requestor: Requestor,
    count: u64,
}

impl Drop for QuotaPermit {
    fn drop(&mut self) {
        self.tally.give(&self.requestor, self.count);
    }
}

impl QuotaCounter {
    pub(super) fn new(limits: LiveLimits, caps: impl Fn(&Limits) -> Caps + Send + Sync + 'static) -> Self {
        Self { limits, caps: Box::new(caps), any: AtomicBool::new(false), counts: Mutex::default() }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of the tenant's limit, of the requestor's, and of the host's.
    fn taken(&self, counts: &Counts, requestor: &Requestor) -> [LimitUsage; 3] {
        let limits = self.limits.read();
        let [(tenant, tenant_max), (own, own_max), _] = (self.caps)(limits.of(requestor));
        let of_tenant = counts.tenants.get(&requestor.tenant).copied().unwrap_or(0);
        let of_requestor = counts.requestors.get(requestor).copied().unwrap_or(0);
        [
            LimitUsage { limit: tenant, in_use: of_tenant, max: tenant_max },
            LimitUsage { limit: own, in_use: of_requestor, max: own_max },
            self.all_of(counts, &limits.base),
        ]
    }

    fn all_taken(&self, counts: &Counts) -> LimitUsage {
        self.all_of(counts, &self.limits.read().base)
    }

    /// What holds for the host is not a tenant's to change.
    fn all_of(&self, counts: &Counts, base: &Limits) -> LimitUsage {
        let [_, _, (limit, max)] = (self.caps)(base);
        LimitUsage { limit, in_use: counts.all, max }
    }

    /// The first limit that `more` would go beyond.
    fn full(&self, counts: &Counts, requestor: &Requestor, more: u64) -> Option<Full> {
        let taken = self.taken(counts, requestor);
        let full = taken.into_iter().find(|taken| taken.in_use.saturating_add(more) > taken.max);
        full.map(|LimitUsage { limit, max, .. }| Full { limit, value: max })
    }

    /// How much a tenant has.
    pub(super) fn of_tenant(&self, tenant: &TenantId) -> u64 {
        self.counts().tenants.get(tenant).copied().unwrap_or(0)
    }

    fn take(self: &Arc<Self>, requestor: &Requestor, count: u64) -> Result<QuotaPermit, Full> {
        self.try_add(requestor, count).map(|()| QuotaPermit { tally: Arc::clone(self), requestor: *requestor, count })
    }

    /// Counts so much if there is room for it.
    pub(super) fn try_add(&self, requestor: &Requestor, count: u64) -> Result<(), Full> {
        let mut counts = self.counts();
        match self.full(&counts, requestor, count) {
            Some(full) => Err(full),
            None => {
                counts.add(requestor, count);
                self.any.store(true, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// The limit that so much more goes beyond; its own where there is room by now.
    pub(super) fn blocking(&self, requestor: &Requestor, more: u64) -> Full {
        let counts = self.counts();
        self.full(&counts, requestor, more).unwrap_or_else(|| {
            let [_, LimitUsage { limit, max, .. }, _] = self.taken(&counts, requestor);
            Full { limit, value: max }
        })
    }

    /// The first limit of which less than a quarter is left.
    fn nearly_full(&self, requestor: &Requestor) -> Option<Full> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let taken = self.taken(&self.counts(), requestor);
        let full = taken.into_iter().find(|taken| taken.in_use > taken.max - taken.max / 4);
        full.map(|LimitUsage { limit, max, .. }| Full { limit, value: max })
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
        if counts.all == 0 {
            self.any.store(false, Ordering::Relaxed);
        }
    }

    /// The first limit that there is more than.
    pub(super) fn over(&self, requestor: &Requestor) -> Option<Full> {
        self.full(&self.counts(), requestor, 0)
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

fn give<K: std::hash::Hash + Eq>(counts: &mut FxHashMap<K, u64>, key: K, count: u64) {
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
    use bulkhead_domain::limits::LimitsTable;
    use bulkhead_domain::requestor::RequestorId;

    fn requestor(tenant: u8, id: u8) -> Requestor {
        Requestor { tenant: TenantId([tenant; 16]), id: RequestorId([id; 16]) }
    }

    fn quota() -> EdgeQuota {
        let limits = Limits {
            requests_open_per_requestor: 2,
            requests_open_per_tenant: 5,
            requests_open_total: 9,
            ..Limits::generous()
        };
        let own = Limits { requests_open_per_tenant: 1, requests_open_total: 1_000, ..limits.clone() };
        let tenants = [(TenantId([9; 16]), Arc::new(own))].into();
        EdgeQuota::new(LimitsTable { base: Arc::new(limits), tenants }.into())
    }

    #[test]
    fn open_request_quota_of_tenant_holds_for_many_requestors() {
        let quota = quota();
        let one: Vec<_> = (0..3).map(|_| quota.open(&requestor(1, 1))).collect();
        assert_eq!(one[2].as_ref().err(), Some(&Full { limit: "requests_open_per_requestor", value: 2 }));
        let many: Vec<_> = (2..=255).map(|id| quota.open(&requestor(1, id))).collect();
        assert_eq!(many.iter().filter(|place| place.is_ok()).count(), 3);
        assert_eq!(many[200].as_ref().err(), Some(&Full { limit: "requests_open_per_tenant", value: 5 }));
        let own: Vec<_> = (0..4).map(|id| quota.open(&requestor(9, id))).collect();
        assert_eq!(own.iter().filter(|place| place.is_ok()).count(), 1, "a tenant with limits of its own");
        let others: Vec<_> = (2..8).map(|tenant| quota.open(&requestor(tenant, 1))).collect();
        assert_eq!(others.iter().filter(|place| place.is_ok()).count(), 3);
        assert_eq!(others[5].as_ref().err(), Some(&Full { limit: "requests_open_total", value: 9 }));
        let in_use = quota.in_use(&requestor(1, 1));
        let taken = |limit, in_use, max| LimitUsage { limit, in_use, max };
        assert_eq!(in_use.requestor[0], taken("requests_open_per_requestor", 2, 2));
        assert_eq!(in_use.tenant[0], taken("requests_open_per_tenant", 5, 5));
        assert_eq!(quota.in_use(&requestor(9, 7)).tenant[0], taken("requests_open_per_tenant", 1, 1));
        assert_eq!(quota.in_use_of_all()[0], taken("requests_open_total", 9, 9));
        drop((one, many, own, others));
        let counts = quota.open.counts();
        assert_eq!((counts.all, counts.tenants.len(), counts.requestors.len()), (0, 0, 0));
    }
}
