//! `bulkhead plugin new` and `bulkhead plugin build`, and the words of the authors' commands.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bulkhead_author::{Language, Options};
use clap::{Args, Subcommand, ValueEnum};

use super::registry::{self, PullArguments, PushArguments};
use super::signing::{self, KeygenArguments, SignArguments};
use super::{EXIT_FAILED, EXIT_USAGE, check, dev, print_error, print_line};

/// What authors of plugins do.
#[derive(Debug, Subcommand)]
pub(crate) enum AuthorCommand {
    /// Start a plugin: a small project with two tools, a test and a README
    New(NewArguments),
    /// Make a component of a project
    Build(BuildArguments),
    /// Say everything that a host would refuse in a component, and what it would be better with
    Check(CheckArguments),
    /// Serve a project, and build and switch again whenever its sources change
    Dev(DevArguments),
    /// Put a component into an OCI registry
    Push(PushArguments),
    /// Take a component out of an OCI registry into a file
    Pull(PullArguments),
    /// Make a pair of keys for signing components
    Keygen(KeygenArguments),
    /// Sign a component, and the WIT file beside it if there is one
    Sign(SignArguments),
}

/// What a plugin is written in.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Lang {
    Rust,
    Python,
    #[value(alias = "javascript")]
    Js,
    #[value(alias = "typescript")]
    Ts,
}

/// Start a plugin: a small project with two tools, a test and a README.
///
/// The project carries the interface and the SDK in its folder bulkhead/, so it builds without a clone of Bulkhead.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  bulkhead plugin new trip-planner --lang python")]
pub(crate) struct NewArguments {
    /// The plugin's name: lower-case letters, digits and dashes
    #[arg(value_name = "NAME")]
    name: String,
    /// What it is written in
    #[arg(long, value_enum)]
    lang: Lang,
    /// The folder; it must be empty or not exist yet [default: ./NAME]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Make a component of a project: with Cargo where there is a Cargo.toml, with componentize-py where there is a plugin.py, with
/// componentize-js where there is a plugin.js or a plugin.ts.
///
/// Nothing is installed: what is missing is named, with the command that installs it. The manifest is manifest.toml.
#[derive(Args, Debug)]
#[command(
    after_long_help = "Example:\n  bulkhead plugin build trip-planner && bulkhead plugin check trip-planner/trip-planner.wasm"
)]
pub(crate) struct BuildArguments {
    /// The project's folder
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The component [default: DIR/NAME.wasm]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A clone of Bulkhead, for its interface and SDK [default: DIR/bulkhead]
    #[arg(long, value_name = "DIR")]
    sdk: Option<PathBuf>,
    /// Passed on to Cargo
    #[arg(last = true, value_name = "ARGUMENT")]
    cargo: Vec<String>,
}

/// Say everything that a host would refuse in a component, and what it would be better with.
///
/// The component is loaded as a host would load it, with the default limits. Exit code 0: a host takes it (perhaps with warnings);
/// 1: a tool that no call can succeed of, a component that offers nothing, or warnings with --strict; 4: a host refuses it.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  bulkhead plugin check target/plugins/csv.wasm")]
pub(crate) struct CheckArguments {
    /// The component
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// One JSON object instead of text
    #[arg(long)]
    pub(super) json: bool,
    /// Fail on warnings too
    #[arg(long)]
    pub(super) strict: bool,
}

/// Serve a project, and build and switch again whenever its sources change.
///
/// Starts a host of its own, with its logs on stderr: what the plugin prints is shown there, unless BULKHEAD_LOG_LEVEL says
/// otherwise. What does not build or is refused is said, and the version before goes on serving. Ctrl-C ends both.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  bulkhead plugin dev trip-planner")]
pub(crate) struct DevArguments {
    /// The project's folder
    #[arg(value_name = "DIR", default_value = ".")]
    pub(super) dir: PathBuf,
    /// The address to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8808")]
    pub(super) listen: String,
    /// The host's data directory [default: DIR/.bulkhead-dev]
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// A clone of Bulkhead, for its interface and SDK [default: DIR/bulkhead]
    #[arg(long, value_name = "DIR")]
    pub(super) sdk: Option<PathBuf>,
    /// Passed on to Cargo
    #[arg(last = true, value_name = "ARGUMENT")]
    pub(super) cargo: Vec<String>,
}

pub(crate) async fn run(command: AuthorCommand) -> anyhow::Result<ExitCode> {
    match command {
        AuthorCommand::New(arguments) => Ok(new(&arguments)),
        AuthorCommand::Build(arguments) => Ok(tokio::task::spawn_blocking(move || build(arguments)).await?),
        AuthorCommand::Check(arguments) => check::run(arguments).await,
        AuthorCommand::Dev(arguments) => dev::run(arguments).await,
        AuthorCommand::Push(arguments) => registry::push(arguments).await,
        AuthorCommand::Pull(arguments) => registry::pull(arguments).await,
        AuthorCommand::Keygen(arguments) => signing::keygen(&arguments),
        AuthorCommand::Sign(arguments) => signing::sign(&arguments),
    }
}

fn new(arguments: &NewArguments) -> ExitCode {
    let folder = arguments.dir.clone().unwrap_or_else(|| PathBuf::from(&arguments.name));
    let language = match arguments.lang {
        Lang::Rust => Language::Rust,
        Lang::Python => Language::Python,
        Lang::Js => Language::Javascript,
        Lang::Ts => Language::Typescript,
    };
    match bulkhead_author::create(&folder, &arguments.name, language) {
        Ok(()) => {
            print_line(folder.display());
            print_error(format_args!("what to do next is in {}", folder.join("README.md").display()));
            ExitCode::SUCCESS
        }
        Err(error) => {
            print_error(error);
            ExitCode::from(EXIT_USAGE)
        }
    }
}

fn build(arguments: BuildArguments) -> ExitCode {
    let BuildArguments { dir, output, sdk, cargo } = arguments;
    match bulkhead_author::build(&dir, &Options { sdk, output, cargo, tools: None }) {
        Ok(component) => {
            print_line(shown(&component));
            ExitCode::SUCCESS
        }
        Err(error) => {
            print_error(error);
            ExitCode::from(EXIT_FAILED)
        }
    }
}

/// As short as it can be typed.
fn shown(path: &Path) -> String {
    path.strip_prefix("./").unwrap_or(path).display().to_string()
}
