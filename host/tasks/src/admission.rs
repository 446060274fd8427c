//! Who may run: permits for calls, fair between tenants and requestors, first come first served within one requestor.
//!
//! Owns the counts of running calls (plain ones and tasks together), of queued, waiting and paused tasks, and of calls that rest. Must
//! not know what a call does. Invariant: a [`Permit`] is a running call; the counts of a tenant, of a requestor and of the host are below their limits at every
//! moment, however many requestors a tenant makes; and a released permit goes to the waiter that has waited longest among those
//! whose limits still have room.
//!
//! What may wait and what must not: a task waits in its requestor's queue for as long as its TTL; a plain call waits for
//! `call_queue_ms_max`, because a client is holding a connection open for it; a call that already holds an instance (it slept or
//! asked) goes before new ones of the same requestor, because its memory is taken anyway.
//! Plain calls do not stand behind the same requestor's queued tasks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use super::feed::lock;
use bulkhead_domain::limits::Limits;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_limits::LiveLimits;

/// What a permit is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Plain,
    Task,
    /// A call that holds an instance goes on; `task` says which running limits it counts against.
    Again {
        task: bool,
    },
}

impl Purpose {
    fn is_task(self) -> bool {
        matches!(self, Self::Task | Self::Again { task: true })
    }

    /// Its place in `Counts::queues`.
    fn queue(self) -> usize {
        match self {
            Self::Again { .. } => 0,
            Self::Plain => 1,
            Self::Task => 2,
        }
    }
}

/// A limit that refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full {
    pub(super) limit: &'static str,
    pub(super) value: u64,
}

/// The part of the host's places that is kept back for tenants that have nothing yet: one in so many.
const KEPT_BACK: u32 = 8;

/// How much of the host a tenant may fill that has so much already: a few tenants cannot keep another one from its first call.
fn left_to(has: u32, total: u32) -> u32 {
    if has == 0 { total } else { total - total / KEPT_BACK }
}

/// Finds the limit that has no room for one more, among (its count, itself, its name).
fn first_full<const N: usize>(checks: [(u32, u32, &'static str); N]) -> Option<Full> {
    let full = checks.into_iter().find(|(count, max, _)| count >= max);
    full.map(|(_, max, limit)| Full { limit, value: max.into() })
}

/// What keeps one more task of a requestor from running, beside what keeps any call: tasks leave places to plain calls.
fn running_tasks((own, tenant): (Sums, Sums), limits: &Limits) -> [(u32, u32, &'static str); 2] {
    [
        (tenant.running_tasks, limits.tasks_running_per_tenant, "tasks_running_per_tenant"),
        (own.running_tasks, limits.tasks_running_per_requestor, "tasks_running_per_requestor"),
    ]
}

#[derive(Debug)]
pub(super) struct Admission {
    limits: LiveLimits,
    /// Calls that may rest at the same time, in all. Each holds an instance of the pool; more of them would take the instances
    /// that running calls have a permit for.
    resting_max: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether tasks stay in their queues although there is room.
    held: bool,
    all: Sums,
    next_ticket: u64,
    tenants: FxHashMap<TenantId, Sums>,
    requestors: FxHashMap<Requestor, Counts>,
    /// Requestors with waiters, in the order of their turns, per tenant; and the tenants in the order of theirs.
    turns: VecDeque<(TenantId, VecDeque<Requestor>)>,
}

/// Of all requestors of one tenant, or of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Plain calls and tasks together.
    pub running: u32,
    /// Those of them that are tasks.
    pub running_tasks: u32,
    /// Plain calls that wait for a permit.
    pub lined_up: u32,
    pub queued: u32,
    pub waiting: u32,
    pub paused: u32,
    /// Calls that hold an instance without running: they wait, are stopped by a pause, or go on and wait for a permit.
    pub resting: u32,
}

/// What is in use of the limits that count calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    pub all: Sums,
    /// Calls that may rest at the same time, in all.
    pub resting_max: u32,
    pub tenants: FxHashMap<TenantId, Sums>,
    pub requestors: FxHashMap<Requestor, RequestorInUse>,
}

/// The same of one requestor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestorInUse {
    pub running: u32,
    pub running_tasks: u32,
    pub lined_up: u32,
    pub queued: u32,
    pub waiting: u32,
    pub paused: u32,
}

