//! Revision 2026-07-28 over HTTP and stdio, with real plugins, beside clients of the older one.

use serde_json::{Value, json};
use tests::client::{Client, all_capabilities};
use tests::modern::Modern;
use tests::stdio::Pipe;
use tests::wait::{soon, until};
use tests::{Host, Setup};

async fn host() -> Host {
    Setup::with(&["text", "primes", "desk"]).start().await
}

fn journey() -> Value {
    json!({"journey": {"action": "accept", "content": {"destination": "Rome", "travellers": 2}}})
}

fn details() -> Value {
    json!({"details": {"action": "accept", "content": {"class": "economy", "confirm": true}}})
}

fn retry(asked: &Value, responses: Value) -> Value {
    json!({"name": "book_trip", "arguments": {}, "requestState": asked["requestState"], "inputResponses": responses})
}

#[tokio::test]
async fn both_eras_are_served_on_one_endpoint() {
    let host = host().await;
    let modern = Modern::full(&host, None);
    let legacy = Client::connect(&host).await;
    let discovered = modern.result("server/discover", json!({})).await;
    assert_eq!(discovered["supportedVersions"][0], "2026-07-28");
    for _ in 0..2 {
        assert_eq!(modern.tool("echo", json!({"text": "a"})).await["content"][0]["text"], "a");
        assert_eq!(legacy.tool("echo", json!({"text": "b"})).await.expect("a result")["content"][0]["text"], "b");
    }
    let there = legacy.task("wait", json!({"ms": 600_000})).await;
    assert_eq!(modern.until_status(&there, "working").await["ttlMs"], 600_000);
    let here = modern.task("wait", json!({"ms": 600_000})).await;
    legacy.until_status(&here, "working").await;
    modern.result("tasks/cancel", json!({"taskId": there})).await;
    legacy.until_status(&there, "cancelled").await;
    legacy.about("tasks/cancel", &here).await.expect("it is the same requestor's");
    modern.until_status(&here, "cancelled").await;
}

#[tokio::test]
async fn multi_round_trip_retry_gets_guest_progress() {
    let host = host().await;
    let client = Modern::plain(&host, None);
    let asked = client.tool("book_trip", json!({})).await;
    let curious = client.with_meta("progressToken", json!("p"));
    let mut said = Vec::new();
    let mut reply = curious.send("tools/call", retry(&asked, journey())).await;
    let next = reply.response_after(&mut said).await;
    assert_eq!(next["result"]["resultType"], "input_required", "{next}");
    let heard: Vec<_> = said.iter().map(|message| &message["params"]["message"]).collect();
    assert_eq!(heard, ["The destination is known"]);
}

#[tokio::test]
async fn modern_http_statuses_are_those_of_the_era() {
    let host = host().await;
    let client = Modern::plain(&host, None);
    let status = async |method: &str, params: Value, header: &str, value: &str| {
        let body = client.message(&json!(7), method, params.clone()).to_string();
        let request = client.request(method, &params).build().expect("a request");
        let mut request = reqwest::Request::try_clone(&request).expect("no stream");
        *request.body_mut() = Some(body.into());
        let name = reqwest::header::HeaderName::from_bytes(header.as_bytes()).expect("a name");
        request.headers_mut().insert(name, value.parse().expect("a value"));
        let reply = reqwest::Client::builder().no_proxy().build().expect("a client").execute(request).await;
        let reply = reply.expect("an answer");
        let status = reply.status().as_u16();
        let body: Value = reply.json().await.expect("JSON");
        assert_eq!(body["id"], 7);
        (status, body["error"]["code"].as_i64().unwrap_or(0))
    };
    let echo = json!({"name": "echo", "arguments": {"text": "x"}});
    assert_eq!(status("tools/call", echo.clone(), "mcp-session-id", "no session of anybody").await, (200, 0));
    assert_eq!(status("tools/call", echo.clone(), "last-event-id", "7").await, (200, 0));
    assert_eq!(status("tools/call", echo.clone(), "mcp-name", "other").await, (400, -32020));
    assert_eq!(status("tools/call", echo.clone(), "mcp-method", "tools/list").await, (400, -32020));
    assert_eq!(status("tools/call", echo, "mcp-protocol-version", "2025-11-25").await, (400, -32020));
    assert_eq!(status("ping", json!({}), "x-other", "x").await, (404, -32601));
    assert_eq!(status("initialize", json!({}), "x-other", "x").await, (404, -32601));
    assert_eq!(status("tasks/get", json!({"taskId": "x"}), "x-other", "x").await, (400, -32021));
    assert_eq!(status("tools/call", json!({"name": "nobody"}), "x-other", "x").await, (200, -32602));
}

