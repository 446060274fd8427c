//! How tasks come to be, and what a run is told about itself.
//!
//! Invariant: a record and its place among the stored tasks are one atomic write, and nobody hears of a task before that write is
//! durable.
//!
//! A task reserves its share of the stored bytes at admission, not the largest possible output: with the largest one, the defaults for
//! queued and stored tasks would contradict each other. An output beyond the reservation is stored and blocks new tasks until there is
//! room.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::engine::run::drive::{OUTCOME_RETRY, RunStart, outcome};
use crate::engine::{Inner, refused};
use crate::parts::admission::{IdleSlot, IdleState, Permit, Purpose};
use crate::parts::guest_services::TenantServices;
use crate::parts::journal::{Beginning, TaskJournal, Writer};
use crate::{CallRequest, ClientContext, Error, RequestedTtl, TaskNews, TaskRequest, host_failure};
use bulkhead_calls::{CallContext, CallSpec, Journaling, OnDemand, Operation};
use bulkhead_domain::UnixMs;
use bulkhead_domain::lifecycle::{self, Event};
use bulkhead_domain::limits::Limits;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Active, CallId, Origin, Phase, PluginVersion, Retention, Task, TaskId, TaskOutput};
use bulkhead_domain::timeline::Timeline;
use bulkhead_store::{self as store, Creation, Store, StoredCaps};

/// Who waits for the end of a task reads its output after it has ended: a task that were gone with its end could never be answered.
const KEEP_ALIVE_MS_MIN: u64 = 1_000;

/// Polls that a task of usual length should see.
const POLLS_PER_TASK: u64 = 5;
const POLL_INTERVAL_MS_MIN: u64 = 100;
/// What a client is told at most about when to ask again, in milliseconds.
const POLL_INTERVAL_MS_MAX: u64 = 10_000;
/// For a tool that this requestor has not run yet.
const POLL_INTERVAL_MS_DEFAULT: u32 = 500;
/// Poll intervals kept; beyond it everything is learned again, which costs a few polls and bounds the memory.
const POLL_INTERVALS_MAX: usize = 10_000;

/// What tells one run from another.
pub(crate) struct Identity {
    pub(crate) seed: [u8; 32],
    pub(crate) call_id: CallId,
    pub(crate) task_id: Option<TaskId>,
    pub(crate) attempt: u32,
    /// Of a run that keeps one.
    pub(crate) journal: Option<Arc<TaskJournal>>,
}

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(host_failure("randomness", &error)),
    }
}

/// Calls whose randomness a thread fetches at once: a visit to the operating system for each was 4 % of what an echo costs the kernel.
const AHEAD: usize = 32;

/// What every call begins with. Nothing is given out twice.
pub(crate) fn seed_and_id() -> Result<([u8; 32], CallId), Error> {
    thread_local! {
        static DRAWN: RefCell<Vec<[u8; 48]>> = const { RefCell::new(Vec::new()) };
    }
    let bytes = DRAWN.with_borrow_mut(|drawn| {
        if drawn.is_empty() {
            let bytes: [u8; 48 * AHEAD] = random()?;
            drawn.extend(bytes.as_chunks().0);
        }
        drawn.pop().ok_or_else(|| host_failure("randomness", &"there is none"))
    })?;
    match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(seed), Some(id)) => Ok((*seed, CallId(*id))),
        _ => Err(host_failure("randomness", &"there is too little of it")),
    }
}

/// How long tools take, for the poll interval that clients are told. Learned per requestor, never across: how long a tool takes for
/// one says something about what it was asked.
#[derive(Debug, Default)]
pub(crate) struct PollIntervals {
    usual_ms: Mutex<HashMap<(Requestor, String), u64>>,
}

impl PollIntervals {
    pub(crate) fn learn(&self, requestor: &Requestor, tool: &str, took_ms: u64) {
        let mut usual_ms = self.usual_ms.lock();
        if usual_ms.len() >= POLL_INTERVALS_MAX {
            usual_ms.clear();
        }
        let usual = usual_ms.entry((*requestor, tool.to_owned())).or_insert(took_ms);
        *usual = (*usual * 3).saturating_add(took_ms) / 4;
    }

