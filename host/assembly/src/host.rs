//! A host put together: store, sandbox, engine, protocol. Serving it over HTTP or stdio is the business of the
//! transports.

use std::collections::HashMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bulkhead_audit::Audit;
use bulkhead_calls::Executor;
use bulkhead_config::{Config, ReadyRequirement};
use bulkhead_control::admin::{LoginLinks, Reload, RunningHost};
use bulkhead_control::erase::EraseHooks;
use bulkhead_control::health::HostHealth;
use bulkhead_control::history::History;
use bulkhead_control::operator::HostOperator;
use bulkhead_control::plugins::PluginAdmin;
use bulkhead_control::server::{Attach, AttachedReader, AttachedWriter, Server};
use bulkhead_control::views::HostIdentity;
use bulkhead_control::{ReadNotes, socket_path};
use bulkhead_domain::clock::Clock;
use bulkhead_domain::clock::SharedClock;
use bulkhead_domain::requestor::TenantId;
use bulkhead_identity::principal::Principals;
use bulkhead_limits::LiveLimits;
use bulkhead_metrics::Metrics;
use bulkhead_net::server::{ENDING, Phase};
use bulkhead_plugins::{self as plugins, HealthMonitor, Plugins};
use bulkhead_protocol::{Protocol, ProtocolOptions};
use bulkhead_runtime::{CodeCacheConfig, CompilerMode, LoadError, Sandbox, SandboxConfig, TenantNames};
use bulkhead_store::{Store, host_secret};
use bulkhead_tasks::secrets::Secrets;
use bulkhead_tasks::{Options, Tasks};
use bulkhead_threads::GuestPulse;
use bulkhead_traces::Tracer;
use bulkhead_transport::quota::EdgeQuota;
use bulkhead_transport::stdio::{self, StdioOptions};
use futures::future::join_all;
use parking_lot::Mutex;
use rustix::fs::Mode;
use rustix::process::{Resource, getrlimit};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::host_identity::identify;
use super::limit_shares::LimitShares;
use super::plugin_start::{refuse_with, start_plugins};
use super::progress::StartStage;
use super::resources::{Resources, address_space_shortage};
use super::store_engine::StoreEngine;
use super::system_clock::SystemClock;
use super::tenants::Tenants;
use super::{audit, progress, secrets, sources, traces};

/// How long a question to a client waits for its answer.
const REQUEST_TIMEOUT_MS: u64 = 600_000;
/// How long the end of a host waits for the collector to take the last spans.
const SPANS_LEFT_MAX: Duration = Duration::from_secs(3);

/// How long the end of a host waits for the turns of guests that are in progress.
const GUESTS_LEFT_MAX: Duration = Duration::from_secs(2);

/// Stands before the sandbox of an author's host, and sees every call.
pub(crate) type ObserveCalls = Box<dyn Fn(Arc<Sandbox>) -> Arc<dyn Executor> + Send + Sync>;

/// A running host without a transport.
pub(crate) struct Host {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) engine: StoreEngine,
    pub(crate) principals: Principals,
    pub(crate) tasks: Tasks,
    pub(crate) protocol: Arc<Protocol>,
    pub(crate) quota: Arc<EdgeQuota>,
    pub(crate) limits: LiveLimits,
    pub(crate) now: SharedClock,
    pub(crate) audit: Audit,
    pub(crate) metrics: Metrics,
    pub(crate) tracer: Tracer,
    clock: Arc<dyn Clock>,
    /// Without the addresses, which are known once it serves.
    pub(crate) identity: HostIdentity,
    pub(crate) data: PathBuf,
    line_bytes_max: usize,
    pub(crate) plugin_admin: PluginAdmin,
    secrets: Arc<Secrets>,
    sandbox: Arc<Sandbox>,
    pub(crate) health: Arc<HostHealth>,
    maintenance: JoinHandle<((), (), (), (), ())>,
    control: Server,
    /// That of connections without HTTP.
    phase: watch::Sender<Phase>,
    /// Where a dashboard is served.
    pub(crate) login_links: Option<Arc<dyn LoginLinks>>,
    /// The same: what charts are drawn from.
    pub(crate) history: Option<Arc<History>>,
    /// Who else must let a tenant go that is erased.
    pub(crate) erase_hooks: Arc<EraseHooks>,
    /// Which looks of operators the audit log has already.
    read_notes: Arc<ReadNotes>,
}

