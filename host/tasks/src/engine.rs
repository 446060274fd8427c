//! The engine itself: the handle of its callers, and what its subjects share.
//!
//! Must not know a subject: each has a file of its own, with what callers can do in it. Invariant: the fields of
//! [`EngineContext`] are private, so nothing outside of `engine` can go around it.

mod call;
pub(crate) mod change;
pub(crate) mod checking;
pub(crate) mod create;
pub(crate) mod drain;
pub(crate) mod maintenance;
pub(crate) mod other_hosts;
pub(crate) mod read;
pub(crate) mod run;
pub(crate) mod takeover;
pub(crate) mod usage;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify, broadcast, oneshot, watch};

use crate::engine::run::guest_driver::DriverContext;
use crate::error::{Error, Unavailable, host_failure};
use crate::parts::abuse::AbuseDetector;
use crate::parts::admission::Admission;
use crate::parts::audit_events::TaskAudit;
use crate::parts::availability::Availability;
use crate::parts::call_health::{CallHealth, HealthReporter};
use crate::parts::call_identity::random;
use crate::parts::catalog_events::{CatalogEvents, ResourceUpdate};
use crate::parts::deadlines::Deadlines;
use crate::parts::guest_services::ServiceStores;
use crate::parts::journal::JournalOwner;
use crate::parts::other_hosts::OtherHosts;
use crate::parts::pending_takeover::PendingTakeover;
use crate::parts::poll_intervals::PollIntervals;
use crate::parts::shared_counts::SharedCounts;
use crate::parts::shares::Shares;
use crate::parts::tenant_usage::UsageWriter;
use crate::parts::watchers::Watchers;
use crate::secrets::Secrets;
use bulkhead_audit::Audit;
use bulkhead_calls::{Catalog, Executor, ListKind, ToolEntry};
use bulkhead_domain::UnixMs;
use bulkhead_domain::clock::Clock;
use bulkhead_domain::limits::Limits;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_domain::task::{Lease, NodeId, PluginVersion, Task};
use bulkhead_limits::LiveLimits;
use bulkhead_metrics::{Activity, Metrics, TaskMetrics};
use bulkhead_store::keyvalue::KeyValues;
use bulkhead_store::replay_guard::{ReplayGuard, SingleUseToken};
use bulkhead_store::{self as store, Store};
use bulkhead_threads::MessageWorkers;
use bulkhead_traces::Tracer;

/// A lease is extended every [`maintenance::HEARTBEAT`], so that two may be missed.
pub(crate) const LEASE_MS: u64 = 30_000;

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
    inner: Arc<EngineContext>,
}

/// What the subjects of the engine share. Private to `engine`: the parts do not know it.
pub(crate) struct EngineContext {
    store: Arc<dyn Store>,
    replay_guard: ReplayGuard,
    service_stores: Arc<ServiceStores>,
    executor: Arc<dyn Executor>,
    clock: Arc<dyn Clock>,
    audit: TaskAudit,
    tracer: Tracer,
    admission: Arc<Admission>,
    availability: Availability,
    watchers: Watchers,
    poll_intervals: PollIntervals,
    shares: Shares,
    message_workers: MessageWorkers,
    /// Its name where the store gives it none.
    own_node: NodeId,
    others: OtherHosts,
    lists: Arc<CatalogEvents>,
    health: Arc<HealthReporter>,
    abuse_detector: AbuseDetector,
    /// Of the host's tools. Empty: nothing is counted.
    activity: OnceLock<Arc<Activity>>,
    /// When to look at tasks that nothing drives.
    deadlines: Deadlines,
    /// Where the runs of tasks begin that waited for their permits.
    runtime: Handle,
    /// A task was created that may expire before the sweeper's next look.
    sooner: Notify,
    usage: UsageWriter,
    /// Held while a journal is checked.
    checking: Mutex<()>,
    /// What of an earlier host is still to be taken over.
    takeover: PendingTakeover,
}

