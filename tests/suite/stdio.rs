//! MCP on stdin and stdout.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::client::{Client, all_capabilities};
use tests::stdio::Pipe;
use tests::wait::soon;
use tests::{Setup, command, place};
use tokio::io::AsyncWriteExt as _;

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

/// A client that closes the input waits for the end of the process: what would go on longer is not waited for, and
/// nothing that is stored is lost.
#[tokio::test]
async fn the_end_of_input_ends_what_still_runs() {
    let setup = setup();
    let mut pipe = Pipe::connect(&setup, all_capabilities()).await;
    let params = json!({"name": "count_primes", "arguments": {"below": 1000}, "task": {"ttl": 60_000}});
    let done = pipe.call("tools/call", params).await["result"]["task"]["taskId"].clone();
    pipe.call("tasks/result", json!({"taskId": done})).await;
    let params = json!({"name": "wait", "arguments": {"ms": 600_000}, "task": {"ttl": 600_000}});
    let running = pipe.call("tools/call", params).await["result"]["task"]["taskId"].clone();
    // Both are begun before the end; the second one needs longer than a client waits, though not longer than a call may
    // take.
    let brief = pipe.send("tools/call", json!({"name": "wait", "arguments": {"ms": 100}})).await;
    let long = pipe.send("tools/call", json!({"name": "wait", "arguments": {"ms": 3_000}})).await;
    let begin = Instant::now();
    let (status, rest) = pipe.close_hearing().await;
    let took = begin.elapsed();
    assert!(status.success(), "{status}");
    if place::rounds(0, 1) == 1 {
        assert!(took < Duration::from_secs(1), "it ended after {took:?}");
    }
    let answered = |id: &Value| rest.iter().any(|message| message["id"] == *id);
    assert!(answered(&brief), "what ends at once is answered: {rest:?}");
    assert!(!answered(&long), "what goes on is not waited for: {rest:?}");

    let mut pipe = Pipe::connect(&setup, all_capabilities()).await;
    let result = pipe.call("tasks/result", json!({"taskId": done})).await;
    assert_eq!(result["result"]["structuredContent"]["count"], 168, "{result}");
    let goes_on = pipe.call("tasks/get", json!({"taskId": running})).await;
    assert_eq!(goes_on["result"]["status"], "working", "a task outlives its host: {goes_on}");
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

/// Lets `bulkhead stdio` without a data directory answer one request; how many components it compiled, and its log.
async fn start_without_data(caches: Option<&Path>) -> (usize, String) {
    let mut command = command::bulkhead();
    command.arg("stdio").arg("--plugin").arg(place::component("text")).env("BULKHEAD_LOG_LEVEL", "debug");
    command.env_remove("HOME").env_remove("XDG_CACHE_HOME");
    if let Some(caches) = caches {
        command.env("XDG_CACHE_HOME", caches);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the host starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n").await.expect("the host reads");
    drop(stdin);
    let output = soon("the host to be gone", child.wait_with_output()).await.expect("the host can be waited for");
    let said = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("\"id\":1"), "{said}\n{log}");
    (log.matches("a component was compiled").count(), log)
}

/// The one file of compiled code.
fn compiled_code(caches: &Path) -> PathBuf {
    let files = fs::read_dir(caches.join("bulkhead/cache")).expect("the cache is there");
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

#[tokio::test]
async fn stdio_without_data_compiles_only_what_is_not_cached() {
    let caches = tempfile::tempdir().expect("a folder");
    let caches = caches.path();
    assert_eq!(start_without_data(Some(caches)).await.0, 1);
    assert_eq!(start_without_data(Some(caches)).await.0, 0, "the second start finds it");
    let file = compiled_code(caches);
    let mut code = fs::read(compiled_code(caches)).expect("it can be read");
    *code.last_mut().expect("a byte") ^= 1;
    fs::write(&file, code).expect("it can be written");
    let (compiled, log) = start_without_data(Some(caches)).await;
    assert!(compiled == 1 && log.contains("was not written by this host or has been changed"), "{log}");
    assert_eq!(start_without_data(Some(caches)).await.0, 0, "what was changed is written anew");
}

#[tokio::test]
async fn stdio_without_data_uses_no_unsafe_cache() {
    let caches = tempfile::tempdir().expect("a folder");
    let open = caches.path().join("open");
    let real = caches.path().join("real");
    for folder in [open.join("bulkhead"), real] {
        fs::create_dir_all(folder).expect("a folder");
    }
    fs::set_permissions(open.join("bulkhead"), Permissions::from_mode(0o755)).expect("its owner may");
    let linked = caches.path().join("linked");
    fs::create_dir(&linked).expect("a folder");
    std::os::unix::fs::symlink("../real", linked.join("bulkhead")).expect("a link");
    for (caches, why) in [(Some(&*open), "chmod 700"), (Some(&*linked), "a link"), (None, "no home directory")] {
        let (compiled, log) = start_without_data(caches).await;
        let said = log.lines().filter(|line| line.contains("compiled code is not kept")).collect::<Vec<_>>();
        assert!(compiled == 1 && said.len() == 1 && log.contains(why), "{why}: {log}");
    }
    assert_eq!(fs::read_dir(open.join("bulkhead")).expect("it is there").count(), 0);
    assert_eq!(fs::read_dir(linked.join("bulkhead")).expect("it is there").count(), 0);
}
