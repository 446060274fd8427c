//! Tasks from creation to expiry, as a client sees them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::client::{Client, RELATED_TASK, text};
use tests::stream::Incoming;
use tests::wait::{soon, until};
use tests::{Host, Setup};

async fn host() -> Host {
    Setup::with(&["primes", "desk", "hostile"]).start().await
}

fn related(message: &Value) -> &str {
    message["_meta"][RELATED_TASK]["taskId"].as_str().unwrap_or_default()
}

fn accept(content: Value) -> Value {
    json!({"action": "accept", "content": content})
}

async fn answer_journey(client: &Client, stream: &mut Incoming, task: &str) {
    for (field, content) in [
        ("destination", json!({"destination": "Lisbon", "travellers": 2})),
        ("confirm", json!({"class": "economy", "confirm": true})),
    ] {
        let asked = next_request(stream).await;
        assert_eq!(asked["method"], "elicitation/create");
        assert_eq!(related(&asked["params"]), task, "{asked}");
        assert!(asked["params"]["requestedSchema"]["properties"].get(field).is_some(), "{asked}");
        client.respond(&asked, accept(content)).await;
    }
}

/// The next request on a stream; notifications before it are passed over.
async fn next_request(stream: &mut Incoming) -> Value {
    loop {
        let message = soon("a question", stream.next()).await.expect("the stream goes on");
        assert!(message.get("method").is_some(), "a response came before the question: {message}");
        if message.get("id").is_some() {
            return message;
        }
    }
}

#[tokio::test]
async fn a_task_is_created_polled_and_fetched() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let params = json!({"name": "count_primes", "arguments": {"below": 1000}, "task": {"ttl": 60_000}});
    let created = client.call("tools/call", params).await.expect("a task");
    let task = &created["task"];
    assert_eq!((&task["status"], &task["ttl"]), (&json!("working"), &json!(60_000)));
    assert!(task["pollInterval"].as_u64().is_some_and(|ms| ms > 0), "{task}");
    let id = task["taskId"].as_str().expect("an id");
    assert!(id.len() >= 32, "128 bits: {id}");

    let done = client.until_status(id, "completed").await;
    assert_eq!(done["taskId"], id);
    assert_eq!(done["createdAt"], task["createdAt"]);
    assert!(done.get("_meta").is_none_or(|meta| meta.get(RELATED_TASK).is_none()), "tasks/get carries no related task");

    let result = client.about("tasks/result", id).await.expect("the result");
    assert_eq!(result["structuredContent"]["count"], 168);
    assert_eq!(related(&result), id);
    assert_eq!(client.about("tasks/result", id).await.expect("the result, again"), result);
}

#[tokio::test]
async fn waiting_tasks_result_is_answered_at_task_end() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let id = client.task("wait", json!({"ms": 800})).await;
    let begin = Instant::now();
    let (first, second) = tokio::join!(client.about("tasks/result", &id), client.about("tasks/result", &id));
    assert_eq!(first.as_ref().expect("the result")["structuredContent"]["waited_ms"], 800);
    assert_eq!(first, second);
    assert!(begin.elapsed() > Duration::from_millis(300), "the request waited for the end");
}

#[tokio::test]
async fn task_list_shows_every_task_over_pages() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let mut created = Vec::new();
    for _ in 0..60 {
        created.push(client.task("count_primes", json!({"below": 10})).await);
    }
    let listed: Vec<String> =
        client.tasks().await.iter().map(|task| task["taskId"].as_str().unwrap_or_default().to_owned()).collect();
    assert_eq!(listed.len(), created.len());
    let mut listed_sorted = listed.clone();
    let mut created_sorted = created.clone();
    listed_sorted.sort();
    created_sorted.sort();
    assert_eq!(listed_sorted, created_sorted);
    // Tasks of the same millisecond may stand in any order; the first and the last one do not share it.
    let at = |id: &String| listed.iter().position(|listed| listed == id);
    assert!(at(&created[0]) > at(&created[59]), "newest first");
}

#[tokio::test]
async fn cancelled_task_stays_cancelled() {
    let host = host().await;
    let client = Client::connect(&host).await;
    for (tool, arguments) in [("wait", json!({"ms": 600_000})), ("spin", json!({})), ("ignore_cancel", json!({}))] {
        let id = client.task(tool, arguments).await;
        client.until_status(&id, "working").await;
        let cancelled = client.about("tasks/cancel", &id).await.expect("it is cancelled");
        assert_eq!(cancelled["status"], "cancelled", "{tool}");
        let refused = client.about("tasks/cancel", &id).await.expect_err("it is over");
        assert_eq!(refused.code, -32602, "{tool}");
        assert_eq!(client.about("tasks/get", &id).await.expect("it is there")["status"], "cancelled", "{tool}");
        let result = client.about("tasks/result", &id).await.expect_err("there is no result");
        assert_eq!(result.data[RELATED_TASK]["taskId"], json!(id), "{tool}: {result:?}");
    }
}

