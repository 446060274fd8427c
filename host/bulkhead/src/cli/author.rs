//! The words of the authors' commands. Those that need no host are the library's, and `bulkhead-plugin`'s as well.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::grant_arguments::GrantArguments;
use super::plugin_test::{self, TestArguments};
use super::registry::{self, ConfiguredPushArguments, PullArguments};
use super::{PROGRAM, check, compose, dev};

/// What authors of plugins do.
#[derive(Debug, Subcommand)]
pub(crate) enum AuthorCommand {
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
/// The component is loaded as a host would load it, with the default limits. Exit code 0: a host takes it (perhaps with warnings);
/// 1: a tool that no call can succeed of, a component that offers nothing, or warnings with --strict; 4: a host refuses it.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  bulkhead plugin check target/plugins/csv.wasm")]
pub(crate) struct HostCheckArguments {
    #[command(flatten)]
    pub(super) check: bulkhead_author_cli::CheckArguments,
}

/// Serve a project, and build and switch again whenever its sources change.
///
/// Starts a host of its own. Every call is told on stderr: its arguments, questions and answers, what the plugin prints, and what came
/// of it after how long. BULKHEAD_LOG_LEVEL adds the host's own logs. What does not build or is refused is said, and the version before goes on serving. Ctrl-C ends both.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  bulkhead plugin dev trip-planner")]
pub(crate) struct DevArguments {
    /// The project's folder
    #[arg(value_name = "DIR", default_value = ".")]
    pub(super) dir: PathBuf,
    /// The address to listen on; port 0 picks a free one [default: 127.0.0.1:8808]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(super) listen: Option<String>,
    /// The host's data directory [default: DIR/.bulkhead-dev]
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// A clone of Bulkhead, for its interface and SDK [default: DIR/bulkhead]
    #[arg(long, value_name = "DIR")]
    pub(super) sdk: Option<PathBuf>,
    /// The configuration file of the host; what it grants the [[plugin]] of this name holds as well
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Answers to the plugin's questions, as for `plugin call`; the client is asked what is not in it
    #[arg(long, value_name = "FILE")]
    pub(super) answers: Option<PathBuf>,
    /// Only serve: what the command runs beside itself
    #[arg(long = "host", hide = true)]
    pub(super) is_host: bool,
    /// Passed on to Cargo
    #[arg(last = true, value_name = "ARGUMENT")]
    pub(super) cargo: Vec<String>,
    #[command(flatten)]
    pub(super) grants: GrantArguments,
}

pub(crate) async fn run(command: AuthorCommand) -> anyhow::Result<ExitCode> {
    match command {
        AuthorCommand::Hostless(command) => Ok(bulkhead_author_cli::run(command, PROGRAM).await?.print(PROGRAM)),
        AuthorCommand::Check(arguments) => check::run(arguments.check).await,
        AuthorCommand::Test(arguments) => plugin_test::run(arguments).await,
        AuthorCommand::Dev(arguments) => dev::run(arguments).await,
        AuthorCommand::Compose(arguments) => tokio::task::spawn_blocking(move || compose::run(&arguments)).await?,
        AuthorCommand::Push(arguments) => registry::push(arguments).await,
        AuthorCommand::Pull(arguments) => registry::pull(arguments).await,
    }
}
