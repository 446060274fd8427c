//! `bulkhead admin`: the administrators' commands, over the control socket of this machine or over the network.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use bulkhead_control::client::ControlClient;
use bulkhead_control::commands::{
    ConfigReload, DrainBegin, DrainEnd, DrainShow, LimitsInUse, TaskFilter, TasksCancel, TasksPage, TasksPause,
    TasksPurge, TasksResume, TasksShow, TokenList, TokenRevoke,
};
use bulkhead_control::views::{DrainView, LimitCounts, LimitsView, ReloadView, TaskPageView, TaskView};
use bulkhead_control::{ControlError, Operator as _, Request, remote, wire};
use bulkhead_net::client::{self, Client, parse_server_url};
use bulkhead_net::dial;
use bytes::Bytes;
use clap::{Args, Subcommand};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use serde::Serialize;
use url::Url;

use super::args::OperateArguments;
use super::operate::{Absent, execute, show, task_table, token_table};
use super::table::{cell, fields, now, table};
use super::{EXIT_FAILED, trust};

/// A whole command.
const COMMAND_MS_MAX: u64 = 120_000;
const REPLY_BYTES_MAX: u64 = 64 << 20;
/// Between two looks at what is left to end.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Tasks and requestors that are asked for at once.
const PAGE: usize = 500;

/// Administer a host.
///
/// Works over DATA/control.sock, or with --url over the listener that [admin] configures. Every command is in the audit log with who
/// gave it.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:\n  \
    bulkhead admin tasks list --tenant acme --status running\n  \
    bulkhead admin tasks cancel --plugin csv --status queued\n  \
    bulkhead admin limits --tenant acme\n  \
    bulkhead admin drain\n  \
    bulkhead admin reload --check && bulkhead admin reload\n  \
    bulkhead admin --url https://mcp.example.com:8809 --token-file admin.token limits --json")]
pub(crate) struct AdminArguments {
    #[command(flatten)]
    reach: ReachArguments,
    #[command(subcommand)]
    command: AdminCommand,
}

/// Which host, and how to answer.
#[derive(Args, Clone, Debug)]
struct ReachArguments {
    /// The data directory of a host on this machine [default: ./bulkhead-data]
    #[arg(long, global = true, value_name = "DIR", conflicts_with = "url")]
    data: Option<PathBuf>,
    /// The configuration file, if it names the data directory
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "url")]
    config: Option<PathBuf>,
    /// The administrators' listener of a host anywhere: https://HOST:PORT (http:// for this machine only)
    #[arg(long, global = true, value_name = "URL", value_parser = parse_server_url, requires = "token_file")]
    url: Option<Url>,
    /// The file with the administrators' token
    #[arg(long, global = true, value_name = "FILE", requires = "url")]
    token_file: Option<PathBuf>,
    /// A file with more certificates (PEM) that the host may be certified by
    #[arg(long, global = true, value_name = "FILE", requires = "url")]
    ca: Option<PathBuf>,
    /// JSON instead of text
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum AdminCommand {
    /// List, inspect, pause, resume, cancel and purge everybody's tasks
    Tasks {
        #[command(subcommand)]
        command: AdminTasks,
    },
    /// What is in use of each limit, and how much there may be: of the host, of tenants, of requestors
    Limits {
        /// Only this tenant
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        /// Only requestors of this name; also when they use nothing
        #[arg(long, value_name = "NAME")]
        requestor: Option<String>,
        /// At most so many requestors
        #[arg(long, value_name = "COUNT", default_value_t = PAGE)]
        max: usize,
    },
    /// List and revoke bearer tokens
    Tokens {
        #[command(subcommand)]
        command: AdminTokens,
    },
    /// Take nothing new, let what runs come to its end, and show how far that is; the host goes on answering reads
    Drain {
        /// Do not wait for the end
        #[arg(long, conflicts_with_all = ["undo", "status"])]
        no_wait: bool,
        /// Take new work again
        #[arg(long, conflicts_with = "status")]
        undo: bool,
        /// Only show what is left
        #[arg(long)]
        status: bool,
    },
    /// Read the configuration again and take it over, all of it or nothing (as SIGHUP does)
    #[command(
        after_long_help = "Limits, [tenant.NAME.limits], [call], the terms and grants of plugins, [[auth.scope]], \
        [[auth.issuer]], [[trust]], [sources] and log.level are taken over. Where anything else is different, a restart is needed, \
        and nothing is taken over.\n\nExit code 1: nothing has changed; the reasons are printed."
    )]
    Reload {
        /// Only say what would change, or what is wrong
        #[arg(long)]
        check: bool,
    },
}

