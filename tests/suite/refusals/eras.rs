//! What happens when the two eras are mixed up.

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::client::Client;
use tests::modern::{Modern, TASKS};

use super::{VERSION, Wire, call, host, refused};

#[tokio::test]
async fn members_of_the_other_era_are_refused_or_ignored() {
    let host = host().await;
    let session = Client::connect(&host).await.session.expect("a session");
    let hello = json!({"protocolVersion": "2026-07-28", "clientInfo": {"name": "t", "version": "1"},
        "capabilities": {"extensions": {TASKS: {}}}});
    let text = || call("test_simple_text", json!({}));
    let mut wish = text();
    wish.body["params"]["task"] = json!({"ttl": 1000});
    let tool = || Wire::legacy("tools/call", json!({"name": "test_simple_text", "arguments": {}}));
    let in_session = |wire: Wire| wire.with("mcp-session-id", &session);
    refused(
        &host,
        vec![
            ("initialize with a modern _meta", Wire::honest("initialize", hello.clone()), 404, -32601),
            (
                "initialize under a modern header",
                Wire::legacy("initialize", hello.clone()).with("mcp-protocol-version", "2026-07-28"),
                400,
                -32602,
            ),
            ("initialize that asks for a modern revision", Wire::legacy("initialize", hello), 200, 0),
            ("a modern request in a session", in_session(text()), 200, 0),
            ("a modern request in a session of nobody", text().with("mcp-session-id", "nobody's"), 200, 0),
            ("a modern request in the middle of a stream", text().with("last-event-id", "7"), 200, 0),
            ("a wish for a task", wish.clone(), 200, 0),
            ("the same of a client with tasks", wish.tasked(), 200, 0),
            ("a modern _meta under an older header", text().with("mcp-protocol-version", "2025-11-25"), 400, -32020),
            (
                "the same in a session of nobody",
                text().with("mcp-protocol-version", "2025-11-25").with("mcp-session-id", "nobody's"),
                400,
                -32020,
            ),
            ("the same in a session", in_session(text().with("mcp-protocol-version", "2025-11-25")), 400, -32020),
            (
                "a modern _meta that names an older revision",
                text().meta(VERSION, json!("2025-11-25")).with("mcp-protocol-version", "2025-11-25"),
                400,
                -32022,
            ),
            ("a modern method without its _meta", in_session(Wire::legacy("server/discover", json!({}))), 400, -32602),
            ("another one", in_session(Wire::legacy("subscriptions/listen", json!({}))), 400, -32602),
            (
                "a legacy request under a modern header",
                in_session(tool().with("mcp-protocol-version", "2026-07-28")),
                400,
                -32602,
            ),
            ("a legacy request without a session", tool(), 400, -32600),
            ("a legacy request", in_session(tool()), 200, 0),
            (
                "a legacy request with headers of later",
                in_session(tool().with("mcp-method", "other").with("mcp-name", "other")),
                200,
                0,
            ),
            (
                "a modern method in a session",
                in_session(Wire::legacy("tasks/update", json!({"taskId": "x"}))),
                200,
                -32601,
            ),
        ],
    )
    .await;
    let (_, headers, body) = Wire::legacy(
        "initialize",
        json!({"protocolVersion": "2026-07-28", "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"}}),
    )
    .send(&host)
    .await;
    assert_eq!(body["result"]["protocolVersion"], "2025-11-25", "a handshake never leads to a modern revision");
    assert!(headers.contains_key("mcp-session-id"));
    let (_, headers, body) = text().send(&host).await;
    assert!(!headers.contains_key("mcp-session-id"), "there are no sessions");
    assert_eq!(body["result"]["resultType"], "complete");
}

#[tokio::test]
async fn modern_revision_allows_post_only() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    for method in [reqwest::Method::GET, reqwest::Method::DELETE] {
        let request = http.request(method.clone(), &host.url).header("accept", "text/event-stream");
        let request = request.header("mcp-session-id", client.session.as_deref().expect("a session"));
        let reply = request.header("mcp-protocol-version", "2026-07-28").send().await.expect("an answer");
        assert_eq!(reply.status(), StatusCode::METHOD_NOT_ALLOWED, "{method}");
        assert_eq!(reply.headers()["allow"], "POST, OPTIONS");
    }
    assert!(client.call("ping", json!({})).await.is_ok(), "the session is not touched");
}

#[tokio::test]
async fn disconnect_before_promotion_leaves_no_task() {
    let host = host().await;
    let client = Modern::full(&host, None);
    let legacy = Client::connect(&host).await;
    for left_after_ms in [100, 500, 900] {
        let leaving = Duration::from_millis(left_after_ms);
        let call = client.send("tools/call", json!({"name": "wait", "arguments": {"ms": 20_000}}));
        assert!(tokio::time::timeout(leaving, call).await.is_err(), "it becomes a task after a second");
    }
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(legacy.tasks().await, Vec::<Value>::new());
    // Who stays gets one.
    client.task("wait", json!({"ms": 20_000})).await;
    assert_eq!(legacy.tasks().await.len(), 1);
}
