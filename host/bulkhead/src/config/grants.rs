//! `[plugin.grants]`: what a plugin may reach, and `[tenant.NAME.grants]`: what plugins may reach at most for a tenant.

use std::path::Component;

use super::document::{Node, Reader};
use bulkhead_runtime::policy::{Bound, DirBound, DirGrant, Grants, HttpGrant, TENANT_MARK};

const QUOTA: (&str, u64, u64, &str) =
    ("bytes_max", 1 << 30, 1 << 50, "what plugins may make of one writable directory; each tenant's own one by itself");

/// Name, default, maximum and meaning of the one number.
pub(super) fn quota() -> (&'static str, u64, u64, &'static str) {
    QUOTA
}

/// Reads the table; what is wrong in it is granted to nobody.
pub(super) fn read_grants(reader: &mut Reader<'_>, path: &str, node: &Node<'_>) -> Grants {
    let mut grants = Grants::default();
    let Some(table) = reader.table(path, node) else { return grants };
    for (key, node) in table {
        let path = format!("{path}.{}", key.get_ref());
        match key.get_ref().as_ref() {
            "directories" => {
                let nodes = reader.list(&path, node);
                grants.directories = nodes.iter().filter_map(|node| read_directory(reader, &path, node)).collect();
            }
            "http" => grants.http = read_texts(reader, &path, node, destination),
            "env" => grants.env = read_texts(reader, &path, node, variable),
            _ => reader.refuse(key, format!("{path}: no such grant; there are directories, http and env")),
        }
    }
    grants
}

/// What a tenant is left. A kind that is not named has no bound; what is wrong is left to nobody.
pub(super) fn read_bound(reader: &mut Reader<'_>, path: &str, node: &Node<'_>) -> Bound {
    let mut bound = Bound::default();
    let Some(table) = reader.table(path, node) else { return bound };
    for (key, node) in table {
        let path = format!("{path}.{}", key.get_ref());
        match key.get_ref().as_ref() {
            "directories" => {
                let nodes = reader.list(&path, node);
                bound.directories = Some(nodes.iter().filter_map(|node| read_left(reader, &path, node)).collect());
            }
            "http" => bound.http = Some(read_texts(reader, &path, node, destination)),
            "env" => bound.env = Some(read_texts(reader, &path, node, variable)),
            "kv" => bound.keyvalue = Some(reader.switch(&path, node)),
            _ => reader.refuse(key, format!("{path}: no such grant; there are directories, http, env and kv")),
        }
    }
    bound
}

/// A directory by its name in the sandbox.
fn read_left(reader: &mut Reader<'_>, path: &str, node: &Node<'_>) -> Option<DirBound> {
    let table = reader.table(path, node)?;
    let (mut guest, mut write) = (None, false);
    for (key, node) in table {
        let path = format!("{path}.{}", key.get_ref());
        match key.get_ref().as_ref() {
            "guest" => guest = reader.parsed(&path, node, absolute),
            "write" => write = reader.switch(&path, node),
            _ => reader.refuse(key, format!("{path}: no such key; there are guest and write")),
        }
    }
    if !table.contains_key("guest") {
        reader.refuse(node, format!("{path}: each directory needs `guest` (its name in the sandbox)"));
    }
    Some(DirBound { guest: guest?, write, optional: false })
}

fn absolute(guest: &str) -> Result<String, String> {
    if guest.starts_with('/') && guest.split('/').all(|part| part != "..") {
        Ok(guest.to_owned())
    } else {
        Err(format!("{guest:?} must be an absolute path without \"..\""))
    }
}

fn read_texts<T>(reader: &mut Reader<'_>, path: &str, node: &Node<'_>, parse: fn(&str) -> Result<T, String>) -> Vec<T> {
    let mut values = Vec::new();
    for node in reader.list(path, node) {
        let Some(text) = reader.text(path, node) else { continue };
        match parse(&text) {
            Ok(value) => values.push(value),
            Err(message) => reader.refuse(node, format!("{path}: {message}")),
        }
    }
    values
}

fn read_directory(reader: &mut Reader<'_>, path: &str, node: &Node<'_>) -> Option<DirGrant> {
    let table = reader.table(path, node)?;
    let (mut host, mut guest, mut write, mut bytes_max) = (None, None, false, None);
    for (key, node) in table {
        let path = format!("{path}.{}", key.get_ref());
        match key.get_ref().as_ref() {
            "host" => host = reader.text(&path, node).map(|text| reader.path(&text)),
            "guest" => guest = reader.text(&path, node),
            "write" => match node.get_ref().as_bool() {
                Some(value) => write = value,
                None => reader.refuse(node, format!("{path}: must be true or false")),
            },
            "bytes_max" => bytes_max = reader.number(&path, node, 1, QUOTA.2),
            _ => reader.refuse(key, format!("{path}: no such key; there are host, guest, write and bytes_max")),
        }
    }
    let (Some(host), Some(guest)) = (host, guest) else {
        reader.refuse(
            node,
            format!("{path}: each directory needs `host` (the folder) and `guest` (its name in the sandbox)"),
        );
        return None;
    };
    if let Err(message) = absolute(&guest) {
        reader.refuse(node, format!("{path}.guest: {message}"));
    }
    let marks = host.to_string_lossy().replace(TENANT_MARK, "");
    if marks.contains(['{', '}']) {
        reader.refuse(node, format!("{path}.host: braces stand for {TENANT_MARK} only"));
    }
    let below = host.components().skip_while(|part| !part.as_os_str().to_string_lossy().contains(TENANT_MARK));
    if below.into_iter().any(|part| part == Component::ParentDir) {
        reader.refuse(node, format!("{path}.host: no \"..\" behind {TENANT_MARK}"));
    }
    if bytes_max.is_some() && !write {
        reader.refuse(node, format!("{path}.bytes_max: nothing is written to it; set write = true"));
    }
    // A guest that fills the disk makes the store read-only for everybody.
    let bytes_max = write.then(|| bytes_max.unwrap_or(QUOTA.1));
    Some(DirGrant { host, guest, write, bytes_max })
}

fn destination(text: &str) -> Result<HttpGrant, String> {
    text.parse().map_err(|error: bulkhead_runtime::policy::GrantError| error.to_string())
}

fn variable(name: &str) -> Result<String, String> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(format!("{name:?} must be the name of an environment variable"));
    }
    if name.starts_with("BULKHEAD_") {
        return Err(format!("{name:?} is the host's own: it may hold keys, and is granted to nobody"));
    }
    Ok(name.to_owned())
}
