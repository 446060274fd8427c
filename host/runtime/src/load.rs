//! From a linked component to a plugin that can be called, or to a list of everything that is wrong with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;
use wasmtime::component::InstancePre;

use super::app_views::{AppViews, ViewReach};
use super::blocking::Blocking;
use super::call::{Call, Surroundings};
use super::call_state::CallState;
use super::declared::{self, DeclarationPolicy};
use super::engines::GuestEngine;
use super::events::Outbox;
use super::exports::{Exports, RawListing};
use super::fault;
use super::host_context::HostContext;
use super::limits::{INSTANCES_MAX, LIST_CPU_MS, LIST_WALL_MS};
use super::manifest::RequestedPolicy;
use super::output;
use super::perform::visit;
use super::plugin::{CallCount, Plugin};
use super::plugin_source::{McpMode, PluginSource, ToolPolicy, UnknownTools};
use super::programs::Programs;
use super::programs::mcp::{self, Answer, Ask, Conversation, Found, McpServer, Request, Transport};
use super::server_features;
use super::skills::{SkillSummary, Skills};
use super::trap_causes::HostFailure;
use super::typed;
use crate::granted::{Granted, GrantedTo};
use bulkhead_calls::catalog::PluginFeatures;
use bulkhead_calls::{CallContext, CatalogPlugin, Durability, OutsideWorld, ToolEntry};
use bulkhead_domain::call::{CallError, FaultKind};
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::server_features::Resource;
use bulkhead_domain::task::PluginVersion;
use bulkhead_domain::text::escaped;
use bulkhead_domain::tool::Tool;
use bulkhead_metrics::Metrics;

