//! `[[plugin]]`: which components are loaded, what they are granted, and how their calls differ from the rest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use http::header::HeaderName;
use toml::Spanned;
use toml::de::DeValue;

use super::grants::{read_grants, read_keyvalue};
use super::keys;
use super::layer::{Layer, Values};
use super::reader::{Item, Name};
use super::report::{ConfigLocation, Report};
use super::tool_names::check_key;
use bulkhead_calls::{Durability, InDoubt};
use bulkhead_domain::Json;
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::names::{check_name, check_tool_name};
use bulkhead_domain::tool::{TaskSupport, ToolAnnotations};
use bulkhead_domain::toolset::HOST_TOOLS;
use bulkhead_plugins::sources::{Digest, Source};
use bulkhead_plugins::{AcceptChanges, CanaryThresholds, DrainThen, FAULTS_IN_A_ROW, Policy};
use bulkhead_runtime::{self as runtime, COMPOSED_MAX, PluginSource, Presentation, ToolPolicy, WasiVersion};

/// 30 days.
const DRAIN_MS_MAX: u64 = 2_592_000_000;
const QUARANTINE_AFTER_MAX: u64 = 1_000_000;

/// One plugin to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginConfig {
    /// Where its component is.
    pub source: Source,
    /// What is composed with it.
    pub compose: Vec<Source>,
    /// What the SHA-256 of the component, or of what it is composed to, must be when it is taken from there.
    pub sha256: Option<Digest>,
    /// What is said about it, whichever version it is. The bounds of tenants are not in it yet.
    pub policy: Policy,
    /// Named by `--plugin`: this file is what runs, whatever the store remembers.
    pub pinned: bool,
    /// Where it was asked for.
    pub place: ConfigLocation,
}

/// A plugin as the file has it, before the layers below are known.
#[derive(Debug)]
pub(super) struct PluginEntry {
    plugin: PluginConfig,
    call: Values,
    tools: BTreeMap<String, ToolEntry>,
}

/// `[plugin.tool.NAME]` likewise.
#[derive(Debug, Default)]
struct ToolEntry {
    task_support: Option<TaskSupport>,
    hidden: bool,
    name: Option<String>,
    presentation: Presentation,
    call: Values,
}

impl PluginConfig {
    /// A component with nothing but the host's settings.
    fn of_file(file: PathBuf, limits: CallLimits, place: ConfigLocation) -> Self {
        let policy = Policy {
            source: PluginSource::bare(runtime::Source::File(file.clone()), limits),
            accept_changes: AcceptChanges::default(),
            drain_ms: 0,
            drain_then: DrainThen::default(),
            quarantine_after: FAULTS_IN_A_ROW,
            canary: CanaryThresholds::default(),
            watch_switch_ms: 0,
        };
        Self { source: Source::File(file), compose: Vec::new(), sha256: None, policy, pinned: false, place }
    }

    /// A component found in a folder of plugins.
    pub fn found(file: PathBuf, limits: CallLimits) -> Self {
        Self::of_file(file, limits, ConfigLocation::Flag("--plugins"))
    }

    /// `None`: as the component says.
    pub fn name(&self) -> Option<&String> {
        self.policy.source.name.as_ref()
    }

    /// For messages: the configured name, else the file.
    pub fn label(&self) -> String {
        self.name().cloned().unwrap_or_else(|| self.source.to_string())
    }
}

impl PluginEntry {
    /// Puts the plugin's and its tools' overrides over the host's values.
    pub(super) fn resolve(self, base: &Layer<'_>, call: &CallLimits, report: &Report) -> PluginConfig {
        let Self { mut plugin, call: values, tools } = self;
        let prefix = format!("plugin.{}.", plugin.label());
        let source = &mut plugin.policy.source;
        let layer = base.overlaid(prefix.clone(), values, report);
        source.limits = layer.fill(keys::CALL, call.clone(), report);
        for (own, ToolEntry { task_support, hidden, name, presentation, call: values }) in tools {
            let layer = layer.overlaid(format!("{prefix}tool.{own}."), values, report);
            let limits = layer.fill(keys::CALL, source.limits.clone(), report);
            source.tools.insert(own, ToolPolicy { task_support, hidden, name, presentation, limits });
        }
        plugin
    }
}

