//! Tasks of this host that count within limits over all hosts which share the store.
//!
//! Owns what this host has of them, and what the store has written down of that. Must not know what a task does.
//! Invariants: what is granted is written down before; and what is written down and not used any more is released soon,
//! or granted here once more without a write.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use bulkhead_domain::limits::Limits;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_store::Error;
use bulkhead_store::hosts::{HeldBound, HeldChange, HeldOutcome, HeldRequest, HeldState, HeldTasks};

/// How long what ended here is kept for what comes next.
const KEPT_FOR: Duration = Duration::from_millis(50);
/// How late it is noticed that another host has made room, where that does not say so.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After the store has failed.
const RETRY_AFTER: Duration = Duration::from_millis(250);
/// Requestors whose counts change in one operation.
const REQUESTORS_MAX: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SharedCounts {
    state: Mutex<State>,
    work: Notify,
}

/// The entries are those of requestors with tasks here that are not over.
#[derive(Debug, Default)]
struct State {
    used: HashMap<Requestor, HeldTasks>,
    /// No more than the store has.
    written: HashMap<Requestor, HeldTasks>,
    /// Whose use is another one than what is written, and since when.
    changed: HashMap<Requestor, Instant>,
    waiting: Vec<Waiting>,
    /// Requestors, or all of a tenant, that have no room for running tasks at the moment.
    full: HashSet<Requestor>,
    full_tenants: HashSet<TenantId>,
    /// Other hosts wait for running tasks of theirs to end: what ends here is not kept.
    awaited_elsewhere: HashSet<Requestor>,
    /// What is full may have room by now.
    has_room: bool,
}

#[derive(Debug)]
struct Waiting {
    requestor: Requestor,
    request: HeldRequest,
    reply: oneshot::Sender<Result<SharedCount, Error>>,
}

/// One task that counts in a state, until dropped.
#[derive(Debug)]
pub(crate) struct SharedCount {
    counts: Arc<SharedCounts>,
    requestor: Requestor,
    state: HeldState,
}

/// What is to be written, and who waits for it.
struct Batch {
    changes: Vec<HeldChange>,
    waiting: Vec<Vec<Waiting>>,
    /// Of each change, whether it makes room for running tasks.
    gives_back: Vec<bool>,
}

fn request(state: HeldState, limits: &Limits) -> HeldRequest {
    let bound = |limit, max| HeldBound { limit, max };
    let (of_tenant, of_requestor) = match state {
        HeldState::Queued => (
            bound("tasks_queued_per_tenant", limits.tasks_queued_per_tenant),
            bound("tasks_queued_per_requestor", limits.tasks_queued_per_requestor),
        ),
        HeldState::Running => (
            bound("tasks_running_per_tenant", limits.tasks_running_per_tenant),
            bound("tasks_running_per_requestor", limits.tasks_running_per_requestor),
        ),
        HeldState::Paused => (
            bound("tasks_paused_per_tenant", limits.tasks_paused_per_tenant),
            bound("tasks_paused_per_requestor", limits.tasks_paused_per_requestor),
        ),
    };
    HeldRequest { state, of_tenant, of_requestor }
}

impl SharedCounts {
    /// One task more of this requestor in a state, if there is room over all hosts.
    pub(crate) async fn take(
        self: &Arc<Self>,
        requestor: &Requestor,
        state: HeldState,
        limits: &Limits,
    ) -> Result<SharedCount, Error> {
        let granted = {
            let mut counts = self.state.lock();
            if counts.take_kept(requestor, state) {
                return Ok(self.count(requestor, state));
            }
            let (reply, granted) = oneshot::channel();
            counts.waiting.push(Waiting { requestor: *requestor, request: request(state, limits), reply });
            granted
        };
        self.work.notify_one();
        // Nobody answers once the host goes down.
        granted.await.unwrap_or(Err(Error::Unavailable { retry_after_ms: 1_000 }))
    }

