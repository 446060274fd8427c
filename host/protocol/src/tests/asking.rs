use super::*;

const RELATED: &str = "io.modelcontextprotocol/related-task";

fn accept(name: &str) -> Value {
    json!({"action": "accept", "content": {"name": name}})
}

#[tokio::test]
async fn plain_call_sends_input_requests_on_its_stream() {
    let world = world();
    let anna = world.anna().await;
    let mut standalone = anna.standalone();
    let mut talk = anna.open(1, "tools/call", json!({"name": "all"})).await;
    let form = talk.next().await;
    let sample = talk.next().await;
    let roots = talk.next().await;
    assert_eq!(form["method"], "elicitation/create");
    let params = json!({"mode": "form", "message": "name?", "requestedSchema": {"type": "object",
        "properties": {"name": {"type": "string"}}, "required": ["name"]}});
    assert_eq!(form["params"], params);
    assert_eq!((&sample["method"], &roots["method"]), (&json!("sampling/createMessage"), &json!("roots/list")));
    assert!(form["id"] != sample["id"] && sample["id"] != roots["id"]);
    assert!(standalone.is_silent().await);

    anna.answer(&roots, json!({"roots": [{"uri": "file:///a"}]})).await;
    let message = json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "yo"}});
    anna.answer(&sample, message.clone()).await;
    anna.answer(&form, accept("Anna")).await;
    // A second answer is too late, and so is one to a request that nobody made.
    anna.answer(&form, accept("Eve")).await;
    anna.answer(&json!({"id": "00000000-77"}), accept("Eve")).await;
    let text = talk.next().await["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!(text, format!("Accept {{\"name\":\"Anna\"}}, sampled {message}, 1 roots"));
}

#[tokio::test]
async fn input_request_refusals_reach_the_guest() {
    let world = world();
    let anna = world.anna().await;
    for (answer, expected) in [
        (json!({"result": {"action": "decline"}}), "Decline nothing"),
        (json!({"result": {"action": "cancel"}}), "Cancel nothing"),
        (json!({"error": {"code": -1, "message": "User rejected it"}}), "refused: User rejected it"),
        (
            json!({"result": {"action": "accept", "content": {"name": 7}}}),
            "refused: the client's answer cannot be used",
        ),
    ] {
        let mut talk = anna.open(1, "tools/call", json!({"name": "form"})).await;
        let mut message = json!({"jsonrpc": "2.0", "id": talk.next().await["id"]});
        message.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
        anna.tell(message).await;
        let response = talk.next().await;
        assert!(response["result"]["content"][0]["text"].as_str().unwrap().starts_with(expected), "{response}");
    }
    let mut talk = anna.open(1, "tools/call", json!({"name": "url"})).await;
    let url = talk.next().await;
    let params = json!({"mode": "url", "message": "Sign in", "url": "https://example.com/in", "elicitationId": "e-1"});
    assert_eq!(url["params"], params);
    anna.answer(&url, json!({"action": "accept"})).await;
    assert_eq!(talk.next().await["result"]["content"][0]["text"], "Accept nothing");
}

#[tokio::test]
async fn input_request_needs_declared_client_capability() {
    let world = world();
    let mute = world.client(ANNA, "2025-11-25", json!({})).await;
    let result = mute.result("tools/call", json!({"name": "form"})).await;
    assert_eq!(result["content"][0]["text"], "Unsupported(ElicitationForm)");
}

#[tokio::test]
async fn unanswered_input_request_is_cancelled_after_timeout() {
    let world = world_with(50);
    let anna = world.anna().await;
    let mut talk = anna.open(1, "tools/call", json!({"name": "form"})).await;
    let form = talk.next().await;
    let withdrawn = talk.next().await;
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], form["id"]);
    let response = talk.next().await;
    assert!(response["result"]["content"][0]["text"].as_str().unwrap().starts_with("Unreachable"));
}

#[tokio::test]
async fn cancelling_a_call_cancels_its_input_request() {
    let world = world();
    let anna = world.anna().await;
    let mut talk = anna.open(1, "tools/call", json!({"name": "form"})).await;
    let form = talk.next().await;
    anna.tell(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})).await;
    assert_eq!(talk.next().await["params"]["requestId"], form["id"]);
    assert!(talk.exchange.next().await.is_none());
}

#[tokio::test]
async fn task_input_request_uses_open_result_stream() {
    let world = world();
    let anna = world.anna().await;
    let id = anna.start("two_forms").await;
    let mut result = anna.open(50, "tasks/result", json!({"taskId": id})).await;
    let first = result.next().await;
    assert_eq!(first["params"]["_meta"][RELATED]["taskId"], json!(id));
    anna.until(&id, "input_required").await;
    let mut standalone = anna.standalone();
    assert!(standalone.is_silent().await);
    anna.answer(&first, accept("A")).await;
    let second = result.next().await;
    assert_eq!(second["params"]["message"], "two?");
    anna.answer(&second, accept("B")).await;
    let response = result.next().await;
    assert_eq!(response["id"], 50);
    assert_eq!(response["result"]["_meta"][RELATED]["taskId"], json!(id));
    loop {
        let told = standalone.next().await;
        assert_eq!(told["method"], "notifications/tasks/status");
        if told["params"]["status"] == "completed" {
            break;
        }
    }
}

