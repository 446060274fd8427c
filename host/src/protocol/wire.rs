//! How tools, outputs and tasks look on the wire in the legacy era.
//!
//! Owns the field names of shared types. What a plugin wrote as JSON is passed on as it is, checked to be JSON, and never with a
//! line break in it: a message is one line.

use std::borrow::Cow;
use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{Error as _, SerializeMap, SerializeSeq, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::error::RpcError;
use super::timestamp::iso8601;
use crate::domain::Json;
use crate::domain::call::LogLevel;
use crate::domain::task::{Active, Outcome, Phase, Retention, Task, TaskId};
use crate::domain::tool::{
    Annotations, Content, ContentKind, Icon, Meta, ResourceBody, ResourceContents, Role, TaskSupport, Tool,
    ToolAnnotations, ToolOutput,
};

/// `_meta` of everything that belongs to a task.
pub(crate) const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// `_meta` of a `CreateTaskResult`: what a model may be told meanwhile.
pub(crate) const MODEL_IMMEDIATE_RESPONSE: &str = "io.modelcontextprotocol/model-immediate-response";

/// The extension of tasks (SEP-2663).
pub(crate) const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

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

/// `{"taskId": …}`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Related {
    task_id: String,
}

/// `_meta`: what a plugin attached, and the task that it belongs to. Keys that MCP reserves are the host's alone.
pub(crate) struct MetaView<'a> {
    pub(crate) meta: &'a [(String, Json)],
    pub(crate) related: Option<TaskId>,
}

impl<'a> MetaView<'a> {
    /// `None` when there is nothing to say.
    pub(crate) fn new(meta: &'a Meta, related: Option<TaskId>) -> Option<Self> {
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
        if let Some(id) = self.related {
            map.serialize_entry(RELATED_TASK, &Related { task_id: id.to_string() })?;
        }
        map.end()
    }
}

/// Whether a `_meta` key has a prefix whose second label is `modelcontextprotocol` or `mcp`, or is a bare key with a meaning.
pub(crate) fn reserved(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, _)) => matches!(prefix.split('.').nth(1), Some("modelcontextprotocol" | "mcp")),
        None => key == "progressToken",
    }
}

/// A tool's output as a `CallToolResult`.
pub(crate) struct OutputView<'a> {
    pub(crate) output: &'a ToolOutput,
    /// Set for `tasks/result` only.
    pub(crate) related: Option<TaskId>,
}

impl Serialize for OutputView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let output = self.output;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("content", &Blocks(output))?;
        // These revisions allow objects only; anything else stays readable as text.
        if let Some(structured) = output.structured.as_ref().filter(|json| json.as_str().trim_start().starts_with('{'))
        {
            map.serialize_entry("structuredContent", &Raw(structured))?;
        }
        if output.is_error {
            map.serialize_entry("isError", &true)?;
        }
        if let Some(meta) = MetaView::new(&output.meta, self.related) {
            map.serialize_entry("_meta", &meta)?;
        }
        map.end()
    }
}

/// The content blocks; structured content is also there as text, for clients that read nothing else.
pub(crate) struct Blocks<'a>(pub(crate) &'a ToolOutput);

impl Serialize for Blocks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        for block in &self.0.content {
            seq.serialize_element(&Block(block))?;
        }
        let has_text = self.0.content.iter().any(|block| matches!(block.kind, ContentKind::Text(_)));
        if let Some(structured) = self.0.structured.as_ref().filter(|_| !has_text) {
            seq.serialize_element(&TextBlock { r#type: "text", text: structured.as_str() })?;
        }
        seq.end()
    }
}

#[derive(Serialize)]
struct TextBlock<'a> {
    r#type: &'static str,
    text: &'a str,
}

struct Block<'a>(&'a Content);

impl Serialize for Block<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.0.kind {
            ContentKind::Text(text) => {
                map.serialize_entry("type", "text")?;
                map.serialize_entry("text", text)?;
            }
            ContentKind::Image { data, mime_type } => media(&mut map, "image", data, mime_type)?,
            ContentKind::Audio { data, mime_type } => media(&mut map, "audio", data, mime_type)?,
            ContentKind::ResourceLink(link) => {
                map.serialize_entry("type", "resource_link")?;
                map.serialize_entry("uri", &link.uri)?;
                map.serialize_entry("name", &link.name)?;
                entry_if(&mut map, "title", link.title.as_ref())?;
                entry_if(&mut map, "description", link.description.as_ref())?;
                entry_if(&mut map, "mimeType", link.mime_type.as_ref())?;
                entry_if(&mut map, "size", link.size)?;
            }
            ContentKind::Resource(contents) => {
                map.serialize_entry("type", "resource")?;
                map.serialize_entry("resource", &ContentsView(contents))?;
            }
        }
        entry_if(&mut map, "annotations", self.0.annotations.as_ref().map(AnnotationsView))?;
        entry_if(&mut map, "_meta", MetaView::new(&self.0.meta, None))?;
        map.end()
    }
}

