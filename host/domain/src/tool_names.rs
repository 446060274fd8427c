//! What clients are told a tool is called.
//!
//! Owns the rule that makes a name which every client takes of the name that a plugin gives a tool. The protocol allows
//! dots and 128 characters; clients that hand names on to a model's interface refuse dots, some more than 64
//! characters, and one name that they refuse costs the user every tool of every server. Invariant: a name depends on
//! the tool's own name and on those of the same plugin that would be called the same, and a name that is good as it is
//! stays as it is, so that a new version of a plugin renames nothing.

use std::collections::HashMap;

/// Characters of a name that every client takes.
pub const PORTABLE_NAME_CHARS_MAX: usize = 64;

/// Hexadecimal digits that tell two tools apart whose names would be the same, with the dash in front.
const MARK_CHARS: usize = 9;

/// Whether every client takes a name.
pub fn is_portable(name: &str) -> bool {
    refusal(name, PORTABLE_NAME_CHARS_MAX).is_none()
}

/// Why clients that take so many characters refuse a name; none if they take it.
pub fn refusal(name: &str, chars_max: usize) -> Option<String> {
    let count = name.chars().count();
    match name.chars().find(|character| !is_taken(*character)) {
        Some(other) => Some(format!("it holds {:?}, and clients take letters, digits, `_` and `-`", other.to_string())),
        None if count > chars_max => Some(format!("it has {count} characters, and clients take {chars_max}")),
        None if name.is_empty() => Some("it is empty".to_owned()),
        None => None,
    }
}

/// The same text with `_` for every character that some client refuses.
pub fn underscored(text: &str) -> String {
    text.chars().map(|character| if is_taken(character) { character } else { '_' }).collect()
}

/// A name for each of a plugin's tools, in their order, of the names that the plugin gives them. What is not taken
/// becomes `_`. A name that is too long then, or the same as another, ends in a mark of the tool's own name; one that
/// is good from the start never does.
pub fn portable(own: &[&str]) -> Vec<String> {
    let plain: Vec<_> = own.iter().map(|own| underscored(own)).collect();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    plain.iter().for_each(|name| *counts.entry(name).or_default() += 1);
    let name = |(own, plain): (&&str, &String)| {
        let is_alone = counts.get(plain.as_str()) == Some(&1);
        let is_short = plain.len() <= PORTABLE_NAME_CHARS_MAX;
        if is_short && (is_alone || plain == own) { plain.clone() } else { marked(plain, own) }
    };
    own.iter().zip(&plain).map(name).collect()
}

/// A tool's name with the operator's prefix in front. It is as long as every client takes it; the characters of the
/// prefix are the operator's word.
pub fn prefixed(prefix: &str, portable: &str, own: &str) -> String {
    let whole = format!("{prefix}{portable}");
    if whole.chars().count() <= PORTABLE_NAME_CHARS_MAX { whole } else { marked(&whole, own) }
}

/// Whether a pattern of names (`*` stands for any text) can only be meant for the names that plugins give their tools:
/// with a character in it that is in no name which clients see, unless a name or a prefix of the operator's has it.
pub fn is_for_own_names<'a>(
    pattern: &str,
    mut names: impl Iterator<Item = &'a str>,
    mut prefixes: impl Iterator<Item = &'a str>,
) -> bool {
    let is_plain = |text: &str| text.chars().all(|character| is_taken(character) || character == '*');
    let may_begin = |prefix: &str| match pattern.split_once('*') {
        // What the first `*` stands for may be the rest of the prefix.
        Some((begin, _)) if begin.len() < prefix.len() => prefix.starts_with(begin),
        _ => pattern.strip_prefix(prefix).is_some_and(is_plain),
    };
    !is_plain(pattern)
        && !names.any(|name| super::rights::matches(pattern, name))
        && !prefixes.any(|prefix| !is_plain(prefix) && may_begin(prefix))
}

fn is_taken(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}

/// The beginning of a name, and a mark of the tool's own.
fn marked(name: &str, own: &str) -> String {
    let kept: String = name.chars().take(PORTABLE_NAME_CHARS_MAX - MARK_CHARS).collect();
    format!("{kept}-{:08x}", fnv_1a(own.as_bytes()))
}

