//! Golden bytes, and decoding of anything at all.

use proptest::prelude::*;

use super::super::samples::{full_output, full_task, other_outputs, requestor, task, traced_task};
use super::*;
use crate::vault::SealingKey;
use bulkhead_domain::Json;
use bulkhead_domain::call::{CallError, ClientFeature, FaultKind};
use bulkhead_domain::task::{Active, DurableMarker, Holder, Outcome, Phase, Retention, Task};
use bulkhead_domain::timeline::{TIMELINE_MAX, Timeline, TimelineEntry, Transition};
use bulkhead_domain::trace::TraceContext;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn full_task_has_the_golden_bytes_of_version_1() {
    let bytes = encode_task(&full_task()).unwrap();
    assert_eq!(hex(&bytes), include_str!("golden/task.v1.hex").trim());
    assert_eq!(decode_task(&bytes).unwrap(), full_task());
}

#[test]
fn full_output_has_the_golden_bytes_of_version_1() {
    let bytes = encode_output(&full_output()).unwrap();
    assert_eq!(hex(&bytes), include_str!("golden/output.v1.hex").trim());
    assert_eq!(decode_output(&bytes).unwrap(), full_output());
}

/// The full task, doing something else than calling a tool.
fn other_tasks() -> impl Iterator<Item = Task> {
    let works = [Work::Resource, Work::Prompt, Work::Completion, Work::Answered];
    works.into_iter().map(|work| Task { work, ..full_task() })
}

