//! Whether the calls of a tool are so short that handing them to another thread would cost more than they do.
//!
//! Owns what is known of a tool's calls. Invariant: a tool that was trusted and is not quick holds up a thread of the host for one
//! epoch tick, and has to earn the trust again with twice as many quick calls as the time before.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// CPU time of a call that is quick: a hundred times what a small tool needs, a twentieth of a tick.
const QUICK: Duration = Duration::from_micros(500);
/// Quick calls in a row before a tool is trusted for the first time.
const NEEDED_FIRST: u32 = 16;
/// And at most, however often it disappointed.
const NEEDED_MAX: u32 = 1 << 20;

/// The calls of one tool so far. What two of them write at once may be lost: it is an estimate.
#[derive(Debug)]
pub(super) struct Pace {
    /// In a row.
    quick: AtomicU32,
    needed: AtomicU32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { quick: AtomicU32::new(0), needed: AtomicU32::new(NEEDED_FIRST) }
    }
}

impl Pace {
    /// Whether the next call may begin where the request is.
    pub(super) fn is_quick(&self) -> bool {
        self.quick.load(Ordering::Relaxed) >= self.needed.load(Ordering::Relaxed)
    }

    /// A call has used this much CPU time, at its end or so far.
    pub(super) fn used(&self, cpu: Duration, ended: bool) {
        if cpu > QUICK {
            if self.is_quick() {
                let needed = self.needed.load(Ordering::Relaxed);
                self.needed.store(needed.saturating_mul(2).min(NEEDED_MAX), Ordering::Relaxed);
            }
            self.quick.store(0, Ordering::Relaxed);
        } else if ended && !self.is_quick() {
            self.quick.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quick calls until it is trusted.
    fn earns(pace: &Pace) -> u32 {
        let mut calls = 0;
        while !pace.is_quick() {
            pace.used(Duration::from_micros(30), true);
            calls += 1;
        }
        calls
    }

    #[test]
    fn each_disappointment_doubles_what_trust_costs() {
        let pace = Pace::default();
        for needed in [16, 32, 64, 128] {
            assert_eq!(earns(&pace), needed);
            // Told while it runs and again at its end: that is one disappointment.
            pace.used(Duration::from_millis(10), false);
            assert!(!pace.is_quick());
            pace.used(Duration::from_secs(10), true);
        }
    }

    #[test]
    fn calls_that_go_on_or_take_long_earn_nothing() {
        let pace = Pace::default();
        for _ in 0..100 {
            pace.used(Duration::from_micros(30), false);
            pace.used(Duration::from_millis(1), true);
        }
        assert_eq!(earns(&pace), 16);
    }
}
