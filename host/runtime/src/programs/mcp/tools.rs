//! The tools of a server as the records of `wit/`.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::content::{Icon, icons, parsed};
use super::dialect::without_draft_07;
use super::messages::Members;
use crate::bindings::exports::bulkhead::plugin::tools as wit;
use bulkhead_domain::Json;
use bulkhead_domain::text::{beginning, escaped};

/// Bytes of a name in a message.
const SHOWN_BYTES_MAX: usize = 128;

/// A page of `tools/list`.
#[derive(Default)]
pub(super) struct ToolPage {
    pub(super) tools: Vec<wit::Tool>,
    pub(super) next: Option<String>,
    /// What the server says of them and nobody hears.
    pub(super) dropped: Vec<String>,
    /// What is wrong with them, each with the tool's name.
    pub(super) problems: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListResult {
    tools: Vec<Tool>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tool {
    name: String,
    title: Option<String>,
    #[serde(default)]
    description: String,
    input_schema: Box<RawValue>,
    output_schema: Option<Box<RawValue>>,
    annotations: Option<Annotations>,
    #[serde(default)]
    icons: Vec<Icon>,
    execution: Option<IgnoredAny>,
    #[serde(rename = "_meta")]
    meta: Option<Members>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Annotations {
    title: Option<String>,
    read_only_hint: Option<bool>,
    destructive_hint: Option<bool>,
    idempotent_hint: Option<bool>,
    open_world_hint: Option<bool>,
}

/// Reads the result of `tools/list`.
///
/// # Errors
///
/// It is none.
pub(super) fn page(result: &Json) -> Result<ToolPage, String> {
    let ListResult { tools, next_cursor } = parsed(result.as_str())?;
    let mut page = ToolPage { next: next_cursor, ..ToolPage::default() };
    for listed in tools {
        let tool = tool(listed, &mut page);
        page.tools.push(tool);
    }
    Ok(page)
}

fn tool(listed: Tool, page: &mut ToolPage) -> wit::Tool {
    let Tool { name, title, description, input_schema, output_schema, annotations, icons: images, execution, meta } =
        listed;
    let shown = escaped(beginning(&name, SHOWN_BYTES_MAX)).to_string();
    if execution.is_some() {
        page.dropped.push(format!("execution of tool {shown}"));
    }
    let mut schema = |what: &str, text: &RawValue| match without_draft_07(text.get()) {
        Ok(None) => text.get().to_owned(),
        Ok(Some(other)) => {
            page.dropped.push(format!("$schema of the {what} of tool {shown} (draft-07)"));
            other
        }
        Err(problem) => {
            page.problems.push(format!("tool {shown:?}: {what}: {problem}"));
            text.get().to_owned()
        }
    };
    let input_schema = schema("input schema", &input_schema);
    let output_schema = output_schema.map(|text| schema("output schema", &text));
    let drop = |key: &str| {
        let key = escaped(beginning(key, SHOWN_BYTES_MAX));
        page.dropped.push(format!("_meta {key} of tool {shown}"));
    };
    let meta = meta.unwrap_or_default().into_meta(drop);
    let annotations = annotations.map(|hints| wit::ToolAnnotations {
        title: hints.title,
        read_only_hint: hints.read_only_hint,
        destructive_hint: hints.destructive_hint,
        idempotent_hint: hints.idempotent_hint,
        open_world_hint: hints.open_world_hint,
    });
    let icons = icons(images);
    // Tasks are the host's: what a server says of its own has no meaning here.
    let task_support = wit::TaskSupport::Optional;
    wit::Tool { name, title, description, input_schema, output_schema, annotations, task_support, icons, meta }
}
