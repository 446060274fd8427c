//! JSON Schemas from types, in the plain dialect that every client and model understands.
//!
//! Definitions are written where they are used instead of under `$defs`, and what only repeats the Rust type (`title`,
//! formats such as `uint32`, `$schema`) is left out: draft 2020-12 is MCP's default.

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

/// The schema of a tool without arguments.
pub(crate) fn no_arguments() -> Value {
    json!({ "type": "object", "properties": {}, "additionalProperties": false })
}

/// The schema of an arguments object. Names that the type does not have are refused, unless the type says that it takes
/// them (a flattened map): a model that misspells a name should hear of it. A type that takes no object keeps its own
/// schema, which the host refuses: no call of its tool could succeed.
pub(crate) fn of_arguments<T: JsonSchema>() -> Value {
    let mut schema = generate::<T>(SchemaSettings::draft2020_12().for_deserialize());
    if schema.is_empty() {
        // Such as `serde_json::Value`, which takes anything.
        return json!({ "type": "object", "properties": {} });
    }
    if !takes_objects(&schema) {
        return Value::Object(schema);
    }
    schema.insert("type".to_owned(), json!("object"));
    schema.entry("properties").or_insert(json!({}));
    let composed = ["oneOf", "anyOf", "allOf", "$ref"].iter().any(|keyword| schema.contains_key(*keyword));
    if !composed {
        schema.entry("additionalProperties").or_insert(json!(false));
    }
    Value::Object(schema)
}

/// Whether an object can fit a schema, as far as types, constants and choices tell.
fn takes_objects(schema: &Map<String, Value>) -> bool {
    let of = |choice: &Value| choice.as_object().is_none_or(takes_objects);
    let choices = |keyword: &str| schema.get(keyword).and_then(Value::as_array);
    let by_type = match schema.get("type") {
        Some(Value::String(name)) => name == "object",
        Some(Value::Array(names)) => names.iter().any(|name| name == "object"),
        _ => true,
    };
    by_type
        && schema.get("const").is_none_or(Value::is_object)
        && choices("enum").is_none_or(|values| values.iter().any(Value::is_object))
        && ["oneOf", "anyOf"].into_iter().filter_map(choices).all(|choices| choices.iter().any(of))
        && choices("allOf").is_none_or(|parts| parts.iter().all(of))
}

/// The schema of a structured result.
pub(crate) fn of_result<T: JsonSchema>() -> Value {
    Value::Object(generate::<T>(SchemaSettings::draft2020_12().for_serialize()))
}

/// The schema of a form: MCP wants one flat object with primitive properties and no more keywords than it lists. An
/// optional field is one that the user may leave out, never one that is `null`.
pub(crate) fn of_form<T: JsonSchema>() -> Value {
    let mut schema = generate::<T>(SchemaSettings::draft2020_12().for_deserialize());
    schema.remove("additionalProperties");
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for property in properties.values_mut() {
            without_null(property);
            titled_choice(property);
        }
    }
    Value::Object(schema)
}

