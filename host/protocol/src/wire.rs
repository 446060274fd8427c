//! How tools, outputs and tasks look on the wire in the legacy era.
//!
//! Owns the field names of shared types. What a plugin wrote as JSON is passed on as it is, checked to be JSON, and
//! never with a line break in it: a message is one line.

mod face;
mod older;
mod output;
mod result;
mod server_features;
mod tool;

use std::borrow::Cow;
use std::collections::HashSet;

use serde::Serialize;
use serde::ser::{Error as _, SerializeMap, Serializer};
use serde_json::value::RawValue;

use super::error::RpcError;
use super::sep1686;
use super::version::Version;
use bulkhead_domain::Json;
use bulkhead_domain::call::{CallError, LogLevel};
use bulkhead_domain::task::{Active, Design, Outcome, Phase, Retention, Task};
use bulkhead_domain::timestamp::iso8601;
use bulkhead_tasks::COULD_NOT;

pub(crate) use face::{OnlyRelated, TaskFace, TaskResult};
pub(crate) use older::{prompt_output, task_output, tool_output};
pub(crate) use output::{Blocks, OutputView};
pub(crate) use result::TaskOutputView;
pub(crate) use server_features::{
    Bare, Body, CompletionBody, ContentsBody, PageBody, PromptBody, PromptView, ResourceView, TemplateView, WithMeta,
};
use tool::IconView;
pub(crate) use tool::{FoundTool, ToolMembers, ToolView};

/// `_meta` of everything that belongs to a task of the core.
pub(crate) const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// `_meta` of a `CreateTaskResult`: what a model may be told meanwhile.
pub(crate) const MODEL_IMMEDIATE_RESPONSE: &str = "io.modelcontextprotocol/model-immediate-response";

/// The text without line breaks. In valid JSON they are only white space.
pub(crate) fn single_line(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte == b'\n' || byte == b'\r') {
        Cow::Owned(text.replace(['\n', '\r'], " "))
    } else {
        Cow::Borrowed(text)
    }
}

/// JSON text, passed on as it is.
pub(crate) struct Raw<'a>(pub(crate) &'a Json);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = single_line(self.0.as_str());
        serde_json::from_str::<&RawValue>(&text).map_err(S::Error::custom)?.serialize(serializer)
    }
}

/// The task that a message belongs to: the key of `_meta` that its design has for that, and the id that its client
/// knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RelatedTask {
    #[serde(skip)]
    pub(crate) key: &'static str,
    /// The key of a second design, for readers that know that one only.
    #[serde(skip)]
    second_key: Option<&'static str>,
    task_id: String,
}

impl RelatedTask {
    /// The same for the result of a task: 2025-11-25 demands its own key there, whichever design created the task.
    pub(crate) fn of_result(self, version: Version) -> Self {
        let second_key = (version.has_tasks() && self.key != RELATED_TASK).then_some(RELATED_TASK);
        Self { second_key, ..self }
    }
}

impl From<&Task> for RelatedTask {
    fn from(task: &Task) -> Self {
        let key = match task.design() {
            Design::Core2025 | Design::Extension2026 => RELATED_TASK,
            Design::Sep1686 => sep1686::RELATED_TASK,
        };
        Self { key, second_key: None, task_id: sep1686::wire_id(task).into_owned() }
    }
}

#[cfg(test)]
impl RelatedTask {
    /// A task of the core.
    pub(crate) fn core(id: bulkhead_domain::task::TaskId) -> Self {
        Self { key: RELATED_TASK, second_key: None, task_id: id.to_string() }
    }
}

/// `_meta`: what a plugin attached, and the task that it belongs to. Keys that MCP reserves are the host's alone.
pub(crate) struct MetaView<'a> {
    pub(crate) meta: &'a [(String, Json)],
    pub(crate) related: Option<&'a RelatedTask>,
}

impl<'a> MetaView<'a> {
    /// `None` when there is nothing to say.
    pub(crate) fn new(meta: &'a [(String, Json)], related: Option<&'a RelatedTask>) -> Option<Self> {
        (related.is_some() || meta.iter().any(|(key, _)| !reserved(key))).then_some(Self { meta, related })
    }
}

impl Serialize for MetaView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let mut seen = HashSet::new();
        for (key, value) in self.meta {
            if !reserved(key) && seen.insert(key.as_str()) {
                map.serialize_entry(key, &Raw(value))?;
            }
        }
        if let Some(related) = self.related {
            map.serialize_entry(related.key, related)?;
            if let Some(key) = related.second_key {
                map.serialize_entry(key, related)?;
            }
        }
        map.end()
    }
}

/// Whether a `_meta` key has a prefix whose second label is `modelcontextprotocol` or `mcp`, or that of SEP-1686, or is
/// a bare key with a meaning.
pub(crate) fn reserved(key: &str) -> bool {
    match key.split_once('/') {
        Some(("modelcontextprotocol.io", _)) => true,
        Some((prefix, _)) => matches!(prefix.split('.').nth(1), Some("modelcontextprotocol" | "mcp")),
        None => key == "progressToken",
    }
}

pub(crate) fn entry_if<M: SerializeMap>(map: &mut M, key: &str, value: Option<impl Serialize>) -> Result<(), M::Error> {
    value.map_or(Ok(()), |value| map.serialize_entry(key, &value))
}

/// A task as the 2025-11-25 core shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskView {
    pub(crate) task_id: String,
    pub(crate) status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status_message: Option<String>,
    pub(crate) created_at: String,
    pub(crate) last_updated_at: String,
    pub(crate) ttl: Option<u64>,
    pub(crate) poll_interval: u32,
}