/// Whatever is made from here on is for the user of the host alone.
pub fn make_private_files() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// Opens the store, making it and the data directory if need be.
pub(crate) async fn open_store(config: &Config, data: &Path) -> anyhow::Result<StoreEngine> {
    make_private_files();
    Resources::of_host().look()?;
    private_folder(data)?;
    StoreEngine::open(config, data).await
}

fn private_folder(data: &Path) -> anyhow::Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data);
    made.with_context(|| format!("the data directory {} cannot be made", data.display()))
}

/// A sandbox that keeps its components below `data`, and compiled code in a place of its own or there, too.
pub fn sandbox(
    config: &Config,
    data: &Path,
    code: Option<CodeCacheConfig>,
    tenant_names: Option<Arc<dyn TenantNames>>,
) -> anyhow::Result<Arc<Sandbox>> {
    Resources::of_host().look()?;
    sandbox_compiling(config, data, code, tenant_names, CompilerMode::Child, Metrics::off())
}

fn sandbox_compiling(
    config: &Config,
    data: &Path,
    code: Option<CodeCacheConfig>,
    tenant_names: Option<Arc<dyn TenantNames>>,
    compiler: CompilerMode,
    metrics: Metrics,
) -> anyhow::Result<Arc<Sandbox>> {
    private_folder(data)?;
    let sandbox = Sandbox::new(SandboxConfig {
        data: data.to_owned(),
        code,
        calls_running_total: config.limits.calls_running_total,
        calls_resting_total: config.limits.calls_resting_total,
        compile: config.compile.clone(),
        compiler,
        epoch_tick_ms: config.call.epoch_tick_ms,
        memory_images: config.server.memory_images,
        io: tokio::runtime::Handle::current(),
        environment: sources::variable,
        tenant_names,
        metrics,
    });
    match (sandbox, address_space_shortage(getrlimit(Resource::As).current)) {
        (Err(error), Some(limit)) => Err(anyhow::anyhow!("{error}. The limit of the address space is {limit}")),
        (sandbox, _) => Ok(sandbox?),
    }
}

/// Loads every plugin and publishes those that are sound; gives what is wrong with the others.
pub(crate) async fn load_plugins(sandbox: &Arc<Sandbox>, config: &Config) -> anyhow::Result<Vec<LoadError>> {
    let intake = sources::intake(config)?;
    let loading = sources::wanted(config, &intake, &Arc::default())?.into_iter().map(|wanted| async move {
        let component = plugins::component(sandbox, &wanted).await?;
        sandbox.load(component).await
    });
    let what = || progress::describe_loading(&sandbox.load_progress());
    let mut loaded = Vec::new();
    let mut refused = Vec::new();
    for result in progress::logged(what, join_all(loading)).await {
        match result {
            Ok(plugin) => loaded.push(plugin),
            Err(error) => refused.push(error),
        }
    }
    refused.extend(sandbox.publish(loaded).1);
    Ok(refused)
}

async fn warn_of_half_erased(engine: &StoreEngine, data: &Path) -> anyhow::Result<()> {
    for tenant in engine.maintenance(data).erasing().await? {
        tracing::warn!(%tenant, "a tenant is not erased completely: repeat `bulkhead tenant purge`");
    }
    Ok(())
}

/// Opens the control socket in the data directory, before anything slow.
fn listen_to_operators(data: &Path, stage: StartStage) -> anyhow::Result<Server> {
    let path = socket_path(data);
    let server = Server::spawn(&path, Arc::new(move || stage.describe()));
    server.with_context(|| format!("the control socket {} cannot be made", path.display()))
}

