//! The first page of operators: how the host does, what needs a person, and the last hour.

use std::collections::BTreeSet;

use bulkhead_control::views::{
    AuditHealth, DrainView, HealthView, HistoryPointView, HistoryView, LimitCount, LimitCounts, LimitsView,
    PluginListView,
};
use bulkhead_plugins::{PluginState, PluginView};
use maud::{Markup, html};

use super::limits::{fullness, limit};
use super::operators::{digits, path_segment};
use super::tiles::CALLS_FOR_P99;
use super::tiles::tiles;
use super::{Frame, address, live, meter, table};
use crate::chart::{Chart, ChartLine, clock_time, greatest, number};
use crate::columns::{FULLEST, REFUSALS};
use crate::text;

/// Of the fullest limits, those that the first page of the dashboard shows.
const FULLEST_SHOWN_MAX: usize = 10;
/// Limits that are no fuller than this are not shown, in percent.
pub(super) const EMPTY_PERCENT: u64 = 5;
/// From this part on a limit needs attention, in percent.
const FULL_PERCENT: u64 = 90;
/// What has happened this long ago at most happens now.
const NOW_MS: u64 = 60_000;

/// What the first page shows.
pub(crate) struct Overview {
    pub(crate) health: HealthView,
    pub(crate) drain: DrainView,
    pub(crate) limits: LimitsView,
    pub(crate) plugins: PluginListView,
    pub(crate) history: HistoryView,
}

/// A limit that is in use, and whose.
pub(super) struct Used<'a> {
    pub(super) owner: String,
    pub(super) limit: &'a str,
    pub(super) in_use: u64,
    pub(super) max: u64,
    address: Option<String>,
}

impl Used<'_> {
    pub(super) fn percent(&self) -> u64 {
        self.in_use.saturating_mul(100) / self.max.max(1)
    }
}

pub(super) fn used(owner: String, address: Option<String>, limits: &LimitCounts) -> impl Iterator<Item = Used<'_>> {
    limits.iter().filter(|(_, count)| count.in_use > 0).map(move |(limit, count)| Used {
        owner: owner.clone(),
        limit,
        in_use: count.in_use,
        max: count.max,
        address: address.clone(),
    })
}

/// The fullest first, without those that are next to empty.
fn fullest(limits: &LimitsView) -> Vec<Used<'_>> {
    let of = |tenant: &str| Some(format!("/tenants/{}", path_segment(tenant)));
    let host = used("the host".to_owned(), Some("/tenants".to_owned()), &limits.host);
    let tenants =
        limits.tenants.iter().flat_map(|it| used(format!("tenant {}", it.tenant), of(&it.tenant), &it.limits));
    let requestors = limits
        .requestors
        .iter()
        .flat_map(|it| used(format!("{}@{}", it.requestor, it.tenant), of(&it.tenant), &it.limits));
    let mut all: Vec<_> = host.chain(tenants).chain(requestors).collect();
    all.retain(|used| used.percent() > EMPTY_PERCENT);
    all.sort_by_key(|used| std::cmp::Reverse(used.percent()));
    all
}

