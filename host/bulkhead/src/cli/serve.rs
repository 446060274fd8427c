//! `bulkhead serve`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bulkhead_config::{AdminConfig, Config, Insecure, Problems, refused_by_clients};
use bulkhead_control::admin::{LoginLinks, Reload as _};
use bulkhead_control::operator::HostOperator;
use bulkhead_control::remote::{self, AdminTokenDigest, Remote};
use bulkhead_domain::tool_names::PORTABLE_NAME_CHARS_MAX;
use bulkhead_identity::auth::Authenticator;
use bulkhead_identity::principal::Principals;
use bulkhead_net::address::normal_host;
use bulkhead_net::server::{Certificate, ConnectionWorkers};
use bulkhead_runtime::LoadError;
use bulkhead_transport::http::{HttpOptions, Server, ServerParts, bind};
use bulkhead_transport::session::{Registry, SessionOptions};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use url::Url;

use super::args::ServeArguments;
use super::host::{self, Host, open_store};
use super::reload::{HostStartup, Origin};
use super::service_manager::ServiceManager;
use super::table::now;
use super::{
    EXIT_FAILED, dashboard, exit_code, logging, operate, print_error, print_line, progress, scraping, sources, traces,
    trust,
};

pub(crate) async fn run(arguments: ServeArguments) -> anyhow::Result<ExitCode> {
    let insecure =
        Insecure { plaintext: arguments.insecure_allow_plaintext, anonymous: arguments.insecure_allow_anonymous };
    let origin = Origin { sources: arguments.sources, listen: arguments.listen, insecure, granted: None };
    let (config, digest) = match origin.read() {
        Err(error) if arguments.json => return Ok(unchecked(&error)),
        read => read?,
    };
    let level = logging::start(&config.log);
    if arguments.check {
        match check(&config, arguments.json).await {
            Err(error) if arguments.json => Ok(unchecked(&error)),
            checked => checked,
        }
    } else {
        let manager = ServiceManager::of_environment();
        serve(HostStartup { origin, config, digest, level, told: None, manager }).await
    }
}

pub(super) async fn serve(beginning: HostStartup) -> anyhow::Result<ExitCode> {
    let config = &beginning.config.clone();
    let data = config.server.data.clone();
    let manager = beginning.manager.clone();
    // Before anything slow: a signal during the start must not be lost.
    let stop = stop_signal()?;
    let mut hangup = signal(SignalKind::hangup()).context("SIGHUP cannot be listened for")?;
    let store = progress::logged(|| "opening the store".to_owned(), open_store(config, &data)).await?;
    let authenticated = Principals::new(store.clone()).any_active_token(now()).await?;
    config.check_exposure(authenticated)?;
    let issuers = trust::issuers(config)?;
    let certificate = trust::certificate(config)?;
    let open = authenticated || !issuers.is_empty() || config.insecure.anonymous;
    // Also before anything slow: whoever connects from now on waits until the plugins are there.
    let listener = bind(config.server.listen, open)?;
    let address = listener.local_addr()?;
    let desk = config.admin.as_ref().map(desk).transpose()?;
    let scraping = config.metrics.as_ref().map(scraping::bind_listener).transpose()?;
    let browsing = config.dashboard.as_ref().map(dashboard::bind_listener).transpose()?;
    let mut host = Host::start(config, &data, None, store, beginning.told.clone()).await?;
    // Their plugin is built beside this.
    let is_of_author = beginning.told.is_some();
    let (authenticator, reloading) = beginning.follow(&host, issuers)?;
    let codes = browsing.as_ref().map(|listener| listener.codes(&host)).transpose()?;
    host.history = codes.is_some().then(|| host.history());
    host.login_links = codes.clone().map(|codes| codes as Arc<dyn LoginLinks>);
    let operator = host.operator(&data, reloading.clone());
    host.serve_operators(operator.clone());
    let pages = dashboard::open(browsing.zip(codes), config, &host, Arc::clone(&operator), Arc::clone(&authenticator));
    let dashboard = Box::pin(pages).await?;
    let remote = desk.map(|desk| desk.open(operator, &host)).transpose()?;
    let scrape = scraping.map(|listener| listener.open(&host)).transpose()?;
    let hangups = tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            // What came of it is in the logs.
            let _ = reloading.reload("SIGHUP", false).await;
        }
    });

    let scheme = if certificate.is_some() { "https" } else { "http" };
    let workers = config.server.connection_workers.then(ConnectionWorkers::start).transpose();
    let workers = workers.context("threads cannot be started")?.map(Arc::new);
    let server = http_server(config, &host, authenticator, certificate, workers.clone()).await?;
    print_line(format_args!("bulkhead: listening on {scheme}://{address}/mcp"));
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
    Ok(ExitCode::SUCCESS)
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
    let sessions = Arc::new(sessions);
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

