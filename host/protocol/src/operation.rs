//! One request from its receipt to its final frame: its span, its numbers, and its line in the log.
//!
//! Owns when a request begins and ends, and what is said of it: never an argument, a result, or a name that the catalog
//! does not have. Must not change a frame. Invariant: every request ends once, with its final frame or when it is
//! dropped before that.

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::Stream;

use super::encoded_message::Ending;
use super::error::INVALID_REQUEST;
use super::jsonrpc::{Message, RequestId};
use super::methods::Method;
use super::{Exchange, Frame, Peer, ProtocolContext, Received, trace, version};
use bulkhead_calls::{PromptEntry, ToolEntry};
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_domain::task::Era;
use bulkhead_metrics::{Answer, Transport};
use bulkhead_traces::{self as traces, Value};

/// What methods are called that there are not: a client may write anything.
const OTHER: &str = "_OTHER";

/// What a request turns out to be about while it is taken.
#[derive(Default)]
pub(crate) struct RequestTarget {
    method: OnceLock<Method>,
    entry: OnceLock<CatalogEntry>,
}

enum CatalogEntry {
    Tool(Arc<ToolEntry>),
    Prompt(Arc<PromptEntry>),
}

impl RequestTarget {
    /// The request is of this method, if it is of any.
    pub(crate) fn set_method(&self, method: Option<Method>) {
        if let Some(method) = method {
            self.method.get_or_init(|| method);
        }
    }

    /// The request calls this tool.
    pub(crate) fn set_tool(&self, tool: &Arc<ToolEntry>) {
        self.entry.get_or_init(|| CatalogEntry::Tool(Arc::clone(tool)));
    }

    /// The request is for this prompt.
    pub(crate) fn set_prompt(&self, prompt: &Arc<PromptEntry>) {
        self.entry.get_or_init(|| CatalogEntry::Prompt(Arc::clone(prompt)));
    }
}

/// Takes a message; a request is followed to its end.
pub(super) fn followed(
    shared: &Arc<ProtocolContext>,
    peer: &Peer<'_>,
    era: Era,
    message: &Message<'_>,
    take: impl FnOnce(&RequestTarget) -> Received,
) -> Received {
    let Message::Request { id, params, .. } = message else { return take(&RequestTarget::default()) };
    let mut operation = Operation::of_message(shared, peer, era, id, *params);
    let received = {
        let _entered = operation.enter();
        take(&operation.target)
    };
    match received {
        Received::Exchange(exchange) => Received::Exchange(Box::pin(Followed { operation, exchange })),
        Received::Opened { session, reply } => {
            operation.version = session.protocol_version();
            operation.end(Ending::default());
            Received::Opened { session, reply }
        }
        Received::Rejected { rejection, body } => {
            // Every body of these has this code.
            operation.end(Ending { answer: Answer::Error(INVALID_REQUEST), limit: None });
            Received::Rejected { rejection, body }
        }
        other => other,
    }
}

/// Calls a tool as a page of the host asks for it, which speaks no revision of the protocol; the call is followed to
/// its end like a request.
pub(super) async fn followed_call<T>(
    shared: &Arc<ProtocolContext>,
    requestor: &Requestor,
    tool: Option<&Arc<ToolEntry>>,
    call: impl Future<Output = T>,
    how_ended: impl FnOnce(&T) -> Ending,
) -> T {
    let mut operation = Operation::begin(shared, requestor, None, "", Transport::Http);
    operation.target.set_method(Some(Method::ToolsCall));
    if let Some(tool) = tool {
        operation.target.set_tool(tool);
    }
    let mut call = std::pin::pin!(call);
    let done = poll_fn(|context| {
        let _entered = operation.enter();
        call.as_mut().poll(context)
    });
    let done = done.await;
    operation.end(how_ended(&done));
    done
}

/// A request that is being dealt with.
struct Operation {
    shared: Arc<ProtocolContext>,
    begun: Instant,
    target: RequestTarget,
    version: &'static str,
    transport: Transport,
    tenant: TenantId,
    /// The trace that an observation of its duration names.
    trace_id: Option<[u8; 16]>,
    /// For the lines of the log, of a request whose client names a trace and that is not recorded; disabled for every
    /// other one.
    of_log: tracing::Span,
    span: Option<traces::Span>,
    has_ended: bool,
}

