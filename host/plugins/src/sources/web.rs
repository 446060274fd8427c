//! HTTP to servers that an operator or another server has named: a registry, and wherever it redirects.
//!
//! Owns redirects, bounded bodies, and which addresses may be reached; the way there is [`dial`]'s. Must not know what is fetched. Invariant: every hop is checked anew, so no redirect reaches what the first address could not; what begins with TLS never
//! goes on without; no
//! redirect takes a credential to another origin than that of the request it came with; no error and no log holds the query of an address, where
//! storage services put theirs.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use http::{Method, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::time::timeout;
use url::Url;

use super::{Error, FetchOptions};
use bulkhead_net::address::normal_host;
use bulkhead_net::dial::{self, DialError, Stream};

/// Resolving, connecting and shaking hands, of one hop.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Redirects of one request. Stops servers that send each other in circles.
const REDIRECTS_MAX: usize = 5;
/// Bytes of a response's headers.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Bytes that are handed to a connection at once, so that progress shows.
const CHUNK_BYTES: usize = 256 << 10;

/// The receiver of progress (bytes so far, bytes in all), if there is one.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<dyn Fn(u64, u64) + Send + Sync>>);

impl Progress {
    pub fn new(told: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(told)))
    }

    fn tell(&self, done: u64, of: u64) {
        if let Some(told) = &self.0 {
            told(done, of);
        }
    }
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Progress").field(&self.0.is_some()).finish()
    }
}

/// A client for one fetch.
pub(super) struct Web<'a> {
    fetching: &'a FetchOptions,
    tls: Arc<rustls::ClientConfig>,
    /// What the operator typed: at exactly this place an address of the operator's own machine or network is meant.
    named: Option<(String, u16)>,
    /// Whether the first address is a plain one. One that needs TLS leads nowhere without.
    begins_plain: bool,
}

/// One request.
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) authorization: Option<HeaderValue>,
    pub(super) body: Bytes,
    pub(super) progress: Progress,
}

impl Request {
    pub(super) fn new(method: Method, url: Url) -> Self {
        Self {
            method,
            url,
            headers: Vec::new(),
            authorization: None,
            body: Bytes::new(),
            progress: Progress::default(),
        }
    }
}

/// The head of an answer, with the connection that its body comes over.
pub(super) struct Response {
    /// Who answered, redirects followed.
    pub(super) url: Url,
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: hyper::body::Incoming,
    _connection: AbortOnDrop,
}

impl<'a> Web<'a> {
    /// # Errors
    /// A file with certificates cannot be read.
    pub(super) fn new(fetching: &'a FetchOptions, named: Option<&Url>) -> Result<Self, Error> {
        let begins_plain = named.is_some_and(|url| url.scheme() == "http");
        Ok(Self { fetching, tls: tls_config(fetching)?, named: named.and_then(place), begins_plain })
    }

    /// Sends a request, and a GET or HEAD to wherever its answer leads.
    pub(super) async fn send(&self, request: Request) -> Result<Response, Error> {
        let Request { method, mut url, headers, authorization, body, progress } = request;
        let follows = method == Method::GET || method == Method::HEAD;
        let origin = url.origin();
        for _ in 0..=REDIRECTS_MAX {
            let mut wire =
                http::Request::new(Upload { rest: body.clone(), bytes: body.len() as u64, progress: progress.clone() });
            *wire.method_mut() = method.clone();
            wire.headers_mut().extend(headers.iter().cloned());
            if let Some(authorization) = authorization.as_ref().filter(|_| url.origin() == origin) {
                wire.headers_mut().insert(AUTHORIZATION, authorization.clone());
            }
            let response = self.send_once(&url, wire).await?;
            let is_redirect = matches!(response.status.as_u16(), 301 | 302 | 303 | 307 | 308);
            if !(follows && is_redirect) {
                return Ok(response);
            }
            url = location(&response)?;
        }
        Err(failed(&url, format!("it was redirected more than {REDIRECTS_MAX} times")))
    }

