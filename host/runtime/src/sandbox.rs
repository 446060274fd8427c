//! The sandbox: plugins by name and digest, and the calls that run in them.
//!
//! Owns the engines, the guests' threads, the catalog and the folder of accepted components. Invariant: the catalog
//! changes as a whole, a call keeps the version that it started with, and a plugin that is wrong stops no other.

mod loading;
mod loads;

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tracing::Instrument as _;

use super::cache::{Cache, CodeCacheConfig};
use super::call_state::CallState;
use super::clash;
use super::compile::{Compiler, CompilerMode};
use super::component_store::ComponentStore;
use super::engine::Effort;
use super::engines::{Engines, StartFailure, Ticks};
use super::events::Outbox;
use super::fault;
use super::host_context::{HostContext, TenantNames};
use super::limits::EVENTS_QUEUED_MAX;
use super::load::{LoadError, LoadedPlugin};
use super::perform;
use super::plugin::InFlight;
use super::plugin_source::PluginSource;
use super::published::{Canary, Published};
use bulkhead_calls::{
    CallEvent, CallSpec, Catalog, CatalogPlugin, Control, Executor, Journaling, ListKind, Operation, RunningCall,
    StartError, StopOnDrop, ToolEntry,
};
use bulkhead_domain::call::CallError;
use bulkhead_domain::hex;
use bulkhead_domain::limits::CompileLimits;
use bulkhead_domain::route::Route;
use bulkhead_domain::task::PluginVersion;
use bulkhead_metrics::{CodeMetrics, Metrics};
use bulkhead_threads::{GuestPulse, Share, Threads};
use bulkhead_traces::{InSpan as _, Kind, Span, Value};

pub use loads::LoadProgress;
use loads::Loads;

/// What a sandbox is made of.
#[derive(Clone, Debug)]
pub struct SandboxConfig {
    /// Accepted components are kept here.
    pub data: PathBuf,
    /// Compiled code; in `data` if nothing is said.
    pub code: Option<CodeCacheConfig>,
    /// Calls that run at the same time, for the size of the instance pool.
    pub calls_running_total: u32,
    /// Calls that keep an instance while they wait for answers, sleep or are paused.
    pub calls_resting_total: u32,
    /// For every component that was not compiled before.
    pub compile: CompileLimits,
    pub compiler: CompilerMode,
    /// The length of a guest's time slice.
    pub epoch_tick_ms: u64,
    /// Whether guests with much data, such as scripts, have memories of their own kind rather than the pool's.
    pub memory_images: bool,
    /// Where timers, DNS and sockets live.
    pub io: tokio::runtime::Handle,
    /// Reads the host's environment, for grants of its keys.
    pub environment: fn(&str) -> Option<String>,
    /// Names of tenants for their own directories. Without it, no tenant has one.
    pub tenant_names: Option<Arc<dyn TenantNames>>,
    pub metrics: Metrics,
}

