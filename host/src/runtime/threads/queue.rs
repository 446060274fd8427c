//! Whose turn it is on the guests' threads.
//!
//! Owns the order: start-time fair queueing over shares, first come first served within one. Must know neither threads nor clocks.
//! Invariants: whoever is ready is served as long as anything is (no turn is left unused); of two shares that always have somebody
//! ready, neither gets ahead of the other, by weight, by more than one turn a thread; a share that was away comes back with the place
//! of those that stayed, neither with saved time nor with a debt that it has not made.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::domain::limits::CPU_WEIGHT_MAX;

/// What a share of weight 1 may owe before a call of it has to stand in line.
const ELSEWHERE_US_MAX: u64 = 10_000;

/// What a share owes at most for time elsewhere, in turns: some of it was used when nobody else wanted any.
const ELSEWHERE_TURNS: u64 = 10;

/// Accounts that are kept before those of nobody are looked for.
const ACCOUNTS_BEFORE_SWEEP: usize = 64;

/// What a call takes its time on the guests' threads from; calls with the same one share it. Says nothing about whose it is.
#[derive(Clone, Debug)]
pub struct Share(Arc<Facts>);

#[derive(Debug)]
struct Facts {
    id: u64,
    weight: u64,
    served_us: AtomicU64,
    /// On other threads, not charged yet.
    elsewhere_us: AtomicU64,
}

impl Share {
    /// Against a share of weight 1, one of weight 3 gets three times as much when there is not enough for both. Weights are 1 to
    /// [`CPU_WEIGHT_MAX`]; others are taken for the nearest one.
    pub fn new(weight: u32) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(Arc::new(Facts {
            id,
            weight: weight.clamp(1, CPU_WEIGHT_MAX).into(),
            served_us: AtomicU64::new(0),
            elsewhere_us: AtomicU64::new(0),
        }))
    }

    /// A call of it has used so much CPU time on a thread that is none of the guests'. Charged, up to a bound, when
    /// somebody of it next stands in line.
    pub(in crate::runtime) fn used_elsewhere(&self, used: Duration) {
        let used_us = u64::try_from(used.as_micros()).unwrap_or(u64::MAX);
        self.0.elsewhere_us.fetch_add(used_us, Ordering::Relaxed);
    }

    /// Whether another call of it may begin elsewhere. Some time may be owed; then somebody of it has to stand in line, where it is
    /// charged: otherwise calls that are always over at once would never be.
    pub(in crate::runtime) fn may_begin_elsewhere(&self) -> bool {
        self.0.elsewhere_us.load(Ordering::Relaxed) < ELSEWHERE_US_MAX.saturating_mul(self.0.weight)
    }

    /// The CPU time that its calls have had on the guests' threads, in microseconds.
    pub fn served_us(&self) -> u64 {
        self.0.served_us.load(Ordering::Relaxed)
    }
}

impl Default for Share {
    /// Of weight 1, and nobody else's.
    fn default() -> Self {
        Self::new(1)
    }
}

/// Those who are ready, in the order of their turns.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    accounts: HashMap<u64, Account<T>>,
    /// Of shares with somebody ready: where they stand, and which.
    order: BTreeSet<(u64, u64)>,
    /// Where the last one stood whose turn came. Never goes back.
    now: u64,
    /// What a turn takes that is not over: several threads must not all turn to the one share that stood first.
    turn_us: u64,
    sweep_at: usize,
}

#[derive(Debug)]
struct Account<T> {
    share: Share,
    /// The time that it has had, divided by its weight; see [`scaled`].
    at: u64,
    /// Turns that are not over.
    running: u32,
    ready: VecDeque<T>,
}

/// Microseconds by weight, in thousandths. At weight 1 and on 64 threads this takes nine years to overflow.
fn scaled(us: u64, weight: u64) -> u64 {
    us.saturating_mul(1_000) / weight
}

impl<T> Account<T> {
    fn place(&self, turn_us: u64) -> (u64, u64) {
        let taken = scaled(turn_us.saturating_mul(self.running.into()), self.share.0.weight);
        (self.at.saturating_add(taken), self.share.0.id)
    }

    fn is_idle(&self) -> bool {
        self.running == 0 && self.ready.is_empty()
    }
}

impl<T> FairQueue<T> {
    /// `turn_us`: how long a turn usually is.
    pub(super) fn new(turn_us: u64) -> Self {
        let sweep_at = ACCOUNTS_BEFORE_SWEEP;
        Self { accounts: HashMap::new(), order: BTreeSet::new(), now: 0, turn_us, sweep_at }
    }

    /// Puts somebody at the end of its share's line; says whether that share is now first of all and has nothing running.
    pub(super) fn push(&mut self, share: &Share, item: T) -> bool {
        let id = share.0.id;
        if self.accounts.len() >= self.sweep_at && !self.accounts.contains_key(&id) {
            self.sweep();
        }
        let account = self.accounts.entry(id).or_insert_with(|| Account {
            share: share.clone(),
            at: 0,
            running: 0,
            ready: VecDeque::new(),
        });
        if account.ready.is_empty() {
            let elsewhere_us = account.share.0.elsewhere_us.swap(0, Ordering::Relaxed);
            account.share.0.served_us.fetch_add(elsewhere_us, Ordering::Relaxed);
            let owed_us = elsewhere_us.min(self.turn_us.saturating_mul(ELSEWHERE_TURNS));
            account.at = account.at.max(self.now).saturating_add(scaled(owed_us, account.share.0.weight));
            self.order.insert(account.place(self.turn_us));
        }
        account.ready.push_back(item);
        account.running == 0 && self.order.first().is_some_and(|(_, first)| *first == id)
    }

    /// The next one, and the share that its turn is to be charged to.
    pub(super) fn pop(&mut self) -> Option<(Share, T)> {
        loop {
            let (_, id) = self.order.pop_first()?;
            let Some(account) = self.accounts.get_mut(&id) else { continue };
            let Some(item) = account.ready.pop_front() else { continue };
            self.now = self.now.max(account.at);
            account.running += 1;
            if !account.ready.is_empty() {
                self.order.insert(account.place(self.turn_us));
            }
            return Some((account.share.clone(), item));
        }
    }

    /// A turn is over that took so long. To be called once for each that came out of [`Self::pop`].
    pub(super) fn charge(&mut self, share: &Share, used_us: u64) {
        share.0.served_us.fetch_add(used_us, Ordering::Relaxed);
        let Some(account) = self.accounts.get_mut(&share.0.id) else { return };
        self.order.remove(&account.place(self.turn_us));
        account.running = account.running.saturating_sub(1);
        account.at = account.at.saturating_add(scaled(used_us, share.0.weight));
        if !account.ready.is_empty() {
            self.order.insert(account.place(self.turn_us));
        }
    }

    /// Takes everybody out.
    pub(super) fn drain(&mut self) -> Vec<T> {
        self.order.clear();
        self.accounts.drain().flat_map(|(_, account)| account.ready).collect()
    }

    /// Forgets shares that nobody holds, and those that stand where a new one would.
    fn sweep(&mut self) {
        let now = self.now;
        self.accounts
            .retain(|_, account| !account.is_idle() || (account.at > now && Arc::strong_count(&account.share.0) > 1));
        self.sweep_at = (self.accounts.len() * 2).max(ACCOUNTS_BEFORE_SWEEP);
    }
}

#[cfg(test)]
mod tests;
