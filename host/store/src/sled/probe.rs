//! Examining a database where a panic does no harm.
//!
//! Owns the child process that reads the database first, and opens a copy of it where that leaves a
//! [doubt](super::reading): bytes that were flipped on disk make sled panic, and a panic in the host would be a crash
//! without a message. Must not outlive the host that started it, nor call a database damaged that it was kept from
//! reading. Invariant: the host opens only what a probe has read to the end, or what [`mark`](super::mark) says it left
//! itself.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustix::process::Signal;

use super::super::Error;
use super::errors::refuse;
use super::layout::Layout;
use super::open;
use super::shortage::{panic_text, shortage};
use super::store_counts::StoreCounts;

/// The first argument that makes the program a probe.
pub const PROBE_ARGUMENT: &str = "__store-probe";
/// A damaged log can send sled around in circles.
const PROBE_TIME_MAX: Duration = Duration::from_secs(600);
const PROBE_POLL: Duration = Duration::from_millis(2);
/// Bytes of what a probe says of its end that are read.
const SAID_BYTES_MAX: u64 = 64 << 10;

/// How to look at a database before opening it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeMode {
    /// In a child process: the running program with [`PROBE_ARGUMENT`] and the data directory.
    #[default]
    Child,
    /// In this process, for programs that cannot be their own probe.
    InProcess,
}

/// What a probe prints about a sound database, with what it has counted behind it: a program that does not know its
/// argument prints something else.
const SOUND: &str = "the database is sound: ";
/// The exit codes of a probe that came to an answer.
const EXIT_CORRUPT: u8 = 3;
const EXIT_OTHER: u8 = 4;

/// The probe: examines the store below the data directory; what it found is on standard output.
pub fn probe_main(data: &Path) -> ExitCode {
    end_with_host();
    let (answer, code) = answer(data);
    // If nobody listens, the exit code still says what is wrong.
    let _ = std::io::stdout().write_all(answer.as_bytes());
    ExitCode::from(code)
}

/// Ends this process when its host does. A probe that went on would keep a processor and a copy of the database to
/// itself.
fn end_with_host() {
    // Where the kernel does not do it, the end of standard input does, and that of a host that was gone before this
    // line.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(EXIT_OTHER.into());
    });
}

/// What the probe prints and how it exits.
fn answer(data: &Path) -> (String, u8) {
    match open::examine(&Layout::new(data)).and_then(|counts| counts.encode()) {
        Ok(counts) => (format!("{SOUND}{}\n", BASE64.encode(counts)), 0),
        Err(Error::Corrupt(reason)) => (reason, EXIT_CORRUPT),
        Err(Error::Engine(reason)) => (reason, EXIT_OTHER),
        Err(other) => (other.to_string(), EXIT_OTHER),
    }
}

/// Examines the database below `data`.
pub(super) fn probe(mode: ProbeMode, data: &Path) -> Result<StoreCounts, Error> {
    match mode {
        ProbeMode::Child => {
            let program = std::env::current_exe().map_err(cannot)?;
            let mut command = Command::new(program);
            command.arg(PROBE_ARGUMENT).arg(data);
            in_child(&mut command)
        }
        ProbeMode::InProcess => {
            let examined = std::panic::catch_unwind(|| open::examine(&Layout::new(data)));
            examined.unwrap_or_else(|payload| Err(shortage(panic_text(&*payload)).unwrap_or_else(panicked)))
        }
    }
}

fn cannot(error: std::io::Error) -> Error {
    Error::Engine(format!("the database cannot be examined: {error}"))
}

fn in_child(command: &mut Command) -> Result<StoreCounts, Error> {
    let mut ended = run(command)?;
    if ended.status.signal() == Some(Signal::KILL.as_raw()) {
        tracing::warn!("the process that examines the database was killed: another one begins again");
        ended = run(command)?;
    }
    let Ended { status, answer, errors } = ended;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(0) => stock(&answer),
        Some(EXIT_CORRUPT) => Err(Error::Corrupt(answer)),
        Some(EXIT_OTHER) => Err(Error::Engine(answer)),
        // It panicked or aborted, which says nothing about the bytes if it lacked something.
        _ => Err(shortage(&errors).unwrap_or_else(|| status.signal().map_or_else(panicked, ended_by))),
    }
}

/// A probe that is over.
struct Ended {
    status: ExitStatus,
    /// Its answer, on standard output.
    answer: String,
    /// What its end was about, on standard error.
    errors: String,
}

