//! The journal of a call: what its guest saw and asked for, in order, so that the call can be brought back by running the guest again.
//!
//! Everything a guest sees either follows from its component, its arguments, the header of the journal and what it saw before, or is an
//! entry. So a call of an import that brings nothing new writes nothing. Owns what stands between a guest and the clock, chance, waiting,
//! outgoing HTTP and the host's own imports; what of the rest of WASI is left is deterministic under the grants of this host, or gives the
//! journal up (`class`). Must not know whose call it is, nor where journals are kept. Invariants: while a journal is replayed nothing leaves
//! the sandbox; a call without a journal takes the same way as if there were none, one branch at each import aside.

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
mod state;
mod streams;
mod task;
#[cfg(test)]
pub(crate) mod tests;
mod values;
mod words;

use std::sync::Arc;

use ::http::HeaderName;
use bytes::Bytes;
use rand_chacha::ChaCha20Rng;
use wasmtime::component::{HasSelf, Linker, ResourceTable};
use wasmtime_wasi::p2::bindings::{clocks, random};
use wasmtime_wasi_io::bindings::wasi::io;

use self::clock::ShownClock;
pub(super) use self::codec::Recorded;
use self::entry::CommandKind;
use self::header::{Header, Opening, PINNED_BYTES_MAX, PinnedLimits, UnwrittenHeader, digest};
pub use self::hindrance::durable_hindrance;
pub(super) use self::hindrance::hindrance;
use self::http::Requests;
use self::keeping::{Keeping, Plan};
use self::state::{Bounds, Journal};
pub(super) use self::task::Sleep;
use super::bindings::bulkhead::plugin::types as wit;
use super::call::Call;
use super::call_state::CallState;
use super::engine::EngineKind;
use super::exports::RawOutput;
use super::limits::MemoryUse;
use super::wasi_context::{Stream, random as stream_of};
use crate::granted::Granted;
use bulkhead_calls::journal::names::Import;
use bulkhead_calls::journal::{Divergence, History, JournalReport, JournalStatus, Journaling, Reason};
use bulkhead_calls::{CallContext, ClientView, Fenced, InDoubt, JournalPolicy, JournalSink, Operation, Tail};
use bulkhead_domain::crash_points;
use bulkhead_domain::limits::CallLimits;

/// Stops a guest that did again what its journal tells of and must do nothing new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the call is where its journal ends")]
pub(super) struct AtMark;

/// A call at its begin.
pub(super) struct Beginning<'a> {
    pub(super) component: [u8; 32],
    pub(super) engine: u64,
    pub(super) kind: EngineKind,
    pub(super) operation: &'a Arc<Operation>,
    pub(super) limits: &'a CallLimits,
    pub(super) granted: &'a Arc<Granted>,
    pub(super) facts: &'a CallContext,
}

/// What a call begins with.
#[derive(Default)]
pub(super) struct Begun {
    /// None of a call that cannot have one.
    pub(super) journal: Option<Box<CallJournal>>,
    /// Where the journal would have been kept that the call cannot have.
    pub(super) unused: Option<Arc<dyn JournalSink>>,
    /// None of a call that is no replay.
    pub(super) pinned: Option<Pinned>,
}

/// What a replay has to go by, instead of the limits and grants of the moment.
pub(super) struct Pinned {
    pub(super) limits: CallLimits,
    pub(super) granted: Arc<Granted>,
}

/// The journal of a running call, with all that guests see through it.
pub(super) struct CallJournal {
    state: Journal,
    /// What is under way has not been settled since.
    was_replaying: bool,
    clock: ShownClock,
    seed: [u8; 32],
    /// Made when the guest first asks for a random number: many never do.
    secure: Option<ChaCha20Rng>,
    insecure: Option<ChaCha20Rng>,
    requests: Requests,
    /// How many commands there were.
    commands: u32,
    /// What the guest knows of its client, of being a task, and of its signals.
    audience: ClientView,
    task_id: Option<String>,
    signals: u8,
    attempt: u32,
    /// None of a journal that is kept nowhere.
    keeping: Option<Keeping>,
    in_doubt: InDoubt,
    idempotency_header: Option<HeaderName>,
    /// Questions that were answered.
    asked: usize,
    /// In the place of the call's own table for a guest that must not reach files.
    nothing: ResourceTable,
}

