//! `cargo xtask bench`: the measurements themselves are the `bench` program of the tests crate.

use std::process::Command;

use crate::{guests, layout, steps};

/// Builds the guests, the host and the bench program in release mode, and runs the latter.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    guests::build(&[])?;
    let mut cargo = steps::cargo();
    // The bench starts the host that is built beside it.
    cargo.args(["build", "--release", "--package", "bulkhead", "--package", "tests", "--bins"]);
    cargo.args(["--features", "tests/bench", "--target-dir"]).arg(layout::target());
    steps::run("build host and bench", &mut cargo)?;
    steps::run("bench", Command::new(layout::target().join("release/bench")).args(arguments))
}
