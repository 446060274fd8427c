//! The listener of the dashboard.
//!
//! Owns its connections and their bounds. Must not know a page. Invariant: a connection costs a permit and bounded time and bytes before
//! anything is done for it.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_audit::Audit;
use bulkhead_control::Operator;
use bulkhead_control::listener::{ConnectionBounds, FAILURES_PER_MINUTE_MAX, OperatorListener, Responder};
use bulkhead_control::remote::AdminTokenDigest;
use bulkhead_domain::clock::SharedClock;
use bulkhead_domain::requestor::Requestor;
use bulkhead_identity::auth::Authenticator;
use bulkhead_limits::Permit;
use bulkhead_limits::failures::Failures;
use bulkhead_net::server::Certificate;
use bulkhead_tasks::{Error, Tasks};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::net::TcpListener;

use crate::codes::LoginCodes;
use crate::orders::PluginOrders;
use crate::request::Site;
use crate::routes::Routes;
use crate::sessions::Sessions;

/// Connections of browsers at a time; more wait in the kernel.
const CONNECTIONS_MAX: u32 = 256;
/// Connections of browsers from one address; a browser opens six.
const CONNECTIONS_PER_ADDRESS_MAX: u32 = 32;
/// A whole connection. Stops those who keep the few that there are.
const CONNECTION: Duration = Duration::from_secs(300);
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
    _listener: OperatorListener,
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
        let bounds = ConnectionBounds {
            total: CONNECTIONS_MAX,
            per_address: CONNECTIONS_PER_ADDRESS_MAX,
            lifetime: Some(CONNECTION),
        };
        let responder = Routes { parts, site, sessions, failures, login_key, orders: PluginOrders::default() };
        let listener = OperatorListener::spawn(listener, certificate, bounds, responder).map_err(io::Error::other)?;
        Ok(Self { _listener: listener })
    }
}

impl Responder for Routes {
    async fn respond(&self, request: Request<Incoming>, peer: IpAddr) -> Response<Full<Bytes>> {
        self.answer(request, peer).await
    }

    fn forget_idle(&self) {
        self.failures.forget_idle();
        self.sessions.forget_idle();
    }
}
