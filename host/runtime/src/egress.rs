//! Outgoing HTTP: the only way from a guest into a network.
//!
//! Owns every step of a request: the allow-list (destination, method and path), what each address is checked against,
//! bounded times and sizes; the way to an address is [`bulkhead_net::dial`]'s. Follows no redirect. Invariant: a
//! request goes to a granted destination or nowhere, and carries exactly one `Host`.

mod connection;
mod hooks;
mod request_quota;
mod request_span;
mod response;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HOST, HeaderValue};
use http::uri::Scheme;
use http_body_util::{BodyExt, Full, Limited};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

use self::connection::{Destination, HEADER_BYTES_MAX, connect_to, finished};
use self::request_quota::RequestSlot;
pub(super) use self::request_quota::{RequestQuota, RequestQuotas};
pub(super) use self::response::Exchange;
use self::response::{BoundedResponseBody, Driver, Response};
use super::blocking::Blocking;
use super::denials::Denials;
use super::secrets::{Refusal, Target, inject};
use bulkhead_calls::policy::{Denial, DeniedRequest};
use bulkhead_calls::secrets::Secret;
use bulkhead_calls::{CallContext, GuestServices, JournalSink, OutsideWorld};
use bulkhead_domain::text::beginning;
use bulkhead_metrics::PluginMetrics;
use bulkhead_net::AbortOnDrop;
use bulkhead_net::address::normal_host;
use bulkhead_traces::Span;

/// Resolving, connecting and shaking hands. Stops a guest from holding sockets to hosts that never answer.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Until the response's headers are there.
const FIRST_BYTE_MAX: Duration = Duration::from_secs(60);
/// The whole response. Stops an endless trickle.
const TOTAL_MAX: Duration = Duration::from_secs(300);
/// Bytes of a request's body. Stops a guest from sending out for ever.
const REQUEST_BYTES_MAX: u64 = 64 << 20;
/// Requests of one call at the same time. Stops a guest from opening a thousand sockets.
const REQUESTS_MAX: usize = 16;

/// Bytes of a host in a message.
const SHOWN_BYTES_MAX: usize = 256;
/// Bytes of a method in a message.
const METHOD_BYTES_MAX: usize = 16;

/// The hooks of one call.
pub(super) struct Egress {
    line: Option<RequestQuota>,
    denials: Denials,
    guest_services: Option<Arc<dyn GuestServices>>,
    outside: Option<Arc<dyn OutsideWorld>>,
    blocking: Blocking,
    /// Made at the first request.
    slots: Option<Arc<Semaphore>>,
    /// Of the call, if it is recorded.
    span: Option<Span>,
    metrics: PluginMetrics,
    /// Whether bodies are held until they are complete, so that a guest can always write.
    buffers: bool,
    /// Whether the next request stays here, and the one that does.
    holds: bool,
    held: Option<(http::Request<WasiBody>, Option<RequestOptions>)>,
    /// The journal that was given up, and why. It is kept before the next request leaves.
    given_up: Option<(Arc<dyn JournalSink>, String)>,
}

impl Egress {
    pub(super) fn new(denials: Denials, facts: &CallContext, blocking: Blocking) -> Self {
        Self {
            line: None,
            denials,
            guest_services: facts.guest_services.clone(),
            outside: facts.outside.clone(),
            blocking,
            slots: None,
            span: None,
            metrics: PluginMetrics::default(),
            buffers: false,
            holds: false,
            held: None,
            given_up: None,
        }
    }

    /// So many requests of an earlier run are in doubt.
    pub(super) fn count_in_doubt(&self, count: u64) {
        self.metrics.in_doubt(count);
    }

    /// Whether all of a body is held until it is complete.
    pub(super) fn buffer(&mut self, buffers: bool) {
        self.buffers = buffers;
    }

    /// What has to be kept before the next request leaves: that the call's journal was given up.
    pub(super) fn give_up_first(&mut self, given_up: Option<(Arc<dyn JournalSink>, String)>) {
        self.given_up = given_up;
    }

    /// Whether requests stay here from now on; gives the one that did.
    pub(super) fn hold(&mut self, holds: bool) -> Option<(http::Request<WasiBody>, Option<RequestOptions>)> {
        self.holds = holds;
        self.held.take()
    }

    /// The way of a request out and of its response back. Nothing leaves before it is polled.
    pub(super) fn exchange(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
    ) -> impl Future<Output = Exchange> + Send + use<> {
        let sent = self.send(request, options);
        async move { sent.await.map(|(response, driver)| (response, Pin::from(driver))) }
    }

