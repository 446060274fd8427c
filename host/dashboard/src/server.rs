//! The listener of the dashboard.
//!
//! Owns its connections and their bounds. Must not know a page. Invariant: a connection costs a permit and bounded time and bytes before
//! anything is done for it.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_audit::Audit;
use bulkhead_control::Operator;
use bulkhead_control::remote::AdminTokenDigest;
use bulkhead_domain::clock::SharedClock;
use bulkhead_domain::requestor::Requestor;
use bulkhead_identity::auth::Authenticator;
use bulkhead_limits::Permit;
use bulkhead_limits::failures::Failures;
use bulkhead_net::AbortOnDrop;
use bulkhead_net::server::{Certificate, HttpServer, HttpServerOptions, Phase, Proxies};
use bulkhead_tasks::{Error, Tasks};
use hyper::service::service_fn;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::codes::LoginCodes;
use crate::request::Site;
use crate::routes::Routes;
use crate::sessions::Sessions;

/// Connections of browsers at a time; more wait in the kernel.
const CONNECTIONS_MAX: u32 = 256;
/// Connections of browsers from one address; a browser opens six.
const CONNECTIONS_PER_ADDRESS_MAX: u32 = 32;
/// For a handshake and for headers.
const ARRIVAL: Duration = Duration::from_secs(10);
/// A whole connection. Stops those who keep the few that there are.
const CONNECTION: Duration = Duration::from_secs(300);
/// The headers of one request of a browser, in bytes.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// Wrong credentials at the dashboard from one address.
const FAILURES_PER_MINUTE_MAX: u32 = 10;
/// How often sessions that are over and addresses without failures are forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(60);

/// Charges a requestor for one request: from its rate, and a place among its open requests.
pub type AdmitRequest = Box<dyn Fn(&Requestor) -> Result<Permit, Error> + Send + Sync>;

/// What the dashboard works with.
pub struct DashboardParts {
    /// Without one, pages come in the clear: on this machine only.
    pub certificate: Option<Arc<Certificate>>,
    /// Names that it answers to besides those of this machine.
    pub allowed_hosts: Vec<String>,
    /// Of administrators, if they have one.
    pub admin_token: Option<AdminTokenDigest>,
    pub codes: Arc<LoginCodes>,
    pub operator: Arc<dyn Operator>,
    pub tasks: Tasks,
    pub authenticator: Arc<Authenticator>,
    pub admit: AdmitRequest,
    pub audit: Audit,
    pub clock: SharedClock,
}

/// The dashboard. Dropping it ends it with its connections and sessions.
pub struct Dashboard {
    _tasks: [AbortOnDrop<()>; 2],
}

impl Dashboard {
    /// # Errors
    /// The certificate cannot be served with, or there is no randomness.
    pub fn spawn(listener: TcpListener, parts: DashboardParts) -> io::Result<Self> {
        let port = listener.local_addr()?.port();
        let certificate = parts.certificate.clone();
        let site = Site::new(certificate.is_some(), port, &parts.allowed_hosts);
        let mut login_key = [0; 32];
        getrandom::fill(&mut login_key).map_err(io::Error::other)?;
        let sessions = Sessions::new(Arc::clone(&parts.clock));
        let failures = Failures::new(FAILURES_PER_MINUTE_MAX);
        let routes = Arc::new(Routes { parts, site, sessions, failures, login_key });
        let options = HttpServerOptions {
            certificate,
            workers: None,
            proxies: Proxies::default(),
            connections_max: CONNECTIONS_MAX,
            connections_per_address: CONNECTIONS_PER_ADDRESS_MAX,
            header_bytes_max: HEADER_BYTES_MAX,
            buffer_bytes: HEADER_BYTES_MAX,
            header_read_max: ARRIVAL,
            connection_max: Some(CONNECTION),
        };
        let answering = Arc::clone(&routes);
        let connect = move |peer: IpAddr, _| {
            let (routes, peer) = (Arc::clone(&answering), peer.to_canonical());
            service_fn(move |request| {
                let routes = Arc::clone(&routes);
                async move { Ok::<_, Infallible>(routes.answer(request, peer).await) }
            })
        };
        let phase = watch::Sender::new(Phase::Serving);
        let server = HttpServer::new(listener, phase, options, connect).map_err(io::Error::other)?;
        let serving = async move { server.serve_until(std::future::pending()).await };
        let forgetting = async move {
            let mut tick = tokio::time::interval(FORGET_EVERY);
            loop {
                tick.tick().await;
                routes.failures.forget_idle();
                routes.sessions.forget_idle();
            }
        };
        Ok(Self { _tasks: [AbortOnDrop::spawn(serving), AbortOnDrop::spawn(forgetting)] })
    }
}
