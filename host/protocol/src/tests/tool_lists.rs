//! Toolsets and pages: what a requestor is listed, and that the rest is not there for it in any way.

use super::*;
use bulkhead_domain::rights::{ScopeBook, ScopeRule};
use bulkhead_domain::toolset::{ToolFilter, Toolset, Toolsets};

pub(super) fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// For every requestor.
pub(super) fn excluding(names: &[&str]) -> Toolset {
    let exclude = ToolFilter { tools: owned(names), ..ToolFilter::default() };
    Toolset { exclude, ..Toolset::default() }
}

fn including(names: &[&str]) -> Toolset {
    let include = Some(ToolFilter { tools: owned(names), ..ToolFilter::default() });
    Toolset { include, ..Toolset::default() }
}

impl World {
    pub(super) fn list_by(&self, sets: Vec<Toolset>, tool_search: bool) {
        let toolsets = Toolsets { sets, tool_search };
        self.protocol.set_tool_listing(ToolListing { toolsets, ..ToolListing::default() });
    }

    /// Everything that is said to one request, as it stands there.
    pub(super) async fn said(&self, peer: Peer<'_>, message: &Value) -> Vec<String> {
        let Received::Exchange(exchange) = self.receive(peer, &message.to_string()).await else { panic!("{message}") };
        exchange.map(|frame| frame.message.into_text()).collect().await
    }
}