/// The wall clock of a server that lists: the begin of 2026.
const LISTING_UNIX_MS: u64 = 1_767_225_600_000;

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
    /// Its tools as it declares them, hidden ones too, each with its name inside the plugin. What the operator says of
    /// a tool in its place is no part of its definition.
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

    /// What its views of MCP Apps may reach, by the URI or template that they have without the operator's prefix.
    pub fn views(&self) -> &BTreeMap<String, ViewReach> {
        self.plugin.views.reach()
    }

    /// The skills that it carries, by name.
    pub fn skills(&self) -> &BTreeMap<String, SkillSummary> {
        self.plugin.skills.summaries()
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
        self.plugin.is_typed()
    }

    /// What is known of the MCP server that its component is.
    pub fn mcp_server(&self) -> Option<&McpServer> {
        self.plugin.server.as_deref()
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

/// A component whose imports are all there, on the operator's terms.
pub(super) struct Linked {
    pub(super) source: PluginSource,
    pub(super) version: PluginVersion,
    pub(super) granted: Arc<GrantedTo>,
    /// What its manifest requests.
    pub(super) wanted: Arc<RequestedPolicy>,
    pub(super) skills: Arc<Skills>,
    /// What runs it.
    pub(super) engine: Arc<GuestEngine>,
    pub(super) instance: InstancePre<Call>,
    pub(super) exports: Arc<Exports>,
    pub(super) call_count: CallCount,
}

/// The same with what it says of itself.
pub(super) struct Listed {
    pub(super) linked: Linked,
    listing: RawListing,
    /// The resources that it lists without a caller.
    resources: Vec<Resource>,
    server: Option<Arc<McpServer>>,
}

/// Lists the component's tools, resources and prompts in a separate instance with the plugin's grants.
pub(super) async fn list(host_context: &HostContext, linked: Linked) -> Result<Listed, Wrong> {
    let Linked { source, version, granted, wanted, engine, instance, exports, .. } = &linked;
    let name: Arc<str> = version.name.as_str().into();
    let limits = CallLimits { cpu_ms: LIST_CPU_MS, wall_ms: LIST_WALL_MS, ..wanted.limits.within(&source.limits) };
    let what = if exports.is_typed() { "it cannot be started" } else { "list-tools failed" };
    let failed = |error| match error {
        // On a machine that is busy otherwise.
        CallError::Fault { kind: FaultKind::Deadline, reason } => Wrong::passing(format!("{what}: {reason}")),
        CallError::Fault { reason, .. } => Wrong::from(vec![format!("{what}: {reason}")]),
        CallError::Interrupted => Wrong::passing("the host is shutting down"),
        _ => Wrong::from(vec![format!("{what} (it may need more than {INSTANCES_MAX} instances; see the log)")]),
    };
    let mut visits = ListingVisits::new(host_context, &linked, &limits);
    if let Some(Found { server, tools, templates, resources, prompts }) = visits.server().await? {
        let listing = RawListing { tools, templates, prompts };
        let resources = server_features::listable(resources);
        return Ok(Listed { linked, listing, resources, server: Some(Arc::new(server)) });
    }
    let detached_call = || {
        let call = detached_call(
            host_context,
            &name,
            Arc::clone(&granted.others),
            &limits,
            Arc::default(),
            CallContext::detached(),
            None,
        );
        call.map_err(|failure| Wrong::from(vec![failure.0]))
    };
    let visitor = Arc::clone(exports);
    let listing = visit(engine, instance, None, detached_call()?, &limits, move |store, instance| {
        Box::pin(async move { visitor.list(store, &instance).await })
    });
    let listing = listing
        .await
        .map_err(failed)?
        .map_err(|refusal| failed(output::refusal(&name, limits.result_bytes, refusal)))?;
    if !exports.has_resources() {
        return Ok(Listed { linked, listing, resources: Vec::new(), server: None });
    }
    let visitor = Arc::clone(exports);
    let resources = visit(engine, instance, None, detached_call()?, &limits, move |store, instance| {
        Box::pin(async move { visitor.resources(store, &instance).await })
    });
    // What cannot be listed now may well be listed in a call; then it belongs to nobody beforehand.
    let resources = resources.await.unwrap_or_else(|error| {
        let error = escaped(&error.to_string());
        tracing::debug!(plugin = &*name, error, "resources cannot be listed at load");
        Vec::new()
    });
    Ok(Listed { linked, listing, resources: server_features::listable(resources), server: None })
}

/// Input requests and reports of a plugin while it is listed are dropped.
fn detached_call(
    host_context: &HostContext,
    name: &Arc<str>,
    granted: Arc<Granted>,
    limits: &CallLimits,
    shared: Arc<CallState>,
    facts: CallContext,
    conversation: Option<Conversation>,
) -> Result<Box<Call>, HostFailure> {
    let (sender, _) = mpsc::channel(1);
    let outbox = Outbox::new(sender, 1, 0);
    let blocking = Blocking::of(&host_context.blocking, TenantId([0; 16]));
    let quotas = &host_context.quotas;
    let around = Surroundings { tenant: None, quotas, blocking, program: None, conversation, journal: None };
    Call::new(Arc::clone(name), granted, facts, limits, shared, outbox, around)
}

/// The world of a server that lists: what it says of itself is compared with what was accepted, and a date is no
/// change.
#[derive(Debug)]
struct ListingWorld;

impl OutsideWorld for ListingWorld {
    fn unix_ms(&self) -> Option<u64> {
        Some(LISTING_UNIX_MS)
    }

    fn answer(&self, _: http::Request<bytes::Bytes>) -> Option<http::Response<bytes::Bytes>> {
        None
    }
}

/// The instances in which a web service or a command says whether it is an MCP server, and lists what it has: without
/// any grant, and all of them within the time of one listing.
struct ListingVisits<'a> {
    host_context: &'a HostContext,
    linked: &'a Linked,
    limits: &'a CallLimits,
    begun: Instant,
    cpu_ms: u64,
}

impl<'a> ListingVisits<'a> {
    fn new(host_context: &'a HostContext, linked: &'a Linked, limits: &'a CallLimits) -> Self {
        Self { host_context, linked, limits, begun: Instant::now(), cpu_ms: 0 }
    }

    /// The MCP server that the component is, if it is one.
    async fn server(&mut self) -> Result<Option<Found>, Wrong> {
        let settings = &self.linked.source.mcp;
        let programs = self.linked.exports.programs();
        let has_service = programs.is_some_and(Programs::has_service);
        let has_command = programs.is_some_and(Programs::has_command);
        let lacks = |mode: &str, export: &str| {
            Wrong::from(vec![format!(
                "the configuration says `mcp = \"{mode}\"`, and the component exports no {export} by which it could answer, \
                 or functions of its own beside it"
            )])
        };
        let transport = match settings.mode {
            Some(McpMode::Off) => return Ok(None),
            Some(McpMode::Http) if !has_service => return Err(lacks("http", "wasi:http/incoming-handler@0.2")),
            Some(McpMode::Stdio) if !has_command => return Err(lacks("stdio", "wasi:cli/run@0.2")),
            Some(McpMode::Http) => Transport::Http,
            Some(McpMode::Stdio) => Transport::Stdio,
            // What is both is what its operator says.
            Some(McpMode::Auto) | None => match (has_service, has_command) {
                (true, false) => Transport::Http,
                (false, true) => Transport::Stdio,
                _ => return Ok(None),
            },
        };
        mcp::recognize(self, settings, transport).await
    }
}

