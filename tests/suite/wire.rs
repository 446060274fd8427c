//! What every method says: JSON in, JSON out, codes and statuses of revision 2025-11-25.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::client::{Client, Failure, RELATED_TASK, all_capabilities, text};
use tests::{Host, Setup};

async fn host() -> Host {
    Setup::with(&["text", "primes", "desk"]).start().await
}

fn names(page: &Value) -> Vec<&str> {
    page["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect()
}

#[tokio::test]
async fn initialize_offers_tools_logging_and_tasks() {
    let host = host().await;
    let client = Client::connect(&host).await;
    assert_eq!(client.server["protocolVersion"], "2025-11-25");
    assert_eq!(
        client.server["capabilities"]["tasks"],
        json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}})
    );
    assert_eq!(client.server["capabilities"]["tools"], json!({"listChanged": true}));
    assert_eq!(client.server["capabilities"]["logging"], json!({}));
    assert_eq!(client.server["serverInfo"]["name"], "bulkhead");
    assert!(client.server["capabilities"].get("resources").is_none(), "nothing is offered that is not there");
}

#[tokio::test]
async fn protocol_versions_are_negotiated() {
    let host = host().await;
    for (asked, answered, tasks) in [
        ("2025-11-25", "2025-11-25", true),
        ("2025-06-18", "2025-06-18", false),
        ("2025-03-26", "2025-03-26", false),
        ("1999-01-01", "2025-11-25", true),
    ] {
        let mut client = Client::new(&host.url, None);
        client.version = asked.to_owned();
        // The header comes with the second request; the first one only says what it would like.
        let params = json!({"protocolVersion": asked, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        let request = client
            .request(Method::POST)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        let mut request = request.body(message.to_string()).build().expect("a request");
        request.headers_mut().remove("mcp-protocol-version");
        let reply = reqwest::Client::new().execute(request).await.expect("a reply");
        let reply: Value = reply.json().await.expect("JSON");
        assert_eq!(reply["result"]["protocolVersion"], answered, "asked for {asked}");
        assert_eq!(reply["result"]["capabilities"].get("tasks").is_some(), tasks, "asked for {asked}: {reply}");
    }
}

#[tokio::test]
async fn an_older_revision_ignores_the_task_parameter() {
    let host = host().await;
    let mut client = Client::new(&host.url, None);
    client.version = "2025-06-18".to_owned();
    client.initialize(json!({})).await;
    let params = json!({"name": "count_primes", "arguments": {"below": 100}, "task": {"ttl": 1000}});
    let result = client.call("tools/call", params).await.expect("a plain result");
    assert_eq!(result["structuredContent"]["count"], 25);
    let refused = client.call("tasks/cancel", json!({"taskId": "a"})).await.expect_err("tasks came later");
    assert_eq!(refused.code, -32601);
}

#[tokio::test]
async fn ping_is_answered_with_empty_result() {
    let host = host().await;
    let client = Client::connect(&host).await;
    assert_eq!(client.call("ping", json!({})).await, Ok(json!({})));
    let reply = client.post(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#, None).await;
    assert_eq!((reply.status, reply.text.as_str()), (StatusCode::OK, r#"{"jsonrpc":"2.0","id":"p","result":{}}"#));
}

#[tokio::test]
async fn tools_list_is_ordered_with_schemas() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let page = client.call("tools/list", json!({})).await.expect("a list");
    assert_eq!(names(&page), ["book_trip", "count_primes", "diff", "echo", "summarize", "wait", "word_count"]);
    assert!(page.get("nextCursor").is_none());
    assert_eq!(client.call("tools/list", json!({})).await.expect("a list"), page, "the order does not change");
    let tool = |name: &str| page["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap();
    assert_eq!(tool("count_primes")["execution"]["taskSupport"], "optional");
    assert_eq!(tool("count_primes")["annotations"]["idempotentHint"], true);
    assert_ne!(tool("echo")["execution"]["taskSupport"], "optional");
    for tool in page["tools"].as_array().unwrap() {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert!(!tool["description"].as_str().unwrap_or_default().is_empty(), "{tool}");
    }
}

#[tokio::test]
async fn a_forged_cursor_is_refused() {
    let host = host().await;
    let client = Client::connect(&host).await;
    for method in ["tools/list", "tasks/list"] {
        for cursor in [json!("AAAA"), json!("nonsense"), json!(7)] {
            let refused = client.call(method, json!({"cursor": cursor})).await.expect_err("a forged cursor");
            assert_eq!(refused.code, -32602, "{method} {cursor}");
        }
    }
}

#[tokio::test]
async fn plain_call_answer_is_one_json_object() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let mut reply = client.send("tools/call", json!({"name": "echo", "arguments": {"text": "hällo \u{1F6A2}"}})).await;
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(reply.headers["content-type"], "application/json");
    let message = reply.next().await.expect("a message");
    assert_eq!(text(&message["result"]), "hällo \u{1F6A2}");
    assert!(message["result"]["_meta"].get(RELATED_TASK).is_none(), "no task is behind a plain call");
}

#[tokio::test]
async fn structured_content_comes_with_equal_text() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let result = client.tool("word_count", json!({"text": "a b\nc"})).await.expect("a result");
    assert_eq!(result["structuredContent"], json!({"lines": 2, "words": 3, "characters": 5, "bytes": 5}));
    let said: Value = serde_json::from_str(text(&result)).expect("the text is the same JSON");
    assert_eq!(said, result["structuredContent"]);
}

#[tokio::test]
async fn wrong_arguments_are_a_tool_error_naming_the_field() {
    let host = host().await;
    let client = Client::connect(&host).await;
    for (arguments, field) in [(json!({"text": 7}), "text"), (json!({}), "text")] {
        let result = client.tool("echo", arguments.clone()).await.expect("a result, not an error");
        assert_eq!(result["isError"], true, "{arguments}");
        assert!(text(&result).contains(field), "{arguments}: {result}");
    }
    let result = client.tool("count_primes", json!({"below": -1})).await.expect("a result, not an error");
    assert!(result["isError"] == true && text(&result).contains("below"), "{result}");
}

#[tokio::test]
async fn unservable_requests_have_their_error_codes() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let rows = [
        ("tools/call", json!({"name": "nothing", "arguments": {}}), -32602),
        ("tools/call", json!({"arguments": {}}), -32602),
        ("tools/call", json!({"name": 7}), -32602),
        ("tools/call", json!({"name": "echo", "arguments": []}), -32602),
        ("tools/call", json!({"name": "echo", "arguments": {"text": "x"}, "task": {}}), -32601),
        ("tools/call", json!({"name": "count_primes", "arguments": {"below": 9}, "task": {"ttl": "long"}}), -32602),
        ("tools/call", json!({"name": "count_primes", "arguments": {"below": 9}, "task": {"ttl": -1}}), -32602),
        ("logging/setLevel", json!({"level": "loud"}), -32602),
        ("logging/setLevel", json!({}), -32602),
        ("tasks/get", json!({}), -32602),
        ("tasks/get", json!({"taskId": 7}), -32602),
        ("tasks/get", json!({"taskId": "0".repeat(32)}), -32602),
        ("tasks/get", json!({"taskId": "../../etc"}), -32602),
        ("resources/list", json!({}), -32601),
        ("prompts/list", json!({}), -32601),
        ("tools/remove", json!({}), -32601),
        ("", json!({}), -32601),
    ];
    for (method, params, code) in rows {
        let refused = client.call(method, params.clone()).await.expect_err("it cannot be served");
        assert_eq!(refused.code, code, "{method} {params}: {}", refused.message);
    }
    assert!(client.call("ping", json!({})).await.is_ok());
}

#[tokio::test]
async fn unknown_members_of_params_are_ignored() {
    let host = host().await;
    let client = Client::connect(&host).await;
    assert!(client.call("tasks/list", json!({"limit": 5})).await.is_ok());
    let params = json!({"name": "echo", "arguments": {"text": "x"}, "later": 1, "_meta": {"com.example/a": []}});
    assert_eq!(text(&client.call("tools/call", params).await.expect("a result")), "x");
}

#[tokio::test]
async fn all_log_levels_are_accepted() {
    let host = host().await;
    let client = Client::connect(&host).await;
    for level in ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"] {
        assert_eq!(client.call("logging/setLevel", json!({"level": level})).await, Ok(json!({})), "{level}");
    }
}

#[tokio::test]
async fn progress_notifications_grow_before_the_result() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let params = json!({"name": "wait", "arguments": {"ms": 600}, "_meta": {"progressToken": "tok"}});
    let (result, heard) = client.call_hearing("tools/call", params).await;
    assert_eq!(result.expect("a result")["structuredContent"]["waited_ms"], 600);
    let progress: Vec<f64> = heard
        .iter()
        .filter(|message| message["method"] == "notifications/progress")
        .map(|message| {
            assert_eq!(message["params"]["progressToken"], "tok");
            message["params"]["progress"].as_f64().expect("a number")
        })
        .collect();
    assert!(progress.len() >= 2, "{heard:?}");
    assert!(progress.is_sorted_by(|a, b| a < b), "progress grows strictly: {progress:?}");
}

