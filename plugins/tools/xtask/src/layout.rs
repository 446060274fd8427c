//! Where things are in the repository. Every path is absolute, so the commands work from every folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// The repository.
pub fn root() -> PathBuf {
    // `cargo run` sets the variable to plugins/tools/xtask; the compile-time value serves a binary that is started
    // directly.
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.ancestors().nth(3).map_or(here.clone(), Path::to_path_buf)
}

/// The folder of the SDK for plugins in this language.
pub fn sdk(language: &str) -> PathBuf {
    root().join("plugins/sdk").join(language)
}

/// The folders of the guests' sources by the guests' names: what a reader copies, and what only tests load.
pub fn guests() -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let mut folders = BTreeMap::new();
    for group in ["samples", "fixtures"] {
        let group = root().join("plugins").join(group);
        for entry in std::fs::read_dir(&group).with_context(|| format!("cannot read {}", group.display()))? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string() {
                folders.insert(name, entry.path());
            }
        }
    }
    Ok(folders)
}

/// The guests that users see: what is not among them is a fixture of the tests.
pub fn samples() -> PathBuf {
    root().join("plugins/samples")
}

/// The folder of one guest's sources.
pub fn guest(name: &str) -> anyhow::Result<PathBuf> {
    guests()?
        .remove(name)
        .with_context(|| format!("there is no guest `{name}` below plugins/samples or plugins/fixtures"))
}

/// A path as it is written in messages: from the repository's root.
pub fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// The build folder. It stays inside the repository whatever `CARGO_TARGET_DIR` says, because tests look for the
/// components there.
pub fn target() -> PathBuf {
    root().join("target")
}

/// Where finished components land.
pub fn components() -> PathBuf {
    target().join("plugins")
}

/// Cargo's build folder for the guests: apart from the native one, so that neither invalidates the other.
pub fn guest_target() -> PathBuf {
    target().join("guests")
}

/// Where the compiler from Debian packages is unpacked.
pub fn guest_toolchain() -> PathBuf {
    target().join("guest-toolchain")
}

/// Where the tools are installed that make components of Python and JavaScript.
pub fn guest_tools() -> PathBuf {
    target().join("guest-tools")
}