#[test]
fn non_tool_task_has_golden_bytes_of_version_2() {
    let tasks: Vec<_> = other_tasks().map(|task| (encode_task(&task).unwrap(), task)).collect();
    let outputs: Vec<_> = other_outputs().into_iter().map(|output| (encode_output(&output).unwrap(), output)).collect();
    let lines = tasks.iter().map(|(bytes, _)| bytes).chain(outputs.iter().map(|(bytes, _)| bytes));
    let lines: String = lines.map(|bytes| hex(bytes) + "\n").collect();
    assert_eq!(lines, include_str!("golden/other.v2.hex"));
    for (bytes, task) in tasks {
        assert_eq!((bytes[0], decode_task(&bytes).unwrap()), (SECOND, task));
    }
    for (bytes, output) in outputs {
        assert_eq!((bytes[0], decode_output(&bytes).unwrap()), (SECOND, output));
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

/// What the golden bytes of version 3 were sealed with, and for.
fn sealed_with() -> (SealingKey, Task) {
    (SealingKey::new(&[9; 32]), full_task())
}

fn unhex(line: &str) -> Vec<u8> {
    let pairs = line.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

#[test]
fn sealed_task_of_version_3_can_be_opened() {
    let (key, task) = sealed_with();
    let owner = Owner { requestor: &task.requestor, id: task.id };
    let lines: Vec<_> = include_str!("golden/sealed.v3.hex").lines().map(unhex).collect();
    let [record, output, arguments] = lines.as_slice() else { panic!("three lines") };
    assert_eq!((record[0], output[0]), (THIRD, THIRD));
    assert_eq!(open_task(record, |_| Ok(key.clone())).unwrap(), task);
    assert_eq!(open_output(output, owner, || Ok(key.clone())).unwrap(), full_output());
    assert_eq!(open_arguments(arguments.clone(), owner, || Ok(key.clone())).unwrap(), b"{\"a\":1}");
    // Without the key one sees how the task stands, and nothing that anybody wrote.
    let outline = decode_task(record).unwrap();
    assert_eq!((outline.id, outline.revision, outline.expires_at()), (task.id, task.revision, task.expires_at()));
    assert!(outline.inputs.is_empty() && outline.steering.is_empty() && outline.status_message.is_none());
    assert!(decode_output(output).is_err());
}

/// Tasks that version 4 alone can write: of every kind of work, and with one of its members each.
fn traced_tasks() -> Vec<Task> {
    let alone = |change: fn(&mut Task)| {
        let mut task = task(requestor(1, 2), 3);
        change(&mut task);
        task
    };
    vec![
        traced_task(),
        Task { work: Work::Resource, ..traced_task() },
        alone(|task| task.origin.trace = TraceContext::new([1; 16], [2; 8], false)),
        alone(|task| {
            let entry = TimelineEntry { at: 4, transition: Transition::Paused };
            task.timeline = Timeline::restored(vec![entry], 0).unwrap();
        }),
        alone(|task| task.holder = Holder::new("h")),
        alone(|task| task.durable = DurableMarker::new(1, 0, 7, Vec::new())),
    ]
}

#[test]
fn task_with_trace_timeline_holder_or_marker_has_golden_bytes_of_version_4() {
    let tasks = traced_tasks();
    let bytes: Vec<_> = tasks.iter().map(|task| encode_task(task).unwrap()).collect();
    let lines: String = bytes.iter().map(|bytes| hex(bytes) + "\n").collect();
    assert_eq!(lines, include_str!("golden/task.v4.hex"));
    for (bytes, task) in bytes.iter().zip(tasks) {
        assert_eq!((bytes[0], decode_task(bytes).unwrap()), (FOURTH, task));
    }
}

#[test]
fn sealed_task_of_version_4_can_be_opened_and_hides_its_trace() {
    let (key, task) = (SealingKey::new(&[9; 32]), traced_task());
    let record = unhex(include_str!("golden/sealed.v4.hex").trim());
    assert_eq!(record[0], FOURTH);
    assert_eq!(open_task(&record, |_| Ok(key.clone())).unwrap(), task);
    let outline = decode_task(&record).unwrap();
    assert_eq!((outline.id, &outline.timeline, &outline.holder), (task.id, &task.timeline, &task.holder));
    assert!(outline.origin.trace.is_none() && outline.inputs.is_empty());
    let trace = task.origin.trace.unwrap();
    assert!(!record.windows(8).any(|window| window == trace.parent_id), "the trace is legible");
    // A fresh seal reads the same, and a task that needs no version 4 is sealed in version 3.
    assert_eq!(open_task(&seal_task(&task, &key).unwrap(), |_| Ok(key.clone())).unwrap(), task);
    assert_eq!(seal_task(&full_task(), &key).unwrap()[0], THIRD);
}

#[test]
fn record_that_says_more_than_a_task_can_hold_is_corrupt() {
    let bytes = encode_task(&traced_tasks()[4]).unwrap();
    let body = &bytes[1..bytes.len() - CHECKSUM_BYTES];
    // The holder `h` and then no marker and no trace end the record; here it has a name that is too long.
    let (before, end) = body.split_at(body.len() - 4);
    assert_eq!(end, [1, b'h', 0, 0]);
    let mut changed = [&[FOURTH], before, &[65], &[b'h'; 65][..], &[0, 0]].concat();
    changed.extend_from_slice(&crc32fast::hash(&changed).to_le_bytes());
    assert!(matches!(decode_task(&changed), Err(Error::Corrupt(_))));
    assert_eq!(traced_task().timeline.entries().len(), TIMELINE_MAX);
}

#[test]
fn newer_record_version_is_refused_by_name() {
    let mut bytes = encode_task(&full_task()).unwrap();
    bytes.truncate(bytes.len() - CHECKSUM_BYTES);
    bytes[0] = FOURTH + 1;
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    let refused = decode_task(&bytes).unwrap_err().to_string();
    assert!(refused.contains("version 5"), "{refused}");
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
        let younger = traced_task();
        let tasks = [full_task(), younger].into_iter().chain(other_tasks()).map(|task| encode_task(&task).unwrap());
        let outputs = std::iter::once(full_output()).chain(other_outputs()).map(|output| encode_output(&output).unwrap());
        for original in tasks.chain(outputs) {
            let version = original[0];
            let mut bytes = original[..original.len() - CHECKSUM_BYTES].to_vec();
            for (at, value) in &edits {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            bytes.truncate(1 + length.index(bytes.len()));
            bytes[0] = version;
            let checksum = crc32fast::hash(&bytes);
            bytes.extend_from_slice(&checksum.to_le_bytes());
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
