//! JSON texts that come out of a guest: checked once, at the border.
//!
//! Owns that border: every JSON text of a guest comes through [`accept`]. Invariant: what passes is well-formed and
//! made of Unicode characters, so that every reader of JSON can read it.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::limits::JSON_DEPTH_MAX;
use bulkhead_domain::Json;
use bulkhead_domain::tool::Meta;

/// Accepts a well-formed text that is not nested too deeply. Line breaks between values are dropped, so that it can
/// stand in a message of one line, and halves of surrogate pairs become U+FFFD; everything else stays as it was
/// written.
///
/// # Errors
///
/// What is wrong, in words that may be shown.
pub(super) fn accept(text: &str) -> Result<Json, String> {
    serde_json::from_str::<&RawValue>(text).map_err(|error| format!("not well-formed JSON: {error}"))?;
    let depth = depth(text);
    if depth > JSON_DEPTH_MAX {
        return Err(format!("JSON nested {depth} deep; {JSON_DEPTH_MAX} is the most"));
    }
    // Line breaks are legal between values only, never inside strings.
    let text = only_characters(text);
    Ok(if text.contains(['\n', '\r']) { Json::new(text.replace(['\n', '\r'], "")) } else { Json::new(text) })
}

/// Which half of a surrogate pair an escape stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    Leading,
    Trailing,
}

/// Bytes of `\uXXXX`.
const ESCAPE_BYTES: usize = 6;

/// Puts U+FFFD in the place of every half of a surrogate pair that stands alone, as in half an emoji that JavaScript
/// has cut. No character is meant by it (RFC 8259, 8.2), and readers refuse the whole message. The text is well-formed
/// otherwise.
fn only_characters(text: &str) -> Cow<'_, str> {
    if !text.contains("\\ud") && !text.contains("\\uD") {
        return Cow::Borrowed(text);
    }
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        written.push_str(before);
        let first = half(escape);
        let second = escape.get(ESCAPE_BYTES..).and_then(half);
        let taken = match (first, second) {
            (Some(Half::Leading), Some(Half::Trailing)) => 2 * ESCAPE_BYTES,
            (Some(_), _) => ESCAPE_BYTES,
            // Of any other escape the first two bytes are enough: what follows holds no backslash of its own.
            (None, _) => 2,
        };
        let (escape, after) = escape.split_at_checked(taken).unwrap_or((escape, ""));
        written.push_str(if taken == ESCAPE_BYTES { "\\ufffd" } else { escape });
        rest = after;
    }
    written.push_str(rest);
    Cow::Owned(written)
}

/// The half that stands at the beginning of a text.
fn half(text: &str) -> Option<Half> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    match u16::from_str_radix(digits, 16).ok()? {
        0xD800..=0xDBFF => Some(Half::Leading),
        0xDC00..=0xDFFF => Some(Half::Trailing),
        _ => None,
    }
}

/// Accepts a well-formed text that holds an object.
///
/// # Errors
///
/// As [`accept`].
pub(super) fn accept_object(text: &str) -> Result<Json, String> {
    if !text.trim_start().starts_with('{') {
        return Err("not a JSON object".to_owned());
    }
    accept(text)
}

/// Accepts (key, JSON) pairs whose keys follow the grammar of MCP's `_meta` and are nobody else's.
///
/// # Errors
///
/// Names the key.
pub(super) fn accept_meta(pairs: Vec<(String, String)>) -> Result<Meta, String> {
    pairs
        .into_iter()
        .map(|(key, value)| {
            if !is_meta_key(&key) {
                return Err(format!("meta key {key:?} does not follow the grammar of MCP (prefix/name)"));
            }
            if is_reserved(&key) {
                return Err(format!("meta key {key:?} is reserved"));
            }
            let value = accept(&value).map_err(|wrong| format!("meta {key:?}: {wrong}"))?;
            Ok((key, value))
        })
        .collect()
}

