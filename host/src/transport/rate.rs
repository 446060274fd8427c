//! How many requests a requestor may send per second.
//!
//! Owns the buckets. Must not know what a request says. Invariant: there is at most one bucket for each requestor that was
//! admitted lately; [`RequestRate::forget_idle`] drops those that are full again.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use arc_swap::ArcSwap;
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use crate::domain::requestor::{Requestor, RequestorId, TenantId};

/// A requestor sends too fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    pub per_second: u32,
    pub retry_after_ms: u64,
}

/// The buckets: `requests_per_second` each, with a burst of twice that.
pub struct RequestRate {
    buckets: ArcSwap<AllBuckets>,
    clock: DefaultClock,
}

struct AllBuckets {
    usual: Buckets,
    tenants: HashMap<TenantId, Buckets>,
}

impl AllBuckets {
    fn new(per_second: NonZeroU32, tenants: impl IntoIterator<Item = (TenantId, NonZeroU32)>) -> Self {
        let tenants = tenants.into_iter().map(|(tenant, per_second)| (tenant, Buckets::new(per_second))).collect();
        Self { usual: Buckets::new(per_second), tenants }
    }

    fn rates(&self) -> (NonZeroU32, HashMap<TenantId, NonZeroU32>) {
        (self.usual.per_second, self.tenants.iter().map(|(tenant, buckets)| (*tenant, buckets.per_second)).collect())
    }
}

struct Buckets {
    per_second: NonZeroU32,
    limiter: DefaultKeyedRateLimiter<RequestorId>,
}

impl Buckets {
    fn new(per_second: NonZeroU32) -> Self {
        let quota =
            Quota::per_second(per_second).allow_burst(per_second.saturating_mul(NonZeroU32::MIN.saturating_add(1)));
        Self { per_second, limiter: RateLimiter::keyed(quota) }
    }
}

impl RequestRate {
    /// `tenants` are those whose configuration sets a rate of their own.
    pub fn new(per_second: NonZeroU32, tenants: impl IntoIterator<Item = (TenantId, NonZeroU32)>) -> Self {
        Self { buckets: ArcSwap::from_pointee(AllBuckets::new(per_second, tenants)), clock: DefaultClock::default() }
    }

    /// Other rates from now on. Buckets that are half empty stay so, unless a rate changes.
    pub fn replace(&self, per_second: NonZeroU32, tenants: impl IntoIterator<Item = (TenantId, NonZeroU32)>) {
        let buckets = AllBuckets::new(per_second, tenants);
        if self.buckets.load().rates() != buckets.rates() {
            self.buckets.store(Arc::new(buckets));
        }
    }

    /// Takes one request from the requestor's bucket.
    pub fn admit(&self, requestor: &Requestor) -> Result<(), Exceeded> {
        let all = self.buckets.load();
        let buckets = all.tenants.get(&requestor.tenant).unwrap_or(&all.usual);
        buckets.limiter.check_key(&requestor.id).map_err(|until| Exceeded {
            per_second: buckets.per_second.get(),
            retry_after_ms: u64::try_from(until.wait_time_from(self.clock.now()).as_millis())
                .unwrap_or(u64::MAX)
                .max(1),
        })
    }

    /// Drops the buckets of requestors that have been quiet.
    pub fn forget_idle(&self) {
        let all = self.buckets.load();
        for buckets in all.tenants.values().chain([&all.usual]) {
            buckets.limiter.retain_recent();
            buckets.limiter.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    fn requestor(number: u8) -> Requestor {
        Requestor { tenant: TenantId([number; 16]), id: RequestorId([number; 16]) }
    }

    #[test]
    fn a_burst_of_twice_the_rate_passes_and_others_are_not_touched() {
        let rate = RequestRate::new(NonZeroU32::new(5).unwrap(), [(TenantId([2; 16]), NonZeroU32::MIN)]);
        let passed = (0..100).filter(|_| rate.admit(&requestor(1)).is_ok()).count();
        assert!((10..=20).contains(&passed), "{passed}");
        let refused = rate.admit(&requestor(1)).unwrap_err();
        assert_eq!(refused.per_second, 5);
        assert!((1..=200).contains(&refused.retry_after_ms), "{refused:?}");
        assert!(rate.admit(&requestor(3)).is_ok());
        assert!((2..=3).contains(&(0..50).filter(|_| rate.admit(&requestor(2)).is_ok()).count()));
    }
}