#[tokio::test]
async fn cancel_ends_waiting_tasks_result() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let id = client.task("wait", json!({"ms": 600_000})).await;
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        client.about("tasks/cancel", &id).await
    };
    let (result, cancelled) = tokio::join!(client.about("tasks/result", &id), cancel);
    assert_eq!(cancelled.expect("it is cancelled")["status"], "cancelled");
    assert!(result.is_err(), "{result:?}");
}

#[tokio::test]
async fn task_expires_on_time_even_while_running() {
    let host = host().await;
    let client = Client::connect(&host).await;
    for (tool, arguments) in [("count_primes", json!({"below": 10})), ("spin", json!({}))] {
        let begin = Instant::now();
        let task = client.create_with(tool, arguments, json!({"ttl": 1500})).await.expect("a task");
        let id = task["taskId"].as_str().expect("an id");
        assert_eq!(task["ttl"], 1500);
        assert!(client.about("tasks/get", id).await.is_ok(), "{tool} is there before its time");
        let gone = until("the task to expire", async || client.about("tasks/get", id).await.err()).await;
        assert_eq!(gone.code, -32602, "{tool}");
        let age = begin.elapsed();
        assert!(age >= Duration::from_millis(1450) && age < Duration::from_millis(4000), "{tool} went after {age:?}");
        assert_eq!(client.tasks().await, Vec::<Value>::new(), "{tool} is not listed");
    }
    let before = host.cpu_ms();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(host.cpu_ms() - before < 300, "the expired loop still runs");
}

#[tokio::test]
async fn task_ttl_is_clamped_and_null_needs_permission() {
    let limits = "[limits]\nttl_ms_max = 120000\nttl_ms_default = 60000";
    let host = Setup::with(&["primes"]).config(limits).start().await;
    let client = Client::connect(&host).await;
    for (asked, given) in [
        (json!({}), json!(60_000)),
        (json!({"ttl": 5_000}), json!(5_000)),
        (json!({"ttl": 999_999_999}), json!(120_000)),
        (json!({"ttl": null}), json!(120_000)),
    ] {
        let task = client.create_with("count_primes", json!({"below": 10}), asked.clone()).await.expect("a task");
        assert_eq!(task["ttl"], given, "asked for {asked}");
    }
    let host = Setup::with(&["primes"]).config("[limits]\nttl_unlimited = true").start().await;
    let client = Client::connect(&host).await;
    let task = client.create_with("count_primes", json!({"below": 10}), json!({"ttl": null})).await.expect("a task");
    assert_eq!(task["ttl"], Value::Null);
}

#[tokio::test]
async fn task_input_requests_come_on_tasks_result_stream() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let id = client.task("book_trip", json!({})).await;
    client.until_status(&id, "input_required").await;
    assert!(!client.send("tasks/get", json!({"taskId": id})).await.is_stream(), "a look is one answer");
    let mut stream = client.send("tasks/result", json!({"taskId": id})).await;
    assert!(stream.is_stream());
    answer_journey(&client, &mut stream, &id).await;
    let mut heard = Vec::new();
    let message = stream.response_after(&mut heard).await;
    assert_eq!(message["result"]["structuredContent"]["summary"], "Booked 2 economy seats to Lisbon.");
    assert_eq!(related(&message["result"]), id);
    assert_eq!(client.until_status(&id, "completed").await["status"], "completed");
}

#[tokio::test]
async fn task_input_requests_come_on_get_stream_when_polling() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let mut stream = client.listen().await;
    assert!(stream.is_stream());
    let id = client.task("book_trip", json!({})).await;
    answer_journey(&client, &mut stream, &id).await;
    client.until_status(&id, "completed").await;
    let result = client.about("tasks/result", &id).await.expect("the result");
    assert_eq!(result["structuredContent"]["booked"], true);
}

