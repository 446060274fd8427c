//! The operator's commands: the same over a running host's control socket and on a store of one's own.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use crate::config::Config;
use crate::system_clock::SystemClock;
use anyhow::Context as _;
use bulkhead_control::client::ControlClient;
use bulkhead_control::commands::{
    SecretCommand, StoreBackup, StoreCheck, StoreExport, StoreRebuild, StoreRekey, TasksCancel, TasksList, TasksPause,
    TasksResume, TasksShow, TenantList, TenantPurge, TokenCreate, TokenList, TokenRevoke,
};
use bulkhead_control::operator::{HostOperator, OfflineTasks};
use bulkhead_control::views::{TaskListView, TaskView, TenantListView, TenantView, TokenListView};
use bulkhead_control::{Command, Operator as _, Request, WITHOUT_HOST};
use bulkhead_identity::principal::{TENANT_DEFAULT, TokenInfo};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::args::{OperateArguments, SourceArguments};
use super::table::{cell, fields, now, table, when};
use super::values::duration_ms;
use super::{EXIT_FAILED, logging, print_error, print_line, sources};

/// Works with a running host (over DATA/control.sock) and without.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a bearer token and print it, this once; only its hash is kept
    ///
    /// The first token turns authentication on, for good: from then on the host answers 401 to every request without a token, also to
    /// clients that are connected, and also after the token is revoked.
    #[command(
        after_long_help = "Example:\n  TOKEN=$(bulkhead token create --requestor alice --tenant acme --expires 90d)"
    )]
    Create {
        /// Whose token it is: 1 to 64 characters of A-Z a-z 0-9 _ - .
        #[arg(long, value_name = "NAME")]
        requestor: String,
        /// The group that limits are set for
        #[arg(long, value_name = "NAME", default_value = TENANT_DEFAULT)]
        tenant: String,
        /// How long it is good for: a number and s, m, h or d [default: for ever]
        #[arg(long, value_name = "TIME", value_parser = duration_ms)]
        expires: Option<u64>,
        /// What to call the token itself, for finding it in the list
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// A scope that it is good for, as [[auth.scope]] describes it; may be given more than once [default: everything]
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// List tokens, without the tokens themselves
    List(OperateArguments),
    /// End a token at once
    Revoke {
        /// Its id, as `token list` shows it
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        operate: OperateArguments,
    },
}

/// Works with a running host (over DATA/control.sock) and without.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Read everything and say what is wrong
    Check(OperateArguments),
    /// Write everything that can be read to a new file, as JSON lines
    Export {
        /// The file; it must not exist yet
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Make a new database of an export, or of what can be read of the present one, which is kept beside it
    Rebuild {
        /// The export to restore (needs the host stopped)
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Seal the tenants' keys again, with the first of the keys in [encryption]; older keys are not needed afterwards
    #[command(
        after_long_help = "To change the operator's key: put the new one in front of the old one, start the host again, \
        `bulkhead store rekey`, take the old one away. What is stored is not written again: each tenant's data has a key of its \
        own, and only that is sealed with the operator's. `bulkhead store rebuild` takes the old seals out of the files."
    )]
    Rekey(OperateArguments),
    /// Copy the store into a new data directory, also while it is in use
    Backup {
        /// The directory; it must be empty or not exist yet
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        #[command(flatten)]
        operate: OperateArguments,
    },
}

/// Works with a running host (over DATA/control.sock) and without.
#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// List tenants, with what they have
    List(OperateArguments),
    /// Erase everything of a tenant: stop its tasks, remove them with its results, tokens, names and keys, and make the database
    /// anew
    #[command(
        after_long_help = "Old stores that `store rebuild` has left beside the present one are removed as well. The audit log \
        stays: it knows tenants and requestors by their ids, and by name where an operator's command named them. Backups, \
        exports and folders that plugins may write to are elsewhere, and yours to remove; the tenant's own ones (`{tenant}` in a \
        grant of the running host, or of --config) are named.\n\n\
        Interrupted, it is to be done once more: it goes on where it was."
    )]
    Purge {
        /// Its name, as `tenant list` shows it
        #[arg(value_name = "NAME")]
        name: String,
        /// Without asking
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        operate: OperateArguments,
    },
}

