//! Batches, which sessions of 2025-03-26 have and no others.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::Setup;
use tests::client::{Client, all_capabilities};
use tests::schema::{Expected, check_first};
use tests::stdio::Pipe;

const FIRST: &str = "2025-03-26";

fn setup() -> Setup {
    Setup::with(&["text", "primes", "desk"])
}

/// Two requests, a notification between them, and a request for what there is not.
fn messages() -> Value {
    json!([
        {"jsonrpc": "2.0", "id": "first", "method": "tools/call",
            "params": {"name": "count_primes", "arguments": {"below": 1000}}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "nothing"}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 3, "method": "no/such"},
    ])
}

/// Looks at the answer to these messages.
fn check(answers: &Value) {
    let answers = answers.as_array().unwrap_or_else(|| panic!("no array: {answers}"));
    assert_eq!(answers.len(), 3, "{answers:?}");
    let of = |id: Value, method: &str| {
        let answer = answers.iter().find(|answer| answer["id"] == id).unwrap_or_else(|| panic!("no {id}: {answers:?}"));
        check_first(answer, Some(&Expected { id, method: method.to_owned() }));
        answer
    };
    let called = of(json!("first"), "tools/call");
    let text = called["result"]["content"][0]["text"].as_str().unwrap_or_default();
    assert!(text.contains("168") && called["result"].get("structuredContent").is_none(), "{called}");
    let listed = of(json!(2), "tools/list");
    let tools = listed["result"]["tools"].as_array().expect("a list");
    assert!(!tools.is_empty() && tools.iter().all(|tool| tool.get("outputSchema").is_none()), "{listed}");
    assert_eq!(of(json!(3), "no/such")["error"]["code"], -32601);
}

async fn client(url: &str) -> Client {
    let mut client = Client::new(url, None);
    client.version = FIRST.to_owned();
    client.initialize(all_capabilities()).await;
    assert_eq!(client.version, FIRST);
    client
}

/// Posts a text; the status and what came back.
async fn post(client: &Client, text: &str, accept: &str) -> (StatusCode, String) {
    let request = client.request(Method::POST).header("content-type", "application/json").header("accept", accept);
    let response = request.body(text.to_owned()).send().await.expect("a reply");
    (response.status(), response.text().await.expect("a text"))
}

#[tokio::test]
async fn batch_over_http_is_answered_as_json_or_event() {
    let setup = setup().config("[server]\nsse_after_ms = 1");
    let host = setup.start().await;
    let client = client(&host.url).await;
    let (status, text) = post(&client, &messages().to_string(), "application/json").await;
    assert_eq!(status, StatusCode::OK, "{text}");
    check(&serde_json::from_str(&text).expect("JSON"));
    let mut slow = messages();
    slow[0]["params"] = json!({"name": "wait", "arguments": {"ms": 300}});
    let (status, text) = post(&client, &slow.to_string(), "application/json, text/event-stream").await;
    let events: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).expect("JSON"))
        .collect();
    let last = events.last().unwrap_or_else(|| panic!("no event: {status} {text}"));
    assert_eq!(last.as_array().map(Vec::len), Some(3), "the answers come together: {text}");
    let quiet = json!([{"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}]);
    assert_eq!(post(&client, &quiet.to_string(), "application/json").await, (StatusCode::ACCEPTED, String::new()));
    for bad in ["[]".to_owned(), json!(vec![quiet[0].clone(); 51]).to_string()] {
        let (status, text) = post(&client, &bad, "application/json").await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
    }
}

#[tokio::test]
async fn batch_in_another_revision_is_refused() {
    let host = setup().start().await;
    let client = Client::connect(&host).await;
    let (status, text) = post(&client, &messages().to_string(), "application/json").await;
    assert!(status == StatusCode::BAD_REQUEST && text.contains("batches are not supported"), "{status} {text}");
}

#[tokio::test]
async fn batch_over_stdio_is_answered_on_one_line() {
    let mut pipe = Pipe::connect_as(&setup(), FIRST, all_capabilities()).await;
    pipe.write(messages()).await;
    check(&pipe.read_line().await.expect("a line"));
    pipe.write(json!([{"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}])).await;
    pipe.write(json!([])).await;
    let refused = pipe.read_line().await.expect("a line");
    assert!(refused["error"]["code"] == -32600 && refused.get("id").is_none(), "{refused}");
    assert_eq!(pipe.call("ping", json!({})).await["result"], json!({}));
    assert!(pipe.close().await.success());
}

#[tokio::test]
async fn batch_is_taken_in_a_session_from_before_a_restart() {
    let host = setup().start().await;
    let before = client(&host.url).await;
    let host = host.kill().await.start().await;
    let mut after = Client::new(&host.url, None);
    (after.session, after.version) = (before.session.clone(), before.version.clone());
    let (status, text) = post(&after, &messages().to_string(), "application/json").await;
    assert_eq!(status, StatusCode::OK, "{text}");
    check(&serde_json::from_str(&text).expect("JSON"));
}
