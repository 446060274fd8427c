//! Where things are in the repository. Every path is absolute, so the commands work from every folder.

use std::path::{Path, PathBuf};

/// The repository.
pub(crate) fn root() -> PathBuf {
    // `cargo run` sets the variable to plugins/xtask; the compile-time value serves a binary that is started directly.
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.ancestors().nth(2).map_or(here.clone(), Path::to_path_buf)
}

/// The folder of the guests' sources.
pub(crate) fn guest_sources() -> PathBuf {
    root().join("plugins")
}

/// The build folder. It stays inside the repository whatever `CARGO_TARGET_DIR` says, because tests look for the
/// components there.
pub(crate) fn target() -> PathBuf {
    root().join("target")
}

/// Where finished components land.
pub(crate) fn components() -> PathBuf {
    target().join("plugins")
}

/// Cargo's build folder for the guests: apart from the native one, so that neither invalidates the other.
pub(crate) fn guest_target() -> PathBuf {
    target().join("guests")
}

/// Where the compiler from Debian packages is unpacked.
pub(crate) fn guest_toolchain() -> PathBuf {
    target().join("guest-toolchain")
}

/// Where the tools are installed that make components of Python and JavaScript.
pub(crate) fn guest_tools() -> PathBuf {
    target().join("guest-tools")
}
