//! The CPU time of the thread that asks, without asking the kernel each time.

use std::cell::Cell;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::first_slice::BRIEF_TURN;

/// What a thread's CPU clock said last. Asking the kernel twice a call costs as much as the guest of a small tool.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meter {
    read: Duration,
    /// How long the polls since then took, by the wall.
    short: Duration,
}

/// A poll that is shorter counts in full: a thread that had to wait for a processor in between is seldom back so soon.
const SHORT: Duration = BRIEF_TURN;
/// When so much has been counted that way, the kernel is asked again.
const SHORT_MAX: Duration = Duration::from_millis(1);

impl Meter {
    /// One for this thread, which must not be used on another one.
    pub(super) const fn new() -> Self {
        Self { read: Duration::ZERO, short: Duration::ZERO }
    }

    /// The same for a thread that has done other work: what it did before is not counted, in [`poll_spent`] neither.
    pub(super) fn restarted() -> Self {
        let meter = Self { read: thread_cpu(), short: Duration::ZERO };
        POLLS.set(meter);
        meter
    }

    /// The CPU time of a poll that has just taken this long. Never more than that.
    pub(super) fn spent(&mut self, wall: Duration) -> Duration {
        let Self { read, short } = *self;
        if wall < SHORT && short + wall < SHORT_MAX {
            self.short = short + wall;
            return wall;
        }
        let now = thread_cpu();
        *self = Self { read: now, short: Duration::ZERO };
        // The thread's own work between two polls is in it, which is little beside a poll that is not short.
        now.saturating_sub(read).saturating_sub(short).min(wall)
    }
}

thread_local! {
    static POLLS: Cell<Meter> = const { Cell::new(Meter::new()) };
}

/// The CPU time of a guest's poll on this thread that has just taken so long.
pub fn poll_spent(wall: Duration) -> Duration {
    let mut meter = POLLS.get();
    let spent = meter.spent(wall);
    POLLS.set(meter);
    spent
}

/// CPU time of this thread.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn cpu_meter_charges_computing_not_sleeping() {
        let mut meter = Meter::new();
        meter.spent(Duration::from_secs(1));
        let begun = Instant::now();
        std::thread::sleep(Duration::from_millis(50));
        assert!(meter.spent(begun.elapsed()) < Duration::from_millis(25), "sleeping costs nothing");

        let begun = Instant::now();
        let before = thread_cpu();
        while thread_cpu() - before < Duration::from_millis(5) {}
        assert!(meter.spent(begun.elapsed()) >= Duration::from_millis(5), "computing costs what it takes");
    }

    #[test]
    fn cpu_meter_adds_up_short_polls() {
        let mut meter = Meter::new();
        meter.spent(Duration::from_secs(1));
        let mut charged = Duration::ZERO;
        let before = thread_cpu();
        while thread_cpu() - before < Duration::from_millis(20) {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(50) {}
            charged += meter.spent(begun.elapsed());
        }
        assert!(charged >= Duration::from_millis(15), "{charged:?}");
    }
}
