//! JSON from a client, read into the types of a plugin.
//!
//! Owns one rule: a number without a fraction is an integer, however it is written, as JSON Schema says. `serde_json`
//! takes `2.0` and `1e2` for floats, and no integer type takes a float. Invariant: text that reads as it is, is read as
//! it is.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

/// Digits of the longest integer that a Rust type holds. Stops `1e999999999` from becoming a gigabyte of zeros.
const DIGITS_MAX: usize = 39;

/// Reads a value. Costs nothing beside `serde_json` unless the text does not fit.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    serde_json::from_str(text).or_else(|error| match with_plain_integers(text) {
        Cow::Borrowed(_) => Err(error),
        Cow::Owned(plain) => serde_json::from_str(&plain),
    })
}

/// The same JSON with `100` in the place of `100.0` and `1e2`.
fn with_plain_integers(text: &str) -> Cow<'_, str> {
    let mut plain = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            b'"' => at += string_length(&text[at..]),
            b'-' | b'0'..=b'9' => {
                let end = text[at..].find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E'));
                let end = end.map_or(text.len(), |length| at + length);
                if let Some(integer) = as_integer(&text[at..end]) {
                    plain.push_str(&text[copied..at]);
                    plain.push_str(&integer);
                    copied = end;
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    plain.push_str(&text[copied..]);
    Cow::Owned(plain)
}

/// Bytes of the string that a text begins with, quotes included.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    let closing = text.bytes().skip(1).position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    });
    closing.map_or(text.len(), |position| position + 2)
}

/// The digits of a number that is written with a point or an exponent but has no fraction. Exact, unlike the way
/// through a float.
fn as_integer(number: &str) -> Option<String> {
    let is_float = number.contains(['.', 'e', 'E']) && serde_json::from_str::<f64>(number).is_ok();
    if !is_float {
        return None;
    }
    let (sign, number) = number.strip_prefix('-').map_or(("", number), |rest| ("-", rest));
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let significant = format!("{whole}{fraction}");
    let significant = significant.trim_end_matches('0');
    if significant.trim_start_matches('0').is_empty() {
        return Some("0".to_owned());
    }
    let length = i64::try_from(whole.len()).ok()?.checked_add(exponent.parse::<i64>().ok()?)?;
    let length = usize::try_from(length).ok().filter(|length| (significant.len()..=DIGITS_MAX).contains(length))?;
    let digits = format!("{significant:0<length$}");
    Some(format!("{sign}{}", digits.trim_start_matches('0')))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::Value;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Order {
        pieces: u64,
        offset: Option<i32>,
        share: f64,
        note: String,
        boxes: Vec<Size>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(tag = "kind", rename_all = "lowercase")]
    enum Size {
        Exact { width: u8 },
        Named(BTreeMap<String, i64>),
    }

    #[test]
    fn argument_numbers_without_fraction_are_integers_at_every_depth() {
        let given = r#"{"pieces": 1e2, "offset": -2.0, "share": 0.50, "note": "2.0, \"3.0\\", "boxes":
            [{"kind": "exact", "width": 1.0E+1}, {"kind": "named", "a": 60000.0, "b": -0.0, "c": 120e-1}]}"#;
        let plain = r#"{"pieces": 100, "offset": -2, "share": 0.5, "note": "2.0, \"3.0\\", "boxes":
            [{"kind": "exact", "width": 10}, {"kind": "named", "a": 60000, "b": 0, "c": 12}]}"#;
        assert!(serde_json::from_str::<Order>(given).is_err(), "serde_json alone refuses it");
        assert_eq!(read::<Order>(given).unwrap(), serde_json::from_str::<Order>(plain).unwrap());
    }

    #[test]
    fn large_argument_integers_keep_every_digit() {
        for (given, expected) in [
            ("9007199254740993.0", 9_007_199_254_740_993),
            ("18446744073709551615.00", u64::MAX),
            ("1.8446744073709551615e19", u64::MAX),
            ("0.0000000001e19", 1_000_000_000),
        ] {
            assert_eq!(read::<u64>(given).unwrap(), expected, "{given}");
        }
    }

    #[test]
    fn argument_outside_integer_type_is_refused() {
        for given in
            ["2.5", "-1.0", "1e-1", "18446744073709551616.0", "1e400", "1e999999999999999999999", "\"2.0\"", "1.", "{"]
        {
            assert!(read::<u64>(given).is_err(), "{given}");
        }
        let problem = read::<u8>("2.5").unwrap_err().to_string();
        assert!(problem.contains("2.5"), "{problem}");
    }

    #[test]
    fn readable_arguments_keep_their_floats() {
        let value: Value = read(r#"{"a": 2.0, "b": 1e2}"#).unwrap();
        assert!(value["a"].is_f64() && value["b"].is_f64());
        assert!(matches!(with_plain_integers(r#"{"a": 2.5, "b": "1.0", "c": 7}"#), Cow::Borrowed(_)));
    }
}
