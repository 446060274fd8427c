//! The first turn of a call on the thread that read its request: most calls of a small tool are over then, and two
//! changes of threads, which cost more than the guest, are saved.
//!
//! Owns when that is allowed. Must not delay anybody: it is allowed while a guests' thread is free and no guest waits,
//! to fewer calls at a time than there are threads that read requests, and to no share that had a turn lately that was
//! too long for it. Calls that come beside each other may begin here too, if their share's turns are so brief that they
//! hold up a thread no longer than reading the request does. Invariants: the slice ends with the turn, at the next tick
//! at the latest, which is [`FIRST_SLICE_MS_MAX`] away at most, and what is not over then goes on among the guests; it
//! is charged as any turn. Turns longer than [`SHORT_TURN`] hold such threads for a hundredth of a share's time at
//! most, because [`PAUSE_FACTOR`] times the length of a long turn has to pass before the share's next slice; beside
//! other calls the same holds for turns longer than [`BRIEF_TURN`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::{FinishedSlice, Guest, Meter, Pool, RunQueue, Share};

/// Milliseconds that a guest may have on the thread of a request; where turns are longer, all are had among the guests.
pub(super) const FIRST_SLICE_MS_MAX: u64 = 10;
/// CPU time of a turn that is short: many times what a small tool needs.
pub(super) const SHORT_TURN: Duration = Duration::from_micros(500);
/// CPU time of a turn that delays the other requests of its thread no more than a few of them delay each other.
pub(super) const BRIEF_TURN: Duration = Duration::from_micros(100);
/// How many times as long as a turn that is not short its share's calls begin among the guests.
pub(super) const PAUSE_FACTOR: u64 = 100;

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
    }

    /// The guest with the share that its turn is charged to, if it may have it here; else it stands in line.
    fn claim_first_slice(&self, guest: Arc<Guest>) -> Option<(Share, Arc<Guest>)> {
        let mut line = self.line.lock();
        if !self.has_first_slices || !self.may_begin_here(&line, &guest.share) {
            drop(line);
            self.push(guest);
            return None;
        }
        let share = guest.share.clone();
        line.fair.push(&share, guest);
        let claimed = line.fair.pop()?;
        line.first_slices += 1;
        Some(claimed)
    }

    /// Whether a call of this share delays nobody here.
    fn may_begin_here(&self, line: &RunQueue, share: &Share) -> bool {
        let nobody_waits = !line.closed && line.fair.len() == 0 && line.stopped.is_empty();
        let is_alone = line.first_slices == 0 && line.idle == self.threads;
        let has_place = line.first_slices < self.threads && line.idle > 0;
        nobody_waits && has_place && share.may_begin_elsewhere(is_alone)
    }

    fn end_first_slice(&self, slice: FinishedSlice) {
        let mut line = self.line.lock();
        line.fair.charge(&slice.share, super::micros(slice.used));
        if let Some(guest) = slice.again {
            // Threads that end meanwhile drop it, before they may be gone.
            MutexGuard::unlocked(&mut line, || self.push(guest));
        }
        line.first_slices = line.first_slices.saturating_sub(1);
        self.tell_ended(&line);
    }
}
