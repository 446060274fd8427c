//! The HTTP edge.
//!
//! Owns the socket, the routes, the health endpoints, and what happens when the host goes down; connections are
//! [`bulkhead_net::server`]'s. Must not read a message. Invariant: what arrives costs what that module says before
//! anything is done for it here.

mod body;
mod checks;
mod endpoint;
mod post;
mod stream;

use std::collections::HashSet;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use http::{HeaderValue, Request, StatusCode, header};
use hyper::service::{Service as _, service_fn};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;

use super::quota::EdgeQuota;
use super::refusal::Refusal;
use super::session::Registry;
use bulkhead_audit::Audit;
use bulkhead_domain::clock::SharedClock;
use bulkhead_identity::auth::Authenticator;
use bulkhead_limits::failures::Failures;
use bulkhead_net::AbortOnDrop;
use bulkhead_net::address::Network;
use bulkhead_net::server::{
    Certificate, ConnectionWorkers, HttpServer, HttpServerOptions, Phase, Proxies, RequestBody,
};
use bulkhead_protocol::Mcp;

/// The path of the endpoint.
pub const ENDPOINT: &str = "/mcp";
/// Connections that the kernel holds while all permits are taken.
const BACKLOG_MAX: u32 = 1024;
/// One buffer of a connection; more would only help single large bodies.
const BUFFER_BYTES: usize = 128 * 1024;

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
pub type Unready = Box<dyn Fn() -> Option<&'static str> + Send + Sync>;

/// Says why the host should be started again.
pub type Unhealthy = Box<dyn Fn() -> Option<&'static str> + Send + Sync>;

/// What the edge serves with.
pub struct ServerParts {
    pub mcp: Arc<dyn Mcp>,
    pub sessions: Arc<Registry>,
    pub authenticator: Arc<Authenticator>,
    pub audit: Audit,
    pub quota: Arc<EdgeQuota>,
    pub unready: Unready,
    pub unhealthy: Unhealthy,
    pub now: SharedClock,
    pub options: HttpOptions,
    /// Without one, HTTP is served in the clear.
    pub certificate: Option<Arc<Certificate>>,
    /// Without them, connections live on the runtime that serves.
    pub workers: Option<Arc<ConnectionWorkers>>,
}

/// The edge.
pub struct Server {
    mcp: Arc<dyn Mcp>,
    sessions: Arc<Registry>,
    authenticator: Arc<Authenticator>,
    audit: Audit,
    quota: Arc<EdgeQuota>,
    unready: Unready,
    unhealthy: Unhealthy,
    now: SharedClock,
    options: HttpOptions,
    /// Lower case, as they compare.
    hosts: HashSet<String>,
    proxies: Proxies,
    failures: Failures,
    certificate: Option<Arc<Certificate>>,
    workers: Option<Arc<ConnectionWorkers>>,
    phase: watch::Sender<Phase>,
    /// What the phase says, for every request to see without a lock.
    draining: AtomicBool,
}

