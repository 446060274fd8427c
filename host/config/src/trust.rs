//! `[[trust]]`: who must have signed what comes from where.

use std::path::PathBuf;

use super::reader::Item;
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
    pub location: ConfigLocation,
}

/// Reads every `[[trust]]`.
pub(super) fn read(item: &Item<'_>) -> Vec<TrustConfig> {
    item.tables("rule").into_iter().filter_map(read_one).collect()
}

table!(TRUST, TrustKeys, "[[trust]]",
    "Who must have signed what comes from where. The first rule that fits a source decides.", {
    source: Pattern = |item| item.parsed(str::parse), "",
        "Pattern of files, addresses and references; `*` stands for anything but a slash, `**` for anything";
    keys: Vec<PathBuf> = |item| Some(item.items().iter().filter_map(Item::file).collect()), "[]",
        "Files of public keys, one of which must have signed";
    unsigned: bool = Item::switch, "false",
        "In place of keys: nobody has to sign";
    same_repository: bool = Item::switch, "false",
        "Whether a signature in a registry must name the repository that it was found in";
    changed_definitions: Pinning = read_pinning, "",
        "What becomes of changes of accepted tools: `hold`, `show` or `allow`";
});

fn read_one(item: Item<'_>) -> Option<TrustConfig> {
    let section = item.section(TRUST.names())?;
    let TrustKeys { source, keys, unsigned, same_repository, changed_definitions } = TrustKeys::read(&section);
    let rule = TrustConfig {
        keys: keys.unwrap_or_default(),
        same_repository: same_repository.unwrap_or_default(),
        changed_definitions,
        location: item.location(),
        pattern: match source {
            Some(pattern) => pattern.from_folder(item.reader.folder()),
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
    if rule.keys.is_empty() != unsigned.unwrap_or_default() {
        section.refuse("keys", "name the public keys that may sign, or say unsigned = true, not both");
    }
    Some(rule)
}

/// What becomes of changed definitions: of a source, or for a tenant.
pub(super) fn read_pinning(item: &Item<'_>) -> Option<Pinning> {
    item.choice(&[("hold", Pinning::Hold), ("show", Pinning::Show), ("allow", Pinning::Allow)])
}
