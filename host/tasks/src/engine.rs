//! The engine itself: what callers can do with tasks and plain calls.

pub(crate) mod change;
pub(crate) mod checking;
pub(crate) mod create;
pub(crate) mod holding;
pub(crate) mod maintenance;
pub(crate) mod read;
pub(crate) mod run;
pub(crate) mod takeover;
pub(crate) mod usage;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Mutex, Notify, broadcast, oneshot, watch};

use crate::engine::create::{Identity, PollIntervals, random, seed_and_id};
use crate::engine::run::drive::{Run, RunStart, is_paused};
use crate::engine::run::plain::PlainCall;
use crate::engine::takeover::PendingTakeover;
use crate::engine::usage::Shares;
use crate::parts::abuse::AbuseDetector;
use crate::parts::activity::RefusalCount;
use crate::parts::admission::{Admission, IdleSlot, IdleState, Purpose};
use crate::parts::audit_events::RefusalAudit;
use crate::parts::availability::Availability;
use crate::parts::call_health::{CallHealth, EndedCall};
use crate::parts::call_slot::CallSlot;
use crate::parts::catalog_events::{CatalogEvents, ResourceUpdate};
use crate::parts::guest_services::ServiceStores;
use crate::parts::journal::TaskJournal;
use crate::parts::tenant_usage::UsageWriter;
use crate::parts::watchers::{NotificationMark, Watchers};
use crate::secrets::Secrets;
use crate::{CallRequest, Error, Job, Once, PluginRequest, TaskRequest, Unavailable, host_failure};
use bulkhead_audit::Audit;
use bulkhead_calls::{CallSpec, Catalog, Executor, Journaling, ListKind, ToolEntry};
use bulkhead_domain::UnixMs;
use bulkhead_domain::call::CallError;
use bulkhead_domain::clock::Clock;
use bulkhead_domain::limits::Limits;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_domain::task::{Lease, NodeId, PluginVersion, Task};
use bulkhead_limits::{Full, LiveLimits};
use bulkhead_metrics::{Activity, Metrics, TaskMetrics};
use bulkhead_store::keyvalue::KeyValues;
use bulkhead_store::replay_guard::{ReplayGuard, SingleUseToken};
use bulkhead_store::{self as store, Store};
use bulkhead_threads::MessageWorkers;
use bulkhead_traces::Tracer;

/// A lease is extended every [`HEARTBEAT`], so that two may be missed.
pub(crate) const LEASE_MS: u64 = 30_000;
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(10);

/// What the engine works with.
pub struct Options {
    pub store: Arc<dyn Store>,
    pub executor: Arc<dyn Executor>,
    pub health: Arc<dyn CallHealth>,
    pub clock: Arc<dyn Clock>,
    pub limits: LiveLimits,
    /// Tenants with more than the usual share of the guests' threads, which is 1.
    pub cpu_weights: HashMap<TenantId, u32>,
    /// Calls that can hold an instance at the same time: those that run, and those that wait or are paused.
    pub instances_max: u32,
    pub audit: Audit,
    /// Begins traces, if there are to be any.
    pub tracer: Tracer,
}

/// The task engine; cheap to clone.
#[derive(Clone)]
pub struct Tasks {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) replay_guard: ReplayGuard,
    pub(crate) service_stores: Arc<ServiceStores>,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) audit: Audit,
    pub(crate) tracer: Tracer,
    pub(crate) admission: Arc<Admission>,
    pub(crate) availability: Availability,
    pub(crate) watchers: Watchers,
    pub(crate) poll_intervals: PollIntervals,
    pub(crate) shares: Shares,
    message_workers: MessageWorkers,
    pub(crate) node: NodeId,
    pub(crate) lists: CatalogEvents,
    health: Arc<dyn CallHealth>,
    pub(crate) abuse_detector: AbuseDetector,
    /// Of the host's tools. Empty: nothing is counted.
    pub(crate) activity: OnceLock<Arc<Activity>>,
    /// A task was created that may expire before the sweeper's next look.
    pub(crate) sooner: Notify,
    pub(crate) usage: UsageWriter,
    /// Held while a journal is checked.
    pub(crate) checking: Mutex<()>,
    /// What of an earlier host is still to be taken over.
    pub(crate) takeover: PendingTakeover,
    /// Empty: nothing is counted.
    pub(crate) metrics: Arc<OnceLock<TaskMetrics>>,
}

