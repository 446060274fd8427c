//! The manifest of a component in a registry: the CNCF layout for wasm artifacts (TAG Runtime, "Wasm OCI Artifact
//! layout").
//!
//! Invariant: the one layer that is a component is taken, and what is written here, others read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{digest_of, oci_digest};
use crate::Digest;

pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const WASM_CONFIG: &str = "application/vnd.wasm.config.v0+json";
const WASM_LAYER: &str = "application/wasm";
/// What `wasm-to-oci` wrote before there was a common layout.
const WASM_LAYER_OLD: &str = "application/vnd.wasm.content.layer.v1+wasm";

/// What a registry is asked to answer with.
pub(super) const ACCEPT: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json";

/// One blob, as a manifest names it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Descriptor {
    #[serde(rename = "mediaType")]
    pub(super) media_type: String,
    digest: String,
    pub(super) size: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
    #[serde(rename = "artifactType", default, skip_serializing_if = "Option::is_none")]
    pub(super) artifact_type: Option<String>,
}

impl Descriptor {
    pub(super) fn of(media_type: &str, bytes: &[u8]) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest: format!("sha256:{}", digest_of(bytes)),
            size: bytes.len() as u64,
            annotations: BTreeMap::new(),
            artifact_type: None,
        }
    }

    pub(super) fn digest_text(&self) -> &str {
        &self.digest
    }

    /// # Errors
    /// It is not of SHA-256, or no digest at all; in words.
    pub(super) fn digest(&self) -> Result<Digest, String> {
        oci_digest(&self.digest).ok_or_else(|| {
            format!("the manifest names a blob by {:?}; expected sha256: and 64 digits", shortened(&self.digest))
        })
    }
}

/// An image manifest.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Manifest {
    #[serde(rename = "schemaVersion")]
    schema_version: u32,
    #[serde(rename = "mediaType", default, skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    #[serde(rename = "artifactType", default, skip_serializing_if = "Option::is_none")]
    pub(super) artifact_type: Option<String>,
    pub(super) config: Descriptor,
    pub(super) layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

/// A list of manifests.
#[derive(Debug, Deserialize)]
pub(super) struct Index {
    #[serde(default)]
    pub(super) manifests: Vec<Descriptor>,
}

impl Manifest {
    pub(super) fn new(config: Descriptor, layers: Vec<Descriptor>) -> Self {
        Self {
            schema_version: 2,
            media_type: Some(MANIFEST.to_owned()),
            artifact_type: None,
            config,
            layers,
            annotations: BTreeMap::new(),
        }
    }

    /// # Errors
    /// It is not one; in words.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct ManifestKind {
            #[serde(rename = "mediaType", default)]
            media_type: Option<String>,
            #[serde(default)]
            manifests: Option<Vec<Entry>>,
        }
        #[derive(Deserialize)]
        struct Entry {
            #[serde(default)]
            digest: String,
        }
        let no_manifest = |error: serde_json::Error| format!("what is there is no image manifest: {error}");
        let head: ManifestKind = serde_json::from_slice(bytes).map_err(no_manifest)?;
        if head.manifests.is_some() || head.media_type.as_deref() == Some(INDEX) {
            let listed = head.manifests.unwrap_or_default();
            let mut digests: Vec<_> = listed.iter().take(DIGESTS_SHOWN).map(|entry| shortened(&entry.digest)).collect();
            digests.retain(|digest| !digest.is_empty());
            if listed.len() > DIGESTS_SHOWN {
                digests.push("…".to_owned());
            }
            let what = if listed.len() == 1 { "one artifact" } else { "several artifacts" };
            let digests = Some(digests.join(", ")).filter(|digests| !digests.is_empty());
            let digests = digests.map_or_else(String::new, |digests| format!(": {digests}"));
            return Err(format!("there is an index of {what}; name the one that you want by its digest{digests}"));
        }
        match head.media_type.as_deref() {
            None | Some(MANIFEST | DOCKER_MANIFEST) => serde_json::from_slice(bytes).map_err(no_manifest),
            Some(other) => Err(format!("there is a {:?}; expected {MANIFEST}", shortened(other))),
        }
    }

    /// The layer with the component.
    ///
    /// # Errors
    /// The artifact is something else, like a container image; in words.
    pub(super) fn component(&self) -> Result<&Descriptor, String> {
        match self.layers.as_slice() {
            [layer] if layer.media_type == WASM_LAYER_OLD => Ok(layer),
            [layer] if layer.media_type == WASM_LAYER && self.config.media_type == WASM_CONFIG => Ok(layer),
            layers => {
                let found: Vec<_> = layers.iter().take(4).map(|layer| shortened(&layer.media_type)).collect();
                Err(format!(
                    "there is no component: expected one layer {WASM_LAYER} with the config {WASM_CONFIG}, found {} layers [{}] \
                     with the config {}",
                    layers.len(),
                    found.join(", "),
                    shortened(&self.config.media_type)
                ))
            }
        }
    }
}

/// The manifest of a component with the given imports and exports; with its config, which goes into the registry beside
/// it.
///
/// `created` is an RFC 3339 time.
pub(super) fn of_component(bytes: &[u8], world: &World, created: &str) -> (Manifest, Vec<u8>) {
    let layer = Descriptor::of(WASM_LAYER, bytes);
    let config = serde_json::json!({
        "created": created,
        "architecture": "wasm",
        "os": "wasip2",
        "layerDigests": [layer.digest],
        "component": { "exports": world.exports, "imports": world.imports, "target": null },
    });
    let config = config.to_string().into_bytes();
    (Manifest::new(Descriptor::of(WASM_CONFIG, &config), vec![layer]), config)
}

