//! `[[plugin]]`: which components are loaded, what they are granted, and how their calls differ from the rest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::de::DeValue;

use super::document::{Node, Reader};
use super::grants::read_grants;
use super::layer::{Layer, Values};
use super::{ConfigLocation, Report, keys};
use bulkhead_domain::Json;
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::names::check_name;
use bulkhead_domain::tool::{TaskSupport, ToolAnnotations};
use bulkhead_plugins::sources::{Digest, Source};
use bulkhead_plugins::{AcceptChanges, CanaryThresholds, DrainThen, FAULTS_IN_A_ROW};
use bulkhead_runtime::Presentation;
use bulkhead_runtime::policy::Grants;

/// 30 days.
const DRAIN_MS_MAX: u64 = 2_592_000_000;
const QUARANTINE_AFTER_MAX: u32 = 1_000_000;

/// One plugin to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PluginConfig {
    /// `None`: as the component says.
    pub name: Option<String>,
    /// Where its component is.
    pub source: Source,
    /// What the SHA-256 of the component must be when it is taken from there.
    pub sha256: Option<Digest>,
    /// Put before the names of its tools.
    pub prefix: String,
    pub on_restart: OnRestart,
    /// Which changes of accepted definitions a switch may make without being told to.
    pub accept_changes: AcceptChanges,
    /// How long calls of a replaced version may go on, in milliseconds; 0: as long as they like.
    pub drain_ms: u64,
    /// What happens to them then.
    pub drain_then: DrainThen,
    /// Faults in a row after which a requestor is kept away for a while; 0: never.
    pub quarantine_after: u32,
    /// When a canary is taken back, unless it was begun with others.
    pub canary: CanaryThresholds,
    /// How long the same bounds hold for a new version after a switch, in milliseconds; 0: not at all.
    pub watch_switch_ms: u64,
    /// What the guest reads through the `config` import.
    pub settings: BTreeMap<String, Json>,
    pub grants: Grants,
    /// Whether a component without a manifest is refused, instead of wanting whatever it is granted.
    pub manifest_required: bool,
    pub call: CallLimits,
    /// By the name inside the plugin, without the prefix.
    pub tools: BTreeMap<String, ToolConfig>,
    /// Named by `--plugin`: this file is what runs, whatever the store remembers.
    pub pinned: bool,
    /// Where it was asked for.
    pub place: ConfigLocation,
}

/// What becomes of a task that ran when the host died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnRestart {
    #[default]
    Fail,
    /// Runs again, if the tool says that it is idempotent.
    Rerun,
}

/// `[plugin.tool.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolConfig {
    /// May narrow what the plugin says, never widen.
    pub task_support: Option<TaskSupport>,
    /// For components whose functions are the tools.
    pub presentation: Presentation,
    pub call: CallLimits,
}

/// `[plugin.tool.NAME]` before the layers below are known.
#[derive(Debug, Default)]
struct ToolEntry {
    task_support: Option<TaskSupport>,
    presentation: Presentation,
    call: Values,
}

/// A plugin as the file has it, before the layers below are known.
#[derive(Debug)]
pub(super) struct PluginEntry {
    plugin: PluginConfig,
    call: Values,
    tools: BTreeMap<String, ToolEntry>,
}

impl PluginConfig {
    /// A component with nothing but the host's settings.
    fn of_file(file: PathBuf, call: CallLimits, place: ConfigLocation) -> Self {
        Self {
            name: None,
            source: Source::File(file),
            sha256: None,
            prefix: String::new(),
            on_restart: OnRestart::Fail,
            accept_changes: AcceptChanges::default(),
            drain_ms: 0,
            drain_then: DrainThen::default(),
            quarantine_after: FAULTS_IN_A_ROW,
            canary: CanaryThresholds::default(),
            watch_switch_ms: 0,
            settings: BTreeMap::new(),
            grants: Grants::default(),
            manifest_required: false,
            call,
            tools: BTreeMap::new(),
            pinned: false,
            place,
        }
    }

    /// A component found in a folder of plugins.
    pub(crate) fn found(file: PathBuf, call: CallLimits) -> Self {
        Self::of_file(file, call, ConfigLocation::Flag("--plugins"))
    }

    /// For messages: the configured name, else the file.
    pub(crate) fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.source.to_string())
    }
}