    pub(crate) fn poll_interval_ms(&self, requestor: &Requestor, tool: &str) -> u32 {
        let usual_ms = self.usual_ms.lock().get(&(*requestor, tool.to_owned())).copied();
        usual_ms.map_or(POLL_INTERVAL_MS_DEFAULT, |usual_ms| {
            (usual_ms / POLLS_PER_TASK).clamp(POLL_INTERVAL_MS_MIN, POLL_INTERVAL_MS_MAX) as u32
        })
    }
}

/// When a new task runs.
enum StartOrder {
    Now(Permit),
    Later(IdleSlot),
}

/// How a new task stands.
enum Begin<'a> {
    Queued,
    /// It starts at once.
    Started,
    /// Its call runs already, and has a journal, or none.
    Promoted(Option<&'a mut Writer>),
}

/// A creation that nobody has heard of yet. If its caller goes away in the middle, or the storage fails, it may have been written
/// all the same; nobody would ever run it, so it has to go.
struct UnacknowledgedCreate<'a> {
    store: &'a Arc<dyn Store>,
    requestor: Requestor,
    /// `None` once the caller knows about it, or it is certain that nothing was written.
    id: Option<TaskId>,
}

impl Drop for UnacknowledgedCreate<'_> {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id, tokio::runtime::Handle::try_current()) else { return };
        let store = self.store.clone();
        let requestor = self.requestor;
        runtime.spawn(async move {
            // The store does one thing after the other: this comes after the creation.
            while let Err(error) = store.remove(&requestor, id).await {
                tracing::debug!(task.id = %id, "a creation that nobody knows of cannot be removed yet: {error}");
                tokio::time::sleep(OUTCOME_RETRY).await;
            }
        });
    }
}

impl Inner {
    /// Creates a task and starts or queues its run. `None`: the alias belongs to another task.
    pub(crate) async fn create(
        self: &Arc<Self>,
        requestor: &Requestor,
        request: TaskRequest,
        alias: Option<String>,
    ) -> Result<Option<Arc<Task>>, Error> {
        if let Some(output) = request.job.output() {
            let output = Some(Arc::new(output));
            return self.record(requestor, &request, Begin::Queued, seed_and_id()?, alias, output).await;
        }
        let turn = match self.admission.try_permit(requestor, Purpose::Task) {
            Some(permit) => StartOrder::Now(permit),
            None => {
                let place = self.admission.hold(requestor, IdleState::Queued);
                StartOrder::Later(place.map_err(|full| refused(full, Some(1_000)))?)
            }
        };
        let begin = if let StartOrder::Now(_) = turn { Begin::Started } else { Begin::Queued };
        let (seed, call_id) = seed_and_id()?;
        let missed_notifications = self.watchers.mark();
        let Some(task) = self.record(requestor, &request, begin, (seed, call_id), alias, None).await? else {
            return Ok(None);
        };
        let begin = match turn {
            StartOrder::Now(permit) => RunStart::Running(permit),
            StartOrder::Later(place) => self.queue(requestor, place),
        };
        self.start_run(task.clone(), begin, Some(request.job), missed_notifications).await;
        self.may_expire(&task);
        Ok(Some(task))
    }

    /// Writes the record of a call that runs already.
    pub(crate) async fn record_running(
        &self,
        requestor: &Requestor,
        request: TaskRequest,
        drawn: ([u8; 32], CallId),
        journal: Option<&Arc<TaskJournal>>,
    ) -> Result<Arc<Task>, Error> {
        if self.availability.is_draining() {
            return Err(Error::draining());
        }
        self.availability.take_creation(requestor)?;
        // Until the record is there, nothing that the guest does goes beside its journal.
        let mut writer = match journal {
            Some(journal) => Some(journal.writer().await),
            None => None,
        };
        let begin = Begin::Promoted(writer.as_mut());
        let task = self.record(requestor, &request, begin, drawn, None, None).await?;
        let task = task.ok_or_else(|| host_failure("promoting a call", &"an id was drawn twice"))?;
        self.may_expire(&task);
        Ok(task)
    }

