//! How often something may be done: token buckets with a burst of twice the rate, for each requestor and for each tenant.
//!
//! Owns the buckets. Must not know what is done. Invariant: there is at most one bucket for each requestor and tenant that did
//! something lately; [`Rates::forget_idle`] drops those that are full again. They are not stored: a restart fills them, which gives
//! everybody one burst.

use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroU32;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::Error;
use crate::domain::limits::{Limits, LimitsTable};
use crate::domain::requestor::{Requestor, RequestorId, TenantId};

/// Somebody is too fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    pub limit: &'static str,
    /// Per second.
    pub value: u32,
    pub retry_after_ms: u64,
}

impl From<Exceeded> for Error {
    fn from(Exceeded { limit, value, retry_after_ms }: Exceeded) -> Self {
        Self::Rate { limit, value: value.into(), retry_after_ms }
    }
}

/// One limited action.
pub struct Rates {
    base: Pair,
    /// Tenants with limits of their own have buckets of their own.
    tenants: HashMap<TenantId, Pair>,
}

/// For those who have the same limits.
struct Pair {
    requestors: Buckets<RequestorId>,
    tenants: Buckets<TenantId>,
}

/// Buckets of one size, one for each key.
pub struct Buckets<K: Hash + Eq + Clone> {
    limit: &'static str,
    per_second: u32,
    limiter: DefaultKeyedRateLimiter<K>,
}

impl<K: Hash + Eq + Clone> Buckets<K> {
    /// Of so many a second, refused under this name.
    pub fn new(limit: &'static str, per_second: u32) -> Self {
        let rate = NonZeroU32::new(per_second).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::per_second(rate).allow_burst(rate.saturating_mul(NonZeroU32::MIN.saturating_add(1)));
        Self { limit, per_second, limiter: RateLimiter::keyed(quota) }
    }

    /// What was said when they were made.
    pub fn per_second(&self) -> u32 {
        self.per_second
    }

    /// Takes one token, or says when there will be one.
    ///
    /// # Errors
    /// The bucket is empty.
    pub fn check(&self, key: &K) -> Result<(), Exceeded> {
        self.limiter.check_key(key).map_err(|until| {
            let wait_ms = u64::try_from(until.wait_time_from(DefaultClock::default().now()).as_millis());
            let retry_after_ms = wait_ms.unwrap_or(u64::MAX).saturating_add(1);
            Exceeded { limit: self.limit, value: self.per_second, retry_after_ms }
        })
    }

    fn forget_idle(&self) {
        self.limiter.retain_recent();
        self.limiter.shrink_to_fit();
    }
}

impl Rates {
    /// `requests_per_second` and its like for tenants.
    pub fn of_requests(limits: &LimitsTable) -> Self {
        Self::new(limits, |limits| Pair {
            requestors: Buckets::new("requests_per_second", limits.requests_per_second),
            tenants: Buckets::new("requests_per_second_per_tenant", limits.requests_per_second_per_tenant),
        })
    }

    /// `task_creations_per_second` and its like for tenants.
    pub fn of_creations(limits: &LimitsTable) -> Self {
        Self::new(limits, |limits| Pair {
            requestors: Buckets::new("task_creations_per_second", limits.task_creations_per_second),
            tenants: Buckets::new("task_creations_per_second_per_tenant", limits.task_creations_per_second_per_tenant),
        })
    }

    /// Whether the other ones allow something else.
    pub fn differ(&self, other: &Self) -> bool {
        let of = |pair: &Pair| (pair.requestors.per_second, pair.tenants.per_second);
        let rates = |rates: &Self| rates.tenants.iter().map(|(id, pair)| (*id, of(pair))).collect::<HashMap<_, _>>();
        of(&self.base) != of(&other.base) || rates(self) != rates(other)
    }

    fn new(limits: &LimitsTable, pair: fn(&Limits) -> Pair) -> Self {
        let tenants = limits.tenants.iter().map(|(id, limits)| (*id, pair(limits))).collect();
        Self { base: pair(&limits.base), tenants }
    }

    /// Takes one token of the requestor's and one of its tenant's, or says when there will be some.
    ///
    /// The requestor's come first: who is refused for its own sake must not use up what its neighbours share.
    ///
    /// # Errors
    /// One of the two buckets is empty.
    pub fn check(&self, requestor: &Requestor) -> Result<(), Exceeded> {
        let pair = self.tenants.get(&requestor.tenant).unwrap_or(&self.base);
        pair.requestors.check(&requestor.id)?;
        pair.tenants.check(&requestor.tenant)
    }

    /// Forgets whose buckets are full again.
    pub fn forget_idle(&self) {
        for pair in self.tenants.values().chain([&self.base]) {
            pair.requestors.forget_idle();
            pair.tenants.forget_idle();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn requestor(tenant: u8, id: u8) -> Requestor {
        Requestor { tenant: TenantId([tenant; 16]), id: RequestorId([id; 16]) }
    }

    fn rates() -> Rates {
        let base = Limits { requests_per_second: 5, requests_per_second_per_tenant: 8, ..Limits::generous() };
        let own = Limits { requests_per_second: 1, requests_per_second_per_tenant: 1, ..Limits::generous() };
        let tenants = [(TenantId([2; 16]), Arc::new(own))].into();
        Rates::of_requests(&LimitsTable { base: Arc::new(base), tenants })
    }

    fn passed(rates: &Rates, who: impl Iterator<Item = Requestor>) -> usize {
        who.filter(|who| rates.check(who).is_ok()).count()
    }

    #[test]
    fn a_burst_of_twice_the_rate_passes_and_others_are_not_touched() {
        let rates = rates();
        let through = passed(&rates, std::iter::repeat_n(requestor(1, 1), 100));
        assert!((10..=12).contains(&through), "{through}");
        let refused = rates.check(&requestor(1, 1)).unwrap_err();
        assert_eq!((refused.limit, refused.value), ("requests_per_second", 5));
        assert!((1..=201).contains(&refused.retry_after_ms), "{refused:?}");
        assert!(rates.check(&requestor(1, 2)).is_ok());
        assert!(rates.check(&requestor(3, 3)).is_ok());
        let through = passed(&rates, std::iter::repeat_n(requestor(2, 2), 50));
        assert!((2..=3).contains(&through), "a tenant with limits of its own: {through}");
    }

    #[test]
    fn a_tenant_gets_no_more_by_making_requestors() {
        let rates = rates();
        let through = passed(&rates, (0..=255).map(|id| requestor(1, id)));
        assert!((16..=18).contains(&through), "{through}");
        let refused = rates.check(&requestor(1, 77)).unwrap_err();
        assert_eq!((refused.limit, refused.value), ("requests_per_second_per_tenant", 8));
        assert!((1..=126).contains(&refused.retry_after_ms), "{refused:?}");
        assert!(rates.check(&requestor(3, 1)).is_ok(), "nobody else is meant");
    }

    #[test]
    fn who_is_too_fast_does_not_use_up_what_its_neighbours_share() {
        let rates = rates();
        passed(&rates, std::iter::repeat_n(requestor(1, 1), 10_000));
        assert!(rates.check(&requestor(1, 2)).is_ok());
    }

    #[test]
    fn full_buckets_are_forgotten() {
        let rates = rates();
        passed(&rates, (0..=255).map(|id| requestor(id, id)));
        std::thread::sleep(std::time::Duration::from_millis(1_100));
        rates.forget_idle();
        assert!(rates.base.requestors.limiter.is_empty() && rates.base.tenants.limiter.is_empty());
    }
}
