//! What authors wrote about their functions: in a WIT file beside the component, or in its `package-docs` section.
//!
//! Owns where such texts are looked for. Invariant: a text that cannot be read costs a description, never the plugin.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde::Deserialize;
use wasmparser::{Parser, Payload};
use wit_parser::{UnresolvedPackage, UnresolvedPackageGroup, WorldItem, WorldKey};

use super::names::Export;
use crate::runtime::world::escaped;

/// The custom section, as `wit-parser` defines it: a version byte, then JSON.
const SECTION: &str = "package-docs";

/// Bytes of a WIT file or a section. Stops documentation that is larger than what it documents.
const BYTES_MAX: usize = 1 << 20;

/// Descriptions by (interface, function). The interface has no version and is empty for functions at the root.
#[derive(Debug, Default)]
pub(super) struct Docs {
    by_function: HashMap<(String, String), String>,
}

/// Stands for the package in keys from a section, which does not say which package it is about.
const ANY_PACKAGE: &str = "*/";

impl Docs {
    /// Reads everything that there is.
    pub(super) fn of(component: &[u8], wit_file: Option<&Path>) -> Self {
        let mut docs = Self::default();
        if let Some(path) = wit_file
            && let Err(problem) = docs.read_file(path)
        {
            tracing::warn!(file = %path.display(), problem, "the WIT file beside the component is not used");
        }
        for payload in Parser::new(0).parse_all(component) {
            if let Ok(Payload::CustomSection(section)) = payload
                && section.name() == SECTION
                && let Err(problem) = docs.read_section(section.data())
            {
                tracing::warn!(problem, "the component's section package-docs is not used");
            }
        }
        docs
    }

    /// The author's words about a function.
    pub(super) fn find(&self, export: &Export) -> Option<&str> {
        let of = |interface: &str| self.by_function.get(&(interface.to_owned(), export.function.clone()));
        let interface = export.unversioned().unwrap_or_default();
        let anywhere = || of(&format!("{ANY_PACKAGE}{}", interface.rsplit_once('/')?.1));
        of(interface).or_else(anywhere).map(String::as_str)
    }

    /// The first text about a function stays.
    fn add(&mut self, interface: &str, function: &str, text: Option<&str>) {
        let text = text.unwrap_or_default().trim();
        if !text.is_empty() {
            let key = (interface.to_owned(), function.to_owned());
            self.by_function.entry(key).or_insert_with(|| text.to_owned());
        }
    }

    fn read_file(&mut self, path: &Path) -> Result<(), String> {
        let Some(text) = wit_file(path)? else { return Ok(()) };
        let group =
            UnresolvedPackageGroup::parse(path, &text).map_err(|(sources, error)| escaped(&error.render(&sources)))?;
        self.read_package(&group.main);
        group.nested.iter().for_each(|package| self.read_package(package));
        Ok(())
    }