/// What came of publishing.
#[derive(Debug)]
pub struct Exchanged {
    /// What is offered now.
    pub plugins: Vec<LoadedPlugin>,
    pub canaries: Vec<Canary>,
    /// The lists in which some clients see a difference.
    pub lists: Vec<ListKind>,
    /// What was left out because it offers what another one offers.
    pub refused: Vec<LoadError>,
}

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("the WebAssembly engine does not start: {0}")]
    Engine(String),
    #[error("the data directory cannot be used: {0}")]
    Data(#[source] io::Error),
    #[error("threads cannot be started: {0}")]
    Threads(#[source] io::Error),
}

/// Runs plugins.
pub struct Sandbox {
    /// For calls that must load their version first.
    me: Weak<Self>,
    pub(super) host_context: Arc<HostContext>,
    engine_hash: u64,
    instances: usize,
    cache: Cache,
    compiler: Compiler,
    kept: ComponentStore,
    environment: fn(&str) -> Option<String>,
    published: ArcSwap<Published>,
    /// Many calls may wait for one version: it is loaded once.
    loading: tokio::sync::Mutex<()>,
    loads: Loads,
    guests: Threads,
    /// Of what the host itself asks plugins.
    own_share: Share,
    code_metrics: Option<CodeMetrics>,
}

impl Sandbox {
    /// Starts an engine, its clock and the guests' threads.
    ///
    /// # Errors
    ///
    /// When the engine refuses its settings, the data directory cannot be written or threads cannot be started.
    pub fn new(config: SandboxConfig) -> Result<Arc<Self>, SandboxError> {
        let effort = config.compiler.effort();
        Self::with_code(config, effort)
    }

    /// The same, whose guests are code of this effort.
    pub(super) fn with_code(config: SandboxConfig, effort: Effort) -> Result<Arc<Self>, SandboxError> {
        let instances = config.calls_running_total.saturating_add(config.calls_resting_total);
        let tick = Duration::from_millis(config.epoch_tick_ms.max(1));
        let ticks = Ticks { every: tick, late: config.metrics.ticks_late() };
        let engines =
            Engines::start(instances, effort, ticks, config.memory_images).map_err(|failure| match failure {
                StartFailure::Engine(error) => SandboxError::Engine(format!("{error:#}")),
                StartFailure::Thread(error) => SandboxError::Threads(error),
            })?;
        let kept = ComponentStore::open(&config.data).map_err(SandboxError::Data)?;
        let engine_hash = engines.plain().hash;
        let own_cache = || {
            let code = CodeCacheConfig { folder: config.data.clone(), bounds: None };
            Cache::open(&code, engine_hash).map_err(SandboxError::Data)
        };
        let cache = match &config.code {
            None => own_cache()?,
            // Compiling again is no reason not to start.
            Some(code) => Cache::open(code, engine_hash).or_else(|error| {
                tracing::warn!(folder = %code.folder.display(), %error, "the cache of compiled code cannot be used");
                own_cache()
            })?,
        };
        let compiler = Compiler::new(config.compiler, config.compile, config.io.clone());
        let code_metrics = CodeMetrics::of(&config.metrics);
        let clocks = engines.clocks();
        let guests = Threads::start(&config.io, tick, move || clocks.tick()).map_err(SandboxError::Threads)?;
        Ok(Arc::new_cyclic(|me| Self {
            me: me.clone(),
            engine_hash,
            instances: instances as usize,
            host_context: Arc::new(HostContext {
                engines,
                names: config.tenant_names,
                metrics: config.metrics,
                quotas: Arc::default(),
                request_quotas: Default::default(),
                blocking: Arc::default(),
            }),
            cache,
            compiler,
            kept,
            environment: config.environment,
            published: ArcSwap::default(),
            loading: tokio::sync::Mutex::default(),
            loads: Loads::default(),
            guests,
            own_share: Share::default(),
            code_metrics,
        }))
    }

    /// How many calls can hold an instance at the same time, running or waiting.
    pub fn instances_max(&self) -> usize {
        self.instances
    }

    /// What says whether the guests' threads go on, once the host [runs](GuestPulse::run) it.
    pub fn guest_pulse(&self) -> GuestPulse {
        self.guests.pulse()
    }

    /// Ends the guests' threads at the end of the host: nothing runs any more, and turns in progress are waited for,
    /// for so long at most. To be called where blocking is fine, before the runtimes go whose timers and sockets guests
    /// hold.
    pub fn end_guests(&self, within: Duration) {
        if !self.guests.end(within) {
            tracing::warn!("guests did not stop in time");
        }
    }

    /// How far the loading of plugins is.
    pub fn load_progress(&self) -> LoadProgress {
        self.loads.progress()
    }

    /// The components that were accepted.
    pub fn kept(&self) -> &ComponentStore {
        &self.kept
    }

    /// What keeps these plugins from being offered together, in any combination of canaries.
    pub fn clashes(&self, plugins: &[LoadedPlugin], canaries: &[Canary]) -> Vec<LoadError> {
        let (accepted, mut refused) = clash::accept(plugins.to_vec());
        refused.extend(clash::accept_canaries(&accepted, canaries.to_vec()).1);
        refused
    }

    /// Makes these plugins, and no others, the ones that can be called; the order decides about clashes. Calls and
    /// tasks of other versions go on.
    ///
    /// Returns the lists in which clients see a difference, and the plugins that were left out because they offer what
    /// another one offers.
    pub fn publish(&self, plugins: Vec<LoadedPlugin>) -> (Vec<ListKind>, Vec<LoadError>) {
        let published = self.publish_with(plugins, Vec::new());
        (published.lists, published.refused)
    }

    /// The same with versions that a part of the requestors gets; each of a plugin that is there.
    pub fn publish_with(&self, plugins: Vec<LoadedPlugin>, canaries: Vec<Canary>) -> Exchanged {
        let (plugins, mut refused) = clash::accept(plugins);
        let (canaries, clashing) = clash::accept_canaries(&plugins, canaries);
        refused.extend(clashing);
        // What was withdrawn once may be offered again.
        for plugin in plugins.iter().chain(canaries.iter().map(|canary| &canary.plugin)) {
            plugin.plugin.call_count.withdrawn.send_replace(false);
        }
        let before = self.published.rcu(|published| published.exchanged(&plugins, &canaries));
        let lists = self.published.load().catalogs.lists_that_differ(&before.catalogs);
        Exchanged { plugins, canaries, lists, refused }
    }

    /// Notes that the resources of a version are others now. Its plugin alone knows which.
    pub fn resources_differ(&self, version: &PluginVersion) {
        self.published.rcu(|published| published.with_other_resources(version));
    }

    /// Tells on which terms versions of a plugin run that is not published, because calls of it may be left.
    pub fn remember(&self, name: &str, policy: &PluginSource) {
        self.published.rcu(|published| {
            let mut next = Published::clone(published);
            next.sources.entry(name.to_owned()).or_insert_with(|| policy.clone());
            next
        });
    }

    /// The same for every plugin that such terms are known of, in the place of the former ones.
    pub fn remember_others(&self, policy: impl Fn(&str) -> PluginSource) {
        self.published.rcu(|published| {
            let mut next = Published::clone(published);
            for (name, source) in &mut next.sources {
                *source = policy(name);
            }
            next
        });
    }

    /// A version, loaded again if need be; why it cannot be is logged.
    async fn ready(&self, version: &PluginVersion) -> Option<LoadedPlugin> {
        let ready = self.published.load().versions.get(version).cloned();
        match ready {
            Some(loaded) => Some(loaded),
            None => self.me.upgrade()?.revive(version).await.map_err(|error| log_lost(&error)).ok(),
        }
    }

    /// Forgets compiled versions that are neither published, nor in this set, nor in a call.
    pub fn retain(&self, pinned: &HashSet<PluginVersion>) {
        self.published.rcu(|published| published.reduced(pinned));
    }

    /// Removes a component and its compiled code from the data directory.
    ///
    /// # Errors
    ///
    /// The data directory cannot be written.
    pub fn remove_kept(&self, digest: &[u8; 32]) -> io::Result<()> {
        self.kept.remove(digest)?;
        self.cache.remove(digest)
    }

    /// Removes components and compiled code that belong to none of these versions, once nobody has used them for a
    /// month.
    ///
    /// # Errors
    ///
    /// The data directory cannot be read.
    pub fn remove_others(&self, used: impl Iterator<Item = [u8; 32]>) -> io::Result<()> {
        let digests = used.map(|digest| hex(&digest)).collect();
        self.kept.remove_others(&digests)?;
        self.cache.remove_others(&digests)
    }

    /// How many calls of a version there are at this moment, running and waiting.
    pub fn calls(&self, version: &PluginVersion) -> usize {
        self.published.load().all_of(version).map(|loaded| loaded.plugin.calls()).sum()
    }

    /// Ends every call of a version, and every one that still comes. To be used on versions that are not offered any
    /// more.
    pub fn withdraw(&self, version: &PluginVersion) {
        for loaded in self.published.load().all_of(version) {
            loaded.plugin.call_count.withdrawn.send_replace(true);
        }
    }
}

impl Executor for Sandbox {
    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(self.published.load().catalogs.base())
    }

    fn catalog_for(&self, takes_part: &dyn Fn(&Route) -> bool) -> Arc<Catalog> {
        Arc::clone(self.published.load().catalogs.choose(takes_part))
    }

    fn tool<'a>(&'a self, version: &'a PluginVersion, name: &'a str) -> BoxFuture<'a, Option<Arc<ToolEntry>>> {
        Box::pin(async move {
            let loaded = self.ready(version).await?;
            let called = |entry: &&Arc<ToolEntry>| entry.tool.name == name;
            // Tasks keep the name that their tool had: the operator may have said another one since.
            let own = |entry: &&Arc<ToolEntry>| entry.declared().name == name;
            loaded.tools.iter().find(called).or_else(|| loaded.tools.iter().find(own)).cloned()
        })
    }

    fn library<'a>(&'a self, version: &'a PluginVersion) -> BoxFuture<'a, Option<Arc<CatalogPlugin>>> {
        Box::pin(async move { Some(Arc::clone(&self.ready(version).await?.offers.library)) })
    }

    fn start(&self, spec: CallSpec) -> Result<RunningCall, StartError> {
        let published = self.published.load();
        let ready = published.versions.get(&spec.plugin).map(|loaded| &loaded.plugin);
        let PluginVersion { name, digest } = &spec.plugin;
        if ready.is_none() && !(published.sources.contains_key(name) && self.kept.path(digest).exists()) {
            return Err(StartError::UnknownPlugin(spec.plugin.name));
        }
        let (sender, events) = mpsc::channel(EVENTS_QUEUED_MAX);
        let outbox = Outbox::new(sender, spec.limits.events_per_second, spec.limits.log_bytes);
        // What the guest causes to be logged is of the request or task, too.
        let within = bulkhead_traces::current();
        let shared = Arc::new(CallState::recorded(guest_span(within.as_ref(), &spec)));
        let control = Control::new(Arc::<CallState>::clone(&shared));
        let host_context = Arc::clone(&self.host_context);
        let share = spec.share.clone();
        let Some(plugin) = ready else {
            let guest = Box::pin(run_kept(self.me.clone(), host_context, spec, shared, outbox));
            let guest = guest.in_span(within).in_current_span();
            let stop = StopOnDrop::new(self.guests.spawn(&share, guest));
            return Ok(RunningCall { events, control, stop });
        };
        let in_flight = InFlight::new(Arc::clone(plugin));
        let may_begin_here = may_begin_here(&spec);
        // It is large: boxed once, it is not moved again.
        let guest = Box::pin(perform::run(host_context, in_flight, spec, Arc::clone(&shared), outbox));
        let guest = guest.in_span(within).in_current_span();
        let stop = match may_begin_here {
            true => self.guests.begin(&share, guest),
            false => self.guests.spawn(&share, guest),
        };
        Ok(RunningCall { events, control, stop: StopOnDrop::new(stop) })
    }

    fn engine_hash(&self) -> u64 {
        self.engine_hash
    }
}

