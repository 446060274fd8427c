//! Statuses, headers and sources.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::client::Reply;
use super::{Edge, Setup, status_and_body};

#[tokio::test]
async fn http_request_gets_json_and_notification_gets_202() {
    let edge = Edge::usual().await;
    let client = edge.session().await;
    let reply = client.rpc(7, "do", json!({ "x": 1 })).await;
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(status_and_body(reply).await, (200, json!({ "jsonrpc": "2.0", "id": 7, "result": { "x": 1 } })));
    let reply = client.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    assert_eq!((reply.status, reply.header("content-length").unwrap_or("0")), (202, "0"));
}

#[tokio::test]
async fn unacceptable_http_requests_have_their_status() {
    let edge = Edge::usual().await;
    let client = edge.session().await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"do","params":{}}"#;
    let cases = [
        (client.post("{").await, 400),
        (client.without("mcp-session-id").post(call).await, 400),
        (client.with("MCP-Protocol-Version", "1999-01-01").post(call).await, 400),
        (client.with("MCP-Protocol-Version", "2025-06-18").post(call).await, 200),
        (client.with("mcp-session-id", "unknown").post(call).await, 404),
        (client.with("mcp-session-id", &"x".repeat(600)).post(call).await, 404),
        (client.send("PUT", "/mcp", call).await, 405),
        (client.with("Accept", "text/html").post(call).await, 406),
        (client.with("Accept", "application/json").get().await, 406),
        (client.post(&" ".repeat(10_001)).await, 413),
        (client.with("Content-Type", "text/plain").post(call).await, 415),
        (client.without("Content-Type").post(call).await, 415),
        (client.with("Content-Type", "application/json; charset=utf-8").post(call).await, 200),
        (client.without("mcp-session-id").get().await, 400),
        (client.send("GET", "/elsewhere", "").await, 404),
        (client.with("Last-Event-ID", "nonsense").get().await, 400),
    ];
    for (index, (reply, status)) in cases.into_iter().enumerate() {
        let got = reply.status;
        let body: serde_json::Value = serde_json::from_str(&reply.body().await).unwrap();
        assert_eq!(got, status, "case {index}: {body}");
        if status != 200 {
            assert!(body["error"]["message"].is_string() && body.get("id").is_none(), "case {index}: {body}");
        }
    }
}

#[tokio::test]
async fn cancelled_http_request_gets_an_empty_answer() {
    let edge = Edge::usual().await;
    let client = edge.session().await;
    let reply = client.rpc(1, "cancelled", json!({})).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")));
    assert_eq!(reply.body().await, "");
    let reply = client.with("Accept", "application/json").rpc(1, "cancelled", json!({})).await;
    assert_eq!((reply.status, reply.body().await.as_str()), (202, ""));
}

#[tokio::test]
async fn unsupported_protocol_version_lists_supported_ones() {
    let edge = Edge::usual().await;
    let reply = edge.client().with("MCP-Protocol-Version", "2024-11-05").post("{}").await;
    let (status, body) = status_and_body(reply).await;
    assert_eq!(status, 400);
    assert_eq!(
        body["error"]["data"],
        json!({ "supported": ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"], "requested": "2024-11-05" })
    );
}

#[tokio::test]
async fn foreign_host_and_origin_headers_are_refused() {
    let edge = Edge::usual().await;
    let client = edge.session().await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"do","params":{}}"#;
    for host in ["evil.example", "localhost.evil.example", "exact.example", "127.0.0.1@evil.example", ""] {
        assert_eq!(client.with("Host", host).post(call).await.status, 403, "{host}");
    }
    for host in [
        "LOCALHOST:9",
        "127.0.0.1",
        "[::1]:8808",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:127.0.0.1]:8808",
        "localhost.",
        "localhost.:8808",
        "bulkhead.example",
        "bulkhead.example.",
        "Bulkhead.Example:1",
        "exact.example:99",
    ] {
        assert_eq!(client.with("Host", host).post(call).await.status, 200, "{host}");
    }
    // With brackets or without, as the operator wrote it and as clients send it.
    for host in ["[2001:db8::1]", "[2001:DB8:0::1]:8808", "[2001:db8::2]:1"] {
        assert_eq!(client.with("Host", host).post(call).await.status, 200, "{host}");
    }
    for host in ["[2001:db8::3]", "[::2]", "[::ffff:10.0.0.1]", "::1]", "evil.example."] {
        assert_eq!(client.with("Host", host).post(call).await.status, 403, "{host}");
    }
    for origin in
        ["https://evil.example", "null", "http://localhost.evil.example", "http://a@localhost", "http://app.example"]
    {
        assert_eq!(client.with("Origin", origin).post(call).await.status, 403, "{origin}");
    }
    for origin in ["https://app.example", "http://localhost:6274", "http://127.0.0.1"] {
        assert_eq!(client.with("Origin", origin).post(call).await.status, 200, "{origin}");
    }
    assert_eq!(client.without("Host").post(call).await.status, 400);
    let twice = "GET /mcp HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
    assert_eq!(client.raw(twice).await.status, 400);
    let absolute = "GET http://evil.example/mcp HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(client.raw(absolute).await.status, 403);
    // Probes know no name.
    assert_eq!(client.with("Host", "evil.example").send("GET", "/healthz", "").await.status, 200);
}

