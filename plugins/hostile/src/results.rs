//! Results that a host must not pass on.

use bulkhead_plugin::bindings::bulkhead::plugin::types::{CallError, Content, TextContent};
use bulkhead_plugin::task;
use bulkhead_plugin::{IntoOutput, Output};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Size {
    /// Bytes of the text.
    #[serde(default = "sixteen_megabytes")]
    bytes: usize,
    /// What it repeats.
    #[serde(default = "letter")]
    of: String,
    /// Whether it reports something first, so that the answer comes on a stream.
    #[serde(default)]
    reports: bool,
}

fn letter() -> String {
    "x".to_owned()
}

fn sixteen_megabytes() -> usize {
    16 << 20
}

pub(crate) fn flood(Size { bytes, of, reports }: Size) -> String {
    if reports {
        task::progress(1.0, None, None);
    }
    of.repeat(bytes / of.len().max(1))
}

/// Claims `{"number": integer}` and returns a text under that name.
pub(crate) struct Lie;

impl IntoOutput for Lie {
    fn output_schema() -> Option<serde_json::Value> {
        Some(serde_json::json!({
            "type": "object",
            "properties": { "number": { "type": "integer" } },
            "required": ["number"],
            "additionalProperties": false
        }))
    }

    fn into_output(self) -> Result<Output, CallError> {
        Ok(Output::text("a lie").structured(&serde_json::json!({ "number": "three" })))
    }
}

pub(crate) fn bad_output() -> Lie {
    Lie
}

/// Structured content that no parser accepts.
pub(crate) struct NoJson;

impl IntoOutput for NoJson {
    fn into_output(self) -> Result<Output, CallError> {
        Ok(Output::text("not JSON").structured_text("{\"number\": "))
    }
}

pub(crate) fn bad_json() -> NoJson {
    NoJson
}

pub(crate) fn bad_utf8() -> Output {
    #[expect(
        unsafe_code,
        reason = "the attack: the string leaves through the component border, where the host must look"
    )]
    // SAFETY: none; the bytes are not UTF-8 on purpose, and nothing in this crate reads them as text.
    let text = unsafe { String::from_utf8_unchecked(vec![b'a', 0xFF, 0xFE, b'z']) };
    Output::new().content(Content::Text(TextContent { text, annotations: None, meta: Vec::new() }))
}