/// FNV-1a with 32 bits: short, and the same for ever. Who makes two names meet has both tools refused.
fn fnv_1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_tool_name_that_leaves_is_one_that_every_client_takes() {
        let long = format!("acme.{}.{}", "words".repeat(10), "check".repeat(4));
        let table = [
            // Good names stay.
            (vec!["greet", "to-rgb", "A_1"], vec!["greet", "to-rgb", "A_1"]),
            (vec!["prism.colour.convert.to-rgb"], vec!["prism_colour_convert_to-rgb"]),
            // A good name has priority, wherever it stands.
            (vec!["a.b", "a_b"], vec!["a_b-108bf50c", "a_b"]),
            (vec!["a_b", "a.b"], vec!["a_b", "a_b-108bf50c"]),
            // Without one, no tool has the name.
            (vec!["a.b_c", "a_b.c"], vec!["a_b_c-d9f760fe", "a_b_c-fbeaadaa"]),
            (vec![&long], vec!["acme_wordswordswordswordswordswordswordswordswordswords-0c6e9b19"]),
            (vec!["grüße"], vec!["gr__e"]),
        ];
        for (own, expected) in table {
            let names = portable(&own);
            assert!(names.iter().all(|name| is_portable(name)), "{names:?}");
            assert_eq!(names, expected);
        }
    }

    #[test]
    fn prefix_counts_towards_the_characters_of_a_tool_name() {
        let own = "x".repeat(60);
        assert_eq!(prefixed("", &own, &own), own);
        assert_eq!(prefixed("t_", "echo", "echo"), "t_echo");
        assert_eq!(prefixed("t.", "echo", "echo"), "t.echo", "the operator says so");
        let cut = prefixed("text_", &own, &own);
        assert_eq!((cut.len(), cut.starts_with("text_xxx")), (64, true), "{cut}");
        let other = format!("{own}.b");
        assert_ne!(prefixed("text_", &portable(&[&other])[0], &other), cut);
        assert!(is_portable(&prefixed(&"p".repeat(64), "echo", "echo")));
    }

    #[test]
    fn refused_tool_names_say_why() {
        let refused = |name: &str, chars_max| refusal(name, chars_max).unwrap_or_default();
        assert!(refused("a.b", 64).contains("\".\""), "{}", refused("a.b", 64));
        assert!(refused(&"x".repeat(65), 64).contains("it has 65 characters"));
        assert_eq!(refused(&"x".repeat(65), 128), "");
        assert_eq!(refused("", 64), "it is empty");
    }

    #[test]
    fn patterns_for_the_names_that_plugins_give_are_found() {
        let of =
            |pattern: &str| is_for_own_names(pattern, ["crm.find", "say"].into_iter(), ["text.", "plain_"].into_iter());
        for pattern in ["prism.colour.convert.to-rgb", "prism.*", "crm.f", "text.a.b", "plain_a.b", "tex.*"] {
            assert!(of(pattern), "{pattern}");
        }
        for pattern in
            ["*", "prism_*", "crm.find", "crm.*", "*.find", "text.*", "text.echo", "te*", "*_delete", "*.delete"]
        {
            assert!(!of(pattern), "{pattern}");
        }
        assert!(is_for_own_names("*.delete", ["crm.find"].into_iter(), ["plain_"].into_iter()));
    }

    proptest! {
        #[test]
        fn tool_names_for_clients_are_unique_and_independent_of_other_tools(
            own in prop::collection::hash_set("[ab]([._-][ab]){0,4}|[a.]{60,70}", 1..12)
        ) {
            let own: Vec<_> = own.iter().map(String::as_str).collect();
            let names = portable(&own);
            prop_assert!(names.iter().all(|name| is_portable(name)), "{:?}", names);
            prop_assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
            let mut more: Vec<_> = own.iter().rev().copied().collect();
            more.push("another.tool");
            prop_assert!(names.iter().rev().eq(portable(&more).iter().take(names.len())));
        }
    }
}