#[tokio::test]
async fn byte_order_mark_in_front_of_a_body_is_skipped() {
    let edge = Edge::usual().await;
    let client = edge.session().await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"do","params":{}}"#;
    for (marks, status) in [(0, 200), (1, 200), (2, 400)] {
        assert_eq!(client.post(&format!("{}{call}", "\u{feff}".repeat(marks))).await.status, status, "{marks} marks");
    }
}

#[tokio::test]
async fn cors_is_for_configured_origins_only() {
    let edge = Edge::usual().await;
    let ask = |origin: &str| {
        edge.client()
            .with("Origin", origin)
            .with("Access-Control-Request-Method", "POST")
            .with("Access-Control-Request-Headers", "content-type, Mcp-Param-City, x-other")
    };
    let reply = ask("https://app.example").send("OPTIONS", "/mcp", "").await;
    assert_eq!(reply.status, 204);
    assert_eq!(reply.header("access-control-allow-origin"), Some("https://app.example"));
    assert_eq!(reply.header("access-control-allow-headers"), Some("content-type, Mcp-Param-City"));
    assert_eq!(reply.header("access-control-allow-methods"), Some("GET, POST, DELETE"));
    let reply = ask("http://localhost:3000").send("OPTIONS", "/mcp", "").await;
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (204, None));
    assert_eq!(reply.header("access-control-allow-methods"), None);
    assert_eq!(ask("https://evil.example").send("OPTIONS", "/mcp", "").await.status, 403);

    let client = edge.client().with("Origin", "https://app.example");
    let reply = client.rpc(1, "initialize", json!({})).await;
    assert_eq!(reply.header("access-control-expose-headers"), Some("Mcp-Session-Id, WWW-Authenticate"));
    // A page must be able to read why it was refused.
    let reply = client.with("Authorization", "Bearer nobody").rpc(1, "initialize", json!({})).await;
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (401, Some("https://app.example")));
}

