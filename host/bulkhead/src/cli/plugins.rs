//! `bulkhead plugin list|versions|add|stage|activate|promote|rollback|durable|remove|verify`; see `plugin_changes` and
//! `plugin_usage` for more.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bulkhead_author_cli::{EXIT_FAILED, EXIT_REFUSED};
use bulkhead_config::amounts;
use bulkhead_console::print_error;
use bulkhead_console::table::{Layout, cell, when, word};
use bulkhead_control::Request;
use bulkhead_control::commands::{
    PluginActivate, PluginAdd, PluginCanary, PluginChanges, PluginDurable, PluginGrants, PluginList, PluginPromote,
    PluginRemove, PluginRollback, PluginStage, PluginTarget, PluginUpdate, PluginVerify, PluginVersions,
};
use bulkhead_control::views::{
    PluginListView, PluginOutcome, PluginRemoveView, PluginResult, PluginUpdateView, PluginVersionsView, StagedView,
};
use bulkhead_plugins::sources::Source;
use bulkhead_plugins::{
    CanaryThresholdOverrides, Changes, Demotion, Digest, FaultRecord, PluginHealth, PluginView, Stage, SwitchEffect,
    SwitchResult, Verified, VersionDurability, VersionView,
};
use bulkhead_workbench::{author, call, inspect, replay};
use serde::Serialize;

use super::operate::{Absent, OperateArguments, execute, show, show_answer};
use super::plugin_arguments::{CanaryArguments, PluginCommand, PluginsArguments};
use super::values::OnOff;
use super::{plugin_changes, plugin_usage};

/// How much of a digest people see.
const DIGEST_SHOWN: usize = 12;

pub(crate) async fn run(command: PluginCommand) -> anyhow::Result<ExitCode> {
    match command {
        PluginCommand::Inspect(arguments) => inspect::run(arguments).await,
        PluginCommand::Call(arguments) => call::run(arguments).await,
        PluginCommand::Replay(arguments) => replay::run(arguments).await,
        PluginCommand::Author(command) => Box::pin(author::run(command, install)).await,
        PluginCommand::List(operate) => show_answer(&operate, PluginList {}, list).await,
        PluginCommand::Versions { name, operate } => show_answer(&operate, PluginVersions { name }, versions).await,
        PluginCommand::Usage { name, days, csv, operate } => plugin_usage::run(name, days, csv, &operate).await,
        PluginCommand::Changes { target: text, tool, operate } => {
            let PluginTarget { name, version } = target(&text);
            show_answer(&operate, PluginChanges { name, version, tool }, plugin_changes::changes).await
        }
        PluginCommand::Grants { target: text, operate } => {
            let PluginTarget { name, version } = target(&text);
            show_answer(&operate, PluginGrants { name, version }, plugin_changes::grants).await
        }
        PluginCommand::Stage { source, name, sha256, operate } => {
            let source = source.absolute()?.to_string();
            answer(&operate, PluginStage { source, sha256, name }, Absent::Create, staged).await
        }
        PluginCommand::Add { sources, name, sha256, accept, operate } => {
            let absolute = |source: Source| source.absolute().map(|source| source.to_string());
            let sources = sources.into_iter().map(absolute).collect::<Result<_, _>>()?;
            answer(&operate, PluginAdd { sources, sha256, name, accept }, Absent::Create, switched).await
        }
        PluginCommand::Update { name, activate, accept, operate } => {
            answer(&operate, PluginUpdate { name, activate, accept }, Absent::Refuse, updated).await
        }
        PluginCommand::Activate { targets, accept, canary, operate } => {
            let targets = targets.iter().map(|text| target(text)).collect();
            match activation(targets, accept, *canary)? {
                Activation::Switch(request) => answer(&operate, request, Absent::Refuse, switched).await,
                Activation::Canary(request) => answer(&operate, request, Absent::Refuse, switched).await,
            }
        }
        PluginCommand::Promote(PluginsArguments { names, operate }) => {
            answer(&operate, PluginPromote { names }, Absent::Refuse, switched).await
        }
        PluginCommand::Rollback(PluginsArguments { names, operate }) => {
            answer(&operate, PluginRollback { names }, Absent::Refuse, switched).await
        }
        PluginCommand::Durable { target: text, durable: on_off, operate } => {
            let PluginTarget { name, version } = target(&text);
            let request = PluginDurable { name, version, durable: on_off == OnOff::On };
            let view = execute(&operate, request, Absent::Refuse).await?;
            show(&operate, &view, |_| durable(&view))
        }
        PluginCommand::Remove { name, version, operate } => {
            answer(&operate, PluginRemove { name, version }, Absent::Refuse, removed).await
        }
        PluginCommand::Verify { name, operate } => {
            let view = execute(&operate, PluginVerify { name }, Absent::Refuse).await?;
            let code = show(&operate, &view, |_| verified(&view))?;
            Ok(if view.sound { code } else { ExitCode::from(EXIT_FAILED) })
        }
    }
}

