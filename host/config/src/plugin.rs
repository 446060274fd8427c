//! `[[plugin]]`: which components are loaded, what they are granted, and how their calls differ from the rest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use http::header::HeaderName;
use http::uri::PathAndQuery;
use toml::Spanned;
use toml::de::DeValue;

use super::grants::{read_grants, read_keyvalue};
use super::keys;
use super::layer::{Layer, Values};
use super::reader::{Item, Name};
use super::report::{ConfigLocation, Report};
use super::tool_names::check_key;
use bulkhead_calls::policy::Grants;
use bulkhead_calls::{Durability, InDoubt};
use bulkhead_domain::Json;
use bulkhead_domain::limits::{CallLimits, KeyValueLimits};
use bulkhead_domain::names::{check_name, check_tool_name};
use bulkhead_domain::tool::{TaskSupport, ToolAnnotations};
use bulkhead_domain::toolset::HOST_TOOLS;
use bulkhead_plugins::sources::{Digest, Source};
use bulkhead_plugins::{AcceptChanges, CanaryThresholds, DrainThen, FAULTS_IN_A_ROW, Policy};
use bulkhead_runtime::{
    self as runtime, COMPOSED_MAX, McpMode, McpSettings, PluginSource, Presentation, ToolPolicy, WasiVersion,
};

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
    pub location: ConfigLocation,
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
    fn of_file(file: PathBuf, limits: CallLimits, location: ConfigLocation) -> Self {
        let policy = Policy {
            source: PluginSource::bare(runtime::Source::File(file.clone()), limits),
            accept_changes: AcceptChanges::default(),
            drain_ms: 0,
            drain_then: DrainThen::default(),
            quarantine_after: FAULTS_IN_A_ROW,
            canary: CanaryThresholds::default(),
            watch_switch_ms: 0,
        };
        Self { source: Source::File(file), compose: Vec::new(), sha256: None, policy, pinned: false, location }
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
            report.add(&plugin.location, format!("plugin.name: {name:?} is already the plugin at {}", first.location));
        }
    }
}

/// Reads every `[[plugin]]`.
pub(super) fn read(item: &Item<'_>) -> Vec<PluginEntry> {
    item.tables("plugin").into_iter().filter_map(read_one).collect()
}

