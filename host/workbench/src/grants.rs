//! What a plugin requests, what it is granted and what comes of it, in columns.

use std::collections::BTreeMap;

use bulkhead_calls::policy::{Bound, Grants};
use bulkhead_config::{Config, PluginConfig};
use bulkhead_plugins::{GrantRow, grant_rows, limit_rows, skill_rows, view_rows};
use bulkhead_runtime::inspect::{Inspection, RequestedPolicy};
use serde_json::{Value, json};

/// The table for everybody, and one for each tenant that has a bound of its own.
pub(super) struct Table {
    rows: Vec<GrantRow>,
    tenants: BTreeMap<String, Vec<GrantRow>>,
}

impl Table {
    /// Without an entry of the configuration nothing is granted.
    pub(super) fn new(inspection: &Inspection, entry: Option<&PluginConfig>, config: &Config) -> Self {
        let anything = RequestedPolicy::default();
        let requested = inspection.manifest.as_ref().map_or(&anything, |manifest| &manifest.requested);
        let none = Grants::default();
        let granted = entry.map_or(&none, |entry| &entry.policy.source.grants);
        let mut rows = grant_rows(&requested.grants, granted, None);
        rows.extend(limit_rows(&requested.limits, entry.map_or(&config.call, |entry| &entry.policy.source.limits)));
        rows.extend(view_rows(&inspection.views));
        rows.extend(skill_rows(&inspection.skills));
        let bounded = config.tenants.iter().filter(|(_, tenant)| tenant.grants != Bound::default());
        let tenants =
            bounded.map(|(name, tenant)| (name.clone(), grant_rows(&requested.grants, granted, Some(&tenant.grants))));
        Self { rows, tenants: tenants.collect() }
    }

    pub(super) fn as_json(&self) -> Value {
        let rows = |rows: &[GrantRow]| json!(rows);
        let tenants: serde_json::Map<_, _> =
            self.tenants.iter().map(|(name, table)| (name.clone(), rows(table))).collect();
        json!({"everybody": rows(&self.rows), "tenants": tenants})
    }

    pub(super) fn as_lines(&self) -> Vec<String> {
        let mut lines = vec![String::new(), "grants".to_owned()];
        lines.extend(columns(&self.rows));
        for (name, rows) in &self.tenants {
            lines.extend([String::new(), format!("grants in calls of tenant {name}")]);
            lines.extend(columns(rows));
        }
        lines
    }
}

/// Rows in columns.
pub fn columns(rows: &[GrantRow]) -> Vec<String> {
    let wide = rows.iter().map(|row| row.grant.chars().count()).max().unwrap_or_default().max(8);
    let has_left = rows.iter().any(|row| row.left.is_some());
    let line = |what: &str, wanted: &str, granted: &str, left: &str, effective: &str| {
        let left = if has_left { format!("{left:<12} ") } else { String::new() };
        format!("  {what:<wide$} {wanted:<12} {granted:<12} {left}{effective}")
    };
    let mut lines = vec![line("", "wanted", "granted", "left", "effective")];
    lines.extend(rows.iter().map(|row| {
        let left = row.left.as_deref().unwrap_or_default();
        line(&row.grant, &row.wanted, &row.granted, left, &row.effective)
    }));
    if rows.is_empty() {
        lines.push("  nothing is wanted, nothing is granted".to_owned());
    }
    lines
}
