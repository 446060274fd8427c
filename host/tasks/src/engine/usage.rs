//! Usage of the engine, shares of tenants, and whether it takes new work.
//!
//! Owns what operators see and change of all that while it runs. Invariant: what has begun goes on, whatever the limits become; only an
//! erased tenant's work and that of a withdrawn version are stopped.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::Error;
use crate::engine::Tasks;
use crate::engine::change::ApplyError;
use crate::parts::activity::RequestorActivity;
use crate::parts::admission::{InUse, Sums};
use bulkhead_domain::call::{CallError, FaultKind};
use bulkhead_domain::lifecycle::Event;
use bulkhead_domain::limits::Limits;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_domain::task::{Active, Phase, PluginVersion, Task};
use bulkhead_metrics::{Activity, ActivityCounts};
use bulkhead_store::{self as store, Usage};
use bulkhead_threads::Share;

/// The weight of a tenant without a configured one.
const WEIGHT: u32 = 1;

/// Work that is left before the host is drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Calls for which a client holds a connection open. A parked call that waits for the next request is not counted.
    pub plain_calls: usize,
    pub tasks_running: usize,
    /// They stay for when the host takes work again, or starts again.
    pub tasks_queued: usize,
    /// They stay, too: the answer may never come.
    pub tasks_waiting: usize,
    pub tasks_paused: usize,
}

impl Unfinished {
    /// Whether nothing goes on any more that ends by itself.
    pub fn is_still(&self) -> bool {
        self.plain_calls == 0 && self.tasks_running == 0
    }
}

/// How tasks of a version end that the operator does not want any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    Cancel,
    Fail,
}

/// Each tenant's share of the guests' threads: one for all of its calls, however many requestors and sessions it has. Its requestors
/// divide it evenly. There are as many shares as there are tenants.
#[derive(Debug)]
pub(crate) struct Shares(Mutex<TenantShares>);

#[derive(Debug)]
struct TenantShares {
    weights: HashMap<TenantId, u32>,
    by_tenant: FxHashMap<TenantId, Share>,
    /// None: nothing is counted.
    activity: Option<RequestorActivity>,
}

impl TenantShares {
    fn weight(&self, tenant: &TenantId) -> u32 {
        self.weights.get(tenant).copied().unwrap_or(WEIGHT)
    }

    fn share(&mut self, requestor: &Requestor) -> Share {
        let weight = self.weight(&requestor.tenant);
        let share = self.by_tenant.entry(requestor.tenant).or_insert_with(|| Share::new(weight));
        share.part(u128::from_ne_bytes(requestor.id.0))
    }
}

impl Shares {
    pub(crate) fn new(weights: HashMap<TenantId, u32>) -> Self {
        Self(Mutex::new(TenantShares { weights, by_tenant: FxHashMap::default(), activity: None }))
    }

    /// What calls of a requestor run on: a part of its tenant's share.
    pub(crate) fn of(&self, requestor: &Requestor) -> Share {
        self.0.lock().share(requestor)
    }

    /// The same, and where its calls are counted: found under one lock.
    pub(crate) fn for_call(&self, requestor: &Requestor) -> (Share, Option<Arc<ActivityCounts>>) {
        let mut known = self.0.lock();
        let share = known.share(requestor);
        (share, known.activity.as_mut().map(|activity| activity.of(requestor)))
    }

    /// Counts calls by requestor from now on.
    pub(crate) fn count_in(&self, activity: &Arc<Activity>) {
        self.0.lock().activity.get_or_insert_with(|| RequestorActivity::new(activity));
    }

    /// Looks at the counts of requestors, if they are kept. Calls wait meanwhile.
    pub(crate) fn with_activity<T>(&self, look: impl FnOnce(&mut RequestorActivity) -> T) -> Option<T> {
        self.0.lock().activity.as_mut().map(look)
    }

    /// The CPU time of each tenant since the start, in microseconds.
    pub(crate) fn cpu_us(&self) -> Vec<(TenantId, u64)> {
        self.0.lock().by_tenant.iter().map(|(tenant, share)| (*tenant, share.used_us())).collect()
    }

    /// Other weights from now on, also for calls that run.
    pub(crate) fn set_weights(&self, weights: HashMap<TenantId, u32>) {
        let mut known = self.0.lock();
        known.weights = weights;
        for (tenant, share) in &known.by_tenant {
            share.set_weight(known.weight(tenant));
        }
    }
}

impl Tasks {
    /// What is in use of the limits that count calls.
    pub fn in_use(&self) -> InUse {
        self.inner.admission.in_use()
    }

    /// What calls and tasks count as, of all requestors and of some tenants.
    pub fn sums(&self, tenants: &[TenantId]) -> (Sums, Vec<Sums>) {
        self.inner.admission.sums(tenants)
    }

