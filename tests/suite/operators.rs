//! What an operator sees: at a terminal, without naming the data directory, and over time.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tests::client::{Client, all_capabilities};
use tests::wait::{soon, until};
use tests::{Setup, command, place};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Runs `bulkhead` at a terminal of its own and types something; its exit code and everything that the terminal showed.
async fn at_a_terminal(arguments: &str, typed: &str, environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut script = command::program(Path::new("script"));
    let line = format!("{} {arguments}", place::host_binary().display());
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR").env_remove("COLUMNS");
    script.envs(environment.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = script.spawn().expect("script(1) starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(typed.as_bytes()).await.expect("typed");
    let output = soon("the command", child.wait_with_output()).await.expect("it ends");
    drop(stdin);
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[tokio::test]
async fn first_token_at_a_terminal_is_made_only_after_a_yes() {
    let setup = Setup::new();
    let data = setup.data();
    let create = |more: &str| format!("token create --requestor anna --data {} {more}", data.display());
    let (code, said) = at_a_terminal(&create(""), "n\n", &[]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("turns authentication on for everybody") && said.contains("no token was made"), "{said}");
    let (code, said) = at_a_terminal(&create(""), "yes\n", &[]).await;
    assert!(code == Some(0) && said.contains("go on?") && said.contains("bh_"), "{said}");
    // Authentication is on already.
    let (code, said) = at_a_terminal(&create(""), "", &[]).await;
    assert!(code == Some(0) && !said.contains("go on?"), "{said}");
    let listed = command::json(&["token", "list"], &data).await;
    assert_eq!(listed["tokens"].as_array().map(Vec::len), Some(2));

    let setup = Setup::new();
    let line = format!("token create --requestor anna --yes --data {}", setup.data().display());
    let (code, said) = at_a_terminal(&line, "", &[]).await;
    assert!(code == Some(0) && !said.contains("go on?"), "{said}");
}

#[tokio::test]
async fn tables_fit_their_terminal_and_have_colours_only_there() {
    let setup = Setup::new();
    let data = setup.data();
    let name = "a".repeat(60);
    command::json(&["token", "create", "--requestor", "anna", "--name", &name], &data).await;
    let list = format!("token list --data {}", data.display());
    let (_, said) = at_a_terminal(&list, "", &[("COLUMNS", "90"), ("NO_COLOR", "1")]).await;
    assert!(said.lines().all(|line| line.trim_end().chars().count() <= 90), "{said}");
    assert!(said.contains('…') && !said.contains(&name) && !said.contains('\u{1b}'), "{said}");
    let (_, said) = at_a_terminal(&format!("{list} --wide"), "", &[("COLUMNS", "90")]).await;
    assert!(said.contains(&name) && said.contains("\u{1b}[1m") && said.contains("\u{1b}[32mactive"), "{said}");
    let piped = command::run(&mut command::bulkhead(), &["token", "list", "--data"], Some(&data)).await;
    assert!(piped.contains(&name) && !piped.contains('\u{1b}'), "{piped}");
}

#[tokio::test]
async fn commands_find_the_data_directory_of_their_host() {
    let setup = Setup::with(&["text"]);
    let token = setup.token("anna", "acme").await;
    assert!(token.starts_with("bh_"));
    let elsewhere = tempfile::tempdir().expect("a folder");
    let data = setup.data();
    let config = elsewhere.path().join("bulkhead.toml");
    let list = async |variable: Option<(&str, &Path)>, arguments: &[&str]| {
        let mut list: Command = command::bulkhead();
        list.current_dir(elsewhere.path()).envs(variable);
        command::output(&mut list, &[&["token", "list", "--json"], arguments].concat(), None).await
    };
    let lost = list(None, &[]).await;
    let said = String::from_utf8_lossy(&lost.stderr).into_owned();
    assert_eq!(lost.status.code(), Some(1), "{said}");
    for place in
        ["--data: not given", "BULKHEAD_SERVER_DATA: not set", "BULKHEAD_CONFIG: not set", "./bulkhead.toml: not there"]
    {
        assert!(said.contains(place), "{place}: {said}");
    }
    assert!(said.contains("name the data directory of the host with --data DIR"), "{said}");
    let finds = async |what: &str, variable: Option<(&str, &Path)>, arguments: &[&str]| {
        let output = list(variable, arguments).await;
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        assert_eq!(listed["tokens"][0]["requestor"], "anna", "{what}: {}", String::from_utf8_lossy(&output.stderr));
    };
    finds("BULKHEAD_SERVER_DATA", Some(("BULKHEAD_SERVER_DATA", &data)), &[]).await;
    std::fs::write(&config, format!("[server]\ndata = {data:?}\n")).expect("written");
    finds("./bulkhead.toml", None, &[]).await;
    let other = elsewhere.path().join("other.toml");
    std::fs::rename(&config, &other).expect("moved");
    finds("BULKHEAD_CONFIG", Some(("BULKHEAD_CONFIG", &other)), &[]).await;
    finds("--config", None, &["--config", other.to_str().expect("a path")]).await;
}

#[tokio::test]
async fn top_shows_what_runs_by_tenant_and_plugin() {
    let setup = Setup::with(&["desk"]);
    let token = setup.token("anna", "acme").await;
    let host = setup.start().await;
    let anna = Client::connect_as(&host, Some(&token), all_capabilities()).await;
    let task = anna.task("wait", json!({"ms": 600_000})).await;
    let looked = until("the task", async || {
        let looked = command::json(&["top", "--once"], &setup.data()).await;
        (looked["plugins"][0]["tasks"] == 1).then_some(looked)
    })
    .await;
    assert_eq!((&looked["plugins"][0]["plugin"], &looked["tenants"][0]["tenant"]), (&json!("desk"), &json!("acme")));
    let limits = looked["limits"].as_array().expect("limits").iter();
    let percents: Vec<_> = limits.map(|limit| limit["percent"].as_u64().expect("a number")).collect();
    assert!(!percents.is_empty() && percents.is_sorted_by(|one, next| one >= next), "{looked}");
    let text = command::run(&mut command::bulkhead(), &["top", "--once", "--data"], Some(&setup.data())).await;
    assert!(text.contains("PLUGIN") && text.contains("acme") && text.contains("tasks_stored_per_tenant"), "{text}");

    let all = command::json(&["limits"], &setup.data()).await;
    assert!(all["host"].get("calls_running_total").is_some(), "{all}");
    let over = command::json(&["limits", "--over", "100"], &setup.data()).await;
    assert_eq!((&over["host"], &over["tenants"]), (&json!({}), &json!([])), "nothing is full");

    let gone = host.kill().await;
    let output = command::output(&mut command::bulkhead(), &["top", "--once", "--data"], Some(&gone.data())).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("no host runs on this data directory"), "{task}: {said}");
}

#[tokio::test]
async fn audit_tail_names_tenants_and_requestors_of_a_running_host() {
    let setup = Setup::with(&["text"]).config("[audit]\nenabled = true");
    let token = setup.token("anna", "acme").await;
    let host = setup.start().await;
    let anna = Client::connect_as(&host, Some(&token), all_capabilities()).await;
    anna.tool("echo", json!({"text": "hello"})).await.expect("a result");
    let tail = async || {
        let arguments = ["audit", "tail", "-n", "200", "--data"];
        command::run(&mut command::bulkhead(), &arguments, Some(&setup.data())).await
    };
    let named = until("the call in the log", async || {
        let said = tail().await;
        let is_named = |line: &str| line.contains("tenant=acme") && line.contains("requestor=anna");
        said.lines().any(is_named).then_some(said)
    })
    .await;
    let call = named.lines().find(|line| line.contains("requestor=anna")).expect("a line");
    // As --json has it, and where no host runs: by ids.
    let arguments = ["audit", "tail", "-n", "200", "--json", "--data"];
    let json = command::run(&mut command::bulkhead(), &arguments, Some(&setup.data())).await;
    assert!(!json.contains(r#""tenant":"acme""#), "{call}: {json}");
    host.terminate().await;
    assert!(!tail().await.contains("tenant=acme"));
}

#[tokio::test]
async fn plugin_stage_says_what_would_change_and_what_to_do_next() {
    let setup = Setup::new();
    let file = place::component("text").display().to_string();
    let stage = ["plugin", "stage", &file, "--data"];
    let said = command::run(&mut command::bulkhead(), &stage, Some(&setup.data())).await;
    assert!(said.contains("no version of text is active"), "{said}");
    let next = said.lines().find_map(|line| line.strip_prefix("next: bulkhead ")).expect("the next command");
    let arguments: Vec<_> = next.split(' ').chain(["--data"]).collect();
    let switched = command::run(&mut command::bulkhead(), &arguments, Some(&setup.data())).await;
    assert!(switched.starts_with("text: - -> "), "{switched}");
}