/// One request as sessions of both revisions and a modern client send it.
pub(super) async fn said_everywhere(world: &World, method: &str, params: &Value) -> Vec<Vec<String>> {
    let mut said = Vec::new();
    let message = |params: &Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    for version in ["2025-11-25", "2025-06-18"] {
        let client = world.client(ANNA, version, json!({})).await;
        said.push(world.said(client.peer(), &message(params)).await);
    }
    let mut modern = params.clone();
    modern["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    modern["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    said.push(world.said(Peer::unheralded(ANNA, None), &message(&modern)).await);
    said
}

/// Every way to ask for a tool.
pub(super) fn ways(tool: &str) -> Vec<(&'static str, Value)> {
    let arguments = json!({"text": "a"});
    let direct = json!({"name": tool, "arguments": arguments});
    let with = |key: &str, value: Value| {
        let mut params = direct.clone();
        params[key] = value;
        params
    };
    vec![
        ("tools/list", json!({})),
        ("tools/call", direct.clone()),
        ("tools/call", json!({"name": tool})),
        ("tools/call", json!({"name": tool, "arguments": []})),
        ("tools/call", with("task", json!({"ttl": 60_000}))),
        ("tools/call", with("_meta", json!({"modelcontextprotocol.io/task": {"taskId": "t", "keepAlive": 5_000}}))),
        ("tools/call", with("_meta", json!({"dev.bulkhead/idempotencyKey": "k"}))),
        ("tools/call", with("requestState", json!("x"))),
        ("tools/call", json!({"name": "ehco"})),
        ("tools/call", json!({"name": "search_tools", "arguments": {"query": "plays echo", "limit": 20}})),
        ("tools/call", json!({"name": "call_tool", "arguments": {"name": tool, "arguments": arguments}})),
        ("tools/call", json!({"name": "call_tool", "arguments": {"name": "ehco"}})),
        (
            "tools/call",
            json!({"name": "call_tool", "arguments": {"name": tool, "arguments": arguments}, "task": {"ttl": 60_000}}),
        ),
    ]
}

#[tokio::test]
async fn excluded_tool_is_answered_like_one_that_never_was() {
    for tool_search in [false, true] {
        let world = world();
        let without = world_of(10_000, |guests| guest::Scripted::lacking(guests, "echo"));
        world.list_by(vec![excluding(&["echo"])], tool_search);
        without.list_by(Vec::new(), tool_search);
        for (method, params) in ways("echo") {
            let said = said_everywhere(&world, method, &params).await;
            let expected = said_everywhere(&without, method, &params).await;
            assert_eq!(said.len(), 3);
            // What differs is private by that, which says no more than that there is a toolset.
            let public = |frames: &Vec<Vec<String>>| {
                frames.iter().flatten().map(|frame| frame.replace("\"private\"", "\"public\"")).collect::<Vec<_>>()
            };
            assert_eq!(public(&said), public(&expected), "{method} {params}");
        }
        assert_eq!(world.guests.started.load(std::sync::atomic::Ordering::SeqCst), 0, "nothing was called");
    }
}

#[tokio::test]
async fn toolset_narrows_rights_and_never_widens_them() {
    let world = world();
    world.list_by(vec![Toolset { tenants: owned(&["acme"]), ..including(&["quick", "echo"]) }], false);
    let rule = ScopeRule { name: "some".into(), tools: owned(&["quick", "slow"]), ..ScopeRule::default() };
    let names = |rights: Rights| {
        let world = &world;
        async move {
            let listed = world.plain().with_rights(rights).result("tools/list", json!({})).await;
            let tools =
                listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
            tools.collect::<Vec<_>>()
        }
    };
    let limited = |tenant: &str| {
        ScopeBook::new(vec![rule.clone()])
            .rights(&owned(&["some"]), tenant, "r", false)
            .named(tenant.into(), "r".into())
    };
    assert_eq!(names(limited("acme")).await, ["quick"]);
    assert_eq!(names(limited("other")).await, ["quick", "slow"], "no toolset is for it");
    let all = |tenant: &str| Rights::default().named(tenant.into(), "r".into());
    assert_eq!(names(all("acme")).await, ["echo", "quick"]);
    assert_eq!(names(all("other")).await.len(), 25 + guest::FILLERS, "they are on one page");
}

#[tokio::test]
async fn changed_toolset_is_told_to_running_sessions_that_it_concerns() {
    let world = world();
    let anna = world.anna().await;
    let mut stream = anna.standalone();
    assert!(stream.is_silent().await);
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let mut listening = world.plain().open("subscriptions/listen", filter.clone()).await;
    let others = Rights::default().named("acme".into(), "bob".into());
    let mut other = world.plain().with_rights(others).open("subscriptions/listen", filter).await;
    for stream in [&mut listening, &mut other] {
        assert_eq!(stream.next().await["method"], "notifications/subscriptions/acknowledged");
    }
    let local = || Toolset { tenants: owned(&["default"]), ..excluding(&["echo"]) };
    world.list_by(vec![local()], false);
    assert_eq!(stream.next().await["method"], "notifications/tools/list_changed");
    assert_eq!(listening.next().await["method"], "notifications/tools/list_changed");
    assert!(other.is_silent().await, "its list is the same");
    let listed = anna.result("tools/list", json!({})).await;
    assert!(listed["tools"].as_array().unwrap().iter().all(|tool| tool["name"] != "echo"));
    world.list_by(vec![local()], false);
    assert!(stream.is_silent().await && listening.is_silent().await, "the same again is no change");
    world.list_by(vec![local()], true);
    assert_eq!(stream.next().await["method"], "notifications/tools/list_changed");
    assert_eq!(other.next().await["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn page_of_tools_is_as_long_as_configured() {
    let world = world();
    for per_page in [7, 100, 1_000] {
        world.protocol.set_tool_listing(ToolListing { per_page, ..ToolListing::default() });
        let anna = world.anna().await;
        let mut names = Vec::new();
        let mut params = json!({});
        loop {
            let page = anna.result("tools/list", params).await;
            let tools = page["tools"].as_array().unwrap();
            assert!(tools.len() == per_page || page["nextCursor"].is_null());
            names.extend(tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
            match page["nextCursor"].as_str() {
                Some(cursor) => params = json!({"cursor": cursor}),
                None => break,
            }
        }
        assert!(names.is_sorted() && names.len() == 25 + guest::FILLERS, "{}", names.len());
    }
}

#[tokio::test]
async fn call_that_waits_for_answers_ends_with_the_tool() {
    let world = world();
    let asked = world.plain().result("tools/call", json!({"name": "form", "arguments": {}})).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    world.list_by(vec![excluding(&["form"])], false);
    let answer = json!({"action": "accept", "content": {"name": "Ada"}});
    let retry = json!({"name": "form", "arguments": {}, "requestState": asked["requestState"],
        "inputResponses": {"name": answer}});
    let refused = world.plain().ask("tools/call", retry).await;
    assert_eq!(refused["error"], json!({"code": -32602, "message": "Unknown tool: form"}));
}

#[tokio::test]
async fn resources_of_a_plugin_without_shown_tools_are_gone() {
    let world = world_nowhere();
    let client = || world.plain();
    assert!(
        client().result("resources/list", json!({})).await["resources"].as_array().is_some_and(|all| !all.is_empty())
    );
    world.list_by(vec![including(&["echo"])], false);
    assert_eq!(client().refusal("resources/list", json!({})).await.0, -32601);
    assert_eq!(client().refusal("prompts/list", json!({})).await.0, -32601);
    let plugins = ToolFilter { plugins: owned(&["first"]), ..ToolFilter::default() };
    world.list_by(vec![including(&["echo"]), Toolset { include: Some(plugins), ..Toolset::default() }], false);
    assert!(
        client().result("resources/list", json!({})).await["resources"].as_array().is_some_and(|all| !all.is_empty())
    );
}
