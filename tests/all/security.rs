//! The threat model names the tests that show what it promises: they exist.

use std::collections::BTreeSet;

use super::requirements::{read, repository, tests};

/// The rows of the tables, each as its cells.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    rows.map(|row| row.split(" | ").map(str::trim).collect::<Vec<_>>())
        .filter(|row| !row.iter().all(|cell| cell.starts_with("---")))
        .collect()
}

#[test]
fn every_promise_names_a_mechanism_and_tests_that_exist() {
    let text = read(&repository().join("host/SECURITY.md"));
    let tests = tests();
    let mut wrong = Vec::new();
    let mut promises = 0;
    for row in rows(&text) {
        let [who, promise, mechanism, shown] = row.as_slice() else { continue };
        if *who == "from whom" {
            continue;
        }
        promises += 1;
        if promise.len() < 20 || mechanism.len() < 20 {
            wrong.push(format!("{who}: say what is promised, and by what"));
        }
        let named: Vec<_> = shown.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            wrong.push(format!("{promise}: name a test"));
        }
        wrong
            .extend(named.iter().filter(|name| !tests.contains(**name)).map(|name| format!("there is no test {name}")));
    }
    assert!(promises >= 30, "only {promises} promises: where is the table?");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_adversary_has_a_part() {
    let text = read(&repository().join("host/SECURITY.md"));
    let named: BTreeSet<_> = rows(&text).into_iter().filter_map(|row| (row.len() == 4).then(|| row[0])).collect();
    for adversary in ["a client", "another tenant", "a plugin's author", "the network", "a thief of the disk"] {
        assert!(named.contains(adversary), "nothing is promised about {adversary}");
    }
    assert!(text.contains("## What is not promised") && text.contains("## Assets"));
}
