//! What a task waits for that nothing drives, and how it goes on.
//!
//! Owns what is kept of its record meanwhile, which is the store's alone, and the decision whether a change of the
//! record lets it go on. Must not act on it. Invariants: what is kept is of a few words, however long the record is;
//! and what a change means is decided once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::parts::admission::{IdleSlot, Purpose, QueueEntry, QueueNumber};
use bulkhead_domain::UnixMs;
use bulkhead_domain::task::{Active, Phase, PluginVersion, Task};
use bulkhead_domain::timeline::WakeCause;
use bulkhead_store::journal::TaskRef;

/// Where a task stands, without what it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SummaryPhase {
    Active(Active),
    Paused,
    Ended,
}

/// What the engine has to know at any time of a record that it does not hold.
#[derive(Clone, Debug)]
pub(crate) struct TaskSummary {
    pub(crate) task: TaskRef,
    /// Shared by all that run the same version.
    pub(crate) plugin: Arc<PluginVersion>,
    pub(crate) revision: u64,
    pub(crate) phase: SummaryPhase,
    pub(crate) is_held: bool,
    pub(crate) has_lease: bool,
    /// Messages that wait for it.
    steering: u32,
}

impl TaskSummary {
    pub(crate) fn new(task: &Task, plugin: Arc<PluginVersion>) -> Self {
        Self {
            task: TaskRef::of(task),
            plugin,
            revision: task.revision,
            phase: match task.phase {
                Phase::Active(active) => SummaryPhase::Active(active),
                Phase::Paused { .. } => SummaryPhase::Paused,
                Phase::Ended(_) => SummaryPhase::Ended,
            },
            is_held: task.is_held(),
            has_lease: task.lease.is_some(),
            steering: u32::try_from(task.steering.len()).unwrap_or(u32::MAX),
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.phase == SummaryPhase::Paused
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase == SummaryPhase::Ended
    }
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

impl Dormancy {
    /// Why it goes on now that the record says this; `None`: it does not.
    fn observe(&mut self, task: &TaskSummary) -> Option<WakeCause> {
        let was_paused = std::mem::replace(&mut self.was_paused, task.is_paused());
        let is_steered = self.is_cooperative && task.steering as usize > self.steering;
        match task.phase {
            SummaryPhase::Ended | SummaryPhase::Paused | SummaryPhase::Active(Active::Queued) => None,
            SummaryPhase::Active(active) if active == Active::InputRequired || self.is_asleep => {
                is_steered.then_some(WakeCause::Steered)
            }
            SummaryPhase::Active(_) if was_paused => Some(WakeCause::Resumed),
            SummaryPhase::Active(_) if self.wake_at.is_some() => Some(WakeCause::Slept),
            SummaryPhase::Active(_) => Some(WakeCause::Answered),
        }
    }
}

/// What a task does when it leaves the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NextRun {
    Start,
    /// It goes on where an earlier run was.
    Resume,
    /// The same of one that was dormant, and is so again if it is paused before.
    Wake(WakeCause, Dormancy),
}

impl NextRun {
    /// What it needs a permit for.
    fn purpose(self) -> Purpose {
        match self {
            Self::Start | Self::Resume => Purpose::Task,
            Self::Wake(..) => Purpose::Wake,
        }
    }

    /// When its sleep ends, of one that was dormant.
    pub(crate) fn wake_at(self) -> Option<UnixMs> {
        match self {
            Self::Start | Self::Resume => None,
            Self::Wake(_, dormancy) => dormancy.wake_at,
        }
    }
}

/// A task that waits for its permit.
#[derive(Debug)]
pub(crate) struct QueuedRun {
    /// Counts it as queued; none of one that was dormant.
    #[expect(dead_code, reason = "it counts for as long as it is there")]
    slot: Option<IdleSlot>,
    pub(crate) next: NextRun,
    /// The attempt that it was when its start was tried, and nobody heard what came of that.
    pub(crate) tried_from: Option<u32>,
    /// Which of its places in the queue is the present one; 0: none, as while the task is paused.
    enqueue: u64,
    entry: Option<QueueEntry>,
    /// Of its place when it had its turn and could not use it.
    pub(crate) number: Option<QueueNumber>,
    /// Of the request that it belongs to in the log, if that is named there.
    pub(crate) log_span: Option<Box<tracing::Span>>,
}

impl QueuedRun {
    pub(crate) fn new(slot: Option<IdleSlot>, next: NextRun) -> Self {
        let log_span = Some(tracing::Span::current()).filter(|span| !span.is_none()).map(Box::new);
        Self { slot, next, tried_from: None, enqueue: 0, entry: None, number: None, log_span }
    }

