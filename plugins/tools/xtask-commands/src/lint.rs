//! How our own packages are compiled by `cargo xtask test`: linted and documented by the very pass that builds them.
//!
//! Owns the program that Cargo calls in rustc's place for members of the workspace (`build.rustc-workspace-wrapper`),
//! which is this one: clippy-driver compiles the crate, then rustdoc reads it. So each crate is compiled once, and no
//! dependency is compiled a second time for metadata that only lints and documents want. Must not change what is
//! compiled. Invariant: a finding of either fails the build.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::Context as _;

use xtask::steps;

/// What clippy-driver reads its arguments from, and what stands between them (`clippy_driver`, "CLIPPY_ARGS").
const CLIPPY_ARGUMENTS: &str = "CLIPPY_ARGS";
const DENY_WARNINGS: &str = "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__";

/// Has a Cargo command lint and document what it compiles.
///
/// # Errors
/// There is no clippy-driver, or this program has no path.
pub(crate) fn apply(cargo: &mut Command) -> anyhow::Result<()> {
    steps::output(Command::new("clippy-driver").arg("--version"))
        .context("there is no clippy: `rustup component add clippy`")?;
    let program = std::env::current_exe().context("this program has no path")?;
    let program = program.to_str().context("this program's path is no UTF-8")?;
    // Not by the environment, which the tests would pass on to the Cargo of the projects that they build. The lints'
    // arguments belong there: clippy-driver names the variable to Cargo, which compiles again when its value changes.
    cargo.arg("--config").arg(format!("build.rustc-workspace-wrapper={program:?}"));
    cargo.env(CLIPPY_ARGUMENTS, DENY_WARNINGS);
    Ok(())
}

/// Compiles a crate in rustc's place, if Cargo has called this program for that: then the first argument is rustc.
pub(crate) fn compile_as_wrapper(arguments: &[OsString]) -> Option<ExitCode> {
    let (rustc, arguments) = arguments.split_first()?;
    if Path::new(rustc).file_stem() != Some(OsStr::new("rustc")) {
        return None;
    }
    Some(match compile(rustc, arguments) {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    })
}

fn compile(rustc: &OsStr, arguments: &[OsString]) -> anyhow::Result<ExitStatus> {
    let compiled = run(Command::new("clippy-driver").arg(rustc).args(arguments))?;
    if !compiled.success() || !is_documented(arguments) {
        return Ok(compiled);
    }
    // `--check` writes no pages; it is not stable yet.
    let mut rustdoc = Command::new("rustdoc");
    rustdoc
        .env("RUSTC_BOOTSTRAP", "1")
        .args(["-Zunstable-options", "--check"])
        .args(documentation_arguments(arguments));
    // Module docs speak to the readers of the code, who see private items too.
    rustdoc.args(["--document-private-items", "-Dwarnings", "-Arustdoc::private_intra_doc_links"]);
    run(&mut rustdoc)
}

fn run(command: &mut Command) -> anyhow::Result<ExitStatus> {
    command.status().with_context(|| format!("cannot start {}", command.get_program().display()))
}

/// Whether these are arguments of rustc for a library or a program: not for a test, a build script, or one of Cargo's
/// questions.
fn is_documented(arguments: &[OsString]) -> bool {
    let has = |wanted: &str| arguments.iter().any(|argument| argument == wanted);
    let is_emitted = arguments.iter().any(|argument| argument.as_encoded_bytes().starts_with(b"--emit"));
    is_emitted && !has("--test") && !has("build_script_build") && !has("___")
}

/// The arguments of rustc that rustdoc takes, too: all but those that say what to write and where.
fn documentation_arguments(arguments: &[OsString]) -> Vec<&OsString> {
    let mut kept = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--out-dir" || argument == "-C" {
            rest.next();
        } else if !argument.as_encoded_bytes().starts_with(b"--emit") {
            kept.push(argument);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn libraries_and_programs_are_documented_and_tests_are_not() {
        let documented = |text: &str| is_documented(&arguments(text));
        assert!(documented("--crate-name a src/lib.rs --crate-type lib --emit=dep-info,metadata,link"));
        assert!(documented("--crate-name a src/main.rs --crate-type bin --emit=dep-info,link"));
        assert!(!documented("--crate-name a src/lib.rs --emit=dep-info,link --test"));
        assert!(!documented("--crate-name build_script_build build.rs --emit=dep-info,link"));
        assert!(!documented("-vV"));
        assert!(!documented("- --crate-name ___ --print=file-names"));
    }

    #[test]
    fn rustdoc_is_not_told_what_to_write() {
        let given = arguments(
            "--crate-name a --edition=2024 src/lib.rs --error-format=json --crate-type lib --emit=dep-info,link -C debuginfo=1 \
             --warn=unused_lifetimes --cfg x --out-dir target/debug/deps -L dependency=deps --extern b=deps/libb.rmeta",
        );
        let kept: Vec<_> = documentation_arguments(&given).into_iter().cloned().collect();
        let wanted = "--crate-name a --edition=2024 src/lib.rs --error-format=json --crate-type lib --warn=unused_lifetimes --cfg x \
                      -L dependency=deps --extern b=deps/libb.rmeta";
        assert_eq!(kept, arguments(wanted));
    }
}
