//! From a file to a plugin that can be called, or to a list of everything that is wrong with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use wasmtime::component::{Component, HasSelf, InstancePre, Linker};

use super::bindings::PluginFull;
use super::blocking::Blocking;
use super::call::{Call, CallCount, HostContext, Plugin, Surroundings, visit};
use super::call_state::CallState;
use super::component_names::ComponentNames;
use super::declared::{self, DeclarationPolicy};
use super::engine::EngineKind;
use super::events::Outbox;
use super::exports::{Exports, RawListing};
use super::files;
use super::journal;
use super::limits::{INSTANCES_MAX, LIST_CPU_MS, LIST_WALL_MS, MEMORIES_MAX, TABLES_MAX};
use super::manifest::{self, Manifest, RequestedPolicy};
use super::output;
use super::server_features;
use super::typed;
use super::wasi_03;
use super::wasi_context;
use super::wasi_drafts;
use super::wasi_needs::{WasiNeeds, WasiVersion};
use crate::granted::{Granted, GrantedTo};
use bulkhead_calls::catalog::PluginFeatures;
use bulkhead_calls::policy::{Grants, TenantBounds};
use bulkhead_calls::{CallContext, CatalogPlugin, Durability, JournalPolicy, ToolEntry};
use bulkhead_domain::Json;
use bulkhead_domain::call::{CallError, FaultKind};
use bulkhead_domain::imports::{self, Grant};
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::names::check_name;
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::server_features::Resource;
use bulkhead_domain::task::PluginVersion;
use bulkhead_domain::text::escaped;
use bulkhead_domain::tool::{TaskSupport, Tool, ToolAnnotations};
use bulkhead_metrics::Metrics;

/// Bytes of a component. Stops a compiler bomb.
pub(super) const COMPONENT_BYTES_MAX: u64 = 128 << 20;

/// Where a component's bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    File(PathBuf),
    Bytes(Arc<[u8]>),
}

/// A plugin as the operator wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginSource {
    pub component: Source,
    /// Else the name in the component's manifest, else the file's.
    pub name: Option<String>,
    /// In front of its tools' and prompts' names.
    pub prefix: String,
    /// What the guest reads through `config`.
    pub config: BTreeMap<String, Json>,
    pub grants: Grants,
    /// How much of them plugins reach in calls of each tenant.
    pub tenants: Arc<TenantBounds>,
    /// Whether a component without a manifest is refused, instead of wanting whatever it is granted.
    pub manifest_required: bool,
    /// The latest version of WASI that its component may need.
    pub wasi: WasiVersion,
    /// For each call: the defaults with the plugin's own values already in place.
    pub limits: CallLimits,
    /// By the name of a tool that every client takes, without prefix.
    pub tools: BTreeMap<String, ToolPolicy>,
    /// Whether an interrupted task may run again, where the tool is idempotent.
    pub rerun: bool,
    /// Whether tasks go on where they were after the host was killed.
    pub durable: Durability,
    /// How their journals are kept.
    pub journal: JournalPolicy,
}

impl PluginSource {
    /// A component to which nothing is granted.
    pub fn bare(component: Source, limits: CallLimits) -> Self {
        Self {
            component,
            name: None,
            prefix: String::new(),
            config: BTreeMap::new(),
            grants: Grants::default(),
            tenants: Arc::default(),
            manifest_required: false,
            wasi: WasiVersion::default(),
            limits,
            tools: BTreeMap::new(),
            rerun: false,
            durable: Durability::default(),
            journal: JournalPolicy::default(),
        }
    }
}

/// `[plugin.tool.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolPolicy {
    /// May narrow what the plugin says.
    pub task_support: Option<TaskSupport>,
    /// Whether no client may see or call it.
    pub hidden: bool,
    /// What clients call it, in the place of the plugin's prefix and the tool's own name.
    pub name: Option<String>,
    pub presentation: Presentation,
    /// The plugin's limits with the tool's own values already in place.
    pub limits: CallLimits,
}

/// What the operator says about a tool. Hints are for functions of a component that says nothing itself: plugins of our world speak for
/// themselves there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Presentation {
    pub title: Option<String>,
    pub description: Option<String>,
    pub annotations: Option<ToolAnnotations>,
}

