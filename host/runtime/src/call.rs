//! One call in one fresh store: what the store holds, and how it runs to its end.

use std::ops::Deref;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;
use wasmtime::UpdateDeadline;
use wasmtime::component::{Instance, InstancePre, ResourceTable};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use super::TenantNames;
use super::blocking::{Blocking, BlockingPools};
use super::call_state::CallState;
use super::counted_call::CountedCall;
use super::denials::Denials;
use super::egress::{Egress, RequestQuotas};
use super::engines::{CallSlots, Engines, GuestEngine};
use super::events::Outbox;
use super::exports::Exports;
use super::fault::{self, HostFailure};
use super::files::{self, DirectoryQuotas, Quotas};
use super::journal::{self, Beginning, CallJournal};
use super::limits::{
    COMPONENT_HANDLES_MAX, HOST_RESOURCES_MAX, HOSTCALL_BYTES_BASE, HTTP_FIELD_BYTES_MAX, Limiter, MemoryUse,
    PENDING_MAX, RANDOM_BYTES_MAX,
};
use super::manifest::RequestedPolicy;
use super::output;
use super::programs::Program;
use super::supervise::{Stopped, Supervised};
use super::wasi_context::{Clock, Printed, StderrTail, Stream, random};
use crate::granted::{Granted, GrantedTo};
use bulkhead_calls::policy::DirGrant;
use bulkhead_calls::{CallContext, CallEvent, CallSpec, Fenced, Journaling, Operation, Returned, ToolEntry};
use bulkhead_domain::call::{CallError, FaultKind};
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::text::Bytes;
use bulkhead_metrics::{ActivityCounts, Metrics, PluginMetrics};

/// A component that is ready to be called.
pub(super) struct Plugin {
    /// Shared with every call.
    pub(super) name: Arc<str>,
    pub(super) instance: InstancePre<Call>,
    pub(super) exports: Arc<Exports>,
    pub(super) granted: Arc<GrantedTo>,
    /// What its manifest requests.
    pub(super) wanted: Arc<RequestedPolicy>,
    /// By the name inside the plugin.
    pub(super) entries: Vec<Arc<ToolEntry>>,
    pub(super) presence: CallCount,
    pub(super) metrics: PluginMetrics,
    /// Of calls of no tool.
    pub(super) activity: Arc<ActivityCounts>,
}

/// The calls of a version, whichever of its lists they found it in.
#[derive(Clone)]
pub(super) struct CallCount {
    /// Running and waiting.
    calls: Arc<AtomicUsize>,
    /// Whether they have to end.
    pub(super) withdrawn: watch::Sender<bool>,
}

impl Default for CallCount {
    fn default() -> Self {
        Self { calls: Arc::default(), withdrawn: watch::channel(false).0 }
    }
}

impl Plugin {
    /// How many calls of it there are at this moment, running and waiting.
    pub(super) fn calls(&self) -> usize {
        self.presence.calls.load(Ordering::Acquire)
    }

    /// Done when its calls have to end.
    async fn when_withdrawn(&self) {
        // The sender lives as long as the plugin.
        let _ = self.presence.withdrawn.subscribe().wait_for(|withdrawn| *withdrawn).await;
    }

    /// The tool of an operation that calls one.
    pub(super) fn entry(&self, operation: &Operation) -> Option<&Arc<ToolEntry>> {
        let Operation::CallTool { tool, .. } = operation else { return None };
        self.entries.iter().find(|entry| entry.plugin_tool == *tool)
    }
}

/// A plugin in the hands of one call.
pub(super) struct InFlight(Arc<Plugin>);

impl InFlight {
    pub(super) fn new(plugin: Arc<Plugin>) -> Self {
        plugin.presence.calls.fetch_add(1, Ordering::AcqRel);
        Self(plugin)
    }
}

impl Deref for InFlight {
    type Target = Plugin;

