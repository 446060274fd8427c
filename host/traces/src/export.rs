//! The way of spans to the collector.
//!
//! Owns when batches are sent, and what happens to one that the collector does not take: it is tried again so often,
//! with growing pauses, and then dropped. Meanwhile the queue fills, and what has no room is dropped. Connections go
//! the way of all of the host's own requests (`net`). Invariant: one batch is on its way at a time, and each is settled
//! with the queue.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use bulkhead_net::client::{Client, Progress, Request, place};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Method, StatusCode};
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use url::Url;

use super::otlp::{self, Origin};
use super::queue::{Batch, Queue};
use super::{TracerOptions, random};

/// One exchange with the collector, from its name to the last byte.
const EXCHANGE_MAX: Duration = Duration::from_secs(10);
/// Resolving, connecting and shaking hands.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Bytes of an answer of the collector.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Requests with the same batch.
const TRIES_MAX: u32 = 3;
/// The pause after the first failure. It doubles with each that follows.
const PAUSE_MS_MIN: u64 = 1_000;
/// The longest pause between two requests, also if the collector asks for more.
const PAUSE_MS_MAX: u64 = 30_000;

/// What sends the spans of a queue.
pub(super) struct Export {
    task: AbortHandle,
    /// Disconnected once the task is over.
    over: Mutex<Receiver<()>>,
}

impl Export {
    pub(super) fn start(options: TracerOptions, queue: Arc<Queue>) -> Self {
        let (alive, over) = sync_channel(0);
        let io = options.io.clone();
        let batch_max = options.batch_max;
        let exporter = Exporter { collector: Collector::new(options), queue, failures: 0 };
        let task = io.spawn(exporter.run(batch_max, alive)).abort_handle();
        Self { task, over: Mutex::new(over) }
    }

    /// Waits for the end of what the closed queue holds, but not longer than this.
    pub(super) fn finish(&self, within: Duration) {
        if self.over.lock().recv_timeout(within) == Err(RecvTimeoutError::Timeout) {
            self.task.abort();
        }
    }
}

struct Exporter {
    collector: Collector,
    queue: Arc<Queue>,
    /// Since the collector took a batch.
    failures: u32,
}

impl Exporter {
    async fn run(mut self, batch_max: Duration, _alive: SyncSender<()>) {
        let mut due = Instant::now() + batch_max;
        loop {
            let whole_only = tokio::select! {
                biased;
                () = self.queue.closed() => false,
                () = sleep_until(due) => false,
                () = self.queue.filled() => true,
            };
            let is_last = !whole_only && self.queue.is_closed();
            while let Some(batch) = self.queue.take(whole_only) {
                let dropped = self.export(batch).await;
                self.queue.settle(dropped);
            }
            if is_last {
                return;
            }
            if !whole_only {
                due = Instant::now() + batch_max;
            }
        }
    }

    /// How many spans of a batch the collector did not take.
    async fn export(&mut self, batch: Batch) -> usize {
        let body = Bytes::from(self.collector.origin.request(&batch.bytes));
        let Batch { spans, bytes } = batch;
        drop(bytes);
        for tried in 1.. {
            let refusal = match self.collector.send(body.clone()).await {
                Ok(rejected) => {
                    self.succeeded();
                    return usize::try_from(rejected).unwrap_or(usize::MAX);
                }
                Err(refusal) => refusal,
            };
            self.failed(&refusal);
            let is_last = tried >= TRIES_MAX || !refusal.may_pass || self.queue.is_closed();
            self.pause(refusal.retry_after).await;
            if is_last {
                break;
            }
        }
        spans
    }

    fn failed(&mut self, refusal: &Refusal) {
        if self.failures == 0 {
            let collector = self.collector.url.as_str();
            let why = &refusal.why;
            tracing::warn!(collector, "spans cannot be exported; what has no room until they can is dropped: {why}");
        }
        self.failures = self.failures.saturating_add(1);
    }

    fn succeeded(&mut self) {
        if std::mem::take(&mut self.failures) > 0 {
            let collector = self.collector.url.as_str();
            let dropped = self.queue.dropped();
            tracing::info!(collector, dropped, "spans are exported again");
        }
    }

    /// Leaves the collector alone for a while, unless the host goes down.
    async fn pause(&self, wanted: Option<Duration>) {
        let longest = PAUSE_MS_MIN.saturating_mul(1 << self.failures.saturating_sub(1).min(16)).min(PAUSE_MS_MAX);
        // Hosts that lost the same collector do not come back to it together.
        let pause = Duration::from_millis(longest / 2 + random::number() % (longest / 2));
        let pause = pause.max(wanted.unwrap_or_default()).min(Duration::from_millis(PAUSE_MS_MAX));
        tokio::select! {
            biased;
            () = self.queue.closed() => {}
            () = sleep(pause) => {}
        }
    }
}

/// The other side.
struct Collector {
    client: Client,
    url: Url,
    headers: Vec<(HeaderName, HeaderValue)>,
    origin: Origin,
}

/// Why a batch was not taken.
struct Refusal {
    why: String,
    /// Whether the same request may be taken another time.
    may_pass: bool,
    retry_after: Option<Duration>,
}

impl Collector {
    fn new(options: TracerOptions) -> Self {
        let origin = options.origin();
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
        Self { client, url, headers, origin }
    }

    /// How many spans the collector did not want, or why it has none of them.
    async fn send(&self, body: Bytes) -> Result<u64, Refusal> {
        let mut request = Request::new(Method::POST, self.url.clone());
        (request.headers, request.body) = (self.headers.clone(), body);
        let broken =
            |error: &dyn std::fmt::Display| Refusal { why: error.to_string(), may_pass: true, retry_after: None };
        let exchange = async {
            let response = self.client.send(request).await.map_err(|error| broken(&error))?;
            if response.status != StatusCode::OK {
                return Err(Refusal::of_status(response.status, response.header(RETRY_AFTER.as_str())));
            }
            response.bytes(ANSWER_BYTES_MAX, &Progress::default()).await.map_err(|error| broken(&error))
        };
        let late = |_| broken(&format_args!("there was no answer within {} s", EXCHANGE_MAX.as_secs()));
        let answer = timeout(EXCHANGE_MAX, exchange).await.map_err(late)??;
        Ok(otlp::rejected(&answer))
    }
}

impl Refusal {
    /// The statuses that pass are those that the specification of OTLP names.
    fn of_status(status: StatusCode, retry_after: Option<&str>) -> Self {
        let may_pass = matches!(status.as_u16(), 429 | 502 | 503 | 504);
        let seconds = retry_after.and_then(|text| text.trim().parse().ok());
        Self { why: format!("the collector answers {status}"), may_pass, retry_after: seconds.map(Duration::from_secs) }
    }
}