fn generate<T: JsonSchema>(mut settings: SchemaSettings) -> Map<String, Value> {
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = SchemaGenerator::new(settings).into_root_schema_for::<T>();
    schema.remove("title");
    Portable.transform(&mut schema);
    match schema.to_value() {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Removes the formats that only name a Rust number type, and gives each object its `properties`: interfaces of models
/// refuse one without.
struct Portable;

impl Transform for Portable {
    fn transform(&mut self, schema: &mut Schema) {
        let of_rust = schema.get("format").and_then(Value::as_str).is_some_and(|format| {
            matches!(format, "float" | "double") || format.starts_with("int") || format.starts_with("uint")
        });
        if of_rust {
            schema.remove("format");
        }
        if schema.get("type").is_some_and(|name| name == "object") && schema.get("properties").is_none() {
            schema.insert("properties".to_owned(), json!({}));
        }
        transform_subschemas(self, schema);
    }
}

/// Writes an enum whose variants have doc comments as MCP's forms do: constants with titles.
fn titled_choice(property: &mut Value) {
    let Some(Value::Array(choices)) = property.get_mut("oneOf") else { return };
    for choice in choices {
        let title = choice.get("description").unwrap_or(&choice["const"]).clone();
        *choice = json!({ "const": choice["const"], "title": title });
    }
    property["type"] = json!("string");
}

/// Turns "this or null" into "this".
fn without_null(property: &mut Value) {
    if let Some(Value::Array(types)) = property.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = &types[..] {
            property["type"] = only.clone();
        }
    }
    if let Some(Value::Array(values)) = property.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    let Some(Value::Array(choices)) = property.get("anyOf") else { return };
    let left: Vec<&Value> = choices.iter().filter(|choice| choice["type"] != "null").collect();
    if let [Value::Object(only)] = left[..] {
        let only = only.clone();
        if let Value::Object(property) = property {
            property.remove("anyOf");
            property.extend(only);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Deserialize, Serialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Class {
        Economy,
        Business,
    }

    #[derive(Deserialize, Serialize, JsonSchema)]
    struct Trip {
        /// Where to.
        city: String,
        #[schemars(range(min = 1, max = 9))]
        travellers: u32,
        class: Option<Class>,
        note: Option<String>,
        seat: Option<Seat>,
    }

    #[derive(Deserialize, Serialize, JsonSchema)]
    enum Seat {
        /// With a view.
        Window,
        /// With space.
        Aisle,
    }

    #[test]
    fn argument_schema_is_a_closed_object_without_rust_names() {
        assert_eq!(
            of_arguments::<Trip>(),
            json!({
                "type": "object",
                "properties": {
                    "city": { "type": "string", "description": "Where to." },
                    "travellers": { "type": "integer", "minimum": 1, "maximum": 9 },
                    "class": { "type": ["string", "null"], "enum": ["economy", "business", null] },
                    "note": { "type": ["string", "null"] },
                    "seat": { "anyOf": [
                        { "oneOf": [
                            { "type": "string", "const": "Window", "description": "With a view." },
                            { "type": "string", "const": "Aisle", "description": "With space." }
                        ] },
                        { "type": "null" }
                    ] }
                },
                "required": ["city", "travellers"],
                "additionalProperties": false
            })
        );
    }

    #[test]
    fn form_schema_holds_primitives_only() {
        assert_eq!(
            of_form::<Trip>()["properties"],
            json!({
                "city": { "type": "string", "description": "Where to." },
                "travellers": { "type": "integer", "minimum": 1, "maximum": 9 },
                "class": { "type": "string", "enum": ["economy", "business"] },
                "note": { "type": "string" },
                "seat": { "type": "string", "oneOf": [
                    { "const": "Window", "title": "With a view." },
                    { "const": "Aisle", "title": "With space." }
                ] }
            })
        );
    }

    #[test]
    fn schema_of_flattened_type_stays_open() {
        #[derive(Deserialize, JsonSchema)]
        struct Open {
            #[serde(flatten)]
            _rest: std::collections::BTreeMap<String, u8>,
        }
        assert_ne!(of_arguments::<Open>()["additionalProperties"], json!(false));
    }

    #[test]
    fn schema_of_non_object_type_is_no_object() {
        #[derive(Deserialize, JsonSchema)]
        struct Name(#[allow(dead_code, reason = "its schema is looked at")] String);
        #[derive(Deserialize, JsonSchema)]
        struct Unit;
        for schema in [
            of_arguments::<String>(),
            of_arguments::<u64>(),
            of_arguments::<Vec<Trip>>(),
            of_arguments::<Option<String>>(),
            of_arguments::<(String, u8)>(),
            of_arguments::<()>(),
            of_arguments::<Class>(),
            of_arguments::<Seat>(),
            of_arguments::<Name>(),
            of_arguments::<Unit>(),
        ] {
            assert_ne!(schema["type"], json!("object"), "{schema}");
        }
    }

    #[test]
    fn schema_of_object_like_types_is_an_object() {
        #[derive(Deserialize, JsonSchema)]
        #[allow(dead_code, reason = "its schema is looked at")]
        enum Wish {
            Any,
            Trip(Trip),
        }
        #[derive(Deserialize, JsonSchema)]
        struct Wrapped(#[allow(dead_code, reason = "its schema is looked at")] Trip);
        for schema in [
            of_arguments::<Trip>(),
            of_arguments::<Wish>(),
            of_arguments::<Wrapped>(),
            of_arguments::<Box<Trip>>(),
            of_arguments::<Option<Trip>>(),
            of_arguments::<std::collections::HashMap<String, u8>>(),
            of_arguments::<Map<String, Value>>(),
        ] {
            assert_eq!(schema["type"], json!("object"), "{schema}");
        }
    }

    #[test]
    fn schema_of_an_object_has_properties_wherever_it_stands() {
        #[derive(Deserialize, Serialize, JsonSchema)]
        struct Nested {
            shares: std::collections::HashMap<String, bool>,
            rest: Vec<Map<String, Value>>,
        }
        #[derive(Deserialize, Serialize, JsonSchema)]
        struct Nothing {}
        let shares = json!({ "type": "object", "properties": {}, "additionalProperties": { "type": "boolean" } });
        let rest = json!({ "type": "object", "properties": {}, "additionalProperties": true });
        for nested in [of_arguments::<Nested>(), of_result::<Nested>()] {
            assert_eq!(nested["properties"]["shares"], shares);
            assert_eq!(nested["properties"]["rest"]["items"], rest);
        }
        for bare in [of_arguments::<Value>(), of_arguments::<Nothing>(), of_result::<Nothing>(), of_form::<Nothing>()] {
            assert_eq!(bare["properties"], json!({}), "{bare}");
        }
        assert_eq!(of_arguments::<Value>(), json!({ "type": "object", "properties": {} }));
    }

    #[test]
    fn schema_of_empty_type_equals_no_arguments() {
        #[derive(Deserialize, JsonSchema)]
        struct Nothing {}
        assert_eq!(of_arguments::<Nothing>(), no_arguments());
    }
}