    fn read_package(&mut self, package: &UnresolvedPackage) {
        for (_, interface) in package.interfaces.iter() {
            let Some(name) = &interface.name else { continue };
            let key = format!("{}:{}/{name}", package.name.namespace, package.name.name);
            for (function, item) in &interface.functions {
                self.add(&key, function, item.docs.contents.as_deref());
            }
        }
        for (_, world) in package.worlds.iter() {
            for (key, item) in &world.exports {
                match (key, item) {
                    (WorldKey::Name(_), WorldItem::Function(function)) => {
                        self.add("", &function.name, function.docs.contents.as_deref());
                    }
                    (WorldKey::Name(name), WorldItem::Interface { id, .. }) => {
                        let Some(interface) = package.interfaces.get(*id) else { continue };
                        for (function, item) in &interface.functions {
                            self.add(name, function, item.docs.contents.as_deref());
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn read_section(&mut self, data: &[u8]) -> Result<(), String> {
        let json = match data {
            [0 | 1, json @ ..] if json.len() <= BYTES_MAX => json,
            [0 | 1, ..] => return Err(format!("{} bytes; {BYTES_MAX} is the most", data.len())),
            _ => return Err("it is of a version that the host does not know".to_owned()),
        };
        let package: Package = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        for (name, interface) in &package.interfaces {
            self.add_section(&format!("{ANY_PACKAGE}{name}"), &interface.funcs);
        }
        for world in package.worlds.values() {
            // Where a world imports and exports the same name, the export stands apart.
            self.add_section("", &world.func_exports);
            self.add_section("", &world.funcs);
            for (name, interface) in world.interface_exports.iter().chain(&world.interfaces) {
                self.add_section(name, &interface.funcs);
            }
        }
        Ok(())
    }

    fn add_section(&mut self, interface: &str, functions: &BTreeMap<String, Written>) {
        for (name, written) in functions {
            let (Written::Text(text) | Written::Item { docs: text }) = written;
            self.add(interface, name, text.as_deref());
        }
    }
}

/// The text of a WIT file, where there is one.
///
/// # Errors
///
/// It cannot be read, or is too large; in words for the operator.
pub fn wit_file(path: &Path) -> Result<Option<String>, String> {
    match std::fs::metadata(path) {
        Ok(found) if found.len() > BYTES_MAX as u64 => Err(format!("{} bytes; {BYTES_MAX} is the most", found.len())),
        Ok(found) if !found.is_file() => Err("it is not a file".to_owned()),
        Ok(_) => std::fs::read_to_string(path).map(Some).map_err(|error| error.to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Package {
    worlds: BTreeMap<String, World>,
    interfaces: BTreeMap<String, Interface>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct World {
    funcs: BTreeMap<String, Written>,
    func_exports: BTreeMap<String, Written>,
    interfaces: BTreeMap<String, Interface>,
    interface_exports: BTreeMap<String, Interface>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Interface {
    funcs: BTreeMap<String, Written>,
}

/// The first version had texts only, the second one has room for more.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(Option<String>),
    Item {
        #[serde(default)]
        docs: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(interface: &str, function: &str) -> Export {
        let interface = (!interface.is_empty()).then(|| interface.to_owned());
        Export { interface, function: function.to_owned() }
    }

    const WIT: &str = "package acme:units@1.0.0;
        interface length {
            use other:types/numbers.{number};
            /// Converts metres
            /// to feet.
            to-feet: func(metres: number) -> number;
            silent: func();
        }
        world library {
            export length;
            /// Which one this is.
            export version: func() -> string;
            export helpers: interface {
                /// Adds.
                add: func(a: u32, b: u32) -> u32;
            }
        }";

    #[test]
    fn a_file_describes_functions_wherever_they_are_even_with_foreign_packages() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("units.wit");
        std::fs::write(&path, WIT).unwrap();
        let docs = Docs::of(b"", Some(&path));
        assert_eq!(docs.find(&export("acme:units/length@1.0.0", "to-feet")), Some("Converts metres\nto feet."));
        assert_eq!(docs.find(&export("", "version")), Some("Which one this is."));
        assert_eq!(docs.find(&export("helpers", "add")), Some("Adds."));
        assert_eq!(docs.find(&export("acme:units/length@1.0.0", "silent")), None);
        assert_eq!(docs.find(&export("other:units/length", "to-feet")), None);
    }

    #[test]
    fn a_file_that_is_missing_or_no_wit_describes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("units.wit");
        assert!(Docs::of(b"", Some(&path)).by_function.is_empty());
        std::fs::write(&path, "package ;").unwrap();
        assert!(Docs::default().read_file(&path).is_err());
        assert!(Docs::of(b"", Some(&path)).by_function.is_empty());
    }

    #[test]
    fn a_section_of_either_version_describes_functions() {
        let json = r#"{"docs":"x","worlds":{"library":{"func_exports":{"version":{"docs":"V.","stability":"unknown"}},
            "interfaces":{"helpers":{"funcs":{"add":"A."}}}}},"interfaces":{"length":{"docs":"L","funcs":{"to-feet":"T."}}}}"#;
        for version in [0, 1] {
            let mut docs = Docs::default();
            docs.read_section(&[&[version], json.as_bytes()].concat()).unwrap();
            assert_eq!(docs.find(&export("any:package/length@3.0.0", "to-feet")), Some("T."));
            assert_eq!(docs.find(&export("", "version")), Some("V."));
            assert_eq!(docs.find(&export("helpers", "add")), Some("A."));
        }
        assert!(Docs::default().read_section(&[9, b'{', b'}']).is_err());
        assert!(Docs::default().read_section(b"\x01nonsense").is_err());
        assert!(Docs::default().read_section(b"").is_err());
    }
}
