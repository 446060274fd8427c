//! Which looks of operators the audit log has already in this minute.
//!
//! Owns nothing of the log. Must not be asked about a change, a refusal, or a look at what is one tenant's: each of
//! those has a line of its own. Invariant: what is not remembered is noted, so that a look may have two lines, but
//! never none where looks are noted.

use std::collections::HashMap;

use bulkhead_domain::UnixMs;
use parking_lot::Mutex;

/// Looks of operators, each with what it was at, that are remembered for a minute; of more there is a line each time.
const LOOKS_MAX: usize = 4_096;
const MINUTE_MS: u64 = 60_000;

/// Who looked at what.
type Look = (String, String);

/// See the module.
pub struct ReadNotes {
    are_noted: bool,
    /// The minute in which each was noted last.
    noted: Mutex<HashMap<Look, u64>>,
}

impl Default for ReadNotes {
    fn default() -> Self {
        Self::new(true)
    }
}

impl ReadNotes {
    /// `are_noted`: whether the log is to have looks at all.
    pub fn new(are_noted: bool) -> Self {
        Self { are_noted, noted: Mutex::default() }
    }

    /// Whether a look gets a line now.
    pub fn is_due(&self, who: &str, what: &str, now: UnixMs) -> bool {
        if !self.are_noted {
            return false;
        }
        let minute = now / MINUTE_MS;
        let look = (who.to_owned(), what.to_owned());
        let mut noted = self.noted.lock();
        if noted.get(&look) == Some(&minute) {
            return false;
        }
        if noted.len() >= LOOKS_MAX {
            noted.retain(|_, at| *at == minute);
        }
        if noted.len() < LOOKS_MAX {
            noted.insert(look, minute);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_is_due_once_a_minute_for_each_operator_and_thing() {
        let notes = ReadNotes::default();
        let due = |who: &str, what: &str, now| notes.is_due(who, what, now);
        assert_eq!([due("a", "x", 0), due("a", "x", 59_999), due("a", "x", 60_000)], [true, false, true]);
        assert_eq!([due("b", "x", 60_000), due("a", "y", 60_000), due("a", "y", 60_001)], [true, true, false]);
        // A clock that was set back shows nothing less.
        assert!(due("a", "x", 10));
        assert!(!ReadNotes::new(false).is_due("a", "x", 0));
    }

    #[test]
    fn look_that_there_is_no_room_to_remember_is_noted_each_time() {
        let notes = ReadNotes::default();
        for number in 0..LOOKS_MAX {
            assert!(notes.is_due("a", &number.to_string(), 0));
        }
        assert_eq!([notes.is_due("b", "x", 0), notes.is_due("b", "x", 0)], [true, true]);
        assert!(!notes.is_due("a", "0", 0));
        // What is of minutes before makes room.
        assert_eq!([notes.is_due("b", "x", 60_000), notes.is_due("b", "x", 60_000)], [true, false]);
        assert_eq!(notes.noted.lock().len(), 1);
    }
}
