//! Calls under an idempotency key.

use super::*;

fn keyed<'a>(client: &Modern<'a>, key: &str) -> Modern<'a> {
    client.clone().with_meta("dev.bulkhead/idempotencyKey", json!(key))
}

#[tokio::test]
async fn modern_call_with_idempotency_key_runs_once() {
    let world = world();
    let client = keyed(&world.plain(), "k");
    let first = client.result("tools/call", json!({"name": "echo", "arguments": {"text": "hi", "n": 1}})).await;
    assert_eq!(first["resultType"], "complete");
    let again = client.result("tools/call", json!({"name": "echo", "arguments": {"n": 1.0, "text": "hi"}})).await;
    assert_eq!(again, first);
    assert_eq!(world.started(), 1);
    let (response, _) =
        client.open("tools/call", json!({"name": "echo", "arguments": {"text": "ho", "n": 1}})).await.last().await;
    assert_eq!(response["error"]["code"], -32602);
    assert_eq!(response["error"]["data"], json!({"type": "idempotency_key_conflict"}));
    assert_eq!(world.started(), 1);

    let others = [keyed(&world.plain(), "other"), keyed(&world.plain(), "k").of(BOB)];
    for other in others {
        other.result("tools/call", json!({"name": "echo", "arguments": {"text": "hi"}})).await;
    }
    client.call("quick").await;
    assert_eq!(world.started(), 4, "keys of others and of other tools are other keys");
}

#[tokio::test]
async fn idempotency_key_keeps_a_failed_result() {
    let world = world();
    let client = keyed(&world.plain(), "k");
    for _ in 0..2 {
        assert_eq!(client.refusal("tools/call", json!({"name": "custom"})).await, (77, None));
        assert_eq!(client.call("fails").await["isError"], true);
    }
    assert_eq!(world.started(), 2);
}

#[tokio::test]
async fn idempotency_key_repeat_finds_task_then_result() {
    let world = world();
    let client = keyed(&world.tasked(), "k");
    let created = client.call("slow").await;
    assert_eq!(created["resultType"], "task");
    assert_eq!(client.call("slow").await["taskId"], created["taskId"]);
    client.until(&created["taskId"], "completed").await;
    let done = client.call("slow").await;
    assert_eq!(done["content"][0]["text"], "slowly done");
    assert_eq!(world.started(), 1);
}

#[tokio::test]
async fn concurrent_calls_with_one_idempotency_key_run_once() {
    let world = world();
    let client = keyed(&world.plain(), "k");
    let (one, other) = tokio::join!(client.call("slow"), client.call("slow"));
    assert_eq!(one, other);
    assert_eq!(world.started(), 1);
}

#[tokio::test]
async fn idempotency_key_returns_result_after_disconnect() {
    let world = world();
    let client = keyed(&world.plain(), "k").with_meta("progressToken", json!(1));
    let mut stream = client.open("tools/call", json!({"name": "count"})).await;
    assert_eq!(stream.next().await["method"], "notifications/progress");
    drop(stream);
    let mut stream = client.open("tools/call", json!({"name": "count"})).await;
    let done = loop {
        let message = stream.next().await;
        if message["method"].is_null() {
            break message;
        }
    };
    assert_eq!(done["result"]["content"][0]["text"], "counted");
    assert_eq!(world.started(), 1);
}

#[tokio::test]
async fn input_requests_are_answered_under_idempotency_key() {
    let world = world();
    let client = keyed(&world.plain(), "k");
    let asked = client.call("form").await;
    assert_eq!(asked["resultType"], "input_required");
    assert!(asked["requestState"].is_null() && asked["inputRequests"]["name"].is_object());
    let answer = |name: Value| json!({"name": "form", "arguments": {}, "inputResponses": {"name": {"action": "accept", "content": {"name": name}}}});
    assert_eq!(client.refusal("tools/call", answer(json!(1))).await, (-32602, None));
    assert_eq!(client.call("form").await, asked);
    for _ in 0..2 {
        let done = client.result("tools/call", answer(json!("Ada"))).await;
        assert_eq!(done["content"][0]["text"], "Accept {\"name\":\"Ada\"}");
    }
    assert_eq!(world.started(), 1);

    let tasked = keyed(&world.tasked(), "t");
    let created = tasked.call("form").await;
    assert_eq!(created["resultType"], "task", "who can answer a task gets one");
    tasked.until(&created["taskId"], "input_required").await;
}

#[tokio::test]
async fn idempotency_key_is_free_after_task_ttl() {
    let world = world();
    let client = keyed(&world.plain(), "k");
    client.call("quick").await;
    world.clock.advance(60_000);
    client.call("quick").await;
    assert_eq!((world.started(), world.stored().await), (2, 1));
}

#[tokio::test]
async fn idempotency_key_must_be_a_short_text() {
    let world = world();
    for key in [json!(""), json!(1), json!({}), json!("x".repeat(129))] {
        let client = world.plain().with_meta("dev.bulkhead/idempotencyKey", key);
        assert_eq!(client.refusal("tools/call", json!({"name": "quick"})).await, (-32602, None));
    }
}

#[tokio::test]
async fn task_only_tool_with_idempotency_key_creates_one_task() {
    let world = world();
    let client = keyed(&world.tasked(), "k");
    for (tool, status) in [("only_task", "completed"), ("task_asks", "input_required")] {
        let created = client.call(tool).await;
        assert_eq!(created["resultType"], "task", "{created}");
        client.until(&created["taskId"], status).await;
        let again = client.call(tool).await;
        assert_eq!((&again["resultType"], &again["taskId"]), (&json!("task"), &created["taskId"]));
        let undeclared = keyed(&world.plain(), "k").refusal("tools/call", json!({"name": tool})).await;
        assert_eq!(undeclared, (-32021, Some(Rejection::Unserved)));
    }
    assert_eq!(world.started(), 2);
}

#[tokio::test]
async fn idempotency_key_repeat_needs_input_request_capability() {
    let world = world();
    let client = keyed(&world.plain(), "k");
    let asked = client.call("form").await;
    let mute = client.clone().lacking("elicitation");
    let refused = mute.refusal("tools/call", json!({"name": "form", "arguments": {}})).await;
    assert_eq!(refused, (-32021, Some(Rejection::Unserved)));
    assert_eq!(client.call("form").await, asked, "the question waits");
}

#[tokio::test]
async fn idempotency_key_repeat_gets_its_own_notifications() {
    let world = world();
    let client = keyed(&world.plain(), "k");
    assert_eq!(client.call("reports").await["resultType"], "input_required");
    let curious =
        client.with_meta("progressToken", json!("p")).with_meta("io.modelcontextprotocol/logLevel", json!("debug"));
    let answer = json!({"name": "reports", "arguments": {},
        "inputResponses": {"name": {"action": "decline"}}});
    let mut stream = curious.open("tools/call", answer).await;
    assert_eq!(stream.next().await["params"]["progressToken"], "p");
    assert_eq!(stream.next().await["params"]["data"], "heard");
    assert_eq!(stream.next().await["result"]["resultType"], "complete");
}