table!(PLUGIN, PluginKeys, "[[plugin]]", "A plugin: where its component comes from, and on which terms it runs.", {
    name: String = read_name, "as the component says, else the file's name",
        "Its name; required with url, oci and sha256";
    file: PathBuf = read_file, "",
        "The component: a file";
    url: Source = |item| item.parsed(|text| read_remote(text, "https://")), "",
        "In place of file: an https address";
    oci: Source = |item| item.parsed(|text| read_remote(text, "oci://")), "",
        "In place of file: REGISTRY/REPOSITORY:TAG";
    compose: Vec<Source> = |item| Some(item.items().iter().filter_map(read_part).collect()), "",
        "Components, files or addresses, that bring what this one imports: they become one component";
    sha256: Digest = |item| item.parsed(digest), "",
        "The digest that the component must have; with compose, that of the whole";
    prefix: String = read_name, "",
        "Text that is put before the names of its tools. Some clients refuse dots";
    config: BTreeMap<String, Json> = |item| Some(read_settings(item)), "",
        "Table of settings that the plugin reads";
    on_restart: bool = |item| item.choice(&[("fail", false), ("rerun", true)]), "\"fail\"",
        "`rerun`: interrupted tasks of idempotent tools run again; steering that the lost run had taken is not repeated";
    durable: Durability = |item| {
        item.choice(&[("off", Durability::Off), ("auto", Durability::Auto), ("required", Durability::Required)])
    }, "\"auto\"",
        "`auto`: a task whose host was killed goes on where it was; a call that cannot (one that used a file, or was sent a stream) ends as with `off`. `required`: a plugin whose grants or component forbid it is refused";
    in_doubt: InDoubt = |item| {
        use InDoubt::{Error, Resend, ResendIdempotent};
        item.choice(&[("error", Error), ("resend-idempotent", ResendIdempotent), ("resend", Resend)])
    }, "\"error\"",
        "What a durable task is told of an HTTP request that was sent when the host was killed and may have had an effect: `error` says that, `resend-idempotent` sends PUT and DELETE again, `resend` all";
    idempotency_header: Option<HeaderName> = |item| item.parsed(header_name), "\"Idempotency-Key\"",
        "Header that a durable task's POST and PATCH requests get where they have none, with the same value however often the task is brought back; empty: none";
    accept_changes: AcceptChanges = |item| {
        use AcceptChanges::{Anything, Compatible, Nothing};
        item.choice(&[("none", Nothing), ("compatible", Compatible), ("any", Anything)])
    }, "\"none\"",
        "What a switch may change of accepted tools without --accept: `compatible` allows other descriptions, wider inputs and narrower outputs, `any` everything";
    drain_ms: u64 = |item| item.number(0..=DRAIN_MS_MAX), "0",
        "How long calls of a replaced version may go on; 0: as long as they like";
    drain_then: DrainThen = |item| {
        item.choice(&[("wait", DrainThen::Wait), ("cancel", DrainThen::Cancel), ("fail", DrainThen::Fail)])
    }, "\"wait\"",
        "What happens to them then: `wait`, `cancel` or `fail`";
    manifest: bool = |item| item.choice(&[("optional", false), ("required", true)]), "\"optional\"",
        "`required`: a component without a manifest is refused; otherwise it wants all that it is granted";
    wasi: WasiVersion = |item| item.choice(&[("0.2", WasiVersion::V0_2), ("0.3", WasiVersion::V0_3)]), "\"0.2\"",
        "`0.3`: its component may need WASI 0.3 and have asynchronous functions, whose implementation in wasmtime is experimental and gets no promised security fixes; at most 512 calls of such plugins are in progress at a time, 448 of them of one tenant, and more wait within their `wall_ms`";
    mcp: McpMode = |item| {
        item.choice(&[
            ("auto", McpMode::Auto), ("http", McpMode::Http), ("stdio", McpMode::Stdio), ("off", McpMode::Off),
        ])
    }, "\"auto\"",
        "Whether a web service or a command is an MCP server, whose tools are the plugin's own: `auto`: if it answers as one when it is loaded; without this key a plugin whose tool `request`, or whose command, was accepted before keeps that; `http`, `stdio`: it is one by these means, or is refused; `off`: it is not asked";
    mcp_path: String = |item| item.parsed(mcp_path), "`/mcp`, then `/`",
        "The path at which the MCP server answers";
    quarantine_after: u32 = |item| item.number(0..=QUARANTINE_AFTER_MAX), "10",
        "Faults in a row (traps and limits) after which a requestor is kept from the plugin for a while; 0: never";
    stderr_in_results: bool = Item::switch, "true for a command and for functions with types, else false",
        "Whether the error of a failed call shows callers the end of the guest's standard error, in which values of granted variables and settings are replaced by their names";
    grants: Grants = read_grants, "nothing",
        "Table [plugin.grants]: what its calls may reach";
    kv: KeyValueLimits = read_keyvalue, "nothing",
        "Table [plugin.kv]: what it may keep from call to call";
    call: Values = |item| Some(item.overrides("call")), "",
        "Table [plugin.call] with keys of [call] for this plugin";
    tool: BTreeMap<String, ToolEntry> = |item| Some(read_tools(item)), "",
        "Tables [plugin.tool.NAME]: what is different for one tool";
    canary: CanaryPolicy = read_canary, "",
        "Table [plugin.canary]: when a canary is taken back";
});

/// The name of a header; empty: none.
fn header_name(text: &str) -> Result<Option<HeaderName>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| format!("{text:?} is not the name of a header; empty means none"))
}

/// A path of a request, with a query if there is one.
fn mcp_path(text: &str) -> Result<String, String> {
    let is_path = text.starts_with('/') && text.parse::<PathAndQuery>().is_ok();
    is_path.then(|| text.to_owned()).ok_or_else(|| format!("{text:?} is not the path of a request"))
}

