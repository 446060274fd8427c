//! What tenants used, by day.
//!
//! Owns how it is asked for and shown. Must not count. Invariant: what a running host has counted so far is in its answer.

use std::collections::HashMap;

use super::ControlError;
use super::operator::HostOperator;
use super::views::{TenantDayView, TenantUsageView};
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::timestamp::iso8601;
use bulkhead_store::usage_days::{TenantDay, USAGE_DAYS_MAX, UsageDays};

/// Days of tenants in one answer.
const ROWS_MAX: usize = 10_000;
const DAY_MS: u64 = 86_400_000;

impl HostOperator {
    /// The id of a tenant that is there.
    pub(super) async fn tenant_named(&self, name: &str) -> Result<TenantId, ControlError> {
        self.principals.find_tenant(name).await?.ok_or_else(|| {
            ControlError::NotFound(format!("there is no tenant {name:?}; `bulkhead tenant list` shows the names"))
        })
    }

    pub(super) async fn usage(&self, tenant: Option<&str>, days: u32) -> Result<TenantUsageView, ControlError> {
        if !(1..=USAGE_DAYS_MAX).contains(&days) {
            return Err(ControlError::Invalid(format!(
                "usage is kept for {USAGE_DAYS_MAX} days: ask for 1 to {USAGE_DAYS_MAX}"
            )));
        }
        let tenant = match tenant {
            None => None,
            Some(name) => Some(self.tenant_named(name).await?),
        };
        if let Some(running_host) = &self.running_host {
            running_host.tasks.write_usage().await;
        }
        let today = u32::try_from(self.clock.now() / DAY_MS).unwrap_or(u32::MAX);
        let since = today.saturating_sub(days - 1);
        let (found, more) = UsageDays::new(self.store.clone()).list(tenant, since, ROWS_MAX).await?;
        let names: HashMap<_, _> = self.principals.tenants().await?.into_iter().map(|(name, id)| (id, name)).collect();
        let view = |TenantDay { tenant, day, usage }: TenantDay| TenantDayView {
            tenant: names.get(&tenant).cloned(),
            id: tenant.to_string(),
            day: date(day),
            calls: usage.calls,
            cpu_ms: usage.cpu_us / 1_000,
            bytes_in: usage.bytes_in,
            bytes_out: usage.bytes_out,
            stored_bytes: usage.stored_bytes,
        };
        Ok(TenantUsageView { usage: found.into_iter().map(view).collect(), more })
    }
}

/// The date of a day, counted from 1970-01-01.
fn date(day: u32) -> String {
    let midnight = iso8601(u64::from(day) * DAY_MS);
    midnight.split('T').next().unwrap_or_default().to_owned()
}
