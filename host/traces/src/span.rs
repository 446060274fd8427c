//! One span that is recorded.
//!
//! Owns what a span may hold: so many attributes and events, so many spans of one request. Invariant: a span is ended once, at the latest
//! when nothing holds it any more.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{Event, Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use parking_lot::Mutex;

use super::tracer::Shared;
use bulkhead_domain::trace::TraceContext;

/// Spans within one request or task of this host. Stops a guest whose every outgoing request is a span.
const SPANS_PER_REQUEST_MAX: u32 = 128;
/// Events of one span. Stops a guest that sleeps a million times.
const EVENTS_PER_SPAN_MAX: usize = 64;
/// Bytes of a text in a span. What is longer is cut.
const TEXT_BYTES_MAX: usize = 256;

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

impl From<Kind> for SpanKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Server => Self::Server,
            Kind::Client => Self::Client,
            Kind::Internal => Self::Internal,
        }
    }
}

/// A span of a request that is recorded; cheap to clone. It ends with [`Span::end`], or when its last clone is dropped.
#[derive(Clone)]
pub struct Span(Arc<Recorded>);

struct Recorded {
    shared: Arc<Shared>,
    spans_left: Arc<AtomicU32>,
    trace_id: TraceId,
    span_id: SpanId,
    /// None once it has ended.
    data: Mutex<Option<SpanData>>,
}

impl std::fmt::Debug for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Span").field(&self.0.span_id).finish()
    }
}

impl Span {
    /// The first span of a request or a task of this host.
    pub(super) fn root(
        shared: &Arc<Shared>,
        name: impl Into<Cow<'static, str>>,
        kind: Kind,
        trace_id: TraceId,
        parent: Option<SpanId>,
    ) -> Self {
        let spans_left = Arc::new(AtomicU32::new(SPANS_PER_REQUEST_MAX - 1));
        let mut data = shared.new_span(name.into(), kind, trace_id);
        if let Some(parent) = parent {
            (data.parent_span_id, data.parent_span_is_remote) = (parent, true);
        }
        Self::recording(shared, spans_left, data)
    }

    fn recording(shared: &Arc<Shared>, spans_left: Arc<AtomicU32>, data: SpanData) -> Self {
        let (trace_id, span_id) = (data.span_context.trace_id(), data.span_context.span_id());
        let data = Mutex::new(Some(data));
        Self(Arc::new(Recorded { shared: Arc::clone(shared), spans_left, trace_id, span_id, data }))
    }

    /// A span for a part of this one's work. `None`: there are too many in the request already.
    pub fn child(&self, name: impl Into<Cow<'static, str>>, kind: Kind) -> Option<Self> {
        let Recorded { shared, spans_left, trace_id, span_id, .. } = &*self.0;
        spans_left.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).ok()?;
        let mut data = shared.new_span(cut(name.into()), kind, *trace_id);
        data.parent_span_id = *span_id;
        Some(Self::recording(shared, Arc::clone(spans_left), data))
    }

    /// Where another one's spans go on from this one.
    pub fn context(&self) -> TraceContext {
        let Recorded { trace_id, span_id, .. } = &*self.0;
        TraceContext { trace_id: trace_id.to_bytes(), parent_id: span_id.to_bytes(), is_sampled: true }
    }

    /// For lines of the log: everything that is logged within it names the trace and this span.
    pub fn of_log(&self) -> tracing::Span {
        let Recorded { trace_id, span_id, .. } = &*self.0;
        let (parent_id, tracestate) = (tracing::field::Empty, tracing::field::Empty);
        // At the highest level, so that no setting of the log hides whose warning it is.
        tracing::error_span!("request", %trace_id, %span_id, parent_id, tracestate)
    }

    fn change(&self, change: impl FnOnce(&mut SpanData)) {
        if let Some(data) = &mut *self.0.data.lock() {
            change(data);
        }
    }

    /// Gives it another name.
    pub fn rename(&self, name: String) {
        self.change(|data| data.name = cut(name.into()));
    }

    /// Says something of it. Each key once: the code has few, and says each in one place.
    pub fn set(&self, key: &'static str, value: impl Into<Value>) {
        let value = match value.into() {
            Value::String(text) => Value::String(cut(text.as_str().to_owned().into()).into()),
            other => other,
        };
        self.change(|data| data.attributes.push(KeyValue::new(key, value)));
    }

    /// Says that something happened now.
    pub fn event(&self, name: &'static str) {
        self.change(|data| match data.events.events.len() {
            EVENTS_PER_SPAN_MAX.. => data.events.dropped_count += 1,
            _ => data.events.events.push(Event::new(name, SystemTime::now(), Vec::new(), 0)),
        });
    }

    /// Names another caller's span that led to this one.
    pub fn link(&self, other: &TraceContext) {
        let context = SpanContext::new(
            TraceId::from_bytes(other.trace_id),
            SpanId::from_bytes(other.parent_id),
            if other.is_sampled { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED },
            true,
            TraceState::NONE,
        );
        self.change(|data| {
            let mut links = SpanLinks::default();
            links.links.push(Link::with_context(context));
            data.links = links;
        });
    }

    /// Says that it failed, and by what kind of failure.
    pub fn fail(&self, error_type: impl Into<Cow<'static, str>>) {
        self.set("error.type", Value::String(error_type.into().into()));
        self.change(|data| data.status = Status::error(""));
    }

    /// Says that it began earlier.
    pub fn began_at(&self, unix_ms: u64) {
        let begin = SystemTime::UNIX_EPOCH + Duration::from_millis(unix_ms);
        self.change(|data| data.start_time = data.start_time.min(begin));
    }

    /// Ends it now. What is said of it later is lost.
    pub fn end(&self) {
        self.0.end();
    }
}

impl Recorded {
    fn end(&self) {
        let ended = self.data.lock().take();
        if let Some(mut data) = ended {
            data.end_time = SystemTime::now().max(data.start_time);
            self.shared.ended(data);
        }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn new_span(&self, name: Cow<'static, str>, kind: Kind, trace_id: TraceId) -> SpanData {
        let now = SystemTime::now();
        SpanData {
            span_context: SpanContext::new(trace_id, self.span_id(), TraceFlags::SAMPLED, false, TraceState::NONE),
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: kind.into(),
            name,
            start_time: now,
            end_time: now,
            attributes: Vec::with_capacity(8),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

fn cut(text: Cow<'static, str>) -> Cow<'static, str> {
    match text.len() {
        0..=TEXT_BYTES_MAX => text,
        _ => Cow::Owned(text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default().to_owned()),
    }
}
