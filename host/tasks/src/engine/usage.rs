//! What the engine is used for, and the limits and shares of its use.
//!
//! Owns what operators see and change of that while it runs. Invariant: what has begun goes on, whatever the limits
//! become.

use std::collections::HashMap;
use std::sync::Arc;

use crate::engine::Tasks;
use crate::error::Error;
use crate::parts::activity;
use crate::parts::activity::{ActivityGroup, ActivitySample};
use crate::parts::admission::{InUse, Sums};
use crate::parts::tenant_usage::WRITE_EVERY;
use bulkhead_domain::limits::Limits;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_limits::tenant_usage::TenantUsage;
use bulkhead_store::Usage;
use tokio::time::Instant;

impl Tasks {
    /// What is in use of the limits that count calls.
    pub fn in_use(&self) -> InUse {
        self.inner.admission.in_use()
    }

    /// What calls and tasks count as, of all requestors and of some tenants.
    pub fn sums(&self, tenants: &[TenantId]) -> (Sums, Vec<Sums>) {
        self.inner.admission.sums(tenants)
    }

    /// What calls and tasks of one requestor count as.
    pub fn sums_of(&self, requestor: &Requestor) -> Sums {
        self.inner.admission.sums_of(requestor)
    }

    /// What a requestor has stored.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    pub async fn stored_by(&self, requestor: &Requestor) -> Result<Usage, Error> {
        let stored = self.inner.store.usage(requestor).await.map_err(|error| self.inner.store_error(error))?;
        Ok(stored.0)
    }

    /// The CPU time that a tenant's calls have had on the guests' threads, in microseconds.
    pub fn served_us(&self, tenant: &TenantId) -> u64 {
        self.inner.shares.served_us(tenant)
    }

    /// The limits of tenants without limits of their own.
    pub fn base_limits(&self) -> Arc<Limits> {
        self.inner.admission.live_limits().base()
    }

    /// Applies the limits that were [set](bulkhead_limits::LiveLimits::set). What runs and is stored stays, also where
    /// it is more than they allow by now.
    pub fn limits_changed(&self) {
        self.inner.availability.set_limits(&self.inner.admission.live_limits().table());
        self.inner.admission.dispatch_waiting();
    }

    /// Divides the guests' threads by these weights from now on, also between calls that run; a tenant that is not
    /// named has 1.
    pub fn set_cpu_weights(&self, weights: HashMap<TenantId, u32>) {
        self.inner.shares.set_weights(weights);
    }

    /// What calls cost by a group. It is counted from the first look on, until some time after the last.
    pub fn activity(&self, group: ActivityGroup) -> ActivitySample {
        let inner = &self.inner;
        let Some(activity) = inner.activity.get() else { return ActivitySample::default() };
        activity::sample(group, activity, || {
            // Copied first: calls wait for this lock.
            let mut tenants = inner.shares.with_activity(|activity| activity.tenants.clone()).unwrap_or_default();
            // A call that began while its tenant was erased may have come back here.
            tenants.retain(|tenant, _| !inner.availability.is_blocked(*tenant));
            tenants
        })
    }

    /// Where what tenants use is counted.
    pub fn usage_counts(&self) -> Arc<TenantUsage> {
        Arc::clone(&self.inner.usage.counts)
    }

    /// Writes what was used since the last time. Goes on to its end even if its caller stops waiting, so that nothing
    /// that was taken is lost.
    pub async fn write_usage(&self) {
        let inner = Arc::clone(&self.inner);
        let written = tokio::spawn(async move {
            inner.usage.write(inner.clock.now(), || inner.shares.cpu_us(), &inner.availability).await;
            if let Some(activity) = inner.activity.get() {
                inner.usage.write_tools(inner.clock.now(), activity).await;
            }
        });
        if let Err(error) = written.await {
            tracing::error!("writing what tenants used broke off: {error}");
        }
    }

    pub(super) async fn write_usage_until_dropped(&self) {
        let mut interval = tokio::time::interval_at(Instant::now() + WRITE_EVERY, WRITE_EVERY);
        loop {
            interval.tick().await;
            self.write_usage().await;
        }
    }
}