/// Adds the files of `--plugin`: an entry of the file that names the same component is that entry, pinned.
pub(super) fn add_pinned(plugins: &mut Vec<PluginConfig>, files: &[PathBuf], call: &CallLimits) {
    for file in files {
        match plugins.iter_mut().find(|plugin| matches!(&plugin.source, Source::File(named) if same_file(named, file)))
        {
            Some(plugin) => plugin.pinned = true,
            None => {
                let plugin = PluginConfig::of_file(file.clone(), call.clone(), ConfigLocation::Flag("--plugin"));
                plugins.push(PluginConfig { pinned: true, ..plugin });
            }
        }
    }
}

/// Compares spellings: `./a.wasm` is `a.wasm`.
fn same_file(a: &Path, b: &Path) -> bool {
    let plain = |path: &Path| path.components().filter(|part| part.as_os_str() != ".").collect::<PathBuf>();
    plain(a) == plain(b)
}

/// A name stands for one plugin.
pub(super) fn refuse_same_names(plugins: &[PluginConfig], report: &Report) {
    for (at, plugin) in plugins.iter().enumerate() {
        let Some(name) = plugin.name() else { continue };
        if let Some(first) = plugins.iter().take(at).find(|earlier| earlier.name() == Some(name)) {
            report.add(&plugin.place, format!("plugin.name: {name:?} is already the plugin at {}", first.place));
        }
    }
}

/// Reads every `[[plugin]]`.
pub(super) fn read(item: &Item<'_>) -> Vec<PluginEntry> {
    item.tables("plugin").into_iter().filter_map(read_one).collect()
}

const PLUGIN_KEYS: &[&str] = &[
    "name",
    "file",
    "url",
    "oci",
    "compose",
    "sha256",
    "prefix",
    "on_restart",
    "durable",
    "in_doubt",
    "idempotency_header",
    "accept_changes",
    "drain_ms",
    "drain_then",
    "quarantine_after",
    "canary",
    "config",
    "manifest",
    "wasi",
    "grants",
    "kv",
    "call",
    "tool",
];

/// The name of a header; empty: none.
fn header_name(text: &str) -> Result<Option<HeaderName>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| format!("{text:?} is not the name of a header; empty means none"))
}

