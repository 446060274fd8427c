//! The limits of requestors and tenants while the host runs.
//!
//! Owns the limits in force, the counters of what requestors and tenants hold and of what tenants use, the token
//! buckets that enforce rates, and the shape of a refusal. Must not know what is limited: a module that enforces a
//! limit names it. Invariant: a refused request is not charged.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

pub mod failures;
pub mod rate;
pub mod scoped;
mod scoped_semaphore;
mod share;
pub mod tenant_usage;

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use bulkhead_domain::limits::{Limits, LimitsTable};
use bulkhead_domain::requestor::Requestor;

pub use scoped::{Full, LimitUsage, Permit, RequestorUsage, Scope, ScopedCounter, UsageReport};
pub use scoped_semaphore::{ScopedSemaphore, SemaphorePermit};

/// The limits that hold at this moment, the same wherever they are looked at; cheap to clone.
#[derive(Clone, Debug)]
pub struct LiveLimits(Arc<Shares>);

#[derive(Debug)]
struct Shares {
    in_force: ArcSwap<LimitsTable>,
    /// Those of the configuration, and how many hosts share them.
    whole: Mutex<(Arc<LimitsTable>, usize)>,
}

impl LiveLimits {
    /// Those that hold for a requestor.
    pub fn of(&self, requestor: &Requestor) -> Arc<Limits> {
        Arc::clone(self.0.in_force.load().of(requestor))
    }

    /// Those of the host, and of tenants that have no others.
    pub fn base(&self) -> Arc<Limits> {
        Arc::clone(&self.0.in_force.load().base)
    }

    /// All of them, for a moment: nothing that every request counts up and down, as an `Arc` of its own would be.
    pub fn read(&self) -> arc_swap::Guard<Arc<LimitsTable>> {
        self.0.in_force.load()
    }

    /// All of them.
    pub fn table(&self) -> Arc<LimitsTable> {
        self.0.in_force.load_full()
    }

    /// Replaces the limits for all requestors at once.
    pub fn set(&self, limits: LimitsTable) {
        let mut whole = self.0.whole.lock();
        whole.0 = Arc::new(limits);
        self.0.in_force.store(share::of_host(&whole.0, whole.1));
    }

    /// Goes by the share of one of so many hosts from now on, where a limit has shares.
    pub fn share_among(&self, hosts: usize) {
        let mut whole = self.0.whole.lock();
        whole.1 = hosts;
        self.0.in_force.store(share::of_host(&whole.0, hosts));
    }
}

impl From<LimitsTable> for LiveLimits {
    fn from(limits: LimitsTable) -> Self {
        let limits = Arc::new(limits);
        let in_force = ArcSwap::new(Arc::clone(&limits));
        Self(Arc::new(Shares { in_force, whole: Mutex::new((limits, 1)) }))
    }
}

impl From<Limits> for LiveLimits {
    fn from(limits: Limits) -> Self {
        LimitsTable::from(limits).into()
    }
}
