//! The journal of a call: what its guest saw and asked for, in order, so that the call can be brought back by running
//! the guest again.
//!
//! Everything a guest sees either follows from its component, its arguments, the header of the journal and what it saw
//! before, or is an entry. So a call of an import that brings nothing new writes nothing. Owns what stands between a
//! guest and the clock, chance, waiting, outgoing HTTP and the host's own imports; what of the rest of WASI is left is
//! deterministic under the grants of this host, or gives the journal up (`class`). Must not know whose call it is, nor
//! where journals are kept. Invariants: while a journal is replayed nothing leaves the sandbox; a call without a
//! journal takes the same way as if there were none, one branch at each import aside.

mod begin;
mod call_journal;
mod checkpoint;
mod checkpoint_writes;
mod clock;
mod codec;
mod entry;
mod files;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzz;
mod header;
mod hindrance;
mod http;
mod keeping;
#[cfg(test)]
mod listing_tests;
mod outcome;
mod poll;
mod requests;
mod state;
mod streams;
mod task;
#[cfg(test)]
pub(crate) mod tests;
mod values;
mod wasi_clocks;
mod words;

use wasmtime::component::{HasSelf, Linker};
use wasmtime_wasi::p2::bindings::{clocks, random};
use wasmtime_wasi_io::bindings::wasi::io;

pub(super) use self::begin::Beginning;
pub(super) use self::call_journal::CallJournal;
pub(super) use self::codec::Recorded;
use self::header::digest;
pub use self::hindrance::durable_hindrance;
pub(super) use self::hindrance::hindrance;
pub(super) use self::task::Sleep;
use super::bindings::bulkhead::plugin::types as wit;
use super::call::Call;
use super::exports::RawOutput;
use super::trap_causes::AtMark;
use bulkhead_calls::journal::Divergence;
use bulkhead_calls::journal::names::Import;
use bulkhead_calls::{Fenced, JournaledQuestion, OpenTail, Tail};
use bulkhead_domain::crash_points;

