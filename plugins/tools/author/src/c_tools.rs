//! The table of a C plugin's tools: `tools.json`, written as MCP lists tools, as C that the component lists them from.
//!
//! Owns the check of that file. Invariant: what the component lists is what the file says; a member that would be lost
//! is refused.

use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::Error;

const FILE: &str = "tools.json";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Tool {
    name: String,
    title: Option<String>,
    description: String,
    input_schema: Box<RawValue>,
    output_schema: Option<Box<RawValue>>,
    #[serde(default)]
    annotations: Annotations,
    #[serde(default)]
    execution: Execution,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Annotations {
    read_only_hint: Option<bool>,
    destructive_hint: Option<bool>,
    idempotent_hint: Option<bool>,
    open_world_hint: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Execution {
    #[serde(default)]
    task_support: TaskSupport,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
enum TaskSupport {
    #[default]
    Forbidden,
    Optional,
    Required,
}

/// The source that makes a component of the plugin.
pub(crate) fn entry(folder: &Path) -> Result<String, Error> {
    let path = folder.join(FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let why = "it describes the plugin's tools: write it, or put the WIT of functions of your own into wit/";
            return Err(Error::Source(format!("{FILE} is missing; {why}")));
        }
        Err(error) => return Err(Error::io(&path)(error)),
    };
    table(&text).map_err(|error| Error::Source(format!("{FILE}:{}:{}: {error}", error.line(), error.column())))
}

fn table(text: &str) -> serde_json::Result<String> {
    // Some editors write a byte order mark in front.
    let tools: Vec<Tool> = serde_json::from_str(text.strip_prefix('\u{feff}').unwrap_or(text))?;
    let mut lines = String::new();
    for tool in &tools {
        let texts = [
            Some(tool.name.as_str()),
            tool.title.as_deref(),
            Some(&tool.description),
            Some(tool.input_schema.get()),
            tool.output_schema.as_deref().map(RawValue::get),
        ];
        let texts = texts.map(|text| text.map_or_else(|| "NULL".to_owned(), literal)).join(", ");
        let Annotations { read_only_hint, destructive_hint, idempotent_hint, open_world_hint } = tool.annotations;
        let hints = [read_only_hint, destructive_hint, idempotent_hint, open_world_hint];
        let hints = hints.map(|hint| hint.map_or("-1", |hint| if hint { "1" } else { "0" })).join(", ");
        let task_support = match tool.execution.task_support {
            TaskSupport::Forbidden => "FORBIDDEN",
            TaskSupport::Optional => "OPTIONAL",
            TaskSupport::Required => "REQUIRED",
        };
        let constant = format!("EXPORTS_BULKHEAD_PLUGIN_TOOLS_TASK_SUPPORT_{task_support}");
        // Writing to a text never fails.
        let _ = writeln!(lines, "  {{{texts}, {hints}, {constant}}},");
    }
    // C has no empty arrays, so one line more stands behind the tools.
    Ok(format!(
        "#include \"bulkhead_component.h\"\n\nstatic const bulkhead_tool TOOLS[] = {{\n{lines}  {{0}},\n}};\n\n\
         void exports_bulkhead_plugin_tools_list_tools(exports_bulkhead_plugin_tools_list_tool_t *listed) {{\n  \
         bulkhead_list(TOOLS, {}, listed);\n}}\n",
        tools.len()
    ))
}

/// A text as C writes it. Bytes that are not plain are octal, which ends after three digits, whatever follows; so is
/// the question mark, since two of them begin another character.
fn literal(text: &str) -> String {
    let mut written = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => written.extend(['\\', char::from(byte)]),
            b' '..=b'~' if byte != b'?' => written.push(char::from(byte)),
            _ => written += &format!("\\{byte:03o}"),
        }
    }
    written + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_json_becomes_a_table_in_c() {
        let text = r#"[{"name": "a", "description": "Says \"é?\"", "inputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": true, "destructiveHint": false}, "execution": {"taskSupport": "optional"}}]"#;
        let written = table(text).unwrap();
        let line = r#"  {"a", NULL, "Says \"\303\251\077\"", "{\"type\": \"object\"}", NULL, 1, 0, -1, -1, EXPORTS_BULKHEAD_PLUGIN_TOOLS_TASK_SUPPORT_OPTIONAL},"#;
        assert!(written.contains(line), "{written}");
        assert!(written.contains("bulkhead_list(TOOLS, 1, listed)"), "{written}");
        assert_eq!(table(&format!("\u{feff}{text}")).unwrap(), written, "a byte order mark is skipped");
    }

    #[test]
    fn mistakes_in_tools_json_are_told_with_their_place() {
        let folder = tempfile::tempdir().unwrap();
        let error = entry(folder.path()).unwrap_err().to_string();
        assert!(error.contains("tools.json is missing"), "{error}");
        for (text, expected) in [
            ("[{\"name\": \"a\"}]", "tools.json:1:14: missing field `description`"),
            ("[\n{\"nam\": \"a\"}]", "tools.json:2:6: unknown field `nam`"),
            (
                "[{\"name\": \"a\", \"description\": \"\", \"inputSchema\": {}, \"execution\": {\"taskSupport\": \"yes\"}}]",
                "unknown variant `yes`",
            ),
            ("[", "tools.json:1:1: EOF"),
        ] {
            std::fs::write(folder.path().join(FILE), text).unwrap();
            let error = entry(folder.path()).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
