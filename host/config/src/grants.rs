//! `[plugin.grants]`: what a plugin may reach, `[plugin.kv]`: what it may keep, and `[tenant.NAME.grants]`: what
//! plugins may reach at most for a tenant.

use std::path::Component;

use super::key::{Number, Unit};
use super::reader::Item;
use bulkhead_calls::policy::{Bound, DirBound, DirGrant, Grants, HttpGrant, TENANT_MARK};
use bulkhead_domain::limits::KeyValueLimits;
use bulkhead_store::keyvalue::VALUE_BYTES_MAX;

const fn number(name: &'static str, unit: Unit, default: u64, max: u64, doc: &'static str) -> Number {
    Number { name, unit, default, min: 1, max, doc }
}

/// Of a directory.
pub(super) const QUOTA: Number = number(
    "bytes_max",
    Unit::Bytes,
    1 << 30,
    1 << 50,
    "what plugins may make of one writable directory; each tenant's own one by itself",
);

/// Of `[plugin.kv]`.
pub(super) const KEYVALUE: [Number; 3] = [
    number(
        "keys_max",
        Unit::Count,
        10_000,
        1_000_000,
        "keys that one plugin may keep in one tenant, expired ones until they are removed",
    ),
    number("bytes_max", Unit::Bytes, 16 << 20, 16 << 30, "keys and values of one plugin in one tenant"),
    number("value_bytes_max", Unit::Bytes, 64 << 10, VALUE_BYTES_MAX, "one kept value"),
];

table!(GRANTS, GrantsKeys, "[plugin.grants]",
    "What the plugin may reach, as far as its manifest asks for it. By default nothing.", {
    directories: Vec<DirGrant> = |item| Some(item.items().iter().filter_map(read_directory).collect()), "[]",
        "List of tables with host, guest, write and bytes_max; `{tenant}` in host is the caller's tenant";
    http: Vec<HttpGrant> = |item| Some(item.items().iter().filter_map(read_destination).collect()), "[]",
        "Destinations of outgoing HTTP: `[METHODS ]SCHEME://HOST[:PORT][/PATH]`, or `{ to = …, trace = true }` where a destination is told of the trace (`traceparent`)";
    env: Vec<String> = |item| Some(item.texts(variable)), "[]",
        "Environment variables that it may read";
});

/// Reads `[plugin.grants]`; what is wrong in it is not granted.
pub(super) fn read_grants(item: &Item<'_>) -> Option<Grants> {
    let keys = GrantsKeys::read(&item.section_of("grant", GRANTS.names())?);
    Some(Grants {
        directories: keys.directories.unwrap_or_default(),
        http: keys.http.unwrap_or_default(),
        env: keys.env.unwrap_or_default(),
        keyvalue: None,
    })
}

/// A destination as a text, or as a table that says more of it.
fn read_destination(item: &Item<'_>) -> Option<HttpGrant> {
    if !item.is_table() {
        return item.parsed(str::parse);
    }
    let section = item.section(["to", "trace"])?;
    let to = section.parsed("to", str::parse::<HttpGrant>);
    let trace = section.switch("trace").unwrap_or_default();
    if !section.has("to") {
        section.item.refuse("each destination needs `to`, such as \"https://api.example.com\"");
    }
    Some(HttpGrant { trace, ..to? })
}

/// What a tenant is left. A kind that is not named has no bound; what is wrong is not left.
pub(super) fn read_bound(item: &Item<'_>) -> Option<Bound> {
    let section = item.section_of("grant", ["directories", "http", "env", "kv"])?;
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
    let section = item.section(["guest", "write"])?;
    if !section.has("guest") {
        section.item.refuse("each directory needs `guest` (its name in the sandbox)");
    }
    let write = section.switch("write").unwrap_or_default();
    Some(DirBound { guest: section.parsed("guest", absolute)?, write, optional: false })
}

/// `[plugin.kv]`: what a plugin may keep. Writing the table is the grant, with the defaults for what is not in it.
pub(super) fn read_keyvalue(item: &Item<'_>) -> Option<KeyValueLimits> {
    let section = item.section(KEYVALUE.map(|number| number.name))?;
    Some(keyvalue_limits(KEYVALUE.map(|number| section.number(&number).unwrap_or(number.default))))
}

/// The grant that an empty table is.
pub fn keyvalue_defaults() -> KeyValueLimits {
    keyvalue_limits(KEYVALUE.map(|number| number.default))
}

fn keyvalue_limits([keys_max, bytes_max, value_bytes_max]: [u64; 3]) -> KeyValueLimits {
    KeyValueLimits { keys_max: u32::try_from(keys_max).unwrap_or(u32::MAX), bytes_max, value_bytes_max }
}

fn absolute(guest: &str) -> Result<String, String> {
    if guest.starts_with('/') && guest.split('/').all(|part| part != "..") {
        Ok(guest.to_owned())
    } else {
        Err(format!("{guest:?} must be an absolute path without \"..\""))
    }
}

fn read_directory(item: &Item<'_>) -> Option<DirGrant> {
    let section = item.section(["host", "guest", "write", QUOTA.name])?;
    let write = section.switch("write").unwrap_or_default();
    let bytes_max = section.number(&QUOTA);
    let (Some(host), Some(guest)) = (section.file("host"), section.text("guest")) else {
        section.item.refuse("each directory needs `host` (the folder) and `guest` (its name in the sandbox)");
        return None;
    };
    if let Err(message) = absolute(&guest) {
        section.refuse("guest", message);
    }
    let unmarked = host.to_string_lossy().replace(TENANT_MARK, "");
    if unmarked.contains(['{', '}']) {
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
    let bytes_max = write.then(|| bytes_max.unwrap_or(QUOTA.default));
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
