//! The time of day, as something that is passed in.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::domain::UnixMs;

/// Where `now` comes from.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch; never less than an earlier answer.
    fn now(&self) -> UnixMs;
}

/// The system's clock, held where it is when it is set back: nothing expires twice and no timestamp runs backwards.
#[derive(Debug, Default)]
pub struct SystemClock {
    latest: AtomicU64,
}

impl Clock for SystemClock {
    fn now(&self) -> UnixMs {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as u64);
        let latest = self.latest.load(Ordering::Acquire);
        // Within a millisecond all processors only read.
        if now <= latest { latest } else { self.latest.fetch_max(now, Ordering::AcqRel).max(now) }
    }
}

/// A clock that moves when told to, for tests and simulation.
#[derive(Debug, Default)]
pub struct ManualClock {
    now: AtomicU64,
}

impl ManualClock {
    /// Starts at `now`.
    pub fn at(now: UnixMs) -> Self {
        Self { now: AtomicU64::new(now) }
    }

    /// Moves on.
    pub fn advance(&self, ms: u64) {
        self.now.fetch_add(ms, Ordering::AcqRel);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> UnixMs {
        self.now.load(Ordering::Acquire)
    }
}