/// Works with a running host (over DATA/control.sock) and without.
#[derive(Debug, Subcommand)]
pub(crate) enum TasksCommand {
    /// List tasks
    List {
        /// Only those of the requestor of this name
        #[arg(long, value_name = "NAME")]
        requestor: Option<String>,
        /// Only those of this tenant
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        /// At most so many
        #[arg(long, value_name = "COUNT", default_value_t = 100)]
        max: usize,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Show one task; arguments, answers and results stay with their requestor
    Show(TaskArguments),
    /// Cancel a task
    Cancel(TaskArguments),
    /// Stop a task for a while; it keeps its memory and uses no CPU
    Pause {
        /// Its id
        #[arg(value_name = "ID")]
        id: String,
        /// What its requestor reads as its status, in clients that know of pauses [default: paused by the operator]
        #[arg(long, value_name = "TEXT")]
        message: Option<String>,
        #[command(flatten)]
        operate: OperateArguments,
    },
    /// Let a paused task go on, no matter who paused it
    Resume(TaskArguments),
}

/// Which task, and where.
#[derive(Args, Debug)]
pub(crate) struct TaskArguments {
    /// Its id
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    operate: OperateArguments,
}

pub(crate) async fn token(command: TokenCommand) -> anyhow::Result<ExitCode> {
    match command {
        TokenCommand::Create { requestor, tenant, expires, name, scopes, operate } => {
            let expires_at = expires.map(|ms| now().saturating_add(ms));
            let scopes = (!scopes.is_empty()).then_some(scopes);
            let request = TokenCreate { requestor, tenant, expires_at, name, scopes };
            let view = execute(&operate, request, Absent::Create).await?;
            let code = show(&operate, &view, || cell(view.token.as_str()))?;
            print_error("this token is not stored and will not be shown again");
            print_error(
                "authentication is on: the host answers 401 to every request without a token from now on, also to clients that \
                 are connected, and also after this token is revoked",
            );
            Ok(code)
        }
        TokenCommand::List(operate) => show_answer(&operate, TokenList {}, |view| token_table(view, now())).await,
        TokenCommand::Revoke { id, operate } => show_fields(&operate, TokenRevoke { id }).await,
    }
}

pub(crate) async fn store(command: StoreCommand) -> anyhow::Result<ExitCode> {
    match command {
        StoreCommand::Check(operate) => {
            let view = execute(&operate, StoreCheck {}, Absent::Refuse).await?;
            let code = show(&operate, &view, || fields(&view))?;
            // A check that found something has done its work, but scripts must see it.
            Ok(if view.sound { code } else { ExitCode::from(EXIT_FAILED) })
        }
        StoreCommand::Export { file, operate } => show_fields(&operate, StoreExport { file: absolute(&file)? }).await,
        StoreCommand::Rebuild { from, operate } => {
            let from = from.as_deref().map(absolute).transpose()?;
            show_fields(&operate, StoreRebuild { from }).await
        }
        StoreCommand::Rekey(operate) => show_fields(&operate, StoreRekey {}).await,
        StoreCommand::Backup { directory, operate } => {
            show_fields(&operate, StoreBackup { directory: absolute(&directory)? }).await
        }
    }
}

pub(crate) async fn tenant(command: TenantCommand) -> anyhow::Result<ExitCode> {
    match command {
        TenantCommand::List(operate) => show_answer(&operate, TenantList {}, tenant_table).await,
        TenantCommand::Purge { name, yes, operate } => {
            if !yes && !is_sure(&name)? {
                print_error("nothing was done");
                return Ok(ExitCode::from(EXIT_FAILED));
            }
            let view = execute(&operate, TenantPurge { tenant: name }, Absent::Refuse).await?;
            let code = show(&operate, &view, || fields(&view))?;
            let left: Vec<_> = view.directories.iter().map(|path| cell(path.as_str())).collect();
            if !left.is_empty() {
                print_error(format_args!(
                    "its files are left, for you to remove before anybody else gets its name and reads them: {}",
                    left.join(" ")
                ));
            }
            Ok(code)
        }
    }
}

/// Asks a person to write the name once more; a script says `--yes`.
fn is_sure(name: &str) -> anyhow::Result<bool> {
    let stdin = std::io::stdin();
    anyhow::ensure!(stdin.is_terminal(), "this cannot be undone: say --yes to erase everything of tenant {name}");
    print_error(format_args!(
        "this erases every task, result and token of tenant {name} for good; write its name to go on:"
    ));
    let mut line = String::new();
    stdin.read_line(&mut line)?;
    Ok(line.trim() == name)
}

pub(super) fn tenant_table(view: &TenantListView) -> String {
    let row = |tenant: &TenantView| {
        let TenantView { name, id, requestors, tokens, tasks, bytes } = tenant;
        let counts = [*requestors as u64, *tokens as u64, *tasks, *bytes];
        let mut cells = vec![cell(name.as_str())];
        cells.extend(counts.map(|count| count.to_string()));
        cells.push(cell(id.as_str()));
        cells
    };
    let rows: Vec<_> = view.tenants.iter().map(row).collect();
    table(&["NAME", "REQUESTORS", "TOKENS", "TASKS", "BYTES", "ID"], &rows)
}

pub(crate) async fn tasks(command: TasksCommand) -> anyhow::Result<ExitCode> {
    match command {
        TasksCommand::List { requestor, tenant, max, operate } => {
            let request = TasksList { requestor, tenant, count_max: max };
            show_answer(&operate, request, |view| task_list(view, now())).await
        }
        TasksCommand::Show(TaskArguments { id, operate }) => show_fields(&operate, TasksShow { id }).await,
        TasksCommand::Cancel(TaskArguments { id, operate }) => show_fields(&operate, TasksCancel { id }).await,
        TasksCommand::Pause { id, message, operate } => show_fields(&operate, TasksPause { id, message }).await,
        TasksCommand::Resume(TaskArguments { id, operate }) => show_fields(&operate, TasksResume { id }).await,
    }
}

/// Has it done on a store that is there, and shows the answer.
pub(super) async fn show_answer<R: Request>(
    operate: &OperateArguments,
    request: R,
    text: impl FnOnce(&R::Answer) -> String,
) -> anyhow::Result<ExitCode> {
    let view = execute(operate, request, Absent::Refuse).await?;
    show(operate, &view, || text(&view))
}

/// The same with one line for each member.
pub(super) async fn show_fields<R: Request>(operate: &OperateArguments, request: R) -> anyhow::Result<ExitCode> {
    show_answer(operate, request, fields).await
}

/// What to do about a data directory that is not there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Absent {
    Create,
    Refuse,
}

