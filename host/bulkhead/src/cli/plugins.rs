//! `bulkhead plugin list|versions|add|stage|activate|promote|rollback|remove|verify`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use crate::config::Config;
use crate::system_clock::SystemClock;
use bulkhead_control::operator::{HostOperator, OfflineTasks};
use bulkhead_control::plugins::PluginAdmin;
use bulkhead_control::{Command, Operator as _, PluginTarget};
use bulkhead_identity::principal::Principals;
use bulkhead_plugins::sources::Source;
use bulkhead_plugins::{CanaryThresholdOverrides, Options, Plugins};
use bulkhead_store::TaskStore as _;
use serde_json::Value;

use super::args::{CanaryArguments, OperateArguments, PluginCommand};
use super::inspect::EXIT_REFUSED;
use super::store_maintenance::SledMaintenance;
use super::table::{self, cell, cells, now, when};
use super::tenants::Tenants;
use super::{EXIT_FAILED, host, logging, operate, print_error, print_line, sources};

/// How much of a digest people see.
const DIGEST_SHOWN: usize = 12;

pub(crate) async fn run(command: PluginCommand) -> anyhow::Result<ExitCode> {
    match command {
        PluginCommand::Inspect(arguments) => super::inspect::run(arguments).await,
        PluginCommand::Call(arguments) => super::call::run(arguments).await,
        PluginCommand::Author(command) => super::author::run(command).await,
        PluginCommand::List { operate } => answer(&operate, Command::PluginList, list).await,
        PluginCommand::Versions { name, operate } => answer(&operate, Command::PluginVersions { name }, versions).await,
        PluginCommand::Stage { source, name, sha256, operate } => {
            let source = source.absolute()?.to_string();
            answer(&operate, Command::PluginStage { source, sha256, name }, staged).await
        }
        PluginCommand::Add { sources, name, sha256, accept, operate } => {
            let absolute = |source: Source| source.absolute().map(|source| source.to_string());
            let sources = sources.into_iter().map(absolute).collect::<Result<_, _>>()?;
            answer(&operate, Command::PluginAdd { sources, sha256, name, accept }, switched).await
        }
        PluginCommand::Update { name, activate, accept, operate } => {
            let text = if activate { updated } else { staged };
            answer(&operate, Command::PluginUpdate { name, activate, accept }, text).await
        }
        PluginCommand::Activate { targets, accept, canary, operate } => {
            let target = |text: &String| match text.split_once('@') {
                Some((name, version)) => PluginTarget { name: name.to_owned(), version: Some(version.to_owned()) },
                None => PluginTarget { name: text.clone(), version: None },
            };
            let targets = targets.iter().map(target).collect();
            answer(&operate, activation(targets, accept, *canary)?, switched).await
        }
        PluginCommand::Promote { names, operate } => answer(&operate, Command::PluginPromote { names }, switched).await,
        PluginCommand::Rollback { names, operate } => {
            answer(&operate, Command::PluginRollback { names }, switched).await
        }
        PluginCommand::Remove { name, version, operate } => {
            answer(&operate, Command::PluginRemove { name, version }, removed).await
        }
        PluginCommand::Verify { name, operate } => answer(&operate, Command::PluginVerify { name }, verified).await,
    }
}

/// A switch for everybody, or a canary.
fn activation(targets: Vec<PluginTarget>, accept: bool, canary: CanaryArguments) -> anyhow::Result<Command> {
    let CanaryArguments { share, tenants, max_fault_percent, max_latency_ratio, window, min_calls } = canary;
    let bounds = CanaryThresholdOverrides {
        fault_percent_max: max_fault_percent,
        latency_percent_max: max_latency_ratio,
        window_ms: window,
        calls_min: min_calls,
    };
    if share.is_some() || !tenants.is_empty() {
        return Ok(Command::PluginCanary { targets, share, tenants, bounds, accept });
    }
    anyhow::ensure!(
        bounds == CanaryThresholdOverrides::default(),
        "bounds are for canaries: say who gets the version with --canary PERCENT or --tenant TENANT"
    );
    Ok(Command::PluginActivate { targets, accept })
}

/// Does it and shows what came of it. What was refused or needs the operator's word has an exit code of its own.
async fn answer(
    operate: &OperateArguments,
    command: Command,
    text: impl FnOnce(&Value) -> String,
) -> anyhow::Result<ExitCode> {
    let value = execute(operate, command).await?;
    if operate.json {
        print_line(&value);
    } else if let Some(refused) = value.get("refused").and_then(Value::as_array) {
        for error in refused {
            for problem in error["problems"].as_array().into_iter().flatten() {
                print_error(format_args!("plugin {}: {}", cell(&error["plugin"]), cell(problem)));
            }
        }
    } else {
        print_line(text(&value));
    }
    Ok(match (value.get("done"), value.get("sound")) {
        (Some(Value::Bool(false)), _) => ExitCode::from(EXIT_REFUSED),
        (_, Some(Value::Bool(false))) => ExitCode::from(EXIT_FAILED),
        _ => ExitCode::SUCCESS,
    })
}

