//! `bulkhead top --by`: calls a second, what they cost and how long they take, by tenant, plugin, tool or requestor.
//!
//! Owns the rates, which are made of two looks. Must not ask for more than a look needs. Invariant: no rate is
//! negative, also where a count began anew between the looks: its thing went and came back, or the host was started
//! again.

use std::collections::{BTreeMap, HashMap};

use bulkhead_console::table::{Layout, cell, now};
use bulkhead_control::commands::{ActivityShow, DrainShow};
use bulkhead_control::views::{ActivityCountsView, ActivityRowView, ActivityView, DrainView};
use bulkhead_metrics::Outcome;
use bulkhead_tasks::ActivityGroup;
use clap::ValueEnum;
use serde::Serialize;

use super::operate::{Absent, OperateArguments, execute};

/// Rows in the table; all of them are in --json.
const ROWS: usize = 30;

/// What calls are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum By {
    Tenant,
    Plugin,
    /// Each tool, and what else each plugin is called for
    Tool,
    Requestor,
}

impl From<By> for ActivityGroup {
    fn from(by: By) -> Self {
        match by {
            By::Tenant => Self::Tenant,
            By::Plugin => Self::Plugin,
            By::Tool => Self::Tool,
            By::Requestor => Self::Requestor,
        }
    }
}

/// The rates between two looks.
#[derive(Debug, Serialize)]
pub(super) struct HostRates {
    /// When the later look was.
    at: u64,
    by: By,
    /// Between the looks; 0: the host has only begun to count, so there are no rates yet.
    interval_ms: u64,
    host: DrainView,
    /// Those that did something, the dearest first.
    rows: Vec<RateRow>,
    /// Of requestors beyond those that the host tells apart.
    others: Rates,
}

#[derive(Debug, Serialize)]
struct RateRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plugin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requestor: Option<String>,
    #[serde(flatten)]
    rates: Rates,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Rates {
    /// Calls that ended.
    calls_per_second: f64,
    /// Those of them that ended otherwise than `ok` or `cancelled`.
    errors_per_second: f64,
    /// Calls and tasks that were refused before they began.
    refused_per_second: f64,
    /// Of one processor, of calls that ended and of those that run.
    cpu_percent: f64,
    /// How long calls ran that ended, without what they waited for. None: no call ended.
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    outcomes_per_second: BTreeMap<String, f64>,
}

/// What a row is about, as it comes from the host.
type Owner = [Option<String>; 4];

fn owner(row: &ActivityRowView) -> Owner {
    [&row.tenant, &row.plugin, &row.tool, &row.requestor].map(Clone::clone)
}

/// Looks at what has been counted so far.
pub(super) async fn look(operate: &OperateArguments, by: By) -> anyhow::Result<ActivityView> {
    execute(operate, ActivityShow { by: by.into() }, Absent::Refuse).await
}

/// Looks again; the rates since the look before, which this one replaces.
pub(super) async fn look_again(
    operate: &OperateArguments,
    by: By,
    before: &mut ActivityView,
) -> anyhow::Result<HostRates> {
    let host = execute(operate, DrainShow {}, Absent::Refuse).await?;
    let after = look(operate, by).await?;
    let rates = HostRates::between(now(), by, host, before, &after);
    *before = after;
    Ok(rates)
}

impl HostRates {
    fn between(at: u64, by: By, host: DrainView, before: &ActivityView, after: &ActivityView) -> Self {
        // A host that was started again, or was not looked at for long, has counted for a shorter time than before.
        let interval_ms = after.sampled_ms.saturating_sub(before.sampled_ms);
        let former: HashMap<Owner, &ActivityCountsView> =
            before.rows.iter().map(|row| (owner(row), &row.counts)).collect();
        let nothing = ActivityCountsView::default();
        let calls = |counts: &ActivityCountsView| counts.outcomes.values().sum::<u64>();
        let rates = |row: &ActivityRowView| {
            // The counts must be the former ones, grown.
            let former = former.get(&owner(row)).copied().filter(|former| {
                let ActivityCountsView { cpu_us, refused, .. } = &row.counts;
                calls(&row.counts) >= calls(former) && *cpu_us >= former.cpu_us && *refused >= former.refused
            });
            let [tenant, plugin, tool, requestor] = owner(row);
            let rates = Rates::between(former.unwrap_or(&nothing), &row.counts, interval_ms);
            RateRow { tenant, plugin, tool, requestor, rates }
        };
        let mut rows: Vec<_> = after.rows.iter().map(rates).filter(|row| row.rates != Rates::default()).collect();
        let cost = |row: &RateRow| [row.rates.cpu_percent, row.rates.calls_per_second, row.rates.refused_per_second];
        rows.sort_by(|a, b| {
            let by_cost = cost(b).into_iter().zip(cost(a)).map(|(b, a)| b.total_cmp(&a));
            by_cost.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
        });
        let others = Rates::between(&before.others, &after.others, interval_ms);
        Self { at, by, interval_ms, host, rows, others }
    }

