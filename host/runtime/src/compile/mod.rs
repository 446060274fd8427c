//! Compiles components in a child process, so that a hostile one cannot harm the host.
//!
//! Owns the way from a component to machine code that is not in the cache: [`bounds`] count what is in it, which only
//! parses; then [`child`], the running program with [`COMPILE_ARGUMENT`], compiles it under limits of memory and
//! processor time, with no environment, no file of the host's but three pipes, and a low claim on the machine. The
//! component goes in on its standard input, the code comes out on its standard output. Must not see the key of the
//! cache: signing is the host's business, and the child never has the key.
//!
//! Invariant: whatever a component does to the compiler ends as a refusal of that component, in words for its author;
//! once nobody waits any more, or the host is gone, so is the child.
//!
//! The child is no border of trust. The code that it sends back runs in the host, and is as good as the compiler: a
//! mistake of the compiler that lets a component write its own machine code would do so inside the host as well. What
//! the child keeps away is exhaustion and crashes.

pub(super) mod bounds;
mod child;
mod foreign;

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinSet;
use wasmtime::{Engine, OutOfMemory};

use super::engine::{Effort, EngineKind};
use bulkhead_domain::limits::CompileLimits;
use bulkhead_domain::text::escaped;

pub use child::{COMPILE_ARGUMENT, compile_main};

/// Bytes of compiled code; it takes about three times the room of the component. Stops code that fills the host
/// instead.
const CODE_BYTES_MAX: u64 = 512 << 20;
/// Bytes of what a child says before it dies.
const SAID_BYTES_MAX: u64 = 4 << 10;
/// Threads of one child. More take more memory, and few components have enough functions for them.
const THREADS_MAX: usize = 8;
/// Time beyond the processor time, as a multiple of it: for machines that are busy with better things.
const WALL_FACTOR: u64 = 5;
/// Time that even a short compilation may take.
const WALL_MS_MIN: u64 = 60_000;

/// What tools for components write by default and wasmtime does not take by default: the feature as its validator names
/// it, what an author wrote, and what does the same.
const LEFT_OUT: [(&str, &str, &str); 3] = [
    ("component model map feature", "`map<K, V>`", "`list<tuple<K, V>>`"),
    ("component model fixed-length lists feature", "`list<T, N>`", "`list<T>`"),
    ("component model error-context feature", "`error-context`", "`string`"),
];

/// Where components are compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompilerMode {
    /// In a child process: the running program with [`COMPILE_ARGUMENT`].
    #[default]
    Child,
    /// The same, for code that is ready in two thirds of the time and runs slower: of what an author changes again
    /// soon.
    QuickChild,
    /// In this process, for programs that cannot be their own compiler and trust their components: of the limits, only
    /// the number of functions holds.
    InProcess,
}

impl CompilerMode {
    pub(super) fn effort(self) -> Effort {
        match self {
            Self::Child | Self::InProcess => Effort::Usual,
            Self::QuickChild => Effort::Quick,
        }
    }
}

/// Why there is no code of a component.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CompileError {
    /// It is the component, in words for its author.
    #[error("{0}")]
    Refused(String),
    /// It is the machine: another time it may go well.
    #[error("{0}")]
    Passing(String),
}

/// Compiles components, at most as many at once as there are cores.
#[derive(Debug)]
pub(super) struct Compiler {
    mode: CompilerMode,
    limits: CompileLimits,
    cores: usize,
    turns: Semaphore,
    /// Where pipes and timers live.
    io: tokio::runtime::Handle,
}

impl Compiler {
    pub(super) fn new(mode: CompilerMode, limits: CompileLimits, io: tokio::runtime::Handle) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { mode, limits, cores, turns: Semaphore::new(cores), io }
    }

    /// Waits until another compilation may begin.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.turns.acquire().await.ok()
    }

    /// The machine code of a component, as [`Engine::precompile_component`] gives it.
    ///
    /// # Errors
    ///
    /// Why it is refused, or cannot be compiled now.
    pub(super) async fn compile(
        &self,
        engine: &Engine,
        kind: EngineKind,
        component: &Arc<[u8]>,
    ) -> Result<Vec<u8>, CompileError> {
        let limits = self.limits.clone();
        let component = Arc::clone(component);
        let mut work = JoinSet::new();
        match self.mode {
            CompilerMode::InProcess => {
                let engine = engine.clone();
                work.spawn_blocking_on(
                    move || {
                        let refused = CompileError::Refused;
                        bounds::check(&component, limits.functions_max).map_err(refused)?;
                        foreign::check(&component).map_err(refused)?;
                        engine.precompile_component(&component).map_err(|error| refused(refusal(&error, &limits)))
                    },
                    &self.io,
                );
            }
            CompilerMode::Child | CompilerMode::QuickChild => {
                let effort = self.mode.effort();
                let threads = self.cores.min(THREADS_MAX);
                work.spawn_on(
                    async move {
                        let counted = Arc::clone(&component);
                        let functions_max = limits.functions_max;
                        tokio::task::spawn_blocking(move || bounds::check(&counted, functions_max))
                            .await
                            .map_err(|_| lost())?
                            .map_err(CompileError::Refused)?;
                        in_child(child::command(kind, effort, &limits, threads), &component, &limits).await
                    },
                    &self.io,
                );
            }
        }
        work.join_next().await.and_then(Result::ok).unwrap_or_else(|| Err(lost()))
    }
}

