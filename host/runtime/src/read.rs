//! A component's bytes, and what can be known of it without compiling it.
//!
//! Owns the look at a file before anything is made of it. Invariant: what is larger than a component may be is not
//! read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::component_names::ComponentNames;
use super::manifest::{self, Manifest};
use super::plugin_source::{PluginSource, Source};
use super::skills::{self, Skills};
use super::typed;
use super::wasi_needs::WasiNeeds;
use bulkhead_domain::imports::{self, Grant};
use bulkhead_domain::names::check_name;
use bulkhead_domain::text::escaped;

/// Bytes of a component. Stops a compiler bomb.
pub(super) const COMPONENT_BYTES_MAX: u64 = 128 << 20;

/// A component's bytes with what can be known without compiling them.
pub(super) struct ComponentBytes {
    pub(super) bytes: Arc<[u8]>,
    pub(super) digest: [u8; 32],
    pub(super) manifest: Option<Manifest>,
    pub(super) skills: Skills,
    /// Of a component that says nothing of what it wants: what its imports can make use of, and the interface that says
    /// so.
    pub(super) usable_grants: Vec<(Grant, &'static str)>,
    pub(super) needs: WasiNeeds,
    /// Where its author's WIT would be: beside it, under the same name.
    pub(super) wit_file: Option<PathBuf>,
}

/// What the imports of a component could make use of, if it knows nothing of this host: every other one says what it
/// wants.
fn usable_grants(component: &[u8], manifest: Option<&Manifest>) -> Vec<(Grant, &'static str)> {
    if manifest.is_some() {
        return Vec::new();
    }
    let names = ComponentNames::read(component);
    if names.exports.iter().any(|export| export.starts_with(typed::OUR_PACKAGE)) {
        return Vec::new();
    }
    imports::usable_grants(names.imports)
}

/// Reads a component and checks that it is one.
pub(super) fn read(source: &Source) -> Result<ComponentBytes, Vec<String>> {
    let bytes: Arc<[u8]> = match source {
        Source::Bytes(bytes) => Arc::clone(bytes),
        Source::File(path) => read_component(path).map_err(|wrong| vec![wrong])?.into(),
    };
    check_kind(&bytes).map_err(|wrong| vec![wrong])?;
    let manifest = manifest::manifest(&bytes).map_err(|wrong| vec![wrong])?;
    let skills = skills::read(&bytes).map_err(|wrong| vec![wrong])?;
    let wit_file = match source {
        Source::File(path) => Some(path.with_extension("wit")),
        Source::Bytes(_) => None,
    };
    let usable_grants = usable_grants(&bytes, manifest.as_ref());
    let digest = Sha256::digest(&bytes).into();
    let needs = WasiNeeds::of(&bytes);
    Ok(ComponentBytes { bytes, digest, manifest, skills, usable_grants, needs, wit_file })
}

/// Reads a component's file, if it is one (a device may never end) and not larger than it may be.
///
/// # Errors
///
/// In words for the operator.
pub fn read_component(path: &Path) -> Result<Vec<u8>, String> {
    let found = std::fs::metadata(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    if !found.is_file() {
        return Err(format!("{} is not a file", path.display()));
    }
    let size = found.len();
    if size > COMPONENT_BYTES_MAX {
        return Err(format!("{size} bytes; a component has at most {COMPONENT_BYTES_MAX}"));
    }
    std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// The eight bytes at the beginning say what a file is.
pub(super) fn check_kind(bytes: &[u8]) -> Result<(), String> {
    match bytes.first_chunk::<8>() {
        Some(b"\0asm\x0d\0\x01\0") => Ok(()),
        Some(b"\0asm\x01\0\0\0") => {
            Err("this is a core module, not a component: build it for wasm32-wasip2, or make a component of it with \
             `wasm-tools component new`"
                .to_owned())
        }
        Some([b'\0', b'a', b's', b'm', ..]) => {
            Err("this is WebAssembly of a version that the host does not know".to_owned())
        }
        _ => Err("this is not WebAssembly".to_owned()),
    }
}

/// The plugin's name, in this order: configured, its manifest's, its file's.
pub(super) fn name(source: &PluginSource, manifest: Option<&Manifest>) -> Result<String, String> {
    let from_file = || match &source.component {
        Source::File(path) => path.file_stem().map(|stem| stem.to_string_lossy().into_owned()),
        Source::Bytes(_) => None,
    };
    let name = source
        .name
        .clone()
        .or_else(|| manifest.and_then(|manifest| manifest.name.clone()))
        .or_else(from_file)
        .ok_or("it has no name: set one in the configuration")?;
    check_name(&name)
        .map_err(|_| format!("its name {:?} is not 1 to 64 characters of [A-Za-z0-9_.-]", escaped(&name)))?;
    Ok(name)
}
