//! Time and chance of a journaled call.
//!
//! Owns the one shown time of the call, its timers, and the hosts of `wasi:clocks` and `wasi:random`. A call without a journal passes through
//! to the library. Invariants: the shown time moves only at observations, and each move is an entry; it never goes back; chance comes from
//! the seed of the call alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::Rng as _;
use wasmtime::component::Resource;
use wasmtime::{Result, bail};
use wasmtime_wasi::WasiView as _;
use wasmtime_wasi::clocks::WasiClocksView as _;
use wasmtime_wasi::p2::bindings::clocks::monotonic_clock::Host as MonotonicHost;
use wasmtime_wasi::p2::bindings::clocks::wall_clock::{Datetime, Host as WallHost};
use wasmtime_wasi::p2::bindings::random::{insecure, insecure_seed, random};
use wasmtime_wasi_io::poll::{DynPollable, Pollable, subscribe};

use super::CallJournal;
use super::header::Opening;
use super::state::Journal;
use crate::call::Call;
use crate::limits::{LimitHit, RANDOM_BYTES_MAX};
use crate::wasi_context::MONOTONIC_BASE;
use bulkhead_calls::journal::names::Import;
use bulkhead_calls::journal::{Divergence, names};

const NANOS_PER_MS: u64 = 1_000_000;

/// Moves of the clock from which on it moves in steps of so many milliseconds. Bounds what a loop over the clock writes.
const QUANTA: [(u32, u64); 3] = [(65_536, 100), (4096, 10), (0, 1)];

/// What the guest's clocks show.
pub(super) struct ShownClock {
    base_ms: u64,
    /// Whether the wall clock shows the same all the time.
    stands: bool,
    /// Milliseconds since the base. Timers look at it.
    shown: Arc<AtomicU64>,
    moves: u32,
    /// A moment, and which time since the base it was then. While a journal is replayed there is no clock to look at.
    since: Option<(Instant, u64)>,
    /// When each timer is over, in nanoseconds since the base, by the number of its pollable.
    timers: HashMap<u32, u64>,
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

    /// The journal is behind the guest: from here on the clock goes with the machine's, past the time that the host was away.
    pub(super) fn catch_up(&mut self) {
        let real = if self.stands { self.shown() } else { unix_ms().saturating_sub(self.base_ms) };
        self.since = Some((Instant::now(), real.max(self.shown())));
    }

    fn shown(&self) -> u64 {
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

    fn wall(&self) -> Duration {
        Duration::from_millis(self.base_ms + if self.stands { 0 } else { self.shown() })
    }

    fn monotonic(&self) -> u64 {
        monotonic_base().saturating_add(self.shown().saturating_mul(NANOS_PER_MS))
    }
}

fn monotonic_base() -> u64 {
    u64::try_from(MONOTONIC_BASE.as_nanos()).unwrap_or(u64::MAX)
}

/// A pollable that is ready when the shown time says so.
struct Timer {
    nanos: u64,
    shown: Arc<AtomicU64>,
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

impl Call {
    /// The journal, with the clock looked at.
    fn look(&mut self, import: Import) -> Result<Option<&mut CallJournal>> {
        self.step(import)?;
        let Some(journal) = &mut self.journal else { return Ok(None) };
        journal.clock.look(&mut journal.state)?;
        Ok(Some(journal))
    }

    fn timer(&mut self, nanos: u64) -> Result<Resource<DynPollable>> {
        let Some(journal) = &mut self.journal else { bail!("a timer without a clock") };
        let shown = Arc::clone(&journal.clock.shown);
        let table = self.ctx().table;
        let timer = table.push(Timer { nanos, shown })?;
        let pollable = subscribe(table, timer)?;
        if let Some(journal) = &mut self.journal {
            journal.clock.timers.insert(pollable.rep(), nanos);
        }
        Ok(pollable)
    }
}

impl WallHost for Call {
    fn now(&mut self) -> Result<Datetime> {
        if self.journal.is_none() {
            return WallHost::now(&mut self.clocks());
        }
        let wall = self.look(names::WALL_NOW)?.map(|journal| journal.clock.wall()).unwrap_or_default();
        Ok(Datetime { seconds: wall.as_secs(), nanoseconds: wall.subsec_nanos() })
    }

