//! A component of WASI 0.3 in a whole host: compiled in a child of its own kind, called as a tool and as a task,
//! stopped.

use std::time::Duration;

use serde_json::{Value, json};
use tests::client::Client;
use tests::{Setup, command, place};

const WAIT: &str = "trial_concurrent_tools_wait-together";
const SPIN: &str = "trial_concurrent_tools_spin";
const STALL: &str = "trial_concurrent_tools_stall";
const ADD: &str = "trial_concurrent_tools_add";

/// One plugin of 0.3 beside one of 0.2.
fn allowed(toml: &str) -> Setup {
    Setup::with(&["text"]).plugin("concurrent", &format!("wasi = \"0.3\"\n{toml}"))
}

#[tokio::test]
async fn asynchronous_functions_are_tools_where_the_operator_allows_them() {
    let host = allowed("").start().await;
    let client = Client::connect(&host).await;
    let result = client.tool(WAIT, json!({"ms": [1000, 1500, 1200]})).await.expect("a result");
    let took = result["structuredContent"]["result"]
        .as_str()
        .map_or_else(|| result["structuredContent"]["result"].as_u64(), |text| text.parse().ok());
    assert!(took.is_some_and(|took| (1500..3500).contains(&took)), "together, not in turn: {result}");
    let sum = client.tool(ADD, json!({"a": 2, "b": 3})).await.expect("a result");
    assert_eq!(sum["structuredContent"], json!({"result": 5}));
    let words = client.tool("word_count", json!({"text": "one two"})).await.expect("a result");
    assert_ne!(words["isError"], true, "the other engine goes on: {words}");

    let task = client.task(WAIT, json!({"ms": [1]})).await;
    client.until_status(&task, "completed").await;
    let task = client.task(SPIN, json!({})).await;
    client.until_status(&task, "working").await;
    client.about("tasks/cancel", &task).await.expect("it is cancelled");
    client.until_status(&task, "cancelled").await;
    let spent = host.cpu_ms_in(Duration::from_millis(500)).await;
    assert!(spent < 250, "{spent} ms of processor time after the loop was cancelled");
}

#[tokio::test]
async fn asynchronous_guest_faults_are_named() {
    let host = allowed("[plugin.call]\ncpu_ms = 200\n").start().await;
    let client = Client::connect(&host).await;
    let fault = async |tool: &str| client.tool(tool, json!({})).await.expect_err("a fault").message;
    let spun = fault(SPIN).await;
    assert!(spun.contains("more than its 200 ms of CPU time"), "{spun}");
    let stalled = fault(STALL).await;
    assert!(stalled.contains("waits for something that nobody will do"), "{stalled}");
    let sum = client.tool(ADD, json!({"a": 2, "b": 3})).await.expect("a result");
    assert_eq!(sum["structuredContent"], json!({"result": 5}), "the next call has an instance of its own");
}

#[tokio::test]
async fn wasi_03_is_refused_until_the_operator_allows_it() {
    let refusal = "wasi = \"0.3\" in its [[plugin]]";
    let host = Setup::with(&["text", "concurrent"]).start().await;
    assert!(host.log().contains("needs WASI 0.3"), "{}", host.log());
    let page = Client::connect(&host).await.call("tools/list", json!({})).await.expect("a list");
    let tools = page["tools"].as_array().expect("tools");
    assert!(tools.iter().all(|tool| tool["name"] != ADD), "{page}");

    let file = place::component("concurrent").display().to_string();
    for subcommand in ["inspect", "check"] {
        let output = command::output(&mut command::bulkhead(), &["plugin", subcommand, &file], None).await;
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{subcommand}: {said}");
        assert!(said.contains("it imports wasi:") && said.contains(refusal), "{subcommand}: {said}");
    }
    let setup = Setup::new();
    let config = setup.path("allowed.toml");
    std::fs::write(&config, format!("[[plugin]]\nfile = {file:?}\nwasi = \"0.3\"\n")).expect("it is written");
    let config = config.display().to_string();
    let inspect = ["plugin", "inspect", &file, "--json", "--config", &config];
    let output = command::output(&mut command::bulkhead(), &inspect, None).await;
    let inspected: Value = serde_json::from_slice(&output.stdout).expect("a JSON value");
    assert!(inspected["tools"].as_array().is_some_and(|tools| tools.len() == 11), "{inspected}");
}
