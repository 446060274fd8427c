//! `cargo xtask test`: what a change must pass, cheapest first.

use std::process::Command;

use xtask::{layout, steps};

use crate::test_programs::{self, TestPrograms};
use crate::{docs, plugins, scripted};

/// Whether it is tried first to build a guest on a machine that has only just been set up: `required`.
const FRESH_MACHINE: &str = "XTASK_FRESH_MACHINE";

/// The host that the tests start.
const HOST: &str = "XTASK_HOST_BIN";

/// Integration tests that are run once more with stores in PostgreSQL, where that is there (`XTASK_POSTGRES=required`):
/// less than a minute. All of them, as nightly does: `XTASK_STORE=postgres cargo test --workspace --test integration`.
const ON_POSTGRES: [&str; 4] = ["tasks::", "keeping::", "usage::", "erased::"];

/// What to leave out and what to pass on.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only build the guests and run the tests: no check of format or text, no lints, no documentation.
    #[arg(long)]
    quick: bool,
    /// Passed on to every test program, such as a part of a test's name.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Checks the repository's text.
pub(crate) fn tidy() -> anyhow::Result<()> {
    steps::run("tidy", &mut run_tidy())
}

/// In the profile of this program, which compiles the same packages.
pub(crate) fn run_tidy() -> Command {
    let mut tidy = steps::cargo();
    tidy.args(["run", "--quiet", "--profile", "xtask", "--package", "tidy"]);
    tidy
}

/// Runs the steps and stops at the first that fails.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let has_lints = !options.quick;
    if has_lints {
        steps::run("format", steps::cargo().args(["fmt", "--all", "--check"]))?;
        tidy()?;
    }
    // What waits for a registry or for one thread of a compiler leaves a processor to the other.
    let programs = std::thread::scope(|scope| {
        let guests = scope.spawn(|| {
            if std::env::var(FRESH_MACHINE).as_deref() == Ok("required") {
                // What it compiles is not compiled again.
                let mut machine = Command::new(layout::root().join("tests/external/fresh-machine/run"));
                steps::run("a fresh machine", &mut machine)?;
            }
            plugins::build(&[])?;
            scripted::test()
        });
        let programs = TestPrograms::build(has_lints);
        guests.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        programs
    })?;
    if has_lints {
        eprintln!("xtask: documents");
        // Before the tests, which take much longer.
        docs::run(&docs::Options { check: true, host: Some(docs::built_host()?) })?;
        test_programs::run_documentation_tests()?;
    }
    // Tests of guests that could not be built say that they are not run.
    let mut environment = vec![("XTASK_WITHOUT", scripted::missing().join(","))];
    if std::env::var_os(HOST).is_none() {
        // Cargo has just found it fresh. By its time alone it could be older than a test.
        environment.push((HOST, docs::built_host()?.display().to_string()));
    }
    programs.run(&options.arguments, &environment)?;
    if options.arguments.is_empty() && std::env::var("XTASK_POSTGRES").as_deref() == Ok("required") {
        programs.run_on_postgres(&ON_POSTGRES, &environment)?;
    }
    Ok(())
}