/// What carries calls out, and is looked at by an author's observer, if there is one.
fn observed(sandbox: &Arc<Sandbox>, observe_calls: Option<&ObserveCalls>) -> Arc<dyn Executor> {
    match observe_calls {
        Some(observe_calls) => observe_calls(sandbox.clone()),
        None => sandbox.clone(),
    }
}

/// Goes on with the tasks of an earlier host on this store, or holds them.
async fn take_over(tasks: &Tasks, stage: &StartStage, hold_tasks: bool) -> anyhow::Result<()> {
    anyhow::ensure!(
        !(hold_tasks && tasks.is_shared()),
        "tasks cannot be held at the start where [cluster] shares the database: the other hosts would run them. End those, and start this \
         one without [cluster]"
    );
    stage.enter(|| "taking over what an earlier host left".to_owned());
    let taken = async { if hold_tasks { tasks.recover_held().await } else { tasks.recover().await } };
    progress::logged(|| stage.describe(), taken).await?.log();
    let held = tasks.held_count();
    if held > 0 {
        tracing::warn!(tasks.held = held, "tasks are held: `bulkhead tasks release --status paused` lets them go on");
    }
    Ok(())
}

impl Host {
    /// Loads the plugins and takes over what an earlier host left in the store of the data directory. `code` is where
    /// compiled code is kept, if not there; `observe_calls` is an author's. With `hold_tasks` none of those tasks runs
    /// before an operator releases it.
    pub(crate) async fn start(
        config: &Config,
        data: &Path,
        code: Option<CodeCacheConfig>,
        engine: StoreEngine,
        observe_calls: Option<&ObserveCalls>,
        hold_tasks: bool,
    ) -> anyhow::Result<Self> {
        let store = engine.store();
        let identity = identify(config, data, engine.name());
        let stage = StartStage::begin();
        let control = listen_to_operators(data, stage.clone())?;
        sources::refuse_exposing(config, data)?;
        warn_of_half_erased(&engine, data).await?;
        let audit = audit::of_host(config, data)?;
        let tracer = traces::start(config)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let metrics = metrics_of(config, &engine);
        let principals = Principals::new(store.clone());
        let names = NamesOfTenants { principals: principals.clone(), known: Mutex::default() };
        // An author waits after every change.
        let compiler = if observe_calls.is_some() { CompilerMode::QuickChild } else { CompilerMode::Child };
        let sandbox = sandbox_compiling(config, data, code, Some(Arc::new(names)), compiler, metrics.clone())?;
        let Tenants { ruled, limits, cpu_weights, bounds, pinning } = Tenants::of(config, &principals).await?;
        principals.adopt(&ruled).await?;
        let limits = LiveLimits::from(limits);
        let quota = Arc::new(EdgeQuota::new(limits.clone()).counting(metrics.clone()));

        // A store that takes no writes has to wait for its first local requestor, and everything else goes on.
        let health = Arc::new(HealthMonitor::of_running_host(principals.local_requestor().await.ok()));
        let tasks = Tasks::new(Options {
            instances_max: u32::try_from(sandbox.instances_max()).unwrap_or(u32::MAX),
            store: store.clone(),
            executor: observed(&sandbox, observe_calls),
            health: health.clone(),
            clock: Arc::clone(&clock),
            limits: limits.clone(),
            cpu_weights,
            audit: audit.clone(),
            tracer: tracer.clone(),
        })?;
        quota.count_usage(tasks.usage_counts());
        tasks.count(&metrics);
        let secrets = secrets::open(config, store.clone()).await?;
        tasks.keep_secrets(Arc::clone(&secrets));
        let options = plugins::Options {
            store: store.clone(),
            sandbox: Arc::clone(&sandbox),
            calls: Arc::new(tasks.clone()),
            health,
            clock: Arc::clone(&clock),
            otherwise: sources::otherwise(config, &bounds),
            tenants: pinning,
            audit: audit.clone(),
            metrics: metrics.clone(),
        };
        let intake = sources::intake(config)?;
        let plugins = start_plugins(options, sources::wanted(config, &intake, &bounds)?, &stage).await?;
        sources::warn(config, &plugins).await;
        take_over(&tasks, &stage, hold_tasks).await?;
        let health = Arc::new(HostHealth {
            store: store.clone(),
            tasks: tasks.clone(),
            plugins: plugins.clone(),
            guests: sandbox.guest_pulse(),
            audit: audit.clone(),
            clock: Arc::clone(&clock),
            data: data.to_owned(),
            required: config.server.ready_requires.iter().map(|ReadyRequirement::Plugin(name)| name.clone()).collect(),
        });
        let shares = LimitShares::of(config, &store, &limits, &tasks, &quota);
        let maintenance = spawn_maintenance(
            tasks.clone(),
            plugins.clone(),
            health.guests.clone(),
            shares,
            refuse_with(audit.clone()),
        );
        let protocol = Protocol::new(tasks.clone(), protocol_options(&*store, metrics.clone()).await?);
        let protocol = Arc::new(configured(protocol, config));
        Ok(Self {
            store,
            engine,
            principals,
            tasks,
            protocol,
            quota,
            limits,
            now: Arc::clone(&clock),
            audit,
            metrics,
            tracer,
            clock,
            identity,
            data: data.to_owned(),
            line_bytes_max: usize::try_from(config.server.body_bytes_max).unwrap_or(usize::MAX),
            plugin_admin: PluginAdmin { plugins, intake },
            secrets,
            sandbox,
            health,
            maintenance,
            control,
            phase: watch::Sender::new(Phase::Serving),
            login_links: None,
            history: None,
            erase_hooks: Arc::default(),
            read_notes: Arc::new(ReadNotes::new(config.audit.operator_reads)),
        })
    }

