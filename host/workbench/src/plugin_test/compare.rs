//! What came out, beside what was expected.

use serde_json::Value;

use super::format::Expectation;

/// How a call ended, as a client would see it.
#[derive(Clone, Debug)]
pub(super) enum Ended {
    /// With the result as JSON.
    Result(Value),
    /// Without one, and why.
    Failed(String),
}

/// Everything in which a call's end differs; a failure has a line for each side.
pub(super) fn differences(expected: &Expectation, ended: &Ended) -> Vec<String> {
    let mut found = Vec::new();
    let result = match (ended, &expected.error) {
        (Ended::Failed(why), Some(part)) => {
            if !why.contains(part.as_str()) {
                found.push(sides("the error", &format!("... {part} ..."), why));
            }
            return found;
        }
        (Ended::Failed(why), None) => return vec![format!("the call failed: {why}")],
        (Ended::Result(result), _) => result,
    };
    let text = texts(result);
    let is_error = result.get("isError") == Some(&Value::Bool(true));
    match &expected.error {
        Some(part) if !is_error => {
            return vec![sides("the error", &format!("... {part} ..."), &format!("no error, but {text}"))];
        }
        Some(part) if !text.contains(part.as_str()) => {
            found.push(sides("the error", &format!("... {part} ..."), &text))
        }
        None if is_error && expected.result.is_none() && expected.contains.is_none() => {
            return vec![format!("the tool reported an error: {text}")];
        }
        _ => {}
    }
    if let Some(expected) = expected.text.as_ref().filter(|expected| **expected != text) {
        found.push(sides("the text", expected, &text));
    }
    if let Some(part) = expected.text_contains.as_ref().filter(|part| !text.contains(part.as_str())) {
        found.push(sides("the text", &format!("... {part} ..."), &text));
    }
    if let Some(structured) = &expected.structured {
        exact("/structuredContent", structured, result.get("structuredContent").unwrap_or(&Value::Null), &mut found);
    }
    if let Some(whole) = &expected.result {
        exact("", whole, result, &mut found);
    }
    if let Some(part) = &expected.contains {
        subset("", part, result, &mut found);
    }
    found
}

/// All texts of a result, one a line.
fn texts(result: &Value) -> String {
    let content = result.get("content").and_then(Value::as_array).into_iter().flatten();
    content.filter_map(|item| item.get("text").and_then(Value::as_str)).collect::<Vec<_>>().join("\n")
}

/// Two texts, line by line where they have several.
fn sides(what: &str, expected: &str, found: &str) -> String {
    let side = |sign: char, text: &str| text.lines().map(|line| format!("\n  {sign} {line}")).collect::<String>();
    format!("{what} differs (- expected, + found):{}{}", side('-', expected), side('+', found))
}

fn exact(path: &str, expected: &Value, found: &Value, differences: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(wanted), Value::Object(there)) => {
            for (key, value) in wanted {
                match there.get(key) {
                    Some(found) => exact(&format!("{path}/{key}"), value, found, differences),
                    None => differences.push(missing(&format!("{path}/{key}"), value)),
                }
            }
            for (key, value) in there.iter().filter(|(key, _)| !wanted.contains_key(*key)) {
                differences.push(format!("{path}/{key} is there, and not expected:\n  + {value}"));
            }
        }
        (Value::Array(wanted), Value::Array(there)) if wanted.len() == there.len() => {
            for (at, (value, found)) in wanted.iter().zip(there).enumerate() {
                exact(&format!("{path}/{at}"), value, found, differences);
            }
        }
        _ if is_equal(expected, found) => {}
        _ => differences.push(value_sides(path, expected, found)),
    }
}