#[tokio::test]
async fn no_progress_notification_without_progress_token() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let (result, heard) = client.call_hearing("tools/call", json!({"name": "wait", "arguments": {"ms": 300}})).await;
    result.expect("a result");
    assert_eq!(heard, Vec::<Value>::new());
}

#[tokio::test]
async fn a_cancelled_call_is_not_answered() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let body = json!({"jsonrpc": "2.0", "id": "c1", "method": "tools/call",
        "params": {"name": "wait", "arguments": {"ms": 600_000}, "_meta": {"progressToken": 1}}});
    let mut reply = client.post(body.to_string(), None).await;
    assert!(reply.is_stream());
    assert_eq!(reply.next().await.expect("progress")["method"], "notifications/progress");
    client.notify("notifications/cancelled", json!({"requestId": "c1", "reason": "enough"})).await;
    tests::wait::soon("the stream to end", async {
        while let Some(message) = reply.next().await {
            assert_eq!(message["method"], "notifications/progress", "a cancelled request is not answered: {message}");
        }
    })
    .await;
    // Unknown and malformed ones are ignored.
    client.notify("notifications/cancelled", json!({"requestId": "nobody"})).await;
    client.notify("notifications/cancelled", json!({})).await;
    client.notify("notifications/of/nothing", json!({})).await;
}