/// What a child writes, up to a bound; the rest is thrown away.
fn read_all(from: Option<impl Read>, bytes_max: u64) -> std::io::Result<String> {
    let Some(mut from) = from else { return Ok(String::new()) };
    let mut bytes = Vec::new();
    from.by_ref().take(bytes_max).read_to_end(&mut bytes)?;
    std::io::copy(&mut from, &mut std::io::sink())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

type Reader = std::thread::JoinHandle<std::io::Result<String>>;

fn reader(from: Option<impl Read + Send + 'static>, bytes_max: u64) -> Result<Reader, Error> {
    let spawned = std::thread::Builder::new().name("probe".to_owned()).spawn(move || read_all(from, bytes_max));
    spawned.map_err(|error| shortage(&error.to_string()).unwrap_or_else(|| cannot(error)))
}

/// Runs a probe to its end.
fn run(command: &mut Command) -> Result<Ended, Error> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(cannot)?;
    // Open until the child has ended: it ends itself when this process is gone.
    let _stdin = child.stdin.take();
    let output = child.stdout.take();
    let errors = child.stderr.take();
    // A child that is not read stands still.
    let answer = reader(output, u64::MAX)?;
    let errors = reader(errors, SAID_BYTES_MAX)?;
    let status = wait(&mut child)?;
    let answer = answer.join().unwrap_or_else(|_| Ok(String::new())).map_err(cannot)?;
    let errors = errors.join().unwrap_or_else(|_| Ok(String::new())).map_err(cannot)?;
    Ok(Ended { status, answer, errors })
}

fn wait(child: &mut Child) -> Result<ExitStatus, Error> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(cannot)? {
            return Ok(status);
        }
        if started.elapsed() > PROBE_TIME_MAX {
            child.kill().and_then(|()| child.wait()).map_err(cannot)?;
            return Err(refuse("reading the database does not come to an end"));
        }
        std::thread::sleep(PROBE_POLL);
    }
}

/// What a probe has counted.
fn stock(answer: &str) -> Result<StoreCounts, Error> {
    let no_probe = || Error::Engine("the running program cannot be its own probe".to_owned());
    let counted = answer.lines().find_map(|line| line.split_once(SOUND)).ok_or_else(no_probe)?.1;
    StoreCounts::decode(&BASE64.decode(counted).map_err(|_| no_probe())?)
}

fn panicked() -> Error {
    refuse("the database cannot be opened: the engine stopped while reading it")
}

/// What the end of a probe by a signal says: a crash of the engine is most likely the bytes' doing, every other signal
/// comes from outside and says nothing about them.
fn ended_by(signal: i32) -> Error {
    let name = SIGNALS.iter().find(|(known, _)| known.as_raw() == signal).map_or("a signal", |(_, name)| name);
    match Signal::from_named_raw(signal) {
        Some(Signal::ABORT | Signal::SEGV | Signal::BUS | Signal::ILL | Signal::FPE) => {
            refuse(&format!("the engine crashed while reading the database ({name}, signal {signal})"))
        }
        Some(Signal::XFSZ) => Error::Engine(format!(
            "the database could not be examined: its copy is larger than a file may be here ({name}, signal {signal}). Nothing was \
             changed. Raise the limit of file sizes (`ulimit -f`, `LimitFSIZE=`) and start again"
        )),
        _ => Error::Engine(format!(
            "the database could not be examined: the process that reads it was ended by {name} (signal {signal}){}. Nothing was \
             changed, and nothing is known to be damaged: start again",
            if signal == Signal::KILL.as_raw() { ", as the kernel does when memory runs out" } else { "" }
        )),
    }
}

