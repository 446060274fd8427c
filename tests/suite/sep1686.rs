//! SEP-1686 on a running host: names that clients choose, over HTTP and stdio, and what is left of them after a `kill
//! -9`.

use std::time::Duration;

use serde_json::{Value, json};
use tests::client::{Client, all_capabilities, text};
use tests::modern::Modern;
use tests::schema::{Expected, SEP1686_RELATED, SEP1686_STATUS};
use tests::stdio::Pipe;
use tests::stream::Incoming;
use tests::wait::until;
use tests::{Host, Setup};

const TASK: &str = "modelcontextprotocol.io/task";

fn call(tool: &str, arguments: Value, wish: Value) -> Value {
    json!({"name": tool, "arguments": arguments, "_meta": {TASK: wish}})
}

fn primes(name: &str) -> Value {
    call("count_primes", json!({"below": 1000}), json!({"taskId": name, "keepAlive": 600_000}))
}

/// Sends a request under this id and reads up to the announcement.
async fn begin(client: &Client, id: &str, params: Value) -> Incoming {
    let message = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    let mut reply =
        client.post(message.to_string(), Some(Expected { id: json!(id), method: "tools/call".to_owned() })).await;
    let created = reply.next().await.expect("an announcement");
    assert_eq!(created["method"], "notifications/tasks/created");
    reply
}

async fn hosting() -> (Host, Client) {
    let host = Setup::with(&["primes", "desk"]).start().await;
    let client = Client::connect(&host).await;
    (host, client)
}

#[tokio::test]
async fn sep1686_call_is_announced_answered_and_kept() {
    for version in ["2025-11-25", "2025-06-18"] {
        let host = Setup::with(&["primes"]).start().await;
        let mut client = Client::new(&host.url, None);
        client.version = version.to_owned();
        client.initialize(json!({})).await;
        assert!(client.server["capabilities"]["experimental"][TASK].is_object());
        let (result, heard) = client.call_hearing("tools/call", primes("count/1")).await;
        let result = result.expect("a result");
        assert_eq!(result["structuredContent"]["count"], 168);
        assert_eq!(result["_meta"][SEP1686_RELATED]["taskId"], "count/1");
        assert_eq!(heard[0]["method"], "notifications/tasks/created");
        let task = client.about("tasks/get", "count/1").await.expect("it is there");
        assert_eq!((&task["status"], &task["keepAlive"]), (&json!("completed"), &json!(600_000)));
        assert_eq!(client.about("tasks/result", "count/1").await.expect("the result"), result);
        let repeated = client.call("tools/call", primes("count/1")).await.expect("the same");
        assert_eq!(repeated, result);
        assert_eq!(client.tasks().await.len(), 1);
        let other = call("count_primes", json!({"below": 10}), json!({"taskId": "count/1"}));
        assert_eq!(client.call("tools/call", other).await.expect_err("another call").code, -32602);
        client.about("tasks/delete", "count/1").await.expect("it is over");
        assert_eq!(client.about("tasks/get", "count/1").await.expect_err("it is gone").code, -32602);
        assert_eq!(client.tasks().await, Vec::<Value>::new());
    }
}

#[tokio::test]
async fn sep1686_cancelling_the_request_cancels_its_task() {
    let (_host, client) = hosting().await;
    let wish = |name: &str| call("wait", json!({"ms": 600_000}), json!({"taskId": name}));
    let mut reply = begin(&client, "r1", wish("a")).await;
    let early = client.about("tasks/result", "a").await.expect_err("it is not completed");
    assert_eq!(early.code, -32602);
    let running = client.about("tasks/delete", "a").await.expect_err("it is not over");
    assert_eq!(running.code, -32602);
    client.notify("notifications/cancelled", json!({"requestId": "r1"})).await;
    client.until_status("a", "cancelled").await;
    assert!(reply.next().await.is_none(), "a cancelled request is not answered");

    // The connection may be gone; the request is the client's until it is answered.
    drop(begin(&client, "r2", wish("b")).await);
    assert_eq!(client.about("tasks/get", "b").await.expect("it goes on")["status"], "working");
    client.notify("notifications/cancelled", json!({"requestId": "r2"})).await;
    client.until_status("b", "cancelled").await;
}