impl From<&Task> for TaskView {
    fn from(task: &Task) -> Self {
        let (status, status_message) = status(task);
        Self {
            task_id: task.id.to_string(),
            status,
            status_message,
            created_at: iso8601(task.created_at),
            last_updated_at: iso8601(task.updated_at),
            ttl: ttl_ms(task),
            poll_interval: task.poll_interval_ms,
        }
    }
}

/// How long a task is kept from its creation on; `None`: for ever, or from an end that is not there yet.
pub(crate) fn ttl_ms(task: &Task) -> Option<u64> {
    match task.retention {
        Retention::FromCreation { ttl_ms } => Some(ttl_ms),
        Retention::FromCompletion { .. } => task.expires_at().map(|at| at.saturating_sub(task.created_at)),
        Retention::Unlimited => None,
    }
}

/// The status of this revision, which knows neither a queue nor a pause, and calls a tool's own failure `failed`.
fn status(task: &Task) -> (&'static str, Option<String>) {
    let message = || task.status_message.clone();
    match &task.phase {
        Phase::Active(Active::Queued) => ("working", message().or_else(|| Some("queued".to_owned()))),
        Phase::Active(active) => (active_name(*active), message()),
        Phase::Paused { before } => (active_name(*before), Some(paused(task))),
        Phase::Ended(Outcome::Output { is_error: false }) => ("completed", message()),
        Phase::Ended(Outcome::Output { is_error: true }) => {
            ("failed", message().or_else(|| Some("The tool reported an error; its result says more".to_owned())))
        }
        Phase::Ended(Outcome::Error(error)) => ("failed", Some(broken(task, RpcError::from(error)))),
        Phase::Ended(Outcome::Cancelled) => {
            ("cancelled", message().or_else(|| Some("The task was cancelled by request".to_owned())))
        }
    }
}

/// The status message of a task that broke. One that could not go on after a restart says why.
pub(crate) fn broken(task: &Task, error: RpcError) -> String {
    let why = task.status_message.as_deref().filter(|message| message.starts_with(COULD_NOT));
    match (task.outcome(), why) {
        (Some(Outcome::Error(CallError::Interrupted)), Some(why)) => format!("{}; {why}", error.message),
        _ => error.message,
    }
}

/// The status message of a paused task for clients whose revision has no such status.
pub(crate) fn paused(task: &Task) -> String {
    match task.status_message.as_deref() {
        None => "paused".to_owned(),
        Some(why) if why.starts_with("paused") => why.to_owned(),
        Some(why) => format!("paused: {why}"),
    }
}

/// The status of a task that is not over, for readers who know neither a queue nor a pause.
pub(crate) fn active_name(active: Active) -> &'static str {
    match active {
        Active::Queued | Active::Running => "working",
        Active::InputRequired => "input_required",
    }
}

/// A `CreateTaskResult`.
#[derive(Serialize)]
pub(crate) struct Created {
    pub(crate) task: TaskView,
    #[serde(rename = "_meta")]
    pub(crate) meta: ImmediateResponse,
}

/// What a model may read while the task runs.
pub(crate) struct ImmediateResponse {
    pub(crate) tool: String,
}

impl Serialize for ImmediateResponse {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = format!("{} was started as a task; its result will be there later.", self.tool);
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(MODEL_IMMEDIATE_RESPONSE, &text)?;
        map.end()
    }
}

const LEVELS: [(&str, LogLevel); 8] = [
    ("debug", LogLevel::Debug),
    ("info", LogLevel::Info),
    ("notice", LogLevel::Notice),
    ("warning", LogLevel::Warning),
    ("error", LogLevel::Error),
    ("critical", LogLevel::Critical),
    ("alert", LogLevel::Alert),
    ("emergency", LogLevel::Emergency),
];

/// Reads a level.
pub(crate) fn level(name: &str) -> Option<LogLevel> {
    LEVELS.iter().find(|(known, _)| *known == name).map(|(_, level)| *level)
}

/// Writes a level.
pub(crate) fn level_name(level: LogLevel) -> &'static str {
    LEVELS.iter().find(|(_, known)| *known == level).map_or("info", |(name, _)| name)
}

/// A number of a progress report; whole ones without a fraction.
pub(crate) struct Number(pub(crate) f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if self.0.fract() == 0.0 && self.0.abs() < EXACT {
            #[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^53")]
            serializer.serialize_i64(self.0 as i64)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
    use bulkhead_domain::task::TaskId;

    use super::*;

    #[test]
    fn task_that_could_not_go_on_says_why_and_no_other_message_of_the_host_is_shown() {
        let requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([2; 16]) };
        let said = |error: CallError, message: &str| {
            let phase = Phase::Ended(Outcome::Error(error));
            let status_message = Some(message.to_owned());
            let task = Task { phase, status_message, ..Task::sample(requestor, TaskId([3; 16])) };
            status(&task).1.unwrap()
        };
        let stopped = "The host stopped while this call ran; the call was not finished";
        let why = format!("{COULD_NOT} go on: its component is not loaded any more");
        assert_eq!(said(CallError::Interrupted, &why), format!("{stopped}; {why}"));
        assert_eq!(said(CallError::Interrupted, "anything else"), stopped);
        let broken = CallError::Internal { incident: "7".to_owned() };
        assert!(!said(broken, &why).contains(&why));
    }

    #[test]
    fn progress_numbers_are_written_as_integers_when_whole() {
        assert_eq!(serde_json::to_string(&[Number(50.0), Number(0.5), Number(-3.0)]).unwrap(), "[50,0.5,-3]");
    }
}
