//! What authors of plugins type, for both programs: `bulkhead-plugin`, which has nothing of a host, and `bulkhead
//! plugin`.
//!
//! Owns the words of these commands and what they do. Must not run a component, open a store, or need Linux. Invariant:
//! a command does the same in both programs.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod check;
mod outcome;
pub mod progress;
mod project;
mod push;
mod signing;

pub use check::{CheckArguments, check};
pub use outcome::{EXIT_FAILED, EXIT_REFUSED, EXIT_USAGE, Outcome};
pub use project::{BuildArguments, Lang, NewArguments, WrapArguments, build_project};
pub use push::{PushArguments, push};
pub use signing::{KeygenArguments, SignArguments};

/// The commands that need nothing but the arguments.
#[derive(Debug, clap::Subcommand)]
pub enum AuthorCommand {
    /// Start a plugin: a small project with two tools, a test and a README
    New(NewArguments),
    /// Make a component of a project
    Build(BuildArguments),
    /// Put manifest and descriptions into a component of another language
    Wrap(WrapArguments),
    /// Make a pair of keys for signing components
    Keygen(KeygenArguments),
    /// Sign a component, and the WIT file beside it if there is one
    Sign(SignArguments),
}

/// Does one of them. `program` is what says so on stderr while it takes long.
///
/// # Errors
///
/// A file that cannot be read or written, or a key that is none.
pub async fn run(command: AuthorCommand, program: &'static str) -> anyhow::Result<Outcome> {
    match command {
        AuthorCommand::New(arguments) => Ok(project::new(&arguments)),
        AuthorCommand::Build(arguments) => project::build(arguments, program).await,
        AuthorCommand::Wrap(arguments) => project::wrap(arguments),
        AuthorCommand::Keygen(arguments) => signing::keygen(&arguments),
        AuthorCommand::Sign(arguments) => signing::sign(&arguments),
    }
}
