//! HTTP requests of the host's own: to issuers, registries, servers of components and other hosts.
//!
//! Owns which hop may be made, redirects, and the bounds of connecting, headers and bodies; the way to an address is
//! [`dial`]'s. Must not know what is fetched. Invariant: every hop is checked anew, so no redirect reaches what the
//! first address could not; without [`Client::plain`] nothing goes out without TLS; no redirect takes a credential
//! along, not even to the same host: what it leads to needs none, or refuses one that it did not ask for.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT,
};
use http::{Method, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use url::{Position, Url};

use crate::AbortOnDrop;
use crate::address::{Network, is_public, is_this_machine, normal_host};
use crate::dial::{self, DialError};

/// Resolving, connecting and shaking hands, of one hop.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Bytes of a response's headers.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Bytes that are handed to a connection at once, so that progress shows.
const CHUNK_BYTES: usize = 256 << 10;
const AGENT: HeaderValue = HeaderValue::from_static(concat!("bulkhead/", env!("CARGO_PKG_VERSION")));

/// Why a text is no URL that the host sends requests to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an https:// address (http:// is for this machine only), without user and fragment")]
pub struct NotAUrl(String);

/// Reads the URL of a server that an operator, or an issuer, names.
///
/// # Errors
/// [`NotAUrl`].
pub fn parse_server_url(text: &str) -> Result<Url, NotAUrl> {
    let wrong = || NotAUrl(text.to_owned());
    // `Url` repairs much of what is wrong, and the text is compared as it was written.
    let strict: http::Uri = text.parse().map_err(|_| wrong())?;
    let authority = strict.scheme().and_then(|_| strict.authority());
    let is_written_out =
        authority.is_some_and(|authority| !authority.as_str().contains('@') && !authority.host().is_empty());
    let url = Url::parse(text).map_err(|_| wrong())?;
    let is_safe = match url.scheme() {
        "https" => true,
        "http" => is_this_machine(&normal_host(url.host_str().unwrap_or_default())),
        _ => false,
    };
    if is_written_out && is_safe && url.fragment().is_none() { Ok(url) } else { Err(wrong()) }
}

/// The receiver of progress (bytes so far, bytes in all), if there is one.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<dyn Fn(u64, u64) + Send + Sync>>);

impl Progress {
    pub fn new(report: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(report)))
    }

    fn tell(&self, done: u64, of: u64) {
        if let Some(report) = &self.0 {
            report(done, of);
        }
    }
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Progress").field(&self.0.is_some()).finish()
    }
}

/// Why a request brought nothing, and the hop that failed.
#[derive(Debug, thiserror::Error)]
#[error("{failure}")]
pub struct ClientError {
    /// In a box, so that what may fail stays small.
    pub url: Box<Url>,
    #[source]
    pub failure: Failure,
}

/// Why a hop failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{0}")]
    Refused(&'static str),
    #[error("no connection within {} s", .0.as_secs())]
    NoConnection(Duration),
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("the exchange broke: {0}")]
    Broken(#[from] hyper::Error),
    /// The body ended early, after so many bytes of those that were announced.
    #[error("the exchange broke: {error}")]
    CutOff { bytes: usize, announced: Option<u64>, error: hyper::Error },
    #[error("there was no answer within {0} ms")]
    Late(u64),
    #[error("the answer is larger than {0} bytes")]
    TooLarge(u64),
    #[error("it was redirected more than {0} times")]
    Redirected(usize),
}

impl Failure {
    fn at(self, url: &Url) -> ClientError {
        ClientError { url: Box::new(url.clone()), failure: self }
    }
}

/// Where requests may go. A [new](Client::new) one reaches public addresses with TLS, and follows no redirect.
#[derive(Clone)]
pub struct Client {
    pub tls: Arc<rustls::ClientConfig>,
    /// Addresses that are not public and may be reached all the same.
    pub networks: Vec<Network>,
    /// [Normal](normal_host) names of hosts that may be at any address.
    pub hosts: Vec<String>,
    /// What the operator typed: at exactly this host and port an address of the operator's own machine or network is
    /// meant.
    pub typed: Option<(String, u16)>,
    /// Whether no TLS is needed to this machine, where nobody listens in between, and to what the operator typed.
    pub plain: bool,
    /// Redirects of one request. Stops servers that send each other in circles.
    pub redirects_max: usize,
    /// Resolving, connecting and shaking hands, of one hop.
    pub connect_max: Duration,
}

