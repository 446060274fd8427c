//! What a plugin requests, what it is granted and what comes of it, in columns.

use std::collections::BTreeMap;

use crate::config::{Config, PluginConfig};
use bulkhead_domain::limits::CallLimits;
use bulkhead_runtime::inspect::{RequestedLimits, RequestedPolicy};
use bulkhead_runtime::policy::{Bound, DirBound, Grants};
use serde_json::{Value, json};

const NOTHING: &str = "-";
const ANYTHING: &str = "any";

/// One line: something that can be granted, and how far each side goes.
struct Row {
    what: String,
    wanted: String,
    granted: String,
    /// What the tenant is left, in the table of one.
    left: Option<String>,
    effective: String,
}

/// The table for everybody, and one for each tenant that has a bound of its own.
pub(super) struct Table {
    rows: Vec<Row>,
    tenants: BTreeMap<String, Vec<Row>>,
}

impl Table {
    /// Without an entry of the configuration nothing is granted.
    pub(super) fn new(requested: Option<&RequestedPolicy>, entry: Option<&PluginConfig>, config: &Config) -> Self {
        let anything = RequestedPolicy::default();
        let requested = requested.unwrap_or(&anything);
        let none = Grants::default();
        let granted = entry.map_or(&none, |entry| &entry.policy.source.grants);
        let mut rows = grants(&requested.grants, granted, None);
        rows.extend(limits(&requested.limits, entry.map_or(&config.call, |entry| &entry.policy.source.limits)));
        let bounded = config.tenants.iter().filter(|(_, tenant)| tenant.grants != Bound::default());
        let tenants =
            bounded.map(|(name, tenant)| (name.clone(), grants(&requested.grants, granted, Some(&tenant.grants))));
        Self { rows, tenants: tenants.collect() }
    }

