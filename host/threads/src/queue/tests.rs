use std::collections::HashMap;

use super::fair_order::ACCOUNTS_BEFORE_SWEEP;
use super::*;

const TURN_US: u64 = 10_000;

/// So many threads that turn to whoever is next, all for one turn at a time.
struct Machine {
    queue: FairQueue<&'static str>,
    threads: usize,
    turns: HashMap<&'static str, u64>,
}

impl Machine {
    fn new(threads: usize) -> Self {
        Self { queue: FairQueue::new(TURN_US), threads, turns: HashMap::new() }
    }

    fn add(&mut self, share: &Share, name: &'static str, loops: usize) {
        for _ in 0..loops {
            self.queue.push(share, name);
        }
    }

    /// Everybody who is served stands in line again.
    fn run(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let served: Vec<_> = (0..self.threads).map_while(|_| self.queue.pop()).collect();
            for (share, name) in served {
                *self.turns.entry(name).or_default() += 1;
                self.queue.charge(&share, TURN_US);
                self.queue.push(&share, name);
            }
        }
    }

    fn turns(&mut self) -> [u64; 3] {
        let turns = ["a", "b", "c"].map(|name| self.turns.remove(name).unwrap_or_default());
        assert!(self.turns.is_empty());
        turns
    }
}

#[test]
fn fair_queue_ignores_the_number_of_calls() {
    let a = Share::new(1);
    let b = Share::new(1);
    let c = Share::new(1);
    for threads in 1..=3 {
        let mut machine = Machine::new(threads);
        machine.add(&a, "a", 500);
        machine.add(&b, "b", 1);
        machine.add(&c, "c", 7);
        machine.run(300);
        let even = 100 * threads as u64;
        for turns in machine.turns() {
            assert!(turns.abs_diff(even) <= threads as u64, "{threads} threads: {turns} of {even}");
        }
    }
}

#[test]
fn fair_queue_gives_unused_turns_to_others() {
    let a = Share::new(1);
    let b = Share::new(1);
    let c = Share::new(1);
    let mut machine = Machine::new(8);
    machine.add(&a, "a", 500);
    machine.add(&b, "b", 1);
    machine.add(&c, "c", 2);
    machine.run(100);
    let [a, b, c] = machine.turns();
    assert_eq!(a + b + c, 800, "no thread was ever idle");
    assert_eq!((b, c), (100, 200), "one thread each loop, all the time");
}

#[test]
fn fair_queue_divides_turns_by_weight() {
    let a = Share::new(1);
    let b = Share::new(2);
    let c = Share::new(5);
    let mut machine = Machine::new(2);
    machine.add(&a, "a", 50);
    machine.add(&b, "b", 50);
    machine.add(&c, "c", 50);
    machine.run(400);
    for (turns, wanted) in machine.turns().into_iter().zip([100u64, 200, 500]) {
        assert!(turns.abs_diff(wanted) <= 4, "{turns} of {wanted}");
    }
}

#[test]
fn fair_queue_idle_share_saves_no_turns() {
    let a = Share::new(1);
    let b = Share::new(1);
    let mut machine = Machine::new(2);
    machine.add(&b, "b", 1);
    machine.run(1);
    machine.add(&a, "a", 50);
    machine.run(1_000);
    machine.turns();
    // So far it could use one thread, which is no reason for it to get both now.
    machine.add(&b, "b", 50);
    machine.run(100);
    let [a, b, _] = machine.turns();
    assert!(a.abs_diff(b) <= 4, "{a} and {b}");
}

#[test]
fn fair_queue_returning_share_pays_its_debt() {
    let a = Share::new(1);
    let b = Share::new(1);
    let mut queue = FairQueue::new(TURN_US);
    queue.push(&a, "a");
    let (share, _) = queue.pop().unwrap();
    queue.charge(&share, 10 * TURN_US);
    queue.push(&b, "b");
    queue.push(&a, "a");
    for _ in 0..10 {
        let (share, name) = queue.pop().unwrap();
        assert_eq!(name, "b");
        queue.charge(&share, TURN_US);
        queue.push(&share, "b");
    }
    assert!((0..2).any(|_| queue.pop().unwrap().1 == "a"));
}