/// One request.
pub struct Request {
    pub method: Method,
    pub url: Url,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub authorization: Option<HeaderValue>,
    pub body: Bytes,
    pub progress: Progress,
}

impl Request {
    pub fn new(method: Method, url: Url) -> Self {
        let headers = Vec::new();
        let body = Bytes::new();
        Self { method, url, headers, authorization: None, body, progress: Progress::default() }
    }
}

/// The head of an answer, with the connection that its body comes over.
pub struct Response {
    /// Who answered, redirects followed.
    pub url: Url,
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: hyper::body::Incoming,
    _connection: AbortOnDrop<()>,
}

impl Client {
    pub fn new(tls: Arc<rustls::ClientConfig>) -> Self {
        let networks = Vec::new();
        let hosts = Vec::new();
        Self { tls, networks, hosts, typed: None, plain: false, redirects_max: 0, connect_max: CONNECT_MAX }
    }

    /// Asks for a small document in JSON. The deadline is for the whole exchange, from the name to the last byte.
    ///
    /// # Errors
    /// [`ClientError`]; a status of the server is none.
    pub async fn fetch_document(
        &self,
        mut request: Request,
        ms_max: u64,
        bytes_max: u64,
    ) -> Result<(StatusCode, Vec<u8>), ClientError> {
        let url = request.url.clone();
        request.headers.push((ACCEPT, HeaderValue::from_static("application/json")));
        let exchange = async {
            let response = self.send(request).await?;
            Ok((response.status, response.bytes(bytes_max, &Progress::default()).await?))
        };
        let answer = timeout(Duration::from_millis(ms_max), exchange).await;
        answer.unwrap_or_else(|_| Err(Failure::Late(ms_max).at(&url)))
    }

    /// Sends a request, and a GET or HEAD to wherever its answer leads.
    ///
    /// # Errors
    /// As [`fetch_document`](Self::fetch_document); only connecting has a deadline.
    pub async fn send(&self, request: Request) -> Result<Response, ClientError> {
        let Request { method, mut url, headers, mut authorization, body, progress } = request;
        let follows = self.redirects_max > 0 && (method == Method::GET || method == Method::HEAD);
        for _ in 0..=self.redirects_max {
            let mut wire =
                http::Request::new(Upload { rest: body.clone(), bytes: body.len() as u64, progress: progress.clone() });
            *wire.method_mut() = method.clone();
            wire.headers_mut().extend(headers.iter().cloned());
            // To the address that it is for, and to none after it.
            if let Some(authorization) = authorization.take() {
                wire.headers_mut().insert(AUTHORIZATION, authorization);
            }
            let response = self.send_once(&url, wire).await.map_err(|failure| failure.at(&url))?;
            let is_redirect = matches!(response.status.as_u16(), 301 | 302 | 303 | 307 | 308);
            if !(follows && is_redirect) {
                return Ok(response);
            }
            url = response.location()?;
        }
        Err(Failure::Redirected(self.redirects_max).at(&url))
    }

