//! What calls cost, for `bulkhead top`.
//!
//! Owns the names in place of ids. Must not make rates: an operator who looks twice has them, and two who look do not
//! disturb each other. Invariant: one look reads no record of a task, and its answer has a bounded number of rows.

use std::collections::HashMap;

use super::ControlError;
use super::operator::HostOperator;
use super::views::{ActivityCountsView, ActivityRowView, ActivityView};
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_metrics::ActivityReading;
use bulkhead_tasks::{ActivityGroup, ActivityKey, ActivitySample};

/// What stands for ids.
#[derive(Default)]
struct Names {
    tenants: HashMap<TenantId, String>,
    requestors: HashMap<Requestor, (String, String)>,
}

impl HostOperator {
    /// What has been counted of a group so far.
    pub(super) async fn activity(&self, group: ActivityGroup) -> Result<ActivityView, ControlError> {
        let names = self.names_for(group).await?;
        let ActivitySample { sampled, entries, others } = self.running_host()?.tasks.activity(group);
        let rows = entries.into_iter().map(|(key, reading)| names.row(key, &reading)).collect();
        let sampled_ms = u64::try_from(sampled.as_millis()).unwrap_or(u64::MAX);
        Ok(ActivityView { sampled_ms, rows, others: (&others).into() })
    }

    async fn names_for(&self, group: ActivityGroup) -> Result<Names, ControlError> {
        Ok(match group {
            ActivityGroup::Plugin | ActivityGroup::Tool => Names::default(),
            ActivityGroup::Tenant => {
                let tenants = self.principals.tenants().await?.into_iter().map(|(name, id)| (id, name));
                Names { tenants: tenants.collect(), ..Names::default() }
            }
            ActivityGroup::Requestor => {
                let named = self.principals.names().await?.into_iter();
                let requestors = named.map(|named| (named.requestor, (named.name, named.tenant)));
                Names { requestors: requestors.collect(), ..Names::default() }
            }
        })
    }
}

impl Names {
    fn row(&self, key: ActivityKey, reading: &ActivityReading) -> ActivityRowView {
        let row = ActivityRowView { counts: reading.into(), ..ActivityRowView::default() };
        match key {
            ActivityKey::Tenant(id) => {
                let name = self.tenants.get(&id).cloned().unwrap_or_else(|| id.to_string());
                ActivityRowView { tenant: Some(name), ..row }
            }
            ActivityKey::Plugin(plugin) => ActivityRowView { plugin: Some(plugin), ..row },
            ActivityKey::Tool { plugin, tool } => ActivityRowView { plugin: Some(plugin), tool, ..row },
            ActivityKey::Requestor(requestor) => {
                let named = self.requestors.get(&requestor).cloned();
                let (name, tenant) = named.unwrap_or_else(|| (requestor.id.to_string(), requestor.tenant.to_string()));
                ActivityRowView { tenant: Some(tenant), requestor: Some(name), ..row }
            }
        }
    }
}

impl From<&ActivityReading> for ActivityCountsView {
    fn from(reading: &ActivityReading) -> Self {
        Self {
            outcomes: reading.outcomes().map(|(outcome, calls)| (outcome.name().to_owned(), calls)).collect(),
            refused: reading.refused,
            cpu_us: reading.cpu_us,
            busy: reading.busy_us().collect(),
        }
    }
}
