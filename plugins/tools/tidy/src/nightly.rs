//! The nightly list: `.ci/run` names every test that asks how often it is to be repeated (`rounds(…)`), and nothing
//! else.

use std::collections::BTreeSet;

use anyhow::Context as _;

use crate::Finding;
use crate::repository::Repository;

pub(crate) fn check(repository: &Repository) -> anyhow::Result<Vec<Finding>> {
    let script = repository.text(".ci/run")?;
    let listed = listed(&script).context("`.ci/run` has no list `scaled`")?;
    // The call is written in two parts, so that this file is not one that asks.
    let call = concat!("rounds", "(");
    let mut asking = Vec::new();
    let host = repository.crates().map(|name| format!("host/{name}/src"));
    for folder in host.chain(["tests/suite".to_owned()]).collect::<Vec<_>>() {
        for path in repository.files(&folder)?.into_iter().filter(|path| path.extension().is_some_and(|is| is == "rs"))
        {
            if repository.text(&format!("{folder}/{}", path.display()))?.contains(call) {
                let module = path.with_extension("");
                let parts = module.iter().map(|part| part.to_string_lossy()).filter(|part| part != "mod");
                asking.push(parts.collect::<Vec<_>>().join("::"));
            }
        }
    }
    anyhow::ensure!(asking.len() > 5, "only {} modules ask how often: has `rounds` another name?", asking.len());
    Ok(wrong_entries(&listed, &asking, repository.tests()))
}

/// The names in the list `scaled` of the script.
fn listed(script: &str) -> Option<Vec<&str>> {
    let (list, _) = script.split_once("\nscaled=(")?.1.split_once(')')?;
    Some(list.split_whitespace().collect())
}

/// `asking` are modules, below their crate.
fn wrong_entries(listed: &[&str], asking: &[String], tests: &BTreeSet<String>) -> Vec<Finding> {
    // Cargo's names of tests begin below the crate, ours with the crate.
    let below =
        |test: &str| test.strip_prefix("host::").unwrap_or(test).split_once("::").map(|(_, path)| path.to_owned());
    let names: BTreeSet<_> = tests.iter().filter_map(|test| below(test)).collect();
    let gone = listed.iter().filter(|name| !names.iter().any(|test| test.starts_with(**name)));
    let mut findings: Vec<_> = gone.map(|name| format!("`.ci/run` names {name}, and there is no such test")).collect();
    let is_listed =
        |module: &&String| listed.iter().any(|name| name.starts_with(module.as_str()) || module.starts_with(name));
    let missing = asking.iter().filter(|module| !is_listed(module));
    findings.extend(missing.map(|module| format!("{module} asks how often: add it to `scaled` in `.ci/run`")));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_stale_entries_are_found() {
        let script = "x\nscaled=(\n  starts\n  sled::tests\n  gone::test\n)\n";
        let listed = listed(script).unwrap();
        let tests = ["all::starts::one", "host::store::sled::tests::two"].map(str::to_owned).into();
        let asking = ["starts", "sled::tests::power", "forgotten"].map(str::to_owned);
        assert_eq!(
            wrong_entries(&listed, &asking, &tests),
            [
                "`.ci/run` names gone::test, and there is no such test",
                "forgotten asks how often: add it to `scaled` in `.ci/run`"
            ]
        );
    }
}
