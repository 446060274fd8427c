//! What came of a request that was tried on a page, read from the message that answered it.
//!
//! Must not show anything. Invariant: an answer that is too large for a page is not read at all; what cannot be
//! understood is kept out, and the page has the message itself beside.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bulkhead_domain::task::TaskId;
use bulkhead_protocol::PageAnswer;
use serde_json::Value;

/// Bytes of an answer to what was tried that a page of the dashboard shows.
pub(crate) const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Parts of an answer to what was tried that a page of the dashboard shows.
const PARTS_SHOWN_MAX: usize = 20;
/// What a method is answered with that a host has nothing for.
const METHOD_NOT_FOUND: i64 = -32601;

/// See the module.
pub(crate) enum Tried {
    Result(TriedResult),
    /// It goes on as this task.
    Task(TaskId),
    /// What is asked before it goes on.
    InputRequests(Vec<String>),
    Refused {
        code: i64,
        message: String,
    },
    /// It has so many bytes.
    TooLarge(usize),
    /// It took too long, and was stopped.
    Stopped,
}

#[derive(Default)]
pub(crate) struct TriedResult {
    /// The tool says so itself.
    pub(crate) has_failed: bool,
    pub(crate) parts: Vec<Part>,
    /// More than are shown.
    pub(crate) parts_left_out: usize,
    /// JSON.
    pub(crate) structured: Option<String>,
}

/// A block of a result, the contents of a resource, or a message of a prompt.
pub(crate) struct Part {
    /// Whose message it is, or which resource's contents.
    pub(crate) of: Option<String>,
    pub(crate) body: Body,
}

pub(crate) enum Body {
    Text(String),
    Bytes {
        what: &'static str,
        mime: String,
        data: Vec<u8>,
    },
    /// The address of a resource that is elsewhere.
    Link(String),
    /// Nothing that a page knows.
    Unknown,
}

impl Tried {
    pub(crate) fn read(answer: &PageAnswer) -> Self {
        let bytes = answer.response.wire_len();
        if bytes > ANSWER_BYTES_MAX {
            return Self::TooLarge(bytes);
        }
        Self::of_message(&answer.response.text())
    }

    fn of_message(message: &str) -> Self {
        let message: Value = serde_json::from_str(message).unwrap_or_default();
        let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let Some(result) = message.get("result") else {
            let error = message.get("error").unwrap_or(&Value::Null);
            let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
            return Self::Refused { code, message: text(error, "message").unwrap_or_default() };
        };
        match result.get("resultType").and_then(Value::as_str) {
            Some("task") => match text(result, "taskId").as_deref().and_then(TaskId::parse) {
                Some(task) => Self::Task(task),
                None => Self::Refused { code: 0, message: "the host named no task".to_owned() },
            },
            Some("input_required") => {
                let requests = result.get("inputRequests").and_then(Value::as_object).into_iter().flatten();
                let question = |request: &Value| {
                    let params = request.get("params").unwrap_or(&Value::Null);
                    text(params, "message").or_else(|| text(request, "method")).unwrap_or_default()
                };
                Self::InputRequests(requests.take(PARTS_SHOWN_MAX).map(|(_, request)| question(request)).collect())
            }
            _ => Self::Result(TriedResult::read(result)),
        }
    }

    /// Whether the host has nothing of the kind.
    pub(crate) fn is_no_method(&self) -> bool {
        matches!(self, Self::Refused { code: METHOD_NOT_FOUND, .. })
    }
}

impl TriedResult {
    fn read(result: &Value) -> Self {
        let all = ["content", "contents", "messages"].iter().find_map(|name| result.get(name)?.as_array());
        let all = all.map(Vec::as_slice).unwrap_or_default();
        Self {
            has_failed: result.get("isError") == Some(&Value::Bool(true)),
            parts: all.iter().take(PARTS_SHOWN_MAX).map(Part::read).collect(),
            parts_left_out: all.len().saturating_sub(PARTS_SHOWN_MAX),
            structured: result.get("structuredContent").map(Value::to_string),
        }
    }
}

