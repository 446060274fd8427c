//! Describes to the sender of a value how it violates a schema.
//!
//! Owns those words. Must not decide whether a value fits. Invariant: a violation is of bounded length, however long
//! the value, its members' names or the schema's lists are.

use std::collections::BTreeSet;
use std::fmt;

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use serde_json::Value;

use bulkhead_domain::text::{beginning, escaped};

/// Violations that are worth reading.
pub(super) const VIOLATIONS_MAX: usize = 8;
/// Bytes of a wrong value in a violation.
const SHOWN_BYTES_MAX: usize = 128;
/// Bytes of what could stand there instead, or of the names that must not.
const LISTED_BYTES_MAX: usize = 1024;
/// Bytes of a whole violation.
const VIOLATION_BYTES_MAX: usize = 1536;

/// One way in which a value does not fit a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// JSON Pointer to the offending place; empty for the root.
    pub path: String,
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.path, self.message) }
    }
}

/// What is wrong with `root`, said about the alternative that was meant: that none of them fits does not help the
/// sender correct it.
pub(super) fn collect(root: &Value, error: &ValidationError<'_>, violations: &mut Vec<Violation>) {
    let alternatives = alternatives(error);
    let tagged: Option<Vec<_>> = alternatives.iter().map(|errors| wrong_tag(errors)).collect();
    match tagged.as_deref() {
        Some([(path, first, found), others @ ..]) if others.iter().all(|(other, ..)| other == path) => {
            let tags = std::iter::once(first).chain(others.iter().map(|(_, tag, _)| tag));
            let message = format!("{found} is not one of {}", listed(tags.map(String::as_str)));
            violations.push(Violation { path: path.clone(), message: short(message) });
        }
        _ => match nearest(alternatives) {
            Some(errors) => errors.iter().for_each(|error| collect(root, error, violations)),
            None => violations.push(violation(root, error)),
        },
    }
}

fn alternatives<'a>(error: &'a ValidationError<'_>) -> &'a [Vec<ValidationError<'static>>] {
    match error.kind() {
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => context,
        _ => &[],
    }
}

/// Where an alternative wants another constant: the place, the constant, and what is there.
fn wrong_tag(errors: &[ValidationError<'_>]) -> Option<(String, String, String)> {
    errors.iter().find_map(|error| match error.kind() {
        ValidationErrorKind::Constant { expected_value } => {
            Some((error.instance_path().to_string(), expected_value.to_string(), shown(error.instance())))
        }
        _ => None,
    })
}

/// The alternative whose constants fit and that got furthest into the value; none if no two can be told apart.
fn nearest<'a, 'e>(alternatives: &'a [Vec<ValidationError<'e>>]) -> Option<&'a [ValidationError<'e>]> {
    let depth = |error: &ValidationError<'_>| error.instance_path().to_string().matches('/').count();
    let reached = |errors: &[ValidationError<'_>]| errors.iter().map(depth).max();
    let meant: Vec<_> = alternatives.iter().filter(|errors| wrong_tag(errors).is_none()).map(Vec::as_slice).collect();
    let furthest = meant.iter().copied().max_by_key(|errors| reached(errors))?;
    let rivals = meant.iter().filter(|errors| reached(errors) == reached(furthest)).count();
    (rivals == 1).then_some(furthest)
}

fn violation(root: &Value, error: &ValidationError<'_>) -> Violation {
    let (path, message) = said(root, error);
    Violation { path, message: short(message) }
}

/// The place of a violation, and what is wrong there.
fn said(root: &Value, error: &ValidationError<'_>) -> (String, String) {
    use ValidationErrorKind as Kind;
    let path = error.instance_path().to_string();
    let value = shown(error.instance());
    let message = match error.kind() {
        Kind::FalseSchema => return not_allowed(root, error, path),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            unexpected_members(unexpected.iter().map(String::as_str))
        }
        Kind::AdditionalItems { limit } => format!("more than {limit} items are not allowed"),
        Kind::UnevaluatedItems { unexpected } => format!("{} of its items are not allowed", unexpected.len()),
        Kind::Required { property } => {
            format!("the member {} is missing", property.as_str().map_or_else(|| shown(property), quoted))
        }
        Kind::Enum { options } => {
            let options: Vec<_> = options.as_array().into_iter().flatten().map(shown).collect();
            format!("{value} is not one of {}", listed(options.iter().map(String::as_str)))
        }
        Kind::Constant { expected_value } => format!("{value} is not {}", shown(expected_value)),
        Kind::Not { .. } => format!("{value} is one of the values that are not allowed"),
        Kind::Contains => format!("{value} holds none of the items that it must hold"),
        Kind::PropertyNames { error } => {
            format!("the name of a member is not allowed: {}", said(error.instance(), error).1)
        }
        Kind::OneOfMultipleValid { .. } => format!("{value} fits more than one of the alternatives; it must fit one"),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => match types(&path, context) {
            Some(types) => format!("{value} is not of type {}", listed(types.iter().map(String::as_str))),
            None => format!("{value} fits none of the {} alternatives", context.len()),
        },
        _ => error.masked_with(value).to_string(),
    };
    (path, message)
}

