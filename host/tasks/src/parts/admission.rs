//! Who may run: permits for calls, fair between tenants and requestors, first come first served within one requestor.
//!
//! Owns the counts of running calls (plain ones and tasks together), of queued, waiting and paused tasks, and of calls
//! that rest. Must not know what a call does. Invariant: a [`Permit`] is a running call; the counts of a tenant, of a
//! requestor and of the host are below their limits at every moment, however many requestors a tenant makes; and a
//! released permit goes to the waiter that has waited longest among those whose limits still have room.
//!
//! What may wait and what must not: a task waits in its requestor's queue for as long as its TTL; a plain call waits
//! for `call_queue_ms_max`, because a client is holding a connection open for it; a call that already holds an instance
//! (it slept or asked) goes before new ones of the same requestor, because its memory is taken anyway. Plain calls do
//! not stand behind the same requestor's queued tasks, and neither do those that run and would be tasks.

mod queue_entry;

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use self::queue_entry::{Admitted, Grant, HandPermit};
pub(crate) use self::queue_entry::{QueueEntry, QueueNumber};
use crate::error::Error;
use crate::parts::residents::Residents;
use crate::parts::shared_counts::{SharedCount, SharedCounts};
use bulkhead_domain::limits::Limits;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_limits::scoped::{Amount, Bound, ScopedTable};
use bulkhead_limits::{Full, LiveLimits, Scope};
use bulkhead_metrics::{TaskMetrics, Waiting};
use bulkhead_store as store;
use bulkhead_store::hosts::HeldState;

/// Places of calls come back all the time.
const PLACE_RETRY_MS: u64 = 1_000;

/// What a permit is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Plain,
    /// A plain call that runs becomes a task: what it gets is a place among the running tasks beside its permit.
    Promotion,
    Task,
    /// A task that has left memory goes on.
    Wake,
    /// A call that holds an instance goes on; `task` says which running limits it counts against.
    Again {
        task: bool,
    },
}

impl Purpose {
    /// What a call counts as while it runs.
    fn sums(self) -> Sums {
        match self {
            Self::Plain | Self::Again { task: false } => Sums { running: 1, ..NOTHING },
            Self::Task | Self::Wake | Self::Again { task: true } => Sums { running: 1, ..TASK },
            Self::Promotion => TASK,
        }
    }

    /// Its place in [`Queues`].
    fn queue(self) -> usize {
        match self {
            Self::Again { .. } => 0,
            Self::Plain => 1,
            Self::Promotion => 2,
            Self::Wake => 3,
            Self::Task => 4,
        }
    }
}

/// The part of the host's places that is kept back for tenants that have nothing yet: one in so many.
const KEPT_BACK: u64 = 8;

#[derive(Debug)]
pub(crate) struct Admission {
    limits: LiveLimits,
    /// Hands permits to tasks that wait without a future of their own.
    hand_permit: OnceLock<HandPermit>,
    /// Calls that may rest at the same time, in all. Each holds an instance of the pool; more of them would take the
    /// instances that running calls have a permit for.
    resting_max: u32,
    state: Mutex<State>,
    metrics: Arc<OnceLock<TaskMetrics>>,
    pub(crate) residents: Arc<Residents>,
    /// What is limited over all hosts that share the store; none where there are no others.
    pub(crate) shared: Option<Arc<SharedCounts>>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether tasks stay in their queues although there is room.
    held: bool,
    counts: ScopedTable<Requestor, Sums>,
    next_number: u64,
    /// Without those in which nothing waits.
    queues: FxHashMap<Requestor, Queues>,
    /// Requestors with waiters, in the order of their turns, per tenant; and the tenants in the order of theirs.
    turns: VecDeque<(TenantId, VecDeque<Requestor>)>,
    /// Permits are being handed to tasks, and what is free meanwhile is dispatched after that.
    is_handing_out: bool,
}

