//! The archive: programs, completions, man pages and documents, laid out so that `bin` and `share` can be copied below
//! any prefix.

use crate::Package;
use crate::release::{CompletionPaths, DOCUMENTS, Release};
use crate::tree::{READABLE, Tree};

const COMPLETIONS: CompletionPaths = CompletionPaths {
    bash: "bash-completion/completions/bulkhead",
    zsh: "zsh/site-functions/_bulkhead",
    fish: "fish/vendor_completions.d/bulkhead.fish",
};

pub(crate) fn package(release: &Release) -> anyhow::Result<Package> {
    let mut tree = Tree::default();
    release.add_programs(&mut tree, "bin");
    release.add_shell_support(&mut tree, "share", &COMPLETIONS);
    release.add_documents(&mut tree, DOCUMENTS);
    release.add_monitoring(&mut tree, DOCUMENTS)?;
    tree.file("bulkhead.example.toml", READABLE, release.contrib("bulkhead.example.toml")?);
    tree.file("share/doc/bulkhead/bulkhead.service", READABLE, release.contrib("debian/bulkhead.service")?);
    let name = release.full_name();
    // Where readers look first.
    tree.file("LICENSE", READABLE, release.license.clone());
    tree.file("README.md", READABLE, release.readme.clone());
    let bytes = tree.below(&name).tar_gz(release.epoch, release.compression)?;
    Ok(Package { name: format!("{name}.tar.gz"), bytes })
}
