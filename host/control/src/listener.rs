//! A listener for operators: administrators, scrapers of metrics, browsers of the dashboard.
//!
//! Owns how their connections are accepted and bounded. Must not know a credential, nor what is answered. Invariant: a connection costs a
//! permit and bounded time and bytes before anything is done for it.

use std::convert::Infallible;
use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use tokio::net::TcpListener;
use tokio::sync::watch;

use bulkhead_net::AbortOnDrop;
use bulkhead_net::server::{Certificate, HttpServer, HttpServerOptions, Phase, Proxies};

/// For a handshake and for headers.
const ARRIVAL: Duration = Duration::from_secs(10);
/// The headers of one request to a listener for operators, in bytes.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// Wrong credentials at one listener for operators from one address.
pub const FAILURES_PER_MINUTE_MAX: u32 = 10;
/// How often what is idle is forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(60);

/// What answers the requests of a listener.
pub trait Responder: Send + Sync + 'static {
    /// What answers consist of.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// The answer to a request from this address.
    fn respond(&self, request: Request<Incoming>, peer: IpAddr) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Lets go of what has not been used for a while, such as addresses without failures. Called once a minute.
    fn forget_idle(&self);
}

/// Bounds of the connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionBounds {
    /// At a time; more wait in the kernel.
    pub total: u32,
    pub per_address: u32,
    /// How long one lasts; `None`: as long as its client likes.
    pub lifetime: Option<Duration>,
}

/// The listener. Dropping it ends it with its connections.
pub struct OperatorListener {
    _tasks: [AbortOnDrop<()>; 2],
}

impl OperatorListener {
    /// Serves; without a certificate in the clear.
    ///
    /// # Errors
    /// The certificate cannot be served with.
    pub fn spawn(
        listener: TcpListener,
        certificate: Option<Arc<Certificate>>,
        bounds: ConnectionBounds,
        responder: impl Responder,
    ) -> Result<Self, rustls::Error> {
        let options = HttpServerOptions {
            certificate,
            workers: None,
            proxies: Proxies::default(),
            connections_max: bounds.total,
            connections_per_address: bounds.per_address,
            header_bytes_max: HEADER_BYTES_MAX,
            buffer_bytes: HEADER_BYTES_MAX,
            header_read_max: ARRIVAL,
            connection_max: bounds.lifetime,
        };
        let responder = Arc::new(responder);
        let answering = Arc::clone(&responder);
        let connect = move |peer: IpAddr, _| {
            let (responder, peer) = (Arc::clone(&answering), peer.to_canonical());
            service_fn(move |request| {
                let responder = Arc::clone(&responder);
                async move { Ok::<_, Infallible>(responder.respond(request, peer).await) }
            })
        };
        let server = HttpServer::new(listener, watch::Sender::new(Phase::Serving), options, connect)?;
        let serving = async move { server.serve_until(std::future::pending()).await };
        let forgetting = async move {
            let mut tick = tokio::time::interval(FORGET_EVERY);
            loop {
                tick.tick().await;
                responder.forget_idle();
            }
        };
        Ok(Self { _tasks: [AbortOnDrop::spawn(serving), AbortOnDrop::spawn(forgetting)] })
    }
}
