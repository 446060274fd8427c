//! `bulkhead admin`: the administrators' commands, over the control socket of this machine or over the network.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use bulkhead_control::client::ControlClient;
use bulkhead_control::{Command, ControlError, Operator as _, TaskFilter, remote};
use bulkhead_net::client::{Client, Request, parse_server_url};
use bulkhead_net::dial;
use bytes::Bytes;
use clap::{Args, Subcommand};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use serde_json::{Value, json};
use url::Url;

use super::args::OperateArguments;
use super::operate::{Absent, execute, show, task_table, token_table};
use super::table::{cell, fields, table};
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
            let value = reach.order(Command::LimitsInUse { filter, count_max: max }).await?;
            reach.show(&value, || limits_table(&value));
            Ok(ExitCode::SUCCESS)
        }
        AdminCommand::Tokens { command: AdminTokens::List } => {
            let value = reach.order(Command::TokenList).await?;
            reach.show(&value, || token_table(&value));
            Ok(ExitCode::SUCCESS)
        }
        AdminCommand::Tokens { command: AdminTokens::Revoke { id } } => reach.plain(Command::TokenRevoke { id }).await,
        AdminCommand::Drain { undo: true, .. } => reach.plain(Command::DrainEnd).await,
        AdminCommand::Drain { status: true, .. } => reach.plain(Command::DrainShow).await,
        AdminCommand::Drain { no_wait, .. } => reach.drain(!no_wait).await,
        AdminCommand::Reload { check } => {
            let value = reach.order(Command::Reload { check }).await?;
            reach.show(&value, || reloaded(&value));
            Ok(ExitCode::SUCCESS)
        }
    }
}

impl ReachArguments {
    fn operate(&self) -> OperateArguments {
        OperateArguments { data: self.data.clone(), config: self.config.clone(), json: self.json }
    }

    fn show(&self, value: &Value, text: impl FnOnce() -> String) {
        show(&self.operate(), value, text);
    }

    async fn plain(&self, command: Command) -> anyhow::Result<ExitCode> {
        let value = self.order(command).await?;
        self.show(&value, || fields(&value));
        Ok(ExitCode::SUCCESS)
    }

    /// Has a command carried out, wherever the host is.
    async fn order(&self, command: Command) -> anyhow::Result<Value> {
        match (&self.url, &self.token_file) {
            (Some(url), Some(file)) => {
                let token = trust::admin_token(file).context("--token-file")?;
                let roots = self.ca.as_deref().map(trust::certificates).transpose()?.unwrap_or_default();
                self.send(url, &token, dial::tls_config(&roots).context("--ca")?, &command).await
            }
            _ => {
                // A file that is wrong must not keep anybody from the host that runs, which says what is wrong with it.
                if let Some(data) = &self.data
                    && let Some(host) = ControlClient::connect(data).await.context("the host cannot be reached")?
                {
                    return Ok(host.execute(command).await?);
                }
                execute(&self.operate(), command, Absent::Refuse).await
            }
        }
    }

    async fn send(
        &self,
        url: &Url,
        token: &str,
        tls: std::sync::Arc<rustls::ClientConfig>,
        command: &Command,
    ) -> anyhow::Result<Value> {
        // Whoever types an address means it.
        let networks = ["0.0.0.0/0", "::/0"].iter().filter_map(|network| network.parse().ok()).collect();
        let client = Client { networks, plain: true, connect_max: Duration::MAX, ..Client::new(tls) };
        let url = url.join(remote::PATH)?;
        let mut authorization = HeaderValue::from_str(&format!("Bearer {token}"))?;
        authorization.set_sensitive(true);
        let request = Request {
            headers: vec![(CONTENT_TYPE, HeaderValue::from_static("application/json"))],
            authorization: Some(authorization),
            body: Bytes::from(serde_json::to_vec(command)?),
            ..Request::new(Method::POST, url.clone())
        };
        let (status, body) = client.fetch_document(request, COMMAND_MS_MAX, REPLY_BYTES_MAX).await?;
        let reply = remote::read_reply(&body);
        match reply.with_context(|| format!("{url} answered with status {status} and nothing that a host says"))? {
            Ok(value) => Ok(value),
            Err(error) => Err(anyhow::Error::new(error).context(format!("{url} refused"))),
        }
    }

    async fn tasks(&self, command: AdminTasks) -> anyhow::Result<ExitCode> {
        match command {
            AdminTasks::List { filter, max, after } => {
                let value = self.list(&filter.filter(), after, max).await?;
                self.show(&value, || task_list(&value));
                Ok(ExitCode::SUCCESS)
            }
            AdminTasks::Inspect { id } => self.plain(Command::TasksShow { id }).await,
            AdminTasks::Pause { which, message } => {
                self.each(which, |id| Command::TasksPause { id, message: message.clone() }).await
            }
            AdminTasks::Resume(which) => self.each(which, |id| Command::TasksResume { id }).await,
            AdminTasks::Cancel(which) => self.each(which, |id| Command::TasksCancel { id }).await,
            AdminTasks::Purge(which) => self.each(which, |id| Command::TasksPurge { id }).await,
        }
    }

