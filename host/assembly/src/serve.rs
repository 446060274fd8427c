//! A host that serves over HTTP, from the first look at its store until it has stopped.
//!
//! Owns the order of its start: what must not be lost or refused later is bound before anything slow. Invariant: who is
//! told that it listens can connect.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bulkhead_config::{AdminConfig, Config};
use bulkhead_control::admin::{LoginLinks, Reload as _};
use bulkhead_control::operator::HostOperator;
use bulkhead_control::remote::{self, AdminTokenDigest, Remote};
use bulkhead_control::views::HostIdentity;
use bulkhead_identity::auth::Authenticator;
use bulkhead_identity::principal::Principals;
use bulkhead_net::address::normal_host;
use bulkhead_net::server::{Certificate, ConnectionWorkers};
use bulkhead_transport::http::{HttpOptions, Server, ServerParts, bind};
use bulkhead_transport::session::{Registry, SessionOptions};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use url::Url;

use super::dashboard::DashboardListener;
use super::host::{Host, open_store};
use super::reload::HostStartup;
use super::scraping::ScrapeListener;
use super::system_clock::unix_ms;
use super::{dashboard, progress, scraping, trust};

/// Serves until a signal ends it. `tell_address` is called once clients can connect.
pub async fn serve(startup: HostStartup, tell_address: impl FnOnce(&str)) -> anyhow::Result<()> {
    let config = &startup.config.clone();
    let data = config.server.data.clone();
    let manager = startup.manager.clone();
    // Before anything slow: a signal during the start must not be lost.
    let stop = stop_signal()?;
    let mut hangup = signal(SignalKind::hangup()).context("SIGHUP cannot be listened for")?;
    let engine = progress::logged(|| "opening the store".to_owned(), open_store(config, &data)).await?;
    let authenticated = Principals::new(engine.store()).any_active_token(unix_ms()).await?;
    config.check_exposure(authenticated)?;
    let issuers = trust::issuers(config)?;
    let certificate = trust::certificate(config)?;
    let open = authenticated || !issuers.is_empty() || config.insecure.anonymous;
    // Also before anything slow: whoever connects from now on waits until the plugins are there.
    let listener = bind(config.server.listen, open)?;
    let address = listener.local_addr()?;
    let admin_listener = config.admin.as_ref().map(bind_admin_listener).transpose()?;
    let scraping = config.metrics.as_ref().map(scraping::bind_listener).transpose()?;
    let browsing = config.dashboard.as_ref().map(dashboard::bind_listener).transpose()?;
    let observe_calls = startup.observe_calls.as_ref();
    let mut host = Host::start(config, &data, None, engine, observe_calls, startup.hold_tasks).await?;
    // Their plugin is built beside this.
    let is_of_author = startup.observe_calls.is_some();
    let (authenticator, reloading) = startup.follow(&host, issuers)?;
    let codes = match &browsing {
        Some(listener) => Some(listener.codes(&host).await?),
        None => None,
    };
    host.history = codes.is_some().then(|| host.history());
    host.login_links = codes.clone().map(|codes| codes as Arc<dyn LoginLinks>);
    let scheme = if certificate.is_some() { "https" } else { "http" };
    let endpoint = format!("{scheme}://{address}/mcp");
    let identity = HostIdentity {
        address: Some(endpoint.clone()),
        admin_address: admin_listener.as_ref().map(AdminListener::address).transpose()?,
        metrics_address: scraping.as_ref().map(ScrapeListener::address).transpose()?,
        dashboard_address: browsing.as_ref().map(DashboardListener::base).transpose()?,
        ..host.identity.clone()
    };
    let operator = host.operator(identity, reloading.clone());
    host.serve_operators(operator.clone());
    let dashboard = match browsing.zip(codes) {
        Some((listener, codes)) => {
            let opening = listener.open(config, &host, Arc::clone(&operator), Arc::clone(&authenticator), codes);
            Some(Box::pin(opening).await?)
        }
        None => None,
    };
    let remote = admin_listener.map(|listener| listener.open(operator, &host)).transpose()?;
    let scrape = scraping.map(|listener| listener.open(&host)).transpose()?;
    let hangups = tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            // What came of it is in the logs.
            let _ = reloading.reload("SIGHUP", false).await;
        }
    });

    let workers = config.server.connection_workers.then(ConnectionWorkers::start).transpose();
    let workers = workers.context("threads cannot be started")?.map(Arc::new);
    let server = http_server(config, &host, authenticator, certificate, workers.clone()).await?;
    tell_address(&endpoint);
    manager.ready();
    let health = Arc::clone(&host.health);
    let watched = manager.watch(move || health.unhealthy().is_none());
    let pid = std::process::id();
    tracing::info!(%address, pid, data = %data.display(), tools = host.tasks.tools_offered(), "serving");
    if !host.tasks.offers_anything() && !is_of_author {
        tracing::warn!(
            "there is no plugin to serve: add one with `bulkhead plugin add FILE.wasm --data {}`, which needs no restart",
            data.display()
        );
    }
    let (stopped, when_stopped) = tokio::sync::oneshot::channel();
    let shutdown = async move {
        stop.await;
        manager.stopping();
        tracing::info!("draining");
        // The receiver lives until the server is done.
        let _ = stopped.send(Instant::now());
    };
    server.serve(listener, shutdown).await.context("the certificate cannot be served with")?;
    hangups.abort();
    drop((remote, scrape, dashboard));
    let waited = when_stopped.await.map_or(Duration::ZERO, |since| since.elapsed());
    host.stop(Duration::from_millis(config.server.drain_ms).saturating_sub(waited)).await?;
    // What connections have started goes on until here.
    drop(workers);
    drop(watched);
    tracing::info!("stopped");
    Ok(())
}

