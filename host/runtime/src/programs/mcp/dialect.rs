//! Schemas of JSON Schema draft-07, which many servers still write.
//!
//! Owns the question whether such a schema means the same in 2020-12, the dialect of plugins. Invariant: one that may
//! not is refused, never guessed at.

use serde_json::{Map, Value};

const DRAFT_07: &str = "json-schema.org/draft-07/schema";
/// Keywords that one of the two dialects has and the other one has not, or has with another meaning.
const DIFFERENT: [&str; 20] = [
    "$anchor",
    "$defs",
    "$dynamicAnchor",
    "$dynamicRef",
    "$id",
    "$recursiveAnchor",
    "$recursiveRef",
    "$vocabulary",
    "additionalItems",
    "contentSchema",
    "definitions",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "id",
    "maxContains",
    "minContains",
    "prefixItems",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose members are schemas.
const OF_SCHEMAS: [&str; 2] = ["properties", "patternProperties"];
/// Keywords that are a schema, or a list of them.
const SCHEMAS: [&str; 11] = [
    "additionalProperties",
    "propertyNames",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "items",
    "allOf",
    "anyOf",
    "oneOf",
];

/// A schema without its `$schema` where that says draft-07; `None`: it says something else, or nothing.
///
/// # Errors
///
/// It may not mean the same in 2020-12.
pub(super) fn without_draft_07(text: &str) -> Result<Option<String>, String> {
    let Ok(Value::Object(mut schema)) = serde_json::from_str(text) else { return Ok(None) };
    let says = schema.get("$schema").and_then(Value::as_str).unwrap_or_default();
    let dialect = says.strip_prefix("https://").or(says.strip_prefix("http://")).unwrap_or(says);
    if dialect.strip_suffix('#').unwrap_or(dialect) != DRAFT_07 {
        return Ok(None);
    }
    schema.remove("$schema");
    if let Some(keyword) = different(&schema) {
        return Err(format!(
            "it is of JSON Schema draft-07 and has {keyword:?}, which 2020-12 does not read in the same way: have the \
             server write 2020-12"
        ));
    }
    Ok(Some(Value::Object(schema).to_string()))
}

/// A keyword that the dialects read differently.
fn different(schema: &Map<String, Value>) -> Option<&str> {
    let list = schema.get("items").filter(|items| items.is_array()).map(|_| "items");
    // What stands beside a reference counts in 2020-12 alone.
    let reference = schema.contains_key("$ref").then_some("$ref").filter(|_| schema.len() > 1);
    let own = schema.keys().find(|key| DIFFERENT.contains(&key.as_str())).map(String::as_str);
    let inner = schema.iter().find_map(|(key, value)| match value {
        Value::Object(members) if OF_SCHEMAS.contains(&key.as_str()) => members.values().find_map(different_in),
        value if SCHEMAS.contains(&key.as_str()) => different_in(value),
        _ => None,
    });
    list.or(reference).or(own).or(inner)
}

fn different_in(value: &Value) -> Option<&str> {
    match value {
        Value::Object(schema) => different(schema),
        Value::Array(schemas) => schemas.iter().find_map(different_in),
        _ => None,
    }
}