    /// Counts one whatever the limits are: it is there already.
    pub(crate) fn keep(self: &Arc<Self>, requestor: &Requestor, state: HeldState) -> SharedCount {
        let mut counts = self.state.lock();
        *counts.used.entry(*requestor).or_default().of_mut(state) += 1;
        counts.changed.entry(*requestor).or_insert_with(Instant::now);
        drop(counts);
        self.work.notify_one();
        self.count(requestor, state)
    }

    fn count(self: &Arc<Self>, requestor: &Requestor, state: HeldState) -> SharedCount {
        SharedCount { counts: Arc::clone(self), requestor: *requestor, state }
    }

    /// Whether no more tasks of this requestor can run at the moment, as far as is known.
    pub(crate) fn is_full(&self, requestor: &Requestor) -> bool {
        let counts = self.state.lock();
        counts.full.contains(requestor) || counts.full_tenants.contains(&requestor.tenant)
    }

    /// Other hosts may have made room.
    pub(crate) fn look(&self) {
        self.state.lock().forget_full(|_| true, |_| true);
        self.work.notify_one();
    }

    /// The store has forgotten what this host has: all of it is written again.
    pub(crate) fn write_again(&self) {
        let mut counts = self.state.lock();
        counts.written.clear();
        let now = Instant::now();
        let all: Vec<_> = counts.used.keys().copied().collect();
        counts.changed.extend(all.into_iter().map(|requestor| (requestor, now)));
        drop(counts);
        self.work.notify_one();
    }

    /// Writes what changes, until dropped. `on_room`: tasks that wait may be let go.
    pub(crate) async fn write<F>(self: &Arc<Self>, hold: impl Fn(Vec<HeldChange>) -> F, on_room: impl Fn())
    where
        F: Future<Output = Result<Vec<HeldOutcome>, Error>>,
    {
        let mut look_at = tokio::time::Instant::now() + LOOK_EVERY;
        loop {
            let due = self.state.lock().due();
            let next = due.map_or(look_at, |due| look_at.min(due.into()));
            tokio::select! {
                () = self.work.notified() => {}
                () = tokio::time::sleep_until(next) => {}
            }
            if tokio::time::Instant::now() >= look_at {
                look_at = tokio::time::Instant::now() + LOOK_EVERY;
                self.state.lock().forget_full(|_| true, |_| true);
            }
            if !self.turn(&hold).await {
                tokio::time::sleep(RETRY_AFTER).await;
            }
            if std::mem::take(&mut self.state.lock().has_room) {
                on_room();
            }
        }
    }

    /// Whether the store took what there was to write.
    async fn turn<F>(self: &Arc<Self>, hold: &impl Fn(Vec<HeldChange>) -> F) -> bool
    where
        F: Future<Output = Result<Vec<HeldOutcome>, Error>>,
    {
        let Batch { changes, waiting, gives_back } = self.begin();
        if changes.is_empty() {
            return true;
        }
        match hold(changes.clone()).await {
            Ok(outcomes) => {
                for (((change, waiting), gives_back), outcome) in
                    changes.iter().zip(waiting).zip(gives_back).zip(outcomes)
                {
                    self.settle(change, waiting, gives_back, outcome);
                }
                true
            }
            Err(error) => {
                tracing::debug!(%error, "what tasks count over all hosts is not written yet");
                let mut counts = self.state.lock();
                for change in &changes {
                    // It may have been written all the same.
                    counts.written.remove(&change.requestor);
                    counts.changed.insert(change.requestor, Instant::now());
                }
                drop(counts);
                for Waiting { reply, .. } in waiting.into_iter().flatten() {
                    // The caller may have gone away.
                    let _ = reply.send(Err(Error::Unavailable { retry_after_ms: 1_000 }));
                }
                false
            }
        }
    }

