//! Records and journals made of anything.

use super::journal::layout::{check_piece, open_piece, parse_key};
use super::journal::{JournalHead, TaskRef};
use super::record::{self, Owner};
use crate::vault::SealingKey;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_domain::task::{Task, TaskId};

/// Reads a record of a task and one of an output, as they are and with a checksum that is right. What can be read is
/// written again, openly and sealed, and reads the same.
pub fn records(data: &[u8]) -> bool {
    let mut sealed = data.to_vec();
    sealed.extend(crc32fast::hash(data).to_le_bytes());
    let key = || Ok(SealingKey::new(&[7; 32]));
    let mut is_read = false;
    for bytes in [data, &sealed] {
        let _ = record::check_output(bytes);
        if let Ok(task) = record::open_task(bytes, |_| key()) {
            is_read = true;
            written_again(task, &SealingKey::new(&[7; 32]));
        }
        let requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([2; 16]) };
        let id = TaskId([3; 16]);
        if let Ok(output) = record::open_output(bytes, Owner { requestor: &requestor, id }, key)
            && let Ok(again) = record::encode_output(&output)
        {
            is_read = true;
            let back = record::decode_output(&again).ok();
            // A number that is none is not even equal to itself.
            assert!(back.is_some(), "{output:?}");
        }
    }
    is_read
}

/// Reads a head of a journal, a piece of one, and a key. What can be read is written again and reads the same.
pub fn journals(data: &[u8]) -> bool {
    let _ = parse_key(data);
    let requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([2; 16]) };
    let task = TaskRef { requestor, id: TaskId([3; 16]) };
    if open_piece(&task, 1, data, || Ok(SealingKey::new(&[7; 32]))).is_ok() {
        assert!(check_piece(data).is_ok());
    }
    let Ok(head) = JournalHead::decode(data) else { return false };
    assert_eq!(head.encode().and_then(|again| JournalHead::decode(&again)).ok(), Some(head));
    true
}

fn written_again(task: Task, key: &SealingKey) {
    if let Ok(sealed) = record::seal_task(&task, key) {
        assert!(record::decode_task(&sealed).is_ok_and(|outline| outline.id == task.id));
        assert_eq!(record::open_task(&sealed, |_| Ok(SealingKey::new(&[7; 32]))).as_ref().ok(), Some(&task));
    }
    if let Ok(again) = record::encode_task(&task) {
        assert_eq!(record::decode_task(&again).ok(), Some(task));
    }
}

#[cfg(test)]
mod corpus {
    use std::path::Path;

    use bulkhead_domain::testing::replay_corpus;

    #[test]
    fn corpus_is_replayed() {
        let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz");
        replay_corpus(&fuzz, "records", super::records);
        replay_corpus(&fuzz, "journal_rows", super::journals);
    }
}
