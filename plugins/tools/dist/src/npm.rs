//! The npm package: the programs themselves are its commands. Nothing is run or downloaded when it is installed.

use serde_json::{Map, Value, json};

use crate::Package;
use crate::release::{self, DOCUMENTS, Release};
use crate::tree::{READABLE, Tree};

pub(crate) fn package(release: &Release) -> anyhow::Result<Package> {
    let mut tree = Tree::default();
    release.add_programs(&mut tree, "bin");
    release.add_documents(&mut tree, DOCUMENTS);
    // Where npm and its registry look.
    for (name, text) in [("LICENSE", &release.license), ("README.md", &release.readme)] {
        tree.file(name, READABLE, text.clone());
    }
    let names = release.programs.iter().map(|program| program.name.as_str());
    let mut manifest = serde_json::to_vec_pretty(&manifest(&release.version, release.needs.machine.node, names))?;
    manifest.push(b'\n');
    tree.file("package.json", READABLE, manifest);
    let name = format!("{}-{}-linux-{}.tgz", release::NAME, release.version, release.needs.machine.node);
    Ok(Package { name, bytes: tree.below("package").tar_gz(release.epoch, release.compression)? })
}

fn manifest<'a>(version: &str, cpu: &str, programs: impl Iterator<Item = &'a str>) -> Value {
    let commands: Map<String, Value> =
        programs.map(|name| (name.to_owned(), Value::from(format!("bin/{name}")))).collect();
    json!({
        "name": release::NAME,
        "version": version,
        "description": release::SUMMARY,
        "keywords": release::KEYWORDS,
        "license": release::LICENSE,
        "bin": commands,
        "os": ["linux"],
        "cpu": [cpu],
        // The programs are linked with glibc; npm leaves musl's systems alone.
        "libc": ["glibc"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_is_a_command_and_no_script_is_run() {
        let manifest = manifest("0.1.0", "x64", ["bulkhead", "other"].into_iter());
        assert_eq!(manifest["bin"], json!({ "bulkhead": "bin/bulkhead", "other": "bin/other" }));
        assert!(manifest.get("scripts").is_none() && manifest.get("dependencies").is_none());
    }
}
