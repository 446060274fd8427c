//! `cargo xtask dist`: packages of the host, in `target/dist`.
//!
//! Owns which programs are packaged, and that they are built alike on every machine. The packages themselves are made
//! by the program `dist` (`plugins/tools/dist`): what it needs would make every other developer command wait.
//! Invariant: two clean checkouts of one commit give equal digests, wherever they lie.

mod base;
mod reproducible;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use xtask::{layout, steps};

/// What to package, and where to.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Package this program, which is built already, instead of building the profile `dist`; may be given more than
    /// once.
    #[arg(long = "binary", value_name = "FILE")]
    binaries: Vec<PathBuf>,
    /// The folder that the packages go into [default: target/dist].
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The libraries in the image: those of host/contrib/image/base.toml, or what apt offers now. The latter are
    /// written to target/dist-base/base.toml, which can take the place of the former.
    #[arg(long, value_enum, default_value = "pinned")]
    base: base::Selection,
    /// Who answers for the Debian package, as its field `Maintainer` has it.
    #[arg(long, value_name = "NAME <ADDRESS>", default_value = MAINTAINER, value_parser = maintainer)]
    maintainer: String,
    /// How hard to look for smaller packages, 1 to 12: nearly all the time of packaging goes into the last per cents.
    /// Less serves packages that are tried and not handed out.
    #[arg(long, value_name = "LEVEL", default_value = "12", value_parser = clap::value_parser!(u8).range(1..=12))]
    compression_level: u8,
}

/// The programs by their Cargo packages. Those whose package is not in the workspace are left out.
const PROGRAMS: [(&str, &str); 2] = [("bulkhead", "bulkhead"), ("bulkhead-author-cli", "bulkhead-plugin")];
const PROFILE: &str = "dist";
/// The most that an archive may have: a newcomer waits for it.
const ARCHIVE_BYTES_MAX: u64 = 25_000_000;

/// Of packages that are for one's own machines: mail to it stays there.
const MAINTAINER: &str = "Bulkhead maintainers <root@localhost>";

/// A name and an address, as Debian's policy wants them.
fn maintainer(text: &str) -> Result<String, String> {
    let parts = text.strip_suffix('>').and_then(|text| text.split_once(" <"));
    let is_plain = |character: char| !character.is_control() && !"<>,".contains(character);
    let is_name = |name: &str| !name.trim().is_empty() && name == name.trim() && name.chars().all(is_plain);
    let is_address = |address: &str| {
        let parts = address.split_once('@');
        parts.is_some_and(|(user, host)| !user.is_empty() && !host.is_empty() && !host.contains('@'))
            && address.chars().all(|character| character.is_ascii_graphic() && is_plain(character))
    };
    if parts.is_some_and(|(name, address)| is_name(name) && is_address(address)) {
        return Ok(text.to_owned());
    }
    Err("expected a name without commas and an address, such as `Jane Doe <jane@example.com>`".to_owned())
}

/// Builds the programs, or takes those that are named, and packages them.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let epoch = epoch()?;
    let is_built_here = options.binaries.is_empty();
    let (named, base) = named_and_fetched(&options.binaries, || base::fetch(options.base))?;
    let programs = if is_built_here { build(epoch)? } else { named };
    let mut cargo = steps::cargo();
    cargo.args(["build", "--quiet", "--workspace", "--bin", "dist", "--target-dir"]).arg(layout::target());
    steps::run("build the packager", &mut cargo)?;
    let output = match &options.output {
        Some(output) => std::path::absolute(output)?,
        None => layout::target().join("dist"),
    };
    let mut dist = Command::new(layout::target().join("debug/dist"));
    dist.arg("--root").arg(layout::root()).arg("--output").arg(&output).args(["--epoch", &epoch.to_string()]);
    dist.args(["--compression-level", &options.compression_level.to_string()]);
    dist.arg("--base").arg(&base.packages).arg("--pins").arg(&base.pins).args(["--maintainer", &options.maintainer]);
    if is_built_here {
        // A program without the profile's optimisations is larger.
        dist.args(["--archive-bytes-max", &ARCHIVE_BYTES_MAX.to_string()]);
    }
    for (package, path) in programs {
        dist.arg(format!("{package}={}", path.display()));
    }
    steps::run("package", &mut dist)
}

/// The time that every file of the packages has: that of the commit.
fn epoch() -> anyhow::Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => {
            let mut log = Command::new("git");
            log.args(["log", "-1", "--format=%ct"]).current_dir(layout::root());
            steps::output(&mut log).context("the time of the commit is not known: set SOURCE_DATE_EPOCH")?
        }
    };
    let text = text.trim();
    text.parse().with_context(|| format!("SOURCE_DATE_EPOCH is `{text}`, not a number of seconds since 1970"))
}