    pub(super) fn text(&self, layout: &Layout) -> String {
        let names: &[&str] = match self.by {
            By::Tenant => &["TENANT"],
            By::Plugin => &["PLUGIN"],
            By::Tool => &["PLUGIN", "TOOL"],
            By::Requestor => &["TENANT", "REQUESTOR"],
        };
        let head = [names, &["CALLS/S", "ERRORS/S", "REFUSED/S", "CPU", "P50 MS", "P99 MS"]].concat();
        let mut rows: Vec<_> = self.rows.iter().take(ROWS).map(|row| row.cells(self.by)).collect();
        if self.others != Rates::default() {
            let mut others = vec!["(others)".to_owned()];
            others.resize(names.len(), cell(None::<&str>));
            rows.push(others.into_iter().chain(self.others.cells()).collect());
        }
        let mut text = format!("{}\n\n{}", super::top::summary(&self.host), layout.table(&head, &rows));
        if rows.is_empty() {
            text.push_str("\n(nothing was called between the looks)");
        }
        if self.rows.len() > ROWS {
            text.push_str(&format!("\n({} more: see --json)", self.rows.len() - ROWS));
        }
        text
    }
}

impl RateRow {
    fn cells(&self, by: By) -> Vec<String> {
        let names: &[&Option<String>] = match by {
            By::Tenant => &[&self.tenant],
            By::Plugin => &[&self.plugin],
            By::Tool => &[&self.plugin, &self.tool],
            By::Requestor => &[&self.tenant, &self.requestor],
        };
        names.iter().map(|name| cell(name.as_deref())).chain(self.rates.cells()).collect()
    }
}

impl Rates {
    /// Counts that are less than before gave nothing.
    fn between(before: &ActivityCountsView, after: &ActivityCountsView, interval_ms: u64) -> Self {
        if interval_ms == 0 {
            return Self::default();
        }
        #[allow(clippy::cast_precision_loss, reason = "a rate is shown with three digits")]
        let a_second =
            |before: u64, after: u64| thousandths(after.saturating_sub(before) as f64 * 1_000.0 / interval_ms as f64);
        let outcomes = after.outcomes.iter().map(|(outcome, calls)| {
            let former = before.outcomes.get(outcome).copied().unwrap_or_default();
            (outcome.clone(), calls.saturating_sub(former))
        });
        let outcomes: BTreeMap<String, u64> = outcomes.filter(|(_, calls)| *calls > 0).collect();
        let is_error = |outcome: &str| ![Outcome::Ok, Outcome::Cancelled].map(Outcome::name).contains(&outcome);
        let errors = outcomes.iter().filter(|(outcome, _)| is_error(outcome)).map(|(_, calls)| calls).sum();
        let mut busy = after.busy.clone();
        for (end, calls) in &mut busy {
            let former = before.busy.iter().find(|(other, _)| other == end).map_or(0, |(_, calls)| *calls);
            *calls = calls.saturating_sub(former);
        }
        Self {
            calls_per_second: a_second(0, outcomes.values().sum()),
            errors_per_second: a_second(0, errors),
            refused_per_second: a_second(before.refused, after.refused),
            // A second has a hundred per cent of a million microseconds.
            cpu_percent: thousandths(a_second(before.cpu_us, after.cpu_us) / 10_000.0),
            p50_ms: quantile_ms(&busy, 50),
            p99_ms: quantile_ms(&busy, 99),
            outcomes_per_second: outcomes.into_iter().map(|(outcome, calls)| (outcome, a_second(0, calls))).collect(),
        }
    }

    fn cells(&self) -> [String; 6] {
        let ms = |ms: Option<f64>| ms.map_or_else(|| cell(None::<&str>), |ms| format!("{ms:.2}"));
        [
            format!("{:.1}", self.calls_per_second),
            format!("{:.1}", self.errors_per_second),
            format!("{:.1}", self.refused_per_second),
            format!("{:.1} %", self.cpu_percent),
            ms(self.p50_ms),
            ms(self.p99_ms),
        ]
    }
}