/// Bytes of the arguments of a call that may begin on the thread that read its request.
const ARGUMENTS_HERE_BYTES_MAX: u64 = 16 << 10;

/// Whether a call may have its first turn on this thread: it is small, and its client waits for nothing else. The reply
/// to a request that makes a task does not wait for the task's guest.
pub(super) fn may_begin_here(spec: &CallSpec) -> bool {
    matches!(spec.operation, Operation::CallTool { .. })
        && spec.facts.task_id.is_none()
        && matches!(spec.journaling, Journaling::Off)
        && spec.operation.size().0 <= ARGUMENTS_HERE_BYTES_MAX
}

/// The span of a call, within that of the request or task that it is for.
fn guest_span(within: Option<&Span>, spec: &CallSpec) -> Option<Span> {
    let span = within?.child("bulkhead.guest", Kind::Internal)?;
    let plugin = &*spec.plugin.name;
    span.set_name("bulkhead.guest", Some(plugin));
    span.set("bulkhead.plugin", plugin);
    span.set("bulkhead.plugin.version", Value::Hex(spec.plugin.digest.first_chunk::<6>().unwrap_or(&[0; 6])));
    span.set("bulkhead.attempt", i64::from(spec.facts.attempt));
    Some(span)
}

fn log_lost(error: &LoadError) {
    tracing::error!(plugin.name = error.plugin, problems = ?error.problems, "an older version cannot run any more");
}

/// Makes a kept version ready, then runs the call.
async fn run_kept(
    host: Weak<Sandbox>,
    host_context: Arc<HostContext>,
    spec: CallSpec,
    shared: Arc<CallState>,
    outbox: Outbox,
) {
    let loaded = match host.upgrade() {
        Some(host) => host
            .revive(&spec.plugin)
            .await
            .map(|loaded| InFlight::new(loaded.plugin))
            .map_err(|error| fault::internal(&spec.plugin.name, &error.to_string())),
        None => Err(CallError::Interrupted),
    };
    drop(host);
    match loaded {
        Ok(plugin) => perform::run(host_context, plugin, spec, shared, outbox).await,
        Err(error) => outbox.finish(CallEvent::Finished(Err(error))).await,
    }
}
