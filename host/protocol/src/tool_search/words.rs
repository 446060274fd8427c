//! Words of names, descriptions and queries, in the form in which they are compared.
//!
//! Owns where a word begins and ends, and which endings do not matter. Invariant: a text and a query are treated alike,
//! so a word of one is found by the same word of the other, whichever its case, its number and its tense.

/// Bytes of a word that are compared; what is longer is no word of a language.
const WORD_BYTES_MAX: usize = 64;

/// Words that say nothing about what a tool does.
const IGNORED: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "how", "i", "if", "in",
    "into", "is", "it", "its", "me", "my", "of", "on", "or", "please", "that", "the", "their", "there", "this", "to",
    "was", "what", "when", "which", "who", "will", "with", "you", "your",
];

/// The words of a text, in order. `camelCase`, `snake_case`, dots and dashes separate them.
pub(super) fn words(text: &str) -> impl Iterator<Item = String> {
    let parts = text.split(|character: char| !character.is_alphanumeric());
    let words = parts.flat_map(humps).filter(|word| word.len() <= WORD_BYTES_MAX);
    words.map(str::to_lowercase).filter(|word| !IGNORED.contains(&word.as_str())).map(stem)
}

/// `getHTTPStatus` as `get`, `HTTP` and `Status`.
fn humps(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (hump, left) = rest.split_at_checked(hump_bytes(rest)).unwrap_or((rest, ""));
        rest = left;
        Some(hump)
    })
}

/// Where the first hump ends: before a capital after a small letter, and before the last of several capitals that a
/// small one follows.
fn hump_bytes(text: &str) -> usize {
    let mut characters = text.char_indices().peekable();
    let mut before: Option<char> = None;
    while let Some((at, character)) = characters.next() {
        let next_is_small = characters.peek().is_some_and(|(_, next)| next.is_lowercase());
        let is_begin = match before {
            Some(before) if before.is_lowercase() => character.is_uppercase(),
            Some(before) if before.is_uppercase() => character.is_uppercase() && next_is_small,
            _ => false,
        };
        if is_begin {
            return at;
        }
        before = Some(character);
    }
    text.len()
}

/// An English word without the endings of number and tense: `changes`, `changed` and `changing` are one.
fn stem(word: String) -> String {
    if word.len() < 4 || !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return word;
    }
    let singular = singular(&word);
    let tenseless = ["ing", "ed"].into_iter().find_map(|ending| {
        let root = singular.strip_suffix(ending)?;
        let is_root = root.len() >= 3 && root.contains(['a', 'e', 'i', 'o', 'u', 'y']);
        is_root.then(|| single_end(root))
    });
    let root = tenseless.unwrap_or(&singular);
    root.strip_suffix('e').filter(|root| root.len() >= 3).unwrap_or(root).to_owned()
}

fn singular(word: &str) -> String {
    let ends = |endings: &[&str]| endings.iter().any(|ending| word.ends_with(ending));
    if let Some(root) = word.strip_suffix("ies").filter(|root| root.len() >= 2) {
        return format!("{root}y");
    }
    if ends(&["sses", "shes", "ches", "xes", "zes"]) {
        return word.strip_suffix("es").unwrap_or(word).to_owned();
    }
    match word.strip_suffix('s').filter(|_| !ends(&["ss", "us", "is"])) {
        Some(root) => root.to_owned(),
        None => word.to_owned(),
    }
}

/// `runn` as `run`; words like `call` and `miss` keep both letters.
fn single_end(root: &str) -> &str {
    let mut ends = root.bytes().rev();
    let last = ends.next();
    let before = ends.next();
    let doubled = last == before && !matches!(last, Some(b'l' | b's' | b'z' | b'a' | b'e' | b'i' | b'o' | b'u'));
    root.len().checked_sub(1).filter(|_| doubled).and_then(|length| root.get(..length)).unwrap_or(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<String> {
        words(text).collect()
    }

    #[test]
    fn names_are_split_into_words() {
        for (name, expected) in [
            ("csv_profile", vec!["csv", "profil"]),
            ("prism.colour.to-hex", vec!["prism", "colour", "hex"]),
            ("getPullRequest", vec!["get", "pull", "request"]),
            ("readHTTPBody2", vec!["read", "http", "body2"]),
            ("größeÄndern", vec!["größe", "ändern"]),
            ("", vec![]),
            ("__--..", vec![]),
        ] {
            assert_eq!(of(name), expected, "{name}");
        }
    }

    #[test]
    fn forms_of_a_word_are_one() {
        for forms in [
            &["change", "changes", "changed", "changing", "CHANGE"][..],
            &["run", "runs", "running"],
            &["query", "queries"],
            &["file", "files", "filing"],
            &["call", "calls", "called", "calling"],
            &["box", "boxes"],
            &["status"],
        ] {
            let stems: Vec<_> = forms.iter().flat_map(|form| of(form)).collect();
            assert!(stems.iter().all(|stem| *stem == stems[0]) && stems.len() == forms.len(), "{forms:?}: {stems:?}");
        }
        assert_ne!(of("thing"), of("th"));
        assert_ne!(of("news"), of("bus"));
    }

    #[test]
    fn words_without_meaning_and_endless_ones_are_passed_over() {
        assert_eq!(of("what is in the folder"), ["folder"]);
        assert_eq!(of(&"x".repeat(WORD_BYTES_MAX + 1)), [""; 0]);
    }
}
