//! One request from its receipt to its final frame: its span, and its line in the log.
//!
//! Owns when a request begins and ends, and what is said of it: never an argument, a result, or a name that the catalog does not have.
//! Must not change a frame. Invariant: every request ends once, with its final frame or when it is dropped before that.

use std::borrow::Cow;
use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::Stream;
use serde::Deserialize;

use super::jsonrpc::{Message, RequestId};
use super::methods::Method;
use super::{EncodedMessage, Exchange, Frame, Peer, ProtocolContext, Received, modern, reader, trace};
use bulkhead_domain::task::Era;
use bulkhead_runtime::{PromptEntry, ToolEntry};
use bulkhead_traces as traces;

/// What methods are called that there are not: a client may write anything.
const OTHER: &str = "_OTHER";
/// A request whose client gave it up.
const CANCELLED: &str = "cancelled";
/// A result by which a tool says that it failed.
const TOOL_ERROR: &str = "tool_error";
/// Bytes of a final frame that is read for its outcome. In a longer one, the member is looked for.
const READ_BYTES_MAX: usize = 4 << 10;

/// What a request turns out to be about.
enum Subject {
    Tool(Arc<ToolEntry>),
    Prompt(Arc<PromptEntry>),
}

/// What the eras found while they dealt with the request of this thread.
#[derive(Default)]
struct Found {
    method: Option<Method>,
    subject: Option<Subject>,
}

thread_local! {
    static FOUND: RefCell<Found> = const { RefCell::new(Found { method: None, subject: None }) };
}

/// Notes which method the request of this thread is of.
pub(crate) fn note_method(method: Option<Method>) {
    FOUND.with_borrow_mut(|found| found.method = method);
}

/// Notes which tool the request of this thread calls.
pub(crate) fn note_tool(tool: &Arc<ToolEntry>) {
    FOUND.with_borrow_mut(|found| found.subject = Some(Subject::Tool(Arc::clone(tool))));
}

/// Notes which prompt the request of this thread is for.
pub(crate) fn note_prompt(prompt: &Arc<PromptEntry>) {
    FOUND.with_borrow_mut(|found| found.subject = Some(Subject::Prompt(Arc::clone(prompt))));
}

/// Takes a message; a request is followed to its end.
pub(super) fn followed(
    shared: &Arc<ProtocolContext>,
    peer: &Peer<'_>,
    era: Era,
    message: &Message<'_>,
    take: impl FnOnce() -> Received,
) -> Received {
    let Message::Request { id, params, .. } = message else { return take() };
    let mut operation = Operation::begin(shared, peer, era, id, *params);
    let received = {
        let _entered = operation.enter();
        take()
    };
    operation.find();
    match received {
        Received::Exchange(exchange) => Received::Exchange(Box::pin(Followed { operation, exchange })),
        Received::Opened { session, reply } => {
            operation.end(Some(&reply));
            Received::Opened { session, reply }
        }
        Received::Rejected { rejection, body } => {
            operation.end(Some(&body));
            Received::Rejected { rejection, body }
        }
        other => other,
    }
}

/// A request that is being dealt with.
struct Operation {
    shared: Arc<ProtocolContext>,
    begun: Instant,
    found: Found,
    /// For the lines of the log; disabled for a request whose client names no trace and that is not recorded.
    of_log: tracing::Span,
    span: Option<traces::Span>,
    has_ended: bool,
}

impl Operation {
    fn begin(shared: &Arc<ProtocolContext>, peer: &Peer<'_>, era: Era, id: &RequestId, params: Option<&str>) -> Self {
        let caller = params.and_then(trace::of_caller);
        let tracer = shared.tasks.tracer();
        let span = tracer.request(OTHER, caller.as_ref().map(|caller| &caller.context), peer.requestor.tenant);
        if let Some(span) = &span {
            describe(span, peer, era, id);
            if tracer.names_requestor() {
                span.set("bulkhead.requestor", peer.requestor.id.to_string());
            }
        }
        let (shared, found) = (Arc::clone(shared), Found::default());
        let of_log = of_log(span.as_ref(), caller.as_ref());
        Self { shared, begun: Instant::now(), found, of_log, span, has_ended: false }
    }

