//! Canonical JSON (RFC 8785): one text for each value, so that equal definitions have equal hashes.
//!
//! Invariant: two texts of the same JSON value give the same bytes; numbers are what an IEEE double makes of them.

use serde_json::{Value, json};

/// The canonical text of a value.
pub(super) fn canonical(value: &Value) -> String {
    match value {
        Value::Number(number) => number_text(number.as_f64().unwrap_or_default()),
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            let member = |(name, value): (&String, _)| format!("{}:{}", json!(name), canonical(value));
            format!("{{{}}}", members.into_iter().map(member).collect::<Vec<_>>().join(","))
        }
        // Its escapes of strings are those of the RFC.
        Value::Null | Value::Bool(_) | Value::String(_) => value.to_string(),
    }
}

/// A double as ECMAScript writes it (Number::toString): the shortest digits that read back as the same number.
fn number_text(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{:e}", number.abs());
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    // Where the decimal point stands, counted from the first digit.
    let point = exponent + 1;
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or_default());
    let split = |at: i32| digits.split_at_checked(usize::try_from(at).unwrap_or_default()).unwrap_or((&digits, ""));
    let text = if (count..=21).contains(&point) {
        format!("{digits}{}", zeros(point - count))
    } else if (1..=21).contains(&point) {
        let (whole, fraction) = split(point);
        format!("{whole}.{fraction}")
    } else if (-5..=0).contains(&point) {
        format!("0.{}{digits}", zeros(-point))
    } else {
        let (first, rest) = split(1);
        let fraction = if rest.is_empty() { String::new() } else { format!(".{rest}") };
        format!("{first}{fraction}e{}{}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
    };
    if number < 0.0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(text: &str) -> String {
        canonical(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn canonical_json_matches_the_rfc_example() {
        let text = "{\"numbers\":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],\
            \"string\":\"\\u20ac$\\u000F\\u000aA'\\u0042\\u0022\\u005c\\\\\\\"\\/\",\"literals\":[null,true,false]}";
        let expected = "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
            \"string\":\"\u{20ac}$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}";
        assert_eq!(of(text), expected);
    }

    #[test]
    fn canonical_json_members_are_sorted_by_utf_16() {
        let text = "{\"\\u20ac\":1,\"\\r\":2,\"\\ufb33\":3,\"1\":4,\"\\ud83d\\ude00\":5,\"\\u0080\":6,\"\\u00f6\":7}";
        let expected = "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"\u{f6}\":7,\"\u{20ac}\":1,\"\u{1f600}\":5,\"\u{fb33}\":3}";
        assert_eq!(of(text), expected);
    }

    #[test]
    fn canonical_json_numbers_are_written_as_ecmascript() {
        for (number, expected) in [
            ("-0.0", "0"),
            ("5e-324", "5e-324"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("9007199254740992", "9007199254740992"),
            ("295147905179352830000", "295147905179352830000"),
            ("1e21", "1e+21"),
            ("1e20", "100000000000000000000"),
            ("9.999999999999997e22", "9.999999999999997e+22"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("333333333.3333332", "333333333.3333332"),
            ("-1.50", "-1.5"),
            ("100", "100"),
            ("0.1", "0.1"),
        ] {
            assert_eq!(of(number), expected, "{number}");
        }
    }

    proptest! {
        #[test]
        fn canonical_json_number_round_trips(bits: u64) {
            let number = f64::from_bits(bits);
            prop_assume!(number.is_finite());
            let read: f64 = number_text(number).parse().unwrap();
            prop_assert_eq!(read, number);
        }

        #[test]
        fn canonical_json_text_round_trips(text: String) {
            let read: String = serde_json::from_str(&canonical(&Value::String(text.clone()))).unwrap();
            prop_assert_eq!(read, text);
        }
    }
}
