//! An entry put between the lines of a YAML file.
//!
//! No library edits YAML and keeps its comments reliably, so lines are inserted, and a parser compares before and
//! after.

use anyhow::{bail, ensure};
use saphyr::{LoadableYamlNode as _, ScalarOwned, YamlOwned};

use super::super::entry::Entry;

pub(super) fn merge(text: &str, entry: &Entry) -> anyhow::Result<Option<String>> {
    let before = read(text)?;
    let section = before.as_mapping_get(entry.section);
    let servers = match section {
        None => false,
        Some(there) if there.is_null() => false,
        Some(there) => {
            ensure!(there.is_mapping(), "its \"{}\" is no mapping", entry.section);
            true
        }
    };
    let wanted = read(&entry.document(super::Syntax::Yaml)?)?;
    let wanted = wanted.as_mapping_get(entry.section).and_then(|servers| servers.as_mapping_get(&entry.name));
    let there = section.filter(|_| servers).and_then(|servers| servers.as_mapping_get(&entry.name));
    if there.is_some() && there == wanted {
        return Ok(None);
    }
    if there.is_some() {
        bail!("it has another \"{}\": take another --name, or change it by hand", entry.name);
    }
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    let after = match section {
        Some(_) => inserted(text, entry)?,
        None => format!("{text}{newline}{}:\n{}", entry.section, entry.yaml("  ")),
    };
    ensure_merged(before, read(&after)?, wanted, entry)?;
    Ok(Some(after))
}

/// The one document of a text.
fn read(text: &str) -> anyhow::Result<YamlOwned> {
    let mut documents = YamlOwned::load_from_str(text)?.into_iter();
    // A file of comments alone has none.
    let document = documents.next().filter(|document| !document.is_null());
    let document = document.unwrap_or_else(|| YamlOwned::Mapping(Default::default()));
    ensure!(documents.next().is_none(), "it has several documents: add the text by hand");
    ensure!(document.is_mapping(), "it is no mapping");
    Ok(document)
}

fn key(name: &str) -> YamlOwned {
    YamlOwned::Value(ScalarOwned::String(name.to_owned()))
}

/// With the entry as the first of the section, which must begin on a line of its own.
fn inserted(text: &str, entry: &Entry) -> anyhow::Result<String> {
    let heading = format!("{}:", entry.section);
    let mut after = String::with_capacity(text.len());
    let mut lines = text.split_inclusive('\n');
    for line in lines.by_ref() {
        let Some(rest) = line.strip_prefix(&heading) else {
            after.push_str(line);
            continue;
        };
        let rest = rest.trim();
        match rest {
            "" => after.push_str(line),
            "{}" | "null" | "~" => after.push_str(&format!("{heading}\n")),
            _ if rest.starts_with('#') => after.push_str(line),
            _ => bail!("its \"{}\" is on one line: add the text by hand", entry.section),
        }
        if !after.ends_with('\n') {
            after.push('\n');
        }
        let rest: Vec<_> = lines.collect();
        let first = rest.iter().find(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
        let depth = first.map_or(0, |line| line.len() - line.trim_start_matches(' ').len());
        after.push_str(&entry.yaml(&" ".repeat(if depth == 0 { 2 } else { depth })));
        after.extend(rest);
        return Ok(after);
    }
    bail!("its \"{}\" is not found on a line of its own: add the text by hand", entry.section)
}

/// Everything else is as it was, and the entry is as it was wanted.
fn ensure_merged(
    mut before: YamlOwned,
    mut after: YamlOwned,
    wanted: Option<&YamlOwned>,
    entry: &Entry,
) -> anyhow::Result<()> {
    let added = after
        .as_mapping_get_mut(entry.section)
        .and_then(|servers| servers.as_mapping_mut())
        .and_then(|servers| servers.remove(&key(&entry.name)));
    // A section that was missing or empty is not told from one without entries.
    for document in [&mut before, &mut after] {
        let is_empty = document
            .as_mapping_get(entry.section)
            .is_some_and(|servers| servers.is_null() || servers.is_empty_collection());
        if is_empty && let Some(members) = document.as_mapping_mut() {
            members.remove(&key(entry.section));
        }
    }
    ensure!(added.as_ref() == wanted && before == after, "its form is not understood: add the text by hand");
    Ok(())
}
