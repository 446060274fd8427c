//! A function's signature in words, for functions without documentation.
//!
//! Owns the words. Invariant: they are those of the schema (`string`, `integer`, …), because it is JSON that a caller
//! writes.

use super::names::Export;
use super::shape::{Case, Field, Returns, Shape};

/// Names in one enumeration; more are left to the schema.
const NAMES_MAX: usize = 12;

/// One paragraph: which function, what it takes, what it returns.
pub(super) fn describe(export: &Export, parameters: &[Field], returns: &Returns) -> String {
    let mut text = match &export.interface {
        Some(interface) => format!("{} of {interface}.", export.function),
        None => format!("{}.", export.function),
    };
    match parameters {
        [] => text.push_str(" No parameters."),
        parameters => {
            let parts: Vec<_> = parameters.iter().map(parameter).collect();
            text.push_str(&format!(" Parameters: {}.", parts.join(", ")));
        }
    }
    let (value, error) = match returns {
        Returns::Nothing => (None, None),
        Returns::Value(shape) => (Some(shape), None),
        Returns::Fallible { ok, error } => (ok.as_ref(), error.as_ref()),
    };
    text.push_str(&value.map_or_else(|| " Returns nothing.".to_owned(), |value| format!(" Returns: {}.", noun(value))));
    if let Some(error) = error {
        text.push_str(&format!(" Error: {}.", noun(error)));
    }
    text
}

fn parameter(field: &Field) -> String {
    match &field.shape {
        Shape::Option(inner) => format!("{}: {} (optional)", field.name, noun(inner)),
        shape => format!("{}: {}", field.name, noun(shape)),
    }
}

fn noun(shape: &Shape) -> String {
    match shape {
        Shape::Bool => "boolean".to_owned(),
        Shape::Integer(_) => "integer".to_owned(),
        Shape::F32 | Shape::F64 => "number".to_owned(),
        Shape::Char => "character".to_owned(),
        Shape::Text => "string".to_owned(),
        Shape::Bytes => "bytes in base64".to_owned(),
        Shape::List(item) => format!("list of {}", noun(item)),
        Shape::Tuple(items) => format!("[{}]", items.iter().map(noun).collect::<Vec<_>>().join(", ")),
        Shape::Record(fields) => format!("object {{{}}}", names(fields.iter().map(|field| &field.name))),
        Shape::Option(inner) => format!("{} or null", noun(inner)),
        Shape::Enum(words) => format!("one of {}", names(words)),
        Shape::Flags(words) => format!("any of {}", names(words)),
        Shape::Variant(cases) => format!("case {}", alternatives(cases)),
        Shape::Result { .. } => "success or error".to_owned(),
    }
}

fn alternatives(cases: &[Case]) -> String {
    names(cases.iter().map(|case| &case.name)).replace(", ", " | ")
}

fn names<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let all: Vec<_> = names.into_iter().map(String::as_str).collect();
    match all.get(..NAMES_MAX) {
        Some(first) if first.len() < all.len() => format!("{} and {} more", first.join(", "), all.len() - first.len()),
        _ => all.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::typed::shape::Integer;

    #[test]
    fn undocumented_function_reads_like_a_signature() {
        let export = Export { interface: Some("local:files/fs@1.0.0".to_owned()), function: "list".to_owned() };
        let field = |name: &str, shape: Shape| Field { name: name.to_owned(), shape };
        let depth = Shape::Option(Box::new(Shape::Integer(Integer::U32)));
        let order = Shape::Enum(vec!["name".to_owned(), "size".to_owned()]);
        let parameters = [field("path", Shape::Text), field("depth", depth), field("order", order)];
        let ok =
            Some(Shape::List(Box::new(Shape::Record(vec![field("name", Shape::Text), field("size", Shape::F64)]))));
        assert_eq!(
            describe(&export, &parameters, &Returns::Fallible { ok, error: Some(Shape::Text) }),
            "list of local:files/fs@1.0.0. Parameters: path: string, depth: integer (optional), order: one of name, size. \
             Returns: list of object {name, size}. Error: string."
        );
        let bare = Export { interface: None, function: "reset".to_owned() };
        assert_eq!(describe(&bare, &[], &Returns::Nothing), "reset. No parameters. Returns nothing.");
        let case = |name: &str, payload| Case { name: name.to_owned(), payload };
        let shape =
            Shape::Tuple(vec![Shape::Bool, Shape::Variant(vec![case("css", Some(Shape::Text)), case("none", None)])]);
        assert_eq!(
            describe(&bare, &[field("x", Shape::Bytes)], &Returns::Value(shape)),
            "reset. Parameters: x: bytes in base64. Returns: [boolean, case css | none]."
        );
    }
}