/// Asks the running host, or does it here when none runs.
async fn execute(operate: &OperateArguments, command: Command) -> anyhow::Result<Value> {
    let config = operate::load(operate)?;
    let data = &config.server.data;
    if let Some(host) = operate::running_host(&config).await? {
        return Ok(host.execute(command).await?);
    }
    let takes_in = matches!(command, Command::PluginStage { .. } | Command::PluginAdd { .. });
    anyhow::ensure!(
        takes_in || data.join("store").exists(),
        "there is no store in {}: name the data directory with --data",
        data.display()
    );
    logging::start_for_a_person();
    alone(&config, data, command).await
}

/// On the data directory itself, with the plugins that a host would begin with.
async fn alone(config: &Config, data: &Path, command: Command) -> anyhow::Result<Value> {
    sources::refuse_exposing(&config.plugins, data)?;
    let store = host::open_store(config, data).await?;
    let clock = Arc::new(SystemClock::default());
    let audit = super::audit::of_idle(config)?;
    let principals = Principals::new(store.clone());
    let tenants = Tenants::of(config, &principals).await?;
    principals.adopt(&tenants.ruled).await?;
    let unattended = Arc::new(OfflineTasks { store: store.clone(), clock: clock.clone() });
    let options = Options {
        store: store.clone(),
        sandbox: host::sandbox(config, data, None)?,
        calls: unattended.clone(),
        health: Arc::default(),
        clock: clock.clone(),
        otherwise: sources::otherwise(config, &tenants.bounds),
        tenants: tenants.pinning,
        audit: audit.clone(),
    };
    let intake = sources::intake(config)?;
    let (plugins, _) = Plugins::start(options, sources::wanted(config, &intake, &tenants.bounds)?).await?;
    let maintenance = Arc::new(SledMaintenance { store: Arc::clone(&store), data: data.to_owned() });
    let operator = HostOperator::new(store.clone(), maintenance, unattended, clock);
    let operator = operator.with_plugins(PluginAdmin { plugins, intake }).with_audit(audit.clone());
    let done = operator.execute(command).await;
    store.close().await?;
    audit.close();
    Ok(done?)
}

fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

/// The beginning of a digest, which is enough for commands.
fn digest(value: &Value) -> String {
    value.as_str().map_or_else(|| "-".to_owned(), |text| text.chars().take(DIGEST_SHOWN).collect())
}

fn list(value: &Value) -> String {
    let now = now();
    let row = |plugin: &Value| {
        let [name, state, tools, versions] = cells(plugin, ["name", "state", "tools", "versions"]);
        let [calls, tasks, source] = cells(plugin, ["calls", "tasks", "source"]);
        let since = when(&plugin["activated_at"], now);
        vec![name, state, digest(&plugin["active"]), tools, versions, calls, tasks, since, source]
    };
    let head = ["NAME", "STATE", "ACTIVE", "TOOLS", "VERSIONS", "CALLS", "TASKS", "SINCE", "SOURCE"];
    let mut lines = vec![table::list(value, "plugins", &head, row)];
    for plugin in items(value, "plugins") {
        let name = cell(&plugin["name"]);
        lines.extend(items(plugin, "problems").map(|problem| format!("{name}: {}", cell(problem))));
        lines.extend(kept_away(&name, &plugin["health"], now));
        lines.extend(faults(&name, &plugin["health"], now));
        lines.extend(canary(&name, plugin, now));
    }
    lines.join("\n")
}

/// Who is kept from a version for now.
fn kept_away(name: &str, health: &Value, now: u64) -> Option<String> {
    let until = &health["everyone_until"];
    if until.is_u64() {
        return Some(format!("{name}: kept from everyone, next try {}", when(until, now)));
    }
    let count = health["requestors_kept_away"].as_u64().filter(|count| *count > 0)?;
    Some(format!("{name}: kept from {count} requestors for now"))
}

fn faults(name: &str, health: &Value, now: u64) -> Vec<String> {
    let line = |fault: &Value| {
        format!("{name}: {} in {}: {}", when(&fault["at"], now), cell(&fault["tool"]), cell(&fault["reason"]))
    };
    items(health, "last_faults").map(line).collect()
}

