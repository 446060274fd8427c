//! The sandbox: plugins by name and digest, and the calls that run in them.
//!
//! Owns the engine, the guests' threads, the catalog and the folder of accepted components. Invariant: the catalog changes as a
//! whole, a call keeps the version that it started with, and a plugin that is wrong stops no other.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, mpsc};
use wasmtime::component::{Component, Linker};

use super::cache::{Cache, write_new};
use super::call::{self, Call, Ground, Plugin};
use super::clash;
use super::engine;
use super::events::Outbox;
use super::fault;
use super::inspect::{self, Inspection, hex};
use super::limits::EVENTS_QUEUED_MAX;
use super::load::{self, LoadError, LoadedPlugin, PluginSource, Prepared, Raw, Source};
use super::policy::Granted;
use super::{CallEvent, CallSpec, Catalog, Control, Executor, Running, Shared, StartError, StopOnDrop};
use crate::domain::call::CallError;
use crate::domain::task::PluginVersion;

/// Instances beside the running ones: calls that wait for answers or sleep keep theirs.
const INSTANCES_WAITING: u32 = 768;

/// What a sandbox is made of.
#[derive(Clone, Debug)]
pub struct SandboxConfig {
    /// Compiled code and accepted components are kept here.
    pub data: PathBuf,
    /// Calls that run at the same time, for the size of the instance pool.
    pub calls_running_total: u32,
    /// The length of a guest's time slice.
    pub epoch_tick_ms: u64,
    /// Where timers, DNS and sockets live.
    pub io: tokio::runtime::Handle,
    /// Reads the host's environment, for grants of its keys.
    pub environment: fn(&str) -> Option<String>,
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
    ground: Ground,
    engine_hash: u64,
    instances: usize,
    linker: Linker<Call>,
    cache: Cache,
    components: PathBuf,
    environment: fn(&str) -> Option<String>,
    published: ArcSwap<Published>,
    threads: Mutex<Option<tokio::runtime::Runtime>>,
    guests: tokio::runtime::Handle,
}

/// What can be called right now.
#[derive(Default)]
struct Published {
    catalog: Arc<Catalog>,
    /// Also older versions: tasks that started with one keep it.
    versions: HashMap<PluginVersion, Arc<Plugin>>,
    /// The present policy of each plugin, for older versions that are loaded again.
    sources: HashMap<String, PluginSource>,
}

