//! Text that others wrote, where people read it: on pages and on terminals.
//!
//! Owns which characters nobody sees, and how a foreign name stands among other words. Must not bound a text. Invariant: what comes out turns
//! no direction around, acts on no terminal, and a name cannot be read as more than a name.

use std::borrow::Cow;

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

/// A name that operators or issuers chose, among other words: in quotes and escaped, unless it is as names of this host are.
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
}