impl Beginning<'_> {
    /// Begins a call; what can be said of its journal already is told in `shared`.
    ///
    /// # Errors
    ///
    /// The earlier journal is none, or that of another call.
    pub(super) fn begin(&self, journaling: Journaling, shared: &Arc<CallState>) -> Result<Begun, JournalStatus> {
        let Some(Plan { history, stops_at_mark, spent, sink, policy }) = Plan::of(journaling) else {
            return Ok(Begun::default());
        };
        let JournalPolicy { in_doubt, idempotency_header } = policy;
        let begun = match history {
            None => self.record(idempotency_header).map(|journal| (journal, None)),
            Some(history) => self.replay(&history).map(|(journal, pinned)| (journal, Some(pinned))),
        };
        match begun {
            Ok((mut journal, pinned)) => {
                if stops_at_mark {
                    journal.state.stop_at_mark();
                }
                journal.in_doubt = in_doubt;
                journal.keeping = sink.map(|sink| Keeping::new(sink, shared));
                if let Some(spent) = spent {
                    shared.replay(spent);
                }
                Ok(Begun { journal: Some(journal), unused: None, pinned })
            }
            Err(status) => {
                shared.keep_report(JournalReport::nothing(status.clone()));
                if !matches!(status, JournalStatus::Demoted(_)) {
                    return Err(status);
                }
                Ok(Begun { unused: sink, ..Begun::default() })
            }
        }
    }

    fn record(&self, idempotency_header: Option<HeaderName>) -> Result<Box<CallJournal>, JournalStatus> {
        if self.kind == EngineKind::Concurrent {
            return Err(JournalStatus::Demoted(Reason::Concurrent));
        }
        if !Header::fits(self.granted) {
            return Err(JournalStatus::Demoted(Reason::Settings { bytes_max: PINNED_BYTES_MAX }));
        }
        let fixed = self.facts.outside.as_ref().and_then(|outside| outside.unix_ms());
        let base_ms = fixed.unwrap_or_else(clock::unix_ms);
        let stands = fixed.is_some();
        let opening = Opening { base_ms, stands, idempotency_header, ..self.opening() };
        let memory = Arc::new(MemoryUse::new(self.limits.memory_bytes));
        let requests = Requests::new(memory, self.limits.journal_response_bytes);
        let state = Journal::record(self.header(opening.clone()), Bounds::of(self.limits));
        Ok(CallJournal::new(state, opening, self.facts, requests))
    }

    fn replay(&self, history: &History) -> Result<(Box<CallJournal>, Pinned), JournalStatus> {
        let (header, mut state) =
            Journal::replay(&history.0, Bounds::of(self.limits)).map_err(JournalStatus::Corrupt)?;
        let opening = header.opening();
        if let Some(why) = header.difference(&self.header(self.opening()).header()) {
            return Err(JournalStatus::Diverged(state.diverge(why)));
        }
        let pinned = Pinned { limits: header.limits.over(self.limits), granted: Arc::new(header.over(self.granted)) };
        let memory = Arc::new(MemoryUse::new(pinned.limits.memory_bytes));
        let requests = Requests::new(memory, self.limits.journal_response_bytes);
        Ok((CallJournal::new(state, opening, self.facts, requests), pinned))
    }

    /// What a call begins with by itself: no time, and no header for its requests.
    fn opening(&self) -> Opening {
        let &CallContext { features, log_level, wants_progress, attempt, .. } = self.facts;
        let audience = ClientView { features, log_level, wants_progress };
        Opening { base_ms: 0, stands: false, attempt, audience, idempotency_header: None }
    }

    /// The header of a call that begins so.
    fn header(&self, opening: Opening) -> UnwrittenHeader {
        let &Self { component, engine, operation, limits, granted, .. } = self;
        let operation = Arc::clone(operation);
        let granted = Arc::clone(granted);
        UnwrittenHeader { component, engine, operation, limits: PinnedLimits::of(limits), granted, opening }
    }
}

