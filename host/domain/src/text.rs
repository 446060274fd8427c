//! Text that others wrote, where people read it: on pages and on terminals.
//!
//! Owns which characters nobody sees, how a foreign name stands among other words, and where a text may be cut. Must
//! not decide how much of a text is shown. Invariant: what comes out turns no direction around, acts on no terminal,
//! and a name cannot be read as more than a name.

use std::borrow::Cow;
use std::fmt;

use super::names::check_name;

/// What stands in the place of a character that nobody sees.
pub const UNSEEN: char = '\u{fffd}';

/// Whether a character turns the direction of text around, or is not seen. Control characters are such as well.
pub fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{e0000}'..='\u{e0fff}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// The character as a terminal shows it: a space for one that would act on it.
pub fn on_terminal(character: char) -> char {
    match character {
        control if control.is_control() => ' ',
        unseen if is_unseen(unseen) => UNSEEN,
        seen => seen,
    }
}

/// A name that operators or issuers chose, among other words: in quotes and escaped, unless it is as names of this host
/// are.
pub fn quoted_name(name: &str) -> Cow<'_, str> {
    match check_name(name) {
        Ok(()) => name.into(),
        Err(_) => {
            let escape = |character: char| match is_unseen(character) {
                true => character.escape_unicode().collect::<String>(),
                false => character.escape_debug().collect(),
            };
            format!("\"{}\"", name.chars().map(escape).collect::<String>()).into()
        }
    }
}

/// Text of a guest, fit for an operator's terminal: control characters cannot act, line breaks cannot fake records, and
/// what nobody sees is written out.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if is_unseen(character) {
            safe.extend(character.escape_default());
        } else {
            safe.push(character);
        }
    }
    safe
}

/// Control characters, and the invisible ones that reorder what a person reads: what a plugin's names and descriptions
/// may not hold.
pub fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}')
}

/// The beginning of a text, at most so many bytes, never half a character.
pub fn beginning(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default()
}

/// A number of bytes for people.
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => write!(f, "{} MiB", bytes >> 20),
            bytes if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => write!(f, "{} KiB", bytes >> 10),
            bytes => write!(f, "{bytes} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_nobody_sees_are_shown() {
        let unseen = [
            '\0',
            '\n',
            '\u{1b}',
            '\u{7f}',
            '\u{9b}',
            '\u{ad}',
            '\u{61c}',
            '\u{180e}',
            '\u{200b}',
            '\u{200d}',
            '\u{202e}',
            '\u{2028}',
            '\u{2066}',
            '\u{feff}',
            '\u{e0041}',
        ];
        for character in unseen {
            assert!(is_unseen(character), "{character:?}");
            assert!(!is_unseen(on_terminal(character)), "{character:?}");
        }
        for character in ['a', ' ', 'ß', '€', '漢', '🦀', UNSEEN] {
            assert!(!is_unseen(character) && on_terminal(character) == character, "{character:?}");
        }
    }

    #[test]
    fn foreign_name_cannot_be_read_as_more_than_a_name() {
        for plain in ["anna", "operator", "a.b_c-1"] {
            assert_eq!(quoted_name(plain), plain);
        }
        let foreign = [
            ("", "\"\""),
            ("x@globex", "\"x@globex\""),
            ("operator at 10.0.0.1", "\"operator at 10.0.0.1\""),
            ("operator \"root\" at ::1", "\"operator \\\"root\\\" at ::1\""),
            ("a\u{202e}b\nc", "\"a\\u{202e}b\\u{a}c\""),
        ];
        for (name, shown) in foreign {
            assert_eq!(quoted_name(name), shown);
        }
    }

    #[test]
    fn logged_guest_text_escapes_control_characters() {
        assert_eq!(escaped("a\u{1b}[2Jb\n\u{202e}c"), "a\\u{1b}[2Jb\\n\\u{202e}c");
        assert_eq!(escaped("a\u{ad}b\u{61c}c\u{e0041}"), "a\\u{ad}b\\u{61c}c\\u{e0041}");
        assert_eq!(escaped("grün 漢"), "grün 漢");
    }

    #[test]
    fn truncated_guest_text_keeps_whole_characters() {
        assert_eq!(beginning("añb", 2), "a");
        assert_eq!(beginning("abc", 9), "abc");
    }
}
