//! Random ids and seeds, from the operating system.

use std::cell::RefCell;

use crate::Error;
use bulkhead_domain::task::CallId;

/// Bytes that nobody can guess.
pub(super) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(host_failure("randomness", &error)),
    }
}

/// Calls whose randomness a thread fetches at once: a visit to the operating system for each was 4 % of what an echo costs the kernel.
const AHEAD: usize = 32;

/// What every call begins with. Nothing is given out twice.
pub(super) fn seed_and_id() -> Result<([u8; 32], CallId), Error> {
    thread_local! {
        static DRAWN: RefCell<Vec<[u8; 48]>> = const { RefCell::new(Vec::new()) };
    }
    let bytes = DRAWN.with_borrow_mut(|drawn| {
        if drawn.is_empty() {
            let bytes: [u8; 48 * AHEAD] = random()?;
            drawn.extend(bytes.as_chunks().0);
        }
        drawn.pop().ok_or_else(|| host_failure("randomness", &"there is none"))
    })?;
    match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(seed), Some(id)) => Ok((*seed, CallId(*id))),
        _ => Err(host_failure("randomness", &"there is too little of it")),
    }
}

/// Logs a failure of the host once, and gives the error that may be shown.
pub(super) fn host_failure(what: &str, error: &dyn std::fmt::Display) -> Error {
    let incident = incident();
    tracing::error!(incident, "{what} failed: {error}");
    Error::Host { incident }
}

/// A short id that a requestor can quote and an operator can find.
pub(super) fn incident() -> String {
    let mut bytes = [0; 6];
    // Without randomness every incident has the same name, which is the smaller trouble by then.
    let _ = getrandom::fill(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn call_seeds_and_ids_are_unique() {
        let drawn = || (0..3 * AHEAD).map(|_| seed_and_id().unwrap());
        let elsewhere: Vec<_> = std::thread::scope(|scope| scope.spawn(|| drawn().collect()).join().unwrap());
        let seen: HashSet<_> = drawn().chain(elsewhere).map(|(seed, id)| (seed, id.0)).collect();
        assert_eq!(seen.len(), 6 * AHEAD);
    }
}
