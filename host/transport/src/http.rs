//! The HTTP edge.
//!
//! Owns the socket, the connections, the routes and the health endpoints. Must not read a message. Invariant: a connection costs
//! a permit, time to send its headers and bytes for them, all of them bounded, before anything is done for it.

mod addresses;
mod body;
mod checks;
mod endpoint;
mod header_timeout;
mod post;
mod proxies;
mod stream;
mod tls;
mod workers;
mod write_timeout;

use std::collections::HashSet;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use http::{HeaderValue, Request, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use super::quota::EdgeQuota;
use super::refusal::Refusal;
use super::session::Registry;
pub use addresses::Addresses;
use bulkhead_audit::Audit;
use bulkhead_domain::clock::SharedClock;
use bulkhead_identity::auth::Authenticator;
use bulkhead_limits::failures::Failures;
use bulkhead_net::address::Network;
use bulkhead_protocol::Mcp;
pub use proxies::Proxies;

pub use tls::{Certificate, TlsError};
pub use workers::ConnectionWorkers;
use workers::WorkerPreference;

/// The path of the endpoint.
pub const ENDPOINT: &str = "/mcp";
/// Connections that the kernel holds while all permits are taken.
const BACKLOG_MAX: u32 = 1024;
/// Connections that are told that the host is going down; they hold nothing up.
const LATE_CONNECTIONS_MAX: usize = 64;
/// Accepting fails when descriptors run out; trying again at once would only burn the CPU.
const ACCEPT_RETRY_MS: u64 = 50;
/// How long a client may go without reading what it is sent: longer than any pause of a network that still works.
const WRITE_STALL_MS_MAX: u64 = 60_000;
/// One buffer of a connection; more would only help single large bodies.
const BUFFER_BYTES: usize = 128 * 1024;
/// hyper's own minimum.
const BUFFER_BYTES_MIN: usize = 8192;

/// `[server]`, as far as HTTP is concerned; the names and units are those of the configuration.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    pub allowed_hosts: Vec<String>,
    pub allowed_origins: Vec<String>,
    pub drain_ms: u64,
    pub connections_max: u32,
    pub connections_per_address: u32,
    pub header_bytes_max: usize,
    pub header_read_ms_max: u64,
    pub body_bytes_max: usize,
    pub sse_after_ms: u64,
    pub sse_keepalive_ms: u64,
    pub trusted_proxies: Vec<Network>,
    pub credential_failures_per_minute: u32,
}

/// Why nothing can be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error(
        "cannot listen on {0}: another process does already; stop it or choose another port with --listen (port 0 picks a free one)"
    )]
    InUse(SocketAddr),
    #[error(
        "refusing to listen on {0}, which other machines can reach, without authentication: create a token first \
         (bulkhead token create) or listen on 127.0.0.1"
    )]
    Open(SocketAddr),
    #[error("cannot listen on {address}: {source}")]
    Failed { address: SocketAddr, source: io::Error },
}

/// Opens the listening socket. Without authentication only loopback addresses are allowed.
pub fn bind(address: SocketAddr, authenticated: bool) -> Result<TcpListener, BindError> {
    if !authenticated && !address.ip().is_loopback() {
        return Err(BindError::Open(address));
    }
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A host that is started again must not wait for the connections of the former one to time out.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG_MAX)
    };
    listen().map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse(address),
        _ => BindError::Failed { address, source },
    })
}

/// Says why the host should get no traffic at the moment.
pub type Unready = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// What the edge serves with.
pub struct ServerParts {
    pub mcp: Arc<dyn Mcp>,
    pub sessions: Arc<Registry>,
    pub authenticator: Arc<Authenticator>,
    pub audit: Audit,
    pub quota: Arc<EdgeQuota>,
    pub unready: Unready,
    pub now: SharedClock,
    pub options: HttpOptions,
    /// Without one, HTTP is served in the clear.
    pub certificate: Option<Arc<Certificate>>,
    /// Without them, connections live on the runtime that serves.
    pub lanes: Option<Arc<ConnectionWorkers>>,
}

/// The edge.
pub struct Server {
    mcp: Arc<dyn Mcp>,
    sessions: Arc<Registry>,
    authenticator: Arc<Authenticator>,
    audit: Audit,
    quota: Arc<EdgeQuota>,
    unready: Unready,
    now: SharedClock,
    options: HttpOptions,
    /// Lower case, as they compare.
    hosts: HashSet<String>,
    proxies: Proxies,
    failures: Failures,
    addresses: Arc<Addresses>,
    certificate: Option<Arc<Certificate>>,
    lanes: Option<Arc<ConnectionWorkers>>,
    phase: watch::Sender<Phase>,
    /// What the phase says, for every request to see without a lock.
    draining: AtomicBool,
}

/// Where the edge is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    /// Open requests may finish; nothing new begins.
    Draining,
    /// Whatever is left is cut.
    Cut,
}

