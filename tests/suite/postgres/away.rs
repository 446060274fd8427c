//! A host whose database is away: what it refuses, how soon, and that everything goes on by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use bulkhead_store::postgres_server::PostgresServer;
use reqwest::StatusCode;
use reqwest::header::RETRY_AFTER;
use serde_json::{Value, json};
use tests::client::text;
use tests::modern::Modern;
use tests::place::rounds;
use tests::wait::until;
use tests::{Host, Setup};
use tokio::sync::Notify;

use super::{UNHURRIED, on};
use crate::durable::{AT_ONCE, question};

/// In a run by night, the time that nearly all refusals take at most. A gate has other tests beside it.
const REFUSED_WITHIN: Duration = Duration::from_millis(100);

/// A way of a database to be away, and to come back.
struct Outage {
    begin: fn(&PostgresServer),
    end: fn(&PostgresServer),
}

/// A server that answers once it is told to, and counts what it was sent.
async fn slow_peer() -> (String, Arc<AtomicUsize>, Arc<Notify>) {
    let count = Arc::<AtomicUsize>::default();
    let answer = Arc::<Notify>::default();
    let counted = Arc::clone(&count);
    let answered = Arc::clone(&answer);
    let router = Router::new().fallback(move |_whole: String| {
        counted.fetch_add(1, Ordering::SeqCst);
        let answered = Arc::clone(&answered);
        async move {
            answered.notified().await;
            "paid"
        }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
    (origin, count, answer)
}

/// Sends a request that has to be refused; how long that took.
async fn refused(client: &Modern, method: &str, params: Value) -> Duration {
    let began = Instant::now();
    let mut reply = client.send(method, params).await;
    let took = began.elapsed();
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE, "{method}: {}", reply.text);
    let seconds = reply.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    assert!(seconds.is_some_and(|seconds| seconds > 0), "{method} is told when to come back: {:?}", reply.headers);
    let message = reply.response_after(&mut Vec::new()).await;
    let error = &message["error"];
    assert_eq!(error["code"], 1013, "{method}: {message}");
    assert!(error["data"]["retryAfterMs"].as_u64().is_some_and(|ms| ms > 0), "{method}: {message}");
    took
}

async fn readiness(host: &Host) -> u16 {
    reqwest::get(host.address("/readyz")).await.expect("it answers").status().as_u16()
}

async fn outlive(outage: Outage) {
    let Some(server) = PostgresServer::start(&[]) else { return };
    let (origin, sent, answer_of_peer) = slow_peer().await;
    let grants = format!("durable = \"auto\"\n[plugin.grants]\nhttp = [{origin:?}]\n");
    let setup = Setup::new().plugin("probe", &grants).plugin("desk", "").plugin("text", "").config(AT_ONCE);
    let host = on(&server, setup.config(UNHURRIED)).start().await;
    let client = Modern::full(&host, None);
    let done = client.task("facts", json!({})).await;
    let before = client.until_status(&done, "completed").await;
    let asks = client.task("book_trip", json!({})).await;
    question(&client, &asks, "journey").await;
    let runs = client.task("send", json!({"method": "POST", "url": format!("{origin}/pay"), "body": "1"})).await;
    until("the request", async || (sent.load(Ordering::SeqCst) == 1).then_some(())).await;

    tokio::task::block_in_place(|| (outage.begin)(&server));
    // The first ones may have to wait until it is noticed.
    let create = json!({"name": "book_trip", "arguments": {}});
    tokio::join!(
        refused(&client, "tasks/get", json!({"taskId": done})),
        refused(&client, "tools/call", create.clone()),
        refused(&client, "tasks/cancel", json!({"taskId": asks})),
    );
    assert_eq!(readiness(&host).await, 503);
    // A guest ends meanwhile.
    answer_of_peer.notify_one();
    let journey = json!({"journey": {"action": "accept", "content": {"destination": "Oslo", "travellers": 2}}});
    let over = Instant::now() + Duration::from_millis(u64::from(rounds(1_000, 60_000)));
    let mut took = Vec::new();
    while Instant::now() < over {
        for (method, params) in [
            ("tasks/get", json!({"taskId": done})),
            ("tools/call", create.clone()),
            ("tasks/update", json!({"taskId": asks, "inputResponses": journey})),
            ("tasks/cancel", json!({"taskId": runs})),
        ] {
            took.push(refused(&client, method, params).await);
        }
        let echoed = Modern::plain(&host, None).tool("echo", json!({"text": "words"})).await;
        assert_eq!(text(&echoed), "words", "a plain call needs no database");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::task::block_in_place(|| (outage.end)(&server));

    until("the host to be ready again", async || (readiness(&host).await == 200).then_some(())).await;
    let now = client.result("tasks/get", json!({"taskId": done})).await;
    assert_eq!((&now["status"], &now["result"]), (&before["status"], &before["result"]));
    let ran = client.until_status(&runs, "completed").await;
    assert_eq!(ran["result"]["structuredContent"]["body"], "paid", "its result was kept: {ran}");
    assert_eq!(sent.load(Ordering::SeqCst), 1, "it was sent once");
    client.result("tasks/update", json!({"taskId": asks, "inputResponses": journey})).await;
    question(&client, &asks, "details").await;
    let again = client.task("facts", json!({})).await;
    client.until_status(&again, "completed").await;

    took.sort_unstable();
    let at = |part: usize| took[(took.len() - 1) * part / 100];
    println!("{} refusals: median {:?}, 99 of 100 within {:?}, longest {:?}", took.len(), at(50), at(99), at(100));
    assert!(rounds(0, 1) == 0 || at(99) <= REFUSED_WITHIN, "99 of 100 refusals within {:?}", at(99));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_that_is_stopped_is_refused_for_at_once_and_gone_on_with() {
    outlive(Outage { begin: PostgresServer::crash, end: PostgresServer::run }).await;
}

/// As behind a network that is cut: connections stay open, and nothing is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_that_stands_still_is_refused_for_at_once_and_gone_on_with() {
    outlive(Outage { begin: PostgresServer::pause, end: PostgresServer::resume }).await;
}
