//! How many bytes may come in a second, with a burst of twice that, for each requestor and each tenant.
//!
//! Owns when whose bytes have their turn: each stands behind what its tenant has taken before. A token bucket that may
//! be overdrawn: a body larger than what is left waits until it is paid, so a body of any size passes without a second
//! try. Invariant: what is refused is charged neither to the requestor nor to its tenant.

use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use bulkhead_domain::limits::Limits;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_limits::LiveLimits;
use bulkhead_limits::rate::Exceeded;

/// What nobody has taken for so long may be taken at once.
const BURST: Duration = Duration::from_secs(2);

/// See the module.
pub(super) struct ByteRateLimiter {
    limits: LiveLimits,
    wait_max: Duration,
    paid: Mutex<Paid>,
}

/// When everything that was taken is paid for; a missing key owes nothing.
#[derive(Default)]
struct Paid {
    tenants: FxHashMap<TenantId, Instant>,
    requestors: FxHashMap<Requestor, Instant>,
}

struct Rate {
    limit: &'static str,
    per_second: u32,
}

impl Rate {
    fn of_tenant(limits: &Limits) -> Self {
        Self { limit: "request_bytes_per_second_per_tenant", per_second: limits.request_bytes_per_second_per_tenant }
    }

    fn of_requestor(limits: &Limits) -> Self {
        Self { limit: "request_bytes_per_second", per_second: limits.request_bytes_per_second }
    }

    fn time(&self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.per_second.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX).min(u64::from(u32::MAX) * 1_000_000_000))
    }

    /// When so much more would be paid for, and how long to wait for that.
    fn charge(
        &self,
        paid: Option<Instant>,
        bytes: u64,
        now: Instant,
        wait_max: Duration,
    ) -> Result<(Instant, Duration), Exceeded> {
        let paid = paid.map_or(now, |paid| paid.max(now)) + self.time(bytes);
        let wait = paid.saturating_duration_since(now).saturating_sub(BURST);
        if wait > wait_max {
            let ms = (wait - wait_max).as_millis();
            let retry_after_ms = u64::try_from(ms).unwrap_or(u64::MAX).saturating_add(1);
            return Err(Exceeded { limit: self.limit, value: self.per_second, retry_after_ms });
        }
        Ok((paid, wait))
    }
}

impl ByteRateLimiter {
    pub(super) fn new(limits: LiveLimits, wait_max: Duration) -> Self {
        Self { limits, wait_max, paid: Mutex::default() }
    }

    /// Takes so many bytes, and says how long to wait before they are read.
    pub(super) fn take(&self, requestor: &Requestor, bytes: u64) -> Result<Duration, Exceeded> {
        let limits = self.limits.of(requestor);
        let now = Instant::now();
        let mut paid = self.paid.lock();
        let of_tenant = paid.tenants.get(&requestor.tenant).copied();
        let of_requestor = paid.requestors.get(requestor).copied();
        // The tenant's comes first: making requestors gives it no more.
        let (tenant, wait) = Rate::of_tenant(&limits).charge(of_tenant, bytes, now, self.wait_max)?;
        let (own, own_wait) = Rate::of_requestor(&limits).charge(of_requestor, bytes, now, self.wait_max)?;
        paid.tenants.insert(requestor.tenant, tenant);
        paid.requestors.insert(*requestor, own);
        Ok(wait.max(own_wait))
    }

    /// Releases what was taken and is not read.
    pub(super) fn release(&self, requestor: &Requestor, bytes: u64) {
        let limits = self.limits.of(requestor);
        let mut paid = self.paid.lock();
        let Paid { tenants, requestors } = &mut *paid;
        let of_tenant = tenants.get_mut(&requestor.tenant).map(|paid| (paid, Rate::of_tenant(&limits)));
        let of_requestor = requestors.get_mut(requestor).map(|paid| (paid, Rate::of_requestor(&limits)));
        for (paid, rate) in of_tenant.into_iter().chain(of_requestor) {
            *paid = paid.checked_sub(rate.time(bytes)).unwrap_or_else(Instant::now);
        }
    }

    /// Forgets who owes nothing.
    pub(super) fn forget_idle(&self) {
        let now = Instant::now();
        let mut paid = self.paid.lock();
        paid.tenants.retain(|_, paid| *paid > now);
        paid.requestors.retain(|_, paid| *paid > now);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use bulkhead_domain::limits::LimitsTable;
    use bulkhead_domain::requestor::RequestorId;

    fn requestor(tenant: u8, id: u8) -> Requestor {
        Requestor { tenant: TenantId([tenant; 16]), id: RequestorId([id; 16]) }
    }

    fn flow() -> ByteRateLimiter {
        let base = Limits {
            request_bytes_per_second: 1_000,
            request_bytes_per_second_per_tenant: 1_500,
            ..Limits::generous()
        };
        let own = Limits { request_bytes_per_second: 10, request_bytes_per_second_per_tenant: 10, ..base.clone() };
        let tenants = [(TenantId([9; 16]), Arc::new(own))].into();
        ByteRateLimiter::new(LimitsTable { base: Arc::new(base), tenants }.into(), Duration::from_secs(10))
    }

    #[tokio::test(start_paused = true)]
    async fn request_bytes_over_rate_wait_then_are_refused() {
        let flow = flow();
        let seconds = Duration::from_secs;
        assert_eq!(flow.take(&requestor(1, 1), 2_000).unwrap(), Duration::ZERO);
        assert_eq!(flow.take(&requestor(1, 1), 3_000).unwrap(), seconds(3));
        assert_eq!(flow.take(&requestor(1, 1), 7_000).unwrap(), seconds(10));
        let refused = flow.take(&requestor(1, 1), 500).unwrap_err();
        assert_eq!((refused.limit, refused.value), ("request_bytes_per_second", 1_000));
        assert_eq!(refused.retry_after_ms, 501);
        assert_eq!(flow.take(&requestor(2, 1), 2_000).unwrap(), Duration::ZERO, "nobody else is meant");
        assert_eq!(flow.take(&requestor(9, 1), 30).unwrap(), seconds(1), "a tenant with limits of its own");
        tokio::time::advance(seconds(10)).await;
        assert_eq!(flow.take(&requestor(1, 1), 500).unwrap(), Duration::from_millis(500));
    }

    #[tokio::test(start_paused = true)]
    async fn tenant_limit_holds_for_any_number_of_requestors() {
        let flow = flow();
        let waits: Vec<_> = (0..=255).map(|id| flow.take(&requestor(1, id), 1_000)).collect();
        let passed = waits.iter().filter(|wait| wait.is_ok()).count();
        assert_eq!(passed, 18, "a burst of 3,000 and ten seconds of 1,500");
        let refused = waits[200].as_ref().unwrap_err();
        assert_eq!((refused.limit, refused.value), ("request_bytes_per_second_per_tenant", 1_500));
        assert_eq!(flow.take(&requestor(2, 1), 1).unwrap(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn refused_request_bytes_are_not_charged() {
        let flow = flow();
        for _ in 0..1_000 {
            let _ = flow.take(&requestor(1, 1), 12_001);
        }
        assert_eq!(flow.take(&requestor(1, 2), 3_000).unwrap(), Duration::from_secs(1), "its neighbour's");
        flow.release(&requestor(1, 2), 3_000);
        assert_eq!(flow.take(&requestor(1, 2), 2_000).unwrap(), Duration::ZERO);
        tokio::time::advance(Duration::from_secs(5)).await;
        flow.forget_idle();
        let paid = flow.paid.lock();
        assert!(paid.tenants.is_empty() && paid.requestors.is_empty());
    }
}
