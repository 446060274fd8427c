//! `[plugin.grants]`: what a plugin may reach, `[plugin.kv]`: what it may keep, and `[tenant.NAME.grants]`: what plugins may reach at
//! most for a tenant.

use std::path::Component;

use super::reader::Item;
use bulkhead_calls::policy::{Bound, DirBound, DirGrant, Grants, HttpGrant, TENANT_MARK};
use bulkhead_domain::limits::KeyValueLimits;
use bulkhead_store::keyvalue::VALUE_BYTES_MAX;

/// A number with its default, its maximum and its meaning.
pub(super) type Setting = (&'static str, u64, u64, &'static str);

const QUOTA: Setting =
    ("bytes_max", 1 << 30, 1 << 50, "what plugins may make of one writable directory; each tenant's own one by itself");
const KEYS: Setting =
    ("keys_max", 10_000, 1_000_000, "keys that one plugin may keep in one tenant, expired ones until they are removed");
const BYTES: Setting = ("bytes_max", 16 << 20, 16 << 30, "keys and values of one plugin in one tenant");
const VALUE_BYTES: Setting = ("value_bytes_max", 64 << 10, VALUE_BYTES_MAX, "one kept value");

/// The numbers of `[plugin.kv]`.
pub(super) fn keyvalue_numbers() -> [Setting; 3] {
    [KEYS, BYTES, VALUE_BYTES]
}

/// The one number of a directory.
pub(super) fn quota() -> Setting {
    QUOTA
}

/// Reads `[plugin.grants]`; what is wrong in it is not granted.
pub(super) fn read_grants(item: Item<'_>) -> Option<Grants> {
    let section = item.section_of("grant", &["directories", "http", "env"])?;
    Some(Grants {
        directories: section.items("directories").into_iter().filter_map(read_directory).collect(),
        http: section.items("http").into_iter().filter_map(read_destination).collect(),
        env: section.texts("env", variable),
        keyvalue: None,
    })
}

/// A destination as a text, or as a table that says more of it.
fn read_destination(item: Item<'_>) -> Option<HttpGrant> {
    if !item.is_table() {
        return item.parsed(str::parse);
    }
    let section = item.section(&["to", "trace"])?;
    let to = section.parsed("to", str::parse::<HttpGrant>);
    let trace = section.switch("trace").unwrap_or_default();
    if !section.has("to") {
        section.item.refuse("each destination needs `to`, such as \"https://api.example.com\"");
    }
    Some(HttpGrant { trace, ..to? })
}

/// What a tenant is left. A kind that is not named has no bound; what is wrong is not left.
pub(super) fn read_bound(item: Item<'_>) -> Option<Bound> {
    let section = item.section_of("grant", &["directories", "http", "env", "kv"])?;
    let directories = || section.items("directories").into_iter().filter_map(read_left).collect();
    Some(Bound {
        directories: section.has("directories").then(directories),
        http: section.has("http").then(|| section.texts("http", str::parse)),
        env: section.has("env").then(|| section.texts("env", variable)),
        keyvalue: section.switch("kv"),
    })
}

/// A directory by its name in the sandbox.
fn read_left(item: Item<'_>) -> Option<DirBound> {
    let section = item.section(&["guest", "write"])?;
    if !section.has("guest") {
        section.item.refuse("each directory needs `guest` (its name in the sandbox)");
    }
    let write = section.switch("write").unwrap_or_default();
    Some(DirBound { guest: section.parsed("guest", absolute)?, write, optional: false })
}

/// `[plugin.kv]`: what a plugin may keep. Writing the table is the grant, with the defaults for what is not in it.
pub(super) fn read_keyvalue(item: Item<'_>) -> Option<KeyValueLimits> {
    let section = item.section(&["keys_max", "bytes_max", "value_bytes_max"])?;
    let KeyValueLimits { keys_max, bytes_max, value_bytes_max } = keyvalue_defaults();
    Some(KeyValueLimits {
        keys_max: section.number("keys_max", 1..=KEYS.2).unwrap_or(keys_max),
        bytes_max: section.number("bytes_max", 1..=BYTES.2).unwrap_or(bytes_max),
        value_bytes_max: section.number("value_bytes_max", 1..=VALUE_BYTES.2).unwrap_or(value_bytes_max),
    })
}

