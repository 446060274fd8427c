//! `cargo xtask bench`: the measurements themselves are the `bench` program of the tests crate.

use std::process::Command;

use xtask::{layout, serve, steps};

use crate::plugins;

/// Builds the guests, and host and bench program as they are packaged, and runs the latter. It compares that host with
/// those of the profiles that compile sooner.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    plugins::build(&[])?;
    let build = |profile: &str| {
        let mut cargo = steps::cargo();
        cargo.args(["build", "--profile", profile, "--package", "bulkhead", "--target-dir"]).arg(layout::target());
        cargo
    };
    // The bench starts the host that is built beside it.
    let mut dist = build("dist");
    dist.args(["--package", "tests", "--bins", "--features", "tests/bench"]);
    steps::run("build host and bench", &mut dist)?;
    steps::run("build the host of the release profile", &mut build("release"))?;
    steps::run(
        "build the host of `cargo xtask run`",
        steps::cargo().args(serve::HOST).arg("--target-dir").arg(layout::target()),
    )?;
    let mut bench = Command::new(layout::target().join("dist/bench"));
    bench.args(arguments);
    for (folder, variable) in [("release", "BENCH_RELEASE_HOST"), ("debug", "BENCH_DEV_HOST")] {
        bench.env(variable, layout::target().join(folder).join("bulkhead"));
    }
    steps::run("bench", &mut bench)
}
