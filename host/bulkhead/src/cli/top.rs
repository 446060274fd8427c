//! `bulkhead top`: what a host does at the moment, again and again.
//!
//! Must not ask the host for anything but what other commands show. Invariant: one look costs three commands, however
//! busy the host is; with `--by` ([`super::rates`]) it costs two.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use bulkhead_assembly::stop_signal;
use bulkhead_author_cli::progress::can_overwrite;
use bulkhead_console::table::{Layout, cell, now, word};
use bulkhead_control::commands::{DrainShow, LimitsInUse, PluginList, TaskFilter};
use bulkhead_control::views::{DrainView, LimitCount, LimitCounts, LimitsView, PluginListView};
use bulkhead_plugins::PluginState;
use clap::Args;
use serde::Serialize;

use super::limits::{REQUESTORS, owned, percent};
use super::operate::{Absent, OperateArguments, execute};
use super::rates::{self, By};
use super::values::duration_ms;

/// Limits in the table; all of them are in --json.
const LIMITS: usize = 12;
/// The host has something else to do, too.
const INTERVAL_LEAST: Duration = Duration::from_millis(250);
/// With --by. A host that is not looked at for twice as long stops counting.
const BY_INTERVAL_MAX: Duration = Duration::from_secs(300);
/// Empties the terminal and begins at its top.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Show what runs now, by tenant and by plugin, and which limits are fullest; again every two seconds, until SIGINT.
///
/// With --by, show instead which tenant, plugin, tool or requestor takes the host's time, the dearest first. Needs a
/// running host, on this machine or, with --url, anywhere. Where stdout is no terminal, each look follows the one
/// before.
#[derive(Args, Debug)]
#[command(after_long_help = "Columns of --by, each of the time since the look before:\n  \
    CALLS/S    calls that ended\n  \
    ERRORS/S   those of them that ended otherwise than ok or cancelled: --json tells how\n  \
    REFUSED/S  calls and tasks that a limit or a fault of their plugin kept from beginning\n  \
    CPU        time on the processors; 100 % is one of them. Calls that still run are in it\n  \
    P50 MS     how long calls ran, without what they waited for: half of them took no longer\n  \
    P99 MS     the same of 99 in 100. Both may be up to two thirds too large, never too small\n\n\
    Examples:\n  \
    bulkhead top\n  \
    bulkhead top --by tool\n  \
    bulkhead top --by requestor --once --interval 10s --json\n\n\
    The host counts this only while you look, and for ten minutes after. It tells 4,096 requestors\n\
    apart, 1,024 of each tenant: calls of further ones are in the row (others), and in those of their\n\
    tenant, plugin and tool.")]
pub(crate) struct TopArguments {
    /// Between two looks: a number and s, m, h or d
    #[arg(long, value_name = "TIME", value_parser = duration_ms, default_value = "2s")]
    interval: u64,
    /// Look once, or with --by twice: once --interval apart
    #[arg(long)]
    once: bool,
    /// Show what calls cost instead: calls, errors, refusals and CPU time a second, and how long calls run
    #[arg(long, value_enum)]
    by: Option<By>,
    #[command(flatten)]
    operate: OperateArguments,
}

/// One look at a host.
#[derive(Debug, Serialize)]
struct HostActivity {
    /// When it was.
    at: u64,
    host: DrainView,
    tenants: Vec<TenantActivity>,
    plugins: Vec<PluginActivity>,
    /// What is in use at all, the fullest first.
    limits: Vec<LimitActivity>,
}

/// What goes on for a tenant.
#[derive(Debug, Serialize)]
struct TenantActivity {
    tenant: String,
    calls_running: u64,
    tasks_running: u64,
    calls_queued: u64,
    tasks_queued: u64,
    /// Calls that keep their sandbox while they sleep, are asked or are paused.
    resting: u64,
    waiting: u64,
    paused: u64,
}

/// What goes on on a plugin.
#[derive(Debug, Serialize)]
struct PluginActivity {
    plugin: String,
    state: PluginState,
    calls: usize,
    tasks: usize,
}

/// A limit that something is in use of.
#[derive(Debug, Serialize)]
struct LimitActivity {
    owner: String,
    limit: String,
    in_use: u64,
    max: u64,
    percent: u64,
}