impl Sandbox {
    /// Starts an engine, its clock and the guests' threads.
    ///
    /// # Errors
    ///
    /// When the engine refuses its settings, the data directory cannot be written or threads cannot be started.
    pub fn new(config: SandboxConfig) -> Result<Arc<Self>, SandboxError> {
        let instances = config.calls_running_total.saturating_add(INSTANCES_WAITING);
        let of_engine = |error: wasmtime::Error| SandboxError::Engine(format!("{error:#}"));
        let engine = engine::build(instances).map_err(of_engine)?;
        let linker = load::linker(&engine).map_err(of_engine)?;
        let components = config.data.join("components");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&components).map_err(SandboxError::Data)?;
        let cache = Cache::open(&config.data).map_err(SandboxError::Data)?;
        let threads = engine::guest_threads().map_err(SandboxError::Threads)?;
        engine::tick(&engine, Duration::from_millis(config.epoch_tick_ms.max(1))).map_err(SandboxError::Threads)?;
        Ok(Arc::new_cyclic(|me| Self {
            me: me.clone(),
            engine_hash: engine::compatibility_hash(&engine),
            instances: instances as usize,
            ground: Ground { engine, io: config.io, slots: Arc::new(Semaphore::new(instances as usize)) },
            linker,
            cache,
            components,
            environment: config.environment,
            published: ArcSwap::default(),
            guests: threads.handle().clone(),
            threads: Mutex::new(Some(threads)),
        }))
    }

    /// How many calls can hold an instance at the same time, running or waiting.
    pub fn instances_max(&self) -> usize {
        self.instances
    }

    /// Checks a plugin and makes it ready; nobody can call it before it is [published](Self::publish).
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, at once.
    pub async fn load(self: &Arc<Self>, source: PluginSource) -> Result<LoadedPlugin, LoadError> {
        let fallback = match (&source.name, &source.component) {
            (Some(name), _) => name.clone(),
            (None, Source::File(path)) => path.display().to_string(),
            (None, Source::Bytes(_)) => "(unnamed)".to_owned(),
        };
        let refuse = |problems| LoadError { plugin: fallback.clone(), problems };
        let (prepared, bytes) = self.prepare(source).await.map_err(refuse)?;
        let version = prepared.version.clone();
        let refuse = |problems| LoadError { plugin: version.name.clone(), problems };
        let loaded = load::finish(prepared).map_err(refuse)?;
        self.keep(&version.digest, &bytes)
            .map_err(|error| refuse(vec![format!("it cannot be kept in {}: {error}", self.components.display())]))?;
        Ok(loaded)
    }

    /// Everything up to the operator's terms.
    async fn prepare(self: &Arc<Self>, source: PluginSource) -> Result<(Prepared, Arc<[u8]>), Vec<String>> {
        let host = Arc::clone(self);
        let compiled = tokio::task::spawn_blocking(move || {
            let raw = load::read(&source.component)?;
            let mut problems = Vec::new();
            let name = load::name(&source, raw.manifest.as_ref()).map_err(|wrong| problems.push(wrong));
            let granted = host.grant(&source).map_err(|wrong| problems.extend(wrong));
            let linked = match host.compile(&raw) {
                Ok(component) => load::link(&host.linker, &component).map_err(|wrong| problems.extend(wrong)),
                Err(wrong) => {
                    problems.push(wrong);
                    Err(())
                }
            };
            let (Ok(name), Ok(granted), Ok((instance, exports))) = (name, granted, linked) else {
                return Err(problems);
            };
            let version = PluginVersion { name, digest: raw.digest };
            Ok((source, version, granted, instance, Arc::new(exports), raw.bytes))
        });
        let (source, version, granted, instance, exports, bytes) =
            compiled.await.unwrap_or_else(|_| Err(vec!["the host panicked while compiling it".to_owned()]))?;

        let ground = self.ground.clone();
        let name: Arc<str> = version.name.as_str().into();
        let limits = source.limits.clone();
        let listing = self.guests.spawn(async move {
            let listed = load::list(&ground, &name, &instance, &exports, &limits).await;
            (listed, instance, exports)
        });
        let (listed, instance, exports) =
            listing.await.map_err(|_| vec!["the host panicked while listing its tools".to_owned()])?;
        let (listed, resources) = listed.map_err(|wrong| vec![wrong])?;
        Ok((Prepared { source, version, granted, instance, exports, listed, resources }, bytes))
    }

    fn compile(&self, raw: &Raw) -> Result<Component, String> {
        if let Some(component) = self.cache.load(&self.ground.engine, &raw.digest, self.engine_hash) {
            return Ok(component);
        }
        let component = load::compile(&self.ground.engine, &raw.bytes)?;
        self.cache.store(&component, &raw.digest, self.engine_hash);
        Ok(component)
    }

    fn grant(&self, source: &PluginSource) -> Result<Granted, Vec<String>> {
        let mut problems = Vec::new();
        let directories = &source.grants.directories;
        for (at, directory) in directories.iter().enumerate() {
            if !directory.host.is_dir() {
                problems.push(format!("granted directory {} is not there", directory.host.display()));
            }
            if !directory.guest.starts_with('/') {
                problems.push(format!("granted directory {:?} of the guest does not begin with /", directory.guest));
            }
            if directories.iter().take(at).any(|other| other.guest == directory.guest) {
                problems.push(format!("two granted directories are {:?} for the guest", directory.guest));
            }
        }
        let read = |key: &String| (self.environment)(key).map(|value| (key.clone(), value));
        if problems.is_empty() {
            Ok(Granted {
                directories: source.grants.directories.clone(),
                http: source.grants.http.clone(),
                environment: source.grants.env.iter().filter_map(read).collect(),
                settings: source.config.clone(),
            })
        } else {
            Err(problems)
        }
    }

    /// Keeps an accepted component, so that a task can run again with the version that it started with.
    fn keep(&self, digest: &[u8; 32], bytes: &[u8]) -> io::Result<()> {
        let name = component_file(digest);
        if self.components.join(&name).exists() { Ok(()) } else { write_new(&self.components, &name, &[bytes]) }
    }

    /// Makes these plugins, and no others, the ones that can be called; the order decides about clashes. Calls and tasks of
    /// other versions go on.
    ///
    /// Gives back the plugins that were left out because they offer what another one offers.
    pub fn publish(&self, plugins: Vec<LoadedPlugin>) -> Vec<LoadError> {
        let (accepted, refused) = clash::accept(plugins);
        let tools = accepted.iter().flat_map(|plugin| plugin.tools.iter().cloned()).collect();
        let offers = accepted.iter().map(|plugin| plugin.offers.clone());
        let catalog = Arc::new(Catalog::new(tools).with(offers));
        self.published.rcu(|published| Published {
            catalog: Arc::clone(&catalog),
            versions: (published.versions.iter().map(|(version, plugin)| (version.clone(), Arc::clone(plugin))))
                .chain(accepted.iter().map(|plugin| (plugin.version.clone(), Arc::clone(&plugin.plugin))))
                .collect(),
            sources: accepted.iter().map(|plugin| (plugin.version.name.clone(), plugin.source.clone())).collect(),
        });
        refused
    }

    /// Makes an older version of a published plugin ready again, under the plugin's present grants and limits.
    async fn load_version(self: &Arc<Self>, version: &PluginVersion) -> Result<Arc<Plugin>, LoadError> {
        let published = self.published.load_full();
        if let Some(plugin) = published.versions.get(version) {
            return Ok(Arc::clone(plugin));
        }
        let refuse = |problem: &str| LoadError { plugin: version.name.clone(), problems: vec![problem.to_owned()] };
        let Some(source) = published.sources.get(&version.name) else {
            return Err(refuse("it is not configured any more"));
        };
        let component = Source::File(self.components.join(component_file(&version.digest)));
        let mut source = PluginSource { component, name: Some(version.name.clone()), ..source.clone() };
        // The configuration is about the present version's tools.
        source.tools.clear();
        let loaded = self.load(source).await?;
        if loaded.version != *version {
            return Err(refuse("its kept component has been changed"));
        }
        self.published.rcu(|published| {
            let mut versions = published.versions.clone();
            versions.insert(version.clone(), Arc::clone(&loaded.plugin));
            Published { catalog: Arc::clone(&published.catalog), versions, sources: published.sources.clone() }
        });
        Ok(loaded.plugin)
    }

    /// Whether a version that is not ready could be made so.
    fn is_kept(&self, version: &PluginVersion) -> bool {
        self.published.load().sources.contains_key(&version.name)
            && self.components.join(component_file(&version.digest)).exists()
    }

    /// Forgets compiled versions that are neither published nor in this set.
    pub fn retain(&self, pinned: &HashSet<PluginVersion>) {
        self.published.rcu(|published| {
            let current: HashSet<_> = published.catalog.libraries().iter().map(|library| &library.plugin).collect();
            let versions = published
                .versions
                .iter()
                .filter(|(version, _)| current.contains(version) || pinned.contains(*version))
                .map(|(version, plugin)| (version.clone(), Arc::clone(plugin)))
                .collect();
            Published { catalog: Arc::clone(&published.catalog), versions, sources: published.sources.clone() }
        });
    }

    /// Looks into a component without granting it anything.
    ///
    /// # Errors
    ///
    /// As [`Self::load`].
    pub async fn inspect(self: &Arc<Self>, source: PluginSource) -> Result<Inspection, LoadError> {
        let loaded = self.load(source).await?;
        let component = loaded.plugin.instance.component();
        let (imports, exports) = inspect::functions(&self.ground.engine, component);
        let raw = load::read(&loaded.source.component)
            .map_err(|problems| LoadError { plugin: loaded.version.name.clone(), problems })?;
        Ok(Inspection {
            name: loaded.version.name.clone(),
            digest: hex(&loaded.version.digest),
            size: raw.bytes.len() as u64,
            manifest: raw.manifest,
            imports,
            exports,
            tools: loaded.tools.iter().map(|entry| entry.tool.clone()).collect(),
            prompts: loaded.offers.prompts.iter().map(|entry| entry.prompt.clone()).collect(),
            templates: loaded.offers.templates.iter().map(|entry| entry.template.clone()).collect(),
            resources: loaded.offers.resources,
        })
    }
}

