//! A function's signature in words, for functions without documentation.

use super::names::Export;
use super::shape::{Case, Field, Returns, Shape};

/// Names in one enumeration; more are left to the schema.
const NAMES_MAX: usize = 12;

/// One paragraph: which function, what it takes, what it returns.
pub(super) fn describe(export: &Export, parameters: &[Field], returns: &Returns) -> String {
    let mut text = match &export.interface {
        Some(interface) => format!("The function {} of {interface}.", export.function),
        None => format!("The function {}.", export.function),
    };
    match parameters {
        [] => text.push_str(" Takes nothing."),
        parameters => {
            let parts: Vec<_> = parameters.iter().map(parameter).collect();
            text.push_str(&format!(" Takes {}.", parts.join(", ")));
        }
    }
    text.push_str(&match returns {
        Returns::Nothing => " Returns nothing.".to_owned(),
        Returns::Value(shape) => format!(" Returns {}.", noun(shape)),
        Returns::Fallible { ok, error } => {
            let ok = ok.as_ref().map_or_else(|| "nothing".to_owned(), noun);
            match error {
                Some(error) => format!(" Returns {ok}, or fails with {}.", noun(error)),
                None => format!(" Returns {ok}, or fails."),
            }
        }
    });
    text
}

fn parameter(field: &Field) -> String {
    match &field.shape {
        Shape::Option(inner) => format!("optionally {} ({})", field.name, noun(inner)),
        shape => format!("{} ({})", field.name, noun(shape)),
    }
}

fn noun(shape: &Shape) -> String {
    match shape {
        Shape::Bool => "true or false".to_owned(),
        Shape::Integer(integer) if integer.is_wide() => {
            "an integer of 64 bits, as a string of digits where it is large".to_owned()
        }
        Shape::Integer(integer) => {
            let (smallest, largest) = integer.bounds();
            format!("an integer from {smallest} to {largest}")
        }
        Shape::F32 | Shape::F64 => "a number".to_owned(),
        Shape::Char => "a character".to_owned(),
        Shape::Text => "a text".to_owned(),
        Shape::Bytes => "bytes in base64".to_owned(),
        Shape::List(item) => format!("a list, each {}", noun(item)),
        Shape::Tuple(items) => format!("a list of {} values", items.len()),
        Shape::Record(fields) => format!("an object with {}", names(fields.iter().map(|field| &field.name))),
        Shape::Option(inner) => format!("{} or null", noun(inner)),
        Shape::Enum(words) => format!("one of {}", names(words)),
        Shape::Flags(words) => format!("any of {}", names(words)),
        Shape::Variant(cases) => format!("a case of {}", names(cases.iter().map(|Case { name, .. }| name))),
        Shape::Result { .. } => "a success or an error".to_owned(),
    }
}

fn names<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let all: Vec<_> = names.into_iter().map(String::as_str).collect();
    match all.get(..NAMES_MAX) {
        Some(first) if first.len() < all.len() => format!("{} and {} more", first.join(", "), all.len() - first.len()),
        _ => all.join(", "),
    }
}
