//! Plain tools on texts: what a plugin looks like that needs nothing from anyone.

use bulkhead_plugin::{Json, tool};
use diffy::DiffOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, JsonSchema)]
struct Text {
    /// The text.
    text: String,
}

/// Returns the text as it is.
#[tool(title = "Echo", read_only, open_world = false)]
fn echo(Text { text }: Text) -> String {
    text
}

#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Counts {
    /// Lines, the last one included if it does not end in a line break.
    lines: usize,
    /// Runs of characters between white space.
    words: usize,
    /// Unicode scalar values.
    characters: usize,
    /// Bytes in UTF-8.
    bytes: usize,
}

/// Counts the lines, words, characters and bytes of a text.
#[tool(title = "Word count", read_only, open_world = false)]
fn word_count(Text { text }: Text) -> Json<Counts> {
    Json(Counts {
        lines: text.lines().count(),
        words: text.split_whitespace().count(),
        characters: text.chars().count(),
        bytes: text.len(),
    })
}

#[derive(Deserialize, JsonSchema)]
struct Versions {
    /// The old text.
    before: String,
    /// The new text.
    after: String,
}

/// Compares two texts line by line and returns a unified diff.
#[tool(title = "Compare texts", read_only, open_world = false)]
fn diff(Versions { before, after }: Versions) -> String {
    if before == after {
        return "The texts are the same.".to_owned();
    }
    let mut options = DiffOptions::new();
    options.set_original_filename("before").set_modified_filename("after");
    options.create_patch(&before, &after).to_string()
}

bulkhead_plugin::manifest!(
    r#"
name = "text"
description = "Echo, count and compare texts."
"#
);
bulkhead_plugin::pure!();
bulkhead_plugin::export!([echo, word_count, diff]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_counted_across_lines() {
        let Json(counts) = word_count(Text { text: "one two\nthree ü".to_owned() });
        assert_eq!(counts, Counts { lines: 2, words: 4, characters: 15, bytes: 16 });
    }

    #[test]
    fn a_diff_shows_what_changed() {
        let text = diff(Versions { before: "a\nb\n".to_owned(), after: "a\nc\n".to_owned() });
        assert_eq!(text, "--- before\n+++ after\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n");
    }
}