impl Tasks {
    /// An engine that runs nothing yet: see [`Tasks::recover`] and [`Tasks::run_maintenance`]. To be made within a runtime.
    pub fn new(options: Options) -> Result<Self, Error> {
        let Options { store, executor, health, clock, limits, cpu_weights, instances_max, audit, tracer } = options;
        let resting_max =
            instances_max.saturating_sub(limits.base().calls_running_total).min(limits.base().calls_resting_total);
        let metrics = Arc::<OnceLock<TaskMetrics>>::default();
        let service_stores = ServiceStores {
            keyvalues: Arc::new(KeyValues::new(Arc::clone(&store))),
            clock: Arc::clone(&clock),
            secrets: OnceLock::new(),
        };
        let inner = Inner {
            replay_guard: ReplayGuard::new(Arc::clone(&store)),
            usage: UsageWriter::new(Arc::clone(&store)),
            service_stores: Arc::new(service_stores),
            store,
            executor,
            clock,
            audit,
            tracer,
            availability: Availability::new(&limits.table()),
            watchers: Watchers::default(),
            admission: Admission::counting(limits, resting_max, Arc::clone(&metrics)),
            poll_intervals: PollIntervals::default(),
            shares: Shares::new(cpu_weights),
            message_workers: start_message_workers()?,
            node: NodeId(random()?),
            lists: CatalogEvents::default(),
            health,
            abuse_detector: AbuseDetector::default(),
            activity: OnceLock::new(),
            sooner: Notify::new(),
            checking: Mutex::default(),
            takeover: PendingTakeover::default(),
            metrics,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What is offered to this requestor at this moment. A request takes it once: from begin to end it sees one version of each
    /// plugin, in lists and in calls.
    pub fn catalog(&self, requestor: &Requestor) -> Arc<Catalog> {
        self.inner.catalog(requestor)
    }

    /// What begins traces.
    pub fn tracer(&self) -> &Tracer {
        &self.inner.tracer
    }

    /// How many tools are offered to requestors that are in no canary.
    pub fn tools_offered(&self) -> usize {
        self.inner.executor.catalog().tools().len()
    }

    /// Whether any plugin is served. One without tools offers resources, prompts or completions.
    pub fn offers_anything(&self) -> bool {
        let catalog = self.inner.executor.catalog();
        !catalog.tools().is_empty() || !catalog.libraries().is_empty()
    }

    /// Changes whenever some requestor's catalog may have other lists than before; the catalog says whose, and which.
    pub fn catalog_changes(&self) -> watch::Receiver<u64> {
        self.inner.lists.watch()
    }

    /// What plugins report about the contents of their resources. A subscriber of a resource is told if the report comes from the
    /// resource's own plugin and [concerns](ResourceUpdate::concerns) the subscriber.
    pub fn resource_updates(&self) -> broadcast::Receiver<ResourceUpdate> {
        self.inner.lists.updates()
    }

    /// Tells everybody who listens to look at their lists again.
    pub fn lists_changed(&self) {
        self.inner.lists.changed();
    }

    /// Waits until versions say that lists of theirs are different now, and takes what they said.
    pub async fn next_list_changes(&self) -> HashMap<PluginVersion, HashSet<ListKind>> {
        self.inner.lists.said().await
    }

    /// A tool as a version offers it that may not be offered any more.
    pub async fn tool(&self, version: &PluginVersion, name: &str) -> Option<Arc<ToolEntry>> {
        self.inner.executor.tool(version, name).await
    }

    /// Does work that grows with what a requestor sent, in the turn of its tenant and at its cost, on threads that serve no connection.
    /// Nothing comes if the work panics or the host goes down.
    pub fn offload<T: Send + 'static>(
        &self,
        requestor: &Requestor,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        self.inner.message_workers.run(&self.inner.shares.of(requestor), work)
    }

    /// The limits that hold for a requestor.
    pub fn limits(&self, requestor: &Requestor) -> Arc<Limits> {
        self.inner.admission.limits(requestor)
    }

    /// Starts a plain call, after waiting at most `call_queue_ms_max` for a permit. It lives as long as what is returned.
    pub async fn call(&self, requestor: &Requestor, request: CallRequest) -> Result<PlainCall, Error> {
        let tool = &request.tool;
        let asked = RefusalAudit::new(&self.inner.audit, requestor, &tool.tool.name, Some(&tool.plugin));
        let count = RefusalCount::new(Some(&tool.activity));
        self.begin(requestor, request).await.inspect_err(|error| self.refused(requestor, asked, count, error))
    }

    async fn begin(&self, requestor: &Requestor, request: CallRequest) -> Result<PlainCall, Error> {
        let inner = &self.inner;
        inner.admit_healthy(requestor, &request.tool.plugin)?;
        let call_slot = inner.occupy(requestor).await?;
        let (seed, call_id) = seed_and_id()?;
        let policy = request.tool.journal.clone();
        let policy = policy.filter(|_| request.may_become_task && inner.may_keep_journal(&request.tool));
        let journal = policy.as_ref().map(|_| TaskJournal::held(Arc::clone(&inner.store)));
        let identity = Identity { seed, call_id, task_id: None, attempt: 1, journal: journal.clone() };
        let mut spec = inner.spec(requestor, &request, identity);
        if let (Some(sink), Some(policy)) = (journal.clone(), policy) {
            spec.journaling = Journaling::To { sink, policy };
        }
        PlainCall::start(inner.clone(), *requestor, Some(request), (spec, journal), call_slot)
    }

    /// Starts a request other than a tool call, on the terms of a plain call.
    pub async fn request(&self, requestor: &Requestor, request: PluginRequest) -> Result<PlainCall, Error> {
        let plugin = &request.library.plugin;
        let asked = RefusalAudit::new(&self.inner.audit, requestor, request.operation.label(), Some(plugin));
        let count = RefusalCount::new(Some(&request.library.activity));
        self.begin_other(requestor, request).await.inspect_err(|error| self.refused(requestor, asked, count, error))
    }

    async fn begin_other(&self, requestor: &Requestor, request: PluginRequest) -> Result<PlainCall, Error> {
        let inner = &self.inner;
        inner.admit_healthy(requestor, &request.library.plugin)?;
        let call_slot = inner.occupy(requestor).await?;
        let PluginRequest { library, operation, client } = request;
        let (seed, call_id) = seed_and_id()?;
        let identity = Identity { seed, call_id, task_id: None, attempt: 1, journal: None };
        let facts = inner.facts(requestor, client, identity, &[]);
        let (share, activity) = inner.shares.for_call(requestor);
        let spec = CallSpec {
            plugin: library.plugin.clone(),
            tenant: requestor.tenant,
            operation,
            limits: library.limits.clone(),
            share,
            activity,
            facts,
            journaling: Journaling::Off,
        };
        PlainCall::start(inner.clone(), *requestor, None, (spec, None), call_slot)
    }

    /// Counts calls, tasks and waits there from now on, once for ever.
    pub fn count(&self, metrics: &Metrics) {
        self.inner.shares.count_in(self.inner.activity.get_or_init(|| Arc::clone(metrics.activity())));
        if let Some(metrics) = TaskMetrics::of(metrics) {
            self.inner.metrics.get_or_init(|| metrics);
        }
    }

    /// Lets calls use these secrets from now on, once for ever.
    pub fn keep_secrets(&self, secrets: Arc<Secrets>) {
        self.inner.service_stores.secrets.get_or_init(|| secrets);
    }

    /// Creates a task: durable when this returns, and running or queued.
    pub async fn create(&self, requestor: &Requestor, request: TaskRequest) -> Result<Arc<Task>, Error> {
        let asked = request.job.asked(&self.inner.audit, requestor);
        let count = RefusalCount::new(request.job.activity());
        let created = self.inner.create_new(requestor, request).await;
        created.inspect_err(|error| self.refused(requestor, asked, count, error))
    }

    /// Creates a task under a name of its requestor's, unless there is one already: then that one, whatever it was made of.
    pub async fn create_once(&self, requestor: &Requestor, request: TaskRequest, alias: &str) -> Result<Once, Error> {
        let asked = request.job.asked(&self.inner.audit, requestor);
        let count = RefusalCount::new(request.job.activity());
        self.once(requestor, request, alias).await.inspect_err(|error| self.refused(requestor, asked, count, error))
    }

    fn refused(&self, requestor: &Requestor, asked: RefusalAudit, count: RefusalCount, error: &Error) {
        asked.refused(error);
        count.refused(&self.inner, requestor);
    }

    async fn once(&self, requestor: &Requestor, request: TaskRequest, alias: &str) -> Result<Once, Error> {
        let inner = &self.inner;
        // Twice at most: another request may be faster, or the one that was found be over its time.
        for _ in 0..3 {
            let found = inner.store.by_alias(requestor, alias).await.map_err(|error| inner.store_error(error))?;
            if let Some(id) = found {
                match self.get(requestor, id).await {
                    Ok(task) => return Ok(Once { task, found: true }),
                    Err(Error::NotFound) => {
                        inner.expire(requestor, id).await.map_err(|error| inner.store_error(error))?;
                    }
                    Err(error) => return Err(error),
                }
            }
            inner.admit_task(requestor, &request.job)?;
            if let Some(task) = inner.create(requestor, request.clone(), Some(alias.to_owned())).await? {
                return Ok(Once { task, found: false });
            }
        }
        Err(host_failure("creating a task", &"its name is taken and belongs to nothing"))
    }

    /// Marks an id of this requestor as used until `until`; `false` if it was used before. Durable when this returns.
    pub async fn use_once(&self, requestor: &Requestor, id: [u8; 16], until: UnixMs) -> Result<bool, Error> {
        let inner = &self.inner;
        inner.availability.admit_tenant(requestor)?;
        let used = inner.replay_guard.use_once(&SingleUseToken { requestor: *requestor, id, until }).await;
        used.map_err(|error| inner.store_error(error))
    }

    /// Takes a use back of which nothing came: the next one is the first.
    pub async fn unuse(&self, requestor: &Requestor, id: [u8; 16], until: UnixMs) -> Result<(), Error> {
        let inner = &self.inner;
        let unused = inner.replay_guard.unuse(&SingleUseToken { requestor: *requestor, id, until }).await;
        unused.map_err(|error| inner.store_error(error))
    }

    /// The time that the records are written in.
    pub fn now(&self) -> UnixMs {
        self.inner.clock.now()
    }
}

fn start_message_workers() -> Result<MessageWorkers, Error> {
    let io = tokio::runtime::Handle::try_current().map_err(|error| host_failure("finding the runtime", &error))?;
    MessageWorkers::start(&io).map_err(|error| host_failure("starting threads", &error))
}

/// Places of calls come back all the time.
const PLACE_RETRY_MS: u64 = 1_000;
/// Places in the store come back when tasks expire or are deleted.
const STORED_RETRY_MS: u64 = 60_000;

impl Inner {
    /// Refuses a call of a version that its requestor is kept from.
    pub(crate) fn admit_healthy(&self, requestor: &Requestor, version: &PluginVersion) -> Result<(), Error> {
        let admitted = self.health.admit(requestor, version, self.clock.now());
        admitted.map_err(|retry_after_ms| Error::Unavailable {
            why: Unavailable::Quarantined { plugin: version.name.clone() },
            retry_after_ms: Some(retry_after_ms),
        })
    }

