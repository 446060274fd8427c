//! Golden bytes, and decoding of anything at all.

use proptest::prelude::*;

use super::super::samples::{full_output, full_task, other_outputs, requestor, task, traced_task};
use super::*;
use crate::vault::SealingKey;
use bulkhead_domain::Json;
use bulkhead_domain::call::{CallError, ClientFeature, FaultKind};
use bulkhead_domain::task::{Active, DurableMarker, Holder, Outcome, Phase, Retention, Task, TaskOutput, Work};
use bulkhead_domain::timeline::{TIMELINE_MAX, Timeline, TimelineEntry, Transition};
use bulkhead_domain::trace::TraceContext;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The version of [`Format::Next`], and the number that stands behind its tasks.
pub(super) const NEXT: u8 = VERSION + 1;
pub(super) const NUMBER: u32 = 77;

/// Tasks in which every member is used, of every kind of work, and with one of the optional members each.
fn tasks() -> Vec<Task> {
    let works = [Work::Resource, Work::Prompt, Work::Completion, Work::Answered];
    let alone = |change: fn(&mut Task)| {
        let mut task = task(requestor(1, 2), 3);
        change(&mut task);
        task
    };
    let members = [
        alone(|task| task.origin.trace = TraceContext::new([1; 16], [2; 8], false)),
        alone(|task| {
            let entry = TimelineEntry { at: 4, transition: Transition::Paused };
            task.timeline = Timeline::restored(vec![entry], 0).unwrap();
        }),
        alone(|task| task.holder = Holder::new("h")),
        alone(|task| task.durable = DurableMarker::new(1, 0, 7, Vec::new())),
    ];
    let others = works.into_iter().map(|work| Task { work, ..full_task() });
    [full_task(), traced_task()].into_iter().chain(others).chain(members).collect()
}

/// An output of every kind.
fn outputs() -> Vec<TaskOutput> {
    std::iter::once(full_output()).chain(other_outputs()).collect()
}

fn hex_lines(records: impl IntoIterator<Item = Vec<u8>>) -> String {
    records.into_iter().map(|bytes| hex(&bytes) + "\n").collect()
}

/// A task, an output and arguments that are sealed.
fn sealed() -> [Vec<u8>; 3] {
    let SealedSample { key, task } = SealedSample::new();
    let record = seal_task(&task, &key).unwrap();
    let output = seal_output(&full_output(), Owner::of(&task), &key).unwrap();
    [record, output, seal_arguments("{\"a\":1}", Owner::of(&task), &key).unwrap()]
}

/// What the golden bytes were sealed with, and for.
struct SealedSample {
    key: SealingKey,
    task: Task,
}

impl SealedSample {
    fn new() -> Self {
        Self { key: SealingKey::new(&[9; 32]), task: traced_task() }
    }
}

#[test]
#[ignore = "writes what the other tests read, for a new format"]
fn golden_bytes_are_made() {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/record/golden");
    let write = |name: &str, lines: String| std::fs::write(golden.join(name), lines).unwrap();
    write("task.hex", hex_lines(tasks().iter().map(|task| encode_task(task).unwrap())));
    write("output.hex", hex_lines(outputs().iter().map(|output| encode_output(output).unwrap())));
    write("sealed.hex", hex_lines(sealed()));
}

#[test]
fn tasks_have_their_golden_bytes() {
    let records: Vec<_> = tasks().iter().map(|task| encode_task(task).unwrap()).collect();
    assert_eq!(hex_lines(records.clone()), include_str!("golden/task.hex"));
    for (record, task) in records.iter().zip(tasks()) {
        assert_eq!((record[0], decode_task(record).unwrap()), (VERSION, task));
    }
}

#[test]
fn outputs_have_their_golden_bytes() {
    let records: Vec<_> = outputs().iter().map(|output| encode_output(output).unwrap()).collect();
    assert_eq!(hex_lines(records.clone()), include_str!("golden/output.hex"));
    for (record, output) in records.iter().zip(outputs()) {
        assert_eq!((record[0], decode_output(record).unwrap()), (VERSION, output));
    }
}

#[test]
fn golden_sealed_bytes_can_be_opened_with_their_key_alone() {
    let SealedSample { key, task } = SealedSample::new();
    let lines: Vec<_> = include_str!("golden/sealed.hex").lines().map(unhex).collect();
    for [record, output, arguments] in [<[Vec<u8>; 3]>::try_from(lines).unwrap(), sealed()] {
        assert_eq!((record[0], output[0]), (VERSION, VERSION));
        assert_eq!(open_task(&record, |_| Ok(key.clone())).unwrap(), task);
        assert_eq!(open_output(&output, Owner::of(&task), || Ok(key.clone())).unwrap(), full_output());
        assert_eq!(open_arguments(arguments, Owner::of(&task), || Ok(key.clone())).unwrap(), b"{\"a\":1}");
        // Without the key one sees how the task stands, and nothing that a person or a program outside wrote.
        let outline = decode_task(&record).unwrap();
        assert_eq!((outline.id, outline.revision, outline.expires_at()), (task.id, task.revision, task.expires_at()));
        assert_eq!((&outline.timeline, &outline.holder), (&task.timeline, &task.holder));
        assert!(outline.inputs.is_empty() && outline.steering.is_empty() && outline.status_message.is_none());
        assert!(outline.origin.trace.is_none() && outline.origin.progress_token.is_none());
        let trace = task.origin.trace.unwrap();
        assert!(!record.windows(8).any(|window| window == trace.parent_id), "the trace is legible");
        assert!(decode_output(&output).is_err());
        check_output(&output).unwrap();
    }
}

