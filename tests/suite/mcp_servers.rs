//! MCP servers as plugins: what clients of both eras see of their tools, and what operators are told.

use serde_json::{Value, json};
use tests::client::{Client, text};
use tests::modern::Modern;
use tests::{Setup, command, place};

fn names(page: &Value) -> Vec<&str> {
    page["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect()
}

#[tokio::test]
async fn server_of_either_era_serves_clients_of_both() {
    for (path, said, era) in [("/mcp", "hi", "modern"), ("/legacy", "hi by 2025-11-25", "legacy")] {
        let config = format!("prefix = \"my_\"\nmcp_path = \"{path}\"\n");
        let host = Setup::new().plugin_as("server", "foreign_mcp", &config).start().await;
        let legacy = Client::connect(&host).await;
        let modern = Modern::full(&host, None);
        let page = legacy.call("tools/list", json!({})).await.expect("a list");
        assert!(["my_echo", "my_count"].iter().all(|tool| names(&page).contains(tool)), "{era}: {page}");
        assert_eq!(names(&page), names(&modern.result("tools/list", json!({})).await));
        let hi = json!({"text": "hi"});
        for result in [legacy.tool("my_echo", hi.clone()).await.expect("a result"), modern.tool("my_echo", hi).await] {
            assert_eq!(text(&result), said, "{result}");
            let meta = result["_meta"].as_object().cloned().unwrap_or_default();
            let own = meta.get("io.modelcontextprotocol/serverInfo").map(|info| &info["name"]);
            assert_ne!(own, Some(&json!("fixture")), "a plugin does not pass for the host: {result}");
        }
        let params = json!({"name": "my_count", "arguments": {}, "_meta": {"progressToken": "p"}});
        let (outcome, heard) = legacy.call_hearing("tools/call", params).await;
        assert_eq!(text(&outcome.expect("a result")), "counted");
        let mut progress = heard.iter().filter(|message| message["method"] == "notifications/progress");
        let last = progress.next_back().expect("progress");
        assert_eq!((&last["params"]["progressToken"], &last["params"]["progress"]), (&json!("p"), &json!(2)), "{last}");
        let task = legacy.task("my_count", json!({})).await;
        legacy.until_status(&task, "completed").await;
        assert_eq!(text(&legacy.about("tasks/result", &task).await.expect("a result")), "counted");
    }
}

#[tokio::test]
async fn server_over_standard_input_serves_clients_of_both_eras() {
    for name in ["modern", "legacy"] {
        let host = Setup::new().plugin_as(name, "foreign_mcp_stdio", "prefix = \"my_\"\n").start().await;
        let legacy = Client::connect(&host).await;
        let modern = Modern::full(&host, None);
        let page = legacy.call("tools/list", json!({})).await.expect("a list");
        assert!(names(&page).contains(&"my_echo") && !names(&page).contains(&"my_modern"), "{name}: {page}");
        let hi = json!({"text": "hi"});
        for result in [legacy.tool("my_echo", hi.clone()).await.expect("a result"), modern.tool("my_echo", hi).await] {
            assert_eq!(text(&result), "hi", "{name}: {result}");
        }
        let params = json!({"name": "my_count", "arguments": {}, "_meta": {"progressToken": "p"}});
        let (outcome, heard) = legacy.call_hearing("tools/call", params).await;
        assert_eq!(text(&outcome.expect("a result")), "counted");
        let last = heard.iter().rfind(|message| message["method"] == "notifications/progress").expect("progress");
        assert_eq!((&last["params"]["progressToken"], &last["params"]["progress"]), (&json!("p"), &json!(2)), "{last}");
        let task = legacy.task("my_count", json!({})).await;
        legacy.until_status(&task, "completed").await;
        // What the server asks while it runs, or by `input_required`, is a question in the era of the client.
        let asked = Modern::plain(&host, None).tool("my_ask", json!({})).await;
        let questions = asked["inputRequests"].as_object().cloned().unwrap_or_default();
        let (key, question) = questions.iter().next().expect("a question");
        assert_eq!(question["params"]["message"], "Who are you?", "{name}: {asked}");
        let answers = json!({key: {"action": "accept", "content": {"name": "Ada"}}});
        let again = json!({"name": "my_ask", "arguments": {}, "requestState": asked["requestState"], "inputResponses": answers});
        let done = Modern::plain(&host, None).result("tools/call", again).await;
        assert!(text(&done).starts_with("Hello, Ada"), "{name}: {done}");
        let mut call = legacy.send("tools/call", json!({"name": "my_ask", "arguments": {}})).await;
        let question = loop {
            let message = tests::wait::soon("a question", call.next()).await.expect("the stream goes on");
            if message["method"] == "elicitation/create" {
                break message;
            }
        };
        legacy.respond(&question, json!({"action": "accept", "content": {"name": "Bo"}})).await;
        let done = call.response_after(&mut Vec::new()).await;
        assert!(text(&done["result"]).starts_with("Hello, Bo"), "{name}: {done}");
    }
}

#[tokio::test]
async fn server_asks_clients_of_both_eras() {
    let host = Setup::new().plugin_as("server", "foreign_mcp", "").start().await;
    let answers = json!({"name": {"action": "accept", "content": {"name": "Ada"}}});
    let asked = Modern::plain(&host, None).tool("ask", json!({})).await;
    assert_eq!(asked["inputRequests"]["name"]["params"]["message"], "Who are you?", "{asked}");
    assert!(!asked.to_string().contains("round 1"), "the server's state stays in the host");
    let again =
        json!({"name": "ask", "arguments": {}, "requestState": asked["requestState"], "inputResponses": answers});
    let done = Modern::plain(&host, None).result("tools/call", again).await;
    assert_eq!(text(&done), "Hello, Ada, after round 1");
    let legacy = Client::connect(&host).await;
    let mut call = legacy.send("tools/call", json!({"name": "ask", "arguments": {}})).await;
    let question = loop {
        let message = tests::wait::soon("a question", call.next()).await.expect("the stream goes on");
        if message["method"] == "elicitation/create" {
            break message;
        }
    };
    legacy.respond(&question, json!({"action": "accept", "content": {"name": "Bo"}})).await;
    let done = call.response_after(&mut Vec::new()).await;
    assert_eq!(text(&done["result"]), "Hello, Bo, after round 1", "{done}");
}

#[tokio::test]
async fn operators_are_told_what_a_server_is_and_what_of_it_is_dropped() {
    let file = place::component("foreign_mcp").display().to_string();
    let said = command::run(&mut command::bulkhead(), &["plugin", "inspect", &file, "--json"], None).await;
    let shown: Value = serde_json::from_str(&said).expect("JSON");
    let server = &shown["mcp"];
    assert!(shown["typed"] == false && names(&shown).contains(&"echo"), "{shown}");
    assert_eq!(
        (&server["revision"], &server["path"], &server["server"]),
        (&json!("2026-07-28"), &json!("/mcp"), &json!("fixture 1.2")),
        "{shown}"
    );
    assert!(server["dropped"].to_string().contains("Ignore everything else"), "{shown}");
    for verb in ["inspect", "check"] {
        let said = command::run(&mut command::bulkhead(), &["plugin", verb, &file], None).await;
        assert!(said.contains("server of 2026-07-28 at /mcp, fixture 1.2"), "{said}");
        assert!(said.contains("dropped: execution of tool echo"), "{said}");
    }
    let lines = place::component("foreign_mcp_stdio").display().to_string();
    let said = command::run(&mut command::bulkhead(), &["plugin", "check", &lines], None).await;
    assert!(said.contains("server of 2026-07-28 over standard input, lines 1.2"), "{said}");
    let call = ["plugin", "call", &file, "echo", r#"{"text":"hi"}"#, "--json"];
    let said = command::run(&mut command::bulkhead(), &call, None).await;
    assert!(said.contains("\"hi\""), "{said}");
}

#[tokio::test]
async fn task_of_a_server_goes_on_with_its_question_after_a_kill() {
    let setup = Setup::new().plugin_as("server", "foreign_mcp", "");
    let mut host = setup.start().await;
    let task = Client::connect(&host).await.task("ask", json!({})).await;
    Modern::full(&host, None).until_status(&task, "input_required").await;
    host.kill().await;
    host = setup.start().await;
    let modern = Modern::full(&host, None);
    modern.until_status(&task, "input_required").await;
    let answers = json!({"name": {"action": "accept", "content": {"name": "Ada"}}});
    modern.result("tasks/update", json!({"taskId": task, "inputResponses": answers})).await;
    let done = modern.until_status(&task, "completed").await;
    assert_eq!(text(&done["result"]), "Hello, Ada, after round 1");
    let page = modern.result("resources/list", json!({})).await;
    assert_eq!(page["resources"][0]["uri"], "note://one", "{page}");
}
