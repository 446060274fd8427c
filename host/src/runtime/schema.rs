//! JSON Schema 2020-12 of tools, compiled once.
//!
//! Owns which schemas are accepted. Nothing is ever fetched or read for a schema, and no pattern can take more than linear time.

use std::fmt;

use jsonschema::{Draft, PatternOptions};
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
    /// Compiles a schema whose root says `"type": "object"`.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, in words for the plugin's author.
    pub fn compile(schema: &str) -> Result<Self, Vec<String>> {
        if schema.len() > SCHEMA_BYTES_MAX {
            return Err(vec![format!("{} bytes; {SCHEMA_BYTES_MAX} is the most", schema.len())]);
        }
        let schema: Value =
            serde_json::from_str(schema).map_err(|error| vec![format!("not well-formed JSON: {error}")])?;
        let mut wrong = Vec::new();
        if schema.get("type").and_then(Value::as_str) != Some("object") {
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
        let violations: Vec<_> = self
            .compiled
            .iter_errors(value)
            .take(VIOLATIONS_MAX)
            .map(|error| Violation { path: error.instance_path().to_string(), message: short(error.to_string()) })
            .collect();
        if violations.is_empty() { Ok(()) } else { Err(violations) }
    }
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
    fn patterns_take_linear_time() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}});
        let validator = Validator::compile(&schema.to_string()).unwrap();
        assert!(validator.check(&json!({"a": "a".repeat(50_000) + "!"})).is_err());
        assert!(wrong(&json!({"type": "object", "properties": {"a": {"pattern": "(?=a)b"}}})).contains("2020-12"));
    }
}
