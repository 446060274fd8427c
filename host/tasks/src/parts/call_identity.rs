//! What tells one call from every other one.

use std::cell::RefCell;
use std::sync::Arc;

use crate::error::{Error, host_failure};
use crate::parts::journal::TaskJournal;
use bulkhead_domain::task::{CallId, TaskId};

/// What every call begins with. Nothing is given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DrawnIdentity {
    pub(crate) seed: [u8; 32],
    pub(crate) call_id: CallId,
}

/// What tells one run from another.
pub(crate) struct Identity {
    pub(crate) drawn: DrawnIdentity,
    pub(crate) task_id: Option<TaskId>,
    pub(crate) attempt: u32,
    /// Of a run that keeps one.
    pub(crate) journal: Option<Arc<TaskJournal>>,
}

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(host_failure("randomness", &error)),
    }
}

/// Calls whose randomness a thread fetches at once: a visit to the operating system for each was 4 % of what an echo
/// costs the kernel.
const AHEAD: usize = 32;

/// Draws what a call begins with.
pub(crate) fn draw_identity() -> Result<DrawnIdentity, Error> {
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
        (Some(seed), Some(id)) => Ok(DrawnIdentity { seed: *seed, call_id: CallId(*id) }),
        _ => Err(host_failure("randomness", &"there is too little of it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn call_seeds_and_ids_are_unique() {
        let drawn = || (0..3 * AHEAD).map(|_| draw_identity().unwrap());
        let elsewhere: Vec<_> = std::thread::scope(|scope| scope.spawn(|| drawn().collect()).join().unwrap());
        let seen: HashSet<_> = drawn().chain(elsewhere).map(|drawn| (drawn.seed, drawn.call_id.0)).collect();
        assert_eq!(seen.len(), 6 * AHEAD);
    }
}
