//! What `bulkhead` can be told to do.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "clap prints these texts as help; brackets in them name sections of the configuration"
)]

#[cfg(test)]
mod answers;
mod args;
mod audit;
mod client;
mod config;
mod dashboard;
mod data_directory;
mod doctor;
mod exit_code;
mod far;
mod help;
mod limits;
mod operate;
mod plugin_arguments;
mod plugin_changes;
mod plugin_usage;
mod plugins;
mod rates;
mod reference;
mod running;
mod secrets;
mod serve;
mod shell_support;
mod source_arguments;
mod stdio;
mod store;
mod tasks;
mod tenant;
mod tokens;
mod top;
mod values;

use std::process::ExitCode;

use bulkhead_assembly::host::make_private_files;
use bulkhead_assembly::resources::Resources;
use bulkhead_console::print_error;
use clap::Parser as _;

use args::{Arguments, Subcommand};
use exit_code::exit_code;

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
        Subcommand::Store { command } => store::run(command).await,
        Subcommand::Tenant { command } => tenant::run(command).await,
        Subcommand::Tasks { command } => tasks::run(command).await,
        Subcommand::Config { command } => config::run(command),
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
