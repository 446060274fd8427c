//! An entry merged into the text of a client's file.
//!
//! Owns the edit. Must not touch the disk. Invariant: every comment and every other member of the text stays; what
//! comes out is read again, and it is what was there with the entry, or it is refused.

mod yaml;

use anyhow::{Context as _, bail, ensure};
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use serde_json::{Map, Value};
use toml_edit::{DocumentMut, Item, Table};

use super::entry::Entry;
use super::known::Syntax;

/// What to do about a server of this name that is there and differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfThere {
    Refuse,
    Replace,
}

/// The text with the entry; `None` when it is there already.
///
/// # Errors
///
/// The text is not what the client reads, or another server has the name.
pub(super) fn merge(syntax: Syntax, text: &str, entry: &Entry, if_there: IfThere) -> anyhow::Result<Option<String>> {
    if text.trim().is_empty() {
        return entry.document(syntax).map(Some);
    }
    match syntax {
        Syntax::Json | Syntax::JsonWithComments => merge_json(syntax, text, entry, if_there),
        Syntax::Toml => merge_toml(text, entry, if_there),
        Syntax::Yaml => yaml::merge(text, entry),
    }
}

fn other_is_there(name: &str) -> anyhow::Error {
    anyhow::anyhow!("it has another server \"{name}\": take another --name, or replace that one with --replace")
}

/// What comes out must be what went in with the entry, whatever the editor made of it.
fn ensure_merged(before: Value, after: &Value, entry: &Entry) -> anyhow::Result<()> {
    let mut wanted = before;
    let members = wanted.as_object_mut().context("it is no object")?;
    let servers = members.entry(entry.section).or_insert_with(|| Value::Object(Map::new()));
    let servers = servers.as_object_mut().with_context(|| format!("its \"{}\" is no object", entry.section))?;
    servers.insert(entry.name.clone(), Value::Object(entry.value.clone()));
    if let Some(input) = &entry.input {
        let inputs = members.entry("inputs").or_insert_with(|| Value::Array(Vec::new()));
        let inputs = inputs.as_array_mut().context("its \"inputs\" is no array")?;
        if !inputs.iter().any(|there| there.get("id") == input.get("id")) {
            inputs.push(input.clone());
        }
    }
    ensure!(*after == wanted, "its form is not understood: add the text by hand");
    Ok(())
}

/// What the client itself reads; other things that the parser knows are mistakes in these files.
fn json_options(syntax: Syntax) -> ParseOptions {
    let with_comments = syntax == Syntax::JsonWithComments;
    ParseOptions {
        allow_comments: with_comments,
        allow_loose_object_property_names: false,
        allow_trailing_commas: with_comments,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

fn merge_json(syntax: Syntax, text: &str, entry: &Entry, if_there: IfThere) -> anyhow::Result<Option<String>> {
    let options = json_options(syntax);
    let read = |text: &str| jsonc_parser::parse_to_serde_value::<Value>(text, &options);
    let before = read(text)?;
    let root = CstRootNode::parse(text, &options)?;
    let members = root.object_value().context("it is no JSON object")?;
    let servers = child(&members, entry.section)?;
    let value = Value::Object(entry.value.clone());
    match servers.get(&entry.name) {
        Some(there) => {
            let is_same = before.get(entry.section).and_then(|servers| servers.get(&entry.name)) == Some(&value);
            if !is_same {
                if if_there == IfThere::Refuse {
                    return Err(other_is_there(&entry.name));
                }
                there.set_value(input_value(&value));
            }
        }
        None => {
            servers.append(&entry.name, input_value(&value));
        }
    }
    if let Some(input) = &entry.input {
        let inputs = match members.get("inputs") {
            Some(there) => there.array_value().context("its \"inputs\" is no array")?,
            None => members.array_value_or_set("inputs"),
        };
        let theirs = before.get("inputs").and_then(Value::as_array);
        if !theirs.is_some_and(|theirs| theirs.iter().any(|there| there.get("id") == input.get("id"))) {
            inputs.append(input_value(input));
        }
    }
    let text_after = root.to_string();
    let after = read(&text_after)?;
    ensure_merged(before, &after, entry)?;
    Ok((text_after != text).then_some(text_after))
}

/// A member that is an object, made if it is missing.
fn child(members: &CstObject, name: &str) -> anyhow::Result<CstObject> {
    match members.get(name) {
        Some(there) => there.object_value().with_context(|| format!("its \"{name}\" is no object")),
        None => Ok(members.object_value_or_set(name)),
    }
}

fn input_value(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(flag) => CstInputValue::Bool(*flag),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(elements) => CstInputValue::Array(elements.iter().map(input_value).collect()),
        Value::Object(members) => {
            CstInputValue::Object(members.iter().map(|(name, value)| (name.clone(), input_value(value))).collect())
        }
    }
}

fn merge_toml(text: &str, entry: &Entry, if_there: IfThere) -> anyhow::Result<Option<String>> {
    let read = |text: &str| anyhow::Ok(serde_json::to_value(toml::from_str::<toml::Table>(text)?)?);
    let before = read(text)?;
    let mut document: DocumentMut = text.parse()?;
    let servers = document.entry(entry.section).or_insert_with(|| {
        let mut table = Table::new();
        // Only its servers have headings.
        table.set_implicit(true);
        Item::Table(table)
    });
    let servers = servers.as_table_like_mut().with_context(|| format!("its \"{}\" is no table", entry.section))?;
    let value = Value::Object(entry.value.clone());
    if servers.contains_key(&entry.name) {
        let there = before.get(entry.section).and_then(|servers| servers.get(&entry.name));
        if there == Some(&value) {
            return Ok(None);
        }
        if if_there == IfThere::Refuse {
            return Err(other_is_there(&entry.name));
        }
    }
    let written: DocumentMut = toml::to_string(&value)?.parse()?;
    servers.insert(&entry.name, Item::Table(written.as_table().clone()));
    let text_after = document.to_string();
    ensure_merged(before, &read(&text_after)?, entry)?;
    if text_after == text {
        bail!("its form is not understood: add the text by hand");
    }
    Ok(Some(text_after))
}

#[cfg(test)]
mod tests;
