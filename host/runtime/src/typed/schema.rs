//! From shapes to JSON Schema 2020-12.
//!
//! Owns how each type is described to clients; [`super::value`] reads and writes exactly what is described here.
//! Invariant: the same function with the same words gives the same schema, byte for byte.

use serde_json::{Map, Value, json};

use super::glossary::{Glossary, TypeDocs};
use super::shape::{Field, Integer, Returns, Shape};

const DESCRIPTION: &str = "description";

/// The largest integer that every reader of JSON keeps exactly, and minus the smallest: 2^53 - 1.
pub(super) const SAFE_MAX: i64 = (1 << 53) - 1;

/// The key under which a result stands that is not a record.
pub(super) const RESULT: &str = "result";
/// The key under which the error of a failed function stands.
pub(super) const ERROR: &str = "error";
/// The two cases of a result inside another type.
pub(super) const OK: &str = "ok";
pub(super) const ERR: &str = "err";
/// The key of a variant's case.
pub(super) const TAG: &str = "tag";
/// The key of a case's payload.
pub(super) const PAYLOAD: &str = "val";

/// What a function takes, as the schema of one object.
pub(super) fn input(parameters: &[Field], glossary: &Glossary) -> Value {
    object(parameters, None, glossary)
}

/// What a function returns, as the schema of one object: clients of older revisions know no other. A record stands for
/// itself, anything else is the member `result`; a function that can fail may also give an object with the member
/// `error`.
pub(super) fn output(returns: &Returns, glossary: &Glossary) -> Value {
    match returns {
        Returns::Nothing => success(None, glossary),
        Returns::Value(shape) => success(Some(shape), glossary),
        Returns::Fallible { ok, error: None } => success(ok.as_ref(), glossary),
        Returns::Fallible { ok, error: Some(error) } => {
            json!({"type": "object", "anyOf": [success(ok.as_ref(), glossary), member(ERROR, of(error, glossary))]})
        }
    }
}

fn success(shape: Option<&Shape>, glossary: &Glossary) -> Value {
    match shape {
        None => object(&[], None, glossary),
        Some(shape @ Shape::Record(_)) => of(shape, glossary),
        Some(shape) => member(RESULT, of(shape, glossary)),
    }
}

/// An object with one required member and no other.
fn member(name: &str, schema: Value) -> Value {
    closed(Map::from_iter([(name.to_owned(), schema)]), &[name])
}

/// An object of fields. An option need not be there, and is never null unless what it holds can be.
fn object(fields: &[Field], words: Option<&TypeDocs>, glossary: &Glossary) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in fields {
        let mut schema = match &field.shape {
            Shape::Option(inner) => of(inner, glossary),
            shape => {
                required.push(field.name.as_str());
                of(shape, glossary)
            }
        };
        describe(&mut schema, words.and_then(|words| words.part(&field.name)));
        properties.insert(field.name.clone(), schema);
    }
    closed(properties, &required)
}

/// Puts a text before whatever is said already, which is about the type in general.
fn describe(schema: &mut Value, text: Option<&str>) {
    if let (Some(text), Value::Object(schema)) = (text, schema) {
        let whole = match schema.get(DESCRIPTION).and_then(Value::as_str) {
            Some(general) => format!("{text}\n{general}"),
            None => text.to_owned(),
        };
        schema.insert(DESCRIPTION.to_owned(), Value::String(whole));
    }
}

/// A text about a type whose parts are words: each of them has no schema of its own that could be described.
fn with_parts(words: &TypeDocs, names: &[String]) -> String {
    let parts = names.iter().filter_map(|name| Some(format!("- `{name}`: {}", words.part(name)?)));
    let text = Some(words.text.clone()).filter(|text| !text.is_empty());
    text.into_iter().chain(parts).collect::<Vec<_>>().join("\n")
}

