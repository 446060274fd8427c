//! Which requests are recorded.
//!
//! A request without a caller's context is recorded by the operator's ratio. One with a context is recorded if its
//! caller records it, within a budget of spans for each tenant and for the host, so that no client can make the host
//! export everything. A request that is recorded is recorded whole: its spans may pass the budget, and then nothing is
//! followed until they are paid off.

use std::collections::HashMap;
use std::time::Instant;

use bulkhead_domain::requestor::TenantId;
use parking_lot::Mutex;

/// Spans that are recorded because callers record them, at most, in each second.
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
    budget: Mutex<Budget>,
}

/// The spans of callers' traces that are not paid off, each second pays for so many. A tenant is forgotten with its
/// last one.
#[derive(Default)]
struct Budget {
    second: u64,
    total: u64,
    followed: HashMap<TenantId, u64>,
}

impl Sampling {
    pub(super) fn new(ratio: f64, followed_max: FollowedMax) -> Self {
        // A float becomes the nearest number there is: 1.0 becomes the largest one.
        let threshold = (ratio.clamp(0.0, 1.0) * u64::MAX as f64) as u64;
        Self { threshold, followed_max, begun: Instant::now(), budget: Mutex::default() }
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

    /// Whether a request is recorded whose caller records it. Its first span is charged then.
    pub(super) fn follows(&self, tenant: TenantId) -> bool {
        self.follows_at(tenant, self.second())
    }

    /// Charges one more span of a request that is followed.
    pub(super) fn charge(&self, tenant: TenantId) {
        self.charge_at(tenant, self.second());
    }

    fn second(&self) -> u64 {
        self.begun.elapsed().as_secs()
    }

    fn follows_at(&self, tenant: TenantId, second: u64) -> bool {
        let FollowedMax { per_tenant, total } = self.followed_max;
        let mut budget = self.budget.lock();
        budget.pay(second, self.followed_max);
        let of_tenant = budget.followed.get(&tenant).copied().unwrap_or_default();
        let follows = budget.total < total.into() && of_tenant < per_tenant.into();
        if follows {
            budget.charge(tenant);
        }
        follows
    }

    fn charge_at(&self, tenant: TenantId, second: u64) {
        // Without a budget nothing would ever be paid off.
        if self.followed_max.per_tenant > 0 {
            let mut budget = self.budget.lock();
            budget.pay(second, self.followed_max);
            budget.charge(tenant);
        }
    }
}

impl Budget {
    fn charge(&mut self, tenant: TenantId) {
        self.total += 1;
        *self.followed.entry(tenant).or_insert(0) += 1;
    }

    /// Takes off what the time since the last look pays for.
    fn pay(&mut self, second: u64, FollowedMax { per_tenant, total }: FollowedMax) {
        let passed = second.saturating_sub(self.second);
        if passed == 0 {
            return;
        }
        self.second = second;
        self.total = self.total.saturating_sub(passed.saturating_mul(total.into()));
        let paid = passed.saturating_mul(per_tenant.into());
        self.followed.retain(|_, spans| {
            *spans = spans.saturating_sub(paid);
            *spans > 0
        });
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
        assert!(sampling.budget.lock().followed.len() <= 2);
    }

    #[test]
    fn all_spans_of_a_request_are_charged_and_paid_off_later() {
        let sampling = Sampling::new(0.0, FollowedMax { per_tenant: 3, total: 100 });
        assert!(sampling.follows_at(ONE, 0));
        (0..9).for_each(|_| sampling.charge_at(ONE, 0));
        let followed: Vec<_> = (0..=5).filter(|second| sampling.follows_at(ONE, *second)).collect();
        assert_eq!(followed, [3, 4, 5], "ten spans are three seconds' worth and one");
        assert!(sampling.follows_at(OTHER, 0), "nobody else pays for it");
        let none = Sampling::new(0.0, FollowedMax { per_tenant: 0, total: 5 });
        none.charge_at(ONE, 0);
        assert!(none.budget.lock().followed.is_empty(), "what is never paid off is not remembered");
    }

    #[test]
    fn host_that_recorded_too_much_follows_nobody_until_it_is_paid_off() {
        let sampling = Sampling::new(0.0, MAX);
        (0..12).for_each(|_| sampling.charge_at(ONE, 0));
        let follows = |second| sampling.follows_at(OTHER, second);
        assert_eq!([0, 1, 2, 3].map(follows), [false, false, true, true]);
    }

    #[test]
    fn tenants_that_come_when_the_budget_is_used_up_are_not_remembered() {
        let sampling = Sampling::new(0.0, MAX);
        for number in 0..200 {
            sampling.follows_at(TenantId([number; 16]), 0);
        }
        assert_eq!(sampling.budget.lock().followed.len(), 5);
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
