//! A collector of OpenTelemetry traces that keeps every span, refuses some, or does not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value};
pub use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::net::TcpListener;

use crate::wait::until;

#[derive(Default)]
struct Kept {
    spans: Mutex<Vec<Span>>,
    /// Everything as text, with the headers that came along.
    text: Mutex<String>,
    is_silent: AtomicBool,
    refusals_left: AtomicU32,
}

/// A collector at a port of its own. Dropping it ends it.
pub struct Collector {
    pub endpoint: String,
    kept: Arc<Kept>,
    task: tokio::task::JoinHandle<()>,
}

async fn take(State(kept): State<Arc<Kept>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    if kept.is_silent.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
    if kept.refusals_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let Ok(request) = ExportTraceServiceRequest::decode(body) else { return StatusCode::BAD_REQUEST };
    kept.text.lock().push_str(&format!("{headers:?}\n{request:#?}\n"));
    let spans = request.resource_spans.into_iter().flat_map(|all| all.scope_spans).flat_map(|all| all.spans);
    kept.spans.lock().extend(spans);
    StatusCode::OK
}

impl Collector {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let kept = Arc::<Kept>::default();
        let router = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&kept));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { endpoint, kept, task }
    }

    /// `[traces]` of a host that sends its spans here.
    pub fn section(&self, more: &str) -> String {
        format!("[traces]\nendpoint = '{}'\n{more}\n", self.endpoint)
    }

    /// Takes requests from now on, and answers none.
    pub fn fall_silent(&self) {
        self.kept.is_silent.store(true, Ordering::Relaxed);
    }

    /// Takes none of the next so many requests.
    pub fn refuse(&self, requests: u32) {
        self.kept.refusals_left.store(requests, Ordering::Relaxed);
    }

    /// Requests that it is still to refuse.
    pub fn refusals_left(&self) -> u32 {
        self.kept.refusals_left.load(Ordering::Relaxed)
    }

    /// What came so far.
    pub fn spans(&self) -> Vec<Span> {
        self.kept.spans.lock().clone()
    }

    /// The same as a text.
    pub fn text(&self) -> String {
        self.kept.text.lock().clone()
    }

    /// Waits for a span.
    pub async fn until(&self, what: &str, wanted: impl Fn(&Span) -> bool) -> Span {
        until(what, async || self.spans().into_iter().find(&wanted)).await
    }

    /// The one span of this trace that has this name.
    pub fn one(&self, trace_id: &str, name: &str) -> Span {
        let spans = self.spans();
        let names: Vec<_> = spans.iter().map(|span| (hex(&span.trace_id), span.name.clone())).collect();
        let mut found = spans.into_iter().filter(|span| hex(&span.trace_id) == trace_id && span.name == name);
        let one = found.next().unwrap_or_else(|| panic!("no span {name} of {trace_id}, but {names:?}"));
        assert!(found.next().is_none(), "more than one {name} of {trace_id}: {names:?}");
        one
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An id as the W3C writes it.
pub fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An attribute as a text.
pub fn attribute(span: &Span, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    let Some(AnyValue { value: Some(value) }) = &found.value else { return None };
    Some(match value {
        any_value::Value::StringValue(text) => text.clone(),
        any_value::Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    })
}
