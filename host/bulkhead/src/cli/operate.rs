//! What every operator's command has: which host it is for, how it gets there, and how the answer is shown.
//!
//! Owns the way: to a host elsewhere, over a running host's control socket, or to the data directory itself. Must not
//! know what a command does.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bulkhead_assembly::offline::{connect, execute_at};
use bulkhead_config::Config;
use bulkhead_console::table::{Layout, cell, fields};
use bulkhead_console::{logging, print_error, print_line, progress};
use bulkhead_control::commands::{PluginCommand, StoreCommand, TenantCommand, TokenList};
use bulkhead_control::{Answer, Command, Operator as _, Request, WITHOUT_HOST};
use clap::Args;
use serde::Serialize;

use super::data_directory::Found;
use super::exit_code::is_held_for_now;
use super::far::FarArguments;

/// Which host, and how to answer.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct OperateArguments {
    /// The host's data directory [default: BULKHEAD_SERVER_DATA, else what the configuration says, else
    /// ./bulkhead-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// The configuration file [default: BULKHEAD_CONFIG; where nothing names the data directory, else ./bulkhead.toml,
    /// else /etc/bulkhead/bulkhead.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) far: FarArguments,
    /// One JSON value instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Wait for a host that starts, and for another command that has the data directory, instead of ending with exit
    /// code 75
    #[arg(long)]
    pub(crate) wait: bool,
    /// Tables as wide as they are, also where the terminal is narrower
    #[arg(long)]
    pub(crate) wide: bool,
}

impl OperateArguments {
    fn search(&self) -> Found {
        Found::search(self.data.as_deref(), self.config.as_deref())
    }
}

/// Has it done on a store that is there, and shows the answer.
pub(super) async fn show_answer<R: Request>(
    operate: &OperateArguments,
    request: R,
    text: impl FnOnce(&R::Answer, &Layout) -> String,
) -> anyhow::Result<ExitCode> {
    let view = execute(operate, request, Absent::Refuse).await?;
    show(operate, &view, |layout| text(&view, layout))
}

/// The same with one line for each member.
pub(super) async fn show_fields<R: Request>(operate: &OperateArguments, request: R) -> anyhow::Result<ExitCode> {
    show_answer(operate, request, |view, _| fields(view)).await
}

/// What to do about a data directory that is not there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Absent {
    Create,
    Refuse,
}

/// Has a command carried out: by the host elsewhere that was named, by the running one, or here when none runs.
pub(super) async fn execute<R: Request>(
    operate: &OperateArguments,
    request: R,
    absent: Absent,
) -> anyhow::Result<R::Answer> {
    let command = request.into();
    let what = describe(&command);
    // Large, and the same for every request.
    let work = Box::pin(until_started(operate, command, absent));
    Ok(progress::during(&what, work).await?.read::<R>()?)
}

/// What a command does, for the line about it.
fn describe(command: &Command) -> String {
    let sources = |sources: &[String]| sources.iter().map(|source| cell(&**source)).collect::<Vec<_>>().join(", ");
    match command {
        Command::Plugin(PluginCommand::Stage(stage)) => format!("fetching and compiling {}", cell(&*stage.source)),
        Command::Plugin(PluginCommand::Add(add)) => format!("fetching and compiling {}", sources(&add.sources)),
        Command::Plugin(PluginCommand::Update(update)) => {
            format!("fetching and compiling what is at the source of {}", cell(&*update.name))
        }
        Command::Plugin(PluginCommand::Verify(_)) => "reading the kept components".to_owned(),
        Command::Plugin(PluginCommand::Usage(_)) => "reading the store".to_owned(),
        Command::Plugin(_) => "changing plugins".to_owned(),
        Command::Store(StoreCommand::Check(_)) => "reading the store".to_owned(),
        Command::Store(StoreCommand::Export(_)) => "exporting the store".to_owned(),
        Command::Store(StoreCommand::Rebuild(_)) => "rebuilding the store".to_owned(),
        Command::Store(StoreCommand::Backup(_)) => "copying the store".to_owned(),
        Command::Store(StoreCommand::Rekey(_)) => "sealing the keys of tenants".to_owned(),
        Command::Tenant(TenantCommand::Purge(_)) => "erasing the tenant and rebuilding the store".to_owned(),
        Command::Audit(_) => "reading the audit log".to_owned(),
        Command::Token(_) | Command::Secret(_) | Command::Tenant(_) | Command::Tasks(_) | Command::Host(_) => {
            "waiting for the host or the store".to_owned()
        }
    }
}

/// Between two looks at a host that starts.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// With `--wait` as often as it takes, and says what is waited for.
async fn until_started(operate: &OperateArguments, command: Command, absent: Absent) -> anyhow::Result<Answer> {
    let mut last = String::new();
    loop {
        let done = carry_out(operate, command.clone(), absent).await;
        let error = match done {
            Err(error) if operate.wait && is_held_for_now(&error) => error.root_cause().to_string(),
            done => return done,
        };
        if error != last {
            print_error(format_args!("waiting: {}", cell(&*error)));
            last = error;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn carry_out(operate: &OperateArguments, command: Command, absent: Absent) -> anyhow::Result<Answer> {
    if let Some(answer) = operate.far.carry_out(&command).await? {
        return Ok(answer);
    }
    let found = operate.search();
    // A configuration that is wrong must not keep anybody from the host that runs, which says what is wrong with it.
    if let Some(data) = found.named()
        && let Some(host) = connect(data).await?
    {
        return Ok(host.execute_for(WITHOUT_HOST, command).await?);
    }
    let config = found.load()?;
    if absent == Absent::Refuse && !is_there(&config).await? {
        return Err(found.no_store(&config));
    }
    if matches!(command, Command::Plugin(_)) {
        logging::start_for_a_person();
    }
    execute_at(&config, command).await
}

/// The configuration that says where the data is.
pub(super) fn load(operate: &OperateArguments) -> anyhow::Result<Config> {
    operate.search().load()
}

/// Whether there is a store, or a host that has one.
async fn is_there(config: &Config) -> anyhow::Result<bool> {
    let is_there = config.database.is_some() || bulkhead_store::sled::is_there(&config.server.data);
    Ok(is_there || connect(&config.server.data).await?.is_some())
}

/// Whether a host runs that would carry a command out: the one elsewhere that was named, or the one on the data
/// directory.
pub(super) async fn is_host_running(operate: &OperateArguments) -> anyhow::Result<bool> {
    match operate.search().named() {
        _ if operate.far.is_named() => Ok(true),
        Some(data) => Ok(connect(data).await?.is_some()),
        None => Ok(false),
    }
}

/// Whether there ever was a token, as far as the list of them shows.
pub(super) async fn any_token(operate: &OperateArguments) -> anyhow::Result<bool> {
    if !is_host_running(operate).await? && !is_there(&load(operate)?).await? {
        return Ok(false);
    }
    Ok(!execute(operate, TokenList {}, Absent::Refuse).await?.tokens.is_empty())
}

/// Shows an answer as it is asked for.
pub(super) fn show(
    operate: &OperateArguments,
    view: &impl Serialize,
    text: impl FnOnce(&Layout) -> String,
) -> anyhow::Result<ExitCode> {
    print_line(if operate.json { serde_json::to_string(view)? } else { text(&Layout::of_stdout(operate.wide)) });
    Ok(ExitCode::SUCCESS)
}
