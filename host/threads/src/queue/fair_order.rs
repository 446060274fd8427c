//! Who of several is next, by the time that each has had.
//!
//! Owns one level of start-time fair queueing: a line for each key, and the order of the lines. Knows neither what
//! stands in a line nor whose it is. Invariant: a key is in the order as long as its line is not empty, at the place
//! that its account says.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

/// Accounts that are kept before those of nobody are looked for.
pub(super) const ACCOUNTS_BEFORE_SWEEP: usize = 64;

/// What may stand behind a key.
pub(super) trait SubQueue {
    fn is_empty(&self) -> bool;
    /// Whether items may still come to it, so that what it owes is remembered while it is empty.
    fn is_held(&self) -> bool;
}

impl<T> SubQueue for VecDeque<T> {
    fn is_empty(&self) -> bool {
        self.is_empty()
    }

    fn is_held(&self) -> bool {
        false
    }
}

/// Those with a ready item, in the order of their turns.
#[derive(Debug)]
pub(super) struct FairOrder<K, L> {
    accounts: HashMap<K, Account<L>>,
    /// Where they stand, and which.
    order: BTreeSet<(u64, K)>,
    /// Where the last one stood whose turn came. Never goes back.
    now: u64,
    /// What a turn takes that is not over: several threads must not all turn to the one that stood first.
    turn_us: u64,
    sweep_at: usize,
}

#[derive(Debug)]
struct Account<L> {
    /// Changes only while the key is not in the order, whose places depend on it.
    weight: u64,
    /// The time that it has had, divided by its weight; see [`scaled`].
    at: u64,
    /// Turns that are not over.
    running: u32,
    line: L,
}

/// Microseconds by weight, in thousandths. At weight 1 and on 64 threads this takes nine years to overflow.
fn scaled(us: u64, weight: u64) -> u64 {
    us.saturating_mul(1_000) / weight.max(1)
}

impl<L: SubQueue> Account<L> {
    fn place(&self, turn_us: u64) -> u64 {
        self.at.saturating_add(scaled(turn_us.saturating_mul(self.running.into()), self.weight))
    }

    fn is_idle(&self) -> bool {
        self.running == 0 && self.line.is_empty()
    }
}

impl<K: Copy + Ord + Hash, L: SubQueue> FairOrder<K, L> {
    /// `turn_us`: how long a turn usually is.
    pub(super) fn new(turn_us: u64) -> Self {
        let sweep_at = ACCOUNTS_BEFORE_SWEEP;
        Self { accounts: HashMap::new(), order: BTreeSet::new(), now: 0, turn_us, sweep_at }
    }

    /// Whether no item is ready.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Whether an item of this key is ready.
    pub(super) fn has(&self, key: K) -> bool {
        self.accounts.get(&key).is_some_and(|account| !account.line.is_empty())
    }

    /// Adds an item to its key's queue by `join`, or to a `new` one if there is none. A key that was empty begins where
    /// the others are, and further back by what it owes. Returns whether the key is now first of all and has nothing
    /// running.
    pub(super) fn join(
        &mut self,
        key: K,
        weight: u64,
        owed_us: u64,
        new: impl FnOnce() -> L,
        join: impl FnOnce(&mut L),
    ) -> bool {
        if self.accounts.len() >= self.sweep_at && !self.accounts.contains_key(&key) {
            self.sweep();
        }
        let account = self.accounts.entry(key).or_insert_with(|| Account { weight, at: 0, running: 0, line: new() });
        if account.line.is_empty() {
            account.weight = weight;
            account.at = account.at.max(self.now).saturating_add(scaled(owed_us, weight));
            self.order.insert((account.place(self.turn_us), key));
        }
        join(&mut account.line);
        account.running == 0 && self.order.first().is_some_and(|(_, first)| *first == key)
    }

    /// What `take` takes from the line that is next, and whose it is.
    pub(super) fn next<T>(&mut self, take: impl FnOnce(&mut L) -> Option<T>) -> Option<(K, T)> {
        let (_, key) = self.order.pop_first()?;
        let account = self.accounts.get_mut(&key)?;
        let taken = take(&mut account.line)?;
        self.now = self.now.max(account.at);
        account.running += 1;
        if !account.line.is_empty() {
            self.order.insert((account.place(self.turn_us), key));
        }
        Some((key, taken))
    }

    /// A turn is over that took so long; returns the line that it was taken from. To be called once for each that came
    /// out of [`Self::next`].
    pub(super) fn over(&mut self, key: K, weight: u64, used_us: u64) -> Option<&mut L> {
        let account = self.accounts.get_mut(&key)?;
        self.order.remove(&(account.place(self.turn_us), key));
        account.weight = weight;
        account.running = account.running.saturating_sub(1);
        account.at = account.at.saturating_add(scaled(used_us, weight));
        if !account.line.is_empty() {
            self.order.insert((account.place(self.turn_us), key));
        }
        Some(&mut account.line)
    }

    /// Takes all lines out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = L> {
        self.order.clear();
        self.accounts.drain().map(|(_, account)| account.line)
    }

    /// Forgets idle keys, unless they owe time and may return.
    fn sweep(&mut self) {
        let now = self.now;
        self.accounts.retain(|_, account| !account.is_idle() || (account.at > now && account.line.is_held()));
        self.sweep_at = (self.accounts.len() * 2).max(ACCOUNTS_BEFORE_SWEEP);
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.accounts.len()
    }
}