const SIGNALS: [(Signal, &str); 12] = [
    (Signal::HUP, "SIGHUP"),
    (Signal::INT, "SIGINT"),
    (Signal::QUIT, "SIGQUIT"),
    (Signal::ILL, "SIGILL"),
    (Signal::ABORT, "SIGABRT"),
    (Signal::BUS, "SIGBUS"),
    (Signal::FPE, "SIGFPE"),
    (Signal::KILL, "SIGKILL"),
    (Signal::SEGV, "SIGSEGV"),
    (Signal::TERM, "SIGTERM"),
    (Signal::XCPU, "SIGXCPU"),
    (Signal::XFSZ, "SIGXFSZ"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sled::{Layout, SledOptions, SledStore};

    const DIR: &str = "BULKHEAD_TEST_PROBE_DIR";
    const PANIC: &str = "panic";

    #[test]
    #[ignore = "the child process of the probe's tests"]
    fn child() {
        let dir = std::env::var(DIR).unwrap();
        assert_ne!(dir, PANIC);
        end_with_host();
        let (answer, code) = answer(Path::new(&dir));
        std::io::stdout().write_all(answer.as_bytes()).unwrap();
        std::process::exit(code.into());
    }

    fn probe_in_child(dir: &str) -> Result<StoreCounts, Error> {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "sled::probe::tests::child", "--ignored", "--nocapture"]).env(DIR, dir);
        in_child(&mut command)
    }

    /// A shell that is a probe: it ends by a signal.
    fn killed_by(signal: &str) -> Error {
        in_child(Command::new("sh").args(["-c", &format!("kill -{signal} $$")])).err().unwrap()
    }

    #[test]
    fn probe_child_reports_whether_store_is_sound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let options = SledOptions { ballast_bytes: 0, free_bytes_min: 1, ..SledOptions::new(dir.path()) };
        drop(SledStore::open(options).unwrap());
        assert_eq!(probe_in_child(path).unwrap().group, 1);
        std::fs::remove_file(Layout::new(dir.path()).state).unwrap();
        let refused = probe_in_child(path).err().unwrap();
        assert!(matches!(&refused, Error::Corrupt(reason) if reason.contains("state is missing")), "{refused}");
    }

    #[test]
    fn probe_refuses_a_program_that_is_no_probe() {
        let refused = in_child(&mut Command::new("true")).err().unwrap();
        assert!(refused.to_string().contains("cannot be its own probe"), "{refused}");
    }

    #[test]
    fn probe_child_panic_is_store_corruption() {
        let refused = probe_in_child(PANIC).err().unwrap();
        assert!(matches!(&refused, Error::Corrupt(reason) if reason.contains("stopped while reading")), "{refused}");
    }

    #[test]
    fn probe_child_that_lacks_something_is_not_store_corruption() {
        let ended = |said: &str, end: &str| {
            in_child(Command::new("sh").args(["-c", &format!("echo '{said}' >&2; {end}")])).err().unwrap().to_string()
        };
        let panicked =
            ended("called `Result::unwrap()` on an `Err` value: Os { code: 11, kind: WouldBlock }", "exit 101");
        assert!(panicked.contains("ulimit -u") && !panicked.contains("corrupt"), "{panicked}");
        let aborted = ended("memory allocation of 4096 bytes failed", "kill -ABRT $$");
        assert!(aborted.contains("ulimit -v") && !aborted.contains("corrupt"), "{aborted}");
        let damaged = ended("index out of bounds", "head -c 200000 /dev/zero >&2; exit 101");
        assert!(damaged.contains("corrupt") && damaged.contains("stopped while reading"), "{damaged}");
    }

    #[test]
    fn killed_probe_child_is_not_store_corruption() {
        for (signal, said) in
            // A shell in the background ignores SIGINT.
            [("KILL", "SIGKILL (signal 9)"), ("TERM", "SIGTERM (signal 15)"), ("XCPU", "SIGXCPU (signal 24)")]
        {
            let refused = killed_by(signal);
            assert!(matches!(&refused, Error::Engine(_)), "{refused:?}");
            let refused = refused.to_string();
            assert!(refused.contains(said) && refused.contains("start again"), "{refused}");
            assert!(!refused.contains("rebuild"), "{refused}");
        }
        let refused = killed_by("XFSZ").to_string();
        assert!(refused.contains("ulimit -f") && !refused.contains("rebuild"), "{refused}");
    }

    #[test]
    fn probe_child_crash_is_refused_with_its_signal() {
        let refused = killed_by("SEGV");
        assert!(matches!(&refused, Error::Corrupt(reason) if reason.contains("SIGSEGV, signal 11")), "{refused}");
    }

    #[test]
    fn killed_probe_child_is_retried_once() {
        let dir = tempfile::tempdir().unwrap();
        let marker = dir.path().join("marker");
        let script = format!("[ -e {0} ] && exit 4; touch {0}; kill -KILL $$", marker.display());
        let refused = in_child(Command::new("sh").args(["-c", &script])).err().unwrap();
        assert!(!refused.to_string().contains("SIGKILL"), "{refused}");
    }
}
