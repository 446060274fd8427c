//! Tasks, as an operator's program gets them.
//!
//! Must not hold what belongs to the requestor alone: arguments, answers and results.

use std::fmt;

use bulkhead_domain::UnixMs;
use bulkhead_domain::task::{Active, Outcome, Phase};
use bulkhead_domain::timeline::{Timeline, TimelineEntry, Transition, WakeCause};
use serde::{Deserialize, Serialize};

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    Queued,
    Running,
    InputRequired,
    Paused,
    Succeeded,
    /// The tool reported an error.
    ToolError,
    Failed,
    Cancelled,
}

impl TaskStatus {
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::Running,
        Self::InputRequired,
        Self::Paused,
        Self::Succeeded,
        Self::ToolError,
        Self::Failed,
        Self::Cancelled,
    ];

    /// As it is in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::InputRequired => "input_required",
            Self::Paused => "paused",
            Self::Succeeded => "succeeded",
            Self::ToolError => "tool_error",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl From<&Phase> for TaskStatus {
    fn from(phase: &Phase) -> Self {
        match phase {
            Phase::Active(Active::Queued) => Self::Queued,
            Phase::Active(Active::Running) => Self::Running,
            Phase::Active(Active::InputRequired) => Self::InputRequired,
            Phase::Paused { .. } => Self::Paused,
            Phase::Ended(Outcome::Output { is_error: false }) => Self::Succeeded,
            Phase::Ended(Outcome::Output { is_error: true }) => Self::ToolError,
            Phase::Ended(Outcome::Error(_)) => Self::Failed,
            Phase::Ended(Outcome::Cancelled) => Self::Cancelled,
        }
    }
}

/// One line of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskView {
    pub id: String,
    pub status: TaskStatus,
    pub tool: String,
    /// None: the requestor has no name here.
    pub requestor: Option<String>,
    pub tenant: Option<String>,
    pub created_at: UnixMs,
    pub updated_at: UnixMs,
    pub expires_at: Option<UnixMs>,
    pub status_message: Option<String>,
}

/// Everything of a task but what belongs to the requestor alone: arguments, answers and results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskDetailsView {
    #[serde(flatten)]
    pub task: TaskView,
    pub plugin: String,
    pub plugin_sha256: String,
    pub call_id: String,
    pub attempt: u32,
    pub revision: u64,
    pub inputs: Vec<InputView>,
    pub steering_waiting: usize,
    pub error: Option<String>,
    /// Whether it waits until an operator releases it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// Since when it is not in memory, of one that has begun and waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dormant_since: Option<UnixMs>,
    /// Only of one task that is shown, has begun and is not over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durable: Option<DurableView>,
    /// Only of one task that is shown, and only where there is more to say than the members above do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<TimelineView>,
    /// Of the request that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
}

/// What a task that has begun can do when its host ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "class", rename_all = "snake_case")]
pub enum DurableView {
    /// It goes on where it was, by its journal.
    Journal {
        entries: u64,
        bytes: u64,
        /// The step up to which the journal is complete.
        mark: u64,
        /// How often it was brought back since it last came further.
        resumes: u32,
    },
    /// It does not.
    No { reason: String },
}

/// In words.
impl fmt::Display for DurableView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Journal { entries: 0, bytes: 0, .. } => f.write_str("journal, with nothing to keep so far"),
            Self::Journal { entries, bytes, mark, .. } => {
                write!(f, "journal, {entries} entries, {bytes} bytes, mark at step {mark}")
            }
            Self::No { reason } => write!(f, "no ({reason})"),
        }?;
        match self {
            Self::Journal { resumes: resumes @ 1.., .. } => {
                write!(f, ", brought back {resumes} times since it came further")
            }
            Self::Journal { resumes: 0, .. } | Self::No { .. } => Ok(()),
        }
    }
}

/// The journal of a task's call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalView {
    pub id: String,
    #[serde(flatten)]
    pub durable: DurableView,
    /// The run that writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Only where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries_listed: Option<Vec<JournalEntryView>>,
    /// Whether there are entries after those.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// One entry of a journal, without what it says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalEntryView {
    pub number: u32,
    pub step: u64,
    pub kind: String,
    /// None: entries of this kind are of several imports.
    pub import: Option<String>,
    pub bytes: u64,
}

/// What came of a replay of a task's journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayView {
    pub id: String,
    /// Whether the call did again what its journal says.
    pub agrees: bool,
    pub entries: u64,
    pub bytes: u64,
    /// The step up to which it was replayed, if it agrees.
    pub mark: u64,
    /// Where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub divergence: Option<DivergenceView>,
}

