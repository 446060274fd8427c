//! The Debian package: programs, a service that systemd runs as a user of its own, and a configuration that `dpkg`
//! keeps.
//!
//! Owns where files lie on a Debian. The unit, the scripts and the configuration are files below `host/contrib/debian`.

use libdeflater::CompressionLvl;

use crate::Package;
use crate::release::{self, CompletionPaths, Release};
use crate::tree::{EXECUTABLE, READABLE, Tree, gzip};

const COMPLETIONS: CompletionPaths = CompletionPaths {
    bash: "bash-completion/completions/bulkhead",
    zsh: "zsh/vendor-completions/_bulkhead",
    fish: "fish/vendor_completions.d/bulkhead.fish",
};
/// What `dpkg` keeps when an administrator has changed it.
const CONFIGURATION: &str = "etc/bulkhead/bulkhead.toml";
/// What `dpkg` runs.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

pub(crate) fn package(release: &Release, maintainer: &str) -> anyhow::Result<Package> {
    let mut data = Tree::default();
    release.add_programs(&mut data, "usr/bin");
    release.add_shell_support(&mut data, "usr/share", &COMPLETIONS);
    let data = compressed_man_pages(&data)?;
    let data = with_documents(release, data)?;

    let mut control = Tree::default();
    let installed: usize = data.files().map(|(_, _, bytes)| bytes.len()).sum();
    control.file("control", READABLE, control_file(release, maintainer, installed.div_ceil(1024)).into_bytes());
    control.file("conffiles", READABLE, format!("/{CONFIGURATION}\n").into_bytes());
    for script in SCRIPTS {
        control.file(script, EXECUTABLE, release.contrib(&format!("debian/{script}"))?);
    }
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", control.tar_gz(release.epoch, release.compression)?),
        ("data.tar.gz", data.tar_gz(release.epoch, release.compression)?),
    ];
    let name = format!("{}_{}_{}.deb", release::NAME, release.version, release.needs.machine.debian);
    Ok(Package { name, bytes: ar(&members, release.epoch) })
}

/// The same tree with man pages as Debian has them.
fn compressed_man_pages(tree: &Tree) -> anyhow::Result<Tree> {
    let mut compressed = Tree::default();
    for (path, mode, bytes) in tree.files() {
        if path.contains("/man/") {
            compressed.file(&format!("{path}.gz"), mode, gzip(bytes, CompressionLvl::best())?);
        } else {
            compressed.file(path, mode, bytes);
        }
    }
    Ok(compressed)
}

fn with_documents(release: &Release, mut data: Tree) -> anyhow::Result<Tree> {
    data.file(CONFIGURATION, READABLE, release.contrib("debian/bulkhead.toml")?);
    data.file("usr/lib/systemd/system/bulkhead.service", READABLE, release.contrib("debian/bulkhead.service")?);
    release.add_monitoring(&mut data, "usr/share/doc/bulkhead")?;
    // Debian's name for the licence of a package, with those of what is linked in.
    let copyright = [&release.license[..], b"\n", &release.notices].concat();
    data.file("usr/share/doc/bulkhead/copyright", READABLE, copyright);
    data.file("usr/share/doc/bulkhead/README.md", READABLE, release.readme.clone());
    release.add_pages(&mut data, "usr/share/doc/bulkhead");
    Ok(data)
}

fn control_file(release: &Release, maintainer: &str, kibibytes: usize) -> String {
    let (major, minor) = release.needs.glibc;
    format!(
        "Package: {}\n\
         Version: {}\n\
         Architecture: {}\n\
         Maintainer: {maintainer}\n\
         Installed-Size: {kibibytes}\n\
         Depends: libc6 (>= {major}.{minor}), libgcc-s1, adduser\n\
         Section: net\n\
         Priority: optional\n\
         Description: {}\n \
         Bulkhead runs third-party tools for MCP clients. Each call has a sandbox of\n \
         its own with limits on everything, long calls become tasks that survive a\n \
         crash of the host, and tools are swapped while they run.\n",
        release::NAME,
        release.version,
        release.needs.machine.debian,
        release::SUMMARY,
    )
}

/// An archive as `ar` makes it: a head of 60 letters before each member, and members begin at even places.
fn ar(members: &[(&str, Vec<u8>)], epoch: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        let head = format!("{name:<16}{epoch:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, "100644", bytes.len());
        archive.extend(head.as_bytes());
        archive.extend(bytes);
        if bytes.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_heads_of_sixty_letters_and_begin_at_even_places() {
        let archive = ar(&[("debian-binary", b"2.0".to_vec()), ("x", b"y".to_vec())], 1_700_000_000);
        let text = String::from_utf8(archive).unwrap();
        assert_eq!(
            text,
            "!<arch>\n\
             debian-binary   1700000000  0     0     100644  3         `\n2.0\n\
             x               1700000000  0     0     100644  1         `\ny\n"
        );
        assert_eq!(text.find("x    ").unwrap() % 2, 0);
    }

    #[test]
    fn only_man_pages_are_compressed() {
        let mut tree = Tree::default();
        tree.file("usr/share/man/man1/a.1", READABLE, *b"page");
        tree.file("usr/bin/a", EXECUTABLE, *b"program");
        let tree = compressed_man_pages(&tree).unwrap();
        let files: Vec<_> = tree.files().map(|(path, mode, _)| (path, mode)).collect();
        assert_eq!(files, [("usr/bin/a", EXECUTABLE), ("usr/share/man/man1/a.1.gz", READABLE)]);
    }
}
