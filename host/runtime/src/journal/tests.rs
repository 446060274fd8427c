//! Bytes of entries, the state of a journal by itself, and journals that were changed by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::checkpoint::Checkpoint;
use super::entry::{self, Command, CommandKind, Entry};
use super::header::{Header, Opening, PinnedLimits, UnwrittenHeader};
use super::state::{Bounds, Journal};
use crate::granted::Granted;
use bulkhead_calls::journal::{Divergence, History, JournalStatus, Reason, names};
use bulkhead_calls::policy::DirGrant;
use bulkhead_calls::{ClientView, IDEMPOTENCY_KEY, Operation};
use bulkhead_domain::Json;
use bulkhead_domain::call::{ClientFeatures, LogLevel};

/// A journal as its entries, each with its step, for tests that change it.
pub(crate) struct Edited(Vec<(u64, Entry)>);

impl Edited {
    /// Reads all of it, without leaving anything out.
    pub(crate) fn of(history: &History) -> Self {
        let decoded = entry::decode(&history.0).unwrap();
        let mut all = vec![(0, Entry::Header(Box::new(decoded.header)))];
        for placed in decoded.entries {
            if let Entry::Delivery(number) = placed.entry {
                let bytes = decoded.outcomes[&number].clone();
                all.push((placed.step, Entry::Outcome { number, bytes }));
            }
            all.push((placed.step, placed.entry));
        }
        Self(all)
    }

    pub(crate) fn history(&self) -> History {
        let mut bytes = Vec::new();
        let mut last = 0;
        for (step, entry) in &self.0 {
            entry::write(entry, *step, last, &mut bytes);
            last = *step;
        }
        History(Bytes::from(bytes))
    }

    pub(crate) fn change_header(&mut self, change: impl FnOnce(&mut u16, &mut [u8; 32])) {
        if let Some((_, Entry::Header(header))) = self.0.first_mut() {
            change(&mut header.abi, &mut header.component);
        }
    }

    /// The journal of a call of which nothing was kept.
    pub(crate) fn beginning(&self) -> History {
        Self(self.0[..1].to_vec()).history()
    }

    /// The journals that a host could have kept of this one when it stopped.
    pub(crate) fn prefixes(&self) -> Vec<History> {
        let marks = self.0.iter().enumerate().filter(|(_, (_, entry))| matches!(entry, Entry::Mark { .. }));
        marks.map(|(at, _)| Self(self.0[..=at].to_vec()).history()).collect()
    }

    /// How often the guest has asked for an effect.
    pub(crate) fn commands(&self) -> usize {
        self.0.iter().filter(|(_, entry)| matches!(entry, Entry::Command(_))).count()
    }

    /// Every journal that differs from this one in one entry, with what was done to it.
    pub(crate) fn mutations(&self) -> Vec<(String, History)> {
        let mut mutations = Vec::new();
        let last = self.0.len() - 1;
        for at in 1..last {
            let mut note = |what: &str, entries: Vec<(u64, Entry)>| {
                mutations.push((format!("{what} entry {at}, {}", self.0[at].1), Self(entries).history()));
            };
            let mut entries = self.0.clone();
            entries.remove(at);
            note("without", entries);
            let mut entries = self.0.clone();
            entries.insert(at, entries[at].clone());
            note("twice", entries);
            if at + 1 < last {
                let mut entries = self.0.clone();
                let first = entries[at].1.clone();
                let second = entries[at + 1].1.clone();
                (entries[at].1, entries[at + 1].1) = (second, first);
                note("swapped", entries);
            }
            let mut entries = self.0.clone();
            change(&mut entries[at].1);
            note("changed", entries);
        }
        mutations
    }
}

fn change(entry: &mut Entry) {
    match entry {
        Entry::Header(header) => header.abi += 1,
        Entry::Clock(ms) => *ms += 1,
        Entry::Command(command) => command.digest[0] ^= 1,
        Entry::Outcome { bytes, .. } | Entry::Value { bytes, .. } => match bytes.last_mut() {
            Some(last) => *last ^= 1,
            None => bytes.push(1),
        },
        Entry::Delivery(number) => *number += 1,
        Entry::Signals(bits) => *bits ^= 1,
        Entry::Promoted(id) => id.push('x'),
        Entry::Mark { hash } => *hash ^= 1,
        Entry::End { digest, .. } | Entry::Checkpoint { digest, .. } => digest[0] ^= 1,
        Entry::State(checkpoint) => checkpoint.commands += 1,
        Entry::Sleep => *entry = Entry::Clock(1),
    }
}

