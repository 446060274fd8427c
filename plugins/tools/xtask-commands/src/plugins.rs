//! `cargo xtask plugins`: the guests in every language.
//!
//! Owns which guests there are and that components without sources go. How a guest is built is the business of
//! `xtask::guests` (Rust) and `scripted`.

use std::path::PathBuf;

use anyhow::bail;
use xtask::{guests, layout};

use crate::scripted;

/// Builds the named guests, or all of them.
///
/// # Errors
/// There is no such guest, or it cannot be built.
pub(crate) fn build(names: &[String]) -> anyhow::Result<()> {
    let compiled = guests::folders()?;
    let scripts = scripted::folders()?;
    if let Some(name) = names.iter().find(|name| !compiled.contains(name) && !scripts.contains(name)) {
        bail!("there is no guest `{name}`; there are: {}, {}", compiled.join(", "), scripts.join(", "));
    }
    let is_chosen = |name: &String| names.is_empty() || names.contains(name);
    let mut finished = guests::build(&compiled.into_iter().filter(is_chosen).collect::<Vec<_>>())?;
    for name in scripts.iter().filter(|name| is_chosen(name)) {
        finished.push(scripted::build(name, !names.is_empty())?);
    }
    if names.is_empty() {
        scripted::install_c()?;
        scripted::install_collector()?;
        remove_others(&finished)?;
    }
    Ok(())
}

/// Removes components whose sources are gone.
fn remove_others(finished: &[PathBuf]) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(layout::components())? {
        let path = entry?.path();
        let is_ours = path.extension().is_some_and(|extension| extension == "wasm" || extension == "wit");
        if is_ours && !finished.contains(&path) {
            eprintln!("xtask: {} has no source any more and is removed", path.display());
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}