impl Sums {
    fn change(&mut self, hold: IdleState, change: impl Fn(&mut u32)) {
        match hold {
            IdleState::Queued => change(&mut self.queued),
            IdleState::Waiting => {
                change(&mut self.waiting);
                change(&mut self.resting);
            }
            IdleState::Paused => change(&mut self.paused),
            IdleState::Stopped => change(&mut self.resting),
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    sums: Sums,
    /// Served in this order: calls that go on, plain calls (a client holds a connection open for each), new tasks.
    queues: [VecDeque<Waiter>; 3],
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    purpose: Purpose,
    grant: oneshot::Sender<Permit>,
}

/// The right to run, released when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    /// `None` once it was released by other means.
    admission: Option<Arc<Admission>>,
    requestor: Requestor,
    task: bool,
}

impl Permit {
    /// Counts from now on as a task, if there is room for one more.
    pub(super) fn become_task(&mut self) -> Result<(), Full> {
        let Some(admission) = self.admission.as_ref().filter(|_| !self.task) else { return Ok(()) };
        let limits = admission.limits.of(&self.requestor);
        let mut state = lock(&admission.state);
        if let Some(full) = first_full(running_tasks(state.counts(&self.requestor), &limits)) {
            return Err(full);
        }
        state.sum(&self.requestor, |sums| sums.running_tasks += 1);
        self.task = true;
        Ok(())
    }

