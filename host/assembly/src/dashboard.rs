//! The dashboard of a running host.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context as _;
use async_trait::async_trait;
use bulkhead_config::{Config, DashboardConfig};
use bulkhead_control::operator::HostOperator;
use bulkhead_dashboard::{Dashboard, DashboardParts, LoginCodes, SessionStore, SessionStoreError};
use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_identity::auth::Authenticator;
use bulkhead_limits::Full;
use bulkhead_net::server::Certificate;
use bulkhead_store::replay_guard::{ReplayGuard, SingleUseToken};
use bulkhead_store::{RowKind, RowState, Store};
use bulkhead_tasks::Error;
use bulkhead_transport::http::bind;
use bulkhead_transport::quota::ElsewhereRefused;
use tokio::net::TcpListener;

use super::host::Host;
use super::trust;

/// Where browsers come in, bound before anything slow.
pub(super) struct DashboardListener {
    listener: TcpListener,
    certificate: Option<Arc<Certificate>>,
    config: DashboardConfig,
}

pub(super) fn bind_listener(config: &DashboardConfig) -> anyhow::Result<DashboardListener> {
    let certificate = trust::dashboard(config)?;
    let listener = bind(config.listen, true).context("dashboard.listen")?;
    Ok(DashboardListener { listener, certificate, config: config.clone() })
}

impl DashboardListener {
    /// The codes that let operators in, made before there is a page to use them on.
    pub(super) async fn codes(&self, host: &Host) -> anyhow::Result<Arc<LoginCodes>> {
        let codes = LoginCodes::new(self.base()?, Arc::clone(&host.now));
        if !host.store.is_shared() {
            return Ok(Arc::new(codes));
        }
        let secret = bulkhead_store::host_secret(&*host.store, SECRET).await?;
        Ok(Arc::new(codes.sharing(&secret, Arc::new(SessionRows::new(host)))))
    }

    /// Where its pages are, for people.
    pub(super) fn base(&self) -> anyhow::Result<String> {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        let address = self.listener.local_addr()?;
        let reachable = match address.ip() {
            ip if ip.is_unspecified() => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), address.port()),
            _ => address,
        };
        let name = match self.config.allowed_hosts.first() {
            Some(name) if name.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => name.clone(),
            Some(name) => format!("{name}:{}", address.port()),
            None => reachable.to_string(),
        };
        Ok(format!("{scheme}://{name}"))
    }

    /// Serves the pages of a host.
    pub(super) async fn open(
        self,
        config: &Config,
        host: &Host,
        operator: Arc<HostOperator>,
        authenticator: Arc<Authenticator>,
        codes: Arc<LoginCodes>,
    ) -> anyhow::Result<Dashboard> {
        tracing::info!(address = self.base()?, "the dashboard is served");
        let quota = Arc::clone(&host.quota);
        let answers = Arc::clone(&host.quota);
        let parts = DashboardParts {
            certificate: self.certificate,
            allowed_hosts: self.config.allowed_hosts,
            trace_link: self.config.trace_link,
            app_preview_origin: self.config.app_preview_origin,
            admin_token: config
                .admin
                .as_ref()
                .map(|admin| Ok::<_, anyhow::Error>(trust::admin(admin)?.0))
                .transpose()?,
            codes,
            oidc: self.config.oidc.as_deref().map(trust::login_client).transpose()?,
            session_store: Arc::new(SessionRows::new(host)),
            secret: bulkhead_store::host_secret(&*host.store, SECRET).await?,
            read_notes: Arc::clone(&operator.read_notes),
            operator,
            tasks: host.tasks.clone(),
            task_calls: host.protocol.task_calls(),
            page_client: host.protocol.page_client(),
            edge: host.quota.clone(),
            authenticator,
            admit: Box::new(move |requestor| {
                quota.admit_elsewhere(requestor).map_err(|refused| match refused {
                    ElsewhereRefused::Rate(exceeded) => exceeded.into(),
                    ElsewhereRefused::Full(full) => no_room(full),
                })
            }),
            hold: Box::new(move |requestor, bytes| answers.hold_elsewhere(requestor, bytes).map_err(no_room)),
            audit: host.audit.clone(),
            clock: Arc::clone(&host.now),
        };
        let dashboard = Dashboard::open(self.listener, parts).await.context("the dashboard cannot be served")?;
        host.erase_hooks.add(dashboard.forgets_tenants());
        Ok(dashboard)
    }
}

/// Sessions of browsers, as rows of the store.
struct SessionRows {
    store: Arc<dyn Store>,
    used: ReplayGuard,
}

/// The name of the secret that forms, links and logins are signed with.
const SECRET: &[u8] = b"dashboard";
const PAGE_ROWS: usize = 256;
/// Whose what is used once is: of no requestor, since it is used before one is known.
const NOBODY: Requestor = Requestor { tenant: TenantId([0; 16]), id: RequestorId([0; 16]) };

impl SessionRows {
    fn new(host: &Host) -> Self {
        Self { store: Arc::clone(&host.store), used: ReplayGuard::new(Arc::clone(&host.store)) }
    }

    async fn change(&self, changes: Vec<RowState>) -> Result<(), SessionStoreError> {
        self.store.change_rows(RowKind::BrowserSession, Vec::new(), changes, None).await.map_err(failed)
    }
}

fn failed(error: bulkhead_store::Error) -> SessionStoreError {
    SessionStoreError(error.to_string())
}

#[async_trait]
impl SessionStore for SessionRows {
    async fn all(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>, SessionStoreError> {
        let mut all: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        loop {
            let after = all.last().map(|(key, _)| key.as_slice());
            let page = self.store.rows(RowKind::BrowserSession, after, PAGE_ROWS).await.map_err(failed)?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    async fn put(&self, rows: Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), SessionStoreError> {
        self.change(rows.into_iter().map(|(key, row)| (key, Some(row))).collect()).await
    }

    async fn remove(&self, keys: Vec<Vec<u8>>) -> Result<(), SessionStoreError> {
        self.change(keys.into_iter().map(|key| (key, None)).collect()).await
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    async fn find(&self, digest: &[u8; 32]) -> Result<Option<(Vec<u8>, Vec<u8>)>, SessionStoreError> {
        // An operator's key is the digest alone, and a requestor's follows behind it.
        if let Some(row) = self.store.row(RowKind::BrowserSession, digest).await.map_err(failed)? {
            return Ok(Some((digest.to_vec(), row)));
        }
        let next = self.store.rows(RowKind::BrowserSession, Some(digest), 1).await.map_err(failed)?;
        Ok(next.into_iter().next().filter(|(key, _)| key.starts_with(digest)))
    }

    async fn replace(&self, key: Vec<u8>, row: Vec<u8>) -> Result<bool, SessionStoreError> {
        let Some(before) = self.store.row(RowKind::BrowserSession, &key).await.map_err(failed)? else {
            return Ok(false);
        };
        let expected = vec![(key.clone(), Some(before))];
        let changes = vec![(key, Some(row))];
        match self.store.change_rows(RowKind::BrowserSession, expected, changes, None).await {
            // Another host has just written when it was used, or ended it: the next write finds out.
            Ok(()) | Err(bulkhead_store::Error::Conflict) => Ok(true),
            Err(error) => Err(failed(error)),
        }
    }

    async fn use_once(&self, id: [u8; 16], until: UnixMs) -> Result<bool, SessionStoreError> {
        self.used.use_once(&SingleUseToken { requestor: NOBODY, id, until }).await.map_err(failed)
    }
}

fn no_room(full: Full) -> Error {
    Error::Quota { limit: full.limit, value: full.value, retry_after_ms: Some(1_000) }
}
