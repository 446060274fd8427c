//! What every request must be like, and each way of not being so.

use super::*;

const UNSERVED: Option<Rejection> = Some(Rejection::Unserved);

async fn raw(world: &World, declared: Option<Declared<'static>>, message: &Value) -> (Value, Option<Rejection>) {
    let peer = Peer { declared, ..Peer::unheralded(ANNA, None) };
    match world.receive(peer, &message.to_string()).await {
        Received::Exchange(mut exchange) => {
            let frame = exchange.next().await.unwrap();
            assert!(frame.last && exchange.next().await.is_none());
            (serde_json::from_str(&frame.message.text()).unwrap(), frame.rejection)
        }
        Received::Rejected { rejection, body } => (serde_json::from_str(&body).unwrap(), Some(rejection)),
        Received::Opened { .. } | Received::Accepted | Received::Settling(_) => panic!("neither"),
    }
}

fn code(answer: &(Value, Option<Rejection>)) -> (i64, Option<Rejection>) {
    (answer.0["error"]["code"].as_i64().unwrap_or_else(|| panic!("{}", answer.0)), answer.1.clone())
}

#[tokio::test]
async fn discover_lists_versions_and_capabilities() {
    let world = world();
    let mut answers = Transcript::default();
    let knows = world.plain().with_extension(TASKS, json!({"steer": true}));
    for (name, client) in [("plain", world.plain()), ("knows steer", knows)] {
        answers.note(name, &client.result("server/discover", json!({})).await);
    }
    answers.expect(&expect![[r#"
        plain: {"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26"],"capabilities":{"logging":{},"tools":{"listChanged":true},"extensions":{"io.modelcontextprotocol/tasks":{},"dev.bulkhead/task-interaction":{"steer":true,"pause":true}}},"ttlMs":60000,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
        knows steer: {"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26"],"capabilities":{"logging":{},"tools":{"listChanged":true},"extensions":{"io.modelcontextprotocol/tasks":{"steer":true,"pause":true},"dev.bulkhead/task-interaction":{"steer":true,"pause":true}}},"ttlMs":60000,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bulkhead","version":"0.1.0"}}}
    "#]]);
}

#[tokio::test]
async fn modern_request_without_meta_is_refused_first() {
    let world = world();
    let client = world.plain();
    let declared = || client.declared("tools/list", &json!({}));
    let version = "io.modelcontextprotocol/protocolVersion";
    let capabilities = "io.modelcontextprotocol/clientCapabilities";
    for params in [
        None,
        Some(json!({})),
        Some(json!([])),
        Some(json!({"_meta": null})),
        Some(json!({"_meta": {}})),
        Some(json!({"_meta": {version: "2026-07-28"}})),
        Some(json!({"_meta": {capabilities: {}}})),
        Some(json!({"_meta": {version: 7, capabilities: {}}})),
        Some(json!({"_meta": {version: "2026-07-28", capabilities: []}})),
        Some(json!({"_meta": {version: "2026-07-28", capabilities: {"extensions": {TASKS: true}}}})),
    ] {
        let mut message = json!({"jsonrpc": "2.0", "id": "x", "method": "tools/list"});
        if let Some(params) = &params {
            message["params"] = params.clone();
        }
        let answer = raw(&world, declared(), &message).await;
        assert_eq!(code(&answer), (-32602, UNSERVED), "{params:?}");
        assert_eq!(answer.0["id"], "x");
    }
    // Two methods exist in no other era, and one capability set is enough.
    for method in ["server/discover", "subscriptions/listen"] {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method});
        assert_eq!(code(&raw(&world, None, &message).await), (-32602, UNSERVED));
    }
    let minimal = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list",
        "params": {"_meta": {version: "2026-07-28", capabilities: {}}}});
    assert!(raw(&world, None, &minimal).await.0["result"].is_object());
}

#[tokio::test]
async fn declared_headers_must_match_the_message() {
    let world = world();
    let client = world.tasked();
    let params = json!({"name": "echo", "arguments": {"text": "hi"}});
    let message = client.message(&json!(1), "tools/call", &params);
    let honest = || client.declared("tools/call", &params).unwrap();
    let mut lies = vec![
        Declared::default(),
        Declared { protocol_version: None, ..honest() },
        Declared { protocol_version: Some("2025-11-25".into()), ..honest() },
        Declared { method: None, ..honest() },
        Declared { method: Some("tools/list".into()), ..honest() },
        Declared { method: Some("TOOLS/CALL".into()), ..honest() },
        Declared { name: None, ..honest() },
        Declared { name: Some("Echo".into()), ..honest() },
        Declared { name: Some("=?base64?ZWNobw?=".into()), ..honest() },
        Declared { name: Some("ech\u{fffd}".into()), ..honest() },
    ];
    for lie in lies.drain(..) {
        let answer = raw(&world, Some(lie.clone()), &message).await;
        assert_eq!(code(&answer), (-32020, UNSERVED), "{lie:?}");
    }
    for truth in [honest(), Declared { name: Some(" =?base64?ZWNobw==?= ".into()), ..honest() }] {
        assert!(raw(&world, Some(truth), &message).await.0["result"].is_object());
    }
    assert!(raw(&world, None, &message).await.0["result"].is_object(), "there is nothing to compare with on stdio");

    // Some clients forget it where it is an id; a wrong one is refused.
    let unknown = json!({"taskId": "0".repeat(32)});
    let message = client.message(&json!(1), "tasks/get", &unknown);
    let forgotten = Declared { name: None, ..client.declared("tasks/get", &unknown).unwrap() };
    assert_eq!(code(&raw(&world, Some(forgotten), &message).await), (-32602, None));
    let wrong = Declared { name: Some("1".repeat(32).into()), ..client.declared("tasks/get", &unknown).unwrap() };
    assert_eq!(code(&raw(&world, Some(wrong), &message).await), (-32020, UNSERVED));
}