pub(crate) fn overview(frame: &Frame<'_>, page: &Overview) -> Markup {
    let fullest = fullest(&page.limits);
    let needs = needs_attention(page, frame.now);
    let of_host = |name: &str| page.limits.host.get(name).copied();
    frame.show(
        "Overview",
        live(
            "overview",
            html! {
                (tiles(&page.history, page.drain.tasks_waiting as u64))
                h2 { "Needs attention" }
                @if needs.is_empty() { p { "Nothing." } } @else {
                    ul.needs { @for (need, address) in &needs { li { a href=(address) { (need) } } } }
                }
                h2 { "Now" }
                dl.numbers {
                    @for (label, name) in [
                        ("Calls running", "calls_running_total"), ("Calls queued", "calls_queued_total"),
                        ("Calls resting", "calls_resting_total"), ("Tasks queued", "tasks_queued_total"),
                    ] {
                        @if let Some(count) = of_host(name) { dt { (label) } dd { (meter(count.in_use, count.max)) } }
                    }
                    dt { "Plain calls" } dd { (page.drain.plain_calls) }
                    dt { "Tasks running" } dd { a href="/tasks?status=running" { (page.drain.tasks_running) } }
                    dt { "Tasks waiting for an answer" } dd {
                        a href="/tasks?status=input_required" { (page.drain.tasks_waiting) }
                    }
                    dt { "Tasks paused" } dd { a href="/tasks?status=paused" { (page.drain.tasks_paused) } }
                    dt { "Plugins served" } dd { (page.health.plugins.serving) " of " (page.health.plugins.configured) }
                    @if let Some(free) = page.health.disk_free_bytes { dt { "Disk free" } dd { (text::bytes(free)) } }
                }
                p { a href="/" { "Reload" } }
                h2 { "The last hour" }
                div.charts { (charts(&page.history)) }
                h2 { "The fullest limits" }
                @if fullest.is_empty() { p { "No limit is above " (EMPTY_PERCENT) " %." } } @else {
                    (table("The fullest limits", FULLEST, html! {
                        @for used in fullest.iter().take(FULLEST_SHOWN_MAX) {
                            tr {
                                td {
                                    @match &used.address {
                                        Some(address) => a href=(address) { (text::line(&used.owner)) },
                                        None => (text::line(&used.owner)),
                                    }
                                }
                                td { (limit(used.limit)) }
                                td { (fullness(used.limit, LimitCount { in_use: used.in_use, max: used.max })) }
                            }
                        }
                    }))
                }
            },
        ),
    )
}

/// What happened over time.
fn charts(history: &HistoryView) -> Markup {
    let points = &history.points;
    let columns = with_gaps(points);
    let time = |column: &Option<&HistoryPointView>| column.map_or_else(|| "–".to_owned(), |point| clock_time(point.at));
    let times: Vec<_> = columns.iter().map(time).collect();
    let line = |name: &str, value: &dyn Fn(&HistoryPointView) -> Option<f64>| ChartLine {
        name: name.to_owned(),
        values: columns.iter().map(|column| column.and_then(value)).collect(),
    };
    let ms = |us: Option<u64>| us.map(|us| us as f64 / 1_000.0);
    let by_name = |counts: &dyn Fn(&HistoryPointView) -> &std::collections::BTreeMap<String, u64>| {
        let names: BTreeSet<&String> = points.iter().flat_map(|point| counts(point).keys()).collect();
        let of = |name: &String| {
            line(name, &|point| Some(a_second(counts(point).get(name).copied().unwrap_or_default(), point)))
        };
        greatest(names.into_iter().map(of).collect())
    };
    let percent = |us: u64, point: &HistoryPointView| Some(a_second(us, point) / 10_000.0);
    let chart = |title, unit, lines, nothing| Chart { title, unit, times: &times, lines, note: None, nothing };
    let mut all = [
        chart("Calls that ended", "a second", by_name(&|point| &point.calls), "No call has ended."),
        chart(
            "How long calls ran",
            "ms",
            vec![line("p50", &|point| ms(point.p50_us)), line("p99", &|point| ms(point.p99_us))],
            "No call has ended.",
        ),
        chart(
            "CPU time",
            "% of a processor",
            vec![
                line("host", &|point| percent(point.host_cpu_us, point)),
                line("guests", &|point| percent(point.guests_cpu_us, point)),
            ],
            "Numbers come within seconds.",
        ),
        chart(
            "Calls at a time",
            "at most",
            vec![
                line("running", &|point| Some(point.calls_running as f64)),
                line("queued", &|point| Some(point.calls_queued as f64)),
                line("resting", &|point| Some(point.calls_resting as f64)),
            ],
            "Numbers come within seconds.",
        ),
        chart("Refusals by limit", "a second", by_name(&|point| &point.refusals), "No limit has refused anything."),
        chart(
            "Syncs of the store",
            "ms",
            vec![line("p50", &|point| ms(point.store_sync_p50_us)), line("p99", &|point| ms(point.store_sync_p99_us))],
            match points.iter().any(|point| point.store_syncs.is_some()) {
                true => "Nothing was written.",
                false => "They are counted where the configuration has [metrics].",
            },
        ),
    ];
    if let Some(of_times) = all.get_mut(1) {
        of_times.note = few_calls(points);
    }
    html! { @for chart in &all { (chart.show()) } }
}

