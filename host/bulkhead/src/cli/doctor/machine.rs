//! Kernel, limits of the process, clock and address.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bulkhead_assembly::host;
use bulkhead_assembly::resources::{Resources, Shortage, address_space_shortage};
use bulkhead_config::Config;
use bulkhead_control::client::ControlClient;
use bulkhead_runtime::{PluginSource, Source};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::process::{Resource, getrlimit};

use super::Finding;

/// Descriptors that a host needs beside those of connections: the store, the control socket, guests' files and
/// requests.
const OWN_FILES: u64 = 512;
/// A year in which this program did not exist, and one that it will not see.
const YEARS: std::ops::Range<u64> = 2026..2100;
const YEAR_SECONDS: u64 = 31_556_952;
/// How long both clocks are compared, and how far they may differ then.
const COMPARED: Duration = Duration::from_millis(100);
const DRIFT_MAX: Duration = Duration::from_millis(20);

/// `(component (core module))`: the smallest thing that is compiled.
const SMALLEST: &[u8] = b"\0asm\x0d\0\x01\0\x01\x08\0asm\x01\0\0\0";

/// Granted folders are opened by it: no link leads out of them.
pub(super) fn openat2() -> Finding {
    const SUBJECT: &str = "kernel: openat2";
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match rustix::fs::openat2(CWD, ".", flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS) {
        Ok(_) => Finding::ok(SUBJECT, "works"),
        Err(error) => Finding::fail(
            SUBJECT,
            format!("{error}; plugins reach no granted folder without it"),
            "Use Linux 5.6 or newer; in a container, let its seccomp profile allow openat2 (Docker 20.10 and Podman 3 do).",
        ),
    }
}

/// An engine with the configured number of instances, and a compilation in a child with limits of its own.
pub(super) async fn sandbox(config: &Config) -> Finding {
    const SUBJECT: &str = "sandbox";
    let remedy = "Give the process more virtual memory (no `ulimit -v`, vm.overcommit_memory 0 or 1) and threads, or lower \
        limits.calls_running_total and limits.calls_resting_total.";
    let scratch = match tempfile::tempdir() {
        Ok(scratch) => scratch,
        Err(error) => return Finding::fail(SUBJECT, format!("no temporary folder: {error}"), "Make room in $TMPDIR."),
    };
    let sandbox = match host::sandbox(config, scratch.path(), None, None) {
        Ok(sandbox) => sandbox,
        Err(error) => return Finding::fail(SUBJECT, format!("it does not start: {error:#}"), remedy),
    };
    let source = PluginSource::bare(Source::Bytes(SMALLEST.into()), config.call.clone());
    // It is no plugin, and so it is refused, after it was compiled; what fails for another reason is the machine's.
    match sandbox.inspect(PluginSource { name: Some("doctor".to_owned()), ..source }).await {
        Err(error) if error.passing => Finding::fail(
            SUBJECT,
            format!("a component cannot be compiled: {}", error.problems.join("; ")),
            "Let the program start itself again (its file must be executable and there), and give the child the memory of \
             compile.memory_bytes.",
        ),
        _ => Finding::ok(SUBJECT, "it starts, and compiles in a child process"),
    }
}

pub(super) fn address_space() -> Finding {
    of_address_space(getrlimit(Resource::As).current)
}

fn of_address_space(limit: Option<u64>) -> Finding {
    const SUBJECT: &str = "limit: address space";
    match address_space_shortage(limit) {
        Some(Shortage { found, remedy }) => Finding::warn(SUBJECT, found, remedy),
        None => Finding::ok(SUBJECT, limit.map_or_else(|| "none".to_owned(), |limit| format!("{} GiB", limit >> 30))),
    }
}

/// As many as a host needs to begin with, and as many as one under load may start.
pub(super) fn threads() -> Finding {
    of_threads(Resources::of_host().look_for_threads(), Resources::of_busy_host().look_for_threads())
}

fn of_threads(of_host: Result<(), Shortage>, of_busy_host: Result<(), Shortage>) -> Finding {
    const SUBJECT: &str = "limit: threads";
    match (of_host, of_busy_host) {
        (Err(Shortage { found, remedy }), _) => Finding::fail(SUBJECT, found, remedy),
        (_, Err(Shortage { found, remedy })) => Finding::warn(SUBJECT, format!("{found} under load"), remedy),
        _ => Finding::ok(SUBJECT, format!("{} or more", Resources::of_busy_host().threads())),
    }
}

pub(super) fn open_files(connections_max: u32) -> Finding {
    of_open_files(getrlimit(Resource::Nofile).current, connections_max)
}

