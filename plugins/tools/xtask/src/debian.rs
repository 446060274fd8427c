//! Debian's Rust compiler with the sources of its standard library, unpacked under `target/guest-toolchain`.
//!
//! Owns that folder: which packages go into it, and that they are complete. What apt offers is examined before anything
//! is downloaded. Invariant: the marker file `complete` names the packages, and it is there only if all of them are
//! unpacked.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, anyhow, bail};

use crate::apt::{self, Apt, Dependency, Offer, Package};
use crate::{layout, steps};

/// The compiler's package. Its sources and libraries come from the same source package and have the same version.
const COMPILER: &str = "rustc-web";
const SOURCES: &str = "rust-web-src";
/// Depends on the standard library of this version, which depends on the LLVM that the compiler loads.
const STANDARD_LIBRARY: &str = "libstd-rust-web-dev";
/// Never unpacked: the machine's loader and its C library belong together.
const C_LIBRARY: &str = "libc6";

/// The Rust version that the workspace needs.
const NEEDED: &str = env!("CARGO_PKG_RUST_VERSION");

/// What to do where apt has no compiler that will do.
const REMEDY: &str = "install the target with `rustup target add wasm32-wasip2`, or give apt a package source that has a newer \
                      rustc-web, such as Debian's security suite";

/// A compiler that starts.
pub struct Compiler {
    /// What the packages were unpacked into.
    pub folder: PathBuf,
    /// The search path for its shared libraries.
    pub library_path: String,
}

impl Compiler {
    /// The program.
    pub fn program(&self) -> PathBuf {
        program(&self.folder)
    }
}

fn program(folder: &Path) -> PathBuf {
    folder.join("usr/bin/rustc")
}

/// Unpacks what is not there yet: the compiler, then the libraries that it loads and the machine lacks.
pub fn compiler() -> anyhow::Result<Compiler> {
    let folder = layout::guest_toolchain();
    if !is_usable(&folder) {
        from_apt(|apt| unpack_compiler(apt, &folder)).map_err(|problem| anyhow!("{problem:#}: {REMEDY}"))?;
    }
    if !missing_libraries(&folder)?.is_empty() {
        from_apt(|apt| unpack_libraries(apt, &folder))?;
    }
    let missing = missing_libraries(&folder)?;
    if !missing.is_empty() {
        bail!(
            "Debian's compiler loads {}, which this machine lacks and apt does not offer: install the package that holds it",
            missing.join(", ")
        );
    }
    let compiler = Compiler { library_path: library_path(&folder)?, folder };
    steps::output(Command::new(compiler.program()).arg("-vV").env("LD_LIBRARY_PATH", &compiler.library_path))
        .context("Debian's compiler does not start")?;
    Ok(compiler)
}

/// Tries with the machine's package lists, then with lists that were refreshed a moment ago: the machine's may be empty
/// or name files that the archive no longer holds.
pub fn from_apt<T>(attempt: impl Fn(&Apt) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let problem = match attempt(&Apt::system()) {
        Ok(done) => return Ok(done),
        Err(problem) => problem,
    };
    eprintln!("xtask: {problem:#}; trying again with package lists of our own under target/apt");
    let apt = Apt::refreshed()?;
    attempt(&apt).map_err(|refreshed| match apt.trouble() {
        // Then the machine's own lists say more.
        Some(trouble) => anyhow!("{problem:#} (refreshing the package lists failed: {trouble})"),
        None => refreshed,
    })
}

/// Whether a complete compiler is there that is new enough.
fn is_usable(folder: &Path) -> bool {
    let Ok(marker) = std::fs::read_to_string(folder.join("complete")) else { return false };
    let version = marker.lines().find_map(|line| line.strip_prefix(COMPILER)?.strip_prefix('='));
    version.is_some_and(is_new_enough)
}

fn unpack_compiler(apt: &Apt, folder: &Path) -> anyhow::Result<()> {
    let packages = compiler_packages(apt)?;
    unpack(apt, &packages, folder)?;
    let names: Vec<_> = packages.iter().map(Package::pinned).collect();
    std::fs::write(folder.join("complete"), names.join("\n"))?;
    Ok(())
}

/// Puts packages into a folder, in place of what is there.
fn unpack(apt: &Apt, packages: &[Package], folder: &Path) -> anyhow::Result<()> {
    let names: Vec<_> = packages.iter().map(Package::pinned).collect();
    eprintln!("xtask: unpacking {} into {}", names.join(" "), folder.display());
    let downloads = layout::target().join("guest-packages");
    make_empty(&downloads)?;
    apt.download(packages, &downloads).context("apt cannot download the packages")?;
    // Only now: what is there stays until there is something better.
    make_empty(folder)?;
    apt::unpack(&downloads, folder)?;
    std::fs::remove_dir_all(&downloads)?;
    Ok(())
}

fn make_empty(folder: &Path) -> std::io::Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir_all(folder)
}

