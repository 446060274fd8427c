//! The container image, as an OCI layout in one tar.
//!
//! Owns the two layers and how the image is run. It is assembled without a container engine, so that nothing of the
//! machine comes into it. Invariant: its process has a user without rights, and the only folder that this user may
//! write to, besides `/tmp`, is the volume.

use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::release::{self, DOCUMENTS, Release};
use crate::tree::{READABLE, Tree, gzip, sha256};
use crate::{Package, base};

/// The user and group of the process.
const USER: u64 = 65_532;
const VOLUME: &str = "data";
const CONFIGURATION: &str = "etc/bulkhead/bulkhead.toml";

const IMAGE_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const IMAGE_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const IMAGE_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const IMAGE_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The image, with its lowest layer from Debian's packages in a folder.
pub(crate) fn package(release: &Release, debian_packages: &Path, pins: &Path) -> anyhow::Result<Package> {
    let pins = std::fs::read_to_string(pins).with_context(|| format!("cannot read {}", pins.display()))?;
    let mut base = base::layer(&pins, release.needs.machine.debian, debian_packages)?;
    add_users(&mut base);
    let mut layout = Tree::default();
    let mut layers = Vec::new();
    let mut diff_ids = Vec::new();
    for tree in [base, own_layer(release)?] {
        let tar = tree.tar(release.epoch)?;
        diff_ids.push(format!("sha256:{}", sha256(&tar)));
        layers.push(add_blob(&mut layout, IMAGE_LAYER, gzip(&tar, release.compression)?));
    }
    let config = add_blob(&mut layout, IMAGE_CONFIG, serde_json::to_vec(&config(release, &diff_ids)?)?);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": IMAGE_MANIFEST,
        "config": config,
        "layers": layers,
        "annotations": labels(release)?,
    });
    let mut manifest = add_blob(&mut layout, IMAGE_MANIFEST, serde_json::to_vec(&manifest)?);
    manifest["annotations"] = json!({
        "org.opencontainers.image.ref.name": release.version,
        // The name under which an engine keeps what it loads.
        "io.containerd.image.name": format!("localhost/{}:{}", release::NAME, release.version),
    });
    manifest["platform"] = json!({ "architecture": release.needs.machine.debian, "os": "linux" });
    let index = json!({ "schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": [manifest] });
    layout.file("index.json", READABLE, serde_json::to_vec(&index)?);
    layout.file("oci-layout", READABLE, *br#"{"imageLayoutVersion":"1.0.0"}"#);
    Ok(Package { name: format!("{}.oci.tar", release.full_name()), bytes: layout.tar(release.epoch)? })
}

/// The users that libraries look up, and folders that belong to them.
fn add_users(tree: &mut Tree) {
    let passwd =
        format!("root:x:0:0:root:/root:/sbin/nologin\nbulkhead:x:{USER}:{USER}:Bulkhead:/{VOLUME}:/sbin/nologin\n");
    tree.file("etc/passwd", READABLE, passwd.into_bytes());
    tree.file("etc/group", READABLE, format!("root:x:0:\nbulkhead:x:{USER}:\n").into_bytes());
    tree.folder("tmp", 0o1777, 0);
}

/// What a new version changes.
fn own_layer(release: &Release) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    release.add_programs(&mut tree, "usr/bin");
    release.add_documents(&mut tree, &format!("usr/{DOCUMENTS}"));
    tree.file(CONFIGURATION, READABLE, release.contrib("image/bulkhead.toml")?);
    tree.folder(VOLUME, 0o700, USER);
    Ok(tree)
}

fn config(release: &Release, diff_ids: &[String]) -> anyhow::Result<Value> {
    Ok(json!({
        "created": release.time()?,
        "architecture": release.needs.machine.debian,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "ExposedPorts": { "8808/tcp": {} },
            "Env": ["PATH=/usr/bin"],
            "Entrypoint": ["/usr/bin/bulkhead"],
            "Cmd": ["serve", "--config", format!("/{CONFIGURATION}")],
            "Volumes": { format!("/{VOLUME}"): {} },
            "WorkingDir": "/",
            "StopSignal": "SIGTERM",
            "Labels": labels(release)?,
        },
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
        "history": [
            { "created": release.time()?, "created_by": "libraries of Debian's packages" },
            { "created": release.time()?, "created_by": format!("{} {}", release::NAME, release.version) },
        ],
    }))
}

fn labels(release: &Release) -> anyhow::Result<Value> {
    Ok(json!({
        "org.opencontainers.image.title": release::NAME,
        "org.opencontainers.image.description": release::SUMMARY,
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.licenses": release::LICENSE,
        "org.opencontainers.image.created": release.time()?,
    }))
}

/// Puts bytes under the name of their digest; returns how the image refers to them.
fn add_blob(layout: &mut Tree, media_type: &str, bytes: Vec<u8>) -> Value {
    let digest = sha256(&bytes);
    let descriptor = json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len() });
    layout.file(&format!("blobs/sha256/{digest}"), READABLE, bytes);
    descriptor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blob_lies_under_its_digest() {
        let mut layout = Tree::default();
        let descriptor = add_blob(&mut layout, IMAGE_CONFIG, b"{}".to_vec());
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap().to_owned();
        let blobs: Vec<_> = layout.files().map(|(path, _, bytes)| (path.to_owned(), bytes.to_vec())).collect();
        assert_eq!(blobs, [(format!("blobs/sha256/{digest}"), b"{}".to_vec())]);
        assert_eq!(descriptor["size"], 2);
    }
}