#[tokio::test]
async fn declared_header_arguments_are_compared() {
    let world = world();
    let client = world.plain();
    let params = json!({"name": "headers", "arguments": {"region": "eu"}});
    assert_eq!(client.result("tools/call", params.clone()).await["resultType"], "complete");
    let message = client.message(&json!(1), "tools/call", &params);
    for lie in [vec![], vec![("Region".into(), "us".into())]] {
        let declared = Declared { params: lie, ..client.declared("tools/call", &params).unwrap() };
        assert_eq!(code(&raw(&world, Some(declared), &message).await), (-32020, UNSERVED));
    }
    assert_eq!(world.started(), 1);
}

#[tokio::test]
async fn unknown_protocol_version_is_refused_with_supported_ones() {
    let world = world();
    for version in ["1900-01-01", "2025-11-25", "2099-01-01", "x"] {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "nonsense", "params": {"_meta": {
            "io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientCapabilities": {}}}});
        let declared =
            Declared { protocol_version: Some(version.into()), method: Some("nonsense".into()), ..Declared::default() };
        let answer = raw(&world, Some(declared), &message).await;
        assert_eq!(code(&answer), (-32022, UNSERVED));
        let expected =
            json!({"supported": ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"], "requested": version});
        assert_eq!(answer.0["error"]["data"], expected);
        // What stands beside the message comes first.
        let answer = raw(&world, Some(Declared::default()), &message).await;
        assert_eq!(code(&answer), (-32020, UNSERVED));
    }
}

#[tokio::test]
async fn legacy_methods_are_unknown_in_modern_era() {
    let world = world();
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/result",
        "tasks/list",
        "nonsense",
    ] {
        let refused = world.tasked().refusal(method, json!({"taskId": "x"})).await;
        assert_eq!(refused, (-32601, Some(Rejection::UnknownMethod)), "{method}");
    }
}

#[tokio::test]
async fn protocol_version_header_selects_the_modern_era() {
    let world = world();
    let declared =
        |version: &'static str| Some(Declared { protocol_version: Some(version.into()), ..Declared::default() });
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(code(&raw(&world, declared("2026-07-28"), &ping).await), (-32602, UNSERVED));
    assert_eq!(code(&raw(&world, declared("2027-01-01"), &ping).await), (-32602, UNSERVED));
    let rejection = raw(&world, declared("2025-11-25"), &ping).await.1;
    assert_eq!(rejection, Some(Rejection::SessionRequired), "an older revision, whose requests need a session");
    assert_eq!(code(&raw(&world, declared("bogus"), &ping).await), (-32022, Some(Rejection::Malformed)));
    let response = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
    assert_eq!(code(&raw(&world, declared("2026-07-28"), &response).await), (-32600, Some(Rejection::Malformed)));
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2026-07-28",
        "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}});
    let peer = Peer::unheralded(ANNA, None);
    let Received::Opened { reply, .. } = world.receive(peer, &hello.to_string()).await else { panic!("not opened") };
    assert!(reply.contains("2025-11-25"), "a handshake settles on a revision that has one");
}

#[tokio::test]
async fn task_methods_need_their_client_capability() {
    let world = world();
    let task = json!({"taskId": "0".repeat(32), "inputResponses": {}, "message": "m"});
    for method in method_names(Era::Modern).filter(|method| method.starts_with("tasks/")) {
        let (response, rejection) = world.plain().open(method, task.clone()).await.last().await;
        assert_eq!((&response["error"]["code"], rejection), (&json!(-32021), UNSERVED), "{method}");
        let required = match method {
            "tasks/steer" => json!({"dev.bulkhead/task-interaction": {"steer": true}}),
            "tasks/pause" | "tasks/resume" => json!({"dev.bulkhead/task-interaction": {"pause": true}}),
            _ => json!({TASKS: {}}),
        };
        assert_eq!(response["error"]["data"], json!({"requiredCapabilities": {"extensions": required}}));
    }
    for method in ["tasks/steer", "tasks/pause", "tasks/resume"] {
        assert_eq!(world.tasked().refusal(method, task.clone()).await, (-32021, UNSERVED));
        for place in [TASKS, "dev.bulkhead/task-interaction"] {
            let knows = world.tasked().with_extension(place, json!({"steer": true, "pause": true}));
            assert_eq!(knows.refusal(method, task.clone()).await, (-32602, None), "there is no such task");
        }
    }
}

