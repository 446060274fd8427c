//! `cargo xtask test`: what a change must pass, cheapest first.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;

use crate::{docs, guests, layout, scripted, steps};

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
    steps::run("tidy", &mut run_tidy())
}

/// In the profile of this program, which compiles the same packages.
pub(crate) fn run_tidy() -> Command {
    let mut tidy = steps::cargo();
    tidy.args(["run", "--quiet", "--profile", "xtask", "--package", "tidy"]);
    tidy
}

/// Builds a host that ends where it is told to, for the tests of what survives. The tests' own host, which is built afterwards in the same
/// place, knows nothing of that.
fn host_with_crash_points() -> anyhow::Result<PathBuf> {
    let mut build = steps::cargo();
    // The whole workspace, as for the tests: another selection of packages would compile every dependency again. So would one without an
    // example: it leaves the features out that only tests ask of dependencies. This one is small.
    build.args([
        "build",
        "--workspace",
        "--bin",
        "bulkhead",
        "--example",
        "bad_name",
        "--features",
        "bulkhead/crash-points",
    ]);
    steps::run("the host with crash points", &mut build)?;
    let folder = layout::target().join("crash-points");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let (built, kept, aside) = (docs::built_host()?, folder.join("bulkhead"), folder.join("bulkhead.part"));
    // Renamed, because a host of an earlier run may still be there.
    std::fs::copy(&built, &aside).with_context(|| format!("cannot copy {}", built.display()))?;
    std::fs::rename(&aside, &kept)?;
    Ok(kept)
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
    if !options.quick {
        let host = host_with_crash_points()?;
        eprintln!("xtask: documents");
        // Before the tests, which take much longer.
        docs::run(&docs::Options { check: true, host: Some(host.clone()) })?;
        tests.env("XTASK_CRASH_POINTS", host);
    }
    // Tests of guests that could not be built say that they are not run.
    tests.args(["test", "--workspace"]).args(&options.arguments).env("XTASK_WITHOUT", scripted::missing().join(","));
    steps::run("tests", &mut tests)
}