    /// Whether a new call of a tool keeps a journal.
    pub(crate) fn may_keep_journal(&self, tool: &ToolEntry) -> bool {
        tool.journal.is_some() && self.health.may_keep_journal(&tool.plugin)
    }

    /// Reports a task that could not be brought back by the version of the host that began it: its call did something else than its journal
    /// says.
    pub(crate) fn report_divergence(&self, version: &PluginVersion) {
        self.health.diverged(version, self.clock.now());
    }

    /// Reports the end of a call that ran for so long.
    pub(crate) fn call_ended<T>(
        &self,
        requestor: &Requestor,
        version: &PluginVersion,
        tool: &str,
        result: &Result<T, CallError>,
        busy: Duration,
    ) {
        let result = result.as_ref().map(drop);
        let at = self.clock.now();
        self.usage.counts.of(requestor.tenant).add_call();
        self.health.call_ended(&EndedCall { requestor, version, tool, result, busy, at });
    }

    async fn create_new(self: &Arc<Self>, requestor: &Requestor, request: TaskRequest) -> Result<Arc<Task>, Error> {
        self.admit_task(requestor, &request.job)?;
        let created = self.create(requestor, request, None).await?;
        created.ok_or_else(|| host_failure("creating a task", &"an id was drawn twice"))
    }