/// The grant that an empty table is.
pub fn keyvalue_defaults() -> KeyValueLimits {
    let keys_max = KEYS.1;
    let bytes_max = BYTES.1;
    let value_bytes_max = VALUE_BYTES.1;
    KeyValueLimits { keys_max: u32::try_from(keys_max).unwrap_or(u32::MAX), bytes_max, value_bytes_max }
}

fn absolute(guest: &str) -> Result<String, String> {
    if guest.starts_with('/') && guest.split('/').all(|part| part != "..") {
        Ok(guest.to_owned())
    } else {
        Err(format!("{guest:?} must be an absolute path without \"..\""))
    }
}

fn read_directory(item: Item<'_>) -> Option<DirGrant> {
    let section = item.section(&["host", "guest", "write", "bytes_max"])?;
    let write = section.switch("write").unwrap_or_default();
    let bytes_max = section.number("bytes_max", 1..=QUOTA.2);
    let (Some(host), Some(guest)) = (section.file("host"), section.text("guest")) else {
        section.item.refuse("each directory needs `host` (the folder) and `guest` (its name in the sandbox)");
        return None;
    };
    if let Err(message) = absolute(&guest) {
        section.refuse("guest", message);
    }
    let marks = host.to_string_lossy().replace(TENANT_MARK, "");
    if marks.contains(['{', '}']) {
        section.refuse("host", format_args!("braces stand for {TENANT_MARK} only"));
    }
    let below = host.components().skip_while(|part| !part.as_os_str().to_string_lossy().contains(TENANT_MARK));
    if below.into_iter().any(|part| part == Component::ParentDir) {
        section.refuse("host", format_args!("no \"..\" behind {TENANT_MARK}"));
    }
    if bytes_max.is_some() && !write {
        section.refuse("bytes_max", "nothing is written to it; set write = true");
    }
    // A guest that fills the disk makes the store read-only for everybody.
    let bytes_max = write.then(|| bytes_max.unwrap_or(QUOTA.1));
    Some(DirGrant { host, guest, write, bytes_max })
}

/// The name of a variable that may be granted.
pub fn variable(name: &str) -> Result<String, String> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(format!("{name:?} must be the name of an environment variable"));
    }
    if name.starts_with("BULKHEAD_") {
        return Err(format!("{name:?} is the host's own: it may hold keys, and is granted to nobody"));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{Config, File, Flags};

    #[test]
    fn destination_is_told_of_a_trace_only_where_its_table_says_so() {
        let read = |http: &str| {
            let text = format!("[[plugin]]\nfile = 'a.wasm'\n[plugin.grants]\nhttp = [{http}]");
            let file = File { path: Path::new("bulkhead.toml"), text: &text };
            let config = Config::load(Some(file), Vec::new(), &Flags::default());
            config
                .map(|config| config.plugins[0].policy.source.grants.http.clone())
                .map_err(|problems| problems.to_string())
        };
        let granted = read("'https://a', { to = 'https://b', trace = true }, { to = 'https://c' }").unwrap();
        let told: Vec<_> = granted.iter().map(|grant| (grant.to_string(), grant.trace)).collect();
        let expected = [("https://a:443", false), ("https://b:443", true), ("https://c:443", false)];
        assert_eq!(told, expected.map(|(grant, trace)| (grant.to_owned(), trace)));
        assert!(read("{ trace = true }").unwrap_err().contains("each destination needs `to`"));
        assert!(
            read("{ to = 'https://a', traced = true }").unwrap_err().contains("no such key; there are to and trace")
        );
        assert!(read("{ to = 'nowhere' }").unwrap_err().contains("is not a destination"));
    }
}
