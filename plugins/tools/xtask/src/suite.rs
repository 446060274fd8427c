//! `cargo xtask test`: what a change must pass, cheapest first.

use std::process::Command;

use crate::{docs, guests, scripted, steps};

/// What to leave out and what to pass on.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only build the guests and run the tests: no check of format or text, no clippy, no documentation.
    #[arg(long)]
    quick: bool,
    /// Passed on to `cargo test --workspace`, such as a part of a test's name.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Checks the repository's text.
pub(crate) fn tidy() -> anyhow::Result<()> {
    steps::run("tidy", steps::cargo().args(["run", "--quiet", "--package", "tidy"]))
}

/// Runs the steps and stops at the first that fails.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if !options.quick {
        steps::run("format", steps::cargo().args(["fmt", "--all", "--check"]))?;
        tidy()?;
    }
    guests::build(&[])?;
    scripted::test()?;
    if !options.quick {
        let mut clippy = steps::cargo();
        clippy.args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
        steps::run("clippy", &mut clippy)?;
        // What all packages together compile has the features of their tests, and the host that is shipped has not.
        steps::run("the host by itself", steps::cargo().args(["check", "--package", "bulkhead"]))?;
        let mut doc: Command = steps::cargo();
        doc.args(["doc", "--workspace", "--no-deps", "--document-private-items"]).env(
            // Module docs speak to the readers of the code, who see private items too.
            "RUSTDOCFLAGS",
            "-D warnings -A rustdoc::private_intra_doc_links",
        );
        steps::run("documentation", &mut doc)?;
    }
    let mut tests = steps::cargo();
    // Tests of guests that could not be built say that they are not run.
    tests.args(["test", "--workspace"]).args(&options.arguments).env("XTASK_WITHOUT", scripted::missing().join(","));
    steps::run("tests", &mut tests)?;
    if !options.quick {
        eprintln!("xtask: documents");
        // The host that the tests were built with: another selection of packages would compile it again.
        docs::run(&docs::Options { check: true, host: Some(docs::built_host()?) })?;
    }
    Ok(())
}