fn lost() -> CompileError {
    CompileError::Refused("the host panicked while compiling it".to_owned())
}

/// Sends a component to a child and reads the compiled code. The child is killed when this future ends or is dropped.
async fn in_child(mut command: Command, component: &[u8], limits: &CompileLimits) -> Result<Vec<u8>, CompileError> {
    let cannot = |error: std::io::Error| CompileError::Passing(format!("the compiler cannot be started: {error}"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(cannot)?;
    let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(lost());
    };
    let wall_ms = limits.cpu_ms.saturating_mul(WALL_FACTOR).max(WALL_MS_MIN);
    let work = async {
        // The pipe stays open to the end: its end tells the child that nobody waits for it any more.
        let (_stdin, answer, words) = tokio::join!(give(stdin, component), answer(stdout), listen(stderr));
        (answer, words, child.wait().await)
    };
    let done = tokio::time::timeout(Duration::from_millis(wall_ms), work).await;
    let Ok((answer, words, status)) = done else {
        // If it is gone already, that is as good.
        let _ = child.kill().await;
        let late = format!("compiling it took longer than {wall_ms} ms, on a machine that is busy otherwise");
        return Err(CompileError::Passing(late));
    };
    match answer {
        Some(Ok(code)) => Ok(code),
        Some(Err(refused)) => Err(CompileError::Refused(refused)),
        None => {
            let status = status.map_err(cannot)?;
            tracing::warn!(%status, stderr = escaped(&words), "the compiler gave no answer");
            Err(cause_of_death(status, &words, limits))
        }
    }
}

/// Sends the component; returns the pipe, still open.
async fn give(mut stdin: ChildStdin, component: &[u8]) -> ChildStdin {
    let length = (component.len() as u64).to_le_bytes();
    if stdin.write_all(&length).await.is_ok() {
        // A child that dies meanwhile is noticed where it should answer.
        let _ = stdin.write_all(component).await;
    }
    stdin
}

/// The child's answer: its code, or why there is none. `None`: it did not come to an answer.
async fn answer(mut stdout: ChildStdout) -> Option<Result<Vec<u8>, String>> {
    let mut head = [0; child::HEAD_BYTES];
    stdout.read_exact(&mut head).await.ok()?;
    let (is_code, length) = child::read_head(&head)?;
    if length > CODE_BYTES_MAX {
        return Some(Err(format!("its compiled code has {length} bytes; {CODE_BYTES_MAX} is the most")));
    }
    let body = read_bounded(stdout, length).await;
    if body.len() as u64 != length {
        return None;
    }
    Some(if is_code { Ok(body) } else { Err(String::from_utf8_lossy(&body).into_owned()) })
}

async fn listen(stderr: ChildStderr) -> String {
    String::from_utf8_lossy(&read_bounded(stderr, SAID_BYTES_MAX).await).into_owned()
}

/// Reads up to this many bytes. Room is taken as they come, whatever was announced.
async fn read_bounded(from: impl AsyncRead + Unpin, bytes_max: u64) -> Vec<u8> {
    let mut body = Vec::new();
    // What broke off is too short.
    let _ = from.take(bytes_max).read_to_end(&mut body).await;
    body
}

/// Why a child died, in words for the author of the component.
fn cause_of_death(status: ExitStatus, stderr: &str, limits: &CompileLimits) -> CompileError {
    use std::os::unix::process::ExitStatusExt as _;
    // Nothing that a compiler does to itself: somebody, or the kernel of a machine without memory, has ended it.
    let from_outside = [Signal::KILL, Signal::TERM, Signal::HUP, Signal::INT];
    if let Some(signal) = status.signal().filter(|signal| from_outside.iter().any(|kill| kill.as_raw() == *signal)) {
        return CompileError::Passing(format!("the process that was compiling it was killed (signal {signal})"));
    }
    let out_of_memory = ["memory allocation of", "Cannot allocate memory", "Resource temporarily unavailable"];
    CompileError::Refused(match status.signal() {
        Some(signal) if signal == Signal::XCPU.as_raw() => {
            format!("compiling it takes more processor time than compile.cpu_ms = {}", limits.cpu_ms)
        }
        _ if out_of_memory.iter().any(|words| stderr.contains(words)) => too_large(limits),
        Some(signal) => format!("the compiler crashed on it (signal {signal}), in a process of its own"),
        None => format!("the compiler failed on it ({status}), in a process of its own"),
    })
}

fn too_large(limits: &CompileLimits) -> String {
    format!("compiling it takes more memory than compile.memory_bytes = {}", limits.memory_bytes)
}

/// What the compiler says about a component, in words for its author.
fn refusal(error: &wasmtime::Error, limits: &CompileLimits) -> String {
    if error.is::<OutOfMemory>() {
        return too_large(limits);
    }
    let text = format!("{error:#}");
    if text.contains("component model async") || text.contains("component-model-async") {
        return "it needs a part of component-model async that this host does not offer: build it with synchronous exports"
            .to_owned();
    }
    if text.contains("unexpected end") {
        return "the file is truncated".to_owned();
    }
    if let Some((_, what, instead)) = LEFT_OUT.iter().find(|(feature, ..)| text.contains(feature)) {
        return format!("it has {what} in its types, which this host does not offer: write {instead}");
    }
    format!("it is not a valid component: {}", escaped(&text))
}

#[cfg(test)]
mod tests;
