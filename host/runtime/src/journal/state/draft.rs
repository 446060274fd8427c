//! What is to be kept of a journal: its end as it is, or as it will be.
//!
//! Must not change the journal. Invariant: an end begins where what is kept ends, or is all of a journal that begins
//! anew.

use super::super::entry::{self, Entry};
use super::folded;
use bulkhead_calls::Tail;

/// A journal as it may go on, beside the one that does.
#[derive(Clone)]
pub(crate) struct Draft {
    pub(super) bytes: Vec<u8>,
    pub(super) origin: u64,
    pub(super) step: u64,
    pub(super) hash: u32,
    pub(super) last_step: u64,
    pub(super) entries: u32,
}

impl Draft {
    /// Its end with this value, behind which everything is to be kept.
    pub(crate) fn tail_with(mut self, kept: u64, bytes: Vec<u8>) -> Tail {
        let value = Entry::Value { hash: self.hash, bytes };
        self.write(&value);
        self.hash = folded(self.hash, &value);
        self.write(&Entry::Mark { hash: self.hash });
        self.tail(kept)
    }

    /// Its end as it is.
    pub(crate) fn tail(mut self, kept: u64) -> Tail {
        let Self { origin, step, entries, .. } = self;
        let (at, begins) = from(origin, self.bytes.len() as u64, kept);
        let bytes = self.bytes.split_off(index(at - origin));
        Tail { at, begins, bytes, step, entries, ..Tail::default() }
    }

    fn write(&mut self, entry: &Entry) {
        entry::write(entry, self.step, self.last_step, &mut self.bytes);
        (self.last_step, self.entries) = (self.step, self.entries + 1);
    }
}

/// From which place on a journal is not kept that begins at this one and has so many bytes, and whether nothing of it
/// is.
pub(super) fn from(origin: u64, bytes: u64, kept: u64) -> (u64, bool) {
    let begins = origin > 0 && kept < origin;
    (kept.clamp(origin, origin.saturating_add(bytes)), begins)
}

pub(super) fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}