/// Switches the host on a data directory to a component, as `plugin add --accept` does.
async fn install(data: &Path, component: PathBuf) -> anyhow::Result<()> {
    let operate = OperateArguments { data: Some(data.to_owned()), ..OperateArguments::default() };
    let sources = vec![Source::File(component).absolute()?.to_string()];
    let request = PluginAdd { sources, sha256: None, name: None, accept: true };
    answer(&operate, request, Absent::Create, switched).await.map(drop)
}

/// NAME or NAME@VERSION.
fn target(text: &str) -> PluginTarget {
    match text.split_once('@') {
        Some((name, version)) => PluginTarget { name: name.to_owned(), version: Some(version.to_owned()) },
        None => PluginTarget { name: text.to_owned(), version: None },
    }
}

/// What `plugin activate` asks for.
enum Activation {
    Switch(PluginActivate),
    Canary(PluginCanary),
}

/// A switch for everybody, or a canary.
fn activation(targets: Vec<PluginTarget>, accept: bool, canary: CanaryArguments) -> anyhow::Result<Activation> {
    let CanaryArguments { share, tenants, max_fault_percent, max_latency_ratio, window, min_calls } = canary;
    let bounds = CanaryThresholdOverrides {
        fault_percent_max: max_fault_percent,
        latency_percent_max: max_latency_ratio,
        window_ms: window,
        calls_min: min_calls,
    };
    if share.is_some() || !tenants.is_empty() {
        return Ok(Activation::Canary(PluginCanary { targets, share, tenants, bounds, accept }));
    }
    anyhow::ensure!(
        bounds == CanaryThresholdOverrides::default(),
        "bounds are for canaries: say who gets the version with --canary PERCENT or --tenant TENANT"
    );
    Ok(Activation::Switch(PluginActivate { targets, accept }))
}

/// Does it and shows what came of it. What was refused or needs the operator's word has an exit code of its own.
async fn answer<R, T>(
    operate: &OperateArguments,
    request: R,
    absent: Absent,
    text: impl FnOnce(&T) -> String,
) -> anyhow::Result<ExitCode>
where
    R: Request<Answer = PluginOutcome<T>>,
    T: PluginResult + Serialize,
{
    let view = execute(operate, request, absent).await?;
    let code = match &view {
        PluginOutcome::Refused(refused) if !operate.json => {
            for one in &refused.refused {
                for problem in &one.problems {
                    print_error(format_args!("plugin {}: {}", cell(&*one.plugin), cell(&**problem)));
                }
            }
            ExitCode::SUCCESS
        }
        PluginOutcome::Refused(_) => show(operate, &view, |_| String::new())?,
        PluginOutcome::Result(result) => show(operate, result, |_| text(result))?,
    };
    Ok(if view.is_done() { code } else { ExitCode::from(EXIT_REFUSED) })
}

/// The beginning of a digest, which is enough for commands.
pub(super) fn digest(digest: impl Into<Option<Digest>>) -> String {
    let text = digest.into().map(|digest| digest.to_string());
    text.map_or_else(|| "-".to_owned(), |text| text.chars().take(DIGEST_SHOWN).collect())
}