    fn deref(&self) -> &Plugin {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.presence.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What every call needs from the host, whichever plugin it runs.
pub(super) struct HostContext {
    pub(super) engines: Engines,
    /// For directories that each tenant has its own of.
    pub(super) names: Option<Arc<dyn TenantNames>>,
    pub(super) metrics: Metrics,
    pub(super) quotas: Arc<Quotas>,
    pub(super) lines: RequestQuotas,
    pub(super) blocking: Arc<BlockingPools>,
}

/// What a call has around it besides its grants.
pub(super) struct Surroundings<'a> {
    /// The tenant's name, where a directory needs it.
    pub(super) tenant: Option<&'a str>,
    pub(super) quotas: &'a Quotas,
    pub(super) blocking: Blocking,
    /// The arguments and streams of a command.
    pub(super) program: Option<Program>,
    pub(super) journal: Option<Box<CallJournal>>,
}

/// The data of a store.
pub(super) struct Call {
    pub(super) facts: CallContext,
    pub(super) shared: Arc<CallState>,
    pub(super) outbox: Outbox,
    pub(super) denials: Denials,
    /// For what blocks a thread.
    pub(super) blocking: Blocking,
    /// Which of its descriptors lead to directories with a quota.
    pub(super) rooms: DirectoryQuotas,
    /// How many ids the host has drawn for this call.
    pub(super) ids_drawn: u64,
    /// Whether the guest's wish to become a task was already decided.
    pub(super) detach_settled: bool,
    /// Of a call that runs a command.
    pub(super) program: Option<Program>,
    /// Bytes of the result, for what is collected while the guest runs.
    pub(super) result_bytes: u64,
    /// None of a call without one.
    pub(super) journal: Option<Box<CallJournal>>,
    limiter: Limiter,
    pub(super) table: ResourceTable,
    clock: Clock,
    /// Made when the guest first looks at the world: many never do.
    wasi: Option<WasiCtx>,
    http: WasiHttpCtx,
    pub(super) egress: Egress,
}

impl Call {
    /// The state of a call before its first instruction. It is large, and passed on several times.
    pub(super) fn new(
        plugin: Arc<str>,
        granted: Arc<Granted>,
        facts: CallContext,
        limits: &CallLimits,
        shared: Arc<CallState>,
        outbox: Outbox,
        Surroundings { tenant, quotas, blocking, program, journal }: Surroundings<'_>,
    ) -> Result<Box<Self>, HostFailure> {
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(HTTP_FIELD_BYTES_MAX);
        let outside = facts.outside.as_ref().filter(|_| journal.is_none());
        let clock = Clock::start(outside.and_then(|outside| outside.unix_ms()));
        let mut wasi = None;
        let mut rooms = DirectoryQuotas::default();
        if !granted.directories.is_empty() {
            let heard = journal.as_ref().map(|_| outbox.clone());
            let mut world = world(&plugin, &granted, &facts, clock, program.as_ref(), &shared.stderr, heard);
            rooms = files::open(&mut world, &granted.directories, tenant, quotas, &blocking)?;
            wasi = Some(world.build());
        }
        let denials = Denials::new(plugin, granted, outbox.clone());
        let mut egress = Egress::new(denials.clone(), &facts, blocking.clone());
        let memory = match &journal {
            Some(journal) => {
                egress.buffer(true);
                if journal.is_replaying() {
                    outbox.set_silent(true);
                }
                journal.memory()
            }
            None => Arc::new(MemoryUse::new(limits.memory_bytes)),
        };
        Ok(Box::new(Self {
            clock,
            wasi,
            egress,
            journal,
            limiter: Limiter::new(memory),
            facts,
            shared,
            outbox,
            denials,
            blocking,
            rooms,
            ids_drawn: 0,
            detach_settled: false,
            program,
            result_bytes: limits.result_bytes,
            table: resource_table(),
            http,
        }))
    }

    /// Whether an earlier run of the call did already what the guest does now.
    pub(super) fn is_replaying(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.is_replaying())
    }

