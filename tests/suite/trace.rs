//! Trace context in `_meta`: whose request a line of the log is about, and never a reason to refuse one.

use serde_json::{Value, json};
use tests::Setup;
use tests::client::{Client, text};
use tests::modern::Modern;
use tests::wait::until;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

fn record(message: &str, meta: Value) -> Value {
    json!({"name": "log", "arguments": {"level": "info", "message": message}, "_meta": meta})
}

fn traced() -> Value {
    json!({"traceparent": format!("00-{TRACE}-{CALLER}-01"), "tracestate": "rojo=1", "baggage": "user=anna%40example.org"})
}

#[tokio::test]
async fn guest_logs_carry_the_callers_trace() {
    let host = Setup::with(&["probe"]).config("[log]\nlevel = \"debug\"").start().await;
    let client = Client::connect(&host).await;
    let modern = Modern::full(&host, None);
    client.call("tools/call", record("mark-plain", traced())).await.expect("a result");
    let mut task = record("mark-task", traced());
    task["task"] = json!({"ttl": 60_000});
    let created = client.call("tools/call", task).await.expect("a task");
    client.until_status(created["task"]["taskId"].as_str().expect("an id"), "completed").await;
    let mut of_today = modern.with_meta("traceparent", traced()["traceparent"].clone());
    of_today = of_today.with_meta("tracestate", json!("rojo=1"));
    of_today
        .result("tools/call", json!({"name": "log", "arguments": {"level": "info", "message": "mark-modern"}}))
        .await;
    client.call("tools/call", record("mark-none", json!({}))).await.expect("a result");

    let line = async |mark: &str| {
        let of_guest = |line: &&str| line.contains(mark) && line.contains("guest log");
        until(&format!("{mark} in the log"), async || host.log().lines().find(of_guest).map(str::to_owned)).await
    };
    for mark in ["mark-plain", "mark-task", "mark-modern"] {
        let line = line(mark).await;
        assert!([TRACE, CALLER, "rojo=1"].iter().all(|part| line.contains(part)), "{line}");
    }
    assert!(!line("mark-none").await.contains(TRACE));
    assert!(!host.log().contains("anna"), "baggage may say anything about anybody");
}

#[tokio::test]
async fn invalid_trace_context_fails_no_request() {
    let host = Setup::with(&["probe"]).config("[log]\nlevel = \"debug\"").start().await;
    let client = Client::connect(&host).await;
    let modern = Modern::full(&host, None);
    for wrong in [json!(5), json!(null), json!("no"), json!({"a": 1}), json!("00-\u{1b}[2J-x-01")] {
        let meta = json!({"traceparent": wrong, "tracestate": wrong, "baggage": wrong});
        let result = client.call("tools/call", record("fine", meta.clone())).await.expect("a result");
        assert_eq!(text(&result), "logged");
        client.call("ping", json!({"_meta": meta})).await.expect("an answer");
        let mut odd = modern.with_meta("traceparent", wrong.clone());
        odd = odd.with_meta("baggage", wrong.clone());
        assert!(odd.result("tools/list", json!({})).await["tools"].is_array(), "{wrong}");
    }
    assert!(!host.log().contains('\u{1b}'), "what was refused is not repeated");
}
