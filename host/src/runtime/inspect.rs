//! What can be read from a component: its manifest, imports, what it offers, digest and size.

use serde::Deserialize;
use wasmparser::{Parser, Payload};
use wasmtime::Engine;
use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;

use crate::domain::offer::{Prompt, Resource, ResourceTemplate};
use crate::domain::tool::Tool;

/// The custom section with the plugin's wishes, written by its build.
const MANIFEST_SECTION: &str = "bulkhead:manifest";
/// Bytes of a manifest.
const MANIFEST_BYTES_MAX: usize = 64 << 10;

/// What a plugin says about itself and wants. Wishes, not grants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Manifest {
    pub name: Option<String>,
    pub description: Option<String>,
    /// Everything as it was written.
    #[serde(skip)]
    pub text: String,
}

/// What `bulkhead plugin inspect` shows.
#[derive(Clone, Debug)]
pub struct Inspection {
    pub name: String,
    /// SHA-256 as hexadecimal digits.
    pub digest: String,
    /// Bytes.
    pub size: u64,
    pub manifest: Option<Manifest>,
    /// `interface.function`, in the order of the component.
    pub imports: Vec<String>,
    pub exports: Vec<String>,
    /// Whether the component knows nothing of this host, so that its functions are the tools.
    pub typed: bool,
    pub tools: Vec<Tool>,
    pub prompts: Vec<Prompt>,
    pub templates: Vec<ResourceTemplate>,
    /// Those that it lists without any grant, as far as a few pages go.
    pub resources: Vec<Resource>,
}

/// Finds the manifest, in the component or in a module inside it.
///
/// # Errors
///
/// When the component cannot be read to its end, or the manifest is no TOML.
pub(super) fn manifest(bytes: &[u8]) -> Result<Option<Manifest>, String> {
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(|error| {
            if error.message().contains("unexpected end") {
                "the file is truncated".to_owned()
            } else {
                format!("it is not a valid component: {error}")
            }
        })?;
        if let Payload::CustomSection(section) = payload
            && section.name() == MANIFEST_SECTION
        {
            return read_manifest(section.data()).map(Some);
        }
    }
    Ok(None)
}

fn read_manifest(data: &[u8]) -> Result<Manifest, String> {
    if data.len() > MANIFEST_BYTES_MAX {
        return Err(format!("its manifest has {} bytes; {MANIFEST_BYTES_MAX} is the most", data.len()));
    }
    let text = std::str::from_utf8(data).map_err(|_| "its manifest is not UTF-8".to_owned())?;
    let mut manifest: Manifest =
        toml::from_str(text).map_err(|error| format!("its manifest is not valid TOML: {}", error.message()))?;
    manifest.text = text.to_owned();
    Ok(manifest)
}

/// Imports and exports by function.
pub(super) fn functions(engine: &Engine, component: &Component) -> (Vec<String>, Vec<String>) {
    let ty = component.component_type();
    let flatten = |items: Vec<(String, ComponentItem)>| {
        let mut names = Vec::new();
        for (name, item) in items {
            match item {
                ComponentItem::ComponentInstance(instance) => {
                    for (member, item) in instance.exports(engine) {
                        if matches!(item.ty, ComponentItem::ComponentFunc(_)) {
                            names.push(format!("{name}.{member}"));
                        }
                    }
                }
                ComponentItem::ComponentFunc(_) => names.push(name),
                _ => {}
            }
        }
        names
    };
    let imports = ty.imports(engine).map(|(name, item)| (name.to_owned(), item.ty)).collect();
    let exports = ty.exports(engine).map(|(name, item)| (name.to_owned(), item.ty)).collect();
    (flatten(imports), flatten(exports))
}

/// Bytes as lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
