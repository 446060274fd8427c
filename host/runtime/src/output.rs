//! What comes out of a guest, made into the domain's values and checked on the way.
//!
//! Owns the border in that direction. Invariant: what passes is well-formed, within the call's size, and satisfies the
//! tool's own output schema; everything else is a fault that says what is wrong.

use super::bindings::bulkhead::plugin::types as wit;
use super::bindings::exports::bulkhead::plugin::tools::ToolOutput as WitOutput;
use super::content::{block_size, content, meta_size};
use super::exports::RawOutput;
use super::fault::{self, invalid_output, limit};
use super::json::{accept, accept_meta};
use super::server_features;
use bulkhead_calls::Returned;
use bulkhead_calls::schema::Validator;
use bulkhead_domain::call::CallError;
use bulkhead_domain::text::Bytes;
use bulkhead_domain::tool::ToolOutput;

/// What an operation gave back, if it may be passed on.
pub(super) fn returned(raw: RawOutput, bytes_max: u64, schema: Option<&Validator>) -> Result<Returned, CallError> {
    Ok(match raw {
        RawOutput::Tool(returned) => Returned::Tool(output(returned, bytes_max, schema)?),
        RawOutput::Resources(page) => Returned::Resources(server_features::page(page, bytes_max)?),
        RawOutput::Contents(contents) => Returned::Contents(server_features::contents(contents, bytes_max)?),
        RawOutput::Prompt(prompt) => Returned::Prompt(server_features::prompt_output(prompt, bytes_max)?),
        RawOutput::Completion(completion) => Returned::Completion(server_features::completion(completion, bytes_max)?),
    })
}

/// Bytes of a tool's result that takes long to check.
const LARGE_RESULT_BYTES: u64 = 64 << 10;

/// Whether it takes long to check what a tool gave back.
pub(super) fn is_large(raw: &RawOutput) -> bool {
    matches!(raw, RawOutput::Tool(returned) if size(returned) > LARGE_RESULT_BYTES)
}

/// Bytes on the wire, nearly: media count as base64.
fn size(returned: &WitOutput) -> u64 {
    let blocks: usize = returned.content.iter().map(block_size).sum();
    (blocks + returned.structured.as_ref().map_or(0, String::len) + meta_size(&returned.meta)) as u64
}

fn output(returned: WitOutput, bytes_max: u64, schema: Option<&Validator>) -> Result<ToolOutput, CallError> {
    let bytes = size(&returned);
    if bytes > bytes_max {
        return Err(limit(format!("the tool returned {bytes} bytes; {} is the most", Bytes(bytes_max))));
    }
    let structured = returned
        .structured
        .map(|text| accept(&text).map_err(|wrong| invalid_output(format!("structured content: {wrong}"))))
        .transpose()?;
    if let (Some(schema), false) = (schema, returned.is_error) {
        let Some(structured) = &structured else {
            return Err(invalid_output("the tool has an output schema but returned no structured content"));
        };
        let value = serde_json::from_str(structured.as_str())
            .map_err(|error| invalid_output(format!("structured content: {error}")))?;
        schema.check(&value).map_err(|violations| {
            let list: Vec<_> = violations.iter().map(ToString::to_string).collect();
            invalid_output(format!("structured content violates the tool's output schema: {}", list.join("; ")))
        })?;
    }
    let content = returned
        .content
        .into_iter()
        .enumerate()
        .map(|(at, block)| content(block).map_err(|wrong| invalid_output(format!("content {at}: {wrong}"))))
        .collect::<Result<_, _>>()?;
    let meta = accept_meta(returned.meta).map_err(invalid_output)?;
    Ok(ToolOutput { content, structured, is_error: returned.is_error, meta })
}

/// The plugin's own refusal of a call.
pub(super) fn refusal(plugin: &str, bytes_max: u64, error: wit::CallError) -> CallError {
    match error {
        wit::CallError::InvalidParams(text) => CallError::InvalidParams(fault::cut(text)),
        wit::CallError::NotFound(text) => CallError::NotFound(fault::cut(text)),
        wit::CallError::MissingCapability(feature) => CallError::MissingCapability(feature.into()),
        wit::CallError::Internal(text) => fault::reported(plugin, &text),
        wit::CallError::Custom(custom) => custom_error(plugin, bytes_max, custom),
    }
}

fn custom_error(plugin: &str, bytes_max: u64, custom: wit::CustomError) -> CallError {
    let bytes = custom.data.as_ref().map_or(0, String::len) as u64;
    if bytes > bytes_max {
        return limit(format!(
            "the tool returned an error with {bytes} bytes of data; {} is the most",
            Bytes(bytes_max)
        ));
    }
    if (-32768..=-32000).contains(&custom.code) {
        return fault::reported(plugin, &format!("code {} belongs to JSON-RPC: {}", custom.code, custom.message));
    }
    match custom.data.map(|data| accept(&data)).transpose() {
        Ok(data) => CallError::Custom { code: custom.code, message: fault::cut(custom.message), data },
        Err(wrong) => invalid_output(format!("data of error {}: {wrong}", custom.code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(change: impl FnOnce(&mut wit::ResourceLink)) -> Result<Returned, CallError> {
        let mut link = wit::ResourceLink {
            uri: "a:b".to_owned(),
            name: "n".to_owned(),
            title: None,
            description: None,
            mime_type: None,
            size: None,
            annotations: None,
            meta: Vec::new(),
        };
        change(&mut link);
        let output = WitOutput {
            content: vec![wit::Content::ResourceLink(link)],
            structured: None,
            is_error: false,
            meta: Vec::new(),
        };
        returned(RawOutput::Tool(output), 1000, None)
    }

    #[test]
    fn every_text_of_an_output_counts_to_its_limit() {
        let long = || Some("x/".repeat(501));
        assert!(link(|_| {}).is_ok());
        let annotated = wit::Annotations { audience: Vec::new(), priority: None, last_modified: long() };
        for refused in [
            link(|link| link.title = long()),
            link(|link| link.description = long()),
            link(|link| link.mime_type = long()),
            link(|link| link.annotations = Some(annotated)),
            link(|link| link.meta = vec![("k".to_owned(), format!("{:?}", "x".repeat(1000)))]),
        ] {
            assert!(
                matches!(&refused, Err(CallError::Fault { reason, .. }) if reason.contains("bytes")),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn output_link_mime_type_is_validated() {
        assert!(link(|link| link.mime_type = Some("text/plain".to_owned())).is_ok());
        assert!(link(|link| link.mime_type = Some("text\n/x".to_owned())).is_err());
    }

    #[test]
    fn plugin_error_texts_are_truncated() {
        let long = || "ü".repeat(100_000);
        for error in [wit::CallError::InvalidParams(long()), wit::CallError::NotFound(long())] {
            let (CallError::InvalidParams(text) | CallError::NotFound(text)) = refusal("p", 10, error) else {
                panic!()
            };
            assert!(text.len() <= 8 << 10, "{}", text.len());
        }
        let custom = |message, data| {
            let error = wit::CustomError { code: 1, message, data, meta: Vec::new() };
            refusal("p", 10, wit::CallError::Custom(error))
        };
        assert!(matches!(custom(long(), None), CallError::Custom { message, .. } if message.len() <= 8 << 10));
        assert!(matches!(custom(String::new(), Some("1".repeat(11))), CallError::Fault { .. }));
        let quoted = link(|link| link.uri = "x".repeat(900));
        assert!(matches!(quoted, Err(CallError::Fault { reason, .. }) if reason.len() <= 8 << 10));
    }
}
