//! Commands and web services whose authors never heard of this host: each is a tool.

use serde_json::{Value, json};
use tests::client::{Client, text};
use tests::modern::Modern;
use tests::{Setup, command, place};

fn names(page: &Value) -> Vec<&str> {
    page["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect()
}

#[tokio::test]
async fn command_is_listed_and_run_over_http() {
    let grants = "prefix = \"my-\"\n[plugin.grants]\nenv = [\"COLOUR\"]\n";
    let host = Setup::new().plugin_as("words", "foreign_command", grants).env("COLOUR", "teal").start().await;
    let legacy = Client::connect(&host).await;
    let modern = Modern::full(&host, None);
    let page = legacy.call("tools/list", json!({})).await.expect("a list");
    assert_eq!(names(&page), ["my-words"]);
    let properties = &page["tools"][0]["inputSchema"]["properties"];
    assert_eq!((&properties["args"]["type"], &properties["stdin"]["type"]), (&json!("array"), &json!("string")));
    let count = json!({"args": ["count"], "stdin": "one two\nthree\n"});
    for result in
        [legacy.tool("my-words", count.clone()).await.expect("a result"), modern.tool("my-words", count.clone()).await]
    {
        assert_eq!((text(&result), result["isError"] == true), ("2 lines, 3 words, 0 arguments\n", false), "{result}");
    }
    let json_out = json!({"args": ["count", "--json"], "stdin": "a b"});
    let result = legacy.tool("my-words", json_out).await.expect("a result");
    let expected = json!({"program": "words", "lines": 1, "words": 2});
    assert_eq!(result["structuredContent"], expected);
    assert_eq!(serde_json::from_str::<Value>(text(&result)).expect("the same as text"), expected);
    let result = legacy.tool("my-words", json!({"args": ["env", "COLOUR"]})).await.expect("a result");
    assert_eq!(text(&result), "teal\n");
    let result = legacy.tool("my-words", json!({"args": ["exit", "1"]})).await.expect("a result");
    assert_eq!(result["isError"], true);
    assert!(text(&result).contains("exit code 1") && text(&result).contains("it ends with 1"), "{result}");
    let result = legacy.tool("my-words", json!({"args": "count"})).await.expect("a result");
    assert!(result["isError"] == true && text(&result).contains("/args"), "{result}");

    let task = legacy.task("my-words", count).await;
    legacy.until_status(&task, "completed").await;
    let result = legacy.about("tasks/result", &task).await.expect("a result");
    assert_eq!(text(&result), "2 lines, 3 words, 0 arguments\n");
}

#[tokio::test]
async fn service_answers_requests_over_http() {
    let host = Setup::new().plugin_as("shop", "foreign_service", "").start().await;
    let legacy = Client::connect(&host).await;
    let modern = Modern::full(&host, None);
    let page = legacy.call("tools/list", json!({})).await.expect("a list");
    assert_eq!(names(&page), ["request"]);
    let request = json!({"method": "POST", "path": "/echo", "body": "hello", "headers": {"x-colour": "blue"}});
    for result in
        [legacy.tool("request", request.clone()).await.expect("a result"), modern.tool("request", request).await]
    {
        let response = &result["structuredContent"];
        assert_eq!((&response["status"], &response["body_encoding"]), (&json!(200), &json!("text")), "{result}");
        assert_eq!(response["body"], "POST /echo for localhost, colour blue, 5 bytes announced: hello");
    }
    let result = legacy.tool("request", json!({"path": "/nowhere"})).await.expect("a result");
    assert_eq!((&result["isError"] != true, &result["structuredContent"]["status"]), (true, &json!(404)), "{result}");
    let result = legacy.tool("request", json!({"path": "/error"})).await.expect("a result");
    assert!(result["isError"] == true && text(&result).contains("out of ink"), "{result}");
    let failure = legacy.tool("request", json!({"path": "/trap"})).await.expect_err("it traps behind its headers");
    assert!(failure.message.contains("crashed"), "{failure:?}");
}

#[tokio::test]
async fn programs_are_inspected_checked_and_called_from_command_line() {
    let file = place::component("foreign_command").display().to_string();
    let said = command::run(&mut command::bulkhead(), &["plugin", "inspect", &file, "--json"], None).await;
    let shown: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((names(&shown), &shown["typed"]), (vec!["foreign_command"], &json!(true)), "{shown}");
    let said = command::run(&mut command::bulkhead(), &["plugin", "check", &file], None).await;
    assert!(said.contains("a host takes it: 1 tools"), "{said}");
    let call = ["plugin", "call", &file, "foreign_command", r#"{"args": ["count"], "stdin": "a b"}"#];
    assert_eq!(command::run(&mut command::bulkhead(), &call, None).await.trim(), "1 lines, 2 words, 0 arguments");
    let call = ["plugin", "call", &file, "foreign_command", r#"{"args": ["exit", "1"]}"#];
    assert_eq!(command::output(&mut command::bulkhead(), &call, None).await.status.code(), Some(1));
    let file = place::component("foreign_service").display().to_string();
    let call = ["plugin", "call", &file, "request", r#"{"path": "/image"}"#, "--json"];
    let said = command::run(&mut command::bulkhead(), &call, None).await;
    let result: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(result["structuredContent"]["body_encoding"], "base64", "{result}");
}