    /// Takes [`Permit::become_task`] back: there is no task after all.
    pub(super) fn become_plain(&mut self) {
        let Some(admission) = self.admission.as_ref().filter(|_| self.task) else { return };
        self.task = false;
        let mut state = lock(&admission.state);
        state.sum(&self.requestor, |sums| take_one(&mut sums.running_tasks));
        // A task that waits may have room now.
        admission.dispatch(state);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(admission) = self.admission.take() {
            admission.release(&self.requestor, self.task);
        }
    }
}

/// A place in the queue; dropping it leaves the queue.
#[derive(Debug)]
pub(super) struct PermitRequest {
    admission: Arc<Admission>,
    requestor: Requestor,
    number: u64,
    granted: oneshot::Receiver<Permit>,
}

impl PermitRequest {
    /// Resolves when it is this call's turn. Cancel-safe.
    pub(super) async fn permit(&mut self) -> Option<Permit> {
        (&mut self.granted).await.ok()
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
pub(super) enum IdleState {
    /// A task that has not started.
    Queued,
    /// A call that asked or sleeps.
    Waiting,
    /// A task that is paused, wherever its run stands.
    Paused,
    /// A call that a pause has stopped: its instance, whatever the task counts as.
    Stopped,
}

/// A place in one of them, released when dropped.
#[derive(Debug)]
pub(super) struct IdleSlot {
    admission: Arc<Admission>,
    requestor: Requestor,
    hold: IdleState,
}

impl Drop for IdleSlot {
    fn drop(&mut self) {
        let mut state = lock(&self.admission.state);
        state.sum(&self.requestor, |sums| sums.change(self.hold, take_one));
    }
}

fn take_one(count: &mut u32) {
    *count = count.saturating_sub(1);
}

impl Counts {
    fn is_idle(&self) -> bool {
        self.sums == Sums::default() && self.queues.iter().all(VecDeque::is_empty)
    }

    /// Whether a call for this purpose would have to wait behind another one.
    fn has_waiters_before(&self, purpose: Purpose) -> bool {
        self.queues.iter().take(purpose.queue() + 1).any(|queue| !queue.is_empty())
    }
}

impl Admission {
    pub(super) fn new(limits: LiveLimits, resting_max: u32) -> Arc<Self> {
        Arc::new(Self { limits, resting_max, state: Mutex::default() })
    }

    pub(super) fn limits(&self, requestor: &Requestor) -> Arc<Limits> {
        self.limits.of(requestor)
    }

    /// Those that hold at the moment, for everybody.
    pub(super) fn live_limits(&self) -> &LiveLimits {
        &self.limits
    }

    /// Gives what there is room for by now.
    pub(super) fn dispatch_waiting(self: &Arc<Self>) {
        self.dispatch(lock(&self.state));
    }

    /// Keeps tasks in their queues, or lets them go again.
    pub(super) fn hold_queues(self: &Arc<Self>, held: bool) {
        let mut state = lock(&self.state);
        state.held = held;
        self.dispatch(state);
    }

    /// Everything that is counted at this moment.
    pub(super) fn in_use(&self) -> InUse {
        let state = lock(&self.state);
        let requestors = state.requestors.iter().map(|(requestor, counts)| {
            let Sums { running, running_tasks, lined_up, queued, waiting, paused, .. } = counts.sums;
            (*requestor, RequestorInUse { running, running_tasks, lined_up, queued, waiting, paused })
        });
        InUse {
            all: state.all,
            resting_max: self.resting_max,
            tenants: state.tenants.clone(),
            requestors: requestors.collect(),
        }
    }

    /// Calls that hold a permit.
    #[cfg(test)]
    pub(super) fn running(&self) -> u32 {
        lock(&self.state).all.running
    }

    /// A permit at once, if nobody waits before and there is room.
    pub(super) fn try_permit(self: &Arc<Self>, requestor: &Requestor, purpose: Purpose) -> Option<Permit> {
        let mut state = lock(&self.state);
        let counts = state.requestors.entry(*requestor).or_default();
        let first = !counts.has_waiters_before(purpose);
        let granted = first && self.refusal(&state, requestor, purpose).is_none();
        if granted {
            state.take(requestor, purpose.is_task());
        } else {
            state.forget_if_idle(requestor);
        }
        drop(state);
        granted.then(|| Permit { admission: Some(self.clone()), requestor: *requestor, task: purpose.is_task() })
    }

    /// A place in the queue of this requestor.
    pub(super) fn enqueue(self: &Arc<Self>, requestor: &Requestor, purpose: Purpose) -> Result<PermitRequest, Full> {
        let (grant, granted) = oneshot::channel();
        let mut state = lock(&self.state);
        let number = state.next_ticket;
        if purpose == Purpose::Plain {
            if let Some(full) = self.line_full(&state, requestor) {
                return Err(full);
            }
            state.sum(requestor, |sums| sums.lined_up += 1);
        }
        let counts = state.requestors.entry(*requestor).or_default();
        let [again, plain, task] = &mut counts.queues;
        let queue = match purpose {
            Purpose::Again { .. } => again,
            Purpose::Plain => plain,
            Purpose::Task => task,
        };
        queue.push_back(Waiter { ticket: number, purpose, grant });
        state.next_ticket += 1;
        state.add_turn(requestor);
        self.dispatch(state);
        Ok(PermitRequest { admission: self.clone(), requestor: *requestor, number, granted })
    }

    /// A place among the queued, waiting or paused tasks of this requestor, if there is one.
    pub(super) fn hold(self: &Arc<Self>, requestor: &Requestor, hold: IdleState) -> Result<IdleSlot, Full> {
        let mut state = lock(&self.state);
        if let Some(full) = self.hold_full(&state, requestor, hold) {
            return Err(full);
        }
        Ok(self.count(&mut state, requestor, hold))
    }

    /// The same for what is there already and stays, whatever the limits say.
    pub(super) fn keep(self: &Arc<Self>, requestor: &Requestor, hold: IdleState) -> IdleSlot {
        self.count(&mut lock(&self.state), requestor, hold)
    }

    fn count(self: &Arc<Self>, state: &mut State, requestor: &Requestor, hold: IdleState) -> IdleSlot {
        state.sum(requestor, |sums| sums.change(hold, |count| *count += 1));
        IdleSlot { admission: self.clone(), requestor: *requestor, hold }
    }

    fn hold_full(&self, state: &State, requestor: &Requestor, hold: IdleState) -> Option<Full> {
        let limits = self.limits.of(requestor);
        let (own, tenant) = state.counts(requestor);
        let no_room_to_rest = || {
            first_full([
                (tenant.resting, limits.calls_resting_per_tenant, "calls_resting_per_tenant"),
                (state.all.resting, left_to(tenant.resting, self.resting_max), "calls_resting_total"),
            ])
        };
        match hold {
            IdleState::Queued => first_full([
                (tenant.queued, limits.tasks_queued_per_tenant, "tasks_queued_per_tenant"),
                (own.queued, limits.tasks_queued_per_requestor, "tasks_queued_per_requestor"),
                (state.all.queued, self.limits.base().tasks_queued_total, "tasks_queued_total"),
            ]),
            IdleState::Waiting => first_full([
                (tenant.waiting, limits.tasks_waiting_per_tenant, "tasks_waiting_per_tenant"),
                (own.waiting, limits.tasks_waiting_per_requestor, "tasks_waiting_per_requestor"),
            ])
            .or_else(no_room_to_rest),
            IdleState::Paused => first_full([
                (tenant.paused, limits.tasks_paused_per_tenant, "tasks_paused_per_tenant"),
                (own.paused, limits.tasks_paused_per_requestor, "tasks_paused_per_requestor"),
            ]),
            IdleState::Stopped => no_room_to_rest(),
        }
    }

    /// Which limit keeps a plain call of this requestor from waiting for a permit.
    fn line_full(&self, state: &State, requestor: &Requestor) -> Option<Full> {
        let limits = self.limits.of(requestor);
        let (own, tenant) = state.counts(requestor);
        first_full([
            (tenant.lined_up, limits.calls_queued_per_tenant, "calls_queued_per_tenant"),
            (own.lined_up, limits.calls_queued_per_requestor, "calls_queued_per_requestor"),
            (state.all.lined_up, self.limits.base().calls_queued_total, "calls_queued_total"),
        ])
    }

    /// Which limit keeps this requestor from running one more call: its tenant's, its own, or that of the host.
    pub(super) fn blocked(&self, requestor: &Requestor, purpose: Purpose) -> Option<Full> {
        self.refusal(&lock(&self.state), requestor, purpose)
    }

    fn refusal(&self, state: &State, requestor: &Requestor, purpose: Purpose) -> Option<Full> {
        if state.held && purpose == Purpose::Task {
            return Some(Full { limit: "tasks_running_per_requestor", value: 0 });
        }
        let all = self.limits.read();
        let limits = all.of(requestor);
        let (own, tenant) = state.counts(requestor);
        let no_task_more = || first_full(running_tasks((own, tenant), limits));
        let full = first_full([
            (tenant.running, limits.calls_running_per_tenant, "calls_running_per_tenant"),
            (own.running, limits.calls_running_per_requestor, "calls_running_per_requestor"),
            (state.all.running, left_to(tenant.running, all.base.calls_running_total), "calls_running_total"),
        ]);
        full.or_else(|| purpose.is_task().then(no_task_more).flatten())
    }

    fn release(self: &Arc<Self>, requestor: &Requestor, task: bool) {
        let mut state = lock(&self.state);
        state.uncount(requestor, task);
        self.dispatch(state);
    }

    fn leave(self: &Arc<Self>, requestor: &Requestor, number: u64) {
        let mut state = lock(&self.state);
        if let Some(counts) = state.requestors.get_mut(requestor) {
            let plain = |waiter: &Waiter| waiter.ticket == number && waiter.purpose == Purpose::Plain;
            let was_lined_up = counts.queues.iter().flatten().any(plain);
            counts.queues.iter_mut().for_each(|queue| queue.retain(|waiter| waiter.ticket != number));
            if was_lined_up {
                state.sum(requestor, |sums| take_one(&mut sums.lined_up));
            }
        }
        state.forget_if_idle(requestor);
        // Whoever stood behind the one that left may have room where it had none.
        self.dispatch(state);
    }

    /// Grants permits for as long as there is a waiter whose limits have room.
    fn dispatch(self: &Arc<Self>, mut state: std::sync::MutexGuard<'_, State>) {
        if state.turns.is_empty() {
            return;
        }
        let running_max = self.limits.read().base.calls_running_total;
        while state.all.running < running_max {
            let Some((requestor, waiter)) = self.next_turn(&mut state) else { break };
            let task = waiter.purpose.is_task();
            state.take(&requestor, task);
            let permit = Permit { admission: Some(self.clone()), requestor, task };
            if let Err(mut permit) = waiter.grant.send(permit) {
                // The waiter left at this very moment. The lock is held here, so its permit must not be given back by its drop.
                permit.admission = None;
                state.uncount(&requestor, task);
                drop(permit);
            }
        }
    }

    /// Whose turn it is: tenants in turn, within a tenant requestors in turn; a turn that cannot be used is kept.
    fn next_turn(&self, state: &mut State) -> Option<(Requestor, Waiter)> {
        for _ in 0..state.turns.len() {
            let (tenant, mut requestors) = state.turns.pop_front()?;
            let mut found = None;
            for _ in 0..requestors.len() {
                let Some(requestor) = requestors.pop_front() else { break };
                let fronts = state.requestors.get(&requestor).map(Counts::fronts).unwrap_or_default();
                if fronts == [None; 3] {
                    continue;
                }
                requestors.push_back(requestor);
                let runnable = |purpose: &Purpose| self.refusal(state, &requestor, *purpose).is_none();
                found = fronts.into_iter().flatten().find(runnable).map(|purpose| (requestor, purpose));
                if found.is_some() {
                    break;
                }
            }
            if !requestors.is_empty() {
                state.turns.push_back((tenant, requestors));
            }
            if let Some((requestor, purpose)) = found {
                let counts = state.requestors.get_mut(&requestor)?;
                let waiter = counts.queues.get_mut(purpose.queue())?.pop_front()?;
                if purpose == Purpose::Plain {
                    state.sum(&requestor, |sums| take_one(&mut sums.lined_up));
                }
                return Some((requestor, waiter));
            }
        }
        None
    }
}

impl Counts {
    /// What the first of each queue wants.
    fn fronts(&self) -> [Option<Purpose>; 3] {
        self.queues.each_ref().map(|queue| queue.front().map(|waiter| waiter.purpose))
    }
}

impl State {
    fn take(&mut self, requestor: &Requestor, task: bool) {
        self.sum(requestor, |sums| {
            sums.running += 1;
            sums.running_tasks += u32::from(task);
        });
    }

    /// What counts of a requestor and of its tenant.
    fn counts(&self, requestor: &Requestor) -> (Sums, Sums) {
        let own = self.requestors.get(requestor).map(|counts| counts.sums);
        let tenant = self.tenants.get(&requestor.tenant).copied();
        (own.unwrap_or_default(), tenant.unwrap_or_default())
    }

    /// Changes the sums of the host, of a tenant and of a requestor; the last two are kept only while something counts.
    fn sum(&mut self, requestor: &Requestor, change: impl Fn(&mut Sums)) {
        change(&mut self.all);
        let sums = self.tenants.entry(requestor.tenant).or_default();
        change(sums);
        if *sums == Sums::default() {
            self.tenants.remove(&requestor.tenant);
        }
        change(&mut self.requestors.entry(*requestor).or_default().sums);
        self.forget_if_idle(requestor);
    }

    fn uncount(&mut self, requestor: &Requestor, task: bool) {
        self.sum(requestor, |sums| {
            take_one(&mut sums.running);
            sums.running_tasks = sums.running_tasks.saturating_sub(u32::from(task));
        });
    }

    /// Takes a turn for this requestor, once.
    fn add_turn(&mut self, requestor: &Requestor) {
        match self.turns.iter_mut().find(|(tenant, _)| *tenant == requestor.tenant) {
            Some((_, requestors)) if requestors.contains(requestor) => {}
            Some((_, requestors)) => requestors.push_back(*requestor),
            None => self.turns.push_back((requestor.tenant, VecDeque::from([*requestor]))),
        }
    }

    /// Counts are kept only for those who use something: the map must not grow with everybody who ever called.
    fn forget_if_idle(&mut self, requestor: &Requestor) {
        if self.requestors.get(requestor).is_some_and(Counts::is_idle) {
            self.requestors.remove(requestor);
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