/// Optional dot-separated labels and a slash, then a name.
fn is_meta_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let is_label = |label: &str| {
        label.starts_with(|first: char| first.is_ascii_alphabetic())
            && label.ends_with(|last: char| last.is_ascii_alphanumeric())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    prefix.is_none_or(|prefix| prefix.split('.').all(is_label))
        && key.len() <= 256
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.ends_with(|last: char| last.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// MCP keeps prefixes whose second label is `modelcontextprotocol` or `mcp`, and the bare token of progress. Meta of a
/// plugin must not pass for the protocol's.
pub(super) fn is_reserved(key: &str) -> bool {
    let Some((prefix, _)) = key.split_once('/') else { return key == "progressToken" };
    prefix.split('.').take(2).any(|label| matches!(label, "modelcontextprotocol" | "mcp"))
}

/// How deep arrays and objects nest. The text is well-formed.
fn depth(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut deepest = 0;
    let mut in_string = false;
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => _ = bytes.next(),
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_guest_json_is_refused() {
        for text in ["", "{\"number\": ", "{} {}", "nul", "\"\u{1}\""] {
            assert!(accept(text).is_err(), "{text}");
        }
        assert_eq!(accept(" {\"a\":\n1.50}").unwrap().as_str(), " {\"a\":1.50}");
    }

    #[test]
    fn half_a_surrogate_pair_in_guest_json_becomes_a_replacement_character() {
        for (written, expected) in [
            (r#"{"start":"ab\ud83d"}"#, r#"{"start":"ab\ufffd"}"#),
            (r#"{"\uDE00end":1}"#, r#"{"\ufffdend":1}"#),
            (r#"["\ud83d\ude00"]"#, r#"["\ud83d\ude00"]"#),
            (r#"["\uD83D\uDE00\uD83D"]"#, r#"["\uD83D\uDE00\ufffd"]"#),
            (r#"["\ud83d\ud83d\ude00"]"#, r#"["\ufffd\ud83d\ude00"]"#),
            (r#"["\ud83d\n\ude00"]"#, r#"["\ufffd\n\ufffd"]"#),
            (r#"["\ud83dx\u0041"]"#, r#"["\ufffdx\u0041"]"#),
            // Behind a backslash that is meant as one there is no escape.
            (r#"["\\ud83d"]"#, r#"["\\ud83d"]"#),
            (r#"["\\\ud83d"]"#, r#"["\\\ufffd"]"#),
            ("[\"\\ud83d\u{1f6e0}\",\n1]", "[\"\\ufffd\u{1f6e0}\",1]"),
        ] {
            let accepted = accept(written).unwrap();
            assert_eq!(accepted.as_str(), expected);
            assert!(serde_json::from_str::<serde_json::Value>(accepted.as_str()).is_ok(), "{written}");
        }
        let meta = accept_meta(vec![("a".to_owned(), r#""\udfff""#.to_owned())]).unwrap();
        assert_eq!(meta[0].1.as_str(), r#""\ufffd""#);
        assert_eq!(accept_object(r#"{"a":"\ud800"}"#).unwrap().as_str(), r#"{"a":"\ufffd"}"#);
    }

    #[test]
    fn deeply_nested_guest_json_is_refused() {
        let deep = "[".repeat(65) + &"]".repeat(65);
        assert!(accept(&deep).unwrap_err().contains("65 deep"));
        let flat = format!("[\"{}\\\"[\"]", "[".repeat(100));
        assert!(accept(&flat).is_ok());
    }

    #[test]
    fn meta_keys_follow_the_grammar_and_leave_reserved_ones_alone() {
        let accepts = |key: &str| accept_meta(vec![(key.to_owned(), "1".to_owned())]).is_ok();
        for key in ["a", "example.com/thing", "com.example.x/a_b.c-d", "dev.bulkhead/x"] {
            assert!(accepts(key), "{key}");
        }
        for key in
            ["", "/a", "a/", "1a.b/c", "a b", "progressToken", "io.modelcontextprotocol/related-task", "mcp.dev/x"]
        {
            assert!(!accepts(key), "{key}");
        }
    }
}
