//! Which requests are recorded.
//!
//! A request without a caller's context is recorded by the operator's ratio. One with a context is recorded if its caller records it,
//! within a budget for each tenant and for the host, so that no client can make the host export everything.

use std::collections::HashMap;
use std::time::Instant;

use bulkhead_domain::requestor::TenantId;
use parking_lot::Mutex;

/// Requests that are recorded because their callers record them, at most, in each second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowedMax {
    pub per_tenant: u32,
    pub total: u32,
}

pub(super) struct Sampling {
    /// Below it, the ids of traces that are recorded.
    threshold: u64,
    followed_max: FollowedMax,
    begun: Instant,
    second: Mutex<Second>,
}

/// What was followed in one second. Has at most as many tenants as requests that were followed.
#[derive(Default)]
struct Second {
    number: u64,
    total: u32,
    followed: HashMap<TenantId, u32>,
}

impl Sampling {
    pub(super) fn new(ratio: f64, followed_max: FollowedMax) -> Self {
        // A float becomes the nearest number there is: 1.0 becomes the largest one.
        let threshold = (ratio.clamp(0.0, 1.0) * u64::MAX as f64) as u64;
        Self { threshold, followed_max, begun: Instant::now(), second: Mutex::default() }
    }

    /// Whether any trace is begun here.
    pub(super) fn begins_traces(&self) -> bool {
        self.threshold > 0
    }

    /// Whether a trace of this id is begun here. The id is random.
    pub(super) fn begins(&self, trace_id: [u8; 16]) -> bool {
        let number = trace_id.last_chunk().map_or(u64::MAX, |chunk: &[u8; 8]| u64::from_be_bytes(*chunk));
        self.threshold == u64::MAX || number < self.threshold
    }

    /// Whether a request is recorded whose caller records it.
    pub(super) fn follows(&self, tenant: TenantId) -> bool {
        self.follows_at(tenant, self.begun.elapsed().as_secs())
    }

    fn follows_at(&self, tenant: TenantId, number: u64) -> bool {
        let FollowedMax { per_tenant, total } = self.followed_max;
        let mut second = self.second.lock();
        if second.number != number {
            (second.number, second.total) = (number, 0);
            second.followed.clear();
        }
        if second.total >= total || per_tenant == 0 {
            return false;
        }
        let followed = second.followed.entry(tenant).or_insert(0);
        if *followed >= per_tenant {
            return false;
        }
        *followed += 1;
        second.total += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: FollowedMax = FollowedMax { per_tenant: 3, total: 5 };
    const ONE: TenantId = TenantId([1; 16]);
    const OTHER: TenantId = TenantId([2; 16]);

    #[test]
    fn callers_are_followed_within_their_tenants_budget_and_the_hosts() {
        let sampling = Sampling::new(0.0, MAX);
        let followed = |tenant, second| (0..100).filter(|_| sampling.follows_at(tenant, second)).count();
        assert_eq!((followed(ONE, 0), followed(OTHER, 0)), (3, 2), "the host's budget is used up");
        assert_eq!((followed(OTHER, 1), followed(ONE, 1)), (3, 2), "each second begins anew");
        assert!(sampling.second.lock().followed.len() <= 2);
    }

    #[test]
    fn tenants_that_come_when_the_budget_is_used_up_are_not_remembered() {
        let sampling = Sampling::new(0.0, MAX);
        for number in 0..200 {
            sampling.follows_at(TenantId([number; 16]), 0);
        }
        assert_eq!(sampling.second.lock().followed.len(), 5);
        let none = Sampling::new(0.0, FollowedMax { per_tenant: 0, total: 5 });
        assert!(!none.follows_at(ONE, 0));
    }

    #[test]
    fn ratio_decides_by_the_traces_id() {
        let of = |ratio| Sampling::new(ratio, MAX);
        let id = |last: u64| {
            let mut id = [7; 16];
            id[8..].copy_from_slice(&last.to_be_bytes());
            id
        };
        assert!(!of(0.0).begins_traces() && of(0.001).begins_traces());
        assert!(of(1.0).begins(id(u64::MAX)) && of(1.0).begins(id(0)));
        assert!(of(0.5).begins(id(u64::MAX / 4)) && !of(0.5).begins(id(u64::MAX / 4 * 3)));
    }
}
