//! The developer commands, reached as `cargo xtask` from every folder of the repository.
//!
//! Each command is a module of its own. This file owns the command line and nothing else. `run` is that of the program
//! that a visitor waits for, which never hands it on; it is listed here for `--help`.

mod bench;
mod dist;
mod docs;
mod lint;
mod plugins;
mod scripted;
mod suite;
mod test_programs;
mod times;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Builds the guests and runs Bulkhead's developer commands.
///
/// Two commands are enough for most work: `cargo xtask run` gives you a running host with the sample plugins, and
/// `cargo xtask test` runs everything that a change must pass.
#[derive(Parser)]
#[command(name = "cargo xtask", after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Guests are compiled for wasm32-wasip2 into target/plugins/NAME.wasm, by the first of these that works:
  installed  the target is already installed for your compiler
  rustup     `rustup target add wasm32-wasip2` (skipped where RUSTUP_AUTO_INSTALL=0 says that rustup is offline)
  debian     Debian's compiler and library sources, unpacked under target/guest-toolchain without root; where apt's package
             lists are empty or too old, lists under target/apt are refreshed and used instead
Set XTASK_GUEST_TOOLCHAIN to one of the three words to force it.

The guests in Python and JavaScript are built by tools that pip and npm install into target/guest-tools. Where python3 with venv,
Node.js 20 or npm is missing, they and their tests are left out with a message; XTASK_SCRIPT_GUESTS=required makes that an error.

Examples:
  cargo xtask run                     build everything, serve the sample plugins on 127.0.0.1:8808
  cargo xtask plugins text csv        put two guests into target/plugins
  cargo xtask tidy                    what the code and the documents say of each other
  cargo xtask docs                    write the reference pages, check every page
  cargo xtask dist                    packages in target/dist
  cargo xtask test                    format, tidy, lints, documents, guests, every test
  cargo xtask test --quick -- csv     guests and the tests whose names contain `csv`";

#[derive(Subcommand)]
enum Command {
    /// Build the guests into target/plugins/NAME.wasm.
    Plugins {
        /// Which ones to put there, by folder below plugins/samples and plugins/fixtures (`refused` stands for every
        /// component that must be refused, `foreign` and `public` for those that know nothing of this host); all of
        /// them if none is named.
        names: Vec<String>,
    },
    /// Build guests and host, then serve the sample plugins.
    Run,
    /// Run everything that a change must pass.
    Test(suite::Options),
    /// Check the repository's own text: architecture, bounds, refused words, and the tests that documents name.
    Tidy,
    /// Write the reference pages that are generated, and check the links, snippets and length of every page.
    Docs(docs::Options),
    /// Make packages of the host: archive, .deb, wheel, npm package, container image.
    Dist(dist::Options),
    /// Measure the host, each number as a ratio to something measured in the same run.
    Bench {
        /// Passed on to the bench program; `cargo xtask bench -- --help` lists what it takes.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Print what the steps, modules and slowest tests of a run took that had XTASK_TIMES set to this folder.
    Times { folder: PathBuf },
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(code) = lint::compile_as_wrapper(&arguments) {
        return code;
    }
    let outcome = match Arguments::parse().command {
        Command::Plugins { names } => plugins::build(&names),
        Command::Run => Err(anyhow::anyhow!("`run` is a command of `cargo xtask` itself")),
        Command::Test(options) => suite::run(&options),
        Command::Tidy => suite::tidy(),
        Command::Docs(options) => docs::run(&options),
        Command::Dist(options) => dist::run(&options),
        Command::Bench { arguments } => bench::run(&arguments),
        Command::Times { folder } => times::print(&folder),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