    /// As many pages as it takes.
    async fn list(&self, filter: &TaskFilter, after: Option<String>, max: usize) -> anyhow::Result<Value> {
        let (mut tasks, mut after) = (Vec::new(), after);
        loop {
            let count_max = (max - tasks.len()).clamp(1, PAGE);
            let page = self.order(Command::TasksPage { filter: filter.clone(), after, count_max }).await?;
            tasks.extend(listed_in(&page));
            after = page.get("next").and_then(Value::as_str).map(str::to_owned);
            if after.is_none() || tasks.len() >= max {
                return Ok(json!({ "tasks": tasks, "more": after.is_some(), "next": after }));
            }
        }
    }

    /// Gives one order for each task. What cannot be done to one does not keep it from the others.
    async fn each(&self, which: Which, order: impl Fn(String) -> Command) -> anyhow::Result<ExitCode> {
        let Which { ids, filter, all } = which;
        let filter = filter.filter();
        let ids = match (ids.is_empty(), filter == TaskFilter::default()) {
            (false, true) => ids,
            (false, false) => anyhow::bail!("name tasks by their ids or by a filter, not by both"),
            (true, true) if !all => anyhow::bail!("name tasks by their ids or by a filter, or say --all"),
            (true, _) => {
                let listed = self.list(&filter, None, usize::MAX).await?;
                listed_in(&listed).iter().filter_map(|task| task["id"].as_str().map(str::to_owned)).collect()
            }
        };
        let (mut done, mut refused) = (Vec::new(), Vec::new());
        for id in ids {
            match self.order(order(id.clone())).await {
                Ok(task) => done.push(task),
                Err(error) if error.is::<ControlError>() => {
                    refused.push(json!({ "id": id, "why": error.root_cause().to_string() }));
                }
                Err(error) => return Err(error),
            }
        }
        let code = if refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) };
        let value = json!({ "tasks": done, "refused": refused });
        self.show(&value, || orders(&value));
        Ok(code)
    }

    async fn drain(&self, wait: bool) -> anyhow::Result<ExitCode> {
        let mut value = self.order(Command::DrainBegin).await?;
        loop {
            self.show(&value, || left(&value));
            let is = |name: &str| value.get(name) == Some(&Value::Bool(true));
            if !wait || is("still") || !is("draining") {
                return Ok(ExitCode::SUCCESS);
            }
            let before = value;
            // Nothing is said twice.
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                value = self.order(Command::DrainShow).await?;
                if value != before {
                    break;
                }
            }
        }
    }
}

fn listed_in(page: &Value) -> Vec<Value> {
    page["tasks"].as_array().cloned().unwrap_or_default()
}

fn left(value: &Value) -> String {
    let [calls, running, queued, waiting, paused] =
        ["plain_calls", "tasks_running", "tasks_queued", "tasks_waiting", "tasks_paused"]
            .map(|name| cell(&value[name]));
    format!(
        "left: {calls} calls, {running} running tasks (and {queued} queued, {waiting} waiting, {paused} paused, which stay)"
    )
}

fn task_list(value: &Value) -> String {
    let mut text = task_table(&json!({ "tasks": value["tasks"] }));
    if let Some(next) = value["next"].as_str() {
        text.push_str(&format!("\n(there are more: --after {next})"));
    }
    text
}

fn orders(value: &Value) -> String {
    let mut text = task_table(&json!({ "tasks": value["tasks"] }));
    for one in value["refused"].as_array().into_iter().flatten() {
        text.push_str(&format!("\n{}: {}", cell(&one["id"]), cell(&one["why"])));
    }
    text
}

fn limits_table(value: &Value) -> String {
    let mut rows = Vec::new();
    let mut add = |whose: String, limits: &Value| {
        for (name, limit) in limits.as_object().into_iter().flatten() {
            rows.push(vec![whose.clone(), name.clone(), cell(&limit["in_use"]), cell(&limit["max"])]);
        }
    };
    add("host".to_owned(), &value["host"]);
    for tenant in value["tenants"].as_array().into_iter().flatten() {
        add(format!("tenant {}", cell(&tenant["tenant"])), &tenant["limits"]);
    }
    for requestor in value["requestors"].as_array().into_iter().flatten() {
        let whose = format!("requestor {} ({})", cell(&requestor["requestor"]), cell(&requestor["tenant"]));
        add(whose, &requestor["limits"]);
    }
    let mut text = table(&["WHOSE", "LIMIT", "IN USE", "MAXIMUM"], &rows);
    if value["more"] == Value::Bool(true) {
        text.push_str("\n(there are more requestors: use --tenant, --requestor or --max)");
    }
    text
}

fn reloaded(value: &Value) -> String {
    let changed: Vec<_> = value["changed"].as_array().into_iter().flatten().map(cell).collect();
    let done = value["done"] == Value::Bool(true);
    match (changed.is_empty(), done) {
        (true, _) => "nothing is different".to_owned(),
        (false, true) => format!("changed: {}", changed.join(", ")),
        (false, false) => format!("would change: {}", changed.join(", ")),
    }
}