impl Part {
    fn read(value: &Value) -> Self {
        let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        // A message of a prompt has its block within.
        let (of, block) = match value.get("content") {
            Some(content) => (text(value, "role"), content),
            None => (None, value),
        };
        let kind = block.get("type").and_then(Value::as_str);
        let resource = if kind == Some("resource") { block.get("resource").unwrap_or(&Value::Null) } else { block };
        let of = of.or_else(|| text(resource, "uri"));
        let bytes = |what, of: &Value, member| {
            let data = STANDARD.decode(of.get(member)?.as_str()?).ok()?;
            Some(Body::Bytes { what, mime: text(of, "mimeType").unwrap_or_else(|| "no type".to_owned()), data })
        };
        let body = match kind {
            Some("image") => bytes("An image", block, "data"),
            Some("audio") => bytes("A sound", block, "data"),
            Some("resource_link") => text(block, "uri").map(Body::Link),
            // A text, an embedded resource, or the contents of one.
            _ => text(resource, "text").map(Body::Text).or_else(|| bytes("Bytes", resource, "blob")),
        };
        Self { of: of.filter(|_| kind != Some("resource_link")), body: body.unwrap_or(Body::Unknown) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tried(result: Value) -> Tried {
        Tried::of_message(&json!({"jsonrpc": "2.0", "id": 1, "result": result}).to_string())
    }

    #[test]
    fn parts_are_what_the_answer_says_that_they_are() {
        let Tried::Result(result) = tried(json!({
            "resultType": "complete",
            "isError": true,
            "structuredContent": {"a": 1},
            "content": [
                {"type": "text", "text": "<b>"},
                {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="},
                {"type": "resource_link", "uri": "a://1", "name": "one"},
                {"type": "resource", "resource": {"uri": "a://2", "text": "two"}},
                {"type": "resource", "resource": {"uri": "a://3", "blob": "AAE="}},
                {"type": "image", "data": "no base64!"},
                {"type": "of another revision"},
                7,
            ],
        })) else {
            panic!("no result")
        };
        assert!(result.has_failed && result.structured.as_deref() == Some("{\"a\":1}"));
        let shown = result.parts.iter().map(|part| {
            let body = match &part.body {
                Body::Text(text) => format!("text {text}"),
                Body::Bytes { what, mime, data } => format!("{what} {mime} {}", data.len()),
                Body::Link(uri) => format!("link {uri}"),
                Body::Unknown => "unknown".to_owned(),
            };
            (part.of.as_deref().unwrap_or("–").to_owned(), body)
        });
        let expected = [
            ("–", "text <b>"),
            ("–", "An image image/png 8"),
            ("–", "link a://1"),
            ("a://2", "text two"),
            ("a://3", "Bytes no type 2"),
            ("–", "unknown"),
            ("–", "unknown"),
            ("–", "unknown"),
        ];
        assert_eq!(shown.collect::<Vec<_>>(), expected.map(|(of, body)| (of.to_owned(), body.to_owned())));
    }

    #[test]
    fn resources_and_prompts_are_read_like_results() {
        let Tried::Result(read) = tried(json!({"contents": [{"uri": "a://0", "text": "x"}]})) else { panic!() };
        assert!(
            matches!(&read.parts[..], [Part { of: Some(uri), body: Body::Text(text) }] if uri == "a://0" && text == "x")
        );
        let messages = json!({"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]});
        let Tried::Result(read) = tried(messages) else { panic!() };
        assert!(
            matches!(&read.parts[..], [Part { of: Some(role), body: Body::Text(text) }] if role == "user" && text == "hi")
        );
        let many = json!({"content": vec![json!({"type": "text", "text": "x"}); PARTS_SHOWN_MAX + 3]});
        let Tried::Result(read) = tried(many) else { panic!() };
        assert_eq!((read.parts.len(), read.parts_left_out), (PARTS_SHOWN_MAX, 3));
    }

    #[test]
    fn tasks_questions_and_refusals_are_told_apart() {
        let id = "0123456789abcdef0123456789abcdef";
        assert!(
            matches!(tried(json!({"resultType": "task", "taskId": id})), Tried::Task(task) if task.to_string() == id)
        );
        let asks = json!({"resultType": "input_required", "inputRequests": {"a": {"method": "elicitation/create",
            "params": {"message": "Which?"}}, "b": {"method": "roots/list"}}});
        assert!(matches!(tried(asks), Tried::InputRequests(all) if all == ["Which?", "roots/list"]));
        let refused = Tried::of_message(r#"{"error": {"code": -32601, "message": "Method not found"}}"#);
        assert!(refused.is_no_method());
        assert!(matches!(Tried::of_message("{"), Tried::Refused { .. }), "what cannot be read is no result");
    }
}