fn unwritten() -> UnwrittenHeader {
    let granted = Granted {
        directories: vec![DirGrant { host: "/srv".into(), guest: "/data".to_owned(), write: false, bytes_max: None }],
        environment: vec![("LANG".to_owned(), "C".to_owned())],
        settings: BTreeMap::from([("unit".to_owned(), Json::new("\"metre\""))]),
        ..Granted::default()
    };
    let audience =
        ClientView { features: ClientFeatures(0b101), log_level: Some(LogLevel::Warning), wants_progress: true };
    UnwrittenHeader {
        component: [7; 32],
        engine: u64::MAX,
        operation: Arc::new(Operation::CallTool { tool: "echo".into(), arguments: Json::new("{}") }),
        limits: PinnedLimits { memory_bytes: 64 << 20, result_bytes: 4 << 20, log_bytes: 1 << 20 },
        granted: Arc::new(granted),
        opening: Opening {
            base_ms: 1_800_000_000_000,
            stands: false,
            attempt: 1,
            audience,
            idempotency_header: Some(IDEMPOTENCY_KEY),
        },
    }
}

fn header() -> Header {
    unwritten().header()
}

fn entries() -> impl Strategy<Value = Entry> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        any::<u64>().prop_map(Entry::Clock),
        (any::<bool>(), any::<u32>(), any::<u32>(), any::<[u8; 8]>()).prop_map(|(asks, number, hash, digest)| {
            let kind = if asks { CommandKind::Question } else { CommandKind::Request };
            Entry::Command(Command { kind, number, hash, digest })
        }),
        any::<u32>().prop_map(Entry::Delivery),
        (any::<u32>(), bytes()).prop_map(|(hash, bytes)| Entry::Value { hash, bytes }),
        any::<u8>().prop_map(Entry::Signals),
        ".{0,20}".prop_map(Entry::Promoted),
        (any::<u32>(), any::<[u8; 8]>()).prop_map(|(hash, digest)| Entry::Checkpoint { hash, digest }),
        Just(Entry::Sleep),
    ]
}

proptest! {
    #[test]
    fn entries_come_back_as_they_were(steps in prop::collection::vec((0_u64..1000, entries()), 0..30), hash: u32) {
        let mut bytes = Vec::new();
        let mut step = 0;
        let mut last = 0;
        entry::write(&Entry::Header(Box::new(header())), 0, 0, &mut bytes);
        let mut expected = Vec::new();
        for (further, entry) in steps {
            step += further;
            entry::write(&entry, step, last, &mut bytes);
            last = step;
            expected.push((step, entry));
        }
        let end = Entry::End { hash, digest: [9; 8] };
        entry::write(&end, step, last, &mut bytes);
        expected.push((step, end));
        let decoded = entry::decode(&bytes).unwrap();
        prop_assert_eq!(decoded.header, header());
        prop_assert!(decoded.is_complete && decoded.bytes == bytes.len());
        let entries: Vec<_> = decoded.entries.into_iter().map(|placed| (placed.step, placed.entry)).collect();
        prop_assert_eq!(entries, expected);
    }

    #[test]
    fn any_bytes_are_a_journal_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0_usize..300, to: u8) {
        let _ = entry::decode(&bytes);
        let mut journal = Vec::new();
        entry::write(&Entry::Header(Box::new(header())), 0, 0, &mut journal);
        entry::write(&Entry::Value { hash: 1, bytes: bytes.clone() }, 5, 0, &mut journal);
        entry::write(&Entry::Mark { hash: 2 }, 5, 5, &mut journal);
        journal.extend_from_slice(&bytes);
        if let Some(byte) = journal.get_mut(at) {
            *byte = to;
        }
        let _ = entry::decode(&journal);
    }
}