/// Asks the running host, or does it here when none runs.
pub(super) async fn execute<R: Request>(
    operate: &OperateArguments,
    request: R,
    absent: Absent,
) -> anyhow::Result<R::Answer> {
    execute_at(&load(operate)?, request, absent).await
}

/// The configuration that says where the data is.
pub(super) fn load(operate: &OperateArguments) -> anyhow::Result<Config> {
    let (config, data) = (operate.config.clone(), operate.data.clone());
    sources::load(&SourceArguments { config, data, ..SourceArguments::default() }, None)
}

/// The host that runs on the data directory, if one does.
pub(super) async fn running_host(config: &Config) -> anyhow::Result<Option<ControlClient>> {
    let data = &config.server.data;
    let client = ControlClient::connect(data).await;
    client.with_context(|| format!("the host at {} cannot be reached", data.display()))
}

/// Whether there is a token that could authenticate at a host on this data directory.
pub(super) async fn any_active_token(config: &Config) -> anyhow::Result<bool> {
    if !bulkhead_store::sled::is_there(&config.server.data) {
        return Ok(false);
    }
    let listed = execute_at(config, TokenList {}, Absent::Refuse).await?;
    Ok(listed.tokens.iter().any(|token| token.is_active(now())))
}

async fn execute_at<R: Request>(config: &Config, request: R, absent: Absent) -> anyhow::Result<R::Answer> {
    let data = &config.server.data;
    if let Some(host) = running_host(config).await? {
        return Ok(host.execute(request).await?);
    }
    if absent == Absent::Refuse && !bulkhead_store::sled::is_there(data) {
        anyhow::bail!("there is no store in {}: name the data directory with --data", data.display());
    }
    let command: Command = request.into();
    if let Some(answer) = super::store_maintenance::on_files(data, &command).await? {
        return Ok(answer.read::<R>()?);
    }
    if matches!(command, Command::Plugin(_)) {
        logging::start_for_a_person();
        sources::refuse_exposing(&config.plugins, data)?;
    }
    let store = super::host::open_store(config, data).await?;
    let maintenance =
        Arc::new(super::store_maintenance::SledMaintenance { store: Arc::clone(&store), data: data.clone() });
    let clock = Arc::new(SystemClock::default());
    let task_control = Arc::new(OfflineTasks { store: store.clone(), clock: clock.clone() });
    let audit = super::audit::of_idle(config)?;
    let mut operator = HostOperator::new(store.clone(), maintenance, task_control.clone(), clock);
    operator.directories = sources::directories(config);
    operator.audit = audit.clone();
    match &command {
        Command::Secret(SecretCommand::List(_) | SecretCommand::Remove(_)) => {
            operator.secrets = Some(super::secrets::unopened(config, store.clone()));
        }
        Command::Secret(SecretCommand::Set(_) | SecretCommand::Rotate(_)) => {
            operator.secrets = Some(super::secrets::open(config, store.clone()).await?);
        }
        Command::Plugin(_) => {
            let admin = super::plugins::admin(config, &store, task_control, audit.clone());
            operator.plugin_admin = Some(Box::pin(admin).await?);
        }
        _ => {}
    }
    let done = operator.execute_for(WITHOUT_HOST, command).await;
    bulkhead_store::TaskStore::close(&*store).await?;
    audit.close();
    Ok(done?.read::<R>()?)
}