    fn send(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
    ) -> impl Future<Output = Result<(Response, Driver), Error>> + Send + use<> {
        let denials = self.denials.clone();
        let guest_services = self.guest_services.clone();
        let blocking = self.blocking.clone();
        let outside = self.outside.clone();
        let span = self.span.clone();
        let metrics = self.metrics.clone();
        let slots = self.slots.get_or_insert_with(|| Arc::new(Semaphore::new(REQUESTS_MAX)));
        let slot = RequestSlot::take(Arc::clone(slots), self.line.as_ref());
        let given_up = self.given_up.clone();
        async move {
            if let Some((sink, reason)) = given_up
                && let Err(fenced) = sink.give_up(reason).await
            {
                return Err(Error::InternalError(Some(fenced.to_string())));
            }
            let slot = slot.ok_or(Error::ConnectionLimitReached)?;
            let secrets = match guest_services {
                Some(guest_services) => {
                    guest_services.secrets(denials.plugin()).await.map_err(|()| Error::InternalError(None))?
                }
                None => Vec::new(),
            };
            let way = match &outside {
                Some(outside) => Way::Recorded(&**outside),
                None => Way::Network(&blocking, slot),
            };
            let since = Instant::now();
            let sent = send(way, span, &secrets, &denials, request, options.unwrap_or_default()).await;
            metrics.sent(sent.as_ref().ok().map(|(response, _)| response.status().as_u16()), since.elapsed());
            sent.map_err(|refusal| match refusal {
                Refusal::Failed(error) => error,
                Refusal::Missing(secret) => {
                    denials.note(Denial::Secret(secret));
                    Error::HttpRequestDenied
                }
            })
        }
    }

    /// Counts its requests there.
    pub(super) fn count(&mut self, metrics: PluginMetrics) {
        self.metrics = metrics;
    }

    /// Takes a place there for every request.
    pub(super) fn share(&mut self, line: RequestQuota) {
        self.line = Some(line);
    }

    /// Records every request within this span.
    pub(super) fn record(&mut self, span: Option<Span>) {
        self.span = span;
    }
}

