//! Plain answers and tasks: who decides, and what is written.

use super::*;

#[tokio::test]
async fn plain_call_is_answered_and_stores_nothing() {
    let world = world();
    let mut answers = Transcript::default();
    for (name, client) in [("plain", world.plain()), ("with tasks", world.tasked())] {
        let echo = json!({"name": "echo", "arguments": {"text": "hi"}});
        answers.note(&format!("echo, {name}"), &client.result("tools/call", echo).await);
        answers.note(&format!("quick, {name}"), &client.call("quick").await);
    }
    answers.expect(&expect![[r#"
        echo, plain, echo, with tasks: {"resultType":"complete","content":[{"type":"text","text":"hi"}],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
        quick, plain, quick, with tasks: {"resultType":"complete","content":[{"type":"text","text":"done"}],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
    "#]]);
    assert_eq!(world.stored().await, 0);
}

#[tokio::test]
async fn structured_content_may_be_any_json() {
    let world = world();
    let mut answers = Transcript::default();
    answers.note("list", &world.plain().call("list").await);
    answers.expect(&expect![[r#"
        list: {"resultType":"complete","content":[{"type":"text","text":"[1, 2]"}],"structuredContent":[1,2],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
    "#]]);
}

#[tokio::test]
async fn call_failures_of_tool_arguments_and_guest_differ() {
    let world = world();
    let client = world.plain();
    let mut answers = Transcript::default();
    for params in [
        json!({"name": "fails"}),
        json!({"name": "echo", "arguments": {"text": 1}}),
        json!({"name": "nobody"}),
        json!({"arguments": {}}),
        json!({"name": "echo", "arguments": []}),
        json!({"name": "faulty"}),
        json!({"name": "custom"}),
        json!({"name": "broken_json"}),
        json!({"name": "lacks"}),
    ] {
        let (response, rejection) = client.open("tools/call", params.clone()).await.last().await;
        answers.note(&params.to_string(), &response);
        assert_eq!(rejection, (params["name"] == "lacks").then_some(Rejection::Unserved), "{params}");
    }
    answers.expect(&expect![[r#"
        {"name":"fails"}: {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"no such city"}],"isError":true,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}}
        {"name":"echo","arguments":{"text":1}}: {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"The arguments do not fit the input schema of echo:\n/text: 1 is not of type \"string\""}],"isError":true,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}}
        {"name":"nobody"}: {"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Unknown tool: nobody"}}
        {"arguments":{}}: {"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"params.name is missing; it must be a string"}}
        {"name":"echo","arguments":[]}: {"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"params.arguments must be an object, not an array"}}
        {"name":"faulty"}: {"jsonrpc":"2.0","id":1,"error":{"code":1001,"message":"the tool trapped"}}
        {"name":"custom"}: {"jsonrpc":"2.0","id":1,"error":{"code":77,"message":"no","data":{"why":1}}}
        {"name":"broken_json"}: {"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"Internal error","data":{"incident":"<incident>"}}}
        {"name":"lacks"}: {"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":"This request needs a client that declares sampling","data":{"requiredCapabilities":{"sampling":{}}}}}
    "#]]);
}

#[tokio::test]
async fn legacy_task_param_is_ignored_in_modern_call() {
    let world = world();
    let params = json!({"name": "quick", "arguments": {}, "task": {"ttl": 1000}});
    assert_eq!(world.tasked().result("tools/call", params).await["resultType"], "complete");
    assert_eq!(world.stored().await, 0);
}

#[tokio::test]
async fn task_only_tool_needs_the_task_capability() {
    let world = world();
    let refused = world.plain().refusal("tools/call", json!({"name": "only_task"})).await;
    assert_eq!(refused, (-32021, Some(Rejection::Unserved)));
    let legacy = world.plain().lacking("sampling");
    let mut legacy = legacy;
    legacy.capabilities["tasks"] = json!({"requests": {"tools": {"call": {}}}});
    assert_eq!(
        legacy.refusal("tools/call", json!({"name": "only_task"})).await.0,
        -32021,
        "the older word is no declaration"
    );
    assert_eq!((world.started(), world.stored().await), (0, 0));

    let mut answers = Transcript::default();
    let created = world.tasked().call("only_task").await;
    answers.note("created", &created);
    answers.note("done", &world.tasked().until(&created["taskId"], "completed").await);
    answers.expect(&expect![[r#"
        created: {"resultType":"task","taskId":"<id>","status":"working","createdAt":"2026-11-21T02:03:39.007Z","lastUpdatedAt":"2026-11-21T02:03:39.007Z","ttlMs":60000,"pollIntervalMs":"<ms>","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
        done: {"resultType":"complete","taskId":"<id>","status":"completed","createdAt":"2026-11-21T02:03:39.007Z","lastUpdatedAt":"2026-11-21T02:03:39.007Z","ttlMs":60000,"pollIntervalMs":"<ms>","result":{"resultType":"complete","content":[{"type":"text","text":"done"}]},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
    "#]]);
}

#[tokio::test]
async fn slow_call_is_promoted_to_task_and_runs_once() {
    let world = world();
    let client = world.tasked().with_meta("progressToken", json!(7));
    let mut stream = client.open("tools/call", json!({"name": "slow"})).await;
    let progress = stream.next().await;
    assert_eq!((&progress["params"]["progressToken"], &progress["params"]["progress"]), (&json!(7), &json!(1)));
    let created = stream.last().await.0["result"].take();
    assert_eq!(created["resultType"], "task");
    let task = client.until(&created["taskId"], "working").await;
    assert_eq!(task["statusMessage"], "half way", "what the guest said before is not lost");
    let done = client.until(&created["taskId"], "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "slowly done");
    assert_eq!(world.started(), 1);
}

#[tokio::test]
async fn call_of_client_without_tasks_is_not_promoted() {
    let world = world();
    let result = world.plain().call("slow").await;
    assert_eq!(result["content"][0]["text"], "slowly done");
    assert_eq!(world.stored().await, 0);
}

#[tokio::test]
async fn call_is_promoted_at_once_or_by_tool_detach() {
    let world = world();
    let client = world.tasked();
    assert_eq!(client.call("at_once").await["resultType"], "task");
    assert_eq!(world.plain().call("at_once").await["resultType"], "complete");

    let created = client.call("detaches").await;
    assert_eq!(created["resultType"], "task");
    let id = &created["taskId"];
    client.until(id, "input_required").await;
    let answer = json!({"name": {"action": "accept", "content": {"name": "Ada"}}});
    client.result("tasks/update", json!({"taskId": id, "inputResponses": answer})).await;
    let done = client.until(id, "completed").await;
    assert_eq!(done["result"]["structuredContent"], json!([id]), "the guest knows the id");

    // Without tasks the wish comes to nothing, and what is asked is asked in rounds.
    assert_eq!(world.plain().call("detaches").await["resultType"], "input_required");
}

#[tokio::test]
async fn call_that_cannot_be_promoted_continues_plainly() {
    let world = world();
    world.store.set_read_only(Some("full".into()));
    let result = world.tasked().call("slow").await;
    assert_eq!(result["content"][0]["text"], "slowly done");
    assert_eq!(world.started(), 1);
}

#[tokio::test]
async fn disconnect_cancels_call_and_leaves_no_task() {
    let world = world();
    let mut stream = world.plain().open("tools/call", json!({"name": "forever"})).await;
    assert!(stream.is_silent().await);
    drop(stream);
    world.quiet().await;

    // It leaves while the record is being written.
    let mut stream = world.tasked().open("tools/call", json!({"name": "forever"})).await;
    assert!(futures::poll!(stream.exchange.next()).is_pending());
    for _ in 0..3 {
        tokio::task::yield_now().await;
        assert!(futures::poll!(stream.exchange.next()).is_pending());
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(futures::poll!(stream.exchange.next()).is_pending(), "the record is on its way");
    drop(stream);
    world.quiet().await;
    assert_eq!((world.started(), world.stored().await), (2, 0));
}

#[tokio::test]
async fn promoted_task_outlives_its_call_stream() {
    let world = world();
    let created = world.tasked().call("slow").await;
    assert_eq!(created["resultType"], "task");
    world.tasked().until(&created["taskId"], "completed").await;
}

#[tokio::test]
async fn call_notifications_are_sent_only_when_requested() {
    let world = world();
    let mut stream = world.plain().open("tools/call", json!({"name": "count"})).await;
    stream.last().await;
    let client = world
        .plain()
        .with_meta("io.modelcontextprotocol/logLevel", json!("info"))
        .with_meta("progressToken", json!("p"));
    let mut stream = client.open("tools/call", json!({"name": "count"})).await;
    let mut said = Vec::new();
    loop {
        let message = stream.next().await;
        match message["method"].as_str() {
            Some("notifications/progress") => said.push(message["params"]["progress"].to_string()),
            Some("notifications/message") => said.push(message["params"]["level"].as_str().unwrap().to_owned()),
            _ => break,
        }
    }
    assert_eq!(said, ["1", "info", "2", "error"]);
}

#[tokio::test]
async fn call_over_quota_is_refused_with_retry_time() {
    let world = world();
    let client = world.tasked();
    for _ in 0..10 {
        assert_eq!(client.call("at_once").await["resultType"], "task");
    }
    let mut streams = Vec::new();
    for _ in 0..16 {
        let mut stream = world.plain().open("tools/call", json!({"name": "forever"})).await;
        assert!(futures::poll!(stream.exchange.next()).is_pending());
        streams.push(stream);
    }
    let refused = world.plain().refusal("tools/call", json!({"name": "quick"})).await;
    assert_eq!(refused, (1010, Some(Rejection::TooMany { retry_after_ms: Some(50) })));
}

#[tokio::test]
async fn call_that_found_no_place_is_promoted_when_there_is_one() {
    let world = world();
    let client = world.tasked();
    let mut tasks = Vec::new();
    for _ in 0..8 {
        tasks.push(client.call("forever").await["taskId"].take());
    }
    let mut stream = client.open("tools/call", json!({"name": "forever"})).await;
    assert!(stream.is_silent().await, "all places of tasks are taken");
    client.result("tasks/cancel", json!({"taskId": tasks[0]})).await;
    let created = stream.last().await.0["result"].take();
    assert_eq!((&created["resultType"], &created["status"]), (&json!("task"), &json!("working")));
    assert!(created["statusMessage"].is_null(), "it runs: {created}");
    assert_eq!(world.started(), 9, "nothing was begun again");
}

#[tokio::test]
async fn call_that_waits_for_its_permit_becomes_a_queued_task() {
    let world = world();
    let mut streams = Vec::new();
    // The last two of sixteen places are kept back for another tenant.
    for _ in 0..14 {
        let mut stream = world.plain().open("tools/call", json!({"name": "forever"})).await;
        assert!(futures::poll!(stream.exchange.next()).is_pending());
        streams.push(stream);
    }
    assert_eq!(world.started(), 14);
    let client = world.tasked();
    let created = client.call("fails").await;
    assert_eq!(
        (&created["resultType"], &created["statusMessage"]),
        (&json!("task"), &json!("queued: waits for its turn"))
    );
    assert_eq!(world.started(), 14, "it has not begun");
    streams.pop();
    let done = client.until(&created["taskId"], "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "no such city");
    assert_eq!(world.started(), 15, "it ran once");
}

#[tokio::test]
async fn unpromoted_call_takes_no_task_permit() {
    let world = world();
    world.store.set_read_only(Some("full".into()));
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut stream = world.tasked().open("tools/call", json!({"name": "forever"})).await;
        assert!(stream.is_silent().await, "it goes on plainly");
        streams.push(stream);
    }
    world.store.set_read_only(None);
    let created = world.tasked().call("at_once").await;
    assert!(created["statusMessage"].is_null(), "there is a place to run in: {created}");
}
