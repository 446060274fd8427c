//! What every package is made of: the programs, and what belongs beside them.
//!
//! Owns how programs are stripped and what they are asked about themselves. Must not know how a package looks.
//! Invariant: nothing here depends on where the repository or the programs lie.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use libdeflater::CompressionLvl;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::components::Component;
use crate::elf::{self, Requirements};
use crate::tree::{EXECUTABLE, READABLE, Tree};
use crate::{components, notices};

/// The name of every package. A program of this name is in each of them.
pub(crate) const NAME: &str = "bulkhead";
pub(crate) const SUMMARY: &str = "WebAssembly plugin host for sandboxed MCP task tools";
pub(crate) const LICENSE: &str = "Apache-2.0";
pub(crate) const KEYWORDS: [&str; 4] = ["mcp", "webassembly", "plugins", "sandbox"];

/// What Prometheus and Grafana watch hosts with, below `host/contrib`.
const MONITORING: [&str; 3] = ["grafana/bulkhead.json", "prometheus/alerts.test.yml", "prometheus/alerts.yml"];

/// The folder of documents, below a prefix.
pub(crate) const DOCUMENTS: &str = "share/doc/bulkhead";

/// Pages and folders of pages.
const PAGES: [&str; 4] = ["CHANGELOG.md", "host/docs", "plugins/README.md", "plugins/docs"];
const FOR_CONTRIBUTORS: &str = "host/docs/contributing";
/// The page that repeats `--help`: the tree does not hold it, the program writes it.
const COMMAND_LINE: &str = "host/docs/reference/cli.md";

/// One program.
pub(crate) struct Program {
    pub(crate) name: String,
    /// Stripped.
    pub(crate) bytes: Arc<[u8]>,
    /// What is linked into it, itself first.
    pub(crate) components: Vec<Component>,
}

/// Everything that packages hold.
pub(crate) struct Release {
    root: PathBuf,
    pub(crate) version: String,
    /// The time of every file, in seconds since 1970.
    pub(crate) epoch: u64,
    /// Of what is compressed as a whole.
    pub(crate) compression: CompressionLvl,
    pub(crate) needs: Requirements,
    pub(crate) programs: Vec<Program>,
    /// Scripts by the name of the shell.
    completions: BTreeMap<&'static str, Vec<u8>>,
    /// Pages by the names of their files.
    man_pages: BTreeMap<String, Vec<u8>>,
    pub(crate) license: Vec<u8>,
    pub(crate) readme: Vec<u8>,
    /// What operators and authors read, by its path in the repository, where pages and messages look for it.
    pages: BTreeMap<String, Vec<u8>>,
    /// Licences of what is linked into the programs.
    pub(crate) notices: Vec<u8>,
}

/// Where shells look for completions, below `share/`, and what the file is called.
pub(crate) struct CompletionPaths {
    pub(crate) bash: &'static str,
    pub(crate) zsh: &'static str,
    pub(crate) fish: &'static str,
}

impl Release {
    /// Reads what the packages of these programs hold. A program is the name of its Cargo package and the path of its
    /// file.
    pub(crate) fn read(
        root: &Path,
        epoch: u64,
        compression: CompressionLvl,
        files: &[(String, PathBuf)],
    ) -> anyhow::Result<Self> {
        let scratch = tempfile::tempdir()?;
        let mut programs = Vec::new();
        let mut all_needs = Vec::new();
        for (package, path) in files {
            let name = path.file_name().and_then(|name| name.to_str()).context("a program has no name")?.to_owned();
            let stripped = scratch.path().join(&name);
            output(Command::new("strip").arg("--strip-all").arg("-o").arg(&stripped).arg(path))?;
            let bytes: Arc<[u8]> = std::fs::read(&stripped)?.into();
            let needs = elf::requirements(&bytes).with_context(|| format!("{} cannot be packaged", path.display()))?;
            let components = components::linked(root, package, needs.machine.target)?;
            all_needs.push(needs);
            programs.push(Program { name, bytes, components });
        }
        let host = scratch.path().join(NAME);
        ensure!(host.is_file(), "the program {NAME} is missing");
        let first = all_needs.first().context("there is no program")?;
        ensure!(
            all_needs.iter().all(|needs| needs.machine == first.machine),
            "the programs are for several processors"
        );
        let glibc = all_needs.iter().map(|needs| needs.glibc).max().unwrap_or(first.glibc);

        let mut completions = BTreeMap::new();
        for shell in ["bash", "zsh", "fish"] {
            completions.insert(shell, output(asked(&host).args(["completions", shell]))?);
        }
        let man = scratch.path().join("man1");
        output(asked(&host).arg("man-pages").arg(&man))?;
        let mut man_pages = BTreeMap::new();
        for entry in std::fs::read_dir(&man)? {
            let entry = entry?;
            let name = entry.file_name().into_string().ok().context("the name of a man page is no text")?;
            man_pages.insert(name, std::fs::read(entry.path())?);
        }
        let mut pages = pages(root)?;
        pages.insert(COMMAND_LINE.to_owned(), output(asked(&host).args(["reference", "cli"]))?);
        let version = String::from_utf8(output(asked(&host).arg("--version"))?)?;
        let version = version.split_whitespace().nth(1).context("the program does not say its version")?.to_owned();
        let notices = notices::text(programs.iter().flat_map(|program| &program.components))?.into_bytes();
        Ok(Self {
            root: root.to_owned(),
            version,
            epoch,
            compression,
            needs: Requirements { machine: first.machine, glibc },
            programs,
            completions,
            man_pages,
            license: std::fs::read(root.join("LICENSE"))?,
            readme: std::fs::read(root.join("README.md"))?,
            pages,
            notices,
        })
    }

