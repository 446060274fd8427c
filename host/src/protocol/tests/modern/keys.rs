//! Calls under an idempotency key.

use super::*;

fn keyed<'a>(client: &Modern<'a>, key: &str) -> Modern<'a> {
    client.clone().with_meta("dev.bulkhead/idempotencyKey", json!(key))
}

#[tokio::test]
async fn a_call_with_a_key_runs_once_and_its_result_is_kept() {
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
async fn a_failure_is_kept_as_well() {
    let world = world();
    let client = keyed(&world.plain(), "k");
    for _ in 0..2 {
        assert_eq!(client.refusal("tools/call", json!({"name": "custom"})).await, (77, None));
        assert_eq!(client.call("fails").await["isError"], true);
    }
    assert_eq!(world.started(), 2);
}

#[tokio::test]
async fn a_repeat_finds_the_task_and_then_its_result() {
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
async fn two_at_once_are_one() {
    let world = world();
    let client = keyed(&world.plain(), "k");
    let (one, other) = tokio::join!(client.call("slow"), client.call("slow"));
    assert_eq!(one, other);
    assert_eq!(world.started(), 1);
}

#[tokio::test]
async fn a_client_that_left_comes_back_for_the_result() {
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
async fn questions_are_answered_under_the_key() {
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
async fn a_key_is_free_again_after_the_time_of_its_task() {
    let world = world();
    let client = keyed(&world.plain(), "k");
    client.call("quick").await;
    world.clock.advance(60_000);
    client.call("quick").await;
    assert_eq!((world.started(), world.stored().await), (2, 1));
}

#[tokio::test]
async fn a_key_is_a_short_text() {
    let world = world();
    for key in [json!(""), json!(1), json!({}), json!("x".repeat(129))] {
        let client = world.plain().with_meta("dev.bulkhead/idempotencyKey", key);
        assert_eq!(client.refusal("tools/call", json!({"name": "quick"})).await, (-32602, None));
    }
}

#[tokio::test]
async fn a_tool_that_must_be_a_task_is_one_under_a_key_too() {
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
async fn a_repeat_is_asked_only_what_it_declares() {
    let world = world();
    let client = keyed(&world.plain(), "k");
    let asked = client.call("form").await;
    let mute = client.clone().lacking("elicitation");
    let refused = mute.refusal("tools/call", json!({"name": "form", "arguments": {}})).await;
    assert_eq!(refused, (-32021, Some(Rejection::Unserved)));
    assert_eq!(client.call("form").await, asked, "the question waits");
}

#[tokio::test]
async fn a_repeat_hears_what_it_asks_for_itself() {
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
