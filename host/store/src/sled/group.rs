//! The writes of one group, before and after.
//!
//! Owns what a group changes and what was there before it. Must not touch the disk. Invariant: while a group is not
//! durable, a reader through [`Group::before`] sees the state without it, so nothing acts on what a crash could still
//! undo.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use super::super::Error;
use super::errors::engine_error;

/// One key's change.
struct Write {
    before: Option<::sled::IVec>,
    after: Option<Vec<u8>>,
}

/// The sum over all rows that is written with each group: rows that vanish or come back are noticed at the next
/// opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) rows: u64,
    /// Sum, modulo 2^64, of a checksum over each key and value.
    pub(super) sum: u64,
}

impl Totals {
    pub(super) fn count(&mut self, key: &[u8], value: &[u8]) {
        self.rows = self.rows.wrapping_add(1);
        self.sum = self.sum.wrapping_add(row_sum(key, value));
    }

    /// Counts the rows that were counted there, too.
    pub(super) fn join(&mut self, other: Self) {
        self.rows = self.rows.wrapping_add(other.rows);
        self.sum = self.sum.wrapping_add(other.sum);
    }

    fn discount(&mut self, key: &[u8], value: &[u8]) {
        self.rows = self.rows.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(row_sum(key, value));
    }
}

fn row_sum(key: &[u8], value: &[u8]) -> u64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(&(value.len() as u64).to_le_bytes());
    hasher.update(value);
    u64::from(hasher.finalize())
}

/// The writes of one group.
#[derive(Default)]
pub(super) struct Group {
    writes: BTreeMap<Vec<u8>, Write>,
}

impl Group {
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// The value as the group leaves it.
    pub(super) fn get(&self, tree: &::sled::Tree, key: &[u8]) -> Result<Option<::sled::IVec>, Error> {
        match self.writes.get(key) {
            Some(write) => Ok(write.after.as_deref().map(::sled::IVec::from)),
            None => tree.get(key).map_err(engine_error),
        }
    }

    /// Writes (or removes) a key after looking up what is there.
    pub(super) fn set(&mut self, tree: &::sled::Tree, key: Vec<u8>, after: Option<Vec<u8>>) -> Result<(), Error> {
        match self.writes.entry(key) {
            Entry::Occupied(mut write) => write.get_mut().after = after,
            Entry::Vacant(vacant) => {
                let before = tree.get(vacant.key()).map_err(engine_error)?;
                if before.is_some() || after.is_some() {
                    vacant.insert(Write { before, after });
                }
            }
        }
        Ok(())
    }

    /// Writes a key that the caller knows to be absent from the tree, which saves the look-up.
    pub(super) fn set_new(&mut self, key: Vec<u8>, after: Vec<u8>) {
        self.writes.entry(key).or_insert(Write { before: None, after: None }).after = Some(after);
    }

    /// Whether the group touches the key, and what was there before it.
    pub(super) fn before(&self, key: &[u8]) -> Option<Option<&::sled::IVec>> {
        self.writes.get(key).map(|write| write.before.as_ref())
    }

    /// What was there before the group, in a range.
    pub(super) fn range_before<'a>(
        &'a self,
        range: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> impl Iterator<Item = (&'a [u8], Option<&'a ::sled::IVec>)> {
        self.writes.range::<[u8], _>(range).map(|(key, write)| (key.as_slice(), write.before.as_ref()))
    }

    /// Whether the group touches a key of this kind.
    pub(super) fn touches(&self, kind: u8) -> bool {
        let first = [kind];
        let from = (Bound::Included(first.as_slice()), Bound::Unbounded);
        self.writes.range::<[u8], _>(from).next().is_some_and(|(key, _)| key.first() == Some(&kind))
    }

    /// Every key that the group touches.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.writes.keys().map(Vec::as_slice)
    }

    /// The census after the group.
    pub(super) fn recount(&self, mut totals: Totals) -> Totals {
        for (key, write) in &self.writes {
            if let Some(before) = &write.before {
                totals.discount(key, before);
            }
            if let Some(after) = &write.after {
                totals.count(key, after);
            }
        }
        totals
    }

    /// Bytes that the group adds to the log, roughly.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = |(key, write): (&Vec<u8>, &Write)| key.len() + write.after.as_ref().map_or(0, Vec::len) + 64;
        self.writes.iter().map(bytes).sum::<usize>() as u64
    }

    /// The writes for the engine.
    pub(super) fn batch(&self) -> ::sled::Batch {
        let mut batch = ::sled::Batch::default();
        for (key, write) in &self.writes {
            match &write.after {
                Some(value) => batch.insert(key.as_slice(), value.as_slice()),
                None => batch.remove(key.as_slice()),
            }
        }
        batch
    }

    /// The group that takes this one back.
    pub(super) fn undo(&self) -> Group {
        let back = |(key, write): (&Vec<u8>, &Write)| {
            let before = write.after.as_deref().map(::sled::IVec::from);
            (key.clone(), Write { before, after: write.before.as_ref().map(|value| value.to_vec()) })
        };
        Group { writes: self.writes.iter().map(back).collect() }
    }
}
