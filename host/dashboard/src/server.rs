//! The listener of the dashboard.
//!
//! Owns its connections and their bounds. Must not know a page. Invariant: a connection costs a permit and bounded time
//! and bytes before anything is done for it.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_audit::Audit;
use bulkhead_config::PreviewOrigin;
use bulkhead_control::listener::{ConnectionBounds, FAILURES_PER_MINUTE_MAX, OperatorListener, Responder};
use bulkhead_control::remote::AdminTokenDigest;
use bulkhead_control::{Operator, ReadNotes};
use bulkhead_domain::clock::SharedClock;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_identity::auth::{Authenticator, LoginClient};
use bulkhead_limits::failures::Failures;
use bulkhead_limits::{Permit, UsageReport};
use bulkhead_net::server::{Certificate, RequestBody};
use bulkhead_protocol::{PageClient, TaskCalls};
use bulkhead_tasks::{Error, Tasks};
use http::Request;
use tokio::net::TcpListener;

use crate::app_preview::AppPreview;
use crate::codes::LoginCodes;
use crate::digests::derive;
use crate::lead_reads::LeadReads;
use crate::live;
use crate::oidc::UsedAttempts;
use crate::orders::PluginOrders;
use crate::request::Site;
use crate::respond::{Answer, Body};
use crate::routes::Routes;
use crate::session_store::{SessionRules, SessionStore};
use crate::sessions::Sessions;
use crate::shared_reads::SharedReads;

/// Connections of browsers at a time; more wait in the kernel. Live pages keep one each.
const CONNECTIONS_MAX: u32 = 512;
/// Connections of browsers from one address; a browser opens six.
const CONNECTIONS_PER_ADDRESS_MAX: u32 = 128;
/// A whole connection. Stops those who keep the few that there are.
const CONNECTION: Duration = Duration::from_secs(300);
/// Charges a requestor for one request: from its rate, and a place among its open requests.
pub type AdmitRequest = Box<dyn Fn(&Requestor) -> Result<Permit, Error> + Send + Sync>;
/// Takes room for the bytes of a large answer to a requestor, until they are sent.
pub type HoldAnswer = Box<dyn Fn(&Requestor, u64) -> Result<Permit, Error> + Send + Sync>;

/// What the dashboard works with.
pub struct DashboardParts {
    /// Without one, pages come in the clear: on this machine only.
    pub certificate: Option<Arc<Certificate>>,
    /// Names that it answers to besides those of this machine.
    pub allowed_hosts: Vec<String>,
    /// Of administrators, if they have one.
    pub admin_token: Option<AdminTokenDigest>,
    pub codes: Arc<LoginCodes>,
    /// How the issuer knows this host at which people log in, if there is one.
    pub oidc: Option<LoginClient>,
    /// Where sessions outlive the process.
    pub session_store: Arc<dyn SessionStore>,
    /// Of the data directory, for the forms of its sessions.
    pub secret: [u8; 32],
    pub operator: Arc<dyn Operator>,
    pub tasks: Tasks,
    pub task_calls: TaskCalls,
    /// Sends what requestors try on their pages.
    pub page_client: PageClient,
    /// Reports the limits of the transport.
    pub edge: Arc<dyn UsageReport>,
    pub authenticator: Arc<Authenticator>,
    pub admit: AdmitRequest,
    pub hold: HoldAnswer,
    /// Where traces are shown, with `{trace_id}` in place of the id of one.
    pub trace_link: Option<String>,
    /// Where views of MCP Apps are previewed, if they are.
    pub app_preview_origin: Option<PreviewOrigin>,
    pub audit: Audit,
    /// Which looks of operators it has already.
    pub read_notes: Arc<ReadNotes>,
    pub clock: SharedClock,
}

/// The dashboard. Dropping it ends it with its connections and sessions.
pub struct Dashboard {
    sessions: Arc<Sessions>,
    _listener: OperatorListener,
}

impl Dashboard {
    /// # Errors
    /// The certificate cannot be served with.
    pub async fn open(listener: TcpListener, parts: DashboardParts) -> io::Result<Self> {
        let port = listener.local_addr()?.port();
        let certificate = parts.certificate.clone();
        let site = Site::new(certificate.is_some(), parts.oidc.is_some(), port, &parts.allowed_hosts);
        let app_preview = parts.app_preview_origin.as_ref();
        let app_preview = app_preview.map(|origin| AppPreview::new(origin, port, site.has_tls, &parts.secret));
        let login_key = derive(&parts.secret, "login", &[]);
        let session_rules = SessionRules::new(&parts.secret, parts.admin_token, parts.oidc.as_ref());
        let clock = Arc::clone(&parts.clock);
        let authenticator = Arc::clone(&parts.authenticator);
        let rows = Arc::clone(&parts.session_store);
        let sessions = Sessions::open(clock, authenticator, rows, parts.secret, session_rules).await;
        let sessions = Arc::new(sessions);
        let failures = Failures::new(FAILURES_PER_MINUTE_MAX);
        let bounds = ConnectionBounds {
            total: CONNECTIONS_MAX,
            per_address: CONNECTIONS_PER_ADDRESS_MAX,
            lifetime: Some(CONNECTION),
        };
        let routes = Routes {
            reads: SharedReads::new(Arc::clone(&parts.operator)),
            lead_reads: LeadReads::new(),
            streams: live::counter(),
            orders: PluginOrders::default(),
            parts,
            site,
            app_preview,
            sessions: Arc::clone(&sessions),
            used_attempts: UsedAttempts::default(),
            failures,
            login_key,
        };
        let responder = Browsers(Arc::new(routes));
        let listener = OperatorListener::spawn(listener, certificate, bounds, responder).map_err(io::Error::other)?;
        Ok(Self { sessions, _listener: listener })
    }

    /// Lets a tenant go that is being erased, for as long as there is a dashboard.
    pub fn forgets_tenants(&self) -> impl Fn(TenantId) + Send + Sync + 'static {
        let held = Arc::downgrade(&self.sessions);
        move |tenant| {
            if let Some(sessions) = held.upgrade() {
                sessions.forget_tenant(tenant);
            }
        }
    }
}

/// What answers browsers; streams keep it as long as they last.
struct Browsers(Arc<Routes>);

impl Responder for Browsers {
    type Body = Body;

    async fn respond(&self, request: Request<RequestBody>, peer: IpAddr) -> Answer {
        self.0.answer(request, peer).await
    }

    fn forget_idle(&self) {
        self.0.failures.forget_idle();
        let sessions = Arc::clone(&self.0.sessions);
        tokio::spawn(async move { sessions.sweep().await });
    }
}
