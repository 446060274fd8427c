//! The copy of the interface and the SDKs that every new project carries in `bulkhead/`, laid out as in Bulkhead's
//! repository, so that a project builds on a machine that has nothing of Bulkhead but the program.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::{Error, Language};

type File = (&'static str, &'static str);

macro_rules! files {
    ($($path:literal),* $(,)?) => { &[$(($path, include_str!(concat!("../../../../", $path)))),*] };
}

pub(crate) const WIT: &[File] = files![
    "wit/completions.wit",
    "wit/config.wit",
    "wit/keyvalue.wit",
    "wit/prompts.wit",
    "wit/resources.wit",
    "wit/task.wit",
    "wit/tools.wit",
    "wit/types.wit",
    "wit/world.wit",
];

const RUST: &[File] = files![
    "plugins/sdk/rust/Cargo.toml",
    "plugins/sdk/rust/src/app.rs",
    "plugins/sdk/rust/src/ask.rs",
    "plugins/sdk/rust/src/bindings.rs",
    "plugins/sdk/rust/src/call.rs",
    "plugins/sdk/rust/src/complete.rs",
    "plugins/sdk/rust/src/config.rs",
    "plugins/sdk/rust/src/error.rs",
    "plugins/sdk/rust/src/input.rs",
    "plugins/sdk/rust/src/kv.rs",
    "plugins/sdk/rust/src/lib.rs",
    "plugins/sdk/rust/src/listing.rs",
    "plugins/sdk/rust/src/output.rs",
    "plugins/sdk/rust/src/plugin.rs",
    "plugins/sdk/rust/src/prompt.rs",
    "plugins/sdk/rust/src/pure.rs",
    "plugins/sdk/rust/src/resource.rs",
    "plugins/sdk/rust/src/schema.rs",
    "plugins/sdk/rust/src/task.rs",
    "plugins/sdk/rust/src/uri_template.rs",
    "plugins/sdk/rust-macros/Cargo.toml",
    "plugins/sdk/rust-macros/src/lib.rs",
    "plugins/sdk/rust-macros/src/options.rs",
    "plugins/sdk/rust-macros/src/parameter.rs",
    "plugins/sdk/rust-macros/src/result.rs",
    "plugins/sdk/rust-macros/src/words.rs",
];

const PYTHON: &[File] = files![
    "plugins/sdk/python/pyproject.toml",
    "plugins/sdk/python/bulkhead_plugin/__init__.py",
    "plugins/sdk/python/bulkhead_plugin/_async.py",
    "plugins/sdk/python/bulkhead_plugin/_host.py",
    "plugins/sdk/python/bulkhead_plugin/_late.py",
    "plugins/sdk/python/bulkhead_plugin/_offers.py",
    "plugins/sdk/python/bulkhead_plugin/_output.py",
    "plugins/sdk/python/bulkhead_plugin/_schema.py",
    "plugins/sdk/python/bulkhead_plugin/_snapshot.py",
    "plugins/sdk/python/bulkhead_plugin/_tool.py",
    "plugins/sdk/python/bulkhead_plugin/_urllib.py",
    "plugins/sdk/python/bulkhead_plugin/ask.py",
    "plugins/sdk/python/bulkhead_plugin/call.py",
    "plugins/sdk/python/bulkhead_plugin/component.py",
    "plugins/sdk/python/bulkhead_plugin/component_completions.py",
    "plugins/sdk/python/bulkhead_plugin/component_http.py",
    "plugins/sdk/python/bulkhead_plugin/component_prompts.py",
    "plugins/sdk/python/bulkhead_plugin/component_resources.py",
    "plugins/sdk/python/bulkhead_plugin/component_types.py",
    "plugins/sdk/python/bulkhead_plugin/config.py",
    "plugins/sdk/python/bulkhead_plugin/errors.py",
    "plugins/sdk/python/bulkhead_plugin/http.py",
    "plugins/sdk/python/bulkhead_plugin/kv.py",
    "plugins/sdk/python/bulkhead_plugin/py.typed",
    "plugins/sdk/python/bulkhead_plugin/task.py",
    "plugins/sdk/python/bulkhead_plugin/testing.py",
    "plugins/sdk/python/wit/clocks.wit",
    "plugins/sdk/python/wit/http.wit",
    "plugins/sdk/python/wit/io.wit",
];

const JAVASCRIPT: &[File] = files![
    "plugins/sdk/javascript/package.json",
    "plugins/sdk/javascript/component.js",
    "plugins/sdk/javascript/errors.js",
    "plugins/sdk/javascript/index.d.ts",
    "plugins/sdk/javascript/index.js",
    "plugins/sdk/javascript/offers.js",
    "plugins/sdk/javascript/output.js",
    "plugins/sdk/javascript/schemas.js",
    "plugins/sdk/javascript/talk.js",
    "plugins/sdk/javascript/testing.d.ts",
    "plugins/sdk/javascript/testing.js",
];