fn media<M: SerializeMap>(map: &mut M, kind: &str, data: &[u8], mime_type: &str) -> Result<(), M::Error> {
    map.serialize_entry("type", kind)?;
    map.serialize_entry("data", &STANDARD.encode(data))?;
    map.serialize_entry("mimeType", mime_type)
}

pub(crate) fn entry_if<M: SerializeMap>(map: &mut M, key: &str, value: Option<impl Serialize>) -> Result<(), M::Error> {
    value.map_or(Ok(()), |value| map.serialize_entry(key, &value))
}

struct ContentsView<'a>(&'a ResourceContents);

impl Serialize for ContentsView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("uri", &self.0.uri)?;
        entry_if(&mut map, "mimeType", self.0.mime_type.as_ref())?;
        match &self.0.body {
            ResourceBody::Text(text) => map.serialize_entry("text", text)?,
            ResourceBody::Blob(bytes) => map.serialize_entry("blob", &STANDARD.encode(bytes))?,
        }
        entry_if(&mut map, "_meta", MetaView::new(&self.0.meta, None))?;
        map.end()
    }
}

struct AnnotationsView<'a>(&'a Annotations);

impl Serialize for AnnotationsView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.0.audience.is_empty() {
            let audience: Vec<_> = self.0.audience.iter().map(|role| role_name(*role)).collect();
            map.serialize_entry("audience", &audience)?;
        }
        entry_if(&mut map, "priority", self.0.priority.filter(|priority| priority.is_finite()))?;
        entry_if(&mut map, "lastModified", self.0.last_modified.as_ref())?;
        map.end()
    }
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
    }
}

/// A tool in a list. `modern_fields`: the session's revision knows icons and task support (2025-11-25).
pub(crate) struct ToolView<'a> {
    pub(crate) tool: &'a Tool,
    pub(crate) modern_fields: bool,
}

impl Serialize for ToolView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tool = self.tool;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &tool.name)?;
        entry_if(&mut map, "title", tool.title.as_ref())?;
        map.serialize_entry("description", &tool.description)?;
        map.serialize_entry("inputSchema", &Raw(&tool.input_schema))?;
        entry_if(&mut map, "outputSchema", tool.output_schema.as_ref().filter(|schema| of_objects(schema)).map(Raw))?;
        entry_if(&mut map, "annotations", tool.annotations.as_ref().map(HintsView::from))?;
        if self.modern_fields {
            if !tool.icons.is_empty() {
                map.serialize_entry("icons", &tool.icons.iter().map(IconView::from).collect::<Vec<_>>())?;
            }
            map.serialize_entry("execution", &Execution { task_support: support_name(tool.task_support) })?;
        }
        entry_if(&mut map, "_meta", MetaView::new(&tool.meta, None))?;
        map.end()
    }
}

/// Whether a schema's root says `"type": "object"`: these revisions know no other output schemas.
fn of_objects(schema: &Json) -> bool {
    #[derive(Deserialize)]
    struct Root {
        r#type: Option<serde_json::Value>,
    }
    serde_json::from_str::<Root>(schema.as_str()).is_ok_and(|root| root.r#type.is_some_and(|name| name == "object"))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Execution {
    task_support: &'static str,
}

fn support_name(support: TaskSupport) -> &'static str {
    match support {
        TaskSupport::Forbidden => "forbidden",
        TaskSupport::Optional => "optional",
        TaskSupport::Required => "required",
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HintsView<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    read_only_hint: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destructive_hint: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotent_hint: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_world_hint: Option<bool>,
}

impl<'a> From<&'a ToolAnnotations> for HintsView<'a> {
    fn from(hints: &'a ToolAnnotations) -> Self {
        Self {
            title: hints.title.as_deref(),
            read_only_hint: hints.read_only,
            destructive_hint: hints.destructive,
            idempotent_hint: hints.idempotent,
            open_world_hint: hints.open_world,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IconView<'a> {
    src: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    sizes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    theme: Option<&'a str>,
}

impl<'a> From<&'a Icon> for IconView<'a> {
    fn from(icon: &'a Icon) -> Self {
        Self { src: &icon.src, mime_type: icon.mime_type.as_deref(), sizes: &icon.sizes, theme: icon.theme.as_deref() }
    }
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
        let ttl = match task.retention {
            Retention::FromCreation { ttl_ms } => Some(ttl_ms),
            Retention::FromCompletion { .. } => task.expires_at().map(|at| at.saturating_sub(task.created_at)),
            Retention::Unlimited => None,
        };
        Self {
            task_id: task.id.to_string(),
            status,
            status_message,
            created_at: iso8601(task.created_at),
            last_updated_at: iso8601(task.updated_at),
            ttl,
            poll_interval: task.poll_interval_ms,
        }
    }
}

