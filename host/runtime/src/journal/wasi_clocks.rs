//! Time and chance of a journaled call.
//!
//! Owns the hosts of `wasi:clocks` and `wasi:random`. A call without a journal passes through to the library.
//! Invariant: chance comes from the seed of the call alone.

use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::Rng as _;
use wasmtime::component::Resource;
use wasmtime::{Result, bail};
use wasmtime_wasi::WasiView as _;
use wasmtime_wasi::clocks::WasiClocksView as _;
use wasmtime_wasi::p2::bindings::clocks::monotonic_clock::Host as MonotonicHost;
use wasmtime_wasi::p2::bindings::clocks::wall_clock::{Datetime, Host as WallHost};
use wasmtime_wasi::p2::bindings::random::{insecure, insecure_seed, random};
use wasmtime_wasi_io::poll::{DynPollable, subscribe};

use super::call_journal::CallJournal;
use super::clock::{NANOS_PER_MS, Timer, monotonic_base};
use crate::call::Call;
use crate::limits::{LimitHit, RANDOM_BYTES_MAX};
use bulkhead_calls::journal::names::{self, Import};

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