#[tokio::test]
async fn plain_elicitation_and_sampling_go_to_the_caller() {
    let host = host().await;
    let client = Client::connect(&host).await;
    let params = json!({"name": "summarize", "arguments": {"text": "long words"}});
    let mut reply = client.send("tools/call", params).await;
    let asked = reply.next().await.expect("a question");
    assert_eq!(asked["method"], "sampling/createMessage", "{asked}");
    assert!(asked["params"]["_meta"].get(RELATED_TASK).is_none(), "no task is behind a plain call");
    assert_eq!(asked["params"]["messages"][0]["content"]["text"], "long words");
    client
        .respond(&asked, json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "short"}}))
        .await;
    let message = reply.response_after(&mut Vec::new()).await;
    assert_eq!(text(&message["result"]), "short");
}

#[tokio::test]
async fn undeclared_input_request_is_not_sent_and_reported() {
    let host = host().await;
    let client = Client::connect_as(&host, None, json!({})).await;
    let (outcome, heard) = client.call_hearing("tools/call", json!({"name": "book_trip", "arguments": {}})).await;
    assert_eq!(heard, Vec::<Value>::new(), "nothing is asked that was not declared");
    match outcome {
        Ok(result) => assert_eq!(result["isError"], true, "{result}"),
        Err(Failure { code, message, .. }) => assert!(message.contains("elicitation"), "{code} {message}"),
    }
}

#[tokio::test]
async fn requests_before_initialize_are_refused() {
    let host = host().await;
    let client = Client::new(&host.url, None);
    let reply = client.post(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#, None).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{}", reply.text);
    // A client that lost its session must not take an answer for one.
    let reply = client.post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, None).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{}", reply.text);
    let refused: Value = serde_json::from_str(&reply.text).expect("JSON");
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(1), &json!(-32600)), "{refused}");
}

#[tokio::test]
async fn a_session_ends_with_delete() {
    let host = host().await;
    let client = Client::connect_as(&host, None, all_capabilities()).await;
    let reply = client.exchange(client.request(Method::DELETE)).await;
    assert!(reply.status.is_success(), "{} {}", reply.status, reply.text);
    let reply = client.post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, None).await;
    assert_eq!(reply.status, StatusCode::NOT_FOUND);
}
