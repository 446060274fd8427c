//! Schemas as model interfaces take them.
//!
//! Owns what they refuse although JSON Schema allows it, and the form without it that means the same. The protocol lets
//! a tool say what it likes; a client hands it on to a model's interface, and where that refuses one schema, the user
//! has no tool at all. Invariant: a value fits the form if and only if it fits the schema. Arguments are checked
//! against the schema itself, and it is the one that an operator accepts; the form is what clients are listed.

use serde_json::{Map, Value, json};

type Members = Map<String, Value>;

/// Characters of a property's name.
const PROPERTY_CHARS_MAX: usize = 64;

/// Keywords that hold schemas by name, in a list, and alone. What is asked by `if` and `not` is for validators alone:
/// it stays.
const BY_NAME: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
const LISTS: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
const ALONE: [&str; 4] = ["items", "contains", "propertyNames", "contentSchema"];
/// Likewise, and `true` and `false` are common there, and taken.
const SWITCHES: [&str; 3] = ["additionalProperties", "unevaluatedProperties", "unevaluatedItems"];

/// Keywords that say something about values of one type only.
const OF_STRINGS: [&str; 6] = ["minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType"];
const OF_NUMBERS: [&str; 5] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
const OF_ARRAYS: [&str; 8] =
    ["items", "prefixItems", "contains", "minContains", "maxContains", "minItems", "maxItems", "uniqueItems"];
const OF_OBJECTS: [&str; 9] = [
    "properties",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "required",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
];

/// Something that JSON Schema allows and some interface refuses.
struct Refusal {
    what: &'static str,
    who: &'static str,
    /// Whether it is about the schema as a whole alone.
    root: bool,
    holds: fn(&Members) -> bool,
}

/// What model interfaces refuse in the schema of arguments. Where there is a form that means the same, [`portable`]
/// makes it.
const REFUSALS: [Refusal; 8] = [
    Refusal {
        what: "an object without `properties`",
        who: "OpenAI, and clients that look for them",
        root: false,
        holds: |members| says(members, "object") && !members.contains_key("properties"),
    },
    Refusal {
        what: "an array without `items`",
        who: "OpenAI and Gemini",
        root: false,
        holds: |members| says(members, "array") && !members.contains_key("items"),
    },
    Refusal {
        what: "a list of types",
        who: "Gemini",
        root: false,
        holds: |members| members.get("type").is_some_and(Value::is_array),
    },
    Refusal {
        what: "`const` without a type",
        who: "Gemini",
        root: false,
        holds: |members| members.contains_key("const") && !members.contains_key("type"),
    },
    Refusal {
        what: "`true` or `false` in the place of a schema",
        who: "Gemini",
        root: false,
        holds: |members| {
            let named = BY_NAME.iter().filter_map(|key| members.get(*key)?.as_object()).flat_map(Map::values);
            let listed = LISTS.iter().filter_map(|key| members.get(*key)?.as_array()).flatten();
            named.chain(listed).chain(ALONE.iter().filter_map(|key| members.get(*key))).any(Value::is_boolean)
        },
    },
    Refusal {
        what: "`anyOf`, `oneOf`, `allOf`, `not` or `enum` beside the arguments, at the top",
        who: "Anthropic and OpenAI",
        root: true,
        holds: |members| ["anyOf", "oneOf", "allOf", "not", "enum"].iter().any(|key| members.contains_key(*key)),
    },
    Refusal {
        what: "a property whose name is not 1 to 64 characters of [A-Za-z0-9_.-]",
        who: "Anthropic",
        root: false,
        holds: |members| {
            let mut names = members.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
            names.any(|name| !is_property_name(name))
        },
    },
    Refusal {
        what: "a property whose name begins with `_`",
        who: "LlamaIndex and others that make a Pydantic model",
        // Of an object within, they make no model.
        root: true,
        holds: |members| {
            let mut names = members.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
            names.any(|name| name.starts_with('_'))
        },
    },
];

/// What some interface refuses in a schema of arguments, each with the places where it is and who refuses it.
pub fn refusals(schema: &Value) -> Vec<String> {
    let mut places = vec![Vec::new(); REFUSALS.len()];
    look(schema, String::new(), &mut places);
    let found = REFUSALS.iter().zip(places).filter(|(_, places)| !places.is_empty());
    let sentences = found.map(|(refusal, places)| {
        let more = if places.len() > 1 { format!(" and {} more", places.len() - 1) } else { String::new() };
        let path = places.first().filter(|path| !path.is_empty()).map_or("the root", String::as_str);
        format!("{} (at {path}{more}), which {} refuse", refusal.what, refusal.who)
    });
    sentences.collect()
}

