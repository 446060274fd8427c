//! What may begin: neither while the host drains, nor for a tenant that is erased, nor beyond the rate of new tasks.
//!
//! Owns these switches and the count of the calls that a client waits for. Must not count what runs: that is
//! admission's.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::error::{Error, Unavailable};
use bulkhead_domain::limits::LimitsTable;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_limits::rate::Rates;

pub(crate) struct Availability {
    is_draining: AtomicBool,
    /// Whether any tenant is blocked: calls take no lock otherwise.
    is_any_blocked: AtomicBool,
    /// A blocked tenant stays blocked for as long as the engine lives; a later tenant of the same name has another id.
    blocked: Mutex<HashSet<TenantId>>,
    creations: ArcSwap<Rates>,
    plain_calls: AtomicUsize,
}

impl Availability {
    pub(crate) fn new(limits: &LimitsTable) -> Self {
        Self {
            is_draining: AtomicBool::new(false),
            is_any_blocked: AtomicBool::new(false),
            blocked: Mutex::default(),
            creations: ArcSwap::from_pointee(Rates::of_creations(limits)),
            plain_calls: AtomicUsize::new(0),
        }
    }

    /// Whether anything may begin for this requestor.
    pub(crate) fn admit(&self, requestor: &Requestor) -> Result<(), Error> {
        if self.is_draining() { Err(Error::draining()) } else { self.admit_tenant(requestor) }
    }

    /// Whether the tenant of this requestor is not blocked.
    pub(crate) fn admit_tenant(&self, requestor: &Requestor) -> Result<(), Error> {
        if self.is_blocked(requestor.tenant) {
            return Err(Error::Unavailable { why: Unavailable::Erased, retry_after_ms: None });
        }
        Ok(())
    }

    /// Whether the tenant was erased.
    pub(crate) fn is_blocked(&self, tenant: TenantId) -> bool {
        self.is_any_blocked.load(Ordering::Acquire) && self.blocked.lock().contains(&tenant)
    }

    /// Takes a new task from the rates.
    pub(crate) fn take_creation(&self, requestor: &Requestor) -> Result<(), Error> {
        Ok(self.creations.load().check(requestor)?)
    }

    /// Goes by other limits from now on. Buckets that are half empty stay so, unless their size changes.
    pub(crate) fn set_limits(&self, limits: &LimitsTable) {
        let rates = Rates::of_creations(limits);
        if self.creations.load().differ(&rates) {
            self.creations.store(Arc::new(rates));
        }
    }

    pub(crate) fn forget_idle(&self) {
        self.creations.load().forget_idle();
    }

    pub(crate) fn set_draining(&self, is_draining: bool) {
        self.is_draining.store(is_draining, Ordering::Release);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    pub(crate) fn block(&self, tenant: TenantId) {
        self.blocked.lock().insert(tenant);
        self.is_any_blocked.store(true, Ordering::Release);
    }

    pub(crate) fn plain_call_begins(&self) {
        self.plain_calls.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn plain_call_ends(&self) {
        self.plain_calls.fetch_sub(1, Ordering::AcqRel);
    }

    /// Plain calls that a client holds, running or resting.
    pub(crate) fn plain_calls(&self) -> usize {
        self.plain_calls.load(Ordering::Acquire)
    }
}