/// Why a plugin is not loaded: everything that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("plugin {plugin}: {}", problems.join("; "))]
pub struct LoadError {
    /// Its name, or its file where it has none yet.
    pub plugin: String,
    pub problems: Vec<String>,
    /// Whether the machine failed rather than the plugin: at another time it may be loaded as it is.
    pub passing: bool,
}

impl LoadError {
    /// The plugin itself is wrong, and stays so.
    pub fn refused(plugin: impl Into<String>, problems: Vec<String>) -> Self {
        Self { plugin: plugin.into(), problems, passing: false }
    }

    /// Nothing is known to be wrong with the plugin.
    pub fn passing(plugin: impl Into<String>, problem: String) -> Self {
        Self { plugin: plugin.into(), problems: vec![problem], passing: true }
    }
}

/// What is wrong with a plugin whose name is not settled yet; as in [`LoadError`].
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) problems: Vec<String>,
    pub(super) passing: bool,
}

impl From<Vec<String>> for Wrong {
    fn from(problems: Vec<String>) -> Self {
        Self { problems, passing: false }
    }
}

impl Wrong {
    pub(super) fn passing(problem: impl Into<String>) -> Self {
        Self { problems: vec![problem.into()], passing: true }
    }

    pub(super) fn of(self, plugin: impl Into<String>) -> LoadError {
        LoadError { plugin: plugin.into(), problems: self.problems, passing: self.passing }
    }
}

/// A plugin that passed every check. It can be called once it is published.
#[derive(Clone)]
pub struct LoadedPlugin {
    pub version: PluginVersion,
    pub tools: Vec<Arc<ToolEntry>>,
    pub offers: PluginFeatures,
    pub(super) plugin: Arc<Plugin>,
    pub(super) source: PluginSource,
}

impl LoadedPlugin {
    /// Its tools as it declares them, hidden ones too, each with its name inside the plugin. What the operator says of a tool in its place
    /// is no part of its definition.
    pub fn own_tools(&self) -> impl Iterator<Item = (&str, &Tool)> {
        self.tools.iter().map(|entry| (&*entry.plugin_tool, entry.declared()))
    }

    /// The tools that clients may see.
    pub fn shown_tools(&self) -> impl Iterator<Item = &Arc<ToolEntry>> {
        self.tools.iter().filter(|entry| !entry.hidden)
    }

    /// What it wants; without a manifest, whatever it is granted.
    pub fn requested(&self) -> &RequestedPolicy {
        &self.plugin.wanted
    }

    /// The operator's terms that it runs on.
    pub fn terms(&self) -> &PluginSource {
        &self.source
    }

    /// The interfaces that it needs, in the order of the component.
    pub fn imports(&self) -> Vec<String> {
        let component = self.plugin.instance.component();
        component.component_type().imports(component.engine()).map(|(name, _)| name.to_owned()).collect()
    }

    /// Whether the operator says what a tool is called.
    pub(super) fn is_renamed(&self, entry: &ToolEntry) -> bool {
        self.source.tools.get(&*entry.base_name).is_some_and(|policy| policy.name.is_some())
    }

    /// Whether it runs on these terms already, whatever its component and its name are.
    pub fn is_under(&self, terms: &PluginSource) -> bool {
        let PluginSource { component, name, .. } = terms.clone();
        PluginSource { component, name, ..self.source.clone() } == *terms
    }

    /// Whether its tools are the component's own functions, which never change.
    pub fn is_typed(&self) -> bool {
        self.plugin.exports.is_typed()
    }

    /// Whether it lists the same as another listing of the same version.
    pub fn lists_like(&self, other: &Self) -> bool {
        let ours = &self.offers;
        let theirs = &other.offers;
        self.tools.iter().map(|entry| &entry.tool).eq(other.tools.iter().map(|entry| &entry.tool))
            && ours.prompts.iter().map(|entry| &entry.prompt).eq(theirs.prompts.iter().map(|entry| &entry.prompt))
            && ours
                .templates
                .iter()
                .map(|entry| &entry.template)
                .eq(theirs.templates.iter().map(|entry| &entry.template))
            && ours.resources == theirs.resources
    }
}

