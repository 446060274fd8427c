//! What a plugin requests, what it is granted and what comes of it, in columns.

use std::collections::BTreeMap;

use bulkhead_calls::policy::{Bound, Grants};
use bulkhead_config::amounts::granted_amount;
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
    let has_left = rows.iter().any(|row| row.left.is_some());
    let side = |row: &GrantRow, value: &str| granted_amount(&row.grant, value).unwrap_or_else(|| value.to_owned());
    let mut cells = vec![["", "wanted", "granted", "left", "effective"].map(str::to_owned)];
    cells.extend(rows.iter().map(|row| {
        let left = row.left.as_deref().unwrap_or_default();
        [row.grant.clone(), side(row, &row.wanted), side(row, &row.granted), left.to_owned(), side(row, &row.effective)]
    }));
    let widest = |at: usize, least: usize| {
        cells.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or_default().max(least)
    };
    let what_wide = widest(0, 8);
    let side_wide = [1, 2, 3].map(|at| widest(at, 12)).into_iter().max().unwrap_or_default();
    let line = |[what, wanted, granted, left, effective]: &[String; 5]| {
        let left = if has_left { format!("{left:<side_wide$} ") } else { String::new() };
        format!("  {what:<what_wide$} {wanted:<side_wide$} {granted:<side_wide$} {left}{effective}")
    };
    let mut lines: Vec<_> = cells.iter().map(line).collect();
    if rows.is_empty() {
        lines.push("  nothing is wanted, nothing is granted".to_owned());
    }
    lines
}
