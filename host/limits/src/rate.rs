//! How often something may be done: token buckets with a burst of twice the rate, for each requestor and for each
//! tenant.
//!
//! Owns the buckets. Must not know what is done. Invariants: what is refused is charged to nobody, neither to the
//! requestor nor to its tenant; there is at most one bucket for each requestor and tenant that did something lately,
//! and [`Rates::forget_idle`] drops those that are full again. They are not stored: a restart fills them, which gives
//! everybody one burst.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;

use governor::clock::{Clock as _, DefaultClock};
use governor::nanos::Nanos;
use governor::state::StateStore;
use governor::state::keyed::ShrinkableKeyedStateStore;
use governor::{NotUntil, Quota, RateLimiter};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use bulkhead_domain::limits::{Limits, LimitsTable};
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};

/// What governor's clock gives.
type Moment = <DefaultClock as governor::clock::Clock>::Instant;

/// A bucket holds what comes in so many seconds.
const BUCKET_SECONDS: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// A rate was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    pub limit: &'static str,
    /// Per second.
    pub value: u32,
    pub retry_after_ms: u64,
}

/// Why several tokens are not given together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManyRefused {
    /// There are not as many yet.
    Exceeded(Exceeded),
    /// A full bucket does not hold as many, so that there never will be.
    TooMany(TooMany),
}

/// More was wanted than a full bucket holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany {
    pub limit: &'static str,
    /// Per second.
    pub value: u32,
    pub at_once_max: u32,
}

/// One limited action.
pub struct Rates {
    base: Pair,
    /// Tenants with limits of their own have buckets of their own.
    tenants: FxHashMap<TenantId, Pair>,
}

/// For those who have the same limits.
struct Pair {
    tenants: Buckets<TenantId>,
    requestors: Buckets<RequestorId>,
    /// Held while both buckets are charged, so that no other charge sees what a refusal puts back.
    taking: Mutex<()>,
}

/// Buckets of one size, one for each key.
pub struct Buckets<K: Hash + Eq + Copy> {
    limit: &'static str,
    per_second: u32,
    limiter: RateLimiter<K, Levels<K>, DefaultClock>,
    levels: Levels<K>,
}

/// The state of governor for each key; a missing key is a full bucket.
#[derive(Clone)]
struct Levels<K>(Arc<Mutex<FxHashMap<K, Nanos>>>);

impl<K: Hash + Eq + Copy> Levels<K> {
    fn put_back(&self, key: K, level: Option<Nanos>) {
        match level {
            Some(level) => self.0.lock().insert(key, level),
            None => self.0.lock().remove(&key),
        };
    }
}

impl<K: Hash + Eq + Copy> StateStore for Levels<K> {
    type Key = K;

    fn measure_and_replace<T, F, E>(&self, key: &K, f: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        match self.0.lock().entry(*key) {
            Entry::Occupied(mut known) => {
                let (passed, level) = f(Some(*known.get()))?;
                known.insert(level);
                Ok(passed)
            }
            Entry::Vacant(full) => {
                let (passed, level) = f(None)?;
                full.insert(level);
                Ok(passed)
            }
        }
    }
}

impl<K: Hash + Eq + Copy> ShrinkableKeyedStateStore<K> for Levels<K> {
    fn retain_recent(&self, drop_below: Nanos) {
        self.0.lock().retain(|_, level| *level > drop_below);
    }

    fn shrink_to_fit(&self) {
        self.0.lock().shrink_to_fit();
    }

    fn len(&self) -> usize {
        self.0.lock().len()
    }

    fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

impl<K: Hash + Eq + Copy> Buckets<K> {
    /// Of so many a second, refused under this name.
    pub fn new(limit: &'static str, per_second: u32) -> Self {
        let rate = NonZeroU32::new(per_second).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::per_second(rate).allow_burst(rate.saturating_mul(BUCKET_SECONDS));
        let levels = Levels(Arc::default());
        Self { limit, per_second, limiter: RateLimiter::new(quota, levels.clone(), DefaultClock::default()), levels }
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
        self.limiter.check_key(key).map_err(|until| self.exceeded(&until))
    }

    /// Takes so many tokens or none.
    ///
    /// # Errors
    /// There are not as many, or the bucket never holds as many.
    fn check_many(&self, key: &K, count: NonZeroU32) -> Result<(), ManyRefused> {
        let checked = self.limiter.check_key_n(key, count);
        let checked = checked.map_err(|full| ManyRefused::TooMany(self.too_many(full.0)))?;
        checked.map_err(|until| ManyRefused::Exceeded(self.exceeded(&until)))
    }

