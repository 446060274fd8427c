//! What a plugin says to a client and asks of it while a call runs: pages to visit, folders, log records.

use serde_json::{Value, json};
use tests::client::{Client, RELATED_TASK, text};
use tests::stream::Incoming;
use tests::{Host, Setup};

async fn host() -> Host {
    Setup::with(&["probe"]).start().await
}

/// The next request of the host on a stream.
async fn question(stream: &mut Incoming, method: &str) -> Value {
    loop {
        let message = tests::wait::soon("a question", stream.next()).await.expect("the stream goes on");
        if message["method"] == method {
            return message;
        }
        assert!(message.get("method").is_some() && message.get("id").is_none(), "no {method}: {message}");
    }
}

async fn finished(stream: &mut Incoming) -> Value {
    let message = stream.response_after(&mut Vec::new()).await;
    assert!(message.get("result").is_some(), "{message}");
    message["result"].clone()
}

#[tokio::test]
async fn url_input_request_works_for_call_and_task() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let arguments = json!({"url": "https://example.org/consent"});
    for (action, said) in [("accept", "Accepted"), ("decline", "Declined"), ("cancel", "Dismissed")] {
        let mut call = client.send("tools/call", json!({"name": "ask_url", "arguments": arguments})).await;
        let asked = question(&mut call, "elicitation/create").await;
        assert_eq!((&asked["params"]["mode"], &asked["params"]["url"]), (&json!("url"), &arguments["url"]), "{asked}");
        assert!(asked["params"]["elicitationId"].as_str().is_some_and(|id| !id.is_empty()), "{asked}");
        assert!(asked["params"].get("requestedSchema").is_none(), "a page is no form: {asked}");
        client.respond(&asked, json!({"action": action})).await;
        assert!(text(&finished(&mut call).await).contains(said), "{action}");
    }
    let task = client.task("ask_url", arguments.clone()).await;
    client.until_status(&task, "input_required").await;
    let mut result = client.send("tasks/result", json!({"taskId": task})).await;
    let asked = question(&mut result, "elicitation/create").await;
    assert_eq!(asked["params"]["url"], arguments["url"]);
    assert_eq!(asked["params"]["_meta"][RELATED_TASK]["taskId"], task.as_str());
    client.respond(&asked, json!({"action": "accept"})).await;
    assert!(text(&finished(&mut result).await).contains("Accepted"));
}

#[tokio::test]
async fn url_input_request_skips_form_only_client() {
    let host = host().await;
    for capabilities in [json!({"elicitation": {}}), json!({"elicitation": {"form": {}}})] {
        let client = Client::connect_as(&host, None, capabilities).await;
        let params = json!({"name": "ask_url", "arguments": {"url": "https://example.org/"}});
        let (outcome, heard) = client.call_hearing("tools/call", params).await;
        assert_eq!(heard, Vec::<Value>::new());
        assert!(outcome.map_or(true, |result| result["isError"] == true));
    }
}

/// The response to a request of a client that accepts JSON and no events.
async fn as_json(client: &Client, id: &str, method: &str, params: Value) -> Value {
    let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let request = client.request(reqwest::Method::POST).header("content-type", "application/json");
    let request = request.header("accept", "application/json").body(message.to_string());
    let mut reply = client.exchange(request).await;
    assert!(!reply.is_stream());
    let response = reply.response_after(&mut Vec::new()).await;
    assert_eq!(response["id"], id, "{response}");
    response
}

/// Answers the forms of a journey on a stream.
async fn book(client: &Client, stream: &mut Incoming) {
    for content in [json!({"destination": "Kyiv", "travellers": 3}), json!({"class": "business", "confirm": true})] {
        let asked = question(stream, "elicitation/create").await;
        client.respond(&asked, json!({"action": "accept", "content": content})).await;
    }
}

const BOOKED: &str = "Booked 3 business seats to Kyiv.";