impl Call {
    /// The guest called an import that the journal counts.
    pub(super) fn step(&mut self, import: Import) -> wasmtime::Result<()> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        journal.state.step(import)?;
        journal.keep_much();
        self.settle()
    }

    /// Once the journal is behind the guest: what was under way when the host stopped goes on, and the guest is heard
    /// again. `Err`: it was to go no further.
    fn settle(&mut self) -> wasmtime::Result<()> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        if journal.state.has_reached_mark() {
            return Err(AtMark.into());
        }
        if journal.state.is_demoted() {
            self.egress.buffer(false);
            self.egress.give_up_first(journal.to_give_up());
        }
        self.shared.set_can_leave_memory(journal.can_leave_memory());
        self.shared.set_cpu_at_beginning(journal.cpu_at_beginning());
        if !journal.was_replaying || journal.is_replaying() {
            return Ok(());
        }
        crash_points::reach("wake.tail");
        journal.was_replaying = false;
        journal.clock.catch_up();
        self.egress.count_in_doubt(journal.requests.settle());
        self.shared.go_on();
        self.outbox.set_silent(false);
        Ok(())
    }

    /// What an import gives that has to be the same when the guest runs again: taken from the journal, or made now.
    /// Nothing of `act` happens before it is awaited.
    pub(super) async fn once<T: Recorded>(&mut self, act: impl Future<Output = T>) -> wasmtime::Result<T> {
        if let Some(value) = self.recorded()? {
            return Ok(value);
        }
        let value = act.await;
        self.record(&value);
        Ok(value)
    }

    /// The same for what changes something outside, and gives `expected` if it does: it and its entry are kept in one
    /// step.
    pub(super) async fn once_changed<T: Recorded, F: Future<Output = Result<T, Fenced>>>(
        &mut self,
        expected: T,
        act: impl FnOnce(Option<Tail>) -> F,
    ) -> wasmtime::Result<T> {
        if let Some(value) = self.recorded()? {
            return Ok(value);
        }
        self.declare().await?;
        let tail = self.journal.as_mut().and_then(|journal| journal.tail_with(&expected));
        let value = act(tail).await?;
        self.record(&value);
        if let Some(journal) = &mut self.journal {
            journal.state.put_mark();
        }
        Ok(value)
    }

    /// What an earlier run was given here. `None`: it is to be made.
    fn recorded<T: Recorded>(&mut self) -> wasmtime::Result<Option<T>> {
        let Some(journal) = &mut self.journal else { return Ok(None) };
        if let Some(bytes) = journal.state.must_value()? {
            let value = codec::decode(&bytes);
            let value = value.ok_or_else(|| journal.state.diverge_after("the value cannot be read"))?;
            return Ok(Some(value));
        }
        self.settle()?;
        if let Some(journal) = &mut self.journal {
            journal.state.live()?;
        }
        Ok(None)
    }

    fn record<T: Recorded>(&mut self, value: &T) {
        if let Some(journal) = &mut self.journal {
            journal.state.put_value(codec::encode(value));
            journal.keep_much();
        }
    }

    /// To be awaited before anything is done outside: if the journal was given up, it is known from then on.
    pub(crate) async fn declare(&mut self) -> wasmtime::Result<()> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let Some((sink, reason)) = journal.to_give_up() else { return Ok(()) };
        sink.give_up(reason).await?;
        journal.keeping = None;
        Ok(())
    }

    /// What a question to the client is kept with.
    pub(crate) fn journaled_question(&mut self) -> Option<JournaledQuestion> {
        let journal = self.journal.as_mut()?;
        Some(JournaledQuestion { asked_before: journal.requests_answered, tail: journal.tail()? })
    }

    /// What the delivery of messages is kept with.
    pub(crate) fn journaled_messages(&mut self) -> Option<OpenTail> {
        self.journal.as_mut()?.open_tail()
    }

    /// What a guest is told of a stream's error.
    pub(super) fn text_of_error(&self, error: String) -> String {
        if self.journal.is_some() { words::STREAM_ERROR.to_owned() } else { error }
    }

    /// Writes down how the guest ended, unless its journal goes with its call. `Err`: a replay should have ended
    /// otherwise.
    pub(super) fn end_journal(&mut self, returned: impl FnOnce() -> String) -> Result<(), Divergence> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let ended = if journal.is_over_with_its_call() {
            Ok(())
        } else {
            let ended = journal.state.end(digest([returned().as_bytes()]));
            self.shared.keep_report(journal.report());
            ended
        };
        // The guest is over: one that was to go no further has gone no further.
        let _ = self.settle();
        ended
    }

    /// The same of a guest that was left in the middle of what it did, because its answer was there: a replay may leave
    /// it at another place.
    pub(super) fn leave_journal(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        if !journal.is_over_with_its_call() {
            self.shared.keep_report(journal.report());
        }
        let _ = self.settle();
    }
}

/// How a guest ended, for the digest of the end: what it returned, or what its fault is called.
pub(super) fn outcome_of(returned: &wasmtime::Result<Result<RawOutput, wit::CallError>>) -> String {
    match returned {
        Ok(returned) => format!("{returned:?}"),
        Err(error) => format!("{error:#}"),
    }
}

/// Puts the hosts of this folder in front of those that the linker has.
pub(super) fn add_to_linker(linker: &mut Linker<Call>) -> wasmtime::Result<()> {
    type Own = HasSelf<Call>;
    linker.allow_shadowing(true);
    clocks::wall_clock::add_to_linker::<_, Own>(linker, |call| call)?;
    clocks::monotonic_clock::add_to_linker::<_, Own>(linker, |call| call)?;
    random::random::add_to_linker::<_, Own>(linker, |call| call)?;
    random::insecure::add_to_linker::<_, Own>(linker, |call| call)?;
    random::insecure_seed::add_to_linker::<_, Own>(linker, |call| call)?;
    io::poll::add_to_linker::<_, Own>(linker, |call| call)?;
    http::add_to_linker(linker)?;
    files::add_to_linker(linker)?;
    linker.allow_shadowing(false);
    Ok(())
}
