//! Revision 2025-03-26: its batches, and what it does not have yet.

use super::*;

const FIRST: &str = "2025-03-26";

/// Sends a batch: the single responses, and what was left to be said, in the order of the requests.
async fn batch(client: &Client<'_>, messages: &Value) -> Vec<Value> {
    let batch = Batch::parse(&Bytes::from(messages.to_string())).unwrap();
    assert_eq!(batch.count(), messages.as_array().unwrap().len());
    let received = batch.receive(&client.world.protocol, &client.peer());
    for work in received.settling {
        work.await;
    }
    let mut said: Vec<Value> = received.responses.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    for (id, mut exchange) in received.exchanges {
        let frame = exchange.next().await.unwrap();
        let value: Value = serde_json::from_str(&frame.message.text()).unwrap();
        assert!(frame.last, "{value}");
        assert_eq!(id, Some(value["id"].to_string()));
        said.push(value);
    }
    said
}

fn refusal(text: &str) -> (Value, String) {
    let body = Batch::parse(&Bytes::copy_from_slice(text.as_bytes())).err().expect(text);
    let body: Value = serde_json::from_str(&body).unwrap();
    assert!(body.get("id").is_none(), "{body}");
    (body["error"]["code"].clone(), body["error"]["message"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn batch_requests_are_answered_and_the_rest_is_taken() {
    let world = world();
    let client = world.client(ANNA, FIRST, json!({})).await;
    assert!(client.session.takes_batches());
    let call = json!({"jsonrpc": "2.0", "id": "b", "method": "tools/call",
        "params": {"name": "echo", "arguments": {"text": "x"}}});
    let messages = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "nothing"}},
        call,
        {"jsonrpc": "2.0", "id": "nobody-asked", "result": {}},
        {"jsonrpc": "2.0", "id": 2, "method": "no/such"},
    ]);
    let said = batch(&client, &messages).await;
    assert_eq!(said[0], json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    assert_eq!((&said[1]["id"], &said[1]["result"]["content"][0]["text"]), (&json!("b"), &json!("x")));
    assert_eq!((&said[2]["id"], &said[2]["error"]["code"]), (&json!(2), &json!(-32601)));
    assert_eq!(said.len(), 3);
}

#[tokio::test]
async fn messages_that_a_batch_may_not_hold_are_refused_alone() {
    let world = world();
    let client = world.client(ANNA, FIRST, json!({})).await;
    let modern = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
    let hello = json!({"protocolVersion": FIRST, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let messages = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": modern},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": modern},
        [{"jsonrpc": "2.0", "id": 3, "method": "ping"}],
        7,
        {"jsonrpc": "2.0", "id": 4, "method": "ping"},
    ]);
    let said = batch(&client, &messages).await;
    let codes: Vec<_> = said.iter().map(|said| (&said["id"], &said["error"]["code"])).collect();
    let none = Value::Null;
    let bad = json!(-32600);
    assert_eq!(codes, [(&json!(1), &bad), (&json!(2), &bad), (&none, &bad), (&none, &bad), (&json!(4), &none)]);
    assert!(said[0]["error"]["message"].as_str().unwrap().contains("must not be in a batch"));
}

#[test]
fn batch_is_bounded_and_not_empty() {
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let of = |count: usize| format!(" [{}]\n", vec![ping; count].join(", "));
    assert!(Batch::begins(of(1).as_bytes()) && !Batch::begins(ping.as_bytes()) && !Batch::begins(b""));
    let full = Batch::parse(&Bytes::from(of(BATCH_MESSAGES_MAX))).unwrap();
    assert_eq!((full.count(), full.ids().count()), (50, 50));
    for (text, code, why) in [
        (of(0).as_str(), -32600, "at least one"),
        (of(BATCH_MESSAGES_MAX + 1).as_str(), -32600, "at most 50"),
        ("[", -32700, "not JSON"),
        ("[1,]", -32700, "not JSON"),
        ("[1] [2]", -32700, "not JSON"),
        ("{}", -32600, "an array"),
    ] {
        let (got, message) = refusal(text);
        assert!(got == code && message.contains(why), "{text}: {got} {message}");
    }
    let not_utf8 = Batch::parse(&Bytes::from_static(b"[\"\xff\"]")).err().unwrap();
    assert!(not_utf8.contains("-32700"), "{not_utf8}");
}

#[tokio::test]
async fn only_the_revision_with_batches_takes_them() {
    let world = world();
    for version in ["2025-11-25", "2025-06-18"] {
        assert!(!world.client(ANNA, version, json!({})).await.session.takes_batches(), "{version}");
    }
    let peer = Peer::unheralded(ANNA, None);
    let received = world.receive(peer, r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#).await;
    assert!(matches!(received, Received::Rejected { rejection: Rejection::Malformed, .. }));
}

#[tokio::test]
async fn first_revision_has_no_structured_output_and_no_tasks() {
    let world = world();
    let asked = json!({"elicitation": {}, "sampling": {}, "tasks": {"list": {}}});
    let client = world.client(ANNA, FIRST, asked).await;
    let list = client.result("tools/list", json!({})).await;
    let known = ["annotations", "description", "inputSchema", "name"];
    for tool in list["tools"].as_array().unwrap() {
        assert!(tool.as_object().unwrap().keys().all(|member| known.contains(&member.as_str())), "{tool}");
    }
    let structured = client.result("tools/call", json!({"name": "structured"})).await;
    assert_eq!(structured, json!({"content": [{"type": "text", "text": "{\"a\": 1}"}]}));
    let params = json!({"name": "echo", "arguments": {"text": "x"}, "task": {"ttl": 1}});
    assert_eq!(client.result("tools/call", params).await["content"][0]["text"], "x");
    assert_eq!(client.error("tasks/cancel", json!({"taskId": "a"})).await["code"], -32601);
}