#[tokio::test]
async fn multi_round_trip_continues_after_restart() {
    let setup = Setup::with(&["desk"]);
    let host = setup.start().await;
    let client = Modern::plain(&host, None);
    let first = client.tool("book_trip", json!({})).await;
    assert_eq!(first["resultType"], "input_required");
    let second = client.result("tools/call", retry(&first, journey())).await;
    assert!(second["inputRequests"]["details"].is_object(), "{second}");
    host.kill().await;
    let host = setup.start().await;
    let client = Modern::plain(&host, None);
    let done = client.result("tools/call", retry(&second, details())).await;
    assert_eq!(done["structuredContent"]["summary"], "Booked 2 economy seats to Rome.");
    assert_eq!(client.result("tools/call", retry(&second, details())).await, done);
    let mut tampered = second.clone();
    tampered["requestState"] = json!(format!("{}A", second["requestState"].as_str().expect("a state")));
    let refused = client.call("tools/call", retry(&tampered, details())).await.expect_err("tampered");
    assert_eq!(refused.code, -32602);
}

#[tokio::test]
async fn answered_multi_round_trip_is_not_rerun_after_kill() {
    let setup = Setup::new().plugin("probe", "[plugin.kv]\n");
    let host = setup.start().await;
    let client = Modern::plain(&host, None);
    let asked = client.tool("ask_counted", json!({})).await;
    let open = client.tool("ask_counted", json!({})).await;
    let go_on = |asked: &Value, value: &str| {
        let answer = json!({"action": "accept", "content": {"value": value}});
        json!({"name": "ask_counted", "arguments": {}, "requestState": asked["requestState"], "inputResponses": {"value": answer}})
    };
    let done = client.result("tools/call", go_on(&asked, "a")).await;
    assert_eq!(done["content"][0]["text"], "run 1");
    // The reply may have been lost with its host.
    host.kill().await;
    let host = setup.start().await;
    let client = Modern::plain(&host, None);
    for value in ["a", "b"] {
        let refused = client.call("tools/call", go_on(&asked, value)).await.expect_err("nobody knows what came of it");
        assert_eq!(refused.code, -32602, "{value}");
    }
    let second = client.result("tools/call", go_on(&open, "a")).await;
    assert_eq!(second["content"][0]["text"], "run 2", "what was not answered goes on, and nothing ran in between");
}

#[tokio::test]
async fn a_promoted_task_is_found_again_after_a_kill() {
    let setup = Setup::with(&["primes", "desk"]);
    let host = setup.start().await;
    let client = Modern::full(&host, None);
    let running = client.task("wait", json!({"ms": 600_000})).await;
    let done = client.task("wait", json!({"ms": 1_300})).await;
    let before = client.until_status(&done, "completed").await;
    host.kill().await;
    let host = setup.start().await;
    let client = Modern::full(&host, None);
    assert_eq!(client.until_status(&done, "completed").await["result"], before["result"]);
    // It became a task while it ran, and goes on as that.
    client.until_status(&running, "working").await;
    client.result("tasks/steer", json!({"taskId": running, "message": "stop"})).await;
    client.until_status(&running, "completed").await;
}

#[tokio::test]
async fn disconnect_cancels_a_modern_call() {
    let host = Setup::with(&["text", "hostile"])
        .config("[limits]\ncalls_running_per_requestor = 2\ncall_queue_ms_max = 50")
        .start()
        .await;
    let client = Modern::plain(&host, None);
    for _ in 0..6 {
        let params = json!({"name": "spin", "arguments": {}});
        let request =
            client.request("tools/call", &params).body(client.message(&json!(1), "tools/call", params).to_string());
        let sent = tokio::time::timeout(std::time::Duration::from_millis(300), request.send()).await;
        assert!(sent.is_err(), "it spins until its client is gone");
        until("a place to be free", async || {
            client.call("tools/call", json!({"name": "echo", "arguments": {"text": ""}})).await.ok()
        })
        .await;
    }
}

#[tokio::test]
async fn paused_loop_is_shown_and_resumes() {
    let host = Setup::with(&["hostile"]).start().await;
    let client = Modern::full(&host, None);
    let task = client.task("spin", json!({})).await;
    let paused = client.result("tasks/pause", json!({"taskId": task})).await;
    assert_eq!(paused["status"], "paused");
    let plain = {
        let mut plain = client.clone();
        plain.capabilities["extensions"] = json!({tests::modern::TASKS: {}});
        plain
    };
    let seen = plain.result("tasks/get", json!({"taskId": task})).await;
    assert_eq!((&seen["status"], &seen["statusMessage"]), (&json!("working"), &json!("paused by request")));
    assert_eq!(client.result("tasks/resume", json!({"taskId": task})).await["status"], "working");
    client.result("tasks/cancel", json!({"taskId": task})).await;
    client.until_status(&task, "cancelled").await;
}

