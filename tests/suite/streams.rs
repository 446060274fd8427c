//! Streamable HTTP: statuses, headers, event streams and their resumption.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::client::{Client, text};
use tests::wait::soon;
use tests::{Host, Setup};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

async fn host() -> Host {
    Setup::with(&["text", "desk"]).start().await
}

#[tokio::test]
async fn http_headers_decide_the_status() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let both = "application/json, text/event-stream";
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let rows: [(&str, Headers<'_>, u16); 11] = [
        ("a good request", &[("content-type", "application/json"), ("accept", both)], 200),
        ("a charset", &[("content-type", "application/json; charset=utf-8"), ("accept", both)], 200),
        ("anything is acceptable", &[("content-type", "application/json"), ("accept", "*/*")], 200),
        ("no JSON", &[("content-type", "text/plain"), ("accept", both)], 415),
        ("packed", &[("content-type", "application/json"), ("accept", both), ("content-encoding", "gzip")], 415),
        (
            "packed again",
            &[
                ("content-type", "application/json"),
                ("accept", both),
                ("content-encoding", "identity"),
                ("content-encoding", "br"),
            ],
            415,
        ),
        ("as it is", &[("content-type", "application/json"), ("accept", both), ("content-encoding", "Identity")], 200),
        ("nothing acceptable", &[("content-type", "application/json"), ("accept", "text/html")], 406),
        (
            "a foreign origin",
            &[("content-type", "application/json"), ("accept", both), ("origin", "http://evil.example")],
            403,
        ),
        (
            "our own origin",
            &[("content-type", "application/json"), ("accept", both), ("origin", "http://localhost:1")],
            200,
        ),
        ("a rebound name", &[("content-type", "application/json"), ("accept", both), ("host", "evil.example")], 403),
    ];
    for (what, headers, status) in rows {
        let request =
            headers.iter().fold(client.request(Method::POST), |request, (key, value)| request.header(*key, *value));
        let reply = client.exchange(request.body(PING)).await;
        assert_eq!(reply.status.as_u16(), status, "{what}: {}", reply.text);
        if what.starts_with("packed") {
            assert!(reply.text.contains("without a Content-Encoding header"), "{}", reply.text);
            assert_eq!(reply.headers["accept-encoding"], "identity");
        }
    }
}

#[tokio::test]
async fn unknown_protocol_version_header_is_refused() {
    let host = host().await;
    let mut client = Client::connect(&host).await;
    for version in ["1999-01-01", "x"] {
        client.version = version.to_owned();
        assert_eq!(client.post(PING, None).await.status, StatusCode::BAD_REQUEST, "{version}");
    }
}

#[tokio::test]
async fn other_http_methods_are_not_allowed() {
    let host = host().await;
    let client = Client::connect(&host).await;
    for method in [Method::PUT, Method::PATCH] {
        let reply = client.exchange(client.request(method.clone()).body(PING)).await;
        assert_eq!(reply.status, StatusCode::METHOD_NOT_ALLOWED, "{method}");
    }
    let elsewhere = reqwest::get(host.address("/elsewhere")).await.expect("an answer");
    assert_eq!(elsewhere.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn session_id_is_required_and_must_be_known() {
    let host = host().await;
    let mut client = Client::connect(&host).await;
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let session = client.session.take();
    assert_eq!(client.post(list, None).await.status, StatusCode::BAD_REQUEST);
    for unasked in
        [r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#]
    {
        assert_eq!(client.post(unasked, None).await.status, StatusCode::BAD_REQUEST, "{unasked}");
    }
    client.session = Some("unknown".to_owned());
    assert_eq!(client.post(list, None).await.status, StatusCode::NOT_FOUND);
    client.session = session;
    assert_eq!(client.post(list, None).await.status, StatusCode::OK);
}

#[tokio::test]
async fn health_probes_need_no_token() {
    let setup = Setup::with(&["text"]);
    setup.token("alice", "red").await;
    let host = setup.start().await;
    for path in ["/healthz", "/readyz"] {
        let request = reqwest::Client::new().get(host.address(path)).header("host", "anything.example");
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn stream_starts_with_priming_event_and_unique_ids() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let params = json!({"name": "wait", "arguments": {"ms": 300}, "_meta": {"progressToken": 1}});
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut reply = client.send("tools/call", params.clone()).await;
        assert!(reply.is_stream());
        let mut first = true;
        while let Some(event) = soon("an event", reply.next_event()).await {
            if std::mem::take(&mut first) {
                assert!(event.id.is_some() && event.data.is_empty() && event.has_data, "{event:?}");
            }
            ids.extend(event.id);
        }
    }
    let mut unique = ids.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), ids.len(), "{ids:?}");
}

#[tokio::test]
async fn broken_stream_is_resumed_even_after_completion() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let params = json!({"name": "wait", "arguments": {"ms": 700}, "_meta": {"progressToken": 1}});
    let mut reply = client.send("tools/call", params).await;
    let first =
        soon("progress", reply.next()).await.expect("progress")["params"]["progress"].as_f64().expect("a number");
    let seen = reply.last_event_id.clone().expect("an event id");
    drop(reply);

    let mut resumed = client.listen_from(Some(&seen)).await;
    assert!(resumed.is_stream(), "{} {}", resumed.status, resumed.text);
    let mut heard = Vec::new();
    let message = resumed.response_after(&mut heard).await;
    assert_eq!(message["result"]["structuredContent"]["waited_ms"], 700);
    assert!(heard.iter().all(|message| message["params"]["progress"].as_f64() > Some(first)), "nothing comes twice");
    assert!(soon("the end", resumed.next()).await.is_none(), "the stream ends with the response");

    let mut again = client.listen_from(Some(&seen)).await;
    assert_eq!(again.response_after(&mut Vec::new()).await["result"], message["result"], "also after completion");
}