    /// Starts the run of a stored task. A change that was committed before the run existed found no run to notify: if there was one
    /// since this moment, the run reads its record again.
    pub(crate) async fn start_run(
        self: &Arc<Self>,
        task: Arc<Task>,
        begin: RunStart,
        known: Option<Job>,
        before: NotificationMark,
    ) {
        let run = Arc::new(Run::new(task.clone()));
        let knows_all = self.watchers.start(task.id, run.clone(), before);
        crate::engine::run::drive::spawn(self.clone(), run.clone(), task.clone(), begin, known);
        if !knows_all {
            self.catch_up(&run, &task).await;
        }
        if run.task().is_some_and(|task| is_paused(&task)) {
            run.keep_paused(self.admission.keep(&task.requestor, IdleState::Paused));
        }
    }

    /// A place at the end of this requestor's queue.
    pub(crate) fn queue(&self, requestor: &Requestor, place: IdleSlot) -> RunStart {
        RunStart::Queued(place, self.admission.enqueue(requestor, Purpose::Task).ok())
    }

    pub(crate) fn is_expired(&self, task: &Task) -> bool {
        task.expires_at().is_some_and(|at| at <= self.clock.now())
    }

    pub(crate) fn lease(&self) -> Lease {
        Lease { node: self.node, until: self.clock.steady().saturating_add(LEASE_MS) }
    }