#[tokio::test]
async fn steering_reaches_task_and_subscription_shows_its_status() {
    let host = host().await;
    let client = Modern::full(&host, None);
    let task = client.task("wait", json!({"ms": 2_500})).await;
    let mut stream = client.send("subscriptions/listen", json!({"notifications": {"taskIds": [task]}})).await;
    let acknowledged = soon("the acknowledgement", stream.next()).await.expect("a message");
    assert_eq!(acknowledged["params"]["notifications"], json!({"taskIds": [task]}));
    client.result("tasks/steer", json!({"taskId": task, "message": "faster"})).await;
    let done = loop {
        let message = soon("a change", stream.next()).await.expect("a message");
        assert_eq!(message["method"], "notifications/tasks");
        if message["params"]["status"] == "completed" {
            break message;
        }
    };
    assert_eq!(done["params"]["result"]["structuredContent"]["messages"], json!(["faster"]));
}

#[tokio::test]
async fn subscription_streams_end_with_result_at_shutdown() {
    let host = host().await;
    let client = Modern::plain(&host, None);
    let mut stream = client.send("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}})).await;
    soon("the acknowledgement", stream.next()).await.expect("a message");
    let stopping = tokio::spawn(host.terminate());
    let last = soon("the result", stream.next()).await.expect("a message");
    assert_eq!(last["result"]["resultType"], "complete", "{last}");
    assert!(soon("the end", stream.next()).await.is_none());
    assert!(stopping.await.expect("it stops").0.success());
}

#[tokio::test]
async fn idempotency_key_call_runs_once_across_kill() {
    let setup = Setup::with(&["primes", "desk"]);
    let host = setup.start().await;
    let client = Modern::full(&host, None).with_meta("dev.bulkhead/idempotencyKey", json!("trip-1"));
    let task = client.task("wait", json!({"ms": 4_000})).await;
    assert_eq!(client.task("wait", json!({"ms": 4_000.0})).await, task);
    client.until_status(&task, "completed").await;
    host.kill().await;
    let host = setup.start().await;
    let client = Modern::full(&host, None).with_meta("dev.bulkhead/idempotencyKey", json!("trip-1"));
    let done = client.tool("wait", json!({"ms": 4_000})).await;
    assert_eq!(done["structuredContent"]["waited_ms"], 4_000);
    let refused = client.call("tools/call", json!({"name": "wait", "arguments": {"ms": 1}})).await.expect_err("other");
    assert_eq!((refused.code, &refused.data["type"]), (-32602, &json!("idempotency_key_conflict")));
}

#[tokio::test]
async fn stdio_serves_both_eras_on_one_pipe() {
    let mut pipe = Pipe::connect(&Setup::with(&["text", "desk"]), all_capabilities()).await;
    assert_eq!(
        pipe.call("tools/call", json!({"name": "echo", "arguments": {"text": "a"}})).await["result"]["content"][0]["text"],
        "a"
    );
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let call = pipe.send("tools/call", json!({"name": "wait", "arguments": {"ms": 600_000}, "_meta": meta})).await;
    pipe.write(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call}})).await;
    let echoed = pipe.call("tools/call", json!({"name": "echo", "arguments": {"text": "b"}, "_meta": meta})).await;
    assert_eq!(echoed["result"]["resultType"], "complete");
    pipe.send("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}, "_meta": meta})).await;
    let started = std::time::Instant::now();
    assert!(pipe.close().await.success());
    assert!(started.elapsed() < std::time::Duration::from_secs(4), "a listen stream does not hold the end up");
}

#[tokio::test]
async fn task_input_request_uses_capabilities_of_its_creation() {
    let host = Setup::with(&["conformance"]).start().await;
    let client = Modern::full(&host, None);
    let mut mute = client.clone();
    mute.capabilities.as_object_mut().expect("capabilities").remove("elicitation");
    let arguments = json!({"filename": "notes.txt"});
    let asking = client.task("confirm_delete", arguments.clone()).await;
    client.until_status(&asking, "input_required").await;
    // The one that looks could be asked; the one that made the task could not.
    let task = mute.task("confirm_delete", arguments).await;
    let over = until("the task to end", async || {
        let now = client.result("tasks/get", json!({"taskId": task})).await;
        assert_ne!(now["status"], "input_required", "{now}");
        matches!(now["status"].as_str(), Some("completed" | "failed")).then_some(now)
    })
    .await;
    assert!(over["error"]["code"] == -32021 || over["result"]["isError"] == true, "{over}");
}