    fn enter(&self) -> (tracing::span::Entered<'_>, Option<traces::Entered>) {
        (self.of_log.enter(), self.span.as_ref().map(traces::Span::enter))
    }

    /// Takes what was noted on this thread.
    fn find(&mut self) {
        let Found { method, subject } = FOUND.take();
        self.found.method = method.or(self.found.method);
        self.found.subject = subject.or(self.found.subject.take());
    }

    /// Says how it ended. Without an answer, its client gave it up.
    fn end(&mut self, answer: Option<&str>) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let took = self.begun.elapsed();
        let is_slow = self.is_slow(took);
        let is_logged = is_slow || tracing::enabled!(tracing::Level::DEBUG);
        if self.span.is_none() && !is_logged {
            return;
        }
        let failure = answer.map_or(Some(Cow::Borrowed(CANCELLED)), failure);
        if let Some(span) = self.span.take() {
            self.complete(&span, failure.as_ref());
        }
        if is_logged {
            self.log(took, is_slow, failure.as_deref().unwrap_or("ok"));
        }
    }

    fn method(&self) -> &'static str {
        self.found.method.map_or(OTHER, Method::name)
    }

    fn is_slow(&self, took: Duration) -> bool {
        // These last as long as their clients like, or as long as their tasks.
        let waits = matches!(self.found.method, Some(Method::Listen | Method::TasksResult));
        let slow_ms = self.shared.slow_ms.load(Ordering::Relaxed);
        slow_ms > 0 && !waits && took.as_millis() > u128::from(slow_ms)
    }

    fn complete(&self, span: &traces::Span, failure: Option<&Cow<'static, str>>) {
        let method = self.method();
        span.set("mcp.method.name", method);
        match &self.found.subject {
            Some(Subject::Tool(tool)) => {
                span.rename(format!("{method} {}", tool.tool.name));
                span.set("gen_ai.operation.name", "execute_tool");
                span.set("gen_ai.tool.name", tool.tool.name.clone());
                span.set("bulkhead.plugin", tool.plugin.name.clone());
            }
            Some(Subject::Prompt(prompt)) => {
                span.rename(format!("{method} {}", prompt.prompt.described.name));
                span.set("gen_ai.prompt.name", prompt.prompt.described.name.clone());
            }
            None => span.rename(method.to_owned()),
        }
        if let Some(failure) = failure {
            if failure.parse::<i64>().is_ok() {
                span.set("rpc.response.status_code", failure.to_string());
            }
            span.fail(failure.clone());
        }
        span.end();
    }

    fn log(&self, took: Duration, is_slow: bool, outcome: &str) {
        let _entered = self.of_log.enter();
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let method = self.method();
        let (tool, prompt) = match &self.found.subject {
            Some(Subject::Tool(tool)) => (Some(tool.tool.name.as_str()), None),
            Some(Subject::Prompt(prompt)) => (None, Some(prompt.prompt.described.name.as_str())),
            None => (None, None),
        };
        if is_slow {
            tracing::warn!(method, tool, prompt, outcome, ms, "a request took long");
        } else {
            tracing::debug!(method, tool, prompt, outcome, ms, "request");
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.end(None);
    }
}

/// What is known of a request before it is read.
fn describe(span: &traces::Span, peer: &Peer<'_>, era: Era, id: &RequestId) {
    let version = match (era, &peer.session) {
        (Era::Modern, _) => Some(modern::VERSION),
        (Era::Legacy, session) => session.as_ref().map(|session| session.protocol_version()),
    };
    if let Some(version) = version {
        span.set("mcp.protocol.version", version);
    }
    if let Some(session) = peer.session.as_ref().filter(|_| era == Era::Legacy) {
        // The id itself is a secret of its client.
        let digest = session.digest();
        let beginning = digest.first_chunk().map_or(0, |chunk| u64::from_be_bytes(*chunk));
        span.set("mcp.session.id", format!("{beginning:016x}"));
    }
    span.set("network.transport", if peer.connection.is_some() { "pipe" } else { "tcp" });
    // A text may be anything.
    if let RequestId::Integer(id) = id {
        span.set("jsonrpc.request.id", id.to_string());
    }
    span.set("bulkhead.tenant", peer.requestor.tenant.to_string());
    if let Some(link) = peer.traceparent.and_then(trace::read_traceparent) {
        span.link(&link);
    }
}

