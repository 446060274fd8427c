//! Metrics over the network: one page on a listener of its own.
//!
//! Owns that listener and who may read it. Must not serve anything else, nor count anything itself. Invariant: one
//! scrape runs at a time and has a time to end in; a credential is compared in constant time and is in no log; where
//! there is none, only names of this machine lead here.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::listener::{ConnectionBounds, FAILURES_PER_MINUTE_MAX, OperatorListener, Responder, refuse_pages};
use crate::remote::{AdminTokenDigest, bearer};
use bulkhead_limits::failures::Failures;
use bulkhead_metrics::{Form, Metrics, Readings, page};
use bulkhead_net::server::{Certificate, RequestBody};

/// Where the page is.
pub const PATH: &str = "/metrics";

/// Connections of scrapers at a time; more wait in the kernel.
const CONNECTIONS_MAX: u32 = 16;
/// Connections of scrapers from one address.
const CONNECTIONS_PER_ADDRESS_MAX: u32 = 8;
/// A scrape with its wait for the one before.
const SCRAPE: Duration = Duration::from_secs(2);
/// Reads what is not counted but can be asked for.
pub type Reader = Arc<dyn Fn() -> BoxFuture<'static, Readings> + Send + Sync>;

/// What the listener works with.
pub struct ScrapeParts {
    pub listener: TcpListener,
    /// Without one, every client that reaches the listener may read: on this machine only.
    pub secret: Option<AdminTokenDigest>,
    pub certificate: Option<Arc<Certificate>>,
    pub metrics: Metrics,
    pub reader: Reader,
}

/// The listener. Dropping it ends it with its connections.
pub struct Scrape {
    _listener: OperatorListener,
}

impl Scrape {
    /// # Errors
    /// The certificate cannot be served with.
    pub fn spawn(parts: ScrapeParts) -> Result<Self, rustls::Error> {
        let ScrapeParts { listener, secret, certificate, metrics, reader } = parts;
        let failures = Failures::new(FAILURES_PER_MINUTE_MAX);
        // A scraper keeps its connection.
        let bounds =
            ConnectionBounds { total: CONNECTIONS_MAX, per_address: CONNECTIONS_PER_ADDRESS_MAX, lifetime: None };
        let responder = ScrapeListener { secret, metrics, reader, failures, turn: Arc::new(Semaphore::new(1)) };
        Ok(Self { _listener: OperatorListener::spawn(listener, certificate, bounds, responder)? })
    }
}

struct ScrapeListener {
    secret: Option<AdminTokenDigest>,
    metrics: Metrics,
    reader: Reader,
    failures: Failures,
    turn: Arc<Semaphore>,
}

impl Responder for ScrapeListener {
    type Body = Full<Bytes>;

    async fn respond(&self, request: Request<RequestBody>, peer: IpAddr) -> Response<Full<Bytes>> {
        if request.uri().path() != PATH {
            return refusal(StatusCode::NOT_FOUND, "there is nothing at this path: the page is /metrics");
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return refusal(StatusCode::METHOD_NOT_ALLOWED, "the page is read with GET");
        }
        if let Err(why) = refuse_pages(&request, self.secret.is_none()) {
            return refusal(StatusCode::FORBIDDEN, why);
        }
        if let Some(secret) = &self.secret
            && !bearer(request.headers()).is_some_and(|token| secret.fits(token))
        {
            return self.unauthorized(peer);
        }
        let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
        let form = Form::accepted(accept);
        match tokio::time::timeout(SCRAPE, self.page(form)).await {
            Ok(Some(page)) => {
                let mut response = Response::new(Full::from(page));
                let headers = response.headers_mut();
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(form.content_type()));
                headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
                response
            }
            Ok(None) => refusal(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be written"),
            Err(_) => refusal(StatusCode::SERVICE_UNAVAILABLE, "another scrape takes too long: try again"),
        }
    }

    fn forget_idle(&self) {
        self.failures.forget_idle();
    }
}

impl ScrapeListener {
    /// Written where it holds up no connection.
    async fn page(&self, form: Form) -> Option<String> {
        let turn = Arc::clone(&self.turn).acquire_owned().await.ok()?;
        let metrics = self.metrics.clone();
        let readings = (self.reader)().await;
        let written = tokio::task::spawn_blocking(move || {
            // Also when nobody waits any more: two at once never run.
            let _turn = turn;
            page(&metrics, readings, form).ok()
        });
        written.await.ok().flatten()
    }

    fn unauthorized(&self, peer: IpAddr) -> Response<Full<Bytes>> {
        tracing::warn!(%peer, "a client without the token of [metrics] was refused");
        match self.failures.note(peer) {
            Ok(()) => {
                let mut response = refusal(StatusCode::UNAUTHORIZED, "the token of [metrics] is needed");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                response
            }
            Err(exceeded) => {
                let mut response = refusal(StatusCode::TOO_MANY_REQUESTS, "too many invalid credentials");
                let seconds = HeaderValue::from(exceeded.retry_after_ms.div_ceil(1_000));
                response.headers_mut().insert(header::RETRY_AFTER, seconds);
                response
            }
        }
    }
}

/// Ends the connection, too: a refused client must not keep it.
fn refusal(status: StatusCode, message: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{message}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
