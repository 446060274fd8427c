//! Checkpoints: what a guest wrote down so that its call need not begin at its begin again.
//!
//! Owns when a checkpoint is kept, and what the guest is told of it. A journal with checkpoints is still whole: a call
//! that did something behind its last one is replayed from the begin of the journal, and one that only computed begins
//! anew, with a new journal that begins with the state. Invariants: nothing that a call did is done again because of a
//! checkpoint, and no state but the last one is kept for long.

use std::time::{Duration, Instant};

use super::checkpoint::{Checkpoint, LastKept};
use super::header::digest;
use crate::call::Call;
use bulkhead_domain::crash_points;

/// Bytes of one state. Stops a guest from having the host keep its memory.
const CHECKPOINT_BYTES_MAX: u64 = 256 << 10;

/// A state may take this part of what a journal may hold: there may be one that is kept, one that is written, and the
/// rest of the journal.
const JOURNAL_SHARE: u64 = 4;

/// Of a guest that does nothing but compute, a checkpoint so soon after one is not kept.
const KEPT_EVERY: Duration = Duration::from_millis(500);

impl Call {
    /// The guest wrote down where it is. `Err`: why it cannot be kept, for the guest.
    pub(crate) fn write_checkpoint(&mut self, state: Vec<u8>) -> wasmtime::Result<Result<(), String>> {
        let Some(journal) = &mut self.journal else { return Ok(too_large(&state, u64::MAX)) };
        if let Err(why) = too_large(&state, journal.state.bytes_max()) {
            return Ok(Err(why));
        }
        let written = digest([state.as_slice()]);
        if let Some(recorded) = journal.state.take_checkpoint()? {
            if recorded != written {
                return Err(journal.state.diverge_after("the state is another one than was recorded").into());
            }
            return Ok(Ok(()));
        }
        // A life that brings nothing new does not count as one that gets on.
        let is_news = journal.state.has_acted() || journal.restored.as_ref() != Some(&state);
        let is_due = journal.state.has_acted() || journal.last_kept.is_none_or(|last| last.at.elapsed() >= KEPT_EVERY);
        // What is under way only this run can bring to its end.
        if !is_news
            || !is_due
            || journal.is_of_plain_call()
            || !journal.state.is_recording()
            || !journal.requests.are_none_open()
        {
            return Ok(Ok(()));
        }
        crash_points::reach("checkpoint.before");
        let checkpoint = Checkpoint {
            state,
            commands: journal.commands,
            answered: journal.requests_answered as u64,
            ids_drawn: self.ids_drawn,
            shown_ms: journal.clock.shown(),
            beginnings: journal.beginnings,
        };
        journal.state.put_checkpoint(checkpoint);
        journal.keep_soon();
        journal.last_kept = Some(LastKept { at: Instant::now(), cpu: self.shared.cpu() });
        crash_points::reach("checkpoint.after");
        self.settle()?;
        Ok(Ok(()))
    }

    /// The state that the call began from. `None`: it began at its begin.
    pub(crate) fn restored_state(&self) -> Option<Vec<u8>> {
        Some(self.journal.as_ref()?.restored.as_ref()?.to_vec())
    }
}

impl super::CallJournal {
    /// CPU time that the call had used where it would begin again, or none if it would begin at its begin.
    pub(super) fn cpu_at_beginning(&self) -> Duration {
        self.last_kept.filter(|_| self.state.begins_anew()).map_or(Duration::ZERO, |last| last.cpu)
    }
}

/// `Err`: the state is larger than one may be, with so much room for a journal.
fn too_large(state: &[u8], journal_bytes_max: u64) -> Result<(), String> {
    let bytes_max = CHECKPOINT_BYTES_MAX.min(journal_bytes_max / JOURNAL_SHARE);
    match state.len() as u64 > bytes_max {
        true => Err(format!("the state of a checkpoint has {} bytes; at most {bytes_max} are kept", state.len())),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_of_a_checkpoint_has_a_bound() {
        assert_eq!(too_large(&[0; 256 << 10], u64::MAX), Ok(()));
        let why = "the state of a checkpoint has 262145 bytes; at most 262144 are kept";
        assert_eq!(too_large(&[0; (256 << 10) + 1], u64::MAX), Err(why.to_owned()));
        assert_eq!(
            too_large(&[0; 26], 100),
            Err("the state of a checkpoint has 26 bytes; at most 25 are kept".to_owned())
        );
    }
}
