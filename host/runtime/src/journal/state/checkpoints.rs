//! The checkpoints of a journal: what stands behind the last one, and which states are still of use.
//!
//! Must not decide when a checkpoint is kept. Invariants: that the guest wrote down a state is never forgotten, so that
//! all of a journal can be replayed; and the last state is in it.

use std::ops::Range;

use super::super::checkpoint::Checkpoint;
use super::super::entry::{self, Decoded, Entry};
use super::super::header::{Digest, Header};
use super::{Journal, Mode};
use bulkhead_calls::journal::Divergence;

/// Bytes of states of no use that a journal is begun anew for, at least.
const UNUSED_BYTES_MIN: usize = 64 << 10;

impl Journal {
    /// One of a call that begins from a checkpoint, in the place of this one, whose call begins so.
    pub(crate) fn anew(&self, header: Header, checkpoint: Box<Checkpoint>) -> Self {
        let mut bytes = Vec::new();
        entry::write(&Entry::Header(Box::new(header)), 0, 0, &mut bytes);
        entry::write(&Entry::State(checkpoint), 0, 0, &mut bytes);
        Self {
            bytes,
            entries: 2,
            origin: self.end_offset().saturating_add(1),
            ..Self::empty(Mode::Recording, self.bounds)
        }
    }

    /// What the call that is replayed began from.
    pub(crate) fn beginning(&self) -> Option<&Checkpoint> {
        let Mode::Replaying(replay) = &self.mode else { return None };
        replay.journal.beginning.as_deref()
    }

    /// From where the call can begin again instead of being replayed: it only computed behind that.
    pub(crate) fn checkpoint(&self) -> Option<Box<Checkpoint>> {
        let Mode::Replaying(replay) = &self.mode else { return None };
        let Decoded { checkpoint, entries, is_complete, .. } = &replay.journal;
        let (checkpoint, before) = checkpoint.as_ref().filter(|_| !is_complete)?;
        let acted = entries.get(*before..)?.iter().any(|placed| is_act(&placed.entry));
        (!acted).then(|| checkpoint.clone())
    }

    /// Whether something happened behind the last checkpoint that must not happen again.
    pub(crate) fn has_acted(&self) -> bool {
        self.has_acted
    }

    /// Whether the call would begin from a checkpoint if its host stopped now.
    pub(crate) fn begins_anew(&self) -> bool {
        !self.states.is_empty() && !self.has_acted
    }

    /// The digest of the state that the guest wrote down here, if that was kept.
    pub(crate) fn take_checkpoint(&mut self) -> Result<Option<Digest>, Divergence> {
        let taken = self.take(|entry| matches!(entry, Entry::Checkpoint { .. }))?;
        Ok(taken.and_then(|entry| if let Entry::Checkpoint { digest, .. } = entry { Some(digest) } else { None }))
    }

    /// Whether it is written down that the guest began to sleep here.
    pub(crate) fn take_sleep(&mut self) -> Result<bool, Divergence> {
        Ok(self.take(|entry| matches!(entry, Entry::Sleep))?.is_some())
    }

    /// The guest begins to sleep. It is written down where there is a checkpoint that it matters for.
    pub(crate) fn put_sleep(&mut self) {
        if !self.states.is_empty() {
            self.put(&Entry::Sleep);
        }
    }

    /// The guest wrote down a state. The states before it go as soon as they are worth it.
    pub(crate) fn put_checkpoint(&mut self, checkpoint: Checkpoint) {
        self.put(&Entry::Checkpoint { hash: self.hash, digest: checkpoint.digest() });
        let before = self.bytes.len();
        self.put(&Entry::State(Box::new(checkpoint)));
        if self.is_recording() {
            self.states.push(before..self.bytes.len());
            self.put_mark();
            self.forget_states();
        }
    }

    /// Begins anew without the states that are of no use any more, if they are as large as all the rest.
    fn forget_states(&mut self) {
        let Some((_, old)) = self.states.split_last() else { return };
        let unused: usize = old.iter().map(Range::len).sum();
        if unused < UNUSED_BYTES_MIN || unused < self.bytes.len() - unused {
            return;
        }
        let forgotten = old.to_vec();
        let end = self.end_offset();
        for state in forgotten.iter().rev() {
            self.bytes.drain(state.clone());
        }
        self.entries = self.entries.saturating_sub(u32::try_from(forgotten.len()).unwrap_or(u32::MAX));
        self.states.drain(..forgotten.len());
        for state in &mut self.states {
            *state = state.start - unused..state.end - unused;
        }
        self.origin = end.saturating_add(1);
    }
}

/// Whether it tells of something that must not happen again.
pub(super) fn is_act(entry: &Entry) -> bool {
    !matches!(
        entry,
        Entry::Clock(_) | Entry::Signals(_) | Entry::Mark { .. } | Entry::Checkpoint { .. } | Entry::State(_)
    )
}