    /// What is to be written now.
    fn begin(self: &Arc<Self>) -> Batch {
        let mut counts = self.state.lock();
        let mut waiting: HashMap<Requestor, Vec<Waiting>> = HashMap::new();
        let mut later = Vec::new();
        for one in std::mem::take(&mut counts.waiting) {
            let is_new = !waiting.contains_key(&one.requestor);
            match is_new && waiting.len() >= REQUESTORS_MAX {
                true => later.push(one),
                false => waiting.entry(one.requestor).or_default().push(one),
            }
        }
        if !later.is_empty() {
            self.work.notify_one();
        }
        counts.waiting = later;
        let due = Instant::now().checked_sub(KEPT_FOR);
        let more_max = REQUESTORS_MAX - waiting.len();
        let is_due = |requestor: &Requestor, since: &Instant| {
            due.is_none_or(|due| *since <= due) || counts.is_growing(requestor) || counts.is_given_back(requestor)
        };
        let due: Vec<_> =
            counts.changed.iter().filter(|(who, since)| is_due(who, since)).map(|(who, _)| *who).collect();
        for requestor in due.into_iter().take(more_max) {
            waiting.entry(requestor).or_default();
        }
        let mut changes = Vec::with_capacity(waiting.len());
        let mut of_changes = Vec::with_capacity(waiting.len());
        let mut gives_back = Vec::with_capacity(waiting.len());
        for (requestor, mut waiting) in waiting {
            counts.changed.remove(&requestor);
            let held = counts.used.get(&requestor).copied().unwrap_or_default();
            // What is about to be released is not granted any more.
            let written = counts.written.entry(requestor).or_default();
            let makes_room = held.running < written.running;
            *written = written.zip(held, u32::min);
            gives_back.push(makes_room);
            if makes_room && counts.awaited_elsewhere.contains(&requestor) {
                // The others come first: they hear of it at once.
                counts.full.insert(requestor);
                let is_running = |one: &mut Waiting| one.request.state == HeldState::Running;
                for Waiting { request, reply, .. } in waiting.extract_if(.., is_running) {
                    let HeldBound { limit, max } = request.of_requestor;
                    // The caller may have gone away.
                    let _ = reply.send(Err(Error::Quota { limit, value: u64::from(max) }));
                }
            }
            changes.push(HeldChange { requestor, held, more: waiting.iter().map(|one| one.request).collect() });
            of_changes.push(waiting);
        }
        Batch { changes, waiting: of_changes, gives_back }
    }

    /// Hands out what was granted.
    fn settle(self: &Arc<Self>, change: &HeldChange, waiting: Vec<Waiting>, gives_back: bool, outcome: HeldOutcome) {
        let requestor = change.requestor;
        let mut granted = Vec::new();
        let mut counts = self.state.lock();
        let mut written = change.held;
        for (Waiting { request, reply, .. }, outcome) in waiting.into_iter().zip(outcome.more) {
            match outcome {
                Ok(()) => {
                    *written.of_mut(request.state) += 1;
                    *counts.used.entry(requestor).or_default().of_mut(request.state) += 1;
                    granted.push((reply, Ok(self.count(&requestor, request.state))));
                }
                Err(error) => {
                    counts.note_full(&requestor, request.state, &error);
                    granted.push((reply, Err(error)));
                }
            }
        }
        match outcome.is_awaited_elsewhere {
            true => counts.awaited_elsewhere.insert(requestor),
            false => counts.awaited_elsewhere.remove(&requestor),
        };
        counts.written.insert(requestor, written);
        if outcome.is_awaited_elsewhere && gives_back {
            counts.full.insert(requestor);
        }
        counts.forget_if_nothing(&requestor);
        drop(counts);
        for (reply, granted) in granted {
            // A caller that has gone away gives it back.
            let _ = reply.send(granted);
        }
    }
}

