use super::*;

const RELATED: &str = "io.modelcontextprotocol/related-task";

#[tokio::test]
async fn task_is_created_polled_and_result_fetched() {
    let world = world();
    let anna = world.anna().await;
    let mut answers = Transcript::default();
    let created = anna.result("tools/call", json!({"name": "only_task", "task": {"ttl": 999_999_999}})).await;
    answers.note("created", &created);
    let id = &created["task"]["taskId"];
    let params = json!({"taskId": id, "_meta": {RELATED: {"taskId": "other"}}});
    answers.note("result", &anna.result("tasks/result", params).await);
    answers.note("get", &anna.result("tasks/get", json!({"taskId": id})).await);
    answers.note("list", &anna.result("tasks/list", json!({})).await);
    answers.expect(&expect![[r#"
        created: {"task":{"taskId":"<id>","status":"working","createdAt":"2026-11-21T02:03:39.007Z","lastUpdatedAt":"2026-11-21T02:03:39.007Z","ttl":120000,"pollInterval":"<ms>"},"_meta":{"io.modelcontextprotocol/model-immediate-response":"only_task was started as a task; its result will be there later."}}
        result: {"content":[{"type":"text","text":"done"}],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"<id>"}}}
        get: {"taskId":"<id>","status":"completed","createdAt":"2026-11-21T02:03:39.007Z","lastUpdatedAt":"2026-11-21T02:03:39.007Z","ttl":120000,"pollInterval":"<ms>"}
        list: {"tasks":[{"taskId":"<id>","status":"completed","createdAt":"2026-11-21T02:03:39.007Z","lastUpdatedAt":"2026-11-21T02:03:39.007Z","ttl":120000,"pollInterval":"<ms>"}]}
    "#]]);
}

#[tokio::test]
async fn every_waiter_gets_the_task_result() {
    let world = world();
    let anna = world.anna().await;
    let id = anna.start("count").await;
    let mut talks = Vec::new();
    for number in 0..5 {
        talks.push(anna.open(100 + number, "tasks/result", json!({"taskId": id})).await);
    }
    for talk in &mut talks {
        loop {
            let message = talk.next().await;
            if message["method"].is_null() {
                assert_eq!(message["result"]["content"][0]["text"], "counted");
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_tool_error_is_a_failed_task_with_a_result() {
    let world = world();
    let anna = world.anna().await;
    let id = anna.start("fails").await;
    let result = anna.result("tasks/result", json!({"taskId": id})).await;
    assert_eq!((&result["isError"], &result["content"][0]["text"]), (&json!(true), &json!("no such city")));
    let task = anna.until(&id, "failed").await;
    assert!(task["statusMessage"].is_string());
}

#[tokio::test]
async fn task_error_equals_plain_call_error() {
    let world = world();
    let anna = world.anna().await;
    for tool in ["faulty", "custom"] {
        let id = anna.start(tool).await;
        let plain = anna.error("tools/call", json!({"name": tool})).await;
        assert_eq!(anna.error("tasks/result", json!({"taskId": id})).await, plain);
        let task = anna.until(&id, "failed").await;
        assert_eq!(task["statusMessage"], plain["message"]);
    }
}

#[tokio::test]
async fn invalid_arguments_fail_the_task_without_running() {
    let world = world();
    let anna = world.anna().await;
    for arguments in [json!({"region": 7}), json!({"region": 7, "more": "x".repeat(100_000)})] {
        let params = json!({"name": "headers", "arguments": arguments, "task": {}});
        let created = anna.result("tools/call", params).await["task"].clone();
        assert_eq!(created["status"], "failed");
        let about = json!({"taskId": created["taskId"]});
        let result = anna.result("tasks/result", about.clone()).await;
        assert_eq!(result["isError"], true);
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("/region"), "{text}");
        assert_eq!(result["_meta"]["io.modelcontextprotocol/related-task"], about);
        let task = anna.result("tasks/get", about).await;
        assert!(task["statusMessage"].as_str().is_some_and(|said| text.starts_with(said)), "{task}");
    }
}

#[tokio::test]
async fn unusable_json_arguments_create_no_task() {
    let world = world();
    let anna = world.anna().await;
    let large = json!({"name": "count", "arguments": {"a": "x".repeat(100_000)}, "task": {}});
    assert!(anna.result("tools/call", large).await["task"].is_object());
    let twice = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"count","task":{},"arguments":{"a":1,"a":2}}}"#;
    let Received::Exchange(mut exchange) = world.receive(anna.peer(), twice).await else { panic!("rejected") };
    assert!(exchange.next().await.unwrap().message.text().contains("-32602"));
    assert_eq!(anna.result("tasks/list", json!({})).await["tasks"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn task_cancel_ends_a_task_once() {
    let world = world();
    let anna = world.anna().await;
    let id = anna.start("forever").await;
    let mut waiting = anna.open(50, "tasks/result", json!({"taskId": id})).await;
    assert!(waiting.is_silent().await);
    let task = anna.result("tasks/cancel", json!({"taskId": id})).await;
    assert_eq!((&task["status"], &task["taskId"]), (&json!("cancelled"), &json!(id)));
    let error = waiting.next().await["error"].take();
    let expected = json!({"code": -32603, "message": "The task was cancelled", "data": {RELATED: {"taskId": id}}});
    assert_eq!(error, expected);
    let again = anna.error("tasks/cancel", json!({"taskId": id})).await;
    let expected = json!({"code": -32602, "message": "Cannot cancel task: already in terminal status 'cancelled'"});
    assert_eq!(again, expected);
}

#[tokio::test]
async fn absent_foreign_and_expired_task_ids_answer_the_same() {
    let world = world();
    let anna = world.anna().await;
    let bob = world.client(BOB, "2025-11-25", json!({})).await;
    let expired = anna.start("fails").await;
    anna.until(&expired, "failed").await;
    world.clock.advance(60_000);
    let foreign = bob.start("fails").await;
    bob.until(&foreign, "failed").await;
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        for id in [foreign.as_str(), expired.as_str(), &"0".repeat(32), "x", "", &foreign.to_uppercase()] {
            let mut talk = anna.open(1, method, json!({"taskId": id})).await;
            let frame = talk.exchange.next().await.unwrap();
            let expected = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Task not found"}}"#;
            assert_eq!(frame.message.text(), expected, "{method} {id}");
        }
        assert_eq!(anna.error(method, json!({"taskId": 7})).await["code"], -32602);
    }
    assert_eq!(anna.result("tasks/list", json!({})).await, json!({"tasks": []}));
}

#[tokio::test]
async fn task_list_is_paged_newest_first() {
    let world = world();
    let anna = world.anna().await;
    let mut ids = Vec::new();
    for _ in 0..70 {
        let id = anna.start("fails").await;
        anna.until(&id, "failed").await;
        ids.push(id);
        world.clock.advance(1);
    }
    let first = anna.result("tasks/list", json!({})).await;
    let second = anna.result("tasks/list", json!({"cursor": first["nextCursor"]})).await;
    assert!(second["nextCursor"].is_null());
    let listed: Vec<_> = [&first, &second]
        .iter()
        .flat_map(|page| page["tasks"].as_array().unwrap())
        .map(|task| task["taskId"].as_str().unwrap().to_owned())
        .collect();
    ids.reverse();
    assert_eq!(listed, ids);
}

#[tokio::test]
async fn task_notifications_on_result_stream_name_the_task() {
    let world = world();
    let anna = world.anna().await;
    let mut standalone = anna.standalone();
    assert!(standalone.is_silent().await);
    let id = anna.start("count").await;
    let mut talk = anna.open(50, "tasks/result", json!({"taskId": id})).await;
    let mut seen = Vec::new();
    loop {
        let message = talk.next().await;
        let Some(method) = message["method"].as_str() else { break };
        assert_eq!(message["params"]["_meta"][RELATED]["taskId"], json!(id));
        if method == "notifications/progress" {
            assert_eq!(message["params"]["progressToken"], "p");
            seen.push(message["params"]["progress"].to_string());
        } else {
            seen.push(message["params"]["level"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(seen, ["1", "info", "2", "error"]);
    // The same is not said twice: what the standalone stream has is the status alone.
    let status = standalone.next_of("notifications/tasks/status").await;
    assert_eq!(status["params"]["taskId"], json!(id));
    assert!(status["params"]["_meta"].is_null());
    assert!(standalone.is_silent().await);
}

#[tokio::test]
async fn task_notifications_come_on_creators_standalone_stream() {
    let world = world();
    let anna = world.anna().await;
    let other = world.anna().await;
    let mut hers = anna.standalone();
    let mut others = other.standalone();
    assert!(hers.is_silent().await && others.is_silent().await);
    let id = anna.start("count").await;
    let progress = hers.next_of("notifications/progress").await;
    assert_eq!(progress["params"]["_meta"][RELATED]["taskId"], json!(id));
    let status = hers.next_of("notifications/tasks/status").await;
    assert_eq!(status["params"]["status"], "completed");
    assert!(others.is_silent().await);
}

#[tokio::test]
async fn cancelling_tasks_result_keeps_the_task_running() {
    let world = world();
    let anna = world.anna().await;
    let id = anna.start("forever").await;
    let mut talk = anna.open(50, "tasks/result", json!({"taskId": id})).await;
    assert!(talk.is_silent().await);
    anna.tell(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 50}})).await;
    assert!(talk.exchange.next().await.is_none());
    assert_eq!(anna.result("tasks/get", json!({"taskId": id})).await["status"], "working");
}

#[tokio::test]
async fn task_over_full_queue_is_refused_with_limit() {
    let world = world();
    let anna = world.anna().await;
    for _ in 0..10 {
        anna.start("forever").await;
    }
    let tasks = anna.result("tasks/list", json!({})).await;
    let newest = &tasks["tasks"][0];
    assert_eq!(newest["status"], "working");
    let queued = tasks["tasks"].as_array().unwrap().iter().filter(|task| task["statusMessage"].is_string()).count();
    assert_eq!(queued, 2);
    let error = anna.error("tools/call", json!({"name": "forever", "task": {}})).await;
    assert_eq!(error["code"], 1010);
    assert_eq!(error["data"]["value"], 2);
    assert!(error["data"]["limit"].is_string());
}

#[tokio::test]
async fn task_interaction_clients_can_steer_and_pause() {
    let world = world();
    let capabilities = json!({"experimental": {"dev.bulkhead/task-interaction": {"steer": true, "pause": true}}});
    let client = world.client(ANNA, "2025-11-25", capabilities).await;
    let id = client.start("steered").await;
    let about = json!({"taskId": id, "message": "left"});
    assert_eq!(client.error("tasks/resume", about.clone()).await["code"], -32602);
    let paused = client.result("tasks/pause", about.clone()).await;
    assert_eq!((&paused["status"], &paused["statusMessage"]), (&json!("working"), &json!("paused")));
    assert_eq!(client.error("tasks/pause", about.clone()).await["code"], -32602);
    assert_eq!(client.result("tasks/steer", about.clone()).await, json!({}));
    assert_eq!(client.result("tasks/resume", about.clone()).await["status"], "working");
    client.until(&id, "completed").await;
    assert_eq!(client.error("tasks/steer", about).await["code"], -32602);
}

#[tokio::test]
async fn task_interaction_is_unknown_without_its_capability() {
    let world = world();
    let anna = world.anna().await;
    let id = anna.start("forever").await;
    let other = json!({"experimental": {"dev.bulkhead/task-interaction": "yes"}});
    let experiment = json!({"experimental": {"dev.bulkhead/task-interaction": {"steer": true, "pause": true}}});
    let clients = [
        anna.clone(),
        world.client(ANNA, "2025-11-25", other).await,
        world.client(ANNA, "2025-06-18", experiment).await,
    ];
    for client in clients {
        for method in ["tasks/steer", "tasks/pause", "tasks/resume"] {
            let error = client.error(method, json!({"taskId": id, "message": "m"})).await;
            assert_eq!(error["code"], -32601);
        }
    }
}

#[tokio::test]
async fn legacy_task_with_idempotency_key_is_created_once() {
    let world = world();
    let anna = world.anna().await;
    let call = |arguments: Value| json!({"name": "forever", "arguments": arguments, "task": {}, "_meta": {"dev.bulkhead/idempotencyKey": "k"}});
    let first = anna.result("tools/call", call(json!({"a": 1}))).await["task"]["taskId"].clone();
    let again = anna.result("tools/call", call(json!({"a": 1.0}))).await["task"]["taskId"].clone();
    assert_eq!(first, again);
    let conflict = anna.error("tools/call", call(json!({"a": 2}))).await;
    assert_eq!(conflict["code"], -32602);
    assert_eq!(conflict["data"], json!({"type": "idempotency_key_conflict"}));
    let bob = world.client(BOB, "2025-11-25", json!({})).await;
    let other = bob.result("tools/call", call(json!({"a": 1}))).await["task"]["taskId"].clone();
    assert_ne!(other, first);
}
