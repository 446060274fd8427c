//! Whose turn it is on the guests' threads.
//!
//! Owns the order: start-time fair queueing over shares, within a share over its parts, and first come first served
//! within a part. Must know neither threads nor clocks. Invariants: a ready call is served as long as there is one (no
//! turn is left unused); of two shares that always have a ready call, neither gets ahead of the other, by weight, by
//! more than one turn a thread, and so with two parts of one share; a share that was away comes back with the place of
//! those that stayed, neither with saved time nor with a debt that it has not made.

mod fair_order;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use bulkhead_domain::limits::CPU_WEIGHT_MAX;
use fair_order::{FairOrder, SubQueue};

use super::first_slice::{BRIEF_TURN, PAUSE_FACTOR, SHORT_TURN};

/// What a share owes at most for time elsewhere, in turns: some of it was used when nobody else wanted any.
const ELSEWHERE_TURNS: u64 = 10;

/// What a call takes its time on the guests' threads from; calls with the same one share it. Says nothing about whose
/// it is.
#[derive(Clone, Debug)]
pub struct Share {
    facts: Arc<ShareState>,
    part: u128,
}

#[derive(Debug)]
struct ShareState {
    id: u64,
    weight: AtomicU64,
    served_us: AtomicU64,
    /// On other threads, not charged yet.
    elsewhere_us: AtomicU64,
    /// Until then its calls begin on the guests' threads, because of a turn that was not short; see [`now_us`].
    among_guests_until_us: AtomicU64,
    /// The same for calls that come beside others, because of a turn that was not brief.
    alone_until_us: AtomicU64,
}

impl Share {
    /// Against a share of weight 1, one of weight 3 gets three times as much when there is not enough for both. Weights
    /// are 1 to [`CPU_WEIGHT_MAX`]; others are taken for the nearest one.
    pub fn new(weight: u32) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let facts = ShareState {
            id,
            weight: AtomicU64::new(bounded(weight)),
            served_us: AtomicU64::new(0),
            elsewhere_us: AtomicU64::new(0),
            among_guests_until_us: AtomicU64::new(0),
            alone_until_us: AtomicU64::new(0),
        };
        Self { facts: Arc::new(facts), part: 0 }
    }

    /// A part of the same share: parts have the same weight, and divide evenly what the share gets.
    #[must_use]
    pub fn part(&self, part: u128) -> Self {
        Self { facts: Arc::clone(&self.facts), part }
    }

    /// Which of the parts this is.
    pub fn own_part(&self) -> u128 {
        self.part
    }

    /// Another weight from now on, for the time that is used from now on.
    pub fn set_weight(&self, weight: u32) {
        self.facts.weight.store(bounded(weight), Ordering::Relaxed);
    }

    fn weight(&self) -> u64 {
        self.facts.weight.load(Ordering::Relaxed)
    }

    /// A call of it has used so much CPU time on a thread that is none of the guests'. Charged, up to a bound, when
    /// a call of it next enters the queue; to the share, not to a part.
    fn used_elsewhere(&self, used: Duration) {
        let used_us = u64::try_from(used.as_micros()).unwrap_or(u64::MAX);
        self.facts.elsewhere_us.fetch_add(used_us, Ordering::Relaxed);
    }

    /// Whether a call of it may have its first turn on another thread than the guests'. `is_alone`: no other guest has
    /// a turn.
    pub(super) fn may_begin_elsewhere(&self, is_alone: bool) -> bool {
        let pauses = if is_alone { &self.facts.among_guests_until_us } else { &self.facts.alone_until_us };
        let until_us = pauses.load(Ordering::Relaxed);
        until_us == 0 || until_us <= now_us()
    }

    /// A turn of it is over.
    fn count_turn(&self, used_us: u64) {
        self.facts.served_us.fetch_add(used_us, Ordering::Relaxed);
        let used = Duration::from_micros(used_us);
        if used <= BRIEF_TURN {
            return;
        }
        let until_us = now_us().saturating_add(used_us.saturating_mul(PAUSE_FACTOR));
        self.facts.alone_until_us.fetch_max(until_us, Ordering::Relaxed);
        if used > SHORT_TURN {
            self.facts.among_guests_until_us.fetch_max(until_us, Ordering::Relaxed);
        }
    }

    /// The CPU time that its calls have had on the guests' threads, in microseconds.
    pub fn served_us(&self) -> u64 {
        self.facts.served_us.load(Ordering::Relaxed)
    }

    /// The CPU time that its calls have had on all threads, in microseconds. While some of it is being charged, it may
    /// be missing here.
    pub fn used_us(&self) -> u64 {
        self.served_us().saturating_add(self.facts.elsewhere_us.load(Ordering::Relaxed))
    }

    /// What is to be charged now of the time that was used elsewhere.
    fn take_owed(&self, turn_us: u64) -> u64 {
        let elsewhere_us = self.facts.elsewhere_us.swap(0, Ordering::Relaxed);
        self.facts.served_us.fetch_add(elsewhere_us, Ordering::Relaxed);
        elsewhere_us.min(turn_us.saturating_mul(ELSEWHERE_TURNS))
    }
}

