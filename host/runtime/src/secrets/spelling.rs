//! The spellings in which a value comes back.
//!
//! Owns what counts as a value: as it is, with any of its characters escaped as URLs, JSON and HTML do it, and in
//! base64, wherever in an encoded text it stands. Must not know where texts come from. Invariant: which characters a
//! server escapes makes no difference, each may or may not be.

/// The characters of base64 (RFC 4648, section 4). The URL-safe alphabet (section 5) has others in the place of the
/// last two.
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Bytes that base64 encodes together.
const GROUP_BYTES: usize = 3;
/// Bits that one character of base64 stands for.
const CHARACTER_BITS: usize = 6;

/// What looking for a value at the beginning of a text led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    Nothing,
    /// The text ends before it is decided.
    Beginning,
    /// So many bytes are the value.
    Whole(usize),
}

/// Whether the case of letters tells one value from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Letters {
    AsWritten,
    /// As in the name of a header, which comes in small letters only.
    AnyCase,
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

    fn begins(&self, text: &[u8], letters: Letters) -> Match {
        let looked_at = text.len().min(self.bytes.len());
        let wanted = &self.bytes;
        let any_case = self.any_case || letters == Letters::AnyCase;
        let same = text
            .iter()
            .zip(wanted)
            .take(looked_at)
            .all(|(is, wanted)| if any_case { is.eq_ignore_ascii_case(wanted) } else { is == wanted });
        match (same, looked_at == wanted.len()) {
            (false, _) => Match::Nothing,
            (true, false) => Match::Beginning,
            (true, true) => Match::Whole(wanted.len()),
        }
    }
}

impl Spelling {
    /// All of them.
    pub(super) fn of(value: &str) -> Vec<Self> {
        let mut all = vec![Self(value.chars().map(written).collect())];
        for before in 0..GROUP_BYTES {
            all.extend(base64_after(before, value.as_bytes()));
        }
        all
    }

    /// One character of base64, of which these bits are known.
    fn push_base64(&mut self, wanted: u8, known: u8) {
        let fitting: Vec<_> =
            (0..).zip(BASE64).filter(|(bits, _)| bits & known == wanted).map(|(_, byte)| *byte).collect();
        // Nobody escapes letters and digits: a row of them is one piece.
        if let [byte] = fitting.as_slice()
            && byte.is_ascii_alphanumeric()
            && let Some([run]) = self.0.last_mut().map(Vec::as_mut_slice)
        {
            run.bytes.push(*byte);
        } else {
            self.0.push(fitting.into_iter().flat_map(base64_written).collect());
        }
    }

    /// The first two bytes with which it can begin; without a second one, any may follow.
    pub(super) fn first_bytes(&self) -> impl Iterator<Item = (u8, Option<u8>)> {
        let second: Vec<_> =
            self.0.get(1).into_iter().flatten().map(|written| written.bytes.first().copied()).collect();
        self.0.first().into_iter().flatten().flat_map(move |written| match written.bytes.as_slice() {
            [] => Vec::new(),
            [first] if second.is_empty() => vec![(*first, None)],
            [first] => second.iter().map(|second| (*first, *second)).collect(),
            [first, second, ..] => vec![(*first, Some(*second))],
        })
    }

    /// Looks for it at the beginning of a text; the longest one counts.
    pub(super) fn find(&self, text: &[u8], letters: Letters) -> Match {
        let mut first = self.0.first().into_iter().flatten();
        if first.all(|written| written.begins(text, letters) == Match::Nothing) {
            return Match::Nothing;
        }
        let mut ends = vec![0];
        let mut cut = false;
        for ways in &self.0 {
            let mut further = Vec::new();
            for end in ends {
                let rest = text.get(end..).unwrap_or_default();
                for written in ways {
                    match written.begins(rest, letters) {
                        Match::Whole(bytes) if further.contains(&(end + bytes)) => {}
                        Match::Whole(bytes) => further.push(end + bytes),
                        Match::Beginning => cut = true,
                        Match::Nothing => {}
                    }
                }
            }
            if further.is_empty() {
                return if cut { Match::Beginning } else { Match::Nothing };
            }
            ends = further;
        }
        ends.into_iter().max().map_or(Match::Nothing, Match::Whole)
    }
}