const C: &[File] =
    files!["plugins/sdk/c/bulkhead.h", "plugins/sdk/c/bulkhead_component.h", "plugins/sdk/c/bulkhead_testing.h",];

/// The workspace that the Rust SDK is written in: its manifest takes versions and lints from there.
const WORKSPACE: &str = include_str!("../../../../Cargo.toml");

/// The SDK of a language in a copy. Projects that carry an older copy have it beside `plugins/sdk`, not in it.
pub(crate) fn folder(copy: &Path, language: &str) -> PathBuf {
    let folder = copy.join("plugins/sdk").join(language);
    if folder.is_dir() { folder } else { copy.join("plugins").join(language) }
}

/// Writes what a project of this language needs.
pub(crate) fn unpack(language: Language, folder: &Path) -> Result<(), Error> {
    let files = match language {
        Language::Rust => RUST,
        Language::Python => PYTHON,
        Language::Javascript | Language::Typescript => JAVASCRIPT,
        Language::C => C,
    };
    for (path, text) in WIT.iter().chain(files) {
        write(&folder.join(path), text)?;
    }
    if language == Language::Rust {
        write(&folder.join("Cargo.toml"), &workspace()?)?;
    }
    Ok(())
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), Error> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(Error::io(parent))?;
    }
    std::fs::write(path, text).map_err(Error::io(path))
}

/// A workspace of the SDK alone, with what its packages inherit.
fn workspace() -> Result<String, Error> {
    let table = |text: &str| {
        text.parse::<toml::Table>().map_err(|error: toml::de::Error| Error::Manifest(error.message().to_owned()))
    };
    let mut root = table(WORKSPACE)?;
    let mut members = Vec::new();
    let mut used = BTreeSet::new();
    for (path, text) in RUST {
        if let Some(folder) = path.strip_suffix("/Cargo.toml") {
            members.push(folder.to_owned());
            if let Some(toml::Value::Table(dependencies)) = table(text)?.remove("dependencies") {
                used.extend(dependencies.into_iter().map(|(name, _)| name));
            }
        }
    }
    let mut workspace = toml::Table::new();
    if let Some(toml::Value::Table(all)) = root.get_mut("workspace") {
        for key in ["resolver", "package", "lints"] {
            workspace.extend(all.remove_entry(key));
        }
        if let Some(toml::Value::Table(dependencies)) = all.get_mut("dependencies") {
            dependencies.retain(|name, _| used.contains(name));
            workspace.extend(all.remove_entry("dependencies"));
        }
    }
    workspace.insert("members".to_owned(), members.into());
    Ok(toml::Table::from_iter([("workspace".to_owned(), toml::Value::Table(workspace))]).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(folder: &Path, found: &mut Vec<String>) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with('.')
                || ["tests", "target", "__pycache__", "node_modules"].contains(&name.as_str())
                || name.ends_with(".egg-info")
            {
                continue;
            }
            if root.join(&path).is_dir() {
                below(&path, found);
            } else {
                found.push(path.display().to_string());
            }
        }
    }

    #[test]
    fn a_project_carries_every_file_of_its_sdk() {
        let all: [(&[&str], &[File]); 5] = [
            (&["wit"], WIT),
            (&["plugins/sdk/rust", "plugins/sdk/rust-macros"], RUST),
            (&["plugins/sdk/python"], PYTHON),
            (&["plugins/sdk/javascript"], JAVASCRIPT),
            (&["plugins/sdk/c"], C),
        ];
        for (folders, files) in all {
            let mut found = Vec::new();
            folders.iter().for_each(|folder| below(Path::new(folder), &mut found));
            found.sort();
            let mut carried: Vec<_> = files.iter().map(|(path, _)| (*path).to_owned()).collect();
            carried.sort();
            assert_eq!(carried, found, "{folders:?}");
        }
    }

    #[test]
    fn sdk_of_older_projects_is_found() {
        let copy = tempfile::tempdir().unwrap();
        assert_eq!(folder(copy.path(), "python"), copy.path().join("plugins/python"));
        unpack(Language::Python, copy.path()).unwrap();
        assert_eq!(folder(copy.path(), "python"), copy.path().join("plugins/sdk/python"));
    }

    #[test]
    fn generated_workspace_holds_only_sdk_dependencies() {
        let text: toml::Table = workspace().unwrap().parse().unwrap();
        let dependencies = text["workspace"]["dependencies"].as_table().unwrap();
        let names: Vec<_> = dependencies.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["bulkhead-plugin-macros", "proc-macro2", "quote", "schemars", "serde", "serde_json", "syn", "wit-bindgen"]
        );
        assert_eq!(text["workspace"]["package"]["edition"].as_str(), Some("2024"));
    }
}
