//! The command line, as an operator types it.

use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;
use tokio::process::Command;

use crate::place;
use crate::store_engine;
use crate::wait::soon;

/// The program that is tested, without whatever this shell happens to configure.
pub fn bulkhead() -> Command {
    program(place::host_binary())
}

/// The same for another build of the program.
pub fn program(path: &Path) -> Command {
    let mut command = Command::new(path);
    for (key, _) in std::env::vars_os() {
        if key.to_string_lossy().starts_with("BULKHEAD_") {
            command.env_remove(key);
        }
    }
    // What commands compile for themselves stays in the build folder.
    command.env("XDG_CACHE_HOME", place::root().join("target/test-code"));
    command.kill_on_drop(true);
    command
}

/// Runs a command to its end.
pub async fn output(command: &mut Command, arguments: &[&str], data: Option<&Path>) -> Output {
    command.args(arguments).args(data).stdin(Stdio::null());
    store_engine::use_store_of_data(command);
    soon("a command", command.output()).await.expect("the command starts")
}

/// Runs a command that must succeed; what it printed.
pub async fn run(command: &mut Command, arguments: &[&str], data: Option<&Path>) -> String {
    let output = output(command, arguments, data).await;
    assert!(
        output.status.success(),
        "bulkhead {} gave {}: {}",
        arguments.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("commands print UTF-8")
}

/// Runs a command with `--json` that must succeed; what it printed.
pub async fn json(arguments: &[&str], data: &Path) -> Value {
    let mut all = arguments.to_vec();
    all.extend(["--json", "--data"]);
    let said = run(&mut bulkhead(), &all, Some(data)).await;
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{all:?} printed no JSON ({error}): {said}"))
}

/// Runs a command with `--json`; its exit code and what it printed.
pub async fn outcome(arguments: &[&str], data: &Path) -> (Option<i32>, Value) {
    let mut all = arguments.to_vec();
    all.extend(["--json", "--data"]);
    let output = output(&mut bulkhead(), &all, Some(data)).await;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = serde_json::from_str(&said).unwrap_or_else(|error| {
        panic!("{all:?} printed no JSON ({error}): {said}{}", String::from_utf8_lossy(&output.stderr))
    });
    (output.status.code(), value)
}