/// A value in the base64 of a text that has `before` bytes, and any number of whole groups, in front of it, and
/// anything or nothing behind it. Characters at both ends may hold bits of what stands around the value.
fn base64_after(before: usize, value: &[u8]) -> Vec<Spelling> {
    let bits = 8 * before..8 * (before + value.len());
    let bit = |at: usize| {
        let byte = value.get((at / 8).checked_sub(before)?)?;
        Some(byte >> (7 - at % 8) & 1)
    };
    let mut spelled = Spelling(Vec::new());
    let mut last = None;
    for character in bits.start / CHARACTER_BITS..bits.end.div_ceil(CHARACTER_BITS) {
        let mut wanted = 0;
        let mut known = 0;
        for at in character * CHARACTER_BITS..(character + 1) * CHARACTER_BITS {
            let bit = bit(at);
            (wanted, known) = (wanted << 1 | bit.unwrap_or_default(), known << 1 | u8::from(bit.is_some()));
        }
        last = Some(wanted);
        spelled.push_base64(wanted, known);
    }
    let padding = (GROUP_BYTES - (before + value.len()) % GROUP_BYTES) % GROUP_BYTES;
    let Some(last) = last.filter(|_| padding > 0) else { return vec![spelled] };
    // At the end of the text, the bits behind the value are zero.
    let mut padded = Spelling(spelled.0.clone());
    padded.0.pop();
    padded.push_base64(last, u8::MAX >> 2);
    padded.0.extend((0..padding).map(|_| written('=')));
    vec![spelled, padded]
}

/// The ways to write a character: in URLs and forms (RFC 3986, HTML), in JSON (RFC 8259, section 7), in HTML.
fn written(character: char) -> Vec<Written> {
    let mut utf8 = [0; 4];
    let mut utf16 = [0; 2];
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

/// The ways to write a character of base64, in both alphabets.
fn base64_written(byte: u8) -> Vec<Written> {
    let in_urls = match byte {
        b'+' => b'-',
        b'/' => b'_',
        _ => return vec![Written::exactly([byte])],
    };
    let mut ways = written(char::from(byte));
    ways.push(Written::exactly([in_urls]));
    ways
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "p&ss<w/rd 1+\"é%";

    fn found(text: &str) -> Match {
        let all: Vec<_> =
            Spelling::of(VALUE).iter().map(|spelling| spelling.find(text.as_bytes(), Letters::AsWritten)).collect();
        let whole = |found: &&Match| matches!(found, Match::Whole(_));
        let length = |found: &&Match| if let Match::Whole(bytes) = found { *bytes } else { 0 };
        let longest = all.iter().filter(whole).max_by_key(length);
        *longest.or_else(|| all.iter().find(|found| **found == Match::Beginning)).unwrap_or(&Match::Nothing)
    }

    #[test]
    fn secret_value_is_found_in_any_escaping() {
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
            assert_eq!(found(spelled), Match::Whole(spelled.len()), "{spelled}");
            let more = format!("{spelled}; and more");
            assert_eq!(found(&more), Match::Whole(spelled.len()), "{more}");
            for end in (1..spelled.len() - 2).filter(|end| spelled.is_char_boundary(*end)) {
                assert_ne!(found(&spelled[..end]), Match::Nothing, "{}", &spelled[..end]);
            }
        }
    }

    #[test]
    fn similar_text_is_not_taken_for_a_secret() {
        for other in ["p&ss<w/rd 1+\"e%", "P&ss<w/rd 1+\"é%", "p%26ss%3Dw/rd", "", "x", "p\\u0027ss"] {
            assert!(!matches!(found(other), Match::Whole(_)), "{other}");
        }
        assert_eq!(found("p&st"), Match::Nothing);
    }

    /// A value of percent signs can be read in many ways: their number must not grow with its length.
    #[test]
    fn ambiguous_secret_value_is_found_in_linear_time() {
        let value = "%25".repeat(600);
        let text = "%25".repeat(100_000);
        let found = Spelling::of(&value)[0].find(text.as_bytes(), Letters::AsWritten);
        assert!(matches!(found, Match::Whole(bytes) if bytes >= value.len()));
    }
}
