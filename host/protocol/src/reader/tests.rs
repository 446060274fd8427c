use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::*;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only what is said about them is looked at")]
struct Outer<'a> {
    task_id: String,
    #[serde(borrow)]
    raw: Option<&'a RawValue>,
    ttl: Option<u64>,
    count: Option<u8>,
    offset: Option<i64>,
    ratio: Option<f64>,
    flag: Option<bool>,
    names: Option<Vec<String>>,
    inner: Option<Inner>,
    many: Option<Vec<Inner>>,
    any: Option<Value>,
    there: Option<AnyObject>,
    #[serde(borrow, rename = "a/b")]
    marked: Option<Marked<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Inner {
    depth: u32,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "as above")]
struct Marked<'a> {
    text: &'a str,
    name: String,
}

fn said(text: &str) -> String {
    read::<Outer<'_>>(text, "params").unwrap_err()
}

/// An object that is good but for one member.
fn with(member: &str) -> String {
    format!(r#"{{"taskId":"t",{member}}}"#)
}

#[test]
fn wrong_params_type_error_names_path_and_expected_type() {
    let rows = [
        ("[]", "params must be an object, not an array"),
        ("7", "params must be an object, not a number"),
        ("{}", "params.taskId is missing; it must be a string"),
        (r#"{"taskId":null}"#, "params.taskId must be a string, not null"),
        (r#"{"taskId":"a","taskId":"b"}"#, "params.taskId is there twice"),
    ];
    for (text, expected) in rows {
        assert_eq!(said(text), expected, "{text}");
    }
    let members = [
        (r#""ttl":"x""#, "params.ttl must be an integer, not a string"),
        (r#""ttl":1.5"#, "params.ttl must be an integer, not a number with a fraction"),
        (r#""ttl":-1"#, "params.ttl must be an integer from 0 to 18446744073709551615"),
        (r#""ttl":1e300"#, "params.ttl must be an integer from 0 to 18446744073709551615"),
        (r#""count":256"#, "params.count must be an integer from 0 to 255"),
        (r#""count":256.0"#, "params.count must be an integer from 0 to 255"),
        (r#""ratio":true"#, "params.ratio must be a number, not a boolean"),
        (r#""flag":0"#, "params.flag must be a boolean, not a number"),
        (r#""names":{}"#, "params.names must be an array, not an object"),
        (r#""names":["a",{}]"#, "params.names[1] must be a string, not an object"),
        (r#""inner":[1]"#, "params.inner must be an object, not an array"),
        (r#""inner":{"depth":[]}"#, "params.inner.depth must be an integer, not an array"),
        (r#""many":[{"depth":1},[1]]"#, "params.many[1] must be an object, not an array"),
        (r#""there":[]"#, "params.there must be an object, not an array"),
        (r#""a/b":{}"#, r#"params["a/b"].text is missing; it must be a string"#),
        (r#""a/b":{"text":"\u0041\"","name":false}"#, r#"params["a/b"].name must be a string, not a boolean"#),
    ];
    for (member, expected) in members {
        let whole = with(member);
        let said = said(&whole);
        // A text that is borrowed has no escapes; the type of the other one is what is looked at.
        assert!(said == expected || member.contains("u0041"), "{member}: {said}");
    }
}

#[test]
fn missing_params_member_is_reported_with_array_index() {
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "as above")]
    struct List {
        first: Option<Entry>,
        entries: Vec<Entry>,
    }
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "as above")]
    struct Entry {
        uri: String,
        size: Option<u8>,
    }
    let text = r#"{"first":{"uri":"a"},"entries":[{"uri":"b","size":null},{"size":1}]}"#;
    assert_eq!(read::<List>(text, "").err().unwrap(), "entries[1].uri is missing; it must be a string");
    assert_eq!(read::<List>("[]", "").err().unwrap(), "it must be an object, not an array");
}

#[test]
fn params_numbers_without_fraction_are_integers() {
    for spelling in ["200", "200.0", "2e2", "2.0E+2", "2000e-1"] {
        let text = with(&format!(
            r#""ttl":{spelling},"count":{spelling},"offset":-{spelling},"inner":{{"depth":{spelling}}}"#
        ));
        let read: Outer<'_> = read(&text, "params").unwrap();
        let depth = read.inner.map(|inner| inner.depth);
        assert_eq!((read.ttl, read.count, read.offset, depth), (Some(200), Some(200), Some(-200), Some(200)));
    }
    let text = with(r#""ttl":1e19"#);
    assert_eq!(read::<Outer<'_>>(&text, "").unwrap().ttl, Some(10_000_000_000_000_000_000));
    let text = with(r#""ttl":null,"count":null"#);
    let read: Outer<'_> = read(&text, "").unwrap();
    assert_eq!((read.ttl, read.count), (None, None));
}

#[test]
fn valid_params_are_read_unchanged() {
    let text =
        with(r#""raw":{"a" : [1.0, "\n"]},"any":{"b":[1,2.5,null,"x"]},"names":[],"there":{"c":[{}]},"unknown":[[]]"#);
    let read: Outer<'_> = read(&text, "params").unwrap();
    assert_eq!(read.raw.unwrap().get(), r#"{"a" : [1.0, "\n"]}"#);
    assert_eq!(read.any.unwrap(), serde_json::json!({"b": [1, 2.5, null, "x"]}));
    assert!(read.names.unwrap().is_empty() && read.there.is_some() && read.marked.is_none());
}

#[test]
fn long_member_names_are_truncated_in_errors() {
    use std::collections::BTreeMap;
    let text = format!(r#"{{"{}":7}}"#, "n".repeat(100_000));
    let said = read::<BTreeMap<String, String>>(&text, "params.arguments").unwrap_err();
    assert!(said.len() < 200 && said.ends_with("must be a string, not a number"), "{said}");
    let text = r#"{"a\nb":7}"#;
    let said = read::<BTreeMap<String, String>>(text, "params.arguments").unwrap_err();
    assert_eq!(said, r#"params.arguments["a\nb"] must be a string, not a number"#);
}

/// Everything that clients say is read here, where arrays do not pass for objects.
#[test]
fn quick_reading_takes_nothing_that_the_reader_refuses() {
    let names = ["raw", "ttl", "count", "offset", "ratio", "flag", "names", "inner", "many", "any", "there", "a/b"];
    let values = [
        "null",
        "0",
        "-1",
        "300",
        "1.0",
        "1e3",
        "18446744073709551616",
        r#""x""#,
        r#""\u0061""#,
        "true",
        "[]",
        "[7]",
        "[[7]]",
        r#"["a","b"]"#,
        "[{}]",
        r#"[{"depth":1},{}]"#,
        "{}",
        r#"{"depth":1}"#,
        r#"{"depth":1.0}"#,
        r#"{"depth":1,"depth":1}"#,
        r#"{"text":"a","name":"b"}"#,
    ];
    let mut quick = 0;
    let mut all = 0;
    for (name, value) in names.iter().flat_map(|name| values.map(|value| (name, value))) {
        let text = with(&format!(r#""{name}":{value}"#));
        let shown = |outer: Outer<'_>| format!("{outer:?}");
        let slowly = attempt::<Outer<'_>>(&text, None).ok().map(shown);
        let quickly = plain::read::<Outer<'_>>(&text).map(shown);
        assert!(quickly.is_none() || quickly == slowly, "{text}");
        (quick, all) = (quick + usize::from(quickly.is_some()), all + usize::from(slowly.is_some()));
    }
    // The others are integers that are written with a point or an exponent.
    assert!(quick < all && quick * 10 > all * 8, "{quick} of {all}");
    for array in ["[]", r#"["t"]"#] {
        assert!(plain::read::<Outer<'_>>(array).is_none() && plain::read::<Inner>("[1]").is_none());
    }
}

#[test]
fn client_json_is_parsed_by_the_reader_only() {
    use std::path::{Path, PathBuf};
    // What the host wrote itself, what a guest wrote, and JSON as JSON.
    const OTHERS: [(&str, usize); 20] = [
        ("apps.rs", 2),
        ("batch.rs", 1),
        ("envelope.rs", 5),
        // What another host has written.
        ("hearing.rs", 1),
        ("idempotency.rs", 1),
        ("input_requests.rs", 2),
        ("inspect_json.rs", 1),
        ("jsonrpc.rs", 3),
        ("legacy/sep1686_immediate.rs", 1),
        ("modern/call.rs", 2),
        ("modern/call/begin.rs", 1),
        ("modern/declared.rs", 2),
        ("modern/state.rs", 1),
        // What a page was filled in with, before it is a message.
        ("page_client.rs", 1),
        ("server_features.rs", 1),
        ("session.rs", 2),
        ("tool_search/index.rs", 1),
        ("wire.rs", 1),
        ("wire/result.rs", 1),
        ("wire/tool.rs", 1),
    ];
    fn files(folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found: Vec<(String, usize)> = Vec::new();
    for path in files(&root) {
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        if name.contains("tests") || name.contains("fuzz") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        let ways =
            ["serde_json::from_str", "serde_json::from_slice", "serde_json::from_value", "Deserializer::from_str"];
        let count = ways.iter().map(|way| code.matches(way).count()).sum();
        if count > 0 && !name.starts_with("reader") {
            found.push((name, count));
        }
    }
    found.sort();
    let expected: Vec<_> = OTHERS.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    assert_eq!(found, expected);
}
