//! A call that ends its host each time that it is brought back: it is held, and everything else goes on.

use std::time::Duration;

use serde_json::json;
use tests::modern::Modern;
use tests::wait::until;
use tests::{Setup, command, place};

use super::{AT_ONCE, answer, question};

/// A life of a host that ends itself where the replay of a call does; the call is woken by this answer.
async fn short_life(setup: &Setup, id: &str) {
    let Ok(mut host) = setup.start_or_end(Duration::from_secs(60)).await else { return };
    let client = Modern::full(&host, None);
    let id = id.to_owned();
    // The host may end before it says that it has it.
    let answered = tokio::spawn(async move {
        answer(&client, &id, "journey", json!({"destination": "Oslo", "travellers": 2})).await;
    });
    let is_over = || {
        let is_alive = host.is_alive();
        async move { (!is_alive).then_some(()) }
    };
    until("the end of the host", is_over).await;
    answered.abort();
}

#[tokio::test]
async fn call_that_ends_its_host_each_time_is_held_beside_others() {
    if !place::has_crash_points() {
        return;
    }
    let setup = Setup::new().plugin("desk", "durable = \"auto\"").config(AT_ONCE);
    let host = setup.start().await;
    let client = Modern::full(&host, None);
    let id = client.task("book_trip", json!({})).await;
    question(&client, &id, "journey").await;
    host.kill().await;
    let armed = setup.clone().env("CRASH_AT", "wake.tail:1");
    for _ in 0..3 {
        short_life(&armed, &id).await;
    }

    let host = armed.start().await;
    let client = Modern::full(&host, None);
    let other = client.task("book_trip", json!({})).await;
    question(&client, &other, "journey").await;
    let shown = command::json(&["tasks", "show", &id], &setup.data()).await;
    let said = shown["status_message"].as_str().unwrap_or_default();
    assert!(said.contains("it is held: it was resumed three times and never came further"), "{shown}");

    host.kill().await;
    let host = setup.start().await;
    let client = Modern::full(&host, None);
    command::run(&mut command::bulkhead(), &["tasks", "release", &id, "--data"], Some(&setup.data())).await;
    question(&client, &id, "details").await;
    answer(&client, &id, "details", json!({"class": "economy", "confirm": true})).await;
    client.until_status(&id, "completed").await;
    question(&client, &other, "journey").await;
}
