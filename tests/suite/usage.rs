//! What operators learn of the past: how much tenants used, and what happened to a task.

use serde_json::{Value, json};
use tests::client::{Client, all_capabilities};
use tests::{Setup, command, store_engine};

/// The usage of today, by the tenant's name.
fn today<'a>(usage: &'a Value, tenant: &str) -> Option<&'a Value> {
    usage["usage"].as_array().expect("a list").iter().find(|day| day["tenant"] == tenant)
}

fn number(day: &Value, member: &str) -> u64 {
    day[member].as_u64().unwrap_or_else(|| panic!("{member} of {day}"))
}

#[tokio::test]
async fn usage_of_tenants_is_kept_across_a_restart_and_goes_with_its_tenant() {
    let setup = Setup::with(&["text", "primes"]);
    let alice = setup.token("alice", "acme").await;
    let bob = setup.token("bob", "globex").await;
    let data = setup.data();
    assert_eq!(command::json(&["tenant", "usage"], &data).await, json!({"usage": [], "more": false}));
    let host = setup.start().await;
    let acme = Client::connect_as(&host, Some(&alice), all_capabilities()).await;
    let text = "x".repeat(5_000);
    acme.tool("echo", json!({"text": text})).await.expect("an echo");
    let task = acme.task("count_primes", json!({"below": 200_000})).await;
    acme.until_status(&task, "completed").await;
    let globex = Client::connect_as(&host, Some(&bob), all_capabilities()).await;
    globex.tool("echo", json!({"text": "a"})).await.expect("an echo");

    // The host that runs writes what it counted so far, and answers with that.
    let usage = command::json(&["tenant", "usage"], &data).await;
    let own = today(&usage, "acme").expect("acme's");
    let other = today(&usage, "globex").expect("globex's");
    assert_eq!((number(own, "calls"), number(other, "calls")), (2, 1), "{usage}");
    assert!(number(own, "bytes_in") > 5_000 && number(own, "bytes_out") > 5_000, "{usage}");
    assert!(number(own, "stored_bytes") > 0 && number(own, "cpu_ms") > 0, "{usage}");
    assert!(number(other, "bytes_in") < 5_000 && number(other, "stored_bytes") == 0, "{usage}");

    acme.tool("echo", json!({"text": "b"})).await.expect("an echo");
    let (_, setup) = host.terminate().await;
    let usage = command::json(&["tenant", "usage", "acme", "--days", "1"], &data).await;
    let days = usage["usage"].as_array().expect("a list");
    assert_eq!((days.len(), number(&days[0], "calls")), (1, 3), "the drain wrote the last call: {usage}");
    let csv = command::run(&mut command::bulkhead(), &["tenant", "usage", "--csv", "--data"], Some(&data)).await;
    let head = "tenant,day,calls,cpu_ms,bytes_in,bytes_out,stored_bytes,tenant_id\n";
    assert!(csv.starts_with(head) && csv.contains("\nacme,") && csv.contains("\nglobex,"), "{csv}");
    let unknown = ["tenant", "usage", "nobody", "--data"];
    let refused = command::output(&mut command::bulkhead(), &unknown, Some(&data)).await;
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("no tenant"), "{refused:?}");

    if !store_engine::is_left_out("a database is not rebuilt") {
        command::json(&["store", "rebuild"], &data).await;
    }
    let host = setup.start().await;
    command::json(&["tenant", "purge", "acme", "--yes"], &data).await;
    let usage = command::json(&["tenant", "usage"], &data).await;
    assert!(today(&usage, "acme").is_none() && usage["usage"].as_array().map(Vec::len) == Some(1), "{usage}");
    assert_eq!(number(today(&usage, "globex").expect("globex's"), "calls"), 1);
    host.terminate().await;
    assert_eq!(command::json(&["store", "check"], &data).await["sound"], true);
}

#[tokio::test]
async fn timeline_of_a_task_is_shown_where_there_is_more_to_say_than_its_status() {
    let setup = Setup::with(&["primes"]).plugin("desk", "durable = \"off\"");
    let data = setup.data();
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let simple = client.task("count_primes", json!({"below": 10})).await;
    client.until_status(&simple, "completed").await;
    let shown = command::json(&["tasks", "show", &simple], &data).await;
    assert_eq!(shown.get("timeline"), None, "{shown}");

    let trip = client.task("book_trip", json!({})).await;
    client.until_status(&trip, "input_required").await;
    command::json(&["tasks", "pause", &trip], &data).await;
    let setup = host.kill().await;
    let host = setup.start().await;
    let shown = command::json(&["tasks", "show", &trip], &data).await;
    let entries = shown["timeline"]["entries"].as_array().unwrap_or_else(|| panic!("a timeline: {shown}"));
    let names: Vec<_> = entries.iter().map(|entry| entry["transition"].as_str().expect("a name")).collect();
    assert_eq!(names, ["input_requested", "paused", "interrupted", "failed"], "{shown}");
    assert_eq!(entries[0]["requests"], 1);
    assert_eq!(entries[3]["at"], shown["updated_at"]);
    let said = command::run(&mut command::bulkhead(), &["tasks", "show", &trip, "--data"], Some(&data)).await;
    assert!(said.contains("TRANSITION") && said.contains("interrupted by the end of its host"), "{said}");
    let check = command::json(&["store", "check"], &data).await;
    assert_eq!(check["sound"], true, "{check}");
    host.terminate().await;
    // An export and a store that is made of it know it as well.
    if !store_engine::is_left_out("a database is not rebuilt") {
        command::json(&["store", "rebuild"], &data).await;
    }
    assert_eq!(command::json(&["tasks", "show", &trip], &data).await["timeline"], shown["timeline"]);
}