    async fn send_once(&self, url: &Url, mut request: http::Request<Upload>) -> Result<Response, Error> {
        let (host, port) = place(url).ok_or_else(|| failed(url, "it has no host"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(failed(url, "it holds a name or a password"));
        }
        let is_plain = self.is_plain(url, &host, port)?;
        let authority = url.port().map_or_else(|| host_text(url), |port| format!("{}:{port}", host_text(url)));
        let authority = HeaderValue::from_str(&authority).map_err(|_| failed(url, "its host is not valid"))?;
        request.headers_mut().insert(HOST, authority);
        request
            .headers_mut()
            .insert(USER_AGENT, HeaderValue::from_static(concat!("bulkhead/", env!("CARGO_PKG_VERSION"))));
        *request.uri_mut() = url[url::Position::BeforePath..url::Position::AfterQuery]
            .parse()
            .map_err(|_| failed(url, "its path is not valid"))?;

        let slow = |_| failed(url, format!("no connection within {} s", CONNECT_MAX.as_secs()));
        let stream = timeout(CONNECT_MAX, self.dial(url, &host, port, is_plain)).await.map_err(slow)??;
        let broken = |error: hyper::Error| failed(url, format!("the connection broke: {}", chain(&error)));
        let handshake = http1::Builder::new().max_buf_size(HEADER_BYTES_MAX).handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(broken)?;
        let connection = AbortOnDrop(tokio::spawn(async move {
            // The body, or the missing response, says what went wrong.
            let _ = connection.await;
        }));
        let (head, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
        Ok(Response { url: url.clone(), status: head.status, headers: head.headers, body, _connection: connection })
    }

    /// Whether a connection needs no TLS: only where the operator has named a plain address, and then only on this machine itself, where
    /// nobody listens in between, and at that address.
    fn is_plain(&self, url: &Url, host: &str, port: u16) -> Result<bool, Error> {
        match url.scheme() {
            "https" => Ok(false),
            "http" if !self.begins_plain => Err(failed(url, "an address with https leads to one with http")),
            "http" if is_loopback(host) || (self.is_named(host, port) && self.fetching.is_plain(host)) => Ok(true),
            "http" => Err(failed(url, "it would go over http, where everybody on the way can read and change it")),
            _ => Err(failed(url, "only https leads anywhere")),
        }
    }

    fn is_named(&self, host: &str, port: u16) -> bool {
        self.named.as_ref().is_some_and(|(named, at)| named == host && *at == port)
    }

    /// Connects to an address of the host that may be reached.
    async fn dial(&self, url: &Url, host: &str, port: u16, is_plain: bool) -> Result<Box<dyn Stream>, Error> {
        // A name may be made to lead anywhere; a written address or localhost is what it says.
        let is_typed = |address: IpAddr| {
            self.is_named(host, port) && (host.parse() == Ok(address) || (host == "localhost" && address.is_loopback()))
        };
        let may_reach = |address| self.fetching.may_reach(host, address) || is_typed(address);
        let tls = (!is_plain).then(|| Arc::clone(&self.tls));
        dial::connect(host, port, tls, may_reach).await.map_err(|error| match error {
            DialError::Prohibited(address) => Error::Private { host: host.to_owned(), address },
            DialError::Connect(error) => failed(url, format!("no connection: {error}")),
            DialError::Tls(error) => failed(url, format!("TLS: {error}")),
            other => failed(url, other.to_string()),
        })
    }
}

impl Response {
    /// Reads a whole body of at most `bytes_max` bytes; what announces itself as larger is not read at all.
    pub(super) async fn bytes(mut self, bytes_max: u64, progress: &Progress) -> Result<Vec<u8>, Error> {
        let too_large = || Error::TooLarge { what: shown(&self.url), bytes_max };
        let length = self.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > bytes_max) {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| {
                let expected = length.map_or_else(String::new, |length| format!(" of {length}"));
                failed(&self.url, format!("cut off after {}{expected} bytes: {}", bytes.len(), chain(&error)))
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() as u64 + data.len() as u64 > bytes_max {
                return Err(too_large());
            }
            bytes.extend_from_slice(&data);
            progress.tell(bytes.len() as u64, length.unwrap_or(bytes_max));
        }
        Ok(bytes)
    }

    /// A header as text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// Where an answer sends us.
pub(super) fn location(response: &Response) -> Result<Url, Error> {
    let text = response.headers.get(LOCATION).and_then(|location| location.to_str().ok());
    let text = text.ok_or_else(|| failed(&response.url, "it redirects without saying where"))?;
    response.url.join(text).map_err(|_| failed(&response.url, "it redirects to something that is no address"))
}

pub(super) fn failed(url: &Url, problem: impl Into<String>) -> Error {
    Error::Failed { what: shown(url), problem: problem.into() }
}

/// An address without what may be secret in it.
pub(super) fn shown(url: &Url) -> String {
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    format!("{}://{}{port}{}", url.scheme(), host_text(url), url.path())
}

fn host_text(url: &Url) -> String {
    url.host_str().unwrap_or_default().to_owned()
}

/// Host and port of an address.
fn place(url: &Url) -> Option<(String, u16)> {
    Some((normal_host(url.host_str()?), url.port_or_known_default()?))
}

/// Whether a host is this machine by what is written, whatever a name server says.
pub(super) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// The roots of the browsers, and those of the operator's files.
fn tls_config(fetching: &FetchOptions) -> Result<Arc<rustls::ClientConfig>, Error> {
    let mut roots = Vec::new();
    for path in &fetching.roots {
        let unusable =
            |why: String| Error::File(format!("{} holds no certificates that can be used: {why}", path.display()));
        let certificates = CertificateDer::pem_file_iter(path).map_err(|error| unusable(error.to_string()))?;
        let certificates: Result<Vec<_>, _> = certificates.collect();
        let certificates = certificates.map_err(|error| unusable(error.to_string()))?;
        // Alone first, so that a wrong one is said with its file.
        dial::tls_config(&certificates).map_err(|error| unusable(error.to_string()))?;
        roots.extend(certificates);
    }
    dial::tls_config(&roots).map_err(|error| Error::File(format!("TLS cannot be set up: {error}")))
}

/// An error with what caused it: hyper's own texts leave the reason to its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The task that moves a connection's bytes; it ends with the request that reads them.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A body whose length is known, in pieces.
struct Upload {
    rest: Bytes,
    bytes: u64,
    progress: Progress,
}

impl Body for Upload {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.rest.len().min(CHUNK_BYTES);
        let piece = self.rest.split_to(length);
        self.progress.tell(self.bytes - self.rest.len() as u64, self.bytes);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
