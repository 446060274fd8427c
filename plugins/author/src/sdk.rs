//! The copy of the interface and the SDKs that every new project carries in `bulkhead/`, laid out as in Bulkhead's repository, so
//! that a project builds on a machine that has nothing of Bulkhead but the program.

use std::collections::BTreeSet;
use std::path::Path;

use crate::{Error, Language};

type File = (&'static str, &'static str);

macro_rules! files {
    ($($path:literal),* $(,)?) => { &[$(($path, include_str!(concat!("../../../", $path)))),*] };
}

const WIT: &[File] = files![
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
    "plugins/sdk/Cargo.toml",
    "plugins/sdk/src/ask.rs",
    "plugins/sdk/src/bindings.rs",
    "plugins/sdk/src/call.rs",
    "plugins/sdk/src/complete.rs",
    "plugins/sdk/src/config.rs",
    "plugins/sdk/src/error.rs",
    "plugins/sdk/src/input.rs",
    "plugins/sdk/src/kv.rs",
    "plugins/sdk/src/lib.rs",
    "plugins/sdk/src/output.rs",
    "plugins/sdk/src/plugin.rs",
    "plugins/sdk/src/prompt.rs",
    "plugins/sdk/src/pure.rs",
    "plugins/sdk/src/resource.rs",
    "plugins/sdk/src/schema.rs",
    "plugins/sdk/src/task.rs",
    "plugins/sdk/src/uri_template.rs",
    "plugins/sdk-macros/Cargo.toml",
    "plugins/sdk-macros/src/lib.rs",
    "plugins/sdk-macros/src/options.rs",
    "plugins/sdk-macros/src/parameter.rs",
    "plugins/sdk-macros/src/words.rs",
];

const PYTHON: &[File] = files![
    "plugins/python/pyproject.toml",
    "plugins/python/bulkhead_plugin/__init__.py",
    "plugins/python/bulkhead_plugin/_host.py",
    "plugins/python/bulkhead_plugin/_offers.py",
    "plugins/python/bulkhead_plugin/_output.py",
    "plugins/python/bulkhead_plugin/_schema.py",
    "plugins/python/bulkhead_plugin/_tool.py",
    "plugins/python/bulkhead_plugin/ask.py",
    "plugins/python/bulkhead_plugin/call.py",
    "plugins/python/bulkhead_plugin/component.py",
    "plugins/python/bulkhead_plugin/component_completions.py",
    "plugins/python/bulkhead_plugin/component_prompts.py",
    "plugins/python/bulkhead_plugin/component_resources.py",
    "plugins/python/bulkhead_plugin/config.py",
    "plugins/python/bulkhead_plugin/errors.py",
    "plugins/python/bulkhead_plugin/kv.py",
    "plugins/python/bulkhead_plugin/py.typed",
    "plugins/python/bulkhead_plugin/task.py",
    "plugins/python/bulkhead_plugin/testing.py",
];

const JAVASCRIPT: &[File] = files![
    "plugins/javascript/package.json",
    "plugins/javascript/component.js",
    "plugins/javascript/errors.js",
    "plugins/javascript/index.d.ts",
    "plugins/javascript/index.js",
    "plugins/javascript/offers.js",
    "plugins/javascript/output.js",
    "plugins/javascript/talk.js",
    "plugins/javascript/testing.d.ts",
    "plugins/javascript/testing.js",
];

/// The workspace that the Rust SDK is written in: its manifest takes versions and lints from there.
const WORKSPACE: &str = include_str!("../../../Cargo.toml");

/// Writes what a project of this language needs.
pub(crate) fn unpack(language: Language, folder: &Path) -> Result<(), Error> {
    let files = match language {
        Language::Rust => RUST,
        Language::Python => PYTHON,
        Language::Javascript => JAVASCRIPT,
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
    let (mut members, mut used) = (Vec::new(), BTreeSet::new());
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
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
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
        let all: [(&[&str], &[File]); 4] = [
            (&["wit"], WIT),
            (&["plugins/sdk", "plugins/sdk-macros"], RUST),
            (&["plugins/python"], PYTHON),
            (&["plugins/javascript"], JAVASCRIPT),
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
    fn the_workspace_holds_what_the_sdk_inherits_and_no_more() {
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
