//! JSON Schema 2020-12 of tools, compiled once.
//!
//! Owns which schemas are accepted. Nothing is ever fetched or read for a schema, and no pattern can take more than
//! linear time.

mod expansion;
mod portable;
mod violation;

use jsonschema::{Draft, PatternOptions};
use serde_json::Value;

pub use portable::{portable, refusals};
pub use violation::Violation;
use violation::{VIOLATIONS_MAX, collect};

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

    /// Compiles a schema of any values, as one of results is since 2026-07-28. It is an object itself: no list holds
    /// `true`.
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
            let found = schema.get("type").map_or_else(String::new, |found| format!(", but \"type\": {found}"));
            wrong.push(format!(
                "its root does not say \"type\": \"object\"{found}: a tool takes an object with a member for each argument"
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
                let path = error.instance_path().to_string();
                vec![format!("not a JSON Schema 2020-12{}: {error}", at(&path))]
            })?;
        Ok(Self { compiled, loops: expanded.loops, patterns })
    }

    /// How many regular expressions are kept for it.
    pub fn patterns(&self) -> usize {
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
            return Err(vec![Violation { path: String::new(), message: "it does not fit the schema".to_owned() }]);
        }
        let mut violations = Vec::new();
        for error in self.compiled.iter_errors(value).take(VIOLATIONS_MAX) {
            collect(value, &error, &mut violations);
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

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

fn at(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(" at {path}") }
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
    fn schema_violation_names_its_path() {
        let schema = json!({"type": "object", "properties": {"below": {"type": "integer"}}, "required": ["below"]});
        let validator = Validator::compile(&schema.to_string()).unwrap();
        assert!(validator.check(&json!({"below": 3})).is_ok());
        let violations = validator.check(&json!({"below": "x"})).unwrap_err();
        assert_eq!(violations[0].path, "/below");
        assert!(validator.check(&json!({})).unwrap_err()[0].message.contains("below"));
    }

    #[test]
    fn schema_violation_describes_the_intended_alternative() {
        let case = |tag: &str, value: Value| json!({"type": "object", "properties": {"tag": {"const": tag}, "val": value}, "required": ["tag", "val"]});
        let small = json!({"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}});
        let schema = json!({"type": "object", "properties": {
            "a": {"oneOf": [case("text", json!({"type": "string"})), case("small", small.clone())]},
            "b": {"anyOf": [{"type": "null"}, small]},
            "c": {"anyOf": [{"type": "null"}, {"type": "string"}]},
            "d": {"oneOf": [case("text", json!({"type": "string"})), case("small", json!({"type": "null"}))]},
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
        assert_eq!(said(json!({"a": {"tag": "text"}})), "/a: the member `val` is missing");
        assert_eq!(said(json!({"a": {"tag": "x", "val": 3}})), "/a/tag: \"x\" is not one of \"text\", \"small\"");
        assert_eq!(said(json!({"b": {"n": 10}})), "/b/n: 10 is greater than the maximum of 9");
        assert_eq!(said(json!({"c": 3})), "/c: 3 is not of type \"null\", \"string\"");
        assert_eq!(said(json!({"d": "text"})), "/d: \"text\" is not of type \"object\"");
    }

    #[test]
    fn schema_violations_say_how_to_fix_them() {
        let schema = json!({"type": "object", "additionalProperties": false, "properties": {
            "color": {"enum": ["red", "green", "blue", "black", "white", "grey", "pink"]},
            "none": false,
            "empty": {"type": "object", "additionalProperties": false},
            "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "integer"}], "items": false},
            "version": {"const": 2},
            "other": {"not": {"type": "string"}},
            "some": {"contains": {"const": 1}},
            "named": {"propertyNames": {"maxLength": 2}},
            "closed": {"allOf": [{"properties": {"a": true}}], "unevaluatedProperties": false},
            "one": {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
            "form": {"anyOf": [{"minLength": 2}, {"pattern": "^a"}]},
            "text": {"type": "string", "maxLength": 3},
        }});
        let validator = Validator::compile(&schema.to_string()).unwrap();
        let said = |value: Value| {
            let violations = validator.check(&value).unwrap_err();
            violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        let rows = [
            (json!({"colour": 1}), "unexpected member `colour`"),
            (json!({"a\u{1b}": 1, "b": 2}), "unexpected members `a\\u{1b}`, `b`"),
            (
                json!({"color": "teal"}),
                "/color: \"teal\" is not one of \"red\", \"green\", \"blue\", \"black\", \"white\", \"grey\", \"pink\"",
            ),
            (json!({"none": 1}), "unexpected member `none`"),
            (json!({"empty": {"name": 1}}), "/empty: unexpected member `name`"),
            (json!({"pair": [1, 2, 3]}), "/pair: unexpected item 2"),
            (json!({"version": 3}), "/version: 3 is not 2"),
            (json!({"other": "x"}), "/other: \"x\" is one of the values that are not allowed"),
            (json!({"some": [2]}), "/some: [2] holds none of the items that it must hold"),
            (json!({"closed": {"b": 1}}), "/closed: unexpected member `b`"),
            (json!({"one": 2}), "/one: 2 fits more than one of the alternatives; it must fit one"),
            (json!({"form": "b"}), "/form: \"b\" fits none of the 2 alternatives"),
            (json!({"text": "long"}), "/text: \"long\" is longer than 3 characters"),
            (json!({"text": 1}), "/text: 1 is not of type \"string\""),
        ];
        for (value, expected) in rows {
            assert_eq!(said(value.clone()), expected, "{value}");
        }
        assert!(
            said(json!({"named": {"long": 1}})).contains("the name of a member is not allowed: \"long\" is longer")
        );
    }

    #[test]
    fn schema_violation_messages_are_short() {
        let options: Vec<_> = (0..5_000).map(|number| format!("option-{number}")).collect();
        let schema = json!({"type": "object", "additionalProperties": false, "properties": {"a": {"enum": options}, "b": {"type": "integer"}}});
        let validator = Validator::compile(&schema.to_string()).unwrap();
        let long = "x".repeat(100_000);
        let many: serde_json::Map<_, _> = (0..5_000).map(|number| (format!("name-{number}"), json!(1))).collect();
        for value in [json!({"a": long}), json!({"b": long}), json!({(long.as_str()): 1}), Value::Object(many)] {
            let violations = validator.check(&value).unwrap_err();
            let bytes: usize = violations.iter().map(|violation| violation.to_string().len()).sum();
            assert!(bytes < 2_000, "{violations:?}");
        }
        let violation = &validator.check(&json!({"a": "x"})).unwrap_err()[0];
        assert!(
            violation.message.starts_with("\"x\" is not one of \"option-0\", ") && violation.message.ends_with(" more")
        );
        // The type that is expected stays to be read.
        let violation = &validator.check(&json!({"b": long})).unwrap_err()[0];
        assert!(violation.message.ends_with("is not of type \"integer\""), "{violation}");
    }

    #[test]
    fn schemas_with_outside_references_or_errors_are_refused() {
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
    fn output_schema_may_be_of_any_type() {
        let numbers = Validator::compile_any(r#"{"type": "array", "items": {"type": "integer"}}"#).unwrap();
        assert!(numbers.check(&json!([1, 2])).is_ok());
        assert_eq!(numbers.check(&json!([1, "two"])).unwrap_err()[0].path, "/1");
        assert!(Validator::compile_any("{}").unwrap().check(&json!(null)).is_ok());
        assert!(Validator::compile_any("true").unwrap_err()[0].contains("object"));
        assert!(Validator::compile_any(r#"{"type": "objekt"}"#).is_err());
    }

    #[test]
    fn schema_patterns_take_linear_time() {
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
    fn multiplying_schema_references_are_refused() {
        assert!(wrong(&laughing(30)).contains("references"));
        assert!(wrong(&laughing(200)).contains("references"));
        let few = Validator::compile(&laughing(3).to_string()).unwrap();
        assert!(few.check(&json!({})).is_ok() && few.check(&json!({"a": 1})).is_err());
    }

    #[test]
    fn self_referencing_schema_check_terminates() {
        let (ended, end) = std::sync::mpsc::channel();
        // A thread of its own: one that does not end fails the test instead of holding up all others.
        std::thread::spawn(move || {
            let outcomes = [
                json!({"type": "object", "allOf": [{"$ref": "#"}]}),
                json!({"type": "object", "not": {"$ref": "#"}}),
                json!({"type": "object", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
                json!({"type": "object", "$dynamicAnchor": "x", "anyOf": [{"$dynamicRef": "#x"}, {"$ref": "#"}]}),
            ]
            .map(|schema| {
                let validator = Validator::compile(&schema.to_string()).ok()?;
                Some([json!({}), json!({"a": {"b": [1, 2, {}]}})].map(|value| validator.check(&value).is_ok()))
            });
            let _ = ended.send(outcomes);
        });
        let outcomes = end.recv_timeout(std::time::Duration::from_secs(20)).expect("an end");
        // What refers to nothing but itself says nothing of a value, and its opposite refuses each.
        assert_eq!(outcomes, [true, false, true, true].map(|holds| Some([holds; 2])));
    }

    /// Each level of the value could double what there is to say about it: then nothing is said in detail.
    #[test]
    fn multiplying_schema_values_are_checked_without_details() {
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
    fn schema_patterns_are_bounded_in_size_and_number() {
        assert!(
            wrong(&json!({"type": "object", "properties": {"a": {"pattern": "((a{100}){100}){100}"}}}))
                .contains("2020-12")
        );
        let many: serde_json::Map<_, _> = (0..65).map(|number| (format!("a{number}"), json!({}))).collect();
        assert!(wrong(&json!({"type": "object", "patternProperties": many})).contains("patterns"));
    }

    #[test]
    fn schema_unique_items_check_is_fast() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}});
        let validator = Validator::compile(&schema.to_string()).unwrap();
        let many: Vec<_> = (0..100_000).map(|number| json!({"n": [number]})).collect();
        assert!(validator.check(&json!({"a": many})).is_ok());
    }
}
