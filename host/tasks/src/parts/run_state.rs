//! What everybody else sees of a run: its record, its status, and its place among the paused tasks.
//!
//! Must not drive anything. Invariant: what is told comes in the order of the commits, and nothing after the end.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::parts::admission::IdleSlot;
use crate::parts::outcome::line;
use bulkhead_domain::UnixMs;
use bulkhead_domain::task::{Active, Phase, Task};
use bulkhead_domain::timeline::WakeCause;

/// Why a call could not be brought back to where it was.
#[derive(Clone, Debug)]
pub(crate) struct ReplayFailure {
    pub(crate) why: String,
    /// The call did something else than its journal says. Otherwise the journal cannot be read, which is no fault of the plugin.
    pub(crate) is_divergence: bool,
}

/// What a call waits for that has left memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dormancy {
    /// Its sleep ends then.
    pub(crate) wake_at: Option<UnixMs>,
    pub(crate) is_asleep: bool,
    /// Whether its guest looks for messages.
    pub(crate) is_cooperative: bool,
    /// Messages that waited for it already.
    pub(crate) steering: usize,
    pub(crate) was_paused: bool,
}

/// Why it does not wait any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    For(WakeCause),
    /// The task is over, or gone.
    Over,
}

impl Dormancy {
    /// Whether it goes on now that the record says this.
    fn observe(&mut self, task: &Task) -> Option<Wake> {
        let was_paused = std::mem::replace(&mut self.was_paused, is_paused(task));
        let is_steered = self.is_cooperative && task.steering.len() > self.steering;
        match task.phase {
            Phase::Ended(_) => Some(Wake::Over),
            Phase::Paused { .. } | Phase::Active(Active::Queued) => None,
            Phase::Active(active) if active == Active::InputRequired || self.is_asleep => {
                is_steered.then_some(Wake::For(WakeCause::Steered))
            }
            Phase::Active(_) if was_paused => Some(Wake::For(WakeCause::Resumed)),
            Phase::Active(_) if self.wake_at.is_some() => Some(Wake::For(WakeCause::Slept)),
            Phase::Active(_) => Some(Wake::For(WakeCause::Answered)),
        }
    }
}

/// What is done when a call that has left memory is to go on, or is over.
pub(crate) type OnWake = Box<dyn FnOnce(Wake) + Send + Sync>;

struct Dormant {
    dormancy: Dormancy,
    on_wake: OnWake,
}

impl fmt::Debug for Dormant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.dormancy.fmt(f)
    }
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
    record: watch::Sender<Seen>,
    /// Locked while anybody is told of the task: what is told comes in the order of the commits, and nothing after the end.
    shown: Mutex<RunStatus>,
}

#[derive(Debug, Default)]
struct RunStatus {
    status: Option<String>,
    /// Its place among the paused tasks, from the commit of the pause to that of its end.
    paused: Option<IdleSlot>,
    /// Why its call could not be brought back to where it was.
    replay_failure: Option<ReplayFailure>,
    /// Its run is about to end, because its call has left memory.
    leaving: Option<Dormancy>,
    /// Nothing drives it.
    dormant: Option<Dormant>,
}

impl Run {
    pub(crate) fn new(task: Arc<Task>) -> Self {
        Self { record: watch::channel(Seen::Record(task)).0, shown: Mutex::default() }
    }

    /// Shows the run a new record and tells of it, unless it has seen a later one.
    pub(crate) fn see(&self, task: &Arc<Task>, tell: impl FnOnce()) {
        let mut shown = self.shown.lock();
        let newer = self.record.send_if_modified(|seen| match seen {
            Seen::Record(current) if current.revision < task.revision => {
                *seen = Seen::Record(task.clone());
                true
            }
            Seen::Record(_) | Seen::Gone => false,
        });
        if newer {
            shown.paused.take_if(|_| !is_paused(task));
            tell();
        }
    }

    pub(crate) fn gone(&self) {
        self.shown.lock().paused = None;
        self.record.send_replace(Seen::Gone);
        self.wake_if_due();
    }

    /// The call has left memory; its run ends.
    pub(crate) fn leave_memory(&self, dormancy: Dormancy) {
        self.shown.lock().leaving = Some(dormancy);
    }

    /// Whether the run ended because its call has left memory.
    pub(crate) fn take_leaving(&self) -> Option<Dormancy> {
        self.shown.lock().leaving.take()
    }

    /// Nothing drives it any more until the record says that it goes on, which may be at once.
    pub(crate) fn set_dormant(&self, dormancy: Dormancy, on_wake: OnWake) {
        self.shown.lock().dormant = Some(Dormant { dormancy, on_wake });
        self.wake_if_due();
    }

    pub(crate) fn is_dormant(&self) -> bool {
        self.shown.lock().dormant.is_some()
    }

    /// The sleep of the call is over.
    pub(crate) fn sleep_over(&self) {
        if let Some(dormant) = &mut self.shown.lock().dormant {
            dormant.dormancy.is_asleep = false;
        }
        self.wake_if_due();
    }

    /// Goes on, if nothing drives it and the record says that it has to.
    pub(crate) fn wake_if_due(&self) {
        let mut shown = self.shown.lock();
        let Some(dormant) = &mut shown.dormant else { return };
        let wake = self.task().map_or(Some(Wake::Over), |task| dormant.dormancy.observe(&task));
        let Some((wake, dormant)) = wake.and_then(|wake| Some((wake, shown.dormant.take()?))) else { return };
        drop(shown);
        (dormant.on_wake)(wake);
    }

    /// Keeps a place among the paused tasks, for as long as the record says that this is one.
    pub(crate) fn keep_paused(&self, slot: IdleSlot) {
        let mut shown = self.shown.lock();
        if self.task().is_some_and(|task| is_paused(&task)) {
            shown.paused = Some(slot);
        }
    }

    /// Comes back when the record does not say any more that the task is paused.
    pub(crate) async fn resumed(&self) {
        let mut seen = self.watch();
        // Fails when the run is gone, and then nobody waits.
        let _ = seen.wait_for(|seen| !matches!(seen, Seen::Record(task) if is_paused(task))).await;
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Seen> {
        self.record.subscribe()
    }

    /// The record that was seen last.
    pub(crate) fn task(&self) -> Option<Arc<Task>> {
        match &*self.record.borrow() {
            Seen::Record(task) => Some(task.clone()),
            Seen::Gone => None,
        }
    }

    pub(crate) fn status(&self) -> Option<String> {
        self.shown.lock().status.clone()
    }

    pub(crate) fn set_status(&self, status: String) {
        self.shown.lock().status = Some(line(&status));
    }

    /// The call could not be brought back to where it was.
    pub(crate) fn set_replay_failure(&self, failure: ReplayFailure) {
        self.shown.lock().replay_failure = Some(failure);
    }

    pub(crate) fn take_replay_failure(&self) -> Option<ReplayFailure> {
        self.shown.lock().replay_failure.take()
    }

    /// Tells something of the task, with what its run last said of itself; of one that is over, nothing.
    pub(crate) fn report(&self, tell: impl FnOnce(&Arc<Task>, Option<&str>)) {
        let shown = self.shown.lock();
        if let Some(task) = self.task().filter(|task| task.outcome().is_none()) {
            tell(&task, shown.status.as_deref());
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
