//! The way of a call through the sandbox, from its beginning to its one result.
//!
//! Owns the order of the steps: journal, grants, store, guest, what it returned. What a call holds meanwhile is
//! `call`'s.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use wasmtime::component::{Instance, InstancePre};

use super::bindings::bulkhead::plugin::types as wit;
use super::blocking::Blocking;
use super::call::{Call, Surroundings, end_turn, passed_max};
use super::call_state::CallState;
use super::counted_call::CountedCall;
use super::denials::Denials;
use super::engines::{CallSlots, GuestEngine};
use super::events::Outbox;
use super::exports::RawOutput;
use super::fault;
use super::host_context::HostContext;
use super::journal::{self, Beginning};
use super::last_words::LastWords;
use super::output;
use super::plugin::{InFlight, Plugin};
use super::programs::Program;
use super::programs::mcp::{self, Conversation, McpServer, Rooms};
use super::supervise::{Stopped, Supervised};
use super::wasi_context::StderrTail;
use bulkhead_calls::policy::DirGrant;
use bulkhead_calls::{CallEvent, CallSpec, Fenced, Journaling, Operation, Returned, ToolEntry};
use bulkhead_domain::call::{CallError, FaultKind};
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::server_features::Resource;
use bulkhead_domain::text::Bytes;