/// An object with these members and no other.
fn closed(properties: Map<String, Value>, required: &[&str]) -> Value {
    if required.is_empty() {
        return json!({"type": "object", "properties": properties, "additionalProperties": false});
    }
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// The schema of a value.
fn of(shape: &Shape, glossary: &Glossary) -> Value {
    let words = glossary.find(shape);
    let mut schema = plain(shape, words, glossary);
    if let Some(words) = words {
        let text = match shape {
            Shape::Enum(names) | Shape::Flags(names) => with_parts(words, names),
            _ => words.text.clone(),
        };
        describe(&mut schema, Some(text.as_str()).filter(|text| !text.is_empty()));
    }
    schema
}

/// Without what was written about the type as a whole.
fn plain(shape: &Shape, words: Option<&TypeDocs>, glossary: &Glossary) -> Value {
    match shape {
        Shape::Bool => json!({"type": "boolean"}),
        Shape::Integer(integer) => of_integer(*integer),
        Shape::F32 | Shape::F64 => json!({"type": ["number", "string"], "pattern": "^(NaN|-?Infinity)$"}),
        Shape::Char => json!({"type": "string", "minLength": 1, "maxLength": 1}),
        Shape::Text => json!({"type": "string"}),
        Shape::Bytes => json!({"type": "string", "contentEncoding": "base64"}),
        Shape::List(item) => json!({"type": "array", "items": of(item, glossary)}),
        Shape::Tuple(items) => {
            // Not `"items": false`: readers of older drafts take that for an array without any items.
            let schemas: Vec<_> = items.iter().map(|item| of(item, glossary)).collect();
            let count = items.len();
            json!({"type": "array", "prefixItems": schemas, "minItems": count, "maxItems": count})
        }
        Shape::Record(fields) => object(fields, words, glossary),
        Shape::Option(inner) => {
            // None is null; where null is taken already, something is wrapped.
            let some = of(inner, glossary);
            let some = if inner.is_nullable() { member("some", some) } else { some };
            json!({"anyOf": [{"type": "null"}, some]})
        }
        Shape::Enum(names) => json!({"type": "string", "enum": names}),
        Shape::Flags(names) => {
            json!({"type": "array", "items": {"type": "string", "enum": names}, "uniqueItems": true})
        }
        Shape::Variant(cases) => {
            let schemas = cases.iter().map(|case| {
                let mut schema = of_case(&case.name, case.payload.as_ref(), glossary);
                describe(&mut schema, words.and_then(|words| words.part(&case.name)));
                schema
            });
            json!({"oneOf": schemas.collect::<Vec<_>>()})
        }
        Shape::Result { ok, error } => {
            json!({"oneOf": [of_case(OK, ok.as_deref(), glossary), of_case(ERR, error.as_deref(), glossary)]})
        }
    }
}

fn of_integer(integer: Integer) -> Value {
    if integer.is_wide() {
        let (minimum, pattern) = match integer {
            Integer::S64 => (-SAFE_MAX, "^(0|-?[1-9][0-9]{0,18})$"),
            _ => (0, "^(0|[1-9][0-9]{0,19})$"),
        };
        return json!({"type": ["integer", "string"], "minimum": minimum, "maximum": SAFE_MAX, "pattern": pattern});
    }
    let (minimum, maximum) = integer.bounds();
    // The narrow ones all fit.
    json!({"type": "integer", "minimum": minimum as i64, "maximum": maximum as i64})
}

/// One case: `{"tag": NAME}`, with `"val"` where it has a payload.
fn of_case(name: &str, payload: Option<&Shape>, glossary: &Glossary) -> Value {
    let mut properties = Map::from_iter([(TAG.to_owned(), json!({"const": name}))]);
    match payload {
        None => closed(properties, &[TAG]),
        Some(payload) => {
            properties.insert(PAYLOAD.to_owned(), of(payload, glossary));
            closed(properties, &[TAG, PAYLOAD])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str, parts: &[(&str, &str)]) -> TypeDocs {
        let parts = parts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        TypeDocs { text: text.to_owned(), parts }
    }

    #[test]
    fn wit_docs_become_schema_descriptions() {
        let side = Shape::Enum(vec!["left".to_owned(), "right".to_owned()]);
        let field = |name: &str, shape: Shape| Field { name: name.to_owned(), shape };
        let seat = Shape::Record(vec![field("row", Shape::Integer(Integer::U8)), field("side", side.clone())]);
        let mut glossary = Glossary::default();
        glossary.add(side, &words("A side.", &[("left", "With a view.")]));
        glossary.add(seat.clone(), &words("Where you sit.", &[("row", "From the front."), ("side", "Of the aisle.")]));
        let row = json!({"type": "integer", "minimum": 0, "maximum": 255, "description": "From the front."});
        let side = json!({"type": "string", "enum": ["left", "right"],
            "description": "Of the aisle.\nA side.\n- `left`: With a view."});
        assert_eq!(
            input(&[field("seat", Shape::Option(Box::new(seat)))], &glossary)["properties"]["seat"],
            json!({"type": "object", "properties": {"row": row, "side": side}, "required": ["row", "side"],
                "additionalProperties": false, "description": "Where you sit."})
        );
    }
}
