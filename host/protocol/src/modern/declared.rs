//! Whether what a client declared beside its message is what the message says.
//!
//! Intermediaries route by these values without reading the body; a difference would let them decide about another
//! request than the one that is served.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::params_index::Members;
use crate::Declared;
use crate::error::RpcError;
use crate::methods::{Method, Subject};
use bulkhead_domain::Json;

/// Where deeper schemas are not looked through for declared arguments.
const DEPTH_MAX: usize = 16;

/// Version, method and name.
pub(super) fn check(
    declared: &Declared<'_>,
    version: &str,
    name: &str,
    method: Option<Method>,
    members: &Members<'_>,
) -> Result<(), RpcError> {
    equal("MCP-Protocol-Version", declared.protocol_version.as_deref(), version)?;
    equal("Mcp-Method", declared.method.as_deref(), name)?;
    let named = match method {
        Some(Method::ToolsCall | Method::PromptsGet) => members.name.text(),
        Some(Method::ResourcesRead) => members.uri.text(),
        Some(method) if matches!(method.subject(), Subject::Tasks | Subject::Steer | Subject::Pause) => {
            members.task_id.text()
        }
        _ => return Ok(()),
    };
    // A message without the member is refused for that, later.
    let Some(named) = named else { return Ok(()) };
    match declared.name.as_deref() {
        // Clients in the field forget it here, and nothing is lost: the id is a secret of the requestor.
        None if matches!(method, Some(Method::TasksGet | Method::TasksUpdate | Method::TasksCancel)) => Ok(()),
        None => Err(missing("Mcp-Name")),
        Some(value) if decoded("Mcp-Name", value)? == named => Ok(()),
        Some(_) => Err(different("Mcp-Name")),
    }
}

fn missing(header: &str) -> RpcError {
    RpcError::header_mismatch(format!("{header} is missing: it must repeat what the message says"))
}

fn different(header: &str) -> RpcError {
    RpcError::header_mismatch(format!("{header} is not what the message says"))
}

fn equal(header: &str, value: Option<&str>, expected: &str) -> Result<(), RpcError> {
    match value {
        None => Err(missing(header)),
        Some(value) if literal(header, value)? == expected => Ok(()),
        Some(_) => Err(different(header)),
    }
}

/// A value as it stands there, without the white space around it.
fn literal<'a>(header: &str, value: &'a str) -> Result<&'a str, RpcError> {
    let value = value.trim_matches([' ', '\t']);
    if value.bytes().all(|byte| matches!(byte, b'\t' | 0x20..=0x7e)) {
        Ok(value)
    } else {
        Err(RpcError::header_mismatch(format!("{header} may have visible ASCII only; write other texts in base64")))
    }
}

/// A value that may be wrapped: `=?base64?…?=`.
fn decoded<'a>(header: &str, value: &'a str) -> Result<Cow<'a, str>, RpcError> {
    let value = literal(header, value)?;
    let Some(wrapped) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Ok(Cow::Borrowed(value));
    };
    let bytes = STANDARD.decode(wrapped).ok();
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).map(Cow::Owned).ok_or_else(|| {
        RpcError::header_mismatch(format!("{header} is not base64 of UTF-8, with padding, in =?base64? and ?="))
    })
}

/// The arguments that the tool wants repeated.
pub(super) fn check_params(declared: &Declared<'_>, schema: &Json, arguments: &str) -> Result<(), RpcError> {
    const MARK: &str = "x-mcp-header";
    // Most schemas have none.
    if !schema.as_str().contains(MARK) {
        return Ok(());
    }
    let (Ok(schema), Ok(arguments)) =
        (serde_json::from_str::<Value>(schema.as_str()), serde_json::from_str::<Value>(arguments))
    else {
        return Ok(());
    };
    let mut places = vec![(&schema, Some(&arguments), 0)];
    while let Some((schema, value, depth)) = places.pop() {
        if let Some(name) = schema.get(MARK).and_then(Value::as_str) {
            check_param(declared, name, value.filter(|value| !value.is_null()))?;
        }
        let properties = schema.get("properties").and_then(Value::as_object).filter(|_| depth < DEPTH_MAX);
        for (property, schema) in properties.into_iter().flatten() {
            places.push((schema, value.and_then(|value| value.get(property)), depth + 1));
        }
    }
    Ok(())
}

