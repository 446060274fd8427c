//! Whether the calls of a tool are so short that handing them to another thread would cost more than they do.
//!
//! Owns what is known of a tool's calls. Invariant: a tool that was trusted and is not quick holds up a thread of the host for one
//! epoch tick, and has to earn the trust again with many quick calls; the more often it disappoints, the more.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// CPU time of a call that is quick: many times what a small tool needs, so that a call whose thread had to wait for a processor
/// (which cannot always be told from one that computed) seldom counts as slow.
const QUICK: Duration = Duration::from_millis(2);
/// Quick calls in a row before a tool is trusted.
const NEEDED_MIN: u32 = 16;
/// And at most, however often it disappointed.
const NEEDED_MAX: u32 = 1 << 20;
/// After so many times as many as it needed, a disappointment is forgiven: a busy machine makes every tool slow now and then.
const FORGIVEN_AFTER: u32 = 4;

/// The calls of one tool so far. What two of them write at once may be lost: it is an estimate.
#[derive(Debug)]
pub(super) struct InlineStats {
    /// In a row.
    quick: AtomicU32,
    needed: AtomicU32,
}

impl Default for InlineStats {
    fn default() -> Self {
        Self { quick: AtomicU32::new(0), needed: AtomicU32::new(NEEDED_MIN) }
    }
}

impl InlineStats {
    /// Whether the next call may begin where the request is.
    pub(super) fn is_quick(&self) -> bool {
        self.quick.load(Ordering::Relaxed) >= self.needed.load(Ordering::Relaxed)
    }

    /// A call has ended after this much CPU time.
    pub(super) fn ended(&self, cpu: Duration) {
        if cpu > QUICK {
            return self.disappoints();
        }
        let (quick, needed) = (self.quick.load(Ordering::Relaxed), self.needed.load(Ordering::Relaxed));
        if quick < needed.saturating_mul(FORGIVEN_AFTER) {
            self.quick.store(quick.saturating_add(1), Ordering::Relaxed);
        } else if needed > NEEDED_MIN {
            self.needed.store(needed / 2, Ordering::Relaxed);
            self.quick.store(needed / 2, Ordering::Relaxed);
        }
    }

    /// A call has used this much CPU time and goes on.
    pub(super) fn goes_on(&self, cpu: Duration) {
        if cpu > QUICK {
            self.disappoints();
        }
    }

    fn disappoints(&self) {
        // Once is once, although it is told while the call runs and again at its end.
        if self.is_quick() {
            let needed = self.needed.load(Ordering::Relaxed);
            self.needed.store(needed.saturating_mul(2).min(NEEDED_MAX), Ordering::Relaxed);
        }
        self.quick.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(30);
    const LONG: Duration = Duration::from_millis(10);

    /// Quick calls until it is trusted.
    fn earns(pace: &InlineStats) -> u32 {
        let mut calls = 0;
        while !pace.is_quick() {
            pace.ended(SHORT);
            calls += 1;
        }
        calls
    }

    #[test]
    fn inline_policy_doubles_calls_needed_after_slow_call() {
        let pace = InlineStats::default();
        for needed in [16, 32, 64, 128] {
            assert_eq!(earns(&pace), needed);
            pace.goes_on(LONG);
            assert!(!pace.is_quick());
            pace.ended(LONG);
        }
    }

    #[test]
    fn inline_policy_ignores_slow_and_continuing_calls() {
        let pace = InlineStats::default();
        for _ in 0..100 {
            pace.goes_on(SHORT);
            pace.ended(LONG);
        }
        assert_eq!(earns(&pace), 16);
    }

    #[test]
    fn inline_policy_tolerates_rare_slow_calls() {
        let trusted = |slow_every: u32| {
            let pace = InlineStats::default();
            let calls = (0..100_000_u32).filter(|call| {
                let trusted = pace.is_quick();
                pace.ended(if call % slow_every == 0 { LONG } else { SHORT });
                trusted
            });
            calls.count()
        };
        assert!(trusted(1_000) > 95_000, "{}", trusted(1_000));
        assert!(trusted(20) < 1_000, "{}", trusted(20));
    }
}
