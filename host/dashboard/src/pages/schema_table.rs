//! A JSON schema as a table that people can read.
//!
//! Must not follow a schema further than its bounds, whatever it refers to. Invariant: what a table cannot say is not
//! left out in silence: the schema itself stands below it then.

use maud::{Markup, html};
use serde_json::Value;

use super::table;
use crate::arguments::{type_of, without_null};
use crate::columns::MEMBERS;
use crate::fields::{is_required, text_of};
use crate::text;

/// Rows of a schema on a page of the dashboard.
const SCHEMA_ROWS_MAX: usize = 100;
/// Levels of objects in objects that a page of the dashboard shows.
const SCHEMA_LEVELS_MAX: usize = 4;
/// References from one schema to the next that are followed for one row of the dashboard.
const REFERENCES_MAX: usize = 4;
/// Values of an enumeration that a row names.
const VALUES_NAMED_MAX: usize = 20;

/// What a row does not say.
const BEYOND_A_ROW: [&str; 9] =
    ["allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "prefixItems", "dependentSchemas", "$ref"];

/// Numbers and texts that bound a value, with what stands in front of them.
const BOUNDS: [(&str, &str); 14] = [
    ("minimum", "≥ "),
    ("exclusiveMinimum", "> "),
    ("maximum", "≤ "),
    ("exclusiveMaximum", "< "),
    ("multipleOf", "a multiple of "),
    ("minLength", "at least characters: "),
    ("maxLength", "at most characters: "),
    ("pattern", "pattern "),
    ("format", "format "),
    ("minItems", "at least items: "),
    ("maxItems", "at most items: "),
    ("minProperties", "at least members: "),
    ("maxProperties", "at most members: "),
    ("const", "always "),
];

struct Row<'a> {
    level: usize,
    name: &'a str,
    schema: &'a Value,
    /// Title, description and default stand here, also where the schema is elsewhere.
    around: &'a Value,
    required: bool,
}

struct Rows<'a> {
    root: &'a Value,
    rows: Vec<Row<'a>>,
    is_whole: bool,
}