    /// A file below `host/contrib`.
    pub(crate) fn contrib(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let path = self.root.join("host/contrib").join(path);
        std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Puts what others watch hosts with into a folder of the tree.
    pub(crate) fn add_monitoring(&self, tree: &mut Tree, folder: &str) -> anyhow::Result<()> {
        for path in MONITORING {
            tree.file(&format!("{folder}/{path}"), READABLE, self.contrib(path)?);
        }
        Ok(())
    }

    /// Puts the programs into a folder of the tree.
    pub(crate) fn add_programs(&self, tree: &mut Tree, folder: &str) {
        for program in &self.programs {
            tree.file(&format!("{folder}/{}", program.name), EXECUTABLE, Arc::clone(&program.bytes));
        }
    }

    /// Puts completions and man pages into a folder `share` of the tree.
    pub(crate) fn add_shell_support(&self, tree: &mut Tree, share: &str, paths: &CompletionPaths) {
        for (shell, script) in &self.completions {
            let path = match *shell {
                "bash" => paths.bash,
                "zsh" => paths.zsh,
                _ => paths.fish,
            };
            tree.file(&format!("{share}/{path}"), READABLE, script.clone());
        }
        for (name, page) in &self.man_pages {
            tree.file(&format!("{share}/man/man1/{name}"), READABLE, page.clone());
        }
    }

    /// Puts the licences, the README and the pages that it links to into a folder of the tree.
    pub(crate) fn add_documents(&self, tree: &mut Tree, folder: &str) {
        let documents = [("LICENSE", &self.license), ("README.md", &self.readme), (notices::FILE, &self.notices)];
        for (name, text) in documents {
            tree.file(&format!("{folder}/{name}"), READABLE, text.clone());
        }
        self.add_pages(tree, folder);
    }

    /// Puts the pages into a folder of the tree, beside the README that links to them.
    pub(crate) fn add_pages(&self, tree: &mut Tree, folder: &str) {
        for (path, text) in &self.pages {
            tree.file(&format!("{folder}/{path}"), READABLE, text.clone());
        }
    }

    /// The time of the release, as RFC 3339 writes it.
    pub(crate) fn time(&self) -> anyhow::Result<String> {
        Ok(OffsetDateTime::from_unix_timestamp(self.epoch.try_into()?)?.format(&Rfc3339)?)
    }

    /// `bulkhead-0.1.0-x86_64-linux`.
    pub(crate) fn full_name(&self) -> String {
        format!("{NAME}-{}-{}-linux", self.version, self.needs.machine.linux)
    }
}

/// The pages of a repository, without those for its contributors.
fn pages(root: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut pages = BTreeMap::new();
    let mut left: Vec<_> = PAGES.iter().map(PathBuf::from).collect();
    while let Some(path) = left.pop() {
        let full = root.join(&path);
        if full.is_dir() {
            for entry in std::fs::read_dir(&full)? {
                left.push(path.join(entry?.file_name()));
            }
            left.retain(|path| path != Path::new(FOR_CONTRIBUTORS));
        } else if path.extension().is_some_and(|extension| extension == "md" || extension == "svg") {
            let name = path.to_str().context("the name of a page is no text")?;
            pages.insert(name.to_owned(), std::fs::read(&full).with_context(|| format!("cannot read {name}"))?);
        }
    }
    Ok(pages)
}

/// A program that is asked about itself, without anything that it could take from the environment.
fn asked(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().current_dir("/");
    command
}

/// What a command prints on stdout; stderr becomes part of the error.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let program = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("cannot start {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed with {}: {}", output.status, said.trim());
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_for_operators_and_authors_are_packaged_where_links_look_for_them() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let pages = pages(&root).unwrap();
        for page in [
            "CHANGELOG.md",
            "host/docs/quickstart.md",
            "host/docs/durable.svg",
            "host/docs/operate/install.md",
            "host/docs/reference/configuration.md",
            "plugins/README.md",
            "plugins/docs/manifest.md",
        ] {
            assert!(pages.contains_key(page), "{page}");
        }
        let is_left_out = |path: &String| path.contains("contributing") || path.ends_with(".png");
        assert!(!pages.keys().any(is_left_out), "{:?}", pages.keys());
        let bytes: usize = pages.values().map(Vec::len).sum();
        assert!((200_000..2_000_000).contains(&bytes), "{bytes} bytes are many in every package");
    }

    #[test]
    fn everything_that_hosts_are_watched_with_is_packaged() {
        let contrib = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../host/contrib");
        let mut found = Vec::new();
        for folder in ["grafana", "prometheus"] {
            for entry in std::fs::read_dir(contrib.join(folder)).unwrap() {
                found.push(format!("{folder}/{}", entry.unwrap().file_name().display()));
            }
        }
        found.sort();
        assert_eq!(found, MONITORING);
    }
}