impl PluginEntry {
    /// Puts the plugin's and its tools' overrides over the host's values.
    pub(super) fn resolve(self, base: &Layer<'_>, call: &CallLimits, report: &mut Report) -> PluginConfig {
        let Self { mut plugin, call: values, tools } = self;
        plugin.call = call.clone();
        let prefix = format!("plugin.{}.", plugin.label());
        let layer = base.overlaid(prefix.clone(), values, report);
        layer.fill(keys::CALL, &mut plugin.call, report);
        for (name, ToolEntry { task_support, presentation, call: values }) in tools {
            let mut call = plugin.call.clone();
            layer.overlaid(format!("{prefix}tool.{name}."), values, report).fill(keys::CALL, &mut call, report);
            plugin.tools.insert(name, ToolConfig { task_support, presentation, call });
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
pub(super) fn refuse_same_names(plugins: &[PluginConfig], report: &mut Report) {
    for (at, plugin) in plugins.iter().enumerate() {
        let Some(name) = &plugin.name else { continue };
        if let Some(first) = plugins.iter().take(at).find(|earlier| earlier.name.as_ref() == Some(name)) {
            report.add(&plugin.place, format!("plugin.name: {name:?} is already the plugin at {}", first.place));
        }
    }
}

/// Reads every `[[plugin]]`.
pub(super) fn read(reader: &mut Reader<'_>, node: &Node<'_>) -> Vec<PluginEntry> {
    let Some(array) = node.get_ref().as_array() else {
        reader.refuse(node, "plugin: write [[plugin]] with two brackets, once for each plugin");
        return Vec::new();
    };
    array.iter().filter_map(|node| read_one(reader, node)).collect()
}

fn read_one(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<PluginEntry> {
    let table = reader.table("plugin", node)?;
    let place = reader.place_of(node);
    let plugin = PluginConfig::of_file(PathBuf::new(), keys::blank_call(), place);
    let mut entry = PluginEntry { plugin, call: Values::new(), tools: BTreeMap::new() };
    let name = table.get("name").and_then(|node| node.get_ref().as_str()).unwrap_or("?").to_owned();
    let prefix = format!("plugin.{name}.");
    let mut keyvalue = None;
    for (key, node) in table {
        let path = format!("{prefix}{}", key.get_ref());
        match key.get_ref().as_ref() {
            "name" => entry.plugin.name = read_name(reader, &path, node),
            "file" => entry.plugin.source = Source::File(read_file(reader, &path, node)),
            "url" | "oci" => {
                entry.plugin.source = read_remote(reader, &path, node).unwrap_or(entry.plugin.source);
            }
            "sha256" => entry.plugin.sha256 = read_digest(reader, &path, node),
            "prefix" => entry.plugin.prefix = read_prefix(reader, &path, node),
            "on_restart" => {
                let choices = [("fail", OnRestart::Fail), ("rerun", OnRestart::Rerun)];
                entry.plugin.on_restart = choice(reader, &path, node, &choices).unwrap_or_default();
            }
            "accept_changes" => {
                let choices = [
                    ("none", AcceptChanges::Nothing),
                    ("compatible", AcceptChanges::Compatible),
                    ("any", AcceptChanges::Anything),
                ];
                entry.plugin.accept_changes = choice(reader, &path, node, &choices).unwrap_or_default();
            }
            "drain_ms" => entry.plugin.drain_ms = number(reader, &path, node, DRAIN_MS_MAX),
            "drain_then" => {
                let choices = [("wait", DrainThen::Wait), ("cancel", DrainThen::Cancel), ("fail", DrainThen::Fail)];
                entry.plugin.drain_then = choice(reader, &path, node, &choices).unwrap_or_default();
            }
            "quarantine_after" => {
                let faults = number(reader, &path, node, u64::from(QUARANTINE_AFTER_MAX));
                entry.plugin.quarantine_after = u32::try_from(faults).unwrap_or(QUARANTINE_AFTER_MAX);
            }
            "canary" => (entry.plugin.canary, entry.plugin.watch_switch_ms) = read_canary(reader, &path, node),
            "config" => entry.plugin.settings = read_settings(reader, &path, node),
            "manifest" => {
                let choices = [("optional", false), ("required", true)];
                entry.plugin.manifest_required = choice(reader, &path, node, &choices).unwrap_or_default();
            }
            "grants" => entry.plugin.grants = read_grants(reader, &path, node),
            "kv" => keyvalue = super::keyvalue::read(reader, &path, node),
            "call" => entry.call = reader.overrides(&prefix, "call", node),
            "tool" => entry.tools = read_tools(reader, &path, node),
            _ => reader.refuse(
                key,
                format!(
                    "{path}: no such key; there are name, file, url, oci, sha256, prefix, on_restart, accept_changes, drain_ms, drain_then, \
                     quarantine_after, canary, config, manifest, grants, kv, call and tool"
                ),
            ),
        }
    }
    entry.plugin.grants.keyvalue = keyvalue;
    match ["file", "url", "oci"].iter().filter(|key| table.contains_key(**key)).count() {
        0 => reader.refuse(node, format!("{prefix}file: missing; name the component's file, url or oci")),
        1 => {}
        _ => reader.refuse(node, format!("{prefix}file: a component has one source: file, url or oci")),
    }
    if entry.plugin.name.is_none() && !table.contains_key("file") {
        reader.refuse(
            node,
            format!("{prefix}name: missing; a plugin with url or oci needs one, to be known without a fetch"),
        );
    } else if entry.plugin.name.is_none() && entry.plugin.sha256.is_some() {
        let why = "a plugin with sha256 needs one: the digest holds for whatever comes under that name";
        reader.refuse(node, format!("{prefix}name: missing; {why}"));
    }
    Some(entry)
}

/// `[plugin.canary]`.
fn read_canary(reader: &mut Reader<'_>, path: &str, node: &Node<'_>) -> (CanaryThresholds, u64) {
    let (mut bounds, mut watch_switch_ms) = (CanaryThresholds::default(), 0);
    let Some(table) = reader.table(path, node) else { return (bounds, watch_switch_ms) };
    for (key, node) in table {
        let path = format!("{path}.{}", key.get_ref());
        let mut small = |max: u32| u32::try_from(number(reader, &path, node, u64::from(max))).unwrap_or(max);
        match key.get_ref().as_ref() {
            "fault_percent_max" => bounds.fault_percent_max = u8::try_from(small(100)).unwrap_or(100),
            "latency_percent_max" => bounds.latency_percent_max = small(1_000_000),
            "window_ms" => bounds.window_ms = number(reader, &path, node, DRAIN_MS_MAX),
            "calls_min" => bounds.calls_min = small(1_000_000),
            "watch_switch_ms" => watch_switch_ms = number(reader, &path, node, DRAIN_MS_MAX),
            _ => {
                let known =
                    "there are fault_percent_max, latency_percent_max, window_ms, calls_min and watch_switch_ms";
                reader.refuse(key, format!("{path}: no such key; {known}"));
            }
        }
    }
    if let Some(problem) = bounds.problem() {
        reader.refuse(node, format!("{path}: {problem}"));
    }
    (bounds, watch_switch_ms)
}

fn read_name(reader: &mut Reader<'_>, path: &str, node: &Node<'_>) -> Option<String> {
    let name = reader.text(path, node)?;
    if let Err(message) = check_name(&name) {
        reader.refuse(node, format!("{path}: {message}"));
    }
    Some(name)
}

fn read_file(reader: &mut Reader<'_>, path: &str, node: &Node<'_>) -> PathBuf {
    let text = reader.text(path, node).unwrap_or_else(|| "?".to_owned());
    if text.is_empty() {
        reader.refuse(node, format!("{path}: must not be empty"));
    }
    reader.path(&text)
}

/// `url = "https://..."`, `oci = "REGISTRY/REPOSITORY:TAG"` with or without its scheme.
fn read_remote(reader: &mut Reader<'_>, path: &str, node: &Node<'_>) -> Option<Source> {
    let text = reader.text(path, node)?;
    let scheme = if path.ends_with(".url") { "https://" } else { "oci://" };
    let whole = if text.contains("://") { text } else { format!("{scheme}{text}") };
    match whole.parse::<Source>() {
        Ok(source) if whole.starts_with(scheme) => Some(source),
        Ok(_) => {
            reader.refuse(node, format!("{path}: must begin with {scheme}"));
            None
        }
        Err(error) => {
            reader.refuse(node, format!("{path}: {error}"));
            None
        }
    }
}

fn read_digest(reader: &mut Reader<'_>, path: &str, node: &Node<'_>) -> Option<Digest> {
    let text = reader.text(path, node)?;
    let digest = Digest::try_from(text.strip_prefix("sha256:").unwrap_or(&text).to_owned());
    digest.map_err(|message| reader.refuse(node, format!("{path}: {message}"))).ok()
}

fn read_prefix(reader: &mut Reader<'_>, path: &str, node: &Node<'_>) -> String {
    let prefix = reader.text(path, node).unwrap_or_default();
    if !prefix.is_empty()
        && let Err(message) = check_name(&prefix)
    {
        reader.refuse(node, format!("{path}: {message}"));
    }
    prefix
}

/// One of a few words.
pub(super) fn choice<T: Copy>(
    reader: &mut Reader<'_>,
    path: &str,
    node: &Node<'_>,
    choices: &[(&str, T)],
) -> Option<T> {
    let text = reader.text(path, node)?;
    let found = choices.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    if found.is_none() {
        let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        reader.refuse(node, format!("{path}: {text:?} is not one of {}", words.join(", ")));
    }
    found
}

/// A whole number from 0 to `max`.
fn number(reader: &mut Reader<'_>, path: &str, node: &Node<'_>, max: u64) -> u64 {
    let found = match node.get_ref() {
        DeValue::Integer(integer) => u64::from_str_radix(integer.as_str(), integer.radix()).ok(),
        _ => None,
    };
    found.filter(|number| *number <= max).unwrap_or_else(|| {
        reader.refuse(node, format!("{path}: must be a whole number from 0 to {max}"));
        0
    })
}

/// Settings are any JSON for the guest.
fn read_settings(reader: &mut Reader<'_>, path: &str, node: &Node<'_>) -> BTreeMap<String, Json> {
    let mut settings = BTreeMap::new();
    let Some(table) = reader.table(path, node) else { return settings };
    for (key, node) in table {
        match json(node.get_ref()) {
            Ok(value) => {
                settings.insert(key.get_ref().to_string(), Json::new(value.to_string()));
            }
            Err(message) => reader.refuse(node, format!("{path}.{}: {message}", key.get_ref())),
        }
    }
    settings
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
            let member = |(key, node): (&toml::Spanned<std::borrow::Cow<'_, str>>, &Node<'_>)| {
                Ok((key.get_ref().to_string(), json(node.get_ref())?))
            };
            table.iter().map(member).collect::<Result<_, String>>().map(Value::Object)
        }
    }
}

fn read_tools(reader: &mut Reader<'_>, path: &str, node: &Node<'_>) -> BTreeMap<String, ToolEntry> {
    let mut tools = BTreeMap::new();
    let Some(table) = reader.table(path, node) else { return tools };
    for (tool, node) in table {
        let path = format!("{path}.{}", tool.get_ref());
        let Some(table) = reader.table(&path, node) else { continue };
        let mut entry = ToolEntry::default();
        for (key, node) in table {
            let path = format!("{path}.{}", key.get_ref());
            match key.get_ref().as_ref() {
                "task_support" => {
                    let choices = [
                        ("forbidden", TaskSupport::Forbidden),
                        ("optional", TaskSupport::Optional),
                        ("required", TaskSupport::Required),
                    ];
                    entry.task_support = choice(reader, &path, node, &choices);
                }
                "title" => entry.presentation.title = reader.text(&path, node),
                "description" => entry.presentation.description = reader.text(&path, node),
                "annotations" => entry.presentation.annotations = read_annotations(reader, &path, node),
                name => {
                    let prefix = path.strip_suffix(name).unwrap_or(&path);
                    reader.override_value(prefix, "call", key, node, &mut entry.call);
                }
            }
        }
        tools.insert(tool.get_ref().to_string(), entry);
    }
    tools
}

fn read_annotations(reader: &mut Reader<'_>, path: &str, node: &Node<'_>) -> Option<ToolAnnotations> {
    let mut annotations = ToolAnnotations::default();
    for (key, node) in reader.table(path, node)? {
        let path = format!("{path}.{}", key.get_ref());
        let hint = match key.get_ref().as_ref() {
            "read_only" => &mut annotations.read_only,
            "destructive" => &mut annotations.destructive,
            "idempotent" => &mut annotations.idempotent,
            "open_world" => &mut annotations.open_world,
            _ => {
                let known = "there are read_only, destructive, idempotent and open_world";
                reader.refuse(key, format!("{path}: no such annotation; {known}"));
                continue;
            }
        };
        *hint = node.get_ref().as_bool();
        if hint.is_none() {
            reader.refuse(node, format!("{path}: must be true or false"));
        }
    }
    Some(annotations)
}