/// Builds every program, in a folder of its own: what else is built has other flags.
fn build(epoch: u64) -> anyhow::Result<Vec<(&'static str, PathBuf)>> {
    let target = layout::target().join("dist-build");
    std::fs::create_dir_all(&target)?;
    steps::run("fetch the sources", steps::cargo().args(["fetch", "--locked"]))?;
    let remapped = reproducible::remapped()?;
    let wrapper = reproducible::write_wrapper(&target, &remapped)?;
    let members = members()?;
    let mut programs = Vec::new();
    for (package, name) in PROGRAMS.into_iter().filter(|(package, _)| members.iter().any(|member| member == package)) {
        let mut cargo = steps::cargo();
        cargo.args(["build", "--locked", "--profile", PROFILE, "--package", package, "--bin", name, "--target-dir"]);
        cargo.arg(&target);
        reproducible::set_environment(&mut cargo, &wrapper, &remapped, epoch);
        steps::run(&format!("build {name}"), &mut cargo)?;
        programs.push((package, target.join(PROFILE).join(name)));
    }
    Ok(programs)
}

/// The names of the workspace's packages.
fn members() -> anyhow::Result<Vec<String>> {
    let mut metadata = steps::cargo();
    metadata.args(["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: serde_json::Value = serde_json::from_str(&steps::output(&mut metadata)?)?;
    let packages = metadata["packages"].as_array().context("`cargo metadata` names no packages")?;
    Ok(packages.iter().filter_map(|package| package["name"].as_str().map(str::to_owned)).collect())
}

/// The programs that are built already, and what is fetched for them: what the caller can mend at once comes first, and
/// what may not be on offer any more before what takes long.
fn named_and_fetched<B>(
    binaries: &[PathBuf],
    fetch: impl FnOnce() -> anyhow::Result<B>,
) -> anyhow::Result<(Vec<(&'static str, PathBuf)>, B)> {
    Ok((named(binaries)?, fetch()?))
}

/// Programs that are built already, by the names of their files.
fn named(paths: &[PathBuf]) -> anyhow::Result<Vec<(&'static str, PathBuf)>> {
    let package = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let Some((package, _)) = PROGRAMS.into_iter().find(|(_, program)| name == Some(program)) else {
            let names: Vec<_> = PROGRAMS.into_iter().map(|(_, program)| program).collect();
            bail!("{} is none of the programs that are packaged: {}", path.display(), names.join(", "));
        };
        Ok((package, absolute(path)?))
    };
    paths.iter().map(package).collect()
}

fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    path.canonicalize().with_context(|| format!("there is no {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maintainer_is_one_line_with_a_name_and_an_address() {
        for good in [MAINTAINER, "Jane Doe <jane@example.com>", "J. O'Neil (ops) <ops+deb@mail.example.com>"] {
            assert_eq!(maintainer(good).as_deref(), Ok(good));
        }
        for wrong in [
            "",
            "Jane Doe",
            "jane@example.com",
            "<jane@example.com>",
            " <jane@example.com>",
            "Jane<jane@example.com>",
            "Jane <jane>",
            "Jane <@example.com>",
            "Jane <a@b@c>",
            "Jane <a b@c>",
            "Doe, Jane <jane@example.com>",
            "Jane <jane@example.com> x",
            "Jane\nPackage: other <jane@example.com>",
        ] {
            assert!(maintainer(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn program_is_known_by_the_name_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, "").unwrap();
            path
        };
        let named = |path: PathBuf| named(&[path]).map(|programs| programs[0].0).map_err(|error| error.to_string());
        assert_eq!(named(path("bulkhead")).unwrap(), "bulkhead");
        assert_eq!(named(path("bulkhead-plugin")).unwrap(), "bulkhead-author-cli");
        assert!(named(path("xtask")).unwrap_err().ends_with("are packaged: bulkhead, bulkhead-plugin"));
        assert!(named(folder.path().join("none/bulkhead")).unwrap_err().starts_with("there is no "));
    }

    #[test]
    fn nothing_is_fetched_for_a_program_that_is_not_packaged() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("xtask");
        std::fs::write(&other, "").unwrap();
        for wrong in [other, folder.path().join("none/bulkhead")] {
            let mut fetched = 0;
            let fetch = || {
                fetched += 1;
                Ok(())
            };
            assert!(named_and_fetched(&[wrong], fetch).is_err());
            assert_eq!(fetched, 0);
        }
    }
}
