//! What comes more often at night is run there: `.ci/run` names every test that asks how often.

use super::requirements::{files, read, repository, tests};

/// The names in the list `scaled` of `.ci/run`.
fn listed() -> Vec<String> {
    let script = read(&repository().join(".ci/run"));
    let list = script.split_once("\nscaled=(").and_then(|(_, rest)| rest.split_once(')')).expect("a list").0;
    list.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn every_test_that_scales_is_in_the_list_of_the_night() {
    let listed = listed();
    let tests = tests();
    for name in &listed {
        let is_there = |test: &String| test.split_once("::").is_some_and(|(_, path)| path.starts_with(name.as_str()));
        assert!(tests.iter().any(is_there), "`.ci/run` names {name}, and there is no such test");
    }
    let call = concat!("rounds", "(");
    for folder in ["tests/all", "host/src"] {
        let root = repository().join(folder);
        let sources = files(&root).into_iter().filter(|path| path.extension().is_some_and(|is| is == "rs"));
        for path in sources.filter(|path| read(path).contains(call)) {
            let module = path.strip_prefix(&root).expect("it is below").with_extension("");
            let module: Vec<_> =
                module.iter().map(|part| part.to_string_lossy()).filter(|part| part != "mod").collect();
            let module = module.join("::");
            let is_run = listed.iter().any(|name| name.starts_with(&module) || module.starts_with(name.as_str()));
            assert!(is_run, "{module} asks how often, and `.ci/run` does not name it");
        }
    }
}