/// Where a request that passed every check goes.
enum Way<'a> {
    Network(&'a Blocking, RequestSlot),
    /// Nowhere: a test of a plugin has the answer.
    Recorded(&'a dyn OutsideWorld),
}

async fn send(
    way: Way<'_>,
    span: Option<Span>,
    secrets: &[Secret],
    denials: &Denials,
    mut request: http::Request<WasiBody>,
    options: RequestOptions,
) -> Result<(Response, Driver), Refusal> {
    let until = Instant::now() + TOTAL_MAX;
    let tls = match request.uri().scheme() {
        Some(scheme) if *scheme == Scheme::HTTPS => true,
        Some(scheme) if *scheme == Scheme::HTTP => false,
        _ => return Err(Error::HttpRequestUriInvalid.into()),
    };
    let authority = request.uri().authority().ok_or(Error::HttpRequestUriInvalid)?;
    if authority.as_str().contains('@') {
        return Err(Error::HttpRequestUriInvalid.into());
    }
    let host = normal_host(authority.host());
    let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
    let method = request.method().as_str();
    let path = request.uri().path();
    let covering: Vec<_> = denials.granted().http.iter().filter(|grant| grant.covers(tls, &host, port)).collect();
    let matching: Vec<_> = covering.iter().copied().filter(|grant| grant.permits(method, path)).collect();
    // A tunnel would lead anywhere.
    if matching.is_empty() || request.method() == http::Method::CONNECT {
        let method = (!covering.is_empty()).then(|| beginning(method, METHOD_BYTES_MAX).to_owned());
        let shown = beginning(&host, SHOWN_BYTES_MAX).to_owned();
        denials.note(Denial::Http(DeniedRequest { method, tls, host: shown, port }));
        return Err(Error::HttpRequestDenied.into());
    }
    let span = span.and_then(|span| request_span::begin(&span, request.method(), &host, port));
    if let Some(span) = &span {
        request_span::pass_on(span, &matching, request.headers_mut());
    }
    let destination = Destination { grants: &matching, tls, host: &host, port };
    let sent = dispatch(way, secrets, request, options, destination, until).await;
    if let Some(span) = &span {
        request_span::end(span, &sent);
    }
    sent
}

/// Sends a request that passed every check.
async fn dispatch(
    way: Way<'_>,
    secrets: &[Secret],
    mut request: http::Request<WasiBody>,
    options: RequestOptions,
    destination: Destination<'_>,
    until: Instant,
) -> Result<(Response, Driver), Refusal> {
    let authority = request.uri().authority().ok_or(Error::HttpRequestUriInvalid)?;
    // Inserted, never appended: a second `Host` would be read by one proxy and ignored by the next.
    let value = HeaderValue::from_str(authority.as_str()).map_err(|_| Error::HttpRequestUriInvalid)?;
    request.headers_mut().insert(HOST, value);
    // From here on the request holds what the guest must not see; it goes to this one destination and is dropped.
    let method = request.method().to_string();
    let path = request.uri().path().to_owned();
    let Destination { tls, host, port, .. } = destination;
    let target = Target { method: &method, tls, host, port, path: &path };
    let filled = timeout_at(until, inject(request, secrets, target));
    let (mut request, injected) = filled.await.map_err(|_| Error::ConnectionWriteTimeout)??;
    let (blocking, slot) = match way {
        Way::Network(blocking, slot) => (blocking, slot),
        Way::Recorded(outside) => {
            let response = recorded(outside, request).await?;
            return Ok((injected.scrub(response)?, Box::new(std::future::ready(Ok(())))));
        }
    };
    // Scheme and authority go to proxies only.
    let origin_form = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = origin_form.parse().map_err(|_| Error::HttpRequestUriInvalid)?;

    let request = request.map(|body| limited(body, REQUEST_BYTES_MAX as usize));

    let connect = clamp(options.connect_timeout, CONNECT_MAX);
    let (mut sender, driver) =
        timeout(connect, connect_to(blocking, &destination)).await.map_err(|_| Error::ConnectionTimeout)??;
    // Dropped with the response or with this future: the connection ends with the call.
    let driver = AbortOnDrop::spawn(driver);

    let first_byte = clamp(options.first_byte_timeout, FIRST_BYTE_MAX);
    let response = timeout(first_byte, sender.send_request(request))
        .await
        .map_err(|_| Error::ConnectionReadTimeout)?
        .map_err(of_exchange)?;
    let header = |(name, value): (&http::HeaderName, &HeaderValue)| name.as_str().len() + value.len();
    if response.headers().iter().map(header).sum::<usize>() > HEADER_BYTES_MAX {
        return Err(Error::HttpResponseHeaderSectionSize(u32::try_from(HEADER_BYTES_MAX).ok()).into());
    }
    let between = clamp(options.between_bytes_timeout, FIRST_BYTE_MAX);
    let response =
        injected.scrub(response.map(|body| BoundedResponseBody::new(body, until, between, slot).boxed_unsync()))?;
    Ok((response, Box::new(finished(driver))))
}

/// The answer that a test of a plugin has for a request.
async fn recorded(outside: &dyn OutsideWorld, request: http::Request<WasiBody>) -> Result<Response, Error> {
    let (head, body) = request.into_parts();
    let body = limited(body, REQUEST_BYTES_MAX as usize).collect().await?.to_bytes();
    let answer = outside.answer(http::Request::from_parts(head, body)).ok_or(Error::HttpRequestDenied)?;
    Ok(answer.map(|bytes| Full::new(bytes).map_err(|never| match never {}).boxed_unsync()))
}

/// A request body that ends in size.
fn limited(body: WasiBody, bytes_max: usize) -> WasiBody {
    Limited::new(body, bytes_max).map_err(of_body).boxed_unsync()
}

/// What broke a request's body, other than that it has too many bytes.
fn of_body(error: Box<dyn std::error::Error + Send + Sync>) -> Error {
    error.downcast().map_or(Error::HttpRequestBodySize(Some(REQUEST_BYTES_MAX)), |error| *error)
}

/// The cause of a failed request. If its body was refused here, the guest is told so, and not that a connection broke.
fn of_exchange(error: hyper::Error) -> Error {
    match std::error::Error::source(&error).and_then(|cause| cause.downcast_ref()) {
        Some(Error::HttpRequestBodySize(bytes_max)) => Error::HttpRequestBodySize(*bytes_max),
        _ => Error::Hyper(error),
    }
}

fn clamp(wanted: Option<Duration>, most: Duration) -> Duration {
    wanted.map_or(most, |wanted| wanted.min(most))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hyper::client::conn::http1;
    use hyper_util::rt::TokioIo;

    use super::*;

    #[tokio::test]
    async fn egress_request_body_is_limited() {
        let sent = |bytes_left| {
            let body = http_body_util::Full::new(Bytes::from_static(b"12345")).map_err(|never| match never {});
            limited(body.boxed_unsync(), bytes_left).collect()
        };
        assert_eq!(sent(5).await.unwrap().to_bytes(), "12345");
        assert!(matches!(sent(4).await, Err(Error::HttpRequestBodySize(_))));
    }

    #[tokio::test]
    async fn egress_guest_gets_body_size_error() {
        let (near, _far) = tokio::io::duplex(1 << 20);
        let (mut sender, driver) = http1::handshake(TokioIo::new(near)).await.unwrap();
        let driver = AbortOnDrop(tokio::spawn(driver));
        let body = http_body_util::Full::new(Bytes::from_static(b"12345")).map_err(|never| match never {});
        let request = http::Request::new(limited(body.boxed_unsync(), 4));
        let error = of_exchange(sender.send_request(request).await.unwrap_err());
        assert!(matches!(error, Error::HttpRequestBodySize(Some(REQUEST_BYTES_MAX))), "{error:?}");
        drop(driver);
    }
}
