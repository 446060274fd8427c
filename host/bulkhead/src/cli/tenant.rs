//! `bulkhead tenant`.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use bulkhead_author_cli::EXIT_FAILED;
use bulkhead_config::amounts;
use bulkhead_console::print_error;
use bulkhead_console::table::{Layout, cell, fields};
use bulkhead_control::commands::{TenantList, TenantPurge, TenantUsage};
use bulkhead_control::views::{TenantDayView, TenantListView, TenantUsageView, TenantView};
use bulkhead_store::usage_days::USAGE_DAYS_MAX;
use clap::Subcommand;

use super::operate::{Absent, OperateArguments, execute, show, show_answer};

/// Works with a running host (over DATA/control.sock) and without.
#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// List tenants, with what they have
    List(OperateArguments),
    /// Show what tenants used, by tenant and day (UTC): calls, CPU time, bytes of requests and answers, and stored
    /// bytes
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
    /// Erase everything of a tenant: stop its tasks, remove them with its results, tokens, names and keys, and make the
    /// database anew
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

pub(crate) async fn run(command: TenantCommand) -> anyhow::Result<ExitCode> {
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
        let counts = [*requestors as u64, *tokens as u64, *tasks];
        let mut cells = vec![cell(name.as_str())];
        cells.extend(counts.map(|count| count.to_string()));
        cells.push(amounts::bytes(*bytes));
        cells.push(cell(id.as_str()));
        cells
    };
    let rows: Vec<_> = view.tenants.iter().map(row).collect();
    layout.table(&["NAME", "REQUESTORS", "TOKENS", "TASKS", "STORED", "ID"], &rows)
}

const MORE_USAGE: &str = "there is more: ask for one tenant or for fewer days";
const USAGE_HEAD: [&str; 8] = ["TENANT", "DAY", "CALLS", "CPU TIME", "CAME IN", "WENT OUT", "STORED", "TENANT_ID"];
const USAGE_COLUMNS: [&str; 8] =
    ["TENANT", "DAY", "CALLS", "CPU_MS", "BYTES_IN", "BYTES_OUT", "STORED_BYTES", "TENANT_ID"];

/// For a program the numbers as they are.
fn usage_cells(day: &TenantDayView) -> Vec<String> {
    let TenantDayView { tenant, id, day, calls, cpu_ms, bytes_in, bytes_out, stored_bytes } = day;
    let mut cells = vec![cell(tenant.as_deref()), cell(day.as_str())];
    cells.extend([calls, cpu_ms, bytes_in, bytes_out, stored_bytes].map(u64::to_string));
    cells.push(cell(id.as_str()));
    cells
}

fn usage_row(day: &TenantDayView) -> Vec<String> {
    let TenantDayView { tenant, id, day, calls, cpu_ms, bytes_in, bytes_out, stored_bytes } = day;
    let mut cells = vec![cell(tenant.as_deref()), cell(day.as_str()), calls.to_string(), amounts::duration(*cpu_ms)];
    cells.extend([bytes_in, bytes_out, stored_bytes].map(|number| amounts::bytes(*number)));
    cells.push(cell(id.as_str()));
    cells
}

pub(super) fn usage_table(view: &TenantUsageView, layout: &Layout) -> String {
    let rows: Vec<_> = view.usage.iter().map(usage_row).collect();
    let more = if view.more { format!("\n({MORE_USAGE})") } else { String::new() };
    layout.table(&USAGE_HEAD, &rows) + &more
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