    /// Writes a new record, durable and counted when this returns. `None`: the alias belongs to another task.
    async fn record(
        &self,
        requestor: &Requestor,
        request: &TaskRequest,
        begin: Begin<'_>,
        (seed, call_id): ([u8; 32], CallId),
        alias: Option<String>,
        output: Option<Arc<TaskOutput>>,
    ) -> Result<Option<Arc<Task>>, Error> {
        let limits = self.admission.limits(requestor);
        let now = self.clock.now();
        let work = request.job.work();
        let arguments = request.job.stored();
        let (plugin, result_bytes) = match request.job.first() {
            Some((plugin, result_bytes)) => (plugin.clone(), result_bytes),
            None => (PluginVersion { name: String::new(), digest: [0; 32] }, 0),
        };
        let poll_interval_ms = self.poll_intervals.poll_interval_ms(requestor, work.label());
        let starts = !matches!(begin, Begin::Queued);
        let active = if starts { Active::Running } else { Active::Queued };
        let mut task = Task {
            id: TaskId(random()?),
            requestor: *requestor,
            revision: 0,
            work,
            plugin,
            engine_hash: self.executor.engine_hash(),
            // Of a request that is recorded: a run after a restart goes on with its trace.
            origin: Origin { trace: bulkhead_traces::current().map(|span| span.context()), ..request.origin.clone() },
            arguments_digest: Sha256::digest(arguments.as_str()).into(),
            created_at: now,
            updated_at: now,
            retention: retention(request.ttl, &limits),
            poll_interval_ms,
            phase: Phase::Active(active),
            status_message: (!starts).then(|| "queued".to_owned()),
            inputs: Vec::new(),
            steering: Vec::new(),
            steering_delivered: 0,
            alias,
            seed,
            call_id,
            lease: Some(self.lease()),
            attempt: u32::from(starts),
            related: request.job.related().to_vec(),
            timeline: Timeline::default(),
            holder: None,
            durable: None,
        };
        let mut promoted = None;
        let mut journal = None;
        match begin {
            Begin::Started if request.job.tool().is_some_and(|tool| self.may_keep_journal(tool)) => {
                task.durable = Beginning::of(&task, task.attempt).marker(task.attempt, task.engine_hash);
            }
            Begin::Promoted(Some(writer)) => {
                (task.durable, journal) = writer.promoted(task.attempt, task.engine_hash).unzip();
                promoted = journal.clone().map(|append| (writer, append));
            }
            Begin::Queued | Begin::Started | Begin::Promoted(None) => {}
        }
        let caps = self.stored_caps(requestor);
        if let Some(output) = &output {
            task = over_at_once(&task, output, now)?;
        }
        let creation = Creation {
            task,
            arguments: arguments.clone(),
            output: output.clone(),
            reserved_bytes: self.reserved_bytes(requestor, result_bytes),
            caps,
            journal,
        };
        let mut unheard =
            UnacknowledgedCreate { store: &self.store, requestor: *requestor, id: Some(creation.task.id) };
        let created = self.store.create(creation).await;
        if !matches!(created, Err(store::Error::Engine(_))) {
            unheard.id = None;
        }
        match created {
            Ok(task) => {
                if let Some((writer, append)) = promoted {
                    writer.moved(&task, &append, caps);
                }
                self.note_created(&task, arguments.as_str());
                self.watchers.publish(requestor, task.id, &TaskNews::Created(task.id));
                if task.outcome().is_some() {
                    self.note_completed(&task, output.as_deref());
                }
                Ok(Some(Arc::new(task)))
            }
            Err(store::Error::Exists) => Ok(None),
            Err(error) => Err(self.store_error(error)),
        }
    }

    pub(crate) fn spec(&self, requestor: &Requestor, request: &CallRequest, identity: Identity) -> CallSpec {
        let tool = request.tool.plugin_tool.clone();
        let arguments = request.arguments.clone();
        let (share, activity) = self.shares.for_call(requestor);
        CallSpec {
            plugin: request.tool.plugin.clone(),
            tenant: requestor.tenant,
            operation: Operation::CallTool { tool, arguments },
            limits: request.tool.limits.clone(),
            share,
            activity,
            facts: self.facts(requestor, request.client, identity, &request.related),
            journaling: Journaling::Off,
        }
    }

    /// What a guest may know about its call, and what it may use in it.
    pub(crate) fn facts(
        &self,
        requestor: &Requestor,
        client: ClientContext,
        identity: Identity,
        related: &[TaskId],
    ) -> CallContext {
        let Identity { seed, call_id, task_id, attempt, journal } = identity;
        let all = Arc::clone(&self.service_stores);
        let guest_services = TenantServices { tenant: requestor.tenant, all, journal };
        CallContext {
            call_id,
            task_id: task_id.map(|id| id.to_string()),
            attempt,
            idempotency_key: OnDemand::Made { of: seed, by: idempotency_key },
            requestor_alias: OnDemand::Made { of: ids(requestor), by: requestor_alias },
            features: client.features,
            log_level: client.log_level,
            related_tasks: related.iter().map(TaskId::to_string).collect(),
            seed,
            wants_progress: client.wants_progress,
            guest_services: Some(Arc::new(guest_services)),
            outside: None,
        }
    }