fn read_one(mut item: Item<'_>) -> Option<PluginEntry> {
    let table = item.node.get_ref().as_table();
    let name = table.and_then(|table| table.get("name")?.get_ref().as_str()).unwrap_or("?");
    if table.is_some() {
        item.path = format!("plugin.{name}");
    }
    let section = item.section(PLUGIN.names())?;
    let keys = PluginKeys::read(&section);
    let file = keys.file.unwrap_or_default();
    let mut plugin = PluginConfig::of_file(file, keys::blank_call(), section.item.location());
    if let Some(source) = keys.oci.or(keys.url) {
        // Fetched when it is loaded.
        plugin.policy.source.component = runtime::Source::Bytes(Vec::new().into());
        plugin.source = source;
    }
    plugin.compose = keys.compose.unwrap_or_default();
    plugin.sha256 = keys.sha256;
    let policy = &mut plugin.policy;
    policy.source.rerun = keys.on_restart.unwrap_or_default();
    policy.source.durable = keys.durable.unwrap_or_default();
    policy.source.journal.in_doubt = keys.in_doubt.unwrap_or_default();
    if let Some(name) = keys.idempotency_header {
        policy.source.journal.idempotency_header = name;
    }
    policy.source.manifest_required = keys.manifest.unwrap_or_default();
    policy.source.stderr_in_results = keys.stderr_in_results;
    policy.source.wasi = keys.wasi.unwrap_or_default();
    policy.source.mcp = McpSettings { mode: keys.mcp, path: keys.mcp_path };
    policy.source.name = keys.name;
    policy.source.prefix = keys.prefix.unwrap_or_default();
    policy.source.config = keys.config.unwrap_or_default();
    policy.source.grants = keys.grants.unwrap_or_default();
    policy.source.grants.keyvalue = keys.kv;
    policy.accept_changes = keys.accept_changes.unwrap_or_default();
    policy.drain_ms = keys.drain_ms.unwrap_or_default();
    policy.drain_then = keys.drain_then.unwrap_or_default();
    policy.quarantine_after = keys.quarantine_after.unwrap_or(FAULTS_IN_A_ROW);
    if let Some(canary) = keys.canary {
        policy.canary = canary.thresholds;
        policy.watch_switch_ms = canary.watch_switch_ms;
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
    let call = keys.call.unwrap_or_default();
    Some(PluginEntry { plugin, call, tools: keys.tool.unwrap_or_default() })
}

table!(CANARY, CanaryKeys, "[plugin.canary]", "When a canary is taken back by itself.", {
    fault_percent_max: u8 = |item| item.number(0..=100), "5",
        "More calls than this break; 100: never";
    latency_percent_max: u32 = |item| item.number(0..=1_000_000), "0",
        "The slowest twentieth of a tool's calls takes more than this percentage of the active version's time, like 150; 0: never";
    window_ms: u64 = |item| item.number(0..=DRAIN_MS_MAX), "600000",
        "How far back calls count";
    calls_min: u32 = |item| item.number(0..=1_000_000), "20",
        "Calls that a verdict needs, without those of any one requestor";
    watch_switch_ms: u64 = |item| item.number(0..=DRAIN_MS_MAX), "0",
        "How long the bound on faults also holds for a new version after a switch";
});

struct CanaryPolicy {
    thresholds: CanaryThresholds,
    watch_switch_ms: u64,
}

fn read_canary(item: &Item<'_>) -> Option<CanaryPolicy> {
    let keys = CanaryKeys::read(&item.section(CANARY.names())?);
    let usual = CanaryThresholds::default();
    let thresholds = CanaryThresholds {
        fault_percent_max: keys.fault_percent_max.unwrap_or(usual.fault_percent_max),
        latency_percent_max: keys.latency_percent_max.unwrap_or(usual.latency_percent_max),
        window_ms: keys.window_ms.unwrap_or(usual.window_ms),
        calls_min: keys.calls_min.unwrap_or(usual.calls_min),
    };
    if let Some(problem) = thresholds.problem() {
        item.refuse(problem);
    }
    Some(CanaryPolicy { thresholds, watch_switch_ms: keys.watch_switch_ms.unwrap_or_default() })
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

table!(TOOL, ToolKeys, "[plugin.tool.NAME]",
    "One tool, by the name that clients see without prefix; takes the keys of [call] as well.", {
    hidden: bool = Item::switch, "false",
        "Whether no client sees it and none can call it";
    name: String = |item| item.parsed(tool_name), "the prefix and its own name",
        "What clients call it; the prefix is not put in front. Some clients refuse dots, or more than 64 characters";
    task_support: TaskSupport = |item| {
        use TaskSupport::{Forbidden, Optional, Required};
        item.choice(&[("forbidden", Forbidden), ("optional", Optional), ("required", Required)])
    }, "as the tool says",
        "`forbidden`, `optional` or `required`; only narrower than the tool says";
    title: String = |item| item.text().map(str::to_owned), "as the tool says",
        "Its title for clients";
    description: String = |item| item.text().map(str::to_owned), "as the tool says",
        "Its description for clients";
    annotations: ToolAnnotations = read_annotations, "",
        "Table with read_only, destructive, idempotent and open_world; for functions of typed components only";
});

/// Reads `[plugin.tool.NAME]`, in which keys of `[call]` stand among its own.
fn read_tool(item: &Item<'_>) -> ToolEntry {
    let Some(section) = item.open(TOOL.names()) else { return ToolEntry::default() };
    let ToolKeys { hidden, name, task_support, title, description, annotations } = ToolKeys::read(&section);
    let presentation = Presentation { title, description, annotations };
    let mut call = Values::new();
    let prefix = format!("{}.", item.path);
    for (key, item) in item.members() {
        if !section.takes(key.get_ref()) {
            item.override_value(&prefix, "call", key.get_ref(), &mut call);
        }
    }
    ToolEntry { task_support, hidden: hidden.unwrap_or_default(), name, presentation, call }
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

fn read_annotations(item: &Item<'_>) -> Option<ToolAnnotations> {
    let section = item.section_of("annotation", ["read_only", "destructive", "idempotent", "open_world"])?;
    Some(ToolAnnotations {
        title: None,
        read_only: section.switch("read_only"),
        destructive: section.switch("destructive"),
        idempotent: section.switch("idempotent"),
        open_world: section.switch("open_world"),
    })
}
