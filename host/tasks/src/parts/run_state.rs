//! What everybody else sees of a run: its record, its status, and its place among the paused tasks.
//!
//! Owns the record of a task that something drives; of one that nothing drives, a [summary](TaskSummary), and the store
//! has the record. Must not drive anything. Invariants: what is told comes in the order of the commits, and nothing
//! after the end; and a change that comes while a run leaves its record, or takes it up again, is seen by the one side
//! or by the other.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::parts::admission::{IdleSlot, QueueEntry};
use crate::parts::outcome::line;
use crate::parts::resting::{Followup, QueuedRun, Rest, RestingTask, TaskSummary};
use bulkhead_domain::UnixMs;
use bulkhead_domain::task::{Active, Phase, PluginVersion, Task};
use bulkhead_store::journal::TaskRef;

/// Why a call could not be brought back to where it was.
#[derive(Clone, Debug)]
pub(crate) struct ReplayFailure {
    pub(crate) why: String,
    /// The call did something else than its journal says. Otherwise the journal cannot be read, which is no fault of
    /// the plugin.
    pub(crate) is_divergence: bool,
}

/// What a run sees of its task.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    Record(Arc<Task>),
    /// Expired or removed.
    Gone,
}

/// What everybody else can see of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) task_ref: TaskRef,
    /// When the task is ended that is kept from its end on, and does not come to it.
    pub(crate) gives_up_at: Option<UnixMs>,
    /// Locked while anybody is told of the task: what is told comes in the order of the commits, and nothing after the
    /// end.
    state: Mutex<RunState>,
}

#[derive(Debug)]
struct RunState {
    status: Option<String>,
    /// Its place among the paused tasks, from the commit of the pause to that of its end.
    paused: Option<Box<IdleSlot>>,
    /// The last revision that was told.
    announced: u64,
    is_gone: bool,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Driven(Box<DrivenTask>),
    /// Most tasks wait for most of the time: what only one has that is driven is not there.
    Resting(RestingTask),
}

/// A task that something drives.
#[derive(Debug)]
struct DrivenTask {
    record: watch::Sender<Seen>,
    /// Why its call could not be brought back to where it was.
    replay_failure: Option<ReplayFailure>,
    /// What its task waits for once its run has ended, which is soon.
    leaving: Option<Rest>,
}

impl DrivenTask {
    fn new(task: Arc<Task>) -> Box<Self> {
        Box::new(Self { record: watch::channel(Seen::Record(task)).0, replay_failure: None, leaving: None })
    }

    fn task(&self) -> Option<Arc<Task>> {
        match &*self.record.borrow() {
            Seen::Record(task) => Some(Arc::clone(task)),
            Seen::Gone => None,
        }
    }
}

/// What comes of a record that was read for a task that is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakenUp {
    Driven,
    /// It is older than what the run was shown meanwhile.
    Outdated,
    Gone,
}

impl Run {
    /// A run that has its record.
    pub(crate) fn new(task: Arc<Task>, gives_up_at: Option<UnixMs>) -> Self {
        let task_ref = TaskRef::of(&task);
        let announced = task.revision;
        let stage = Stage::Driven(DrivenTask::new(task));
        let state = RunState { status: None, paused: None, announced, is_gone: false, stage };
        Self { task_ref, gives_up_at, state: Mutex::new(state) }
    }

    /// Shows the run a new record and tells of it, unless it has seen a later one.
    #[must_use]
    pub(crate) fn see(&self, task: &Arc<Task>, tell: impl FnOnce()) -> Option<Followup> {
        let state = &mut *self.state.lock();
        if state.is_gone {
            return None;
        }
        let followup = match &mut state.stage {
            Stage::Resting(resting) => resting.see(task),
            Stage::Driven(driven) => {
                driven.record.send_if_modified(|seen| match seen {
                    Seen::Record(current) if current.revision < task.revision => {
                        *seen = Seen::Record(Arc::clone(task));
                        true
                    }
                    Seen::Record(_) | Seen::Gone => false,
                });
                None
            }
        };
        if state.announced < task.revision {
            state.announced = task.revision;
            state.paused.take_if(|_| !is_paused(task));
            tell();
        }
        followup
    }

