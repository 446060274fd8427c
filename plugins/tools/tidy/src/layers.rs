//! The architecture's rules that Cargo's graph of crates does not already prove
//! (`host/docs/contributing/architecture.md`).

use std::collections::BTreeMap;

use anyhow::Context as _;

use crate::Finding;
use crate::code::{self, Source};
use crate::repository::Repository;

/// Libraries with the only crates of the host that may depend on them; a name that ends in `*` stands for all that
/// begin so.
const OWNERS: [(&str, &[&str]); 11] = [
    ("anyhow", &["assembly", "bulkhead", "workbench"]),
    ("clap", &["bulkhead", "workbench"]),
    ("axum", &["transport"]),
    ("sled", &["store"]),
    ("tokio-postgres", &["store"]),
    ("wasmtime*", &["runtime"]),
    ("maud", &["dashboard"]),
    ("prometheus-client", &["metrics"]),
    ("jsonwebtoken", &["config", "identity"]),
    ("opentelemetry*", &["traces"]),
    ("prost", &["traces"]),
];

/// What a crate must not depend on, beyond what is owned by another.
const BANNED: [(&str, &[&str]); 5] = [
    // It uses the operator API and the task engine, like every other face.
    ("dashboard", &["bulkhead-store", "bulkhead-transport"]),
    ("domain", &["*"]),
    // A mirrored header arrives as a plain struct. And like the task engine, it knows what a call is (`calls`), not
    // what runs it: its tests need no wasmtime.
    ("protocol", &["bulkhead-runtime", "http", "http-body", "http-body-util", "hyper", "hyper-util"]),
    ("tasks", &["bulkhead-runtime"]),
    ("transport", &["bulkhead-runtime"]),
];

/// The only file that opens connections or resolves names: every other one would go around the check of addresses.
const DIALER: &str = "net/dial.rs";
const DIALING: [&str; 4] = ["TcpStream::connect", "lookup_host", "ToSocketAddrs", "TlsConnector::from"];

/// Modules behind the feature `testing`, which a build of all crates together has on for every one of them.
const TEST_MODULES: [&str; 2] = ["testing", "samples"];

/// What would make the domain depend on when or where it runs.
const IMPURE: [&str; 7] = ["std::time", "std::fs", "std::net", "std::thread", "std::env", "std::process", "std::io"];

/// The crates below the protocol, and what only the wire names.
const BELOW_THE_PROTOCOL: [&str; 7] = ["domain", "store", "threads", "calls", "runtime", "tasks", "plugins"];
/// The one room below it that is a client: of MCP servers that are guests.
const CLIENT_OF_GUESTS: &str = "runtime/programs/mcp/";
const WIRE_NAMES: [&str; 5] = ["taskId", "inputRequests", "isError", "pollInterval", "camelCase"];

pub(crate) fn check(repository: &Repository) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for name in repository.crates() {
        let path = format!("host/{name}/Cargo.toml");
        let manifest = repository.text(&path)?.parse::<toml::Table>().with_context(|| path.clone())?;
        findings.extend(wrong_dependencies(name, &manifest));
    }
    for source in repository.host() {
        findings.extend(wrong_code(source));
    }
    Ok(findings)
}

fn wrong_dependencies(crate_name: &str, manifest: &toml::Table) -> Vec<Finding> {
    let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
    let names = dependencies.into_iter().flatten().map(|(name, _)| name.as_str());
    let is =
        |name: &str, pattern: &str| pattern.strip_suffix('*').map_or(name == pattern, |start| name.starts_with(start));
    let banned: BTreeMap<_, _> = BANNED.into_iter().collect();
    let mut findings = Vec::new();
    for name in names {
        let owner = OWNERS.iter().find(|(library, owners)| is(name, library) && !owners.contains(&crate_name));
        if let Some((_, owners)) = owner {
            findings.push(format!("host/{crate_name} depends on {name}, which belongs to {}", owners.join(", ")));
        }
        if banned.get(crate_name).is_some_and(|patterns| patterns.iter().any(|pattern| is(name, pattern))) {
            findings.push(format!("host/{crate_name} depends on {name}; its module doc says what it must not know"));
        }
    }
    findings
}

