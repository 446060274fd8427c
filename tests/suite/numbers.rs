//! Numbers of every type in every form, as guests in each language take and return them: what is sent arrives, on both
//! sides.
//!
//! Owns the table and what is known to be wrong in it. The guests (`tests/fixtures/numbers`) put down in words what
//! they were given, and return the numbers that they are sent in words, so that two faults cannot make up for each
//! other.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tests::client::{Client, Failure};
use tests::{Setup, place};

use crate::components::{self, Made, Source};

/// Each type with the numbers that are tried, as JSON.
const NUMBERS: [(&str, &str); 10] = [
    ("u8", "[0, 1, 255]"),
    ("u16", "[0, 65535]"),
    ("u32", "[1, 2147483647, 2147483648, 3000000000, 4294967295]"),
    ("u64", r#"[1, 9007199254740991, "9007199254740992", "18446744073709551615"]"#),
    ("s8", "[-128, -1, 127]"),
    ("s16", "[-32768, 32767]"),
    ("s32", "[-2147483648, -1, 2147483647]"),
    ("s64", r#"[1, -1, -9007199254740991, "-9223372036854775808", "9223372036854775807"]"#),
    ("f32", r#"[0.5, -16777216.0, 3.4028235e38, "NaN", "-Infinity"]"#),
    ("f64", r#"[0.1, 5e-324, -1.7976931348623157e308, "NaN", "Infinity"]"#),
];

/// What a guest says and takes for an option without a number.
const NONE: &str = "none";

/// How a number is a parameter or a result.
#[derive(Clone, Copy)]
enum Form {
    Bare,
    Option,
    /// The only field of a record, which the canonical ABI passes like the bare number.
    One,
    /// A field among others.
    Two,
    List,
}

impl Form {
    const ALL: [Self; 5] = [Self::Bare, Self::Option, Self::One, Self::Two, Self::List];

    /// As the names of the guests' functions begin.
    fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Option => "option",
            Self::One => "one",
            Self::Two => "two",
            Self::List => "list",
        }
    }

    /// The values that are sent and come back, with the words for them.
    fn values(self, ty: &str, numbers: &[Value]) -> Vec<(String, Value)> {
        let each = numbers.iter().map(|number| (words(number), number.clone()));
        match self {
            Self::Bare => each.collect(),
            Self::Option => each.chain([(NONE.to_owned(), Value::Null)]).collect(),
            Self::One => each.map(|(words, number)| (words, json!({ "value": number }))).collect(),
            Self::Two => each.map(|(words, number)| (words, json!({"other": true, "value": number}))).collect(),
            Self::List => {
                let words = numbers.iter().map(words).collect::<Vec<_>>().join(" ");
                let bytes =
                    || numbers.iter().map(|number| u8::try_from(number.as_u64().expect("a byte")).expect("a byte"));
                let value = match ty {
                    "u8" => json!(BASE64_STANDARD.encode(bytes().collect::<Vec<_>>())),
                    _ => json!(numbers),
                };
                vec![(words, value)]
            }
        }
    }

    /// The structured result of a function that returns a value in this form.
    fn result(self, value: &Value) -> Value {
        match self {
            Self::One | Self::Two => value.clone(),
            Self::Bare | Self::Option | Self::List => json!({ "result": value }),
        }
    }
}

/// A number in the words that every language reads.
fn words(number: &Value) -> String {
    number.as_str().map_or_else(|| number.to_string(), str::to_owned)
}

/// Whether a guest put the same numbers down, each language in its own way where they have a fraction.
fn are_same(ty: &str, words: &str, expected: &str) -> bool {
    let same = |(one, other): (&str, &str)| match ty {
        "f32" => bits(one.parse::<f32>().map(f64::from)) == bits(other.parse::<f32>().map(f64::from)),
        "f64" => bits(one.parse::<f64>()) == bits(other.parse::<f64>()),
        _ => one == other,
    };
    let count = words.split(' ').count();
    count == expected.split(' ').count() && words.split(' ').zip(expected.split(' ')).all(same)
}

/// A number that is equal to itself; a word that is no number is as it stands.
fn bits(number: Result<f64, std::num::ParseFloatError>) -> Option<u64> {
    number.ok().map(|number| if number.is_nan() { f64::NAN.to_bits() } else { number.to_bits() })
}

/// A guest on a host of its own, which goes on after faults.
async fn differences(source: &Source<'_>) -> Vec<String> {
    let component = components::make(source);
    let plugin = format!("[[plugin]]\nname = \"numbers\"\nfile = {component:?}\nquarantine_after = 0\n");
    let host = Setup::new().config(&plugin).start_within(Duration::from_secs(600)).await;
    let client = Client::connect(&host).await;
    let mut differences = Vec::new();
    for (ty, numbers) in NUMBERS {
        let numbers: Vec<Value> = serde_json::from_str(numbers).expect("JSON");
        for form in Form::ALL {
            for (words, value) in form.values(ty, &numbers) {
                let argument = if value.is_null() { json!({}) } else { json!({ "x": value }) };
                let arrived = client.tool(&tool(ty, form, "in"), argument).await;
                let taken = arrived.as_ref().ok().and_then(|result| result["structuredContent"]["result"].as_str());
                if !taken.is_some_and(|taken| if words == NONE { taken == NONE } else { are_same(ty, taken, &words) }) {
                    differences.push(format!("{ty} {} in {words}: {}", form.name(), outcome(&arrived)));
                }
                let returned = client.tool(&tool(ty, form, "out"), json!({ "text": words })).await;
                let is_same = returned.as_ref().is_ok_and(|result| result["structuredContent"] == form.result(&value));
                if !is_same {
                    differences.push(format!("{ty} {} out {words}: {}", form.name(), outcome(&returned)));
                }
            }
        }
    }
    differences
}

fn tool(ty: &str, form: Form, direction: &str) -> String {
    format!("acme_numbers_of-{ty}_{}-{direction}", form.name())
}

/// What came instead, in a line.
fn outcome(result: &Result<Value, Failure>) -> String {
    match result {
        Ok(result) if result["isError"] != true => result["structuredContent"].to_string(),
        Err(Failure { code: 1001, .. }) => "it ends".to_owned(),
        other => format!("{other:?}"),
    }
}

fn source<'a>(name: &'a str, made: &'a Made) -> Source<'a> {
    Source { name, folder: place::root().join("tests/fixtures/numbers"), made }
}

#[tokio::test]
async fn numbers_of_every_type_arrive_at_and_from_guests_in_rust() {
    assert_eq!(differences(&source("foreign_numbers", &Made::Rust)).await, Vec::<String>::new());
}

#[tokio::test]
async fn numbers_of_every_type_arrive_at_and_from_guests_in_c() {
    if place::left_out(&["c"]) {
        return;
    }
    assert_eq!(differences(&source("numbers-c", &Made::C)).await, Vec::<String>::new());
}

/// Making and compiling a component with an interpreter takes half a minute. What the host does with numbers is the
/// same for all languages; this sees what the languages' tools do.
#[tokio::test]
async fn numbers_arrive_at_and_from_guests_in_python_but_lists_of_s8() {
    if place::rounds(0, 1) == 0 || place::left_out(&["python"]) {
        return;
    }
    let made = Made::Python { world: "numbers" };
    // componentize-py 0.25.1 takes a list of s8 for bytes, as it does one of u8, where 255 is no -1.
    let known = [r#"s8 list in -128 -1 127: {"result":"128 255 127"}"#, "s8 list out -128 -1 127: it ends"];
    assert_eq!(differences(&source("numbers-python", &made)).await, known);
}

/// componentize-js 0.23.0 changes some; `plugin check` names the functions.
#[tokio::test]
async fn numbers_arrive_at_and_from_guests_in_javascript_but_where_plugin_check_warns() {
    if place::rounds(0, 1) == 0 || place::left_out(&["javascript"]) {
        return;
    }
    let made = Made::JavaScript { world: "numbers", without: "stdio,random,clocks,http,fetch-event" };
    let known = [
        r#"u32 bare out 2147483648: {"result":0}"#,
        r#"u32 bare out 3000000000: {"result":3221225472}"#,
        r#"u32 bare out 4294967295: {"result":4292870144}"#,
        r#"u32 one out 2147483648: {"value":0}"#,
        r#"u32 one out 3000000000: {"value":3221225472}"#,
        r#"u32 one out 4294967295: {"value":4292870144}"#,
        r#"s64 bare in -1: {"result":"18446744073709551615"}"#,
        "s64 bare out -1: it ends",
        r#"s64 bare in -9007199254740991: {"result":"18437736874454810625"}"#,
        "s64 bare out -9007199254740991: it ends",
        r#"s64 bare in -9223372036854775808: {"result":"9223372036854775808"}"#,
        "s64 bare out -9223372036854775808: it ends",
        r#"s64 option in -1: {"result":"18446744073709551615"}"#,
        r#"s64 option in -9007199254740991: {"result":"18437736874454810625"}"#,
        r#"s64 option in -9223372036854775808: {"result":"9223372036854775808"}"#,
        r#"s64 one in -1: {"result":"18446744073709551615"}"#,
        "s64 one out -1: it ends",
        r#"s64 one in -9007199254740991: {"result":"18437736874454810625"}"#,
        "s64 one out -9007199254740991: it ends",
        r#"s64 one in -9223372036854775808: {"result":"9223372036854775808"}"#,
        "s64 one out -9223372036854775808: it ends",
        r#"s64 two in -1: {"result":"18446744073709551615"}"#,
        r#"s64 two in -9007199254740991: {"result":"18437736874454810625"}"#,
        r#"s64 two in -9223372036854775808: {"result":"9223372036854775808"}"#,
    ];
    assert_eq!(differences(&source("numbers-javascript", &made)).await, known);
}