#[test]
fn what_stands_behind_the_last_mark_was_never_kept() {
    let mut bytes = Vec::new();
    entry::write(&Entry::Header(Box::new(header())), 0, 0, &mut bytes);
    let empty = bytes.len();
    entry::write(&Entry::Clock(3), 4, 0, &mut bytes);
    let decoded = entry::decode(&bytes).unwrap();
    assert_eq!((decoded.entries.len(), decoded.bytes, decoded.mark), (0, empty, 0));
    entry::write(&Entry::Mark { hash: 0 }, 6, 4, &mut bytes);
    let kept = bytes.len();
    entry::write(&Entry::Delivery(1), 9, 6, &mut bytes);
    let decoded = entry::decode(&bytes).unwrap();
    assert_eq!((decoded.entries.len(), decoded.bytes, decoded.mark), (2, kept, 6));
}

const BOUNDS: Bounds = Bounds { bytes_max: 4 << 20, entries_max: 100 };

/// Records a clock that moved, and a value.
fn recorded(mark: bool, end: bool) -> Vec<u8> {
    let mut journal = Journal::record(unwritten(), BOUNDS);
    journal.step(names::WALL_NOW).unwrap();
    journal.put_clock(5);
    journal.step(names::WALL_NOW).unwrap();
    journal.step(names::KEYVALUE_GET).unwrap();
    journal.put_value(vec![1]);
    if mark {
        journal.put_mark();
    }
    if end {
        journal.end([3; 8]).unwrap();
    }
    journal.bytes().to_vec()
}

#[test]
fn replay_gives_back_what_was_recorded_and_ends_there() {
    let bytes = recorded(false, true);
    let (read, mut journal) = Journal::replay(&bytes, BOUNDS).unwrap();
    assert_eq!(read, header());
    journal.step(names::WALL_NOW).unwrap();
    assert_eq!(journal.take_clock(), Ok(Some(5)));
    assert_eq!(journal.take_clock(), Ok(None));
    journal.step(names::WALL_NOW).unwrap();
    assert_eq!(journal.take_clock(), Ok(None));
    journal.step(names::KEYVALUE_GET).unwrap();
    assert_eq!(journal.must_value(), Ok(Some(vec![1])));
    assert!(journal.is_replaying() && !journal.goes_on());
    journal.end([3; 8]).unwrap();
    assert_eq!((journal.status(), journal.bytes()), (JournalStatus::Ended, &*bytes));
}

#[test]
fn replay_says_where_it_left_the_journal() {
    let replay = || Journal::replay(&recorded(false, true), BOUNDS).unwrap().1;
    let message = |divergence: Divergence| divergence.to_string();

    let mut journal = replay();
    journal.step(names::WALL_NOW).unwrap();
    let untaken = message(journal.step(names::KEYVALUE_SET).unwrap_err());
    assert_eq!(
        untaken,
        "entry 1: a move of the clock by 5 ms at step 1 was recorded, set of bulkhead:plugin/keyvalue was asked for at step 2: \
         what was recorded is still to come"
    );
    assert!(matches!(journal.status(), JournalStatus::Diverged(_)));
    assert!(journal.end([3; 8]).is_err(), "it stays so");

    let mut journal = replay();
    journal.step(names::WALL_NOW).unwrap();
    journal.take_clock().unwrap();
    journal.step(names::MONOTONIC_NOW).unwrap();
    journal.step(names::KEYVALUE_GET).unwrap();
    let other = message(journal.must_value().unwrap_err());
    assert!(other.ends_with("the guest saw or called something else before"), "{other}");

    let mut journal = replay();
    journal.step(names::WALL_NOW).unwrap();
    journal.take_clock().unwrap();
    let early = message(journal.end([3; 8]).unwrap_err());
    assert!(early.contains("entry 2: a value of 1 bytes at step 3") && early.ends_with("too early"), "{early}");

    let mut journal = replay();
    journal.step(names::WALL_NOW).unwrap();
    let command = journal.must_command(CommandKind::Request, 1, [0; 8]).unwrap_err();
    assert!(message(command).ends_with("something else is recorded here, or nothing"));
}