impl Server {
    pub fn new(parts: ServerParts) -> Arc<Self> {
        let ServerParts { mcp, sessions, authenticator, audit, quota, unready, now, options, certificate, lanes } =
            parts;
        let hosts = options.allowed_hosts.iter().map(|host| checks::one_spelling(host)).collect();
        let phase = watch::Sender::new(Phase::Serving);
        let failures = Failures::new(options.credential_failures_per_minute);
        let proxies = Proxies::new(options.trusted_proxies.clone(), certificate.is_some());
        let addresses = Addresses::new(options.connections_per_address, proxies.clone());
        Arc::new(Self {
            mcp,
            sessions,
            authenticator,
            audit,
            quota,
            unready,
            now,
            options,
            hosts,
            proxies,
            failures,
            addresses,
            certificate,
            lanes,
            phase,
            draining: AtomicBool::new(false),
        })
    }

    /// Accepts and serves until `shutdown` is done, then lets open requests finish for `drain_ms`.
    ///
    /// # Errors
    /// The certificate cannot be served with.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), rustls::Error> {
        let acceptor = self.certificate.as_ref().map(Certificate::acceptor).transpose()?;
        let edge = Edge { router: router(self.clone()), acceptor, server: Arc::clone(&self) };
        let permits = Arc::new(Semaphore::new(self.options.connections_max as usize));
        let connections = self.quota.count_connections(self.options.connections_max);
        let sweeper = tokio::spawn(self.clone().sweep());
        let certificate = self.certificate.clone();
        let renewer = certificate.map(|certificate| tokio::spawn(async move { certificate.watch().await }));
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                (stream, peer, permit) = accept(&listener, &permits) => {
                    // What is over its limit is closed here: its permit goes to the next one.
                    if let Some(place) = self.addresses.enter(peer) {
                        let (edge, counted) = (edge.clone(), connections.enter());
                        let serve = move |stream, seat| async move {
                            edge.connection(stream, (peer, seat), permit).await;
                            drop((place, counted));
                        };
                        match &self.lanes {
                            Some(lanes) => lanes.spawn(stream, serve),
                            None => drop(tokio::spawn(serve(stream, WorkerPreference::default()))),
                        }
                    }
                }
            }
        }
        self.draining.store(true, Ordering::Release);
        self.phase.send_replace(Phase::Draining);
        self.mcp.close();
        sweeper.abort();
        renewer.inspect(tokio::task::JoinHandle::abort);
        tokio::select! {
            () = self.finish(&permits) => {}
            () = answer_late(&listener, &edge) => {}
        }
        self.sessions.sweep().await;
        Ok(())
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Lets the connections that have a permit end, and cuts them when they take too long.
    async fn finish(&self, permits: &Semaphore) {
        let all = permits.acquire_many(self.options.connections_max);
        if tokio::time::timeout(Duration::from_millis(self.options.drain_ms), all).await.is_err() {
            self.phase.send_replace(Phase::Cut);
            let _ = permits.acquire_many(self.options.connections_max).await;
        }
    }

    async fn sweep(self: Arc<Self>) {
        let mut tick = tokio::time::interval(Duration::from_millis(self.sessions.sweep_ms()));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.sessions.sweep().await;
            self.quota.forget_idle();
            self.failures.forget_idle();
        }
    }
}

/// While others finish: tells probes and clients that the host is going down.
async fn answer_late(listener: &TcpListener, edge: &Edge) {
    let permits = Arc::new(Semaphore::new(LATE_CONNECTIONS_MAX));
    loop {
        let (stream, peer, permit) = accept(listener, &permits).await;
        tokio::spawn(edge.clone().connection(stream, (peer, WorkerPreference::default()), permit));
    }
}

/// What every connection is served with.
#[derive(Clone)]
struct Edge {
    server: Arc<Server>,
    router: Router,
    acceptor: Option<TlsAcceptor>,
}

impl Edge {
    async fn connection(self, stream: TcpStream, at: (IpAddr, WorkerPreference), permit: OwnedSemaphorePermit) {
        match &self.acceptor {
            None => self.requests(stream, at).await,
            Some(acceptor) => {
                let mut phase = self.server.phase.subscribe();
                let patience = Duration::from_millis(self.server.options.header_read_ms_max);
                let shaken = tokio::select! {
                    shaken = tokio::time::timeout(patience, acceptor.accept(stream)) => shaken,
                    _ = phase.wait_for(|phase| *phase == Phase::Cut) => return,
                };
                // Whoever shakes no hands in time, or not ours, gets nothing.
                if let Ok(Ok(stream)) = shaken {
                    self.requests(stream, at).await;
                }
            }
        }
        drop(permit);
    }

