//! What a requestor, a tenant and one call may use, in plain numbers.
//!
//! The names are those of the configuration; defaults and maxima live there.

use std::collections::HashMap;
use std::sync::Arc;

use super::requestor::{Requestor, TenantId};

/// `[limits]`: for one requestor unless the name says tenant or total.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Running calls, plain ones and tasks together.
    pub calls_running_per_requestor: u32,
    pub calls_running_per_tenant: u32,
    /// Also the size of the instance pool.
    pub calls_running_total: u32,
    /// How long a plain call waits for a permit.
    pub call_queue_ms_max: u64,
    /// Plain calls that wait for a permit: a client holds a connection open for each.
    pub calls_queued_per_requestor: u32,
    pub calls_queued_per_tenant: u32,
    pub calls_queued_total: u32,
    /// Fewer than the calls, so that tasks leave places to plain calls.
    pub tasks_running_per_requestor: u32,
    pub tasks_running_per_tenant: u32,
    pub tasks_queued_per_requestor: u32,
    pub tasks_queued_per_tenant: u32,
    pub tasks_queued_total: u32,
    /// Calls that hold an instance without running: asked, sleeping or parked.
    pub tasks_waiting_per_requestor: u32,
    pub tasks_waiting_per_tenant: u32,
    pub tasks_paused_per_requestor: u32,
    pub tasks_paused_per_tenant: u32,
    /// Waiting and paused ones together, since each holds an instance.
    pub calls_resting_per_tenant: u32,
    pub calls_resting_total: u32,
    /// Durable tasks that rest in memory; above it, those that rest longest leave it.
    pub tasks_resident_total: u32,
    /// A durable task that has rested so long leaves memory.
    pub task_evict_after_ms: u64,
    /// Processor time of a call above which its task stays in memory: it would be used again.
    pub task_evict_cpu_ms: u64,
    pub tasks_stored_per_requestor: u32,
    pub tasks_stored_bytes_per_requestor: u64,
    pub tasks_stored_per_tenant: u32,
    pub tasks_stored_bytes_per_tenant: u64,
    /// With a burst of twice this, like the other rates.
    pub requests_per_second: u32,
    pub requests_per_second_per_tenant: u32,
    /// Bytes of large bodies.
    pub request_bytes_per_second: u32,
    pub request_bytes_per_second_per_tenant: u32,
    pub task_creations_per_second: u32,
    pub task_creations_per_second_per_tenant: u32,
    /// Over HTTP and stdio, streams and subscriptions among them.
    pub requests_open_per_requestor: u32,
    pub requests_open_per_tenant: u32,
    pub requests_open_total: u32,
    /// Of large bodies, from before they are read until nothing needs them.
    pub request_bytes_open_per_requestor: u64,
    pub request_bytes_open_per_tenant: u64,
    pub request_bytes_open_total: u64,
    /// The limit for one requestor is one of the server's.
    pub sessions_per_tenant: u32,
    pub sessions_total: u32,
    /// That tokens of issuers may bring in.
    pub requestors_per_tenant: u32,
    pub requestor_creations_per_second_per_tenant: u32,
    pub tenants_total: u32,
    /// Kept for streams that may be resumed.
    pub event_bytes_per_requestor: u64,
    pub event_bytes_per_tenant: u64,
    pub event_bytes_total: u64,
    /// Of large answers, until they are written.
    pub answer_bytes_per_requestor: u64,
    pub answer_bytes_per_tenant: u64,
    pub answer_bytes_total: u64,
    pub ttl_ms_default: u64,
    pub ttl_ms_max: u64,
    /// Whether a client may ask for a task that never expires.
    pub ttl_unlimited: bool,
    /// Messages waiting for one task.
    pub steer_queue: u32,
    pub steer_bytes_max: u32,
    /// Failed task look-ups before the requestor is blocked.
    pub failed_lookups_per_minute: u32,
    /// 0: never blocked.
    pub failed_lookups_block_ms: u64,
    /// Polls long before the interval, before it is noted.
    pub early_polls_per_minute: u32,
}

/// The limits of the configuration, and those of tenants that have some of their own.
#[derive(Clone, Debug)]
pub struct LimitsTable {
    pub base: Arc<Limits>,
    /// Complete: what a tenant's section does not say is that of the base.
    pub tenants: HashMap<TenantId, Arc<Limits>>,
}

impl LimitsTable {
    /// Those that hold for a requestor.
    pub fn of(&self, requestor: &Requestor) -> &Arc<Limits> {
        self.tenants.get(&requestor.tenant).unwrap_or(&self.base)
    }
}

impl From<Limits> for LimitsTable {
    /// The same limits for all tenants.
    fn from(limits: Limits) -> Self {
        Self { base: Arc::new(limits), tenants: HashMap::new() }
    }
}

/// The most that one tenant may weigh against another when the processors are shared out.
pub const CPU_WEIGHT_MAX: u32 = 1_000;

/// `[call]`: for one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// Counts while the guest computes.
    pub cpu_ms: u64,
    /// Stops while the call waits or is paused.
    pub wall_ms: u64,
    /// Sum of all linear memories.
    pub memory_bytes: u64,
    pub arguments_bytes: u64,
    pub result_bytes: u64,
    pub log_bytes: u64,
    /// Progress, status and log together; more are merged.
    pub events_per_second: u32,
    pub promote_after_ms: u64,
    /// Between the cancel signal and the end of the sandbox, for a guest that has ever asked for signals.
    pub cancel_grace_ms: u64,
    pub epoch_tick_ms: u64,
    /// Of a durable task's journal; a longer one is given up.
    pub journal_bytes: u64,
    pub journal_entries: u32,
    /// Of one HTTP response that a journal keeps; a longer one gives the journal up.
    pub journal_response_bytes: u64,
}

/// `[compile]`: for one component, before it is machine code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileLimits {
    /// What the compiler may take.
    pub memory_bytes: u64,
    /// Processor time, over all its threads.
    pub cpu_ms: u64,
    /// Over all modules of a component.
    pub functions_max: u32,
}

/// `[plugin.kv]`: what one plugin may keep in one tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValueLimits {
    pub keys_max: u32,
    /// Keys and values together.
    pub bytes_max: u64,
    pub value_bytes_max: u64,
}