    /// It needs a place in the queue, if it has none.
    fn enqueue(&mut self) -> Option<Followup> {
        // Of all tasks, so that no place that comes late is taken for another one.
        static ENQUEUES: AtomicU64 = AtomicU64::new(1);
        if self.enqueue > 0 {
            return None;
        }
        self.enqueue = ENQUEUES.fetch_add(1, Ordering::Relaxed);
        Some(Followup::Enqueue { purpose: self.next.purpose(), enqueue: self.enqueue, number: self.number.take() })
    }

    /// Gives its place in the queue up. The place locks the queue when it is dropped.
    pub(crate) fn take_entry(&mut self) -> Option<QueueEntry> {
        self.enqueue = 0;
        self.entry.take()
    }
}

/// What lets a task go on that nothing drives.
#[derive(Debug)]
pub(crate) enum Rest {
    /// Its call has left memory.
    Dormant(Dormancy),
    Queued(Box<QueuedRun>),
    /// Its permit is there, and its record is being read.
    Admitted,
    Over,
}

impl Rest {
    /// When its sleep ends.
    pub(crate) fn wake_at(&self) -> Option<UnixMs> {
        match self {
            Self::Dormant(dormancy) => dormancy.wake_at,
            Self::Queued(queued) => queued.next.wake_at(),
            Self::Admitted | Self::Over => None,
        }
    }
}

/// What is to be done for a task that nothing drives.
#[derive(Debug)]
pub(crate) enum Followup {
    /// It is over, or gone, and waited for this.
    End(Rest),
    /// It needs a place in the queue for permits, by this number; the one that it had, if there is a `number`.
    Enqueue { purpose: Purpose, enqueue: u64, number: Option<QueueNumber> },
    /// It needs this one no more.
    LeaveQueue(QueueEntry),
}

/// A task that nothing drives.
#[derive(Debug)]
pub(crate) struct RestingTask {
    pub(crate) summary: TaskSummary,
    pub(crate) rest: Rest,
}

impl RestingTask {
    /// Shows it a record that may be newer.
    pub(crate) fn see(&mut self, task: &Task) -> Option<Followup> {
        if self.summary.revision >= task.revision {
            return None;
        }
        self.summary = TaskSummary::new(task, Arc::clone(&self.summary.plugin));
        self.observe()
    }

    /// What its record means for it.
    pub(crate) fn observe(&mut self) -> Option<Followup> {
        if self.summary.is_over() {
            return self.end();
        }
        match &mut self.rest {
            Rest::Dormant(dormancy) => {
                let cause = dormancy.observe(&self.summary)?;
                let mut queued = Box::new(QueuedRun::new(None, NextRun::Wake(cause, *dormancy)));
                let followup = queued.enqueue();
                self.rest = Rest::Queued(queued);
                followup
            }
            Rest::Queued(queued) if self.summary.is_paused() => {
                let entry = queued.take_entry();
                if let NextRun::Wake(_, dormancy) = queued.next {
                    self.rest = Rest::Dormant(Dormancy { was_paused: true, ..dormancy });
                }
                entry.map(Followup::LeaveQueue)
            }
            Rest::Queued(queued) => queued.enqueue(),
            Rest::Admitted | Rest::Over => None,
        }
    }

    /// It is over, or gone. One that is admitted finds that out by itself.
    pub(crate) fn end(&mut self) -> Option<Followup> {
        match self.rest {
            Rest::Admitted | Rest::Over => None,
            Rest::Dormant(_) | Rest::Queued(_) => Some(Followup::End(std::mem::replace(&mut self.rest, Rest::Over))),
        }
    }

    /// Its sleep is over, also if it waits for its permit already.
    pub(crate) fn end_sleep(&mut self) -> Option<Followup> {
        match &mut self.rest {
            Rest::Dormant(dormancy) => dormancy.is_asleep = false,
            Rest::Queued(queued) => {
                if let NextRun::Wake(_, dormancy) = &mut queued.next {
                    dormancy.is_asleep = false;
                }
            }
            Rest::Admitted | Rest::Over => {}
        }
        self.observe()
    }

    /// Takes the place in the queue that it needed, and returns one that it does not need any more.
    pub(crate) fn keep_entry(&mut self, entry: QueueEntry, enqueue: u64) -> Option<QueueEntry> {
        match &mut self.rest {
            Rest::Queued(queued) if queued.enqueue == enqueue => {
                queued.entry = Some(entry);
                None
            }
            _ => Some(entry),
        }
    }