fn desk(config: &AdminConfig) -> anyhow::Result<AdminListener> {
    let (secret, certificate) = trust::admin(config)?;
    Ok(AdminListener { listener: bind(config.listen, true).context("admin.listen")?, secret, certificate })
}

impl AdminListener {
    fn open(self, operator: Arc<HostOperator>, host: &Host) -> anyhow::Result<Remote> {
        let Self { listener, secret, certificate } = self;
        let scheme = if certificate.is_some() { "https" } else { "http" };
        tracing::info!(address = format!("{scheme}://{}", listener.local_addr()?), "administrators are served");
        let parts = remote::RemoteParts { listener, secret, certificate, operator, audit: host.audit.clone() };
        Remote::spawn(parts).context("admin.tls cannot be served with")
    }
}

fn bytes(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Done with the first SIGTERM or SIGINT.
pub(super) fn stop_signal() -> anyhow::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be listened for")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be listened for")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// `--check`: everything that can be known without serving.
async fn check(config: &Config, as_json: bool) -> anyhow::Result<ExitCode> {
    // The cache of a running host is left alone.
    let scratch = tempfile::tempdir().context("there is no room for a temporary folder")?;
    let sandbox = host::sandbox(config, scratch.path(), None, None)?;
    sources::refuse_exposing(&config.plugins, &config.server.data)?;
    let refused = host::load_plugins(&sandbox, config).await?;
    let of_plugin = |error: &LoadError| {
        error.problems.iter().map(|problem| format!("plugin {}: {problem}", error.plugin)).collect()
    };
    let mut found: Vec<String> = refused.iter().flat_map::<Vec<_>, _>(of_plugin).collect();
    let exposure = match config.check_exposure(false) {
        Ok(()) => Ok(()),
        Err(_) => config.check_exposure(operate::any_active_token(config).await?),
    };
    found.extend(exposure.err().map(|problem| problem.to_string()));
    let trusted = trust::issuers(config).and_then(|_| trust::certificate(config));
    let trusted = trusted.and_then(|_| config.admin.as_ref().map(trust::admin).transpose());
    let trusted = trusted.and_then(|_| config.metrics.as_ref().map(trust::metrics).transpose());
    let trusted = trusted.and_then(|_| config.dashboard.as_ref().map(trust::dashboard).transpose());
    let oidc = config.dashboard.as_ref().and_then(|dashboard| dashboard.oidc.as_deref());
    let trusted = trusted.and_then(|_| oidc.map(trust::login_client).transpose());
    found.extend(trusted.err().map(|problem| format!("{problem:#}")));
    found.extend(traces::check(config).err().map(|wrong| format!("{wrong:#}")));
    let tools = bulkhead_calls::Executor::catalog(&*sandbox).tools().len();
    let is_valid = found.is_empty();
    let warnings = refused_by_clients(&config.plugins, PORTABLE_NAME_CHARS_MAX);
    if !as_json {
        warnings.iter().for_each(|warning| print_error(format_args!("warning: {warning}")));
    }
    if as_json {
        print_line(checked(tools, &found, &warnings));
    } else if is_valid {
        print_line(format_args!("the configuration is valid; {tools} tools would be served"));
    } else {
        found.iter().for_each(print_error);
    }
    Ok(if is_valid { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) })
}

/// What `--check --json` prints.
fn checked(tools: usize, problems: &[String], warnings: &[String]) -> String {
    json!({ "valid": problems.is_empty(), "tools": tools, "problems": problems, "warnings": warnings }).to_string()
}

/// The same of what keeps plugins from being looked at.
fn unchecked(error: &anyhow::Error) -> ExitCode {
    print_line(checked(0, &problems(error), &[]));
    ExitCode::from(exit_code(error))
}

/// One text for each thing that is wrong.
fn problems(error: &anyhow::Error) -> Vec<String> {
    match error.downcast_ref::<Problems>() {
        Some(Problems(found)) => found.iter().map(ToString::to_string).collect(),
        None => vec![format!("{error:#}")],
    }
}
