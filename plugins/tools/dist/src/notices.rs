//! The licences of what is linked into the programs, in one text.
//!
//! Most of them ask that their text comes with every copy. A text that many crates have is printed once, below all
//! their names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::Context as _;

use crate::components::Component;

/// What the file is called in every package.
pub(crate) const FILE: &str = "THIRD-PARTY-LICENSES.txt";

/// What the names of such files begin with, in capital letters.
const NAMES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// The text for these crates. Those of this repository are left out.
pub(crate) fn text<'a>(components: impl Iterator<Item = &'a Component>) -> anyhow::Result<String> {
    let mut crates_by_text: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut all = BTreeSet::new();
    for component in components.filter(|component| component.sha256.is_some()) {
        let (name, version) = &component.id;
        let crate_name = format!("{name} {version}");
        for text in texts(component)? {
            crates_by_text.entry(text).or_default().insert(crate_name.clone());
        }
        all.insert((crate_name, component.license.clone().unwrap_or_else(|| "see below".to_owned())));
    }
    // By the crates' names, so that a new version of one moves nothing else.
    let mut sections: Vec<_> = crates_by_text.into_iter().map(|(text, crates)| (crates, text)).collect();
    sections.sort();

    let mut page = String::from("The programs of Bulkhead contain these crates, each under the licence beside it:\n\n");
    for (crate_name, license) in all {
        writeln!(page, "  {crate_name}: {license}")?;
    }
    for (crates, text) in sections {
        let names: Vec<_> = crates.into_iter().collect();
        write!(page, "\n{}\n{}:\n\n{}\n", "-".repeat(100), names.join(", "), text.trim_end())?;
    }
    Ok(page)
}

/// The licences and notices that come with a crate.
fn texts(component: &Component) -> anyhow::Result<Vec<String>> {
    let folder = &component.folder;
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if entry.file_type()?.is_file() && NAMES.iter().any(|begin| name.starts_with(begin)) {
            texts.push(String::from_utf8_lossy(&std::fs::read(entry.path())?).replace("\r\n", "\n"));
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_two_crates_have_is_printed_once() {
        let root = tempfile::tempdir().unwrap();
        let component = |name: &str, license: &str, sha256: Option<&str>| {
            let folder = root.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("license-mit"), license).unwrap();
            std::fs::write(folder.join("lib.rs"), "no licence").unwrap();
            Component {
                id: (name.to_owned(), "1.0.0".to_owned()),
                license: Some("MIT".to_owned()),
                sha256: sha256.map(str::to_owned),
                folder,
                depends: BTreeSet::new(),
            }
        };
        let all = [
            component("b", "The same text.\r\n", Some("00")),
            component("a", "The same text.\n", Some("00")),
            component("c", "Another text.", Some("00")),
            component("ours", "Our text.", None),
        ];
        let page = text(all.iter()).unwrap();
        assert_eq!(page.matches("The same text.").count(), 1);
        assert!(page.contains("\na 1.0.0, b 1.0.0:\n\nThe same text.\n"), "{page}");
        assert!(page.contains("\nc 1.0.0:\n\nAnother text.\n") && page.contains("  c 1.0.0: MIT\n"), "{page}");
        assert!(!page.contains("Our text.") && !page.contains("no licence"), "{page}");
    }
}
