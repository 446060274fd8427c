//! A task in the legacy era: each as the design that created it shows it, in every session.

use serde::Serialize;

use super::{MetaView, RelatedTask, TaskView};
use crate::domain::task::{Active, Design, Outcome, Phase, Retention, Task};
use crate::protocol::error::RpcError;
use crate::protocol::sep1686;

/// A task in a list.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum TaskFace {
    /// Of the core. Tasks of the extension have no face of their own in this era and show this one.
    Core(TaskView),
    Sep1686(Sep1686View),
}

impl TaskFace {
    /// What the design calls the status.
    pub(crate) fn status(&self) -> &'static str {
        match self {
            Self::Core(view) => view.status,
            Self::Sep1686(view) => view.status,
        }
    }
}

impl From<&Task> for TaskFace {
    fn from(task: &Task) -> Self {
        match task.design() {
            Design::Core2025 | Design::Extension2026 => Self::Core(TaskView::from(task)),
            Design::Sep1686 => Self::Sep1686(Sep1686View::from(task)),
        }
    }
}

/// A task as SEP-1686 shows it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sep1686View {
    task_id: String,
    status: &'static str,
    keep_alive: Option<u64>,
    poll_frequency: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl From<&Task> for Sep1686View {
    fn from(task: &Task) -> Self {
        let keep_alive = match task.retention {
            Retention::FromCompletion { keep_alive_ms } => Some(keep_alive_ms),
            Retention::FromCreation { ttl_ms } => Some(ttl_ms),
            Retention::Unlimited => None,
        };
        let error = match task.outcome() {
            Some(Outcome::Error(error)) => Some(RpcError::from(error).message),
            Some(Outcome::Output { .. } | Outcome::Cancelled) | None => None,
        };
        Self {
            task_id: sep1686::wire_id(task).into_owned(),
            status: status(task),
            keep_alive,
            poll_frequency: task.poll_interval_ms,
            error,
        }
    }
}

/// This design knows a queue and no pause, and a tool's own failure is a result like any other.
fn status(task: &Task) -> &'static str {
    match &task.phase {
        Phase::Active(active) | Phase::Paused { before: active } => match active {
            Active::Queued => "submitted",
            Active::Running => "working",
            Active::InputRequired => "input_required",
        },
        Phase::Ended(Outcome::Output { .. }) => "completed",
        Phase::Ended(Outcome::Error(_)) => "failed",
        Phase::Ended(Outcome::Cancelled) => "cancelled",
    }
}

/// A task as the result of a request about it. SEP-1686 wants it named once more in the metadata, the core does not.
#[derive(Serialize)]
pub(crate) struct TaskResult {
    #[serde(flatten)]
    face: TaskFace,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    related: Option<RelatedMeta>,
}

impl From<&Task> for TaskResult {
    fn from(task: &Task) -> Self {
        let face = TaskFace::from(task);
        let related = matches!(face, TaskFace::Sep1686(_)).then(|| RelatedMeta(RelatedTask::from(task)));
        Self { face, related }
    }
}

/// `_meta` that names a task and says nothing else.
pub(crate) struct RelatedMeta(pub(crate) RelatedTask);

impl Serialize for RelatedMeta {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        MetaView { meta: &[], related: Some(&self.0) }.serialize(serializer)
    }
}

/// `_meta` alone: a result, or the params of a notification.
#[derive(Serialize)]
pub(crate) struct OnlyRelated {
    #[serde(rename = "_meta")]
    pub(crate) meta: RelatedMeta,
}

impl From<&Task> for OnlyRelated {
    fn from(task: &Task) -> Self {
        Self { meta: RelatedMeta(RelatedTask::from(task)) }
    }
}
