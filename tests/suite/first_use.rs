//! What a new user sees first: the example of README.md, and what the program says next.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tests::wait::soon;
use tests::{Setup, command, place};

/// The block of README.md that holds this text, for a host at another address.
fn example(text: &str, url: &str) -> String {
    let readme = std::fs::read_to_string(place::root().join("README.md")).expect("README.md");
    let blocks = readme.split("```sh\n").skip(1).filter_map(|rest| rest.split_once("```").map(|(block, _)| block));
    let block = blocks.into_iter().find(|block| block.contains(text)).expect("the example");
    assert!(block.contains("http://127.0.0.1:8808/mcp"), "{block}");
    block.replace("http://127.0.0.1:8808/mcp", url)
}

/// What a shell prints for it: the messages of the host.
async fn answers(example: &str) -> Vec<Value> {
    let output = command::output(tokio::process::Command::new("bash").arg("-euc"), &[example], None).await;
    let said = String::from_utf8_lossy(&output.stdout);
    let lines = said.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    let messages = lines.filter(|line| line.contains("\"jsonrpc\""));
    messages.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {output:?}"))).collect()
}

#[tokio::test]
async fn readme_examples_return_and_list_tasks() {
    // With the limits that `cargo xtask run` has, too: the defaults.
    let host = Setup::with(&["primes", "desk"]).start().await;
    let modern = answers(&example("MCP-Protocol-Version: 2026-07-28", &host.url)).await;
    assert_eq!(modern[0]["result"]["resultType"], "task", "{modern:?}");
    let legacy = answers(&example("initialize", &host.url)).await;
    let [created, listed] = &legacy[..] else { panic!("{legacy:?}") };
    assert_eq!(created["result"]["task"]["status"], "working", "{created}");
    assert_eq!(listed["result"]["tasks"].as_array().map(Vec::len), Some(2), "{listed}");
}

#[tokio::test]
async fn plugin_call_shows_guest_stdout_as_written() {
    let text = "one\t\"two\"\nthree \\ \u{1b}[31mred\u{7}\n\nlast";
    let hostile = place::component("hostile").display().to_string();
    let arguments = json!({ "text": text }).to_string();
    let output =
        command::output(&mut command::bulkhead(), &["plugin", "call", &hostile, "speak", &arguments], None).await;
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    // The tool reports the text on three other ways, too. Each report is one piece, but it may stand between two
    // printed lines.
    let shown = "one \"two\"\nthree \\  [31mred \n\nlast";
    let logged = json!(text).to_string();
    let reports = [format!("progress: 1 {shown}\n"), format!("status: {shown}\n"), format!("error: {logged}\n")];
    let printed = reports.iter().fold(said.clone(), |rest, report| {
        assert!(rest.contains(report), "no {report:?} in {said:?}");
        rest.replacen(report, "", 1)
    });
    assert_eq!(printed, "one\t\"two\"\nthree \\ \\u{1b}[31mred\\u{7}\n\nlast\n");
    assert!(!said.contains('\u{1b}'), "a pipe gets no escape codes: {said:?}");
}

#[tokio::test]
async fn host_without_plugins_logs_how_to_add_one() {
    let setup = Setup::new();
    let host = setup.start().await;
    let (_, setup) = host.terminate().await;
    let log = std::fs::read_to_string(setup.path("log")).expect("a log");
    let data = setup.data().display().to_string();
    let expected = format!("there is no plugin to serve: add one with `bulkhead plugin add FILE.wasm --data {data}`");
    assert!(log.contains(&expected), "{log}");
}

#[tokio::test]
async fn host_of_an_author_tells_of_no_missing_plugin() {
    let setup = Setup::new();
    let project = setup.path("live").display().to_string();
    let new = ["plugin", "new", "live", "--lang", "python", "--dir", &project];
    command::run(&mut command::bulkhead(), &new, None).await;
    let mut host = command::bulkhead();
    host.args(["plugin", "dev", "--host", "--listen", "127.0.0.1:0", &project, "--data"]).arg(setup.data());
    host.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let host = host.spawn().expect("it starts");
    let reachable = async {
        loop {
            let output =
                command::output(&mut command::bulkhead(), &["host", "status", "--data"], Some(&setup.data())).await;
            if output.status.success() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the host to serve", reachable).await;
    let pid = host.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).expect("it runs");
    kill_process(pid, Signal::TERM).expect("it can be told to stop");
    let output = soon("the host to stop", host.wait_with_output()).await.expect("it ends");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !log.contains("there is no plugin to serve"), "{log}");
}

#[tokio::test]
async fn first_token_create_says_that_authentication_is_on() {
    for format in [&[][..], &["--json"]] {
        let setup = Setup::new();
        // Who makes the second one knows.
        for is_first in [true, false] {
            let arguments = [&["token", "create", "--requestor", "anna"], format, &["--data"]].concat();
            let output = command::output(&mut command::bulkhead(), &arguments, Some(&setup.data())).await;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{said}");
            let turns_on = "authentication is on: the host answers 401 to every request without a token";
            assert_eq!(said.contains(turns_on), is_first, "{said}");
            assert!(said.contains("will not be shown again"), "{said}");
        }
    }
    let help = command::run(&mut command::bulkhead(), &["token", "create", "--help"], None).await;
    assert!(help.contains("turns authentication on"), "{help}");
}

#[tokio::test]
async fn folder_without_a_plugin_is_answered_with_what_makes_one() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("main.go"), "package main\n").expect("a file");
    let mut build = command::bulkhead();
    build.current_dir(folder.path());
    let output = command::output(&mut build, &["plugin", "build"], None).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for words in ["there is no plugin here", "`bulkhead plugin new`", "plugins/docs/other-languages.md"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}
