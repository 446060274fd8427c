//! JSON Schema 2020-12 of tools, compiled once.
//!
//! Owns which schemas are accepted. Nothing is ever fetched or read for a schema, and no pattern can take more than linear time.

use std::fmt;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, ValidationError};
use serde_json::Value;

/// Bytes of one schema. Stops a plugin that fills every client's context and the host's memory with it.
const SCHEMA_BYTES_MAX: usize = 256 << 10;
/// Nesting of one schema. Stops validators that recurse.
const SCHEMA_DEPTH_MAX: usize = 32;
/// Bytes of one compiled pattern. Stops `(a{1000}){1000}`.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Violations that are worth reading.
const VIOLATIONS_MAX: usize = 8;
/// Bytes of one violation: the value that is wrong may be long.
const VIOLATION_BYTES_MAX: usize = 256;

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

/// A compiled schema.
#[derive(Debug)]
pub struct Validator {
    pub(crate) compiled: jsonschema::Validator,
}

impl Validator {
    /// Compiles a schema whose root says `"type": "object"`, as one of arguments does.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, in words for the plugin's author.
    pub fn compile(schema: &str) -> Result<Self, Vec<String>> {
        Self::build(schema, true)
    }

    /// Compiles a schema of any values, as one of results is since 2026-07-28. It is an object itself: no list holds `true`.
    ///
    /// # Errors
    ///
    /// As [`Self::compile`].
    pub fn compile_any(schema: &str) -> Result<Self, Vec<String>> {
        Self::build(schema, false)
    }

    fn build(schema: &str, objects_only: bool) -> Result<Self, Vec<String>> {
        if schema.len() > SCHEMA_BYTES_MAX {
            return Err(vec![format!("{} bytes; {SCHEMA_BYTES_MAX} is the most", schema.len())]);
        }
        let schema: Value =
            serde_json::from_str(schema).map_err(|error| vec![format!("not well-formed JSON: {error}")])?;
        let mut wrong = Vec::new();
        if !schema.is_object() {
            wrong.push("it is no object".to_owned());
        } else if objects_only && schema.get("type").and_then(Value::as_str) != Some("object") {
            wrong.push("its root does not say \"type\": \"object\"".to_owned());
        }
        if let Some(dialect) = schema.get("$schema")
            && dialect.as_str().is_none_or(|uri| uri.trim_end_matches('#') != DIALECT)
        {
            wrong.push(format!("its dialect is {dialect}; the host knows {DIALECT}"));
        }
        look_for_trouble(&schema, 1, &mut wrong);
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let compiled = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .with_pattern_options(
                PatternOptions::regex().size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX),
            )
            .build(&schema)
            .map_err(|error| {
                let place = error.instance_path().to_string();
                vec![format!("not a JSON Schema 2020-12{}: {error}", at(&place))]
            })?;
        Ok(Self { compiled })
    }

    /// Whether a value fits.
    ///
    /// # Errors
    ///
    /// Every violation, up to a bounded number.
    pub fn check(&self, value: &Value) -> Result<(), Vec<Violation>> {
        // Nearly everything fits, and finding that out takes no list of what does not.
        if self.compiled.is_valid(value) {
            return Ok(());
        }
        let mut violations = Vec::new();
        for error in self.compiled.iter_errors(value).take(VIOLATIONS_MAX) {
            collect(&error, &mut violations);
        }
        violations.truncate(VIOLATIONS_MAX);
        if violations.is_empty() { Ok(()) } else { Err(violations) }
    }
}

/// What is wrong, said about the alternative that was meant: that none of them fits says nothing to whoever must do better.
fn collect(error: &ValidationError<'_>, violations: &mut Vec<Violation>) {
    let alternatives = match error.kind() {
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => context.as_slice(),
        _ => &[],
    };
    let tagged: Option<Vec<_>> = alternatives.iter().map(|errors| wrong_tag(errors)).collect();
    match tagged.as_deref() {
        Some([(path, first, found), others @ ..]) if others.iter().all(|(other, ..)| other == path) => {
            let known = others.iter().fold(first.clone(), |known, (_, tag, _)| format!("{known}, {tag}"));
            violations.push(Violation { path: path.clone(), message: short(format!("{found} is not one of {known}")) });
        }
        _ => match nearest(alternatives) {
            Some(errors) => errors.iter().for_each(|error| collect(error, violations)),
            None => violations
                .push(Violation { path: error.instance_path().to_string(), message: short(error.to_string()) }),
        },
    }
}

