//! The table of requirements: every requirement of the protocol has a row, and every test that a row names exists.
//!
//! The table is the Markdown below `tests/requirements/`. A line `Ids: A 1-9, …` says which ids a file answers for; a row has an
//! id, the requirement in short, and what shows it: names of tests in backticks, or why there are none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

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

pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are a folder of the repository")
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below a folder.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("a folder can be read").path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The ids that the lines `Ids:` of a file promise, and its rows.
fn table(text: &str) -> (Vec<String>, Vec<Row>) {
    let promised = text.lines().filter_map(|line| line.strip_prefix("Ids: ")).flat_map(|ranges| ranges.split(", "));
    let ids = promised.flat_map(|range| {
        let (family, numbers) = range.rsplit_once(' ').unwrap_or_else(|| panic!("no range: {range}"));
        let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
        let number = |text: &str| text.parse::<u32>().unwrap_or_else(|error| panic!("{range}: {error}"));
        (number(first)..=number(last)).map(move |number| format!("{family}{number}"))
    });
    let rows = text.lines().filter_map(|line| {
        // A bar inside of a cell is written with a backslash before it.
        let line = line.strip_prefix("| ")?.strip_suffix(" |")?;
        let [id, requirement, shown_by] = line.splitn(3, " | ").collect::<Vec<_>>().try_into().ok()?;
        let is_id = id.ends_with(|last: char| last.is_ascii_digit());
        is_id.then(|| Row { id: id.into(), requirement: requirement.into(), shown_by: shown_by.into() })
    });
    (ids.collect(), rows.collect())
}

/// Adds the names of the tests in a source file, `module` being its path.
fn add_tests(text: &str, module: &str, names: &mut BTreeSet<String>) {
    let mut inner = String::new();
    let (mut is_test, mut is_ignored) = (false, false);
    for line in text.lines() {
        let visible = line.strip_prefix("pub(crate) ").unwrap_or(line);
        if let Some(name) = visible.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(" {")) {
            inner = format!("{name}::");
        } else if line == "}" {
            // The end of a module, or of an item outside of one.
            inner.clear();
        }
        let line = line.trim_start();
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            (is_test, is_ignored) = (true, false);
        } else if line.starts_with("#[ignore") {
            is_ignored = true;
        } else if let Some(rest) = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "))
            && std::mem::take(&mut is_test)
            && !is_ignored
        {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            names.insert(format!("{module}::{inner}{name}"));
        }
    }
}

/// Every test of the crates that are looked at: `host::…`, `sdk::…` and `all::…`, with the path of the module.
pub(crate) fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (crate_name, folder) in [("host", "host/src"), ("sdk", "plugins/sdk/src"), ("all", "tests/all")] {
        let root = repository().join(folder);
        for path in files(&root).into_iter().filter(|path| path.extension().is_some_and(|is| is == "rs")) {
            let relative = path.strip_prefix(&root).expect("it is below the folder").with_extension("");
            let parts = relative.iter().map(|part| part.to_string_lossy().into_owned());
            let parts = parts.filter(|part| !matches!(part.as_str(), "mod" | "lib" | "main"));
            let module = std::iter::once(crate_name.to_owned()).chain(parts).collect::<Vec<_>>().join("::");
            add_tests(&read(&path), &module, &mut names);
        }
    }
    names
}

/// The scenarios of the official suite that `tests/conformance/run` insists on, each with its revision.
fn scenarios() -> BTreeSet<String> {
    let listed = read(&repository().join("tests/conformance/scenarios"));
    listed.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// Whether a client of the interop suite has a check of this name.
fn is_checked_by_clients(name: &str) -> bool {
    let quoted = format!("\"{name}\"");
    let clients = files(&repository().join("tests/interop"));
    clients.into_iter().any(|path| fs::read_to_string(path).is_ok_and(|text| text.contains(&quoted)))
}

#[test]
fn every_requirement_has_a_row_and_every_row_names_tests_that_exist() {
    let (tests, scenarios) = (tests(), scenarios());
    let mut wrong = Vec::new();
    let mut rows_of = BTreeMap::<String, usize>::new();
    let mut promised = BTreeSet::new();
    for path in files(&repository().join("tests/requirements")) {
        let (ids, rows) = table(&read(&path));
        promised.extend(ids);
        for row in rows {
            *rows_of.entry(row.id.clone()).or_default() += 1;
            if row.requirement.len() < 10 {
                wrong.push(format!("{}: say what is required", row.id));
            }
            if row.names().next().is_none() && !row.has_a_reason() {
                wrong.push(format!("{}: name a test, or begin with one of {REASONS:?} and say why", row.id));
            }
            for name in row.names() {
                let exists = match name.split_once(':') {
                    Some(("conformance", scenario)) => scenarios.contains(scenario),
                    Some(("interop", check)) => is_checked_by_clients(check),
                    _ => tests.contains(name),
                };
                if !exists {
                    wrong.push(format!("{}: there is no test {name}", row.id));
                }
            }
        }
    }
    wrong.extend(promised.iter().filter(|id| !rows_of.contains_key(*id)).map(|id| format!("{id}: there is no row")));
    for (id, count) in &rows_of {
        if !promised.contains(id) || *count > 1 {
            wrong.push(format!("{id}: {count} rows, and the files promise {}", usize::from(promised.contains(id))));
        }
    }
    assert!(promised.len() > 300, "only {} ids: where is the table?", promised.len());
    assert!(wrong.is_empty(), "{} things are wrong with the table:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_is_wrong_with_a_table_is_found() {
    let text = "Ids: A 1-2, B-C 1\n\n| id | what | shown |\n|---|---|---|\n| A1 | a \\| b | `x::y`, `z`, `i:z` |\n| A9 | c | not followed: |";
    let (ids, rows) = table(text);
    assert_eq!(ids, ["A1", "A2", "B-C1"]);
    assert_eq!(rows[0].names().collect::<Vec<_>>(), ["x::y", "i:z"]);
    assert!(!rows[1].has_a_reason() && rows[1].names().next().is_none());
    let mut names = BTreeSet::new();
    let source = "#[test]\nfn one() {\n}\nmod unit {\n    #[tokio::test(flavor = \"x\")]\n    async fn two() {}\n    fn three() {}\n    #[test]\n    #[ignore]\n    fn four() {}\n}\n#[test]\nfn five() {\n}\n";
    add_tests(source, "m", &mut names);
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["m::five", "m::one", "m::unit::two"]);
    assert!(tests().contains("all::requirements::what_is_wrong_with_a_table_is_found"), "this one is among them");
}
