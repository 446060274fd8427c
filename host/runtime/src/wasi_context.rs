//! What a guest perceives of time, chance and its own printing.
//!
//! Owns the clocks and the random streams of one call, and the sink of its stdout and stderr. Invariant: everything
//! random comes from the call's seed, and no clock is finer than a millisecond.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::Mutex;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::{HostMonotonicClock, HostWallClock};
use wasmtime_wasi_io::poll::Pollable;
use wasmtime_wasi_io::streams::{OutputStream, StreamResult};

use super::events::Outbox;
use super::limits::STDIO_BYTES_MAX;
use bulkhead_domain::text::escaped;

/// Where the monotonic clock of every call starts: far enough from zero that a guest can subtract from it.
pub(super) const MONOTONIC_BASE: Duration = Duration::from_secs(3600);

/// Both clocks of one call. They start at a base and advance in whole milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    started: Instant,
    unix: Duration,
    /// Whether the wall clock shows the same all the time.
    stands: bool,
}

impl Clock {
    /// `fixed_ms`: what the wall clock shows from begin to end, in milliseconds since the Unix epoch.
    pub(super) fn start(fixed_ms: Option<u64>) -> Self {
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix = fixed_ms.map_or_else(now, Duration::from_millis);
        Self { started: Instant::now(), unix: whole_ms(unix), stands: fixed_ms.is_some() }
    }

    fn elapsed(&self) -> Duration {
        whole_ms(self.started.elapsed())
    }
}

fn whole_ms(time: Duration) -> Duration {
    Duration::new(time.as_secs(), time.subsec_millis() * 1_000_000)
}

impl HostWallClock for Clock {
    fn resolution(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn now(&self) -> Duration {
        if self.stands { self.unix } else { self.unix + self.elapsed() }
    }
}

impl HostMonotonicClock for Clock {
    fn resolution(&self) -> u64 {
        1_000_000
    }

    fn now(&self) -> u64 {
        u64::try_from((MONOTONIC_BASE + self.elapsed()).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The random streams that come out of one seed; they never overlap.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stream {
    Secure = 0,
    Insecure = 1,
    /// Ids that the host draws for the call.
    Host = 2,
}

pub(super) fn random(seed: [u8; 32], stream: Stream) -> ChaCha20Rng {
    let mut rng = ChaCha20Rng::from_seed(seed);
    rng.set_stream(stream as u64);
    rng
}

/// 128 random bits as hexadecimal digits.
pub(super) fn random_id(rng: &mut ChaCha20Rng) -> String {
    format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64())
}

/// Where what guests print is logged, line by line.
pub const PRINTED: &str = "bulkhead::guest";

/// Bytes of the end of standard error that a failure shows.
pub(super) const STDERR_TAIL_BYTES_MAX: usize = 4 << 10;

/// The end of what a guest writes to its standard error: a guest that crashes says why there. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct StderrTail(Arc<Mutex<VecDeque<u8>>>);

impl StderrTail {
    pub(super) fn push(&self, bytes: &[u8]) {
        let kept = bytes.get(bytes.len().saturating_sub(STDERR_TAIL_BYTES_MAX)..).unwrap_or_default();
        let mut tail = self.0.lock();
        let excess = (tail.len() + kept.len()).saturating_sub(STDERR_TAIL_BYTES_MAX);
        tail.drain(..excess);
        tail.extend(kept);
    }

    pub(super) fn text(&self) -> String {
        let mut tail = self.0.lock();
        let tail = tail.make_contiguous();
        // It may begin inside of a character.
        let begin = tail.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
        String::from_utf8_lossy(tail.get(begin..).unwrap_or_default()).trim_end().to_owned()
    }

    /// Whether there may have been more of it than is kept.
    pub(super) fn is_full(&self) -> bool {
        self.0.lock().len() == STDERR_TAIL_BYTES_MAX
    }
}

/// A guest's stdout or stderr: shown to the operator at debug level up to a limit, then swallowed. Writing never fails,
/// so that a talkative guest does not trap.
#[derive(Clone)]
pub(super) struct Printed {
    line: Arc<Mutex<PrintedLine>>,
    /// Keeps the end of standard error.
    tail: Option<StderrTail>,
}

/// What a guest has printed since its last line break. The rest is shown when the call ends.
struct PrintedLine {
    plugin: Arc<str>,
    stream: &'static str,
    left: usize,
    bytes: Vec<u8>,
    /// Of a call that may have run before: what it said then is not said again.
    outbox: Option<Outbox>,
}

impl Printed {
    pub(super) fn new(plugin: Arc<str>, stream: &'static str) -> Self {
        Self::beside(plugin, stream, None)
    }

    /// The same, silent while this is.
    pub(super) fn beside(plugin: Arc<str>, stream: &'static str, outbox: Option<Outbox>) -> Self {
        let line = PrintedLine { plugin, stream, left: STDIO_BYTES_MAX, bytes: Vec::new(), outbox };
        Self { line: Arc::new(Mutex::new(line)), tail: None }
    }

    /// The same, whose end is kept.
    pub(super) fn keeping(self, tail: StderrTail) -> Self {
        Self { tail: Some(tail), ..self }
    }

    pub(super) fn set_outbox(&self, outbox: Option<Outbox>) {
        self.line.lock().outbox = outbox;
    }

    pub(super) fn show(&self, bytes: &[u8]) {
        if let Some(tail) = &self.tail {
            tail.push(bytes);
        }
        if tracing::enabled!(target: PRINTED, tracing::Level::DEBUG) {
            let mut line = self.line.lock();
            if line.outbox.as_ref().is_none_or(|outbox| !outbox.is_silent()) {
                line.add(bytes);
            }
        }
    }
}

impl PrintedLine {
    fn add(&mut self, bytes: &[u8]) {
        let shown = bytes.get(..bytes.len().min(self.left)).unwrap_or_default();
        self.left -= shown.len();
        for piece in shown.split_inclusive(|byte| *byte == b'\n') {
            self.bytes.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.end();
            }
        }
    }

    fn end(&mut self) {
        let text = printable(&std::mem::take(&mut self.bytes));
        tracing::debug!(target: PRINTED, plugin = &*self.plugin, stream = self.stream, "{text}");
    }
}

impl Drop for PrintedLine {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.end();
        }
    }
}

