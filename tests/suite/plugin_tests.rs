//! `bulkhead plugin test`: it passes for the samples, and fails when it should.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tests::{command, place};

/// Runs the tests of a folder against a component.
async fn run(component: &str, tests: &Path) -> (Option<i32>, Value, String) {
    let mut bulkhead = command::bulkhead();
    bulkhead.args(["plugin", "test"]).arg(place::component(component)).arg("--tests").arg(tests).arg("--json");
    let output = bulkhead.stdin(Stdio::null()).output().await.expect("the command starts");
    let report = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code(), report, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Runs one file with this text.
async fn run_text(component: &str, text: &str) -> (Option<i32>, Value, String) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("all.toml"), text).expect("a file");
    run(component, folder.path()).await
}

fn failures(report: &Value) -> Vec<String> {
    let cases = report["cases"].as_array().expect("cases");
    let text = |case: &Value| {
        let failures =
            case["failures"].as_array().expect("failures").iter().map(|text| text.as_str().unwrap_or_default());
        format!("{}: {}", case["name"].as_str().unwrap_or_default(), failures.collect::<Vec<_>>().join("\n"))
    };
    cases.iter().filter(|case| case["passed"] != json!(true)).map(text).collect()
}

#[tokio::test]
async fn tests_of_the_samples_pass() {
    for name in ["text", "http", "desk"] {
        let (code, report, err) = run(name, &place::root().join(format!("plugins/samples/{name}/tests"))).await;
        assert_eq!((code, failures(&report)), (Some(0), Vec::new()), "{name}: {report} {err}");
        assert!(report["passed"].as_u64().is_some_and(|passed| passed >= 2), "{report}");
    }
}

#[tokio::test]
async fn a_test_that_should_fail_fails_and_says_why() {
    let cases = r#"
        [[case]]
        name = "wrong text"
        tool = "book_trip"
        answers = { journey = { action = "decline" } }
        expect = { structured = { booked = true, summary = "x" } }
        [[case]]
        name = "missing answer"
        tool = "book_trip"
        expect = { contains = { structuredContent = { booked = false } } }
        [[case]]
        name = "missing answer, error expected"
        tool = "book_trip"
        expect = { error = "journey" }
        [[case]]
        name = "no such tool"
        tool = "book_flight"
        expect = { text = "x" }
        [[case]]
        name = "no error"
        tool = "book_trip"
        answers = { journey = { action = "decline" } }
        expect = { error = "declined" }
    "#;
    let (code, report, err) = run_text("desk", cases).await;
    assert_eq!(code, Some(1), "{report} {err}");
    let failures = failures(&report);
    assert_eq!((failures.len(), &report["failed"], &report["passed"]), (5, &json!(5), &json!(0)), "{failures:?}");
    for (failure, parts) in failures.iter().zip([
        ["wrong text", "/structuredContent/booked differs"],
        ["missing answer", "\"journey\" has no answer"],
        ["missing answer, error expected", "\"journey\" has no answer"],
        ["no such tool", "there is no tool \"book_flight\""],
        ["no error", "no error, but"],
    ]) {
        assert!(parts.iter().all(|part| failure.contains(part)), "{parts:?}: {failure}");
    }
}

#[tokio::test]
async fn a_request_that_the_test_does_not_answer_fails_it() {
    let cases = r#"
        [[case]]
        name = "another path"
        tool = "http_get"
        arguments = { url = "https://api.example.com/b" }
        expect = { error = "" }
        http = [{ url = "https://api.example.com/a" }]
        [[case]]
        name = "another host"
        tool = "http_get"
        arguments = { url = "https://other.example/" }
        expect = { error = "" }
    "#;
    let (code, report, err) = run_text("http", cases).await;
    assert_eq!(code, Some(1), "{report} {err}");
    let failures = failures(&report);
    assert_eq!(failures.len(), 2, "{failures:?}");
    assert!(failures[0].contains("an unexpected request: GET https://api.example.com/b"), "{failures:?}");
    assert!(failures[0].contains("the request was not made: GET https://api.example.com/a"), "{failures:?}");
    assert!(failures[1].contains("https://other.example") && failures[1].contains("[[http]]"), "{failures:?}");
}

