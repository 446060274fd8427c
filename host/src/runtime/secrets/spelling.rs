//! The spellings in which a value comes back.
//!
//! Owns what counts as a value: as it is, with any of its characters escaped as URLs, JSON and HTML do it, and in base64. Must not
//! know where texts come from. Invariant: which characters a server escapes makes no difference, each may or may not be.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// What looking for a value at the beginning of a text led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// The text ends before it is decided.
    Beginning,
    /// So many bytes are the value.
    Whole(usize),
}

/// One way to write a value: a row of characters, each in one of several ways.
#[derive(Clone)]
pub(super) struct Spelling(Vec<Vec<Written>>);

#[derive(Clone)]
struct Written {
    bytes: Vec<u8>,
    /// Whether capital and small letters are the same.
    any_case: bool,
}

impl Written {
    fn exactly(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), any_case: false }
    }

    fn escaped(text: impl Into<String>) -> Self {
        Self { bytes: text.into().into_bytes(), any_case: true }
    }

    fn begins(&self, text: &[u8]) -> Found {
        let (looked_at, wanted) = (text.len().min(self.bytes.len()), &self.bytes);
        let same = text
            .iter()
            .zip(wanted)
            .take(looked_at)
            .all(|(is, wanted)| if self.any_case { is.eq_ignore_ascii_case(wanted) } else { is == wanted });
        match (same, looked_at == wanted.len()) {
            (false, _) => Found::Nothing,
            (true, false) => Found::Beginning,
            (true, true) => Found::Whole(wanted.len()),
        }
    }
}

impl Spelling {
    /// All of them.
    pub(super) fn of(value: &str) -> Vec<Self> {
        let mut all = vec![Self(value.chars().map(written).collect())];
        let encoded = [STANDARD.encode(value), STANDARD_NO_PAD.encode(value), URL_SAFE_NO_PAD.encode(value)];
        all.extend(encoded.map(|text| Self(vec![vec![Written::exactly(text)]])));
        all
    }

    /// The bytes with which it can begin, in any case of their letters.
    pub(super) fn first_bytes(&self) -> impl Iterator<Item = u8> {
        self.0.first().into_iter().flatten().filter_map(|written| written.bytes.first().copied())
    }

    /// Looks for it at the beginning of a text; the longest one counts.
    pub(super) fn find(&self, text: &[u8]) -> Found {
        let (mut ends, mut cut) = (vec![0], false);
        for ways in &self.0 {
            let mut further = Vec::new();
            for end in ends {
                let rest = text.get(end..).unwrap_or_default();
                for written in ways {
                    match written.begins(rest) {
                        Found::Whole(bytes) if further.contains(&(end + bytes)) => {}
                        Found::Whole(bytes) => further.push(end + bytes),
                        Found::Beginning => cut = true,
                        Found::Nothing => {}
                    }
                }
            }
            if further.is_empty() {
                return if cut { Found::Beginning } else { Found::Nothing };
            }
            ends = further;
        }
        ends.into_iter().max().map_or(Found::Nothing, Found::Whole)
    }
}

/// The ways to write a character: in URLs and forms (RFC 3986, HTML), in JSON (RFC 8259, section 7), in HTML.
fn written(character: char) -> Vec<Written> {
    let (mut utf8, mut utf16) = ([0; 4], [0; 2]);
    let bytes = character.encode_utf8(&mut utf8).as_bytes();
    let units = character.encode_utf16(&mut utf16);
    let mut ways = vec![
        Written::exactly(bytes),
        Written::escaped(bytes.iter().map(|byte| format!("%{byte:02x}")).collect::<String>()),
        Written::escaped(units.iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>()),
        Written::escaped(format!("&#{};", u32::from(character))),
        Written::escaped(format!("&#x{:x};", u32::from(character))),
    ];
    let named: &[&str] = match character {
        ' ' => &["+"],
        '"' => &["\\\"", "&quot;"],
        '\\' => &["\\\\"],
        '/' => &["\\/"],
        '\n' => &["\\n"],
        '\r' => &["\\r"],
        '\t' => &["\\t"],
        '\u{8}' => &["\\b"],
        '\u{c}' => &["\\f"],
        '&' => &["&amp;"],
        '<' => &["&lt;"],
        '>' => &["&gt;"],
        '\'' => &["&apos;"],
        _ => &[],
    };
    ways.extend(named.iter().copied().map(Written::escaped));
    ways
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "p&ss<w/rd 1+\"é%";

    fn found(text: &str) -> Found {
        let all: Vec<_> = Spelling::of(VALUE).iter().map(|spelling| spelling.find(text.as_bytes())).collect();
        let whole = all.iter().find(|found| matches!(found, Found::Whole(_)));
        *whole.or_else(|| all.iter().find(|found| **found == Found::Beginning)).unwrap_or(&Found::Nothing)
    }

    #[test]
    fn a_value_is_known_whichever_of_its_characters_are_escaped() {
        for spelled in [
            VALUE,
            r#"p\u0026ss\u003cw/rd 1+\"é%"#,
            r#"p\u0026ss\u003Cw\/rd 1+\"\u00e9%"#,
            "p%26ss%3Cw/rd%201%2B%22%C3%A9%25",
            "p%26ss%3cw%2frd+1%2b%22%c3%a9%25",
            "%70%26%73%73%3c%77%2f%72%64%20%31%2b%22%c3%a9%25",
            "p&amp;ss&lt;w/rd 1+&quot;é%",
            "p&#38;ss&#x3C;w/rd 1+&#34;é&#37;",
            "cCZzczx3L3JkIDErIsOpJQ==",
        ] {
            assert_eq!(found(spelled), Found::Whole(spelled.len()), "{spelled}");
            let more = format!("{spelled}; and more");
            assert_eq!(found(&more), Found::Whole(spelled.len()), "{more}");
            for end in (1..spelled.len() - 2).filter(|end| spelled.is_char_boundary(*end)) {
                assert_ne!(found(&spelled[..end]), Found::Nothing, "{}", &spelled[..end]);
            }
        }
    }

    #[test]
    fn what_only_looks_like_it_is_left_alone() {
        for other in ["p&ss<w/rd 1+\"e%", "P&ss<w/rd 1+\"é%", "p%26ss%3Dw/rd", "", "x", "p\\u0027ss"] {
            assert!(!matches!(found(other), Found::Whole(_)), "{other}");
        }
        assert_eq!(found("p&st"), Found::Nothing);
    }

    /// A value of percent signs can be read in many ways: their number must not grow with its length.
    #[test]
    fn ambiguous_values_take_no_longer() {
        let value = "%25".repeat(600);
        let text = "%25".repeat(100_000);
        let found = Spelling::of(&value)[0].find(text.as_bytes());
        assert!(matches!(found, Found::Whole(bytes) if bytes >= value.len()));
    }
}
