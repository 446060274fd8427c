//! A tool's output: content blocks, structured content, metadata.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};

use super::{MetaView, Raw, RelatedTask, entry_if};
use bulkhead_domain::tool::{Annotations, Content, ContentKind, ResourceBody, ResourceContents, Role, ToolOutput};

/// A tool's output as a `CallToolResult`.
pub(crate) struct OutputView<'a> {
    pub(crate) output: &'a ToolOutput,
    /// Set for the output of a task.
    pub(crate) related: Option<&'a RelatedTask>,
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

pub(super) struct Block<'a>(pub(super) &'a Content);

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

pub(super) struct ContentsView<'a>(pub(super) &'a ResourceContents);

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

pub(super) struct AnnotationsView<'a>(pub(super) &'a Annotations);

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

pub(super) fn role_name(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::RELATED_TASK;
    use bulkhead_domain::Json;
    use bulkhead_domain::task::TaskId;
    use bulkhead_domain::tool::ResourceLink;
    use serde_json::json;

    fn block(kind: ContentKind) -> Content {
        Content { kind, annotations: None, meta: Vec::new() }
    }

    #[test]
    fn all_content_blocks_have_their_fields() {
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
    fn structured_content_is_repeated_as_text() {
        let output = ToolOutput { structured: Some(Json::new("[1,2]")), ..ToolOutput::default() };
        let id = RelatedTask::core(TaskId([0xab; 16]));
        let value = serde_json::to_value(OutputView { output: &output, related: Some(&id) }).unwrap();
        let expected = json!({"content": [{"type": "text", "text": "[1,2]"}],
            "_meta": {RELATED_TASK: {"taskId": "ab".repeat(16)}}});
        assert_eq!(value, expected);
    }

    #[test]
    fn invalid_json_output_cannot_be_written() {
        let output = ToolOutput { structured: Some(Json::new("{\"a\":")), ..ToolOutput::default() };
        assert!(serde_json::to_string(&OutputView { output: &output, related: None }).is_err());
    }
}
