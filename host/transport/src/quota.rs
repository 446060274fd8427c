//! What each may take up at the edge: requests a second, open requests, bytes of large bodies, sessions, events that
//! are kept, and answers that are not read.
//!
//! Owns the counts by requestor, by tenant and for the host, and says what is in use. Must not know what a request
//! says. Invariants: whatever a tenant does with requestors, sessions, connections and tokens, what is counted for it
//! stays within its limit; nothing is remembered of those who have nothing.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::answer::OpenStreams;
use super::bodies::Bodies;
use super::refusal::Refusal;
use bulkhead_domain::requestor::Requestor;
use bulkhead_limits::rate::{Exceeded, ManyRefused, Rates};
use bulkhead_limits::tenant_usage::{TenantUsage, UsageCounts};
use bulkhead_limits::{Full, LimitUsage, LiveLimits, Permit, RequestorUsage, Scope, ScopedCounter, UsageReport};
use bulkhead_metrics::Metrics;

/// See the module.
pub struct EdgeQuota {
    pub(super) limits: LiveLimits,
    rates: ArcSwap<Rates>,
    open: Arc<ScopedCounter>,
    pub(super) bodies: Bodies,
    pub(super) kept: Arc<ScopedCounter>,
    /// Bytes of large answers that are not written.
    answers: Arc<ScopedCounter>,
    /// Where there are sessions.
    sessions: ArcSwapOption<ScopedCounter>,
    /// Where there are connections.
    connections: ArcSwapOption<Connections>,
    /// Where bytes are counted, if they are.
    usage: OnceLock<Arc<TenantUsage>>,
    pub(super) metrics: Metrics,
    pub(super) streams: Arc<OpenStreams>,
}