#[derive(Debug, Subcommand)]
enum AdminTasks {
    /// List tasks, in the order of the store
    List {
        #[command(flatten)]
        filter: FilterArguments,
        /// At most so many
        #[arg(long, value_name = "COUNT", default_value_t = 100)]
        max: usize,
        /// Go on where a list ended, as it said
        #[arg(long, value_name = "PLACE")]
        after: Option<String>,
    },
    /// Show one task; arguments, answers and results stay with their requestor
    Inspect {
        /// Its id
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Stop tasks for a while; they keep their memory and use no CPU
    Pause {
        #[command(flatten)]
        which: Which,
        /// What requestors read as the status
        #[arg(long, value_name = "TEXT")]
        message: Option<String>,
    },
    /// Let paused tasks go on, no matter who paused them
    Resume(Which),
    /// Cancel tasks
    Cancel(Which),
    /// Remove tasks with everything that belongs to them, whatever they are doing
    Purge(Which),
}

#[derive(Debug, Subcommand)]
enum AdminTokens {
    /// List tokens, without the tokens themselves
    List,
    /// End a token at once; its streams end within seconds
    Revoke {
        /// Its id
        #[arg(value_name = "ID")]
        id: String,
    },
}

/// Which tasks: all of this must apply.
#[derive(Args, Clone, Debug, Default)]
struct FilterArguments {
    /// Only those of this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Only those of the requestors of this name
    #[arg(long, value_name = "NAME")]
    requestor: Option<String>,
    /// Only those of this plugin
    #[arg(long, value_name = "NAME")]
    plugin: Option<String>,
    /// Only those that are queued, running, input_required, paused, succeeded, tool_error, failed or cancelled
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
}

impl FilterArguments {
    fn filter(self) -> TaskFilter {
        let Self { tenant, requestor, plugin, status } = self;
        TaskFilter { tenant, requestor, plugin, status }
    }
}

/// Tasks by their ids, or all that a filter means.
#[derive(Args, Clone, Debug)]
struct Which {
    /// Their ids
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    filter: FilterArguments,
    /// Everybody's, if there is no filter
    #[arg(long, conflicts_with = "ids")]
    all: bool,
}

pub(crate) async fn run(arguments: AdminArguments) -> anyhow::Result<ExitCode> {
    let AdminArguments { reach, command } = arguments;
    match command {
        AdminCommand::Tasks { command } => reach.tasks(command).await,
        AdminCommand::Limits { tenant, requestor, max } => {
            let filter = TaskFilter { tenant, requestor, ..TaskFilter::default() };
            let view = reach.order(LimitsInUse { filter, count_max: max }).await?;
            reach.show(&view, || limits_table(&view))
        }
        AdminCommand::Tokens { command: AdminTokens::List } => {
            let view = reach.order(TokenList {}).await?;
            reach.show(&view, || token_table(&view, now()))
        }
        AdminCommand::Tokens { command: AdminTokens::Revoke { id } } => reach.plain(TokenRevoke { id }).await,
        AdminCommand::Drain { undo: true, .. } => reach.plain(DrainEnd {}).await,
        AdminCommand::Drain { status: true, .. } => reach.plain(DrainShow {}).await,
        AdminCommand::Drain { no_wait, .. } => reach.drain(!no_wait).await,
        AdminCommand::Reload { check } => {
            let view = reach.order(ConfigReload { check }).await?;
            reach.show(&view, || reloaded(&view))
        }
    }
}

impl ReachArguments {
    fn operate(&self) -> OperateArguments {
        OperateArguments { data: self.data.clone(), config: self.config.clone(), json: self.json }
    }

