//! What begins traces.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::trace::TraceContext;
use http::{HeaderName, HeaderValue};
use opentelemetry::InstrumentationScope;
use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator, SpanData};
use tokio::runtime::Handle;
use url::Url;

use super::export::Queue;
use super::sampling::Sampling;
use super::{Kind, Span};

pub use super::sampling::FollowedMax;

/// What a tracer is made of.
pub struct TracerOptions {
    /// The base address of the collector.
    pub endpoint: Url,
    /// What every request to it carries, such as a credential.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub tls: Arc<rustls::ClientConfig>,
    /// The part of the requests without a caller's context that is recorded, from 0 to 1.
    pub ratio: f64,
    pub followed_max: FollowedMax,
    /// Whether spans name the requestor.
    pub names_requestor: bool,
    pub service_name: String,
    pub service_version: &'static str,
    /// What else every span says of this host.
    pub resource: Vec<(String, String)>,
    /// Where the connections to the collector live.
    pub io: Handle,
    /// How long a span waits for others at most.
    pub batch_max: Duration,
}

/// Begins traces, if the operator wants any; cheap to clone. The default records nothing.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<Shared>>);

pub(super) struct Shared {
    sampling: Sampling,
    queue: Queue,
    ids: RandomIdGenerator,
    names_requestor: bool,
    pub(super) scope: InstrumentationScope,
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tracer").field(&self.0.is_some()).finish()
    }
}

impl Tracer {
    /// Starts the thread that sends spans to the collector.
    pub fn start(options: TracerOptions) -> Self {
        let named =
            [("service.name", options.service_name.clone()), ("service.version", options.service_version.into())];
        // What is said twice is what was said last.
        let said = options.resource.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
        let said = said.chain(named.into_iter().map(|(key, value)| KeyValue::new(key, value)));
        let resource = Resource::builder_empty().with_attributes(said).build();
        Self(Some(Arc::new(Shared {
            sampling: Sampling::new(options.ratio, options.followed_max),
            names_requestor: options.names_requestor,
            ids: RandomIdGenerator::default(),
            scope: InstrumentationScope::builder("bulkhead").with_version(options.service_version).build(),
            queue: Queue::start(options, &resource),
        })))
    }

    /// Whether traces are configured.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether spans name the requestor.
    pub fn names_requestor(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.names_requestor)
    }

    /// Begins the span of a request of this tenant, if it is to be recorded.
    pub fn request(&self, name: &'static str, parent: Option<&TraceContext>, tenant: TenantId) -> Option<Span> {
        let shared = self.0.as_ref()?;
        match parent {
            Some(parent) if parent.is_sampled && shared.sampling.follows(tenant) => {
                Some(shared.go_on(name, Kind::Server, parent))
            }
            Some(_) => None,
            None if shared.sampling.begins_traces() => {
                let trace_id = shared.ids.new_trace_id();
                let begins = shared.sampling.begins(trace_id.to_bytes());
                begins.then(|| Span::root(shared, name, Kind::Server, trace_id, None))
            }
            None => None,
        }
    }

    /// Goes on with a trace that an earlier request of this host was part of.
    pub fn go_on(&self, name: String, from: &TraceContext) -> Option<Span> {
        let shared = self.0.as_ref().filter(|_| from.is_sampled)?;
        Some(shared.go_on(name, Kind::Internal, from))
    }

    /// Spans that no collector will see: there was no room for them, or they could not be sent.
    pub fn spans_dropped(&self) -> u64 {
        self.0.as_ref().map_or(0, |shared| shared.queue.counts.dropped.load(Ordering::Relaxed))
    }

    /// Spans that the collector has taken.
    pub fn spans_exported(&self) -> u64 {
        self.0.as_ref().map_or(0, |shared| shared.queue.counts.exported.load(Ordering::Relaxed))
    }

    /// Sends what waits, for at most so long, and ends. Blocks its thread.
    pub fn close(&self, within: Duration) {
        if let Some(shared) = &self.0 {
            shared.queue.close(within);
        }
    }
}

impl Shared {
    fn go_on(self: &Arc<Self>, name: impl Into<Cow<'static, str>>, kind: Kind, from: &TraceContext) -> Span {
        Span::root(self, name, kind, TraceId::from_bytes(from.trace_id), Some(SpanId::from_bytes(from.parent_id)))
    }

    pub(super) fn span_id(&self) -> SpanId {
        self.ids.new_span_id()
    }

    pub(super) fn ended(&self, span: SpanData) {
        self.queue.put(span);
    }
}

/// A number that only grows.
pub(super) fn add(counter: &AtomicU64, number: usize) {
    counter.fetch_add(number as u64, Ordering::Relaxed);
}