impl Default for Share {
    /// A new share of weight 1.
    fn default() -> Self {
        Self::new(1)
    }
}

/// Microseconds since this was first asked.
fn now_us() -> u64 {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(BEGUN.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn bounded(weight: u32) -> u64 {
    weight.clamp(1, CPU_WEIGHT_MAX).into()
}

/// Ready items, in the order of their turns.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    shares: FairOrder<u64, ShareQueue<T>>,
    /// Items that are in it.
    len: usize,
    turn_us: u64,
    /// Served by other threads than the guests'. Time used here is owed in the guests' queue.
    is_secondary: bool,
}

/// The ready items of one share.
#[derive(Debug)]
struct ShareQueue<T> {
    share: Share,
    turns: FairOrder<u128, VecDeque<T>>,
}

impl<T> SubQueue for ShareQueue<T> {
    fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    fn is_held(&self) -> bool {
        Arc::strong_count(&self.share.facts) > 1
    }
}

/// Parts of a share are equal.
const WEIGHT_OF_PARTS: u64 = 1;

impl<T> FairQueue<T> {
    /// `turn_us`: how long a turn usually is.
    pub(super) fn new(turn_us: u64) -> Self {
        Self { shares: FairOrder::new(turn_us), len: 0, turn_us, is_secondary: false }
    }

    /// The same order for other work of the same shares, on other threads than the guests'. Each share's time here is
    /// its time elsewhere for the guests' queue, which alone settles what is owed.
    pub(super) fn secondary(turn_us: u64) -> Self {
        Self { is_secondary: true, ..Self::new(turn_us) }
    }

    /// How long a turn usually is.
    pub(super) fn turn(&self) -> Duration {
        Duration::from_micros(self.turn_us)
    }

    /// How many items wait for their turn.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Puts an item at the end of its part's queue; returns whether its share is now first of all and has nothing
    /// running.
    pub(super) fn push(&mut self, share: &Share, item: T) -> bool {
        let id = share.facts.id;
        let turn_us = self.turn_us;
        let owed_us = if self.is_secondary || self.shares.has(id) { 0 } else { share.take_owed(turn_us) };
        self.len += 1;
        let new = || ShareQueue { share: share.clone(), turns: FairOrder::new(turn_us) };
        self.shares.join(id, share.weight(), owed_us, new, |parts| {
            parts.turns.join(share.part, WEIGHT_OF_PARTS, 0, VecDeque::new, |line| line.push_back(item));
        })
    }

    /// The next item, and the share to charge its turn to.
    pub(super) fn pop(&mut self) -> Option<(Share, T)> {
        let take = |parts: &mut ShareQueue<T>| {
            let (part, item) = parts.turns.next(VecDeque::pop_front)?;
            Some((parts.share.part(part), item))
        };
        let (_, next) = self.shares.next(take)?;
        self.len = self.len.saturating_sub(1);
        Some(next)
    }

    /// Charges a finished turn. To be called once for each item returned by [`Self::pop`].
    pub(super) fn charge(&mut self, share: &Share, used_us: u64) {
        match self.is_secondary {
            true => share.used_elsewhere(Duration::from_micros(used_us)),
            false => share.count_turn(used_us),
        }
        if let Some(parts) = self.shares.over(share.facts.id, share.weight(), used_us) {
            parts.turns.over(share.part, WEIGHT_OF_PARTS, used_us);
        }
    }

    /// Removes and returns all items.
    pub(super) fn drain(&mut self) -> Vec<T> {
        self.len = 0;
        self.shares.drain().flat_map(|mut parts| parts.turns.drain().flatten().collect::<Vec<_>>()).collect()
    }
}

#[cfg(test)]
mod tests;