impl State {
    /// Takes what is written down and not used; whether there was something.
    fn take_kept(&mut self, requestor: &Requestor, state: HeldState) -> bool {
        if self.awaited_elsewhere.contains(requestor) && state == HeldState::Running {
            return false;
        }
        let written = self.written.get(requestor).map_or(0, |written| written.of(state));
        let used = self.used.entry(*requestor).or_default().of_mut(state);
        if *used >= written {
            return false;
        }
        *used += 1;
        true
    }

    /// Whether it counts more here than is written down, which others are to know.
    fn is_growing(&self, requestor: &Requestor) -> bool {
        let written = self.written.get(requestor).copied().unwrap_or_default();
        let used = self.used.get(requestor).copied().unwrap_or_default();
        used.zip(written, u32::saturating_sub) != HeldTasks::default()
    }

    fn is_given_back(&self, requestor: &Requestor) -> bool {
        self.awaited_elsewhere.contains(requestor)
    }

    /// When something has to be written that nobody waits for.
    fn due(&self) -> Option<Instant> {
        self.changed.values().min().map(|since| *since + KEPT_FOR)
    }

    fn note_full(&mut self, requestor: &Requestor, state: HeldState, error: &Error) {
        match error {
            Error::Quota { limit, .. } if state == HeldState::Running && limit.ends_with("_per_tenant") => {
                self.full_tenants.insert(requestor.tenant);
                self.full.insert(*requestor);
            }
            _ if state == HeldState::Running => _ = self.full.insert(*requestor),
            _ => {}
        }
    }

    /// Those that were full are tried again. That they wait is written down again if they still do.
    fn forget_full(&mut self, of: impl Fn(&Requestor) -> bool, of_tenant: impl Fn(&TenantId) -> bool) {
        let forgotten: Vec<_> =
            self.full.extract_if(|requestor| of(requestor) || of_tenant(&requestor.tenant)).collect();
        self.full_tenants.retain(|tenant| !of_tenant(tenant));
        self.has_room |= !forgotten.is_empty();
        for requestor in forgotten {
            self.changed.entry(requestor).or_insert_with(Instant::now);
        }
    }

    fn forget_if_nothing(&mut self, requestor: &Requestor) {
        let is_nothing = |counts: &HashMap<Requestor, HeldTasks>| {
            counts.get(requestor).is_none_or(|held| *held == HeldTasks::default())
        };
        if is_nothing(&self.used) && is_nothing(&self.written) {
            self.used.remove(requestor);
            self.written.remove(requestor);
            self.awaited_elsewhere.remove(requestor);
        }
    }
}

impl Drop for SharedCount {
    fn drop(&mut self) {
        let mut counts = self.counts.state.lock();
        if let Some(used) = counts.used.get_mut(&self.requestor) {
            let used = used.of_mut(self.state);
            *used = used.saturating_sub(1);
        }
        counts.changed.entry(self.requestor).or_insert_with(Instant::now);
        if self.state == HeldState::Running {
            counts.forget_full(|requestor| *requestor == self.requestor, |tenant| *tenant == self.requestor.tenant);
        }
        drop(counts);
        self.counts.work.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_domain::requestor::RequestorId;

    const OWNER: Requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([1; 16]) };

    /// What other hosts have, and what this one has written.
    #[derive(Default)]
    struct Others {
        running: Mutex<u32>,
        writes: Mutex<Vec<HeldTasks>>,
        is_away: Mutex<bool>,
        is_awaited: Mutex<bool>,
    }

    impl Others {
        async fn hold(&self, changes: Vec<HeldChange>) -> Result<Vec<HeldOutcome>, Error> {
            if *self.is_away.lock() {
                return Err(Error::InDoubt);
            }
            let outcomes = changes.iter().map(|change| {
                let mut held = change.held;
                let mut more = Vec::new();
                for HeldRequest { state, of_requestor, .. } in &change.more {
                    let HeldBound { limit, max } = *of_requestor;
                    let others = if *state == HeldState::Running { *self.running.lock() } else { 0 };
                    match held.of(*state) + others < max {
                        true => {
                            *held.of_mut(*state) += 1;
                            more.push(Ok(()));
                        }
                        false => more.push(Err(Error::Quota { limit, value: u64::from(max) })),
                    }
                }
                self.writes.lock().push(held);
                HeldOutcome { more, is_awaited_elsewhere: *self.is_awaited.lock() }
            });
            Ok(outcomes.collect())
        }
    }

