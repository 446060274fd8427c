//! The journal of one running call, with all that its guest sees through it.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderName;
use rand_chacha::ChaCha20Rng;
use wasmtime::component::ResourceTable;

use super::checkpoint::{Checkpoint, LastKept, seed_of};
use super::clock::ShownClock;
use super::header::Opening;
use super::keeping::Keeping;
use super::requests::Requests;
use super::state::Journal;
use crate::limits::MemoryUse;
use crate::wasi_context::{Stream, random as stream_of};
use bulkhead_calls::journal::{History, JournalReport, JournalStatus};
use bulkhead_calls::{CallContext, ClientView, InDoubt};

/// The journal of a running call, with all that guests see through it.
pub(crate) struct CallJournal {
    pub(super) state: Journal,
    /// What is under way has not been settled since.
    pub(super) was_replaying: bool,
    pub(super) clock: ShownClock,
    pub(super) seed: [u8; 32],
    /// Made when the guest first asks for a random number: many never do.
    pub(super) secure: Option<ChaCha20Rng>,
    pub(super) insecure: Option<ChaCha20Rng>,
    pub(super) requests: Requests,
    /// How many commands there were.
    pub(super) commands: u32,
    /// What the guest knows of its client, of being a task, and of its signals.
    pub(super) audience: ClientView,
    pub(super) task_id: Option<String>,
    pub(super) signals: u8,
    pub(super) attempt: u32,
    /// None of a journal that is kept nowhere.
    pub(super) keeping: Option<Keeping>,
    pub(super) in_doubt: InDoubt,
    pub(super) idempotency_header: Option<HeaderName>,
    /// Questions that were answered.
    pub(super) requests_answered: usize,
    /// The state that the call began from; none of one that began at its begin.
    pub(super) restored: Option<Vec<u8>>,
    /// How often the call has begun from a checkpoint.
    pub(super) beginnings: u32,
    /// Ids that were drawn before the call began from a checkpoint.
    pub(super) ids_drawn_before: u64,
    pub(super) last_kept: Option<LastKept>,
    /// In the place of the call's own table for a guest that must not reach files.
    pub(super) nothing: ResourceTable,
}

impl CallJournal {
    pub(super) fn new(state: Journal, opening: Opening, facts: &CallContext, requests: Requests) -> Box<Self> {
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
            requests_answered: 0,
            restored: None,
            beginnings: 0,
            ids_drawn_before: 0,
            last_kept: None,
            nothing: ResourceTable::new(),
        })
    }

    /// The call begins from a checkpoint, which it did for the last time with this one.
    pub(super) fn begin_from(&mut self, checkpoint: Checkpoint) {
        let Checkpoint { state, commands, answered, ids_drawn, shown_ms, beginnings } = checkpoint;
        self.commands = commands;
        self.requests_answered = usize::try_from(answered).unwrap_or(usize::MAX);
        self.ids_drawn_before = ids_drawn;
        self.clock.slept_until(shown_ms);
        self.beginnings = beginnings;
        self.seed = seed_of(self.seed, beginnings);
        self.restored = Some(state);
    }

    /// The call has begun and nothing of the machine's time counts for it, until its first step.
    pub(super) fn stands_still(&mut self) {
        self.was_replaying = true;
        self.clock.stand();
    }

    /// How many ids were drawn for the call before it begins.
    pub(crate) fn ids_drawn_before(&self) -> u64 {
        self.ids_drawn_before
    }

    pub(crate) fn is_replaying(&self) -> bool {
        self.state.is_replaying()
    }

    /// What the call may use.
    pub(crate) fn memory(&self) -> Arc<MemoryUse> {
        Arc::clone(&self.requests.memory)
    }

    pub(super) fn secure(&mut self) -> &mut ChaCha20Rng {
        self.secure.get_or_insert_with(|| stream_of(self.seed, Stream::Secure))
    }

    pub(super) fn insecure(&mut self) -> &mut ChaCha20Rng {
        self.insecure.get_or_insert_with(|| stream_of(self.seed, Stream::Insecure))
    }

    pub(super) fn next_command(&mut self) -> u32 {
        self.commands += 1;
        self.commands
    }

    /// Whether its end is not recorded: a journal that is kept elsewhere goes with the end of its call.
    pub(super) fn is_over_with_its_call(&self) -> bool {
        self.keeping.is_some() && self.state.status() == JournalStatus::Recording
    }

    pub(super) fn report(&self) -> JournalReport {
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
