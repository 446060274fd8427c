//! The clocks of this machine.
//!
//! Owns the host's time while the system's clock is set back. Invariant: setting the system's clock, in either
//! direction, neither stops the host's time and the steady one nor makes them go back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bulkhead_domain::UnixMs;
use bulkhead_domain::clock::Clock;
use parking_lot::Mutex;

/// So many milliseconds back are no setting of the clock: another thread has read it later, or it was corrected a
/// little.
const JITTER_MS: u64 = 10;
/// After the system's clock was set back, the host's time runs at this part of the speed of real time until that has
/// caught up.
const SLOWED: u64 = 2;

/// What a [`SystemClock`] reads.
pub trait Source: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch; may go back.
    fn wall(&self) -> UnixMs;
    /// Milliseconds since some moment; never goes back.
    fn elapsed(&self) -> u64;
}

/// What the wall clock shows.
pub(crate) fn unix_ms() -> UnixMs {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as u64)
}

/// The clocks of the operating system.
#[derive(Debug)]
pub struct Os(Instant);

impl Source for Os {
    fn wall(&self) -> UnixMs {
        unix_ms()
    }

    fn elapsed(&self) -> u64 {
        self.0.elapsed().as_millis() as u64
    }
}

/// The clocks of this machine. When its wall clock is set back, nothing expires twice and no timestamp runs backwards:
/// the host's time goes on from where it was, at half speed, until real time is there again.
#[derive(Debug)]
pub struct SystemClock<S = Os> {
    source: S,
    begun_at: UnixMs,
    latest: AtomicU64,
    slowed: Mutex<Slowed>,
}

/// How the host's time goes on while real time is behind it.
#[derive(Debug, Default)]
struct Slowed {
    from: UnixMs,
    since: u64,
    /// The last answer. Another latest one means that real time was there in between.
    last: UnixMs,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::of(Os(Instant::now()))
    }
}

impl<S: Source> SystemClock<S> {
    /// A clock that reads these.
    pub(crate) fn of(source: S) -> Self {
        let begun_at = source.wall().saturating_sub(source.elapsed());
        Self { source, begun_at, latest: AtomicU64::new(0), slowed: Mutex::default() }
    }

    /// The host's time while the system's clock is behind it.
    fn slowed(&self, real: UnixMs) -> UnixMs {
        let mut slowed = self.slowed.lock();
        let latest = self.latest.load(Ordering::Acquire);
        let elapsed = self.source.elapsed();
        if slowed.last != latest {
            let behind_ms = latest.saturating_sub(real);
            tracing::warn!(
                behind_ms,
                "the system's clock was set back: until it has caught up, timestamps go on at half speed"
            );
            *slowed = Slowed { from: latest, since: elapsed, last: latest };
        }
        let now = slowed.from.saturating_add(elapsed.saturating_sub(slowed.since) / SLOWED);
        slowed.last = self.latest.fetch_max(now, Ordering::AcqRel).max(now);
        slowed.last
    }
}

impl<S: Source> Clock for SystemClock<S> {
    fn now(&self) -> UnixMs {
        let real = self.source.wall();
        let latest = self.latest.load(Ordering::Acquire);
        // Within a millisecond all processors only read.
        match latest.checked_sub(real) {
            Some(0..=JITTER_MS) => latest,
            Some(_) => self.slowed(real),
            None => self.latest.fetch_max(real, Ordering::AcqRel).max(real),
        }
    }

    fn steady(&self) -> UnixMs {
        self.begun_at.saturating_add(self.source.elapsed())
    }

    fn system(&self) -> UnixMs {
        self.source.wall()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// The clocks of a machine whose wall clock a test sets.
    #[derive(Debug, Default)]
    struct Hands {
        wall: AtomicU64,
        elapsed: AtomicU64,
    }

    impl Source for Arc<Hands> {
        fn wall(&self) -> UnixMs {
            self.wall.load(Ordering::Relaxed)
        }

        fn elapsed(&self) -> u64 {
            self.elapsed.load(Ordering::Relaxed)
        }
    }

    impl Hands {
        fn at(wall: UnixMs) -> (Arc<Self>, Arc<SystemClock<Arc<Self>>>) {
            let hands = Arc::new(Self { wall: AtomicU64::new(wall), elapsed: AtomicU64::new(7) });
            (Arc::clone(&hands), Arc::new(SystemClock::of(hands)))
        }

        fn pass(&self, ms: u64) {
            self.wall.fetch_add(ms, Ordering::Relaxed);
            self.elapsed.fetch_add(ms, Ordering::Relaxed);
        }

        fn set(&self, wall: UnixMs) {
            self.wall.store(wall, Ordering::Relaxed);
        }
    }

    const BEGIN: UnixMs = 1_000_000;
    const HOUR: u64 = 3_600_000;

    #[test]
    fn clock_set_back_runs_at_half_speed() {
        let (hands, clock) = Hands::at(BEGIN);
        assert_eq!((clock.now(), clock.steady(), clock.system()), (BEGIN, BEGIN, BEGIN));
        hands.set(BEGIN + HOUR);
        assert_eq!((clock.now(), clock.steady()), (BEGIN + HOUR, BEGIN));
        hands.set(BEGIN);
        assert_eq!((clock.now(), clock.system()), (BEGIN + HOUR, BEGIN));
        let mut last = clock.now();
        for second in 1..7_199 {
            hands.pass(1_000);
            assert_eq!(clock.now(), BEGIN + HOUR + second * 500, "it never stands still");
            assert_eq!((clock.steady(), clock.system()), (BEGIN + second * 1_000, BEGIN + second * 1_000));
            last = clock.now();
        }
        hands.pass(10_000);
        assert_eq!(clock.now(), clock.system(), "real time is there");
        assert!(clock.now() > last);
        // The next time begins anew.
        hands.set(BEGIN);
        let held = clock.now();
        hands.pass(100);
        assert_eq!(clock.now(), held + 50);
    }

    #[test]
    fn clock_jitter_is_not_a_setting() {
        let (hands, clock) = Hands::at(BEGIN);
        assert_eq!(clock.now(), BEGIN);
        hands.set(BEGIN - JITTER_MS);
        assert_eq!(clock.now(), BEGIN);
        hands.pass(JITTER_MS + 1);
        assert_eq!(clock.now(), BEGIN + 1);
    }
}
