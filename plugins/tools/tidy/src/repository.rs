//! The repository as the checks see it: the host's crates without their tests, and every other file as text.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::code::{self, Source};
use crate::tests_named;

/// The repository, read once.
pub(crate) struct Repository {
    root: PathBuf,
    /// The host's crates by the name of their folder, each with its sources.
    crates: Vec<(String, Vec<Source>)>,
    tests: BTreeSet<String>,
}

/// Folders beside the host's crates that have tests which documents name, each with the crate's name there.
const OTHER_TESTS: [(&str, &str); 3] =
    [("sdk", "plugins/sdk/rust/src"), ("suite", "tests/suite"), ("tidy", "plugins/tools/tidy/src")];

impl Repository {
    /// Reads the repository that this program was built in.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).context("the crate lies in a repository")?;
        let host = root.join("host");
        let mut crates = Vec::new();
        let mut tests = BTreeSet::new();
        for name in folders(&host)? {
            let sources = host.join(&name).join("src");
            if sources.is_dir() {
                let parsed = code::parse(&sources)?;
                tests.extend(tests_named::all(&format!("host::{name}"), &parsed));
                crates.push((name.clone(), code::sources(parsed, &name)));
            }
        }
        for (name, folder) in OTHER_TESTS {
            tests.extend(tests_named::all(name, &code::parse(&root.join(folder))?));
        }
        anyhow::ensure!(!crates.is_empty(), "{} has no crates", host.display());
        Ok(Self { root: root.to_owned(), crates, tests })
    }

    /// The names of the host's crates: `store` for `host/store`.
    pub(crate) fn crates(&self) -> impl Iterator<Item = &str> {
        self.crates.iter().map(|(name, _)| name.as_str())
    }

    /// Every source file of the host without its tests.
    pub(crate) fn host(&self) -> impl Iterator<Item = &Source> {
        self.crates.iter().flat_map(|(_, sources)| sources)
    }

    /// The sources of a crate anywhere in the repository, without their tests.
    pub(crate) fn sources(&self, folder: &str) -> anyhow::Result<Vec<Source>> {
        let name = folder.rsplit('/').next().unwrap_or(folder);
        Ok(code::sources(code::parse(&self.root.join(folder).join("src"))?, name))
    }

    /// The names of all tests that are not ignored, as documents write them.
    pub(crate) fn tests(&self) -> &BTreeSet<String> {
        &self.tests
    }

    /// A file of the repository as text.
    pub(crate) fn text(&self, path: &str) -> anyhow::Result<String> {
        fs::read_to_string(self.root.join(path)).with_context(|| format!("cannot read {path}"))
    }

    /// The paths of all files below a folder of the repository, relative to that folder, in order.
    pub(crate) fn files(&self, folder: &str) -> anyhow::Result<Vec<PathBuf>> {
        let root = self.root.join(folder);
        let mut files = files(&root)?;
        for path in &mut files {
            *path = path.strip_prefix(&root)?.to_owned();
        }
        Ok(files)
    }
}

/// The names of the folders in a folder, in order.
fn folders(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Every file below a folder, in order.
pub(crate) fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