fn check_param(declared: &Declared<'_>, name: &str, argument: Option<&Value>) -> Result<(), RpcError> {
    let header = format!("Mcp-Param-{name}");
    let mut values =
        declared.params.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    let value = values.next();
    let again = values.next();
    match (value, argument) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err(missing(&header)),
        (Some(_), None) => Err(different(&header)),
        (Some(value), Some(argument)) => {
            let value = decoded(&header, value)?;
            if again.is_none() && says(&value, argument) { Ok(()) } else { Err(different(&header)) }
        }
    }
}

/// Numbers are compared as numbers.
fn says(value: &str, argument: &Value) -> bool {
    match argument {
        Value::String(text) => value == text,
        Value::Bool(flag) => value == if *flag { "true" } else { "false" },
        Value::Number(number) => {
            let exact = number.as_i64().zip(value.parse::<i64>().ok());
            match exact {
                Some((number, value)) => number == value,
                None => number.as_f64().zip(value.parse::<f64>().ok()).is_some_and(|(number, value)| number == value),
            }
        }
        // Only the three kinds above can be declared; the schema refuses the others.
        Value::Null | Value::Array(_) | Value::Object(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared<'a>(params: &[(&'a str, &'a str)]) -> Declared<'a> {
        let params = params.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Declared { params, ..Declared::default() }
    }

    fn check_with(params: &[(&str, &str)], arguments: &str) -> bool {
        let schema = r#"{"type":"object","properties":{
            "region":{"type":"string","x-mcp-header":"Region"},
            "count":{"type":"integer","x-mcp-header":"Count"},
            "nested":{"type":"object","properties":{"dry":{"type":"boolean","x-mcp-header":"Dry-Run"}}}}}"#;
        check_params(&declared(params), &Json::new(schema), arguments).is_ok()
    }

    #[test]
    fn declared_header_arguments_must_match_message() {
        assert!(check_with(&[], "{}"));
        assert!(check_with(&[], r#"{"region":null}"#));
        assert!(check_with(&[("region", " Hello ")], r#"{"region":"Hello"}"#));
        assert!(check_with(&[("Region", "=?base64?SGVsbG8=?=")], r#"{"region":"Hello"}"#));
        assert!(check_with(&[("Region", "=?base64?SGVsbG8=")], r#"{"region":"=?base64?SGVsbG8="}"#));
        assert!(check_with(&[("Region", "SGVsbG8=")], r#"{"region":"SGVsbG8="}"#));
        assert!(check_with(&[("Dry-Run", "true")], r#"{"nested":{"dry":true}}"#));
        assert!(!check_with(&[], r#"{"region":"Hello"}"#));
        assert!(!check_with(&[("Region", "hello")], r#"{"region":"Hello"}"#));
        assert!(!check_with(&[("Region", "Hello")], "{}"));
        assert!(!check_with(&[("Region", "Hello"), ("REGION", "Hello")], r#"{"region":"Hello"}"#));
        assert!(!check_with(&[("Region", "=?base64?SGVsbG8?=")], r#"{"region":"Hello"}"#));
        assert!(!check_with(&[("Region", "=?base64?SGVs!!!bG8=?=")], r#"{"region":"Hello"}"#));
        assert!(!check_with(&[("Region", "H\u{e4}llo")], "{\"region\":\"H\u{e4}llo\"}"));
        assert!(!check_with(&[("Dry-Run", "True")], r#"{"nested":{"dry":true}}"#));
    }

    #[test]
    fn declared_integer_arguments_are_compared_as_numbers() {
        assert!(check_with(&[("Count", "42.0")], r#"{"count":42}"#));
        assert!(check_with(&[("Count", "42")], r#"{"count":42.0}"#));
        assert!(!check_with(&[("Count", "43")], r#"{"count":42}"#));
        assert!(!check_with(&[("Count", "9007199254740993")], r#"{"count":9007199254740992}"#));
        assert!(!check_with(&[("Count", "forty-two")], r#"{"count":42}"#));
    }
}
