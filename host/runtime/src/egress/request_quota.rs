//! How many outgoing requests are open.
//!
//! Owns the counts: by tenant, by the parts of a tenant's share (each requestor has one) and in all. Must not know
//! whose they are. Invariants: whatever one part or one tenant does, places are left for the others; a part without
//! open requests takes no memory.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use bulkhead_domain::requestor::TenantId;
use bulkhead_limits::{Permit, Scope, ScopedCounter};
use bulkhead_threads::Share;

/// Requests of all calls of one tenant at the same time. Stops a tenant from taking every socket of the host by waiting
/// calls.
const REQUESTS_PER_TENANT_MAX: u64 = 256;
/// Requests of all calls of one requestor at the same time. Stops a requestor from taking every place of its tenant.
const REQUESTS_PER_REQUESTOR_MAX: u64 = 64;
/// Requests of all calls of the host at the same time. Stops many tenants together from taking every descriptor.
const REQUESTS_TOTAL_MAX: u64 = 1_024;

/// A tenant, and a part of its share.
type Owner = (TenantId, u128);

/// The right to one open request, released when dropped.
type RequestPermit = Permit<Owner>;

/// See the module.
pub(crate) struct RequestQuotas(Arc<ScopedCounter<Owner>>);

impl Default for RequestQuotas {
    fn default() -> Self {
        Self(ScopedCounter::new(|_| {
            [
                Scope::Tenant.bound("REQUESTS_PER_TENANT_MAX", REQUESTS_PER_TENANT_MAX),
                Scope::Requestor.bound("REQUESTS_PER_REQUESTOR_MAX", REQUESTS_PER_REQUESTOR_MAX),
                Scope::Total.bound("REQUESTS_TOTAL_MAX", REQUESTS_TOTAL_MAX),
            ]
        }))
    }
}

impl RequestQuotas {
    /// The places of a call with this share.
    pub(crate) fn of(&self, tenant: TenantId, share: &Share) -> RequestQuota {
        RequestQuota { counter: Arc::clone(&self.0), owner: (tenant, share.own_part()) }
    }
}

/// Whose places a call takes.
pub(crate) struct RequestQuota {
    counter: Arc<ScopedCounter<Owner>>,
    owner: Owner,
}

impl RequestQuota {
    /// A place for one more request, if there is one.
    fn take(&self) -> Option<RequestPermit> {
        self.counter.acquire(&self.owner, 1).ok()
    }
}

/// A request's place, in its call and among all.
#[expect(dead_code, reason = "held")]
pub(super) struct RequestSlot {
    own: OwnedSemaphorePermit,
    shared: Option<RequestPermit>,
}

impl RequestSlot {
    pub(super) fn take(slots: Arc<Semaphore>, line: Option<&RequestQuota>) -> Option<Self> {
        let own = slots.try_acquire_owned().ok()?;
        let shared = match line {
            Some(line) => Some(line.take()?),
            None => None,
        };
        Some(Self { own, shared })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(line: &RequestQuota) -> Vec<RequestPermit> {
        std::iter::from_fn(|| line.take()).collect()
    }

    #[test]
    fn egress_request_permits_are_limited_per_requestor_and_tenant() {
        let lines = RequestQuotas::default();
        let share = Share::default();
        let of = |tenant: u8, part| lines.of(TenantId([tenant; 16]), &share.part(part));
        let mut places = taken(&of(1, 1));
        assert_eq!(places.len(), REQUESTS_PER_REQUESTOR_MAX as usize);
        assert!(of(1, 1).take().is_none(), "another call of the same requestor");
        assert!(of(1, 2).take().is_some() && of(2, 1).take().is_some(), "another requestor, and another tenant");
        places.extend((2..100).flat_map(|part| taken(&of(1, part))));
        assert_eq!(places.len(), REQUESTS_PER_TENANT_MAX as usize);
        places
            .extend((2..=100).flat_map(|tenant| (1..9).flat_map(|part| taken(&of(tenant, part))).collect::<Vec<_>>()));
        assert_eq!(places.len(), REQUESTS_TOTAL_MAX as usize);
        places.pop();
        assert!(of(200, 1).take().is_some(), "one has gone");
        drop(places);
        assert!(lines.0.is_empty());
    }
}
