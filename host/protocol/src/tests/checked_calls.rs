//! Calls with two faults each: both eras answer the same one.

use super::*;
use bulkhead_domain::rights::{ScopeBook, ScopeRule};

/// What a call is answered in a session and in a modern request: the text of the error, or of the tool error.
async fn answers(world: &World, rights: &Rights, params: &Value) -> [String; 2] {
    let client = world.client(ANNA, "2025-11-25", json!({})).await;
    let mut modern = params.clone();
    modern["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}});
    let mut texts = Vec::new();
    for (params, session) in [(params, Some(client.session)), (&modern, None)] {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let peer = Peer { rights: rights.clone(), ..Peer::unheralded(ANNA, session) };
        let answer: Value = serde_json::from_str(&world.said(peer, &message).await[0]).unwrap();
        let text = answer["error"]["message"].as_str().or(answer["result"]["content"][0]["text"].as_str());
        texts.push(text.unwrap_or_else(|| panic!("{answer}")).to_owned());
    }
    texts.try_into().unwrap()
}

#[tokio::test]
async fn both_eras_check_a_call_in_one_order() {
    let world = world();
    world.list_by(Vec::new(), true);
    let all = Rights::default();
    let rule = ScopeRule { name: "some".into(), tools: vec!["quick".into()], ..ScopeRule::default() };
    let some = ScopeBook::new(vec![rule]).rights(&["some".to_owned()], "t", "r", false);
    let no_object = json!([]);
    let unfit = json!({"text": 7});
    for (rights, name, arguments, expected) in [
        // The arguments of a tool of the host before anything about the tool that they name.
        (
            &some,
            "call_tool",
            json!({"name": "echo", "more": 1}),
            "The arguments do not fit the input schema of call_tool:",
        ),
        (&some, "call_tool", json!({"name": "echo", "arguments": no_object}), "Unknown tool: echo"),
        // The right to the tool, and whether it is there, before its arguments.
        (&some, "echo", no_object.clone(), "Unknown tool: echo"),
        (&all, "nobody", no_object.clone(), "Unknown tool: nobody"),
        // What the call is to become before its arguments.
        (&all, "only_task", no_object.clone(), "task"),
        // Their shape before their fit.
        (&all, "echo", no_object.clone(), "params.arguments must be an object"),
        (&all, "echo", unfit, "The arguments do not fit the input schema of echo:"),
    ] {
        for text in answers(&world, rights, &json!({"name": name, "arguments": arguments})).await {
            assert!(text.contains(expected), "{name}: {text}");
        }
    }
}