/// A line as the guest wrote it, without its line break and with nothing that acts on a terminal.
fn printable(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let text = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
    text.split('\t').map(escaped).collect::<Vec<_>>().join("\t")
}

impl IsTerminal for Printed {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Printed {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl AsyncWrite for Printed {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.show(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[async_trait::async_trait]
impl Pollable for Printed {
    async fn ready(&mut self) {}
}

#[async_trait::async_trait]
impl OutputStream for Printed {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.show(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(STDIO_BYTES_MAX)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use futures::FutureExt as _;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[test]
    fn guest_clocks_advance_in_whole_milliseconds() {
        let clock = Clock::start(None);
        let standing = Clock::start(Some(86_400_000));
        std::thread::sleep(Duration::from_micros(1500));
        assert_eq!(HostMonotonicClock::now(&clock) % 1_000_000, 0);
        assert_eq!(HostWallClock::now(&clock).subsec_nanos() % 1_000_000, 0);
        assert!(HostMonotonicClock::now(&clock) > 3_600_000_000_000);
        assert!(HostMonotonicClock::now(&standing) > 3_600_000_000_000, "what measures goes on");
        assert_eq!(HostWallClock::now(&standing), Duration::from_secs(86_400));
    }

    #[test]
    fn standard_error_is_kept_to_its_end() {
        let tail = StderrTail::default();
        assert_eq!((tail.text().as_str(), tail.is_full()), ("", false));
        let stream = Printed::new("p".into(), "stderr").keeping(tail.clone());
        stream.show("ü".repeat(STDERR_TAIL_BYTES_MAX).as_bytes());
        assert!(tail.is_full() && tail.text().chars().all(|c| c == 'ü'));
        stream.show(b"\nthe end\n\n");
        assert!(tail.text().ends_with("ü\nthe end") && tail.text().len() <= STDERR_TAIL_BYTES_MAX);
    }

    #[test]
    fn guest_random_is_seeded_and_streams_differ() {
        let seed = [7; 32];
        let first = random(seed, Stream::Secure).next_u64();
        assert_eq!(first, random(seed, Stream::Secure).next_u64());
        assert_ne!(first, random(seed, Stream::Insecure).next_u64());
        assert_ne!(first, random([8; 32], Stream::Secure).next_u64());
    }

    /// What is logged while this runs, without time and level.
    pub(crate) fn logged(work: impl FnOnce()) -> String {
        let (reader, writer) = std::io::pipe().unwrap();
        let subscriber =
            tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_ansi(false).without_time();
        tracing::subscriber::with_default(subscriber.with_writer(std::sync::Mutex::new(writer)).finish(), work);
        std::io::read_to_string(reader).unwrap()
    }

    #[test]
    fn guest_stdout_is_logged_by_lines() {
        let records = logged(|| {
            let printed = Printed::new("p".into(), "stdout");
            let again = printed.clone();
            // A character in two writes, a line in three, three lines in one, and an end without a line break.
            for piece in ["say \"gr".as_bytes(), b"\xC3", b"\xBCn\"\r\n", b"a\tb\n\nc\nlast \x1b[31m"] {
                again.show(piece);
            }
        });
        let lines: Vec<_> =
            records.lines().map(|record| record.trim_start_matches("DEBUG bulkhead::guest: ").trim()).collect();
        let fields = "plugin=\"p\" stream=\"stdout\"";
        let expected = ["say \"grün\"", "a\tb", "", "c", "last \\u{1b}[31m"]
            .map(|text| format!("{text} {fields}").trim().to_owned());
        assert_eq!(lines, expected);
    }

    #[test]
    fn asynchronous_stdout_is_logged_and_bounded_likewise() {
        let written = |bytes: &[u8]| {
            let mut stream = Box::into_pin(Printed::new("p".into(), "stdout").async_stream());
            stream.write_all(bytes).now_or_never().unwrap().unwrap();
        };
        assert!(logged(|| written(b"words\n")).contains("words plugin=\"p\" stream=\"stdout\""));
        let records = logged(|| written(&[b'x'; 10 * STDIO_BYTES_MAX]));
        assert_eq!(records.matches('x').count(), STDIO_BYTES_MAX);
    }

    #[test]
    fn guest_stdio_logging_is_bounded() {
        let records = logged(|| {
            let printed = Printed::new("p".into(), "stderr");
            (0..100).for_each(|_| printed.show(&[b'x'; 1000]));
        });
        assert_eq!(records.matches('x').count(), STDIO_BYTES_MAX);
    }
}