/// The packages of the newest compiler on offer, if that is new enough for the workspace.
fn compiler_packages(offer: &impl Offer) -> anyhow::Result<Vec<Package>> {
    let mut compilers = offer.versions(COMPILER)?;
    // The sort is stable, so of one Rust version the newest package stays the first.
    compilers.sort_by_key(|package| std::cmp::Reverse(rust_version(&package.version)));
    let Some(newest) = compilers.into_iter().next() else {
        bail!("apt offers no {COMPILER}, and the guests need Rust {NEEDED}");
    };
    if !is_new_enough(&newest.version) {
        bail!("the newest {COMPILER} that apt offers is {}, and the guests need Rust {NEEDED}", newest.version);
    }
    let same = |name: &str| Dependency { name: name.to_owned(), exact: Some(newest.version.clone()) };
    let libraries = find(offer, &same(STANDARD_LIBRARY))?;
    let standard_library = find(offer, dependency(&libraries, "libstd-rust-web-")?)?;
    let llvm = find(offer, dependency(&standard_library, "libllvm")?)?;
    let sources = find(offer, &same(SOURCES))?;
    let c_library = find(offer, &Dependency { name: "wasi-libc".to_owned(), exact: None })?;
    Ok(vec![newest, libraries, sources, c_library, llvm, standard_library])
}

/// The dependency with the version in its name.
fn dependency<'a>(package: &'a Package, prefix: &str) -> anyhow::Result<&'a Dependency> {
    let found = package.depends.iter().find(|dependency| dependency.name.starts_with(prefix));
    found.with_context(|| format!("{} depends on no {prefix}*: its packages are not as expected", package.pinned()))
}

fn find(offer: &impl Offer, wanted: &Dependency) -> anyhow::Result<Package> {
    let mut versions = offer.versions(&wanted.name)?.into_iter();
    let found = match &wanted.exact {
        Some(exact) => versions.find(|package| package.version == *exact),
        None => versions.next(),
    };
    found.with_context(|| match &wanted.exact {
        Some(exact) => format!("apt offers no {} {exact}", wanted.name),
        None => format!("apt offers no {}", wanted.name),
    })
}

/// Puts the libraries that the compiler loads and the machine lacks beside the compiler.
fn unpack_libraries(apt: &Apt, folder: &Path) -> anyhow::Result<()> {
    let marker = std::fs::read_to_string(folder.join("complete"))?;
    let packages = library_packages(apt, &marker, &apt::installed()?)?;
    if packages.is_empty() {
        bail!(
            "Debian's compiler loads {}, and every package that it depends on is installed",
            missing_libraries(folder)?.join(", ")
        );
    }
    // Written aside: an interrupted run must not leave half a library.
    let aside = folder.join("libraries.part");
    unpack(apt, &packages, &aside)?;
    let libraries = libraries(folder);
    make_empty(&libraries)?;
    std::fs::rename(aside, libraries)?;
    Ok(())
}

fn libraries(folder: &Path) -> PathBuf {
    folder.join("libraries")
}

/// What the unpacked libraries depend on, directly or not, without what is installed.
fn library_packages(offer: &impl Offer, marker: &str, installed: &HashSet<String>) -> anyhow::Result<Vec<Package>> {
    let mut found = BTreeMap::new();
    let unpacked: Vec<_> = marker.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    let is_known = |name: &str| name == C_LIBRARY || installed.contains(name) || unpacked.contains(&name);
    let mut left = Vec::new();
    // The compiler's own dependencies are the linker and other programs, which come from rustup here.
    for name in unpacked.iter().filter(|name| **name != COMPILER) {
        // Any version will do: what a library loads seldom changes, and the archive drops old versions.
        left.extend(find(offer, &Dependency { name: (*name).to_owned(), exact: None })?.depends);
    }
    while let Some(wanted) = left.pop() {
        if !is_known(&wanted.name) && !found.contains_key(&wanted.name) {
            let package = find(offer, &wanted)?;
            left.extend(package.depends.iter().cloned());
            found.insert(wanted.name, package);
        }
    }
    Ok(found.into_values().collect())
}

/// The shared libraries that the compiler asks for and that are nowhere.
fn missing_libraries(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut ldd = Command::new("ldd");
    ldd.arg(program(folder)).env("LD_LIBRARY_PATH", library_path(folder)?).env("LC_ALL", "C");
    Ok(not_found(&steps::output(&mut ldd)?))
}

/// Reads what `ldd` prints.
fn not_found(listing: &str) -> Vec<String> {
    let mut names: Vec<_> =
        listing.lines().filter_map(|line| line.trim().strip_suffix(" => not found")).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

/// The folders that hold the compiler's shared libraries. LLVM's is beside the others or in a folder of its own,
/// depending on the package's version.
fn library_path(folder: &Path) -> anyhow::Result<String> {
    let mut found = library_folders(&folder.join("usr/lib"))?;
    for below in ["usr/lib", "lib"] {
        let libraries = libraries(folder).join(below);
        if libraries.is_dir() {
            found.extend(library_folders(&libraries)?);
        }
    }
    Ok(found.join(":"))
}

fn library_folders(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))? {
        let path = entry?.path();
        match path.file_name().and_then(|name| name.to_str()) {
            Some(name) if name.ends_with("-linux-gnu") => found.push(path.display().to_string()),
            Some(name) if name.starts_with("llvm-") => found.push(path.join("lib").display().to_string()),
            _ => {}
        }
    }
    Ok(found)
}