fn of_open_files(limit: Option<u64>, connections_max: u32) -> Finding {
    const SUBJECT: &str = "limit: open files";
    let wanted = u64::from(connections_max) + OWN_FILES;
    let remedy = format!(
        "Raise it to {wanted} (`ulimit -n {wanted}`, systemd: LimitNOFILE={wanted}), or lower server.connections_max ({connections_max})."
    );
    match limit {
        Some(limit) if limit < OWN_FILES => {
            Finding::fail(SUBJECT, format!("{limit}; a host needs {OWN_FILES} for itself"), remedy)
        }
        Some(limit) if limit < wanted => {
            Finding::warn(SUBJECT, format!("{limit}, for {connections_max} connections"), remedy)
        }
        Some(limit) => Finding::ok(SUBJECT, limit.to_string()),
        None => Finding::ok(SUBJECT, "none"),
    }
}

pub(super) fn clock() -> Vec<Finding> {
    let wall = SystemTime::now();
    let steady = Instant::now();
    std::thread::sleep(COMPARED);
    let passed = wall.elapsed().ok();
    let unix = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    vec![of_year(unix.as_secs()), of_pace(passed, steady.elapsed())]
}

fn of_year(unix_seconds: u64) -> Finding {
    const SUBJECT: &str = "clock: time of day";
    let year = 1970 + unix_seconds / YEAR_SECONDS;
    if YEARS.contains(&year) {
        Finding::ok(SUBJECT, format!("the year is {year}"))
    } else {
        let remedy =
            "Set the clock and keep it set (chrony, systemd-timesyncd): tokens, certificates and lifetimes go by it.";
        Finding::fail(SUBJECT, format!("the year is {year}"), remedy)
    }
}

/// `wall`: how far the time of day has moved meanwhile; `None`: back.
fn of_pace(wall: Option<Duration>, steady: Duration) -> Finding {
    const SUBJECT: &str = "clock: pace";
    let remedy =
        "Somebody sets the clock, or the machine's is bad: let one program slew it (chrony, systemd-timesyncd).";
    match wall {
        None => Finding::warn(SUBJECT, "the time of day went back", remedy),
        Some(wall) if wall.abs_diff(steady) > DRIFT_MAX => {
            let wall = wall.as_millis();
            let steady = steady.as_millis();
            Finding::warn(SUBJECT, format!("the time of day moved by {wall} ms in {steady} ms"), remedy)
        }
        Some(_) => Finding::ok(SUBJECT, "the time of day moves with the monotonic clock"),
    }
}

/// Whether a host could listen there; one that does already, for the same data directory, is no problem.
pub(super) async fn port(config: &Config) -> Finding {
    const SUBJECT: &str = "address";
    let listen = config.server.listen;
    match TcpListener::bind(listen) {
        Ok(_) => Finding::ok(SUBJECT, format!("{listen} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let running = ControlClient::connect(&config.server.data).await;
            if matches!(running, Ok(Some(_))) {
                return Finding::ok(SUBJECT, format!("{listen} is taken, and a host of this data directory runs"));
            }
            let remedy =
                "Stop what listens there (`ss -ltnp` names it), or choose another one: server.listen, --listen.";
            Finding::fail(SUBJECT, format!("{listen} is taken by another program"), remedy)
        }
        Err(error) => Finding::fail(
            SUBJECT,
            format!("{listen}: {error}"),
            "Listen on an address of this machine (`ip address` lists them), and on a port of 1024 or more unless the process may \
             bind lower ones (CAP_NET_BIND_SERVICE).",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn limits_of_the_process_are_judged_by_what_the_host_is_configured_for() {
        assert_eq!(of_open_files(Some(256), 10).verdict, Verdict::Fail);
        let few = of_open_files(Some(1024), 10_000);
        assert_eq!(few.verdict, Verdict::Warn);
        assert!(few.remedy.unwrap().contains("LimitNOFILE=10512"));
        assert_eq!(of_open_files(Some(1024), 100).verdict, Verdict::Ok);
        assert_eq!(of_open_files(None, 1_000_000).verdict, Verdict::Ok);
        assert_eq!(of_address_space(Some(4 << 30)).verdict, Verdict::Warn);
        assert_eq!(of_address_space(None).verdict, Verdict::Ok);
        let short = || Err(Shortage { found: "7 threads".to_owned(), remedy: "Raise it.".to_owned() });
        assert_eq!(of_threads(short(), short()).verdict, Verdict::Fail);
        let few = of_threads(Ok(()), short());
        assert_eq!((few.verdict, few.found.as_str()), (Verdict::Warn, "7 threads under load"));
        assert_eq!(of_threads(Ok(()), Ok(())).verdict, Verdict::Ok);
    }

    #[test]
    fn clock_that_is_wrong_or_jumps_is_found() {
        assert_eq!(of_year(0).verdict, Verdict::Fail);
        assert_eq!(of_year(1_795_226_619).verdict, Verdict::Ok);
        assert_eq!(of_year(5_000_000_000).verdict, Verdict::Fail);
        assert_eq!(of_pace(None, COMPARED).verdict, Verdict::Warn);
        assert_eq!(of_pace(Some(COMPARED * 20), COMPARED).verdict, Verdict::Warn);
        assert_eq!(of_pace(Some(COMPARED), COMPARED).verdict, Verdict::Ok);
    }
}
