//! What apt offers: the packages of Debian's archive by version, what they depend on, and their files.
//!
//! Owns the package lists under `target/apt`, for machines whose own lists are empty or old. It needs no root. It must
//! not change the machine: the system's lists, its cache and what is installed stay as they are. A caller's
//! `APT_CONFIG` holds for both kinds of lists, except for where the lists under `target/apt` are.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::{layout, steps};

/// One version of a package that can be downloaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub depends: Vec<Dependency>,
}

/// What a package needs. Of alternatives it is the first.
#[derive(Clone, Debug, PartialEq)]
pub struct Dependency {
    pub name: String,
    /// The one version that will do, where the package demands one.
    pub exact: Option<String>,
}

impl Package {
    /// The package as commands of apt name it.
    pub fn pinned(&self) -> String {
        format!("{}={}", self.name, self.version)
    }
}

/// Someone who knows what can be downloaded.
pub trait Offer {
    /// Every version of a package, the newest first.
    fn versions(&self, package: &str) -> anyhow::Result<Vec<Package>>;
}

/// apt with one set of package lists.
pub struct Apt {
    /// The configuration that leads to lists of our own. The system's lists need none.
    config: Option<PathBuf>,
    /// Why a refresh of the lists failed, at least for a part of them.
    trouble: Option<String>,
}

impl Apt {
    /// apt with the lists of the machine, as old as they are.
    pub fn system() -> Self {
        Self { config: None, trouble: None }
    }

    /// apt with lists under `target/apt`, refreshed now from the package sources of the machine.
    pub fn refreshed() -> anyhow::Result<Self> {
        let folder = layout::target().join("apt");
        // apt makes no folders where it is not root.
        for each in ["lists/partial", "cache/archives/partial"] {
            std::fs::create_dir_all(folder.join(each))?;
        }
        let config = folder.join("apt.conf");
        std::fs::write(&config, configuration(&folder)).with_context(|| config.display().to_string())?;
        let apt = Self { config: Some(config), trouble: None };
        let output = apt.command("apt-get").arg("update").output().context("cannot start apt-get")?;
        let trouble = first_complaint(&String::from_utf8_lossy(&output.stderr));
        Ok(Self { trouble, ..apt })
    }

    /// Why a refresh of the lists failed, at least for a part of them.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Downloads files of packages into an existing folder. apt checks them against the signed lists.
    pub fn download(&self, packages: &[Package], folder: &Path) -> anyhow::Result<()> {
        let mut download = self.command("apt-get");
        download.arg("download").args(packages.iter().map(Package::pinned)).current_dir(folder);
        steps::output(&mut download).map(drop)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        // What apt says is read here, so it says it in the language that is expected.
        command.env("LC_ALL", "C");
        if let Some(config) = &self.config {
            command.arg("--config-file").arg(config);
        }
        command
    }
}

impl Offer for Apt {
    fn versions(&self, package: &str) -> anyhow::Result<Vec<Package>> {
        let mut show = self.command("apt-cache");
        show.args(["show", "--all-versions", package]);
        let output = show.output().context("cannot start apt-cache; is this machine a Debian?")?;
        // apt ends with an error where it knows no package of this name.
        Ok(paragraphs(&String::from_utf8_lossy(&output.stdout)))
    }
}

/// The names of the packages that are installed.
pub fn installed() -> anyhow::Result<HashSet<String>> {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat=${Package} ${db:Status-Status}\\n"]);
    let listing = steps::output(&mut query)?;
    Ok(listing.lines().filter_map(|line| line.strip_suffix(" installed")).map(str::to_owned).collect())
}

/// Unpacks downloaded files, without installing anything.
pub fn unpack(files: &Path, folder: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(files)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            steps::output(Command::new("dpkg").arg("--extract").arg(path).arg(folder))?;
        }
    }
    Ok(())
}

