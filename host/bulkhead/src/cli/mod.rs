//! What `bulkhead` can be told to do.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "clap prints these texts as help; brackets in them name sections of the configuration"
)]

#[cfg(test)]
mod answers;
mod args;
mod audit;
mod audit_files;
mod author;
mod call;
mod check;
mod client;
mod compile_cache;
mod compose;
mod config_check;
mod console;
mod dashboard;
mod dashboard_listener;
mod data_directory;
mod dev;
mod dev_host;
mod doctor;
mod durability;
mod exit_code;
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
mod offline;
mod operate;
mod plugin_arguments;
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
mod secret_keys;
mod secrets;
mod serve;
mod service_manager;
mod serving;
mod shell_support;
mod source_arguments;
mod source_files;
mod sources;
mod stdio;
mod stdio_host;
mod store_maintenance;
mod system_clock;
mod table;
mod tasks;
mod tenants;
mod terminal;
mod tokens;
mod top;
mod traces;
mod trust;
mod values;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Arguments, Subcommand};
use console::print_error;
use exit_code::exit_code;
use host::make_private_files;
use resources::Resources;

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