    async fn send_once(&self, url: &Url, mut request: http::Request<Upload>) -> Result<Response, Failure> {
        let (host, port) = place(url).ok_or(Failure::Refused("it has no host"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Failure::Refused("it holds a name or a password"));
        }
        let is_typed = self.typed.as_ref().is_some_and(|(typed, at)| *typed == host && *at == port);
        let tls = match url.scheme() {
            "https" => Some(Arc::clone(&self.tls)),
            "http" if !self.plain => return Err(Failure::Refused("an address with https leads to one with http")),
            "http" if is_typed || is_this_machine(&host) => None,
            "http" => {
                let open = "it would go over http, where everybody on the way can read and change it";
                return Err(Failure::Refused(open));
            }
            _ => return Err(Failure::Refused("only https leads anywhere")),
        };
        let authority = HeaderValue::from_str(&url[Position::BeforeHost..Position::AfterPort]);
        request.headers_mut().insert(HOST, authority.map_err(|_| Failure::Refused("its host is not valid"))?);
        request.headers_mut().insert(USER_AGENT, AGENT);
        let path = url[Position::BeforePath..Position::AfterQuery].parse();
        *request.uri_mut() = path.map_err(|_| Failure::Refused("its path is not valid"))?;

        // A name may be made to lead anywhere; a written address or localhost is what it says.
        let mut networks = if is_typed { Network::written(&host) } else { Vec::new() };
        networks.extend(&self.networks);
        let is_known = self.hosts.contains(&host);
        let may_reach = |address: IpAddr| {
            is_public(address) || is_known || networks.iter().any(|network| network.contains(address))
        };
        let slow = |_| Failure::NoConnection(self.connect_max);
        let stream = timeout(self.connect_max, dial::connect(&host, port, tls, may_reach)).await.map_err(slow)??;
        let handshake = http1::Builder::new().max_buf_size(HEADER_BYTES_MAX).handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await?;
        let connection = AbortOnDrop::spawn(async move {
            // The body, or the missing response, says what went wrong.
            let _ = connection.await;
        });
        let (head, body) = sender.send_request(request).await?.into_parts();
        Ok(Response { url: url.clone(), status: head.status, headers: head.headers, body, _connection: connection })
    }
}

impl Response {
    /// Reads a whole body of at most `bytes_max` bytes; what announces itself as larger is not read at all.
    ///
    /// # Errors
    /// It is larger, or breaks off.
    pub async fn bytes(mut self, bytes_max: u64, progress: &Progress) -> Result<Vec<u8>, ClientError> {
        let announced = self.header(CONTENT_LENGTH.as_str()).and_then(|length| length.parse::<u64>().ok());
        if announced.is_some_and(|length| length > bytes_max) {
            return Err(Failure::TooLarge(bytes_max).at(&self.url));
        }
        let mut bytes = Vec::new();
        while let Some(frame) = self.body.frame().await {
            let frame =
                frame.map_err(|error| Failure::CutOff { bytes: bytes.len(), announced, error }.at(&self.url))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() as u64 + data.len() as u64 > bytes_max {
                return Err(Failure::TooLarge(bytes_max).at(&self.url));
            }
            bytes.extend_from_slice(&data);
            progress.tell(bytes.len() as u64, announced.unwrap_or(bytes_max));
        }
        Ok(bytes)
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Where the answer leads.
    ///
    /// # Errors
    /// It does not say, or nothing that is an address.
    pub fn location(&self) -> Result<Url, ClientError> {
        let refused = |why| Failure::Refused(why).at(&self.url);
        let text = self.header(LOCATION.as_str()).ok_or_else(|| refused("it redirects without saying where"))?;
        self.url.join(text).map_err(|_| refused("it redirects to something that is no address"))
    }
}

/// Host and port of a URL.
pub fn place(url: &Url) -> Option<(String, u16)> {
    Some((normal_host(url.host_str()?), url.port_or_known_default()?))
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn server_url_needs_scheme_and_host_without_credentials() {
        for good in ["https://Login.example.com:8443/a/b/?x=1", "https://login.example.com", "http://127.0.0.1:9"] {
            assert!(parse_server_url(good).is_ok(), "{good}");
        }
        for bad in [
            "http://example.com",
            "ftp://example.com",
            "https://u:p@example.com",
            "https://@example.com",
            "https://a/#b",
            "https://a/#",
            "https:///a",
            "https:a",
            " https://a",
            "https://a\\b",
            "/x",
            "",
            "https://",
        ] {
            assert!(parse_server_url(bad).is_err(), "{bad}");
        }
    }

    /// Answers each connection with the next text; returns its port and what it was asked.
    async fn server(answers: Vec<String>) -> (u16, tokio::task::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = tokio::spawn(async move {
            let mut seen = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = vec![0; 4096];
                let length = stream.read(&mut head).await.unwrap();
                seen.push(String::from_utf8_lossy(&head[..length]).into_owned());
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            seen
        });
        (port, seen)
    }

    fn redirect(to: &str) -> String {
        format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n")
    }

    fn body(text: &str) -> String {
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len())
    }

