//! From shapes to JSON Schema 2020-12.
//!
//! Owns how each type is described to clients; [`super::value`] reads and writes exactly what is described here. Invariant: the same
//! function gives the same schema, byte for byte.

use serde_json::{Map, Value, json};

use super::shape::{Field, Integer, Returns, Shape};

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
pub(super) fn input(parameters: &[Field]) -> Value {
    object(parameters)
}

/// What a function gives back, as the schema of one object: clients of older revisions know no other. A record stands for itself,
/// anything else is the member `result`; a function that can fail may also give an object with the member `error`.
pub(super) fn output(returns: &Returns) -> Value {
    match returns {
        Returns::Nothing => object(&[]),
        Returns::Value(shape) => success(Some(shape)),
        Returns::Fallible { ok, error: None } => success(ok.as_ref()),
        Returns::Fallible { ok, error: Some(error) } => {
            json!({"type": "object", "anyOf": [success(ok.as_ref()), member(ERROR, of(error))]})
        }
    }
}

fn success(shape: Option<&Shape>) -> Value {
    match shape {
        None => object(&[]),
        Some(Shape::Record(fields)) => object(fields),
        Some(shape) => member(RESULT, of(shape)),
    }
}

/// An object with one required member and no other.
fn member(name: &str, schema: Value) -> Value {
    closed(Map::from_iter([(name.to_owned(), schema)]), &[name])
}

/// An object of fields. An option need not be there, and is never null unless what it holds can be.
fn object(fields: &[Field]) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in fields {
        let schema = match &field.shape {
            Shape::Option(inner) => of(inner),
            shape => {
                required.push(field.name.as_str());
                of(shape)
            }
        };
        properties.insert(field.name.clone(), schema);
    }
    closed(properties, &required)
}

/// An object with these members and no other.
fn closed(properties: Map<String, Value>, required: &[&str]) -> Value {
    if required.is_empty() {
        return json!({"type": "object", "properties": properties, "additionalProperties": false});
    }
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// The schema of a value.
pub(super) fn of(shape: &Shape) -> Value {
    match shape {
        Shape::Bool => json!({"type": "boolean"}),
        Shape::Integer(integer) => of_integer(*integer),
        Shape::F32 | Shape::F64 => json!({"type": ["number", "string"], "pattern": "^(NaN|-?Infinity)$"}),
        Shape::Char => json!({"type": "string", "minLength": 1, "maxLength": 1}),
        Shape::Text => json!({"type": "string"}),
        Shape::Bytes => json!({"type": "string", "contentEncoding": "base64"}),
        Shape::List(item) => json!({"type": "array", "items": of(item)}),
        Shape::Tuple(items) => {
            // Not `"items": false`: readers of older drafts take that for an array without any items.
            let (schemas, count): (Vec<_>, _) = (items.iter().map(of).collect(), items.len());
            json!({"type": "array", "prefixItems": schemas, "minItems": count, "maxItems": count})
        }
        Shape::Record(fields) => object(fields),
        Shape::Option(inner) => {
            // None is null; where null is taken already, something is wrapped.
            let some = if inner.is_nullable() { member("some", of(inner)) } else { of(inner) };
            json!({"anyOf": [{"type": "null"}, some]})
        }
        Shape::Enum(names) => json!({"type": "string", "enum": names}),
        Shape::Flags(names) => {
            json!({"type": "array", "items": {"type": "string", "enum": names}, "uniqueItems": true})
        }
        Shape::Variant(cases) => {
            let schemas: Vec<_> = cases.iter().map(|case| of_case(&case.name, case.payload.as_ref())).collect();
            json!({"oneOf": schemas})
        }
        Shape::Result { ok, error } => {
            json!({"oneOf": [of_case(OK, ok.as_deref()), of_case(ERR, error.as_deref())]})
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
fn of_case(name: &str, payload: Option<&Shape>) -> Value {
    let mut properties = Map::from_iter([(TAG.to_owned(), json!({"const": name}))]);
    match payload {
        None => closed(properties, &[TAG]),
        Some(payload) => {
            properties.insert(PAYLOAD.to_owned(), of(payload));
            closed(properties, &[TAG, PAYLOAD])
        }
    }
}