    /// The task expired, was removed, or is another host's.
    #[must_use]
    pub(crate) fn gone(&self) -> Option<Followup> {
        let state = &mut *self.state.lock();
        state.paused = None;
        state.is_gone = true;
        match &mut state.stage {
            Stage::Resting(resting) => resting.end(),
            Stage::Driven(driven) => {
                driven.record.send_replace(Seen::Gone);
                None
            }
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.state.lock().is_gone
    }

    /// What its task waits for once the run has ended.
    pub(crate) fn leave(&self, rest: Rest) {
        if let Stage::Driven(driven) = &mut self.state.lock().stage {
            driven.leaving = Some(rest);
        }
    }

    /// What the task waits for whose run has ended; `None`: for nothing any more.
    pub(crate) fn take_leaving(&self) -> Option<Rest> {
        match &mut self.state.lock().stage {
            Stage::Driven(driven) => driven.leaving.take(),
            Stage::Resting(_) => None,
        }
    }

    /// Nothing drives it any more, and its record is the store's alone, until the record says that it goes on: which
    /// may be at once.
    #[must_use]
    pub(crate) fn rest(&self, plugin: Arc<PluginVersion>, rest: Rest) -> Option<Followup> {
        let state = &mut *self.state.lock();
        let Stage::Driven(driven) = &state.stage else { return None };
        let Some(task) = driven.task() else { return Some(Followup::End(rest)) };
        let mut resting = RestingTask { summary: TaskSummary::new(&task, plugin), rest };
        let followup = resting.observe();
        state.stage = Stage::Resting(resting);
        followup
    }

    /// What it waits for now that it was not admitted after all.
    #[must_use]
    pub(crate) fn rest_again(&self, rest: Rest) -> Option<Followup> {
        let state = &mut *self.state.lock();
        let Stage::Resting(resting) = &mut state.stage else { return None };
        resting.rest = rest;
        if state.is_gone { resting.end() } else { resting.observe() }
    }

    /// The permit that it waits for is there. `None`: it does not wait for one.
    pub(crate) fn admit(&self) -> Option<Box<QueuedRun>> {
        match &mut self.state.lock().stage {
            Stage::Resting(resting) => resting.admit(),
            Stage::Driven(_) => None,
        }
    }

    /// Takes up the record of a task that was admitted: something drives it from now on.
    pub(crate) fn take_up(&self, task: &Arc<Task>) -> TakenUp {
        let state = &mut *self.state.lock();
        match &state.stage {
            _ if state.is_gone => TakenUp::Gone,
            Stage::Resting(resting) if resting.summary.revision > task.revision => TakenUp::Outdated,
            Stage::Resting(_) => {
                state.stage = Stage::Driven(DrivenTask::new(Arc::clone(task)));
                TakenUp::Driven
            }
            Stage::Driven(_) => TakenUp::Driven,
        }
    }

    /// Takes a place in the queue, and returns one that is not needed.
    pub(crate) fn keep_entry(&self, entry: QueueEntry, enqueue: u64) -> Option<QueueEntry> {
        match &mut self.state.lock().stage {
            Stage::Resting(resting) => resting.keep_entry(entry, enqueue),
            Stage::Driven(_) => Some(entry),
        }
    }

    /// The sleep of the call is over.
    #[must_use]
    pub(crate) fn end_sleep(&self) -> Option<Followup> {
        match &mut self.state.lock().stage {
            Stage::Resting(resting) => resting.end_sleep(),
            Stage::Driven(_) => None,
        }
    }

    /// Whether its call has left memory.
    pub(crate) fn is_dormant(&self) -> bool {
        matches!(&self.state.lock().stage, Stage::Resting(RestingTask { rest: Rest::Dormant(_), .. }))
    }

    /// Keeps a place among the paused tasks, for as long as the record says that this is one.
    pub(crate) fn keep_paused(&self, slot: IdleSlot) {
        let mut state = self.state.lock();
        if state.is_paused() {
            state.paused = Some(Box::new(slot));
        }
    }

    /// Whether the record says that the task is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.state.lock().is_paused()
    }

    /// Comes back when the record does not say any more that the task is paused.
    pub(crate) async fn resumed(&self) {
        let mut seen = self.watch();
        // Fails when the run is gone, and then nobody waits.
        let _ = seen.wait_for(|seen| !matches!(seen, Seen::Record(task) if is_paused(task))).await;
    }

    /// What the run of a task sees that something drives. Any other sees nothing.
    pub(crate) fn watch(&self) -> watch::Receiver<Seen> {
        match &self.state.lock().stage {
            Stage::Driven(driven) => driven.record.subscribe(),
            Stage::Resting(_) => watch::channel(Seen::Gone).1,
        }
    }

    /// The record that was seen last, of a task that something drives.
    pub(crate) fn task(&self) -> Option<Arc<Task>> {
        match &self.state.lock().stage {
            Stage::Driven(driven) => driven.task(),
            Stage::Resting(_) => None,
        }
    }

    /// Where the task stands; `None`: it is gone.
    pub(crate) fn summary(&self) -> Option<TaskSummary> {
        let state = self.state.lock();
        match &state.stage {
            _ if state.is_gone => None,
            Stage::Driven(driven) => driven.task().map(|task| TaskSummary::new(&task, Arc::new(task.plugin.clone()))),
            Stage::Resting(resting) => Some(resting.summary.clone()),
        }
    }

    pub(crate) fn status(&self) -> Option<String> {
        self.state.lock().status.clone()
    }

    pub(crate) fn set_status(&self, status: String) {
        self.state.lock().status = Some(line(&status));
    }

    /// The call could not be brought back to where it was.
    pub(crate) fn set_replay_failure(&self, failure: ReplayFailure) {
        if let Stage::Driven(driven) = &mut self.state.lock().stage {
            driven.replay_failure = Some(failure);
        }
    }

    pub(crate) fn take_replay_failure(&self) -> Option<ReplayFailure> {
        match &mut self.state.lock().stage {
            Stage::Driven(driven) => driven.replay_failure.take(),
            Stage::Resting(_) => None,
        }
    }

    /// Tells something of the task, with what its run last said of itself; of one that is over, nothing.
    pub(crate) fn report(&self, tell: impl FnOnce(&Arc<Task>, Option<&str>)) {
        let state = self.state.lock();
        if let Stage::Driven(driven) = &state.stage
            && let Some(task) = driven.task().filter(|task| task.outcome().is_none())
        {
            tell(&task, state.status.as_deref());
        }
    }
}

impl RunState {
    fn is_paused(&self) -> bool {
        match &self.stage {
            Stage::Driven(driven) => driven.task().is_some_and(|task| is_paused(&task)),
            Stage::Resting(resting) => !self.is_gone && resting.summary.is_paused(),
        }
    }
}

/// Whether the record says that the task is paused.
pub(crate) fn is_paused(task: &Task) -> bool {
    matches!(task.phase, Phase::Paused { .. })
}

/// Whether the record says that a run of this host goes on.
pub(crate) fn is_running(task: &Task) -> bool {
    match task.phase {
        Phase::Active(active) | Phase::Paused { before: active } => active != Active::Queued,
        Phase::Ended(_) => false,
    }
}
