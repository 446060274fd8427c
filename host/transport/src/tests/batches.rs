//! Several messages in one body, in sessions of 2025-03-26.

use bulkhead_domain::limits::Limits;
use serde_json::{Value, json};

use super::client::Client;
use super::{Edge, Setup, status_and_body};

const FIRST: &str = "2025-03-26";

async fn batching(edge: &Edge) -> Client {
    edge.session_as(edge.client(), FIRST).await
}

fn requests(count: u64) -> Vec<Value> {
    (1..=count).map(|id| json!({"jsonrpc": "2.0", "id": id, "method": "do", "params": {"x": id}})).collect()
}

#[tokio::test]
async fn http_batch_is_answered_with_one_array() {
    let edge = Edge::usual().await;
    let client = batching(&edge).await;
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/x"});
    let mut messages = requests(3);
    messages.insert(1, notification.clone());
    for accept in ["application/json", "application/json, text/event-stream"] {
        let reply = client.with("Accept", accept).post(&json!(messages).to_string()).await;
        assert_eq!(reply.header("content-type"), Some("application/json"));
        let (status, body) = status_and_body(reply).await;
        let mut results: Vec<_> =
            body.as_array().unwrap().iter().map(|one| (&one["id"], &one["result"]["x"])).collect();
        results.sort_by_key(|(id, _)| id.as_u64());
        let wanted = [1, 2, 3].map(|id| json!(id));
        assert_eq!((status, results), (200, wanted.iter().map(|id| (id, id)).collect()));
    }
    let one = client.post(&json!(requests(1)).to_string()).await;
    assert!(status_and_body(one).await.1.is_array(), "an array of one, too");
    let reply = client.post(&json!([notification, notification]).to_string()).await;
    assert_eq!((reply.status, reply.body().await.as_str()), (202, ""));
}

#[tokio::test]
async fn what_is_no_batch_of_its_session_is_refused() {
    let edge = Edge::usual().await;
    let client = batching(&edge).await;
    let newer = edge.session().await;
    let one = json!(requests(1)).to_string();
    let many = json!(requests(51)).to_string();
    for (reply, case) in [
        (newer.post(&one).await, "another revision"),
        (edge.client().post(&one).await, "no session"),
        (client.post("[]").await, "empty"),
        (client.post(&many).await, "too many"),
        (client.post("[").await, "not JSON"),
    ] {
        let (status, body) = status_and_body(reply).await;
        assert!(status == 400 && body["error"]["message"].is_string(), "{case}: {status} {body}");
    }
    assert_eq!(edge.script.begun(), 0);
}

#[tokio::test]
async fn every_message_of_a_batch_is_charged_before_any_is_taken() {
    let open = Limits { requests_open_per_requestor: 3, ..Limits::generous() };
    let rate = Limits { requests_per_second: 3, ..Limits::generous() };
    for (limits, code, fits) in [(open, 1010, 3), (rate, 1011, 2)] {
        let edge = Edge::start(Setup { limits, ..Setup::default() }).await;
        let client = batching(&edge).await;
        let (status, body) = status_and_body(client.post(&json!(requests(9)).to_string()).await).await;
        assert_eq!(status, 200, "{body}");
        let answers = body.as_array().unwrap();
        assert!(answers.len() == 9 && answers.iter().all(|answer| answer["error"]["code"] == code), "{body}");
        assert_eq!(edge.script.begun(), 0, "nothing was begun");
        let (_, body) = status_and_body(client.post(&json!(requests(fits)).to_string()).await).await;
        assert!(body.as_array().unwrap().iter().all(|answer| answer["result"].is_object()), "{body}");
    }
}

#[tokio::test]
async fn batch_that_can_never_pass_is_refused_with_the_most_and_no_time() {
    let open = Limits { requests_open_per_requestor: 3, ..Limits::generous() };
    let rate = Limits { requests_per_second: 3, ..Limits::generous() };
    for (limits, code, most) in [(open, 1010, 3), (rate, 1011, 6)] {
        let edge = Edge::start(Setup { limits, ..Setup::default() }).await;
        let client = batching(&edge).await;
        let reply = client.post(&json!(requests(most + 1)).to_string()).await;
        assert_eq!(reply.header("retry-after"), None);
        let (_, body) = status_and_body(reply).await;
        let error = &body[0]["error"];
        assert_eq!((&error["code"], &error["data"]["batchMessagesMax"]), (&json!(code), &json!(most)), "{body}");
        assert!(error["data"].get("retryAfterMs").is_none(), "{body}");
        assert!(error["message"].as_str().unwrap().contains(&format!("{most} is the most")), "{body}");
        let quiet = json!(vec![json!({"jsonrpc": "2.0", "method": "notifications/x"}); most as usize + 1]);
        assert_eq!(client.post(&quiet.to_string()).await.status, 413, "no request, so the status says it");
    }
}

#[tokio::test]
async fn batch_that_passes_later_is_refused_with_the_time() {
    let limits = Limits { requests_per_second: 3, ..Limits::generous() };
    let edge = Edge::start(Setup { limits, ..Setup::default() }).await;
    let client = batching(&edge).await;
    let (_, body) = status_and_body(client.post(&json!(requests(3)).to_string()).await).await;
    assert!(body[0]["result"].is_object(), "{body}");
    let reply = client.post(&json!(requests(6)).to_string()).await;
    assert!(reply.header("retry-after").is_some());
    let (_, body) = status_and_body(reply).await;
    assert!(body[0]["error"]["data"]["retryAfterMs"].as_u64() > Some(0), "{body}");
}

#[tokio::test]
async fn sessions_with_batches_and_others_keep_their_revision() {
    let edge = Edge::usual().await;
    let client = batching(&edge).await;
    let newer = edge.session().await;
    let one = json!(requests(1)).to_string();
    let single = requests(1)[0].to_string();
    let said = |client: &Client, version: &str| client.with("MCP-Protocol-Version", version);
    for (reply, status) in [
        (said(&client, FIRST).post(&one).await, 200),
        (said(&client, FIRST).post(&single).await, 200),
        (said(&client, "2025-11-25").post(&one).await, 400),
        (said(&client, "2025-11-25").post(&single).await, 400),
        (said(&newer, FIRST).post(&single).await, 400),
        (said(&newer, FIRST).get().await, 400),
        (said(&newer, FIRST).send("DELETE", "/mcp", "").await, 400),
        (said(&newer, "2025-11-25").post(&single).await, 200),
    ] {
        assert_eq!(reply.status, status);
    }
}

#[tokio::test]
async fn large_batch_is_read_off_the_connections_threads() {
    let mut setup = Setup::default();
    setup.options.body_bytes_max = 1 << 20;
    let edge = Edge::start(setup).await;
    let client = batching(&edge).await;
    let messages: Vec<_> = (1..=3)
        .map(|id| json!({"jsonrpc": "2.0", "id": id, "method": "do", "params": {"x": "y".repeat(60_000)}}))
        .collect();
    let (status, body) = status_and_body(client.post(&json!(messages).to_string()).await).await;
    assert_eq!((status, body.as_array().map(Vec::len)), (200, Some(3)));
}
