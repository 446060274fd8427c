//! How full the engine is, what it may be filled with, and whether it takes anything new.
//!
//! Owns what operators see and change of all that while it runs. Invariant: what has begun goes on, whatever the limits become.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::admission::InUse;
use super::engine::Tasks;
use super::feed::lock;
use bulkhead_domain::limits::Limits;
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::task::{Active, Phase};
use bulkhead_limits::rate::Rates;

/// What is left to end before the host stands still.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Calls for which a client holds a connection open. A parked call that waits for the next request is not counted.
    pub plain_calls: usize,
    pub tasks_running: usize,
    /// They stay for when the host takes work again, or starts again.
    pub tasks_queued: usize,
    /// They stay, too: nobody knows whether the answer comes.
    pub tasks_waiting: usize,
    pub tasks_paused: usize,
}

impl Unfinished {
    /// Whether nothing goes on any more that ends by itself.
    pub fn is_still(&self) -> bool {
        self.plain_calls == 0 && self.tasks_running == 0
    }
}

impl Tasks {
    /// What is in use of the limits that count calls.
    pub fn in_use(&self) -> InUse {
        self.inner.admission.in_use()
    }

    /// The limits of tenants without limits of their own.
    pub fn base_limits(&self) -> Arc<Limits> {
        self.inner.admission.live_limits().base()
    }

    /// Goes by the limits that were [set](bulkhead_limits::LiveLimits::set). What runs and is stored stays, also where it is more than they allow by now.
    pub fn limits_changed(&self) {
        let rates = Rates::of_creations(&self.inner.admission.live_limits().table());
        // Buckets that are half empty stay so, unless their size changes.
        if self.inner.creations.load().differ(&rates) {
            self.inner.creations.store(Arc::new(rates));
        }
        self.inner.admission.dispatch_waiting();
    }

    /// Divides the guests' threads by these weights from now on, also between calls that run; a tenant that is not named has 1.
    pub fn set_cpu_weights(&self, weights: HashMap<TenantId, u32>) {
        self.inner.shares.set_weights(weights);
    }

    /// Refuses new calls and tasks from now on, and leaves queued tasks in their queues. What runs goes on.
    pub fn stop_accepting(&self) {
        self.inner.draining.store(true, Ordering::Release);
        self.inner.admission.hold_queues(true);
    }

    /// Takes [`stop_accepting`](Self::stop_accepting) back.
    pub fn accept_again(&self) {
        self.inner.draining.store(false, Ordering::Release);
        self.inner.admission.hold_queues(false);
    }

    /// Whether nothing new is taken.
    pub fn is_draining(&self) -> bool {
        self.inner.draining.load(Ordering::Acquire)
    }

    /// What has not ended yet.
    pub fn left_to_end(&self) -> Unfinished {
        let mut left =
            Unfinished { plain_calls: self.inner.plain_calls.load(Ordering::Acquire), ..Unfinished::default() };
        for task in lock(&self.inner.runs).values().filter_map(|run| run.task()) {
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
}
