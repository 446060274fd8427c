//! Journals made of anything.

use super::codec::{Recorded, decode, encode};
use super::entry::{self, CommandKind, Decoded};
use super::outcome::Outcome;
use super::state::{Bounds, Journal};
use super::values::Answers;
use bulkhead_calls::ClientView;
use bulkhead_calls::journal::names;

/// Reads a journal, and lets a guest that calls anything run again with it. What can be read is whole up to its last
/// mark, and reads the same from there.
pub(crate) fn journals(data: &[u8]) -> bool {
    written_again::<Outcome>(data);
    written_again::<Answers>(data);
    written_again::<ClientView>(data);
    written_again::<Vec<String>>(data);
    let Ok(decoded) = entry::decode(data) else { return false };
    assert!(decoded.bytes <= data.len(), "what is kept is there");
    let again = entry::decode(data.get(..decoded.bytes).unwrap_or_default());
    let is_same = |again: &Decoded| {
        (&again.header, &again.entries, &again.outcomes) == (&decoded.header, &decoded.entries, &decoded.outcomes)
            && (again.mark, again.is_complete, again.bytes) == (decoded.mark, decoded.is_complete, decoded.bytes)
    };
    assert!(again.as_ref().is_ok_and(is_same), "what was kept reads the same: {again:?}");
    for placed in &decoded.entries {
        assert!(!placed.entry.to_string().is_empty(), "each entry has words");
    }
    for outcome in decoded.outcomes.values() {
        written_again::<Outcome>(outcome);
    }
    run_again(data);
    true
}

/// A value that can be read is written again and reads the same.
fn written_again<T: Recorded + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    if let Some(value) = decode::<T>(bytes) {
        assert_eq!(decode::<T>(&encode(&value)), Some(value));
    }
}

const BOUNDS: Bounds = Bounds { bytes_max: 4 << 20, entries_max: 100_000 };

/// A guest whose calls are the last bytes of the journal.
fn run_again(data: &[u8]) {
    let Ok((_, mut journal)) = Journal::replay(data, BOUNDS) else { return };
    for byte in data.iter().rev().take(64) {
        let Some(import) = names::ALL.get(usize::from(*byte) % names::ALL.len()).copied() else { return };
        // A guest that left its journal is told so at each further call, and goes on all the same.
        let _ = journal.step(import);
        let _ = journal.take_clock();
        let _ = match byte % 6 {
            0 => journal.take_signals().map(drop),
            1 => journal.take_promotion().map(drop),
            2 => journal.must_value().map(drop),
            3 => journal.must_command(CommandKind::Request, u32::from(*byte), [*byte; 8]).map(drop),
            4 => journal.take_delivery().map(drop),
            _ => journal.take_value().map(drop),
        };
        if journal.is_recording() {
            journal.put_value(vec![*byte]);
            journal.put_mark();
        }
        assert!(!journal.status().to_string().is_empty());
    }
    let _ = journal.end([0; 8]);
    if journal.is_recording() {
        let bytes = journal.bytes().to_vec();
        let steps = journal.steps();
        let again = entry::decode(&bytes);
        assert!(
            again.is_ok_and(|again| again.bytes == bytes.len() && again.last_step <= steps),
            "what is written can be read"
        );
    }
}
