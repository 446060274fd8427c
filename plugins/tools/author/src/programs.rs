//! Other programs: where they are, and what they say.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;

/// A program in one of these folders, else on the search path.
pub fn find(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).collect::<Vec<_>>();
    folders.iter().chain(&on_path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Asks a program of Rust for a trace of its own panics, which is no help to who wrote the plugin. Authors of Rust have
/// it set.
const TRACES: [&str; 2] = ["RUST_BACKTRACE", "RUST_LIB_BACKTRACE"];

fn without_traces(command: &mut Command) -> &mut Command {
    TRACES.iter().fold(command, |command, variable| command.env_remove(variable))
}

/// Runs a script of ours to the end. Its stderr goes to the author; what it printed on stdout before it failed is the
/// mistake.
pub(crate) fn run_script(step: &'static str, command: &mut Command) -> Result<(), Error> {
    let failed = |reason: String| Error::Failed { step, reason };
    let output = without_traces(command)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| failed(format!("{}: {error}", command.get_program().display())))?;
    let mistake = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    match (output.status.success(), mistake.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => Err(failed(format!("{} ended with {}", command.get_program().display(), output.status))),
        (false, false) => Err(Error::Source(mistake)),
    }
}

/// Runs to the end; what it printed on stdout. stderr goes to the author.
pub(crate) fn output(step: &'static str, command: &mut Command) -> Result<String, Error> {
    let failed = |reason: String| Error::Failed { step, reason };
    let output = without_traces(command)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| failed(format!("{}: {error}", command.get_program().display())))?;
    if !output.status.success() {
        return Err(failed(format!("{} ended with {}", command.get_program().display(), output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A folder that goes away with its value.
pub(crate) fn scratch() -> Result<tempfile::TempDir, Error> {
    tempfile::tempdir().map_err(Error::io(&std::env::temp_dir()))
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(Error::io(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_programs_run_without_backtrace_variables() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).envs(TRACES.map(|variable| (variable, "1")));
            command
        };
        let mut print = shell("echo \"${RUST_BACKTRACE-unset} ${RUST_LIB_BACKTRACE-unset}\"");
        assert_eq!(output("print", &mut print).unwrap(), "unset unset\n");
        run_script("compare", &mut shell("test -z \"${RUST_BACKTRACE+set}\"")).unwrap();
    }

    #[test]
    fn mistake_of_a_script_is_what_it_printed() {
        let run = |script: &str| {
            let ended = run_script("bundling", Command::new("sh").args(["-c", script]));
            ended.map_err(|error| error.to_string())
        };
        assert_eq!(run("echo unheard"), Ok(()));
        assert_eq!(run("echo 'plugin.js:1: why'; exit 1"), Err("plugin.js:1: why".to_owned()));
        assert_eq!(run("exit 3"), Err("bundling failed: sh ended with exit status: 3".to_owned()));
    }
}
