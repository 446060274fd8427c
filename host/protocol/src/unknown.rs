//! Refusals of names that nothing has, with the one that was probably meant.
//!
//! Invariant: only names that the caller is shown anyway are looked at, so that a refusal tells nobody of what is
//! hidden from it.

use super::error::RpcError;

/// What of a name is said back.
const NAME_CHARS_MAX: usize = 128;
/// Names that one refusal looks at: it must not cost more than the request that it refuses.
const CANDIDATES_MAX: usize = 512;
/// Changes of one character that still make it the same name.
const CHANGES_MAX: usize = 3;

/// The refusal. `visible`: what there is of this kind, for this caller.
pub(crate) fn refusal<'a>(what: &str, name: &str, visible: impl Iterator<Item = &'a str>) -> RpcError {
    let shown: String = name.chars().take(NAME_CHARS_MAX).collect();
    RpcError::invalid_params(match nearest_name(name, visible) {
        Some(near) => format!("Unknown {what}: {shown} (did you mean {near}?)"),
        None => format!("Unknown {what}: {shown}"),
    })
}

/// The name that was probably meant: the one that takes the fewest changes, the first one of several.
pub fn nearest_name<'a>(name: &str, visible: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.is_empty() || name.len() > NAME_CHARS_MAX {
        return None;
    }
    let wanted = name.to_ascii_lowercase();
    let changes_max = (wanted.len() / 3).clamp(1, CHANGES_MAX);
    let near = visible.take(CANDIDATES_MAX).filter_map(|candidate| {
        let known = candidate.to_ascii_lowercase();
        let changes = if has_ending(&known, &wanted) || has_ending(&wanted, &known) {
            1
        } else {
            changes(wanted.as_bytes(), known.as_bytes(), changes_max)?
        };
        Some((changes, candidate))
    });
    near.min_by_key(|(changes, _)| *changes).map(|(_, candidate)| candidate)
}

/// Whether a name is another one behind a prefix: `text.echo` and `echo`.
fn has_ending(long: &str, short: &str) -> bool {
    long.strip_suffix(short).is_some_and(|prefix| prefix.ends_with(['.', '_', '-', '/']))
}

/// How many bytes have to be added, removed, replaced or exchanged with their neighbour to make one text of another, if
/// no more than `most` do. Each step tries four ways at most, so that few steps are cheap however long the texts are.
fn changes(from: &[u8], to: &[u8], most: usize) -> Option<usize> {
    if from.len().abs_diff(to.len()) > most {
        return None;
    }
    let same = from.iter().zip(to).take_while(|(one, other)| one == other).count();
    let from = from.get(same..)?;
    let to = to.get(same..)?;
    let ([first, from_rest @ ..], [other, to_rest @ ..]) = (from, to) else {
        return Some(from.len().max(to.len()));
    };
    let left = most.checked_sub(1)?;
    let exchanged = match (from_rest, to_rest) {
        ([next, from_rest @ ..], [after, to_rest @ ..]) if first == after && next == other => {
            changes(from_rest, to_rest, left)
        }
        _ => None,
    };
    let replaced = changes(from_rest, to_rest, left);
    let removed = changes(from_rest, to, left);
    let added = changes(from, to_rest, left);
    [exchanged, replaced, removed, added].into_iter().flatten().min().map(|fewest| fewest + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOLS: [&str; 5] = ["count_primes", "diff", "echo", "text.lines", "word_count"];

    fn meant(name: &str) -> Option<&'static str> {
        nearest_name(name, TOOLS.into_iter())
    }

    #[test]
    fn unknown_name_suggestion_is_the_nearest_name() {
        for (name, expected) in [
            ("ehco", "echo"),
            ("Echo", "echo"),
            ("echoo", "echo"),
            ("cho", "echo"),
            ("wordcount", "word_count"),
            ("count_prime", "count_primes"),
            ("lines", "text.lines"),
            ("mcp__echo", "echo"),
            ("dif", "diff"),
        ] {
            assert_eq!(meant(name), Some(expected), "{name}");
        }
        for name in ["", "x", "nope", "primes_count", "eh", "word_count_of_a_file"] {
            assert_eq!(meant(name), None, "{name}");
        }
        assert_eq!(meant(&"e".repeat(10_000)), None);
    }

    #[test]
    fn edit_distance_is_counted_up_to_a_bound() {
        let count = |from: &str, to: &str, most| changes(from.as_bytes(), to.as_bytes(), most);
        assert_eq!(count("kitten", "sitting", 3), Some(3));
        assert_eq!(count("kitten", "sitting", 2), None);
        assert_eq!(count("ab", "ba", 1), Some(1));
        assert_eq!(count("", "abc", 3), Some(3));
        assert_eq!(count("", "", 1), Some(0));
        assert_eq!(count("abcdefgh", "abXdeYgh", 3), Some(2));
    }

    #[test]
    fn unknown_name_suggestion_reads_bounded_candidates() {
        let mut looked_at = 0;
        let names = std::iter::repeat_with(|| {
            looked_at += 1;
            "something_else"
        });
        refusal("tool", "echo", names);
        assert_eq!(looked_at, CANDIDATES_MAX);
    }
}
