//! The table of requirements: every requirement of the protocol has a row, and every test that a row names exists.
//!
//! The table is the Markdown below `host/docs/contributing/requirements/`. A line `Ids: A 1-9, …` says which ids a file
//! answers for; a row has an id, the requirement in short, and what shows it: names of tests in backticks, or why there
//! are none.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;

use crate::Finding;
use crate::repository::Repository;

/// How a row begins that names no test.
const REASONS: [&str; 2] = ["does not apply: ", "not followed: "];

struct Row {
    id: String,
    requirement: String,
    shown_by: String,
}

impl Row {
    /// What stands in backticks and has a colon in it; all else is a word of the text.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.shown_by.split('`').skip(1).step_by(2).filter(|word| word.contains(':'))
    }

    fn has_a_reason(&self) -> bool {
        REASONS.iter().any(|start| self.shown_by.strip_prefix(start).is_some_and(|reason| reason.len() > 10))
    }
}

/// Tests and checks that a row may name.
struct Known<'a> {
    tests: &'a BTreeSet<String>,
    /// The scenarios of the official suite that `tests/external/conformance/run` insists on, each with its revision.
    scenarios: BTreeSet<String>,
    /// The texts of the interop suite's clients.
    clients: Vec<String>,
}

impl Known<'_> {
    fn has(&self, name: &str) -> bool {
        match name.split_once(':') {
            Some(("conformance", scenario)) => self.scenarios.contains(scenario),
            Some(("interop", check)) => self.clients.iter().any(|text| text.contains(&format!("\"{check}\""))),
            _ => self.tests.contains(name),
        }
    }
}

pub(crate) fn check(repository: &Repository) -> anyhow::Result<Vec<Finding>> {
    let scenarios = repository.text("tests/external/conformance/scenarios")?;
    let scenarios = scenarios.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    let clients = repository.files("tests/external/interop")?;
    // A client's folder also has files that are no text.
    let clients =
        clients.iter().filter_map(|path| repository.text(&format!("tests/external/interop/{}", path.display())).ok());
    let known = Known { tests: repository.tests(), scenarios, clients: clients.collect() };
    let mut tables = Vec::new();
    for path in repository.files("host/docs/contributing/requirements")? {
        tables.push(table(&repository.text(&format!("host/docs/contributing/requirements/{}", path.display()))?)?);
    }
    let promised: usize = tables.iter().map(|(ids, _)| ids.len()).sum();
    anyhow::ensure!(promised > 300, "only {promised} ids: where is the table of requirements?");
    Ok(wrong_rows(&tables, &known))
}

/// The ids that the lines `Ids:` of a file promise, and its rows.
fn table(text: &str) -> anyhow::Result<(Vec<String>, Vec<Row>)> {
    let mut ids = Vec::new();
    for range in text.lines().filter_map(|line| line.strip_prefix("Ids: ")).flat_map(|ranges| ranges.split(", ")) {
        let (family, numbers) =
            range.rsplit_once(' ').with_context(|| format!("`Ids:` has {range}, which is no range"))?;
        let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
        let number = |text: &str| text.parse::<u32>().with_context(|| format!("`Ids:` has {range}"));
        ids.extend((number(first)?..=number(last)?).map(|number| format!("{family}{number}")));
    }
    let rows = text.lines().filter_map(|line| {
        let line = line.strip_prefix("| ")?.strip_suffix(" |")?;
        // A bar inside of a cell is written with a backslash before it.
        let [id, requirement, shown_by] = line.splitn(3, " | ").collect::<Vec<_>>().try_into().ok()?;
        let is_id = id.ends_with(|last: char| last.is_ascii_digit());
        is_id.then(|| Row { id: id.into(), requirement: requirement.into(), shown_by: shown_by.into() })
    });
    Ok((ids, rows.collect()))
}

fn wrong_rows(tables: &[(Vec<String>, Vec<Row>)], known: &Known<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut rows_of = BTreeMap::<&str, usize>::new();
    for row in tables.iter().flat_map(|(_, rows)| rows) {
        *rows_of.entry(&row.id).or_default() += 1;
        if row.requirement.len() < 10 {
            findings.push(format!("{}: say what is required", row.id));
        }
        if row.names().next().is_none() && !row.has_a_reason() {
            findings.push(format!("{}: name a test, or begin with one of {REASONS:?} and say why", row.id));
        }
        let missing = row.names().filter(|name| !known.has(name));
        findings.extend(missing.map(|name| format!("{}: there is no test {name}", row.id)));
    }
    let promised: BTreeSet<_> = tables.iter().flat_map(|(ids, _)| ids).map(String::as_str).collect();
    findings.extend(promised.iter().filter(|id| !rows_of.contains_key(*id)).map(|id| format!("{id}: there is no row")));
    for (id, count) in rows_of {
        if !promised.contains(id) {
            findings.push(format!("{id}: no line `Ids:` names it"));
        } else if count > 1 {
            findings.push(format!("{id}: {count} rows"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_rows_of_a_table_are_found() {
        let text = "Ids: A 1-4, B-C 1\n\n| id | what | shown |\n|---|---|---|\n\
            | A1 | a \\| b, at length | `x::y`, `z`, `interop:client`, `conformance:2025 ping` |\n\
            | A2 | what is required | `x::gone`, `interop:gone`, `conformance:gone` |\n\
            | A3 | what is required | not followed: |\n| A3 | what is required | `x::y` |\n\
            | A9 | short | does not apply: for a long reason |";
        let tests = BTreeSet::from(["x::y".to_owned()]);
        let known = Known {
            tests: &tests,
            scenarios: ["2025 ping".to_owned()].into(),
            clients: vec!["check(\"client\")".to_owned()],
        };
        let findings = wrong_rows(&[table(text).unwrap()], &known);
        let begins: Vec<_> = findings.iter().map(|finding| finding.get(..24).unwrap_or(finding)).collect();
        assert_eq!(
            begins,
            [
                "A2: there is no test x::",
                "A2: there is no test int",
                "A2: there is no test con",
                "A3: name a test, or begi",
                "A9: say what is required",
                "A4: there is no row",
                "B-C1: there is no row",
                "A3: 2 rows",
                "A9: no line `Ids:` names"
            ]
        );
        assert!(table("Ids: A x").is_err());
    }
}