/// What every line of the log names that belongs to the request.
fn of_log(span: Option<&traces::Span>, caller: Option<&trace::CallerTrace>) -> tracing::Span {
    let hex = |bytes: &[u8]| bulkhead_domain::hex(bytes);
    let of_log = match (span, caller) {
        (Some(span), _) => span.of_log(),
        (None, Some(caller)) => {
            let (parent_id, tracestate) = (tracing::field::Empty, tracing::field::Empty);
            // At the highest level, so that no setting of the log hides whose warning it is.
            tracing::error_span!("request", trace_id = hex(&caller.context.trace_id), parent_id, tracestate)
        }
        (None, None) => return tracing::Span::none(),
    };
    if let Some(caller) = caller {
        of_log.record("parent_id", hex(&caller.context.parent_id));
        if let Some(state) = &caller.state {
            of_log.record("tracestate", state.as_str());
        }
    }
    of_log
}

/// What kind of failure an answer tells of: the code of an error, or that a tool failed.
fn failure(answer: &str) -> Option<Cow<'static, str>> {
    #[derive(Deserialize)]
    struct Answer {
        error: Option<Error>,
        result: Option<ToolResult>,
    }
    #[derive(Deserialize)]
    struct Error {
        code: i64,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ToolResult {
        #[serde(default)]
        is_error: bool,
    }
    if answer.len() > READ_BYTES_MAX {
        // Within a text the quotes would be escaped.
        return answer.contains(r#""isError":true"#).then_some(Cow::Borrowed(TOOL_ERROR));
    }
    let Answer { error, result } = reader::read_if_fits(answer)?;
    match (error, result) {
        (Some(Error { code }), _) => Some(Cow::Owned(code.to_string())),
        (None, Some(ToolResult { is_error: true })) => Some(Cow::Borrowed(TOOL_ERROR)),
        _ => None,
    }
}

struct Followed {
    operation: Operation,
    exchange: Exchange,
}

impl Stream for Followed {
    type Item = Frame;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Frame>> {
        let Self { operation, exchange } = &mut *self;
        let polled = {
            let _entered = operation.enter();
            exchange.as_mut().poll_next(context)
        };
        operation.find();
        match &polled {
            Poll::Ready(Some(frame)) if frame.last => operation.end(Some(said(&frame.message))),
            Poll::Ready(None) => operation.end(None),
            Poll::Ready(Some(_)) | Poll::Pending => {}
        }
        polled
    }
}

/// An answer as it waits. Folded characters are within its texts, which nobody reads here.
fn said(message: &EncodedMessage) -> &str {
    message.held_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_of_an_answer_is_its_code_or_that_a_tool_failed() {
        let of = |answer: &str| failure(answer).map(Cow::into_owned);
        assert_eq!(of(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}"#).unwrap(), "-32602");
        assert_eq!(of(r#"{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":true}}"#).unwrap(), TOOL_ERROR);
        let long = |member: &str| format!(r#"{{"result":{{"content":["{}"]{member}}}}}"#, "x".repeat(READ_BYTES_MAX));
        assert_eq!(of(&long(r#","isError":true"#)).unwrap(), TOOL_ERROR);
        for fine in [
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":false}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"text":"\"isError\":true"}}"#,
            &long(""),
            &long(r#","a":"\"isError\":true""#),
        ] {
            assert_eq!(of(fine), None, "{fine}");
        }
    }
}