/// The points, with nothing in the place of times of which there are no numbers: the host slept, say.
fn with_gaps(points: &[HistoryPointView]) -> Vec<Option<&HistoryPointView>> {
    let mut columns = Vec::with_capacity(points.len());
    let mut before = None::<&HistoryPointView>;
    for point in points {
        let begun = point.at.saturating_sub(point.span_ms);
        if before.is_some_and(|before| begun > before.at.saturating_add(before.span_ms / 2)) {
            columns.push(None);
        }
        columns.push(Some(point));
        before = Some(point);
    }
    columns
}

/// Says where a point is of too few calls to be one in a hundred of them.
fn few_calls(points: &[HistoryPointView]) -> Option<String> {
    let called = |point: &&HistoryPointView| point.p99_us.is_some();
    let all = points.iter().filter(called).count();
    let few = points.iter().filter(called).filter(|point| point.calls.values().sum::<u64>() < CALLS_FOR_P99).count();
    (few > 0).then(|| format!("At {few} of {all} points fewer than {CALLS_FOR_P99} calls ended: p99 is the longest."))
}

fn a_second(count: u64, point: &HistoryPointView) -> f64 {
    count as f64 * 1_000.0 / point.span_ms.max(1) as f64
}

/// What the limits have refused in the last minute, by their names, in requests a second.
fn refused_now(history: &HistoryView, now: u64) -> Vec<(String, f64)> {
    let recent: Vec<_> = history.points.iter().filter(|point| point.at.saturating_add(NOW_MS) > now).collect();
    let span_ms: u64 = recent.iter().map(|point| point.span_ms).sum();
    let names: BTreeSet<&String> = recent.iter().flat_map(|point| point.refusals.keys()).collect();
    let rate = |name: &&String| {
        let refused: u64 = recent.iter().filter_map(|point| point.refusals.get(*name)).sum();
        ((*name).clone(), refused as f64 * 1_000.0 / span_ms.max(1) as f64)
    };
    let mut rates: Vec<_> = names.iter().map(rate).collect();
    rates.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    rates
}

/// What to say, and the page where something can be done about it.
type Need = (String, String);

/// What a person should look at, each with the page where something can be done about it: first what does not get
/// better by itself.
fn needs_attention(page: &Overview, now: u64) -> Vec<Need> {
    let Overview { health, limits, plugins, history, drain, .. } = page;
    let (mut needs, mut later): (Vec<Need>, Vec<Need>) = Default::default();
    let mut say = |what: &str, address: &str| needs.push((text::line(what), address.to_owned()));
    if !health.store.writable {
        let why = health.store.problem.as_deref().unwrap_or("no reason is known");
        say(&format!("The store takes no writes: {why}"), "/hosts");
    }
    if !health.guests.running {
        say("The guests' threads stand still: start the host again", "/hosts");
    }
    if health.audit == AuditHealth::Refused {
        say("The disk does not take the audit log", "/audit");
    }
    if health.draining {
        say("The host drains: it takes nothing new until that is ended", "/hosts");
    }
    if drain.tasks_held > 0 {
        let held = drain.tasks_held;
        say(
            &format!("Tasks that are held until bulkhead tasks release --status paused: {held}"),
            "/tasks?status=paused",
        );
    }
    for missing in &health.plugins.missing {
        say(&format!("Plugin {missing} is required and not served"), &format!("/plugins/{}", path_segment(missing)));
    }
    for plugin in plugins.plugins.iter().filter(|plugin| plugin.state != PluginState::Removed) {
        let address = format!("/plugins/{}", path_segment(&plugin.name));
        let (needed, others) = of_plugin(plugin);
        needs.extend(needed.into_iter().map(|what| (named(plugin, &what), address.clone())));
        later.extend(others.into_iter().map(|what| (named(plugin, &what), address.clone())));
    }
    let refused = refused_now(history, now).into_iter().take(FULLEST_SHOWN_MAX);
    later.extend(refused.map(|(limit, rate)| {
        (text::line(&format!("{limit} refuses {} requests a second", number(rate))), "/denials".to_owned())
    }));
    let full = fullest(limits).into_iter().take_while(|used| used.percent() >= FULL_PERCENT).take(FULLEST_SHOWN_MAX);
    later.extend(full.map(|used| {
        let need = format!("{}: {} is at {} %", used.owner, used.limit, used.percent());
        (text::line(&need), used.address.unwrap_or_else(|| "/tenants".to_owned()))
    }));
    needs.append(&mut later);
    needs
}

