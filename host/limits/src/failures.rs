//! How many bad credentials may come from one address.
//!
//! Owns the buckets. Must not see a credential. Invariant: the number of buckets is bounded; while it is reached,
//! addresses share one. What this host can judge itself is never refused here if it is good; only nobody else is asked
//! on behalf of an address that is over its limit.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use parking_lot::Mutex;

/// Addresses with a bucket of their own. Stops a flood from many addresses from growing the host.
const ADDRESSES_MAX: usize = 65_536;

/// Too many bad credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    pub per_minute: u32,
    pub retry_after_ms: u64,
}

/// Whose bucket it is: an address, or the network that one subscriber has; `None` for all that have none of their own.
type FailureKey = Option<IpAddr>;

/// The buckets: so many in a minute, at once or one after the other.
pub struct Failures {
    per_minute: NonZeroU32,
    limiter: DefaultKeyedRateLimiter<FailureKey>,
    /// Until when each of those is over its limit that was.
    over: Mutex<HashMap<FailureKey, Instant>>,
    clock: DefaultClock,
    addresses_max: usize,
}

impl Failures {
    pub fn new(per_minute: u32) -> Self {
        Self::bounded(per_minute, ADDRESSES_MAX)
    }

    fn bounded(per_minute: u32, addresses_max: usize) -> Self {
        let per_minute = NonZeroU32::new(per_minute).unwrap_or(NonZeroU32::MIN);
        let limiter = RateLimiter::keyed(Quota::per_minute(per_minute));
        Self { per_minute, limiter, over: Mutex::default(), clock: DefaultClock::default(), addresses_max }
    }

    /// Counts one bad credential.
    pub fn note(&self, client: IpAddr) -> Result<(), Exceeded> {
        let key = self.place(client);
        self.limiter.check_key(&key).map_err(|until| {
            let wait = until.wait_time_from(self.clock.now());
            self.over.lock().insert(key, Instant::now() + wait);
            self.exceeding(wait)
        })
    }

    /// Whether so many came from there that the next one would be too many.
    pub fn exceeded(&self, client: IpAddr) -> Option<Exceeded> {
        let until = self.over.lock().get(&self.place(client)).copied()?;
        let wait = until.checked_duration_since(Instant::now())?;
        Some(self.exceeding(wait))
    }

    fn place(&self, client: IpAddr) -> FailureKey {
        (self.limiter.len() < self.addresses_max).then(|| subscriber(client))
    }

    fn exceeding(&self, wait: Duration) -> Exceeded {
        let retry_after_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
        Exceeded { per_minute: self.per_minute.get(), retry_after_ms }
    }

    /// Drops the buckets of addresses that have been quiet.
    pub fn forget_idle(&self) {
        self.limiter.retain_recent();
        self.limiter.shrink_to_fit();
        let now = Instant::now();
        self.over.lock().retain(|_, until| now < *until);
    }
}

/// Who has one address of IPv6 has as many as there are in its /64.
pub fn subscriber(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn authentication_failures_are_limited_per_address() {
        let failures = Failures::new(5);
        for _ in 0..5 {
            failures.note(address("203.0.113.1")).unwrap();
        }
        let exceeded = failures.note(address("::ffff:203.0.113.1")).unwrap_err();
        assert_eq!(exceeded.per_minute, 5);
        assert!((1..=12_000).contains(&exceeded.retry_after_ms), "{exceeded:?}");
        assert!(failures.exceeded(address("203.0.113.1")).is_some());
        assert_eq!(failures.exceeded(address("203.0.113.2")), None);
        failures.note(address("203.0.113.2")).unwrap();
    }

    #[test]
    fn authentication_failures_are_limited_per_ipv6_network() {
        let failures = Failures::new(1);
        failures.note(address("2001:db8::1")).unwrap();
        failures.note(address("2001:db8::2")).unwrap_err();
        failures.note(address("2001:db8:0:1::1")).unwrap();
    }

    #[test]
    fn authentication_failure_buckets_are_bounded() {
        let failures = Failures::bounded(1, 10);
        let notes = (0..1_000_u32).map(|number| failures.note(IpAddr::V4(number.into())));
        assert_eq!(notes.filter(Result::is_ok).count(), 11, "the last one is for all others together");
        assert!(failures.limiter.len() <= 11);
    }
}