    fn show(&self, view: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<ExitCode> {
        show(&self.operate(), view, text)
    }

    async fn plain<R: Request>(&self, request: R) -> anyhow::Result<ExitCode> {
        let view = self.order(request).await?;
        self.show(&view, || fields(&view))
    }

    /// Has a command carried out, wherever the host is.
    async fn order<R: Request>(&self, request: R) -> anyhow::Result<R::Answer> {
        match (&self.url, &self.token_file) {
            (Some(url), Some(file)) => {
                let token = trust::admin_token(file).context("--token-file")?;
                let roots = self.ca.as_deref().map(trust::certificates).transpose()?.unwrap_or_default();
                self.send(url, &token, dial::tls_config(&roots).context("--ca")?, request).await
            }
            _ => {
                // A file that is wrong must not keep anybody from the host that runs, which says what is wrong with it.
                if let Some(data) = &self.data
                    && let Some(host) = ControlClient::connect(data).await.context("the host cannot be reached")?
                {
                    return Ok(host.execute(request).await?);
                }
                execute(&self.operate(), request, Absent::Refuse).await
            }
        }
    }

    async fn send<R: Request>(
        &self,
        url: &Url,
        token: &str,
        tls: std::sync::Arc<rustls::ClientConfig>,
        request: R,
    ) -> anyhow::Result<R::Answer> {
        // Whoever types an address means it.
        let networks = ["0.0.0.0/0", "::/0"].iter().filter_map(|network| network.parse().ok()).collect();
        let client = Client { networks, plain: true, connect_max: Duration::MAX, ..Client::new(tls) };
        let url = url.join(remote::PATH)?;
        let mut authorization = HeaderValue::from_str(&format!("Bearer {token}"))?;
        authorization.set_sensitive(true);
        let request = client::Request {
            headers: vec![(CONTENT_TYPE, HeaderValue::from_static("application/json"))],
            authorization: Some(authorization),
            body: Bytes::from(wire::write_request(&request.into())?),
            ..client::Request::new(Method::POST, url.clone())
        };
        let (status, body) = client.fetch_document(request, COMMAND_MS_MAX, REPLY_BYTES_MAX).await?;
        let reply = wire::read_reply(&body);
        let reply =
            reply.with_context(|| format!("{url} answered with status {status} and nothing that a host says"))?;
        let answer = reply.with_context(|| format!("{url} refused"))?;
        Ok(answer.read::<R>()?)
    }

    async fn tasks(&self, command: AdminTasks) -> anyhow::Result<ExitCode> {
        match command {
            AdminTasks::List { filter, max, after } => {
                let view = self.list(&filter.filter(), after, max).await?;
                self.show(&view, || task_list(&view, now()))
            }
            AdminTasks::Inspect { id } => self.plain(TasksShow { id }).await,
            AdminTasks::Pause { which, message } => {
                self.each(which, |id| TasksPause { id, message: message.clone() }).await
            }
            AdminTasks::Resume(which) => self.each(which, |id| TasksResume { id }).await,
            AdminTasks::Cancel(which) => self.each(which, |id| TasksCancel { id }).await,
            AdminTasks::Purge(which) => self.each(which, |id| TasksPurge { id }).await,
        }
    }

    /// As many pages as it takes.
    async fn list(&self, filter: &TaskFilter, after: Option<String>, max: usize) -> anyhow::Result<TaskPageView> {
        let (mut tasks, mut after) = (Vec::new(), after);
        loop {
            let count_max = (max - tasks.len()).clamp(1, PAGE);
            let page = self.order(TasksPage { filter: filter.clone(), after, count_max }).await?;
            tasks.extend(page.tasks);
            after = page.next;
            if after.is_none() || tasks.len() >= max {
                return Ok(TaskPageView { tasks, more: after.is_some(), next: after });
            }
        }
    }

    /// Gives one order for each task. What cannot be done to one does not keep it from the others.
    async fn each<R>(&self, which: Which, order: impl Fn(String) -> R) -> anyhow::Result<ExitCode>
    where
        R: Request<Answer: AsRef<TaskView>>,
    {
        let Which { ids, filter, all } = which;
        let filter = filter.filter();
        let ids = match (ids.is_empty(), filter == TaskFilter::default()) {
            (false, true) => ids,
            (false, false) => anyhow::bail!("name tasks by their ids or by a filter, not by both"),
            (true, true) if !all => anyhow::bail!("name tasks by their ids or by a filter, or say --all"),
            (true, _) => {
                let listed = self.list(&filter, None, usize::MAX).await?;
                listed.tasks.into_iter().map(|task| task.id).collect()
            }
        };
        let (mut done, mut refused) = (Vec::new(), Vec::new());
        for id in ids {
            match self.order(order(id.clone())).await {
                Ok(task) => done.push(task),
                Err(error) if error.is::<ControlError>() => {
                    refused.push(RefusedTask { id, why: error.root_cause().to_string() });
                }
                Err(error) => return Err(error),
            }
        }
        let code = if refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) };
        let orders = Orders { tasks: done, refused };
        self.show(&orders, || orders.text(now()))?;
        Ok(code)
    }