/// The status of this revision, which knows neither a queue nor a pause, and calls a tool's own failure `failed`.
fn status(task: &Task) -> (&'static str, Option<String>) {
    let said = || task.status_message.clone();
    match &task.phase {
        Phase::Active(Active::Queued) => ("working", said().or_else(|| Some("queued".to_owned()))),
        Phase::Active(active) => (active_name(*active), said()),
        Phase::Paused { before } => (active_name(*before), Some("paused".to_owned())),
        Phase::Ended(Outcome::Output { is_error: false }) => ("completed", said()),
        Phase::Ended(Outcome::Output { is_error: true }) => {
            ("failed", said().or_else(|| Some("The tool reported an error; its result says more".to_owned())))
        }
        Phase::Ended(Outcome::Error(error)) => ("failed", Some(RpcError::from(error).message)),
        Phase::Ended(Outcome::Cancelled) => {
            ("cancelled", said().or_else(|| Some("The task was cancelled by request".to_owned())))
        }
    }
}

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
    use super::*;
    use crate::domain::tool::ResourceLink;
    use serde_json::json;

    fn block(kind: ContentKind) -> Content {
        Content { kind, annotations: None, meta: Vec::new() }
    }

    #[test]
    fn all_blocks_have_their_fields() {
        let annotations = Annotations { audience: vec![Role::User], priority: Some(0.5), last_modified: None };
        let link = ResourceLink {
            uri: "file:///a".into(),
            name: "a".into(),
            title: None,
            description: None,
            mime_type: Some("text/plain".into()),
            size: Some(3),
        };
        let contents = ResourceContents {
            uri: "test://r".into(),
            mime_type: None,
            body: ResourceBody::Blob(vec![1, 2, 3]),
            meta: vec![("x.y/z".into(), Json::new("1"))],
        };
        let output = ToolOutput {
            content: vec![
                Content { kind: ContentKind::Text("t".into()), annotations: Some(annotations), meta: Vec::new() },
                block(ContentKind::Image { data: vec![255], mime_type: "image/png".into() }),
                block(ContentKind::Audio { data: vec![], mime_type: "audio/wav".into() }),
                block(ContentKind::ResourceLink(link)),
                block(ContentKind::Resource(contents)),
            ],
            structured: Some(Json::new("{\n\"a\": 1}")),
            is_error: false,
            meta: vec![("io.modelcontextprotocol/related-task".into(), Json::new("\"forged\""))],
        };
        let line = serde_json::to_string(&OutputView { output: &output, related: None }).unwrap();
        assert!(!line.contains('\n'));
        let expected = json!({
            "content": [
                {"type": "text", "text": "t", "annotations": {"audience": ["user"], "priority": 0.5}},
                {"type": "image", "data": "/w==", "mimeType": "image/png"},
                {"type": "audio", "data": "", "mimeType": "audio/wav"},
                {"type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/plain", "size": 3},
                {"type": "resource", "resource": {"uri": "test://r", "blob": "AQID", "_meta": {"x.y/z": 1}}},
            ],
            "structuredContent": {"a": 1},
        });
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), expected);
    }

    #[test]
    fn structured_content_without_text_is_also_there_as_text() {
        let output = ToolOutput { structured: Some(Json::new("[1,2]")), ..ToolOutput::default() };
        let id = TaskId([0xab; 16]);
        let value = serde_json::to_value(OutputView { output: &output, related: Some(id) }).unwrap();
        let expected = json!({"content": [{"type": "text", "text": "[1,2]"}],
            "_meta": {RELATED_TASK: {"taskId": "ab".repeat(16)}}});
        assert_eq!(value, expected);
    }

    #[test]
    fn output_that_is_no_json_cannot_be_written() {
        let output = ToolOutput { structured: Some(Json::new("{\"a\":")), ..ToolOutput::default() };
        assert!(serde_json::to_string(&OutputView { output: &output, related: None }).is_err());
    }

    #[test]
    fn numbers_of_progress_are_whole_where_they_can_be() {
        assert_eq!(serde_json::to_string(&[Number(50.0), Number(0.5), Number(-3.0)]).unwrap(), "[50,0.5,-3]");
    }
}
