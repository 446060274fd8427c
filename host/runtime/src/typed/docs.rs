//! Documentation that authors wrote for functions and types: in a WIT file next to the component, or in its
//! `package-docs` section.
//!
//! Owns where such texts are looked for. Invariant: a text that cannot be read costs a description, never the plugin.

use std::collections::{BTreeMap, HashMap};
use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;
use serde::Deserialize;
use wasmparser::{Parser, Payload};
use wit_parser::{Interface, TypeDef, TypeDefKind, UnresolvedPackage, UnresolvedPackageGroup, WorldItem, WorldKey};

use super::glossary::TypeDocs;
use super::names::Export;
use bulkhead_domain::text::{beginning, escaped};

/// The custom section, as `wit-parser` defines it: a version byte, then JSON.
const SECTION: &str = "package-docs";

/// Bytes of a WIT file or a section. Stops documentation that is larger than what it documents.
const BYTES_MAX: usize = 1 << 20;

/// Bytes of a text about a type or a part of one; a longer one ends there.
const TYPE_TEXT_BYTES_MAX: usize = 1 << 10;

/// Descriptions by (interface, name). The interface has no version and is empty for what stands at the root.
#[derive(Debug, Default)]
pub(super) struct Docs {
    by_function: HashMap<(String, String), String>,
    by_type: HashMap<(String, String), TypeDocs>,
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
        let interface = export.unversioned().unwrap_or_default();
        in_interface(&self.by_function, interface, &export.function).map(String::as_str)
    }

    /// The author's words about a type. The interface is without its version.
    pub(super) fn find_type(&self, interface: &str, name: &str) -> Option<&TypeDocs> {
        in_interface(&self.by_type, interface, name)
    }

    pub(super) fn has_types(&self) -> bool {
        !self.by_type.is_empty()
    }

    /// The first text about a function stays.
    fn add(&mut self, interface: &str, function: &str, text: Option<&str>) {
        let text = text.unwrap_or_default().trim();
        if !text.is_empty() {
            let key = (interface.to_owned(), function.to_owned());
            self.by_function.entry(key).or_insert_with(|| text.to_owned());
        }
    }

    /// The first words about a type stay.
    fn add_type<'a>(
        &mut self,
        interface: &str,
        name: &str,
        text: Option<&'a str>,
        parts: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    ) {
        let parts = parts.into_iter().map(|(part, text)| (part.to_owned(), shown(text)));
        let words = TypeDocs { text: shown(text), parts: parts.filter(|(_, text)| !text.is_empty()).collect() };
        if !words.is_empty() {
            self.by_type.entry((interface.to_owned(), name.to_owned())).or_insert(words);
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
            if let Some(name) = &interface.name {
                let key = format!("{}:{}/{name}", package.name.namespace, package.name.name);
                self.read_interface(&key, interface, package);
            }
        }
        for (_, world) in package.worlds.iter() {
            for item in world.imports.values() {
                if let WorldItem::Type { id, .. } = item {
                    self.read_type("", package.types.get(*id));
                }
            }
            for (key, item) in &world.exports {
                match (key, item) {
                    (WorldKey::Name(_), WorldItem::Function(function)) => {
                        self.add("", &function.name, function.docs.contents.as_deref());
                    }
                    (WorldKey::Name(name), WorldItem::Interface { id, .. }) => {
                        let Some(interface) = package.interfaces.get(*id) else { continue };
                        self.read_interface(name, interface, package);
                    }
                    _ => {}
                }
            }
        }
    }

    fn read_interface(&mut self, key: &str, interface: &Interface, package: &UnresolvedPackage) {
        for (function, item) in &interface.functions {
            self.add(key, function, item.docs.contents.as_deref());
        }
        for id in interface.types.values() {
            self.read_type(key, package.types.get(*id));
        }
    }

    fn read_type(&mut self, interface: &str, ty: Option<&TypeDef>) {
        let Some((ty, name)) = ty.and_then(|ty| Some((ty, ty.name.as_deref()?))) else { return };
        let parts: Vec<_> = match &ty.kind {
            TypeDefKind::Record(record) => record.fields.iter().map(|part| (&part.name, &part.docs)).collect(),
            TypeDefKind::Variant(variant) => variant.cases.iter().map(|part| (&part.name, &part.docs)).collect(),
            TypeDefKind::Enum(words) => words.cases.iter().map(|part| (&part.name, &part.docs)).collect(),
            TypeDefKind::Flags(flags) => flags.flags.iter().map(|part| (&part.name, &part.docs)).collect(),
            _ => Vec::new(),
        };
        let parts = parts.into_iter().map(|(name, docs)| (name.as_str(), docs.contents.as_deref()));
        self.add_type(interface, name, ty.docs.contents.as_deref(), parts);
    }

    fn read_section(&mut self, data: &[u8]) -> Result<(), String> {
        let json = match data {
            [0 | 1, json @ ..] if json.len() <= BYTES_MAX => json,
            [0 | 1, ..] => return Err(format!("{} bytes; {BYTES_MAX} is the most", data.len())),
            _ => return Err("it is of a version that the host does not know".to_owned()),
        };
        let package: Package = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        for (name, interface) in &package.interfaces {
            self.add_section(&format!("{ANY_PACKAGE}{name}"), &interface.funcs, &interface.types);
        }
        for world in package.worlds.values() {
            // Where a world imports and exports the same name, the export stands apart.
            self.add_section("", &world.func_exports, &world.types);
            self.add_section("", &world.funcs, &BTreeMap::new());
            for (name, interface) in world.interface_exports.iter().chain(&world.interfaces) {
                self.add_section(name, &interface.funcs, &interface.types);
            }
        }
        Ok(())
    }

    fn add_section(
        &mut self,
        interface: &str,
        functions: &BTreeMap<String, Written>,
        types: &BTreeMap<String, WrittenType>,
    ) {
        for (name, written) in functions {
            let (Written::Text(text) | Written::Item { docs: text }) = written;
            self.add(interface, name, text.as_deref());
        }
        for (name, WrittenType { docs, items }) in types {
            let parts = items.iter().map(|(part, text)| (part.as_str(), Some(text.as_str())));
            self.add_type(interface, name, docs.as_deref(), parts);
        }
    }
}