impl Ask for ListingVisits<'_> {
    async fn ask(&mut self, request: Request) -> Result<Answer, CallError> {
        let exports = Arc::clone(&self.linked.exports);
        let is_over_http = request.is_over_http();
        let conversation = (!is_over_http).then(Conversation::default);
        let facts = CallContext { outside: Some(Arc::new(ListingWorld)), ..CallContext::detached() };
        let elapsed_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let limits = CallLimits {
            cpu_ms: self.limits.cpu_ms.saturating_sub(self.cpu_ms).max(1),
            wall_ms: self.limits.wall_ms.saturating_sub(elapsed_ms).max(1),
            ..self.limits.clone()
        };
        let name = Arc::from(self.linked.version.name.as_str());
        let shared = Arc::<CallState>::default();
        let call =
            detached_call(self.host_context, &name, Arc::default(), &limits, Arc::clone(&shared), facts, conversation)
                .map_err(|failure| fault::internal(&name, &failure.0))?;
        let answer = visit(&self.linked.engine, &self.linked.instance, None, call, &limits, move |store, instance| {
            Box::pin(async move {
                let entry_point = exports.programs().and_then(|programs| programs.entry_point(is_over_http));
                let entry_point =
                    entry_point.ok_or_else(|| HostFailure("it exports nothing to answer by".to_owned()))?;
                mcp::exchange(entry_point, store, &instance, request).await
            })
        });
        let answer = answer.await;
        self.cpu_ms += u64::try_from(shared.cpu().as_millis()).unwrap_or(u64::MAX);
        answer
    }
}

/// The last step: its tools, resources and prompts, on the operator's terms.
pub(super) fn finish(
    listed: Listed,
    unknown_tools: UnknownTools,
    metrics: &Metrics,
) -> Result<LoadedPlugin, Vec<String>> {
    let Listed { linked, mut listing, resources, server } = listed;
    let Linked { source, version, granted, wanted, skills, engine, instance, exports, call_count } = linked;
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
    let features = server.as_ref().map(|server| server.features).unwrap_or_default();
    let library = Arc::new(CatalogPlugin {
        plugin: version.clone(),
        limits: limits.clone(),
        has_resources: exports.has_resources() || features.resources || !skills.is_empty(),
        has_prompts: exports.has_prompts() || features.prompts,
        has_completions: exports.has_completions() || features.completions,
        activity: Arc::clone(&activity),
    });
    let is_typed = exports.is_typed() && server.is_none();
    if is_typed {
        typed::present(&mut listing.tools, &source.tools);
    } else {
        refuse_annotations(&source.tools)?;
    }
    let tools = declared::entries(std::mem::take(&mut listing.tools), &terms);
    let offers = server_features::declared(listing, &source.prefix, &library, metrics);
    let (tools, offers) = match (tools, offers) {
        (Ok(tools), Ok(offers)) => (tools, PluginFeatures { resources, ..offers }),
        (tools, offers) => {
            return Err(tools.err().into_iter().chain(offers.err()).flatten().collect());
        }
    };
    let templates = offers.templates.iter().map(|entry| &entry.template);
    let views = AppViews::new(&source.prefix, &offers.resources, templates);
    let mut offers = views.offered(offers);
    offers.resources.extend(skills.resources(&version.name));
    offers.skills = skills.entries(&library);
    let plugin = Plugin {
        name: version.name.as_str().into(),
        engine,
        instance,
        exports,
        server,
        granted,
        // Where a component cannot report an error of its own in another way.
        stderr_in_results: source.stderr_in_results.unwrap_or(is_typed),
        wanted,
        entries: tools.clone(),
        views,
        skills,
        call_count,
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
