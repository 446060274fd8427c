//! What an operator accepts when a version becomes active: the definition of each tool as one hash, for each view of an
//! MCP App one of what it may reach, and for each skill one of all that it holds.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::canonical::canonical;
use bulkhead_domain::Json;
use bulkhead_domain::skills::SKILL_SCHEME;
use bulkhead_domain::text::escaped;
use bulkhead_domain::tool::Tool;
use bulkhead_runtime::{LoadedPlugin, VIEW_SCHEME, ViewReach};

/// The hashes of a version's tools by their own names, of its views by their own URIs, without the operator's prefix,
/// and of its skills.
pub(super) fn hashes(plugin: &LoadedPlugin) -> impl Iterator<Item = (String, [u8; 32])> {
    let tools = plugin.own_tools().map(|(name, tool)| (name.to_owned(), hash(name, tool)));
    let views = plugin.views().iter().map(|(uri, reach)| (uri.clone(), hash_of_view(uri, reach)));
    let skills = plugin.skills().iter().map(|(name, skill)| (skill_key(name), skill.digest));
    tools.chain(views).chain(skills)
}

/// By which the definition of a skill is known: no name of a tool has such characters.
pub(super) fn skill_key(name: &str) -> String {
    format!("{SKILL_SCHEME}{name}")
}

/// A tool, a view or a skill, in sentences.
pub(super) fn described(name: &str) -> String {
    if let Some(skill) = name.strip_prefix(SKILL_SCHEME) {
        return format!("the skill {}", escaped(skill));
    }
    // No name of a tool has such characters.
    let what = if name.starts_with(VIEW_SCHEME) { "view" } else { "tool" };
    format!("the {what} {}", escaped(name))
}

/// SHA-256 of what a view may reach.
fn hash_of_view(uri: &str, reach: &ViewReach) -> [u8; 32] {
    Sha256::digest(canonical(&json!({"uri": uri, "reach": reach.parts()}))).into()
}

/// SHA-256 over the canonical JSON of everything that a client is told of a tool and may rely on.
fn hash(name: &str, tool: &Tool) -> [u8; 32] {
    let definition = json!({
        "name": name,
        "title": tool.title,
        "description": tool.description,
        "input_schema": schema(&tool.input_schema),
        "output_schema": tool.output_schema.as_ref().map(schema),
        "annotations": annotations(tool),
    });
    Sha256::digest(canonical(&definition)).into()
}

/// A schema as a value; it was parsed when the plugin was loaded.
pub(super) fn schema(text: &Json) -> Value {
    serde_json::from_str(text.as_str()).unwrap_or_default()
}

/// The hints of a tool as a value.
pub(super) fn annotations(tool: &Tool) -> Value {
    tool.annotations.as_ref().map_or(Value::Null, |hints| {
        json!({
            "title": hints.title,
            "read_only": hints.read_only,
            "destructive": hints.destructive,
            "idempotent": hints.idempotent,
            "open_world": hints.open_world,
        })
    })
}