    /// That a full bucket holds fewer.
    fn holds_fewer(&self, count: NonZeroU32) -> Option<TooMany> {
        let full = NonZeroU32::new(self.per_second).unwrap_or(NonZeroU32::MIN).saturating_mul(BUCKET_SECONDS);
        (count > full).then(|| self.too_many(full.get()))
    }

    fn too_many(&self, at_once_max: u32) -> TooMany {
        TooMany { limit: self.limit, value: self.per_second, at_once_max }
    }

    fn exceeded(&self, until: &NotUntil<Moment>) -> Exceeded {
        let wait_ms = u64::try_from(until.wait_time_from(DefaultClock::default().now()).as_millis());
        let retry_after_ms = wait_ms.unwrap_or(u64::MAX).saturating_add(1);
        Exceeded { limit: self.limit, value: self.per_second, retry_after_ms }
    }

    fn forget_idle(&self) {
        self.limiter.retain_recent();
        self.limiter.shrink_to_fit();
    }
}

impl Pair {
    fn new(requestors: Buckets<RequestorId>, tenants: Buckets<TenantId>) -> Self {
        Self { tenants, requestors, taking: Mutex::default() }
    }

    /// Takes from the tenant's bucket, then from the requestor's; what the latter refuses goes back into the former.
    fn take<E>(
        &self,
        requestor: &Requestor,
        of_tenant: impl FnOnce(&Buckets<TenantId>) -> Result<(), E>,
        of_requestor: impl FnOnce(&Buckets<RequestorId>) -> Result<(), E>,
    ) -> Result<(), E> {
        let _taking = &self.taking.lock();
        let before = self.tenants.levels.0.lock().get(&requestor.tenant).copied();
        of_tenant(&self.tenants)?;
        of_requestor(&self.requestors).inspect_err(|_| self.tenants.levels.put_back(requestor.tenant, before))
    }

    /// That one of the two never holds as many; the one that holds the fewest.
    fn too_many(&self, count: NonZeroU32) -> Option<TooMany> {
        let fewer = [self.tenants.holds_fewer(count), self.requestors.holds_fewer(count)];
        fewer.into_iter().flatten().min_by_key(|fewer| fewer.at_once_max)
    }

    fn forget_idle(&self) {
        let _taking = &self.taking.lock();
        self.requestors.forget_idle();
        self.tenants.forget_idle();
    }
}

impl Rates {
    /// `requests_per_second` and its like for tenants.
    pub fn of_requests(limits: &LimitsTable) -> Self {
        Self::new(limits, |limits| {
            Pair::new(
                Buckets::new("requests_per_second", limits.requests_per_second),
                Buckets::new("requests_per_second_per_tenant", limits.requests_per_second_per_tenant),
            )
        })
    }