/// Where a call does something else than its journal says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DivergenceView {
    /// In the order of the journal; the header is 0.
    pub entry: u32,
    /// What that entry is, without what it says.
    pub recorded: String,
    /// The import that was called instead.
    pub requested: String,
    /// 0: before the first import.
    pub step: u64,
    pub why: String,
}

/// In words.
impl fmt::Display for DivergenceView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entry, recorded, requested, step, why } = self;
        match step {
            // There is no place to name: the journal is another call's, or the tool called nothing.
            0 => f.write_str(why),
            _ => write!(f, "entry {entry}: {recorded} was recorded, {requested} was asked for at step {step}: {why}"),
        }
    }
}

/// What happened to a task, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineView {
    pub entries: Vec<TimelineEntryView>,
    /// Entries that were not kept, and after how many of the others they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOutView>,
}

/// Entries of a timeline that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutView {
    pub after: usize,
    pub count: u64,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineEntryView {
    pub at: UnixMs,
    #[serde(flatten)]
    pub transition: TransitionView,
}

/// What it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "transition", rename_all = "snake_case")]
pub enum TransitionView {
    Started { attempt: u32 },
    InputRequested { requests: u32 },
    Answered { open: u32 },
    Paused,
    Resumed,
    Interrupted,
    Cancelled { from: TaskStatus },
    Succeeded,
    ToolError,
    Failed,
    Continued { attempt: u32 },
    Dormant,
    Woken { attempt: u32, cause: WakeCauseView },
}

/// Why a task that had left memory went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WakeCauseView {
    Answered,
    Resumed,
    Steered,
    Slept,
}

impl From<WakeCause> for WakeCauseView {
    fn from(cause: WakeCause) -> Self {
        match cause {
            WakeCause::Answered => Self::Answered,
            WakeCause::Resumed => Self::Resumed,
            WakeCause::Steered => Self::Steered,
            WakeCause::Slept => Self::Slept,
        }
    }
}

/// In words.
impl fmt::Display for WakeCauseView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Answered => "it was answered",
            Self::Resumed => "it was resumed",
            Self::Steered => "a message came",
            Self::Slept => "its sleep ended",
        })
    }
}

impl From<Transition> for TransitionView {
    fn from(transition: Transition) -> Self {
        match transition {
            Transition::Started { attempt } => Self::Started { attempt },
            Transition::InputRequested { requests } => Self::InputRequested { requests },
            Transition::Answered { open } => Self::Answered { open },
            Transition::Paused => Self::Paused,
            Transition::Resumed => Self::Resumed,
            Transition::Interrupted => Self::Interrupted,
            Transition::Cancelled { is_paused: true, .. } => Self::Cancelled { from: TaskStatus::Paused },
            Transition::Cancelled { from, is_paused: false } => Self::Cancelled { from: (&Phase::Active(from)).into() },
            Transition::Succeeded => Self::Succeeded,
            Transition::ToolError => Self::ToolError,
            Transition::Failed => Self::Failed,
            Transition::Continued { attempt } => Self::Continued { attempt },
            Transition::Dormant => Self::Dormant,
            Transition::Woken { attempt, cause } => Self::Woken { attempt, cause: cause.into() },
        }
    }
}

impl From<&Timeline> for TimelineView {
    fn from(timeline: &Timeline) -> Self {
        let entry = |entry: &TimelineEntry| TimelineEntryView { at: entry.at, transition: entry.transition.into() };
        let left_out = timeline.gap_after().map(|after| LeftOutView { after, count: timeline.left_out() });
        Self { entries: timeline.entries().iter().map(entry).collect(), left_out }
    }
}

impl AsRef<TaskView> for TaskDetailsView {
    fn as_ref(&self) -> &TaskView {
        &self.task
    }
}

/// An input request of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputView {
    pub key: String,
    pub answered: bool,
}

/// The first tasks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskListView {
    pub tasks: Vec<TaskView>,
    pub more: bool,
}

/// A page of tasks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskPageView {
    pub tasks: Vec<TaskView>,
    pub more: bool,
    /// Where the next page begins.
    pub next: Option<String>,
}

/// A task that is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPurgeView {
    #[serde(flatten)]
    pub task: TaskView,
    pub purged: bool,
}

impl AsRef<TaskView> for TaskPurgeView {
    fn as_ref(&self) -> &TaskView {
        &self.task
    }
}
