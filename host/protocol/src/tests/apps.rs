//! MCP Apps: what clients are told of views, and calls that come from one.

use super::*;

fn world_with_app() -> World {
    world_of(10_000, guest::Scripted::with_app)
}

fn names(list: &Value) -> Vec<&str> {
    list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

/// The capabilities that clients of each era are told of.
pub(super) async fn announced(world: &World) -> [Value; 3] {
    let mut capabilities = [const { Value::Null }; 3];
    for (at, version) in ["2025-11-25", "2025-03-26"].into_iter().enumerate() {
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": version,
            "capabilities": {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}},
            "clientInfo": {"name": "test", "version": "1"}}});
        let received = world.receive(Peer::unheralded(ANNA, None), &hello.to_string()).await;
        let Received::Opened { reply, .. } = received else { panic!("not opened") };
        let mut reply: Value = serde_json::from_str(&reply).unwrap();
        official::check(version, "initialize", &reply);
        capabilities[at] = reply["result"]["capabilities"].take();
    }
    capabilities[2] = world.plain().result("server/discover", json!({})).await["capabilities"].take();
    capabilities
}

#[tokio::test]
async fn extension_is_announced_where_a_tool_has_a_view() {
    const UI: &str = "io.modelcontextprotocol/ui";
    let [newest, first, modern] = announced(&world_with_app()).await;
    assert_eq!(newest["extensions"], json!({UI: {}}));
    assert_eq!(modern["extensions"][UI], json!({}));
    assert_eq!(first["extensions"], Value::Null, "of a revision whose tools have no metadata");
    let [newest, first, modern] = announced(&world()).await;
    assert!(newest["extensions"].is_null() && first["extensions"].is_null() && modern["extensions"][UI].is_null());
}

#[tokio::test]
async fn plugin_sees_whether_the_client_shows_views() {
    let world = world_with_app();
    let ui = |ui: Value| json!({"extensions": {"io.modelcontextprotocol/ui": ui}});
    let shown = ui(json!({"mimeTypes": ["text/html;profile=mcp-app"]}));
    let call = || json!({"name": "views", "arguments": {}});
    for (capabilities, expected) in [
        (shown, "true"),
        (ui(json!({"mimeTypes": ["text/html"]})), "false"),
        (ui(json!({})), "false"),
        (json!({}), "false"),
    ] {
        let modern = world.plain().with_capabilities(capabilities.clone());
        let result = modern.result("tools/call", call()).await;
        assert_eq!(result["content"][0]["text"], expected, "modern: {capabilities}");
        // It asks nothing, so no stream has to be there.
        for (version, expected) in [("2025-11-25", expected), ("2025-06-18", expected), ("2025-03-26", "false")] {
            let client = world.client(ANNA, version, capabilities.clone()).await;
            let result = client.result("tools/call", call()).await;
            assert_eq!(result["content"][0]["text"], expected, "{version}: {capabilities}");
        }
    }
}

#[tokio::test]
async fn view_calls_the_tools_of_its_plugin_by_their_own_names() {
    let world = world_with_app();
    let anna = world.anna().await;
    let modern = world.plain();
    for name in ["quick", "c_quick"] {
        let call = json!({"name": name, "arguments": {}});
        assert_eq!(anna.result("tools/call", call.clone()).await["content"][0]["text"], "done", "{name}");
        assert_eq!(modern.result("tools/call", call).await["content"][0]["text"], "done", "{name}");
    }
    let task = anna.result("tools/call", json!({"name": "quick", "arguments": {}, "task": {}})).await;
    assert!(task["task"]["taskId"].is_string(), "{task}");
    // It is for models alone, and they see its other name.
    let call = json!({"name": "fails", "arguments": {}});
    for refused in [anna.ask("tools/call", call.clone()).await, modern.ask("tools/call", call).await] {
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("Unknown tool: fails"), "{message}");
    }
}

#[tokio::test]
async fn models_that_search_neither_find_nor_call_tools_for_views_alone() {
    let world = world_with_app();
    world.list_by(Vec::new(), true);
    let anna = world.anna().await;
    let modern = world.plain();
    let expected = ["c_count", "c_quick", "call_tool", "search_tools"];
    assert_eq!(names(&anna.result("tools/list", json!({})).await), expected);
    assert_eq!(names(&modern.result("tools/list", json!({})).await), expected);
    let search = json!({"name": "search_tools", "arguments": {"query": "plays quick count fails echo", "limit": 20}});
    for result in [anna.result("tools/call", search.clone()).await, modern.result("tools/call", search).await] {
        let mut found = names(&result["structuredContent"]);
        found.sort_unstable();
        assert_eq!(found, ["c_count", "c_fails", "echo", "views"]);
    }
    for name in ["c_quick", "quick"] {
        let through = json!({"name": "call_tool", "arguments": {"name": name, "arguments": {}}});
        for refused in [anna.ask("tools/call", through.clone()).await, modern.ask("tools/call", through).await] {
            let message = refused["error"]["message"].as_str().unwrap();
            assert_eq!(message, format!("Unknown tool: {name}"));
        }
        let direct = json!({"name": name, "arguments": {}});
        assert_eq!(anna.result("tools/call", direct.clone()).await["content"][0]["text"], "done");
        assert_eq!(modern.result("tools/call", direct).await["content"][0]["text"], "done");
    }
}
