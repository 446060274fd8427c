//! The first turn of a call on the thread that read its request: most calls of a small tool are over then, and two changes of threads,
//! which cost more than the guest, are saved.
//!
//! Owns when that is allowed. Must not delay anybody: it is allowed while the guests' threads have nothing to do, to one call at a time,
//! and to no share that had a long turn lately. Where calls come beside each other, all begin among the guests, who are then awake
//! anyway: that is for [`CALM`] after two have met. Invariants: the slice ends with the turn, at the next tick at the latest, which is
//! [`FIRST_SLICE_MS_MAX`] away at most, and what is not over then goes on among the guests; it is charged as any turn. Turns longer than
//! [`SHORT_TURN`] hold such threads for a hundredth of a share's time at most, because [`PAUSE_FACTOR`] times the length of a long turn
//! has to pass before the share's next slice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{FinishedSlice, Guest, Meter, Pool, Share};

/// Milliseconds that a guest may have on the thread of a request; where turns are longer, all are had among the guests.
pub(super) const FIRST_SLICE_MS_MAX: u64 = 10;
/// CPU time of a turn that is short: many times what a small tool needs.
pub(super) const SHORT_TURN: Duration = Duration::from_micros(500);
/// How many times as long as a turn that is not short its share's calls begin among the guests.
pub(super) const PAUSE_FACTOR: u64 = 100;

/// After two calls have met, so much time has to pass without a meeting. A client that waits for its replies meets nobody.
const CALM: Duration = Duration::from_millis(2);

impl Pool {
    /// Gives a guest that says that it is queued its first turn: here, if that is allowed.
    pub(super) fn begin(&self, guest: Arc<Guest>) {
        let Some((share, guest)) = self.claim_first_slice(guest) else { return };
        let mut meter = Meter::restarted();
        let begun = Instant::now();
        let again = {
            // What the guest waits for belongs there, not to the runtime of this thread.
            let _io = self.io.enter();
            guest.poll()
        };
        self.end_first_slice(FinishedSlice { share, used: meter.spent(begun.elapsed()), again });
        self.thread_ended();
    }

    /// The guest with the share that its turn is charged to, if it may have it here; else it stands in line.
    fn claim_first_slice(&self, guest: Arc<Guest>) -> Option<(Share, Arc<Guest>)> {
        let mut line = self.line.lock();
        let is_alone =
            !line.has_first_slice && line.idle == self.threads && line.fair.len() == 0 && line.stopped.is_empty();
        if !is_alone {
            line.met_at = Some(Instant::now());
        }
        let is_calm = is_alone && line.met_at.is_none_or(|met_at| met_at.elapsed() >= CALM);
        if !is_calm || !self.has_first_slices || line.closed || !guest.share.may_begin_elsewhere() {
            drop(line);
            self.push(guest);
            return None;
        }
        let share = guest.share.clone();
        line.fair.push(&share, guest);
        let claimed = line.fair.pop()?;
        line.has_first_slice = true;
        *self.living.lock() += 1;
        Some(claimed)
    }

    fn end_first_slice(&self, slice: FinishedSlice) {
        let mut line = self.line.lock();
        line.has_first_slice = false;
        line.fair.charge(&slice.share, super::micros(slice.used));
        drop(line);
        if let Some(guest) = slice.again {
            self.push(guest);
        }
    }
}
