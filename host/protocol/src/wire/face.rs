//! A task in the legacy era, as a session of some revision can read it.
//!
//! Invariant: in a session of a revision that has tasks, every task is a `Task` of that revision, whichever design
//! created it. A task of SEP-1686 has the members of its own design beside that, and nothing else in sessions of the
//! revision before.

use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

use super::{MetaView, RelatedTask, TaskView, broken, entry_if};
use crate::error::RpcError;
use crate::sep1686;
use crate::version::Version;
use bulkhead_domain::task::{Active, Design, Outcome, Phase, Retention, Task};

/// `_meta` of a task: its status by SEP-1686, where the revision of the session has no such status.
pub(crate) const SEP1686_STATUS: &str = "dev.bulkhead/sep-1686-status";

/// A task in a list.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum TaskFace {
    /// Of the core. Tasks of the extension have no face of their own in this era and show this one.
    Core(TaskView),
    Sep1686(Sep1686View),
    Both(BothViews),
}

impl TaskFace {
    pub(crate) fn new(task: &Task, version: Version) -> Self {
        match task.design() {
            Design::Core2025 | Design::Extension2026 => Self::Core(TaskView::from(task)),
            Design::Sep1686 if version.has_tasks() => Self::Both(BothViews::from(task)),
            Design::Sep1686 => Self::Sep1686(Sep1686View::from(task)),
        }
    }

    /// The status as the session reads it.
    pub(crate) fn status(&self) -> &'static str {
        match self {
            Self::Core(view) => view.status,
            Self::Sep1686(view) => view.status,
            Self::Both(views) => views.core.status,
        }
    }
}

/// A task of SEP-1686 as the core shows it, with the members of SEP-1686 beside.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BothViews {
    #[serde(flatten)]
    core: TaskView,
    keep_alive: Option<u64>,
    poll_frequency: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<BothMeta>,
}

impl From<&Task> for BothViews {
    fn from(task: &Task) -> Self {
        let Sep1686View { task_id, status, keep_alive, poll_frequency, error } = Sep1686View::from(task);
        let mut core = TaskView { task_id, ..TaskView::from(task) };
        let submitted = (status == SUBMITTED).then_some(status);
        if submitted.is_none() && core.status != status {
            // To this design a tool's own failure is a result like any other, and its `tasks/result` gives it.
            (core.status, core.status_message) = (status, task.status_message.clone());
        }
        let meta = submitted.map(|status| BothMeta { status: Some(status), related: None });
        Self { core, keep_alive, poll_frequency, error, meta }
    }
}

/// `_meta` of a task of SEP-1686 where the core reads it.
struct BothMeta {
    status: Option<&'static str>,
    related: Option<RelatedTask>,
}

impl Serialize for BothMeta {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        entry_if(&mut map, SEP1686_STATUS, self.status)?;
        if let Some(related) = &self.related {
            map.serialize_entry(related.key, related)?;
        }
        map.end()
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
            Some(Outcome::Error(error)) => Some(broken(task, RpcError::from(error))),
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

/// The status that the core does not have.
const SUBMITTED: &str = "submitted";

/// This design knows a queue and no pause, and a tool's own failure is a result like any other.
fn status(task: &Task) -> &'static str {
    match &task.phase {
        Phase::Active(active) | Phase::Paused { before: active } => match active {
            Active::Queued => SUBMITTED,
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

impl TaskResult {
    pub(crate) fn new(task: &Task, version: Version) -> Self {
        let named = RelatedTask::from(task);
        match TaskFace::new(task, version) {
            face @ TaskFace::Core(_) => Self { face, related: None },
            face @ TaskFace::Sep1686(_) => Self { face, related: Some(RelatedMeta(named)) },
            TaskFace::Both(views) => {
                let status = views.meta.as_ref().and_then(|meta| meta.status);
                let meta = Some(BothMeta { status, related: Some(named) });
                Self { face: TaskFace::Both(BothViews { meta, ..views }), related: None }
            }
        }
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