fn look(schema: &Value, path: String, places: &mut [Vec<String>]) {
    let Some(members) = schema.as_object() else { return };
    for (refusal, places) in REFUSALS.iter().zip(places.iter_mut()) {
        if (path.is_empty() || !refusal.root) && (refusal.holds)(members) {
            places.push(path.clone());
        }
    }
    for (key, value) in members {
        match value {
            Value::Object(named) if BY_NAME.contains(&key.as_str()) => {
                named.iter().for_each(|(name, value)| look(value, format!("{path}/{key}/{name}"), places));
            }
            Value::Array(list) if LISTS.contains(&key.as_str()) => {
                list.iter().enumerate().for_each(|(at, value)| look(value, format!("{path}/{key}/{at}"), places));
            }
            other if ALONE.contains(&key.as_str()) || SWITCHES.contains(&key.as_str()) => {
                look(other, format!("{path}/{key}"), places);
            }
            _ => {}
        }
    }
}

/// The form of a schema that the most interfaces take; `None`: it is that form already. Its nesting was bounded when it
/// was compiled.
pub fn portable(schema: &Value) -> Option<Value> {
    // What was looked at tells `unevaluatedItems` what is left: no `items` is put where there was none.
    let fill = Fill { items: !schema.to_string().contains("\"unevaluatedItems\"") };
    let split = Form { fill, splits: true }.of(schema.clone());
    // A reference may lead to a place that is elsewhere now.
    let form = if resolves(schema, &split) { split } else { Form { fill, splits: false }.of(schema.clone()) };
    (form != *schema).then_some(form)
}

/// Whether every reference of a schema leads somewhere in a form of it.
fn resolves(schema: &Value, form: &Value) -> bool {
    match schema {
        Value::Object(members) => members.iter().all(|(key, value)| match (key.as_str(), value) {
            ("$ref" | "$dynamicRef", Value::String(target)) => match target.strip_prefix('#') {
                Some(pointer) if pointer.starts_with('/') => form.pointer(pointer).is_some(),
                // The whole, or an anchor, which no form takes away.
                _ => true,
            },
            (_, value) => resolves(value, form),
        }),
        Value::Array(items) => items.iter().all(|item| resolves(item, form)),
        _ => true,
    }
}

#[derive(Clone, Copy)]
struct Fill {
    items: bool,
}

impl Fill {
    /// Writes down what is so anyway.
    fn add(self, members: &mut Members) {
        if says(members, "object") {
            members.entry("properties").or_insert_with(|| json!({}));
        }
        if says(members, "array") && self.items {
            let items = items_of_tuple(members).unwrap_or_else(|| json!({}));
            members.entry("items").or_insert(items);
        }
    }
}

/// What stands for the items of an array that ends with its tuple: there are none, so it says nothing, and interfaces
/// that do not know tuples, or refuse a schema without a word, read the right types. Flat members alone: a form must
/// not grow with each level.
fn items_of_tuple(members: &Members) -> Option<Value> {
    let of_tuple = members.get("prefixItems")?.as_array()?;
    let count = members.get("maxItems")?.as_u64()?;
    let is_flat = |schema: &Value| {
        let members = schema.as_object().filter(|members| members.contains_key("type"));
        members.is_some_and(|members| {
            let is_plain = |value: &Value| {
                !value.is_object() && value.as_array().is_none_or(|list| !list.iter().any(Value::is_object))
            };
            members.iter().all(|(key, value)| !key.starts_with('$') && is_plain(value))
        })
    };
    if usize::try_from(count).ok()? > of_tuple.len() || !of_tuple.iter().all(is_flat) {
        return None;
    }
    let mut kinds: Vec<&Value> = Vec::new();
    for schema in of_tuple {
        if !kinds.contains(&schema) {
            kinds.push(schema);
        }
    }
    match kinds.as_slice() {
        [] => None,
        [kind] => Some((*kind).clone()),
        kinds => Some(json!({ "anyOf": kinds })),
    }
}

#[derive(Clone, Copy)]
struct Form {
    fill: Fill,
    splits: bool,
}