/// Where an alternative wants another constant: the place, the constant, and what is there.
fn wrong_tag(errors: &[ValidationError<'_>]) -> Option<(String, String, String)> {
    errors.iter().find_map(|error| match error.kind() {
        ValidationErrorKind::Constant { expected_value } => {
            Some((error.instance_path().to_string(), expected_value.to_string(), short(error.instance().to_string())))
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

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

fn at(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(" at {path}") }
}

fn short(text: String) -> String {
    if text.len() <= VIOLATION_BYTES_MAX {
        return text;
    }
    format!("{}…", super::world::beginning(&text, VIOLATION_BYTES_MAX))
}

/// References that lead outside, and nesting without end.
fn look_for_trouble(schema: &Value, depth: usize, wrong: &mut Vec<String>) {
    if depth > SCHEMA_DEPTH_MAX {
        if wrong.last().is_none_or(|last| !last.starts_with("nested")) {
            wrong.push(format!("nested deeper than {SCHEMA_DEPTH_MAX}"));
        }
        return;
    }
    match schema {
        Value::Object(object) => {
            for (key, value) in object {
                if let ("$ref" | "$dynamicRef", Value::String(target)) = (key.as_str(), value)
                    && !target.starts_with('#')
                {
                    wrong.push(format!("{key} {target:?} leads outside the schema; only \"#…\" is allowed"));
                }
                look_for_trouble(value, depth + 1, wrong);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| look_for_trouble(item, depth + 1, wrong)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn wrong(schema: &Value) -> String {
        Validator::compile(&schema.to_string()).unwrap_err().join("; ")
    }

    #[test]
    fn a_violation_names_its_place() {
        let schema = json!({"type": "object", "properties": {"below": {"type": "integer"}}, "required": ["below"]});
        let validator = Validator::compile(&schema.to_string()).unwrap();
        assert!(validator.check(&json!({"below": 3})).is_ok());
        let violations = validator.check(&json!({"below": "x"})).unwrap_err();
        assert_eq!(violations[0].path, "/below");
        assert!(validator.check(&json!({})).unwrap_err()[0].message.contains("below"));
    }

    #[test]
    fn the_alternative_that_was_meant_is_the_one_that_is_spoken_of() {
        let case = |tag: &str, value: Value| json!({"type": "object", "properties": {"tag": {"const": tag}, "val": value}, "required": ["tag", "val"]});
        let small = json!({"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}});
        let schema = json!({"type": "object", "properties": {
            "a": {"oneOf": [case("text", json!({"type": "string"})), case("small", small.clone())]},
            "b": {"anyOf": [{"type": "null"}, small]},
            "c": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        }});
        let validator = Validator::compile(&schema.to_string()).unwrap();
        let said = |value: Value| {
            let violations = validator.check(&value).unwrap_err();
            violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(
            said(json!({"a": {"tag": "small", "val": {"n": 10}}})),
            "/a/val/n: 10 is greater than the maximum of 9"
        );
        assert_eq!(said(json!({"a": {"tag": "text", "val": 3}})), "/a/val: 3 is not of type \"string\"");
        assert_eq!(said(json!({"a": {"tag": "text"}})), "/a: \"val\" is a required property");
        assert_eq!(said(json!({"a": {"tag": "x", "val": 3}})), "/a/tag: \"x\" is not one of \"text\", \"small\"");
        assert_eq!(said(json!({"b": {"n": 10}})), "/b/n: 10 is greater than the maximum of 9");
        assert!(said(json!({"c": 3})).starts_with("/c: 3 is not valid under any"), "{}", said(json!({"c": 3})));
    }

    #[test]
    fn schemas_that_lead_outside_or_are_none_are_refused() {
        assert!(wrong(&json!({"type": "array"})).contains("object"));
        assert!(wrong(&json!({"type": "object", "$ref": "https://example.com/x"})).contains("leads outside"));
        assert!(wrong(&json!({"type": "object", "$ref": "file:///etc/passwd"})).contains("leads outside"));
        assert!(wrong(&json!({"type": "object", "properties": 3})).contains("properties"));
        assert!(
            wrong(&json!({"type": "object", "$schema": "http://json-schema.org/draft-07/schema#"})).contains("dialect")
        );
        let mut deep = json!({"type": "string"});
        for _ in 0..40 {
            deep = json!({"not": deep});
        }
        assert!(wrong(&json!({"type": "object", "properties": {"a": deep}})).contains("nested"));
        assert!(Validator::compile("{").unwrap_err()[0].contains("well-formed"));
    }

    #[test]
    fn results_may_be_of_any_type() {
        let numbers = Validator::compile_any(r#"{"type": "array", "items": {"type": "integer"}}"#).unwrap();
        assert!(numbers.check(&json!([1, 2])).is_ok());
        assert_eq!(numbers.check(&json!([1, "two"])).unwrap_err()[0].path, "/1");
        assert!(Validator::compile_any("{}").unwrap().check(&json!(null)).is_ok());
        assert!(Validator::compile_any("true").unwrap_err()[0].contains("object"));
        assert!(Validator::compile_any(r#"{"type": "objekt"}"#).is_err());
    }

    #[test]
    fn patterns_take_linear_time() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}});
        let validator = Validator::compile(&schema.to_string()).unwrap();
        assert!(validator.check(&json!({"a": "a".repeat(50_000) + "!"})).is_err());
        assert!(wrong(&json!({"type": "object", "properties": {"a": {"pattern": "(?=a)b"}}})).contains("2020-12"));
    }
}
