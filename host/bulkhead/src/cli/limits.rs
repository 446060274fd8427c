//! `bulkhead limits`: what is in use of each limit, and how much there may be.

use std::process::ExitCode;

use bulkhead_config::amounts::amount;
use bulkhead_console::table::{Layout, cell};
use bulkhead_control::commands::{LimitsInUse, TaskFilter};
use bulkhead_control::views::{LimitCount, LimitsView};
use clap::{Args, ValueEnum};

use super::operate::{Absent, OperateArguments, execute, show};

/// Requestors that are asked for, unless the operator says otherwise.
pub(super) const REQUESTORS: usize = 500;

/// What is in use of each limit, and how much there may be: of the host, of tenants, of requestors.
///
/// Needs a running host, on this machine or, with --url, anywhere.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:\n  \
    bulkhead limits --tenant acme\n  \
    bulkhead limits --over 80\n  \
    bulkhead limits --over 80 --json --url https://mcp.example.com:8809 --token-file admin.token\n\n\
    Exit code 0, whether or not a limit is so full: scripts look at what --json leaves.")]
pub(crate) struct LimitsArguments {
    /// Only this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Only requestors of this name; also when they use nothing
    #[arg(long, value_name = "NAME")]
    requestor: Option<String>,
    /// Only limits of which at least so much is in use
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(0..=100))]
    over: Option<u64>,
    /// In which order the table has them [default: owner; with --over: full]
    #[arg(long, value_enum)]
    sort: Option<LimitOrder>,
    /// At most so many requestors
    #[arg(long, value_name = "COUNT", default_value_t = REQUESTORS)]
    max: usize,
    #[command(flatten)]
    operate: OperateArguments,
}

/// An order of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LimitOrder {
    /// The host, then tenants, then requestors
    Owner,
    /// The fullest first
    Full,
}

pub(crate) async fn run(arguments: LimitsArguments) -> anyhow::Result<ExitCode> {
    let LimitsArguments { tenant, requestor, over, sort, max, operate } = arguments;
    let filter = TaskFilter { tenant, requestor, ..TaskFilter::default() };
    let mut view = execute(&operate, LimitsInUse { filter, count_max: max }, Absent::Refuse).await?;
    if let Some(percent) = over {
        keep_fuller(&mut view, percent);
    }
    let order = sort.unwrap_or(if over.is_some() { LimitOrder::Full } else { LimitOrder::Owner });
    show(&operate, &view, |layout| limits_table(&view, order, layout))
}

/// How much of it is in use, in per cent. What may not be used at all is full as soon as it is.
pub(super) fn percent(limit: LimitCount) -> u64 {
    match (limit.in_use, limit.max) {
        (0, _) => 0,
        (_, 0) => 100,
        (in_use, max) => u64::try_from(u128::from(in_use) * 100 / u128::from(max)).unwrap_or(u64::MAX),
    }
}

/// Leaves out limits of which less is in use, and owners that have no other.
fn keep_fuller(view: &mut LimitsView, least: u64) {
    let is_full = |_: &String, limit: &mut LimitCount| percent(*limit) >= least;
    view.host.retain(is_full);
    for tenant in &mut view.tenants {
        tenant.limits.retain(is_full);
    }
    for requestor in &mut view.requestors {
        requestor.limits.retain(is_full);
    }
    view.tenants.retain(|tenant| !tenant.limits.is_empty());
    view.requestors.retain(|requestor| !requestor.limits.is_empty());
}

/// Every limit with whose it is, for people.
pub(super) fn owned(view: &LimitsView) -> Vec<(String, &str, LimitCount)> {
    let mut all = Vec::new();
    all.extend(view.host.iter().map(|(name, limit)| ("host".to_owned(), name.as_str(), *limit)));
    for one in &view.tenants {
        let owner = format!("tenant {}", cell(&*one.tenant));
        all.extend(one.limits.iter().map(|(name, limit)| (owner.clone(), name.as_str(), *limit)));
    }
    for one in &view.requestors {
        let owner = format!("requestor {} ({})", cell(&*one.requestor), cell(&*one.tenant));
        all.extend(one.limits.iter().map(|(name, limit)| (owner.clone(), name.as_str(), *limit)));
    }
    all
}

pub(super) fn limits_table(view: &LimitsView, order: LimitOrder, layout: &Layout) -> String {
    let mut all = owned(view);
    if order == LimitOrder::Full {
        all.sort_by_key(|(_, _, limit)| std::cmp::Reverse(percent(*limit)));
    }
    let row = |(owner, name, limit): (String, &str, LimitCount)| {
        vec![owner, cell(name), amount(name, limit.in_use), amount(name, limit.max), format!("{} %", percent(limit))]
    };
    let rows: Vec<_> = all.into_iter().map(row).collect();
    let mut text = layout.table(&["WHOSE", "LIMIT", "IN USE", "MAXIMUM", "FULL"], &rows);
    if view.more {
        text.push_str("\n(there are more requestors: use --tenant, --requestor or --max)");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> LimitsView {
        serde_json::from_str(
            r#"{"host":{"calls_running_total":{"in_use":1,"max":64},"sessions_total":{"in_use":9,"max":10}},
            "tenants":[{"tenant":"acme","limits":{"tasks_running_per_tenant":{"in_use":8,"max":8}}},
                {"tenant":"idle","limits":{"tasks_running_per_tenant":{"in_use":0,"max":8}}}],
            "requestors":[{"requestor":"anna","tenant":"acme","limits":{"a":{"in_use":1,"max":0},"b":{"in_use":79,"max":100}}}],
            "more":false}"#,
        )
        .unwrap()
    }

    #[test]
    fn limits_over_a_share_leave_out_the_others_and_their_owners() {
        let mut view = view();
        keep_fuller(&mut view, 80);
        let kept: Vec<_> = owned(&view).into_iter().map(|(owner, name, _)| format!("{owner}: {name}")).collect();
        assert_eq!(kept, ["host: sessions_total", "tenant acme: tasks_running_per_tenant", "requestor anna (acme): a"]);
    }

    #[test]
    fn limits_are_sorted_by_how_full_they_are() {
        let text = limits_table(&view(), LimitOrder::Full, &Layout::plain(0));
        let full: Vec<_> = text.lines().skip(1).filter_map(|line| line.rsplit("  ").next()).collect();
        assert_eq!(full, ["100 %", "100 %", "90 %", "79 %", "1 %", "0 %"]);
    }
}