#[tokio::test]
async fn input_request_of_json_only_client_uses_get_stream() {
    let host = Setup::with(&["desk", "conformance"]).start().await;
    let client = Client::connect(&host).await;
    let mut stream = client.listen().await;
    let key = json!({"dev.bulkhead/idempotencyKey": "k"});
    for (at, meta) in [json!({}), key].into_iter().enumerate() {
        let params = json!({"name": "book_trip", "arguments": {}, "_meta": meta});
        let id = format!("call-{at}");
        let book = book(&client, &mut stream);
        let (response, ()) = tokio::join!(as_json(&client, &id, "tools/call", params), book);
        assert_eq!(response["result"]["structuredContent"]["summary"], BOOKED, "{response}");
    }
    // Who waits for a task in this way leaves its questions to the stream that is read.
    let task = client.task("book_trip", json!({})).await;
    let waiting = as_json(&client, "result", "tasks/result", json!({"taskId": task}));
    let (response, ()) = tokio::join!(waiting, book(&client, &mut stream));
    assert_eq!(response["result"]["structuredContent"]["summary"], BOOKED, "{response}");
}

#[tokio::test]
async fn input_request_without_stream_is_refused_as_missing_capability() {
    let host = Setup::with(&["desk", "conformance"]).start().await;
    let client = Client::connect(&host).await;
    let mute = Client::connect_as(&host, None, json!({})).await;
    let wish = json!({"modelcontextprotocol.io/task": {"taskId": "mine"}});
    for (method, params) in [
        ("tools/call", json!({"name": "book_trip", "arguments": {}})),
        ("tools/call", json!({"name": "book_trip", "arguments": {}, "_meta": {"dev.bulkhead/idempotencyKey": "k"}})),
        ("tools/call", json!({"name": "book_trip", "arguments": {}, "_meta": wish})),
        ("prompts/get", json!({"name": "test_input_required_result_prompt"})),
    ] {
        let refused = as_json(&client, "x", method, params.clone()).await;
        let mut expected = as_json(&mute, "x", method, params).await;
        if refused["result"]["_meta"].is_object() {
            // The names of what was found under the same key or name are the same as well.
            expected["result"]["_meta"] = refused["result"]["_meta"].clone();
        }
        assert_eq!(refused, expected);
    }
}

#[tokio::test]
async fn client_roots_reach_the_plugin() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let folders = json!({"roots": [{"uri": "file:///home/ann/one", "name": "One"}, {"uri": "file:///srv/two"}]});
    let mut call = client.send("tools/call", json!({"name": "ask_roots", "arguments": {}})).await;
    let asked = question(&mut call, "roots/list").await;
    client.respond(&asked, folders.clone()).await;
    assert_eq!(text(&finished(&mut call).await), "file:///home/ann/one\nfile:///srv/two");

    let task = client.task("ask_roots", json!({})).await;
    let mut result = client.send("tasks/result", json!({"taskId": task})).await;
    let asked = question(&mut result, "roots/list").await;
    client.respond(&asked, folders).await;
    assert_eq!(text(&finished(&mut result).await), "file:///home/ann/one\nfile:///srv/two");

    let mut call = client.send("tools/call", json!({"name": "ask_roots", "arguments": {}})).await;
    let asked = question(&mut call, "roots/list").await;
    client.refuse(&asked, -32603, "the disk is gone").await;
    assert_eq!(finished(&mut call).await["isError"], true);
}

#[tokio::test]
async fn log_notifications_respect_the_session_level() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let heard = async |level: &str| {
        let params = json!({"name": "log", "arguments": {"level": level, "message": "so it is"}});
        let (outcome, heard) = client.call_hearing("tools/call", params).await;
        assert_eq!(text(&outcome.expect("it works")), "logged");
        for message in &heard {
            assert_eq!(message["method"], "notifications/message", "{message}");
            assert_eq!((&message["params"]["level"], &message["params"]["data"]), (&json!(level), &json!("so it is")));
        }
        heard.len()
    };
    const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
    for (least, name) in LEVELS.iter().enumerate() {
        client.call("logging/setLevel", json!({"level": name})).await.expect("it is set");
        for (at, level) in LEVELS.iter().enumerate() {
            assert_eq!(heard(level).await, usize::from(at >= least), "{level} while {name} is wanted");
        }
    }
    // The level belongs to the session.
    let other = Client::connect(&host).await;
    let params = json!({"name": "log", "arguments": {"level": "error", "message": "x"}});
    assert_eq!(other.call_hearing("tools/call", params).await.1.len(), 1);
}