#[tokio::test]
async fn a_stream_of_another_session_is_not_resumed() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let other = Client::connect(&host).await;
    let params = json!({"name": "wait", "arguments": {"ms": 300}, "_meta": {"progressToken": 1}});
    let mut reply = client.send("tools/call", params).await;
    reply.response_after(&mut Vec::new()).await;
    let seen = reply.last_event_id.clone().expect("an event id");
    let mut stolen = other.listen_from(Some(&seen)).await;
    if stolen.is_stream() {
        let next = tokio::time::timeout(std::time::Duration::from_millis(500), stolen.next()).await;
        assert!(
            next.is_err()
                || next.as_ref().is_ok_and(|message| message.as_ref().is_none_or(|m| m.get("result").is_none())),
            "another session's messages: {next:?}"
        );
    } else {
        assert!(stolen.status.is_client_error(), "{}", stolen.status);
    }
}

#[tokio::test]
async fn a_slow_call_switches_to_a_stream_with_keep_alive_comments() {
    let server = "[server]\nsse_after_ms = 200\nsse_keepalive_ms = 100";
    let host = Setup::with(&["desk"]).config(server).start().await;
    let client = Client::connect(&host).await;
    let mut reply = client.send("tools/call", json!({"name": "wait", "arguments": {"ms": 1000}})).await;
    assert!(reply.is_stream(), "silence ends after sse_after_ms");
    let message = reply.response_after(&mut Vec::new()).await;
    assert_eq!(message["result"]["structuredContent"]["waited_ms"], 1000);
    assert!(reply.comments >= 2, "only {} keep-alive comments", reply.comments);
}

#[tokio::test]
async fn unread_stream_does_not_block_the_session() {
    let host = host().await;
    let client = Client::connect(&host).await;
    // Opened and never read.
    let _unread = client.listen().await;
    let params = json!({"name": "wait", "arguments": {"ms": 3000}, "_meta": {"progressToken": 1}});
    let _also_unread = client.send("tools/call", params).await;
    for turn in 0..20 {
        let result = client.tool("echo", json!({"text": turn.to_string()})).await.expect("a result");
        assert_eq!(text(&result), turn.to_string());
    }
}

#[tokio::test]
async fn a_session_survives_a_restart() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let task = client.task("wait", json!({"ms": 0})).await;
    client.until_status(&task, "completed").await;
    let (status, setup) = host.terminate().await;
    assert!(status.success(), "{status}");
    let host = setup.start().await;
    let mut again = Client::new(&host.url, None);
    again.session = client.session.clone();
    let known = again.about("tasks/get", &task).await.expect("the session and its task are there");
    assert_eq!(known["status"], "completed");
}

#[tokio::test]
async fn dropped_connection_is_not_a_cancel() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let params = json!({"name": "wait", "arguments": {"ms": 500}, "_meta": {"progressToken": 1}});
    let mut reply = client.send("tools/call", params).await;
    reply.next().await.expect("progress");
    let seen = reply.last_event_id.clone().expect("an event id");
    drop(reply);
    tokio::time::sleep(std::time::Duration::from_millis(800)).await;
    let mut resumed = client.listen_from(Some(&seen)).await;
    let mut heard: Vec<Value> = Vec::new();
    let message = resumed.response_after(&mut heard).await;
    assert_eq!(message["result"]["structuredContent"]["waited_ms"], 500);
}
