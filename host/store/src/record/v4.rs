//! The fourth version of the records: tasks with a trace, a timeline, a holder or a durable marker. Frozen as the first one is.
//!
//! Owns what is added to [`super::v2`] and [`super::v3`]: a record is either of them with the younger members behind it. Must not decide
//! which tasks are written so. Invariant: the golden bytes of [`super`]'s tests; and of the younger members, what a client sent (the
//! trace) is sealed with the rest that is private, what the host itself notes is not.

use serde::{Deserialize, Serialize};

use super::Error;
use super::repr::{Blob, List, Repr, repr_enum, repr_struct};
use super::v1::ActiveV1;
use super::v2::TaskV2;
use super::v3::{self, PrivateV3};
use bulkhead_domain::task::{DurableMarker, Holder, Task};
use bulkhead_domain::timeline::{Timeline, TimelineEntry, Transition};
use bulkhead_domain::trace::TraceContext;

/// A task, open or sealed.
#[derive(Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "one at a time, while it is written or read")]
pub(super) enum RecordV4 {
    Open(TaskV4, Option<TraceV4>),
    Sealed {
        /// A [`TaskV4`] without the private part.
        open: Blob,
        /// A sealed [`PrivateV4`].
        sealed: Blob,
    },
}

/// A task without its trace.
#[derive(Serialize, Deserialize)]
pub(super) struct TaskV4 {
    task: TaskV2,
    timeline: TimelineV4,
    holder: Option<String>,
    durable: Option<DurableV4>,
}

/// What only the owner of the key may know.
#[derive(Serialize, Deserialize)]
pub(super) struct PrivateV4 {
    private: PrivateV3,
    trace: Option<TraceV4>,
}

/// A trace context; the flags are those of a `traceparent`.
#[derive(Serialize, Deserialize)]
pub(super) struct TraceV4 {
    trace_id: [u8; 16],
    parent_id: [u8; 8],
    flags: u8,
}

const SAMPLED: u8 = 1;

impl Repr<TraceV4> for TraceContext {
    fn to_repr(&self) -> TraceV4 {
        let flags = if self.is_sampled { SAMPLED } else { 0 };
        TraceV4 { trace_id: self.trace_id, parent_id: self.parent_id, flags }
    }
    fn from_repr(stored: TraceV4) -> Self {
        let is_sampled = stored.flags & SAMPLED != 0;
        Self { trace_id: stored.trace_id, parent_id: stored.parent_id, is_sampled }
    }
}

// A younger transition stands at the end, so that the bytes of the others stay as they are.
repr_enum!(TransitionV4 of Transition {
    Started { attempt: u32 },
    InputRequested { requests: u32 },
    Answered { open: u32 },
    Paused,
    Resumed,
    Interrupted,
    Cancelled { from: ActiveV1, is_paused: bool },
    Succeeded,
    ToolError,
    Failed,
    Continued { attempt: u32 },
});
repr_struct!(TimelineEntryV4 of TimelineEntry { at: u64, transition: TransitionV4 });

#[derive(Serialize, Deserialize)]
struct TimelineV4 {
    entries: List<TimelineEntryV4>,
    left_out: u64,
}

#[derive(Serialize, Deserialize)]
struct DurableV4 {
    version: u8,
    attempt: u32,
    engine_hash: u64,
    detail: Blob,
}

/// Whether a task has something that only this version can say.
pub(super) fn is_needed(task: &Task) -> bool {
    task.origin.trace.is_some() || !task.timeline.is_empty() || task.holder.is_some() || task.durable.is_some()
}

/// A task as it is.
pub(super) fn open(task: &Task) -> RecordV4 {
    RecordV4::Open(with_younger(task.to_repr(), task), task.origin.trace.to_repr())
}

/// Takes a task apart, as [`v3::apart`] does.
pub(super) fn apart(task: &Task) -> (TaskV4, PrivateV4) {
    let (open, private) = v3::apart(task);
    (with_younger(open, task), PrivateV4 { private, trace: task.origin.trace.to_repr() })
}

/// Puts a task together again.
pub(super) fn together(open: TaskV4, private: PrivateV4) -> Result<Task, Error> {
    let PrivateV4 { private, trace } = private;
    let mut task = open.into_task(|known| v3::together(known, private))?;
    task.origin.trace = Repr::from_repr(trace);
    Ok(task)
}

/// What is known without a key.
pub(super) fn outline(open: TaskV4) -> Result<Task, Error> {
    open.into_task(Task::from_repr)
}

/// An open record.
pub(super) fn read(task: TaskV4, trace: Option<TraceV4>) -> Result<Task, Error> {
    let mut task = outline(task)?;
    task.origin.trace = Repr::from_repr(trace);
    Ok(task)
}

fn with_younger(known: TaskV2, task: &Task) -> TaskV4 {
    let durable = task.durable.as_ref().map(|marker| DurableV4 {
        version: marker.version,
        attempt: marker.attempt,
        engine_hash: marker.engine_hash,
        detail: marker.detail().to_vec().to_repr(),
    });
    TaskV4 {
        task: known,
        timeline: TimelineV4 {
            entries: task.timeline.entries().to_vec().to_repr(),
            left_out: task.timeline.left_out(),
        },
        holder: task.holder.as_ref().map(|holder| holder.as_str().to_owned()),
        durable,
    }
}

impl TaskV4 {
    /// The task, whose older members `known` makes. Bytes can say more than a task can hold.
    fn into_task(self, known: impl FnOnce(TaskV2) -> Task) -> Result<Task, Error> {
        let too_much = |what: &str| Error::Corrupt(format!("a task record has {what} that cannot be"));
        let TimelineV4 { entries, left_out } = self.timeline;
        let timeline = Timeline::restored(Vec::from_repr(entries), left_out).ok_or_else(|| too_much("a timeline"))?;
        let holder = self.holder.map(|name| Holder::new(name).ok_or_else(|| too_much("a holder"))).transpose()?;
        let durable = self.durable.map(|stored| {
            let DurableV4 { version, attempt, engine_hash, detail } = stored;
            let marker = DurableMarker::new(version, attempt, engine_hash, Vec::from_repr(detail));
            marker.ok_or_else(|| too_much("a durable marker"))
        });
        Ok(Task { timeline, holder, durable: durable.transpose()?, ..known(self.task) })
    }
}