/// Runs a call to its end and says how it ended, last of all.
pub(super) async fn run(
    host_context: Arc<HostContext>,
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
    let call = AssertUnwindSafe(async {
        let result = match plugin.carried(&spec.operation) {
            Some(returned) => Ok(returned),
            None => execute(&host_context, &plugin, tool, spec, shared, &outbox).await,
        };
        match counted {
            Some(counted) => counted.with(result),
            None => result,
        }
    });
    let outcome = {
        // It is large: what is pinned here is not copied again.
        let call = pin!(call.catch_unwind());
        tokio::select! {
            biased;
            outcome = call => {
                outcome.unwrap_or_else(|_| Err(fault::internal(&plugin.name, "the host panicked in a call")))
            }
            () = plugin.when_withdrawn() => Err(fault::withdrawn()),
        }
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
    host_context: &HostContext,
    plugin: &Plugin,
    entry: Option<&Arc<ToolEntry>>,
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
    if !plugin.views.prefix().is_empty() {
        outbox.set_view_prefix(plugin.views.prefix());
    }
    let operation = plugin.views.inward(operation).map(Arc::new);
    let operation = operation.ok_or_else(|| CallError::NotFound("the plugin has no such view".to_owned()))?;
    let carried = plugin.carried_resources(&operation);
    let mut granted = Arc::clone(plugin.granted.of(tenant));
    let mut journal = None;
    if !matches!(journaling, Journaling::Off) {
        let beginning = Beginning {
            component: version.digest,
            engine: host_context.engines.plain().hash,
            kind: plugin.engine.kind,
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
    let request_quota = host_context.request_quotas.of(tenant, &share);
    let blocking = Blocking::of(&host_context.blocking, tenant);
    let owner = tenant;
    let tenant = match &host_context.names {
        Some(names) if granted.directories.iter().any(DirGrant::is_per_tenant) => names.name(tenant).await,
        _ => None,
    };
    let last_words = LastWords::new(Arc::clone(&granted), plugin.stderr_in_results);
    let program = match &plugin.server {
        Some(_) => None,
        None => plugin.exports.program(&operation, &name, &limits, &last_words)?,
    };
    let around = Surroundings {
        tenant: tenant.as_deref(),
        quotas: &host_context.quotas,
        blocking,
        program: program.clone(),
        conversation: conversation(plugin),
        journal,
    };
    let mut call = Call::new(name, granted, facts, &limits, shared, outbox.clone(), around)
        .map_err(|failure| fault::internal(&plugin.name, &failure.0))?;
    call.egress.share(request_quota);
    call.egress.record(span);
    call.egress.count(plugin.metrics.clone());
    let denials = call.denials.clone();
    let returned = match &plugin.server {
        Some(server) => serve(&plugin.engine, plugin, server, &operation, owner, call, &limits).await,
        None => {
            let exports = Arc::clone(&plugin.exports);
            let returned =
                visit(&plugin.engine, &plugin.instance, Some(owner), call, &limits, move |store, instance| {
                    Box::pin(async move {
                        let returned = exports.perform(&mut *store, &instance, &operation).await;
                        let call = store.data_mut();
                        if call.journal.is_some() {
                            call.end_journal(|| journal::outcome_of(&returned))?;
                        }
                        returned
                    })
                });
            returned.await
        }
    };
    // The thread of a request has other requests to read.
    if matches!(&returned, Ok(Ok(raw)) if output::is_large(raw)) {
        end_turn().await;
    }
    let outcome = returned.and_then(|returned| match returned {
        Ok(raw) => {
            let schema = entry.and_then(|entry| entry.output.as_ref());
            let mut returned = output::returned(raw, limits.result_bytes, schema)?;
            plugin.views.outward(&mut returned);
            put_first(&mut returned, carried);
            Ok(returned)
        }
        Err(refusal) => Err(output::refusal(&plugin.name, limits.result_bytes, refusal)),
    });
    denials
        .name_in(outcome.map_err(|error| with_last_words(error, &plugin.name, &stderr, program.as_ref(), &last_words)))
}

/// Has a page of resources begin with these.
fn put_first(returned: &mut Returned, resources: Vec<Resource>) {
    if let Returned::Resources(page) = returned {
        page.items.splice(0..0, resources);
    }
}

/// A guest that crashes says why on standard error: the operator's log has the end of it. Callers who may see it are
/// shown all that is kept of a command's, and the last line of any other's.
fn with_last_words(
    error: CallError,
    plugin: &str,
    stderr: &StderrTail,
    program: Option<&Program>,
    last_words: &LastWords,
) -> CallError {
    let CallError::Fault { kind: FaultKind::Trap, reason } = error else { return error };
    let stderr = program.map_or_else(|| stderr.clone(), Program::stderr);
    if let Some(line) = last_words.line(&stderr) {
        fault::log_crash(plugin, &line);
    }
    let shown = match program {
        Some(_) => last_words.line_for_caller(&stderr),
        None => last_words.last_line_for_caller(&stderr),
    };
    let reason = match shown {
        Some(shown) => fault::cut(format!("{reason}; the end of its standard error: {shown}")),
        None => reason,
    };
    CallError::Fault { kind: FaultKind::Trap, reason }
}

/// The one way into a guest: a fresh store and instance under every limit, watched from outside, and dropped at the
/// end. Waiting for a place is the call's own time: tenants that take all of them cannot have another one wait longer
/// than its calls may take.
pub(super) async fn visit<T: Send>(
    engine: &GuestEngine,
    component: &InstancePre<Call>,
    tenant: Option<TenantId>,
    call: Box<Call>,
    limits: &CallLimits,
    body: impl for<'a> FnOnce(&'a mut wasmtime::Store<Call>, Instance) -> BoxFuture<'a, wasmtime::Result<T>> + Send,
) -> Result<T, CallError> {
    let watch = Watch::of(&call);
    let recorded = Arc::clone(&call.shared);
    let guest = async {
        // Dropped after the store, which takes the place.
        let _slot = engine.slots.acquire(tenant).await;
        watch.has_begun.store(true, Ordering::Relaxed);
        let mut store = call.into_store(&engine.engine, limits);
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
    watch.over(Box::pin(guest), &engine.slots, limits).await
}

/// The streams of an MCP server that answers over standard output.
fn conversation(plugin: &Plugin) -> Option<Conversation> {
    plugin.server.as_ref().filter(|server| server.path.is_none()).map(|_| Conversation::default())
}

/// Has an MCP server do what an operation says, in as many instances as that takes.
async fn serve(
    engine: &GuestEngine,
    plugin: &Plugin,
    server: &McpServer,
    operation: &Operation,
    tenant: TenantId,
    call: Box<Call>,
    limits: &CallLimits,
) -> Result<Result<RawOutput, wit::CallError>, CallError> {
    let entry_point = plugin.exports.programs().and_then(|programs| programs.entry_point(server.path.is_some()));
    let entry_point = entry_point.ok_or_else(|| fault::internal(&plugin.name, "an MCP server that cannot answer"))?;
    let watch = Watch::of(&call);
    let rooms = Rooms {
        engine,
        component: &plugin.instance,
        entry_point,
        tenant: Some(tenant),
        limits,
        has_begun: &watch.has_begun,
    };
    let entry = plugin.entry(operation).map(|entry| &**entry);
    let guest = mcp::perform(rooms, server, entry, operation, call);
    watch.over(Box::pin(guest), &engine.slots, limits).await
}

/// What is seen of a call from outside.
struct Watch {
    denials: Denials,
    shared: Arc<CallState>,
    outbox: Outbox,
    /// Whether it has had a place.
    has_begun: AtomicBool,
}

impl Watch {
    fn of(call: &Call) -> Self {
        let denials = call.denials.clone();
        let shared = Arc::clone(&call.shared);
        let outbox = call.outbox.clone();
        Self { denials, shared, outbox, has_begun: AtomicBool::new(false) }
    }

    /// Runs a guest within its budgets, and says why it ended if it was not by itself.
    async fn over<T>(
        &self,
        guest: BoxFuture<'_, wasmtime::Result<T>>,
        slots: &CallSlots,
        limits: &CallLimits,
    ) -> Result<T, CallError> {
        let returned = Supervised::new(guest, Arc::clone(&self.shared), self.outbox.clone(), limits).await;
        if let Some(span) = &self.shared.span {
            span.set("bulkhead.cpu_ms", i64::try_from(self.shared.cpu().as_millis()).unwrap_or(i64::MAX));
        }
        let waited_for = (!self.has_begun.load(Ordering::Relaxed)).then_some(slots);
        let returned = returned.map_err(|stopped| stopped_because(stopped, limits, waited_for))?;
        returned.map_err(|error| fault::classify(self.denials.plugin(), &error, passed_max(limits)))
    }
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