    /// Lets go of everything that the guest holds of the host; it must not run any more.
    pub(super) fn drop_resources(&mut self) {
        self.table = resource_table();
    }

    /// A store for it, with every limit set.
    pub(super) fn into_store(self: Box<Self>, engine: &GuestEngine, limits: &CallLimits) -> wasmtime::Store<Self> {
        let mut store = wasmtime::Store::new(&engine.engine, *self);
        store.limiter(|call| &mut call.limiter);
        store.set_max_component_handles(COMPONENT_HANDLES_MAX);
        if let Some(pending) = store.concurrent_resource_table() {
            pending.set_max_capacity(PENDING_MAX);
        }
        store.set_hostcall_fuel(usize::try_from(passed_max(limits)).unwrap_or(usize::MAX));
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|store| {
            let shared = Arc::clone(&store.data().shared);
            let turn = async move {
                tokio::task::yield_now().await;
                shared.turn().await;
            };
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(turn)))
        });
        store
    }
}

/// An empty one, for as much as a guest may hold of the host.
fn resource_table() -> ResourceTable {
    let mut table = ResourceTable::new();
    table.set_max_capacity(HOST_RESOURCES_MAX);
    table
}

/// What the guest sees of the world: what was granted, and nothing else. Its directories have to be opened yet.
fn world(
    plugin: &Arc<str>,
    granted: &Granted,
    facts: &CallContext,
    clock: Clock,
    program: Option<&Program>,
    stderr: &StderrTail,
    heard: Option<Outbox>,
) -> WasiCtxBuilder {
    let mut world = WasiCtx::builder();
    world
        .wall_clock(clock)
        .monotonic_clock(clock)
        .secure_random(random(facts.seed, Stream::Secure))
        .insecure_random(random(facts.seed, Stream::Insecure))
        .insecure_random_seed(u128::from_le_bytes(facts.call_id.0))
        .max_random_size(RANDOM_BYTES_MAX)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .envs(&granted.environment);
    match program {
        Some(program) => program.set_up(&mut world, heard),
        None => {
            let printed = |stream| Printed::beside(Arc::clone(plugin), stream, heard.clone());
            world.stdout(printed("stdout")).stderr(printed("stderr").keeping(stderr.clone()));
        }
    }
    world
}

impl WasiView for Call {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let Self { wasi, table, denials, facts, clock, program, journal, outbox, shared, .. } = self;
        let wasi = wasi.get_or_insert_with(|| {
            let heard = journal.as_ref().map(|_| outbox.clone());
            world(denials.plugin(), denials.granted(), facts, *clock, program.as_ref(), &shared.stderr, heard).build()
        });
        WasiCtxView { ctx: wasi, table }
    }
}

impl WasiHttpView for Call {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.egress, table: &mut self.table, ctx: &mut self.http }
    }
}

/// Runs a call to its end and says how it ended, last of all.
pub(super) async fn run(
    ground: Arc<HostContext>,
    plugin: InFlight,
    mut spec: CallSpec,
    shared: Arc<CallState>,
    outbox: Outbox,
) {
    let span = shared.span.clone();
    let tool = plugin.entry(&spec.operation);
    // Nobody called what is only checked.
    let counted = (!spec.journaling.is_check())
        .then(|| CountedCall::begin(&plugin, tool.map(|entry| &**entry), spec.activity.take(), &shared));
    let call = async {
        let result = execute(&ground, (&plugin, tool), spec, shared, &outbox).await;
        match counted {
            Some(counted) => counted.with(result),
            None => result,
        }
    };
    let call = AssertUnwindSafe(call).catch_unwind();
    let outcome = tokio::select! {
        biased;
        outcome = call => {
            outcome.unwrap_or_else(|_| Err(fault::internal(&plugin.name, "the host panicked in a call")))
        }
        () = plugin.when_withdrawn() => Err(fault::withdrawn()),
    };
    if let Some(span) = span {
        if let Err(error) = &outcome {
            span.fail(error.type_name());
        }
        span.end();
    }
    // What comes now is the receiver's time.
    drop(plugin);
    outbox.finish(CallEvent::Finished(outcome)).await;
}

