//! `tasks replay ID --check`: whether a stored task can be brought back, said before anything depends on it.

use std::path::Path;

use serde_json::{Value, json};
use tests::modern::Modern;
use tests::{Host, Setup, command};

use super::{AT_ONCE, answer, question};
use crate::metrics::{METRICS, scrape};

/// The exit code of a call that does something else than its journal says.
const DIFFERENT: i32 = 5;
/// That of a check that cannot be made.
const FAILED: i32 = 1;

/// What a check says, and its exit code.
async fn check(id: &str, data: &Path, more: &[&str]) -> (i32, String) {
    let all: Vec<_> = ["tasks", "replay", id, "--check"].iter().chain(more).chain(&["--data"]).copied().collect();
    let done = command::output(&mut command::bulkhead(), &all, Some(data)).await;
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    (done.status.code().expect("a code"), said)
}

async fn checked(id: &str, data: &Path) -> (i32, Value) {
    let (code, said) = check(id, data, &["--json"]).await;
    (code, serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}")))
}

/// A task that waits for its second answer.
async fn asking(host: &Host) -> (Modern, String) {
    let client = Modern::full(host, None);
    let id = client.task("book_trip", json!({})).await;
    question(&client, &id, "journey").await;
    answer(&client, &id, "journey", json!({"destination": "a place that nobody else reads of", "travellers": 2})).await;
    question(&client, &id, "details").await;
    (client, id)
}

async fn finish(client: &Modern, id: &str) {
    answer(client, id, "details", json!({"class": "economy", "confirm": true})).await;
    let done = client.until_status(id, "completed").await;
    assert!(done["result"].to_string().contains("Booked 2 economy seats"), "{done}");
}

#[tokio::test]
async fn waiting_task_agrees_with_its_journal_and_is_not_disturbed() {
    let setup = Setup::new().plugin("desk", "durable = \"auto\"").config(AT_ONCE).config(METRICS);
    let setup = setup.config("[audit]\nenabled = true");
    let host = setup.start().await;
    let data = setup.data();
    let (client, id) = asking(&host).await;
    let before = command::json(&["tasks", "show", &id], &data).await;
    let (code, found) = checked(&id, &data).await;
    assert_eq!((code, &found["agrees"], found.get("divergence")), (0, &json!(true), None), "{found}");
    for member in ["entries", "bytes", "mark"] {
        assert_eq!(found[member], before["durable"][member], "{member}: {found}");
    }
    let (code, said) = check(&id, &data, &[]).await;
    assert!(code == 0 && said.contains("agrees   yes") && !said.contains("nobody else"), "{code}: {said}");
    assert_eq!(command::json(&["tasks", "show", &id], &data).await, before, "its task is as it was");
    let page = scrape(&host, "*/*").await;
    let counted = page.lines().filter(|line| line.contains("tool=\"book_trip\"") && !line.ends_with(" 0"));
    assert_eq!(counted.collect::<Vec<_>>(), [""; 0], "nobody called it: {page}");

    // The same in the next life, whose run is in the same place.
    drop(client);
    let host = host.kill().await.start().await;
    let client = Modern::full(&host, None);
    question(&client, &id, "details").await;
    assert_eq!(checked(&id, &data).await, (0, found));
    finish(&client, &id).await;
    let (code, said) = check(&id, &data, &[]).await;
    assert!(code == FAILED && said.contains("its journal went with its end"), "{code}: {said}");
    let (code, said) = check("0123", &data, &[]).await;
    assert!(code == FAILED && said.contains("there is no task"), "{code}: {said}");

    host.terminate().await;
    let (code, said) = check(&id, &data, &[]).await;
    assert!(code == FAILED && said.contains("no host runs on this data directory"), "{code}: {said}");
    let log = command::run(&mut command::bulkhead(), &["audit", "tail", "-n", "1000", "--data"], Some(&data)).await;
    assert!(log.contains("tasks_replay"), "each check is noted with who made it: {log}");
    assert!(!log.contains("task.diverged"), "{log}");
}

#[tokio::test]
async fn task_that_is_not_durable_has_nothing_to_check() {
    let host = Setup::new().plugin("desk", "durable = \"off\"").config(AT_ONCE).start().await;
    let client = Modern::full(&host, None);
    let id = client.task("book_trip", json!({})).await;
    question(&client, &id, "journey").await;
    let (code, said) = check(&id, &host.setup.data(), &[]).await;
    assert!(code == FAILED && said.contains("its plugin was not durable when it began"), "{code}: {said}");
}

/// A held task is looked at before it is released: a change of its plugin's grants would have ended it.
#[tokio::test]
async fn held_task_disagrees_under_other_grants_and_agrees_again_under_its_own() {
    const DURABLE: &str = "durable = \"auto\"\n[plugin.kv]\n";
    let any = Setup::new().config(AT_ONCE);
    let own = any.clone().plugin("probe", DURABLE);
    let data = any.data();
    let host = own.start().await;
    let client = Modern::full(&host, None);
    let id = client.task("stages", json!({"pause_ms": 1})).await;
    question(&client, &id, "first").await;
    command::json(&["tasks", "hold", &id], &data).await;
    drop(client);
    host.kill().await;
    let folder = any.path("files");
    std::fs::create_dir(&folder).expect("a folder");
    let directory = format!("[plugin.grants]\ndirectories = [{{ host = {folder:?}, guest = \"/lists\" }}]\n");
    let host = any.plugin("probe", &format!("{DURABLE}{directory}")).start().await;
    let (code, found) = checked(&id, &data).await;
    let why = &found["divergence"]["why"];
    assert_eq!((code, &found["agrees"], why), (DIFFERENT, &json!(false), &json!("other directories are granted")));
    let (code, said) = check(&id, &data, &[]).await;
    assert!(code == DIFFERENT && said.contains("agrees   no, other directories are granted"), "{code}: {said}");

    host.kill().await;
    let host = own.start().await;
    assert_eq!(checked(&id, &data).await.0, 0);
    command::json(&["tasks", "release", &id], &data).await;
    let client = Modern::full(&host, None);
    for key in ["first", "second"] {
        question(&client, &id, key).await;
        answer(&client, &id, key, json!({"value": key})).await;
    }
    let done = client.until_status(&id, "completed").await;
    assert_eq!(done["result"]["structuredContent"]["counts"], json!([1, 2]), "no check has counted: {done}");
}