fn named(plugin: &PluginView, what: &str) -> String {
    text::line(&format!("Plugin {}: {what}", plugin.name))
}

/// What of a plugin waits for a person, and what may get better by itself.
fn of_plugin(plugin: &PluginView) -> (Vec<String>, Vec<String>) {
    let mut needed = Vec::new();
    let mut later = Vec::new();
    let problem = || plugin.problems.first().cloned();
    match plugin.state {
        PluginState::Broken => needed.push(problem().unwrap_or_else(|| "it does not run".to_owned())),
        PluginState::Awaited => later.push(match problem() {
            Some(why) => format!("its component is still to be fetched: {why}"),
            None => "its component is still to be fetched".to_owned(),
        }),
        PluginState::Quarantined => {
            later.push(format!("{} requestors are kept from it", plugin.health.requestors_kept_away));
        }
        // It runs, and what is at its source is not taken.
        _ => needed.extend(problem().map(|why| format!("its source has something that is not taken: {why}"))),
    }
    if let Some(version) = &plugin.waiting {
        needed.push(format!("version {} is held back: it waits to be switched to", digits(version)));
    }
    if let Some(back) = &plugin.taken_back {
        needed.push(format!("version {} was taken back: {}", digits(&back.version), back.taken_back.why));
    }
    if let Some(demoted) = &plugin.demoted {
        needed.push(format!("its new calls keep no journals: {}", demoted.why));
    }
    (needed, later)
}

/// Which limits have refused something in the last hour, and how often.
pub(super) fn refused_in_history(history: &HistoryView) -> Markup {
    let mut refused = std::collections::BTreeMap::<&str, u64>::new();
    for (limit, count) in history.points.iter().flat_map(|point| &point.refusals) {
        *refused.entry(limit).or_default() += count;
    }
    let mut refused: Vec<_> = refused.into_iter().collect();
    refused.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    html! {
        @if refused.is_empty() { p { "No limit has refused anything in the last hour." } } @else {
            (table("Refusals of the last hour by limit", REFUSALS, html! {
                @for (limit, count) in &refused { tr { td { code { (limit) } } td { (text::count(*count)) } } }
            }))
        }
    }
}