    pub(super) fn as_json(&self) -> Value {
        let rows = |rows: &[Row]| -> Value {
            let row = |row: &Row| {
                let mut value = json!({"grant": row.what, "wanted": row.wanted, "granted": row.granted, "effective": row.effective});
                if let (Some(left), Some(object)) = (&row.left, value.as_object_mut()) {
                    object.insert("left".to_owned(), left.clone().into());
                }
                value
            };
            rows.iter().map(row).collect()
        };
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

fn columns(rows: &[Row]) -> Vec<String> {
    let wide = rows.iter().map(|row| row.what.chars().count()).max().unwrap_or_default().max(8);
    let has_left = rows.iter().any(|row| row.left.is_some());
    let line = |what: &str, wanted: &str, granted: &str, left: &str, effective: &str| {
        let left = if has_left { format!("{left:<12} ") } else { String::new() };
        format!("  {what:<wide$} {wanted:<12} {granted:<12} {left}{effective}")
    };
    let mut lines = vec![line("", "wanted", "granted", "left", "effective")];
    lines.extend(rows.iter().map(|row| {
        let left = row.left.as_deref().unwrap_or_default();
        line(&row.what, &row.wanted, &row.granted, left, &row.effective)
    }));
    if rows.is_empty() {
        lines.push("  nothing is wanted, nothing is granted".to_owned());
    }
    lines
}

fn grants(wanted: &Bound, granted: &Grants, left: Option<&Bound>) -> Vec<Row> {
    let mut effective = granted.within(wanted);
    if let Some(left) = left {
        effective = effective.within(left);
    }
    let mut rows = directories(wanted, granted, left, &effective);
    let texts = |grants: &Grants| grants.http.iter().map(ToString::to_string).collect::<Vec<_>>();
    let wishes = |bound: &Bound| bound.http.as_ref().map(|list| list.iter().map(ToString::to_string).collect());
    let sides = (wishes(wanted), texts(granted), left.map(wishes), texts(&effective));
    rows.extend(listed("http", sides));
    let sides = (wanted.env.clone(), granted.env.clone(), left.map(|left| left.env.clone()), effective.env.clone());
    rows.extend(listed("env", sides));
    rows.extend(keyvalue(wanted, granted, left, &effective));
    rows
}

/// What may be kept in one tenant: keys, bytes, and bytes of one value.
fn keyvalue(wanted: &Bound, granted: &Grants, left: Option<&Bound>, effective: &Grants) -> Option<Row> {
    if granted.keyvalue.is_none() && wanted.keyvalue != Some(true) {
        return None;
    }
    let bound = |bound: &Bound| match bound.keyvalue {
        None => ANYTHING,
        Some(true) => "yes",
        Some(false) => NOTHING,
    };
    let cell = |grants: &Grants| {
        let limits = grants.keyvalue.as_ref();
        limits.map_or(NOTHING.to_owned(), |own| format!("{}/{}/{}", own.keys_max, own.bytes_max, own.value_bytes_max))
    };
    Some(Row {
        what: "kv (keys/bytes/value)".to_owned(),
        wanted: bound(wanted).to_owned(),
        granted: cell(granted),
        left: left.map(|left| bound(left).to_owned()),
        effective: cell(effective),
    })
}

fn directories(wanted: &Bound, granted: &Grants, left: Option<&Bound>, effective: &Grants) -> Vec<Row> {
    let side = |grants: &Grants| -> Vec<DirBound> {
        grants
            .directories
            .iter()
            .map(|grant| DirBound { guest: grant.guest.clone(), write: grant.write, optional: false })
            .collect()
    };
    let (granted, effective) = (side(granted), side(effective));
    let mut names: Vec<_> = wanted.directories.iter().flatten().chain(&granted).map(|dir| dir.guest.clone()).collect();
    names.sort();
    names.dedup();
    let cell = |list: &[DirBound], guest: &str| match list.iter().find(|dir| dir.guest == guest) {
        None => NOTHING.to_owned(),
        Some(dir) => if dir.write { "write" } else { "read" }.to_owned(),
    };
    let bound = |bound: &Bound, guest: &str| match &bound.directories {
        None => ANYTHING.to_owned(),
        Some(list) => {
            let covering: Vec<_> = list.iter().filter(|dir| dir.covers(guest)).collect();
            match covering.iter().any(|dir| dir.write) {
                true => "write".to_owned(),
                false if covering.is_empty() => NOTHING.to_owned(),
                false => "read".to_owned(),
            }
        }
    };
    names
        .iter()
        .map(|guest| Row {
            what: format!("directory {guest}"),
            wanted: bound(wanted, guest),
            granted: cell(&granted, guest),
            left: left.map(|left| bound(left, guest)),
            effective: cell(&effective, guest),
        })
        .collect()
}

type Sides = (Option<Vec<String>>, Vec<String>, Option<Option<Vec<String>>>, Vec<String>);

/// Things that are there or not. A destination that is narrower than another one is a line of its own.
fn listed(kind: &str, (wanted, granted, left, effective): Sides) -> Vec<Row> {
    let every = wanted.iter().flatten().chain(&granted).chain(left.iter().flatten().flatten()).chain(&effective);
    let mut names: Vec<_> = every.collect();
    names.sort();
    names.dedup();
    let cell = |list: &[String], name: &String| if list.contains(name) { "yes" } else { NOTHING }.to_owned();
    let bound = |list: &Option<Vec<String>>, name: &String| match list {
        None => ANYTHING.to_owned(),
        Some(list) => cell(list, name),
    };
    names
        .into_iter()
        .map(|name| Row {
            what: format!("{kind} {name}"),
            wanted: bound(&wanted, name),
            granted: cell(&granted, name),
            left: left.as_ref().map(|left| bound(left, name)),
            effective: cell(&effective, name),
        })
        .collect()
}

fn limits(wanted: &RequestedLimits, granted: &CallLimits) -> Vec<Row> {
    let effective = wanted.within(granted);
    let row = |what: &str, wanted: Option<u64>, granted: u64, effective: u64| Row {
        what: format!("call.{what}"),
        wanted: wanted.map_or(ANYTHING.to_owned(), |wanted| wanted.to_string()),
        granted: granted.to_string(),
        left: None,
        effective: effective.to_string(),
    };
    vec![
        row("cpu_ms", wanted.cpu_ms, granted.cpu_ms, effective.cpu_ms),
        row("wall_ms", wanted.wall_ms, granted.wall_ms, effective.wall_ms),
        row("memory_bytes", wanted.memory_bytes, granted.memory_bytes, effective.memory_bytes),
        row("arguments_bytes", wanted.arguments_bytes, granted.arguments_bytes, effective.arguments_bytes),
        row("result_bytes", wanted.result_bytes, granted.result_bytes, effective.result_bytes),
        row("log_bytes", wanted.log_bytes, granted.log_bytes, effective.log_bytes),
        row(
            "events_per_second",
            wanted.events_per_second.map(u64::from),
            granted.events_per_second.into(),
            effective.events_per_second.into(),
        ),
    ]
}
