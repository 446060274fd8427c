//! Tenants: what each has, what is in use of its limits, and what it used by day.

use std::cmp::Ordering;

use bulkhead_control::views::{
    LimitCount, LimitCounts, LimitsView, TenantDayView, TenantListView, TenantUsageView, TenantView,
};
use bulkhead_domain::UnixMs;
use bulkhead_domain::timestamp::iso8601;
use maud::{Markup, html};

use super::limits::limit as limit_name;
use super::lists::{ListAddress, ListPosition, counted};
use super::operators::{ROWS_MAX, path_segment, rows};
use super::overview::{EMPTY_PERCENT, tasks_of, used};
use super::{Frame, address, meter_as, more, table};
use crate::chart::{Chart, ChartLine};
use crate::columns::{LIMITS, REQUESTORS, TENANTS, USAGE};
use crate::text;

/// Of a tenant's limits, those that the dashboard's list of tenants shows.
const FULLEST_OF_TENANT_MAX: usize = 3;
/// Days of a tenant's usage that its page shows.
pub(crate) const DAYS_SHOWN: u32 = 30;
const DAY_MS: u64 = 86_400_000;

/// A page of the tenants.
pub(crate) fn tenants(
    frame: &Frame<'_>,
    view: &mut TenantListView,
    limits: &LimitsView,
    position: ListPosition<'_>,
) -> Markup {
    let sort = position.sort;
    view.tenants.sort_by(|one, other| sort.directed(compare(sort.key, one, other)));
    let (shown, next) = rows(&view.tenants, position.from);
    let at = ListAddress { path: "/tenants", filters: &[], sort: Some(sort) };
    let next = next.map(|next| at.with(&[("from", Some(&next.to_string()))]));
    let used_by = |tenant: &TenantView| {
        let limits = limits.tenants.iter().find(|it| it.tenant == tenant.name).map(|it| &it.limits);
        let used = limits.into_iter().flat_map(|limits| used(String::new(), None, limits));
        let mut used: Vec<_> = used.filter(|used| used.percent() > EMPTY_PERCENT).collect();
        used.sort_by_key(|used| std::cmp::Reverse(used.percent()));
        used
    };
    frame.show(
        "Tenants",
        html! {
            @if view.tenants.is_empty() {
                p { "There is no tenant yet. " code { "bulkhead token create" } " makes the first requestor of one." }
            } @else {
                (counted(view.tenants.len(), false, "tenant", "tenants"))
                (TENANTS.show(Some(&at), html! {
                    @for tenant in shown {
                        tr {
                            td { a href={ "/tenants/" (path_segment(&tenant.name)) } { (text::line(&tenant.name)) } }
                            td { (tenant.requestors) }
                            td { (tenant.tokens) }
                            td { (text::count(tenant.tasks)) }
                            td { (text::bytes(tenant.bytes)) }
                            td { @if used_by(tenant).is_empty() { "–" } @for used in used_by(tenant).iter().take(FULLEST_OF_TENANT_MAX) {
                                div { code { (used.limit) } " " (used.percent()) " %" }
                            } }
                        }
                    }
                }))
            }
            (more(next.as_deref()))
        },
    )
}

/// The order of two tenants by a column.
fn compare(key: &str, one: &TenantView, other: &TenantView) -> Ordering {
    let by = match key {
        "requestors" => one.requestors.cmp(&other.requestors),
        "tokens" => one.tokens.cmp(&other.tokens),
        "tasks" => one.tasks.cmp(&other.tasks),
        "stored" => one.bytes.cmp(&other.bytes),
        _ => Ordering::Equal,
    };
    by.then_with(|| one.name.cmp(&other.name))
}

/// What the page of a tenant shows.
pub(crate) struct TenantPage<'a> {
    pub(crate) name: &'a str,
    pub(crate) limits: LimitsView,
    pub(crate) usage: TenantUsageView,
}

