//! Tasks as the extension shows them, and as each era shows those of the other.

use super::*;

fn interacting(world: &World) -> Modern<'_> {
    world.tasked().with_extension("dev.bulkhead/task-interaction", json!({"steer": true, "pause": true}))
}

/// A task that runs.
async fn started(client: &Modern<'_>, tool: &str) -> Value {
    let created = client.call(tool).await;
    assert_eq!(created["resultType"], "task", "{created}");
    created["taskId"].clone()
}

#[tokio::test]
async fn task_outcome_is_inlined_in_tasks_get() {
    let world = world();
    let client = world.anna().await;
    let mut answers = Transcript::default();
    // What a tool gives is a result, also when the tool failed.
    for (tool, status) in [("fails", "completed"), ("faulty", "failed"), ("lacks", "failed"), ("list", "completed")] {
        let id = json!(client.start(tool).await);
        answers.note(tool, &world.tasked().until(&id, status).await);
    }
    answers.expect(&expect![[r#"
        fails: {"resultType":"complete","taskId":"<id>","status":"completed","statusMessage":"no such city","createdAt":"2026-11-21T02:03:39.007Z","lastUpdatedAt":"2026-11-21T02:03:39.007Z","ttlMs":60000,"pollIntervalMs":"<ms>","result":{"resultType":"complete","content":[{"type":"text","text":"no such city"}],"isError":true},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
        faulty: {"resultType":"complete","taskId":"<id>","status":"failed","statusMessage":"the tool trapped","createdAt":"2026-11-21T02:03:39.007Z","lastUpdatedAt":"2026-11-21T02:03:39.007Z","ttlMs":60000,"pollIntervalMs":"<ms>","error":{"code":1001,"message":"the tool trapped"},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
        lacks: {"resultType":"complete","taskId":"<id>","status":"failed","statusMessage":"This request needs a client that declares sampling","createdAt":"2026-11-21T02:03:39.007Z","lastUpdatedAt":"2026-11-21T02:03:39.007Z","ttlMs":60000,"pollIntervalMs":"<ms>","error":{"code":-32021,"message":"This request needs a client that declares sampling","data":{"requiredCapabilities":{"sampling":{}}}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
        list: {"resultType":"complete","taskId":"<id>","status":"completed","createdAt":"2026-11-21T02:03:39.007Z","lastUpdatedAt":"2026-11-21T02:03:39.007Z","ttlMs":60000,"pollIntervalMs":"<ms>","result":{"resultType":"complete","content":[{"type":"text","text":"[1, 2]"}],"structuredContent":[1,2]},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
    "#]]);
}

#[tokio::test]
async fn tasks_are_readable_across_eras() {
    let world = world();
    let legacy = world.anna().await;
    let modern = world.tasked();
    let made_there = json!(legacy.start("fails").await);
    assert_eq!(modern.until(&made_there, "completed").await["ttlMs"], 60_000);
    assert_eq!(legacy.until(made_there.as_str().unwrap(), "failed").await["ttl"], 60_000);
    let made_here = started(&modern, "at_once").await;
    legacy.until(made_here.as_str().unwrap(), "completed").await;
    let listed = legacy.result("tasks/list", json!({})).await;
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 2);
    let forever = started(&modern, "forever").await;
    assert_eq!(legacy.result("tasks/cancel", json!({"taskId": forever})).await["status"], "cancelled");
    assert_eq!(modern.until(&forever, "cancelled").await["status"], "cancelled");
}

#[tokio::test]
async fn foreign_and_absent_tasks_answer_the_same() {
    let world = world();
    let anna = interacting(&world);
    let bob = anna.clone().of(BOB);
    let id = started(&anna, "forever").await;
    for method in ["tasks/get", "tasks/update", "tasks/cancel", "tasks/steer", "tasks/pause", "tasks/resume"] {
        let params = |id: &Value| json!({"taskId": id, "inputResponses": {}, "message": "m"});
        let foreign = bob.ask(method, params(&id)).await;
        assert_eq!(foreign["error"], json!({"code": -32602, "message": "Task not found"}), "{method}");
        assert_eq!(bob.ask(method, params(&json!("0".repeat(32)))).await, foreign);
        assert_eq!(bob.ask(method, params(&json!("nonsense"))).await, foreign);
        assert_eq!(anna.refusal(method, json!({})).await, (-32602, None));
    }
    assert_eq!(anna.until(&id, "working").await["status"], "working");
}

#[tokio::test]
async fn task_cancel_is_acknowledged_in_any_status() {
    let world = world();
    let client = world.tasked();
    let id = started(&client, "forever").await;
    for _ in 0..2 {
        let result = client.result("tasks/cancel", json!({"taskId": id})).await;
        assert_eq!((result["resultType"].as_str(), &result["taskId"]), (Some("complete"), &Value::Null));
    }
    client.until(&id, "cancelled").await;
    world.quiet().await;
    let done = started(&client, "at_once").await;
    client.until(&done, "completed").await;
    client.result("tasks/cancel", json!({"taskId": done})).await;
    client.until(&done, "completed").await;
}

#[tokio::test]
async fn task_input_answers_may_be_partial_and_repeated() {
    let world = world();
    let client = world.tasked();
    let id = started(&client, "detaches").await;
    let asking = client.until(&id, "input_required").await;
    assert_eq!(asking["inputRequests"]["name"]["params"]["message"], "name?");
    let update = |responses: Value| client.ask("tasks/update", json!({"taskId": id, "inputResponses": responses}));
    assert!(update(json!({"other": {"action": "accept"}})).await["result"].is_object(), "unknown keys are ignored");
    let wrong = update(json!({"name": {"action": "accept", "content": {"name": 1}}})).await;
    assert_eq!(wrong["error"]["code"], -32602);
    assert!(wrong["error"]["message"].as_str().unwrap().contains("inputResponses.name"));
    assert_eq!(update(json!(null)).await["error"]["code"], -32602);
    client.until(&id, "input_required").await;
    let answer = json!({"name": {"action": "accept", "content": {"name": "Ada"}}});
    update(answer.clone()).await;
    let done = client.until(&id, "completed").await;
    assert!(done["result"]["content"][0]["text"].as_str().unwrap().contains("Ada"));
    assert!(update(answer).await["result"].is_object(), "a repeat is harmless");

    let legacy = json!(world.anna().await.start("all").await);
    client.until(&legacy, "input_required").await;
    let roots = json!({"roots": {"roots": []}});
    client.result("tasks/update", json!({"taskId": legacy, "inputResponses": roots})).await;
    let left = client.until(&legacy, "input_required").await;
    assert_eq!(left["inputRequests"].as_object().unwrap().keys().collect::<Vec<_>>(), ["name", "sample"]);
}

#[tokio::test]
async fn queued_task_is_shown_as_working() {
    let world = world();
    let client = world.tasked();
    let mut ids = Vec::new();
    let legacy = world.anna().await;
    for _ in 0..9 {
        ids.push(json!(legacy.start("forever").await));
    }
    let queued = client.result("tasks/get", json!({"taskId": ids[8]})).await;
    assert_eq!(queued["status"], "working");
    assert!(queued["statusMessage"].as_str().unwrap().starts_with("queued"));
}

#[tokio::test]
async fn task_expires_after_its_ttl() {
    let world = world();
    let client = world.tasked();
    let id = started(&client, "at_once").await;
    client.until(&id, "completed").await;
    world.clock.advance(59_999);
    client.until(&id, "completed").await;
    world.clock.advance(1);
    assert_eq!(client.refusal("tasks/get", json!({"taskId": id})).await, (-32602, None));
}

#[tokio::test]
async fn steering_reaches_the_guest_in_order() {
    let world = world();
    let client = interacting(&world);
    let id = started(&client, "steered").await;
    let steer = |message: &str| client.ask("tasks/steer", json!({"taskId": id, "message": message}));
    client.result("tasks/pause", json!({"taskId": id})).await;
    assert!(steer("go").await["result"].is_object());
    assert!(steer("left").await["result"].is_object());
    let full = steer("now").await;
    assert_eq!(full["error"]["code"], -32602);
    assert!(full["error"]["message"].as_str().unwrap().contains('2'));
    assert_eq!(steer(&"x".repeat(101)).await["error"]["code"], -32602);
    client.result("tasks/resume", json!({"taskId": id})).await;
    let done = client.until(&id, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "go left");
    assert_eq!(steer("more").await["error"]["code"], -32602);
}

#[tokio::test]
async fn paused_status_is_shown_to_capable_clients_only() {
    let world = world();
    let client = interacting(&world);
    let plain = world.tasked();
    let id = started(&client, "detaches").await;
    let before = client.until(&id, "input_required").await;
    let params = json!({"taskId": id});
    assert_eq!(client.refusal("tasks/resume", params.clone()).await, (-32602, None));
    let paused = client.result("tasks/pause", params.clone()).await;
    assert_eq!((&paused["status"], &paused["inputRequests"]), (&json!("paused"), &Value::Null));
    assert_eq!(client.refusal("tasks/pause", params.clone()).await, (-32602, None));
    let answer = json!({"taskId": id, "inputResponses": {"name": {"action": "decline"}}});
    assert_eq!(client.refusal("tasks/update", answer.clone()).await, (-32602, None));

    let seen = plain.result("tasks/get", params.clone()).await;
    assert_eq!((&seen["status"], &seen["statusMessage"]), (&json!("input_required"), &json!("paused by request")));
    assert_eq!(seen["inputRequests"], before["inputRequests"]);

    let resumed = client.result("tasks/resume", params.clone()).await;
    assert_eq!(resumed["status"], "input_required");
    assert_eq!(resumed["inputRequests"], before["inputRequests"], "under the same keys");
    client.result("tasks/pause", params.clone()).await;
    client.result("tasks/cancel", params.clone()).await;
    client.until(&id, "cancelled").await;
    for method in ["tasks/pause", "tasks/resume"] {
        assert_eq!(client.refusal(method, params.clone()).await, (-32602, None));
    }
}

#[tokio::test]
async fn only_status_notifications_are_sent_for_a_task() {
    let world = world();
    let anna = world.anna().await;
    let mut session = anna.standalone();
    assert!(session.is_silent().await);
    let client = world
        .tasked()
        .with_meta("progressToken", json!("p"))
        .with_meta("io.modelcontextprotocol/logLevel", json!("debug"));
    let id = started(&client, "count").await;
    let mut stream = client.open("subscriptions/listen", json!({"notifications": {"taskIds": [id]}})).await;
    assert_eq!(stream.next().await["method"], "notifications/subscriptions/acknowledged");
    loop {
        let told = stream.next().await;
        assert_eq!(told["method"], "notifications/tasks", "neither progress nor logs: {told}");
        if told["params"]["status"] == "completed" {
            break;
        }
    }
    assert!(stream.is_silent().await && session.is_silent().await, "nor anywhere else");
}

#[tokio::test]
async fn promoted_call_is_not_cancelled_by_its_request() {
    let world = world();
    let client = world.tasked();
    let connection = Arc::<Connection>::default();
    let peer = || Peer { connection: Some(connection.clone()), ..Peer::unheralded(ANNA, None) };
    let message = client.message(&json!("a"), "tools/call", &json!({"name": "forever"})).to_string();
    let Received::Exchange(mut exchange) = world.receive(peer(), &message).await else { panic!("no exchange") };
    let created: Value = serde_json::from_str(&exchange.next().await.unwrap().message.text()).unwrap();
    let id = created["result"]["taskId"].clone();
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "a"}});
    assert!(matches!(world.receive(peer(), &cancel.to_string()).await, Received::Accepted));
    drop(exchange);
    assert!(matches!(world.receive(peer(), &cancel.to_string()).await, Received::Accepted));
    connection.close();
    tokio::time::sleep(Duration::from_millis(60)).await;
    client.until(&id, "working").await;
    client.result("tasks/cancel", json!({"taskId": id})).await;
    client.until(&id, "cancelled").await;
}

#[tokio::test]
async fn only_tool_calls_become_tasks() {
    let world = world_offering();
    let client = world.tasked();
    for (method, params) in [
        ("prompts/get", json!({"name": "x_plain", "arguments": {"needed": "n"}})),
        ("resources/read", json!({"uri": "a://0"})),
        ("tools/list", json!({})),
    ] {
        assert_eq!(client.result(method, params).await["resultType"], "complete", "{method}");
    }
    assert_eq!(client.result("prompts/get", json!({"name": "x_asking"})).await["resultType"], "input_required");
    assert_eq!(world.stored().await, 0);
}

/// What a call with these related ids heard of them.
async fn continued(client: &Modern<'_>, ids: Value) -> Value {
    let call = client.clone().with_meta("io.modelcontextprotocol/relatedTaskIds", ids);
    call.call("continues").await["content"][0]["text"].take()
}

#[tokio::test]
async fn call_gets_its_related_own_tasks() {
    let world = world();
    let client = world.tasked();
    let own = started(&client, "forever").await;
    let foreign = started(&client.clone().of(BOB), "forever").await;
    assert_eq!(continued(&client, json!([foreign, "nonsense", "0".repeat(32), own, own])).await, own);
    assert_eq!(continued(&client, json!([])).await, "");
    let mut many = vec![json!("nonsense"); 100];
    many.push(own.clone());
    assert_eq!(continued(&client, json!(many)).await, own, "what is said twice counts once");
    let others = (0..16).map(|at| json!(format!("{at}"))).chain([own.clone()]).collect::<Vec<_>>();
    assert_eq!(continued(&client, json!(others)).await, "", "no more than a few are looked at");
    let undeclared = world.plain();
    assert_eq!(continued(&undeclared, json!([own])).await, "");
    let limited = world.tasked().with_rights(scope(false));
    assert_eq!(continued(&limited, json!([own])).await, "", "who may not look at tasks names none");
    assert_eq!(continued(&world.tasked().with_rights(scope(true)), json!([own])).await, own);
}

#[tokio::test]
async fn related_task_is_found_by_client_given_id() {
    let world = world();
    let anna = world.anna().await;
    let named = json!({"name": "quick", "_meta": {"modelcontextprotocol.io/task": {"taskId": "m"}}});
    let mut talk = anna.open(1, "tools/call", named).await;
    while !talk.next().await["method"].is_null() {}
    let task = world.tasks.named(&ANNA, "sep1686:m").await.unwrap().unwrap();
    assert_eq!(continued(&world.tasked(), json!(["m"])).await, task.id.to_string());
}

#[tokio::test]
async fn related_task_lookup_equals_tasks_get_lookup() {
    let world = world();
    let client = world.tasked();
    world.store.take_looks();
    continued(&client, json!(["f".repeat(32)])).await;
    let looked = world.store.take_looks();
    let refused = client.refusal("tasks/get", json!({"taskId": "f".repeat(32)})).await;
    assert_eq!((refused.0, world.store.take_looks()), (-32602, looked.clone()));
    assert!(!looked.is_empty());
}

fn scope(tasks: bool) -> bulkhead_domain::rights::Rights {
    let rule =
        bulkhead_domain::rights::ScopeRule { name: "s".into(), tools: vec!["*".into()], tasks, ..Default::default() };
    bulkhead_domain::rights::ScopeBook::new(vec![rule]).rights(&["s".to_owned()], "t", "r", true)
}
