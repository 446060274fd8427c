//! Whether the guests' threads go on.
//!
//! Owns a no-op that takes its turn among the guests again and again, and the time of its last turn. Must not depend on
//! what else the host does: neither the store nor a plugin can make it late. Invariant: at most one no-op is in line,
//! so threads that stand still find no crowd when they go on; guests that compute only delay it by their turns, because
//! its share is never behind theirs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bulkhead_domain::limits::CPU_WEIGHT_MAX;
use tokio::time::MissedTickBehavior;

use super::{Pool, Share, run};

/// Between two no-ops.
const EVERY: Duration = Duration::from_secs(1);
/// Threads that let none through for longer than this stand still.
const STANDSTILL_AFTER: Duration = Duration::from_secs(10);

/// Says whether the guests' threads go on; cheap to clone. See the module.
#[derive(Clone)]
pub struct GuestPulse {
    pool: Arc<Pool>,
    share: Share,
    times: Times,
    begun: Instant,
    /// When the last no-op had its turn, in milliseconds since the beginning.
    pub(super) passed_ms: Arc<AtomicU64>,
}

/// How often and how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) every: Duration,
    pub(super) standstill_after: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self { every: EVERY, standstill_after: STANDSTILL_AFTER }
    }
}

impl GuestPulse {
    pub(super) fn new(pool: Arc<Pool>, times: Times) -> Self {
        let share = Share::new(CPU_WEIGHT_MAX);
        Self { pool, share, times, begun: Instant::now(), passed_ms: Arc::default() }
    }

    /// Sends no-ops through the threads until they end. To be run once, for as long as the host serves.
    pub async fn run(&self) {
        // Nobody knows of the time before.
        self.passed_ms.store(self.elapsed_ms(), Ordering::Release);
        let mut turns = tokio::time::interval(self.times.every);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.pool.is_closed() {
            turns.tick().await;
            let one = self.clone();
            let passed = run(&self.pool, &self.share, async move {
                one.passed_ms.store(one.elapsed_ms(), Ordering::Release);
            });
            // Nothing comes of threads that have ended.
            _ = passed.await;
        }
    }

    /// How long ago the last no-op had its turn.
    pub fn silent_for(&self) -> Duration {
        Duration::from_millis(self.elapsed_ms().saturating_sub(self.passed_ms.load(Ordering::Acquire)))
    }

    /// Whether the threads let nothing through any more.
    pub fn stands_still(&self) -> bool {
        self.silent_for() > self.times.standstill_after
    }

    /// How many threads run a guest at this moment, and how many guests wait for one.
    pub fn load(&self) -> (usize, usize) {
        let line = self.pool.line.lock();
        let busy = self.pool.threads.saturating_sub(line.idle) + line.first_slices;
        (busy, line.fair.len())
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl fmt::Debug for GuestPulse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestPulse").field("silent_for", &self.silent_for()).finish_non_exhaustive()
    }
}
