//! `[encryption]`: where the keys are with which stored tasks are sealed.

use super::SecretLocation;
use super::document::{Node, Reader};

/// Reads the section; without one, nothing is sealed.
pub(super) fn read(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<SecretLocation> {
    let table = reader.table("encryption", node)?;
    let mut place = None;
    for (key, node) in table {
        let path = format!("encryption.{}", key.get_ref());
        let found = match key.get_ref().as_ref() {
            "key_file" => reader.text(&path, node).map(|text| SecretLocation::File(reader.path(&text))),
            "key_env" => reader.text(&path, node).map(SecretLocation::Variable),
            "key" => {
                reader.refuse(node, "encryption.key: keys are not kept in the configuration; use key_file or key_env");
                return None;
            }
            _ => {
                reader.refuse(key, format!("{path}: no such key; there are key_file and key_env"));
                return None;
            }
        };
        if place.is_some() {
            reader.refuse(key, "encryption: either key_file or key_env, not both");
        }
        place = found.or(place);
    }
    if table.is_empty() {
        reader.refuse(node, "encryption: needs key_file, a file of keys, or key_env, the name of a variable with them");
    }
    place
}