async fn execute(
    ground: &HostContext,
    (plugin, entry): (&Plugin, Option<&Arc<ToolEntry>>),
    spec: CallSpec,
    shared: Arc<CallState>,
    outbox: &Outbox,
) -> Result<Returned, CallError> {
    let CallSpec { plugin: version, operation, mut limits, facts, tenant, share, journaling, .. } = spec;
    let (bytes, bytes_max) = operation.size();
    let bytes_max = bytes_max.min(limits.arguments_bytes);
    if bytes > bytes_max {
        return Err(CallError::InvalidParams(format!("the arguments are larger than {}", Bytes(bytes_max))));
    }
    let span = shared.span.clone();
    let stderr = shared.stderr.clone();
    let name = Arc::clone(&plugin.name);
    let operation = Arc::new(operation);
    let mut granted = Arc::clone(plugin.granted.of(tenant));
    let mut journal = None;
    if !matches!(journaling, Journaling::Off) {
        let beginning = Beginning {
            component: version.digest,
            engine: ground.engines.plain().hash,
            kind: ground.engines.behind(plugin.instance.component().engine()).kind,
            operation: &operation,
            limits: &limits,
            granted: &granted,
            facts: &facts,
        };
        let begun = beginning.begin(journaling, &shared).map_err(|divergence| fault::diverged(&name, &divergence))?;
        journal = begun.journal;
        if let Some(pinned) = begun.pinned {
            (limits, granted) = (pinned.limits, pinned.granted);
        }
        if let Some(sink) = begun.unused
            && let Err(Fenced) = sink.give_up(shared.why_not_journaled()).await
        {
            return Err(CallError::Interrupted);
        }
    }
    let line = ground.lines.of(tenant, &share);
    let blocking = Blocking::of(&ground.blocking, tenant);
    let owner = tenant;
    let tenant = match &ground.names {
        Some(names) if granted.directories.iter().any(DirGrant::is_per_tenant) => names.name(tenant).await,
        _ => None,
    };
    let program = plugin.exports.program(&operation, &name, &limits)?;
    let around =
        Surroundings { tenant: tenant.as_deref(), quotas: &ground.quotas, blocking, program: program.clone(), journal };
    let mut call = Call::new(name, granted, facts, &limits, shared, outbox.clone(), around)
        .map_err(|failure| fault::internal(&plugin.name, &failure.0))?;
    call.egress.share(line);
    call.egress.record(span);
    call.egress.count(plugin.metrics.clone());
    let exports = Arc::clone(&plugin.exports);
    let denials = call.denials.clone();
    let returned = visit(ground, &plugin.instance, Some(owner), call, &limits, move |store, instance| {
        Box::pin(async move {
            let returned = exports.perform(&mut *store, &instance, &operation).await;
            let call = store.data_mut();
            if call.journal.is_some() {
                call.end_journal(|| journal::outcome_of(&returned))?;
            }
            returned
        })
    });
    let outcome = returned.await.and_then(|returned| match returned {
        Ok(raw) => output::returned(raw, limits.result_bytes, entry.and_then(|entry| entry.output.as_ref())),
        Err(refusal) => Err(output::refusal(&plugin.name, limits.result_bytes, refusal)),
    });
    denials.name_in(outcome.map_err(|error| with_stderr(error, plugin, program.as_ref(), &stderr)))
}