    async fn requests<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        (peer, seat): (IpAddr, WorkerPreference),
    ) {
        let options = &self.server.options;
        let mut phase = self.server.phase.subscribe();
        let mut http = http1::Builder::new();
        http.keep_alive(*phase.borrow_and_update() == Phase::Serving)
            .timer(header_timeout::HeaderTimeout::default())
            .header_read_timeout(Duration::from_millis(options.header_read_ms_max))
            // Most answers are small: one copy costs less than a write in pieces.
            .writev(false)
            .max_header_size(options.header_bytes_max)
            .max_buf_size(BUFFER_BYTES.max(options.header_bytes_max).max(BUFFER_BYTES_MIN));
        let stream = TokioIo::new(write_timeout::Stalling::new(stream, Duration::from_millis(WRITE_STALL_MS_MAX)));
        // Of this connection alone: what all connections count up and down with each request slows all of them.
        let own = Arc::new((self.server.clone(), TowerToHyperService::new(self.router.clone()), seat));
        let serve = service_fn(move |request: Request<Incoming>| {
            let own = Arc::clone(&own);
            async move {
                let (server, router, seat) = &*own;
                let in_chunks = request.headers().contains_key(header::TRANSFER_ENCODING);
                // Nearly every request: the way through the router would be a tenth of what the edge costs.
                let response = if request.uri().path() == ENDPOINT {
                    Ok(endpoint::endpoint(server, request.map(Body::new), (peer, seat)).await)
                } else {
                    router.call(request).await
                };
                response.map(|response| if in_chunks { last_of_its_connection(response) } else { response })
            }
        });
        let mut connection = pin!(http.serve_connection(stream, serve));
        // What ends a connection is the client's doing: nothing that an operator could act on.
        while until_changed(connection.as_mut(), &mut phase).await {
            match *phase.borrow_and_update() {
                Phase::Serving => {}
                Phase::Draining => connection.as_mut().graceful_shutdown(),
                Phase::Cut => break,
            }
        }
    }
}

/// Drives a connection until it ends (`false`) or there is another phase (`true`).
async fn until_changed(mut connection: Pin<&mut impl Future>, phase: &mut watch::Receiver<Phase>) -> bool {
    let look = phase.clone();
    let mut changed = pin!(phase.changed());
    let mut told: Option<Waker> = None;
    poll_fn(|cx| {
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(false);
        }
        // To ask takes a lock that all connections share, and every request comes by here; who has asked is woken.
        let is_told = told.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if is_told && matches!(look.has_changed(), Ok(false)) {
            return Poll::Pending;
        }
        told = Some(cx.waker().clone());
        changed.as_mut().poll(cx).map(|_| true)
    })
    .await
}

/// A request whose body comes in chunks is the last one of its connection. A `Content-Length` that stood beside them was dropped before
/// this host could see it, and who believed that one (a proxy) would find the next request elsewhere: so nothing may follow
/// (RFC 9112 section 6.3).
fn last_of_its_connection(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The next connection. It takes its permit first: what has none waits in the kernel and costs nothing here.
async fn accept(listener: &TcpListener, permits: &Arc<Semaphore>) -> (TcpStream, IpAddr, OwnedSemaphorePermit) {
    let Ok(permit) = permits.clone().acquire_owned().await else {
        // The semaphore is never closed.
        return std::future::pending().await;
    };
    loop {
        match poll_fn(|cx| listener.poll_accept(cx)).await {
            Ok((stream, peer)) => {
                // Without this every event costs the 40 ms of a delayed acknowledgement. It fails only on a socket that is gone.
                let _ = stream.set_nodelay(true);
                return (stream, peer.ip(), permit);
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await;
            }
        }
    }
}

/// Everything beside the endpoint.
fn router(server: Arc<Server>) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/.well-known/{*path}", get(metadata))
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(server)
}

/// Alive: the process answers. No credentials and no Host check, since probes have neither.
async fn healthz() -> Response {
    json_response(StatusCode::OK, r#"{"status":"ok"}"#.to_owned())
}

/// Ready: the host can take new work.
async fn readyz(State(server): State<Arc<Server>>) -> Response {
    let draining = server.is_draining().then(|| "draining".to_owned());
    match draining.or_else(|| (server.unready)()) {
        None => json_response(StatusCode::OK, r#"{"status":"ready"}"#.to_owned()),
        Some(reason) => {
            let body = serde_json::json!({ "status": "unready", "reason": reason });
            json_response(StatusCode::SERVICE_UNAVAILABLE, body.to_string())
        }
    }
}

/// What clients without a token need to know. Public, and the same for every Host and Origin.
async fn metadata(State(server): State<Arc<Server>>, uri: http::Uri) -> Response {
    let resource = server.authenticator.resource();
    let Some(document) = resource.as_ref().and_then(|resource| resource.document_at(uri.path())) else {
        return unknown_path().await;
    };
    let mut response = json_response(StatusCode::OK, document.to_owned());
    response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}

async fn unknown_path() -> Response {
    refuse(&Refusal::new(StatusCode::NOT_FOUND, "There is nothing at this path: the MCP endpoint is /mcp"))
}

async fn method_not_allowed() -> Response {
    refuse(&Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "This path answers GET only"))
}

fn refuse(refusal: &Refusal) -> Response {
    refusal.response()
}

fn json_response(status: StatusCode, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod unit {
    use super::*;

    #[tokio::test]
    async fn accepted_connection_has_nodelay() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _, _permit) = accept(&listener, &Arc::new(Semaphore::new(1))).await;
        assert!(stream.nodelay().unwrap());
    }
}
