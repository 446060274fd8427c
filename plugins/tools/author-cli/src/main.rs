//! `bulkhead-plugin`: the authors' commands without a host, for every system with the languages' own tools.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use bulkhead_author_cli::{AuthorCommand, CheckArguments, EXIT_FAILED, Outcome, PushArguments};
use bulkhead_sources::FetchOptions;
use bulkhead_sources::oci::Logins;
use clap::{Args, Parser, Subcommand};

const PROGRAM: &str = "bulkhead-plugin";
/// The program that runs plugins.
const HOST: &str = "bulkhead";

/// Write plugins for Bulkhead: start, build, wrap, check, sign and push them.
///
/// Every command is `bulkhead plugin COMMAND` too. This program is small, and runs no plugin: `call`, `replay`, `dev`,
/// `test`, `inspect`, `pull` and the full `check` are those of `bulkhead`, which is run if it is on the PATH.
#[derive(Debug, Parser)]
#[command(name = "bulkhead-plugin", version, max_term_width = 120)]
struct Arguments {
    #[command(subcommand)]
    command: PluginCommand,
}

#[derive(Debug, Subcommand)]
enum PluginCommand {
    #[command(flatten)]
    Author(AuthorCommand),
    /// Say what a host refuses in a component, and what it would be better with
    Check(StaticCheckArguments),
    /// Put a component into an OCI registry
    Push(PushArguments),
    /// Call one tool once (needs `bulkhead`)
    Call(HostArguments),
    /// Run a recorded call again, from its journal alone (needs `bulkhead`)
    Replay(HostArguments),
    /// Serve a project, and build and switch again whenever its sources change (needs `bulkhead`)
    Dev(HostArguments),
    /// Run the tests of a project against its component (needs `bulkhead`)
    Test(HostArguments),
    /// Show a component's tools, schemas, imports, wishes, digest and size (needs `bulkhead`)
    Inspect(HostArguments),
    /// Take a component out of an OCI registry into a file (needs `bulkhead`)
    Pull(HostArguments),
}

/// Say what a host refuses in a component, and what it would be better with.
///
/// Where `bulkhead` is on the PATH, it loads the component as a host would. Without it, and with --static, the
/// component is not run: its manifest, imports and exports are checked. Exit code 4: a host refuses it; 1: there are
/// warnings, with --strict.
#[derive(Args, Debug)]
struct StaticCheckArguments {
    #[command(flatten)]
    check: CheckArguments,
    /// Without running it, even where `bulkhead` is there
    #[arg(long = "static")]
    is_static: bool,
}

/// Passed on to `bulkhead`.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
struct HostArguments {
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(outcome) => outcome.print(PROGRAM),
        Err(error) => {
            Outcome { notes: vec![format!("{error:#}")], code: EXIT_FAILED, ..Outcome::default() }.print(PROGRAM)
        }
    }
}

fn run(command: PluginCommand) -> anyhow::Result<Outcome> {
    match command {
        PluginCommand::Author(command) => runtime()?.block_on(bulkhead_author_cli::run(command, PROGRAM)),
        PluginCommand::Check(StaticCheckArguments { check, is_static }) => checked(&check, is_static),
        PluginCommand::Push(arguments) => {
            let logins = Logins::of_environment(|name| std::env::var(name).ok());
            let options = FetchOptions { logins, ..FetchOptions::default() };
            runtime()?.block_on(bulkhead_author_cli::push(arguments, options, PROGRAM))
        }
        PluginCommand::Call(arguments) => of_host("call", arguments.arguments),
        PluginCommand::Replay(arguments) => of_host("replay", arguments.arguments),
        PluginCommand::Dev(arguments) => of_host("dev", arguments.arguments),
        PluginCommand::Test(arguments) => of_host("test", arguments.arguments),
        PluginCommand::Inspect(arguments) => of_host("inspect", arguments.arguments),
        PluginCommand::Pull(arguments) => of_host("pull", arguments.arguments),
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("timers and sockets cannot be set up")
}

fn checked(arguments: &CheckArguments, is_static: bool) -> anyhow::Result<Outcome> {
    match bulkhead_author::find_program(HOST, &[]).filter(|_| !is_static) {
        Some(host) => {
            let flags = [(arguments.json, "--json"), (arguments.strict, "--strict")];
            let flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| OsString::from(flag));
            let file = std::iter::once(arguments.file.clone().into_os_string());
            run_host(host, "check", flags.chain(["--".into()]).chain(file).collect())
        }
        None => {
            let mut outcome = bulkhead_author_cli::check(arguments)?;
            if !is_static {
                outcome.notes.push(format!(
                    "{HOST} is not on the PATH, so the component was not run: what its tools say was not checked"
                ));
            }
            Ok(outcome)
        }
    }
}

/// A command that runs the plugin.
fn of_host(command: &str, arguments: Vec<OsString>) -> anyhow::Result<Outcome> {
    match bulkhead_author::find_program(HOST, &[]) {
        Some(host) => run_host(host, command, arguments),
        None => Ok(Outcome {
            notes: vec![format!(
                "`{command}` is a command of the host: put the program `{HOST}` on the PATH (on Linux, `cargo build --release -p \
                 bulkhead` in a clone of Bulkhead makes it)"
            )],
            code: EXIT_FAILED,
            ..Outcome::default()
        }),
    }
}

fn run_host(host: PathBuf, command: &str, arguments: Vec<OsString>) -> anyhow::Result<Outcome> {
    let status = Command::new(&host).arg("plugin").arg(command).args(arguments).status();
    let status = status.with_context(|| format!("{} cannot be started", host.display()))?;
    // Ended by a signal, it has no code.
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(EXIT_FAILED);
    Ok(Outcome { code, ..Outcome::default() })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
        let parsed = Arguments::try_parse_from([PROGRAM, "call", "x.wasm", "greet", "--json", "--help"]).unwrap();
        let PluginCommand::Call(passed) = parsed.command else { panic!("{parsed:?}") };
        assert_eq!(passed.arguments, ["x.wasm", "greet", "--json", "--help"], "the host reads them");
    }

    #[test]
    fn every_command_has_its_result_as_json() {
        for command in Arguments::command().get_subcommands() {
            let mut arguments = command.get_arguments();
            // What is passed on is the host's to read.
            let has_json =
                |argument: &clap::Arg| argument.get_long() == Some("json") || argument.is_trailing_var_arg_set();
            assert!(arguments.any(has_json), "{} has no --json", command.get_name());
        }
    }
}