/// What calls count as, of a requestor, of all requestors of one tenant, or of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Plain calls and tasks together.
    pub running: u64,
    /// Those of them that are tasks.
    pub running_tasks: u64,
    /// Plain calls that wait for a permit.
    pub lined_up: u64,
    pub queued: u64,
    pub waiting: u64,
    pub paused: u64,
    /// Calls that hold an instance without running: they wait, are stopped by a pause, or go on and wait for a permit.
    pub resting: u64,
}

const NOTHING: Sums = Sums { running: 0, running_tasks: 0, lined_up: 0, queued: 0, waiting: 0, paused: 0, resting: 0 };
const TASK: Sums = Sums { running_tasks: 1, ..NOTHING };
const LINED_UP: Sums = Sums { lined_up: 1, ..NOTHING };

impl Amount for Sums {
    fn zip(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            running: with(self.running, other.running),
            running_tasks: with(self.running_tasks, other.running_tasks),
            lined_up: with(self.lined_up, other.lined_up),
            queued: with(self.queued, other.queued),
            waiting: with(self.waiting, other.waiting),
            paused: with(self.paused, other.paused),
            resting: with(self.resting, other.resting),
        }
    }
}

/// What is in use of the limits that count calls.
#[derive(Clone, Debug, Default)]
pub struct InUse {
    pub counts: ScopedTable<Requestor, Sums>,
    /// Calls that may rest at the same time, in all.
    pub resting_max: u32,
}

/// Served in this order: calls that go on, plain calls (a client holds a connection open for each), those that would be
/// tasks, tasks that have left memory, new tasks.
type Queues = [VecDeque<Waiter>; 5];

#[derive(Debug)]
struct Waiter {
    number: u64,
    purpose: Purpose,
    grant: Grant,
}

/// The right to run, released when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    /// `None` once it was released by other means.
    admission: Option<Arc<Admission>>,
    requestor: Requestor,
    sums: Sums,
    /// Of a task, what it counts beside those of other hosts.
    shared: Option<SharedCount>,
}

impl Permit {
    /// Counts from now on as a task, if there is room for one more.
    pub(crate) async fn become_task(&mut self) -> Result<(), Full> {
        let Some(admission) = self.admission.as_ref().filter(|_| self.sums.running_tasks == 0) else { return Ok(()) };
        admission.try_add(&mut admission.state.lock(), &self.requestor, TASK)?;
        self.sums.running_tasks = 1;
        self.confirm().await.map_err(|error| {
            self.become_plain();
            match error {
                store::Error::Quota { limit, value } => Full { limit, value },
                // It may be tried again, as where there is no room.
                _ => Full { limit: "tasks_running_per_requestor", value: 0 },
            }
        })
    }

    /// Counts a task that is about to run beside those of other hosts. Cancel-safe.
    pub(crate) async fn confirm(&mut self) -> Result<(), store::Error> {
        let Some(admission) = self.admission.as_ref().filter(|_| self.sums.running_tasks > 0) else { return Ok(()) };
        if let Some(shared) = admission.shared.as_ref().filter(|_| self.shared.is_none()) {
            let limits = admission.limits(&self.requestor);
            self.shared = Some(shared.take(&self.requestor, HeldState::Running, &limits).await?);
        }
        Ok(())
    }

    /// The same with a place that was waited for.
    pub(crate) fn take_place(&mut self, mut permit: Self) {
        if self.sums.running_tasks == 0 {
            self.sums.running_tasks = permit.sums.running_tasks;
            self.shared = permit.shared.take();
            permit.admission = None;
        }
    }

    /// Takes [`Permit::become_task`] back: there is no task after all.
    pub(crate) fn become_plain(&mut self) {
        let Some(admission) = self.admission.as_ref().filter(|_| self.sums.running_tasks > 0) else { return };
        self.sums.running_tasks = 0;
        self.shared = None;
        // A task that waits may have room now.
        admission.release(&self.requestor, TASK);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(admission) = self.admission.take() {
            admission.release(&self.requestor, self.sums);
        }
    }
}