#[tokio::test]
async fn stdio_serves_both_eras_alternately_with_shared_tasks() {
    let mut pipe = Pipe::connect(&Setup::with(&["text", "desk", "conformance"]), all_capabilities()).await;
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}, "extensions": {tests::modern::TASKS: {}}}});
    let echo = json!({"name": "echo", "arguments": {"text": "a"}});
    let modern = |mut params: Value| {
        params["_meta"] = meta.clone();
        params
    };
    // Every answer is checked against the schema of the era that asked.
    for _ in 0..4 {
        let old = pipe.call("tools/call", echo.clone()).await;
        assert!(old["result"].get("resultType").is_none() && old["result"].get("_meta").is_none(), "{old}");
        assert_eq!(pipe.call("tools/call", modern(echo.clone())).await["result"]["resultType"], "complete");
    }
    let refused = pipe.call("ping", modern(json!({}))).await;
    assert_eq!(refused["error"]["code"], -32601);
    assert_eq!(pipe.call("ping", json!({})).await["result"], json!({}));
    assert_eq!(pipe.call("server/discover", json!({})).await["error"]["code"], -32602, "discovery says what it speaks");

    let asking = json!({"name": "confirm_delete", "arguments": {"filename": "a.txt"}});
    let mut with_task = asking.clone();
    with_task["task"] = json!({"ttl": 600_000});
    let old = pipe.call("tools/call", with_task).await["result"]["task"]["taskId"].clone();
    let new = pipe.call("tools/call", modern(asking)).await["result"]["taskId"].clone();
    for task in [old, new] {
        let about = json!({"taskId": task});
        let mut asked = Value::Null;
        while asked["status"] != "input_required" {
            asked = pipe.call("tasks/get", modern(about.clone())).await["result"].clone();
        }
        assert!(asked["inputRequests"]["confirm"].is_object(), "{asked}");
        let seen = pipe.call("tasks/get", about.clone()).await["result"].clone();
        assert_eq!(seen["status"], "input_required");
        assert!(seen.get("inputRequests").is_none() && seen.get("ttl").is_some(), "{seen}");
        let answers = json!({"confirm": {"action": "accept", "content": {"confirm": true}}});
        pipe.call("tasks/update", modern(json!({"taskId": task, "inputResponses": answers}))).await;
        let result = pipe.call("tasks/result", about).await["result"].clone();
        assert_eq!(tests::client::text(&result), "Deleted a.txt");
        let over = pipe.call("tasks/get", modern(json!({"taskId": task}))).await["result"].clone();
        assert_eq!((&over["status"], &over["result"]["content"]), (&json!("completed"), &result["content"]));
    }
    assert!(pipe.close().await.success());
}

#[tokio::test]
async fn non_object_result_is_structured_in_modern_era_only() {
    let host = Setup::with(&["probe"]).start().await;
    let modern = Modern::full(&host, None);
    let legacy = Client::connect(&host).await;
    let squares = |list: Value| {
        let tools = list["tools"].as_array().expect("tools");
        tools.iter().find(|tool| tool["name"] == "squares").expect("the tool").clone()
    };
    let schema = &squares(modern.result("tools/list", json!({})).await)["outputSchema"];
    assert_eq!((&schema["type"], &schema["items"]["type"]), (&json!("array"), &json!("integer")));
    let older = squares(legacy.call("tools/list", json!({})).await.expect("tools/list"));
    assert!(older.get("outputSchema").is_none(), "an output schema is one of objects there: {older}");

    let count = json!({"count": 3});
    let result = modern.tool("squares", count.clone()).await;
    assert_eq!(result["structuredContent"], json!([1, 4, 9]));
    assert_eq!(tests::client::text(&result), "[1,4,9]");
    let older = legacy.tool("squares", count.clone()).await.expect("a result");
    assert!(older.get("structuredContent").is_none(), "{older}");
    assert_eq!(tests::client::text(&older), "[1,4,9]");

    let task = legacy.task("squares", count).await;
    let over = modern.until_status(&task, "completed").await;
    assert_eq!(over["result"]["structuredContent"], json!([1, 4, 9]));
    let fetched = legacy.about("tasks/result", &task).await.expect("tasks/result");
    assert_eq!((fetched.get("structuredContent"), tests::client::text(&fetched)), (None, "[1,4,9]"));
}
