//! MCP on stdin and stdout.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::Setup;
use tests::client::{Client, all_capabilities};
use tests::place::rounds;
use tests::stdio::Pipe;

fn setup() -> Setup {
    Setup::with(&["text", "primes", "desk"])
}

#[tokio::test]
async fn stdio_tools_and_tasks_work_until_end_of_input() {
    let mut pipe = Pipe::connect(&setup(), all_capabilities()).await;
    let tools = pipe.call("tools/list", json!({})).await;
    assert_eq!(tools["result"]["tools"].as_array().map(Vec::len), Some(7));
    let answer = pipe.call("tools/call", json!({"name": "echo", "arguments": {"text": "a\nb"}})).await;
    assert_eq!(answer["result"]["content"][0]["text"], "a\nb");
    let params = json!({"name": "count_primes", "arguments": {"below": 1000}, "task": {"ttl": 60_000}});
    let created = pipe.call("tools/call", params).await;
    let id =
        created["result"]["task"]["taskId"].as_str().unwrap_or_else(|| panic!("no task: {created}\n{}", pipe.log()));
    let result = pipe.call("tasks/result", json!({"taskId": id})).await;
    assert_eq!(result["result"]["structuredContent"]["count"], 168, "{result}");
    let status = pipe.close().await;
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn stdio_quick_request_overtakes_a_slow_one() {
    let mut pipe = Pipe::connect(&setup(), all_capabilities()).await;
    let slow = pipe.send("tools/call", json!({"name": "wait", "arguments": {"ms": 1000}})).await;
    let quick = pipe.send("ping", json!({})).await;
    let first = pipe.read().await.expect("an answer");
    assert_eq!(first["id"], quick, "the quick one does not wait for the slow one");
    assert_eq!(pipe.response(&slow).await["result"]["structuredContent"]["waited_ms"], 1000);
}

#[tokio::test]
async fn stdio_input_requests_are_asked_and_answered() {
    let mut pipe = Pipe::connect(&setup(), all_capabilities()).await;
    let call = pipe.send("tools/call", json!({"name": "book_trip", "arguments": {}})).await;
    let answers = [json!({"destination": "Kyiv", "travellers": 3}), json!({"class": "business", "confirm": true})];
    for content in answers {
        let asked = loop {
            let message = pipe.read().await.expect("a question");
            if message["method"] == "elicitation/create" {
                break message;
            }
        };
        let result = json!({"action": "accept", "content": content});
        pipe.write(json!({"jsonrpc": "2.0", "id": asked["id"], "result": result})).await;
    }
    let answer = pipe.response(&call).await;
    assert_eq!(answer["result"]["structuredContent"]["summary"], "Booked 3 business seats to Kyiv.");
}

#[tokio::test]
async fn stdio_bad_lines_get_errors_and_are_skipped() {
    let mut pipe = Pipe::connect(&setup(), all_capabilities()).await;
    for (line, code) in [
        ("nonsense", -32700),
        ("[]", -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":9,"method":"no/such"}"#, -32601),
    ] {
        pipe.write_line(line).await;
        let answer = pipe.read().await.expect("an answer");
        assert_eq!(answer["error"]["code"], code, "{line}: {answer}");
    }
    let long = format!(r#"{{"jsonrpc":"2.0","id":10,"method":"ping","params":{{"x":"{}"}}}}"#, "x".repeat(6 << 20));
    pipe.write_line(&long).await;
    let answer = pipe.read().await.expect("an answer");
    assert!(answer.get("error").is_some(), "{answer}");
    pipe.write_line("").await;
    assert_eq!(pipe.call("ping", json!({})).await["result"], json!({}));
}

/// A client that closes the input waits for the end of the process: what would go on longer is not waited for, and nothing that is
/// stored is lost.
#[tokio::test]
async fn the_end_of_input_ends_what_still_runs() {
    let setup = setup();
    let mut pipe = Pipe::connect(&setup, all_capabilities()).await;
    let params = json!({"name": "count_primes", "arguments": {"below": 1000}, "task": {"ttl": 60_000}});
    let done = pipe.call("tools/call", params).await["result"]["task"]["taskId"].clone();
    pipe.call("tasks/result", json!({"taskId": done})).await;
    let params = json!({"name": "wait", "arguments": {"ms": 600_000}, "task": {"ttl": 600_000}});
    let running = pipe.call("tools/call", params).await["result"]["task"]["taskId"].clone();
    // Both are begun before the end; the second one needs longer than a client waits, though not longer than a call may take.
    let brief = pipe.send("tools/call", json!({"name": "wait", "arguments": {"ms": 100}})).await;
    let long = pipe.send("tools/call", json!({"name": "wait", "arguments": {"ms": 3_000}})).await;
    let begin = Instant::now();
    let (status, rest) = pipe.close_hearing().await;
    let took = begin.elapsed();
    assert!(status.success(), "{status}");
    if rounds(0, 1) == 1 {
        assert!(took < Duration::from_secs(1), "it ended after {took:?}");
    }
    let answered = |id: &Value| rest.iter().any(|message| message["id"] == *id);
    assert!(answered(&brief), "what ends at once is answered: {rest:?}");
    assert!(!answered(&long), "what goes on is not waited for: {rest:?}");

    let mut pipe = Pipe::connect(&setup, all_capabilities()).await;
    let result = pipe.call("tasks/result", json!({"taskId": done})).await;
    assert_eq!(result["result"]["structuredContent"]["count"], 168, "{result}");
    let lost = pipe.call("tasks/get", json!({"taskId": running})).await;
    assert_eq!(lost["result"]["status"], "failed", "{lost}");
    assert!(pipe.close().await.success());
}

#[tokio::test]
async fn stdio_pipe_to_running_host_shares_its_tasks() {
    let setup = setup();
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let mut pipe = Pipe::connect(&setup, all_capabilities()).await;
    let params = json!({"name": "count_primes", "arguments": {"below": 100}, "task": {"ttl": 60_000}});
    let created = pipe.call("tools/call", params).await;
    let id = created["result"]["task"]["taskId"].as_str().expect("an id").to_owned();
    client.until_status(&id, "completed").await;
    let listed: Vec<Value> = client.tasks().await.iter().map(|task| task["taskId"].clone()).collect();
    assert_eq!(listed, [json!(id)]);
    assert!(pipe.close().await.success());
    assert!(client.call("ping", json!({})).await.is_ok(), "the host goes on");
}