impl Form {
    fn of(self, schema: Value) -> Value {
        let mut members = match schema {
            Value::Bool(true) => return json!({}),
            Value::Object(members) => members,
            other => return other,
        };
        for (key, value) in &mut members {
            match value {
                Value::Object(named) if BY_NAME.contains(&key.as_str()) => {
                    named.values_mut().for_each(|value| *value = self.of(value.take()));
                }
                Value::Array(list) if LISTS.contains(&key.as_str()) => {
                    list.iter_mut().for_each(|value| *value = self.of(value.take()));
                }
                Value::Bool(_) if SWITCHES.contains(&key.as_str()) => {}
                other if ALONE.contains(&key.as_str()) || SWITCHES.contains(&key.as_str()) => {
                    *other = self.of(other.take());
                }
                _ => {}
            }
        }
        name_const(&mut members);
        if self.splits {
            self.split_types(&mut members);
        }
        self.fill.add(&mut members);
        Value::Object(members)
    }

    /// Several types become an `anyOf` with one each, where nothing else in the schema depends on what is beside it.
    fn split_types(self, members: &mut Members) {
        let Some(types) = types(members) else { return };
        if ["anyOf", "unevaluatedProperties", "unevaluatedItems"].iter().any(|key| members.contains_key(*key)) {
            return;
        }
        let values = members.get("enum").and_then(Value::as_array).cloned();
        let branches = types.iter().filter_map(|name| branch(name, members, values.as_deref()));
        let mut branches: Vec<_> = branches.collect();
        if branches.is_empty() {
            return;
        }
        members.retain(|key, _| key != "type" && key != "enum" && !types.iter().any(|name| of_type(name, key)));
        branches.iter_mut().for_each(|branch| self.fill.add(branch));
        match <[Members; 1]>::try_from(branches) {
            Ok([only]) => members.extend(only),
            Err(branches) => {
                members.insert("anyOf".to_owned(), branches.into_iter().map(Value::Object).collect());
            }
        }
    }
}

/// The types of a list of them. Every integer is a number.
fn types(members: &Members) -> Option<Vec<String>> {
    let listed = members.get("type")?.as_array()?.iter();
    let mut types: Vec<_> = listed.filter_map(Value::as_str).map(str::to_owned).collect();
    if types.iter().any(|name| name == "number") {
        types.retain(|name| name != "integer");
    }
    Some(types)
}

/// What a schema says of values of one type. None if its `enum` has no such value.
fn branch(name: &str, members: &Members, values: Option<&[Value]>) -> Option<Members> {
    let own = members.iter().filter(|(key, _)| of_type(name, key)).map(|(key, value)| (key.clone(), value.clone()));
    let mut branch: Members = own.collect();
    branch.insert("type".to_owned(), json!(name));
    if let Some(values) = values {
        let fitting: Vec<_> = values.iter().filter(|value| is_of(name, value)).cloned().collect();
        if fitting.is_empty() {
            return None;
        }
        if name != "null" {
            branch.insert("enum".to_owned(), Value::Array(fitting));
        }
    }
    Some(branch)
}

/// Whether a keyword is about values of a type.
fn of_type(name: &str, keyword: &str) -> bool {
    match name {
        "string" => OF_STRINGS.contains(&keyword),
        "number" | "integer" => OF_NUMBERS.contains(&keyword),
        "array" => OF_ARRAYS.contains(&keyword),
        "object" => OF_OBJECTS.contains(&keyword),
        _ => false,
    }
}

fn is_of(name: &str, value: &Value) -> bool {
    match value {
        Value::Null => name == "null",
        Value::Bool(_) => name == "boolean",
        Value::String(_) => name == "string",
        Value::Array(_) => name == "array",
        Value::Object(_) => name == "object",
        Value::Number(number) => {
            name == "number" || name == "integer" && number.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
    }
}

/// One value says of which type it is. A text is an `enum` of one, which the most interfaces know.
fn name_const(members: &mut Members) {
    let Some(value) = members.get("const") else { return };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is_open = match members.get("type") {
        None => true,
        Some(Value::Array(types)) => types.iter().any(|name| name == kind || kind == "integer" && name == "number"),
        Some(_) => false,
    };
    if is_open {
        members.insert("type".to_owned(), json!(kind));
    }
    if kind == "string"
        && says(members, kind)
        && !members.contains_key("enum")
        && let Some(value) = members.remove("const")
    {
        members.insert("enum".to_owned(), json!([value]));
    }
}

fn says(members: &Members, name: &str) -> bool {
    members.get("type").and_then(Value::as_str) == Some(name)
}

fn is_property_name(name: &str) -> bool {
    (1..=PROPERTY_CHARS_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

#[cfg(test)]
mod tests;