#[tokio::test]
async fn request_meta_members_are_validated() {
    let world = world();
    for (key, value) in [
        ("io.modelcontextprotocol/logLevel", json!("loud")),
        ("io.modelcontextprotocol/logLevel", json!(1)),
        ("progressToken", json!(1.5)),
        ("progressToken", json!({})),
    ] {
        let client = world.plain().with_meta(key, value);
        assert_eq!(client.refusal("tools/list", json!({})).await, (-32602, None));
    }
    let related = world.tasked().with_meta("io.modelcontextprotocol/relatedTaskIds", json!(["x", "x", "0"]));
    assert_eq!(related.call("quick").await["resultType"], "complete");
}

#[tokio::test]
async fn modern_tools_list_is_paged() {
    let world = world();
    world.protocol.set_tool_listing(ToolListing { per_page: 50, ..ToolListing::default() });
    let client = world.plain();
    let mut names = Vec::new();
    let mut params = json!({});
    loop {
        let page = client.result("tools/list", params).await;
        assert_eq!((&page["ttlMs"], &page["cacheScope"]), (&json!(60_000), &json!("public")));
        for tool in page["tools"].as_array().unwrap() {
            assert!(tool["execution"].is_null());
            names.push(tool["name"].as_str().unwrap().to_owned());
        }
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        params = json!({"cursor": cursor});
    }
    assert!(names.is_sorted() && names.len() == world.tasks.catalog(&ANNA).tools().len());
    assert_eq!(client.refusal("tools/list", json!({"cursor": "x"})).await, (-32602, None));
    let page = client.result("tools/list", json!({})).await;
    let of_anna = json!({"cursor": page["nextCursor"]});
    assert_eq!(client.clone().of(BOB).refusal("tools/list", of_anna).await, (-32602, None));
}

#[tokio::test]
async fn request_on_shared_connection_can_be_cancelled() {
    let world = world();
    let client = world.plain();
    let connection = Arc::<Connection>::default();
    let peer = || Peer { connection: Some(connection.clone()), ..Peer::unheralded(ANNA, None) };
    let message = client.message(&json!("a"), "tools/call", &json!({"name": "forever"})).to_string();
    let Received::Exchange(mut exchange) = world.receive(peer(), &message).await else { panic!("no exchange") };
    assert!(tokio::time::timeout(Duration::from_millis(30), exchange.next()).await.is_err());

    let Received::Exchange(mut again) = world.receive(peer(), &message).await else { panic!("no exchange") };
    let refused: Value = serde_json::from_str(&again.next().await.unwrap().message.text()).unwrap();
    assert_eq!(refused["error"]["code"], -32600, "ids are unique while they are in use");

    let cancel = |id: &str| {
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}).to_string()
    };
    assert!(matches!(world.receive(peer(), &cancel("a")).await, Received::Accepted));
    assert!(exchange.next().await.is_none(), "nothing is said any more");
    drop(exchange);
    world.quiet().await;
    let Received::Exchange(_) = world.receive(peer(), &message).await else { panic!("the id is free again") };
    let late = world.receive(peer(), &cancel("nobody")).await;
    assert!(matches!(late, Received::Accepted), "what is no request is not answered");
}

#[tokio::test]
async fn modern_client_notification_is_accepted_without_effect() {
    let world = world();
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1,
        "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}});
    let peer = Peer { declared: Some(Declared::default()), ..Peer::unheralded(ANNA, None) };
    assert!(matches!(world.receive(peer, &notification.to_string()).await, Received::Accepted));
}

#[tokio::test]
async fn unknown_request_meta_members_are_ignored() {
    let world = world();
    let expected = world.plain().result("tools/list", json!({})).await;
    for (key, value) in [
        ("traceparent", json!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")),
        ("traceparent", json!("nonsense")),
        ("tracestate", json!(7)),
        ("baggage", json!(null)),
        ("com.example/a", json!([])),
        ("io.modelcontextprotocol/later", json!({})),
        ("io.modelcontextprotocol/clientInfo", json!("whoever")),
    ] {
        assert_eq!(world.plain().with_meta(key, value).result("tools/list", json!({})).await, expected, "{key}");
    }
}

#[tokio::test]
async fn list_cursor_is_valid_after_restart() {
    let before = world();
    let after = world();
    let cursor = before.plain().result("tools/list", json!({})).await["nextCursor"].clone();
    let page = after.plain().result("tools/list", json!({"cursor": cursor})).await;
    assert_eq!(page, before.plain().result("tools/list", json!({"cursor": cursor})).await);
}