/// What is tried beside the active version, and what was taken back.
fn canary(name: &str, plugin: &Value, now: u64) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(canary) = plugin.get("canary").filter(|canary| canary.is_object()) {
        let mut who: Vec<_> = items(canary, "tenants").map(|tenant| format!("tenant {}", cell(tenant))).collect();
        if canary["percent"].as_f64().is_some_and(|percent| percent > 0.0) {
            who.insert(0, format!("{} %", canary["percent"]));
        }
        let seen = match canary["seen"].as_object() {
            Some(seen) => format!("{} calls lately, {} broke", seen["calls"], seen["faults"]),
            None => "no calls are counted".to_owned(),
        };
        let since = when(&canary["since"], now);
        lines.push(format!(
            "{name}: canary {} for {} since {since}: {seen}",
            digest(&canary["version"]),
            who.join(", ")
        ));
        let name = format!("{name} (canary)");
        lines.extend(kept_away(&name, &canary["health"], now));
        lines.extend(faults(&name, &canary["health"], now));
    }
    if let Some(gone) = plugin.get("taken_back").filter(|gone| gone.is_object()) {
        let at = when(&gone["at"], now);
        lines.push(format!("{name}: {} was taken back {at}: {}", digest(&gone["version"]), cell(&gone["why"])));
    }
    lines
}

fn versions(value: &Value) -> String {
    let now = now();
    let row = |version: &Value| {
        let signers: Vec<_> = items(version, "signed_by").map(cell).collect();
        let origin = Some(cell(&version["origin"])).filter(|origin| !matches!(origin.as_str(), "" | "-"));
        let [state, tools, calls, tasks, source] = cells(version, ["state", "tools", "calls", "tasks", "source"]);
        let [staged, active] = ["staged_at", "activated_at"].map(|member| when(&version[member], now));
        let signers = if signers.is_empty() { "-".to_owned() } else { signers.join(" ") };
        let origin = origin.unwrap_or(source);
        vec![digest(&version["version"]), state, tools, calls, tasks, staged, active, signers, origin]
    };
    let head = ["VERSION", "STATE", "TOOLS", "CALLS", "TASKS", "STAGED", "ACTIVE SINCE", "SIGNED BY", "ORIGIN"];
    let mut lines = vec![table::list(value, "versions", &head, row)];
    for version in items(value, "versions") {
        if let Some(gone) = version.get("taken_back").filter(|gone| gone.is_object()) {
            let at = when(&gone["at"], now);
            lines.push(format!("{} was taken back {at}: {}", digest(&version["version"]), cell(&gone["why"])));
        }
    }
    lines.join("\n")
}

fn staged(value: &Value) -> String {
    let name = cell(&value["name"]);
    let mut lines = vec![format!("{name} {} is {}", digest(&value["version"]), cell(&value["state"]))];
    lines.extend(changes(&value["changes"]));
    lines.extend(held(value));
    lines.join("\n")
}

fn switched(value: &Value) -> String {
    let mut lines = Vec::new();
    for plugin in items(value, "plugins") {
        let turn = match plugin["turn"].as_str() {
            Some("promoted") => " (promoted)",
            Some("canary_begun" | "canary_changed") => " (canary)",
            Some("canary_ended") => " (canary taken back)",
            Some("taken_back") => " (taken back)",
            _ => "",
        };
        lines.push(format!(
            "{}: {} -> {}{turn}",
            cell(&plugin["name"]),
            digest(&plugin["from"]),
            digest(&plugin["to"])
        ));
        lines.extend(changes(&plugin["changes"]));
    }
    if value["done"] == Value::Bool(false) {
        lines.push("not switched".to_owned());
        lines.extend(held(value));
    }
    lines.join("\n")
}

/// Switched to, or active already.
fn updated(value: &Value) -> String {
    if value.get("plugins").is_some() { switched(value) } else { staged(value) }
}

fn removed(value: &Value) -> String {
    match value.get("removed") {
        Some(version) => format!("{} {} is gone", cell(&value["name"]), digest(version)),
        None => switched(value),
    }
}

fn held(value: &Value) -> Vec<String> {
    let reasons: Vec<_> = items(value, "held").map(|reason| format!("  {}", cell(reason))).collect();
    let head = (!reasons.is_empty()).then(|| "this needs your word (--accept):".to_owned());
    head.into_iter().chain(reasons).collect()
}

fn changes(changes: &Value) -> Vec<String> {
    let added = items(changes, "tools_added").map(|tool| format!("  + {}", cell(tool)));
    let gone = items(changes, "tools_removed").map(|tool| format!("  - {}", cell(tool)));
    let mut lines: Vec<_> = added.chain(gone).collect();
    for tool in items(changes, "tools_changed") {
        let what: Vec<_> = items(tool, "changed").map(cell).collect();
        lines.push(format!("  ~ {}: {}", cell(&tool["tool"]), what.join(", ")));
        for side in ["input", "output"] {
            lines.extend(items(tool, side).map(|difference| {
                let path = difference["path"].as_str().filter(|path| !path.is_empty()).unwrap_or("/");
                format!("      {side} {} {}: {}", cell(&difference["direction"]), path, cell(&difference["what"]))
            }));
        }
    }
    lines
}

fn verified(value: &Value) -> String {
    let mut lines = vec![format!("{} versions, {} bytes", value["versions"], value["bytes"])];
    lines.extend(items(value, "problems").map(|problem| {
        format!("{} {}: {}", cell(&problem["name"]), digest(&problem["version"]), cell(&problem["problem"]))
    }));
    lines.join("\n")
}