impl Tasks {
    /// An engine that runs nothing yet: see [`Tasks::recover`] and [`Tasks::run_maintenance`]. To be made within a
    /// runtime.
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
        let is_shared = store.is_shared();
        let shared_counts = is_shared.then(Arc::<SharedCounts>::default);
        let usage = UsageWriter::new(Arc::clone(&store));
        let health = HealthReporter { health, clock: Arc::clone(&clock), counts: Arc::clone(&usage.counts) };
        let runtime = current_runtime()?;
        let inner = EngineContext {
            replay_guard: ReplayGuard::new(Arc::clone(&store)),
            usage,
            service_stores: Arc::new(service_stores),
            store,
            executor,
            clock,
            audit: TaskAudit { log: audit, metrics: Arc::clone(&metrics) },
            tracer,
            availability: Availability::new(&limits.table()),
            watchers: Watchers::default(),
            admission: Admission::counting(limits, resting_max, metrics, shared_counts),
            poll_intervals: PollIntervals::default(),
            shares: Shares::new(cpu_weights),
            message_workers: start_message_workers(&runtime)?,
            own_node: NodeId(random()?),
            others: OtherHosts::default(),
            lists: Arc::new(CatalogEvents::new(is_shared)),
            health: Arc::new(health),
            abuse_detector: AbuseDetector::default(),
            activity: OnceLock::new(),
            deadlines: Deadlines::default(),
            sooner: Notify::new(),
            checking: Mutex::default(),
            takeover: PendingTakeover::default(),
            runtime,
        };
        let inner = Arc::new(inner);
        inner.act_for_resting_tasks();
        Ok(Self { inner })
    }

    /// What is offered to this requestor at this moment. A request takes it once: from begin to end it sees one version
    /// of each plugin, in lists and in calls.
    pub fn catalog(&self, requestor: &Requestor) -> Arc<Catalog> {
        self.inner.catalog(requestor)
    }

    /// Whether other hosts work with the same store.
    pub fn is_shared(&self) -> bool {
        self.inner.store.is_shared()
    }

    /// The name of this host among those that work with the same store; `None`: there are no others.
    pub fn host_name(&self) -> Option<NodeId> {
        self.inner.store.node().filter(|_| self.is_shared())
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

    /// What plugins report about the contents of their resources. A subscriber of a resource is told if the report
    /// comes from the resource's own plugin and [concerns](ResourceUpdate::concerns) the subscriber.
    pub fn resource_updates(&self) -> broadcast::Receiver<ResourceUpdate> {
        self.inner.lists.updates()
    }

    /// Tells everybody who listens to look at their lists again.
    pub fn lists_changed(&self) {
        self.inner.lists.changed();
    }

    /// Waits until versions say that lists of theirs are different now, and takes what they said.
    pub async fn next_list_changes(&self) -> HashMap<PluginVersion, HashSet<ListKind>> {
        self.inner.lists.changed_lists().await
    }

    /// A tool as a version offers it that may not be offered any more.
    pub async fn tool(&self, version: &PluginVersion, name: &str) -> Option<Arc<ToolEntry>> {
        self.inner.executor.tool(version, name).await
    }

    /// Does work that grows with what a requestor sent, in the turn of its tenant and at its cost, on threads that
    /// serve no connection. Nothing comes if the work panics or the host goes down.
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

    /// Counts calls, tasks and waits there from now on, once for ever.
    pub fn count(&self, metrics: &Metrics) {
        self.inner.shares.count_in(self.inner.activity.get_or_init(|| Arc::clone(metrics.activity())));
        if let Some(metrics) = TaskMetrics::of(metrics) {
            self.inner.audit.metrics.get_or_init(|| metrics);
        }
    }

    /// Lets calls use these secrets from now on, once for ever.
    pub fn keep_secrets(&self, secrets: Arc<Secrets>) {
        self.inner.service_stores.secrets.get_or_init(|| secrets);
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

fn current_runtime() -> Result<Handle, Error> {
    Handle::try_current().map_err(|error| host_failure("finding the runtime", &error))
}

fn start_message_workers(io: &Handle) -> Result<MessageWorkers, Error> {
    MessageWorkers::start(io).map_err(|error| host_failure("starting threads", &error))
}

/// Places in the store come back when tasks expire or are deleted.
const STORED_RETRY_MS: u64 = 60_000;
/// When to come back to a host that was declared dead, or whose store has not said what came of a write: by then it is
/// one again, and the store has.
const UNSETTLED_RETRY_MS: u64 = 1_000;

impl EngineContext {
    /// From now on a task that nothing drives goes on when its record or a permit says so.
    fn act_for_resting_tasks(self: &Arc<Self>) {
        let inner = Arc::downgrade(self);
        self.admission.hand_permits_with(Box::new(move |id, permit| match inner.upgrade() {
            Some(inner) => inner.admit(id, permit),
            None => Some(permit),
        }));
        let inner = Arc::downgrade(self);
        self.watchers.follow_with(Box::new(move |run, followup| {
            if let Some(inner) = inner.upgrade() {
                inner.follow_up(run, followup);
            }
        }));
    }

    pub(crate) fn is_expired(&self, task: &Task) -> bool {
        task.expires_at().is_some_and(|at| at <= self.clock.now())
    }

    /// The name under which this host holds tasks.
    pub(crate) fn node(&self) -> NodeId {
        self.store.node().unwrap_or(self.own_node)
    }

    pub(crate) fn lease(&self) -> Lease {
        Lease { node: self.node(), until: self.clock.steady().saturating_add(LEASE_MS) }
    }

    /// The owner of the journals of this host's runs.
    pub(crate) fn journal_owner(&self) -> JournalOwner {
        JournalOwner { store: Arc::clone(&self.store), node: self.node() }
    }

    /// What is offered to this requestor at this moment.
    pub(crate) fn catalog(&self, requestor: &Requestor) -> Arc<Catalog> {
        self.executor.catalog_for(&|route| route.includes(requestor))
    }

    /// What drives a guest.
    pub(crate) fn driver_context(&self) -> DriverContext {
        DriverContext {
            executor: Arc::clone(&self.executor),
            lists: Arc::clone(&self.lists),
            health: Arc::clone(&self.health),
            audit: self.audit.clone(),
            clock: Arc::clone(&self.clock),
        }
    }

    pub(crate) fn store_error(&self, error: store::Error) -> Error {
        match error {
            store::Error::Quota { limit, value } => {
                Error::Quota { limit, value, retry_after_ms: Some(STORED_RETRY_MS) }
            }
            store::Error::Unavailable { retry_after_ms } => {
                Error::Unavailable { why: Unavailable::Store, retry_after_ms: Some(retry_after_ms) }
            }
            store::Error::Lost => {
                Error::Unavailable { why: Unavailable::Store, retry_after_ms: Some(UNSETTLED_RETRY_MS) }
            }
            store::Error::InDoubt => {
                Error::Unavailable { why: Unavailable::InDoubt, retry_after_ms: Some(UNSETTLED_RETRY_MS) }
            }
            other => host_failure("the store", &other),
        }
    }
}

#[cfg(test)]
mod tests;