    /// Its permit is there. `None`: it does not wait for one.
    pub(crate) fn admit(&mut self) -> Option<Box<QueuedRun>> {
        if self.summary.is_paused() {
            return None;
        }
        match std::mem::replace(&mut self.rest, Rest::Admitted) {
            Rest::Queued(queued) => Some(queued),
            rest => {
                self.rest = rest;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
    use bulkhead_domain::task::TaskId;

    use super::*;
    use crate::parts::admission::Admission;
    use crate::parts::admission::tests::limits;

    fn record(phase: Phase, revision: u64) -> Task {
        let requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([1; 16]) };
        Task { phase, revision, ..Task::sample(requestor, TaskId([1; 16])) }
    }

    fn enqueues(followup: &Option<Followup>) -> bool {
        matches!(followup, Some(Followup::Enqueue { .. }))
    }

    fn resting(rest: Rest) -> RestingTask {
        let task = record(Phase::Active(Active::InputRequired), 1);
        RestingTask { summary: TaskSummary::new(&task, Arc::new(task.plugin.clone())), rest }
    }

    const RUNNING: Phase = Phase::Active(Active::Running);
    const PAUSED: Phase = Phase::Paused { before: Active::Running };

    #[test]
    fn dormant_task_that_is_paused_before_its_permit_lies_dormant_again_and_goes_on_later() {
        let mut task = resting(Rest::Dormant(Dormancy::default()));
        let woken = task.see(&record(RUNNING, 2));
        assert!(matches!(woken, Some(Followup::Enqueue { purpose: Purpose::Wake, .. })), "{woken:?}");
        assert!(task.see(&record(PAUSED, 3)).is_none() && matches!(task.rest, Rest::Dormant(_)));
        assert!(task.admit().is_none(), "a permit that comes too late is not used");
        assert!(task.see(&record(RUNNING, 2)).is_none(), "an older record says nothing");
        assert!(enqueues(&task.see(&record(RUNNING, 4))));
        let queued = task.admit().unwrap();
        assert!(matches!(queued.next, NextRun::Wake(WakeCause::Resumed, _)), "{queued:?}");
        assert!(task.admit().is_none(), "it is admitted once");
        assert!(task.end().is_none(), "it finds out by itself");
    }

    #[test]
    fn message_before_a_pause_still_wakes_after_it() {
        let asking = |steering: &[&str], revision| Task {
            steering: steering.iter().map(|&message| message.to_owned()).collect(),
            ..record(Phase::Active(Active::InputRequired), revision)
        };
        let mut task = resting(Rest::Dormant(Dormancy { is_cooperative: true, ..Dormancy::default() }));
        assert!(enqueues(&task.see(&asking(&["faster"], 2))));
        task.see(&record(Phase::Paused { before: Active::InputRequired }, 3));
        assert!(enqueues(&task.see(&asking(&["faster"], 4))));
        assert!(matches!(task.admit().unwrap().next, NextRun::Wake(WakeCause::Steered, _)));
    }

    #[test]
    fn sleep_that_ends_while_its_task_is_paused_is_over_when_it_is_resumed() {
        let dormancy = Dormancy { wake_at: Some(9), is_asleep: true, ..Dormancy::default() };
        let mut task = resting(Rest::Dormant(dormancy));
        assert!(task.see(&record(RUNNING, 2)).is_none(), "it sleeps");
        assert!(task.see(&record(PAUSED, 3)).is_none());
        assert!(task.end_sleep().is_none());
        assert!(enqueues(&task.see(&record(RUNNING, 4))));
        assert_eq!(task.rest.wake_at(), Some(9));
    }

    /// Else its new place would be refused, and it would wait for ever.
    #[test]
    fn place_in_the_queue_that_comes_late_is_not_taken_for_the_present_one() {
        let admission = Admission::new(limits().into(), 4);
        let mut task = resting(Rest::Queued(Box::new(QueuedRun::new(None, NextRun::Start))));
        let enqueued = |followup| match followup {
            Some(Followup::Enqueue { purpose, enqueue, number }) => {
                (admission.enqueue_task(TaskRef::of(&record(RUNNING, 1)), purpose, number), enqueue)
            }
            other => panic!("{other:?}"),
        };
        let (late, first) = enqueued(task.observe());
        assert!(task.observe().is_none(), "one place at a time");
        let mut queued = task.admit().unwrap();
        assert!(queued.take_entry().is_none());
        task.rest = Rest::Queued(queued);
        let (present, second) = enqueued(task.observe());
        assert!(task.keep_entry(late, first).is_some());
        assert!(task.keep_entry(present, second).is_none());
        assert!(task.admit().unwrap().take_entry().is_some());
    }

    #[test]
    fn what_ends_leaves_the_queue_once() {
        let mut task = resting(Rest::Queued(Box::new(QueuedRun::new(None, NextRun::Start))));
        assert!(matches!(task.end(), Some(Followup::End(Rest::Queued(_)))));
        assert!(task.end().is_none() && task.observe().is_none());
    }
}
