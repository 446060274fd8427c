//! Results of a server as the records of `wit/`.
//!
//! Owns the shapes of the protocol in that direction. Must not judge what is in them: the border of every plugin does.
//! What the protocol does not know is passed over.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::messages::{Members, meta};
use crate::bindings::bulkhead::plugin::types as wit;
use crate::bindings::exports::bulkhead::plugin::tools::ToolOutput;
use bulkhead_domain::Json;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolResult {
    #[serde(default)]
    content: Vec<Box<RawValue>>,
    structured_content: Option<Box<RawValue>>,
    #[serde(default)]
    is_error: bool,
    #[serde(rename = "_meta")]
    meta: Option<Members>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Annotations {
    #[serde(default)]
    audience: Vec<Role>,
    priority: Option<f64>,
    last_modified: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    User,
    Assistant,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Icon {
    src: String,
    mime_type: Option<String>,
    #[serde(default)]
    sizes: Vec<String>,
    theme: Option<String>,
}

/// A block of content: the members of every kind, of which its kind says the ones that are meant.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Block {
    r#type: String,
    text: Option<String>,
    data: Option<String>,
    mime_type: Option<String>,
    uri: Option<String>,
    name: Option<String>,
    title: Option<String>,
    description: Option<String>,
    size: Option<u64>,
    resource: Option<Contents>,
    annotations: Option<Annotations>,
    #[serde(rename = "_meta")]
    meta: Option<Members>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Contents {
    uri: String,
    mime_type: Option<String>,
    text: Option<String>,
    blob: Option<String>,
    #[serde(rename = "_meta")]
    meta: Option<Members>,
}

/// The result of `tools/call`.
///
/// # Errors
///
/// Says what is none.
pub(super) fn tool_output(result: &Json) -> Result<ToolOutput, String> {
    let ToolResult { content, structured_content, is_error, meta: members } = parsed(result.as_str())?;
    let blocks = content.iter().enumerate();
    let content = blocks.map(|(at, text)| block(text.get()).map_err(|wrong| format!("content {at}: {wrong}")));
    Ok(ToolOutput {
        content: content.collect::<Result<_, _>>()?,
        structured: structured_content.map(|value| value.get().to_owned()),
        is_error,
        meta: meta(members),
    })
}

/// Reads what the protocol says a text is.
pub(super) fn parsed<T: for<'a> Deserialize<'a>>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

pub(super) fn block(text: &str) -> Result<wit::Content, String> {
    let block: Block = parsed(text)?;
    let annotations = block.annotations.map(annotated);
    let members = meta(block.meta);
    let missing = |member: &str| format!("it has no {member}");
    let kind = block.r#type;
    match kind.as_str() {
        "text" => {
            let text = block.text.ok_or_else(|| missing("text"))?;
            Ok(wit::Content::Text(wit::TextContent { text, annotations, meta: members }))
        }
        "image" | "audio" => {
            let data = decoded(&block.data.ok_or_else(|| missing("data"))?)?;
            let mime_type = block.mime_type.ok_or_else(|| missing("mimeType"))?;
            let media = wit::MediaContent { data, mime_type, annotations, meta: members };
            Ok(if kind == "image" { wit::Content::Image(media) } else { wit::Content::Audio(media) })
        }
        "resource_link" => Ok(wit::Content::ResourceLink(wit::ResourceLink {
            uri: block.uri.ok_or_else(|| missing("uri"))?,
            name: block.name.ok_or_else(|| missing("name"))?,
            title: block.title,
            description: block.description,
            mime_type: block.mime_type,
            size: block.size,
            annotations,
            meta: members,
        })),
        "resource" => {
            let contents = resource(block.resource.ok_or_else(|| missing("resource"))?)?;
            Ok(wit::Content::Resource(wit::EmbeddedResource { contents, annotations, meta: members }))
        }
        other => Err(format!("{other:?} is no kind of content")),
    }
}

pub(super) fn resource(contents: Contents) -> Result<wit::ResourceContents, String> {
    let body = match (contents.text, contents.blob) {
        (Some(text), None) => wit::ResourceBody::Text(text),
        (None, Some(blob)) => wit::ResourceBody::Blob(decoded(&blob)?),
        _ => return Err("a resource has either text or a blob".to_owned()),
    };
    let Contents { uri, mime_type, meta: members, .. } = contents;
    Ok(wit::ResourceContents { uri, mime_type, body, meta: meta(members) })
}

fn decoded(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|error| format!("its data is no base64: {error}"))
}

pub(super) fn role(role: Role) -> wit::Role {
    match role {
        Role::User => wit::Role::User,
        Role::Assistant => wit::Role::Assistant,
    }
}

pub(super) fn annotated(annotations: Annotations) -> wit::Annotations {
    let Annotations { audience, priority, last_modified } = annotations;
    wit::Annotations { audience: audience.into_iter().map(role).collect(), priority, last_modified }
}

pub(super) fn icons(icons: Vec<Icon>) -> Vec<wit::Icon> {
    let icon = |Icon { src, mime_type, sizes, theme }| wit::Icon { src, mime_type, sizes, theme };
    icons.into_iter().map(icon).collect()
}
