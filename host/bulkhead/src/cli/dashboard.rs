//! The dashboard of a running host, and `bulkhead dashboard`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use bulkhead_control::commands::DashboardLogin;
use bulkhead_control::operator::HostOperator;
use bulkhead_control::views::DashboardLoginView;
use bulkhead_dashboard::{Dashboard, DashboardParts, LoginCodes};
use bulkhead_identity::auth::Authenticator;
use bulkhead_limits::Full;
use bulkhead_net::server::Certificate;
use bulkhead_tasks::Error;
use bulkhead_transport::http::bind;
use bulkhead_transport::quota::ElsewhereRefused;
use clap::Subcommand;
use tokio::net::TcpListener;

use super::args::OperateArguments;
use super::host::Host;
use super::operate::show_answer;
use super::trust;
use crate::config::{Config, DashboardConfig};

/// Pages in a browser: what runs, who uses what, and a requestor's own tasks. The configuration turns them on: [dashboard] listen.
#[derive(Debug, Subcommand)]
pub(crate) enum DashboardCommand {
    /// Print a link that logs an operator in, once and within ten minutes
    #[command(
        after_long_help = "The link is for the browser of whoever runs the host: what it opens shows all tenants, and can \
        cancel and remove their tasks. Needs the running host on this machine."
    )]
    Login(OperateArguments),
}

pub(crate) async fn run(command: DashboardCommand) -> anyhow::Result<ExitCode> {
    let DashboardCommand::Login(operate) = command;
    show_answer(&operate, DashboardLogin {}, |view, _| link(view)).await
}

pub(super) fn link(view: &DashboardLoginView) -> String {
    view.link.clone()
}

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
    pub(super) fn codes(&self, host: &Host) -> anyhow::Result<Arc<LoginCodes>> {
        Ok(Arc::new(LoginCodes::new(self.base()?, Arc::clone(&host.now))))
    }

    /// Where its pages are, for people.
    fn base(&self) -> anyhow::Result<String> {
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
    pub(super) fn open(
        self,
        config: &Config,
        host: &Host,
        operator: Arc<HostOperator>,
        (authenticator, codes): (Arc<Authenticator>, Arc<LoginCodes>),
    ) -> anyhow::Result<Dashboard> {
        tracing::info!(address = self.base()?, "the dashboard is served");
        let (quota, answers) = (Arc::clone(&host.quota), Arc::clone(&host.quota));
        let parts = DashboardParts {
            certificate: self.certificate,
            allowed_hosts: self.config.allowed_hosts,
            admin_token: config
                .admin
                .as_ref()
                .map(|admin| Ok::<_, anyhow::Error>(trust::admin(admin)?.0))
                .transpose()?,
            codes,
            operator,
            tasks: host.tasks.clone(),
            task_calls: host.protocol.task_calls(),
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
        Dashboard::spawn(self.listener, parts).context("the dashboard cannot be served")
    }
}

fn no_room(full: Full) -> Error {
    Error::Quota { limit: full.limit, value: full.value, retry_after_ms: Some(1_000) }
}
