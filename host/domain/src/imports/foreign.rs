//! What is said of imports that this host does not have: whose they are, and what a component may import instead.

use super::find;

/// Namespaces and packages of WIT that other hosts are known by; the first one that fits says whose an import is.
const WORLDS: [(&str, &str); 17] = [
    ("fermyon:", "Fermyon Spin"),
    ("spin:", "Fermyon Spin"),
    ("wasmcloud:", "wasmCloud"),
    ("wrpc:", "wasmCloud"),
    ("golem:", "Golem"),
    ("obelisk:", "Obelisk"),
    ("fastly:", "Fastly Compute"),
    ("hayride:", "Hayride"),
    ("extism:", "Extism"),
    ("wasi:blobstore/", "the WASI proposal for object storage"),
    ("wasi:messaging/", "the WASI proposal for messaging"),
    ("wasi:nn/", "the WASI proposal for machine learning"),
    ("wasi:sql/", "the WASI proposal for databases"),
    ("wasi:tls/", "the WASI proposal for TLS"),
    ("wasi:keyvalue/", "another version of wasi:keyvalue"),
    ("wasi:config/", "another version of wasi:config"),
    ("wasi:logging/", "another version of wasi:logging"),
];

/// Packages that WASI has released: which of their versions a host has, its engine knows best.
const RELEASED: [&str; 7] =
    ["wasi:cli/", "wasi:clocks/", "wasi:filesystem/", "wasi:http/", "wasi:io/", "wasi:random/", "wasi:sockets/"];

/// What a component may import.
const OFFERED: &str = "a component may import bulkhead:plugin, WASI 0.2 (cli, clocks, filesystem, http as a client, io, random, \
     sockets), wasi:config, wasi:keyvalue and wasi:logging, and what the operator allows of WASI 0.3";

/// What helps where another component has it.
const COMPOSE: &str = "; what another component exports, `bulkhead plugin compose` puts into one file with it, or `compose` of its \
     [[plugin]]";

/// Imports of one world that a refusal names.
const NAMED_MAX: usize = 16;

/// A sentence for each world that a component's imports belong to and this host does not have. What is of the host's
/// own package, or of a package that WASI has released, is not looked at.
pub fn refusals<'a>(imports: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut by_world: Vec<(Option<&str>, Vec<&str>)> = Vec::new();
    for import in imports {
        if find(import).is_some() || import.starts_with("bulkhead:") || is_released(import) {
            continue;
        }
        let world = WORLDS.iter().find(|(beginning, _)| import.starts_with(beginning)).map(|(_, world)| *world);
        match by_world.iter_mut().find(|(known, _)| *known == world) {
            Some((_, imports)) => imports.push(import),
            None => by_world.push((world, vec![import])),
        }
    }
    by_world.into_iter().map(|(world, imports)| sentence(world, &imports)).collect()
}

fn is_released(import: &str) -> bool {
    RELEASED.iter().any(|package| import.starts_with(package))
}

/// Whether an import is of a package that WASI has released, and not among those that this host has.
pub fn is_absent_release(import: &str) -> bool {
    is_released(import) && find(import).is_none()
}

/// What is said of one import that this host does not have.
pub fn refusal(import: &str) -> String {
    sentence(None, &[import])
}

fn sentence(world: Option<&str>, imports: &[&str]) -> String {
    let of = world.map(|world| format!(" of {world}")).unwrap_or_default();
    let mut names = imports.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    if let Some(more) = imports.len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
        names += &format!(" and {more} more");
    }
    // What belongs to no known world may be another component's.
    let remedy = if world.is_none() { COMPOSE } else { "" };
    format!("it imports {names}{of}, which this host does not have; {OFFERED}{remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_imports_are_named_by_their_world() {
        let imports = [
            "wasi:io/poll@0.2.3",
            "fermyon:spin/llm@2.0.0",
            "spin:postgres/postgres@3.0.0",
            "wasmcloud:bus/lattice@1.0.0",
            "acme:secret/door@1.0.0",
            "wasi:keyvalue/store@0.9.0",
            "wasi:clocks/system-clock@0.3.0",
            "bulkhead:plugin/later@0.9.0",
        ];
        let refused = refusals(imports);
        let begin: Vec<_> = refused.iter().map(|text| text.split(", which").next().unwrap_or_default()).collect();
        assert_eq!(
            begin,
            [
                "it imports fermyon:spin/llm@2.0.0, spin:postgres/postgres@3.0.0 of Fermyon Spin",
                "it imports wasmcloud:bus/lattice@1.0.0 of wasmCloud",
                "it imports acme:secret/door@1.0.0",
                "it imports wasi:keyvalue/store@0.9.0 of another version of wasi:keyvalue",
            ]
        );
        assert!(refused.iter().all(|text| text.contains(OFFERED)));
        let composable: Vec<_> = refused.iter().map(|text| text.contains("plugin compose")).collect();
        assert_eq!(composable, [false, false, true, false], "another component may have what is of no known world");
        let many: Vec<_> = (0..20).map(|number| format!("spin:a/b{number}@1.0.0")).collect();
        let refused = refusals(many.iter().map(String::as_str));
        assert!(refused[0].contains("spin:a/b15@1.0.0 and 4 more of Fermyon Spin"), "{refused:?}");
    }

    #[test]
    fn offered_imports_are_not_refused() {
        assert!(refusals(["wasi:http/types@0.2.1", "wasi:logging/logging", "bulkhead:plugin/task@0.1.0"]).is_empty());
    }
}
