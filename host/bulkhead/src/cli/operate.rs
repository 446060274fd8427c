//! The operator's commands: the same over a running host's control socket, on a store of one's own and from afar.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use bulkhead_author_cli::EXIT_FAILED;
use bulkhead_config::Config;
use bulkhead_control::commands::{
    StoreBackup, StoreCheck, StoreExport, StoreRebuild, StoreRekey, TenantList, TenantPurge, TenantUsage, TokenList,
};
use bulkhead_control::views::{TenantDayView, TenantListView, TenantUsageView, TenantView};
use bulkhead_control::{Answer, Command, Operator as _, Request, WITHOUT_HOST};
use bulkhead_store::usage_days::USAGE_DAYS_MAX;
use clap::{Args, Subcommand};
use serde::Serialize;

use super::console::{print_error, print_line};
use super::data_directory::Found;
use super::far::FarArguments;
use super::logging;
use super::offline::{connect, execute_at};
use super::progress;
use super::table::{Layout, cell, fields};

/// Which host, and how to answer.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct OperateArguments {
    /// The host's data directory [default: BULKHEAD_SERVER_DATA, else what the configuration says, else ./bulkhead-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// The configuration file [default: BULKHEAD_CONFIG; where nothing names the data directory, else ./bulkhead.toml, else
    /// /etc/bulkhead/bulkhead.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) far: FarArguments,
    /// One JSON value instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Tables as wide as they are, also where the terminal is narrower
    #[arg(long)]
    pub(crate) wide: bool,
}

impl OperateArguments {
    fn search(&self) -> Found {
        Found::search(self.data.as_deref(), self.config.as_deref())
    }
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
    /// Copy the store and the components of plugins into a new data directory, also while they are in use
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
    /// Show what tenants used, by tenant and day (UTC): calls, CPU time, bytes of requests and answers, and stored bytes
    #[command(
        after_long_help = "Calls are those of plugins that ended, plain ones and tasks. The stored bytes are the most of the day. A day \
        on which a tenant did nothing has no line. 90 days are kept.\n\n\
        A host writes what it counted once a minute and when it ends; one that is killed loses what it had not written.\n\n\
        Examples:\n  \
        bulkhead tenant usage acme\n  \
        bulkhead tenant usage --days 90 --csv > usage.csv"
    )]
    Usage {
        /// Only that of this tenant
        #[arg(value_name = "NAME")]
        name: Option<String>,
        /// Today and the days before it, so many in all
        #[arg(long, value_name = "COUNT", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=USAGE_DAYS_MAX.into()))]
        days: u32,
        /// Lines of comma-separated values instead of text, the first with the names of the columns
        #[arg(long, conflicts_with = "json")]
        csv: bool,
        #[command(flatten)]
        operate: OperateArguments,
    },
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

pub(crate) async fn store(command: StoreCommand) -> anyhow::Result<ExitCode> {
    match command {
        StoreCommand::Check(operate) => {
            let view = execute(&operate, StoreCheck {}, Absent::Refuse).await?;
            let code = show(&operate, &view, |_| fields(&view))?;
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
        TenantCommand::Usage { name, days, csv, operate } => {
            let text =
                |view: &TenantUsageView, layout: &Layout| if csv { usage_csv(view) } else { usage_table(view, layout) };
            let view = execute(&operate, TenantUsage { tenant: name, days }, Absent::Refuse).await?;
            let code = show(&operate, &view, |layout| text(&view, layout))?;
            // A table says so itself, and JSON has a member for it.
            if csv && view.more {
                print_error(MORE_USAGE);
            }
            Ok(code)
        }
        TenantCommand::Purge { name, yes, operate } => {
            if !yes && !is_sure(&name)? {
                print_error("nothing was done");
                return Ok(ExitCode::from(EXIT_FAILED));
            }
            let view = execute(&operate, TenantPurge { tenant: name }, Absent::Refuse).await?;
            let code = show(&operate, &view, |_| fields(&view))?;
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

pub(super) fn tenant_table(view: &TenantListView, layout: &Layout) -> String {
    let row = |tenant: &TenantView| {
        let TenantView { name, id, requestors, tokens, tasks, bytes } = tenant;
        let counts = [*requestors as u64, *tokens as u64, *tasks, *bytes];
        let mut cells = vec![cell(name.as_str())];
        cells.extend(counts.map(|count| count.to_string()));
        cells.push(cell(id.as_str()));
        cells
    };
    let rows: Vec<_> = view.tenants.iter().map(row).collect();
    layout.table(&["NAME", "REQUESTORS", "TOKENS", "TASKS", "BYTES", "ID"], &rows)
}

const MORE_USAGE: &str = "there is more: ask for one tenant or for fewer days";
const USAGE_COLUMNS: [&str; 8] =
    ["TENANT", "DAY", "CALLS", "CPU_MS", "BYTES_IN", "BYTES_OUT", "STORED_BYTES", "TENANT_ID"];

fn usage_cells(day: &TenantDayView) -> Vec<String> {
    let TenantDayView { tenant, id, day, calls, cpu_ms, bytes_in, bytes_out, stored_bytes } = day;
    let mut cells = vec![cell(tenant.as_deref()), cell(day.as_str())];
    cells.extend([calls, cpu_ms, bytes_in, bytes_out, stored_bytes].map(u64::to_string));
    cells.push(cell(id.as_str()));
    cells
}

pub(super) fn usage_table(view: &TenantUsageView, layout: &Layout) -> String {
    let rows: Vec<_> = view.usage.iter().map(usage_cells).collect();
    let more = if view.more { format!("\n({MORE_USAGE})") } else { String::new() };
    layout.table(&USAGE_COLUMNS, &rows) + &more
}

/// As RFC 4180 has it. The name of a tenant may hold what separates values.
fn usage_csv(view: &TenantUsageView) -> String {
    let quoted = |text: String| match text.contains([',', '"']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    };
    let line = |day: &TenantDayView| usage_cells(day).into_iter().map(quoted).collect::<Vec<_>>().join(",");
    let head = USAGE_COLUMNS.join(",").to_lowercase();
    std::iter::once(head).chain(view.usage.iter().map(line)).collect::<Vec<_>>().join("\n")
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
    let what = progress::describe(&command);
    // Large, and the same for every request.
    let work = Box::pin(carry_out(operate, command, absent));
    Ok(progress::during(&what, work).await?.read::<R>()?)
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
    Ok(bulkhead_store::sled::is_there(&config.server.data) || connect(&config.server.data).await?.is_some())
}

/// Whether a host runs that would carry a command out: the one elsewhere that was named, or the one on the data directory.
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

/// Paths go to another process: they must not depend on where this one stands.
pub(super) fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{} is no path", path.display()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_as_comma_separated_values_quotes_what_separates() {
        let day = TenantDayView {
            tenant: Some("a,\"b\"".to_owned()),
            id: "01".to_owned(),
            day: "2026-11-25".to_owned(),
            calls: 1,
            cpu_ms: 2,
            bytes_in: 3,
            bytes_out: 4,
            stored_bytes: 5,
        };
        let unnamed = TenantDayView { tenant: None, ..day.clone() };
        let text = usage_csv(&TenantUsageView { usage: vec![day, unnamed], more: false });
        let expected = "tenant,day,calls,cpu_ms,bytes_in,bytes_out,stored_bytes,tenant_id\n\
            \"a,\"\"b\"\"\",2026-11-25,1,2,3,4,5,01\n\
            -,2026-11-25,1,2,3,4,5,01";
        assert_eq!(text, expected);
    }
}