    fn client(port: u16) -> Client {
        let typed = Some(("127.0.0.1".to_owned(), port));
        Client { typed, plain: true, redirects_max: 2, ..Client::new(dial::tls_config(&[]).unwrap()) }
    }

    fn get(port: u16) -> Request {
        Request::new(Method::GET, format!("http://127.0.0.1:{port}/x").parse().unwrap())
    }

    async fn refused(client: &Client, port: u16) -> String {
        client.fetch_document(get(port), 20_000, 8).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn redirects_are_checked_like_the_first_address() {
        for (to, why) in [
            ("http://127.0.0.1:9/", "leads to no address that may be reached"),
            ("http://localhost:9/", "leads to no address that may be reached"),
            ("https://169.254.169.254/", "leads to no address that may be reached"),
            ("https://[::ffff:10.0.0.1]/", "leads to no address that may be reached"),
            ("http://example.com/", "it would go over http"),
            ("ftp://example.com/", "only https leads anywhere"),
            ("https://u@example.com/", "it holds a name or a password"),
        ] {
            let (port, seen) = server(vec![redirect(to)]).await;
            let found = refused(&client(port), port).await;
            assert!(found.contains(why), "{to}: {found}");
            seen.await.unwrap();
        }
        let (port, _seen) = server(vec![redirect("/y"); 3]).await;
        assert_eq!(refused(&client(port), port).await, "it was redirected more than 2 times");
        let strict = Client::new(dial::tls_config(&[]).unwrap());
        assert!(refused(&strict, port).await.contains("https leads to one with http"));
        let untyped = Client { plain: true, ..strict };
        assert!(refused(&untyped, port).await.contains("no address that may be reached"));
    }

    #[tokio::test]
    async fn credential_is_not_sent_to_redirect_target() {
        let (target, seen_there) = server(vec![body("there")]).await;
        let (port, seen) = server(vec![redirect(&format!("http://127.0.0.1:{target}/y"))]).await;
        let networks = Network::loopback().to_vec();
        let client = Client { networks, ..client(port) };
        let request = Request { authorization: Some(HeaderValue::from_static("Basic x")), ..get(port) };
        let (status, document) = client.fetch_document(request, 20_000, 8).await.unwrap();
        assert_eq!((status, document.as_slice()), (StatusCode::OK, b"there".as_slice()));
        assert!(seen.await.unwrap()[0].contains("authorization: Basic x"));
        let asked = seen_there.await.unwrap();
        assert!(asked[0].starts_with("GET /y HTTP/1.1") && !asked[0].contains("authorization"), "{asked:?}");
    }

    #[tokio::test]
    async fn credential_is_not_sent_along_a_redirect_on_the_same_host() {
        for credential in ["Basic x", "Bearer x"] {
            let (port, seen) = server(vec![redirect("/y"), redirect("/z"), body("there")]).await;
            let request = Request { authorization: Some(HeaderValue::from_static(credential)), ..get(port) };
            let (status, document) = client(port).fetch_document(request, 20_000, 8).await.unwrap();
            assert_eq!((status, document.as_slice()), (StatusCode::OK, b"there".as_slice()));
            let seen = seen.await.unwrap();
            let with_credential: Vec<_> =
                seen.iter().map(|asked| asked.contains(&format!("authorization: {credential}"))).collect();
            assert_eq!(with_credential, [true, false, false], "{seen:?}");
            assert!(!seen[1..].concat().contains("authorization"), "{seen:?}");
        }
    }

    #[tokio::test]
    async fn documents_are_bounded_in_bytes_and_time() {
        let (port, _) = server(vec![body("123456789")]).await;
        assert_eq!(refused(&client(port), port).await, "the answer is larger than 8 bytes");
        let unannounced = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n123456789".to_owned();
        let (port, _) = server(vec![unannounced]).await;
        assert_eq!(refused(&client(port), port).await, "the answer is larger than 8 bytes");
        let (port, _) = server(vec!["HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n123".to_owned()]).await;
        assert!(refused(&client(port), port).await.starts_with("the exchange broke: "));
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = silent.local_addr().unwrap().port();
        let late = client(port).fetch_document(get(port), 50, 8).await.unwrap_err();
        assert_eq!(late.to_string(), "there was no answer within 50 ms");
    }
}