/// One tenant, with everything that is in use of its limits and of those of its requestors.
pub(crate) fn tenant(frame: &Frame<'_>, page: &TenantPage<'_>) -> Markup {
    let name = page.name;
    let limits = &page.limits;
    let counts = |counts: &LimitCounts| {
        html! { @for (limit, count) in counts { tr { td { (limit_name(limit)) } td { (quota(limit, *count)) } } } }
    };
    let of_requestors = limits.requestors.iter().flat_map(|requestor| {
        let used = requestor.limits.iter().filter(|(_, count)| count.in_use > 0);
        used.map(|(limit, count)| (requestor.requestor.as_str(), limit.as_str(), *count))
    });
    let mut in_use: Vec<_> = of_requestors.collect();
    // The fullest first.
    in_use.sort_by_key(|(.., count)| std::cmp::Reverse(count.in_use.saturating_mul(100) / count.max.max(1)));
    let of_tenant = |path: &str| address(path, &[("tenant", Some(name))]);
    frame.show(&text::line(&format!("Tenant {name}")), html! {
        p {
            a href=(tasks_of(name)) { "Its tasks" } " · "
            a href=(of_tenant("/tokens")) { "Its tokens" } " · "
            a href=(of_tenant("/denials")) { "What it was denied" } " · "
            a href=(of_tenant("/audit")) { "Its lines of the audit log" }
        }
        @for tenant in &limits.tenants {
            h2 { "Limits" }
            (table("Limits of the tenant", LIMITS, counts(&tenant.limits)))
        }
        h2 { "Usage by day" }
        (usage(&page.usage, frame.now))
        h2 { "Requestors that use something" }
        @if in_use.is_empty() { p { "None at the moment." } }
        @else {
            (table("Requestors", REQUESTORS, html! {
                @for (requestor, limit, count) in in_use.iter().take(ROWS_MAX) {
                    tr { td { (text::line(requestor)) } td { code { (limit) } } td { (quota(limit, *count)) } }
                }
            }))
            @if limits.more || in_use.len() > ROWS_MAX { p { "There are more: " code { "bulkhead limits --tenant" } " shows them." } }
        }
    })
}

/// How full a limit is, in its unit.
fn quota(limit: &str, LimitCount { in_use, max }: LimitCount) -> Markup {
    meter_as(in_use, max, if limit.contains("bytes") { text::bytes } else { text::count })
}

/// Days in UTC, the newest first, with a chart of the calls.
fn usage(view: &TenantUsageView, now: UnixMs) -> Markup {
    let days: Vec<_> = (0..u64::from(DAYS_SHOWN)).rev().map(|back| day(now.saturating_sub(back * DAY_MS))).collect();
    let of = |day: &String| view.usage.iter().find(|used| used.day == *day);
    let calls = days.iter().map(|day| Some(of(day).map_or(0, |used| used.calls) as f64)).collect();
    let lines = vec![ChartLine { name: "calls".to_owned(), values: calls }];
    html! {
        @if view.usage.is_empty() { p { "It used nothing in the last " (DAYS_SHOWN) " days." } } @else {
            (Chart { title: "Calls by day", unit: "a day", times: &days, lines, note: None, nothing: "" }.show())
            (table("Usage by day", USAGE, html! {
                @for TenantDayView { day, calls, cpu_ms, bytes_in, bytes_out, stored_bytes, .. } in view.usage.iter().rev() {
                    tr {
                        td { (day) }
                        td { (text::count(*calls)) }
                        td { (text::duration(*cpu_ms)) }
                        td { (text::bytes(*bytes_in)) }
                        td { (text::bytes(*bytes_out)) }
                        td { (text::bytes(*stored_bytes)) }
                    }
                }
            }))
        }
    }
}

fn day(at: UnixMs) -> String {
    iso8601(at).get(..10).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_has_a_point_for_each_day_and_a_row_for_those_with_any() {
        let view: TenantUsageView = serde_json::from_str(
            r#"{"usage":[{"tenant":"acme","id":"01","day":"1970-01-30","calls":7,"cpu_ms":2500,"bytes_in":1024,"bytes_out":2,"stored_bytes":3}],"more":false}"#,
        )
        .unwrap();
        let shown = usage(&view, 30 * DAY_MS).into_string();
        assert!(shown.contains("<td>1970-01-30</td><td>7</td><td>2.5 s</td><td>1.0 KiB</td>"), "{shown}");
        assert!(shown.contains("<td>1970-01-31</td><td>0</td>") && shown.contains("<td>1970-01-02</td>"), "{shown}");
        assert!(!shown.contains("1970-01-01"), "{shown}");
    }

    #[test]
    fn bytes_of_a_limit_are_said_in_a_unit_for_people() {
        let count = LimitCount { in_use: 2_048, max: 1 << 20 };
        assert!(quota("tasks_stored_bytes_per_tenant", count).into_string().ends_with("2.0 KiB of 1.0 MiB"));
        assert!(quota("tasks_stored_per_tenant", count).into_string().ends_with("2,048 of 1,048,576"));
    }
}