    /// What a task reserves for its output: never more than its share when every place for an unfinished task is taken, so that
    /// the numbers of the configuration can all be reached. A larger output (up to `result_bytes`) is stored all the same and
    /// blocks new tasks until there is room.
    fn reserved_bytes(&self, requestor: &Requestor, result_bytes: u64) -> u64 {
        let limits = self.admission.limits(requestor);
        let places = u64::from(limits.tasks_running_per_requestor)
            + u64::from(limits.tasks_queued_per_requestor)
            + u64::from(limits.tasks_waiting_per_requestor)
            + u64::from(limits.tasks_paused_per_requestor);
        result_bytes.min(limits.tasks_stored_bytes_per_requestor / 2 / places.max(1))
    }

    pub(crate) fn stored_caps(&self, requestor: &Requestor) -> StoredCaps {
        let limits = self.admission.limits(requestor);
        StoredCaps {
            tasks_per_requestor: limits.tasks_stored_per_requestor,
            bytes_per_requestor: limits.tasks_stored_bytes_per_requestor,
            tasks_per_tenant: limits.tasks_stored_per_tenant,
            bytes_per_tenant: limits.tasks_stored_bytes_per_tenant,
        }
    }
}

/// The task as it ends before its first run.
fn over_at_once(task: &Task, output: &TaskOutput, now: UnixMs) -> Result<Task, Error> {
    let (outcome, message) = outcome(output);
    let finish = Event::Finish { attempt: task.attempt, outcome, message };
    lifecycle::step(task, finish, now).map_err(|refusal| host_failure("ending a task at once", &format!("{refusal:?}")))
}

fn retention(ttl: RequestedTtl, limits: &Limits) -> Retention {
    match ttl {
        RequestedTtl::Default => Retention::FromCreation { ttl_ms: limits.ttl_ms_default.min(limits.ttl_ms_max) },
        RequestedTtl::Ms(ttl_ms) => Retention::FromCreation { ttl_ms: ttl_ms.min(limits.ttl_ms_max) },
        RequestedTtl::Unlimited if limits.ttl_unlimited => Retention::Unlimited,
        RequestedTtl::Unlimited => Retention::FromCreation { ttl_ms: limits.ttl_ms_max },
        RequestedTtl::AfterEnd(keep_alive_ms) => {
            let wanted = keep_alive_ms.unwrap_or(limits.ttl_ms_default).max(KEEP_ALIVE_MS_MIN);
            Retention::FromCompletion { keep_alive_ms: wanted.min(limits.ttl_ms_max) }
        }
    }
}

fn idempotency_key(seed: &[u8; 32]) -> String {
    derived(b"bulkhead idempotency key", &[seed])
}

fn requestor_alias(ids: &[u8; 32]) -> String {
    let (tenant, requestor) = ids.split_at(16);
    derived(b"bulkhead requestor alias", &[tenant, requestor])
}

/// Tenant and requestor, in this order.
fn ids(requestor: &Requestor) -> [u8; 32] {
    let mut ids = [0; 32];
    let both = requestor.tenant.0.iter().chain(&requestor.id.0);
    ids.iter_mut().zip(both).for_each(|(place, byte)| *place = *byte);
    ids
}

/// 128 bits that say nothing about what they were made from, in hexadecimal.
fn derived(purpose: &[u8], parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in std::iter::once(&purpose).chain(parts) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    CallId(hash.finalize().first_chunk().copied().unwrap_or_default()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn call_seeds_and_ids_are_unique() {
        let drawn = || (0..3 * AHEAD).map(|_| seed_and_id().unwrap());
        let elsewhere: Vec<_> = std::thread::scope(|scope| scope.spawn(|| drawn().collect()).join().unwrap());
        let seen: HashSet<_> = drawn().chain(elsewhere).map(|(seed, id)| (seed, id.0)).collect();
        assert_eq!(seen.len(), 6 * AHEAD);
    }
}