#[tokio::test]
async fn sep1686_input_requests_carry_the_client_task_id() {
    let (_host, client) = hosting().await;
    let mut reply = begin(&client, "r", call("book_trip", json!({}), json!({"taskId": "trip"}))).await;
    for content in [json!({"destination": "Kyiv", "travellers": 3}), json!({"class": "business", "confirm": true})] {
        let asked = loop {
            let message = reply.next().await.expect("a question");
            if message["method"] == "elicitation/create" {
                break message;
            }
        };
        assert_eq!(asked["params"]["_meta"][SEP1686_RELATED]["taskId"], "trip");
        assert_eq!(client.about("tasks/get", "trip").await.expect("it is there")["status"], "input_required");
        client.respond(&asked, json!({"action": "accept", "content": content})).await;
    }
    let response = reply.response_after(&mut Vec::new()).await;
    assert_eq!(response["result"]["structuredContent"]["summary"], "Booked 3 business seats to Kyiv.");
}

#[tokio::test]
async fn sep1686_task_id_and_retention_survive_a_kill() {
    let setup = Setup::with(&["primes"]).plugin("desk", "durable = \"off\"");
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let result = client.call("tools/call", primes("done")).await.expect("a result");
    let before = client.about("tasks/get", "done").await.expect("it is there");
    let brief = call("count_primes", json!({"below": 10}), json!({"taskId": "brief", "keepAlive": 1000}));
    client.call("tools/call", brief).await.expect("a result");
    let lost = call("wait", json!({"ms": 600_000}), json!({"taskId": "lost"}));
    let _reply = begin(&client, "r", lost.clone()).await;
    let setup = host.kill().await;

    let host = setup.start().await;
    let mut client = Client::connect(&host).await;
    assert_eq!(client.about("tasks/get", "done").await.expect("it is there"), before);
    assert_eq!(client.about("tasks/result", "done").await.expect("a result"), result);
    assert_eq!(client.call("tools/call", primes("done")).await.expect("no second run"), result);
    let other = call("count_primes", json!({"below": 10}), json!({"taskId": "done"}));
    assert_eq!(client.call("tools/call", other).await.expect_err("still another call").code, -32602);
    let failed = client.until_status("lost", "failed").await;
    assert!(failed["error"].as_str().is_some_and(|text| !text.is_empty()), "{failed}");
    // Whoever repeats the request learns what became of it, and nothing runs again.
    let repeated = client.call("tools/call", lost).await.expect_err("it was interrupted");
    assert_eq!(repeated.code, -32603);
    assert_eq!(client.about("tasks/result", "lost").await.expect_err("it has none").code, -32602);
    until("the brief one to expire", async || client.about("tasks/get", "brief").await.err()).await;
    client.version = "2025-06-18".to_owned();
    client.initialize(json!({})).await;
    // This revision has no key of its own for the task that a result belongs to.
    let mut expected = result;
    expected["_meta"] = json!({SEP1686_RELATED: {"taskId": "done"}});
    assert_eq!(client.about("tasks/result", "done").await.expect("in every session"), expected);
}

#[tokio::test]
async fn sep1686_task_id_is_known_to_modern_era() {
    let (host, client) = hosting().await;
    client.call("tools/call", primes("done")).await.expect("a result");
    let _reply = begin(&client, "r", call("wait", json!({"ms": 600_000}), json!({"taskId": "runs"}))).await;
    let modern = Modern::full(&host, None);
    let done = modern.result("tasks/get", json!({"taskId": "done"})).await;
    assert_eq!((&done["taskId"], &done["status"]), (&json!("done"), &json!("completed")));
    assert_eq!(done["result"]["structuredContent"]["count"], 168);
    let filter = json!({"notifications": {"taskIds": ["runs", "never"]}});
    let mut stream = modern.send("subscriptions/listen", filter).await;
    let acknowledged = stream.next().await.expect("the acknowledgement");
    assert_eq!(acknowledged["params"]["notifications"]["taskIds"], json!(["runs"]));
    assert_eq!(stream.next().await.expect("how it stands")["params"]["taskId"], "runs");
    modern.result("tasks/cancel", json!({"taskId": "runs"})).await;
    client.until_status("runs", "cancelled").await;
}

