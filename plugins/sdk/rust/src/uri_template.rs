//! URI templates, as far as a plugin reads them: `{name}` and `{+name}`.

use std::collections::BTreeMap;

/// The variables of a URI that fits, or `None`. The first way to fit is taken: an expression takes as little as it can.
pub(crate) fn variables(template: &str, uri: &str) -> Option<BTreeMap<String, String>> {
    let Some((literal, rest)) = template.split_once('{') else {
        return (template == uri).then(BTreeMap::new);
    };
    let uri = uri.strip_prefix(literal)?;
    let (expression, rest) = rest.split_once('}')?;
    let (name, crosses) = match expression.strip_prefix('+') {
        Some(name) => (name, true),
        None => (expression, false),
    };
    let ends = uri.char_indices().map(|(at, character)| (at + character.len_utf8(), character));
    for (end, character) in ends {
        if !crosses && matches!(character, '/' | '?' | '#') {
            return None;
        }
        let (value, remainder) = uri.split_at(end);
        if let Some(mut found) = variables(rest, remainder) {
            found.insert(name.to_owned(), decoded(value));
            return Some(found);
        }
    }
    None
}

/// Removes percent-encoding; what is not well encoded stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| *first == b'%').and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(template: &str, uri: &str) -> Option<Vec<(String, String)>> {
        variables(template, uri).map(|found| found.into_iter().collect())
    }

    #[test]
    fn uri_template_expressions_take_one_segment_or_all() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(fits("t://{id}/data", "t://12%203/data"), Some(vec![pair("id", "12 3")]));
        assert_eq!(fits("t://{id}/data", "t://1/2/data"), None);
        assert_eq!(fits("t://{id}/data", "t:///data"), None);
        assert_eq!(fits("f:///{+path}", "f:///a/b"), Some(vec![pair("path", "a/b")]));
        assert_eq!(fits("t://{a}.{b}", "t://x.y.z"), Some(vec![pair("a", "x"), pair("b", "y.z")]));
        assert_eq!(fits("t://x", "t://x"), Some(vec![]));
    }
}
