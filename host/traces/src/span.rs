//! One span that is recorded.
//!
//! Owns what a span may hold: so many events, texts so long, so many spans of one request. What is said of a span is
//! written at once in the form in which it is sent, into one piece of memory. Invariant: a span is ended once, at the
//! latest when nothing holds it any more.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::otlp::{self, SpanEnd, Value};
use super::random;
use super::tracer::Shared;
use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::trace::TraceContext;

/// Spans within one request or task of this host. Stops a guest whose every outgoing request is a span.
const SPANS_PER_REQUEST_MAX: u32 = 128;
/// Events of one span. Stops a guest that sleeps a million times.
const EVENTS_PER_SPAN_MAX: u32 = 64;
/// Bytes of a text in a span. What is longer is cut.
const TEXT_BYTES_MAX: usize = 256;
/// Most spans need no more.
const SPAN_BYTES_USUAL: usize = 512;

/// What a span stands for to who reads a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request that came in.
    Server,
    /// A request that went out.
    Client,
    /// Work in between.
    Internal,
}

/// A span of a request that is recorded; cheap to clone. It ends with [`Span::end`], or when its last clone is dropped.
#[derive(Clone)]
pub struct Span(Arc<Recorded>);

struct Recorded {
    shared: Arc<Shared>,
    request: Arc<RequestSpans>,
    /// Its own id is what is the parent's to others.
    context: TraceContext,
    parent_id: Option<[u8; 8]>,
    is_parent_remote: bool,
    kind: Kind,
    trace_state: OnceLock<Box<str>>,
    /// None once it has ended, and of one that the collector has no chance to get.
    message: Mutex<Option<Message>>,
}

/// What all spans of a request or a task share.
struct RequestSpans {
    left: AtomicU32,
    /// Whose budget they are charged to.
    charged: Option<TenantId>,
}

/// A span as far as it is written.
struct Message {
    bytes: Vec<u8>,
    /// What it is called if it is not named.
    name: Option<&'static str>,
    start_ns: u64,
    events: u32,
    has_failed: bool,
}

impl std::fmt::Debug for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Span").field(&self.0.context).finish()
    }
}

impl Span {
    /// The first span of a request or a task of this host.
    pub(super) fn root(
        shared: &Arc<Shared>,
        name: &'static str,
        kind: Kind,
        trace_id: [u8; 16],
        parent_id: Option<[u8; 8]>,
        charged: Option<TenantId>,
    ) -> Self {
        let request = Arc::new(RequestSpans { left: AtomicU32::new(SPANS_PER_REQUEST_MAX - 1), charged });
        Self::begin(shared, request, name, kind, trace_id, parent_id, parent_id.is_some())
    }

    fn begin(
        shared: &Arc<Shared>,
        request: Arc<RequestSpans>,
        name: &'static str,
        kind: Kind,
        trace_id: [u8; 16],
        parent_id: Option<[u8; 8]>,
        is_parent_remote: bool,
    ) -> Self {
        let message = shared.queue.admit().then(|| Message {
            bytes: Vec::with_capacity(SPAN_BYTES_USUAL),
            name: Some(name),
            start_ns: now_ns(),
            events: 0,
            has_failed: false,
        });
        Self(Arc::new(Recorded {
            shared: Arc::clone(shared),
            request,
            context: TraceContext { trace_id, parent_id: random::span_id(), is_sampled: true },
            parent_id,
            is_parent_remote,
            kind,
            trace_state: OnceLock::new(),
            message: Mutex::new(message),
        }))
    }

    /// A span for a part of this one's work. `None`: there are too many in the request already.
    pub fn child(&self, name: &'static str, kind: Kind) -> Option<Self> {
        let Recorded { shared, request, context, .. } = &*self.0;
        request.left.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).ok()?;
        if let Some(tenant) = request.charged {
            shared.sampling.charge(tenant);
        }
        let trace_id = context.trace_id;
        let parent_id = Some(context.parent_id);
        Some(Self::begin(shared, Arc::clone(request), name, kind, trace_id, parent_id, false))
    }

    /// Where another one's spans go on from this one.
    pub fn context(&self) -> TraceContext {
        self.0.context
    }

    /// The id of the span that it is a part of, which may be another program's.
    pub fn parent_id(&self) -> Option<[u8; 8]> {
        self.0.parent_id
    }

    /// What the caller's systems say of the trace among themselves.
    pub fn trace_state(&self) -> Option<&str> {
        self.0.trace_state.get().map(|state| &**state)
    }

    /// Goes with the span, once.
    pub fn set_trace_state(&self, state: &str) {
        self.0.trace_state.get_or_init(|| state.into());
    }

    fn change(&self, change: impl FnOnce(&mut Message)) {
        if let Some(message) = &mut *self.0.message.lock() {
            change(message);
        }
    }

    /// Says what is done, and to what. Holds the first time.
    pub fn set_name(&self, operation: &str, target: Option<&str>) {
        self.change(|message| {
            if message.name.take().is_some() {
                otlp::name(&mut message.bytes, operation, target.map(cut));
            }
        });
    }

    /// Says something of it. Each key once: the code has few, and says each in one place.
    pub fn set<'a>(&self, key: &'static str, value: impl Into<Value<'a>>) {
        let value = match value.into() {
            Value::Text(text) => Value::Text(cut(text)),
            other => other,
        };
        self.change(|message| otlp::attribute(&mut message.bytes, key, value));
    }

    /// Says that something happened now.
    pub fn event(&self, name: &'static str) {
        self.change(|message| {
            if message.events < EVENTS_PER_SPAN_MAX {
                otlp::event(&mut message.bytes, now_ns(), name);
            }
            message.events = message.events.saturating_add(1);
        });
    }

    /// Names another caller's span that led to this one.
    pub fn link(&self, other: &TraceContext) {
        self.change(|message| otlp::link(&mut message.bytes, other));
    }

    /// Says that it failed, and by what kind of failure.
    pub fn fail(&self, error_type: &str) {
        self.set("error.type", error_type);
        self.change(|message| message.has_failed = true);
    }

    /// Says that it began earlier.
    pub fn began_at(&self, unix_ms: u64) {
        self.change(|message| message.start_ns = message.start_ns.min(unix_ms.saturating_mul(1_000_000)));
    }

    /// Ends it now. What is said of it later is lost.
    pub fn end(&self) {
        self.0.end();
    }
}

impl Recorded {
    fn end(&self) {
        let Some(Message { mut bytes, name, start_ns, events, has_failed }) = self.message.lock().take() else {
            return;
        };
        if let Some(name) = name {
            otlp::name(&mut bytes, name, None);
        }
        let end = SpanEnd {
            context: self.context,
            parent_id: self.parent_id,
            is_parent_remote: self.is_parent_remote,
            trace_state: self.trace_state.get().map(|state| &**state),
            kind: self.kind,
            start_ns,
            end_ns: now_ns().max(start_ns),
            has_failed,
            events_dropped: events.saturating_sub(EVENTS_PER_SPAN_MAX),
        };
        otlp::end(&mut bytes, &end);
        self.shared.queue.put(&bytes);
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.end();
    }
}

/// The time that collectors count in.
pub(super) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn cut(text: &str) -> &str {
    match text.len() {
        0..=TEXT_BYTES_MAX => text,
        _ => text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default(),
    }
}
