//! Ids of traces and spans.
//!
//! Each thread draws its own, so that none waits for another. Invariant: no id is zero, which stands for none.

use std::cell::RefCell;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

thread_local! {
    static RANDOM: RefCell<ChaCha8Rng> = RefCell::new(seeded());
}

fn seeded() -> ChaCha8Rng {
    let mut seed = [0; 32];
    // What cannot be had from the system is made up from the clock: the ids are no secrets.
    if getrandom::fill(&mut seed).is_err() {
        let now = super::span::now_ns().to_le_bytes();
        seed.iter_mut().zip(now).for_each(|(byte, now)| *byte = now);
    }
    ChaCha8Rng::from_seed(seed)
}

/// The id of a new trace.
pub(super) fn trace_id() -> [u8; 16] {
    let mut id = [0; 16];
    RANDOM.with_borrow_mut(|random| random.fill_bytes(&mut id));
    if id == [0; 16] { [1; 16] } else { id }
}

/// The id of a new span.
pub(super) fn span_id() -> [u8; 8] {
    number().max(1).to_ne_bytes()
}

/// Any number.
pub(super) fn number() -> u64 {
    RANDOM.with_borrow_mut(rand_chacha::rand_core::Rng::next_u64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn threads_draw_different_ids() {
        let draw = || (0..500).map(|_| (trace_id(), span_id())).collect::<Vec<_>>();
        let drawn: Vec<_> =
            (0..4).map(|_| std::thread::spawn(draw)).flat_map(|thread| thread.join().unwrap()).collect();
        let (traces, spans): (HashSet<_>, HashSet<_>) = drawn.iter().copied().unzip();
        assert_eq!((traces.len(), spans.len()), (2_000, 2_000));
    }
}