pub(super) fn list(view: &PluginListView, layout: &Layout) -> String {
    let now = layout.now;
    let row = |plugin: &PluginView| {
        vec![
            cell(&*plugin.name),
            word(&plugin.state),
            digest(plugin.active),
            match plugin.tools_hidden {
                None => plugin.tools.to_string(),
                Some(hidden) => format!("{} ({hidden} hidden)", plugin.tools),
            },
            plugin.versions.to_string(),
            plugin.calls.to_string(),
            plugin.tasks.to_string(),
            when(plugin.activated_at, now),
            cell(plugin.source.as_deref()),
        ]
    };
    let rows: Vec<_> = view.plugins.iter().map(row).collect();
    let head = ["NAME", "STATE", "ACTIVE", "TOOLS", "VERSIONS", "CALLS", "TASKS", "SINCE", "SOURCE"];
    let mut lines = vec![layout.table(&head, &rows)];
    for plugin in &view.plugins {
        let name = cell(&*plugin.name);
        lines.extend(plugin.problems.iter().map(|problem| format!("{name}: {}", cell(&**problem))));
        lines.extend(kept_away(&name, &plugin.health, now));
        lines.extend(faults(&name, &plugin.health, now));
        lines.extend(canary(&name, plugin, now));
        lines.extend(plugin.demoted.as_ref().map(|demoted| without_journals(&name, &name, demoted, now)));
    }
    lines.join("\n")
}

/// Why new calls of a version keep no journals, and the command that lets them.
fn without_journals(who: &str, target: &str, demoted: &Demotion, now: u64) -> String {
    let at = when(demoted.at, now);
    let why = cell(&*demoted.why);
    format!("{who}: new calls keep no journals since {at}: {why}; `bulkhead plugin durable {target} on` lets them")
}

/// Who is kept from a version for now.
fn kept_away(name: &str, health: &PluginHealth, now: u64) -> Option<String> {
    if health.everyone_until.is_some() {
        return Some(format!("{name}: kept from everyone, next try {}", when(health.everyone_until, now)));
    }
    let count = Some(health.requestors_kept_away).filter(|count| *count > 0)?;
    Some(format!("{name}: kept from {count} requestors for now"))
}

fn faults(name: &str, health: &PluginHealth, now: u64) -> Vec<String> {
    let line = |fault: &FaultRecord| {
        format!("{name}: {} in {}: {}", when(fault.at, now), cell(&*fault.tool), cell(&*fault.reason))
    };
    health.last_faults.iter().map(line).collect()
}

/// What is tried beside the active version, and what was taken back.
fn canary(name: &str, plugin: &PluginView, now: u64) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(canary) = &plugin.canary {
        // As JSON has it, with a digit behind the point.
        let share = (canary.percent > 0.0).then(|| format!("{:?} %", canary.percent));
        let tenants = canary.tenants.iter().map(|tenant| format!("tenant {}", cell(&**tenant)));
        let who: Vec<_> = share.into_iter().chain(tenants).collect();
        let seen = match &canary.seen {
            Some(seen) => format!("{} calls lately, {} broke", seen.calls, seen.faults),
            None => "no calls are counted".to_owned(),
        };
        let since = when(canary.since, now);
        lines.push(format!("{name}: canary {} for {} since {since}: {seen}", digest(canary.version), who.join(", ")));
        let name = format!("{name} (canary)");
        lines.extend(kept_away(&name, &canary.health, now));
        lines.extend(faults(&name, &canary.health, now));
    }
    if let Some(gone) = &plugin.taken_back {
        let at = when(gone.taken_back.at, now);
        let why = cell(&*gone.taken_back.why);
        lines.push(format!("{name}: {} was taken back {at}: {why}", digest(gone.version)));
    }
    lines
}

pub(super) fn versions(view: &PluginVersionsView, layout: &Layout) -> String {
    let now = layout.now;
    let row = |version: &VersionView| {
        let signers: Vec<_> = version.signer_names().iter().map(|signer| cell(signer.as_str())).collect();
        let origin = Some(&version.origin).filter(|origin| !matches!(origin.as_str(), "" | "-"));
        vec![
            digest(version.version),
            word(&version.state),
            version.tools.to_string(),
            version.calls.to_string(),
            version.tasks.to_string(),
            when(version.staged_at, now),
            when(version.activated_at, now),
            if signers.is_empty() { cell(None::<&str>) } else { signers.join(", ") },
            cell(origin.unwrap_or(&version.source).as_str()),
        ]
    };
    let rows: Vec<_> = view.versions.iter().map(row).collect();
    let head = ["VERSION", "STATE", "TOOLS", "CALLS", "TASKS", "STAGED", "ACTIVE SINCE", "SIGNED BY", "ORIGIN"];
    let mut lines = vec![layout.table(&head, &rows)];
    for version in &view.versions {
        if let Some(gone) = &version.taken_back {
            let at = when(gone.at, now);
            lines.push(format!("{} was taken back {at}: {}", digest(version.version), cell(&*gone.why)));
        }
        if let Some(demoted) = &version.demoted {
            let digest = digest(version.version);
            lines.push(without_journals(&digest, &format!("{}@{digest}", cell(&*view.name)), demoted, now));
        }
    }
    lines.join("\n")
}

