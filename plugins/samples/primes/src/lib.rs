//! CPU-bound work: counts primes with a segmented sieve, reports progress, and listens while it computes.

use bulkhead_plugin::task::{self, Signals};
use bulkhead_plugin::{Error, Json, tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Odd numbers per segment: the sieve of one segment stays in the processor's cache, and a segment takes about a
/// millisecond.
const SEGMENT: u64 = 1 << 18;

#[derive(Deserialize, JsonSchema)]
struct Range {
    /// Count the primes smaller than this.
    #[schemars(range(min = 0, max = 1_000_000_000_000u64))]
    below: u64,
}

#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Count {
    /// How many primes there are below `below`.
    count: u64,
    /// How far the count went: what was asked for, unless the count was stopped.
    below: u64,
    /// False if a message stopped the count early.
    complete: bool,
    /// The messages that arrived while it counted.
    messages: Vec<String>,
}

/// Where a count is: from here it goes on when its host was stopped.
#[derive(Serialize, Deserialize)]
struct Saved {
    position: u64,
    count: u64,
    messages: Vec<String>,
}

/// Counts the prime numbers below a limit and reports progress. As a task it takes messages: `stop` ends the count
/// early with what it has.
#[tool(title = "Count primes", task = "optional", read_only, idempotent, open_world = false)]
fn count_primes(Range { below }: Range) -> Result<Json<Count>, Error> {
    let mut sieve = Sieve::new(below);
    let mut messages = Vec::new();
    if let Some(saved) = task::restored_json::<Saved>()? {
        sieve.go_on_from(saved.position, saved.count);
        messages = saved.messages;
    }
    let mut stopped = false;
    while !stopped && sieve.advance() {
        task::progress(sieve.position as f64, Some(below as f64), Some(&format!("{} primes so far", sieve.count)));
        if task::checkpoint()?.contains(Signals::STEERING_PENDING) {
            for message in task::steering() {
                stopped |= message.trim().eq_ignore_ascii_case("stop");
                task::set_status(&format!("{} primes below {}; noted: {message}", sieve.count, sieve.position));
                messages.push(message);
            }
        }
        if !stopped {
            task::save_json(&Saved { position: sieve.position, count: sieve.count, messages: messages.clone() })?;
        }
    }
    let complete = sieve.position >= below;
    Ok(Json(Count { count: sieve.count, below: sieve.position.min(below), complete, messages }))
}

/// A sieve of Eratosthenes over one segment of odd numbers at a time.
struct Sieve {
    below: u64,
    /// Everything smaller is counted.
    position: u64,
    count: u64,
    /// Odd primes up to the square root of `below`, each with the next odd multiple to strike out.
    strikes: Vec<(u64, u64)>,
    composite: Vec<bool>,
}

impl Sieve {
    fn new(below: u64) -> Self {
        let root = below.isqrt() + 1;
        let mut strikes = Vec::new();
        let mut candidate = 3;
        while candidate <= root {
            if strikes
                .iter()
                .take_while(|(prime, _)| prime * prime <= candidate)
                .all(|(prime, _)| candidate % prime != 0)
            {
                strikes.push((candidate, candidate * candidate));
            }
            candidate += 2;
        }
        Self { below, position: 0, count: 0, strikes, composite: Vec::new() }
    }

    /// Goes on where a count was that had come to this position.
    fn go_on_from(&mut self, position: u64, count: u64) {
        self.position = position;
        self.count = count;
        for (prime, next) in &mut self.strikes {
            // The next odd multiple.
            let multiple = position.div_ceil(*prime).max(*prime) | 1;
            *next = multiple * *prime;
        }
    }

    /// Counts one more segment; false when there is none left.
    fn advance(&mut self) -> bool {
        if self.position >= self.below {
            return false;
        }
        let start = self.position;
        let end = (start + 2 * SEGMENT).min(self.below);
        if start == 0 && end > 2 {
            self.count += 1; // 2, the only even one
        }
        // Slot i stands for the odd number `start + 1 + 2i`; `start` is even, because segments have even lengths.
        let slots = ((end - start) / 2) as usize;
        self.composite.clear();
        self.composite.resize(slots, false);
        for (prime, next) in &mut self.strikes {
            let mut multiple = *next;
            while multiple < end {
                if let Some(slot) = self.composite.get_mut(((multiple - start - 1) / 2) as usize) {
                    *slot = true;
                }
                multiple += 2 * *prime;
            }
            *next = multiple;
        }
        let primes = self.composite.iter().filter(|composite| !**composite).count() as u64;
        self.count += primes - u64::from(start == 0 && slots > 0); // 1 is not a prime
        self.position = end;
        true
    }
}

bulkhead_plugin::manifest!(
    r#"
name = "primes"
description = "Counts prime numbers, for as long as you like."
"#
);
bulkhead_plugin::pure!();
bulkhead_plugin::export!([count_primes]);

#[cfg(test)]
mod tests {
    use super::*;

    fn count(below: u64) -> u64 {
        let mut sieve = Sieve::new(below);
        while sieve.advance() {}
        sieve.count
    }

    #[test]
    fn prime_counts_of_small_limits_are_exact() {
        let naive = |below: u64| (2..below).filter(|n| (2..*n).all(|d| n % d != 0)).count() as u64;
        for below in 0..200 {
            assert_eq!(count(below), naive(below), "below {below}");
        }
    }

    #[test]
    fn count_that_goes_on_is_exact() {
        for position in [0, 2 * SEGMENT, 6 * SEGMENT] {
            let mut before = Sieve::new(10_000_000);
            while before.position < position {
                before.advance();
            }
            let mut sieve = Sieve::new(10_000_000);
            sieve.go_on_from(before.position, before.count);
            while sieve.advance() {}
            assert_eq!(sieve.count, 664_579, "from {position}");
        }
    }

    #[test]
    fn prime_counts_across_segments_are_exact() {
        assert_eq!(count(10_000), 1_229);
        assert_eq!(count(2_000_000), 148_933);
        assert_eq!(count(10_000_000), 664_579);
    }
}