#[tokio::test]
async fn unanswered_input_request_is_resent_and_first_answer_wins() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let id = client.task("book_trip", json!({})).await;
    let mut first = client.send("tasks/result", json!({"taskId": id})).await;
    let asked = next_request(&mut first).await;
    drop(first);
    let mut second = client.send("tasks/result", json!({"taskId": id})).await;
    let again = next_request(&mut second).await;
    assert_ne!(asked["id"], again["id"], "a new request has a new id");
    assert_eq!(asked["params"]["message"], again["params"]["message"]);
    client.respond(&again, accept(json!({"destination": "Oslo", "travellers": 1}))).await;
    client.respond(&asked, accept(json!({"destination": "Rome", "travellers": 9}))).await;
    let confirm = next_request(&mut second).await;
    assert!(confirm["params"]["message"].as_str().unwrap_or_default().contains("Oslo"), "{confirm}");
    client.respond(&confirm, json!({"action": "decline"})).await;
    let message = second.response_after(&mut Vec::new()).await;
    assert_eq!(message["result"]["structuredContent"]["booked"], false);
}

#[tokio::test]
async fn input_answer_violating_the_form_is_not_accepted() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let id = client.task("book_trip", json!({})).await;
    let mut stream = client.send("tasks/result", json!({"taskId": id})).await;
    let asked = next_request(&mut stream).await;
    client.respond(&asked, accept(json!({"destination": "Oslo", "travellers": "many"}))).await;
    let outcome = stream.response_after(&mut Vec::new()).await;
    let booked = &outcome["result"]["structuredContent"]["booked"];
    assert_ne!(*booked, json!(true), "{outcome}");
}

#[tokio::test]
async fn progress_notifications_continue_after_task_creation() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let mut stream = client.listen().await;
    let params = json!({"name": "wait", "arguments": {"ms": 1000}, "task": {"ttl": 60_000},
        "_meta": {"progressToken": "p-7"}});
    let created = client.call("tools/call", params).await.expect("a task");
    let id = created["task"]["taskId"].as_str().expect("an id").to_owned();
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let message = soon("progress", stream.next()).await.expect("the stream goes on");
        if message["method"] == "notifications/progress" {
            assert_eq!(message["params"]["progressToken"], "p-7");
            assert_eq!(related(&message["params"]), id, "{message}");
            seen.push(message["params"]["progress"].as_f64().expect("a number"));
        } else {
            assert_eq!(message["method"], "notifications/tasks/status", "{message}");
            assert!(message["params"].get("_meta").is_none(), "status notifications carry no related task");
        }
    }
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
}

#[tokio::test]
async fn a_failing_call_fails_its_task_and_keeps_the_error() {
    let host = host().await;
    let client = Client::connect(&host).await;
    for (tool, code) in [("trap", 1001), ("bad_output", 1004), ("bad_json", 1004)] {
        let plain = client.tool(tool, json!({})).await.expect_err("a fault is an error");
        assert_eq!(plain.code, code, "{tool}: {plain:?}");
        let id = client.task(tool, json!({})).await;
        let failed = client.until_status(&id, "failed").await;
        assert!(failed["statusMessage"].as_str().is_some_and(|text| !text.is_empty()), "{failed}");
        let late = client.about("tasks/result", &id).await.expect_err("the same error");
        assert_eq!((late.code, &late.message), (plain.code, &plain.message), "{tool}");
    }
}

#[tokio::test]
async fn wrong_arguments_are_a_failed_task_naming_the_field() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let wrong = json!({"below": "many"});
    let plain = client.tool("count_primes", wrong.clone()).await.expect("a tool error");
    let created = client.create("count_primes", wrong.clone()).await.expect("a task");
    assert_eq!(created["status"], "failed", "{created}");
    let id = created["taskId"].as_str().expect("an id");
    let mut result = client.about("tasks/result", id).await.expect("a result");
    assert_eq!(result["_meta"].as_object_mut().and_then(|meta| meta.remove(RELATED_TASK)), Some(json!({"taskId": id})));
    assert_eq!((&result["isError"], &result["content"]), (&plain["isError"], &plain["content"]));
    assert!(plain["isError"] == true && text(&plain).contains("below"), "{plain}");
    let listed = client.tasks().await;
    assert!(listed.len() == 1 && listed[0]["taskId"] == id, "it is a task like any other: {listed:?}");
    assert_eq!(client.about("tasks/cancel", id).await.expect_err("it is over").code, -32602);
}

#[tokio::test]
async fn large_call_result_is_returned_whole() {
    let host = host().await;
    let client = Client::connect(&host).await;
    // flood_result is a plain tool; a diff of two long texts is the largest task output here: progress messages are not
    // kept.
    let plain = client.tool("flood_result", json!({"bytes": 200_000})).await.expect("a result below the limit");
    assert_eq!(text(&plain).len(), 200_000);
}