impl Operation {
    fn of_message(
        shared: &Arc<ProtocolContext>,
        peer: &Peer<'_>,
        era: Era,
        id: &RequestId,
        params: Option<&str>,
    ) -> Self {
        let version = match (era, &peer.session) {
            (Era::Modern, _) => version::MODERN,
            (Era::Legacy, session) => session.as_ref().map_or("", |session| session.protocol_version()),
        };
        let transport = if peer.connection.is_some() { Transport::Stdio } else { Transport::Http };
        let caller = params.and_then(trace::of_caller);
        let operation = Self::begin(shared, &peer.requestor, caller.as_ref(), version, transport);
        if let Some(span) = &operation.span {
            describe(span, peer, era, id);
        }
        operation
    }

    fn begin(
        shared: &Arc<ProtocolContext>,
        requestor: &Requestor,
        caller: Option<&trace::CallerTrace>,
        version: &'static str,
        transport: Transport,
    ) -> Self {
        let tracer = shared.tasks.tracer();
        let span = tracer.request(OTHER, caller.map(|caller| &caller.context), requestor.tenant);
        if let Some(span) = &span {
            span.set("bulkhead.tenant", Value::Hex(&requestor.tenant.0));
            if !version.is_empty() {
                span.set("mcp.protocol.version", version);
            }
            span.set("network.transport", transport.name());
            if tracer.names_requestor() {
                span.set("bulkhead.requestor", Value::Hex(&requestor.id.0));
            }
            if let Some(state) = caller.and_then(|caller| caller.state.as_deref()) {
                span.set_trace_state(state);
            }
        }
        let of_log = match &span {
            Some(_) => tracing::Span::none(),
            None => caller.map_or_else(tracing::Span::none, of_log),
        };
        let trace_id = match (&span, caller) {
            (Some(span), _) => Some(span.context().trace_id),
            (None, caller) => caller.map(|caller| caller.context.trace_id),
        };
        Self {
            shared: Arc::clone(shared),
            begun: Instant::now(),
            target: RequestTarget::default(),
            version,
            transport,
            tenant: requestor.tenant,
            trace_id,
            of_log,
            span,
            has_ended: false,
        }
    }

    fn enter(&self) -> (tracing::span::Entered<'_>, Option<traces::Entered>) {
        (self.of_log.enter(), self.span.as_ref().map(traces::Span::enter))
    }