#[test]
fn fair_queue_charges_short_calls_their_time() {
    let a = Share::new(1);
    let b = Share::new(1);
    let mut queue = FairQueue::new(TURN_US);
    queue.push(&a, "a");
    for _ in 0..4 {
        queue.push(&b, "b");
    }
    let mut turns = 0;
    let mut served = [0, 0];
    while turns < 10_000 {
        let (share, name) = queue.pop().unwrap();
        // One loops, the other makes call after call that is over in a hundredth of a turn.
        let used = if name == "a" { TURN_US } else { TURN_US / 100 };
        served[usize::from(name == "b")] += used;
        queue.charge(&share, used);
        queue.push(&share, name);
        turns += 1;
    }
    assert!(served[0].abs_diff(served[1]) <= 2 * TURN_US, "{served:?}");
    assert_eq!([a.served_us(), b.served_us()], served);
}

#[test]
fn fair_queue_bounds_debt_of_other_threads() {
    let turns_before_it = |elsewhere: Duration| {
        let a = Share::new(1);
        let b = Share::new(1);
        let mut queue = FairQueue::new(TURN_US);
        a.used_elsewhere(elsewhere);
        queue.push(&a, "a");
        queue.push(&b, "b");
        let mut turns = 0;
        while let Some((share, "b")) = queue.pop() {
            turns += 1;
            queue.charge(&share, TURN_US);
            queue.push(&share, "b");
        }
        assert_eq!(a.served_us(), elsewhere.as_micros() as u64);
        turns
    };
    assert!(turns_before_it(Duration::ZERO) <= 1);
    assert!((3..=4).contains(&turns_before_it(Duration::from_micros(3 * TURN_US))));
    assert!(
        (10..=11).contains(&turns_before_it(Duration::from_secs(3_600))),
        "an hour without anybody else is no debt"
    );
}

#[test]
fn fair_queue_charges_time_spent_on_messages() {
    let a = Share::new(1);
    let b = Share::new(1);
    let mut messages = FairQueue::secondary(TURN_US);
    let mut guests = FairQueue::new(TURN_US);
    for _ in 0..4 {
        messages.push(&a, "a");
    }
    messages.push(&b, "b");
    let mut order = Vec::new();
    while let Some((share, name)) = messages.pop() {
        order.push(name);
        messages.charge(&share, if name == "a" { TURN_US } else { 0 });
    }
    assert_eq!(
        order.iter().position(|name| *name == "b"),
        Some(1),
        "four of one tenant do not stand before one: {order:?}"
    );
    assert_eq!([a.served_us(), b.served_us()], [0, 0], "the guests' queue settles");
    guests.push(&a, "a");
    guests.push(&b, "b");
    assert_eq!(guests.pop().unwrap().1, "b", "a share without message work goes first");
    assert_eq!([a.served_us(), b.served_us()], [4 * TURN_US, 0]);
}

#[test]
fn fair_queue_marks_idle_first_share_urgent() {
    let a = Share::new(1);
    let b = Share::new(1);
    let mut queue = FairQueue::new(TURN_US);
    assert!(queue.push(&a, "a"));
    queue.push(&a, "a");
    let (running, _) = queue.pop().unwrap();
    assert!(queue.push(&b, "b"), "the other one has a turn already");
    assert!(!queue.push(&a, "a"));
    let (second, name) = queue.pop().unwrap();
    assert_eq!(name, "b");
    queue.charge(&second, 20 * TURN_US);
    queue.charge(&running, TURN_US);
    assert!(!queue.push(&b, "b"), "it has had more than the other one");
}

#[test]
fn fair_queue_forgets_unused_shares() {
    let mut queue = FairQueue::new(TURN_US);
    for _ in 0..10_000 {
        let share = Share::new(1);
        queue.push(&share, ());
        let (share, ()) = queue.pop().unwrap();
        queue.charge(&share, TURN_US);
    }
    let remembered = queue.shares.remembered();
    assert!(remembered <= 2 * ACCOUNTS_BEFORE_SWEEP, "{remembered}");
}

