//! What tenants used and how tools were called, by day.
//!
//! Owns how it is asked for and shown. Must not count. Invariant: what a running host has counted so far is in its
//! answer.

use std::collections::HashMap;

use super::ControlError;
use super::operator::HostOperator;
use super::plugins::failed;
use super::views::{PluginUsageView, TenantDayView, TenantUsageView, ToolDayView};
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::timestamp::iso8601;
use bulkhead_store::usage_days::{TenantDay, ToolDay, USAGE_DAYS_MAX, UsageDays};

/// Days of tenants or of tools in one answer.
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
        let since = self.first_of(days)?;
        let tenant = match tenant {
            None => None,
            Some(name) => Some(self.tenant_named(name).await?),
        };
        self.write_counted().await;
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

    /// How the tools of a plugin were called, by day and tool.
    pub(super) async fn tool_usage(&self, name: &str, days: u32) -> Result<PluginUsageView, ControlError> {
        let since = self.first_of(days)?;
        self.write_counted().await;
        let (found, more) = UsageDays::new(self.store.clone()).list_tools(name, since, ROWS_MAX).await?;
        if found.is_empty()
            && let Some(plugin_admin) = &self.plugin_admin
        {
            // One that is not there is an error, one that was not called is none.
            plugin_admin.plugins.versions(name).await.map_err(failed)?;
        }
        let view = |ToolDay { tool, day, usage, .. }: ToolDay| ToolDayView {
            day: date(day),
            tool,
            calls: usage.calls,
            errors: usage.errors,
        };
        Ok(PluginUsageView { name: name.to_owned(), usage: found.into_iter().map(view).collect(), more })
    }

    /// The first of so many days up to today.
    fn first_of(&self, days: u32) -> Result<u32, ControlError> {
        if !(1..=USAGE_DAYS_MAX).contains(&days) {
            return Err(ControlError::Invalid(format!(
                "usage is kept for {USAGE_DAYS_MAX} days: ask for 1 to {USAGE_DAYS_MAX}"
            )));
        }
        let today = u32::try_from(self.clock.now() / DAY_MS).unwrap_or(u32::MAX);
        Ok(today.saturating_sub(days - 1))
    }

    /// What a running host has counted is in the store after it.
    async fn write_counted(&self) {
        if let Some(running_host) = &self.running_host {
            running_host.tasks.write_usage().await;
        }
    }
}

/// The date of a day, counted from 1970-01-01.
fn date(day: u32) -> String {
    let midnight = iso8601(u64::from(day) * DAY_MS);
    midnight.split('T').next().unwrap_or_default().to_owned()
}
