//! `cargo xtask bench`: the measurements themselves are the `bench` program of the tests crate.

use crate::{guests, steps};

/// Builds the guests and runs the bench program in release mode.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    guests::build(&[])?;
    let mut cargo = steps::cargo();
    cargo
        .args(["run", "--release", "--package", "tests", "--features", "bench", "--bin", "bench", "--"])
        .args(arguments);
    steps::run("bench", &mut cargo)
}