impl std::fmt::Debug for LoadedPlugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadedPlugin").field("version", &self.version).field("tools", &self.tools.len()).finish()
    }
}

/// A component's bytes with what can be known without compiling them.
pub(super) struct ComponentBytes {
    pub(super) bytes: Arc<[u8]>,
    pub(super) digest: [u8; 32],
    pub(super) manifest: Option<Manifest>,
    /// Of a component that says nothing of what it wants: what its imports can make use of, and the interface that says so.
    pub(super) usable_grants: Vec<(Grant, &'static str)>,
    pub(super) needs: WasiNeeds,
    /// Where its author's WIT would be: beside it, under the same name.
    pub(super) wit_file: Option<PathBuf>,
}

/// What the imports of a component could make use of, if it knows nothing of this host: every other one says what it wants.
fn usable_grants(component: &[u8], manifest: Option<&Manifest>) -> Vec<(Grant, &'static str)> {
    if manifest.is_some() {
        return Vec::new();
    }
    let names = ComponentNames::read(component);
    if names.exports.iter().any(|export| export.starts_with(typed::OUR_PACKAGE)) {
        return Vec::new();
    }
    imports::usable_grants(names.imports)
}

/// Reads a component and checks that it is one.
pub(super) fn read(source: &Source) -> Result<ComponentBytes, Vec<String>> {
    let bytes: Arc<[u8]> = match source {
        Source::Bytes(bytes) => Arc::clone(bytes),
        Source::File(path) => read_component(path).map_err(|wrong| vec![wrong])?.into(),
    };
    check_kind(&bytes).map_err(|wrong| vec![wrong])?;
    let manifest = manifest::manifest(&bytes).map_err(|wrong| vec![wrong])?;
    let wit_file = match source {
        Source::File(path) => Some(path.with_extension("wit")),
        Source::Bytes(_) => None,
    };
    let usable_grants = usable_grants(&bytes, manifest.as_ref());
    let digest = Sha256::digest(&bytes).into();
    let needs = WasiNeeds::of(&bytes);
    Ok(ComponentBytes { bytes, digest, manifest, usable_grants, needs, wit_file })
}

/// Reads a component's file, if it is one (a device may never end) and not larger than it may be.
///
/// # Errors
///
/// In words for the operator.
pub fn read_component(path: &Path) -> Result<Vec<u8>, String> {
    let found = std::fs::metadata(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    if !found.is_file() {
        return Err(format!("{} is not a file", path.display()));
    }
    let size = found.len();
    if size > COMPONENT_BYTES_MAX {
        return Err(format!("{size} bytes; a component has at most {COMPONENT_BYTES_MAX}"));
    }
    std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// The eight bytes at the beginning say what a file is.
pub(super) fn check_kind(bytes: &[u8]) -> Result<(), String> {
    match bytes.first_chunk::<8>() {
        Some(b"\0asm\x0d\0\x01\0") => Ok(()),
        Some(b"\0asm\x01\0\0\0") => {
            Err("this is a core module, not a component: build it for wasm32-wasip2, or make a component of it with \
             `wasm-tools component new`"
                .to_owned())
        }
        Some([b'\0', b'a', b's', b'm', ..]) => {
            Err("this is WebAssembly of a version that the host does not know".to_owned())
        }
        _ => Err("this is not WebAssembly".to_owned()),
    }
}

/// The plugin's name, in this order: configured, its manifest's, its file's.
pub(super) fn name(source: &PluginSource, manifest: Option<&Manifest>) -> Result<String, String> {
    let from_file = || match &source.component {
        Source::File(path) => path.file_stem().map(|stem| stem.to_string_lossy().into_owned()),
        Source::Bytes(_) => None,
    };
    let name = source
        .name
        .clone()
        .or_else(|| manifest.and_then(|manifest| manifest.name.clone()))
        .or_else(from_file)
        .ok_or("it has no name: set one in the configuration")?;
    check_name(&name)
        .map_err(|_| format!("its name {:?} is not 1 to 64 characters of [A-Za-z0-9_.-]", escaped(&name)))?;
    Ok(name)
}

/// Every import that a guest of this kind may have. Each one has a row in `bulkhead_domain::imports`.
pub(super) fn linker(engine: &wasmtime::Engine, kind: EngineKind) -> wasmtime::Result<Linker<Call>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    PluginFull::add_to_linker::<_, HasSelf<_>>(&mut linker, |call| call)?;
    wasi_drafts::add_to_linker(&mut linker)?;
    journal::add_to_linker(&mut linker)?;
    files::guard(&mut linker)?;
    wasi_context::tell_errors_plainly(&mut linker)?;
    if kind == EngineKind::Concurrent {
        wasi_03::add_to_linker(&mut linker)?;
    }
    Ok(linker)
}

/// Links a component: every import is there, and what it exports is the world, or functions that can be tools.
pub(super) fn link(
    linker: &Linker<Call>,
    component: &Component,
    raw: &ComponentBytes,
) -> Result<(InstancePre<Call>, Exports), Vec<String>> {
    let mut problems = resources(component);
    let instance = linker.instantiate_pre(component).map_err(|error| {
        problems.push(format!("its imports cannot be satisfied: {}", escaped(&format!("{error:#}"))));
    });
    let Ok(instance) = instance else { return Err(problems) };
    let exports = Exports::find(&instance, raw).map_err(|wrong| problems.extend(wrong));
    match exports {
        Ok(exports) if problems.is_empty() => Ok((instance, exports)),
        _ => Err(problems),
    }
}

/// What an instance takes, where that is known before there is one.
fn resources(component: &Component) -> Vec<String> {
    let Some(required) = component.resources_required() else {
        return vec!["it imports core modules, which a plugin cannot".to_owned()];
    };
    let mut problems = Vec::new();
    if required.num_memories as usize > MEMORIES_MAX {
        problems.push(format!("it has {} memories; {MEMORIES_MAX} is the most", required.num_memories));
    }
    if required.num_tables as usize > TABLES_MAX {
        problems.push(format!("it has {} tables; {TABLES_MAX} is the most", required.num_tables));
    }
    problems
}

/// Lists the component's tools, resources and prompts in a separate instance with the plugin's grants.
pub(super) async fn list(
    ground: &HostContext,
    name: &Arc<str>,
    granted: &Arc<Granted>,
    instance: &InstancePre<Call>,
    exports: &Arc<Exports>,
    limits: &CallLimits,
) -> Result<(RawListing, Vec<Resource>), Wrong> {
    let limits = CallLimits { cpu_ms: LIST_CPU_MS, wall_ms: LIST_WALL_MS, ..limits.clone() };
    let what = if exports.is_typed() { "it cannot be started" } else { "list-tools failed" };
    let failed = |error| match error {
        // On a machine that is busy otherwise.
        CallError::Fault { kind: FaultKind::Deadline, reason } => Wrong::passing(format!("{what}: {reason}")),
        CallError::Fault { reason, .. } => Wrong::from(vec![format!("{what}: {reason}")]),
        CallError::Interrupted => Wrong::passing("the host is shutting down"),
        _ => Wrong::from(vec![format!("{what} (it may need more than {INSTANCES_MAX} instances; see the log)")]),
    };
    let detached_call = || detached_call(name, granted, &limits, ground).map_err(|problem| Wrong::from(vec![problem]));
    let visitor = Arc::clone(exports);
    let listed = visit(ground, instance, None, detached_call()?, &limits, move |store, instance| {
        Box::pin(async move { visitor.list(store, &instance).await })
    });
    let listed =
        listed.await.map_err(failed)?.map_err(|refusal| failed(output::refusal(name, limits.result_bytes, refusal)))?;
    if !exports.has_resources() {
        return Ok((listed, Vec::new()));
    }
    let visitor = Arc::clone(exports);
    let resources = visit(ground, instance, None, detached_call()?, &limits, move |store, instance| {
        Box::pin(async move { visitor.resources(store, &instance).await })
    });
    // What cannot be listed now may well be listed in a call; then it belongs to nobody beforehand.
    let resources = resources.await.unwrap_or_else(|error| {
        let error = escaped(&error.to_string());
        tracing::debug!(plugin = &**name, error, "resources cannot be listed at load");
        Vec::new()
    });
    Ok((listed, server_features::listable(resources)))
}

/// A call without a client: input requests and reports of a plugin while it is listed are dropped.
fn detached_call(
    name: &Arc<str>,
    granted: &Arc<Granted>,
    limits: &CallLimits,
    ground: &HostContext,
) -> Result<Box<Call>, String> {
    let (sender, _) = mpsc::channel(1);
    let shared = Arc::new(CallState::default());
    let outbox = Outbox::new(sender, 1, 0);
    let blocking = Blocking::of(&ground.blocking, TenantId([0; 16]));
    let around = Surroundings { tenant: None, quotas: &ground.quotas, blocking, program: None, journal: None };
    let call =
        Call::new(Arc::clone(name), Arc::clone(granted), CallContext::detached(), limits, shared, outbox, around);
    call.map_err(|failure| failure.0)
}

/// A component between its checks.
pub(super) struct Prepared {
    pub(super) source: PluginSource,
    pub(super) version: PluginVersion,
    pub(super) granted: Arc<GrantedTo>,
    /// What its manifest requests.
    pub(super) wanted: Arc<RequestedPolicy>,
    pub(super) instance: InstancePre<Call>,
    pub(super) exports: Arc<Exports>,
    pub(super) listed: RawListing,
    /// The resources that it lists without a caller.
    pub(super) resources: Vec<Resource>,
    pub(super) presence: CallCount,
}

/// What a policy about a tool means that the plugin does not offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnknownTools {
    /// A mistake in the configuration.
    Refuse,
    /// It is about another version of the plugin.
    Ignore,
}

/// The last step: its tools, resources and prompts, on the operator's terms.
pub(super) fn finish(
    prepared: Prepared,
    unknown_tools: UnknownTools,
    metrics: &Metrics,
) -> Result<LoadedPlugin, Vec<String>> {
    let Prepared { source, version, granted, wanted, instance, exports, mut listed, resources, presence } = prepared;
    let limits = wanted.limits.within(&source.limits);
    let within = |policy: &ToolPolicy| ToolPolicy { limits: wanted.limits.within(&policy.limits), ..policy.clone() };
    let policies = source.tools.iter().map(|(name, policy)| (name.clone(), within(policy))).collect();
    let counted = metrics.plugin(&version.name);
    let activity = metrics.activity().plugin(&version.name);
    let terms = DeclarationPolicy {
        metrics: (metrics, &counted),
        version: &version,
        prefix: &source.prefix,
        limits: &limits,
        tools: &policies,
        unknown_tools,
        rerun: source.rerun,
        journal: (source.durable != Durability::Off).then(|| source.journal.clone()),
    };
    let library = Arc::new(CatalogPlugin {
        plugin: version.clone(),
        limits: limits.clone(),
        has_resources: exports.has_resources(),
        has_prompts: exports.has_prompts(),
        has_completions: exports.has_completions(),
        activity: Arc::clone(&activity),
    });
    if exports.is_typed() {
        typed::present(&mut listed.tools, &source.tools);
    } else {
        refuse_annotations(&source.tools)?;
    }
    let tools = declared::entries(std::mem::take(&mut listed.tools), &terms);
    let offers = server_features::declared(listed, &source.prefix, &library, metrics);
    let (tools, offers) = match (tools, offers) {
        (Ok(tools), Ok(offers)) => (tools, PluginFeatures { resources, ..offers }),
        (tools, offers) => {
            return Err(tools.err().into_iter().chain(offers.err()).flatten().collect());
        }
    };
    let plugin = Plugin {
        name: version.name.as_str().into(),
        instance,
        exports,
        granted,
        wanted,
        entries: tools.clone(),
        presence,
        metrics: counted,
        activity,
    };
    Ok(LoadedPlugin { version, tools, offers, plugin: Arc::new(plugin), source })
}

/// Hints are promises about what a plugin does, and it makes them itself.
fn refuse_annotations(tools: &BTreeMap<String, ToolPolicy>) -> Result<(), Vec<String>> {
    let hinted = tools.iter().filter(|(_, policy)| policy.presentation.annotations.is_some());
    let problems: Vec<_> = hinted
        .map(|(name, _)| {
            format!(
                "tool {name:?}: the plugin itself says its annotations; the configuration says them only for components \
                 whose functions are the tools"
            )
        })
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}
