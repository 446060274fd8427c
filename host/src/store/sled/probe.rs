//! Examining a database where a panic does no harm.
//!
//! Owns the child process that opens the database first: bytes that were flipped on disk make sled panic, and a panic in the
//! host would be a crash without a message. Must not be skipped for a database that exists. Invariant: the host opens only what
//! a probe has read to the end.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use super::super::Error;
use super::open::{self, Layout};

/// The first argument that makes the program a probe.
pub const PROBE_ARGUMENT: &str = "__store-probe";
/// A damaged log can send sled around in circles.
const PROBE_TIME_MAX: Duration = Duration::from_secs(600);
const PROBE_POLL: Duration = Duration::from_millis(2);

/// How to look at a database before opening it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeMode {
    /// In a child process: the running program with [`PROBE_ARGUMENT`] and the data directory.
    #[default]
    Child,
    /// In this process, for programs that cannot be their own probe.
    InProcess,
}

/// What a probe prints about a sound database: a program that does not know its argument prints something else.
const SOUND: &str = "the database is sound";
/// The exit codes of a probe that came to an answer.
const EXIT_CORRUPT: u8 = 3;
const EXIT_OTHER: u8 = 4;

/// The probe: examines the store below the data directory; why it is refused is on standard output.
pub fn probe_main(data: &Path) -> ExitCode {
    let (answer, code) = match examine(data) {
        Ok(()) => (SOUND.to_owned(), 0),
        Err(refusal) => refusal,
    };
    // If nobody listens, the exit code still says what is wrong.
    let _ = std::io::stdout().write_all(answer.as_bytes());
    ExitCode::from(code)
}

/// The examination, as what the probe prints and how it exits.
fn examine(data: &Path) -> Result<(), (String, u8)> {
    open::examine(&Layout::new(data)).map_err(|error| match error {
        Error::Corrupt(reason) => (reason, EXIT_CORRUPT),
        other => (other.to_string(), EXIT_OTHER),
    })
}

/// Examines the database below `data`.
pub(super) fn probe(mode: ProbeMode, data: &Path) -> Result<(), Error> {
    match mode {
        ProbeMode::Child => {
            let program = std::env::current_exe().map_err(cannot)?;
            let mut command = Command::new(program);
            command.arg(PROBE_ARGUMENT).arg(data);
            in_child(command)
        }
        ProbeMode::InProcess => {
            std::panic::catch_unwind(|| open::examine(&Layout::new(data))).unwrap_or_else(|_| Err(panicked()))
        }
    }
}

fn cannot(error: std::io::Error) -> Error {
    Error::Engine(format!("the database cannot be examined: {error}"))
}

fn in_child(mut command: Command) -> Result<(), Error> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(cannot)?;
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(cannot)? {
            break status;
        }
        if started.elapsed() > PROBE_TIME_MAX {
            child.kill().and_then(|()| child.wait()).map_err(cannot)?;
            return Err(open::refuse("reading the database does not come to an end"));
        }
        std::thread::sleep(PROBE_POLL);
    };
    let mut told = String::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_string(&mut told).map_err(cannot)?;
    }
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(0) if told.contains(SOUND) => Ok(()),
        Some(0) => Err(Error::Engine("the running program cannot be its own probe".to_owned())),
        Some(EXIT_CORRUPT) => Err(Error::Corrupt(told)),
        Some(EXIT_OTHER) => Err(Error::Engine(told)),
        _ => Err(panicked()),
    }
}

fn panicked() -> Error {
    open::refuse("the database cannot be opened: the engine stopped while reading it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sled::{Layout, SledOptions, SledStore};

    const DIR: &str = "BULKHEAD_TEST_PROBE_DIR";
    const PANIC: &str = "panic";

    #[test]
    #[ignore = "the child process of the probe's tests"]
    fn child() {
        let dir = std::env::var(DIR).unwrap();
        assert_ne!(dir, PANIC);
        let (answer, code) = examine(Path::new(&dir)).err().unwrap_or((SOUND.to_owned(), 0));
        std::io::stdout().write_all(answer.as_bytes()).unwrap();
        std::process::exit(code.into());
    }

    fn probe_in_child(dir: &str) -> Result<(), Error> {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "store::sled::probe::tests::child", "--ignored", "--nocapture"]).env(DIR, dir);
        in_child(command)
    }

    #[test]
    fn a_child_says_whether_a_database_is_sound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let options = SledOptions { ballast_bytes: 0, free_bytes_min: 1, ..SledOptions::new(dir.path()) };
        drop(SledStore::open(options).unwrap());
        probe_in_child(path).unwrap();
        std::fs::remove_file(Layout::new(dir.path()).state).unwrap();
        let refused = probe_in_child(path).unwrap_err();
        assert!(matches!(&refused, Error::Corrupt(reason) if reason.contains("state is missing")), "{refused}");
    }

    #[test]
    fn a_program_that_is_no_probe_proves_nothing() {
        let refused = in_child(Command::new("true")).unwrap_err();
        assert!(refused.to_string().contains("cannot be its own probe"), "{refused}");
    }

    #[test]
    fn a_panic_of_the_child_is_a_refusal() {
        let refused = probe_in_child(PANIC).unwrap_err();
        assert!(matches!(&refused, Error::Corrupt(reason) if reason.contains("stopped while reading")), "{refused}");
    }
}
