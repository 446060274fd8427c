//! The crates that are linked into a program, as Cargo says.
//!
//! Owns the reading of Cargo's answers. Procedural macros and what build scripts use are left out: they run when the
//! program is built, and nothing of them is in it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use crate::release;

/// A crate by name and version.
pub(crate) type Id = (String, String);

/// A crate that is linked in.
#[derive(Debug)]
pub(crate) struct Component {
    pub(crate) id: Id,
    /// The SPDX expression.
    pub(crate) license: Option<String>,
    /// The SHA-256 of the crate's file in the registry. Crates of this repository have none.
    pub(crate) sha256: Option<String>,
    /// Where its sources lie.
    pub(crate) folder: PathBuf,
    pub(crate) depends: BTreeSet<Id>,
}

/// What is linked into the program of a package, that package first and the others in order.
pub(crate) fn linked(root: &Path, package: &str, target: &str) -> anyhow::Result<Vec<Component>> {
    let tree =
        cargo(root, &["tree", "--package", package, "--edges", "normal,no-proc-macro", "--prefix", "depth"], target)?;
    let edges = edges(&tree)?;
    let first = tree.lines().next().and_then(entry).context("`cargo tree` prints nothing")?.1;
    let metadata = cargo(root, &["metadata", "--format-version", "1"], target)?;
    let metadata: Value = serde_json::from_str(&metadata).context("`cargo metadata` prints no JSON")?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let checksums = checksums(&lock)?;

    let packages = metadata["packages"].as_array().context("`cargo metadata` names no packages")?;
    let by_id: BTreeMap<Id, &Value> = packages.iter().filter_map(|package| Some((id(package)?, package))).collect();
    let mut components = Vec::new();
    for (id, depends) in edges {
        let (name, version) = &id;
        let facts = by_id.get(&id).with_context(|| format!("`cargo metadata` does not know {name} {version}"))?;
        let manifest = facts["manifest_path"].as_str().map(Path::new).and_then(Path::parent);
        components.push(Component {
            license: facts["license"].as_str().map(str::to_owned),
            sha256: checksums.get(&id).cloned(),
            folder: manifest.context("a package has no folder")?.to_owned(),
            id,
            depends,
        });
    }
    // The sort is stable: the others stay in order.
    components.sort_by_key(|component| component.id != first);
    Ok(components)
}

fn cargo(root: &Path, arguments: &[&str], target: &str) -> anyhow::Result<String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(root).args(arguments).arg("--locked");
    command.args([if arguments.first() == Some(&"tree") { "--target" } else { "--filter-platform" }, target]);
    Ok(String::from_utf8(release::output(&mut command)?)?)
}

fn id(package: &Value) -> Option<Id> {
    Some((package["name"].as_str()?.to_owned(), package["version"].as_str()?.to_owned()))
}

/// Reads lines such as `2serde v1.0.229 (*)`: how deep, which crate.
fn entry(line: &str) -> Option<(usize, Id)> {
    let name = line.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let depth = line.strip_suffix(name)?.parse().ok()?;
    let mut words = name.split(' ');
    let id = (words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned());
    Some((depth, id))
}

/// Who depends on whom. What a crate depends on is printed once, below its first line.
fn edges(tree: &str) -> anyhow::Result<BTreeMap<Id, BTreeSet<Id>>> {
    let mut edges: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
    let mut above: Vec<Id> = Vec::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let (depth, id) = entry(line).with_context(|| format!("`cargo tree` prints {line}"))?;
        above.truncate(depth);
        if let Some(parent) = above.last() {
            edges.entry(parent.clone()).or_default().insert(id.clone());
        }
        edges.entry(id.clone()).or_default();
        above.push(id);
    }
    Ok(edges)
}

/// The checksums in Cargo.lock.
fn checksums(lock: &str) -> anyhow::Result<BTreeMap<Id, String>> {
    let lock: toml::Table = lock.parse().context("Cargo.lock is not TOML")?;
    let packages = lock.get("package").and_then(toml::Value::as_array).context("Cargo.lock names no packages")?;
    let text = |package: &toml::Value, key: &str| package.get(key).and_then(toml::Value::as_str).map(str::to_owned);
    let all = packages
        .iter()
        .filter_map(|package| Some(((text(package, "name")?, text(package, "version")?), text(package, "checksum")?)));
    Ok(all.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str, version: &str) -> Id {
        (name.to_owned(), version.to_owned())
    }

    #[test]
    fn edges_are_read_off_depths() {
        let tree = "0host v0.1.0 (/somewhere/host)\n1a v1.0.0\n2b v2.0.0\n1c v3.0.0\n2a v1.0.0 (*)\n";
        let edges = edges(tree).unwrap();
        let depends = |name: &str, version: &str| edges[&id(name, version)].iter().cloned().collect::<Vec<_>>();
        assert_eq!(depends("host", "0.1.0"), [id("a", "1.0.0"), id("c", "3.0.0")]);
        assert_eq!(depends("a", "1.0.0"), [id("b", "2.0.0")]);
        assert_eq!(depends("c", "3.0.0"), [id("a", "1.0.0")]);
        assert_eq!(edges.len(), 4);
        assert!(super::edges("warning: something").is_err());
    }

    #[test]
    fn checksums_are_those_of_the_lock_file() {
        let lock = "version = 4\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"00ff\"\n\
                    [[package]]\nname = \"host\"\nversion = \"0.1.0\"\n";
        assert_eq!(checksums(lock).unwrap(), BTreeMap::from([(id("a", "1.0.0"), "00ff".to_owned())]));
    }
}
