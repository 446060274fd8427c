//! The lowest layer of the image: what the programs need of a Debian, taken out of its packages.
//!
//! Owns which files of which packages these are. Must not download anything. Invariant: a package is used only if its
//! digest is the one that is pinned, so that the layer is the same on every machine.

use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::release;
use crate::tree::{READABLE, Tree, sha256};

/// A package of Debian in one version.
#[derive(Debug, PartialEq)]
struct Pin {
    name: String,
    version: String,
    sha256: String,
}

/// The layer for a processor, from the packages in a folder.
pub(crate) fn layer(pins: &str, architecture: &str, packages: &Path) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    for pin in read(pins, architecture)? {
        let path = packages.join(format!("{}_{}_{architecture}.deb", pin.name, pin.version));
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let found = sha256(&bytes);
        ensure!(found == pin.sha256, "{} has the SHA-256 {found}, and {} is pinned", path.display(), pin.sha256);
        let contents = release::output(Command::new("dpkg-deb").arg("--fsys-tarfile").arg(&path))?;
        add_needed(&mut tree, &contents)?;
        // Scanners find here what is in an image without dpkg.
        let control = release::output(Command::new("dpkg-deb").arg("--field").arg(&path))?;
        tree.file(&format!("var/lib/dpkg/status.d/{}", pin.name), READABLE, control);
    }
    Ok(tree)
}

fn read(pins: &str, architecture: &str) -> anyhow::Result<Vec<Pin>> {
    let pins: toml::Table = pins.parse().context("the list of pinned packages is not TOML")?;
    let packages = pins.get(architecture).and_then(toml::Value::as_array);
    let packages = packages.with_context(|| format!("no packages are pinned for {architecture}"))?;
    let text = |package: &toml::Value, key: &str| -> anyhow::Result<String> {
        let value = package.get(key).and_then(toml::Value::as_str);
        Ok(value.with_context(|| format!("a pinned package has no {key}"))?.to_owned())
    };
    let pin = |package| -> anyhow::Result<Pin> {
        Ok(Pin { name: text(package, "name")?, version: text(package, "version")?, sha256: text(package, "sha256")? })
    };
    packages.iter().map(pin).collect()
}

/// Takes over from a package, as tar, what belongs into the layer.
fn add_needed(tree: &mut Tree, package: &[u8]) -> anyhow::Result<()> {
    for entry in tar::Archive::new(package).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.display().to_string();
        let path = path.trim_start_matches("./");
        if !is_needed(path) {
            continue;
        }
        match entry.header().entry_type() {
            tar::EntryType::Regular => {
                let mode = entry.header().mode()?;
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes)?;
                tree.file(path, mode & 0o755, bytes);
            }
            tar::EntryType::Symlink => {
                let target = entry.link_name()?.context("a link leads nowhere")?.display().to_string();
                tree.link(path, &target);
            }
            // Folders come with what is in them.
            _ => {}
        }
    }
    Ok(())
}

/// Libraries, licences, and what says which Debian it is.
fn is_needed(path: &str) -> bool {
    let is_document = path.strip_prefix("usr/share/doc/").is_some_and(|document| {
        // Some packages have only a link to the folder of another one.
        document.ends_with("/copyright") || !document.contains('/')
    });
    is_document
        || path.starts_with("lib/")
        || path.starts_with("lib64/")
        || path.starts_with("usr/share/common-licenses/")
        || matches!(path, "etc/debian_version" | "etc/os-release" | "usr/lib/os-release")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PINS: &str = "[[amd64]]\nname = \"a\"\nversion = \"1\"\nsha256 = \"00\"\n";

    #[test]
    fn processor_without_pins_is_refused() {
        assert_eq!(read(PINS, "amd64").unwrap().len(), 1);
        assert_eq!(read(PINS, "arm64").unwrap_err().to_string(), "no packages are pinned for arm64");
        let without_version = PINS.replace("version", "edition");
        assert_eq!(read(&without_version, "amd64").unwrap_err().to_string(), "a pinned package has no version");
    }

    #[test]
    fn package_with_another_digest_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a_1_amd64.deb"), "other bytes").unwrap();
        let refusal = layer(PINS, "amd64", folder.path()).unwrap_err().to_string();
        assert!(refusal.ends_with(", and 00 is pinned"), "{refusal}");
    }

    #[test]
    fn libraries_and_licences_are_taken_and_nothing_else() {
        let mut package = Tree::default();
        package.file("lib/x86_64-linux-gnu/libc.so.6", 0o755, *b"library");
        package.link("lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2");
        package.link("usr/share/doc/libgcc-s1", "gcc-12-base");
        package.file("usr/share/doc/libc6/copyright", READABLE, *b"licence");
        let needed = package.clone();
        package.file("usr/share/doc/libc6/changelog.gz", READABLE, *b"history");
        package.file("usr/lib/x86_64-linux-gnu/gconv/UTF-7.so", READABLE, *b"conversion");
        package.file("usr/bin/setuid", 0o4755, *b"program");
        let mut taken = Tree::default();
        add_needed(&mut taken, &package.tar(0).unwrap()).unwrap();
        assert_eq!(taken, needed);
    }
}