async fn http_server(
    config: &Config,
    host: &Host,
    authenticator: Arc<Authenticator>,
    certificate: Option<Arc<Certificate>>,
    workers: Option<Arc<ConnectionWorkers>>,
) -> anyhow::Result<Arc<Server>> {
    let server = &config.server;
    let options =
        SessionOptions { idle_ms_max: server.session_idle_ms_max, per_requestor: server.sessions_per_requestor };
    let quota = Arc::clone(&host.quota);
    let sessions = Registry::open(host.store.clone(), options, Arc::clone(&quota), host.now.clone()).await?;
    let sessions = Arc::new(sessions.sharing(host.store.is_shared()));
    let held = Arc::downgrade(&sessions);
    host.erase_hooks.add(move |tenant| {
        if let Some(sessions) = held.upgrade() {
            sessions.forget_tenant(tenant);
        }
    });
    let allowed_hosts = server.allowed_hosts.iter().cloned();
    let resource = config.auth.resource.as_deref().and_then(|text| Url::parse(text).ok());
    let resource_host = resource.as_ref().and_then(Url::host_str).map(normal_host);
    let ready = Arc::clone(&host.health);
    let healthy = Arc::clone(&host.health);
    Ok(Server::new(ServerParts {
        mcp: host.protocol.clone(),
        sessions,
        authenticator,
        audit: host.audit.clone(),
        quota,
        unready: Box::new(move || ready.unready()),
        unhealthy: Box::new(move || healthy.unhealthy()),
        now: host.now.clone(),
        options: HttpOptions {
            // Clients come by the name that the metadata says.
            allowed_hosts: allowed_hosts.chain(resource_host).collect(),
            allowed_origins: server.allowed_origins.clone(),
            drain_ms: server.drain_ms,
            connections_max: server.connections_max,
            connections_per_address: server.connections_per_address,
            header_bytes_max: bytes(server.header_bytes_max.into()),
            header_read_ms_max: server.header_read_ms_max,
            body_bytes_max: bytes(server.body_bytes_max),
            sse_after_ms: server.sse_after_ms,
            sse_keepalive_ms: server.sse_keepalive_ms,
            trusted_proxies: server.trusted_proxies.clone(),
            credential_failures_per_minute: server.credential_failures_per_minute,
        },
        certificate,
        workers,
    }))
}

/// Where administrators come in, bound before anything slow.
struct AdminListener {
    listener: TcpListener,
    secret: AdminTokenDigest,
    certificate: Option<Arc<Certificate>>,
}

fn bind_admin_listener(config: &AdminConfig) -> anyhow::Result<AdminListener> {
    let (secret, certificate) = trust::admin(config)?;
    Ok(AdminListener { listener: bind(config.listen, true).context("admin.listen")?, secret, certificate })
}

impl AdminListener {
    fn address(&self) -> anyhow::Result<String> {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{}", self.listener.local_addr()?))
    }

    fn open(self, operator: Arc<HostOperator>, host: &Host) -> anyhow::Result<Remote> {
        tracing::info!(address = self.address()?, "administrators are served");
        let Self { listener, secret, certificate } = self;
        let parts = remote::RemoteParts { listener, secret, certificate, operator, audit: host.audit.clone() };
        Remote::spawn(parts).context("admin.tls cannot be served with")
    }
}

fn bytes(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Done with the first SIGTERM or SIGINT.
pub fn stop_signal() -> anyhow::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be listened for")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be listened for")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
