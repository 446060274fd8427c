//! What a program or a service answers in words.

use crate::bindings::bulkhead::plugin::types as wit;
use crate::bindings::exports::bulkhead::plugin::tools;
use bulkhead_domain::text::beginning;

/// Bytes of one thing of the caller that a refusal quotes.
const QUOTED_BYTES_MAX: usize = 256;

pub(super) fn text(text: impl Into<String>) -> wit::Content {
    wit::Content::Text(wit::TextContent { text: text.into(), annotations: None, meta: Vec::new() })
}

/// What a refusal quotes of its caller.
pub(super) fn quoted(text: &str) -> String {
    format!("{:?}", beginning(text, QUOTED_BYTES_MAX))
}

/// Why arguments are not those of a tool. The reason names members, whatever the caller called them.
pub(super) fn argument_error(error: &serde_json::Error) -> String {
    beginning(&error.to_string(), QUOTED_BYTES_MAX).to_owned()
}

/// A failure in words, which a model can read and react to.
pub(super) fn said(words: impl Into<String>) -> tools::ToolOutput {
    tools::ToolOutput { content: vec![text(words)], structured: None, is_error: true, meta: Vec::new() }
}
