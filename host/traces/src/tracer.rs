//! What begins traces.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_domain::requestor::TenantId;
use bulkhead_domain::trace::TraceContext;
use http::{HeaderName, HeaderValue};
use tokio::runtime::Handle;
use url::Url;

use super::export::Export;
use super::otlp::Origin;
use super::queue::Queue;
use super::sampling::Sampling;
use super::{Kind, Span, random};

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

impl TracerOptions {
    pub(super) fn origin(&self) -> Origin {
        let attributes = self.resource.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let named = [("service.name", self.service_name.as_str()), ("service.version", self.service_version)];
        // What is said twice is what was said last.
        let attributes: BTreeMap<_, _> = attributes.chain(named).collect();
        Origin::new(attributes.into_iter(), ("bulkhead", self.service_version))
    }
}

/// Begins traces, if the operator wants any; cheap to clone. The default records nothing.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<Shared>>);

pub(super) struct Shared {
    pub(super) sampling: Sampling,
    pub(super) queue: Arc<Queue>,
    names_requestor: bool,
    export: Export,
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tracer").field(&self.0.is_some()).finish()
    }
}

impl Tracer {
    /// Starts what sends spans to the collector.
    pub fn start(options: TracerOptions) -> Self {
        let queue = Arc::<Queue>::default();
        Self(Some(Arc::new(Shared {
            sampling: Sampling::new(options.ratio, options.followed_max),
            names_requestor: options.names_requestor,
            export: Export::start(options, Arc::clone(&queue)),
            queue,
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
        let (trace_id, parent_id, charged) = match parent {
            Some(parent) if parent.is_sampled && shared.sampling.follows(tenant) => {
                (parent.trace_id, Some(parent.parent_id), Some(tenant))
            }
            Some(_) => return None,
            None if shared.sampling.begins_traces() => {
                let trace_id = random::trace_id();
                shared.sampling.begins(trace_id).then_some((trace_id, None, None))?
            }
            None => return None,
        };
        Some(Span::root(shared, name, Kind::Server, trace_id, parent_id, charged))
    }

    /// Goes on with a trace that an earlier request of this tenant was part of.
    pub fn go_on(&self, name: &'static str, from: &TraceContext, tenant: TenantId) -> Option<Span> {
        let shared = self.0.as_ref().filter(|_| from.is_sampled)?;
        // A trace that the ratio does not begin is a caller's. Whoever chooses ids that it begins gains the tasks of
        // requests that were charged themselves.
        let charged = (!shared.sampling.begins(from.trace_id)).then_some(tenant);
        if let Some(tenant) = charged {
            shared.sampling.charge(tenant);
        }
        Some(Span::root(shared, name, Kind::Internal, from.trace_id, Some(from.parent_id), charged))
    }

    /// Spans that no collector will see: there was no room for them, or they could not be sent.
    pub fn spans_dropped(&self) -> u64 {
        self.0.as_ref().map_or(0, |shared| shared.queue.dropped())
    }

    /// Spans that the collector has taken.
    pub fn spans_exported(&self) -> u64 {
        self.0.as_ref().map_or(0, |shared| shared.queue.exported())
    }

    /// Sends what waits, for at most so long, and ends. Blocks its thread.
    pub fn close(&self, within: Duration) {
        let Some(shared) = self.0.as_ref().filter(|shared| shared.queue.close()) else { return };
        shared.export.finish(within);
        let dropped = shared.queue.clear();
        if dropped > 0 {
            tracing::warn!(dropped, "spans were not exported");
        }
    }
}
