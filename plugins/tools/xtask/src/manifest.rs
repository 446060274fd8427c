//! Makes sure that a component still carries its manifest.
//!
//! The SDK puts the manifest into the custom section `bulkhead:manifest` of the core module. Linkers drop sections that
//! they take for debugging aids, and a plugin without its manifest would silently be granted nothing; hence this check
//! right after the build. What the manifest may say is the host's business.
//!
//! Reads the lengths of sections alone, so that a visitor need not wait until a parser of WebAssembly is compiled.

use std::path::Path;

use anyhow::{Context as _, bail};

const SECTION: &str = "bulkhead:manifest";

/// The length of what a module or a component begins with: the magic bytes, version and layer.
const PREAMBLE: usize = 8;
/// What begins a component; a module has zeros in the second half.
const COMPONENT: [u8; PREAMBLE] = *b"\0asm\x0d\0\x01\0";

const CUSTOM: u8 = 0;
/// Sections of a component that hold a whole module, or another component.
const NESTED: [u8; 2] = [1, 4];

/// Fails unless the component holds exactly one manifest.
pub(crate) fn check(component: &Path) -> anyhow::Result<()> {
    let bytes = std::fs::read(component).with_context(|| format!("{} was not built", component.display()))?;
    let mut found = Vec::new();
    collect(&bytes, &mut found).context("the component is cut off")?;
    match found[..] {
        [manifest] => std::str::from_utf8(manifest).map(drop).context("the manifest is not UTF-8"),
        [] => bail!("the component has no section {SECTION}: write one with `bulkhead_plugin::manifest!`"),
        _ => bail!("the component has {} sections {SECTION}, there must be one", found.len()),
    }
}

/// Adds the manifests of a module or component, and of those inside it; `None` where a length reaches over its end.
fn collect<'a>(binary: &'a [u8], found: &mut Vec<&'a [u8]>) -> Option<()> {
    let is_component = binary.starts_with(&COMPONENT);
    let mut rest = binary.get(PREAMBLE..)?;
    while let Some(id) = take(&mut rest, 1) {
        let length = number(&mut rest)?;
        let mut section = take(&mut rest, length)?;
        if id == [CUSTOM] {
            let length = number(&mut section)?;
            if take(&mut section, length)? == SECTION.as_bytes() {
                found.push(section);
            }
        } else if is_component && NESTED.contains(&id[0]) {
            collect(section, found)?;
        }
    }
    Some(())
}

/// The next bytes, which are no longer in the rest then.
fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(taken)
}

/// The next number, in LEB128 of at most 32 bits.
fn number(rest: &mut &[u8]) -> Option<usize> {
    let mut number = 0;
    for shift in (0..32).step_by(7) {
        let byte = take(rest, 1)?[0];
        number |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: [u8; PREAMBLE] = *b"\0asm\x01\0\0\0";

    fn section(id: u8, content: &[u8]) -> Vec<u8> {
        // A length of two bytes, as linkers write it that leave room for a longer one.
        let length = u8::try_from(content.len()).expect("a short section");
        [&[id, length | 0x80, length >> 7], content].concat()
    }

    fn manifest(text: &[u8]) -> Vec<u8> {
        let name = u8::try_from(SECTION.len()).expect("a short name");
        section(CUSTOM, &[&[name], SECTION.as_bytes(), text].concat())
    }

    fn finding(component: &[u8]) -> String {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), component).expect("the file is written");
        check(file.path()).map_or_else(|error| format!("{error:#}"), |()| "one".to_owned())
    }

    #[test]
    fn component_has_one_manifest_in_whichever_module() {
        let own = |text: &[u8]| section(1, &[&MODULE[..], &section(1, &[0; 9]), &manifest(text)].concat());
        let component = |sections: &[&[u8]]| [&COMPONENT[..], &sections.concat()].concat();
        let other = section(CUSTOM, b"\x04name");
        let types = section(7, &[1; 12]);
        let inner = component(&[&own(b"name = \"a\"")]);
        let whole = component(&[&types, &own(b"name = \"a\""), &other]);
        for (sections, expected) in [
            (whole.clone(), "one"),
            (component(&[&section(4, &inner)]), "one"),
            (
                component(&[&types, &other]),
                "the component has no section bulkhead:manifest: write one with `bulkhead_plugin::manifest!`",
            ),
            (
                component(&[&own(b"a"), &manifest(b"b")]),
                "the component has 2 sections bulkhead:manifest, there must be one",
            ),
            (component(&[&own(b"\xff")]), "the manifest is not UTF-8: invalid utf-8 sequence of 1 bytes from index 0"),
            (whole[..whole.len() - 1].to_vec(), "the component is cut off"),
            (component(&[&[0, 0xff, 0xff, 0xff, 0xff, 0xff]]), "the component is cut off"),
            (Vec::new(), "the component is cut off"),
        ] {
            assert_eq!(finding(&sections), expected);
        }
    }
}
