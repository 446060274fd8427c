//! A line about work that takes a person's patience.
//!
//! Owns when such a line comes and goes, for every command of both programs. Must not write to stdout, and nothing at
//! all about what is over within a second. Invariant: on a terminal no trace is left of it when the work is over.

use std::io::{IsTerminal, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bulkhead_sources::Progress;
use tokio::time::Instant;

/// What is over by then needs no line.
const QUIET: Duration = Duration::from_secs(1);
/// Between two lines where they cannot be written over.
const PLAIN_EVERY: Duration = Duration::from_secs(10);
/// Writes over the line where the cursor is.
const OVERWRITE: &str = "\r\u{1b}[2K";

/// Where the line is shown.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// On stderr under the program's name: written over on a terminal, and a plain line now and then elsewhere.
    Stderr(&'static str),
    /// Plain lines on stderr in any case: other programs write there meanwhile.
    Lines(&'static str),
}

/// What is to be shown.
enum Moment<'a> {
    Busy {
        what: &'a str,
        seconds: u64,
    },
    /// Only where something was shown before.
    Over,
}

/// Does the work, and says what it is while it takes long. `what` is asked each time that something is shown.
pub async fn during<T>(place: Place, what: impl Fn() -> String, work: impl Future<Output = T>) -> T {
    // Transfers are large, and would be so once more in every future around them.
    let work = Box::pin(work);
    match place {
        Place::Stderr(program) if can_overwrite(&std::io::stderr()) => {
            let show = |moment: Moment<'_>| match moment {
                Moment::Busy { what, seconds } => write(&format!("{OVERWRITE}{program}: {what} … {seconds} s")),
                Moment::Over => write(OVERWRITE),
            };
            follow(QUIET, what, work, show).await
        }
        Place::Stderr(program) | Place::Lines(program) => {
            let show = |moment: Moment<'_>| {
                if let Moment::Busy { what, seconds } = moment {
                    write(&format!("{program}: {what} … {seconds} s\n"));
                }
            };
            follow(PLAIN_EVERY, what, work, show).await
        }
    }
}

/// Shows something after [`QUIET`], and then after each `every`.
async fn follow<T>(
    every: Duration,
    what: impl Fn() -> String,
    work: impl Future<Output = T>,
    mut show: impl FnMut(Moment<'_>),
) -> T {
    let mut work = std::pin::pin!(work);
    let begun = Instant::now();
    let mut next = begun + QUIET;
    loop {
        tokio::select! {
            biased;
            done = &mut work => {
                if next > begun + QUIET {
                    show(Moment::Over);
                }
                return done;
            }
            () = tokio::time::sleep_until(next) => {}
        }
        show(Moment::Busy { what: &what(), seconds: begun.elapsed().as_secs() });
        next = Instant::now() + every;
    }
}

fn write(text: &str) {
    let mut stderr = std::io::stderr().lock();
    // If nobody reads stderr, nobody waits for it.
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// Whether what stands there can be written over.
pub fn can_overwrite(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_none_or(|name| name != "dumb")
}

/// How much of a component has been transferred.
#[derive(Clone, Debug, Default)]
pub struct Transfer(Arc<TransferCounts>);

#[derive(Debug, Default)]
struct TransferCounts {
    bytes: AtomicU64,
    of: AtomicU64,
}

impl Transfer {
    /// What counts its bytes.
    pub fn counter(&self) -> Progress {
        let transfer = self.clone();
        Progress::new(move |bytes, of| transfer.note(bytes, of))
    }

    fn note(&self, bytes: u64, of: u64) {
        self.0.bytes.store(bytes, Ordering::Relaxed);
        self.0.of.store(of, Ordering::Relaxed);
    }

    /// What is done, and how far it is.
    pub fn describe(&self, what: &str) -> String {
        let mib = |bytes: &AtomicU64| {
            let tenths = bytes.load(Ordering::Relaxed) / 1024 * 10 / 1024;
            format!("{}.{}", tenths / 10, tenths % 10)
        };
        match self.0.of.load(Ordering::Relaxed) {
            0 => what.to_owned(),
            _ => format!("{what}: {} of {} MiB", mib(&self.0.bytes), mib(&self.0.of)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::time::sleep;

    use super::*;

    /// What was shown of work that takes so long, with the seconds; `.` is its end.
    async fn shown(every: Duration, work_ms: u64) -> Vec<String> {
        let shown = RefCell::new(Vec::new());
        let step = || format!("step {}", shown.borrow().len());
        let show = |moment: Moment<'_>| {
            let text = match moment {
                Moment::Busy { what, seconds } => format!("{what}, {seconds} s"),
                Moment::Over => ".".to_owned(),
            };
            shown.borrow_mut().push(text);
        };
        let result = follow(every, step, async { sleep(Duration::from_millis(work_ms)).await }, show).await;
        assert_eq!(result, ());
        shown.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn quick_work_shows_nothing() {
        for work_ms in [0, 1, 999] {
            assert_eq!(shown(QUIET, work_ms).await, [""; 0], "{work_ms} ms");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_work_shows_what_it_does_now_until_it_is_over() {
        assert_eq!(shown(QUIET, 2_500).await, ["step 0, 1 s", "step 1, 2 s", "."]);
        assert_eq!(shown(PLAIN_EVERY, 25_000).await, ["step 0, 1 s", "step 1, 11 s", "step 2, 21 s", "."]);
    }

    #[test]
    fn transfer_is_described_once_its_size_is_known() {
        let transfer = Transfer::default();
        assert_eq!(transfer.describe("sending a.wasm"), "sending a.wasm");
        transfer.note(1_572_864, 4 << 20);
        assert_eq!(transfer.describe("sending a.wasm"), "sending a.wasm: 1.5 of 4.0 MiB");
    }
}
