//! Plugins that are MCP servers, beside what was accepted of them.

use super::*;
use crate::DifferenceKind;
use bulkhead_runtime::{McpMode, McpSettings};

/// The servers of `plugins/fixtures/foreign`, which knows nothing of this host.
fn servers() -> Option<Candidate> {
    built("foreign_mcp.wasm", "text")
}

fn mcp(mode: Option<McpMode>, path: Option<&str>) -> Policy {
    let mut policy = policy();
    policy.source.mcp = McpSettings { mode, path: path.map(str::to_owned) };
    policy
}

fn offers(world: &World, tool: &str) -> bool {
    world.sandbox.catalog().get(tool).is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_known_by_its_tool_request_keeps_it_until_the_operator_says_and_accepts() {
    let Some(servers) = servers() else { return };
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let (world, _) = start_with(&store, &clock, mcp(Some(McpMode::Off), None)).await;
    let version = world.plugins.stage(servers).await.unwrap().version;
    assert!(world.plugins.activate(&to(version.digest), false).await.unwrap().done);
    // The key is gone: what was accepted stays.
    let (world, refused) = start_with(&store, &clock, policy()).await;
    assert_eq!(refused, Vec::new());
    assert!(offers(&world, "request") && !offers(&world, "echo"));
    let (world, refused) = start_with(&store, &clock, mcp(Some(McpMode::Auto), None)).await;
    assert!(refused[0].to_string().contains("its one tool `request` is what was accepted"), "{refused:?}");
    assert!(world.plugins.activate(&to(version.digest), false).await.unwrap().done);
    assert!(offers(&world, "echo") && !offers(&world, "request"));
    let (world, refused) = start_with(&store, &clock, policy()).await;
    assert_eq!(refused, Vec::new());
    assert!(offers(&world, "echo"), "from then on without the key as well");
    // Nor does it become a web service unnoticed.
    let (_, refused) = start_with(&store, &clock, mcp(Some(McpMode::Off), None)).await;
    assert!(refused[0].to_string().contains("its one tool is `request` now"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_that_makes_another_kind_of_a_plugin_waits_for_the_operator() {
    let Some(servers) = servers() else { return };
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let (world, _) = start_with(&store, &clock, mcp(Some(McpMode::Off), None)).await;
    let version = world.plugins.stage(servers).await.unwrap().version;
    assert!(world.plugins.activate(&to(version.digest), false).await.unwrap().done);
    let reload = async |mode| {
        let prepared = world.plugins.prepare(Vec::new(), mcp(Some(mode), None), HashMap::new()).await;
        prepared.unwrap().take_over();
    };
    let is_waiting = async || {
        let listed = world.plugins.list().await.unwrap();
        listed[0].problems.iter().any(|problem| problem.contains("waits for your word: `bulkhead plugin changes"))
    };
    // What is reloaded again before the operator has looked waits on.
    for _ in 0..2 {
        reload(McpMode::Auto).await;
        assert!(offers(&world, "request") && !offers(&world, "echo"), "what was accepted runs on");
        assert!(is_waiting().await);
    }
    reload(McpMode::Off).await;
    assert!(!is_waiting().await, "there is nothing to accept any more");
    reload(McpMode::Auto).await;
    let changes = world.plugins.compare(&to(version.digest)[0], None).await.unwrap();
    let kind_of = |tool: &str| changes.tools.iter().find(|change| change.tool == tool).map(|change| change.kind);
    assert_eq!(kind_of("echo"), Some(DifferenceKind::Added));
    assert_eq!(kind_of("request"), Some(DifferenceKind::Removed));
    assert!(world.plugins.activate(&to(version.digest), false).await.unwrap().done);
    assert!(offers(&world, "echo") && !offers(&world, "request") && !is_waiting().await);
    // Nor does a server become a web service unnoticed.
    reload(McpMode::Off).await;
    assert!(offers(&world, "echo") && !offers(&world, "request") && is_waiting().await);
    assert!(world.plugins.activate(&to(version.digest), false).await.unwrap().done);
    assert!(offers(&world, "request") && !offers(&world, "echo") && !is_waiting().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn plugin_known_by_its_command_keeps_it_until_the_operator_says_and_accepts() {
    let Some(servers) = built("foreign_mcp_stdio.wasm", "text") else { return };
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let (world, _) = start_with(&store, &clock, mcp(Some(McpMode::Off), None)).await;
    let version = world.plugins.stage(servers).await.unwrap().version;
    assert!(world.plugins.activate(&to(version.digest), false).await.unwrap().done);
    assert!(offers(&world, "text"));
    let (world, refused) = start_with(&store, &clock, policy()).await;
    assert_eq!(refused, Vec::new());
    assert!(offers(&world, "text") && !offers(&world, "echo"));
    let (world, refused) = start_with(&store, &clock, mcp(Some(McpMode::Stdio), None)).await;
    assert!(refused[0].to_string().contains("its one tool `text` is what was accepted"), "{refused:?}");
    assert!(world.plugins.activate(&to(version.digest), false).await.unwrap().done);
    assert!(offers(&world, "echo") && !offers(&world, "text"));
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_lists_otherwise_than_accepted_waits_for_the_operator() {
    let Some(servers) = servers() else { return };
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(1));
    let terms = || mcp(None, Some("/chance"));
    let (world, _) = start_with(&store, &clock, terms()).await;
    let version = world.plugins.stage(servers).await.unwrap().version;
    assert!(world.plugins.activate(&to(version.digest), false).await.unwrap().done);
    let (world, refused) = start_with(&store, &clock, terms()).await;
    assert!(refused[0].to_string().contains("the tool now is not the one that was accepted before"), "{refused:?}");
    assert!(!offers(&world, "now"));
    assert!(world.plugins.activate(&to(version.digest), false).await.unwrap().done);
    assert!(offers(&world, "now"));
}
