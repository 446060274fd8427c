//! What is said of a name that nothing has.

use super::*;
use bulkhead_domain::rights::{ScopeBook, ScopeRule};

/// Of a credential that is good for these tools and plugins, and could be good for no others.
fn rights(tools: &[&str], plugins: &[&str]) -> Rights {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let rule = ScopeRule { name: "some".into(), tools: owned(tools), plugins: owned(plugins), ..ScopeRule::default() };
    ScopeBook::new(vec![rule]).rights(&["some".to_owned()], "tenant", "requestor", false)
}

/// What both eras say.
async fn said(world: &World, rights: &Rights, version: &str, method: &str, params: &Value) -> [String; 2] {
    let client = world.client(ANNA, version, json!({})).await;
    let legacy = (json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}), Some(client.session));
    let mut params = params.clone();
    params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}});
    let modern = (json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}), None);
    let mut texts = Vec::new();
    for (message, session) in [legacy, modern] {
        let peer = Peer { rights: rights.clone(), ..Peer::unheralded(ANNA, session) };
        let Received::Exchange(mut exchange) = world.receive(peer, &message.to_string()).await else { panic!("none") };
        let frame: Value = serde_json::from_str(&exchange.next().await.unwrap().message.text()).unwrap();
        assert_eq!(frame["error"]["code"], -32602, "{frame}");
        assert!(frame["error"]["data"].is_null(), "{frame}");
        texts.push(frame["error"]["message"].as_str().unwrap().to_owned());
    }
    texts.try_into().unwrap()
}

#[tokio::test]
async fn unknown_name_error_suggests_nearest_allowed_name() {
    let world = world_of(10_000, guest::Scripted::complete);
    let all = Rights::default();
    let newest = "2025-11-25";
    let older = "2025-06-18";
    let call = |name: &str| json!({"name": name, "arguments": {}});
    assert_eq!(
        said(&world, &all, newest, "tools/call", &call("ehco")).await[0],
        "Unknown tool: ehco (did you mean echo?)"
    );
    for text in said(&world, &all, newest, "tools/call", &call("Quick")).await {
        assert_eq!(text, "Unknown tool: Quick (did you mean quick?)");
    }
    for text in said(&world, &all, newest, "tools/call", &call("nothing_like_it")).await {
        assert_eq!(text, "Unknown tool: nothing_like_it");
    }
    // A tool that can only be a task is not there in sessions of a revision without tasks.
    let [legacy, modern] = said(&world, &all, older, "tools/call", &call("only_tasks")).await;
    assert_eq!(legacy, "Unknown tool: only_tasks");
    assert_eq!(modern, "Unknown tool: only_tasks (did you mean only_task?)");
    for text in said(&world, &all, newest, "prompts/get", &json!({"name": "plain"})).await {
        assert_eq!(text, "Unknown prompt: plain (did you mean x_plain?)");
    }
}

#[tokio::test]
async fn hidden_names_are_not_suggested() {
    let world = world_of(10_000, guest::Scripted::complete);
    let call = |name: &str| json!({"name": name, "arguments": {}});
    let some = rights(&["quick"], &[]);
    for (name, expected) in [
        // There, and hidden.
        ("echo", "Unknown tool: echo"),
        ("ehco", "Unknown tool: ehco"),
        ("quik", "Unknown tool: quik (did you mean quick?)"),
    ] {
        for text in said(&world, &some, "2025-11-25", "tools/call", &call(name)).await {
            assert_eq!(text, expected);
        }
    }
    // A tool that is always a task is no tool of a requestor that may have none.
    for text in said(&world, &rights(&["only_task"], &[]), "2025-11-25", "tools/call", &call("only_tasks")).await {
        assert_eq!(text, "Unknown tool: only_tasks");
    }
    // The prompts are those of another plugin, so the method itself is not there without a scope for it.
    let readers = rights(&["quick"], &["second"]);
    let prompt =
        json!({"ref": {"type": "ref/resource", "uri": "a://{id}/date"}, "argument": {"name": "id", "value": ""}});
    let open = rights(&["quick"], &["first"]);
    for text in said(&world, &open, "2025-11-25", "completion/complete", &prompt).await {
        assert_eq!(text, "Unknown resource template: a://{id}/date (did you mean a://{id}/data?)");
    }
    let client = world.client(ANNA, "2025-11-25", json!({})).await;
    let peer = Peer { rights: readers, ..client.peer() };
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": {"name": "plain"}});
    let Received::Exchange(mut exchange) = world.receive(peer, &message.to_string()).await else { panic!("none") };
    let frame: Value = serde_json::from_str(&exchange.next().await.unwrap().message.text()).unwrap();
    assert_eq!(frame["error"]["code"], -32601, "{frame}");
}
