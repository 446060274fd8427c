//! How often a requestor may do something: token buckets with a burst of twice the rate.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::Error;
use crate::domain::limits::Limits;
use crate::domain::requestor::{Requestor, TenantId};

/// One limited action, for every requestor.
pub struct Rates {
    limit: &'static str,
    base: Bucket,
    tenants: HashMap<TenantId, Bucket>,
}

struct Bucket {
    limiter: DefaultKeyedRateLimiter<Requestor>,
    per_second: u32,
}

impl Bucket {
    fn new(per_second: u32) -> Self {
        let rate = NonZeroU32::new(per_second).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::per_second(rate).allow_burst(rate.saturating_mul(NonZeroU32::MIN.saturating_add(1)));
        Self { limiter: RateLimiter::keyed(quota), per_second }
    }
}

impl Rates {
    /// `rate` picks the number from the limits; tenants with limits of their own get buckets of their own.
    pub fn new(
        limit: &'static str,
        base: &Arc<Limits>,
        tenants: &HashMap<TenantId, Arc<Limits>>,
        rate: impl Fn(&Limits) -> u32,
    ) -> Self {
        let tenants = tenants.iter().map(|(id, limits)| (*id, Bucket::new(rate(limits)))).collect();
        Self { limit, base: Bucket::new(rate(base)), tenants }
    }

    /// Whether the other one allows something else.
    pub fn differs(&self, other: &Self) -> bool {
        let rates = |rates: &Self| rates.tenants.iter().map(|(id, bucket)| (*id, bucket.per_second)).collect();
        let (ours, theirs): (HashMap<_, _>, HashMap<_, _>) = (rates(self), rates(other));
        self.base.per_second != other.base.per_second || ours != theirs
    }

    /// Takes one token, or says when there will be one.
    pub fn check(&self, requestor: &Requestor) -> Result<(), Error> {
        let bucket = self.tenants.get(&requestor.tenant).unwrap_or(&self.base);
        bucket.limiter.check_key(requestor).map_err(|not_until| {
            let wait = not_until.wait_time_from(DefaultClock::default().now());
            let retry_after_ms = (wait.as_millis() as u64).saturating_add(1);
            Error::Rate { limit: self.limit, value: bucket.per_second.into(), retry_after_ms }
        })
    }

    /// Forgets requestors whose buckets are full again.
    pub fn forget_idle(&self) {
        for bucket in self.tenants.values().chain([&self.base]) {
            bucket.limiter.retain_recent();
            bucket.limiter.shrink_to_fit();
        }
    }
}
