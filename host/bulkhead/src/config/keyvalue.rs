//! `[plugin.kv]`: what a plugin may keep. Writing the table is the grant, with the defaults for what is not in it.

use toml::de::DeValue;

use super::document::{Node, Reader};
use bulkhead_domain::limits::KeyValueLimits;
use bulkhead_store::keyvalue::VALUE_BYTES_MAX;

const KEYS: (&str, u64, u64, &str) =
    ("keys_max", 10_000, 1_000_000, "keys that one plugin may keep in one tenant, expired ones until they are removed");
const BYTES: (&str, u64, u64, &str) = ("bytes_max", 16 << 20, 16 << 30, "keys and values of one plugin in one tenant");
const VALUE_BYTES: (&str, u64, u64, &str) = ("value_bytes_max", 64 << 10, VALUE_BYTES_MAX, "one kept value");

/// Name, default, maximum and meaning of each number.
pub(super) fn numbers() -> [(&'static str, u64, u64, &'static str); 3] {
    [KEYS, BYTES, VALUE_BYTES]
}

/// The grant that an empty table is.
pub(super) fn defaults() -> KeyValueLimits {
    let (keys_max, bytes_max, value_bytes_max) = (KEYS.1, BYTES.1, VALUE_BYTES.1);
    KeyValueLimits { keys_max: u32::try_from(keys_max).unwrap_or(u32::MAX), bytes_max, value_bytes_max }
}

/// Reads the table; `None` when it is none.
pub(super) fn read(reader: &mut Reader<'_>, path: &str, node: &Node<'_>) -> Option<KeyValueLimits> {
    let table = reader.table(path, node)?;
    let mut limits = defaults();
    for (key, node) in table {
        let path = format!("{path}.{}", key.get_ref());
        let mut number = |(_, default, max, _): (&str, u64, u64, &str)| {
            let found = match node.get_ref() {
                DeValue::Integer(integer) => u64::from_str_radix(integer.as_str(), integer.radix()).ok(),
                _ => None,
            };
            found.filter(|number| (1..=max).contains(number)).unwrap_or_else(|| {
                reader.refuse(node, format!("{path}: must be a whole number from 1 to {max}"));
                default
            })
        };
        match key.get_ref().as_ref() {
            "keys_max" => limits.keys_max = u32::try_from(number(KEYS)).unwrap_or(u32::MAX),
            "bytes_max" => limits.bytes_max = number(BYTES),
            "value_bytes_max" => limits.value_bytes_max = number(VALUE_BYTES),
            _ => reader.refuse(key, format!("{path}: no such key; there are keys_max, bytes_max and value_bytes_max")),
        }
    }
    Some(limits)
}