#[test]
fn call_without_an_end_goes_on_behind_its_last_mark() {
    let (_, mut journal) = Journal::replay(&recorded(true, false), BOUNDS).unwrap();
    for import in [names::WALL_NOW, names::WALL_NOW, names::KEYVALUE_GET] {
        journal.step(import).unwrap();
        while journal.take_clock().unwrap().is_some() {}
        assert!(journal.is_replaying(), "the mark is at the third step");
    }
    assert_eq!(journal.must_value(), Ok(Some(vec![1])));
    journal.step(names::KEYVALUE_SET).unwrap();
    assert!(journal.is_recording() && journal.live().is_ok());
    assert_eq!(journal.must_value(), Ok(None), "the guest acts by itself");
    journal.put_value(vec![2]);
    journal.end([3; 8]).unwrap();
    let steps = journal.steps();
    let hash = journal.hash();
    let (_, mut whole) = Journal::replay(journal.bytes(), BOUNDS).unwrap();
    for import in [names::WALL_NOW, names::WALL_NOW, names::KEYVALUE_GET, names::KEYVALUE_SET] {
        whole.step(import).unwrap();
        while whole.take_clock().unwrap().is_some() {}
        whole.take_value().unwrap();
    }
    whole.end([3; 8]).unwrap();
    assert_eq!((whole.steps(), whole.hash()), (steps, hash));
}

fn state(bytes: usize) -> Checkpoint {
    Checkpoint { state: vec![7; bytes], commands: 3, answered: 2, ids_drawn: 1, shown_ms: 5, beginnings: 0 }
}

/// A call that wrote down where it is, and did this then.
fn behind_checkpoint(then: impl FnOnce(&mut Journal)) -> Journal {
    let mut journal = Journal::record(unwritten(), BOUNDS);
    journal.step(names::KEYVALUE_SET).unwrap();
    journal.put_value(vec![1]);
    journal.step(names::TASK_CHECKPOINT).unwrap();
    journal.put_checkpoint(state(3));
    journal.step(names::TASK_SLEEP).unwrap();
    then(&mut journal);
    journal.put_mark();
    let (_, replay) = Journal::replay(journal.bytes(), BOUNDS).unwrap();
    assert_eq!(replay.checkpoint().is_some(), journal.begins_anew(), "who records it knows");
    replay
}

#[test]
fn call_begins_from_a_checkpoint_behind_which_it_only_computed() {
    let journal = behind_checkpoint(|journal| {
        journal.put_clock(3);
        journal.put_signals(1);
    });
    assert_eq!(journal.checkpoint(), Some(Box::new(state(3))));
    for act in [
        (|journal: &mut Journal| journal.put_value(vec![2])) as fn(&mut Journal),
        |journal| journal.put_command(CommandKind::Question, 4, [0; 8]),
        |journal| journal.put_command(CommandKind::Request, 4, [0; 8]),
        |journal| journal.put_promotion("task".to_owned()),
        Journal::put_sleep,
    ] {
        assert_eq!(behind_checkpoint(act).checkpoint(), None);
    }
    // What was written down and not kept is none.
    let bytes = journal.bytes();
    let (_, cut) = Journal::replay(&bytes[..bytes.len() - 15], BOUNDS).unwrap();
    assert!(cut.checkpoint().is_some(), "its own mark is behind it");
}

#[test]
fn journal_that_begins_anew_replaces_what_is_kept() {
    let replay = behind_checkpoint(|_| {});
    let before = replay.bytes().len() as u64;
    let mut journal = replay.anew(header(), replay.checkpoint().unwrap());
    journal.step(names::TASK_RESTORED).unwrap();
    journal.put_mark();
    let tail = journal.tail(before);
    assert!(tail.begins && tail.at > before && tail.bytes == journal.bytes());
    let kept = tail.at + tail.bytes.len() as u64;
    journal.step(names::KEYVALUE_SET).unwrap();
    journal.put_value(vec![1]);
    let tail = journal.tail(kept);
    assert!(!tail.begins && tail.at == kept && journal.bytes().ends_with(&tail.bytes));
    let (_, again) = Journal::replay(journal.bytes(), BOUNDS).unwrap();
    assert_eq!((again.beginning(), again.checkpoint()), (Some(&state(3)), None));
}

#[test]
fn state_that_is_not_the_one_that_was_written_down_is_damage() {
    let mut journal = Journal::record(unwritten(), BOUNDS);
    journal.step(names::TASK_CHECKPOINT).unwrap();
    journal.put_checkpoint(state(3));
    // The header may hold the same bytes.
    let at = journal.bytes().windows(3).rposition(|bytes| bytes == [7; 3]).unwrap();
    for byte in at..at + 3 {
        let mut bytes = journal.bytes().to_vec();
        bytes[byte] ^= 1;
        assert!(Journal::replay(&bytes, BOUNDS).is_err());
    }
    assert!(Journal::replay(journal.bytes(), BOUNDS).is_ok());
}

