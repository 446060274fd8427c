//! What `bulkhead` can be told to do.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "clap prints these texts as help; brackets in them name sections of the configuration"
)]

#[cfg(test)]
mod answers;
mod args;
mod audit;
mod author;
mod call;
mod check;
mod client;
mod compile_cache;
mod compose;
mod dashboard;
mod data_directory;
mod dev;
mod dev_host;
mod doctor;
mod durability;
mod far;
mod grant_arguments;
mod grants;
mod help;
mod host;
mod input_answers;
mod inspect;
mod journal_file;
mod limits;
mod log_trace;
mod logging;
mod operate;
mod plugin_changes;
mod plugin_test;
mod plugins;
mod progress;
mod rates;
mod reference;
mod registry;
mod reload;
mod replay;
mod resources;
mod running;
mod scraping;
mod secrets;
mod serve;
mod service_manager;
mod shell_support;
mod source_files;
mod sources;
mod stdio;
mod store_maintenance;
mod table;
mod tasks;
mod tenants;
mod terminal;
mod tokens;
mod top;
mod traces;
mod trust;
mod values;

use std::io::Write as _;
use std::process::ExitCode;

use bulkhead_control::ControlError;
use clap::Parser as _;
use rustix::fs::Mode;

use args::{Arguments, Subcommand};
use resources::Resources;

/// What the program calls itself where it speaks to a person.
pub(crate) const PROGRAM: &str = "bulkhead";
/// Something did not work.
pub(crate) const EXIT_FAILED: u8 = 1;
/// The command line or the configuration is wrong.
pub(crate) const EXIT_USAGE: u8 = 2;

/// The data directory is another process's for the moment: a host that starts, or a command that is at it (`EX_TEMPFAIL`).
pub(crate) const EXIT_TRY_AGAIN: u8 = 75;

/// Reads the command line and does what it says.
pub(crate) fn run() -> ExitCode {
    let arguments = Arguments::parse();
    // What authors make of their sources is for others too, as long as no data directory is touched.
    if !matches!(arguments.command, Subcommand::Plugin { .. }) {
        make_private_files();
    }
    if let Err(shortage) = Resources::of_command().look() {
        return failed(&shortage.into());
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&anyhow::Error::new(error).context("threads cannot be started")),
    };
    let done = runtime.block_on(dispatch(arguments.command));
    // A read of the terminal that nobody waits for any more must not hold up the end.
    runtime.shutdown_background();
    done.unwrap_or_else(|error| failed(&error))
}

/// Whatever is made from here on is for the user of the host alone.
pub(crate) fn make_private_files() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

async fn dispatch(command: Subcommand) -> anyhow::Result<ExitCode> {
    match command {
        Subcommand::Serve(arguments) => Box::pin(serve::run(arguments)).await,
        Subcommand::Stdio(arguments) => stdio::run(arguments).await,
        Subcommand::Plugin { command } => Box::pin(plugins::run(command)).await,
        Subcommand::Token { command } => tokens::run(command).await,
        Subcommand::Secret { command } => secrets::run(command).await,
        Subcommand::Store { command } => operate::store(command).await,
        Subcommand::Tenant { command } => operate::tenant(command).await,
        Subcommand::Tasks { command } => tasks::run(command).await,
        Subcommand::Limits(arguments) => limits::run(arguments).await,
        Subcommand::Top(arguments) => top::run(arguments).await,
        Subcommand::Host { command } => running::run(command).await,
        Subcommand::Dashboard { command } => dashboard::run(command).await,
        Subcommand::Audit { command } => audit::run(command).await,
        Subcommand::Client { command } => client::run(command),
        Subcommand::Completions { shell } => shell_support::print_completions(shell).map(|()| ExitCode::SUCCESS),
        Subcommand::ManPages { folder } => shell_support::write_man_pages(&folder).map(|()| ExitCode::SUCCESS),
        Subcommand::Reference { page } => {
            reference::print(page);
            Ok(ExitCode::SUCCESS)
        }
        Subcommand::Doctor(arguments) => doctor::run(arguments).await,
        Subcommand::Help(arguments) => help::run(&arguments),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    print_error(format_args!("{error:#}"));
    ExitCode::from(exit_code(error))
}

/// What the program ends with after an error.
fn exit_code(error: &anyhow::Error) -> u8 {
    let is_usage = error.is::<bulkhead_config::Problems>() || error.is::<bulkhead_config::Problem>();
    let is_starting = matches!(error.downcast_ref(), Some(ControlError::Starting(_)));
    match (is_usage, is_starting || operate::is_locked(error)) {
        (true, _) => EXIT_USAGE,
        (_, true) => EXIT_TRY_AGAIN,
        _ => EXIT_FAILED,
    }
}

/// A line on stderr, for a person.
pub(crate) fn print_error(text: impl std::fmt::Display) {
    // If nobody reads stderr, nobody can be told.
    let _ = writeln!(std::io::stderr(), "{PROGRAM}: {text}");
}

/// A line on stdout: what was asked for. A reader that went away has seen enough.
pub(crate) fn print_line(text: impl std::fmt::Display) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{text}");
    let _ = stdout.flush();
}
