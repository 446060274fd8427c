//! The words of the authors' commands. Those that need no host are the library's, and `bulkhead-plugin`'s as well.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bulkhead_console::PROGRAM;
use clap::{Args, Subcommand};

use super::dev_host::DevArguments;
use super::plugin_test::{self, TestArguments};
use super::registry::{self, ConfiguredPushArguments, PullArguments};
use super::{check, compose, dev};

/// What authors of plugins do.
#[derive(Debug, Subcommand)]
pub enum AuthorCommand {
    #[command(flatten)]
    Hostless(bulkhead_author_cli::AuthorCommand),
    /// Say everything that a host would refuse in a component, and what it would be better with
    Check(HostCheckArguments),
    /// Run the tests of a project against its component
    Test(TestArguments),
    /// Serve a project, and build and switch again whenever its sources change
    Dev(DevArguments),
    /// Make one component of several: what one imports and one behind it exports is connected
    Compose(compose::ComposeArguments),
    /// Put a component into an OCI registry
    Push(ConfiguredPushArguments),
    /// Take a component out of an OCI registry into a file
    Pull(PullArguments),
}

/// Say everything that a host would refuse in a component, and what it would be better with.
///
/// The component is loaded as a host would load it, with the default limits. Exit code 0: a host takes it (perhaps with
/// warnings); 1: a tool that no call can succeed of, a component that offers nothing, or warnings with --strict; 4: a
/// host refuses it.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  bulkhead plugin check target/plugins/csv.wasm")]
pub struct HostCheckArguments {
    #[command(flatten)]
    pub(super) check: bulkhead_author_cli::CheckArguments,
}

/// Does one of them. `install` switches the host on a data directory to a component.
pub async fn run(
    command: AuthorCommand,
    install: impl AsyncFn(&Path, PathBuf) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    match command {
        AuthorCommand::Hostless(command) => Ok(bulkhead_author_cli::run(command, PROGRAM).await?.print(PROGRAM)),
        AuthorCommand::Check(arguments) => check::run(arguments.check).await,
        AuthorCommand::Test(arguments) => plugin_test::run(arguments).await,
        AuthorCommand::Dev(arguments) => dev::run(arguments, install).await,
        AuthorCommand::Compose(arguments) => tokio::task::spawn_blocking(move || compose::run(&arguments)).await?,
        AuthorCommand::Push(arguments) => registry::push(arguments).await,
        AuthorCommand::Pull(arguments) => registry::pull(arguments).await,
    }
}