/// What a component imports and exports, by name.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) imports: Vec<String>,
    pub(super) exports: Vec<String>,
}

impl World {
    /// # Errors
    /// The bytes are no component; in words.
    pub(super) fn of(bytes: &[u8]) -> Result<Self, String> {
        use wasmparser::{Encoding, Parser, Payload};
        let mut world = Self::default();
        let mut depth = 0_usize;
        let invalid = |error: wasmparser::BinaryReaderError| format!("it is not a valid component: {error}");
        for payload in Parser::new(0).parse_all(bytes) {
            match payload.map_err(invalid)? {
                Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                    return Err("it is a core module, not a component".to_owned());
                }
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::ComponentImportSection(section) if depth == 0 => {
                    for import in section {
                        world.imports.push(import.map_err(invalid)?.name.name.to_owned());
                    }
                }
                Payload::ComponentExportSection(section) if depth == 0 => {
                    for export in section {
                        world.exports.push(export.map_err(invalid)?.name.name.to_owned());
                    }
                }
                _ => {}
            }
        }
        Ok(world)
    }
}

/// Artifacts of an index that a message names.
const DIGESTS_SHOWN: usize = 4;

/// Of what a stranger wrote, as much as a message has room for.
fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(config: &str, layers: &[&str]) -> Manifest {
        let layers = layers.iter().map(|layer| Descriptor::of(layer, b"x")).collect();
        Manifest::new(Descriptor::of(config, b"{}"), layers)
    }

    #[test]
    fn oci_manifest_of_either_layout_holds_a_component() {
        for (config, layer) in [(WASM_CONFIG, WASM_LAYER), ("application/vnd.wasm.config.v1+json", WASM_LAYER_OLD)] {
            let manifest = manifest(config, &[layer]);
            let bytes = serde_json::to_vec(&manifest).unwrap();
            let read = Manifest::parse(&bytes).unwrap();
            assert_eq!(read.component().unwrap().digest(), Ok(digest_of(b"x")));
        }
    }

    #[test]
    fn oci_manifest_without_component_says_its_content() {
        let tar = "application/vnd.oci.image.layer.v1.tar+gzip";
        for (config, layers) in [
            ("application/vnd.oci.image.config.v1+json", &[tar, tar][..]),
            ("application/vnd.oci.image.config.v1+json", &[WASM_LAYER]),
            (WASM_CONFIG, &[WASM_LAYER, WASM_LAYER]),
            (WASM_CONFIG, &[]),
        ] {
            let refused = manifest(config, layers).component().unwrap_err();
            assert!(
                refused.contains(WASM_LAYER) && refused.contains(&format!("found {} layers", layers.len())),
                "{refused}"
            );
        }
        let index = br#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#;
        assert!(Manifest::parse(index).unwrap_err().contains("by its digest"));
        let bare = br#"{"schemaVersion":2,"manifests":[{}]}"#;
        assert!(Manifest::parse(bare).unwrap_err().contains("by its digest"));
        for (count, expected) in [
            (1, "index of one artifact; name the one that you want by its digest: sha256:0"),
            (2, "index of several artifacts; name the one that you want by its digest: sha256:0, sha256:1"),
            (9, "sha256:0, sha256:1, sha256:2, sha256:3, …"),
        ] {
            let listed: Vec<_> = (0..count).map(|at| serde_json::json!({"digest": format!("sha256:{at}")})).collect();
            let refused = Manifest::parse(serde_json::json!({"manifests": listed}).to_string().as_bytes()).unwrap_err();
            assert!(refused.ends_with(expected), "{refused}");
        }
        for other in [&b"not json"[..], b"{}", br#"{"mediaType":"text/html"}"#, b"[]"] {
            assert!(Manifest::parse(other).is_err());
        }
    }

    #[test]
    fn oci_blob_of_other_digest_algorithm_is_refused() {
        for digest in ["sha512:00", "sha256:zz", "md5:1", ""] {
            let descriptor = Descriptor { digest: digest.to_owned(), ..Descriptor::of(WASM_LAYER, b"x") };
            assert!(descriptor.digest().unwrap_err().contains("expected sha256"), "{digest}");
        }
    }

    #[test]
    fn oci_config_names_imports_and_exports() {
        let component = wat::parse_str(
            r#"(component
                (import "acme:log/sink" (instance))
                (component $inner (import "not:mine/inner" (instance)) (export "hidden" (instance 0)))
                (core module (import "m" "f" (func)))
                (instance $empty)
                (export "acme:tool/run@1.0.0" (instance $empty)))"#,
        )
        .unwrap();
        let world = World::of(&component).unwrap();
        assert_eq!(
            (world.imports.as_slice(), world.exports.as_slice()),
            (&["acme:log/sink".to_owned()][..], &["acme:tool/run@1.0.0".to_owned()][..])
        );
        let (manifest, config) = of_component(&component, &world, "2026-01-02T03:04:05Z");
        assert_eq!(manifest.config.digest(), Ok(digest_of(&config)));
        assert_eq!(manifest.component().unwrap().size, component.len() as u64);
        let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
        assert_eq!(config["layerDigests"][0], format!("sha256:{}", digest_of(&component)));
        assert!(World::of(b"\0asm\x01\0\0\0").unwrap_err().contains("core module"));
        assert!(World::of(b"not wasm").is_err());
    }
}
