//! Who used access tokens, for the audit log.
//!
//! Owns when it was noted last. Must not see a token. Invariant: each admitted requestor has a line that says which
//! issuer and subject are behind its id, and not one for each request.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::principal::NOTE_EVERY_MS;
use bulkhead_audit::{Audit, Entry};
use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::{Requestor, RequestorId};

/// Requestors of whom is known when they were noted. With more of them at once, some are noted more often.
const NOTED_MAX: usize = 10_000;

pub(super) struct Noted {
    audit: Audit,
    at: Mutex<HashMap<RequestorId, UnixMs>>,
}

impl Noted {
    pub(super) fn new(audit: Audit) -> Self {
        Self { audit, at: Mutex::default() }
    }

    /// Notes the use of a token, unless there was one of the same requestor a moment ago.
    pub(super) fn note(&self, requestor: &Requestor, now: UnixMs, entry: impl FnOnce() -> Entry) {
        if self.audit.is_on() && self.is_due(requestor.id, now) {
            self.audit.note(entry);
        }
    }

    fn is_due(&self, requestor: RequestorId, now: UnixMs) -> bool {
        let mut noted = self.at.lock();
        let is_recent = |at: UnixMs| now.saturating_sub(at) < NOTE_EVERY_MS;
        if noted.get(&requestor).is_some_and(|at| is_recent(*at)) {
            return false;
        }
        if noted.len() >= NOTED_MAX {
            noted.retain(|_, at| is_recent(*at));
        }
        if noted.len() >= NOTED_MAX {
            // Rather a line too many than one too few.
            noted.clear();
        }
        noted.insert(requestor, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_audit_is_periodic_and_bounded() {
        let noted = Noted::new(Audit::off());
        let id = |number: usize| RequestorId((number as u128).to_be_bytes());
        assert!(noted.is_due(id(0), 1_000));
        assert!(!noted.is_due(id(0), 1_000 + NOTE_EVERY_MS - 1));
        assert!(noted.is_due(id(0), 1_000 + NOTE_EVERY_MS));
        for number in 1..=3 * NOTED_MAX {
            assert!(noted.is_due(id(number), 2_000 + NOTE_EVERY_MS), "{number}");
            assert!(!noted.is_due(id(number), 2_000 + NOTE_EVERY_MS), "{number}");
        }
        assert!(noted.at.lock().len() <= NOTED_MAX);
    }
}