/// Why a request at another listener was not admitted.
#[derive(Debug)]
pub enum ElsewhereRefused {
    Rate(Exceeded),
    Full(Full),
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
        let open = ScopedCounter::live(limits.clone(), |own, host| {
            [
                Scope::Tenant.bound("requests_open_per_tenant", own.requests_open_per_tenant),
                Scope::Requestor.bound("requests_open_per_requestor", own.requests_open_per_requestor),
                Scope::Total.bound("requests_open_total", host.requests_open_total),
            ]
        });
        let kept = ScopedCounter::live(limits.clone(), |own, host| {
            [
                Scope::Tenant.bound("event_bytes_per_tenant", own.event_bytes_per_tenant),
                Scope::Requestor.bound("event_bytes_per_requestor", own.event_bytes_per_requestor),
                Scope::Total.bound("event_bytes_total", host.event_bytes_total),
            ]
        });
        let answers = ScopedCounter::live(limits.clone(), |own, host| {
            [
                Scope::Tenant.bound("answer_bytes_per_tenant", own.answer_bytes_per_tenant),
                Scope::Requestor.bound("answer_bytes_per_requestor", own.answer_bytes_per_requestor),
                Scope::Total.bound("answer_bytes_total", host.answer_bytes_total),
            ]
        });
        let rates = ArcSwap::from_pointee(Rates::of_requests(&limits.table()));
        let sessions = ArcSwapOption::empty();
        let connections = ArcSwapOption::empty();
        let bodies = Bodies::new(limits.clone());
        let metrics = Metrics::off();
        let streams = Arc::default();
        let usage = OnceLock::new();
        Self { rates, open, bodies, kept, answers, sessions, connections, metrics, streams, limits, usage }
    }

    /// Event streams that are open.
    pub fn streams_open(&self) -> u64 {
        self.streams.count()
    }

    /// Counts the bytes of requests and answers here from now on, once for ever.
    pub fn count_usage(&self, usage: Arc<TenantUsage>) {
        self.usage.get_or_init(|| usage);
    }

    /// Where the bytes of a requestor are counted.
    pub(super) fn counts(&self, requestor: &Requestor) -> Option<Arc<UsageCounts>> {
        Some(self.usage.get()?.of(requestor.tenant))
    }

    /// So many bytes of a request came.
    pub(super) fn count_bytes_in(&self, requestor: &Requestor, bytes: usize) {
        if let Some(counts) = self.counts(requestor) {
            counts.add_bytes_in(bytes as u64);
        }
    }

    /// The same, and what is refused is counted there.
    pub fn counting(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    /// Counts the sessions of a registry from now on.
    pub(super) fn count_sessions(&self, per_requestor: u32) -> Arc<ScopedCounter> {
        let sessions = ScopedCounter::live(self.limits.clone(), move |own, host| {
            [
                Scope::Tenant.bound("sessions_per_tenant", own.sessions_per_tenant),
                Scope::Requestor.bound("sessions_per_requestor", per_requestor),
                Scope::Total.bound("sessions_total", host.sessions_total),
            ]
        });
        self.sessions.store(Some(Arc::clone(&sessions)));
        sessions
    }

    /// Counts the connections of a server from now on; the server's permits bound them.
    pub(super) fn count_connections(&self, max: u32) -> Arc<Connections> {
        let connections = Arc::new(Connections { open: AtomicU64::new(0), max });
        self.connections.store(Some(Arc::clone(&connections)));
        connections
    }

    fn counters(&self) -> impl Iterator<Item = Arc<ScopedCounter>> {
        let sessions = self.sessions.load_full();
        [&self.open, self.bodies.counter(), &self.kept, &self.answers].map(Arc::clone).into_iter().chain(sessions)
    }

    /// Takes one request from the rates.
    pub(super) fn admit(&self, requestor: &Requestor) -> Result<(), Refusal> {
        self.rates.load().check(requestor).map_err(|exceeded| Refusal::rate(&exceeded))
    }

    /// A place among the open requests.
    pub(super) fn open(&self, requestor: &Requestor) -> Result<Permit, Full> {
        self.open.acquire(requestor, 1)
    }

    /// The same for a request within the rates.
    pub(super) fn admit_and_open(&self, requestor: &Requestor) -> Result<Permit, Refusal> {
        self.admit(requestor)?;
        self.open(requestor).map_err(Refusal::quota)
    }

    /// The same for a request at another listener of the host.
    ///
    /// # Errors
    ///
    /// What it would exceed.
    pub fn admit_elsewhere(&self, requestor: &Requestor) -> Result<Permit, ElsewhereRefused> {
        self.rates.load().check(requestor).map_err(ElsewhereRefused::Rate)?;
        self.open(requestor).map_err(ElsewhereRefused::Full)
    }

    /// Room for the bytes of an answer of another listener, until it is written.
    ///
    /// # Errors
    ///
    /// What it would exceed.
    pub fn hold_elsewhere(&self, requestor: &Requestor, bytes: u64) -> Result<Permit, Full> {
        self.hold(requestor, bytes)
    }

    /// Places for the messages of a batch, all of them or none. So many of them were admitted before.
    pub(super) fn admit_batch(&self, requestor: &Requestor, count: usize, admitted: u32) -> Result<Permit, Refusal> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if let Some(further) = NonZeroU32::new(count.saturating_sub(admitted)) {
            let checked = self.rates.load().check_many(requestor, further);
            checked.map_err(|refused| match refused {
                ManyRefused::Exceeded(exceeded) => Refusal::rate(&exceeded),
                ManyRefused::TooMany(too_many) => Refusal::batch_above_rate(&too_many),
            })?;
        }
        self.open.acquire(requestor, count.into()).map_err(|full| {
            // Whoever waits for places never gets more than there are.
            if u64::from(count) > full.value { Refusal::batch_above_quota(full) } else { Refusal::quota(full) }
        })
    }

    /// Room for the bytes of an answer, until they are written.
    pub(super) fn hold(&self, requestor: &Requestor, bytes: u64) -> Result<Permit, Full> {
        self.answers.acquire(requestor, bytes)
    }

    /// The first limit of unread answers that has less than a quarter left. That quarter is for the results of the
    /// calls that run: what has no room when it is there is lost, though the call was made.
    pub(super) fn full_of_answers(&self, requestor: &Requestor) -> Option<Full> {
        if self.answers.is_empty() {
            return None;
        }
        self.answers.find_full(requestor, |usage| usage.in_use > usage.max - usage.max / 4)
    }

    /// Forgets the rates of those who have been quiet.
    pub fn forget_idle(&self) {
        self.rates.load().forget_idle();
        self.bodies.forget_idle();
    }

    /// Applies the limits that were set. Buckets that are half empty stay so, unless a rate changes.
    pub fn limits_changed(&self) {
        let rates = Rates::of_requests(&self.limits.table());
        if self.rates.load().differ(&rates) {
            self.rates.store(Arc::new(rates));
        }
    }
}

impl UsageReport for EdgeQuota {
    fn in_use(&self, requestor: &Requestor) -> RequestorUsage {
        let mut in_use = RequestorUsage::default();
        for (scope, usage) in self.counters().flat_map(|counter| counter.usage(Some(requestor))) {
            match scope {
                Scope::Requestor => in_use.requestor.push(usage),
                Scope::Tenant => in_use.tenant.push(usage),
                Scope::Total => {}
            }
        }
        in_use
    }

    fn in_use_of_all(&self) -> Vec<LimitUsage> {
        let counted = self.counters().flat_map(|counter| counter.usage(None));
        let mut taken: Vec<_> = counted.filter(|(scope, _)| *scope == Scope::Total).map(|(_, usage)| usage).collect();
        if let Some(connections) = &*self.connections.load() {
            let in_use = connections.open.load(Ordering::Relaxed);
            taken.push(LimitUsage { limit: "connections_max", in_use, max: connections.max.into() });
        }
        taken
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use bulkhead_domain::limits::{Limits, LimitsTable};
    use bulkhead_domain::requestor::{RequestorId, TenantId};

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
        assert!(quota.open.is_empty());
    }
}