#[test]
fn states_before_the_last_are_forgotten() {
    let numbered = |number| Checkpoint { state: vec![number; 100_000], ..state(0) };
    let mut journal = Journal::record(unwritten(), BOUNDS);
    let mut kept = 0;
    let mut anew = 0;
    for number in 0..20 {
        journal.step(names::KEYVALUE_SET).unwrap();
        journal.put_value(vec![number]);
        journal.step(names::TASK_CHECKPOINT).unwrap();
        journal.put_checkpoint(numbered(number));
        let tail = journal.tail(kept);
        kept = tail.at + tail.bytes.len() as u64;
        anew += u32::from(tail.begins);
        assert!(journal.bytes().len() < 300_000, "{}", journal.bytes().len());
        let (_, mut replay) = Journal::replay(journal.bytes(), BOUNDS).unwrap();
        assert!(replay.checkpoint().is_some());
        for value in 0..=number {
            replay.step(names::KEYVALUE_SET).unwrap();
            assert_eq!(replay.must_value(), Ok(Some(vec![value])));
            replay.step(names::TASK_CHECKPOINT).unwrap();
            assert_eq!(
                replay.take_checkpoint(),
                Ok(Some(numbered(value).digest())),
                "that it was written down is never forgotten"
            );
        }
    }
    assert!((5..=10).contains(&anew), "not each time: {anew}");
}

#[test]
fn mark_holds_a_replay_where_nothing_was_kept() {
    let (_, mut journal) = Journal::replay(&recorded(false, false), BOUNDS).unwrap();
    assert!(journal.is_replaying());
    journal.step(names::WALL_NOW).unwrap();
    assert!(journal.is_recording(), "nothing was kept: the call begins anew");
}

#[test]
fn journal_that_gets_too_long_is_given_up() {
    let mut journal = Journal::record(unwritten(), BOUNDS);
    journal.step(names::KEYVALUE_GET).unwrap();
    for _ in 0..5 {
        journal.put_value(vec![0; 1 << 20]);
    }
    assert_eq!(journal.status(), JournalStatus::Demoted(Reason::Journal { bytes_max: 4 << 20 }));
    assert!(journal.bytes().is_empty() && journal.step(names::KEYVALUE_GET).is_ok());
    assert_eq!(Reason::Journal { bytes_max: 4 << 20 }.to_string(), "its journal is larger than 4 MiB");
    let mut journal = Journal::record(unwritten(), BOUNDS);
    journal.step(names::KEYVALUE_GET).unwrap();
    for _ in 1..100 {
        journal.put_value(Vec::new());
    }
    assert!(journal.is_recording(), "the header and 99 values");
    journal.put_value(Vec::new());
    let given_up = Reason::Entries { entries_max: 100 };
    assert_eq!(journal.status(), JournalStatus::Demoted(given_up));
    assert_eq!(given_up.to_string(), "its journal has more than 100 entries");
}

/// What an entry costs, measured by hand: `cargo test --release -p bulkhead-runtime cost_of_entries -- --ignored
/// --nocapture`. It includes the step of its import, and two readings of the clock.
#[test]
#[ignore = "a measurement"]
fn cost_of_entries() {
    const JOURNALS: usize = 20;
    const ENTRIES: usize = 20_000;
    let bounds = Bounds { bytes_max: 4 << 20, entries_max: 100_000 };
    let mut took = Vec::with_capacity(JOURNALS * ENTRIES);
    for _ in 0..JOURNALS {
        let mut journal = Journal::record(unwritten(), bounds);
        for number in 0..ENTRIES {
            let value = vec![number as u8; 64];
            let begun = std::time::Instant::now();
            journal.step(names::KEYVALUE_GET).unwrap();
            journal.put_value(value);
            took.push(begun.elapsed());
        }
        assert!(journal.is_recording());
    }
    took.sort_unstable();
    let at = |part: f64| took[(took.len() as f64 * part) as usize];
    let median = at(0.5);
    let p99 = at(0.99);
    let most = took[took.len() - 1];
    eprintln!("an entry of 64 bytes: median {median:?}, p99 {p99:?}, longest {most:?}");
    assert!(p99 <= std::time::Duration::from_micros(20), "{p99:?}");
}