impl<'a> Rows<'a> {
    /// The schema behind references and a choice of null.
    fn behind(&self, schema: &'a Value) -> &'a Value {
        let mut at = without_null(schema);
        for _ in 0..REFERENCES_MAX {
            let pointer = text_of(at, "$ref").and_then(|reference| reference.strip_prefix('#'));
            let Some(found) = pointer.and_then(|pointer| self.root.pointer(pointer)) else { break };
            at = without_null(found);
        }
        at
    }

    fn object(&mut self, schema: &'a Value, level: usize) {
        self.is_whole &= !BEYOND_A_ROW.iter().any(|name| schema.get(name).is_some_and(|more| !is_enumeration(more)));
        self.is_whole &= !schema.get("additionalProperties").is_some_and(Value::is_object);
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
        for (name, around) in properties {
            if self.rows.len() >= SCHEMA_ROWS_MAX || level >= SCHEMA_LEVELS_MAX {
                self.is_whole = false;
                return;
            }
            let found = self.behind(around);
            self.rows.push(Row { level, name, schema: found, around, required: is_required(schema, name) });
            self.object(found, level + 1);
            if let Some(items) = found.get("items") {
                let items = self.behind(items);
                self.object(items, level + 1);
            }
        }
    }
}

/// Whether alternatives are values with names, which a row can say.
fn is_enumeration(alternatives: &Value) -> bool {
    alternatives.as_array().is_some_and(|list| list.iter().all(|choice| choice.get("const").is_some()))
}

/// The members of an object, with those of the objects in it below them.
pub(super) fn schema_table(label: &str, schema: &str) -> Markup {
    let root: Value = serde_json::from_str(schema).unwrap_or_default();
    let mut rows = Rows { root: &root, rows: Vec::new(), is_whole: true };
    let outer = rows.behind(&root);
    rows.object(outer, 0);
    let is_object = type_of(outer) == Some("object");
    html! {
        @if rows.rows.is_empty() {
            p { @if is_object && rows.is_whole { "No members are named." } @else { (type_words(outer)) } }
        } @else {
            (table(label, MEMBERS, html! {
                @for row in &rows.rows { (shown(row)) }
            }))
        }
        @if !rows.is_whole || !is_object {
            details { summary { "The whole schema" } pre tabindex="0" { (text::json(schema)) } }
        }
    }
}

fn shown(row: &Row<'_>) -> Markup {
    let keyword = |name: &str| text_of(row.around, name).or_else(|| text_of(row.schema, name));
    let default = row.around.get("default").or_else(|| row.schema.get("default"));
    html! {
        tr {
            td class={ "level" (row.level) } { code { (text::line(row.name)) } }
            td { (type_words(row.schema)) }
            td { @if row.required { "yes" } @else { "no" } }
            td { @if let Some(default) = default { code { (text::line(&default.to_string())) } } }
            td { (bounds(row.schema)) }
            td {
                @if let Some(title) = keyword("title") { strong { (text::line(title)) } " " }
                (text::line(keyword("description").unwrap_or_default()))
            }
        }
    }
}

fn type_words(schema: &Value) -> String {
    let name = match schema.get("type") {
        Some(Value::Array(types)) => types.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        Some(Value::String(name)) => name.clone(),
        _ if schema.get("enum").is_some() || schema.get("oneOf").is_some_and(is_enumeration) => "a value".to_owned(),
        _ => "anything".to_owned(),
    };
    let of = schema.get("items").filter(|_| name == "array").and_then(|items| text_of(items, "type"));
    text::line(&of.map_or_else(|| name.clone(), |of| format!("{name} of {of}")))
}

fn bounds(schema: &Value) -> String {
    let mut all: Vec<String> = BOUNDS
        .iter()
        .filter_map(|(name, words)| {
            let value = schema.get(name)?;
            Some(format!("{words}{}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        })
        .collect();
    let items = schema.get("items").unwrap_or(&Value::Null);
    let values: Vec<String> = [schema, items].into_iter().flat_map(values).take(VALUES_NAMED_MAX + 1).collect();
    if let Some(named) = values.get(..VALUES_NAMED_MAX.min(values.len())).filter(|named| !named.is_empty()) {
        let more = if values.len() > VALUES_NAMED_MAX { ", …" } else { "" };
        all.push(format!("one of {}{more}", named.join(", ")));
    }
    text::line(&all.join("; "))
}

fn values(schema: &Value) -> impl Iterator<Item = String> {
    let list = |name: &str| schema.get(name).and_then(Value::as_array).into_iter().flatten();
    let named = list("oneOf").chain(list("anyOf")).filter_map(|choice| choice.get("const"));
    list("enum").chain(named).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(schema: &Value) -> String {
        schema_table("Arguments", &schema.to_string()).into_string()
    }

    #[test]
    fn schema_is_a_table_with_objects_in_objects_below() {
        let schema = json!({
            "type": "object",
            "properties": {
                "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3, "description": "How <b>many</b>"},
                "class": {"enum": ["a", "b"], "type": "string"},
                "place": {"$ref": "#/$defs/place"},
                "rows": {"type": "array", "maxItems": 5, "items": {"type": "object", "properties": {"key": {"type": ["string", "null"]}}}},
            },
            "required": ["count"],
            "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}},
        });
        let table = shown(&schema);
        for part in [
            r#"<td class="level0"><code>count</code></td><td>integer</td><td>yes</td><td><code>3</code></td><td>≥ 1; ≤ 9</td>"#,
            "How &lt;b&gt;many&lt;/b&gt;",
            "<td>one of a, b</td>",
            r#"<td class="level1"><code>city</code></td><td>string</td><td>yes</td><td></td><td>at most characters: 20</td>"#,
            r#"<code>rows</code></td><td>array of object</td>"#,
            r#"<td class="level1"><code>key</code></td><td>string or null</td><td>no</td>"#,
        ] {
            assert!(table.contains(part), "{part} is not in {table}");
        }
        assert!(!table.contains("The whole schema") && !table.contains("<b>"), "{table}");
    }

    #[test]
    fn table_that_says_less_than_its_schema_has_the_schema_below() {
        for schema in [
            json!({"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}}),
            json!({"type": "object", "patternProperties": {"^a": {}}}),
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            json!({"type": "array", "items": {"type": "string"}}),
            json!({"type": "object", "properties": {"a": {"$ref": "#/properties/none"}}}),
        ] {
            assert!(shown(&schema).contains("The whole schema"), "{schema}");
        }
        assert_eq!(shown(&json!({"type": "object"})), "<p>No members are named.</p>");
    }

    #[test]
    fn endless_and_large_schemas_are_cut() {
        let endless =
            json!({"type": "object", "properties": {"again": {"$ref": "#"}, "self": {"$ref": "#/properties/self"}}});
        let table = shown(&endless);
        assert!(table.contains("level3") && !table.contains("level4") && table.contains("The whole schema"), "{table}");
        let many: serde_json::Map<_, _> =
            (0..500).map(|number| (format!("<{number}>"), json!({"type": "string"}))).collect();
        let table = shown(&json!({"type": "object", "properties": many}));
        assert_eq!(table.matches("<tr>").count(), SCHEMA_ROWS_MAX + 1);
        assert!(!table.contains("<1>") && table.contains("&lt;1&gt;"));
        for nonsense in ["", "1", "[]", r#"{"properties": 1, "type": 2}"#] {
            assert!(!schema_table("Arguments", nonsense).into_string().contains("<table>"), "{nonsense}");
        }
    }
}