/// A place in the queue; dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct PermitRequest {
    admission: Arc<Admission>,
    requestor: Requestor,
    number: u64,
    granted: oneshot::Receiver<Permit>,
    /// Its turn here, until there is room over all hosts.
    unconfirmed: Option<Permit>,
    purpose: Purpose,
    since: Instant,
}

impl PermitRequest {
    /// Resolves when it is this call's turn. Cancel-safe.
    pub(crate) async fn permit(&mut self) -> Option<Permit> {
        let permit = loop {
            let permit = match &mut self.unconfirmed {
                Some(permit) => permit,
                None => self.unconfirmed.insert((&mut self.granted).await.ok()?),
            };
            if permit.confirm().await.is_ok() {
                break self.unconfirmed.take()?;
            }
            self.granted = self.admission.enqueue_again(&self.requestor, self.number, self.purpose);
            // Others may use it meanwhile.
            self.unconfirmed = None;
        };
        if let Some(metrics) = self.admission.metrics.get() {
            let who = match self.purpose {
                Purpose::Plain => Waiting::Plain,
                // It runs meanwhile.
                Purpose::Promotion => return Some(permit),
                Purpose::Task => Waiting::Task,
                Purpose::Wake => Waiting::Wake,
                Purpose::Again { .. } => Waiting::Again,
            };
            metrics.waited(who, self.since.elapsed());
        }
        Some(permit)
    }
}

impl Drop for PermitRequest {
    fn drop(&mut self) {
        self.granted.close();
        self.admission.leave(&self.requestor, self.number);
    }
}

/// One of the counted states that hold no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleState {
    /// A task that has not started.
    Queued,
    /// A call that asked or sleeps.
    Waiting,
    /// A task that is paused, wherever its run stands.
    Paused,
    /// A call that a pause has stopped: its instance, whatever the task counts as.
    Stopped,
}

impl IdleState {
    fn sums(self) -> Sums {
        match self {
            Self::Queued => Sums { queued: 1, ..NOTHING },
            Self::Waiting => Sums { waiting: 1, resting: 1, ..NOTHING },
            Self::Paused => Sums { paused: 1, ..NOTHING },
            Self::Stopped => Sums { resting: 1, ..NOTHING },
        }
    }

    /// Where it counts over all hosts.
    fn shared(self) -> Option<HeldState> {
        match self {
            Self::Queued => Some(HeldState::Queued),
            Self::Paused => Some(HeldState::Paused),
            Self::Waiting | Self::Stopped => None,
        }
    }
}

/// A place in one of them, released when dropped.
#[derive(Debug)]
pub(crate) struct IdleSlot {
    admission: Arc<Admission>,
    requestor: Requestor,
    state: IdleState,
    shared: Option<SharedCount>,
}

impl Drop for IdleSlot {
    fn drop(&mut self) {
        self.admission.state.lock().counts.release(&self.requestor, self.state.sums());
    }
}

impl Admission {
    #[cfg(test)]
    pub(crate) fn new(limits: LiveLimits, resting_max: u32) -> Arc<Self> {
        Self::counting(limits, resting_max, Arc::default(), None)
    }

