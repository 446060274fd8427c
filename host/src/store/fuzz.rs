//! Records made of anything.

use super::record;

/// Reads a record of a task and one of an output, as they are and with a checksum that is right. What can be read is written again and
/// reads the same.
pub(crate) fn records(data: &[u8]) {
    let mut sealed = data.to_vec();
    sealed.extend(crc32fast::hash(data).to_le_bytes());
    for bytes in [data, &sealed] {
        if let Ok(task) = record::decode_task(bytes)
            && let Ok(again) = record::encode_task(&task)
        {
            assert_eq!(record::decode_task(&again).ok(), Some(task));
        }
        if let Ok(output) = record::decode_output(bytes)
            && let Ok(again) = record::encode_output(&output)
        {
            let back = record::decode_output(&again).ok();
            // A number that is none is not even equal to itself.
            assert!(back.is_some(), "{output:?}");
        }
    }
}