    /// Begins to keep what charts are drawn from.
    pub(crate) fn history(&self) -> Arc<History> {
        History::spawn(self.tasks.clone(), self.metrics.clone(), Arc::clone(&self.now))
    }

    /// Carries out commands.
    pub(crate) fn operator(&self, identity: HostIdentity, reload: Arc<dyn Reload>) -> Arc<HostOperator> {
        let maintenance = self.engine.maintenance(&self.data);
        let task_control = Arc::new(self.tasks.clone());
        let mut operator = HostOperator::new(self.store.clone(), maintenance, task_control, Arc::clone(&self.clock));
        operator.principals = self.principals.clone();
        operator.plugin_admin = Some(self.plugin_admin.clone());
        operator.running_host = Some(RunningHost {
            tasks: self.tasks.clone(),
            edge: self.quota.clone(),
            reload,
            health: Arc::clone(&self.health),
            identity,
            login_links: self.login_links.clone(),
            history: self.history.clone(),
        });
        operator.secrets = Some(Arc::clone(&self.secrets));
        operator.erase_hooks = Arc::clone(&self.erase_hooks);
        operator.audit = self.audit.clone();
        operator.read_notes = Arc::clone(&self.read_notes);
        Arc::new(operator)
    }

    /// Carries out the commands that come over the control socket.
    pub(crate) fn serve_operators(&self, operator: Arc<HostOperator>) {
        let attach = LocalStdio {
            protocol: Arc::clone(&self.protocol),
            principals: self.principals.clone(),
            options: self.stdio_options(),
        };
        self.control.serve(operator, Arc::new(attach));
    }

    /// How stdio connections are served.
    pub(crate) fn stdio_options(&self) -> StdioOptions {
        StdioOptions { line_bytes_max: self.line_bytes_max, quota: Arc::clone(&self.quota), phase: self.phase.clone() }
    }

