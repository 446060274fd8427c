//! A tool in a list.

use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use super::server_features::icons;
use super::{MetaView, Raw, entry_if};
use bulkhead_domain::Json;
use bulkhead_domain::tool::{Icon, TaskSupport, Tool, ToolAnnotations};

/// What of a tool its reader knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolMembers {
    /// 2025-03-26: what a tool is called, takes and is like.
    First,
    /// 2025-06-18: titles, output schemas and metadata.
    Basic,
    /// 2025-11-25: icons and task support. `tasks`: the reader may have tasks.
    WithTasks { tasks: bool },
    /// 2026-07-28: icons, and output schemas of any type.
    Modern,
}

/// A tool in a list.
pub(crate) struct ToolView<'a> {
    pub(crate) tool: &'a Tool,
    pub(crate) members: ToolMembers,
}

impl Serialize for ToolView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { tool, members } = self;
        let is_known = |schema: &&Json| *members == ToolMembers::Modern || of_objects(schema);
        let is_first = *members == ToolMembers::First;
        let mut map = serializer.serialize_map(None)?;
        write_for_caller(&mut map, tool, *members)?;
        let output_schema = tool.output_schema.as_ref().filter(|_| !is_first);
        entry_if(&mut map, "outputSchema", output_schema.filter(is_known).map(Raw))?;
        entry_if(&mut map, "annotations", tool.annotations.as_ref().map(HintsView::from))?;
        if is_first {
            return map.end();
        }
        icons(&mut map, &tool.icons, *members != ToolMembers::Basic)?;
        write_execution(&mut map, tool, *members)?;
        entry_if(&mut map, "_meta", MetaView::new(&tool.meta, None))?;
        map.end()
    }
}

/// A tool that was searched for: what a model needs to choose and to call it.
pub(crate) struct FoundTool<'a> {
    pub(crate) tool: &'a Tool,
    pub(crate) members: ToolMembers,
}

impl Serialize for FoundTool<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        write_for_caller(&mut map, self.tool, self.members)?;
        entry_if(&mut map, "annotations", self.tool.annotations.as_ref().map(HintsView::from))?;
        write_execution(&mut map, self.tool, self.members)?;
        map.end()
    }
}

fn write_for_caller<M: SerializeMap>(map: &mut M, tool: &Tool, members: ToolMembers) -> Result<(), M::Error> {
    map.serialize_entry("name", &tool.name)?;
    entry_if(map, "title", tool.title.as_ref().filter(|_| members != ToolMembers::First))?;
    map.serialize_entry("description", &tool.description)?;
    map.serialize_entry("inputSchema", &Raw(&tool.input_schema))
}

fn write_execution<M: SerializeMap>(map: &mut M, tool: &Tool, members: ToolMembers) -> Result<(), M::Error> {
    let ToolMembers::WithTasks { tasks } = members else { return Ok(()) };
    let support = if tasks { tool.task_support } else { TaskSupport::Forbidden };
    map.serialize_entry("execution", &Execution { task_support: support_name(support) })
}

/// Whether a schema's root says `"type": "object"`: the legacy revisions know no other output schemas.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn tool_declaration_is_listed_per_revision() {
        let schema = |text: &str| Json::new(text);
        let mut tool = Tool {
            name: "t".into(),
            title: Some("T".into()),
            description: "d".into(),
            input_schema: schema(r#"{"type":"object","unevaluatedProperties":false,"x-mcp-header":1}"#),
            output_schema: Some(schema(r#"{"type":"object"}"#)),
            annotations: Some(ToolAnnotations {
                title: Some("A".into()),
                read_only: Some(true),
                destructive: Some(false),
                idempotent: Some(true),
                open_world: Some(false),
            }),
            task_support: TaskSupport::Optional,
            icons: vec![Icon {
                src: "data:,".into(),
                mime_type: Some("image/png".into()),
                sizes: vec!["any".into()],
                theme: Some("dark".into()),
            }],
            meta: vec![("example.com/a".into(), Json::new("1"))],
        };
        let with_tasks = ToolMembers::WithTasks { tasks: true };
        let seen = |tool: &Tool, members| serde_json::to_value(ToolView { tool, members }).unwrap();
        let mut expected = json!({"name": "t", "title": "T", "description": "d",
            "inputSchema": {"type": "object", "unevaluatedProperties": false, "x-mcp-header": 1},
            "outputSchema": {"type": "object"},
            "annotations": {"title": "A", "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true,
                "openWorldHint": false},
            "icons": [{"src": "data:,", "mimeType": "image/png", "sizes": ["any"], "theme": "dark"}],
            "execution": {"taskSupport": "optional"}, "_meta": {"example.com/a": 1}});
        assert_eq!(seen(&tool, with_tasks), expected);
        let without = seen(&tool, ToolMembers::WithTasks { tasks: false });
        assert_eq!(without["execution"], json!({"taskSupport": "forbidden"}), "to whoever may have no tasks");
        for later in ["icons", "execution"] {
            expected.as_object_mut().unwrap().remove(later);
        }
        assert_eq!(seen(&tool, ToolMembers::Basic), expected);
        for later in ["title", "outputSchema", "_meta"] {
            expected.as_object_mut().unwrap().remove(later);
        }
        assert_eq!(seen(&tool, ToolMembers::First), expected);
        // These revisions know outputs that are objects.
        tool.output_schema = Some(schema(r#"{"type":"array"}"#));
        assert_eq!(seen(&tool, with_tasks)["outputSchema"], Value::Null);
    }
}
