//! The process that compiles one component and ends.
//!
//! Invariant: it is confined before it reads the first byte, and it ends with the pipe that it read its component from,
//! so that it does not outlive the host.

use std::fs;
use std::io::{self, Read, Write};
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, getrlimit, nice, setrlimit};
use tokio::process::Command;

use crate::engine::{self, Effort, EngineKind};
use bulkhead_domain::limits::CompileLimits;

/// The first argument that makes the program a compiler. Bytes of memory, seconds of processor time and the kind of
/// engine follow, and [`QUICK`] where it is wanted.
pub const COMPILE_ARGUMENT: &str = "__compile";

/// The argument for [`Effort::Quick`].
const QUICK: &str = "quick";

/// What an answer begins with: a program that does not know its argument says something else.
const MAGIC: &[u8; 8] = b"bulkcode";
/// Magic, kind, length.
pub(super) const HEAD_BYTES: usize = 8 + 1 + 8;
const CODE: u8 = 1;
const REFUSAL: u8 = 0;

/// How much nicer a compilation is than the host: as much as guests, which want the machine too.
const NICENESS: i32 = 5;
/// Room beside the compiler's data: the program, its libraries, and address space that the allocator only reserves.
const ADDRESS_BYTES_BESIDE: u64 = 4 << 30;
/// Its own three, and what the standard library opens for a moment.
const FILES_MAX: u64 = 16;
/// The kernel kills this process first when the machine is out of memory, not the host.
const OOM_SCORE: &str = "1000";

/// The running program as a compiler.
pub(super) fn command(kind: EngineKind, effort: Effort, limits: &CompileLimits, threads: usize) -> Command {
    // The file may have been replaced by another version since; this is what runs.
    let mut command = Command::new("/proc/self/exe");
    let cpu_s = limits.cpu_ms.div_ceil(1000);
    command.arg0("bulkhead").arg(COMPILE_ARGUMENT).arg(limits.memory_bytes.to_string()).arg(cpu_s.to_string());
    command.arg(number(kind).to_string()).args((effort == Effort::Quick).then_some(QUICK));
    command.env_clear().env("RAYON_NUM_THREADS", threads.to_string());
    // Memory that the allocator takes in advance would count as used.
    command.env("MIMALLOC_ARENA_EAGER_COMMIT", "0");
    command.current_dir("/").process_group(0);
    command
}

/// The compiler: a component on standard input, its code or a refusal on standard output. `arguments` are those after
/// [`COMPILE_ARGUMENT`].
pub fn compile_main(arguments: impl Iterator<Item = std::ffi::OsString>) -> ExitCode {
    let (quick, numbers): (Vec<_>, Vec<_>) = arguments.partition(|argument| argument == QUICK);
    let effort = if quick.is_empty() { Effort::Usual } else { Effort::Quick };
    let numbers: Vec<u64> = numbers.iter().filter_map(|argument| argument.to_str()?.parse().ok()).collect();
    let &[memory_bytes, cpu_s, kind] = numbers.as_slice() else { return ExitCode::from(2) };
    let kinds = [EngineKind::Plain, EngineKind::Concurrent];
    let Some(kind) = kinds.into_iter().find(|known| number(*known) == kind) else { return ExitCode::from(2) };
    let limits = CompileLimits { memory_bytes, cpu_ms: cpu_s.saturating_mul(1000), functions_max: u32::MAX };
    let compiled = confine(memory_bytes, cpu_s)
        .and_then(|()| receive())
        .map(|component| compile(kind, effort, &component, &limits));
    match compiled.and_then(|compiled| reply(&compiled)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // For the host's log.
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// A kind of engine as an argument.
fn number(kind: EngineKind) -> u64 {
    match kind {
        EngineKind::Plain => 0,
        EngineKind::Concurrent => 1,
    }
}

/// Gives up what a compiler does not need.
fn confine(memory_bytes: u64, cpu_s: u64) -> io::Result<()> {
    fs::write("/proc/self/oom_score_adj", OOM_SCORE)?;
    nice(NICENESS)?;
    rustix::thread::set_no_new_privs(true)?;
    let limits = [
        (Resource::Data, memory_bytes),
        (Resource::As, memory_bytes.saturating_add(ADDRESS_BYTES_BESIDE)),
        (Resource::Cpu, cpu_s),
        (Resource::Nofile, FILES_MAX),
        // No file, and no memory dump of what it compiled.
        (Resource::Fsize, 0),
        (Resource::Core, 0),
    ];
    for (resource, bound) in limits {
        // Processor time has a signal of its own at the lower limit; at the upper one comes the end without a reason.
        let upper = if resource == Resource::Cpu { bound.saturating_add(1) } else { bound };
        // What somebody else has set lower stays so.
        let least = |bound: u64| Some(getrlimit(resource).maximum.map_or(bound, |maximum| maximum.min(bound)));
        setrlimit(resource, Rlimit { current: least(bound), maximum: least(upper) })?;
    }
    Ok(())
}

/// Reads the component, and from then on ends this process when the pipe does.
fn receive() -> io::Result<Vec<u8>> {
    let mut stdin = io::stdin().lock();
    let mut length = [0; 8];
    stdin.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    let mut component = Vec::new();
    stdin.by_ref().take(length).read_to_end(&mut component)?;
    if component.len() as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    drop(stdin);
    std::thread::Builder::new().name("pipe".to_owned()).spawn(|| {
        // Nothing more is sent.
        let _ = io::stdin().lock().read(&mut [0]);
        std::process::exit(1);
    })?;
    Ok(component)
}

fn compile(kind: EngineKind, effort: Effort, component: &[u8], limits: &CompileLimits) -> Result<Vec<u8>, String> {
    super::foreign::check(component)?;
    let compiled = engine::for_compiling(kind, effort).and_then(|engine| engine.precompile_component(component));
    compiled.map_err(|error| super::refusal(&error, limits))
}

fn reply(compiled: &Result<Vec<u8>, String>) -> io::Result<()> {
    let (kind, body) = match compiled {
        Ok(code) => (CODE, code.as_slice()),
        Err(refusal) => (REFUSAL, refusal.as_bytes()),
    };
    let mut stdout = io::stdout().lock();
    stdout.write_all(MAGIC)?;
    stdout.write_all(&[kind])?;
    stdout.write_all(&(body.len() as u64).to_le_bytes())?;
    stdout.write_all(body)?;
    stdout.flush()
}

/// Whether code follows, and how many bytes of what.
pub(super) fn read_head(head: &[u8; HEAD_BYTES]) -> Option<(bool, u64)> {
    let (kind, length) = head.strip_prefix(MAGIC)?.split_first()?;
    let is_code = match *kind {
        CODE => true,
        REFUSAL => false,
        _ => return None,
    };
    Some((is_code, u64::from_le_bytes(length.try_into().ok()?)))
}
