//! Arguments that a tool wants repeated in a header (`x-mcp-header`, revision 2026-07-28).
//!
//! Owns what such a mark must be like. A client drops a tool whose marks are wrong without a word to anybody, so the
//! author hears of it here.

use std::collections::HashSet;

use serde_json::Value;

const MARK: &str = "x-mcp-header";

/// Everything that is wrong with the marks of an input schema, in words for the plugin's author.
///
/// The schema's nesting was bounded when it was compiled.
pub(super) fn problems(schema: &Value) -> Vec<String> {
    let mut params = HeaderParams::default();
    params.look(schema, true);
    params.wrong
}

#[derive(Default)]
struct HeaderParams {
    /// In small letters: names of headers have no case.
    seen: HashSet<String>,
    wrong: Vec<String>,
}

impl HeaderParams {
    /// `is_reachable`: by names of properties alone, so that there is one value to repeat.
    fn look(&mut self, schema: &Value, is_reachable: bool) {
        let members = match schema {
            Value::Object(members) => members,
            Value::Array(schemas) => return schemas.iter().for_each(|schema| self.look(schema, false)),
            _ => return,
        };
        if let Some(mark) = members.get(MARK) {
            self.check(mark, members.get("type"), is_reachable);
        }
        for (keyword, value) in members {
            match (keyword.as_str(), value) {
                ("properties", Value::Object(named)) => named.values().for_each(|each| self.look(each, is_reachable)),
                ("patternProperties" | "$defs" | "definitions" | "dependentSchemas", Value::Object(named)) => {
                    named.values().for_each(|each| self.look(each, false));
                }
                // Values, not schemas.
                (MARK | "const" | "enum" | "default" | "examples", _) => {}
                (_, other) => self.look(other, false),
            }
        }
    }

    fn check(&mut self, mark: &Value, kind: Option<&Value>, is_reachable: bool) {
        let Some(name) = mark.as_str().filter(|name| is_token(name)) else {
            return self.wrong.push(format!("{MARK} {mark} is not the end of a header's name"));
        };
        if !self.seen.insert(name.to_ascii_lowercase()) {
            self.wrong.push(format!("{MARK} {name:?} is there twice; upper and lower case are the same in a header"));
        }
        if !matches!(kind.and_then(Value::as_str), Some("string" | "integer" | "boolean")) {
            self.wrong.push(format!("{MARK} {name:?} is on something else than a string, an integer or a boolean"));
        }
        if !is_reachable {
            self.wrong.push(format!("{MARK} {name:?} is not on a property of the arguments or of an object in them"));
        }
    }
}

/// RFC 9110, 5.6.2.
fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(property: &Value) -> Vec<String> {
        problems(&json!({"type": "object", "properties": {"a": property}}))
    }

    #[test]
    fn header_param_marks_are_allowed_on_properties() {
        for kind in ["string", "integer", "boolean"] {
            assert_eq!(of(&json!({"type": kind, "x-mcp-header": "Region-1"})), Vec::<String>::new());
        }
        let nested = json!({"type": "object", "properties": {"b": {"type": "string", "x-mcp-header": "B"}}});
        assert_eq!(of(&nested), Vec::<String>::new());
        // Here it is a name of a property and a value, not a mark.
        let named = json!({"type": "object", "properties": {"x-mcp-header": {"type": "number"}},
            "default": {"x-mcp-header": 1}, "const": [{"x-mcp-header": ""}]});
        assert_eq!(of(&named), Vec::<String>::new());
    }

    #[test]
    fn wrong_header_param_mark_reports_its_reason() {
        for name in [json!(""), json!("a b"), json!("a:b"), json!("\u{e4}"), json!("a\r\nb"), json!(1), json!(null)] {
            assert!(of(&json!({"type": "string", "x-mcp-header": name}))[0].contains("name"), "{name}");
        }
        for kind in [json!("number"), json!("object"), json!("array"), json!(["string", "null"]), json!(null)] {
            assert!(of(&json!({"type": kind, "x-mcp-header": "A"}))[0].contains("something else"), "{kind}");
        }
        let marked = json!({"type": "string", "x-mcp-header": "A"});
        for elsewhere in [
            json!({"type": "array", "items": marked}),
            json!({"allOf": [{"properties": {"b": marked}}]}),
            json!({"if": {"properties": {"b": marked}}}),
            json!({"$defs": {"b": marked}}),
            json!({"additionalProperties": marked}),
        ] {
            assert!(of(&elsewhere)[0].contains("not on a property"), "{elsewhere}");
        }
        let twice = json!({"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "Aa"},
            "b": {"type": "string", "x-mcp-header": "aA"}}});
        assert!(problems(&twice)[0].contains("twice"));
    }
}