fn wrong_code(source: &Source) -> Vec<Finding> {
    let name = source.name.as_str();
    let crate_name = name.split('/').next().unwrap_or_default();
    let tokens = source.tokens();
    let imports = code::imports(&source.file);
    let mut findings = Vec::new();
    if name != DIALER {
        for way in DIALING {
            let lines = code::lines_with(tokens, way);
            findings.extend(lines.iter().map(|line| format!("{name}:{line}: only {DIALER} may use {way}")));
        }
    }
    let of_tests = imports.iter().filter(|path| path.split("::").any(|segment| TEST_MODULES.contains(&segment)));
    findings.extend(of_tests.map(|path| format!("{name}: {path} is compiled for tests only, and the host is not")));
    if crate_name == "domain" {
        for module in IMPURE {
            let lines = code::lines_with(tokens, module);
            findings.extend(lines.iter().map(|line| format!("{name}:{line}: the domain is pure, and {module} is not")));
            let imported = imports.iter().filter(|path| path.starts_with(module));
            findings.extend(imported.map(|path| format!("{name}: the domain is pure, and {path} is not")));
        }
    }
    if BELOW_THE_PROTOCOL.contains(&crate_name) && !name.starts_with(CLIENT_OF_GUESTS) {
        let wire = |token: &&code::Token| token.string.as_deref().is_some_and(|text| WIRE_NAMES.contains(&text));
        let named = tokens.iter().filter(wire);
        findings.extend(named.map(|token| {
            format!("{name}:{}: {} is a name of the wire: protocol alone knows it", token.line, token.text)
        }));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::source;

    #[test]
    fn dependencies_of_another_crate_are_found() {
        let manifest = |text: &str| text.parse::<toml::Table>().unwrap();
        let wanted = manifest(
            "[dependencies]\nsled.workspace = true\nwasmtime-wasi = '1'\nserde = '1'\n[dev-dependencies]\nclap = '4'",
        );
        let begins = |name: &str| wrong_dependencies(name, &wanted).len();
        assert_eq!((begins("store"), begins("runtime"), begins("tasks")), (1, 1, 2));
        assert_eq!(begins("domain"), 5, "each owned one twice, and serde");
        assert_eq!(wrong_dependencies("protocol", &manifest("[dependencies]\nhttp = '1'")).len(), 1);
        let runtime = manifest("[dependencies]\nbulkhead-calls.workspace = true\nbulkhead-runtime.workspace = true");
        let above = ["tasks", "protocol", "transport", "plugins"].map(|name| wrong_dependencies(name, &runtime).len());
        assert_eq!(above, [1, 1, 1, 0]);
    }

    #[test]
    fn code_in_the_wrong_crate_is_found() {
        let found = |name: &str, text: &str| wrong_code(&source(name, text)).len();
        assert_eq!(found("tasks/a.rs", "fn f() { tokio::net::TcpStream::connect(1); }"), 1);
        assert_eq!(found(DIALER, "fn f() { tokio::net::TcpStream::connect(1); }"), 0);
        assert_eq!(found("domain/a.rs", "use std::{fmt, fs};"), 1);
        assert_eq!(found("domain/a.rs", "fn f() { std::time::Instant::now(); }"), 1);
        assert_eq!(found("tasks/a.rs", "use bulkhead_store::{samples::task, testing::MemoryStore};"), 2);
        assert_eq!(found("tasks/a.rs", "#[cfg(test)] mod tests { use bulkhead_store::samples::task; }"), 0);
        assert_eq!(found("store/a.rs", "fn f() { g(\"taskId\") }"), 1);
        assert_eq!(found("protocol/a.rs", "fn f() { g(\"taskId\") }"), 0);
        assert_eq!(found("store/a.rs", "#[serde(rename_all = \"camelCase\")] struct A;"), 1);
        assert_eq!(found("runtime/programs/mcp/a.rs", "#[serde(rename_all = \"camelCase\")] struct A;"), 0);
        assert_eq!(found("store/a.rs", "#[cfg(test)] mod tests { fn f() { g(\"taskId\") } }"), 0);
    }
}
