//! How many outgoing requests are open.
//!
//! Owns the counts: by tenant, by the parts of a tenant's share (each requestor has one) and in all. Must not know whose they are.
//! Invariants: whatever one part or one tenant does, places are left for the others; a part without open requests takes no memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::threads::Share;
use bulkhead_domain::requestor::TenantId;

/// Requests of all calls of one tenant at the same time. Stops a tenant from taking every socket of the host by waiting calls.
const REQUESTS_PER_TENANT_MAX: usize = 256;
/// Requests of all calls of one requestor at the same time. Stops a requestor from taking every place of its tenant.
const REQUESTS_PER_REQUESTOR_MAX: usize = 64;
/// Requests of all calls of the host at the same time. Stops many tenants together from taking every descriptor.
const REQUESTS_TOTAL_MAX: usize = 1_024;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct RequestQuotas(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    all: usize,
    tenants: HashMap<TenantId, usize>,
    parts: HashMap<(TenantId, u128), usize>,
}

/// Whose places a call takes.
pub(crate) struct RequestQuota {
    lines: Arc<RequestQuotas>,
    tenant: TenantId,
    part: u128,
}

/// The right to one open request, released when dropped.
pub(super) struct RequestPermit {
    lines: Arc<RequestQuotas>,
    tenant: TenantId,
    part: u128,
}

impl RequestQuotas {
    /// The places of a call with this share.
    pub(crate) fn of(self: &Arc<Self>, tenant: TenantId, share: &Share) -> RequestQuota {
        RequestQuota { lines: Arc::clone(self), tenant, part: share.own_part() }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestQuota {
    /// A place for one more request, if there is one.
    pub(super) fn take(&self) -> Option<RequestPermit> {
        let &Self { tenant, part, .. } = self;
        let mut open = self.lines.open();
        let has_room = count(&open.tenants, &tenant) < REQUESTS_PER_TENANT_MAX
            && count(&open.parts, &(tenant, part)) < REQUESTS_PER_REQUESTOR_MAX
            && open.all < REQUESTS_TOTAL_MAX;
        has_room.then(|| {
            open.all += 1;
            *open.tenants.entry(tenant).or_default() += 1;
            *open.parts.entry((tenant, part)).or_default() += 1;
            RequestPermit { lines: Arc::clone(&self.lines), tenant, part }
        })
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let mut open = self.lines.open();
        open.all = open.all.saturating_sub(1);
        release(&mut open.tenants, self.tenant);
        release(&mut open.parts, (self.tenant, self.part));
    }
}

fn count<K: Hash + Eq>(counts: &HashMap<K, usize>, key: &K) -> usize {
    counts.get(key).copied().unwrap_or(0)
}

fn release<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Entry::Occupied(mut held) = counts.entry(key) {
        *held.get_mut() = held.get().saturating_sub(1);
        if *held.get() == 0 {
            held.remove();
        }
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
        let (lines, share) = (Arc::<RequestQuotas>::default(), Share::default());
        let of = |tenant: u8, part| lines.of(TenantId([tenant; 16]), &share.part(part));
        let mut places = taken(&of(1, 1));
        assert_eq!(places.len(), REQUESTS_PER_REQUESTOR_MAX);
        assert!(of(1, 1).take().is_none(), "another call of the same requestor");
        assert!(of(1, 2).take().is_some() && of(2, 1).take().is_some(), "another requestor, and another tenant");
        places.extend((2..100).flat_map(|part| taken(&of(1, part))));
        assert_eq!(places.len(), REQUESTS_PER_TENANT_MAX);
        places
            .extend((2..=100).flat_map(|tenant| (1..9).flat_map(|part| taken(&of(tenant, part))).collect::<Vec<_>>()));
        assert_eq!(places.len(), REQUESTS_TOTAL_MAX);
        places.pop();
        assert!(of(200, 1).take().is_some(), "one has gone");
        drop(places);
        let open = lines.open();
        assert_eq!((open.all, open.tenants.len(), open.parts.len()), (0, 0, 0));
    }
}
