//! `[[trust]]`: who must have signed what comes from where.

use std::path::PathBuf;

use super::ConfigLocation;
use super::document::{Node, Reader};
use super::plugin::choice;
use bulkhead_plugins::Pinning;
use bulkhead_plugins::sources::Pattern;

/// One rule, its keys not read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TrustConfig {
    pub pattern: Pattern,
    /// Files with a public key each. Empty: nobody needs to sign.
    pub keys: Vec<PathBuf>,
    /// Whether a signature from a registry must also name the repository that it came from.
    pub same_repository: bool,
    /// What becomes of accepted definitions that a version from there changes.
    pub changed_definitions: Option<Pinning>,
    /// Where it was written.
    pub place: ConfigLocation,
}

/// Reads every `[[trust]]`.
pub(super) fn read(reader: &mut Reader<'_>, node: &Node<'_>) -> Vec<TrustConfig> {
    let Some(array) = node.get_ref().as_array() else {
        reader.refuse(node, "trust: write [[trust]] with two brackets, once for each rule");
        return Vec::new();
    };
    array.iter().filter_map(|node| read_one(reader, node)).collect()
}

fn read_one(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<TrustConfig> {
    let table = reader.table("trust", node)?;
    let place = reader.place_of(node);
    let (mut pattern, mut keys, mut unsigned, mut same_repository) = (None, Vec::new(), false, false);
    let mut changed_definitions = None;
    for (key, node) in table {
        let path = format!("trust.{}", key.get_ref());
        match key.get_ref().as_ref() {
            "source" => pattern = Some(read_pattern(reader, &path, node)?),
            "keys" => {
                let files = reader.list(&path, node).iter();
                keys = files.filter_map(|node| reader.text(&path, node).map(|text| reader.path(&text))).collect();
            }
            word @ ("unsigned" | "same_repository") => match (node.get_ref().as_bool(), word) {
                (Some(value), "unsigned") => unsigned = value,
                (Some(value), _) => same_repository = value,
                (None, _) => reader.refuse(node, format!("{path}: must be true or false")),
            },
            "changed_definitions" => changed_definitions = read_pinning(reader, &path, node),
            _ => reader.refuse(
                key,
                format!(
                    "{path}: no such key; there are source, keys, same_repository, unsigned and changed_definitions"
                ),
            ),
        }
    }
    let Some(pattern) = pattern else {
        reader.refuse(
            node,
            "trust.source: missing; name the sources that the rule is for, like \"https://example.com/**\"",
        );
        return None;
    };
    if keys.is_empty() != unsigned {
        reader.refuse(node, "trust.keys: name the public keys that may sign, or say unsigned = true, not both");
    }
    Some(TrustConfig { pattern, keys, same_repository, changed_definitions, place })
}

/// What becomes of changed definitions: of a source, or for a tenant.
pub(super) fn read_pinning(reader: &mut Reader<'_>, path: &str, node: &Node<'_>) -> Option<Pinning> {
    choice(reader, path, node, &[("hold", Pinning::Hold), ("show", Pinning::Show), ("allow", Pinning::Allow)])
}

fn read_pattern(reader: &mut Reader<'_>, path: &str, node: &Node<'_>) -> Option<Pattern> {
    match reader.text(path, node)?.parse::<Pattern>() {
        Ok(pattern) => Some(pattern.from_folder(reader.folder())),
        Err(message) => {
            reader.refuse(node, format!("{path}: {message}"));
            None
        }
    }
}
