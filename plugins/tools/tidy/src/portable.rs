//! What authors run builds on other systems than Linux, and without a host.

use anyhow::Context as _;

use crate::Finding;
use crate::code::{self, Source};
use crate::repository::Repository;

/// `bulkhead-plugin` and the libraries that are its own.
const CRATES: [&str; 3] = ["host/sources", "plugins/tools/author", "plugins/tools/author-cli"];

/// What needs Linux, as it is written in code.
const LINUX_CODE: [&str; 2] = ["os::linux", "os::android"];
/// Calls that other systems do not have, by the words that name them in every crate.
const LINUX_CALLS: [&str; 9] =
    ["openat2", "renameat2", "memfd_create", "epoll_create", "eventfd", "prctl", "getdents", "landlock", "O_PATH"];
/// Folders that other systems do not have.
const LINUX_FOLDERS: [&str; 3] = ["/proc", "/sys", "/dev/shm"];

/// Libraries that need Linux or are a host; a name that ends in `*` stands for all that begin so.
const BANNED: [&str; 11] = [
    "bulkhead-calls",
    "bulkhead-runtime",
    "bulkhead-store",
    "bulkhead-plugins",
    "bulkhead-tasks",
    "bulkhead-threads",
    "libc",
    "nix",
    "rustix",
    "sled",
    "wasmtime*",
];

pub(crate) fn check(repository: &Repository) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for folder in CRATES {
        let path = format!("{folder}/Cargo.toml");
        let manifest = repository.text(&path)?.parse::<toml::Table>().with_context(|| path.clone())?;
        findings.extend(wrong_dependencies(folder, &manifest));
        let sources = repository.sources(folder)?;
        anyhow::ensure!(!sources.is_empty(), "{folder} has no sources");
        findings.extend(sources.iter().flat_map(wrong_code));
    }
    Ok(findings)
}

fn wrong_dependencies(folder: &str, manifest: &toml::Table) -> Vec<Finding> {
    let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
    let is =
        |name: &str, pattern: &str| pattern.strip_suffix('*').map_or(name == pattern, |start| name.starts_with(start));
    let names = dependencies.into_iter().flatten().map(|(name, _)| name.as_str());
    let banned = names.filter(|name| BANNED.iter().any(|pattern| is(name, pattern)));
    banned.map(|name| format!("{folder} depends on {name}; what authors run needs neither Linux nor a host")).collect()
}

fn wrong_code(source: &Source) -> Vec<Finding> {
    let name = &source.name;
    let tokens = source.tokens();
    let mut findings = Vec::new();
    let mut add = |line: usize, what: &str| {
        findings.push(format!("{name}:{line}: {what} is Linux alone; authors work on other systems as well"));
    };
    for path in LINUX_CODE {
        code::lines_with(tokens, path).into_iter().for_each(|line| add(line, path));
    }
    for token in tokens {
        if let Some(call) = LINUX_CALLS.iter().find(|call| token.text == **call) {
            add(token.line, call);
        }
        let folder = |text: &str| {
            LINUX_FOLDERS.into_iter().find(|folder| text == *folder || text.starts_with(&format!("{folder}/")))
        };
        if let Some(folder) = token.string.as_deref().and_then(folder) {
            add(token.line, folder);
        }
    }
    let imported = code::imports(&source.file);
    let is_grouped = |path: &&String| path.contains("os::linux") || path.contains("os::android");
    // A path that is written in one piece was found above, with its line.
    if findings.is_empty() {
        findings.extend(
            imported
                .iter()
                .filter(is_grouped)
                .map(|path| format!("{name}: {path} is Linux alone; authors work on other systems as well")),
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::source;

    #[test]
    fn code_that_needs_linux_is_found() {
        let found = |text: &str| wrong_code(&source("author-cli/a.rs", text)).len();
        assert_eq!(found("use std::os::linux::fs::MetadataExt as _;"), 1);
        assert_eq!(found("use std::{fs, os::{linux::fs::MetadataExt, unix}};"), 1);
        assert_eq!(found("fn f() { std::fs::read_link(\"/proc/self/exe\"); }"), 1);
        assert_eq!(found("fn f() { x::openat2(1); }"), 1);
        assert_eq!(found("fn f() { g(\"/sys/fs/cgroup\") }"), 1);
        assert_eq!(found("use std::os::unix::fs::PermissionsExt as _; fn f() { g(\"/etc/proc\", \"/processes\") }"), 0);
        assert_eq!(found("#[cfg(test)] mod tests { fn f() { g(\"/proc/self\") } }"), 0);
    }

    #[test]
    fn dependency_on_a_host_is_found() {
        let manifest = |text: &str| text.parse::<toml::Table>().unwrap();
        let wanted = manifest("[dependencies]\nbulkhead-runtime.workspace = true\nwasmtime-wasi = '1'\nserde = '1'\n");
        assert_eq!(wrong_dependencies("plugins/tools/author-cli", &wanted).len(), 2);
        assert_eq!(wrong_dependencies("host/sources", &manifest("[dev-dependencies]\nrustix = '1'")).len(), 0);
    }
}