/// What stands under a name in an interface, or in an interface of that name of whatever package.
fn in_interface<'a, T>(all: &'a HashMap<(String, String), T>, interface: &str, name: &str) -> Option<&'a T> {
    let of = |interface: &str| all.get(&(interface.to_owned(), name.to_owned()));
    of(interface).or_else(|| of(&format!("{ANY_PACKAGE}{}", interface.rsplit_once('/')?.1)))
}

/// An author's text without what would act on a terminal; paragraphs stay.
pub(super) fn plain(text: &str) -> String {
    text.split('\n').map(|line| escaped(line.trim_end())).collect::<Vec<_>>().join("\n")
}

/// A text about a type as clients may see it.
fn shown(text: Option<&str>) -> String {
    plain(beginning(text.unwrap_or_default().trim(), TYPE_TEXT_BYTES_MAX))
}

/// The text of a WIT file, where there is one.
///
/// # Errors
///
/// It cannot be read, or is too large; in words for the operator.
pub fn wit_file(path: &Path) -> Result<Option<String>, String> {
    // Opened once, and asked what it is then: a pipe would keep whoever reads it waiting, and a file may be swapped.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return Err("it is not a file".to_owned());
    }
    let mut text = String::new();
    let read = file.take(BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if read > BYTES_MAX { Err(format!("more than {BYTES_MAX} bytes")) } else { Ok(Some(text)) }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Package {
    worlds: BTreeMap<String, World>,
    interfaces: BTreeMap<String, WrittenInterface>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct World {
    types: BTreeMap<String, WrittenType>,
    funcs: BTreeMap<String, Written>,
    func_exports: BTreeMap<String, Written>,
    interfaces: BTreeMap<String, WrittenInterface>,
    interface_exports: BTreeMap<String, WrittenInterface>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WrittenInterface {
    funcs: BTreeMap<String, Written>,
    types: BTreeMap<String, WrittenType>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WrittenType {
    docs: Option<String>,
    items: BTreeMap<String, String>,
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
            /// How long.
            record span {
                /// In metres.
                metres: f64,
                rest: number,
            }
            variant way { /// On foot.
                walk, fly(u32) }
        }
        world library {
            flags marks { /// Seen.
                seen, other }
            export length;
            /// Which one this is.
            export version: func() -> string;
            export helpers: interface {
                /// Adds.
                add: func(a: u32, b: u32) -> u32;
            }
        }";

    #[test]
    fn wit_file_docs_cover_functions_of_foreign_packages() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("units.wit");
        std::fs::write(&path, WIT).unwrap();
        let docs = Docs::of(b"", Some(&path));
        assert_eq!(docs.find(&export("acme:units/length@1.0.0", "to-feet")), Some("Converts metres\nto feet."));
        assert_eq!(docs.find(&export("", "version")), Some("Which one this is."));
        assert_eq!(docs.find(&export("helpers", "add")), Some("Adds."));
        assert_eq!(docs.find(&export("acme:units/length@1.0.0", "silent")), None);
        assert_eq!(docs.find(&export("other:units/length", "to-feet")), None);
        let span = docs.find_type("acme:units/length", "span").unwrap();
        assert_eq!(
            (span.text.as_str(), span.part("metres"), span.part("rest")),
            ("How long.", Some("In metres."), None)
        );
        assert_eq!(docs.find_type("acme:units/length", "way").unwrap().part("walk"), Some("On foot."));
        assert_eq!(docs.find_type("", "marks").unwrap().part("seen"), Some("Seen."));
        assert_eq!(docs.find_type("acme:units/length", "number"), None);
    }

    #[test]
    fn missing_or_invalid_wit_file_gives_no_docs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("units.wit");
        assert!(Docs::of(b"", Some(&path)).by_function.is_empty());
        std::fs::write(&path, "package ;").unwrap();
        assert!(Docs::default().read_file(&path).is_err());
        assert!(Docs::of(b"", Some(&path)).by_function.is_empty());
    }

    #[test]
    fn package_docs_section_of_either_version_is_read() {
        let json = r#"{"docs":"x","worlds":{"library":{"func_exports":{"version":{"docs":"V.","stability":"unknown"}},
            "interfaces":{"helpers":{"funcs":{"add":"A."}}}}},"interfaces":{"length":{"docs":"L","funcs":{"to-feet":"T."},
            "types":{"span":{"docs":"S.","items":{"metres":"M."}}}}}}"#;
        for version in [0, 1] {
            let mut docs = Docs::default();
            docs.read_section(&[&[version], json.as_bytes()].concat()).unwrap();
            assert_eq!(docs.find(&export("any:package/length@3.0.0", "to-feet")), Some("T."));
            assert_eq!(docs.find(&export("", "version")), Some("V."));
            assert_eq!(docs.find(&export("helpers", "add")), Some("A."));
            assert_eq!(docs.find_type("any:package/length", "span").unwrap().part("metres"), Some("M."));
        }
        assert!(Docs::default().read_section(&[9, b'{', b'}']).is_err());
        assert!(Docs::default().read_section(b"\x01nonsense").is_err());
        assert!(Docs::default().read_section(b"").is_err());
    }
}
