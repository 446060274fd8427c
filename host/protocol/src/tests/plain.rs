use super::*;

#[tokio::test]
async fn initialize_negotiates_the_protocol_version() {
    let world = world();
    let mut answers = Transcript::default();
    for version in ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "2026-07-28"] {
        let hello = json!({"jsonrpc": "2.0", "id": "h", "method": "initialize", "params": {"protocolVersion": version,
            "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}});
        let received = world.receive(Peer::unheralded(ANNA, None), &hello.to_string()).await;
        let Received::Opened { session, reply } = received else { panic!("not opened") };
        let reply: Value = serde_json::from_str(&reply).unwrap();
        assert_eq!(reply["result"]["protocolVersion"], session.protocol_version());
        answers.note(version, &reply);
    }
    answers.expect(&expect![[r#"
        2025-11-25, 2024-11-05, 2026-07-28: {"jsonrpc":"2.0","id":"h","result":{"protocolVersion":"2025-11-25","capabilities":{"logging":{},"tools":{"listChanged":true},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}},"experimental":{"modelcontextprotocol.io/task":{"list":{},"delete":{},"requests":{"ping":{},"logging":{"setLevel":{}},"tools":{"list":{},"call":{}}}},"dev.bulkhead/task-interaction":{"steer":true,"pause":true}}},"serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
        2025-06-18: {"jsonrpc":"2.0","id":"h","result":{"protocolVersion":"2025-06-18","capabilities":{"logging":{},"tools":{"listChanged":true},"experimental":{"modelcontextprotocol.io/task":{"list":{},"delete":{},"requests":{"ping":{},"logging":{"setLevel":{}},"tools":{"list":{},"call":{}}}}}},"serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
        2025-03-26: {"jsonrpc":"2.0","id":"h","result":{"protocolVersion":"2025-03-26","capabilities":{"logging":{},"tools":{"listChanged":true},"experimental":{"modelcontextprotocol.io/task":{"list":{},"delete":{},"requests":{"ping":{},"logging":{"setLevel":{}},"tools":{"list":{},"call":{}}}}}},"serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
    "#]]);
}

#[tokio::test]
async fn legacy_methods_are_known_and_others_unknown() {
    let world = world_offering();
    let experiment = json!({"experimental": {"dev.bulkhead/task-interaction": {"steer": true, "pause": true}}});
    let anna = world.client(ANNA, "2025-11-25", experiment).await;
    for method in method_names(Era::Legacy) {
        let response = anna.ask(method, json!({"taskId": "x", "name": "x", "level": "x", "cursor": "x"})).await;
        if method == "initialize" {
            assert_eq!(response["error"]["code"], -32600);
        } else {
            assert_ne!(response["error"]["code"], -32601, "{method}");
        }
    }
    for method in ["tools/steer", "resources/steer", "notifications/initialized", ""] {
        assert_eq!(anna.error(method, json!({})).await["code"], -32601);
    }
}

#[tokio::test]
async fn legacy_requests_need_an_own_session() {
    let world = world();
    let anna = world.anna().await;
    const PING: &str = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
    let list = r#"{"jsonrpc":"2.0","id":5,"method":"tools/list"}"#;
    for peer in [Peer::unheralded(ANNA, None), Peer::unheralded(BOB, Some(anna.session.clone()))] {
        let received = world.receive(peer.clone(), list).await;
        let Received::Rejected { rejection: Rejection::SessionRequired, body } = received else { panic!("taken") };
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["id"], 5);
        let told = world.receive(peer.clone(), r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        assert!(matches!(told, Received::Rejected { .. }));
        let ping = world.receive(peer.clone(), PING).await;
        assert!(matches!(ping, Received::Rejected { rejection: Rejection::SessionRequired, .. }), "a session is lost");
        // A pipe is there before its handshake.
        let piped = Peer { connection: Some(Arc::default()), ..peer };
        let Received::Exchange(mut pong) = world.receive(piped, PING).await else { panic!("no pong") };
        assert_eq!(pong.next().await.unwrap().message.text(), r#"{"jsonrpc":"2.0","id":"p","result":{}}"#);
    }
}

#[tokio::test]
async fn malformed_messages_are_rejected() {
    let world = world();
    let anna = world.anna().await;
    for (message, code, id) in [
        ("{", -32700, Value::Null),
        ("[]", -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600, Value::Null),
    ] {
        let Received::Rejected { rejection: Rejection::Malformed, body } = world.receive(anna.peer(), message).await
        else {
            panic!("{message} was taken")
        };
        let body: Value = serde_json::from_str(&body).unwrap();
        official::check("2025-11-25", "", &body);
        assert_eq!((&body["error"]["code"], &body["id"]), (&json!(code), &id), "{message}");
    }
}

#[tokio::test]
async fn legacy_tools_list_is_paged_per_requestor() {
    let world = world();
    world.protocol.set_tool_listing(ToolListing { per_page: 50, ..ToolListing::default() });
    let anna = world.anna().await;
    let bob = world.client(BOB, "2025-11-25", json!({})).await;
    let mut names = Vec::new();
    let mut params = json!({});
    let mut pages = 0;
    loop {
        let page = anna.result("tools/list", params.clone()).await;
        assert_eq!(page, anna.result("tools/list", params).await);
        names.extend(page["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
        pages += 1;
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        for bad in [cursor, "", "x"] {
            assert_eq!(bob.error("tools/list", json!({"cursor": bad})).await["code"], -32602);
        }
        assert_eq!(anna.error("tasks/list", json!({"cursor": cursor})).await["code"], -32602);
        params = json!({"cursor": cursor, "limit": 3});
    }
    assert_eq!((pages, names.len()), (3, world.tasks.catalog(&ANNA).tools().len()));
    assert!(names.is_sorted());
}

#[tokio::test]
async fn tool_listing_follows_the_session_revision() {
    let world = world();
    let find = |list: &Value, name: &str| list["tools"].as_array().unwrap().iter().find(|t| t["name"] == name).cloned();
    let list = world.anna().await.result("tools/list", json!({})).await;
    let mut echo = json!({"name": "echo", "description": "Plays echo.", "inputSchema": {"type": "object",
        "properties": {"text": {"type": "string"}}, "required": ["text"]}, "execution": {"taskSupport": "forbidden"}});
    assert_eq!(find(&list, "echo").unwrap(), echo);
    assert_eq!(find(&list, "only_task").unwrap()["execution"]["taskSupport"], "required");

    let older = world.client(ANNA, "2025-06-18", json!({})).await;
    let list = older.result("tools/list", json!({})).await;
    echo.as_object_mut().unwrap().remove("execution");
    assert_eq!(find(&list, "echo").unwrap(), echo);
    assert!(find(&list, "only_task").is_none());
    assert_eq!(older.error("tasks/cancel", json!({"taskId": "a"})).await["code"], -32601);
    // There is no such thing as a task of the core here, so the wish for one means nothing.
    let params = json!({"name": "echo", "arguments": {"text": "x"}, "task": {"ttl": 1}});
    assert_eq!(older.result("tools/call", params).await["content"][0]["text"], "x");
}

#[tokio::test]
async fn plain_call_answers_with_tool_output() {
    let world = world();
    let anna = world.anna().await;
    let mut talk = anna.open(9, "tools/call", json!({"name": "echo", "arguments": {"text": "hi\n\u{1F600}"}})).await;
    let expected =
        json!({"jsonrpc": "2.0", "id": 9, "result": {"content": [{"type": "text", "text": "hi\n\u{1F600}"}]}});
    assert_eq!(talk.next().await, expected);
    let structured = anna.result("tools/call", json!({"name": "structured"})).await;
    let expected = json!({"content": [{"type": "text", "text": "{\"a\": 1}"}], "structuredContent": {"a": 1}});
    assert_eq!(structured, expected);
    let fails = anna.result("tools/call", json!({"name": "fails"})).await;
    assert_eq!(fails, json!({"content": [{"type": "text", "text": "no such city"}], "isError": true}));
}

#[tokio::test]
async fn call_failures_have_their_error_codes() {
    let world = world();
    let anna = world.anna().await;
    let call = |name: &str| json!({"name": name});
    assert_eq!(anna.error("tools/call", call("nope")).await, json!({"code": -32602, "message": "Unknown tool: nope"}));
    let faulty = anna.error("tools/call", call("faulty")).await;
    assert_eq!(faulty, json!({"code": 1001, "message": "the tool trapped"}));
    let custom = anna.error("tools/call", call("custom")).await;
    assert_eq!(custom, json!({"code": 77, "message": "no", "data": {"why": 1}}));
    let broken = anna.error("tools/call", call("broken_json")).await;
    assert_eq!((&broken["code"], &broken["message"]), (&json!(-32603), &json!("Internal error")));
    assert_eq!(anna.error("tools/call", call("only_task")).await["code"], -32601);
    assert_eq!(anna.error("tools/call", json!({"name": "echo", "task": {}})).await["code"], -32601);
    for params in [
        json!({}),
        json!({"name": 1}),
        json!({"name": "echo", "arguments": []}),
        json!({"name": "echo", "arguments": {"text": "x"}, "_meta": {"progressToken": 1.5}}),
        json!({"name": "count", "task": {"ttl": "x"}}),
        json!({"name": "count", "task": {"ttl": -1}}),
        json!({"name": "count", "task": 7}),
        json!({"name": "echo", "arguments": {"text": "x".repeat(2 << 20)}}),
    ] {
        assert_eq!(anna.error("tools/call", params.clone()).await["code"], -32602);
    }
    assert_eq!(anna.error("logging/setLevel", json!({"level": "loud"})).await["code"], -32602);
}

#[tokio::test]
async fn invalid_arguments_are_a_tool_error_naming_the_field() {
    let world = world();
    let anna = world.anna().await;
    for (arguments, field) in [
        (json!({"text": 7}), "/text"),
        (json!({}), "the member `text` is missing"),
        (json!({"text": 7, "more": "x".repeat(100_000)}), "/text"),
    ] {
        let result = anna.result("tools/call", json!({"name": "echo", "arguments": arguments})).await;
        assert_eq!(result["isError"], true);
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(field) && text.len() < 1000, "{text}");
    }
    let twice = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"a","text":"b"}}}"#;
    let Received::Exchange(mut exchange) = world.receive(anna.peer(), twice).await else { panic!("rejected") };
    assert!(exchange.next().await.unwrap().message.text().contains("-32602"));
}

#[tokio::test]
async fn call_notifications_come_on_its_stream() {
    let world = world();
    let anna = world.anna().await;
    let mut talk = anna.open(1, "tools/call", json!({"name": "count", "_meta": {"progressToken": 5}})).await;
    let mut seen = Vec::new();
    loop {
        let message = talk.next().await;
        match message["method"].as_str() {
            Some("notifications/progress") => {
                assert_eq!(message["params"]["progressToken"], 5);
                assert!(message["params"]["_meta"].is_null());
                seen.push(message["params"]["progress"].to_string());
            }
            Some("notifications/message") => seen.push(message["params"]["level"].as_str().unwrap().to_owned()),
            _ => break,
        }
    }
    assert_eq!(seen, ["1", "info", "2", "error"]);

    assert_eq!(anna.result("logging/setLevel", json!({"level": "error"})).await, json!({}));
    let mut talk = anna.open(2, "tools/call", json!({"name": "count"})).await;
    assert_eq!(talk.next().await["params"]["level"], "error");
    assert_eq!(talk.next().await["result"]["content"][0]["text"], "counted");
}

#[tokio::test]
async fn a_cancelled_call_gets_no_response() {
    let world = world();
    let anna = world.anna().await;
    let mut talk = anna.open(4, "tools/call", json!({"name": "forever"})).await;
    assert!(talk.is_silent().await);
    assert_eq!(anna.open(4, "tools/call", json!({"name": "forever"})).await.next().await["error"]["code"], -32600);
    let cancel =
        |id: Value| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    anna.tell(cancel(json!("4"))).await;
    anna.tell(cancel(json!(null))).await;
    assert!(talk.is_silent().await);
    anna.tell(cancel(json!(4))).await;
    assert!(talk.exchange.next().await.is_none());
    // The id is over, and free to be cancelled again without effect.
    anna.tell(cancel(json!(4))).await;
}

#[tokio::test]
async fn restored_session_keeps_its_log_level() {
    let world = world();
    let mut anna = world.anna().await;
    anna.result("logging/setLevel", json!({"level": "error"})).await;
    anna.session = Arc::new(Session::restore(anna.session.id(), &anna.session.state()).unwrap());
    let mut talk = anna.open(2, "tools/call", json!({"name": "count"})).await;
    assert_eq!(talk.next().await["params"]["level"], "error");
}

#[tokio::test]
async fn tool_list_change_is_notified_once_per_stream() {
    let world = world();
    let anna = world.anna().await;
    let mut stream = anna.standalone();
    assert!(stream.is_silent().await);
    world.change_lists();
    world.change_lists();
    assert_eq!(stream.next().await, json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
    assert!(stream.is_silent().await);
    drop(stream);
    world.change_lists();
    let mut stream = anna.standalone();
    assert_eq!(stream.next().await["method"], "notifications/tools/list_changed");
    let mut newer = anna.standalone();
    world.change_lists();
    assert_eq!(newer.next().await["method"], "notifications/tools/list_changed");
    assert!(stream.is_silent().await);
}
