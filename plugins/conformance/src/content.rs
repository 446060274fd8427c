//! Tools that answer with every kind of content, with logs and with progress.

use std::time::Duration;

use bulkhead_plugin::task::{self, ListKind, LogLevel};
use bulkhead_plugin::{Error, Output, Plugin};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{changing, read_only};

/// A PNG of one red pixel.
pub(crate) const PNG: [u8; 69] = [
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00, 0x00, 0x00,
    0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00, 0x00, 0x90, 0x77, 0x53, 0xde, 0x00, 0x00, 0x00, 0x0c, 0x49,
    0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0xf8, 0xcf, 0xc0, 0x00, 0x00, 0x03, 0x01, 0x01, 0x00, 0xc9, 0xfe, 0x92, 0xef,
    0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
];

/// A WAV of two silent samples: 8 kHz, mono, 16 bits.
const WAV: [u8; 48] = [
    b'R', b'I', b'F', b'F', 40, 0, 0, 0, b'W', b'A', b'V', b'E', b'f', b'm', b't', b' ', 16, 0, 0, 0, 1, 0, 1, 0, 0x40,
    0x1f, 0, 0, 0x80, 0x3e, 0, 0, 2, 0, 16, 0, b'd', b'a', b't', b'a', 4, 0, 0, 0, 0, 0, 0, 0,
];

/// Between two reports.
const STEP: Duration = Duration::from_millis(50);

pub(crate) fn tools(plugin: Plugin) -> Plugin {
    let plugin = if changing::is_there(changing::TOOL) {
        plugin.tool(read_only("test_changing_tool", "Comes and goes.", || "This tool comes and goes."))
    } else {
        plugin
    };
    plugin
        .tool(read_only("test_simple_text", "Returns one text.", || "This is a simple text response for testing."))
        .tool(read_only("test_image_content", "Returns an image.", || Output::new().image(PNG, "image/png")))
        .tool(read_only("test_audio_content", "Returns a sound.", || Output::new().audio(WAV, "audio/wav")))
        .tool(read_only("test_embedded_resource", "Returns a resource inside the result.", || {
            Output::new().resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")
        }))
        .tool(read_only("test_multiple_content_types", "Returns a text, an image and a resource.", mixed))
        .tool(read_only("test_tool_with_logging", "Sends three log records.", logging))
        .tool(read_only("test_logging_tool", "Sends log records to clients that want them.", logging))
        .tool(read_only("test_error_handling", "Fails.", || {
            Err::<String, _>(Error::new("This tool intentionally returns an error for testing"))
        }))
        .tool(read_only("test_tool_with_progress", "Reports progress three times.", progress))
        .tool(read_only(
            "test_reconnection",
            "Takes a while, so that its stream can be closed meanwhile.",
            reconnection,
        ))
        .tool(read_only("test_trigger_tool_change", "Changes the list of tools.", || {
            changing::toggle(changing::TOOL)?;
            task::lists_changed(ListKind::Tools);
            Ok::<_, Error>("The list of tools changed.")
        }))
        .tool(read_only("test_trigger_prompt_change", "Changes the list of prompts.", || {
            changing::toggle(changing::PROMPT)?;
            task::lists_changed(ListKind::Prompts);
            Ok::<_, Error>("The list of prompts changed.")
        }))
        .tool(read_only("test_x_mcp_header", "Mirrors an argument into a header.", header))
        .tool(
            read_only("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", schema_tool)
                .input_schema(schema()),
        )
}

fn mixed() -> Output {
    Output::text("Multiple content types test:").image(PNG, "image/png").resource(
        "test://mixed-content-resource",
        "application/json",
        json!({ "test": "data", "value": 123 }).to_string(),
    )
}

fn logging() -> &'static str {
    task::log(LogLevel::Info, "Tool execution started");
    task::sleep(STEP);
    task::log(LogLevel::Info, "Tool processing data");
    task::sleep(STEP);
    task::log(LogLevel::Info, "Tool execution completed");
    "Tool with logging executed successfully"
}

fn progress() -> &'static str {
    task::progress(0.0, Some(100.0), Some("Completed step 0 of 100"));
    task::sleep(STEP);
    task::progress(50.0, Some(100.0), Some("Completed step 50 of 100"));
    task::sleep(STEP);
    task::progress(100.0, Some(100.0), Some("Completed step 100 of 100"));
    "Tool with progress executed successfully"
}

fn reconnection() -> &'static str {
    // Opens the stream, so that there is one to close.
    task::log(LogLevel::Info, "Reconnection test started");
    task::sleep(Duration::from_millis(500));
    "Reconnection test completed successfully. If you received this, the client reconnected after its stream was closed."
}

#[derive(Deserialize, JsonSchema)]
struct Header {
    /// Sent in the header `Mcp-Param-Region` as well.
    #[schemars(extend("x-mcp-header" = "Region"))]
    region: String,
}

fn header(Header { region }: Header) -> String {
    format!("Region: {region}")
}

fn schema_tool(arguments: Map<String, Value>) -> String {
    format!("JSON Schema 2020-12 tool called with: {}", Value::Object(arguments))
}

fn schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } }
            }
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" }
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false
    })
}
