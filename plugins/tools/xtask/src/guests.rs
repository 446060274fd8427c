//! Builds the guests in Rust: every folder below `plugins/samples` and `plugins/fixtures` with a `plugin-NAME` crate
//! becomes `target/plugins/NAME.wasm`.
//!
//! The crates `refused`, `foreign`, `public` and `servers` are the exceptions: each of their examples is one component
//! that a host must refuse, or that knows nothing of this host, so that a dozen of them need no folder each.
//!
//! A guest with WIT of its own (`NAME/wit/NAME.wit`) does not know this host and carries no manifest; its WIT is
//! published beside the component, where the host looks for descriptions.
//!
//! Folders with a `plugin.py` or `plugin.js` are the business of `cargo xtask plugins`.
//!
//! A finished component is written only if its bytes changed, so that whatever is derived from it stays valid.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::toolchain::{self, Toolchain};
use crate::{layout, manifest, steps};

/// Crates whose examples are the components.
const OF_EXAMPLES: [&str; 4] = ["refused", "foreign", "public", "servers"];

/// Guests with features of shared dependencies that no other guest may have: what is asynchronous belongs to WASI 0.3,
/// and an SDK for servers asks much of what the others use little of.
const APART: [&str; 2] = ["concurrent", "servers"];

/// Compiles the named guests and puts their components where hosts and tests look for them; returns where each is.
///
/// # Errors
/// There is no such guest, no compiler for its target, or it does not compile.
pub fn build(names: &[String]) -> anyhow::Result<Vec<PathBuf>> {
    let known = folders()?;
    if let Some(name) = names.iter().find(|name| !known.contains(name)) {
        bail!("there is no guest `{name}`; there are: {}", known.join(", "));
    }
    publish_compiled(&known, names)
}

fn publish_compiled(known: &[String], chosen: &[String]) -> anyhow::Result<Vec<PathBuf>> {
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    compile(known, chosen)?;
    let built = layout::guest_target().join(toolchain::TARGET).join("guest");
    let mut finished = Vec::new();
    for name in chosen {
        if OF_EXAMPLES.contains(&name.as_str()) {
            for example in examples(name)? {
                let component = format!("{example}.wasm");
                finished.push(publish(&built.join("examples").join(&component), &component)?);
            }
        } else {
            let component = built.join(format!("{}.wasm", package(name).replace('-', "_")));
            let sources = layout::guest(name)?;
            let wit = sources.join("wit").join(format!("{name}.wit"));
            if wit.is_file() {
                finished.push(publish(&wit, &format!("{name}.wit"))?);
            } else {
                manifest::check(&component).with_context(|| layout::shown(&sources))?;
            }
            finished.push(publish(&component, &format!("{name}.wasm"))?);
        }
    }
    Ok(finished)
}

/// The names of the guests in Rust, in order.
///
/// # Errors
/// The folders of the guests cannot be read.
pub fn folders() -> anyhow::Result<Vec<String>> {
    let is_crate = |folder: &Path| folder.join("Cargo.toml").is_file();
    Ok(layout::guests()?.into_iter().filter(|(_, folder)| is_crate(folder)).map(|(name, _)| name).collect())
}

fn examples(name: &str) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(layout::guest(name)?.join("examples"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs")
            && let Some(name) = path.file_stem().and_then(|stem| stem.to_str())
        {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn package(name: &str) -> String {
    format!("plugin-{name}")
}

/// Compiles the groups of which a guest is chosen, each as a whole: Cargo unites the features that the packages of one
/// build ask of a dependency, so a guest that is built alone would have other bytes, and a digest that changes with the
/// command is none. The samples are a group of their own, because the first command of a visitor needs nothing else.
/// What did not change is not compiled again.
fn compile(known: &[String], chosen: &[String]) -> anyhow::Result<()> {
    let toolchain = toolchain::find()?;
    let samples = layout::samples();
    let mut groups: BTreeMap<Group<'_>, Vec<&String>> = BTreeMap::new();
    for name in known {
        let group = if APART.contains(&name.as_str()) {
            Group::Apart(name)
        } else if layout::guest(name)?.starts_with(&samples) {
            Group::Samples
        } else {
            Group::Fixtures
        };
        groups.entry(group).or_default().push(name);
    }
    for names in groups.values().filter(|names| names.iter().any(|name| chosen.contains(name))) {
        compile_together(&toolchain, names)?;
    }
    toolchain.remember()
}

/// Guests that are compiled in one build.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Group<'a> {
    Samples,
    Fixtures,
    Apart(&'a str),
}

fn compile_together(toolchain: &Toolchain, names: &[&String]) -> anyhow::Result<()> {
    let mut cargo: Command = steps::cargo();
    cargo.args(["build", "--profile", "guest", "--target", toolchain::TARGET, "--target-dir"]);
    cargo.arg(layout::guest_target());
    cargo.args(["--lib", "--examples"]);
    for name in names {
        cargo.arg("--package").arg(package(name));
    }
    toolchain.apply(&mut cargo);
    steps::run(&format!("compile the guests for {}", toolchain::TARGET), &mut cargo)
}

/// Puts a component, or its WIT, where hosts and tests look for it.
fn publish(built: &Path, file: &str) -> anyhow::Result<PathBuf> {
    let destination = layout::components().join(file);
    let bytes = std::fs::read(built).with_context(|| format!("{} was not built", built.display()))?;
    if std::fs::read(&destination).is_ok_and(|present| present == bytes) {
        return Ok(destination);
    }
    std::fs::create_dir_all(layout::components())?;
    // Written aside and renamed: a host that watches the folder never sees half a component.
    let aside = destination.with_extension("part");
    std::fs::write(&aside, &bytes)?;
    std::fs::rename(&aside, &destination)?;
    eprintln!("xtask: target/plugins/{file}: {} bytes", bytes.len());
    Ok(destination)
}
