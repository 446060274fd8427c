//! JSON Schema 2020-12 of tools, compiled once.
//!
//! Owns which schemas are accepted. Nothing is ever fetched or read for a schema, and no pattern can take more than linear time.

mod expansion;

use std::fmt;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, ValidationError};
use serde_json::Value;

/// Bytes of one schema. Stops a plugin that fills every client's context and the host's memory with it.
const SCHEMA_BYTES_MAX: usize = 256 << 10;
/// Nesting of one schema. Stops validators that recurse.
const SCHEMA_DEPTH_MAX: usize = 32;
/// Places of one schema with its references followed. Stops ten definitions that refer to each other ten times.
const SCHEMA_PLACES_MAX: u64 = 100_000;
/// Bytes of one compiled pattern. Stops `(a{1000}){1000}`.
const PATTERN_BYTES_MAX: usize = 256 << 10;
/// Patterns of one schema. Stops thousands of large ones, and a value with thousands of members for each to look at.
const PATTERNS_MAX: usize = 64;
/// Paths through a schema that refers to itself, for which it is worth looking for the one that was meant.
const DETAILED_PATHS_MAX: f64 = 65_536.0;
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
    compiled: jsonschema::Validator,
    /// See [`expansion::Expansion`].
    loops: u64,
    patterns: usize,
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
            let said = schema.get("type").map_or_else(String::new, |said| format!(", but \"type\": {said}"));
            wrong.push(format!(
                "its root does not say \"type\": \"object\"{said}: a tool takes an object with a member for each argument"
            ));
        }
        if let Some(dialect) = schema.get("$schema")
            && dialect.as_str().is_none_or(|uri| uri.trim_end_matches('#') != DIALECT)
        {
            wrong.push(format!("its dialect is {dialect}; the host knows {DIALECT}"));
        }
        look_for_trouble(&schema, 1, &mut wrong);
        let patterns = expansion::patterns(&schema);
        if patterns > PATTERNS_MAX {
            wrong.push(format!("{patterns} patterns; {PATTERNS_MAX} is the most"));
        }
        let expanded = expansion::of(&schema);
        if expanded.places > SCHEMA_PLACES_MAX {
            wrong.push(format!("its references stand for more than {SCHEMA_PLACES_MAX} places"));
        }
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
        Ok(Self { compiled, loops: expanded.loops, patterns })
    }

    /// How many regular expressions are kept for it.
    pub(super) fn patterns(&self) -> usize {
        self.patterns
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
        // That took care of what it had seen before; a list of everything that is wrong does not.
        let levels = i32::try_from(depth(value)).unwrap_or(i32::MAX);
        if self.loops > 0 && (self.loops as f64).powi(levels) > DETAILED_PATHS_MAX {
            return Err(vec![Violation { path: String::new(), message: "it does not fit".to_owned() }]);
        }
        let mut violations = Vec::new();
        for error in self.compiled.iter_errors(value).take(VIOLATIONS_MAX) {
            collect(&error, &mut violations);
        }
        violations.truncate(VIOLATIONS_MAX);
        if violations.is_empty() { Ok(()) } else { Err(violations) }
    }
}

/// Levels of lists and objects.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or_default(),
        _ => 0,
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
    /// The best that two references for each step can do with so many steps.
    fn laughing(steps: usize) -> Value {
        let mut defs = serde_json::Map::new();
        for step in 0..steps {
            let next = json!({"$ref": format!("#/$defs/a{}", step + 1)});
            defs.insert(format!("a{step}"), json!({"allOf": [next, next]}));
        }
        defs.insert(format!("a{steps}"), json!({"maxProperties": 0}));
        json!({"type": "object", "$defs": defs, "$ref": "#/$defs/a0"})
    }

    #[test]
    fn references_that_multiply_are_refused() {
        assert!(wrong(&laughing(30)).contains("references"));
        assert!(wrong(&laughing(200)).contains("references"));
        let few = Validator::compile(&laughing(3).to_string()).unwrap();
        assert!(few.check(&json!({})).is_ok() && few.check(&json!({"a": 1})).is_err());
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        for schema in [
            json!({"type": "object", "allOf": [{"$ref": "#"}]}),
            json!({"type": "object", "not": {"$ref": "#"}}),
            json!({"type": "object", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
            json!({"type": "object", "$dynamicAnchor": "x", "anyOf": [{"$dynamicRef": "#x"}, {"$ref": "#"}]}),
        ] {
            if let Ok(validator) = Validator::compile(&schema.to_string()) {
                let _ = validator.check(&json!({}));
                let _ = validator.check(&json!({"a": {"b": [1, 2, {}]}}));
            }
        }
    }

    /// Each level of the value could double what there is to say about it: then nothing is said in detail.
    #[test]
    fn values_that_multiply_are_judged_without_details() {
        let twice = json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]});
        let schema = json!({"type": "object", "properties": {"a": twice}, "additionalProperties": false});
        let validator = Validator::compile(&schema.to_string()).unwrap();
        let nested = |depth: usize, inside: Value| (0..depth).fold(inside, |value, _| json!({"a": value}));
        assert!(validator.check(&nested(100, json!({}))).is_ok());
        let violations = validator.check(&nested(100, json!({"b": 1}))).unwrap_err();
        assert!(violations.len() == 1 && violations[0].path.is_empty(), "{violations:?}");
        let violations = validator.check(&nested(2, json!({"b": 1}))).unwrap_err();
        assert!(violations[0].path.starts_with("/a"), "{violations:?}");
    }

    #[test]
    fn patterns_are_bounded_in_size_and_number() {
        assert!(
            wrong(&json!({"type": "object", "properties": {"a": {"pattern": "((a{100}){100}){100}"}}}))
                .contains("2020-12")
        );
        let many: serde_json::Map<_, _> = (0..65).map(|number| (format!("a{number}"), json!({}))).collect();
        assert!(wrong(&json!({"type": "object", "patternProperties": many})).contains("patterns"));
    }

    #[test]
    fn large_values_are_compared_in_time() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}});
        let validator = Validator::compile(&schema.to_string()).unwrap();
        let many: Vec<_> = (0..100_000).map(|number| json!({"n": [number]})).collect();
        assert!(validator.check(&json!({"a": many})).is_ok());
    }
}