    async fn drain(&self, wait: bool) -> anyhow::Result<ExitCode> {
        let mut view = self.order(DrainBegin {}).await?;
        loop {
            let code = self.show(&view, || left(&view))?;
            if !wait || view.still || !view.draining {
                return Ok(code);
            }
            let before = view;
            // Nothing is said twice.
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                view = self.order(DrainShow {}).await?;
                if view != before {
                    break;
                }
            }
        }
    }
}

/// What came of one order for each of several tasks.
#[derive(Serialize)]
pub(super) struct Orders<T> {
    pub(super) tasks: Vec<T>,
    pub(super) refused: Vec<RefusedTask>,
}

/// A task of which an order was not carried out.
#[derive(Serialize)]
pub(super) struct RefusedTask {
    pub(super) id: String,
    pub(super) why: String,
}

impl<T: AsRef<TaskView>> Orders<T> {
    pub(super) fn text(&self, now: u64) -> String {
        let tasks: Vec<_> = self.tasks.iter().map(|task| task.as_ref().clone()).collect();
        let refused = self.refused.iter().map(|RefusedTask { id, why }| format!("\n{}: {}", cell(&**id), cell(&**why)));
        task_table(&tasks, now) + &refused.collect::<String>()
    }
}

pub(super) fn left(view: &DrainView) -> String {
    let DrainView { plain_calls, tasks_running, tasks_queued, tasks_waiting, tasks_paused, .. } = view;
    format!(
        "left: {plain_calls} calls, {tasks_running} running tasks (and {tasks_queued} queued, {tasks_waiting} waiting, \
         {tasks_paused} paused, which stay)"
    )
}

pub(super) fn task_list(view: &TaskPageView, now: u64) -> String {
    let next = view.next.iter().map(|next| format!("\n(there are more: --after {next})"));
    task_table(&view.tasks, now) + &next.collect::<String>()
}

pub(super) fn limits_table(view: &LimitsView) -> String {
    let mut rows = Vec::new();
    let mut add = |whose: String, limits: &LimitCounts| {
        for (name, limit) in limits {
            rows.push(vec![whose.clone(), name.clone(), limit.in_use.to_string(), limit.max.to_string()]);
        }
    };
    add("host".to_owned(), &view.host);
    for one in &view.tenants {
        add(format!("tenant {}", cell(&*one.tenant)), &one.limits);
    }
    for one in &view.requestors {
        add(format!("requestor {} ({})", cell(&*one.requestor), cell(&*one.tenant)), &one.limits);
    }
    let mut text = table(&["WHOSE", "LIMIT", "IN USE", "MAXIMUM"], &rows);
    if view.more {
        text.push_str("\n(there are more requestors: use --tenant, --requestor or --max)");
    }
    text
}

pub(super) fn reloaded(view: &ReloadView) -> String {
    let changed: Vec<_> = view.changed.iter().map(|key| cell(&**key)).collect();
    match (changed.is_empty(), view.done) {
        (true, _) => "nothing is different".to_owned(),
        (false, true) => format!("changed: {}", changed.join(", ")),
        (false, false) => format!("would change: {}", changed.join(", ")),
    }
}