fn component_file(digest: &[u8; 32]) -> String {
    format!("{}.wasm", hex(digest))
}

impl Executor for Sandbox {
    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.published.load().catalog)
    }

    fn start(&self, spec: CallSpec) -> Result<Running, StartError> {
        let ready = self.published.load().versions.get(&spec.plugin).map(Arc::clone);
        if ready.is_none() && !self.is_kept(&spec.plugin) {
            return Err(StartError::UnknownPlugin(spec.plugin.name));
        }
        let (sender, events) = mpsc::channel(EVENTS_QUEUED_MAX);
        let outbox = Outbox::new(sender, spec.limits.events_per_second, spec.limits.log_bytes);
        let shared = Arc::new(Shared::default());
        let control = Control { shared: Arc::clone(&shared) };
        let ground = self.ground.clone();
        let guest = match ready {
            Some(plugin) => self.guests.spawn(call::run(ground, plugin, spec, shared, outbox)),
            None => self.guests.spawn(run_kept(self.me.clone(), ground, spec, shared, outbox)),
        };
        Ok(Running { events, control, stop: StopOnDrop(guest) })
    }

    fn engine_hash(&self) -> u64 {
        self.engine_hash
    }
}

/// Makes a kept version ready, then runs the call.
async fn run_kept(host: Weak<Sandbox>, ground: Ground, spec: CallSpec, shared: Arc<Shared>, outbox: Outbox) {
    let loaded = match host.upgrade() {
        Some(host) => host
            .load_version(&spec.plugin)
            .await
            .map_err(|error| fault::internal(&spec.plugin.name, &error.to_string())),
        None => Err(CallError::Interrupted),
    };
    drop(host);
    match loaded {
        Ok(plugin) => call::run(ground, plugin, spec, shared, outbox).await,
        Err(error) => outbox.finish(CallEvent::Finished(Err(error))).await,
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(threads) = threads {
            // Guests come to their next tick and are dropped there; waiting for that would block whoever drops the sandbox.
            threads.shutdown_background();
        }
    }
}
