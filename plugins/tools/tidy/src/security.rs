//! The threat model, `host/docs/security.md`, and its promises: each names tests that exist, and each adversary is
//! promised something.

use std::collections::BTreeSet;

use crate::Finding;
use crate::repository::Repository;

const MODEL: &str = "host/docs/security.md";
const PROMISES: &str = "host/docs/reference/promises.md";
const ADVERSARIES: [&str; 5] =
    ["a client", "another tenant", "a plugin's author", "the network", "a thief of the disk"];
const SECTIONS: [&str; 2] = ["## What is not promised", "## Assets"];

pub(crate) fn check(repository: &Repository) -> anyhow::Result<Vec<Finding>> {
    let text = repository.text(PROMISES)?;
    let promises = promises(&text).len();
    anyhow::ensure!(promises >= 30, "only {promises} promises: where is the table of {PROMISES}?");
    let mut findings = wrong_promises(&text, repository.tests());
    let model = repository.text(MODEL)?;
    let missing = SECTIONS.iter().filter(|section| !model.contains(*section));
    findings.extend(missing.map(|section| format!("{MODEL} has no section {section}")));
    Ok(findings)
}

/// The rows of the tables of promises: from whom, promise, mechanism, tests.
fn promises(text: &str) -> Vec<[&str; 4]> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let rows = rows.filter_map(|row| row.split(" | ").map(str::trim).collect::<Vec<_>>().try_into().ok());
    rows.filter(|[who, ..]: &[&str; 4]| *who != "from whom" && !who.starts_with("---")).collect()
}

fn wrong_promises(text: &str, tests: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut named = BTreeSet::new();
    for [who, promise, mechanism, shown] in promises(text) {
        named.insert(who);
        if promise.len() < 20 || mechanism.len() < 20 {
            findings.push(format!("{who}: say what is promised, and by what"));
        }
        let shown_by: Vec<_> = shown.split('`').skip(1).step_by(2).collect();
        if shown_by.is_empty() {
            findings.push(format!("{promise}: name a test"));
        }
        let missing = shown_by.into_iter().filter(|name| !tests.contains(*name));
        findings.extend(missing.map(|name| format!("{promise}: there is no test {name}")));
    }
    let missing = ADVERSARIES.iter().filter(|adversary| !named.contains(*adversary));
    findings.extend(missing.map(|adversary| format!("nothing is promised about {adversary}")));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_promises_are_found() {
        let text = "| from whom | promise | mechanism | tests |\n| --- | --- | --- | --- |\n\
            | a client | reads no other task at all | by an index for each requestor | `x::y`, `x::gone` |\n\
            | another tenant | short | by an index for each tenant | none |\n\
            | the network | learns no token from a log | by keeping digests only | `x::y` |\n\
            | a thief of the disk | reads no task without the key | by authenticated encryption | `x::y` |\n";
        let findings = wrong_promises(text, &["x::y".to_owned()].into());
        assert_eq!(
            findings,
            [
                "reads no other task at all: there is no test x::gone",
                "another tenant: say what is promised, and by what",
                "short: name a test",
                "nothing is promised about a plugin's author",
            ]
        );
    }
}
