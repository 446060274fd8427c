//! What stands in a journal, for operators: each entry in its place, without what it says.
//!
//! Owns the words for kinds of entries. Must not read a body further than its kind: what a guest saw belongs to its requestor. Invariant:
//! listing is total, and says of the first bytes that are no entry which one they would be.

use super::codec::{Reader, Recorded};
use super::entry::{CommandKind, Corrupt};
use super::names::{HTTP_HANDLE, Import, TASK_ASK, TASK_SAFE_POINT};

/// One entry of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEntry {
    /// In the order of the journal; the header is 0.
    pub number: u32,
    /// The call of an import, counted from the begin, at which the guest saw it or asked for it.
    pub step: u64,
    /// What it is, in a word.
    pub kind: &'static str,
    /// The import that it is of, where an entry of this kind is always of the same.
    pub import: Option<String>,
    /// Bytes that it takes in the journal.
    pub bytes: u64,
}

/// All entries of a journal, in order.
///
/// # Errors
///
/// These bytes are no journal.
pub fn list(bytes: &[u8]) -> Result<Vec<ListedEntry>, Corrupt> {
    let mut reader = Reader::new(bytes);
    let (mut entries, mut step, mut number, mut asked_at) = (Vec::new(), 0_u64, 0_u32, None);
    while reader.left() > 0 {
        let corrupt = || Corrupt { number };
        let before = reader.left();
        let Frame { delta, what } = frame(&mut reader).ok_or_else(corrupt)?;
        step = step.checked_add(delta).ok_or_else(corrupt)?;
        let (kind, import) = match what {
            What::Question => {
                asked_at = Some(step);
                ("question", Some(TASK_ASK))
            }
            What::Plain("value") if asked_at == Some(step) => ("answer", Some(TASK_ASK)),
            What::Request => ("request", Some(HTTP_HANDLE)),
            What::Plain(kind @ ("outcome" | "delivery")) => (kind, Some(HTTP_HANDLE)),
            What::Plain(kind @ "signals") => (kind, Some(TASK_SAFE_POINT)),
            What::Plain(kind) => (kind, None),
        };
        let (import, bytes) = (import.map(|import: Import| import.to_string()), (before - reader.left()) as u64);
        entries.push(ListedEntry { number, step, kind, import, bytes });
        number = number.checked_add(1).ok_or_else(corrupt)?;
    }
    Ok(entries)
}

struct Frame {
    /// Steps since the entry before.
    delta: u64,
    what: What,
}

enum What {
    Question,
    Request,
    Plain(&'static str),
}

fn frame(reader: &mut Reader<'_>) -> Option<Frame> {
    let length = reader.varint()?.try_into().ok()?;
    let mut body = Reader::new(reader.take(length)?);
    let delta = body.varint()?;
    let what = match u8::read(&mut body)? {
        1 => What::Plain("header"),
        2 => What::Plain("clock"),
        3 => match CommandKind::read(&mut body)? {
            CommandKind::Question => What::Question,
            CommandKind::Request => What::Request,
        },
        4 => What::Plain("outcome"),
        5 => What::Plain("delivery"),
        6 => What::Plain("value"),
        7 => What::Plain("signals"),
        8 => What::Plain("promoted"),
        10 => What::Plain("mark"),
        11 => What::Plain("end"),
        _ => return None,
    };
    Some(Frame { delta, what })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bulkhead_metrics::demotion_label;

    use super::super::class::Reason;
    use super::super::entry::{Command, Entry, write};
    use super::*;

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
            (303, Entry::End { hash: 9, digest: [1; 8] }),
        ];
        let (mut bytes, mut last) = (Vec::new(), 0);
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
            (303, "end", None),
        ];
        let shown: Vec<_> = listed.iter().map(|entry| (entry.step, entry.kind, entry.import.as_deref())).collect();
        assert_eq!(shown, expected);
        assert!(listed.iter().zip(0..).all(|(entry, number)| entry.number == number));
        assert_eq!(listed.iter().map(|entry| entry.bytes).sum::<u64>(), bytes.len() as u64, "no byte is left out");
        let told = format!("{listed:?}");
        assert!(!["keeps", "response"].iter().any(|secret| told.contains(secret)), "{told}");
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
        assert_eq!(list(&bytes[..bytes.len() - 1]), Err(Corrupt { number: 10 }), "broken off");
        assert_eq!(list(&[2, 0, 9]), Err(Corrupt { number: 0 }), "a kind that there is not");
        assert_eq!(list(&[&bytes[..], &[0]].concat()), Err(Corrupt { number: 11 }), "an entry without a kind");
    }
}
