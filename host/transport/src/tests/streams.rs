//! Event streams: when there is one, what is on it, and how it goes on.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::client::{Client, Reply};
use super::{Edge, Setup};

async fn until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..2000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never happened: {what}");
}

fn quick(sse_after_ms: u64, sse_keepalive_ms: u64) -> Setup {
    let mut setup = Setup::default();
    setup.options.sse_after_ms = sse_after_ms;
    setup.options.sse_keepalive_ms = sse_keepalive_ms;
    setup
}

fn steps(messages: &[Value]) -> Vec<u64> {
    messages.iter().filter_map(|message| message["params"]["step"].as_u64()).collect()
}

async fn resumed(client: &Client, id: &str) -> Reply {
    let reply = client.with("Last-Event-ID", id).get().await;
    assert_eq!(reply.status, 200);
    reply
}

#[tokio::test]
async fn request_with_notifications_gets_a_primed_stream() {
    let edge = Edge::usual().await;
    let client = edge.session().await;
    let mut reply = client.rpc(7, "do", json!({ "steps": 2 })).await;
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    assert_eq!(reply.header("x-accel-buffering"), Some("no"));
    let priming = reply.event().await.unwrap();
    assert!(priming.id.is_some() && priming.retry && priming.data.is_empty(), "{priming:?}");
    let mut ids = vec![priming.id.unwrap()];
    for step in 0..2 {
        let event = reply.event().await.unwrap();
        assert_eq!(event.message()["params"]["step"], step);
        ids.push(event.id.unwrap());
    }
    let last = reply.event().await.unwrap();
    assert_eq!(last.message()["id"], 7);
    ids.push(last.id.unwrap());
    assert!(reply.event().await.is_none(), "it ends after the response");
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4);
}

#[tokio::test]
async fn older_clients_get_no_priming_stream_event() {
    let edge = Edge::usual().await;
    let client = edge.session_as(edge.client(), "2025-06-18").await;
    let mut reply = client.rpc(7, "do", json!({ "steps": 1 })).await;
    assert_eq!(reply.event().await.unwrap().message()["params"]["step"], 0);
}

#[tokio::test]
async fn slow_request_becomes_a_stream_with_keep_alives() {
    let edge = Edge::start(quick(50, 50)).await;
    let client = edge.session().await;
    let mut reply = client.rpc(7, "do", json!({ "ms": 400 })).await;
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    let mut comments = 0;
    let last = loop {
        let block = reply.block().await.unwrap();
        match block.starts_with(':') {
            true => comments += 1,
            false if block.contains("\"result\"") => break block,
            false => {}
        }
    };
    assert!(comments >= 2, "{comments} keep-alive comments");
    assert!(last.contains("\"id\":7"));
    let reply = client.with("Accept", "application/json").rpc(8, "do", json!({ "steps": 3, "ms": 200 })).await;
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert!(reply.body().await.contains("\"id\":8"));
}

#[tokio::test]
async fn stream_resumes_at_its_last_event() {
    let edge = Edge::usual().await;
    let client = edge.session().await;
    let mut one = client.rpc(1, "do", json!({ "steps": 6, "gap_ms": 30 })).await;
    let mut two = client.rpc(2, "do", json!({ "steps": 3, "gap_ms": 1 })).await;
    one.event().await.unwrap();
    let seen = one.event().await.unwrap();
    let other = two.event().await.unwrap();
    drop((one, two));
    let messages = resumed(&client, &seen.id.unwrap()).await.messages().await;
    assert_eq!(steps(&messages), [1, 2, 3, 4, 5]);
    assert_eq!(messages.last().unwrap()["id"], 1);
    // After completion, and from the priming event.
    let messages = resumed(&client, &other.id.unwrap()).await.messages().await;
    assert_eq!(steps(&messages), [0, 1, 2]);
    assert_eq!(messages.last().unwrap()["id"], 2);
}

#[tokio::test]
async fn disconnect_does_not_cancel_a_session_request() {
    let edge = Edge::start(quick(100, 5000)).await;
    let client = edge.session().await;
    // Before anything was answered.
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"do","params":{"ms":60}}"#;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Session-Id: {}\r\nContent-Length: {}\r\n\r\n",
        client.header("mcp-session-id"),
        body.len()
    );
    let mut stream = client.connect().await;
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    until("begun", || edge.script.begun() == 1).await;
    drop(stream);
    until("finished", || edge.script.finished() == 1).await;
    // On a stream.
    let mut reply = client.rpc(2, "do", json!({ "ms": 300 })).await;
    reply.event().await.unwrap();
    drop(reply);
    until("finished", || edge.script.finished() == 2).await;
    assert_eq!(edge.script.dropped(), 0);
}

