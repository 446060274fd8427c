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

/// The exit codes of a probe that came to an answer.
const EXIT_CORRUPT: u8 = 3;
const EXIT_OTHER: u8 = 4;

/// The probe: examines the store below the data directory; why it is refused is on standard output.
pub fn probe_main(data: &Path) -> ExitCode {
    let (reason, code) = match open::examine(&Layout::new(data)) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Error::Corrupt(reason)) => (reason, EXIT_CORRUPT),
        Err(other) => (other.to_string(), EXIT_OTHER),
    };
    // If nobody listens, the exit code still says it.
    let _ = std::io::stdout().write_all(reason.as_bytes());
    ExitCode::from(code)
}

/// Examines the database below `data`.
pub(super) fn probe(mode: ProbeMode, data: &Path) -> Result<(), Error> {
    match mode {
        ProbeMode::Child => in_child(data),
        ProbeMode::InProcess => {
            std::panic::catch_unwind(|| open::examine(&Layout::new(data))).unwrap_or_else(|_| Err(panicked()))
        }
    }
}

fn in_child(data: &Path) -> Result<(), Error> {
    let cannot = |error: std::io::Error| Error::Engine(format!("the database cannot be examined: {error}"));
    let program = std::env::current_exe().map_err(cannot)?;
    let mut child = Command::new(program)
        .arg(PROBE_ARGUMENT)
        .arg(data)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(cannot)?;
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
    if status.success() {
        return Ok(());
    }
    let mut told = String::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_string(&mut told).map_err(cannot)?;
    }
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(EXIT_CORRUPT) => Err(Error::Corrupt(told)),
        Some(EXIT_OTHER) => Err(Error::Engine(told)),
        _ => Err(panicked()),
    }
}

fn panicked() -> Error {
    open::refuse("the database cannot be opened: the engine stopped while reading it")
}
