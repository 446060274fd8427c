//! MCP servers over standard input and output as plugins, with those of `plugins/fixtures/foreign`, one for each name
//! of a plugin.

use super::mcp::{names, published};
use super::*;
use crate::programs::mcp::McpEra;
use bulkhead_domain::call::{ElicitationAction, InputRequestKind, InputResponse, Root};

fn server(name: &str, mode: Option<McpMode>) -> Option<PluginSource> {
    let mcp = McpSettings { mode, path: None };
    Some(PluginSource { name: Some(name.to_owned()), mcp, ..sample("foreign_mcp_stdio")? })
}

async fn house(name: &str) -> Option<(House, LoadedPlugin)> {
    Some(published(server(name, None)?).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn command_that_answers_lines_has_tools_of_its_own_in_either_era() {
    for (name, era, says) in [
        ("modern", McpEra::Modern, "lines 1.2"),
        ("legacy", McpEra::Legacy, "old lines 0.9"),
        ("polling", McpEra::Legacy, "old lines 0.9"),
    ] {
        let Some((house, loaded)) = house(name).await else { return };
        let found = loaded.mcp_server().unwrap();
        assert_eq!((found.era, found.path.as_deref(), found.server.as_deref()), (era, None, Some(says)), "{name}");
        let dropped = ["execution of tool echo", "_meta io.modelcontextprotocol/related-task of tool echo"];
        assert!(dropped.iter().all(|one| found.dropped.iter().any(|dropped| dropped == one)), "{:?}", found.dropped);
        assert!(!loaded.is_typed() && !names(&loaded).contains(&name), "{:?}", names(&loaded));
        for _ in 0..2 {
            assert_eq!(text(&house.call("echo", r#"{"text":"hi"}"#).await.unwrap()), "hi", "{name}");
        }
        let running = house.start_with("count", "{}", |spec| spec.facts.log_level = Some(LogLevel::Info));
        let (events, outcome) = events(running).await;
        assert_eq!(text(&outcome.unwrap()), "counted");
        let last = events.iter().rfind(|event| matches!(event, CallEvent::Progress { .. }));
        assert!(matches!(last, Some(CallEvent::Progress { progress, .. }) if *progress == 2.0), "{name}: {events:?}");
        assert!(events.iter().any(|event| matches!(event, CallEvent::Log { level: LogLevel::Warning, .. })));
    }
}

/// What a client says to one question.
fn answer(kind: &InputRequestKind) -> InputResponse {
    match kind {
        InputRequestKind::Roots => InputResponse::Roots(vec![Root { uri: "file:///a".to_owned(), name: None }]),
        InputRequestKind::Sampling(_) => InputResponse::Sampling(Json::new(
            r#"{"role":"assistant","model":"m","content":{"type":"text","text":"words"}}"#,
        )),
        InputRequestKind::Form { .. } | InputRequestKind::Url { .. } => {
            let content = Some(Json::new(r#"{"name":"Ada"}"#));
            InputResponse::Elicitation { action: ElicitationAction::Accept, content }
        }
    }
}

/// Answers everything that is asked, and says how often that was.
async fn answered(mut running: RunningCall) -> (usize, Result<ToolOutput, CallError>) {
    let mut asked = 0;
    while let Some(event) = running.events.recv().await {
        match event {
            CallEvent::Finished(outcome) => return (asked, output_of(outcome)),
            CallEvent::InputRequests { requests, reply, .. } => {
                asked += 1;
                let answers = requests.iter().map(|request| answer(&request.kind)).collect();
                reply.send(Ok(answers)).unwrap();
            }
            _ => {}
        }
    }
    panic!("the events ended without Finished")
}

fn asking(spec: &mut CallSpec) {
    let all = [ClientFeature::ElicitationForm, ClientFeature::Sampling, ClientFeature::Roots];
    spec.facts.features = all.into_iter().fold(ClientFeatures::default(), ClientFeatures::with);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_a_server_are_asked_while_its_call_runs() {
    for name in ["legacy", "polling"] {
        let Some((house, _)) = house(name).await else { return };
        let (asked, outcome) = answered(house.start_with("ask", "{}", asking)).await;
        assert_eq!((asked, text(&outcome.unwrap())), (1, "Hello, Ada"), "{name}");
        let (asked, outcome) = answered(house.start_with("both", "{}", asking)).await;
        assert_eq!((asked, text(&outcome.unwrap())), (2, "file:///a and assistant"), "{name}");
        // A client that has none of it.
        let refused = house.call("ask", "{}").await.unwrap();
        assert!(text(&refused).contains("the client does not support elicitation by form"), "{}", text(&refused));
        let unasked = finished(house.start_with("ask", "{}", asking)).await.unwrap();
        assert!(text(&unasked).contains("there is no way to reach the client"), "{}", text(&unasked));
        let pinged = house.call("pings", "{}").await.unwrap();
        assert!(text(&pinged).starts_with("true {"), "{}", text(&pinged));
        assert!(text(&pinged).contains("'tools/call' is nothing that a client is asked"), "{}", text(&pinged));
    }
    let Some((house, _)) = house("modern").await else { return };
    let (asked, outcome) = answered(house.start_with("ask", "{}", asking)).await;
    assert_eq!((asked, text(&outcome.unwrap())), (1, "Hello, Ada, after round 1"));
    let refused = house.call("pings", "{}").await.unwrap();
    assert!(text(&refused).contains("servers of 2026-07-28 send no requests"), "{}", text(&refused));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_hostile_server_writes_is_a_limit_or_a_fault_of_its_call_alone() {
    let Some((house, _)) = house("legacy").await else { return };
    let output = house.call("strange", "{}").await.unwrap();
    assert_eq!(text(&output), "the first", "neither the answer of another id nor a second one");
    let output = house.call("nothing", "{}").await.unwrap();
    assert_eq!(text(&output), "the input is over", "nothing but more input could bring it on");
    for (tool, why) in [
        ("frame", "the tool's answer is longer than 20000 bytes, which is call.result_bytes"),
        ("strays", "more than 64 KiB of messages that are nothing of its call's"),
    ] {
        let running = house.start_with(tool, "{}", |spec| {
            spec.limits.result_bytes = if tool == "strays" { 1 << 20 } else { 20_000 };
        });
        let (kind, reason) = fault(finished(running).await);
        assert!(kind == FaultKind::Limit && reason.contains(why), "{tool}: {reason}");
    }
    let (asked, outcome) = answered(house.start_with("many", "{}", asking)).await;
    let (kind, reason) = fault(outcome);
    assert_eq!((asked, kind), (16, FaultKind::Limit), "{reason}");
    let (kind, reason) = fault(house.call("silent", "{}").await);
    assert!(kind == FaultKind::InvalidOutput && reason.contains("ended without an answer"), "{reason}");
    assert_eq!(fault(house.call("crash", "{}").await).0, FaultKind::Trap);
    assert_eq!(text(&house.call("echo", r#"{"text":"hi"}"#).await.unwrap()), "hi", "the plugin goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_is_told_that_its_call_is_cancelled() {
    for name in ["modern", "legacy"] {
        let Some((house, _)) = house(name).await else { return };
        let mut running = house.start_with("wait", "{}", |spec| spec.facts.log_level = Some(LogLevel::Info));
        let first = running.events.recv().await;
        assert!(matches!(first, Some(CallEvent::Progress { .. })), "{first:?}");
        running.control.signal_cancel();
        let cleaned = running.events.recv().await;
        let says = |data: &Json| data.as_str() == "\"cleaned up\"";
        assert!(matches!(&cleaned, Some(CallEvent::Log { data, .. }) if says(data)), "{name}: {cleaned:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_look_for_input_costs_little_while_the_client_thinks() {
    let Some((house, _)) = house("polling").await else { return };
    let running = house.start_with("nothing", "{}", |spec| spec.limits.wall_ms = 1000);
    let control = running.control.clone();
    let (kind, reason) = fault(finished(running).await);
    assert_eq!(kind, FaultKind::Deadline, "{reason}");
    assert!(state(&control).cpu() < Duration::from_millis(300), "{:?}", state(&control).cpu());
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_decides_whether_a_command_is_a_server() {
    let Some(off) = server("tool", Some(McpMode::Off)) else { return };
    let house = House::new();
    let loaded = house.publish(off).await;
    assert_eq!((names(&loaded), loaded.is_typed()), (vec!["tool"], true));
    let Some(command) = sample("foreign_command") else { return };
    let loaded = house.sandbox.load(command.clone()).await.unwrap();
    assert!(loaded.mcp_server().is_none() && loaded.is_typed(), "it answers nothing");
    let mcp = McpSettings { mode: Some(McpMode::Stdio), path: None };
    let refused = house.sandbox.load(PluginSource { mcp: mcp.clone(), ..command }).await.unwrap_err().to_string();
    assert!(refused.contains("`mcp = \"stdio\"`, and no MCP server answers: what it writes is none"), "{refused}");
    let Some(service) = sample("foreign_service") else { return };
    let refused = house.sandbox.load(PluginSource { mcp, ..service }).await.unwrap_err();
    assert!(refused.to_string().contains("exports no wasi:cli/run@0.2"), "{refused}");
    let refused = house.sandbox.load(server("pages", None).unwrap()).await.unwrap_err();
    assert!(refused.to_string().contains("it has more than 10 pages"), "{refused}");
    let Some((house, loaded)) = self::house("chance").await else { return };
    assert!(!house.sandbox.relist(&loaded).await.unwrap().lists_like(&loaded));
}