    fn limits() -> Limits {
        Limits { tasks_running_per_requestor: 2, ..Limits::generous() }
    }

    /// Takes one, while the store is written to as often as need be.
    async fn take(counts: &Arc<SharedCounts>, others: &Others) -> Result<SharedCount, Error> {
        let limits = limits();
        let hold = |changes| others.hold(changes);
        let write = async {
            while counts.turn(&hold).await {
                tokio::task::yield_now().await
            }
        };
        tokio::select! {
            biased;
            taken = counts.take(&OWNER, HeldState::Running, &limits) => taken,
            () = write => Err(Error::Unavailable { retry_after_ms: 0 }),
        }
    }

    fn running(others: &Others) -> Vec<u32> {
        others.writes.lock().drain(..).map(|held| held.running).collect()
    }

    #[tokio::test]
    async fn task_runs_if_there_is_room_over_all_hosts_and_what_ended_is_used_again_without_a_write() {
        let counts = Arc::<SharedCounts>::default();
        let others = Others::default();
        *others.running.lock() = 1;
        let first = take(&counts, &others).await.unwrap();
        assert!(matches!(
            take(&counts, &others).await,
            Err(Error::Quota { limit: "tasks_running_per_requestor", value: 2 })
        ));
        assert!(counts.is_full(&OWNER), "others of the requestor are not tried one after the other");
        drop(first);
        assert!(!counts.is_full(&OWNER));
        running(&others);
        let again = take(&counts, &others).await.unwrap();
        assert_eq!(running(&others), [0_u32; 0], "it is written down already");
        drop(again);
        tokio::time::sleep(KEPT_FOR * 2).await;
        assert!(counts.turn(&|changes| others.hold(changes)).await);
        assert_eq!(running(&others), [0], "it is released");
        let counts = counts.state.lock();
        assert!(counts.used.is_empty() && counts.written.is_empty() && counts.changed.is_empty(), "{counts:?}");
    }

    #[tokio::test]
    async fn what_others_wait_for_is_not_kept() {
        let counts = Arc::<SharedCounts>::default();
        let others = Others::default();
        *others.is_awaited.lock() = true;
        drop(take(&counts, &others).await.unwrap());
        running(&others);
        assert!(counts.turn(&|changes| others.hold(changes)).await);
        assert_eq!(running(&others), [0], "at once");
        assert!(counts.is_full(&OWNER), "they come first");
    }

    #[tokio::test]
    async fn what_the_store_has_not_confirmed_is_written_again() {
        let counts = Arc::<SharedCounts>::default();
        let others = Others::default();
        let first = take(&counts, &others).await.unwrap();
        *others.is_away.lock() = true;
        assert!(matches!(take(&counts, &others).await, Err(Error::Unavailable { .. })));
        *others.is_away.lock() = false;
        running(&others);
        assert!(counts.turn(&|changes| others.hold(changes)).await);
        assert_eq!(running(&others), [1]);
        counts.write_again();
        assert!(counts.turn(&|changes| others.hold(changes)).await);
        assert_eq!(running(&others), [1]);
        // A caller that went away has nothing.
        assert!(futures::FutureExt::now_or_never(counts.take(&OWNER, HeldState::Running, &limits())).is_none());
        assert!(counts.turn(&|changes| others.hold(changes)).await);
        assert_eq!(counts.state.lock().used.get(&OWNER).map(|used| used.running), Some(1));
        drop(first);
    }
}