    /// A permit for a call that is no task.
    async fn occupy(&self, requestor: &Requestor) -> Result<CallSlot, Error> {
        self.availability.admit(requestor)?;
        let permit = match self.admission.try_permit(requestor, Purpose::Plain) {
            Some(permit) => permit,
            None => {
                let queue_ms_max = self.admission.limits(requestor).call_queue_ms_max;
                let request = self.admission.enqueue(requestor, Purpose::Plain);
                let mut request = request.map_err(|full| refused(full, None))?;
                match tokio::time::timeout(Duration::from_millis(queue_ms_max), request.permit()).await {
                    Ok(Some(permit)) => permit,
                    Ok(None) | Err(_) => return Err(self.no_permit(requestor, queue_ms_max)),
                }
            }
        };
        Ok(CallSlot::new(self.admission.clone(), *requestor, false, permit))
    }

    /// What is offered to this requestor at this moment.
    pub(crate) fn catalog(&self, requestor: &Requestor) -> Arc<Catalog> {
        self.executor.catalog_for(&|route| route.includes(requestor))
    }

    /// Whether a task may be made now.
    fn admit_task(&self, requestor: &Requestor, job: &Job) -> Result<(), Error> {
        self.availability.admit(requestor)?;
        if let Some((plugin, _)) = job.first() {
            self.admit_healthy(requestor, plugin)?;
        }
        self.availability.take_creation(requestor)
    }

    fn no_permit(&self, requestor: &Requestor, queue_ms_max: u64) -> Error {
        let limits = self.admission.limits(requestor);
        let otherwise = Full { limit: "calls_running_per_requestor", value: limits.calls_running_per_requestor.into() };
        refused(self.admission.blocked(requestor, Purpose::Plain).unwrap_or(otherwise), Some(queue_ms_max))
    }

    pub(crate) fn store_error(&self, error: store::Error) -> Error {
        match error {
            store::Error::Quota { limit, value } => {
                Error::Quota { limit, value, retry_after_ms: Some(STORED_RETRY_MS) }
            }
            other => host_failure("the store", &other),
        }
    }
}

/// `retry_after_ms`: when there may be room again, if that is known.
pub(crate) fn refused(full: Full, retry_after_ms: Option<u64>) -> Error {
    let retry_after_ms = Some(retry_after_ms.unwrap_or(PLACE_RETRY_MS));
    Error::Quota { limit: full.limit, value: full.value, retry_after_ms }
}

#[cfg(test)]
mod tests;
