//! How programs are built so that no path of the machine is in them.
//!
//! Rust's compiler and the C compiler write paths of sources into what they compile, for panics and assertions. Here
//! both are told to write other ones. Flags in `RUSTFLAGS` would do that too, but Cargo makes file names out of those
//! flags, and link-time optimisation takes its order from file names. So a wrapper adds them, of which Cargo knows
//! nothing.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use xtask::{layout, steps};

/// A folder of this machine, and what is written in its place.
pub(super) type Remapped = Vec<(PathBuf, String)>;

/// The folders that sources lie in: the repository, what was fetched, and the standard library. The longest come last,
/// because the last that fits counts.
pub(super) fn remapped() -> anyhow::Result<Remapped> {
    let mut remapped = vec![(layout::root(), "/bulkhead".to_owned())];
    // The folder has the registry's name, which depends on where crates were fetched from.
    let registries = cargo_home()?.join("registry/src");
    for entry in std::fs::read_dir(&registries).with_context(|| format!("cannot read {}", registries.display()))? {
        remapped.push((entry?.path(), "/crates".to_owned()));
    }
    let rustc = || Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let sysroot = steps::output(rustc().args(["--print", "sysroot"]))?;
    let version = steps::output(rustc().arg("-vV"))?;
    let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: "));
    let commit = commit.context("rustc does not say its commit")?;
    remapped.push((Path::new(sysroot.trim()).join("lib/rustlib/src/rust"), format!("/rustc/{commit}")));
    remapped.sort_by_key(|(folder, _)| folder.as_os_str().len());
    Ok(remapped)
}

fn cargo_home() -> anyhow::Result<PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    Ok(Path::new(&std::env::var_os("HOME").context("HOME is not set")?).join(".cargo"))
}

/// Writes the wrapper that Cargo starts in the compiler's place.
pub(super) fn write_wrapper(folder: &Path, remapped: &Remapped) -> anyhow::Result<PathBuf> {
    let path = folder.join("rustc-wrapper");
    let flags = remapped.iter().map(|(from, to)| quoted(&format!("--remap-path-prefix={}={to}", from.display())));
    let script = format!("#!/bin/sh\nexec \"$@\" {}\n", flags.collect::<Vec<_>>().join(" "));
    std::fs::write(&path, script).with_context(|| format!("cannot write {}", path.display()))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// Gives a build the wrapper, the same for C, and nothing that a caller's environment would add.
pub(super) fn set_environment(cargo: &mut Command, wrapper: &Path, remapped: &Remapped, epoch: u64) {
    let flags = remapped.iter().map(|(from, to)| quoted(&format!("-ffile-prefix-map={}={to}", from.display())));
    let flags = flags.collect::<Vec<_>>().join(" ");
    cargo.env("RUSTC_WRAPPER", wrapper).env("RUSTFLAGS", "").env_remove("CARGO_ENCODED_RUSTFLAGS");
    // Without the first, the flags would be parted at spaces in a path.
    cargo.env("CC_SHELL_ESCAPED_FLAGS", "1").env("CFLAGS", &flags).env("CXXFLAGS", &flags);
    cargo.env("SOURCE_DATE_EPOCH", epoch.to_string());
    // Packages are stripped, and nothing that is stripped has to be the same.
    cargo.env("CARGO_PROFILE_DIST_DEBUG", "none").env("CARGO_INCREMENTAL", "0");
    cargo.env("LC_ALL", "C").env("TZ", "UTC");
}

/// A word of a shell's command.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_are_told_to_write_no_path_of_the_machine() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("it's here");
        std::fs::create_dir(&source).unwrap();
        let file = source.join("main.rs");
        std::fs::write(&file, "fn main() { println!(\"{}\", std::panic::Location::caller().file()); }").unwrap();
        let wrapper = write_wrapper(folder.path(), &vec![(source.clone(), "/bulkhead".to_owned())]).unwrap();
        let program = folder.path().join("program");
        let mut rustc = Command::new(&wrapper);
        rustc.arg(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg(&file).arg("-o").arg(&program);
        steps::output(&mut rustc).unwrap();
        assert_eq!(steps::output(&mut Command::new(&program)).unwrap(), "/bulkhead/main.rs\n");
    }

    #[test]
    fn longest_folder_is_remapped_last() {
        let remapped = remapped().unwrap();
        assert!(remapped.iter().any(|(folder, name)| *folder == layout::root() && name == "/bulkhead"));
        assert!(remapped.iter().any(|(_, name)| name == "/crates"));
        assert!(remapped.iter().any(|(_, name)| name.starts_with("/rustc/")));
        assert!(remapped.is_sorted_by_key(|(folder, _)| folder.as_os_str().len()));
    }
}
