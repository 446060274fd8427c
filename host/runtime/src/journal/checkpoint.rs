//! A checkpoint: from where a call can begin again.
//!
//! Owns what is kept of one, and what a call that begins from it draws. Must not decide when one is kept: see
//! [`super::checkpoint_writes`]. Invariant: a call that begins from a checkpoint draws no random number that it drew
//! before.

use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use super::codec::fields;
use super::header::{Digest, digest};

/// From where a call can begin again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Checkpoint {
    /// What the guest wrote down.
    pub(super) state: Vec<u8>,
    /// Commands of the call so far: their numbers are not used again.
    pub(super) commands: u32,
    /// Questions that were answered.
    pub(super) answered: u64,
    /// Ids that were drawn for questions.
    pub(super) ids_drawn: u64,
    /// What the clock showed, in milliseconds since its base.
    pub(super) shown_ms: u64,
    /// How often the call has begun from a checkpoint before.
    pub(super) beginnings: u32,
}

fields!(Checkpoint { state, commands, answered, ids_drawn, shown_ms, beginnings });

impl Checkpoint {
    /// The digest of its state, which the guest's step has in front of it.
    pub(super) fn digest(&self) -> Digest {
        digest([self.state.as_slice()])
    }
}

/// When a call's last checkpoint was kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastKept {
    pub(super) at: Instant,
    pub(super) cpu: Duration,
}

/// The seed of the random numbers of a call that began from checkpoints so often: it must not draw those again that it
/// drew before.
pub(super) fn seed_of(seed: [u8; 32], beginnings: u32) -> [u8; 32] {
    if beginnings == 0 {
        return seed;
    }
    let mut hash = Sha256::new();
    hash.update(b"bulkhead checkpoint");
    hash.update(seed);
    hash.update(beginnings.to_le_bytes());
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_others_after_each_beginning() {
        let seed = [7; 32];
        assert_eq!(seed_of(seed, 0), seed);
        assert_ne!(seed_of(seed, 1), seed);
        assert_ne!(seed_of(seed, 1), seed_of(seed, 2));
    }
}