/// A guest that crashes says why on standard error: the operator's log has the end of it. A caller is told of components that cannot say it
/// in another way: what is kept of a program's, and the last line of a typed function's.
fn with_stderr(error: CallError, plugin: &Plugin, program: Option<&Program>, stderr: &StderrTail) -> CallError {
    let CallError::Fault { kind: FaultKind::Trap, reason } = error else { return error };
    let stderr = program.map_or_else(|| stderr.clone(), Program::stderr);
    let Some(line) = stderr.line() else { return CallError::Fault { kind: FaultKind::Trap, reason } };
    fault::log_crash(&plugin.name, &line);
    let told = match program {
        Some(_) => Some(line),
        None => stderr.last_line().filter(|_| plugin.exports.is_typed()),
    };
    let reason = match told {
        Some(told) => fault::cut(format!("{reason}; the end of its standard error: {told}")),
        None => reason,
    };
    CallError::Fault { kind: FaultKind::Trap, reason }
}

/// The one way into a guest: a fresh store and instance under every limit, watched from outside, and dropped at the end. Waiting for a
/// place is the call's own time: tenants that take all of them cannot have another one wait longer than its calls may take.
pub(super) async fn visit<T: Send>(
    ground: &HostContext,
    component: &InstancePre<Call>,
    tenant: Option<TenantId>,
    call: Box<Call>,
    limits: &CallLimits,
    body: impl for<'a> FnOnce(&'a mut wasmtime::Store<Call>, Instance) -> BoxFuture<'a, wasmtime::Result<T>> + Send,
) -> Result<T, CallError> {
    let engine = ground.engines.behind(component.engine());
    let denials = call.denials.clone();
    let shared = Arc::clone(&call.shared);
    let outbox = call.outbox.clone();
    let recorded = Arc::clone(&shared);
    let has_begun = AtomicBool::new(false);
    let guest = async {
        // Dropped after the store, which takes the place.
        let _slot = engine.slots.acquire(tenant).await;
        has_begun.store(true, Ordering::Relaxed);
        let mut store = call.into_store(engine, limits);
        let returned = match component.instantiate_async(&mut store).await {
            Ok(instance) => body(&mut store, instance).await,
            Err(error) => Err(error),
        };
        // Of a guest that was stopped nobody asks any more.
        if let Some(span) = &recorded.span {
            let bytes = store.data().limiter.memory_bytes();
            span.set("bulkhead.memory_bytes", i64::try_from(bytes).unwrap_or(i64::MAX));
        }
        returned
    };
    let returned = Supervised::new(Box::pin(guest), shared, outbox, limits).await;
    if let Some(span) = &recorded.span {
        span.set("bulkhead.cpu_ms", i64::try_from(recorded.cpu().as_millis()).unwrap_or(i64::MAX));
    }
    let waited_for = (!has_begun.load(Ordering::Relaxed)).then_some(&engine.slots);
    let returned = returned.map_err(|stopped| stopped_because(stopped, limits, waited_for))?;
    returned.map_err(|error| fault::classify(denials.plugin(), &error, passed_max(limits)))
}

/// Bytes that a guest may pass to the host at once. Text counts once and lists count by element, so twice the result is enough for
/// everything that may pass.
fn passed_max(limits: &CallLimits) -> u64 {
    limits.result_bytes.max(limits.log_bytes).saturating_mul(2).saturating_add(HOSTCALL_BYTES_BASE)
}

/// The public reason of a call that was stopped from outside, maybe while it still waited for a place.
fn stopped_because(stopped: Stopped, limits: &CallLimits, waited_for: Option<&CallSlots>) -> CallError {
    match stopped {
        Stopped::Cpu => fault::limit(format!("the tool used more than its {} of CPU time", Time(limits.cpu_ms))),
        Stopped::Wall => CallError::Fault {
            kind: FaultKind::Deadline,
            reason: match waited_for {
                Some(slots) => format!("the tool could not begin within {}: {slots}", Time(limits.wall_ms)),
                None => format!("the tool did not finish within {}", Time(limits.wall_ms)),
            },
        },
    }
}

/// Milliseconds for people.
struct Time(u64);

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 >= 1000 && self.0.is_multiple_of(1000) {
            write!(f, "{} s", Duration::from_millis(self.0).as_secs())
        } else {
            write!(f, "{} ms", self.0)
        }
    }
}