    fn resolution(&mut self) -> Result<Datetime> {
        self.step(names::WALL_RESOLUTION)?;
        WallHost::resolution(&mut self.clocks())
    }
}

impl MonotonicHost for Call {
    fn now(&mut self) -> Result<u64> {
        if self.journal.is_none() {
            return MonotonicHost::now(&mut self.clocks());
        }
        Ok(self.look(names::MONOTONIC_NOW)?.map(|journal| journal.clock.monotonic()).unwrap_or_default())
    }

    fn resolution(&mut self) -> Result<u64> {
        self.step(names::MONOTONIC_RESOLUTION)?;
        MonotonicHost::resolution(&mut self.clocks())
    }

    fn subscribe_instant(&mut self, when: u64) -> Result<Resource<DynPollable>> {
        if self.journal.is_none() {
            return self.clocks().subscribe_instant(when);
        }
        self.step(names::SUBSCRIBE_INSTANT)?;
        self.timer(when.saturating_sub(monotonic_base()))
    }

    fn subscribe_duration(&mut self, duration: u64) -> Result<Resource<DynPollable>> {
        if self.journal.is_none() {
            return self.clocks().subscribe_duration(duration);
        }
        // A duration begins now, which is an observation, so that its end is known.
        let shown = self.look(names::SUBSCRIBE_DURATION)?.map(|journal| journal.clock.shown()).unwrap_or_default();
        self.timer(shown.saturating_mul(NANOS_PER_MS).saturating_add(duration))
    }
}

/// The count, if a call may have as many random bytes at once.
fn permitted(count: u64) -> Result<u64, LimitHit> {
    if count > RANDOM_BYTES_MAX { Err(LimitHit::RandomBytes { count }) } else { Ok(count) }
}

fn bytes(rng: &mut ChaCha20Rng, count: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(count).unwrap_or_default()];
    rng.fill_bytes(&mut bytes);
    bytes
}

impl random::Host for Call {
    fn get_random_bytes(&mut self, count: u64) -> Result<Vec<u8>> {
        let count = permitted(count)?;
        self.step(names::RANDOM_BYTES)?;
        match &mut self.journal {
            Some(journal) => Ok(bytes(journal.secure(), count)),
            None => self.ctx().ctx.random().get_random_bytes(count),
        }
    }

    fn get_random_u64(&mut self) -> Result<u64> {
        self.step(names::RANDOM_U64)?;
        match &mut self.journal {
            Some(journal) => Ok(journal.secure().next_u64()),
            None => self.ctx().ctx.random().get_random_u64(),
        }
    }
}

impl insecure::Host for Call {
    fn get_insecure_random_bytes(&mut self, count: u64) -> Result<Vec<u8>> {
        let count = permitted(count)?;
        self.step(names::INSECURE_BYTES)?;
        match &mut self.journal {
            Some(journal) => Ok(bytes(journal.insecure(), count)),
            None => self.ctx().ctx.random().get_insecure_random_bytes(count),
        }
    }

    fn get_insecure_random_u64(&mut self) -> Result<u64> {
        self.step(names::INSECURE_U64)?;
        match &mut self.journal {
            Some(journal) => Ok(journal.insecure().next_u64()),
            None => self.ctx().ctx.random().get_insecure_random_u64(),
        }
    }
}

impl insecure_seed::Host for Call {
    fn insecure_seed(&mut self) -> Result<(u64, u64)> {
        self.step(names::INSECURE_SEED)?;
        self.ctx().ctx.random().insecure_seed()
    }
}