/// Where the lists are that belong to the folder. A machine's hooks for updates are about the machine's lists: they are
/// not run. Translations and catalogues of applications are left out, since nothing here reads them.
fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        r#"// Written by `cargo xtask`: package lists of its own.
Dir::State::lists "{folder}/lists/";
Dir::Cache "{folder}/cache/";
Dir::Cache::archives "archives/";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"#
    )
}

/// The first error of an update, or its first download that failed: apt goes on without the latter and ends with
/// success.
fn first_complaint(stderr: &str) -> Option<String> {
    stderr
        .lines()
        .find_map(|line| {
            line.strip_prefix("E: ").or_else(|| line.strip_prefix("W: ").filter(|it| it.starts_with("Failed")))
        })
        .map(|line| line.trim().to_owned())
}

/// Reads what `apt-cache show` prints. A version without a file is one that is installed and no longer offered.
fn paragraphs(text: &str) -> Vec<Package> {
    text.split("\n\n").filter_map(paragraph).collect()
}

fn paragraph(text: &str) -> Option<Package> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    field("Filename")?;
    let depends = ["Pre-Depends", "Depends"].into_iter().filter_map(field);
    Some(Package {
        name: field("Package")?.to_owned(),
        version: field("Version")?.to_owned(),
        depends: depends.flat_map(|list| list.split(", ")).filter_map(dependency).collect(),
    })
}

/// Reads one entry of `Depends`, such as `libllvm22 (>= 1:22) | libllvm21`.
fn dependency(text: &str) -> Option<Dependency> {
    let first = text.split('|').next()?.trim();
    let (name, condition) = first.split_once(' ').unwrap_or((first, ""));
    let name = name.split(':').next()?;
    let exact = condition.strip_prefix("(= ").and_then(|rest| rest.strip_suffix(')'));
    Some(Dependency { name: name.to_owned(), exact: exact.map(str::to_owned) })
}

/// Answers of `apt-cache show` that were recorded.
#[cfg(test)]
pub struct Recorded(pub &'static str);

#[cfg(test)]
impl Offer for Recorded {
    fn versions(&self, package: &str) -> anyhow::Result<Vec<Package>> {
        Ok(paragraphs(self.0).into_iter().filter(|version| version.name == package).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apt_paragraph_dependencies_are_parsed() {
        let text = "Package: a\nVersion: 1:2.0-1\nPre-Depends: libc6 (>= 2.34)\nDepends: b (= 1:2.0-1), c:any (>= 3) | d, e\n\
                    Filename: pool/a.deb\nDescription: x\n Depends: no-field\n";
        let needs =
            |name: &str, exact: Option<&str>| Dependency { name: name.to_owned(), exact: exact.map(str::to_owned) };
        let [package] = &paragraphs(text)[..] else { panic!("one package") };
        assert_eq!(package.pinned(), "a=1:2.0-1");
        assert_eq!(
            package.depends,
            [needs("libc6", None), needs("b", Some("1:2.0-1")), needs("c", None), needs("e", None)]
        );
    }

    #[test]
    fn installed_only_apt_version_is_not_offered() {
        let text =
            "Package: a\nVersion: 2\nFilename: pool/a.deb\n\nPackage: a\nStatus: install ok installed\nVersion: 1\n";
        let versions: Vec<_> = paragraphs(text).into_iter().map(|package| package.version).collect();
        assert_eq!(versions, ["2"]);
        assert_eq!(paragraphs(""), []);
    }

    #[test]
    fn apt_update_failure_is_detected() {
        let offline =
            "W: Failed to fetch http://x/InRelease  Could not resolve 'x'\nW: Some index files failed to download.\n";
        assert_eq!(first_complaint(offline).unwrap(), "Failed to fetch http://x/InRelease  Could not resolve 'x'");
        assert_eq!(first_complaint("W: Download is performed unsandboxed\nE: no key\n").unwrap(), "no key");
        assert_eq!(first_complaint("W: Download is performed unsandboxed\n"), None);
    }
}
