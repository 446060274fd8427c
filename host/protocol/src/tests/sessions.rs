//! What a session may be told, and what in it means nothing.

use super::*;

fn notification(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

#[tokio::test]
async fn initialize_is_validated_and_happens_once_per_session() {
    let world = world();
    let anna = world.anna().await;
    let info = json!({"name": "test", "version": "1"});
    let good = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
    assert_eq!(anna.error("initialize", good.clone()).await["code"], -32600, "this session has one");
    for params in [
        json!({}),
        json!({"protocolVersion": 1, "capabilities": {}, "clientInfo": info}),
        json!({"protocolVersion": "2025-11-25", "clientInfo": info}),
        json!({"protocolVersion": "2025-11-25", "capabilities": []}),
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test"}}),
        json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": 1}, "clientInfo": info}),
    ] {
        let hello = json!({"jsonrpc": "2.0", "id": 3, "method": "initialize", "params": params});
        let received = world.receive(Peer::unheralded(ANNA, None), &hello.to_string()).await;
        let Received::Exchange(mut exchange) = received else { panic!("{params} opened a session") };
        let answer: Value = serde_json::from_str(&exchange.next().await.unwrap().message.text()).unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(3), &json!(-32602)), "{params}");
    }
    // A handshake is over when it is answered: there is nothing to cancel.
    anna.tell(notification("notifications/cancelled", json!({"requestId": 0}))).await;
    assert_eq!(anna.result("ping", json!({})).await, json!({}));
}

#[tokio::test]
async fn unknown_meta_and_notifications_are_ignored() {
    let world = world();
    let anna = world.anna().await;
    let meta = json!({"io.modelcontextprotocol/later": [1], "dev.mcp/x": {"a": null}, "traceparent": "nonsense",
        "io.modelcontextprotocol/related-task": "nonsense", "com.example/a": 1});
    let params = json!({"name": "echo", "arguments": {"text": "x"}, "later": true, "_meta": meta});
    let expected = json!({"content": [{"type": "text", "text": "x"}]});
    assert_eq!(anna.result("tools/call", params).await, expected);
    for method in ["notifications/later", "notifications/roots/list_changed", "notifications/progress", "ping"] {
        anna.tell(notification(method, json!([]))).await;
    }
    assert_eq!(anna.result("ping", json!({"later": 1})).await, json!({}));
}

#[tokio::test]
async fn only_tool_calls_become_tasks() {
    let world = world_offering();
    let anna = world.anna().await;
    let wish = json!({"ttl": 1000});
    let got = anna.result("prompts/get", json!({"name": "x_plain", "arguments": {"needed": "n"}, "task": wish})).await;
    assert!(got["messages"].is_array() && got["task"].is_null());
    let read = anna.result("resources/read", json!({"uri": "a://0", "task": wish})).await;
    assert!(read["contents"].is_array() && read["task"].is_null());
    assert!(anna.result("tools/list", json!({"task": wish})).await["tools"].is_array());
    assert_eq!(anna.result("tasks/list", json!({})).await, json!({"tasks": []}));
}

#[tokio::test]
async fn slow_legacy_call_is_not_promoted_to_task() {
    let world = world();
    // Nor does the name of the later extension ask for one.
    let later = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let client = world.client(ANNA, "2025-11-25", later).await;
    let mut talk = client.open(5, "tools/call", json!({"name": "slow"})).await;
    assert_eq!(talk.next().await["result"]["content"][0]["text"], "slowly done");
    assert_eq!(client.result("tasks/list", json!({})).await, json!({"tasks": []}));
}

#[tokio::test]
async fn legacy_task_is_cancelled_by_tasks_cancel_only() {
    let world = world();
    let anna = world.anna().await;
    let params = json!({"name": "forever", "task": {}});
    let mut talk = anna.open(77, "tools/call", params).await;
    let id = talk.next().await["result"]["task"]["taskId"].clone();
    anna.tell(notification("notifications/cancelled", json!({"requestId": 77, "reason": "enough"}))).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(anna.result("tasks/get", json!({"taskId": id})).await["status"], "working");
    // Nor by a stream that is closed.
    let waiting = anna.open(78, "tasks/result", json!({"taskId": id})).await;
    drop(waiting);
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(anna.result("tasks/get", json!({"taskId": id})).await["status"], "working");
    assert_eq!(anna.result("tasks/cancel", json!({"taskId": id})).await["status"], "cancelled");
}

#[tokio::test]
async fn task_progress_notifications_end_with_the_task() {
    let world = world();
    let anna = world.anna().await;
    let mut stream = anna.standalone();
    assert!(stream.is_silent().await);
    let id = anna.start("count").await;
    let mut is_over = false;
    while !is_over {
        let told = stream.next().await;
        is_over = told["params"]["status"] == "completed";
        assert!(is_over || told["method"] != "notifications/tasks/status" || told["params"]["status"] == "working");
    }
    assert!(stream.is_silent().await, "nothing comes after the end");
    anna.until(&id, "completed").await;
}

#[tokio::test]
async fn input_request_waits_for_initialized_session() {
    let world = world();
    for as_task in [false, true] {
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {}}, "clientInfo": {"name": "test", "version": "1"}}});
        let open = async || {
            let received = world.receive(Peer::unheralded(ANNA, None), &hello.to_string()).await;
            let Received::Opened { session, .. } = received else { panic!("not opened") };
            Client { world: &world, session, requestor: ANNA }
        };
        let form = async |client: &Client<'_>| match as_task {
            false => client.open(7, "tools/call", json!({"name": "form"})).await,
            true => {
                let id = client.start("form").await;
                client.until(&id, "input_required").await;
                client.open(7, "tasks/result", json!({"taskId": id})).await
            }
        };
        let slow = open().await;
        let forgetful = open().await;
        let mut asked = form(&slow).await;
        assert!(asked.is_silent().await);
        slow.tell(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        assert_eq!(asked.next().await["method"], "elicitation/create");
        assert_eq!(form(&forgetful).await.next().await["method"], "elicitation/create");
    }
}