#[test]
fn fair_queue_forgets_unused_parts_of_a_share() {
    let share = Share::new(1);
    let mut queue = FairQueue::new(TURN_US);
    queue.push(&share, ());
    for part in 1..10_000 {
        queue.push(&share.part(part), ());
        let (served, ()) = queue.pop().unwrap();
        queue.charge(&served, TURN_US);
        if served.part == 0 {
            queue.push(&share, ());
        }
    }
    let (_, ()) = queue.pop().unwrap();
    let parts = queue.shares.over(share.facts.id, 1, 0).unwrap();
    assert!(parts.turns.remembered() <= 2 * ACCOUNTS_BEFORE_SWEEP, "{}", parts.turns.remembered());
}

#[test]
fn fair_queue_is_fair_between_parts_of_a_share() {
    let a = Share::new(1);
    let other = Share::new(2);
    for threads in 1..=3 {
        let mut machine = Machine::new(threads);
        machine.add(&a.part(1), "a", 500);
        // As many as there are threads: more than that, one alone could not use.
        machine.add(&a.part(2), "b", threads);
        machine.add(&other, "c", 50);
        machine.run(600);
        let even = 100 * threads as u64;
        for (turns, wanted) in machine.turns().into_iter().zip([even, even, 4 * even]) {
            assert!(turns.abs_diff(wanted) <= 2 * threads as u64, "{threads} threads: {turns} of {wanted}");
        }
    }
}

#[test]
fn fair_queue_weight_change_applies_next_turn() {
    let a = Share::new(1);
    let b = Share::new(1);
    let mut machine = Machine::new(2);
    machine.add(&a, "a", 50);
    machine.add(&b, "b", 50);
    for (weight, wanted) in [(1, 200_u64), (3, 300), (1, 200)] {
        a.set_weight(weight);
        machine.run(200);
        let [had, _, _] = machine.turns();
        assert!(had.abs_diff(wanted) <= 8, "weight {weight}: {had} of 400");
        assert_eq!(machine.queue.shares.remembered(), 2);
    }
}

/// Small, fast, and the same everywhere.
fn draw(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

#[test]
fn fair_queue_keeps_ready_shares_close() {
    for seed in 0..200 {
        let mut random = seed;
        let threads = 1 + draw(&mut random, 6);
        let shares: Vec<_> =
            (0..2 + draw(&mut random, 4)).map(|_| Share::new(1 + draw(&mut random, 9) as u32)).collect();
        let mut queue = FairQueue::new(TURN_US);
        for (at, share) in shares.iter().enumerate() {
            // More than there are threads, so that each always has somebody in line.
            for _ in 0..threads + 1 + draw(&mut random, 20) {
                queue.push(share, at);
            }
        }
        let mut running = Vec::new();
        for _ in 0..2_000 {
            while running.len() < threads as usize {
                running.push(queue.pop().expect("somebody is always ready"));
            }
            let over = draw(&mut random, threads) as usize;
            let (share, at) = running.swap_remove(over);
            queue.charge(&share, 1 + draw(&mut random, TURN_US));
            queue.push(&share, at);
            let had: Vec<_> = shares.iter().map(|share| share.served_us() as f64 / share.weight() as f64).collect();
            let (least, most) =
                had.iter().fold((f64::MAX, 0f64), |(least, most), had| (least.min(*had), most.max(*had)));
            let bound = (2 * (threads + 1) * TURN_US) as f64;
            assert!(most - least <= bound, "seed {seed}: {had:?}");
        }
    }
}

#[test]
fn share_with_a_turn_that_was_not_brief_begins_elsewhere_only_alone() {
    let share = Share::default();
    share.count_turn(100);
    assert_eq!([true, false].map(|is_alone| share.may_begin_elsewhere(is_alone)), [true, true]);
    // Such a turn is forgotten after a twentieth of a second, which this test may have to wait for.
    let is_paused = (0..1_000).any(|_| {
        share.count_turn(500);
        !share.may_begin_elsewhere(false)
    });
    assert!(is_paused && share.may_begin_elsewhere(true));
    share.count_turn(60_000_000);
    assert_eq!([true, false].map(|is_alone| share.may_begin_elsewhere(is_alone)), [false, false]);
}