/// A place where nothing may stand: an argument or an item that there is none of.
fn not_allowed(root: &Value, error: &ValidationError<'_>, path: String) -> (String, String) {
    let beside = error.schema_path().to_string().ends_with("/additionalProperties");
    if let Some(Value::Object(members)) = root.pointer(&path).filter(|_| beside) {
        return (path, unexpected_members(members.keys().map(String::as_str)));
    }
    let message = match path.rsplit_once('/') {
        Some((parent, last)) if root.pointer(parent).is_some_and(Value::is_array) => {
            return (parent.to_owned(), format!("unexpected item {last}"));
        }
        Some((parent, last)) => {
            let name = last.replace("~1", "/").replace("~0", "~");
            return (parent.to_owned(), unexpected_members(std::iter::once(name.as_str())));
        }
        None => format!("{} is not allowed", shown(error.instance())),
    };
    (path, message)
}

fn unexpected_members<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.map(quoted).collect();
    let what = if names.len() == 1 { "member" } else { "members" };
    format!("unexpected {what} {}", listed(names.iter().map(String::as_str)))
}

/// The types that alternatives take, if the type is all that is wrong with each.
fn types(path: &str, alternatives: &[Vec<ValidationError<'static>>]) -> Option<Vec<String>> {
    let mut types = Vec::new();
    for errors in alternatives {
        let [error] = errors.as_slice() else { return None };
        let ValidationErrorKind::Type { kind } = error.kind() else { return None };
        if error.instance_path().to_string() != path {
            return None;
        }
        match kind {
            TypeKind::Single(name) => types.push(format!("\"{name}\"")),
            TypeKind::Multiple(names) => types.extend(names.iter().map(|name| format!("\"{name}\""))),
        }
    }
    // Cases of a variant are objects, all of them.
    let mut named = BTreeSet::new();
    types.retain(|name| named.insert(name.clone()));
    Some(types)
}

/// As many of them as may be read, and how many more there are.
fn listed<'a>(entries: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::new();
    let mut left = 0usize;
    for entry in entries {
        if left > 0 || (!text.is_empty() && text.len() + entry.len() > LISTED_BYTES_MAX) {
            left += 1;
            continue;
        }
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(entry);
    }
    if left > 0 { format!("{text}, and {left} more") } else { text }
}

/// A member's name in a sentence.
fn quoted(name: &str) -> String {
    format!("`{}`", cut(&escaped(name), SHOWN_BYTES_MAX))
}

/// A value in a sentence.
fn shown(value: &Value) -> String {
    cut(&escaped(&value.to_string()), SHOWN_BYTES_MAX)
}

fn short(text: String) -> String {
    cut(&text, VIOLATION_BYTES_MAX)
}

fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max { text.to_owned() } else { format!("{}…", beginning(text, bytes_max)) }
}
