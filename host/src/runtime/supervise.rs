//! Watches a guest from outside: its CPU time, its wall clock, and what it still has to say.
//!
//! Owns the one place where a guest is polled. Invariant: every guest comes back here at least once per epoch tick, and nothing
//! that it does can move the two budgets.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Sleep;

use super::events::Outbox;
use super::gate::Shared;
use crate::domain::limits::CallLimits;

/// Deadlines closer together than this are one.
const TIMER_SLACK: Duration = Duration::from_millis(1);

/// Why a guest was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    Cpu,
    Wall,
}

/// A guest with its budgets.
pub(super) struct Supervised<'a, T> {
    guest: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
    io: &'a tokio::runtime::Handle,
    shared: Arc<Shared>,
    outbox: Outbox,
    cpu_max: Duration,
    wall_max: Duration,
    /// Made when the guest first waits: most never do.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<'a, T> Supervised<'a, T> {
    /// The wall clock starts now.
    pub(super) fn new(
        guest: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
        io: &'a tokio::runtime::Handle,
        shared: Arc<Shared>,
        outbox: Outbox,
        limits: &CallLimits,
    ) -> Self {
        shared.start();
        let cpu_max = Duration::from_millis(limits.cpu_ms);
        let wall_max = Duration::from_millis(limits.wall_ms);
        Self { guest, io, shared, outbox, cpu_max, wall_max, timer: None }
    }

    /// When to look again if nothing happens before: the deadline, or the next event that the rate allows.
    fn due(&self) -> Result<Option<Instant>, Stopped> {
        let event = self.outbox.deliver();
        let (elapsed, held) = self.shared.wall_elapsed();
        if elapsed >= self.wall_max {
            return Err(Stopped::Wall);
        }
        let deadline = (!held).then(|| Instant::now() + (self.wall_max - elapsed));
        Ok(event.into_iter().chain(deadline).min())
    }

    fn set_timer(&mut self, due: Instant) -> Pin<&mut Sleep> {
        let due = tokio::time::Instant::from_std(due);
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        let set = timer.deadline();
        if due > set + TIMER_SLACK || due + TIMER_SLACK < set {
            timer.as_mut().reset(due);
        }
        timer.as_mut()
    }
}

impl<T> Future for Supervised<'_, T> {
    type Output = Result<T, Stopped>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // Whatever waits in here waits on the host's I/O runtime: guests that compute delay nobody's timer.
        let _io = this.io.enter();
        let begun = Instant::now();
        let polled = this.guest.as_mut().poll(cx);
        let cpu = this.shared.add_cpu(Meter::spent(begun.elapsed()));
        if let Poll::Ready(returned) = polled {
            return Poll::Ready(Ok(returned));
        }
        if cpu > this.cpu_max {
            return Poll::Ready(Err(Stopped::Cpu));
        }
        this.shared.register_supervisor(cx.waker());
        loop {
            match this.due() {
                Err(stopped) => return Poll::Ready(Err(stopped)),
                Ok(None) => return Poll::Pending,
                Ok(Some(due)) => {
                    if this.set_timer(due).poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

/// What this thread's CPU clock said last. Asking the kernel twice a call costs as much as the guest of a small tool.
#[derive(Clone, Copy)]
struct Meter {
    read: Duration,
    /// How long the polls since then took, by the wall.
    short: Duration,
}

/// A poll that is shorter counts in full: a thread that had to wait for a processor in between is seldom back so soon.
const SHORT: Duration = Duration::from_micros(200);
/// When so much has been counted that way, the kernel is asked again.
const SHORT_MAX: Duration = Duration::from_millis(1);

impl Meter {
    /// The CPU time of a poll that has just taken this long. Never more than that.
    fn spent(wall: Duration) -> Duration {
        thread_local! {
            static METER: Cell<Meter> = const { Cell::new(Meter { read: Duration::ZERO, short: Duration::ZERO }) };
        }
        let Self { read, short } = METER.get();
        if wall < SHORT && short + wall < SHORT_MAX {
            METER.set(Self { read, short: short + wall });
            return wall;
        }
        let now = thread_cpu();
        METER.set(Self { read: now, short: Duration::ZERO });
        // The thread's own work between two polls is in it, which is little beside a poll that is not short.
        now.saturating_sub(read).saturating_sub(short).min(wall)
    }
}

/// CPU time of this thread.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_is_charged_for_what_it_computed() {
        Meter::spent(Duration::from_secs(1));
        let begun = Instant::now();
        std::thread::sleep(Duration::from_millis(50));
        assert!(Meter::spent(begun.elapsed()) < Duration::from_millis(25), "sleeping costs nothing");

        let begun = Instant::now();
        let before = thread_cpu();
        while thread_cpu() - before < Duration::from_millis(5) {}
        assert!(Meter::spent(begun.elapsed()) >= Duration::from_millis(5), "computing costs what it takes");
    }

    #[test]
    fn many_short_polls_add_up() {
        Meter::spent(Duration::from_secs(1));
        let (mut charged, before) = (Duration::ZERO, thread_cpu());
        while thread_cpu() - before < Duration::from_millis(20) {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(50) {}
            charged += Meter::spent(begun.elapsed());
        }
        assert!(charged >= Duration::from_millis(15), "{charged:?}");
    }
}