/// Members that are named must be there; a list must have as many items.
fn subset(path: &str, expected: &Value, found: &Value, differences: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(wanted), Value::Object(there)) => {
            for (key, value) in wanted {
                match there.get(key) {
                    Some(found) => subset(&format!("{path}/{key}"), value, found, differences),
                    None => differences.push(missing(&format!("{path}/{key}"), value)),
                }
            }
        }
        (Value::Array(wanted), Value::Array(there)) if wanted.len() == there.len() => {
            for (at, (value, found)) in wanted.iter().zip(there).enumerate() {
                subset(&format!("{path}/{at}"), value, found, differences);
            }
        }
        _ if is_equal(expected, found) => {}
        _ => differences.push(value_sides(path, expected, found)),
    }
}

/// JSON has one kind of number: `3` and `3.0` are the same.
fn is_equal(expected: &Value, found: &Value) -> bool {
    match (expected.as_f64(), found.as_f64()) {
        (Some(expected), Some(found)) if expected.fract() != 0.0 || found.fract() != 0.0 => expected == found,
        (Some(expected), Some(found)) if expected.abs() < 9e15 => expected == found,
        _ => expected == found,
    }
}

fn missing(path: &str, expected: &Value) -> String {
    format!("{path} is not there:\n  - {expected}")
}

fn value_sides(path: &str, expected: &Value, found: &Value) -> String {
    let at = if path.is_empty() { "the result" } else { path };
    match (expected.as_str(), found.as_str()) {
        (Some(expected), Some(found)) => sides(at, expected, found),
        _ => sides(at, &expected.to_string(), &found.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(expected: &str, ended: &Ended) -> Vec<String> {
        differences(&toml::from_str(expected).unwrap(), ended)
    }

    #[test]
    fn expectations_that_hold_differ_in_nothing() {
        let ended = Ended::Result(json!({
            "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
            "structuredContent": {"n": 3.0, "list": [1, {"a": 1, "b": 2}]},
        }));
        for holds in [
            "text = \"one\\ntwo\"",
            "text_contains = 'e\ntw'".replace('\n', "\\n").replace('\'', "\"").as_str(),
            "structured = { n = 3, list = [1, { a = 1, b = 2 }] }",
            "contains = { structuredContent = { list = [1, { b = 2 }] } }",
        ] {
            assert_eq!(found(holds, &ended), Vec::<String>::new(), "{holds}");
        }
        let failed = Ended::Failed("the plugin refused the arguments: too long".to_owned());
        assert_eq!(found("error = 'too long'", &failed), Vec::<String>::new());
        let error = Ended::Result(json!({"content": [{"type": "text", "text": "no such city"}], "isError": true}));
        assert_eq!(found("error = 'such city'", &error), Vec::<String>::new());
    }

    #[test]
    fn expectations_that_do_not_hold_are_shown_with_both_sides() {
        let ended = Ended::Result(json!({
            "content": [{"type": "text", "text": "Hello, Ada!"}],
            "structuredContent": {"n": 3, "more": true},
        }));
        for (expected, parts) in [
            ("text = 'Hello, Eve!'", &["the text differs", "- Hello, Eve!", "+ Hello, Ada!"][..]),
            ("text_contains = 'Bye'", &["- ... Bye ...", "+ Hello, Ada!"]),
            ("structured = { n = 4, more = true }", &["/structuredContent/n differs", "- 4", "+ 3"]),
            ("structured = { n = 3 }", &["/structuredContent/more is there, and not expected"]),
            ("contains = { structuredContent = { m = 1 } }", &["/structuredContent/m is not there"]),
            ("contains = { content = [] }", &["/content differs"]),
            ("error = 'x'", &["no error, but Hello, Ada!"]),
        ] {
            let found = found(expected, &ended).join("\n");
            assert!(parts.iter().all(|part| found.contains(part)), "{expected}: {found}");
        }
        let failed = Ended::Failed("a limit".to_owned());
        assert_eq!(found("text = 'x'", &failed), ["the call failed: a limit"]);
        assert!(found("error = 'another'", &failed)[0].contains("+ a limit"));
        let error = Ended::Result(json!({"content": [{"type": "text", "text": "no"}], "isError": true}));
        assert_eq!(found("text = 'no'", &error), ["the tool reported an error: no"]);
    }
}