/// Paths go to another process: they must not depend on where this one stands.
pub(super) fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{} is no path", path.display()))
}

/// Shows an answer as it is asked for.
pub(super) fn show(
    operate: &OperateArguments,
    view: &impl Serialize,
    text: impl FnOnce() -> String,
) -> anyhow::Result<ExitCode> {
    print_line(if operate.json { serde_json::to_string(view)? } else { text() });
    Ok(ExitCode::SUCCESS)
}

pub(super) fn token_table(view: &TokenListView, now: u64) -> String {
    let row = |token: &TokenInfo| {
        let state = match token {
            TokenInfo { revoked_at: Some(_), .. } => "revoked",
            token if token.is_active(now) => "active",
            _ => "expired",
        };
        vec![
            cell(&*token.id),
            cell(token.name.as_deref()),
            cell(&*token.requestor),
            cell(&*token.tenant),
            state.to_owned(),
            when(token.created_at, now),
            token.expires_at.map_or_else(|| "never".to_owned(), |at| when(at, now)),
            when(token.last_used_at, now),
        ]
    };
    let rows: Vec<_> = view.tokens.iter().map(row).collect();
    table(&["ID", "NAME", "REQUESTOR", "TENANT", "STATE", "CREATED", "EXPIRES", "LAST USED"], &rows)
}

pub(super) fn task_list(view: &TaskListView, now: u64) -> String {
    let more = if view.more { "\n(there are more: use --max or --json)" } else { "" };
    task_table(&view.tasks, now) + more
}

pub(super) fn task_table(tasks: &[TaskView], now: u64) -> String {
    let row = |task: &TaskView| {
        vec![
            cell(&*task.id),
            task.status.name().to_owned(),
            cell(&*task.tool),
            cell(task.requestor.as_deref()),
            cell(task.tenant.as_deref()),
            when(task.created_at, now),
            cell(task.status_message.as_deref()),
        ]
    };
    let rows: Vec<_> = tasks.iter().map(row).collect();
    table(&["ID", "STATUS", "TOOL", "REQUESTOR", "TENANT", "CREATED", "MESSAGE"], &rows)
}
