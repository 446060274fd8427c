//! Golden bytes, what goes on from what, and decoding of anything at all.

use proptest::prelude::*;

use super::layout::{self, HEAD, check_piece, open_piece};
use super::*;
use crate::ROW_BYTES_MAX;
use crate::samples::{journal_head, requestor, tail, task_id};
use crate::vault::SealingKey;
use bulkhead_domain::task::DurableMarker;

fn name() -> TaskRef {
    TaskRef { requestor: requestor(1, 2), id: task_id(3) }
}

fn key() -> SealingKey {
    SealingKey::new(&[9; 32])
}

fn no_key() -> Result<SealingKey, Error> {
    panic!("a key is asked for")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(line: &str) -> Vec<u8> {
    let pairs = line.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// A head in each state.
fn heads() -> Vec<JournalHead> {
    let reason = "it used a file (open-at)".to_owned();
    let sound = journal_head();
    let demoted = JournalState::Demoted { reason: reason.clone() };
    vec![
        JournalHead { state: demoted, rows: 0, bytes: 0, wake_at: None, ..sound.clone() },
        JournalHead { state: JournalState::Diverged { reason }, cooperative: false, ..sound.clone() },
        sound,
    ]
}

#[test]
fn journal_head_has_golden_bytes() {
    let bytes: Vec<_> = heads().iter().map(|head| head.encode().unwrap()).collect();
    let lines: String = bytes.iter().map(|bytes| hex(bytes) + "\n").collect();
    assert_eq!(lines, include_str!("golden/head.hex"));
    for (bytes, head) in bytes.iter().zip(heads()) {
        assert_eq!(JournalHead::decode(bytes).unwrap(), head);
    }
}

#[test]
fn journal_pieces_have_golden_bytes() {
    let pieces = tail(1, 4, b"what the guest saw").pieces(&name(), None).unwrap();
    let lines: Vec<_> = include_str!("golden/piece.hex").lines().map(unhex).collect();
    let [clear, sealed] = lines.as_slice() else { panic!("two lines") };
    assert_eq!(pieces, std::slice::from_ref(clear));
    assert_eq!(open_piece(&name(), 5, clear, no_key).unwrap(), b"what the guest saw");
    assert_eq!(open_piece(&name(), 5, sealed, || Ok(key())).unwrap(), b"what the guest saw");
    let again = tail(1, 4, b"what the guest saw").pieces(&name(), Some(&key())).unwrap();
    assert_eq!(open_piece(&name(), 5, &again[0], || Ok(key())).unwrap(), b"what the guest saw");
}

#[test]
fn sealed_journal_piece_is_bound_to_its_place() {
    let sealed = tail(1, 0, b"secret").pieces(&name(), Some(&key())).unwrap().remove(0);
    assert!(!sealed.windows(6).any(|window| window == b"secret"));
    let other = TaskRef { id: task_id(4), ..name() };
    let foreign = TaskRef { requestor: requestor(1, 3), ..name() };
    for (task, number, secret) in [(name(), 2, 9), (other, 1, 9), (foreign, 1, 9), (name(), 1, 8)] {
        let opened = open_piece(&task, number, &sealed, || Ok(SealingKey::new(&[secret; 32])));
        assert!(matches!(opened, Err(Error::Corrupt(_))), "{opened:?}");
    }
}

#[test]
fn journal_rows_fit_into_rows() {
    let bytes = vec![7; 3 * PIECE_BYTES + 1];
    let append = tail(1, 2, &bytes);
    for sealing in [None, Some(key())] {
        let pieces = append.pieces(&name(), sealing.as_ref()).unwrap();
        assert_eq!(pieces.len(), 4);
        assert_eq!(append.rows_after(), 6);
        assert!(pieces.iter().all(|piece| piece.len() <= ROW_BYTES_MAX));
        let numbered = (3..).zip(&pieces);
        let read = numbered.map(|(number, piece)| open_piece(&name(), number, piece, || Ok(key())).unwrap());
        assert_eq!(read.collect::<Vec<_>>().concat(), bytes);
    }
    let reason = "ä".repeat(REASON_BYTES_MAX);
    let largest = JournalHead {
        version: HEAD_VERSION,
        attempt: u32::MAX,
        rows: u32::MAX,
        bytes: u64::MAX,
        step: u64::MAX,
        entries: u64::MAX,
        cpu_us: u64::MAX,
        wall_us: u64::MAX,
        resumes_since_growth: u32::MAX,
        cooperative: true,
        state: JournalState::Demoted { reason },
        wake_at: Some(u64::MAX),
    };
    let bytes = largest.encode().unwrap();
    assert!(bytes.len() <= 300, "{}", bytes.len());
    let kept = JournalState::Demoted { reason: "ä".repeat(REASON_BYTES_MAX / 2) };
    assert_eq!(JournalHead::decode(&bytes).unwrap(), JournalHead { state: kept, ..largest });
}

#[test]
fn journal_row_keys_say_whose_they_are() {
    for number in [HEAD, 1, u32::MAX] {
        let key = layout::row_key(&name(), number);
        assert_eq!(layout::parse_key(&key), Some((name(), number)));
        assert_eq!(crate::RowKind::Journal.tenant_of(&key), Some(name().requestor.tenant));
        assert_eq!(layout::parse_key(&key[1..]), None);
        assert_eq!(layout::parse_key(&[&key[..], &[0]].concat()), None);
    }
    assert!(layout::row_key(&name(), 2) < layout::row_key(&name(), 0x100));
}

#[test]
fn append_goes_on_from_what_is_there() {
    let head = journal_head();
    let attempt = head.attempt;
    let rows = head.rows;
    let after = |append: &Append, present: Option<&JournalHead>, record| append.onto(present, record).ok();
    // A journal begins at row 0, for the run that the record is at.
    assert_eq!(after(&tail(2, 0, b"abc"), None, Some(2)).unwrap().bytes, 3);
    assert_eq!(after(&tail(2, 1, b"abc"), None, Some(2)), None);
    assert_eq!(after(&tail(1, 0, b"abc"), None, Some(2)), None);
    // Later it goes on at the end, from the same run.
    let longer = after(&tail(attempt, rows, b"abc"), Some(&head), None).unwrap();
    assert_eq!((longer.rows, longer.bytes, longer.attempt), (rows + 1, head.bytes + 3, attempt));
    for (attempt, at_row) in [(attempt, rows - 1), (attempt, rows + 1), (attempt, 0), (attempt - 1, rows)] {
        assert_eq!(after(&tail(attempt, at_row, b"abc"), Some(&head), None), None);
    }
    // A later run takes it over with its record alone.
    let resuming = Append::resuming(&head, attempt + 1);
    assert_eq!(after(&resuming, Some(&head), None), None);
    assert_eq!(after(&resuming, Some(&head), Some(attempt)), None);
    let resumed = after(&resuming, Some(&head), Some(attempt + 1)).unwrap();
    let resumes_since_growth = head.resumes_since_growth + 1;
    assert_eq!(resumed, JournalHead { attempt: attempt + 1, resumes_since_growth, ..head.clone() });
    assert_eq!(after(&Append::resuming(&head, attempt - 1), Some(&head), Some(attempt - 1)), None);
    // What is demoted has no pieces.
    let state = JournalState::Demoted { reason: "r".to_owned() };
    let demotion = Append { head: HeadAfter { state, ..head.unchanged() }, ..tail(attempt, rows, b"abc") };
    let demoted = after(&demotion, Some(&head), None).unwrap();
    assert_eq!((demoted.rows, demoted.bytes, demotion.rows_after()), (0, 0, 0));
    assert_eq!(demotion.pieces(&name(), None).unwrap(), Vec::<Vec<u8>>::new());
}

#[test]
fn journal_holds_for_the_marked_run_alone() {
    let head = JournalHead { attempt: 2, ..journal_head() };
    let task = |attempt, durable| Task { attempt, durable, ..crate::samples::task(requestor(1, 1), 1) };
    assert!(head.is_of(&task(2, Some(DurableMarker::of_run(2, 7)))));
    assert!(!head.is_of(&task(3, Some(DurableMarker::of_run(2, 7)))), "another run took its place");
    assert!(!head.is_of(&task(3, Some(DurableMarker::of_run(3, 7)))), "it is of an earlier run");
    assert!(!head.is_of(&task(2, None)), "the run was not journaled");
    let newer = DurableMarker::new(bulkhead_domain::task::JOURNAL_VERSION + 1, 2, 7, Vec::new());
    assert!(!head.is_of(&task(2, newer)));
}

#[test]
fn newer_journal_head_is_refused_by_name() {
    let mut bytes = journal_head().encode().unwrap();
    bytes[0] = 2;
    let refused = JournalHead::decode(&bytes).unwrap_err().to_string();
    assert!(refused.contains("version 2"), "{refused}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decoding_random_journal_rows_never_panics(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        length in any::<prop::sample::Index>(),
    ) {
        crate::fuzz::journals(&bytes);
        for head in heads() {
            let mut changed = head.encode().unwrap();
            for (at, value) in &edits {
                let at = at.index(changed.len());
                changed[at] = *value;
            }
            changed.truncate(length.index(changed.len() + 1));
            crate::fuzz::journals(&changed);
        }
        let _ = check_piece(&bytes);
    }
}