    pub(crate) fn counting(
        limits: LiveLimits,
        resting_max: u32,
        metrics: Arc<OnceLock<TaskMetrics>>,
        shared: Option<Arc<SharedCounts>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            limits,
            hand_permit: OnceLock::new(),
            resting_max,
            state: Mutex::default(),
            metrics,
            residents: Arc::default(),
            shared,
        })
    }

    pub(crate) fn limits(&self, requestor: &Requestor) -> Arc<Limits> {
        self.limits.of(requestor)
    }

    /// The limits in force, of all requestors.
    pub(crate) fn live_limits(&self) -> &LiveLimits {
        &self.limits
    }

    /// Gives what there is room for by now.
    pub(crate) fn dispatch_waiting(self: &Arc<Self>) {
        self.dispatch(self.state.lock());
    }

    /// Keeps tasks in their queues, or lets them go again.
    pub(crate) fn hold_queues(self: &Arc<Self>, held: bool) {
        let mut state = self.state.lock();
        state.held = held;
        self.dispatch(state);
    }

    /// Everything that is counted at this moment.
    pub(crate) fn in_use(&self) -> InUse {
        InUse { counts: self.state.lock().counts.clone(), resting_max: self.resting_max }
    }

    /// What is counted of all requestors, and of some tenants: no requestor is looked at.
    pub(crate) fn sums(&self, tenants: &[TenantId]) -> (Sums, Vec<Sums>) {
        let state = self.state.lock();
        let of = |tenant| state.counts.tenants().get(tenant).copied().unwrap_or_default();
        (state.counts.total(), tenants.iter().map(of).collect())
    }

    /// What is counted of one requestor.
    pub(crate) fn sums_of(&self, requestor: &Requestor) -> Sums {
        self.state.lock().counts.held(requestor).requestor
    }

    /// Calls that hold a permit.
    #[cfg(test)]
    pub(crate) fn running(&self) -> u64 {
        self.state.lock().counts.total().running
    }

    /// A permit at once, if no other call waits and there is room.
    pub(crate) fn try_permit(self: &Arc<Self>, requestor: &Requestor, purpose: Purpose) -> Option<Permit> {
        let mut state = self.state.lock();
        let is_granted = !state.has_waiters_before(requestor, purpose)
            && !state.holds_back(purpose)
            && !self.is_full_over_all(requestor, purpose)
            && self.try_add(&mut state, requestor, purpose.sums()).is_ok();
        drop(state);
        is_granted.then(|| self.permit(requestor, purpose))
    }

    /// The same, if there is room over all hosts as well.
    pub(crate) async fn try_task_permit(
        self: &Arc<Self>,
        requestor: &Requestor,
    ) -> Result<Option<Permit>, store::Error> {
        let Some(mut permit) = self.try_permit(requestor, Purpose::Task) else { return Ok(None) };
        match permit.confirm().await {
            Ok(()) => Ok(Some(permit)),
            Err(store::Error::Quota { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the tasks of this requestor that run at all hosts have left no room for one more, as far as is known.
    fn is_full_over_all(&self, requestor: &Requestor, purpose: Purpose) -> bool {
        purpose.sums().running_tasks > 0 && self.shared.as_ref().is_some_and(|shared| shared.is_full(requestor))
    }

    fn permit(self: &Arc<Self>, requestor: &Requestor, purpose: Purpose) -> Permit {
        Permit { admission: Some(self.clone()), requestor: *requestor, sums: purpose.sums(), shared: None }
    }

    /// A place in the queue of this requestor.
    pub(crate) fn enqueue(self: &Arc<Self>, requestor: &Requestor, purpose: Purpose) -> Result<PermitRequest, Full> {
        let (grant, granted) = oneshot::channel();
        let mut state = self.state.lock();
        if purpose == Purpose::Plain {
            self.try_add(&mut state, requestor, LINED_UP)?;
        }
        let number = state.line_up(requestor, purpose, Grant::Call(grant));
        self.dispatch(state);
        let admission = self.clone();
        let since = Instant::now();
        Ok(PermitRequest { admission, requestor: *requestor, number, granted, unconfirmed: None, purpose, since })
    }

    /// The same for one that had its turn and could not use it.
    fn enqueue_again(&self, requestor: &Requestor, number: u64, purpose: Purpose) -> oneshot::Receiver<Permit> {
        let (grant, granted) = oneshot::channel();
        self.state.lock().line_up_as(requestor, Waiter { number, purpose, grant: Grant::Call(grant) });
        granted
    }

    /// A place among the queued, waiting or paused tasks of this requestor, if there is one.
    pub(crate) fn hold(self: &Arc<Self>, requestor: &Requestor, state: IdleState) -> Result<IdleSlot, Full> {
        self.try_add(&mut self.state.lock(), requestor, state.sums())?;
        Ok(IdleSlot { admission: self.clone(), requestor: *requestor, state, shared: None })
    }

    /// The same within the limits over all hosts.
    pub(crate) async fn hold_over_all(
        self: &Arc<Self>,
        requestor: &Requestor,
        state: IdleState,
    ) -> Result<Result<IdleSlot, Full>, store::Error> {
        let mut slot = match self.hold(requestor, state) {
            Ok(slot) => slot,
            Err(full) => return Ok(Err(full)),
        };
        if let Some((shared, state)) = self.shared.as_ref().zip(state.shared()) {
            match shared.take(requestor, state, &self.limits(requestor)).await {
                Ok(count) => slot.shared = Some(count),
                Err(store::Error::Quota { limit, value }) => return Ok(Err(Full { limit, value })),
                Err(error) => return Err(error),
            }
        }
        Ok(Ok(slot))
    }

    /// The same for what is there already and stays, whatever the limits say.
    pub(crate) fn keep(self: &Arc<Self>, requestor: &Requestor, state: IdleState) -> IdleSlot {
        self.state.lock().counts.add(requestor, state.sums());
        let shared = self.shared.as_ref().zip(state.shared()).map(|(shared, state)| shared.keep(requestor, state));
        IdleSlot { admission: self.clone(), requestor: *requestor, state, shared }
    }

    /// Which limit keeps this requestor from running one more call: its tenant's, its own, or that of the host.
    pub(crate) fn blocked(&self, requestor: &Requestor, purpose: Purpose) -> Option<Full> {
        self.refusal(&self.state.lock(), requestor, purpose)
    }

    fn refusal(&self, state: &State, requestor: &Requestor, purpose: Purpose) -> Option<Full> {
        if state.holds_back(purpose) {
            return Some(Full { limit: "tasks_running_per_requestor", value: 0 });
        }
        let limits = self.limits.read();
        if self.is_full_over_all(requestor, purpose) {
            let value = u64::from(limits.of(requestor).tasks_running_per_requestor);
            return Some(Full { limit: "tasks_running_per_requestor", value });
        }
        state.counts.check(requestor, purpose.sums(), running_bounds(limits.of(requestor), &limits.base)).err()
    }

    /// Counts a call as so much more, if its limits allow it.
    fn try_add(&self, state: &mut State, requestor: &Requestor, sums: Sums) -> Result<(), Full> {
        let limits = self.limits.read();
        let own = limits.of(requestor);
        let host = &limits.base;
        match sums {
            Sums { running: 0, running_tasks: 0, .. } => {
                state.counts.try_add(requestor, sums, idle_bounds(own, host, self.resting_max))
            }
            _ => state.counts.try_add(requestor, sums, running_bounds(own, host)),
        }
    }

    fn release(self: &Arc<Self>, requestor: &Requestor, sums: Sums) {
        let mut state = self.state.lock();
        state.counts.release(requestor, sums);
        self.dispatch(state);
    }

    fn leave(self: &Arc<Self>, requestor: &Requestor, number: u64) {
        let mut state = self.state.lock();
        let State { queues, counts, .. } = &mut *state;
        for queue in queues.get_mut(requestor).into_iter().flatten() {
            let Some(at) = queue.iter().position(|waiter| waiter.number == number) else { continue };
            if queue.remove(at).is_some_and(|waiter| waiter.purpose == Purpose::Plain) {
                counts.release(requestor, LINED_UP);
            }
        }
        state.forget_if_empty(requestor);
        // A waiter behind it may have room now.
        self.dispatch(state);
    }

    /// Grants permits for as long as there is a waiter whose limits have room.
    fn dispatch<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) {
        if state.turns.is_empty() || state.is_handing_out {
            return;
        }
        loop {
            let admitted = self.grant(&mut state);
            state.is_handing_out = !admitted.is_empty();
            if admitted.is_empty() {
                return;
            }
            drop(state);
            let unused: Vec<_> = admitted.into_iter().filter_map(|admitted| self.hand_out(admitted)).collect();
            state = self.state.lock();
            for permit in unused {
                state.take_back(permit);
            }
        }
    }

    /// Grants permits to calls, and says which tasks there is a permit for.
    fn grant(self: &Arc<Self>, state: &mut State) -> Vec<Admitted> {
        let mut admitted = Vec::new();
        let running_max = u64::from(self.limits.read().base.calls_running_total);
        while state.counts.total().running < running_max {
            let Some((requestor, waiter)) = self.next_turn(state) else { break };
            state.counts.add(&requestor, waiter.purpose.sums());
            let permit = self.permit(&requestor, waiter.purpose);
            match waiter.grant {
                Grant::Task { id, since } => admitted.push(Admitted { id, since, purpose: waiter.purpose, permit }),
                Grant::Call(grant) => {
                    if let Err(permit) = grant.send(permit) {
                        // The waiter left at this very moment.
                        state.take_back(permit);
                    }
                }
            }
        }
        admitted
    }

    /// Whose turn it is: tenants in turn, within a tenant requestors in turn; a turn that cannot be used is kept.
    fn next_turn(&self, state: &mut State) -> Option<(Requestor, Waiter)> {
        for _ in 0..state.turns.len() {
            let (tenant, mut requestors) = state.turns.pop_front()?;
            let mut found = None;
            for _ in 0..requestors.len() {
                let Some(requestor) = requestors.pop_front() else { break };
                // What the first of each queue wants.
                let Some(queues) = state.queues.get(&requestor) else { continue };
                requestors.push_back(requestor);
                let mut fronts = queues.iter().filter_map(|queue| queue.front()).map(|waiter| waiter.purpose);
                let runnable = |purpose: &Purpose| self.refusal(state, &requestor, *purpose).is_none();
                found = fronts.find(runnable).map(|purpose| (requestor, purpose));
                if found.is_some() {
                    break;
                }
            }
            if !requestors.is_empty() {
                state.turns.push_back((tenant, requestors));
            }
            if let Some((requestor, purpose)) = found {
                let waiter = state.queues.get_mut(&requestor)?.get_mut(purpose.queue())?.pop_front()?;
                if purpose == Purpose::Plain {
                    state.counts.release(&requestor, LINED_UP);
                }
                state.forget_if_empty(&requestor);
                return Some((requestor, waiter));
            }
        }
        None
    }
}

/// The limits on calls that run, in the order in which they refuse. Those on tasks leave places to plain calls.
fn running_bounds(own: &Limits, host: &Limits) -> [Bound<Sums>; 5] {
    let calls = |sums: &Sums| sums.running;
    let tasks = |sums: &Sums| sums.running_tasks;
    [
        Scope::Tenant.bound_of(calls, "calls_running_per_tenant", own.calls_running_per_tenant),
        Scope::Requestor.bound_of(calls, "calls_running_per_requestor", own.calls_running_per_requestor),
        Scope::Total.bound_of(calls, "calls_running_total", host.calls_running_total).reserving(KEPT_BACK),
        Scope::Tenant.bound_of(tasks, "tasks_running_per_tenant", own.tasks_running_per_tenant),
        Scope::Requestor.bound_of(tasks, "tasks_running_per_requestor", own.tasks_running_per_requestor),
    ]
}

/// The limits on calls that do not run, likewise.
fn idle_bounds(own: &Limits, host: &Limits, resting_max: u32) -> [Bound<Sums>; 12] {
    let lined_up = |sums: &Sums| sums.lined_up;
    let queued = |sums: &Sums| sums.queued;
    let waiting = |sums: &Sums| sums.waiting;
    let paused = |sums: &Sums| sums.paused;
    let resting = |sums: &Sums| sums.resting;
    [
        Scope::Tenant.bound_of(lined_up, "calls_queued_per_tenant", own.calls_queued_per_tenant),
        Scope::Requestor.bound_of(lined_up, "calls_queued_per_requestor", own.calls_queued_per_requestor),
        Scope::Total.bound_of(lined_up, "calls_queued_total", host.calls_queued_total),
        Scope::Tenant.bound_of(queued, "tasks_queued_per_tenant", own.tasks_queued_per_tenant),
        Scope::Requestor.bound_of(queued, "tasks_queued_per_requestor", own.tasks_queued_per_requestor),
        Scope::Total.bound_of(queued, "tasks_queued_total", host.tasks_queued_total),
        Scope::Tenant.bound_of(waiting, "tasks_waiting_per_tenant", own.tasks_waiting_per_tenant),
        Scope::Requestor.bound_of(waiting, "tasks_waiting_per_requestor", own.tasks_waiting_per_requestor),
        Scope::Tenant.bound_of(paused, "tasks_paused_per_tenant", own.tasks_paused_per_tenant),
        Scope::Requestor.bound_of(paused, "tasks_paused_per_requestor", own.tasks_paused_per_requestor),
        Scope::Tenant.bound_of(resting, "calls_resting_per_tenant", own.calls_resting_per_tenant),
        Scope::Total.bound_of(resting, "calls_resting_total", resting_max).reserving(KEPT_BACK),
    ]
}

impl State {
    /// Whether a call for this purpose has to wait in any case.
    fn holds_back(&self, purpose: Purpose) -> bool {
        self.held && matches!(purpose, Purpose::Task | Purpose::Wake)
    }

    /// Whether a call for this purpose would have to wait behind another one.
    fn has_waiters_before(&self, requestor: &Requestor, purpose: Purpose) -> bool {
        let queues = self.queues.get(requestor).into_iter().flatten();
        queues.take(purpose.queue() + 1).any(|queue| !queue.is_empty())
    }

    /// Counts a permit as free that is not used. Its drop would lock the state again.
    fn take_back(&mut self, mut permit: Permit) {
        if permit.admission.take().is_some() {
            self.counts.release(&permit.requestor, permit.sums);
        }
    }

    /// Puts a waiter at the end of its queue; its number.
    fn line_up(&mut self, requestor: &Requestor, purpose: Purpose, grant: Grant) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.line_up_as(requestor, Waiter { number, purpose, grant });
        number
    }

    /// Puts a waiter that has its number before those that came after it.
    fn line_up_as(&mut self, requestor: &Requestor, waiter: Waiter) {
        if let Some(queue) = self.queues.entry(*requestor).or_default().get_mut(waiter.purpose.queue()) {
            let at = queue.partition_point(|before| before.number < waiter.number);
            queue.insert(at, waiter);
        }
        self.add_turn(requestor);
    }

    /// Takes a turn for this requestor, once.
    fn add_turn(&mut self, requestor: &Requestor) {
        match self.turns.iter_mut().find(|(tenant, _)| *tenant == requestor.tenant) {
            Some((_, requestors)) if requestors.contains(requestor) => {}
            Some((_, requestors)) => requestors.push_back(*requestor),
            None => self.turns.push_back((requestor.tenant, VecDeque::from([*requestor]))),
        }
    }

    /// Queues are kept only for those who wait: the map must not grow with everybody who ever called.
    fn forget_if_empty(&mut self, requestor: &Requestor) {
        if self.queues.get(requestor).is_some_and(|queues| queues.iter().all(VecDeque::is_empty)) {
            self.queues.remove(requestor);
        }
    }
}

/// `retry_after_ms`: when there may be room again, if that is known.
pub(crate) fn refused(full: Full, retry_after_ms: Option<u64>) -> Error {
    let retry_after_ms = Some(retry_after_ms.unwrap_or(PLACE_RETRY_MS));
    Error::Quota { limit: full.limit, value: full.value, retry_after_ms }
}

#[cfg(test)]
pub(crate) mod tests;
