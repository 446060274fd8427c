//! Fetches the packages of Debian that the image's libraries come from.
//!
//! Owns the folder `target/dist-base`. `dist` checks the digests; what is fetched here is only a file with the right
//! name.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use xtask::apt::{Apt, Offer as _, Package};
use xtask::{debian, layout, steps};

/// Which versions.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum Selection {
    /// Those that are written down.
    Pinned,
    /// The newest that apt offers.
    Offered,
}

/// Where packages are, and which ones belong to the image.
pub(super) struct Base {
    pub(super) packages: PathBuf,
    pub(super) pins: PathBuf,
}

/// What the program is linked with, its licences, and what says which Debian it is.
const NAMES: [&str; 4] = ["base-files", "gcc-12-base", "libc6", "libgcc-s1"];

/// Fetches what is not there yet.
pub(super) fn fetch(selection: Selection) -> anyhow::Result<Base> {
    let packages = layout::target().join("dist-base");
    std::fs::create_dir_all(&packages)?;
    let architecture = steps::output(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
    match selection {
        Selection::Pinned => {
            let pins = layout::root().join("host/contrib/image/base.toml");
            let text = std::fs::read_to_string(&pins).with_context(|| format!("cannot read {}", pins.display()))?;
            for package in pinned(&text, &architecture)? {
                if !file(&packages, &package, &architecture).is_file() {
                    debian::from_apt(|apt| download(apt, &package, &packages))?;
                }
            }
            Ok(Base { packages, pins })
        }
        Selection::Offered => {
            let mut offered = Vec::new();
            for name in NAMES {
                debian::from_apt(|apt| {
                    let package = newest(apt, name)?;
                    download(apt, &package, &packages)?;
                    Ok(package)
                })
                .map(|package| offered.push(package))?;
            }
            let pins = packages.join("base.toml");
            std::fs::write(&pins, written(&offered, &packages, &architecture)?)?;
            Ok(Base { packages, pins })
        }
    }
}

/// The packages that are written down for a processor.
fn pinned(text: &str, architecture: &str) -> anyhow::Result<Vec<Package>> {
    let pins: toml::Table = text.parse().context("base.toml is not TOML")?;
    let Some(packages) = pins.get(architecture).and_then(toml::Value::as_array) else {
        bail!("base.toml has no packages for {architecture}: `cargo xtask dist --base offered` writes them");
    };
    let package = |pin: &toml::Value| {
        let text = |key: &str| pin.get(key).and_then(toml::Value::as_str).map(str::to_owned);
        Some(Package { name: text("name")?, version: text("version")?, depends: Vec::new() })
    };
    packages.iter().map(|pin| package(pin).context("a package in base.toml has no name or version")).collect()
}

fn newest(apt: &Apt, name: &str) -> anyhow::Result<Package> {
    apt.versions(name)?.into_iter().next().with_context(|| format!("apt offers no {name}"))
}

fn download(apt: &Apt, package: &Package, folder: &Path) -> anyhow::Result<()> {
    apt.download(std::slice::from_ref(package), folder).with_context(|| {
        format!("apt no longer offers {}: pin what `cargo xtask dist --base offered` writes", package.pinned())
    })
}

/// The file as apt names it.
fn file(folder: &Path, package: &Package, architecture: &str) -> PathBuf {
    folder.join(format!("{}_{}_{architecture}.deb", package.name, package.version))
}

/// Packages with their digests, as `base.toml` has them.
fn written(offered: &[Package], folder: &Path, architecture: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    for package in offered {
        let sums = steps::output(Command::new("sha256sum").arg(file(folder, package, architecture)))?;
        let sha256 = sums.split(' ').next().context("sha256sum prints nothing")?;
        let Package { name, version, .. } = package;
        write!(text, "[[{architecture}]]\nname = {name:?}\nversion = {version:?}\nsha256 = {sha256:?}\n\n")?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_pinned() {
        let folder = tempfile::tempdir().unwrap();
        let package = Package { name: "a".to_owned(), version: "1-1".to_owned(), depends: Vec::new() };
        std::fs::write(file(folder.path(), &package, "amd64"), "").unwrap();
        let text = written(std::slice::from_ref(&package), folder.path(), "amd64").unwrap();
        assert!(text.contains("sha256 = \"e3b0c44298fc1c14"), "{text}");
        assert_eq!(pinned(&text, "amd64").unwrap(), [package]);
        let refusal = pinned(&text, "arm64").unwrap_err().to_string();
        assert!(refusal.starts_with("base.toml has no packages for arm64"), "{refusal}");
    }
}