#[tokio::test]
async fn sessionless_stream_has_no_ids_and_cancels_on_disconnect() {
    let edge = Edge::usual().await;
    let mut reply = edge.client().rpc(1, "modern", json!({ "steps": 1 })).await;
    let event = reply.event().await.unwrap();
    assert!(event.id.is_none() && !event.retry);
    assert_eq!(reply.messages().await.last().unwrap()["id"], 1);
    let mut reply = edge.client().rpc(1, "modern", json!({ "steps": 1, "ms": 600_000 })).await;
    reply.event().await.unwrap();
    drop(reply);
    until("dropped", || edge.script.dropped() == 1).await;
}

#[tokio::test]
async fn unresumable_stream_ends_with_one_error() {
    let setup = Setup::default();
    let rows = setup.rows.clone();
    let edge = Edge::start(setup).await;
    let client = edge.session().await;
    let mut reply = client.rpc(9, "do", json!({ "steps": 400, "ms": 600_000 })).await;
    let priming = reply.event().await.unwrap().id.unwrap();
    drop(reply);
    let unfinished = loop {
        let messages = {
            let mut reply = resumed(&client, &priming).await;
            reply.event().await.unwrap().message()
        };
        if messages.get("error").is_some() {
            break messages;
        }
    };
    assert_eq!((&unfinished["id"], &unfinished["error"]["code"]), (&json!(9), &json!(-32603)));
    let id = client.header("mcp-session-id").to_owned();
    edge.stop().await;
    // Another run of the host knows nothing of the stream, but whom to tell.
    let edge = Edge::start(Setup { rows, ..Setup::default() }).await;
    let messages = resumed(&edge.client().with("mcp-session-id", &id), &priming).await.messages().await;
    assert_eq!(messages, [unfinished]);
}

#[tokio::test]
async fn resumed_stream_has_the_response_without_dropped_events() {
    let edge = Edge::usual().await;
    let client = edge.session().await;
    let mut reply = client.rpc(9, "do", json!({ "steps": 400 })).await;
    let priming = reply.event().await.unwrap().id.unwrap();
    drop(reply);
    until("finished", || edge.script.finished() == 1).await;
    let mut messages = resumed(&client, &priming).await.messages().await;
    assert_eq!(messages.pop().unwrap()["id"], 9);
    assert!(!messages.is_empty() && steps(&messages).last() == Some(&399));
}

#[tokio::test]
async fn unread_stream_blocks_no_other_request() {
    let edge = Edge::usual().await;
    let client = edge.session().await;
    // 64 MiB that nobody reads: far more than the sockets and the log hold.
    let stuck = client.rpc(1, "do", json!({ "steps": 512, "bytes": 128 * 1024 })).await;
    until("the request has ended", || edge.script.finished() == 1).await;
    assert_eq!(client.rpc(2, "do", json!({})).await.status, 200);
    let messages = stuck.messages().await;
    assert!(messages.len() < 512, "what did not fit was not kept");
}

#[tokio::test]
async fn standalone_stream_gets_messages_of_no_request() {
    let edge = Edge::start(quick(5000, 50)).await;
    let client = edge.session().await;
    let told = edge.script.told(client.header("mcp-session-id"));
    told.tell("before");
    let mut reply = client.get().await;
    assert!(reply.event().await.unwrap().retry);
    assert_eq!(reply.event().await.unwrap().message()["params"], "before");
    told.tell("during");
    let event = reply.event().await.unwrap();
    assert_eq!(event.message()["params"], "during");
    assert!(reply.block().await.unwrap().starts_with(':'));
    drop(reply);
    // What nobody has taken stays; what was sent is repeated for those who say that they missed it.
    told.tell("after");
    let mut reply = resumed(&client, &event.id.unwrap()).await;
    assert_eq!(reply.event().await.unwrap().message()["params"], "after");
}

#[tokio::test]
async fn newest_standalone_stream_gets_each_message() {
    let edge = Edge::start(quick(5000, 50)).await;
    let client = edge.session().await;
    let told = edge.script.told(client.header("mcp-session-id"));
    let mut first = client.get().await;
    first.event().await.unwrap();
    let mut second = client.get().await;
    second.event().await.unwrap();
    told.tell("one");
    assert_eq!(second.event().await.unwrap().message()["params"], "one");
    drop(second);
    // The server notices when it next writes; then the older stream takes over.
    tokio::time::sleep(Duration::from_millis(1000)).await;
    told.tell("two");
    assert_eq!(first.event().await.unwrap().message()["params"], "two");
    let mut open = Vec::new();
    for _ in 0..7 {
        let mut reply = client.get().await;
        assert_eq!(reply.status, 200);
        reply.event().await.unwrap();
        open.push(reply);
    }
    assert_eq!(client.get().await.status, 409);
}

#[tokio::test]
async fn a_stream_ends_when_the_host_drains() {
    let edge = Edge::usual().await;
    let client = edge.session().await;
    let mut reply = client.get().await;
    reply.event().await.unwrap();
    edge.stop().await;
    assert!(reply.event().await.is_none());
    assert!(reply.closed().await);
}