/// What was staged, what a switch to it would change, and the command that switches.
pub(super) fn staged(view: &StagedView) -> String {
    let name = cell(&*view.name);
    let version = digest(view.version);
    let mut lines = vec![format!("{name} {version} is {}", word(&view.state))];
    if view.state == Stage::Active {
        return lines.remove(0);
    }
    lines.push(match &view.changes {
        None => format!("  no version of {name} is active: clients would get {} tools", view.tools),
        Some(changes) if *changes == Changes::default() => {
            format!("  its {} tools are those of the active version", view.tools)
        }
        Some(_) => format!("  it would have {} tools; against the active version:", view.tools),
    });
    lines.extend(changes(view.changes.as_ref()));
    lines.extend(held(&view.held));
    let accept = if view.held.is_empty() { "" } else { " --accept" };
    lines.push(format!("next: bulkhead plugin activate {name}@{version}{accept}"));
    lines.join("\n")
}

pub(super) fn switched(view: &SwitchResult) -> String {
    let mut lines = Vec::new();
    for plugin in &view.plugins {
        let turn = match plugin.turn {
            SwitchEffect::Switched => "",
            SwitchEffect::Promoted => " (promoted)",
            SwitchEffect::CanaryBegun | SwitchEffect::CanaryChanged => " (canary)",
            SwitchEffect::CanaryEnded => " (canary taken back)",
            SwitchEffect::TakenBack => " (taken back)",
        };
        lines.push(format!("{}: {} -> {}{turn}", cell(&*plugin.name), digest(plugin.from), digest(plugin.to)));
        lines.extend(changes(plugin.changes.as_ref()));
    }
    if !view.done {
        lines.push("not switched".to_owned());
        lines.extend(held(&view.held));
    }
    lines.join("\n")
}

pub(super) fn updated(view: &PluginUpdateView) -> String {
    match view {
        PluginUpdateView::Staged(view) => staged(view),
        PluginUpdateView::Switched(view) => switched(view),
    }
}

pub(super) fn durable(view: &VersionDurability) -> String {
    let what = if view.durable { "keep journals, as the configuration says" } else { "keep no journals" };
    let already = if view.changed { "" } else { " already" };
    format!("{} {}: new calls{already} {what}", cell(&*view.name), digest(view.version))
}

pub(super) fn removed(view: &PluginRemoveView) -> String {
    match view {
        PluginRemoveView::Version(gone) => format!("{} {} is gone", cell(&*gone.name), digest(gone.removed)),
        PluginRemoveView::Plugin(view) => switched(view),
    }
}

pub(super) fn held(reasons: &[String]) -> Vec<String> {
    let head = (!reasons.is_empty()).then(|| "this needs your word (--accept):".to_owned());
    head.into_iter().chain(reasons.iter().map(|reason| format!("  {}", cell(&**reason)))).collect()
}

fn changes(changes: Option<&Changes>) -> Vec<String> {
    let Some(changes) = changes else { return Vec::new() };
    let added = changes.tools_added.iter().map(|tool| format!("  + {}", cell(&**tool)));
    let gone = changes.tools_removed.iter().map(|tool| format!("  - {}", cell(&**tool)));
    let mut lines: Vec<_> = added.chain(gone).collect();
    for tool in &changes.tools_changed {
        let what: Vec<_> = tool.changed.iter().map(|part| part.name()).collect();
        lines.push(format!("  ~ {}: {}", cell(&*tool.tool), what.join(", ")));
        for (side, differences) in [("input", &tool.input), ("output", &tool.output)] {
            lines.extend(differences.iter().map(|difference| {
                let path = if difference.path.is_empty() { "/" } else { &difference.path };
                format!("      {side} {} {path}: {}", word(&difference.direction), cell(&*difference.what))
            }));
        }
    }
    lines
}

pub(super) fn verified(view: &Verified) -> String {
    let mut lines = vec![format!("{} versions, {}", view.versions, amounts::bytes(view.bytes))];
    lines.extend(
        view.problems
            .iter()
            .map(|one| format!("{} {}: {}", cell(&*one.name), digest(one.version), cell(&*one.problem))),
    );
    lines.join("\n")
}
