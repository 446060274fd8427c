//! What a client cannot do too much of.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::http::{BindError, bind};

use super::client::Reply;
use super::{Edge, Setup, status_and_body};

fn with(change: impl FnOnce(&mut Setup)) -> Setup {
    let mut setup = Setup::default();
    change(&mut setup);
    setup
}

#[tokio::test]
async fn body_limit_is_checked_while_it_arrives() {
    let edge = Edge::usual().await;
    let client = edge.session().await;
    let id = client.header("mcp-session-id");
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Session-Id: {id}\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let mut stream = client.connect().await;
    stream.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..20 {
        stream.write_all(format!("400\r\n{}\r\n", " ".repeat(0x400)).as_bytes()).await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    let (status, body) = status_and_body(Reply::read(stream).await).await;
    assert_eq!(status, 413);
    assert!(body["error"]["message"].as_str().unwrap().contains("10000 bytes"));
    // In pieces and within the limit.
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"do","params":{}}"#;
    let mut stream = client.connect().await;
    stream.write_all(head.as_bytes()).await.unwrap();
    for part in [&body[..10], &body[10..20], &body[20..]] {
        stream.write_all(format!("{:x}\r\n{part}\r\n", part.len()).as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    assert_eq!(status_and_body(Reply::read(stream).await).await.0, 200);
}

#[tokio::test]
async fn oversized_body_with_expect_header_is_refused_before_sending() {
    let edge = Edge::usual().await;
    let client = edge.session().await;
    let id = client.header("mcp-session-id");
    let reply = client
        .raw(&format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Session-Id: {id}\r\nExpect: 100-continue\r\nContent-Length: 999999999\r\n\r\n"
        ))
        .await;
    assert_eq!(reply.status, 413);
}

#[tokio::test]
async fn http_headers_are_limited_in_bytes_and_number() {
    let edge = Edge::usual().await;
    let large = edge.client().with("X-Large", &"x".repeat(5000));
    assert_eq!(large.send("GET", "/healthz", "").await.status, 431);
    let many: String = (0..150).map(|number| format!("x{number}: y\r\n")).collect();
    assert_eq!(edge.client().raw(&format!("GET /healthz HTTP/1.1\r\n{many}\r\n")).await.status, 431);
}

#[tokio::test]
async fn slow_http_headers_end_the_connection() {
    let edge = Edge::start(with(|setup| setup.options.header_read_ms_max = 200)).await;
    let mut stream = edge.client().connect().await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: loc").await.unwrap();
    let begun = Instant::now();
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await.expect("cut in time");
    assert!(begun.elapsed() >= Duration::from_millis(150));
    assert!(!rest.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn connection_waits_for_a_permit() {
    let edge = Edge::start(with(|setup| setup.options.connections_max = 1)).await;
    let mut first = edge.client().connect().await;
    first.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").await.unwrap();
    let mut buffer = [0; 512];
    assert!(first.read(&mut buffer).await.unwrap() > 0);
    let mut second = edge.client().connect().await;
    second.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(150), second.read(&mut buffer)).await;
    assert!(early.is_err(), "it has to wait");
    drop(first);
    assert_eq!(Reply::read(second).await.status, 200);
}

#[tokio::test]
async fn rate_limited_request_gets_a_retry_time() {
    let edge = Edge::start(with(|setup| setup.limits.requests_per_second = 2)).await;
    let client = edge.session().await;
    let mut refused = None;
    for id in 2..20 {
        let reply = client.rpc(id, "state", json!({})).await;
        let wait = reply.header("retry-after").map(str::to_owned);
        let (status, body) = status_and_body(reply).await;
        assert_eq!((status, &body["id"]), (200, &json!(id)));
        if body["error"]["code"] == 1011 {
            assert_eq!(wait.as_deref(), Some("1"), "it says so to whoever reads no bodies, too");
            refused = Some(body["error"]["data"].clone());
            break;
        }
    }
    let data = refused.expect("a refusal");
    assert_eq!((&data["limit"], &data["value"]), (&json!("requests_per_second"), &json!(2)));
    assert!(data["retryAfterMs"].as_u64().unwrap() <= 501);
    // Somebody else is not touched, and a notification has no id to answer with.
    let other = edge.client().with("Authorization", "Bearer bob");
    assert_eq!(other.rpc(1, "initialize", json!({})).await.status, 200);
    let refused = client.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
}

#[tokio::test]
async fn open_request_limit_counts_until_streams_end() {
    let edge = Edge::start(with(|setup| {
        setup.limits.requests_open_per_requestor = 2;
    }))
    .await;
    let alice = edge.client().with("Authorization", "Bearer alice");
    let bob = edge.client().with("Authorization", "Bearer bob");
    let alice = edge.session_as(alice, "2025-11-25").await;
    let mut one = alice.get().await;
    let mut two = alice.get().await;
    assert!(one.event().await.is_some() && two.event().await.is_some());
    let refused = alice.get().await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    let (_, body) = status_and_body(refused).await;
    let data = json!({ "limit": "requests_open_per_requestor", "value": 2, "retryAfterMs": 1000 });
    assert_eq!(body["error"]["data"], data);
    let (_, body) = status_and_body(alice.rpc(1, "state", json!({})).await).await;
    assert_eq!(body["error"]["data"], data, "no request of any other kind either");
    assert_eq!(edge.session_as(bob, "2025-11-25").await.rpc(1, "state", json!({})).await.status, 200);
    drop(two);
    for attempt in 0.. {
        let (_, body) = status_and_body(alice.rpc(1, "state", json!({})).await).await;
        if body["error"].is_null() {
            break;
        }
        assert!(attempt < 200, "the place of a stream whose client has gone is free again: {body}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn session_limit_evicts_idle_sessions_and_keeps_busy_ones() {
    for setup in [with(|setup| setup.limits.sessions_per_tenant = 3), with(|setup| setup.limits.sessions_total = 3)] {
        let of_one_tenant = setup.limits.sessions_per_tenant == 3;
        let edge = Edge::start(setup).await;
        let (alice, other) = if of_one_tenant { ("alice", "carol") } else { ("alice", "bob") };
        let client = |name: &str| edge.client().with("Authorization", &format!("Bearer {name}"));
        let opens = async |name: &str| {
            let reply = client(name).rpc(1, "initialize", json!({"protocolVersion": "2025-11-25"})).await;
            status_and_body(reply).await.1["error"]["data"].clone()
        };
        let mut busy = Vec::new();
        for _ in 0..2 {
            let session = edge.session_as(client(alice), "2025-11-25").await;
            let mut stream = session.get().await;
            assert!(stream.event().await.is_some());
            busy.push((session, stream));
        }
        let idle = edge.session_as(client(other), "2025-11-25").await;
        let limit = if of_one_tenant { "sessions_per_tenant" } else { "sessions_total" };
        assert_eq!(opens(alice).await["limit"], limit, "nobody is pushed out by somebody who has more");
        assert_eq!(idle.rpc(2, "state", json!({})).await.status, 200);
        assert_eq!(opens(other).await, json!(null), "its own idle one goes, though somebody else has more");
        assert_eq!(idle.rpc(2, "state", json!({})).await.status, 404);
        for (session, _) in &busy {
            assert_eq!(session.rpc(2, "state", json!({})).await.status, 200, "who is busy stays");
        }
    }
}

#[tokio::test]
async fn call_without_stream_quota_is_answered_as_json() {
    let edge = Edge::start(with(|setup| {
        setup.limits.requests_open_per_requestor = 1;
        setup.options.sse_after_ms = 50;
    }))
    .await;
    let client = edge.session().await;
    // One says something first, the other nothing for a while.
    for (id, params) in [(7, json!({ "steps": 3, "gap_ms": 10 })), (8, json!({ "ms": 200 }))] {
        let reply = client.rpc(id, "do", params).await;
        assert_eq!(reply.header("content-type"), Some("application/json"));
        let (status, body) = status_and_body(reply).await;
        assert_eq!((status, &body["id"]), (200, &json!(id)));
        assert!(body["result"].is_object(), "what has begun is not refused: {body}");
    }
    assert_eq!((edge.script.finished(), edge.script.dropped()), (2, 0));
    // No place and no byte of the stream is taken that never was.
    let other = Edge::start(with(|setup| setup.limits.requests_open_per_requestor = 2)).await;
    let client = other.session().await;
    for id in 0..3 {
        assert!(client.rpc(id, "do", json!({ "steps": 1 })).await.event().await.is_some(), "{id}");
    }
}

#[tokio::test]
async fn connection_limit_per_address_is_enforced() {
    let edge = Edge::start(with(|setup| setup.options.connections_per_address = 2)).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut connection = edge.client().connect().await;
        connection.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").await.unwrap();
        assert!(connection.read(&mut [0; 512]).await.unwrap() > 0);
        open.push(connection);
    }
    let mut third = edge.client().connect().await;
    let ended = third.read(&mut [0; 512]).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "it is closed at once: {ended:?}");
    open.pop();
    for attempt in 0.. {
        let mut next = edge.client().connect().await;
        // It may be closed before or after this is written.
        let _ = next.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").await;
        if next.read(&mut [0; 512]).await.is_ok_and(|read| read > 0) {
            break;
        }
        assert!(attempt < 200, "the place of the one that has gone is free again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn listen_socket_errors_say_their_cause() {
    let taken = bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
    let address = taken.local_addr().unwrap();
    let error = bind(address, false).unwrap_err();
    assert!(matches!(error, BindError::InUse(_)) && error.to_string().contains("--listen"), "{error}");
    let error = bind("0.0.0.0:0".parse().unwrap(), false).unwrap_err();
    assert!(matches!(error, BindError::Open(_)), "{error}");
    assert!(bind("0.0.0.0:0".parse().unwrap(), true).is_ok());
    let error = bind("192.0.2.1:1".parse().unwrap(), true).unwrap_err();
    assert!(matches!(error, BindError::Failed { .. }), "{error}");
}
