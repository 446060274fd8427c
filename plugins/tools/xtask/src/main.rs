//! `cargo xtask`, from every folder of the repository.
//!
//! Owns which program does a command: this one `run`, which a visitor waits for, and `xtask-commands` every other. Must
//! not know what the others take.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use xtask::{layout, serve};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let outcome = match arguments.split_first() {
        Some((command, rest)) if command == "run" => {
            let rest: Vec<String> = rest.iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
            match serve::Options::parse(&rest) {
                Ok(Some(options)) => serve::run(&options),
                Ok(None) => {
                    print!("{}", serve::HELP);
                    Ok(())
                }
                Err(error) => {
                    eprintln!("xtask: {error:#}\n\n{}", serve::HELP);
                    return ExitCode::from(2);
                }
            }
        }
        _ => become_other_commands(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Has Cargo compile the program with the other commands, which takes this process's place.
fn become_other_commands(arguments: &[OsString]) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let failure = Command::new(&cargo)
        .args(["run", "--quiet", "--profile", "xtask", "--package", "xtask-commands", "--manifest-path"])
        .arg(layout::root().join("Cargo.toml"))
        .arg("--")
        .args(arguments)
        .exec();
    Err(failure).with_context(|| format!("cannot start {}", cargo.display()))
}