    /// What calls and tasks of one requestor count as.
    pub fn sums_of(&self, requestor: &Requestor) -> Sums {
        self.inner.admission.sums_of(requestor)
    }

    /// What a requestor has stored.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    pub async fn stored_by(&self, requestor: &Requestor) -> Result<Usage, Error> {
        let stored = self.inner.store.usage(requestor).await.map_err(|error| self.inner.store_error(error))?;
        Ok(stored.0)
    }

    /// The CPU time that a tenant's calls have had on the guests' threads, in microseconds.
    pub fn served_us(&self, tenant: &TenantId) -> u64 {
        self.inner.shares.0.lock().by_tenant.get(tenant).map_or(0, Share::served_us)
    }

    /// The limits of tenants without limits of their own.
    pub fn base_limits(&self) -> Arc<Limits> {
        self.inner.admission.live_limits().base()
    }

    /// Applies the limits that were [set](bulkhead_limits::LiveLimits::set). What runs and is stored stays, also where it is more than they allow by now.
    pub fn limits_changed(&self) {
        self.inner.availability.set_limits(&self.inner.admission.live_limits().table());
        self.inner.admission.dispatch_waiting();
    }

    /// Divides the guests' threads by these weights from now on, also between calls that run; a tenant that is not named has 1.
    pub fn set_cpu_weights(&self, weights: HashMap<TenantId, u32>) {
        self.inner.shares.set_weights(weights);
    }

    /// Refuses new calls and tasks from now on, and leaves queued tasks in their queues. What runs goes on.
    pub fn stop_accepting(&self) {
        self.inner.availability.set_draining(true);
        self.inner.admission.hold_queues(true);
    }

    /// Takes [`stop_accepting`](Self::stop_accepting) back.
    pub fn accept_again(&self) {
        self.inner.availability.set_draining(false);
        self.inner.admission.hold_queues(false);
    }

    /// Whether nothing new is taken.
    pub fn is_draining(&self) -> bool {
        self.inner.availability.is_draining()
    }

    /// What has not ended yet.
    pub fn left_to_end(&self) -> Unfinished {
        let mut left = Unfinished { plain_calls: self.inner.availability.plain_calls(), ..Unfinished::default() };
        for task in self.inner.watchers.tasks() {
            match task.phase {
                Phase::Active(Active::Running) => left.tasks_running += 1,
                Phase::Active(Active::Queued) => left.tasks_queued += 1,
                Phase::Active(Active::InputRequired) => left.tasks_waiting += 1,
                Phase::Paused { .. } => left.tasks_paused += 1,
                Phase::Ended(_) => {}
            }
        }
        left
    }

    /// How many tasks that are not over belong to each version: those that run, wait, are paused or stand in the queue, and those of an
    /// earlier host that are still to be taken over.
    ///
    /// # Errors
    ///
    /// There are such, and the store cannot be read.
    pub async fn by_version(&self) -> Result<HashMap<PluginVersion, usize>, store::Error> {
        if self.is_taking_over() {
            return self.inner.store.unfinished_by_version().await;
        }
        let mut counts = HashMap::new();
        self.unfinished().iter().for_each(|task| *counts.entry(task.plugin.clone()).or_default() += 1);
        Ok(counts)
    }

    /// Ends every task of a version.
    pub async fn withdraw(&self, version: &PluginVersion, how: Withdrawal) {
        for task in self.unfinished().into_iter().filter(|task| task.plugin == *version) {
            let event = match how {
                Withdrawal::Cancel => Event::Cancel,
                Withdrawal::Fail => {
                    let message = "the version of the plugin that this task runs was withdrawn".to_owned();
                    let error = CallError::Fault { kind: FaultKind::Deadline, reason: message.clone() };
                    Event::Abandon { error, message }
                }
            };
            match self.inner.apply(&task.requestor, task.id, event, None).await {
                Ok(_) | Err(ApplyError::Refused(_) | ApplyError::NotFound) => {}
                Err(ApplyError::Store(error)) => {
                    tracing::warn!(task.id = %task.id, %error, "a task of a withdrawn version cannot be ended yet");
                }
            }
        }
    }

    fn unfinished(&self) -> Vec<Arc<Task>> {
        let mut tasks = self.inner.watchers.tasks();
        tasks.retain(|task| task.outcome().is_none());
        tasks
    }

    /// Refuses new work of a tenant and stops its calls. Its records stay for the caller to remove.
    pub fn block_tenant(&self, tenant: TenantId) {
        self.inner.availability.block(tenant);
        self.inner.watchers.stop_tenant(tenant);
        self.inner.shares.with_activity(|activity| activity.forget(tenant));
    }
}