fn read_one(mut item: Item<'_>) -> Option<PluginEntry> {
    let table = item.node.get_ref().as_table();
    let name = table.and_then(|table| table.get("name")?.get_ref().as_str()).unwrap_or("?");
    if table.is_some() {
        item.path = format!("plugin.{name}");
    }
    let section = item.section(PLUGIN_KEYS)?;
    let file = section.get("file").and_then(|item| read_file(&item)).unwrap_or_default();
    let mut plugin = PluginConfig::of_file(file, keys::blank_call(), section.item.place());
    for (key, scheme) in [("url", "https://"), ("oci", "oci://")] {
        if let Some(source) = section.parsed(key, |text| read_remote(text, scheme)) {
            // Fetched when it is loaded.
            plugin.policy.source.component = runtime::Source::Bytes(Vec::new().into());
            plugin.source = source;
        }
    }
    plugin.compose = section.items("compose").iter().filter_map(read_part).collect();
    plugin.sha256 = section.parsed("sha256", digest);
    let choice = [("fail", false), ("rerun", true)];
    let policy = &mut plugin.policy;
    policy.source.rerun = section.choice("on_restart", &choice).unwrap_or_default();
    let choice = [("off", Durability::Off), ("auto", Durability::Auto), ("required", Durability::Required)];
    policy.source.durable = section.choice("durable", &choice).unwrap_or_default();
    let choice =
        [("error", InDoubt::Error), ("resend-idempotent", InDoubt::ResendIdempotent), ("resend", InDoubt::Resend)];
    policy.source.journal.in_doubt = section.choice("in_doubt", &choice).unwrap_or_default();
    if let Some(name) = section.parsed("idempotency_header", header_name) {
        policy.source.journal.idempotency_header = name;
    }
    let choice = [("optional", false), ("required", true)];
    policy.source.manifest_required = section.choice("manifest", &choice).unwrap_or_default();
    let choice = [("0.2", WasiVersion::V0_2), ("0.3", WasiVersion::V0_3)];
    policy.source.wasi = section.choice("wasi", &choice).unwrap_or_default();
    policy.source.name = section.get("name").and_then(|item| read_name(&item));
    policy.source.prefix = section.get("prefix").and_then(|item| read_name(&item)).unwrap_or_default();
    policy.source.config = section.get("config").map(|item| read_settings(&item)).unwrap_or_default();
    policy.source.grants = section.get("grants").and_then(read_grants).unwrap_or_default();
    policy.source.grants.keyvalue = section.get("kv").and_then(read_keyvalue);
    let choice =
        [("none", AcceptChanges::Nothing), ("compatible", AcceptChanges::Compatible), ("any", AcceptChanges::Anything)];
    policy.accept_changes = section.choice("accept_changes", &choice).unwrap_or_default();
    policy.drain_ms = section.number("drain_ms", 0..=DRAIN_MS_MAX).unwrap_or_default();
    let choice = [("wait", DrainThen::Wait), ("cancel", DrainThen::Cancel), ("fail", DrainThen::Fail)];
    policy.drain_then = section.choice("drain_then", &choice).unwrap_or_default();
    let faults = section.number("quarantine_after", 0..=QUARANTINE_AFTER_MAX);
    policy.quarantine_after = faults.unwrap_or(FAULTS_IN_A_ROW);
    if let Some(item) = section.get("canary") {
        read_canary(item, policy);
    }
    match ["file", "url", "oci"].iter().filter(|key| section.has(key)).count() {
        0 => section.refuse("file", "missing; name the component's file, url or oci"),
        1 => {}
        _ => section.refuse("file", "a component has one source: file, url or oci"),
    }
    if plugin.name().is_none() && !section.has("file") {
        section.refuse("name", "missing; a plugin with url or oci needs one, to be known without a fetch");
    } else if plugin.name().is_none() && plugin.sha256.is_some() {
        let why = "missing; a plugin with sha256 needs one: the digest holds for whatever comes under that name";
        section.refuse("name", why);
    }
    if plugin.compose.len() >= COMPOSED_MAX {
        section.refuse("compose", format_args!("with the plugin's own, {COMPOSED_MAX} components are the most"));
    }
    if plugin.name().is_none() && section.has("compose") {
        section.refuse("name", "missing; a plugin with compose needs one: it is what the components are composed to");
    }
    let call = section.get("call").map(|item| item.overrides("call")).unwrap_or_default();
    let tools = section.get("tool").map(|item| read_tools(&item)).unwrap_or_default();
    Some(PluginEntry { plugin, call, tools })
}

/// `[plugin.canary]`.
fn read_canary(item: Item<'_>, policy: &mut Policy) {
    let keys = &["fault_percent_max", "latency_percent_max", "window_ms", "calls_min", "watch_switch_ms"];
    let Some(section) = item.section(keys) else { return };
    let usual = CanaryThresholds::default();
    policy.canary = CanaryThresholds {
        fault_percent_max: section.number("fault_percent_max", 0..=100).unwrap_or(usual.fault_percent_max),
        latency_percent_max: section.number("latency_percent_max", 0..=1_000_000).unwrap_or(usual.latency_percent_max),
        window_ms: section.number("window_ms", 0..=DRAIN_MS_MAX).unwrap_or(usual.window_ms),
        calls_min: section.number("calls_min", 0..=1_000_000).unwrap_or(usual.calls_min),
    };
    policy.watch_switch_ms = section.number("watch_switch_ms", 0..=DRAIN_MS_MAX).unwrap_or_default();
    if let Some(problem) = policy.canary.problem() {
        section.item.refuse(problem);
    }
}

/// A name or a prefix; an empty prefix is none.
fn read_name(item: &Item<'_>) -> Option<String> {
    let name = item.text()?;
    let may_be_empty = item.path.ends_with(".prefix");
    if let Err(message) = check_name(name)
        && !(may_be_empty && name.is_empty())
    {
        item.refuse(message);
    }
    Some(name.to_owned())
}

fn read_file(item: &Item<'_>) -> Option<PathBuf> {
    let file = item.file()?;
    if item.text() == Some("") {
        item.refuse("must not be empty");
    }
    Some(file)
}

/// `url = "https://..."`, `oci = "REGISTRY/REPOSITORY:TAG"` with or without its scheme.
fn read_remote(text: &str, scheme: &str) -> Result<Source, String> {
    let whole = if text.contains("://") { text.to_owned() } else { format!("{scheme}{text}") };
    let source = whole.parse::<Source>().map_err(|error| error.to_string())?;
    if whole.starts_with(scheme) { Ok(source) } else { Err(format!("must begin with {scheme}")) }
}

