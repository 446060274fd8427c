//! When two JSON values are the same: whatever the order of members and the spelling of numbers.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// A whole number below this is the same as a float.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Equal values have equal digests.
pub(crate) fn digest(value: &Value) -> [u8; 32] {
    let mut hash = Sha256::new();
    add(&mut hash, value);
    hash.finalize().into()
}

fn add(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Null => hash.update(b"0"),
        Value::Bool(flag) => hash.update(if *flag { b"t" } else { b"f" }),
        Value::Number(number) => {
            let float = number.as_f64().unwrap_or(0.0);
            let text = if float.fract() == 0.0 && float.abs() < EXACT {
                #[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^53")]
                (float as i64).to_string()
            } else {
                number.to_string()
            };
            add_text(hash, b"n", &text);
        }
        Value::String(text) => add_text(hash, b"s", text),
        Value::Array(values) => {
            hash.update(b"[");
            hash.update((values.len() as u64).to_be_bytes());
            values.iter().for_each(|value| add(hash, value));
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            hash.update(b"{");
            hash.update((members.len() as u64).to_be_bytes());
            for (name, value) in members {
                add_text(hash, b"m", name);
                add(hash, value);
            }
        }
    }
}

fn add_text(hash: &mut Sha256, kind: &[u8], text: &str) {
    hash.update(kind);
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(text: &str) -> [u8; 32] {
        digest(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn argument_digest_ignores_order_and_spelling() {
        assert_eq!(of(r#"{"a":1,"b":[1.0,"x"]}"#), of(r#"{ "b":[1,"\u0078"],"a":1.0}"#));
        let all =
            [json!({}), json!([]), json!(null), json!(0), json!("0"), json!([[]]), json!({"a": null}), json!(0.5)];
        for (at, one) in all.iter().enumerate() {
            for other in all.iter().skip(at + 1) {
                assert_ne!(digest(one), digest(other), "{one} {other}");
            }
        }
    }
}
