//! What tenants use and how tools are called, on its way to the store.
//!
//! Owns when the counts are taken and which day they are written to. Must not count: calls are counted where each one
//! ends, bytes where they come and go, and CPU time where it is charged. Invariant: what was taken is written once, or
//! counted again; a host that is killed loses what it counted since the last time, which is a minute at most.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::sync::Mutex;

use crate::parts::availability::Availability;
use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_limits::tenant_usage::{TakenUsage, TenantUsage};
use bulkhead_metrics::Activity;
use bulkhead_store::usage_days::{DayUsage, ToolDay, ToolUsage, UsageDays};
use bulkhead_store::{Error, Store};

/// How often what was used is written.
pub(crate) const WRITE_EVERY: Duration = Duration::from_secs(60);
const DAY_MS: u64 = 86_400_000;

/// See the module.
pub(crate) struct UsageWriter {
    store: Arc<dyn Store>,
    pub(crate) counts: Arc<TenantUsage>,
    days: UsageDays,
    written: Mutex<Written>,
}

/// What the last look came to.
#[derive(Default)]
struct Written {
    /// The CPU time of each share that was written.
    cpu_us: FxHashMap<TenantId, u64>,
    /// Where the sweep goes on.
    swept_to: Option<Vec<u8>>,
}

impl UsageWriter {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let days = UsageDays::new(Arc::clone(&store));
        Self { store, counts: Arc::default(), days, written: Mutex::default() }
    }

    /// Writes what was used since the last time. `cpu_us`: the CPU time of each tenant since the start.
    pub(crate) async fn write(
        &self,
        now: UnixMs,
        cpu_us: impl FnOnce() -> Vec<(TenantId, u64)>,
        availability: &Availability,
    ) {
        // Counted from 1970-01-01 in UTC.
        let today = u32::try_from(now / DAY_MS).unwrap_or(u32::MAX);
        let mut written = self.written.lock().await;
        let mut used: FxHashMap<TenantId, (TakenUsage, u64)> = FxHashMap::default();
        for (tenant, taken) in self.counts.take() {
            used.entry(tenant).or_default().0 = taken;
        }
        for (tenant, cpu_us) in cpu_us() {
            let more_us = cpu_us.saturating_sub(written.cpu_us.get(&tenant).copied().unwrap_or_default());
            if more_us > 0 {
                used.entry(tenant).or_default().1 = more_us;
            }
        }
        let mut failed = None;
        for (tenant, (taken, cpu_us)) in used {
            // An erased tenant's usage was erased with it.
            let added = match availability.is_blocked(tenant) {
                true => Ok(()),
                false => self.add(tenant, today, taken, cpu_us).await,
            };
            match added {
                Ok(()) => *written.cpu_us.entry(tenant).or_default() += cpu_us,
                Err(error) => {
                    self.counts.put_back(tenant, taken);
                    failed = Some(error);
                }
            }
        }
        match self.days.sweep(today, written.swept_to.as_deref()).await {
            Ok(swept_to) => written.swept_to = swept_to,
            Err(error) => failed = Some(error),
        }
        if let Some(error) = failed {
            tracing::warn!("what tenants used cannot be written yet: {error}");
        }
    }

    /// Writes how tools were called since the last time. What cannot be written is written with the next.
    pub(crate) async fn write_tools(&self, now: UnixMs, activity: &Activity) {
        let day = u32::try_from(now / DAY_MS).unwrap_or(u32::MAX);
        let _one_at_a_time = self.written.lock().await;
        let mut failed = None;
        for ends in activity.take_ends() {
            let usage = ToolUsage { calls: ends.calls, errors: ends.errors };
            let added = ToolDay { plugin: ends.plugin.clone(), tool: ends.tool.clone(), day, usage };
            if let Err(error) = self.days.add_tool(&added).await {
                activity.put_back(&ends);
                failed = Some(error);
            }
        }
        if let Some(error) = failed {
            tracing::warn!("how tools were called cannot be written yet: {error}");
        }
    }

    async fn add(&self, tenant: TenantId, day: u32, taken: TakenUsage, cpu_us: u64) -> Result<(), Error> {
        // What a tenant has stored is the same whichever of its requestors is asked about.
        let (_, stored) = self.store.usage(&Requestor { tenant, id: RequestorId([0; 16]) }).await?;
        let TakenUsage { calls, bytes_in, bytes_out } = taken;
        let usage = DayUsage { calls, cpu_us, bytes_in, bytes_out, stored_bytes: stored.bytes };
        self.days.add(tenant, day, usage).await
    }
}
