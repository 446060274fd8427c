//! Golden bytes, and decoding of anything at all.

use proptest::prelude::*;

use super::super::samples::{full_output, full_task, other_outputs, requestor, task};
use super::*;
use crate::vault::SealingKey;
use bulkhead_domain::Json;
use bulkhead_domain::call::{CallError, ClientFeature, FaultKind};
use bulkhead_domain::task::{Active, Outcome, Phase, Retention, Task};

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

#[test]
fn sealed_task_of_version_3_can_be_opened() {
    let (key, task) = sealed_with();
    let owner = Owner { requestor: &task.requestor, id: task.id };
    let bytes = |line: &str| -> Vec<u8> {
        let pairs = line.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    };
    let lines: Vec<_> = include_str!("golden/sealed.v3.hex").lines().map(bytes).collect();
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

#[test]
fn newer_record_version_is_refused_by_name() {
    let mut bytes = encode_task(&full_task()).unwrap();
    bytes.truncate(bytes.len() - CHECKSUM_BYTES);
    bytes[0] = THIRD + 1;
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    let refused = decode_task(&bytes).unwrap_err().to_string();
    assert!(refused.contains("version 4"), "{refused}");
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
        let tasks = std::iter::once(full_task()).chain(other_tasks()).map(|task| encode_task(&task).unwrap());
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