fn thousandths(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

/// The longest time of the step in which so many per cent of the calls had ended.
fn quantile_ms(busy: &[(u64, u64)], percent: u64) -> Option<f64> {
    #[allow(clippy::cast_precision_loss, reason = "a step is no more exact")]
    let ms = |us: u64| us as f64 / 1_000.0;
    bulkhead_metrics::quantile(busy.iter().copied(), percent).map(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(json: &str) -> ActivityView {
        serde_json::from_str(json).unwrap()
    }

    fn host() -> DrainView {
        let json = r#"{"draining":false,"still":false,"plain_calls":1,"tasks_running":2,"tasks_queued":5,"tasks_waiting":0,"tasks_paused":0}"#;
        serde_json::from_str(json).unwrap()
    }

    const BEFORE: &str = r#"{"sampled_ms":1000,"rows":[
        {"tenant":"acme","requestor":"anna","outcomes":{"ok":9,"trap":1},"refused":0,"cpu_us":5000,"busy":[[1500,10]]},
        {"tenant":"acme","requestor":"idle","outcomes":{"ok":3},"refused":0,"cpu_us":9,"busy":[[10,3]]},
        {"tenant":"acme","requestor":"back","outcomes":{"ok":30},"refused":0,"cpu_us":9,"busy":[[10,30]]}],
        "others":{"outcomes":{},"refused":0,"cpu_us":0,"busy":[]}}"#;
    const AFTER: &str = r#"{"sampled_ms":3000,"rows":[
        {"tenant":"acme","requestor":"anna","outcomes":{"cancelled":2,"ok":203,"trap":5},"refused":1,"cpu_us":505000,
            "busy":[[1500,205],[2000000,5]]},
        {"tenant":"beta","requestor":"bob","outcomes":{},"refused":50,"cpu_us":0,"busy":[]},
        {"tenant":"beta","requestor":"anna","outcomes":{"ok":2},"refused":0,"cpu_us":1000000,"busy":[[2000000,2]]},
        {"tenant":"acme","requestor":"back","outcomes":{"ok":20},"refused":0,"cpu_us":0,"busy":[[10,20]]},
        {"tenant":"acme","requestor":"idle","outcomes":{"ok":3},"refused":0,"cpu_us":9,"busy":[[10,3]]}],
        "others":{"outcomes":{"ok":8},"refused":0,"cpu_us":0,"busy":[[10,8]]}}"#;

    #[test]
    fn rates_are_the_difference_of_two_looks_with_the_dearest_first() {
        let rates = HostRates::between(7, By::Requestor, host(), &view(BEFORE), &view(AFTER));
        let text = rates.text(&Layout::plain(7));
        let lines: Vec<Vec<_>> = text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert!(text.starts_with("1 calls, 2 running tasks, 5 queued, 0 waiting, 0 paused\n"), "{text}");
        assert_eq!(lines[1], ["beta", "anna", "1.0", "0.0", "0.0", "50.0", "%", "2000.00", "2000.00"], "{text}");
        assert_eq!(lines[2], ["acme", "anna", "100.0", "2.0", "0.5", "25.0", "%", "1.50", "2000.00"], "{text}");
        assert_eq!(lines[3][..5], ["acme", "back", "10.0", "0.0", "0.0"], "counted anew since it came back: {text}");
        assert_eq!(lines[4], ["beta", "bob", "0.0", "0.0", "25.0", "0.0", "%", "-", "-"], "{text}");
        assert_eq!(lines[5][..3], ["(others)", "-", "4.0"], "{text}");
        assert_eq!(lines.len(), 6, "a requestor that did nothing has no row: {text}");
        let json = serde_json::to_value(&rates).unwrap();
        assert_eq!((&json["by"], &json["interval_ms"]), (&"requestor".into(), &2000.into()));
        let outcomes = serde_json::json!({"cancelled": 1.0, "ok": 97.0, "trap": 2.0});
        assert_eq!(
            (&json["rows"][1]["outcomes_per_second"], &json["rows"][1]["calls_per_second"]),
            (&outcomes, &100.0.into())
        );
        assert!(json["rows"][1].get("tool").is_none(), "{json}");
    }

    #[test]
    fn host_that_has_only_begun_to_count_gives_no_rates() {
        let mut anew = view(BEFORE);
        anew.sampled_ms = 0;
        for (before, after) in [(view(AFTER), anew), (view(AFTER), view(AFTER))] {
            let rates = HostRates::between(7, By::Requestor, host(), &before, &after);
            assert!(rates.rows.is_empty() && rates.others == Rates::default(), "{rates:?}");
            assert!(rates.text(&Layout::plain(7)).ends_with("(nothing was called between the looks)"));
        }
    }

    #[test]
    fn what_a_plugin_is_called_for_beside_its_tools_has_a_row_without_a_tool() {
        let before = r#"{"sampled_ms":0,"rows":[],"others":{"outcomes":{},"refused":0,"cpu_us":0,"busy":[]}}"#;
        let after = r#"{"sampled_ms":1000,"rows":[{"plugin":"csv","outcomes":{"ok":1},"refused":0,"cpu_us":0,"busy":[[10,1]]}],
            "others":{"outcomes":{},"refused":0,"cpu_us":0,"busy":[]}}"#;
        let text = HostRates::between(7, By::Tool, host(), &view(before), &view(after)).text(&Layout::plain(7));
        let row: Vec<_> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(row, ["csv", "-", "1.0", "0.0", "0.0", "0.0", "%", "0.01", "0.01"], "{text}");
    }

    #[test]
    fn quantiles_are_of_the_calls_between_the_looks() {
        assert_eq!(quantile_ms(&[], 50), None);
        assert_eq!(quantile_ms(&[(1_500, 0)], 99), None);
        assert_eq!(quantile_ms(&[(1_500, 99), (2_000_000, 1)], 50), Some(1.5));
        assert_eq!(quantile_ms(&[(1_500, 99), (2_000_000, 1)], 99), Some(1.5));
        assert_eq!(quantile_ms(&[(1_500, 98), (2_000_000, 2)], 99), Some(2_000.0));
    }
}