#[tokio::test]
async fn settings_kv_secrets_and_clock_are_those_of_the_file() {
    let cases = r#"
        clock = 2026-01-31T09:00:00Z
        settings = { city = "Lisbon", limit = 3 }
        kv = { visits = "41" }
        secrets = { TOKEN = { value = "0123456789", to = ["https://api.example.com"] } }
        [[case]]
        name = "settings"
        tool = "settings"
        expect = { text_contains = "Lisbon" }
        [[case]]
        name = "kept"
        tool = "keep"
        arguments = { what = "get", key = "visits" }
        expect = { text = "2 bytes: 41" }
        [[case]]
        name = "set"
        tool = "keep"
        arguments = { what = "set", key = "visits", value = "x" }
        expect = { text = "kept" }
        [[case]]
        name = "each case begins anew"
        tool = "keep"
        arguments = { what = "get", key = "visits" }
        expect = { text = "2 bytes: 41" }
        [[case]]
        name = "secret"
        tool = "send"
        arguments = { method = "POST", url = "https://api.example.com/v1", headers = [["x-key", "{{secret:TOKEN}}"]], body = "{}" }
        expect = { contains = { structuredContent = { status = 201, body = "{{secret:TOKEN}} is good" } } }
        [[case.http]]
        method = "POST"
        url = "https://api.example.com/v1"
        request_headers = { x-key = "0123456789" }
        request_body = {}
        status = 201
        body = "0123456789 is good"
    "#;
    let (code, report, err) = run_text("probe", cases).await;
    assert_eq!((code, failures(&report)), (Some(0), Vec::new()), "{report} {err}");
    assert!(!report.to_string().contains("0123456789"), "{report}");
}

#[tokio::test]
async fn a_wrong_test_file_is_no_failed_test() {
    for (text, why) in [
        ("[[case]]\nname = 'a'\ntool = 'echo'\nexpected = {}\nexpect = { text = 'x' }", "expected"),
        ("[[case]]\nname = 'a'\ntool = 'echo'\nexpect = {}", "needs one of"),
        ("[[case]]\nname = 'a'\ntool = 'echo'\nexpect = { text = 'x' }\nhttp = [{ url = 'nowhere' }]", "nowhere"),
    ] {
        let (code, _, err) = run_text("text", text).await;
        assert!(code == Some(2) && err.contains(why) && err.contains("all.toml"), "{code:?} {err}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (code, _, err) = run("text", folder.path()).await;
    assert!(code == Some(2) && err.contains("there are no tests"), "{code:?} {err}");
}

#[tokio::test]
async fn component_older_than_its_sources_is_tested_with_a_warning() {
    let folder = tempfile::tempdir().expect("a folder");
    let project = folder.path().join("text");
    std::fs::create_dir_all(project.join("tests")).expect("a folder");
    std::fs::copy(place::component("text"), project.join("text.wasm")).expect("a component");
    let test =
        "[[case]]\nname = \"echoes\"\ntool = \"echo\"\narguments = { text = \"a\" }\nexpect = { text = \"a\" }\n";
    std::fs::write(project.join("plugin.py"), "").expect("a source");
    let made = std::fs::metadata(project.join("text.wasm")).and_then(|facts| facts.modified()).expect("a time");
    let run = async |source_ahead_s: u64| {
        std::fs::write(project.join("tests/all.toml"), test).expect("a test, which is newer in any case");
        let source = std::fs::File::options().write(true).open(project.join("plugin.py")).expect("a source");
        source.set_modified(made + std::time::Duration::from_secs(source_ahead_s)).expect("a time");
        let mut bulkhead = command::bulkhead();
        bulkhead.args(["plugin", "test", "text", "--json"]).current_dir(folder.path()).stdin(Stdio::null());
        let output = bulkhead.output().await.expect("the command starts");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        assert_eq!((output.status.code(), &report["passed"]), (Some(0), &json!(1)), "{output:?}");
        (report["newer_source"].clone(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (newer, said) = run(0).await;
    assert_eq!((newer, said.contains("is newer than")), (Value::Null, false), "{said}");
    let (newer, said) = run(5).await;
    assert_eq!(newer, json!("text/plugin.py"), "{said}");
    assert!(said.contains("text/plugin.py is newer than text/text.wasm"), "{said}");
    assert!(said.contains("`bulkhead plugin build text`"), "{said}");
}
