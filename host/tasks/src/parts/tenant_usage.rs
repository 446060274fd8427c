//! What tenants use, on its way to the store.
//!
//! Owns when the counts are taken and which day they are written to. Must not count: calls are counted where each one ends, bytes where they
//! come and go, and CPU time where it is charged. Invariant: what was taken is written once, or counted again; a host that is killed
//! loses what it counted since the last time, which is a minute at most.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::engine::{Inner, Tasks};
use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_limits::tenant_usage::{TakenUsage, TenantUsage};
use bulkhead_store::usage_days::{DayUsage, UsageDays};
use bulkhead_store::{Error, Store};

/// How often what was used is written.
const WRITE_EVERY: Duration = Duration::from_secs(60);
const DAY_MS: u64 = 86_400_000;

/// See the module.
pub(crate) struct UsageWriter {
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
    place: Option<Vec<u8>>,
}

impl UsageWriter {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { counts: Arc::default(), days: UsageDays::new(store), written: Mutex::default() }
    }
}

/// The day of a time, counted from 1970-01-01 in UTC.
fn day_of(now: UnixMs) -> u32 {
    u32::try_from(now / DAY_MS).unwrap_or(u32::MAX)
}

impl Tasks {
    /// Where what tenants use is counted.
    pub fn usage_counts(&self) -> Arc<TenantUsage> {
        Arc::clone(&self.inner.usage.counts)
    }

    /// Writes what was used since the last time. Goes on to its end even if its caller stops waiting, so that nothing that was taken is lost.
    pub async fn write_usage(&self) {
        let tasks = self.clone();
        let written = tokio::spawn(async move { tasks.take_and_write_usage().await }).await;
        if let Err(error) = written {
            tracing::error!("writing what tenants used broke off: {error}");
        }
    }

    async fn take_and_write_usage(&self) {
        let inner = &self.inner;
        let today = day_of(inner.clock.now());
        let mut written = inner.usage.written.lock().await;
        let mut used: FxHashMap<TenantId, (TakenUsage, u64)> = FxHashMap::default();
        for (tenant, taken) in inner.usage.counts.take() {
            used.entry(tenant).or_default().0 = taken;
        }
        for (tenant, cpu_us) in inner.shares.cpu_us() {
            let more_us = cpu_us.saturating_sub(written.cpu_us.get(&tenant).copied().unwrap_or_default());
            if more_us > 0 {
                used.entry(tenant).or_default().1 = more_us;
            }
        }
        let mut failed = None;
        for (tenant, (taken, cpu_us)) in used {
            match inner.write_usage_of(tenant, today, taken, cpu_us).await {
                Ok(()) => *written.cpu_us.entry(tenant).or_default() += cpu_us,
                Err(error) => {
                    inner.usage.counts.put_back(tenant, taken);
                    failed = Some(error);
                }
            }
        }
        match inner.usage.days.sweep(today, written.place.as_deref()).await {
            Ok(place) => written.place = place,
            Err(error) => failed = Some(error),
        }
        if let Some(error) = failed {
            tracing::warn!("what tenants used cannot be written yet: {error}");
        }
    }

    pub(crate) async fn write_usage_until_dropped(&self) {
        let mut turn = tokio::time::interval_at(Instant::now() + WRITE_EVERY, WRITE_EVERY);
        loop {
            turn.tick().await;
            self.write_usage().await;
        }
    }
}

impl Inner {
    async fn write_usage_of(&self, tenant: TenantId, day: u32, taken: TakenUsage, cpu_us: u64) -> Result<(), Error> {
        if self.availability.is_blocked(tenant) {
            // It was erased, and this with it.
            return Ok(());
        }
        // What a tenant has stored is the same whichever of its requestors is asked about.
        let (_, stored) = self.store.usage(&Requestor { tenant, id: RequestorId([0; 16]) }).await?;
        let TakenUsage { calls, bytes_in, bytes_out } = taken;
        self.usage
            .days
            .add(tenant, day, DayUsage { calls, cpu_us, bytes_in, bytes_out, stored_bytes: stored.bytes })
            .await
    }
}