/// A link to the tasks of a tenant.
pub(super) fn tasks_of(tenant: &str) -> String {
    address("/tasks", &[("tenant", Some(tenant))])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Overview {
        Overview {
            health: serde_json::from_str(
                r#"{"healthy":true,"ready":true,"reasons":[],"draining":false,"store":{"writable":true,"problem":null},
                "plugins":{"configured":1,"serving":1,"broken":[],"awaited":[],"missing":[]},
                "guests":{"running":true,"silent_ms":1},"audit":"off","disk_free_bytes":null,
                "clock":{"now_ms":1,"ahead_of_system_ms":0}}"#,
            )
            .unwrap(),
            drain: serde_json::from_str(
                r#"{"draining":false,"still":true,"plain_calls":0,"tasks_running":0,"tasks_queued":0,"tasks_waiting":0,"tasks_paused":0}"#,
            )
            .unwrap(),
            limits: serde_json::from_str(r#"{"host":{},"tenants":[],"requestors":[],"more":false}"#).unwrap(),
            plugins: serde_json::from_str(r#"{"plugins":[]}"#).unwrap(),
            history: HistoryView::default(),
        }
    }

    fn point(at: u64, refusals: &[(&str, u64)]) -> HistoryPointView {
        let refusals = refusals.iter().map(|(limit, count)| ((*limit).to_owned(), *count)).collect();
        HistoryPointView { at, span_ms: 10_000, refusals, ..HistoryPointView::default() }
    }

    #[test]
    fn what_needs_a_person_stands_first_and_everything_leads_somewhere() {
        let mut page = page();
        assert!(needs_attention(&page, 100_000).is_empty());
        page.health.draining = true;
        page.drain.tasks_held = 3;
        page.health.audit = AuditHealth::Refused;
        page.history.points = vec![point(30_000, &[("looks", 9)]), point(95_000, &[("requests_per_second", 124)])];
        page.limits = serde_json::from_str(
            r#"{"host":{"calls_running_total":{"in_use":95,"max":100},"x":{"in_use":1,"max":100}},
            "tenants":[{"tenant":"a b","limits":{"tasks_stored_per_tenant":{"in_use":100,"max":100}}}],"requestors":[],"more":false}"#,
        )
        .unwrap();
        let needs = needs_attention(&page, 100_000);
        let expected = [
            ("The disk does not take the audit log", "/audit"),
            ("The host drains: it takes nothing new until that is ended", "/hosts"),
            ("Tasks that are held until bulkhead tasks release --status paused: 3", "/tasks?status=paused"),
            ("requests_per_second refuses 12.4 requests a second", "/denials"),
            ("tenant a b: tasks_stored_per_tenant is at 100 %", "/tenants/a%20b"),
            ("the host: calls_running_total is at 95 %", "/tenants"),
        ];
        let needs: Vec<_> = needs.iter().map(|(need, address)| (need.as_str(), address.as_str())).collect();
        assert_eq!(needs, expected);
    }

    #[test]
    fn limits_that_are_next_to_empty_are_not_shown() {
        let mut page = page();
        page.limits = serde_json::from_str(
            r#"{"host":{"calls_running_total":{"in_use":5,"max":100}},"tenants":[{"tenant":"acme",
            "limits":{"tasks_stored_bytes_per_tenant":{"in_use":2048,"max":4096}}}],"requestors":[],"more":false}"#,
        )
        .unwrap();
        let shown = |page: &Overview| {
            overview(&Frame { session: None, here: "/", address: "", now: 1_000 }, page).into_string()
        };
        let fullest = shown(&page).split_once("The fullest limits").unwrap().1.to_owned();
        assert!(!fullest.contains("calls_running_total"), "{fullest}");
        assert!(
            fullest.contains("<a href=\"/tenants/acme\">tenant acme</a>") && fullest.contains("2.0 KiB of 4.0 KiB")
        );
        page.limits.tenants.clear();
        assert!(shown(&page).contains("No limit is above 5 %."));
    }

    #[test]
    fn time_without_numbers_is_a_gap_and_few_calls_are_said() {
        let points = [point(10_000, &[]), point(20_000, &[]), point(90_000, &[])];
        let columns: Vec<_> = with_gaps(&points).into_iter().map(|column| column.map(|point| point.at)).collect();
        assert_eq!(columns, [Some(10_000), Some(20_000), None, Some(90_000)]);
        assert_eq!(few_calls(&points), None, "nothing was called");
        let called = |calls| HistoryPointView {
            calls: [("ok".to_owned(), calls)].into(),
            p99_us: Some(7),
            ..HistoryPointView::default()
        };
        let said = few_calls(&[called(3), called(1_000)]).unwrap();
        assert_eq!(said, "At 1 of 2 points fewer than 100 calls ended: p99 is the longest.");
    }

    #[test]
    fn rates_of_refusals_are_those_of_the_last_minute() {
        let points = vec![point(10_000, &[("a", 100)]), point(90_000, &[("a", 10), ("b", 40)]), point(100_000, &[])];
        let rates = refused_now(&HistoryView { points }, 100_000);
        assert_eq!(rates, [("b".to_owned(), 2.0), ("a".to_owned(), 0.5)]);
    }

    #[test]
    fn overview_of_a_busy_hour_is_small() {
        let outcomes = ["ok", "tool_error", "trap", "limit", "deadline", "cancelled", "host"];
        let mut calls: std::collections::BTreeMap<_, _> = outcomes.map(|name| (name.to_owned(), 1_234)).into();
        calls.insert("tool_error".to_owned(), 4_321);
        let busy = |at: u64| HistoryPointView {
            at: at * 60_000,
            span_ms: 60_000,
            calls: calls.clone(),
            refusals: calls.clone(),
            p50_us: Some(1_500),
            p99_us: Some(200_000),
            store_syncs: Some(7),
            store_sync_p50_us: Some(1_000),
            store_sync_p99_us: Some(5_000),
            guests_cpu_us: 12_345_678,
            host_cpu_us: 34_567_890,
            calls_running: 128,
            ..HistoryPointView::default()
        };
        let history = HistoryView { points: (0..60).map(busy).collect() };
        let shown = charts(&history).into_string();
        assert!(shown.len() < 52 << 10, "{} bytes", shown.len());
        for part in ["tool_error, a second", "20.6", "Syncs of the store", "<td>00:59:00</td>"] {
            assert!(shown.contains(part), "{part}");
        }
        assert!(!shown.contains("style"));
    }
}
