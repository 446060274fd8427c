//! Makes packages of programs that are built. `cargo xtask dist` builds them, fetches what the image needs of Debian
//! and runs this.
//!
//! Each kind of package is a module of its own. Invariant: the same programs, the same sources and the same time make
//! the same bytes, wherever the repository lies and whoever runs this.

mod archive;
mod base;
mod components;
mod deb;
mod elf;
mod image;
mod notices;
mod npm;
mod release;
mod sbom;
mod tree;
mod wheel;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Parser;
use libdeflater::CompressionLvl;

use release::Release;

/// What is packaged.
#[derive(Parser)]
struct Arguments {
    /// The repository.
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Where the packages go. Packages that are there are removed.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// The time of every file in the packages, in seconds since 1970.
    #[arg(long, value_name = "SECONDS")]
    epoch: u64,
    /// The folder with the packages of Debian that the image's libraries come from.
    #[arg(long, value_name = "DIR")]
    base: PathBuf,
    /// The list of these packages with their digests.
    #[arg(long, value_name = "FILE")]
    pins: PathBuf,
    /// Who answers for the Debian package: `NAME <ADDRESS>`.
    #[arg(long, value_name = "MAINTAINER")]
    maintainer: String,
    /// How hard to look for smaller packages, 1 to 12.
    #[arg(long, value_name = "LEVEL", value_parser = compression_level)]
    compression_level: CompressionLvl,
    /// The most bytes of the archive.
    #[arg(long, value_name = "BYTES")]
    archive_bytes_max: Option<usize>,
    /// The programs, each with its Cargo package.
    #[arg(value_name = "PACKAGE=FILE", required = true, value_parser = program)]
    programs: Vec<(String, PathBuf)>,
}

fn program(text: &str) -> Result<(String, PathBuf), String> {
    let (package, path) = text.split_once('=').ok_or("a program is written PACKAGE=FILE")?;
    Ok((package.to_owned(), path.into()))
}

fn compression_level(text: &str) -> Result<CompressionLvl, String> {
    let level = text.parse().map_err(|_| format!("{text} is not a number"))?;
    CompressionLvl::new(level).map_err(|_| format!("{level} is not one of 1 to 12"))
}

/// A file that is handed out.
struct Package {
    name: String,
    bytes: Vec<u8>,
}

/// The digests of all packages, as `sha256sum --check` reads them.
const SUMS: &str = "SHA256SUMS";

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dist: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let release = Release::read(&arguments.root, arguments.epoch, arguments.compression_level, &arguments.programs)?;
    let packages = packages(&release, arguments)?;
    std::fs::create_dir_all(&arguments.output)?;
    remove_old(&arguments.output)?;
    let mut sums = String::new();
    for package in &packages {
        let path = arguments.output.join(&package.name);
        std::fs::write(&path, &package.bytes).with_context(|| format!("cannot write {}", path.display()))?;
        sums.push_str(&format!("{}  {}\n", tree::sha256(&package.bytes), package.name));
        println!("{:>10} {}", package.bytes.len(), path.display());
    }
    std::fs::write(arguments.output.join(SUMS), sums)?;
    Ok(())
}

/// Every package, in the order of their names.
fn packages(release: &Release, arguments: &Arguments) -> anyhow::Result<Vec<Package>> {
    let mut packages = std::thread::scope(|scope| -> anyhow::Result<Vec<Package>> {
        // Most of the time goes into compression.
        let making = [
            scope.spawn(|| archive::package(release)),
            scope.spawn(|| deb::package(release, &arguments.maintainer)),
            scope.spawn(|| wheel::package(release)),
            scope.spawn(|| npm::package(release)),
            scope.spawn(|| image::package(release, &arguments.base, &arguments.pins)),
        ];
        making.into_iter().map(|made| made.join().map_err(|_| anyhow::anyhow!("a package was not made"))?).collect()
    })?;
    if let (Some(archive), Some(bytes_max)) = (packages.first(), arguments.archive_bytes_max) {
        let bytes = archive.bytes.len();
        ensure!(bytes <= bytes_max, "{} has {bytes} bytes; {bytes_max} is the most", archive.name);
    }
    for program in &release.programs {
        let name = format!("{}-{}-{}-linux.cdx.json", program.name, release.version, release.needs.machine.linux);
        packages.push(Package { name, bytes: sbom::document(release, program)? });
    }
    packages.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(packages)
}

/// Removes the packages that the last list of digests names: of another version, nothing stays behind.
fn remove_old(output: &Path) -> anyhow::Result<()> {
    let Ok(sums) = std::fs::read_to_string(output.join(SUMS)) else { return Ok(()) };
    let names = sums.lines().filter_map(|line| line.split_once("  ")).map(|(_, name)| name);
    for name in names.filter(|name| !name.contains('/')) {
        match std::fs::remove_file(output.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {name}"));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_the_last_version_are_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("output");
        std::fs::create_dir(&output).unwrap();
        for path in ["output/old.deb", "output/theirs", "above"] {
            std::fs::write(folder.path().join(path), "").unwrap();
        }
        std::fs::write(output.join(SUMS), "00  old.deb\n00  gone.deb\n00  ../above\n").unwrap();
        remove_old(&output).unwrap();
        assert!(!output.join("old.deb").exists());
        assert!(output.join("theirs").exists() && folder.path().join("above").exists());
    }
}
