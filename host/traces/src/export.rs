//! The way of spans to the collector: a bounded queue, and a thread that empties it.
//!
//! The SDK's batch processor has the thread and the channel. It does not tell what it drops, so the room in its channel is counted here:
//! it is never handed a span that it has no room for. Connections go the way of all of the host's own requests (`net`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bulkhead_net::client::{Client, Progress, Request, place};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter, SpanProcessor as _};
use prost::Message as _;
use tokio::runtime::Handle;
use tokio::time::timeout;
use url::Url;

use super::TracerOptions;
use super::tracer::add;

/// Spans that wait for the collector. Bounds the memory of one that is away.
const SPANS_QUEUED_MAX: usize = 2_048;
/// Spans of one request to the collector.
const SPANS_PER_BATCH: usize = 512;
/// One exchange with the collector, from its name to the last byte.
const EXCHANGE_MAX: Duration = Duration::from_secs(10);
/// Resolving, connecting and shaking hands.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Bytes of an answer of the collector.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

#[derive(Debug, Default)]
pub(super) struct Counts {
    waiting: AtomicUsize,
    pub(super) dropped: AtomicU64,
    pub(super) exported: AtomicU64,
}

/// Spans on their way.
pub(super) struct Queue {
    processor: BatchSpanProcessor,
    pub(super) counts: Arc<Counts>,
    is_closed: AtomicBool,
}

impl Queue {
    pub(super) fn start(options: TracerOptions, resource: &Resource) -> Self {
        let counts = Arc::new(Counts::default());
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(SPANS_QUEUED_MAX)
            .with_max_export_batch_size(SPANS_PER_BATCH)
            .with_scheduled_delay(options.batch_max)
            .build();
        let exporter = Exporter::new(options, resource, Arc::clone(&counts));
        Self { processor: BatchSpanProcessor::new(exporter, batches), counts, is_closed: AtomicBool::new(false) }
    }

    /// Takes a span if there is room; never waits.
    pub(super) fn put(&self, span: SpanData) {
        let counts = &self.counts;
        let has_room = counts.waiting.fetch_add(1, Ordering::AcqRel) < SPANS_QUEUED_MAX;
        if has_room && !self.is_closed.load(Ordering::Acquire) {
            self.processor.on_end(span);
        } else {
            counts.waiting.fetch_sub(1, Ordering::AcqRel);
            add(&counts.dropped, 1);
        }
    }

    /// Sends what waits, for at most so long.
    pub(super) fn close(&self, within: Duration) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        // That it took too long shows in what still waits.
        let _ = self.processor.shutdown_with_timeout(within);
        let left = self.counts.waiting.swap(0, Ordering::AcqRel);
        add(&self.counts.dropped, left);
        let dropped = self.counts.dropped.load(Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!(dropped, "spans were not exported");
        }
    }
}

/// Speaks to the collector.
struct Exporter {
    wire: Arc<Wire>,
    resource: ResourceAttributesWithSchema,
    io: Handle,
    counts: Arc<Counts>,
    is_failing: AtomicBool,
}

struct Wire {
    client: Client,
    url: Url,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Headers may be credentials.
        f.debug_struct("Exporter").field("url", &self.wire.url.as_str()).finish_non_exhaustive()
    }
}

impl Exporter {
    fn new(options: TracerOptions, resource: &Resource, counts: Arc<Counts>) -> Self {
        let mut client = Client::new(options.tls);
        // The operator named it, so it may be anywhere, and without TLS where the configuration lets it.
        client.typed = place(&options.endpoint);
        client.hosts = client.typed.iter().map(|(host, _)| host.clone()).collect();
        client.plain = true;
        client.connect_max = CONNECT_MAX;
        let mut url = options.endpoint;
        let path = format!("{}/v1/traces", url.path().trim_end_matches('/'));
        url.set_path(&path);
        let mut headers = options.headers;
        headers.push((CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf")));
        let wire = Arc::new(Wire { client, url, headers });
        Self { wire, resource: resource.into(), io: options.io, counts, is_failing: AtomicBool::new(false) }
    }

    fn failed(&self, spans: usize, why: &str) -> OTelSdkResult {
        add(&self.counts.dropped, spans);
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            let collector = self.wire.url.as_str();
            tracing::warn!(collector, "spans cannot be exported, and are dropped until they can: {why}");
        }
        Err(OTelSdkError::InternalFailure(why.to_owned()))
    }
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        self.counts.waiting.fetch_sub(spans.min(self.counts.waiting.load(Ordering::Acquire)), Ordering::AcqRel);
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        let wire = Arc::clone(&self.wire);
        // The thread of the queue has no timers and no sockets.
        let sent = self.io.spawn(async move { wire.send(body.into()).await });
        let rejected = match sent.await {
            Ok(Ok(rejected)) => rejected.min(spans),
            Ok(Err(why)) => return self.failed(spans, &why),
            Err(_) => return self.failed(spans, "the host is going down"),
        };
        add(&self.counts.exported, spans - rejected);
        add(&self.counts.dropped, rejected);
        if self.is_failing.swap(false, Ordering::Relaxed) {
            let dropped = self.counts.dropped.load(Ordering::Relaxed);
            tracing::info!(collector = self.wire.url.as_str(), dropped, "spans are exported again");
        }
        Ok(())
    }
}

impl Wire {
    /// How many spans the collector did not want, or why it has none of them.
    async fn send(&self, body: Bytes) -> Result<usize, String> {
        let mut request = Request::new(Method::POST, self.url.clone());
        (request.headers, request.body) = (self.headers.clone(), body);
        let exchange = async {
            let response = self.client.send(request).await.map_err(|error| error.to_string())?;
            let status = response.status;
            if status != StatusCode::OK {
                return Err(format!("the collector answers {status}"));
            }
            response.bytes(ANSWER_BYTES_MAX, &Progress::default()).await.map_err(|error| error.to_string())
        };
        let late = |_| format!("there was no answer within {} s", EXCHANGE_MAX.as_secs());
        let answer = timeout(EXCHANGE_MAX, exchange).await.map_err(late)??;
        // What is no such message says nothing of spans that were not wanted.
        let partial = ExportTraceServiceResponse::decode(answer.as_slice()).unwrap_or_default().partial_success;
        Ok(partial.map_or(0, |partial| usize::try_from(partial.rejected_spans).unwrap_or(0)))
    }
}
