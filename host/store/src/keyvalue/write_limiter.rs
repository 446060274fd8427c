//! Who may write at the moment.
//!
//! Owns how much of what plugins write is under way: each write waits for the disk, together with everything else that
//! is stored, and a plugin can write as fast as it loops. Must not know what is written. Invariant: what anybody else
//! writes stands behind no more of it than the bounds here, however many calls of however many plugins write.

use std::sync::Arc;

use bulkhead_domain::requestor::TenantId;
use bulkhead_limits::{ScopedSemaphore, SemaphorePermit};

/// Bytes that are counted as one; every write is one at least.
const UNIT_BYTES: u64 = 64 << 10;
/// Units of 64 KiB of one tenant's kept values that are on their way to the disk: as much as the largest value. Stops a
/// tenant from keeping the other ones from their turns.
const TENANT_UNITS_MAX: u32 = 16;
/// Units of 64 KiB of all tenants' kept values that are on their way to the disk: half of what is written in one step.
/// Stops tenants together from holding up tasks.
const ALL_UNITS_MAX: u32 = 64;

/// See the module.
pub(super) struct WriteLimiter(Arc<ScopedSemaphore<TenantId>>);

impl Default for WriteLimiter {
    fn default() -> Self {
        Self(ScopedSemaphore::new(TENANT_UNITS_MAX as usize, ALL_UNITS_MAX as usize))
    }
}

impl WriteLimiter {
    /// Waits until so many bytes of a tenant may be written.
    pub(super) async fn take(&self, tenant: TenantId, bytes: u64) -> SemaphorePermit<TenantId> {
        let count = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).clamp(1, TENANT_UNITS_MAX);
        self.0.acquire(tenant, count).await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const LARGEST: u64 = super::super::VALUE_BYTES_MAX;

    fn tenant(number: u8) -> TenantId {
        TenantId([number; 16])
    }

    #[test]
    fn keyvalue_tenant_has_bounded_concurrent_writes() {
        let turns = WriteLimiter::default();
        let large = turns.take(tenant(1), LARGEST).now_or_never().unwrap();
        assert!(turns.take(tenant(1), 0).now_or_never().is_none());
        assert!(turns.take(tenant(2), LARGEST).now_or_never().is_some(), "another tenant has turns of its own");
        drop(large);
        let small: Vec<_> = std::iter::from_fn(|| turns.take(tenant(1), 1).now_or_never()).collect();
        assert_eq!(small.len(), 16);
        drop(small);
        assert!(turns.take(tenant(1), u64::MAX).now_or_never().is_some(), "a size is no reason to wait for ever");
    }

    #[test]
    fn keyvalue_total_concurrent_writes_are_bounded() {
        let turns = WriteLimiter::default();
        let held: Vec<_> = (1..=4).map(|number| turns.take(tenant(number), LARGEST).now_or_never().unwrap()).collect();
        assert!(turns.take(tenant(5), 1).now_or_never().is_none());
        drop(held);
        assert!(turns.take(tenant(5), 1).now_or_never().is_some());
    }

    #[test]
    fn keyvalue_idle_tenants_are_forgotten() {
        let turns = WriteLimiter::default();
        let held = turns.take(tenant(9), LARGEST).now_or_never().unwrap();
        for number in 0..4_000_u16 {
            let [high, low] = number.to_be_bytes();
            let other = TenantId([high, low, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3]);
            assert!(turns.take(other, 1).now_or_never().is_some());
        }
        assert_eq!(turns.0.keys(), 1);
        assert!(turns.take(tenant(9), 1).now_or_never().is_none(), "its bound holds while it writes");
        drop(held);
        assert_eq!(turns.0.keys(), 0);
    }
}
