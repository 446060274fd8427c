//! Long computations: a killed count goes on from its checkpoint, and one that was paused leaves memory and comes back
//! there.

use serde_json::{Value, json};
use tests::modern::Modern;
use tests::wait::until;
use tests::{Setup, command};

use super::again;

/// How many primes there are below this.
const BELOW: u64 = 2_000_000_000;
const COUNT: u64 = 98_222_287;

fn counting(limits: &str) -> Setup {
    let call = "[call]\npromote_after_ms = 0\ncpu_ms = 600000\nwall_ms = 3600000\n";
    Setup::new().plugin("primes", "durable = \"required\"").config(&format!("{call}{limits}"))
}

/// The kinds of the entries that are kept of the task's journal.
async fn kinds(setup: &Setup, id: &str) -> Vec<String> {
    let journal = command::json(&["tasks", "journal", id, "--entries"], &setup.data()).await;
    let listed = journal["entries_listed"].as_array().expect("entries");
    listed.iter().filter_map(|entry| entry["kind"].as_str()).map(str::to_owned).collect()
}

async fn until_checkpoints(setup: &Setup, id: &str, count: usize) {
    let has_states =
        async || (kinds(setup, id).await.iter().filter(|kind| *kind == "state").count() >= count).then_some(());
    until("checkpoints", has_states).await;
}

/// A call that begins from a checkpoint has its state in front of everything else.
async fn until_begun_from_checkpoint(setup: &Setup, id: &str) {
    let begins = async || (kinds(setup, id).await.get(1).map(String::as_str) == Some("state")).then_some(());
    until("a call that begins from its checkpoint", begins).await;
}

fn is_counted(done: &Value) {
    let count = &done["result"]["structuredContent"];
    assert_eq!(*count, json!({"count": COUNT, "below": BELOW, "complete": true, "messages": []}), "{done}");
}

#[tokio::test]
async fn killed_count_goes_on_from_its_checkpoint() {
    let setup = counting("");
    let host = setup.start().await;
    let client = Modern::full(&host, None);
    let id = client.task("count_primes", json!({"below": BELOW})).await;
    until_checkpoints(&setup, &id, 1).await;
    assert_eq!(kinds(&setup, &id).await[0], "header");
    let (host, client) = again(host).await;
    until_begun_from_checkpoint(&setup, &id).await;
    // Each life goes on from the one before it.
    drop(client);
    let (_host, client) = again(host).await;
    is_counted(&client.until_status(&id, "completed").await);
}

/// It has used more than what may be used again, and would use little of it again.
#[tokio::test]
async fn paused_count_leaves_memory_and_goes_on_from_its_checkpoint() {
    let setup = counting("[limits]\ntask_evict_after_ms = 0\ntask_evict_cpu_ms = 700");
    let host = setup.start().await;
    let client = Modern::full(&host, None);
    let id = client.task("count_primes", json!({"below": BELOW})).await;
    until_checkpoints(&setup, &id, 3).await;
    client.result("tasks/pause", json!({"taskId": id})).await;
    let is_dormant = async || {
        let shown = command::json(&["tasks", "show", &id], &setup.data()).await;
        (!shown["dormant_since"].is_null()).then_some(())
    };
    until("a dormant task", is_dormant).await;
    client.result("tasks/resume", json!({"taskId": id})).await;
    until_begun_from_checkpoint(&setup, &id).await;
    is_counted(&client.until_status(&id, "completed").await);
}
