//! What the store of one call holds: the state of the call, its limits, and its view of the world.
//!
//! Owns data and the ways to it. Must not know how a call is run, nor what its plugin exports.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use wasmtime::UpdateDeadline;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use super::blocking::Blocking;
use super::call_state::CallState;
use super::denials::Denials;
use super::egress::Egress;
use super::events::Outbox;
use super::files::{self, DirectoryQuotas, Quotas};
use super::journal::CallJournal;
use super::limits::{
    COMPONENT_HANDLES_MAX, HOST_RESOURCES_MAX, HOSTCALL_BYTES_BASE, HTTP_FIELD_BYTES_MAX, Limiter, MemoryUse,
    PENDING_MAX, RANDOM_BYTES_MAX,
};
use super::programs::Program;
use super::programs::mcp::Conversation;
use super::trap_causes::HostFailure;
use super::wasi_context::{Clock, Printed, StderrTail, Stream, random};
use crate::granted::Granted;
use bulkhead_calls::CallContext;
use bulkhead_domain::limits::CallLimits;

/// What a call has around it besides its grants.
pub(super) struct Surroundings<'a> {
    /// The tenant's name, where a directory needs it.
    pub(super) tenant: Option<&'a str>,
    pub(super) quotas: &'a Quotas,
    pub(super) blocking: Blocking,
    /// The arguments and streams of a command.
    pub(super) program: Option<Program>,
    /// Standard input and output of an MCP server.
    pub(super) conversation: Option<Conversation>,
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
    pub(super) directory_quotas: DirectoryQuotas,
    /// How many ids the host has drawn for this call.
    pub(super) ids_drawn: u64,
    /// Whether the guest's wish to become a task was already decided.
    pub(super) detach_settled: bool,
    /// Of a call that runs a command.
    pub(super) program: Option<Program>,
    /// Of a call of an MCP server that is a command.
    pub(super) conversation: Option<Conversation>,
    /// Bytes of the result, for what is collected while the guest runs.
    pub(super) result_bytes: u64,
    /// None of a call without one.
    pub(super) journal: Option<Box<CallJournal>>,
    pub(super) limiter: Limiter,
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
        Surroundings { tenant, quotas, blocking, program, conversation, journal }: Surroundings<'_>,
    ) -> Result<Box<Self>, HostFailure> {
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(HTTP_FIELD_BYTES_MAX);
        let outside = facts.outside.as_ref().filter(|_| journal.is_none());
        let clock = Clock::start(outside.and_then(|outside| outside.unix_ms()));
        let mut wasi = None;
        let mut directory_quotas = DirectoryQuotas::default();
        if !granted.directories.is_empty() {
            let heard = journal.as_ref().map(|_| outbox.clone());
            let streams = Streams { program: program.as_ref(), conversation: conversation.as_ref() };
            let mut world = world(&plugin, &granted, &facts, clock, streams, &shared.stderr, heard);
            directory_quotas = files::open(&mut world, &granted.directories, tenant, quotas, &blocking)?;
            wasi = Some(world.build());
        }
        let ids_drawn = journal.as_ref().map_or(0, |journal| journal.ids_drawn_before());
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
            directory_quotas,
            ids_drawn,
            detach_settled: false,
            program,
            conversation,
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

    /// Leaves nothing of an instance that is gone to the next one of the same call.
    pub(super) fn forget_instance(&mut self) {
        self.drop_resources();
        self.limiter = self.limiter.renewed();
    }

    /// A store for it, with every limit set.
    pub(super) fn into_store(self: Box<Self>, engine: &wasmtime::Engine, limits: &CallLimits) -> wasmtime::Store<Self> {
        let mut store = wasmtime::Store::new(engine, *self);
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
                end_turn().await;
                shared.turn().await;
            };
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(turn)))
        });
        store
    }
}

/// Pending once, and ready to go on at once. Tokio's `yield_now` would wait for the runtime of a thread that read a
/// request.
pub(super) async fn end_turn() {
    let mut is_over = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut is_over, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// An empty one, for as much as a guest may hold of the host.
fn resource_table() -> ResourceTable {
    let mut table = ResourceTable::new();
    table.set_max_capacity(HOST_RESOURCES_MAX);
    table
}

/// What its standard streams lead to, if not to the operator's log.
struct Streams<'a> {
    program: Option<&'a Program>,
    conversation: Option<&'a Conversation>,
}

/// What the guest sees of the world: what was granted, and nothing else. Its directories have to be opened yet.
fn world(
    plugin: &Arc<str>,
    granted: &Granted,
    facts: &CallContext,
    clock: Clock,
    Streams { program, conversation }: Streams<'_>,
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
            if let Some(conversation) = conversation {
                world.args(&[plugin]).stdin(conversation.clone()).stdout(conversation.clone());
            }
        }
    }
    world
}

impl WasiView for Call {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let Self { wasi, table, denials, facts, clock, program, conversation, journal, outbox, shared, .. } = self;
        let wasi = wasi.get_or_insert_with(|| {
            let heard = journal.as_ref().map(|_| outbox.clone());
            let streams = Streams { program: program.as_ref(), conversation: conversation.as_ref() };
            world(denials.plugin(), denials.granted(), facts, *clock, streams, &shared.stderr, heard).build()
        });
        WasiCtxView { ctx: wasi, table }
    }
}

impl WasiHttpView for Call {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.egress, table: &mut self.table, ctx: &mut self.http }
    }
}

/// Bytes that a guest may pass to the host at once. Text counts once and lists count by element, so twice the result is
/// enough for everything that may pass.
pub(super) fn passed_max(limits: &CallLimits) -> u64 {
    limits.result_bytes.max(limits.log_bytes).saturating_mul(2).saturating_add(HOSTCALL_BYTES_BASE)
}
