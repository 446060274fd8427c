//! The page of the reference that lists every family.

use std::fmt::Write as _;

use crate::calls::Outcome;
use crate::families::FAMILIES;

const INTRODUCTION: &str = "\
# Metrics

For operators. This page lists every metric of a host with `[metrics]`. `cargo xtask docs` writes it from the program; do not edit it.

Labels that have no value are left out. Their values come from the program, from the catalog or from names in the configuration. No
metric names a requestor, a session, a task or a URI, or says what a call was given or gave back. A series is there once there is something to
count, and goes with its plugin or tenant. Beyond `metrics.series_max` lines everything counts under `_overflow`.
";

/// The page, in Markdown.
pub fn markdown() -> String {
    let mut page = String::from(INTRODUCTION);
    page.push_str("\n| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n");
    for family in FAMILIES {
        let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let labels = if labels.is_empty() { "–".to_owned() } else { labels.join(", ") };
        let name = family.shown_name();
        let kind = family.type_name();
        let meaning = family.meaning;
        // Writing to a String cannot fail.
        let _ = writeln!(page, "| `{name}` | {kind} | {labels} | {meaning} |");
    }
    let outcomes: Vec<_> = Outcome::ALL.iter().map(|outcome| format!("`{}`", outcome.name())).collect();
    let _ = writeln!(page, "\nThe values of `outcome` of calls are {}.", outcomes.join(", "));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_and_outcome_is_on_the_page() {
        let page = markdown();
        for family in FAMILIES {
            assert!(page.contains(&format!("\n| `{}` | ", family.shown_name())), "{}", family.name);
        }
        assert!(page.contains("`tool_error`"));
    }
}