fn is_new_enough(version: &str) -> bool {
    rust_version(version) >= rust_version(NEEDED)
}

/// The numbers at the beginning of a Rust version or of a Debian version: `1.96.0+dfsg1-1~deb12u2` is 1.96.0.
fn rust_version(text: &str) -> Vec<u32> {
    let numbers =
        text.split(|character: char| !character.is_ascii_digit() && character != '.').next().unwrap_or_default();
    numbers.split('.').map_while(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apt::Recorded;

    /// A machine whose lists were refreshed in May 2026.
    const OLD: Recorded = Recorded(include_str!("../testdata/apt-cache-show-2026-05.txt"));
    /// The same machine after `apt-get update` in November 2026.
    const NEW: Recorded = Recorded(include_str!("../testdata/apt-cache-show-2026-11.txt"));

    fn names(packages: &[Package]) -> Vec<String> {
        packages.iter().map(Package::pinned).collect()
    }

    #[test]
    fn newest_debian_compiler_is_chosen_with_its_packages() {
        let web = "1.96.0+dfsg1-1~deb12u2";
        assert_eq!(
            names(&compiler_packages(&NEW).unwrap()),
            [
                format!("rustc-web={web}"),
                format!("libstd-rust-web-dev={web}"),
                format!("rust-web-src={web}"),
                "wasi-libc=0.0~git20220510.9886d3d-2".to_owned(),
                "libllvm22=1:22.1.8-1~deb12u1".to_owned(),
                format!("libstd-rust-web-1.96={web}"),
            ]
        );
    }

    #[test]
    fn old_debian_compiler_is_refused_before_download() {
        let refusal = compiler_packages(&OLD).unwrap_err().to_string();
        assert!(
            refusal.starts_with(
                "the newest rustc-web that apt offers is 1.85.0+dfsg3-1~deb12u3, and the guests need Rust "
            )
        );
        let refusal = compiler_packages(&Recorded("")).unwrap_err().to_string();
        assert!(refusal.starts_with("apt offers no rustc-web, and the guests need Rust "), "{refusal}");
    }

    #[test]
    fn debian_packages_of_other_versions_are_refused() {
        let text = "Package: rustc-web\nVersion: 9.0.0-1\nFilename: a\n\nPackage: libstd-rust-web-dev\nVersion: 8.0.0-1\nFilename: b\n";
        let refusal = compiler_packages(&Recorded(text)).unwrap_err().to_string();
        assert_eq!(refusal, "apt offers no libstd-rust-web-dev 9.0.0-1");
    }

    #[test]
    fn debian_libraries_include_missing_dependencies_only() {
        let marker = compiler_packages(&NEW).map(|packages| names(&packages).join("\n")).unwrap();
        let only = |installed: &[&str]| {
            let installed = installed.iter().map(|name| (*name).to_owned()).collect();
            let packages = library_packages(&NEW, &marker, &installed).unwrap();
            packages.into_iter().map(|package| package.name).collect::<Vec<_>>()
        };
        let base = ["libgcc-s1", "libstdc++6", "libtinfo6", "liblzma5", "libzstd1", "zlib1g"];
        assert_eq!(only(&base), ["libbsd0", "libedit2", "libffi8", "libicu72", "libmd0", "libxml2", "libz3-4"]);
        assert!(!only(&[]).contains(&"libc6".to_owned()), "the loader and the C library must fit");
        let all: Vec<_> = only(&[]);
        assert_eq!(only(&all.iter().map(String::as_str).collect::<Vec<_>>()), [""; 0]);
    }

    #[test]
    fn missing_libraries_are_read_from_ldd() {
        let listing = "\tlinux-vdso.so.1 (0x1)\n\tlibz3.so.4 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x2)\n\tlibedit.so.2 => not found\n\tlibz3.so.4 => not found\n";
        assert_eq!(not_found(listing), ["libedit.so.2", "libz3.so.4"]);
    }

    #[test]
    fn rust_versions_are_compared_as_numbers() {
        assert!(rust_version("1.100.0-1") > rust_version("1.96.0+dfsg1-1~deb12u2"));
        assert!(rust_version("1.95.0+dfsg1-1") >= rust_version("1.95"));
        assert!(rust_version("1.85.0+dfsg3-1") < rust_version("1.95"));
        assert!(rust_version("") < rust_version("1.0"));
    }

    #[test]
    fn incomplete_or_old_compiler_folder_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_usable(folder.path()));
        for (marker, usable) in
            [("rustc-web\nwasi-libc", false), ("rustc-web=1.85.0-1", false), ("a=1\nrustc-web=1.1000.0-1", true)]
        {
            std::fs::write(folder.path().join("complete"), marker).unwrap();
            assert_eq!(is_usable(folder.path()), usable, "{marker}");
        }
    }
}