pub(crate) async fn run(arguments: TopArguments) -> anyhow::Result<ExitCode> {
    let TopArguments { interval, once, by, operate } = arguments;
    let pause = Duration::from_millis(interval).max(INTERVAL_LEAST);
    if by.is_some() && pause > BY_INTERVAL_MAX {
        anyhow::bail!(
            "--interval is longer than 5m: the host counts for --by only while it is looked at; for a longer time, scrape its \
             metrics"
        );
    }
    let mut stop = std::pin::pin!(stop_signal()?);
    let clears = can_overwrite(&std::io::stdout()) && !once && !operate.json;
    let mut former = match by {
        Some(by) => {
            let former = rates::look(&operate, by).await?;
            tokio::select! {
                () = &mut stop => return Ok(ExitCode::SUCCESS),
                () = tokio::time::sleep(pause) => {}
            }
            Some((by, former))
        }
        None => None,
    };
    loop {
        let text = match &mut former {
            Some((by, former)) => {
                let rates = rates::look_again(&operate, *by, former).await?;
                shown(&operate, &rates, |layout| rates.text(layout))?
            }
            None => {
                let activity = look(&operate).await?;
                shown(&operate, &activity, |layout| activity.text(layout))?
            }
        };
        let text = if clears { format!("{CLEAR}{text}") } else { text };
        let mut stdout = std::io::stdout().lock();
        let separator = if once || operate.json || stdout.is_terminal() { "" } else { "\n" };
        let written = writeln!(stdout, "{text}{separator}").and_then(|()| stdout.flush());
        drop(stdout);
        // A reader that went away has seen enough.
        if once || written.is_err() {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::select! {
            () = &mut stop => return Ok(ExitCode::SUCCESS),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

fn shown(
    operate: &OperateArguments,
    value: &impl Serialize,
    text: impl FnOnce(&Layout) -> String,
) -> anyhow::Result<String> {
    Ok(if operate.json { serde_json::to_string(value)? } else { text(&Layout::of_stdout(operate.wide)) })
}

/// What goes on in a line.
pub(super) fn summary(host: &DrainView) -> String {
    let DrainView { plain_calls, tasks_running, tasks_queued, tasks_waiting, tasks_paused, draining, .. } = host;
    let drains = if *draining { "; the host drains and takes nothing new" } else { "" };
    format!(
        "{plain_calls} calls, {tasks_running} running tasks, {tasks_queued} queued, {tasks_waiting} waiting, {tasks_paused} \
         paused{drains}"
    )
}

async fn look(operate: &OperateArguments) -> anyhow::Result<HostActivity> {
    let everybody = LimitsInUse { filter: TaskFilter::default(), count_max: REQUESTORS };
    let limits = execute(operate, everybody, Absent::Refuse).await?;
    let host = execute(operate, DrainShow {}, Absent::Refuse).await?;
    let plugins = execute(operate, PluginList {}, Absent::Refuse).await?;
    Ok(HostActivity::of(now(), host, &limits, plugins))
}

impl HostActivity {
    fn of(at: u64, host: DrainView, view: &LimitsView, plugins: PluginListView) -> Self {
        let tenants = view.tenants.iter().map(|one| TenantActivity::of(&one.tenant, &one.limits));
        let plugins = plugins.plugins.into_iter().map(|plugin| PluginActivity {
            plugin: plugin.name,
            state: plugin.state,
            calls: plugin.calls,
            tasks: plugin.tasks,
        });
        let used = owned(view).into_iter().filter(|(_, _, limit)| limit.in_use > 0);
        let mut limits: Vec<_> = used.map(|(owner, name, limit)| LimitActivity::of(owner, name, limit)).collect();
        limits.sort_by_key(|limit| std::cmp::Reverse(limit.percent));
        Self { at, host, tenants: tenants.collect(), plugins: plugins.collect(), limits }
    }

    fn text(&self, layout: &Layout) -> String {
        let mut parts = vec![summary(&self.host)];
        let rows: Vec<_> =
            self.tenants.iter().filter(|tenant| tenant.counts() != [0; 7]).map(TenantActivity::cells).collect();
        let head = ["TENANT", "CALLS", "TASKS", "CALLS QUEUED", "TASKS QUEUED", "RESTING", "WAITING", "PAUSED"];
        parts.push(layout.table(&head, &rows));
        let rows: Vec<_> = self.plugins.iter().map(PluginActivity::cells).collect();
        parts.push(layout.table(&["PLUGIN", "STATE", "CALLS", "TASKS"], &rows));
        let rows: Vec<_> = self.limits.iter().take(LIMITS).map(LimitActivity::cells).collect();
        parts.push(layout.table(&["WHOSE", "LIMIT", "IN USE", "MAXIMUM", "FULL"], &rows));
        let mut text = parts.join("\n\n");
        if self.limits.len() > LIMITS {
            let more = self.limits.len() - LIMITS;
            text.push_str(&format!("\n({more} more: see `bulkhead limits --sort full`)"));
        }
        text
    }
}

impl TenantActivity {
    fn of(tenant: &str, limits: &LimitCounts) -> Self {
        let in_use = |name: &str| limits.get(name).map_or(0, |limit| limit.in_use);
        Self {
            tenant: tenant.to_owned(),
            calls_running: in_use("calls_running_per_tenant"),
            tasks_running: in_use("tasks_running_per_tenant"),
            calls_queued: in_use("calls_queued_per_tenant"),
            tasks_queued: in_use("tasks_queued_per_tenant"),
            resting: in_use("calls_resting_per_tenant"),
            waiting: in_use("tasks_waiting_per_tenant"),
            paused: in_use("tasks_paused_per_tenant"),
        }
    }

    fn counts(&self) -> [u64; 7] {
        let Self { calls_running, tasks_running, calls_queued, tasks_queued, resting, waiting, paused, .. } = *self;
        [calls_running, tasks_running, calls_queued, tasks_queued, resting, waiting, paused]
    }

    fn cells(&self) -> Vec<String> {
        [cell(&*self.tenant)].into_iter().chain(self.counts().map(|count| count.to_string())).collect()
    }
}

impl PluginActivity {
    fn cells(&self) -> Vec<String> {
        vec![cell(&*self.plugin), word(&self.state), self.calls.to_string(), self.tasks.to_string()]
    }
}

impl LimitActivity {
    fn of(owner: String, name: &str, limit: LimitCount) -> Self {
        let LimitCount { in_use, max } = limit;
        Self { owner, limit: cell(name), in_use, max, percent: percent(limit) }
    }

    fn cells(&self) -> Vec<String> {
        let Self { owner, limit, in_use, max, percent } = self;
        vec![owner.clone(), limit.clone(), in_use.to_string(), max.to_string(), format!("{percent} %")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity() -> HostActivity {
        let limits = r#"{"host":{"calls_running_total":{"in_use":3,"max":64}},"tenants":[
            {"tenant":"acme","limits":{"calls_running_per_tenant":{"in_use":3,"max":4},"tasks_running_per_tenant":{"in_use":2,"max":4},
                "tasks_queued_per_tenant":{"in_use":5,"max":100},"calls_resting_per_tenant":{"in_use":1,"max":100}}},
            {"tenant":"idle","limits":{"calls_running_per_tenant":{"in_use":0,"max":4}}}],"requestors":[],"more":false}"#;
        let host = r#"{"draining":false,"still":false,"plain_calls":1,"tasks_running":2,"tasks_queued":5,"tasks_waiting":0,"tasks_paused":0}"#;
        let plugins = PluginListView { plugins: Vec::new() };
        HostActivity::of(7, serde_json::from_str(host).unwrap(), &serde_json::from_str(limits).unwrap(), plugins)
    }

    #[test]
    fn top_shows_busy_tenants_and_the_fullest_limits_first() {
        let text = activity().text(&Layout::plain(7));
        let lines: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(text.starts_with("1 calls, 2 running tasks, 5 queued, 0 waiting, 0 paused\n"), "{text}");
        assert!(lines.contains(&vec!["acme", "3", "2", "0", "5", "1", "0", "0"]), "{text}");
        assert!(!text.contains("idle"), "{text}");
        let limits: Vec<_> =
            lines.iter().filter(|line| line.last() == Some(&"%")).map(|line| line[line.len() - 2]).collect();
        assert_eq!(limits, ["75", "50", "5", "4", "1"], "{text}");
    }

    #[test]
    fn top_as_json_names_every_tenant() {
        let json = serde_json::to_value(activity()).unwrap();
        assert_eq!((&json["at"], &json["host"]["tasks_running"]), (&7.into(), &2.into()));
        assert_eq!((&json["tenants"][0]["resting"], &json["tenants"][1]["tenant"]), (&1.into(), &"idle".into()));
        assert_eq!(json["limits"][0]["percent"], 75);
    }
}