#[test]
fn every_task_phase_and_retention_round_trips() {
    let custom = CallError::Custom { code: -7, message: "m".to_owned(), data: Some(Json::new("1")) };
    let errors = [
        CallError::InvalidParams("p".to_owned()),
        CallError::NotFound("n".to_owned()),
        CallError::MissingCapability(ClientFeature::Roots),
        custom,
        CallError::Fault { kind: FaultKind::Deadline, reason: "late".to_owned() },
        CallError::Internal { incident: "i".to_owned() },
        CallError::Interrupted,
    ];
    let mut phases: Vec<Phase> = errors.into_iter().map(|error| Phase::Ended(Outcome::Error(error))).collect();
    phases.push(Phase::Ended(Outcome::Cancelled));
    phases.push(Phase::Ended(Outcome::Output { is_error: true }));
    for active in [Active::Queued, Active::Running, Active::InputRequired] {
        phases.push(Phase::Active(active));
        phases.push(Phase::Paused { before: active });
    }
    let retentions = [
        Retention::FromCreation { ttl_ms: u64::MAX },
        Retention::FromCompletion { keep_alive_ms: 0 },
        Retention::Unlimited,
    ];
    let mut seen = std::collections::HashSet::new();
    for phase in phases {
        for retention in retentions {
            let wanted = Task { phase: phase.clone(), retention, ..task(requestor(1, 2), 3) };
            let bytes = encode_task(&wanted).unwrap();
            assert_eq!(decode_task(&bytes).unwrap(), wanted);
            assert!(seen.insert(bytes), "two different tasks have the same bytes");
        }
    }
}

fn unhex(line: &str) -> Vec<u8> {
    let pairs = line.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// The same bytes with another version, and a checksum that fits.
fn with_version(version: u8, record: &[u8]) -> Vec<u8> {
    let mut bytes = record[..record.len() - CHECKSUM_BYTES].to_vec();
    bytes[0] = version;
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn record_that_says_more_than_a_task_can_hold_is_corrupt() {
    let held = Task { holder: Holder::new("h"), ..task(requestor(1, 2), 3) };
    let bytes = encode_task(&held).unwrap();
    let body = &bytes[1..bytes.len() - CHECKSUM_BYTES];
    // The holder `h` and then no marker end the record; here it has a name that is too long.
    let (before, end) = body.split_at(body.len() - 3);
    assert_eq!(end, [1, b'h', 0]);
    let changed = [&[VERSION], before, &[65], &[b'h'; 65][..], &[0], &[0; CHECKSUM_BYTES]].concat();
    let refused = decode_task(&with_version(VERSION, &changed)).unwrap_err();
    assert!(matches!(&refused, Error::Corrupt(reason) if reason.contains("a holder")), "{refused}");
    assert_eq!(traced_task().timeline.entries().len(), TIMELINE_MAX);
}

#[test]
fn second_format_is_read_beside_the_first() {
    let SealedSample { key, task } = SealedSample::new();
    let open = write_task(Format::Next, StoredTask::Open(task.to_repr())).unwrap();
    assert_eq!((open[0], decode_task(&open).unwrap()), (NEXT, task.clone()));
    let sealed = sealed::seal_task_as(Format::Next, &task, &key).unwrap();
    assert_eq!((sealed[0], open_task(&sealed, |_| Ok(key.clone())).unwrap()), (NEXT, task.clone()));
    assert_eq!(decode_task(&sealed).unwrap().id, task.id);
    // What is written is the choice of one place.
    assert_eq!(Format::of(encode_task(&task).unwrap()[0]).unwrap(), Format::WRITTEN);
}

#[test]
fn record_of_another_version_is_refused_by_name() {
    let record = encode_task(&full_task()).unwrap();
    let newer = decode_task(&with_version(NEXT + 1, &record)).unwrap_err().to_string();
    assert!(newer.contains("version 7") && newer.contains("use a newer one"), "{newer}");
    for version in 0..VERSION {
        assert!(matches!(decode_task(&with_version(version, &record)), Err(Error::Unreleased)), "{version}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decoding_random_record_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(decode_task(&bytes).is_err());
        prop_assert!(decode_output(&bytes).is_err());
    }

    #[test]
    fn changed_record_byte_fails_its_checksum(at in any::<prop::sample::Index>(), bits in 1u8..) {
        let mut bytes = encode_task(&full_task()).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= bits;
        prop_assert!(decode_task(&bytes).is_err());
    }

    /// With a checksum that fits, so that the decoder itself sees the change.
    #[test]
    fn decoding_changed_record_never_panics(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        length in any::<prop::sample::Index>(),
    ) {
        let tasks = tasks().into_iter().map(|task| encode_task(&task).unwrap());
        let outputs = outputs().into_iter().map(|output| encode_output(&output).unwrap());
        for original in tasks.chain(outputs) {
            let mut bytes = original[..original.len() - CHECKSUM_BYTES].to_vec();
            for (at, value) in &edits {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            bytes.truncate(1 + length.index(bytes.len()));
            bytes.extend_from_slice(&[0; CHECKSUM_BYTES]);
            let bytes = with_version(VERSION, &bytes);
            // Whatever it is read as, reading it ends in an answer.
            if let Ok(read) = decode_task(&bytes) {
                prop_assert_eq!(decode_task(&encode_task(&read).unwrap()).unwrap(), read);
            }
            if let Ok(read) = decode_output(&bytes) {
                let again = decode_output(&encode_output(&read).unwrap()).unwrap();
                prop_assert_eq!(format!("{again:?}"), format!("{read:?}"));
            }
        }
    }
}