impl CallJournal {
    fn new(state: Journal, opening: Opening, facts: &CallContext, requests: Requests) -> Box<Self> {
        Box::new(Self {
            was_replaying: state.is_replaying(),
            clock: ShownClock::of(&opening, state.is_replaying()),
            state,
            seed: facts.seed,
            secure: None,
            insecure: None,
            requests,
            commands: 0,
            audience: opening.audience,
            task_id: facts.task_id.clone(),
            signals: 0,
            attempt: opening.attempt,
            keeping: None,
            in_doubt: InDoubt::default(),
            idempotency_header: opening.idempotency_header,
            asked: 0,
            nothing: ResourceTable::new(),
        })
    }

    pub(super) fn is_replaying(&self) -> bool {
        self.state.is_replaying()
    }

    /// What the call may use.
    pub(super) fn memory(&self) -> Arc<MemoryUse> {
        Arc::clone(&self.requests.memory)
    }

    fn secure(&mut self) -> &mut ChaCha20Rng {
        self.secure.get_or_insert_with(|| stream_of(self.seed, Stream::Secure))
    }

    fn insecure(&mut self) -> &mut ChaCha20Rng {
        self.insecure.get_or_insert_with(|| stream_of(self.seed, Stream::Insecure))
    }

    fn next_command(&mut self) -> u32 {
        self.commands += 1;
        self.commands
    }

    /// Whether its end is not recorded: a journal that is kept elsewhere goes with the end of its call.
    fn is_over_with_its_call(&self) -> bool {
        self.keeping.is_some() && self.state.status() == JournalStatus::Recording
    }

    fn report(&self) -> JournalReport {
        let state = &self.state;
        let bytes = if self.keeping.is_some() { &[] } else { state.bytes() };
        JournalReport {
            status: state.status(),
            history: History(Bytes::copy_from_slice(bytes)),
            entries: state.entries(),
            steps: state.steps(),
            hash: state.hash(),
        }
    }
}

impl Call {
    /// The guest called an import that the journal counts.
    pub(super) fn step(&mut self, import: Import) -> wasmtime::Result<()> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        journal.state.step(import)?;
        journal.keep_much();
        self.settle()
    }

    /// Once the journal is behind the guest: what was under way when the host stopped goes on, and the guest is heard again. `Err`: it was to
    /// go no further.
    fn settle(&mut self) -> wasmtime::Result<()> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        if journal.state.has_reached_mark() {
            return Err(AtMark.into());
        }
        if journal.state.is_demoted() {
            self.egress.buffer(false);
            self.egress.give_up_first(journal.to_give_up());
        }
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

    /// What an import gives that has to be the same when the guest runs again: taken from the journal, or made now. Nothing of `act` happens
    /// before it is awaited.
    pub(super) async fn once<T: Recorded>(&mut self, act: impl Future<Output = T>) -> wasmtime::Result<T> {
        if let Some(value) = self.recorded()? {
            return Ok(value);
        }
        let value = act.await;
        self.record(&value);
        Ok(value)
    }

    /// The same for what changes something outside, and gives `expected` if it does: it and its entry are kept in one step.
    pub(super) async fn once_changed<T: Recorded, F: Future<Output = Result<T, Fenced>>>(
        &mut self,
        expected: T,
        act: impl FnOnce(Option<Tail>) -> F,
    ) -> wasmtime::Result<T> {
        if let Some(value) = self.recorded()? {
            return Ok(value);
        }
        self.declare().await?;
        let value = act(self.journaled_change(&expected)).await?;
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

    /// What a guest is told of a stream's error.
    pub(super) fn text_of_error(&self, error: String) -> String {
        if self.journal.is_some() { words::STREAM_ERROR.to_owned() } else { error }
    }

    /// Writes down how the guest ended, unless its journal goes with its call. `Err`: a replay should have ended otherwise.
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