    /// Lets running calls end for up to `grace`, marks the rest as interrupted, and gives the data directory back.
    pub(crate) async fn stop(self, grace: Duration) -> anyhow::Result<()> {
        self.phase.send_replace(Phase::Draining);
        self.tasks.let_calls_end(grace).await;
        // What still waits on a connection is answered before the socket goes, and the socket goes before its directory
        // is another host's.
        self.phase.send_replace(Phase::Ending);
        let _ = tokio::time::timeout(ENDING, self.phase.closed()).await;
        drop(self.control);
        let drained = self.tasks.drain(Duration::ZERO).await;
        self.maintenance.abort();
        tokio::task::spawn_blocking(move || {
            self.sandbox.end_guests(GUESTS_LEFT_MAX);
            self.audit.close();
            self.tracer.close(SPANS_LEFT_MAX);
        })
        .await?;
        drained?;
        Ok(())
    }
}

/// The host's metrics, which what is written to its store is counted in.
fn metrics_of(config: &Config, engine: &StoreEngine) -> Metrics {
    let metrics = config.metrics.as_ref().map(|config| Metrics::new(config.options)).unwrap_or_default();
    engine.count(&metrics);
    metrics
}

/// What goes on for as long as the host runs.
fn spawn_maintenance(
    tasks: Tasks,
    plugins: Plugins,
    guests: GuestPulse,
    shares: Option<LimitShares>,
    refuse: impl Fn(&LoadError) + Send + Sync + 'static,
) -> JoinHandle<((), (), (), (), ())> {
    tokio::spawn(async move {
        let follow_hosts = async {
            if let Some(shares) = shares {
                shares.follow_hosts().await;
            }
        };
        tokio::join!(
            tasks.run_maintenance(),
            plugins.run_maintenance(),
            plugins.fetch_awaited(refuse),
            guests.run(),
            follow_hosts
        )
    })
}

/// The protocol as the configuration has it at the start.
fn configured(protocol: Protocol, config: &Config) -> Protocol {
    protocol.set_tool_listing(sources::tool_listing(config));
    protocol.set_slow_ms(config.log.slow_ms);
    protocol
}

async fn protocol_options(store: &dyn Store, metrics: Metrics) -> anyhow::Result<ProtocolOptions> {
    Ok(ProtocolOptions {
        server_name: "bulkhead".to_owned(),
        server_title: Some("Bulkhead".to_owned()),
        server_version: env!("CARGO_PKG_VERSION").to_owned(),
        instructions: None,
        cursor_key: host_secret(store, b"cursor").await?,
        request_timeout_ms: REQUEST_TIMEOUT_MS,
        metrics,
    })
}

/// The names of tenants for their directories. A name never changes, so each is looked up once.
struct NamesOfTenants {
    principals: Principals,
    known: Mutex<HashMap<TenantId, String>>,
}

impl std::fmt::Debug for NamesOfTenants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NamesOfTenants").finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl TenantNames for NamesOfTenants {
    async fn name(&self, tenant: TenantId) -> Option<String> {
        let known = self.known.lock().get(&tenant).cloned();
        if known.is_some() {
            return known;
        }
        let found = self.principals.tenant_name(tenant).await;
        let name = found.inspect_err(|error| tracing::error!("a tenant's name cannot be read: {error}")).ok()??;
        self.known.lock().insert(tenant, name.clone());
        Some(name)
    }
}

/// Serves MCP to the users of the control socket, as the local requestor.
struct LocalStdio {
    protocol: Arc<Protocol>,
    principals: Principals,
    options: StdioOptions,
}

#[async_trait::async_trait]
impl Attach for LocalStdio {
    async fn attach(&self, reader: AttachedReader, writer: AttachedWriter) {
        let served = match self.principals.local_requestor().await {
            Ok(requestor) => stdio::serve(self.protocol.clone(), requestor, reader, writer, self.options.clone()).await,
            Err(error) => {
                tracing::error!(error = %error, "there is no local requestor");
                return;
            }
        };
        if let Err(error) = served {
            tracing::debug!(error = %error, "an attached connection broke");
        }
    }
}