    /// Says how it ended.
    fn end(&mut self, ending: Ending) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let took = self.begun.elapsed();
        self.count(took, ending);
        if let Some(span) = &self.span {
            self.complete(span, ending.answer);
        }
        let is_slow = self.is_slow(took);
        if is_slow || tracing::enabled!(tracing::Level::DEBUG) {
            self.log(took, is_slow, ending.answer);
        }
        self.span = None;
    }

    fn count(&self, took: Duration, Ending { answer, limit }: Ending) {
        let metrics = &self.shared.options.metrics;
        if !metrics.is_on() {
            return;
        }
        if let Some(limit) = limit {
            metrics.refused(limit);
            self.shared.tasks.usage_counts().of(self.tenant).add_refusal();
        }
        let operation = match self.target.entry.get() {
            Some(CatalogEntry::Tool(tool)) => &tool.metrics.operation,
            Some(CatalogEntry::Prompt(prompt)) => &prompt.metrics,
            None => metrics.operations().of(self.target.method.get().map(|method| *method as usize)),
        };
        operation.ended(took, answer, self.version, self.transport, self.trace_id.as_ref());
    }

    fn method(&self) -> &'static str {
        self.target.method.get().map_or(OTHER, |method| method.name())
    }

    fn is_slow(&self, took: Duration) -> bool {
        // These last as long as their clients like, or as long as their tasks.
        let waits = matches!(self.target.method.get(), Some(Method::Listen | Method::TasksResult));
        let slow_ms = self.shared.slow_ms.load(Ordering::Relaxed);
        slow_ms > 0 && !waits && took.as_millis() > u128::from(slow_ms)
    }

    fn complete(&self, span: &traces::Span, answer: Answer) {
        let method = self.method();
        span.set("mcp.method.name", method);
        match self.target.entry.get() {
            Some(CatalogEntry::Tool(tool)) => {
                let name = tool.tool.name.as_str();
                span.set_name(method, Some(name));
                span.set("gen_ai.operation.name", "execute_tool");
                span.set("gen_ai.tool.name", name);
                span.set("bulkhead.plugin", &*tool.plugin.name);
            }
            Some(CatalogEntry::Prompt(prompt)) => {
                let name = prompt.prompt.described.name.as_str();
                span.set_name(method, Some(name));
                span.set("gen_ai.prompt.name", name);
            }
            None => span.set_name(method, None),
        }
        if answer != Answer::Result {
            let word = word(answer);
            if let Answer::Error(_) = answer {
                span.set("rpc.response.status_code", &*word);
            }
            span.fail(&word);
        }
        span.end();
    }

    fn log(&self, took: Duration, is_slow: bool, answer: Answer) {
        let _entered = self.enter();
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let method = self.method();
        let outcome = &*word(answer);
        let (tool, prompt) = match self.target.entry.get() {
            Some(CatalogEntry::Tool(tool)) => (Some(tool.tool.name.as_str()), None),
            Some(CatalogEntry::Prompt(prompt)) => (None, Some(prompt.prompt.described.name.as_str())),
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
        // Its client gave it up, or is gone.
        self.end(Ending { answer: Answer::Abandoned, limit: None });
    }
}

/// How a request ended, in a word; a code of a plugin's own is an integer like any other.
fn word(answer: Answer) -> Cow<'static, str> {
    match answer {
        Answer::Result => Cow::Borrowed("ok"),
        Answer::Error(code) => Cow::Owned(code.to_string()),
        Answer::ToolError | Answer::Abandoned => Cow::Borrowed(answer.error_type()),
    }
}

/// What is known of a request before it is read.
fn describe(span: &traces::Span, peer: &Peer<'_>, era: Era, id: &RequestId) {
    if let Some(session) = peer.session.as_ref().filter(|_| era == Era::Legacy) {
        // The id itself is a secret of its client.
        let digest = session.digest();
        span.set("mcp.session.id", Value::Hex(digest.first_chunk::<8>().unwrap_or(&[0; 8])));
    }
    // A text may be anything.
    if let RequestId::Integer(id) = id {
        span.set("jsonrpc.request.id", id.to_string().as_str());
    }
    if let Some(link) = peer.traceparent.and_then(trace::read_traceparent) {
        span.link(&link);
    }
}

/// What every line of the log names that belongs to a request whose caller names a trace, and that is not recorded
/// here.
fn of_log(caller: &trace::CallerTrace) -> tracing::Span {
    let trace::CallerTrace { context, state } = caller;
    let hex = |bytes: &[u8]| bulkhead_domain::hex(bytes);
    // At the highest level, so that no setting of the log hides whose warning it is.
    tracing::error_span!(
        "request",
        trace_id = hex(&context.trace_id),
        parent_id = hex(&context.parent_id),
        tracestate = state.as_deref()
    )
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
        match &polled {
            Poll::Ready(Some(Frame { message, last: true, .. })) => operation.end(message.how_ended()),
            Poll::Ready(None) => operation.end(Ending { answer: Answer::Abandoned, limit: None }),
            Poll::Ready(Some(_)) | Poll::Pending => {}
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VERSIONS;
    use crate::methods::methods;

    #[test]
    fn tables_of_the_metrics_are_those_of_the_protocol() {
        assert_eq!(bulkhead_metrics::VERSIONS, VERSIONS);
        for era in [Era::Legacy, Era::Modern] {
            for (name, method) in methods(era) {
                assert_eq!(bulkhead_metrics::METHODS.get(method as usize), Some(&name));
            }
        }
    }
}