    /// `task_creations_per_second` and its like for tenants.
    pub fn of_creations(limits: &LimitsTable) -> Self {
        Self::new(limits, |limits| {
            Pair::new(
                Buckets::new("task_creations_per_second", limits.task_creations_per_second),
                Buckets::new("task_creations_per_second_per_tenant", limits.task_creations_per_second_per_tenant),
            )
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

    /// Takes one token of the tenant's and one of the requestor's, or none and says when there will be some.
    ///
    /// The tenant's come first: making requestors gives it no more. What a requestor is refused for its own sake goes
    /// back, so that it does not use up what its neighbours share.
    ///
    /// # Errors
    /// One of the two buckets is empty.
    pub fn check(&self, requestor: &Requestor) -> Result<(), Exceeded> {
        self.of(requestor).take(requestor, |all| all.check(&requestor.tenant), |own| own.check(&requestor.id))
    }

    /// The same with so many tokens, all of them or none.
    ///
    /// # Errors
    /// One of the two buckets has fewer, or never holds as many.
    pub fn check_many(&self, requestor: &Requestor, count: NonZeroU32) -> Result<(), ManyRefused> {
        let pair = self.of(requestor);
        if let Some(too_many) = pair.too_many(count) {
            return Err(ManyRefused::TooMany(too_many));
        }
        let of_requestor = |own: &Buckets<_>| own.check_many(&requestor.id, count);
        pair.take(requestor, |all| all.check_many(&requestor.tenant, count), of_requestor)
    }

    fn of(&self, requestor: &Requestor) -> &Pair {
        self.tenants.get(&requestor.tenant).unwrap_or(&self.base)
    }

    /// Forgets whose buckets are full again.
    pub fn forget_idle(&self) {
        self.tenants.values().chain([&self.base]).for_each(Pair::forget_idle);
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
    fn rate_limit_allows_a_burst_per_requestor() {
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
    fn several_tokens_are_taken_together_or_not_at_all() {
        let rates = rates();
        let take = |count| rates.check_many(&requestor(1, 1), NonZeroU32::new(count).unwrap());
        let never = TooMany { limit: "requests_per_second", value: 5, at_once_max: 10 };
        for count in [11, 16, 17, u32::MAX] {
            assert_eq!(
                take(count).unwrap_err(),
                ManyRefused::TooMany(never),
                "{count}: the smaller bucket says how many"
            );
        }
        assert!(take(8).is_ok());
        let ManyRefused::Exceeded(refused) = take(7).unwrap_err() else { panic!("seven pass later") };
        assert_eq!((refused.limit, refused.value), ("requests_per_second", 5));
        assert!(refused.retry_after_ms > 0, "{refused:?}");
        assert!(take(2).is_ok(), "what was refused is charged to no one");
    }

    #[test]
    fn tenant_limit_holds_for_any_number_of_requestors() {
        let rates = rates();
        let through = passed(&rates, (0..=255).map(|id| requestor(1, id)));
        assert!((16..=18).contains(&through), "{through}");
        let refused = rates.check(&requestor(1, 77)).unwrap_err();
        assert_eq!((refused.limit, refused.value), ("requests_per_second_per_tenant", 8));
        assert!((1..=126).contains(&refused.retry_after_ms), "{refused:?}");
        assert!(rates.check(&requestor(3, 1)).is_ok(), "nobody else is meant");
    }

    #[test]
    fn rate_limited_requestor_spares_the_tenant_rate() {
        let rates = rates();
        passed(&rates, std::iter::repeat_n(requestor(1, 1), 10_000));
        assert!(rates.check(&requestor(1, 2)).is_ok());
    }

    /// Asks until it is refused by this limit; returns how empty its tenant's bucket and its own were before and after
    /// that.
    fn levels_around_refusal(rates: &Rates, who: &Requestor, limit: &str) -> [(Option<Nanos>, Option<Nanos>); 2] {
        let levels = || {
            let Pair { tenants, requestors, .. } = &rates.base;
            (tenants.levels.0.lock().get(&who.tenant).copied(), requestors.levels.0.lock().get(&who.id).copied())
        };
        for _ in 0..100_000 {
            let before = levels();
            if rates.check(who).is_err_and(|refused| refused.limit == limit) {
                return [before, levels()];
            }
        }
        panic!("never refused by {limit}");
    }

    #[test]
    fn tenant_rate_refusal_is_not_charged_to_requestor() {
        let rates = rates();
        passed(&rates, (0..=255).map(|id| requestor(1, id)));
        let [before, after] = levels_around_refusal(&rates, &requestor(1, 77), "requests_per_second_per_tenant");
        assert_eq!(before, after);
    }

    #[test]
    fn requestor_rate_refusal_is_not_charged_to_tenant() {
        let rates = rates();
        let [before, after] = levels_around_refusal(&rates, &requestor(1, 1), "requests_per_second");
        assert_eq!(before, after);
        assert!(before.0.is_some(), "what passed before is charged to both");
    }

    #[test]
    fn rate_refusal_names_the_tenant_limit_first() {
        let rates = rates();
        let empty = Some(Nanos::from(u64::MAX / 4));
        rates.base.tenants.levels.put_back(TenantId([1; 16]), empty);
        rates.base.requestors.levels.put_back(RequestorId([1; 16]), empty);
        let refused = rates.check(&requestor(1, 1)).unwrap_err();
        assert_eq!((refused.limit, refused.value), ("requests_per_second_per_tenant", 8));
        assert!(refused.retry_after_ms > 0, "{refused:?}");
    }

    #[test]
    fn concurrent_rate_checks_charge_each_request_once() {
        let rates = rates();
        let begun = std::time::Instant::now();
        let many = |id| passed(&rates, std::iter::repeat_n(requestor(1, id), 2_000));
        let through: usize = std::thread::scope(|scope| {
            let many = &many;
            let taking: Vec<_> = (1..=4).map(|id| scope.spawn(move || many(id))).collect();
            taking.into_iter().map(|taking| taking.join().unwrap()).sum()
        });
        let most = 17 + begun.elapsed().as_millis() as usize * 8 / 1_000;
        assert!((16..=most).contains(&through), "{through} of {most}");
    }

    #[test]
    fn full_rate_buckets_are_forgotten() {
        let rates = rates();
        passed(&rates, (0..=255).map(|id| requestor(id, id)));
        std::thread::sleep(std::time::Duration::from_millis(1_100));
        rates.forget_idle();
        assert!(rates.base.requestors.levels.is_empty() && rates.base.tenants.levels.is_empty());
    }
}
