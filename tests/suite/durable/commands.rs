//! What operators see of durable tasks, and what they do about them: `tasks show`, `journal`, `hold`, `release` and
//! `fail`, the audit log, metrics and `plugin inspect`.

use std::path::Path;

use serde_json::{Value, json};
use tests::modern::Modern;
use tests::wait::until;
use tests::{Host, Setup, command};

use super::{AT_ONCE, again, answer, question};
use crate::metrics::{METRICS, number, scrape};

fn durable_desk() -> Setup {
    Setup::new().plugin("desk", "durable = \"auto\"").config(AT_ONCE)
}

/// What a command prints for a person.
async fn said(arguments: &[&str], data: &Path) -> String {
    let all: Vec<_> = arguments.iter().copied().chain(["--data"]).collect();
    command::run(&mut command::bulkhead(), &all, Some(data)).await
}

/// A task that waits for its first answer.
async fn asking(host: &Host) -> (Modern, String) {
    let client = Modern::full(host, None);
    let id = client.task("book_trip", json!({})).await;
    question(&client, &id, "journey").await;
    (client, id)
}

/// Whether a table of entries names them in this order.
fn has_in_order(text: &str, parts: &[&str]) -> bool {
    let mut rest = text;
    parts.iter().all(|part| match rest.split_once(part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

#[tokio::test]
async fn journal_is_shown_by_a_host_without_one_and_after_a_kill() {
    let setup = durable_desk();
    let host = setup.start().await;
    let data = setup.data();
    let (_, id) = asking(&host).await;
    let shown = said(&["tasks", "show", &id], &data).await;
    assert!(has_in_order(&shown, &["durable", "journal, ", " entries, ", " bytes, mark at step "]), "{shown}");
    let running = command::json(&["tasks", "journal", &id, "--entries"], &data).await;
    assert_eq!((&running["class"], &running["attempt"]), (&json!("journal"), &json!(1)), "{running}");

    host.kill().await;
    let offline = command::json(&["tasks", "journal", &id, "--entries"], &data).await;
    assert_eq!(offline, running, "a store that no host runs says the same");
    let listed = offline["entries_listed"].as_array().expect("entries");
    assert_eq!(listed.len() as u64, offline["entries"].as_u64().expect("a number"));
    let bytes: u64 = listed.iter().filter_map(|entry| entry["bytes"].as_u64()).sum();
    assert_eq!(bytes, offline["bytes"].as_u64().expect("a number"));
    let table = said(&["tasks", "journal", &id, "--entries"], &data).await;
    let parts = ["ENTRY  STEP  KIND", "0      0     header", "question", "ask of bulkhead:plugin/task"];
    assert!(has_in_order(&table, &parts), "{table}");
    let first = said(&["tasks", "journal", &id, "--entries", "--max", "1"], &data).await;
    assert!(first.contains("--from 1"), "{first}");

    let host = setup.start().await;
    let client = Modern::full(&host, None);
    question(&client, &id, "journey").await;
    let shown = said(&["tasks", "show", &id], &data).await;
    assert!(has_in_order(&shown, &["dormant", "since 2", "interrupted by the end of its host"]), "{shown}");
    answer(&client, &id, "journey", json!({"destination": "a place that nobody else reads of", "travellers": 2})).await;
    question(&client, &id, "details").await;
    let shown = said(&["tasks", "show", &id], &data).await;
    assert!(shown.contains("went on: it was answered (attempt 2)") && !shown.contains("dormant"), "{shown}");
    let all = said(&["tasks", "journal", &id, "--entries", "--json"], &data).await;
    assert!(all.contains("\"answer\"") && !all.contains("nobody else"), "{all}");

    answer(&client, &id, "details", json!({"class": "economy", "confirm": true})).await;
    client.until_status(&id, "completed").await;
    let over = command::json(&["tasks", "journal", &id, "--entries"], &data).await;
    assert_eq!(over["entries_listed"], json!([]), "the journal went with the end: {over}");
    let shown = command::json(&["tasks", "show", &id], &data).await;
    assert_eq!(shown.get("durable"), None, "{shown}");
}

#[tokio::test]
async fn operator_holds_releases_and_fails_tasks() {
    let setup = durable_desk().config(METRICS).config("[audit]\nenabled = true");
    let host = setup.start().await;
    let data = setup.data();
    let (client, id) = asking(&host).await;
    let refused = command::output(&mut command::bulkhead(), &["tasks", "release", &id, "--data"], Some(&data)).await;
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("is not held"), "{why}");

    said(&["tasks", "hold", &id, "--message", "the bank is closed"], &data).await;
    let shown = said(&["tasks", "show", &id], &data).await;
    let parts = ["it is held by the operator: the bank is closed", "yes: `bulkhead tasks release "];
    assert!(has_in_order(&shown, &parts), "{shown}");
    assert_eq!(number(&scrape(&host, "*/*").await, &["bulkhead_tasks_held "]), 1.0);

    // It stays so over a crash.
    drop(client);
    let (host, client) = again(host).await;
    let held = command::json(&["tasks", "show", &id], &data).await;
    assert_eq!((&held["status"], &held["held"]), (&json!("paused"), &json!(true)), "{held}");
    let released = command::json(&["tasks", "release", &id], &data).await;
    assert_eq!(released["status"], "input_required", "{released}");
    assert_eq!(number(&scrape(&host, "*/*").await, &["bulkhead_tasks_dormant "]), 1.0);
    answer(&client, &id, "journey", json!({"destination": "Oslo", "travellers": 2})).await;
    question(&client, &id, "details").await;
    let page = scrape(&host, "*/*").await;
    assert_eq!(number(&page, &["bulkhead_task_wakes_total", "cause=\"answered\""]), 1.0);
    assert_eq!(number(&page, &["bulkhead_task_divergences_total"]), 0.0);
    assert_eq!(number(&page, &["bulkhead_tasks_held "]), 0.0);
    assert!(number(&page, &["bulkhead_journal_appends_total"]) >= 1.0, "{page}");
    assert!(number(&page, &["bulkhead_journal_bytes_total"]) >= 10.0, "{page}");

    let failed = command::json(&["tasks", "fail", &id, "--message", "it is not needed"], &data).await;
    assert_eq!(failed["status"], "failed", "{failed}");
    let now = client.until_status(&id, "failed").await;
    assert_eq!((&now["statusMessage"], &now["error"]["code"]), (&json!("it is not needed"), &json!(1003)), "{now}");
    host.terminate().await;
    let log = said(&["audit", "tail", "-n", "1000", "--json"], &data).await;
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of_task = events.iter().filter(|event| event["task"] == json!(id)).filter_map(|event| event["event"].as_str());
    let of_task: Vec<_> = of_task.filter(|event| *event != "task.read").collect();
    let expected = [
        "task.created",
        "task.asked",
        "task.held",
        "task.interrupted",
        "task.resumed",
        "task.answered",
        "task.asked",
        "task.failed",
    ];
    assert_eq!(of_task, expected, "{log}");
    let commands = events.iter().filter(|event| event["event"] == "operator.command");
    let commands: Vec<_> = commands.filter_map(|event| event["name"].as_str()).collect();
    for name in ["tasks_hold", "tasks_release", "tasks_fail"] {
        assert!(commands.iter().any(|command| command.contains(name)), "{name}: {commands:?}");
    }
}

#[tokio::test]
async fn file_gives_a_journal_up_and_that_is_counted() {
    let setup = Setup::new();
    let folder = setup.path("files");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("a.csv"), "name\nAda\n").expect("a file");
    let granted =
        format!("durable = \"auto\"\n[plugin.grants]\ndirectories = [{{ host = {folder:?}, guest = \"/data\" }}]\n");
    let host = setup.plugin("csv", &granted).config(AT_ONCE).config(METRICS).start().await;
    let client = Modern::full(&host, None);
    let id = client.task("csv_profile", json!({"path": "/data/a.csv"})).await;
    client.until_status(&id, "completed").await;
    let page = scrape(&host, "*/*").await;
    assert_eq!(number(&page, &["bulkhead_journal_demotions_total{reason=\"file\"}"]), 1.0);
}

#[tokio::test]
async fn plugin_inspect_and_check_say_whether_calls_are_durable() {
    let setup = Setup::new();
    let folder = setup.path("files");
    std::fs::create_dir(&folder).expect("a folder");
    let granted =
        format!("durable = \"auto\"\n[plugin.grants]\ndirectories = [{{ host = {folder:?}, guest = \"/data\" }}]\n");
    let setup = setup
        .plugin("csv", &granted)
        .plugin("desk", "durable = \"off\"")
        .config("[tenant.acme.grants]\ndirectories = []");
    let command = |subcommand: &str, name: &str| {
        let mut command = command::bulkhead();
        command.args(["plugin", subcommand]).arg(tests::place::component(name));
        command
    };
    let run =
        async |mut asked: tokio::process::Command, arguments: &[&str]| command::run(&mut asked, arguments, None).await;
    // Writes the configuration.
    drop(setup.command("serve"));
    let config = setup.path("bulkhead.toml");
    let config = config.to_str().expect("a path");
    let desk = run(command("inspect", "desk"), &[]).await;
    assert!(desk.contains("durable  yes\n"), "{desk}");
    let desk = run(command("inspect", "desk"), &["--config", config]).await;
    assert!(desk.contains("durable  yes, but `durable` of its [[plugin]] is off\n"), "{desk}");
    let csv = run(command("inspect", "csv"), &["--config", config]).await;
    let lines = "durable  no, directories are granted: /data\ndurable  yes in calls of tenant acme\n";
    assert!(csv.contains(lines), "{csv}");
    let csv = run(command("inspect", "csv"), &["--config", config, "--json"]).await;
    let csv: Value = serde_json::from_str(&csv).expect("JSON");
    let expected = json!({"possible": false, "whyNot": "directories are granted: /data", "setting": "auto",
        "tenants": {"acme": {"possible": true, "whyNot": null}}});
    assert_eq!(csv["durable"], expected);
    let checked = run(command("check", "csv"), &[]).await;
    let wishes = "durable: yes, as long as none of the directories is granted that it asks for: ";
    assert!(checked.contains(wishes), "{checked}");
}

/// What the host itself does after three divergences of a version, which no whole host can be made to have.
#[tokio::test]
async fn version_whose_journals_are_off_loses_its_new_tasks_alone_until_they_are_on_again() {
    let setup = durable_desk();
    let host = setup.start().await;
    let data = setup.data();
    let (client, before) = asking(&host).await;
    let off = command::json(&["plugin", "durable", "desk", "off"], &data).await;
    assert_eq!((&off["durable"], &off["changed"]), (&json!(false), &json!(true)), "{off}");
    let listed = said(&["plugin", "list"], &data).await;
    assert!(listed.contains("desk: new calls keep no journals since "), "{listed}");
    drop(client);
    let (client, lost) = asking(&host).await;
    let shown = said(&["tasks", "show", &lost], &data).await;
    assert!(shown.contains("its plugin was not durable when it began"), "{shown}");
    drop(client);

    let (host, client) = again(host).await;
    let failed = client.until_status(&lost, "failed").await;
    assert!(failed["statusMessage"].to_string().contains("The host stopped while this call ran"), "{failed}");
    answer(&client, &before, "journey", json!({"destination": "Oslo", "travellers": 2})).await;
    question(&client, &before, "details").await;
    let listed = command::json(&["plugin", "list"], &data).await;
    assert_eq!(listed["plugins"][0]["demoted"]["why"], "the operator says so", "a start changes nothing: {listed}");
    drop(client);

    let text = said(&["plugin", "durable", "desk", "on"], &data).await;
    assert!(text.contains(": new calls keep journals, as the configuration says"), "{text}");
    let (client, kept) = asking(&host).await;
    drop(client);
    let (_host, client) = again(host).await;
    answer(&client, &kept, "journey", json!({"destination": "Oslo", "travellers": 2})).await;
    question(&client, &kept, "details").await;
}

#[tokio::test]
async fn host_that_starts_with_its_tasks_held_says_so_until_they_are_released() {
    let host = durable_desk().start().await;
    let data = host.setup.data();
    let (client, id) = asking(&host).await;
    drop(client);
    let setup = host.kill().await.argument("--hold-tasks");
    let host = setup.start().await;
    let says_how = || host.log().contains("`bulkhead tasks release --status paused` lets them go on");
    until("the log to name the command", async || says_how().then_some(())).await;
    let status = command::json(&["host", "status"], &data).await;
    assert_eq!((&status["tasks_paused"], &status["tasks_held"]), (&json!(1), &json!(1)), "{status}");
    let shown = said(&["tasks", "show", &id], &data).await;
    assert!(shown.contains("it is held: the host was started with its tasks held"), "{shown}");

    let client = Modern::full(&host, None);
    let new = client.task("book_trip", json!({})).await;
    question(&client, &new, "journey").await;
    let held = command::json(&["tasks", "show", &id], &data).await;
    assert_eq!((&held["status"], &held["held"]), (&json!("paused"), &json!(true)), "{held}");
    let released = command::json(&["tasks", "release", "--status", "paused"], &data).await;
    assert_eq!(released["refused"], json!([]), "{released}");
    answer(&client, &id, "journey", json!({"destination": "Oslo", "travellers": 2})).await;
    question(&client, &id, "details").await;
    assert_eq!(command::json(&["host", "status"], &data).await["tasks_held"], json!(0));
}