#[tokio::test]
async fn task_input_request_falls_back_to_standalone_stream() {
    let world = world();
    let anna = world.anna().await;
    let other = world.anna().await;
    let mut others = other.standalone();
    let mut standalone = anna.standalone();
    assert!(standalone.is_silent().await && others.is_silent().await);
    let id = anna.start("form").await;
    let form = standalone.next_of("elicitation/create").await;
    assert_eq!(form["params"]["_meta"][RELATED]["taskId"], json!(id));
    // It is on the screen by now: a result stream does not ask once more.
    let mut result = anna.open(50, "tasks/result", json!({"taskId": id})).await;
    assert!(result.is_silent().await && others.is_silent().await);
    anna.answer(&form, accept("A")).await;
    assert_eq!(result.next().await["result"]["content"][0]["text"], "Accept {\"name\":\"A\"}");
}

#[tokio::test]
async fn unanswered_input_request_is_resent_and_first_answer_wins() {
    let world = world();
    let anna = world.anna().await;
    let id = anna.start("form").await;
    anna.until(&id, "input_required").await;
    let mut result = anna.open(50, "tasks/result", json!({"taskId": id})).await;
    let first = result.next().await;
    drop(result);
    // Another session of the same requestor may answer as well.
    let other = world.anna().await;
    let mut result = other.open(50, "tasks/result", json!({"taskId": id})).await;
    let second = result.next().await;
    assert_ne!(first["id"], second["id"]);
    anna.answer(&first, accept("first")).await;
    // Who is still asked hears that it is over.
    let withdrawn = result.next().await;
    assert_eq!(
        (&withdrawn["method"], &withdrawn["params"]["requestId"]),
        (&json!("notifications/cancelled"), &second["id"])
    );
    other.answer(&second, accept("second")).await;
    assert_eq!(result.next().await["result"]["content"][0]["text"], "Accept {\"name\":\"first\"}");
}

#[tokio::test]
async fn undelivered_input_request_is_sent_to_next_stream() {
    let world = world();
    let anna = world.anna().await;
    let id = anna.start("form").await;
    anna.until(&id, "input_required").await;
    let mut standalone = anna.standalone();
    let first = standalone.next().await;
    assert_eq!(first["method"], "elicitation/create");
    drop(standalone);
    let mut standalone = anna.standalone();
    let second = standalone.next().await;
    assert_ne!(first["id"], second["id"]);
    anna.answer(&first, accept("A")).await;
    anna.until(&id, "completed").await;
}

#[tokio::test]
async fn cancelling_a_task_cancels_its_input_request() {
    let world = world();
    let anna = world.anna().await;
    let id = anna.start("form").await;
    let mut result = anna.open(50, "tasks/result", json!({"taskId": id})).await;
    let form = result.next().await;
    anna.result("tasks/cancel", json!({"taskId": id})).await;
    let withdrawn = result.next().await;
    assert_eq!(withdrawn["params"]["requestId"], form["id"]);
    assert_eq!(result.next().await["error"]["message"], "The task was cancelled");
}

#[tokio::test]
async fn input_request_may_be_answered_by_client_task() {
    let world = world();
    let capabilities = json!({"elicitation": {}, "tasks": {"cancel": {}, "requests": {"elicitation": {"create": {}}}}});
    let anna = world.client(ANNA, "2025-11-25", capabilities).await;
    let task = |status: &str| {
        json!({"taskId": "c1", "status": status, "createdAt": NOW_TEXT, "lastUpdatedAt": NOW_TEXT, "ttl": null,
            "pollInterval": 50})
    };
    let plain = anna.open(1, "tools/call", json!({"name": "form"})).await;
    let id = anna.start("form").await;
    let durable = anna.open(2, "tasks/result", json!({"taskId": id})).await;
    for mut talk in [plain, durable] {
        let form = talk.next().await;
        assert_eq!(form["params"]["task"], json!({"ttl": 10_000}));
        anna.answer(&form, json!({"task": task("working")})).await;
        let look = talk.next().await;
        assert_eq!((&look["method"], &look["params"]), (&json!("tasks/get"), &json!({"taskId": "c1"})));
        anna.answer(&look, task("working")).await;
        let look = talk.next().await;
        assert_eq!(look["method"], "tasks/get");
        anna.answer(&look, task("completed")).await;
        let fetch = talk.next().await;
        assert_eq!((&fetch["method"], &fetch["params"]), (&json!("tasks/result"), &json!({"taskId": "c1"})));
        anna.answer(&fetch, accept("A")).await;
        let response = talk.next().await;
        assert_eq!(response["result"]["content"][0]["text"], "Accept {\"name\":\"A\"}", "{response}");
    }

    // A call that ends meanwhile cancels the client's task.
    let mut talk = anna.open(3, "tools/call", json!({"name": "form"})).await;
    let form = talk.next().await;
    anna.answer(&form, json!({"task": task("working")})).await;
    assert_eq!(talk.next().await["method"], "tasks/get");
    anna.tell(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}})).await;
    let cancel = talk.next().await;
    assert_eq!((&cancel["method"], &cancel["params"]), (&json!("tasks/cancel"), &json!({"taskId": "c1"})));
    assert!(talk.exchange.next().await.is_none());
}
