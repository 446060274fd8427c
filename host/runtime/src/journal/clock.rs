//! The one shown time of a journaled call, and its timers.
//!
//! Invariants: the shown time moves only at observations, and each move is an entry; it never goes back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wasmtime_wasi_io::poll::Pollable;

use super::header::Opening;
use super::state::Journal;
use crate::wasi_context::MONOTONIC_BASE;
use bulkhead_calls::journal::Divergence;

pub(super) const NANOS_PER_MS: u64 = 1_000_000;

/// Moves of the clock from which on it moves in steps of so many milliseconds. Bounds what a loop over the clock
/// writes.
const QUANTA: [(u32, u64); 3] = [(65_536, 100), (4096, 10), (0, 1)];

/// What the guest's clocks show.
pub(super) struct ShownClock {
    base_ms: u64,
    /// Whether the wall clock shows the same all the time.
    stands: bool,
    /// Milliseconds since the base. Timers look at it.
    pub(super) shown: Arc<AtomicU64>,
    moves: u32,
    /// A moment, and which time since the base it was then. While a journal is replayed there is no clock to look at.
    since: Option<(Instant, u64)>,
    /// When each timer is over, in nanoseconds since the base, by the number of its pollable.
    pub(super) timers: HashMap<u32, u64>,
}

/// The wall clock of the machine, in milliseconds since the Unix epoch.
pub(super) fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

impl ShownClock {
    /// The clock of a call that begins so, at its base. It goes from now on, unless a journal says what it shows.
    pub(super) fn of(opening: &Opening, is_replaying: bool) -> Self {
        let &Opening { base_ms, stands, .. } = opening;
        let since = (!is_replaying).then(|| (Instant::now(), 0));
        let timers = HashMap::new();
        Self { base_ms, stands, shown: Arc::default(), moves: 0, since, timers }
    }

    /// The journal is behind the guest: from here on the clock goes with the machine's, past the time that the host was
    /// away.
    pub(super) fn catch_up(&mut self) {
        let real = if self.stands { self.shown() } else { unix_ms().saturating_sub(self.base_ms) };
        self.since = Some((Instant::now(), real.max(self.shown())));
    }

    /// There is no clock to look at, until it catches up.
    pub(super) fn stand(&mut self) {
        self.since = None;
    }

    pub(super) fn shown(&self) -> u64 {
        self.shown.load(Ordering::Relaxed)
    }

    /// Milliseconds since the base. Never asked while a journal is replayed.
    fn real(&self) -> u64 {
        debug_assert!(self.since.is_some(), "the clock was asked while a journal was replayed");
        let Some((since, then)) = self.since else { return self.shown() };
        then.saturating_add(u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn set(&mut self, ms: u64) {
        self.shown.store(ms, Ordering::Relaxed);
        self.moves = self.moves.saturating_add(1);
    }

    /// An observation of the clock.
    pub(super) fn look(&mut self, journal: &mut Journal) -> Result<u64, Divergence> {
        while let Some(ms) = journal.take_clock()? {
            self.set(self.shown().saturating_add(ms));
        }
        if !journal.is_replaying() {
            let real = self.real();
            let shown = self.shown();
            let quantum = QUANTA.into_iter().find(|(moves, _)| self.moves >= *moves).map_or(1, |(_, ms)| ms);
            if real >= shown.saturating_add(quantum) {
                journal.put_clock(real - shown);
                self.set(real);
            }
        }
        Ok(self.shown())
    }

    /// A sleep until this time is over.
    pub(super) fn slept_until(&mut self, ms: u64) {
        self.shown.fetch_max(ms, Ordering::Relaxed);
    }

    /// How long it is until this time. Never asked while a journal is replayed.
    pub(super) fn until(&self, ms: u64) -> Duration {
        Duration::from_millis(ms.saturating_sub(self.real()))
    }

    /// How long it is until the first of these pollables that are timers. Never asked while a journal is replayed.
    pub(super) fn until_first(&self, pollables: &[u32]) -> Option<Duration> {
        let first = pollables.iter().filter_map(|rep| self.timers.get(rep)).min()?;
        // At least one: what is looked at when nothing has moved waits for ever.
        Some(self.until(first.div_ceil(NANOS_PER_MS)).max(Duration::from_millis(1)))
    }

    pub(super) fn forget(&mut self, pollable: u32) {
        self.timers.remove(&pollable);
    }

    pub(super) fn wall(&self) -> Duration {
        Duration::from_millis(self.base_ms + if self.stands { 0 } else { self.shown() })
    }

    pub(super) fn monotonic(&self) -> u64 {
        monotonic_base().saturating_add(self.shown().saturating_mul(NANOS_PER_MS))
    }
}

pub(super) fn monotonic_base() -> u64 {
    u64::try_from(MONOTONIC_BASE.as_nanos()).unwrap_or(u64::MAX)
}

/// A pollable that is ready when the shown time says so.
pub(super) struct Timer {
    pub(super) nanos: u64,
    pub(super) shown: Arc<AtomicU64>,
}

#[async_trait::async_trait]
impl Pollable for Timer {
    async fn ready(&mut self) {
        if self.shown.load(Ordering::Relaxed).saturating_mul(NANOS_PER_MS) < self.nanos {
            // Who polls it looks at the clock and asks again.
            std::future::pending::<()>().await;
        }
    }
}
