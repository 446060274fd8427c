//! Plain calls under an idempotency key, in sessions.

use std::sync::atomic::Ordering;

use super::*;

fn keyed(tool: &str, arguments: Value) -> Value {
    json!({"name": tool, "arguments": arguments, "_meta": {"dev.bulkhead/idempotencyKey": "k", "progressToken": "p"}})
}

fn started(world: &World) -> u64 {
    world.guests.started.load(Ordering::SeqCst)
}

#[tokio::test]
async fn legacy_call_with_idempotency_key_runs_once() {
    let world = world();
    let anna = world.anna().await;
    let older = world.client(ANNA, "2025-06-18", json!({})).await;
    let first = anna.result("tools/call", keyed("echo", json!({"text": "hi", "n": 1}))).await;
    assert_eq!(first, json!({"content": [{"type": "text", "text": "hi"}]}), "as without a key");
    for client in [&anna, &older] {
        assert_eq!(client.result("tools/call", keyed("echo", json!({"n": 1.0, "text": "hi"}))).await, first);
        let conflict = client.error("tools/call", keyed("echo", json!({"text": "ho"}))).await;
        assert_eq!(conflict["data"], json!({"type": "idempotency_key_conflict"}));
    }
    assert_eq!(started(&world), 1);
    let bob = world.client(BOB, "2025-11-25", json!({})).await;
    bob.result("tools/call", keyed("echo", json!({"text": "ho"}))).await;
    assert_eq!(started(&world), 2, "keys of others are other keys");
    for _ in 0..2 {
        assert_eq!(anna.error("tools/call", keyed("custom", json!({}))).await["code"], 77);
        assert_eq!(anna.result("tools/call", keyed("fails", json!({}))).await["isError"], true);
    }
    assert_eq!(started(&world), 4);
}

#[tokio::test]
async fn idempotency_key_is_shared_by_call_task_and_era() {
    let world = world();
    let anna = world.anna().await;
    let plain = anna.result("tools/call", keyed("quick", json!({}))).await;
    let mut as_task = keyed("quick", json!({}));
    as_task["task"] = json!({});
    let task = anna.result("tools/call", as_task).await["task"].take();
    assert_eq!(task["status"], "completed");
    let modern = world.plain().with_meta("dev.bulkhead/idempotencyKey", json!("k"));
    let result = modern.result("tools/call", json!({"name": "quick", "arguments": {}})).await;
    assert_eq!(result["content"], plain["content"]);
    assert_eq!(started(&world), 1);
}

#[tokio::test]
async fn idempotent_call_sends_notifications_and_input_requests() {
    let world = world();
    let anna = world.anna().await;
    let mut standalone = anna.standalone();
    let mut talk = anna.open(7, "tools/call", keyed("count", json!({}))).await;
    let progress = talk.next().await;
    assert_eq!((&progress["params"]["progressToken"], &progress["params"]["_meta"]), (&json!("p"), &Value::Null));
    while !talk.next().await["method"].is_null() {}

    let mut talk = anna.open(8, "tools/call", keyed("form", json!({}))).await;
    let question = talk.next().await;
    assert_eq!((&question["method"], &question["params"]["_meta"]), (&json!("elicitation/create"), &Value::Null));
    // Its client goes away, and asks again.
    drop(talk);
    let mut talk = anna.open(9, "tools/call", keyed("form", json!({}))).await;
    let question = talk.next().await;
    anna.answer(&question, json!({"action": "accept", "content": {"name": "Ada"}})).await;
    assert_eq!(talk.next().await["result"]["content"][0]["text"], "Accept {\"name\":\"Ada\"}");
    assert!(standalone.is_silent().await);
    assert_eq!(started(&world), 2);
    let mute = world.client(ANNA, "2025-11-25", json!({})).await;
    let kept = mute.result("tools/call", keyed("form", json!({}))).await;
    assert_eq!(kept["content"][0]["text"], "Accept {\"name\":\"Ada\"}");
}

#[tokio::test]
async fn idempotent_repeat_without_capability_leaves_input_request_open() {
    let world = world();
    let anna = world.anna().await;
    let mute = world.client(ANNA, "2025-11-25", json!({})).await;
    let mut talk = anna.open(8, "tools/call", keyed("form", json!({}))).await;
    let question = talk.next().await;
    let refused = mute.error("tools/call", keyed("form", json!({}))).await;
    assert_eq!(
        (&refused["code"], &refused["data"]["requiredCapabilities"]),
        (&json!(-32600), &json!({"elicitation": {"form": {}}}))
    );
    anna.answer(&question, json!({"action": "decline"})).await;
    assert_eq!(talk.next().await["result"]["content"][0]["text"], "Decline nothing");
}

#[tokio::test]
async fn cancelling_the_request_cancels_the_idempotent_call() {
    let world = world();
    let anna = world.anna().await;
    let mut talk = anna.open(8, "tools/call", keyed("forever", json!({}))).await;
    assert!(talk.is_silent().await);
    anna.tell(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 8}})).await;
    assert!(talk.exchange.next().await.is_none(), "nothing is answered");
    let refused = anna.error("tools/call", keyed("forever", json!({}))).await;
    assert!(refused["message"].as_str().unwrap().contains("cancelled"), "{refused}");
    assert_eq!(started(&world), 1);
}
