//! What operators read of a journal, against what a journal is written with.

use std::collections::BTreeSet;

use bulkhead_metrics::demotion_label;

use super::checkpoint::Checkpoint;
use super::entry::{Command, CommandKind, Entry, write};
use bulkhead_calls::journal::{Corrupt, Reason, list};

fn state() -> Checkpoint {
    Checkpoint { state: b"a state".to_vec(), ..Checkpoint::default() }
}

fn journal() -> Vec<u8> {
    let command = |kind, number| Entry::Command(Command { kind, number, hash: 7, digest: [1; 8] });
    let value = |bytes: &[u8]| Entry::Value { hash: 7, bytes: bytes.to_vec() };
    let entries = [
        (2, Entry::Clock(5)),
        (2, value(b"what a guest keeps")),
        (4, command(CommandKind::Question, 1)),
        (4, Entry::Mark { hash: 9 }),
        (4, value(b"an answer")),
        (300, command(CommandKind::Request, 2)),
        (300, Entry::Outcome { number: 2, bytes: b"a response".to_vec() }),
        (301, Entry::Delivery(2)),
        (302, Entry::Signals(1)),
        (303, Entry::Promoted("t".to_owned())),
        (303, Entry::Checkpoint { hash: 9, digest: state().digest() }),
        (303, Entry::State(Box::new(state()))),
        (303, Entry::Sleep),
        (303, Entry::End { hash: 9, digest: [1; 8] }),
    ];
    let mut bytes = Vec::new();
    let mut last = 0;
    for (step, entry) in entries {
        write(&entry, step, last, &mut bytes);
        last = step;
    }
    bytes
}

#[test]
fn entries_are_listed_by_step_and_kind_without_what_they_say() {
    let bytes = journal();
    let listed = list(&bytes).unwrap();
    let ask = "ask of bulkhead:plugin/task";
    let http = "handle of wasi:http/outgoing-handler";
    let expected = [
        (2, "clock", None),
        (2, "value", None),
        (4, "question", Some(ask)),
        (4, "mark", None),
        (4, "answer", Some(ask)),
        (300, "request", Some(http)),
        (300, "outcome", Some(http)),
        (301, "delivery", Some(http)),
        (302, "signals", Some("safe-point of bulkhead:plugin/task")),
        (303, "promoted", None),
        (303, "checkpoint", Some("checkpoint of bulkhead:plugin/task")),
        (303, "state", Some("checkpoint of bulkhead:plugin/task")),
        (303, "sleep", Some("sleep of bulkhead:plugin/task")),
        (303, "end", None),
    ];
    let shown: Vec<_> = listed.iter().map(|entry| (entry.step, entry.kind, entry.import.as_deref())).collect();
    assert_eq!(shown, expected);
    assert!(listed.iter().zip(0..).all(|(entry, number)| entry.number == number));
    assert_eq!(listed.iter().map(|entry| entry.bytes).sum::<u64>(), bytes.len() as u64, "no byte is left out");
    let told = format!("{listed:?}");
    assert!(!["keeps", "response", "a state"].iter().any(|secret| told.contains(secret)), "{told}");
}

#[test]
fn every_reason_to_give_a_journal_up_has_a_label_of_its_own() {
    let bytes_max = 1 << 20;
    let reasons = [
        Reason::Concurrent,
        Reason::Files,
        Reason::Settings { bytes_max: 1 << 20 },
        Reason::Journal { bytes_max },
        Reason::Entries { entries_max: 1 },
        Reason::Response { bytes_max },
        Reason::Memory,
        Reason::EventStream,
        Reason::OpenRequest,
    ];
    let labels: BTreeSet<_> = reasons.iter().map(|reason| demotion_label(&reason.to_string())).collect();
    assert_eq!((labels.len(), labels.contains("other")), (reasons.len(), false), "{labels:?}");
}

#[test]
fn bytes_that_are_no_journal_are_named_by_the_first_wrong_entry() {
    let bytes = journal();
    assert_eq!(list(&[]), Ok(Vec::new()));
    assert_eq!(list(&bytes[..bytes.len() - 1]), Err(Corrupt { number: 13 }), "broken off");
    assert_eq!(list(&[2, 0, 14]), Err(Corrupt { number: 0 }), "a kind that there is not");
    assert_eq!(list(&[&bytes[..], &[0]].concat()), Err(Corrupt { number: 14 }), "an entry without a kind");
}
