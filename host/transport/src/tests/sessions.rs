//! Sessions: whose they are, how long they live, what survives.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use crate::session::SessionOptions;

use super::client::Client;
use super::scripted::Rows;
use super::{Edge, Setup, status_and_body};

#[tokio::test]
async fn unknown_foreign_and_ended_sessions_answer_the_same() {
    let rows: Arc<Rows> = Arc::default();
    let edge = Edge::start(Setup { rows: rows.clone(), ..Setup::default() }).await;
    let alice = edge.session_as(edge.client().with("Authorization", "Bearer alice"), "2025-11-25").await;
    let ended = edge.session_as(edge.client().with("Authorization", "Bearer bob"), "2025-11-25").await;
    assert_eq!(ended.send("DELETE", "/mcp", "").await.status, 204);
    let foreign = alice.with("Authorization", "Bearer bob");
    let unknown = foreign.with("mcp-session-id", "session-77");
    for method in ["POST", "GET", "DELETE"] {
        let body = if method == "POST" { r#"{"jsonrpc":"2.0","id":1,"method":"do","params":{}}"# } else { "" };
        let mut replies = Vec::new();
        for client in [&foreign, &unknown, &ended] {
            let before = rows.asked.load(Ordering::SeqCst);
            let reply = client.send(method, "/mcp", body).await;
            // The store is asked as often, so that the time says nothing either.
            let asked = rows.asked.load(Ordering::SeqCst) - before;
            replies.push((reply.status, asked, reply.body().await));
        }
        assert_eq!(replies[0].0, 404);
        assert!(replies.iter().all(|reply| *reply == replies[0]), "{replies:?}");
    }
    assert_eq!(alice.rpc(1, "do", json!({})).await.status, 200);
}

#[tokio::test]
async fn deleted_session_is_closed_and_its_row_removed() {
    let setup = Setup::default();
    let rows = setup.rows.clone();
    let edge = Edge::start(setup).await;
    let client = edge.session().await;
    let told = edge.script.told(client.header("mcp-session-id"));
    let mut stream = client.get().await;
    assert!(stream.event().await.is_some());
    assert_eq!(rows.rows.lock().len(), 1);
    assert_eq!(client.send("DELETE", "/mcp", "").await.status, 204);
    assert!(told.is_closed());
    assert!(rows.rows.lock().is_empty());
    assert!(stream.event().await.is_none(), "its streams end");
}

#[tokio::test]
async fn deleted_session_is_not_revived_by_concurrent_request() {
    let rows: Arc<Rows> = Arc::default();
    let edge = Edge::start(Setup { rows: rows.clone(), ..Setup::default() }).await;
    let id = edge.session().await.header("mcp-session-id").to_owned();
    edge.stop().await;

    let edge = Edge::start(Setup { rows: rows.clone(), ..Setup::default() }).await;
    let client = edge.client().with("mcp-session-id", &id);
    rows.hold_next_read.store(true, Ordering::SeqCst);
    let slow = client.clone();
    let slow = tokio::spawn(async move { slow.rpc(1, "state", json!({})).await.status });
    rows.reads.notified().await;
    assert_eq!(client.send("DELETE", "/mcp", "").await.status, 204);
    rows.go_on.notify_one();
    assert_eq!(slow.await.unwrap(), 404);
    assert_eq!(client.rpc(2, "state", json!({})).await.status, 404);
}

#[tokio::test]
async fn changed_session_survives_a_restart() {
    let rows: Arc<Rows> = Arc::default();
    let edge = Edge::start(Setup { rows: rows.clone(), ..Setup::default() }).await;
    let client = edge.session_as(edge.client().with("Authorization", "Bearer alice"), "2025-11-25").await;
    assert_eq!(client.post(r#"{"jsonrpc":"2.0","method":"set","params":"alert"}"#).await.status, 202);
    let id = client.header("mcp-session-id").to_owned();
    assert!(rows.rows.lock().values().all(|row| !row.windows(id.len()).any(|part| part == id.as_bytes())));
    edge.stop().await;

    let edge = Edge::start(Setup { rows, ..Setup::default() }).await;
    let client = edge.client().with("mcp-session-id", &id);
    assert_eq!(client.with("Authorization", "Bearer bob").rpc(1, "state", json!({})).await.status, 404);
    let (status, body) =
        status_and_body(client.with("Authorization", "Bearer alice").rpc(1, "state", json!({})).await).await;
    assert_eq!((status, &body["result"]), (200, &json!("alert")));
}

#[tokio::test]
async fn idle_sessions_expire_but_never_with_a_request_open() {
    let sessions = SessionOptions { idle_ms_max: 1000, per_requestor: 100 };
    let rows: Arc<Rows> = Arc::default();
    let edge = Edge::start(Setup { sessions, rows: rows.clone(), ..Setup::default() }).await;
    let idle = edge.session().await;
    let streaming = edge.session().await;
    let calling = edge.session().await;
    let mut stream = streaming.get().await;
    stream.event().await.unwrap();
    let call = calling.clone();
    let call = tokio::spawn(async move { call.rpc(1, "do", json!({ "ms": 1500 })).await.status });
    while edge.script.begun() < 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    edge.clock.advance(5000);
    edge.sessions.sweep().await;
    assert_eq!(idle.rpc(1, "state", json!({})).await.status, 404);
    assert_eq!(streaming.rpc(1, "state", json!({})).await.status, 200);
    assert_eq!(call.await.unwrap(), 200);
    // The end of a request is a use.
    assert_eq!(calling.rpc(1, "state", json!({})).await.status, 200);
    drop(stream);
    assert_eq!(rows.rows.lock().len(), 2);
    // Without a sweep, too.
    edge.clock.advance(5000);
    assert_eq!(calling.rpc(1, "state", json!({})).await.status, 404);
}

#[tokio::test]
async fn expired_session_is_not_restored_after_restart() {
    let sessions = SessionOptions { idle_ms_max: 1000, per_requestor: 100 };
    let rows: Arc<Rows> = Arc::default();
    let edge = Edge::start(Setup { sessions, rows: rows.clone(), ..Setup::default() }).await;
    let id = edge.session().await.header("mcp-session-id").to_owned();
    edge.stop().await;
    let edge = Edge::start(Setup { sessions, rows: rows.clone(), ..Setup::default() }).await;
    edge.clock.advance(5000);
    assert_eq!(edge.client().with("mcp-session-id", &id).rpc(1, "state", json!({})).await.status, 404);
    edge.sessions.sweep().await;
    assert!(rows.rows.lock().is_empty());
}

#[tokio::test]
async fn session_limit_evicts_the_longest_idle_session() {
    let sessions = SessionOptions { idle_ms_max: 1_000_000, per_requestor: 2 };
    let edge = Edge::start(Setup { sessions, ..Setup::default() }).await;
    let first = edge.session().await;
    edge.clock.advance(10);
    let second = edge.session().await;
    edge.clock.advance(10);
    assert_eq!(first.rpc(1, "state", json!({})).await.status, 200);
    assert_eq!(second.rpc(1, "state", json!({})).await.status, 200);
    edge.clock.advance(10);
    assert_eq!(second.rpc(1, "state", json!({})).await.status, 200);
    let other = edge.session_as(edge.client().with("Authorization", "Bearer bob"), "2025-11-25").await;
    let third = edge.session().await;
    assert_eq!(first.rpc(1, "state", json!({})).await.status, 404);
    for client in [&second, &third, &other] {
        assert_eq!(client.rpc(1, "state", json!({})).await.status, 200);
    }
    // With a request open in each of them, there is no room to make.
    let mut one = second.get().await;
    let mut two = third.get().await;
    assert!(one.event().await.is_some() && two.event().await.is_some());
    let (status, body) = status_and_body(edge.client().rpc(5, "initialize", json!({})).await).await;
    assert_eq!((status, &body["id"], &body["error"]["code"]), (200, &json!(5), &json!(1010)));
    assert_eq!(body["error"]["data"], json!({ "limit": "sessions_per_requestor", "value": 2, "retryAfterMs": 1000 }));
}

#[tokio::test]
async fn session_limit_evicts_from_the_largest_tenant_and_requestor() {
    let mut setup = Setup::default();
    setup.limits.sessions_per_tenant = 3;
    setup.limits.sessions_total = 5;
    let edge = Edge::start(setup).await;
    let open = async |name: &str| {
        edge.clock.advance(10);
        edge.session_as(edge.client().with("Authorization", &format!("Bearer {name}")), "2025-11-25").await
    };
    let lives = async |client: &Client| client.rpc(1, "state", json!({})).await.status == 200;
    let alices = [open("alice").await, open("alice").await, open("alice").await];
    let bob = open("bob").await;
    // Carol has none, Alice has all of their tenant's.
    let carol = open("carol").await;
    assert!(!lives(&alices[0]).await && lives(&alices[1]).await && lives(&carol).await && lives(&bob).await);
    let local = open_local(&edge).await;
    assert!(lives(&local).await && lives(&bob).await);
    // The host is full, and their tenant has most of it.
    let bobs = open("bob").await;
    assert!(!lives(&alices[2]).await, "the oldest of whoever has most in the tenant that has most");
    assert!(lives(&alices[1]).await && lives(&carol).await && lives(&bobs).await && lives(&local).await);
}

async fn open_local(edge: &Edge) -> Client {
    edge.clock.advance(10);
    edge.session().await
}

#[tokio::test]
async fn session_opens_on_a_full_disk() {
    let setup = Setup::default();
    let rows = setup.rows.clone();
    rows.read_only.store(true, Ordering::Relaxed);
    let edge = Edge::start(setup).await;
    let client = edge.session().await;
    assert_eq!(client.rpc(1, "state", json!({})).await.status, 200);
    rows.read_only.store(false, Ordering::Relaxed);
    edge.sessions.sweep().await;
    assert_eq!(rows.rows.lock().len(), 1, "it is written as soon as that is possible");
}
