//! Many half-run tasks, a new version of their plugin, and a host that is killed: each ends on the version that began
//! it.

use futures::StreamExt as _;
use serde_json::{Value, json};
use tests::modern::Modern;
use tests::place::variant;
use tests::wait::until;
use tests::{Setup, command};

use super::{AT_ONCE, again, answer, question};

const TASKS: usize = 100;
/// Clients at work at the same time.
const CLIENTS: usize = 8;
/// What the first version says between seats and destination, and the second one.
const SEATS: [&str; 2] = [" seats to ", " chairs to"];
const LIMITS: &str = "[limits]\nrequests_per_second = 100000\ntask_creations_per_second = 100000\n";

/// Does something to each task, in no order.
async fn each<T>(ids: &[String], act: impl AsyncFn(&str) -> T) -> Vec<T> {
    futures::stream::iter(ids).map(|id| act(id)).buffer_unordered(CLIENTS).collect().await
}

/// What `plugin versions` says of a version.
async fn version(digest: &str, setup: &Setup) -> Value {
    let shown = command::json(&["plugin", "versions", "desk"], &setup.data()).await;
    let lines = shown["versions"].as_array().expect("a list");
    lines.iter().find(|line| line["version"] == digest).unwrap_or_else(|| panic!("no {digest}: {shown}")).clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_run_tasks_end_on_their_version_after_a_switch_and_a_kill() {
    let setup = Setup::new().plugin("desk", "durable = \"auto\"").config(AT_ONCE).config(LIMITS);
    let host = setup.start().await;
    let client = Modern::full(&host, None);
    let first = command::json(&["plugin", "list"], &setup.data()).await["plugins"][0]["active"].clone();
    let first = first.as_str().expect("a digest").to_owned();
    let mut ids = Vec::new();
    for _ in 0..TASKS {
        ids.push(client.task("book_trip", json!({})).await);
    }
    let asked = each(&ids, async |id| question(&client, id, "journey").await).await;
    assert_eq!(asked.len(), TASKS);
    // A part of them has come further.
    let (further, waiting) = ids.split_at(TASKS / 4);
    let journey = json!({"destination": "Oslo", "travellers": 2});
    each(further, async |id| {
        answer(&client, id, "journey", journey.clone()).await;
        question(&client, id, "details").await;
    })
    .await;

    let second = setup.path("desk-2.wasm");
    std::fs::write(&second, variant("desk", SEATS[0], SEATS[1])).expect("the component is written");
    let second = second.display().to_string();
    let switched = command::json(&["plugin", "add", &second, "--name", "desk"], &setup.data()).await;
    assert_eq!(switched["done"], true, "{switched}");
    let fresh = client.task("book_trip", json!({})).await;
    question(&client, &fresh, "journey").await;
    let (host, client) = again(host).await;

    let drains = version(&first, &setup).await;
    assert_eq!((&drains["state"], &drains["tasks"]), (&json!("draining"), &json!(TASKS)), "{drains}");
    let remove = ["plugin", "remove", "desk", "--version", &first, "--data"];
    let refused = command::output(&mut command::bulkhead(), &remove, Some(&setup.data())).await;
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("are left"), "a version stays while tasks belong to it: {why}");
    let booked = async |id: &str| {
        question(&client, id, "details").await;
        answer(&client, id, "details", json!({"class": "economy", "confirm": true})).await;
        let done = client.until_status(id, "completed").await;
        let shown = command::json(&["tasks", "show", id], &setup.data()).await;
        let summary = done["result"]["structuredContent"]["summary"].as_str().expect("a text").to_owned();
        (summary, shown["plugin_sha256"].clone(), shown["attempt"].clone())
    };
    each(waiting, async |id| answer(&client, id, "journey", journey.clone()).await).await;
    for (summary, digest, attempt) in each(&ids, booked).await {
        assert_eq!(summary, format!("Booked 2 economy{}Oslo.", SEATS[0]));
        assert_eq!(digest, json!(first));
        // More, where it left memory on the way.
        assert!(attempt.as_u64().is_some_and(|attempt| attempt >= 2), "it was brought back: {attempt}");
    }
    answer(&client, &fresh, "journey", journey).await;
    let (summary, digest, _) = booked(&fresh).await;
    assert!(summary.contains(SEATS[1]) && digest != json!(first), "new calls are on the new version: {summary}");

    until("the first version to retire", async || {
        let now = version(&first, &setup).await;
        (now["state"] == "retired").then_some(())
    })
    .await;
    let removed = command::json(&["plugin", "remove", "desk", "--version", &first], &setup.data()).await;
    assert_eq!(removed["removed"], first.as_str(), "{removed}");
    assert!(!setup.data().join("components").join(format!("{first}.wasm")).exists());
    drop(host);
}