#[tokio::test]
async fn http_access_needs_a_valid_token() {
    let edge = Edge::start(Setup { loopback_only: false, ..Setup::default() }).await;
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
    let reply = edge.client().post(initialize).await;
    assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some(r#"Bearer realm="bulkhead""#)));
    let reply = edge.client().send("POST", "/mcp?access_token=alice", initialize).await;
    assert_eq!(reply.status, 401);
    assert_eq!(edge.client().with("Authorization", "Bearer alice").post(initialize).await.status, 200);
    let mut bodies = Vec::new();
    for token in ["expired", "revoked"] {
        let reply = edge.client().with("Authorization", &format!("Bearer {token}")).post(initialize).await;
        let challenge = Some(r#"Bearer realm="bulkhead", error="invalid_token""#);
        assert_eq!((reply.status, reply.header("www-authenticate")), (401, challenge));
        bodies.push(reply.body().await);
    }
    assert_eq!(bodies[0], bodies[1]);
    assert_eq!(edge.client().with("Authorization", "Bearer a b").post(initialize).await.status, 400);
    let (status, body) =
        status_and_body(edge.client().with("Authorization", "Bearer broken").post(initialize).await).await;
    assert_eq!((status, &body["error"]["data"]), (500, &json!({ "incident": "abc" })));
}

#[tokio::test]
async fn health_and_readiness_probes_answer() {
    let edge = Edge::start(Setup { unready: Some("the store is read-only"), ..Setup::default() }).await;
    let bare = edge.client().without("Host").without("Accept").with("Host", "10.1.2.3:80");
    assert_eq!(bare.send("GET", "/healthz", "").await.status, 200);
    let (status, body) = status_and_body(bare.send("GET", "/readyz", "").await).await;
    assert_eq!((status, body), (503, json!({ "status": "unready", "reason": "the store is read-only" })));
    assert_eq!(bare.send("POST", "/healthz", "").await.status, 405);
    assert_eq!(Edge::usual().await.client().send("GET", "/readyz", "").await.status, 200);
}

#[tokio::test]
async fn unhealthy_host_says_so_to_probes() {
    let edge = Edge::start(Setup { unhealthy: Some("the guests' threads stand still"), ..Setup::default() }).await;
    let bare = edge.client().without("Host").with("Host", "10.1.2.3:80");
    let (status, body) = status_and_body(bare.send("GET", "/healthz", "").await).await;
    assert_eq!((status, body), (503, json!({ "status": "unhealthy", "reason": "the guests' threads stand still" })));
    assert_eq!(bare.send("GET", "/readyz", "").await.status, 200, "who serves with it says whether it is ready");
}

#[tokio::test]
async fn drain_finishes_open_requests_and_answers_long_ones() {
    let mut setup = Setup::default();
    setup.options.drain_ms = 4000;
    let edge = Edge::start(setup).await;
    let client = edge.session().await;
    let quick = client.clone();
    let endless = client.clone();
    let quick = tokio::spawn(async move { quick.rpc(1, "do", json!({ "ms": 200 })).await.body().await });
    let endless = tokio::spawn(async move {
        let mut stream = endless.connect().await;
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"do","params":{"ms":600000}}"#;
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Session-Id: {}\r\nContent-Length: {}\r\n\r\n",
            endless.header("mcp-session-id"),
            body.len()
        );
        tokio::io::AsyncWriteExt::write_all(&mut stream, format!("{head}{body}").as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest).await;
        rest
    });
    while edge.script.begun() < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let address = edge.address;
    let late = client.clone();
    let told = tokio::spawn(async move {
        loop {
            let (status, body) = status_and_body(late.send("GET", "/readyz", "").await).await;
            if status == 503 {
                return (body["reason"].clone(), late.rpc(9, "do", json!({})).await.status);
            }
        }
    });
    edge.stop().await;
    assert_eq!(told.await.unwrap(), (json!("draining"), 503));
    assert!(quick.await.unwrap().contains("\"result\""));
    let endless = String::from_utf8(endless.await.unwrap()).unwrap();
    assert!(
        endless.contains(r#""id":1,"error":{"code":-32603,"message":"The host is shutting down and stopped"#),
        "{endless}"
    );
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn http_connection_is_reused() {
    let edge = Edge::usual().await;
    let mut stream = edge.client().connect().await;
    for _ in 0..3 {
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"GET /healthz HTTP/1.1\r\n\r\n").await.unwrap();
        let mut buffer = [0; 512];
        let read = tokio::io::AsyncReadExt::read(&mut stream, &mut buffer).await.unwrap();
        assert!(buffer[..read].starts_with(b"HTTP/1.1 200"));
    }
    tokio::io::AsyncWriteExt::write_all(&mut stream, b"GET /readyz HTTP/1.1\r\n\r\n").await.unwrap();
    assert_eq!(Reply::read(stream).await.status, 200);
}

/// The whole of what comes on a connection on which this was sent, until its end.
async fn everything(mut connection: TcpStream, request: &str) -> String {
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).await.expect("an end, not a reset");
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn open_requests_are_answered_when_the_host_stops() {
    const JSON: &str = "Accept: application/json";
    const EVENTS: &str = "Accept: application/json, text/event-stream";
    const STOPPED: &str =
        r#""id":1,"error":{"code":-32603,"message":"The host is shutting down and stopped while this call ran"#;
    let call = |method: &str, params: Value| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
    };
    let endless = json!({ "ms": 600_000 });
    let steps = json!({ "steps": 1, "ms": 600_000 });
    let missing = " ".repeat(10);
    for drain_ms in [0, 100] {
        let mut setup = Setup::default();
        setup.options.drain_ms = drain_ms;
        let edge = Edge::start(setup).await;
        let client = edge.session().await;
        let session = format!("Mcp-Session-Id: {}", client.header("mcp-session-id"));
        let modern = "MCP-Protocol-Version: 2026-07-28".to_owned();
        let batch = edge.session_as(edge.client(), "2025-03-26").await;
        let batches = format!("Mcp-Session-Id: {}", batch.header("mcp-session-id"));
        // The headers, the body, how much of it does not come, and what the answer begins with and ends in.
        let cases = [
            (JSON, &session, call("do", endless.clone()), "", "200 OK", STOPPED),
            (EVENTS, &session, call("do", endless.clone()), "", "200 OK", STOPPED),
            (EVENTS, &session, call("do", steps.clone()), "", "200 OK", STOPPED),
            (JSON, &modern, call("modern", endless.clone()), "", "200 OK", STOPPED),
            (EVENTS, &modern, call("modern", steps.clone()), "", "200 OK", STOPPED),
            (EVENTS, &batches, format!("[{}]", call("do", endless.clone())), "", "200 OK", STOPPED),
            (
                EVENTS,
                &session,
                call("do", endless.clone()),
                &*missing,
                "503 Service Unavailable",
                r#""error":{"code":-32603"#,
            ),
        ];
        let mut asked = Vec::new();
        for (accept, about, body, missing, status, said) in cases {
            let length = body.len() + missing.len();
            let head = format!(
                "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{accept}\r\n{about}"
            );
            let request = format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}");
            let connection = edge.client().connect().await;
            asked.push((tokio::spawn(async move { everything(connection, &request).await }), status, said));
        }
        while edge.script.begun() < 6 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The last one is not received, so nothing says that it has come.
        tokio::time::sleep(Duration::from_millis(50)).await;
        edge.stop().await;
        for (index, (answer, status, said)) in asked.into_iter().enumerate() {
            let answer = answer.await.unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{index}, {drain_ms} ms: {answer}");
            assert!(answer.contains(said), "{index}, {drain_ms} ms: {answer}");
        }
    }
}
