//! Makes sure that a component still carries its manifest.
//!
//! The SDK puts the manifest into the custom section `bulkhead:manifest` of the core module. Linkers drop sections that
//! they take for debugging aids, and a plugin without its manifest would silently be granted nothing; hence this check
//! right after the build. What the manifest may say is the host's business.

use std::path::Path;

use anyhow::{Context as _, bail};
use wasmparser::{Parser, Payload};

const SECTION: &str = "bulkhead:manifest";

/// Fails unless the component holds exactly one manifest, in TOML.
pub(crate) fn check(component: &Path) -> anyhow::Result<()> {
    let bytes = std::fs::read(component).with_context(|| format!("{} was not built", component.display()))?;
    let mut found = Vec::new();
    // The parser descends into the nested core modules by itself.
    for payload in Parser::new(0).parse_all(&bytes) {
        if let Payload::CustomSection(section) = payload?
            && section.name() == SECTION
        {
            found.push(std::str::from_utf8(section.data()).context("the manifest is not UTF-8")?.to_owned());
        }
    }
    match &found[..] {
        [manifest] => {
            let _: toml::Table = manifest.parse().context("the manifest is not TOML")?;
            Ok(())
        }
        [] => bail!("the component has no section {SECTION}: write one with `bulkhead_plugin::manifest!`"),
        _ => bail!("the component has {} sections {SECTION}, there must be one", found.len()),
    }
}