impl Server {
    pub fn new(parts: ServerParts) -> Arc<Self> {
        let ServerParts {
            mcp,
            sessions,
            authenticator,
            audit,
            quota,
            unready,
            unhealthy,
            now,
            options,
            certificate,
            workers,
        } = parts;
        let hosts = options.allowed_hosts.iter().map(|host| checks::one_spelling(host)).collect();
        let phase = watch::Sender::new(Phase::Serving);
        let failures = Failures::new(options.credential_failures_per_minute);
        let proxies = Proxies::new(options.trusted_proxies.clone(), certificate.is_some());
        Arc::new(Self {
            mcp,
            sessions,
            authenticator,
            audit,
            quota,
            unready,
            unhealthy,
            now,
            options,
            hosts,
            proxies,
            failures,
            certificate,
            workers,
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
        let options = HttpServerOptions {
            certificate: self.certificate.clone(),
            workers: self.workers.clone(),
            proxies: self.proxies.clone(),
            connections_max: self.options.connections_max,
            connections_per_address: self.options.connections_per_address,
            header_bytes_max: self.options.header_bytes_max,
            buffer_bytes: BUFFER_BYTES.max(self.options.header_bytes_max),
            header_read_max: Duration::from_millis(self.options.header_read_ms_max),
            connection_max: None,
        };
        let server = Arc::clone(&self);
        let router = router(self.clone());
        let connections = self.quota.count_connections(self.options.connections_max);
        let connect = move |peer, preference| {
            // Those that are told that the host is going down are no part of the limit.
            let counted = (!server.is_draining()).then(|| connections.enter());
            // Of this connection alone: what all connections count up and down with each request slows all of them.
            let own = Arc::new((server.clone(), TowerToHyperService::new(router.clone()), preference, counted));
            service_fn(move |request: Request<RequestBody>| {
                let own = Arc::clone(&own);
                async move {
                    let (server, router, preference, _) = &*own;
                    let in_chunks = request.headers().contains_key(header::TRANSFER_ENCODING);
                    // Here for good: it is large, and each move of it would copy it.
                    let answering = pin!(async {
                        // Nearly every request: the way through the router would be a tenth of what the edge costs.
                        if request.uri().path() == ENDPOINT {
                            Ok(endpoint::endpoint(server, request.map(Body::new), peer, preference).await)
                        } else {
                            router.call(request).await
                        }
                    });
                    let response = server.answered_in_time(answering).await;
                    response.map(|response| if in_chunks { last_of_its_connection(response) } else { response })
                }
            })
        };
        let http = HttpServer::new(listener, self.phase.clone(), options, connect)?;
        let sweeper = AbortOnDrop::spawn(self.clone().sweep());
        http.serve_until(shutdown).await;
        self.draining.store(true, Ordering::Release);
        self.mcp.close();
        drop(sweeper);
        http.finish(Duration::from_millis(self.options.drain_ms)).await;
        self.sessions.sweep().await;
        Ok(())
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Refuses what has no answer when the host is about to cut its connection: who waits for its body, a turn or a
    /// verifier. A connection polls its request when the phase changes.
    async fn answered_in_time<E>(
        &self,
        mut answering: Pin<&mut impl Future<Output = Result<Response, E>>>,
    ) -> Result<Response, E> {
        poll_fn(|cx| match answering.as_mut().poll(cx) {
            Poll::Pending if self.is_draining() && *self.phase.borrow() >= Phase::Refusing => {
                Poll::Ready(Ok(refuse(&Refusal::draining())))
            }
            polled => polled,
        })
        .await
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

/// A request whose body comes in chunks is the last one of its connection. A `Content-Length` that stood beside them
/// was dropped before this host could see it, and who believed that one (a proxy) would find the next request
/// elsewhere: so nothing may follow (RFC 9112 section 6.3).
fn last_of_its_connection(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
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

/// Alive: the process answers, and guests can run. No credentials and no Host check, since probes have neither.
async fn healthz(State(server): State<Arc<Server>>) -> Response {
    match (server.unhealthy)() {
        None => json_response(StatusCode::OK, r#"{"status":"ok"}"#.to_owned()),
        Some(reason) => unavailable("unhealthy", reason),
    }
}

/// Ready: the host can take new work.
async fn readyz(State(server): State<Arc<Server>>) -> Response {
    let draining = server.is_draining().then_some("draining");
    match draining.or_else(|| (server.unready)()) {
        None => json_response(StatusCode::OK, r#"{"status":"ready"}"#.to_owned()),
        Some(reason) => unavailable("unready", reason),
    }
}

/// What a probe is told of a host that is not as it should be.
fn unavailable(status: &str, reason: &str) -> Response {
    let body = serde_json::json!({ "status": status, "reason": reason });
    json_response(StatusCode::SERVICE_UNAVAILABLE, body.to_string())
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
