//! `[[trust]]`: who must have signed what comes from where.

use std::path::PathBuf;

use super::reader::{Item, Section};
use super::report::ConfigLocation;
use bulkhead_plugins::Pinning;
use bulkhead_plugins::sources::Pattern;

/// One rule, its keys not read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustConfig {
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
pub(super) fn read(item: &Item<'_>) -> Vec<TrustConfig> {
    item.tables("rule").into_iter().filter_map(read_one).collect()
}

fn read_one(item: Item<'_>) -> Option<TrustConfig> {
    let section = item.section(&["source", "keys", "same_repository", "unsigned", "changed_definitions"])?;
    let rule = TrustConfig {
        keys: section.items("keys").iter().filter_map(Item::file).collect(),
        same_repository: section.switch("same_repository").unwrap_or_default(),
        changed_definitions: read_pinning(&section),
        place: section.item.place(),
        pattern: match section.parsed("source", str::parse::<Pattern>) {
            Some(pattern) => pattern.from_folder(section.item.reader.folder()),
            None if section.has("source") => return None,
            None => {
                section.refuse(
                    "source",
                    "missing; name the sources that the rule is for, like \"https://example.com/**\"",
                );
                return None;
            }
        },
    };
    if rule.keys.is_empty() != section.switch("unsigned").unwrap_or_default() {
        section.refuse("keys", "name the public keys that may sign, or say unsigned = true, not both");
    }
    Some(rule)
}

/// What becomes of changed definitions: of a source, or for a tenant.
pub(super) fn read_pinning(section: &Section<'_>) -> Option<Pinning> {
    let choices = [("hold", Pinning::Hold), ("show", Pinning::Show), ("allow", Pinning::Allow)];
    section.choice("changed_definitions", &choices)
}