/// A file, or an address with its scheme.
fn read_part(item: &Item<'_>) -> Option<Source> {
    if item.text()?.contains("://") { item.parsed(str::parse) } else { read_file(item).map(Source::File) }
}

/// A SHA-256 with or without its name in front.
pub(super) fn digest(text: &str) -> Result<Digest, &'static str> {
    Digest::try_from(text.strip_prefix("sha256:").unwrap_or(text).to_owned())
}

/// Settings are any JSON for the guest.
fn read_settings(item: &Item<'_>) -> BTreeMap<String, Json> {
    let setting = |(name, item): (&Name<'_>, Item<'_>)| {
        let value = json(item.node.get_ref()).map_err(|message| item.refuse(message)).ok()?;
        Some((name.get_ref().to_string(), Json::new(value.to_string())))
    };
    item.members().into_iter().filter_map(setting).collect()
}

/// A TOML value as JSON. Depth is bounded by the TOML parser.
fn json(value: &DeValue<'_>) -> Result<serde_json::Value, String> {
    use serde_json::Value;
    match value {
        DeValue::String(text) => Ok(Value::String(text.to_string())),
        DeValue::Boolean(switch) => Ok(Value::Bool(*switch)),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(Value::from)
            .map_err(|_| format!("{number} is too large")),
        DeValue::Float(number) => {
            let float: f64 = number.as_str().parse().map_err(|_| format!("{number} is not a number"))?;
            serde_json::Number::from_f64(float).map(Value::Number).ok_or_else(|| format!("{number} is not in JSON"))
        }
        DeValue::Datetime(date) => Ok(Value::String(date.to_string())),
        DeValue::Array(items) => {
            items.iter().map(|item| json(item.get_ref())).collect::<Result<_, _>>().map(Value::Array)
        }
        DeValue::Table(table) => {
            let member = |(key, node): (&Name<'_>, &Spanned<DeValue<'_>>)| {
                Ok((key.get_ref().to_string(), json(node.get_ref())?))
            };
            table.iter().map(member).collect::<Result<_, String>>().map(Value::Object)
        }
    }
}

fn read_tools(item: &Item<'_>) -> BTreeMap<String, ToolEntry> {
    let read = |(tool, item): (&Name<'_>, Item<'_>)| {
        let name = tool.get_ref().to_string();
        if let Err(wrong) = check_key(&name) {
            item.refuse(wrong);
        }
        (name, read_tool(&item))
    };
    item.members().into_iter().map(read).collect()
}

/// `[plugin.tool.NAME]`, in which keys of `[call]` stand among its own.
fn read_tool(item: &Item<'_>) -> ToolEntry {
    let mut entry = ToolEntry::default();
    let prefix = format!("{}.", item.path);
    for (key, item) in item.members() {
        match key.get_ref().as_ref() {
            "task_support" => {
                let choices = [
                    ("forbidden", TaskSupport::Forbidden),
                    ("optional", TaskSupport::Optional),
                    ("required", TaskSupport::Required),
                ];
                entry.task_support = item.choice(&choices);
            }
            "hidden" => entry.hidden = item.switch().unwrap_or_default(),
            "name" => entry.name = item.parsed(tool_name),
            "title" => entry.presentation.title = item.text().map(str::to_owned),
            "description" => entry.presentation.description = item.text().map(str::to_owned),
            "annotations" => entry.presentation.annotations = read_annotations(item),
            name => item.override_value(&prefix, "call", name, &mut entry.call),
        }
    }
    entry
}

/// What clients may call a tool.
fn tool_name(text: &str) -> Result<String, String> {
    check_tool_name(text)?;
    if HOST_TOOLS.contains(&text) {
        return Err(format!(
            "{text:?} is a tool of the host itself where clients search for tools: choose another name"
        ));
    }
    Ok(text.to_owned())
}

fn read_annotations(item: Item<'_>) -> Option<ToolAnnotations> {
    let section = item.section_of("annotation", &["read_only", "destructive", "idempotent", "open_world"])?;
    Some(ToolAnnotations {
        title: None,
        read_only: section.switch("read_only"),
        destructive: section.switch("destructive"),
        idempotent: section.switch("idempotent"),
        open_world: section.switch("open_world"),
    })
}
