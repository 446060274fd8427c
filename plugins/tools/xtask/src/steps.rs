//! Runs other programs, says which and how long they took.

use std::ffi::OsString;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail};

use crate::layout;

/// Cargo, in the repository's root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(layout::root());
    command
}

/// Runs a command to its end with its output passed through.
pub(crate) fn run(title: &str, command: &mut Command) -> anyhow::Result<()> {
    eprintln!("xtask: {title}");
    let started = Instant::now();
    let status = command.status().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    if !status.success() {
        bail!("{title}: failed with {status}");
    }
    eprintln!("xtask: {title}: {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// Does one of several parts of a long command; says which, and how long it took.
pub(crate) fn part(number: u32, of: u32, title: &str, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    eprintln!("xtask: step {number} of {of}: {title}");
    let started = Instant::now();
    work()?;
    eprintln!("xtask: step {number} of {of}: {title}: done after {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// Runs a command and returns what it printed on stdout; stderr becomes part of the error.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    if !output.status.success() {
        bail!(
            "{} failed with {}: {}",
            command.get_program().display(),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout).context("the output is not UTF-8")
}