#[tokio::test]
async fn sep1686_tasks_work_over_stdio() {
    let mut pipe = Pipe::connect(&Setup::with(&["primes", "desk"]), all_capabilities()).await;
    let id = pipe.send("tools/call", primes("p")).await;
    let created = pipe.read().await.expect("an announcement");
    assert_eq!(created["params"]["_meta"][SEP1686_RELATED]["taskId"], "p");
    assert_eq!(pipe.response(&id).await["result"]["structuredContent"]["count"], 168);
    assert_eq!(pipe.call("tasks/get", json!({"taskId": "p"})).await["result"]["status"], "completed");

    let waiting = pipe.send("tools/call", call("wait", json!({"ms": 600_000}), json!({"taskId": "w"}))).await;
    assert_eq!(pipe.read().await.expect("an announcement")["method"], "notifications/tasks/created");
    pipe.write(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": waiting}})).await;
    let mut status = Value::Null;
    while status != "cancelled" {
        tokio::time::sleep(Duration::from_millis(20)).await;
        status = pipe.call("tasks/get", json!({"taskId": "w"})).await["result"]["status"].clone();
        assert!(status == "working" || status == "cancelled", "{status}");
    }
    assert!(pipe.close().await.success());
}

#[tokio::test]
async fn sep1686_tool_without_task_support_answers_plainly() {
    let host = Setup::with(&["text"]).start().await;
    let client = Client::connect(&host).await;
    let params = call("echo", json!({"text": "hello"}), json!({"taskId": "e"}));
    let (result, heard) = client.call_hearing("tools/call", params).await;
    assert_eq!(text(&result.expect("a result")), "hello");
    assert_eq!(heard, Vec::<Value>::new());
    assert_eq!(client.tasks().await, Vec::<Value>::new());
}

fn wished(mut params: Value, name: &str) -> Value {
    params["_meta"] = json!({TASK: {"taskId": name, "keepAlive": 600_000}});
    params
}

/// Requests that are no call of a tool: those that reach a guest first.
fn other_requests() -> [(&'static str, Value); 8] {
    let completion = json!({"ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
        "argument": {"name": "arg1", "value": "par"}});
    let prompt = json!({"name": "test_prompt_with_arguments", "arguments": {"arg1": "a", "arg2": "b"}});
    [
        ("resources/read", json!({"uri": "test://template/7/data"})),
        ("prompts/get", prompt),
        ("completion/complete", completion),
        ("resources/list", json!({})),
        ("prompts/list", json!({})),
        ("resources/subscribe", json!({"uri": "test://watched-resource"})),
        ("logging/setLevel", json!({"level": "error"})),
        ("ping", json!({})),
    ]
}

const ASKING: &str = "test_input_required_result_prompt";

#[tokio::test]
async fn sep1686_task_of_every_request_survives_a_kill() {
    let setup = Setup::with(&["conformance"]);
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let mut kept = Vec::new();
    for (method, params) in other_requests() {
        let plain = client.call(method, params.clone()).await.expect("a result");
        let (result, heard) = client.call_hearing(method, wished(params, method)).await;
        let mut result = result.expect("a result");
        assert_eq!(heard[0]["method"], "notifications/tasks/created");
        assert_eq!(client.about("tasks/result", method).await.expect("the result"), result);
        let task = client.about("tasks/get", method).await.expect("it is there");
        assert_eq!((&task["status"], &task["keepAlive"]), (&json!("completed"), &json!(600_000)));
        let meta = result.as_object_mut().expect("an object").remove("_meta").expect("metadata");
        assert_eq!(meta[SEP1686_RELATED]["taskId"], method);
        if method != "ping" && method != "resources/subscribe" && method != "logging/setLevel" {
            assert_eq!(result, plain, "{method}");
        }
        kept.push((task, result));
    }
    let asking = json!({"jsonrpc": "2.0", "id": "a", "method": "prompts/get", "params": wished(json!({"name": ASKING}), "asks")});
    let expected = Expected { id: json!("a"), method: "prompts/get".to_owned() };
    let mut reply = client.post(asking.to_string(), Some(expected)).await;
    assert_eq!(reply.next().await.expect("an announcement")["method"], "notifications/tasks/created");
    client.until_status("asks", "input_required").await;
    let setup = host.kill().await;

    let host = setup.start().await;
    let client = Client::connect(&host).await;
    for ((method, params), (task, result)) in other_requests().into_iter().zip(kept) {
        assert_eq!(client.about("tasks/get", method).await.expect("it is there"), task);
        let mut repeated = client.call(method, wished(params, method)).await.expect("the same");
        repeated.as_object_mut().expect("an object").remove("_meta").expect("metadata");
        assert_eq!(repeated, result, "{method}");
        let other = wished(json!({"uri": "test://static-text"}), method);
        assert_eq!(client.call("resources/read", other).await.expect_err("another request").code, -32602, "{method}");
    }
    let failed = client.until_status("asks", "failed").await;
    assert!(failed["error"].as_str().is_some_and(|text| !text.is_empty()), "{failed}");
    let repeated = client.call("prompts/get", wished(json!({"name": ASKING}), "asks")).await;
    assert_eq!(repeated.expect_err("it was interrupted").code, -32603);
    assert_eq!(client.tasks().await.len(), other_requests().len() + 1);
    // Clients of the extension know calls of tools alone.
    let modern = Modern::full(&host, None);
    for name in ["resources/read", "ping", "asks", "never"] {
        let absent = modern.call("tasks/get", json!({"taskId": name})).await.expect_err("it is not there");
        assert_eq!((absent.code, absent.message.as_str()), (-32602, "Task not found"), "{name}");
    }
}

#[tokio::test]
async fn sep1686_queued_read_is_done_after_kill() {
    let limits = "[limits]\ncalls_running_per_requestor = 1\ntasks_running_per_requestor = 1";
    // What is in front of them ends with its host.
    let setup = Setup::with(&["conformance"]).plugin("primes", "durable = \"off\"").config(limits);
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let busy = client.task("count_primes", json!({"below": 100_000_000_000_u64})).await;
    client.until_status(&busy, "working").await;
    let mut replies = Vec::new();
    for (method, params) in other_requests().into_iter().take(3) {
        let message = json!({"jsonrpc": "2.0", "id": method, "method": method, "params": wished(params, method)});
        let expected = Expected { id: json!(method), method: method.to_owned() };
        let mut reply = client.post(message.to_string(), Some(expected)).await;
        assert_eq!(reply.next().await.expect("an announcement")["method"], "notifications/tasks/created");
        let task = client.about("tasks/get", method).await.expect("it is there");
        assert_eq!((&task["status"], &task["_meta"][SEP1686_STATUS]), (&json!("working"), &json!("submitted")));
        replies.push(reply);
    }
    let setup = host.kill().await;

    let host = setup.start().await;
    let client = Client::connect(&host).await;
    for (method, params) in other_requests().into_iter().take(3) {
        client.until_status(method, "completed").await;
        let mut result = client.about("tasks/result", method).await.expect("a result");
        result.as_object_mut().expect("an object").remove("_meta").expect("metadata");
        assert_eq!(result, client.call(method, params).await.expect("a result"), "{method}");
    }
}

#[tokio::test]
async fn sep1686_request_cancel_cancels_task_over_stdio() {
    let mut pipe = Pipe::connect(&Setup::with(&["conformance"]), all_capabilities()).await;
    let id = pipe.send("prompts/get", wished(json!({"name": ASKING}), "asks")).await;
    assert_eq!(pipe.read().await.expect("an announcement")["method"], "notifications/tasks/created");
    let question = pipe.read().await.expect("a question");
    assert_eq!(question["params"]["_meta"][SEP1686_RELATED]["taskId"], "asks");
    pipe.write(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})).await;
    let mut status = Value::Null;
    while status != "cancelled" {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let task = pipe.call("tasks/get", json!({"taskId": "asks"})).await;
        status = task["result"]["status"].clone();
        assert!(status == "input_required" || status == "cancelled", "{task}");
    }
    let ping = pipe.send("ping", wished(json!({}), "p")).await;
    let mut heard = pipe.read().await.expect("an announcement");
    while heard["method"] != "notifications/tasks/created" {
        // The question of the task that is over is withdrawn about now.
        assert_eq!(heard["method"], "notifications/cancelled");
        heard = pipe.read().await.expect("an announcement");
    }
    assert_eq!(heard["params"]["_meta"][SEP1686_RELATED]["taskId"], "p");
    assert_eq!(pipe.response(&ping).await["result"]["_meta"][SEP1686_RELATED]["taskId"], "p");
    assert!(pipe.close().await.success());
}
