//! Tasks, as an operator's program gets them.
//!
//! Must not hold what belongs to the requestor alone: arguments, answers and results.

use bulkhead_domain::UnixMs;
use bulkhead_domain::task::{Active, Outcome, Phase};
use bulkhead_domain::timeline::{Timeline, TimelineEntry, Transition};
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
    /// Only of one task that is shown, and only where there is more to say than the members above do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<TimelineView>,
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
