//! The sample plugins, and the hostile one against the whole sandbox.

use super::*;
use crate::plugin_source::Source;

#[tokio::test(flavor = "multi_thread")]
async fn plain_tool_call_returns_output() {
    let Some(plugin) = sample("text") else { return };
    let house = House::new();
    let loaded = house.publish(plugin).await;
    assert_eq!(loaded.version.name, "text");
    let output = house.call("echo", r#"{"text":"grüß dich"}"#).await.unwrap();
    assert!(!output.is_error);
    assert_eq!(text(&output), "grüß dich");
}

#[tokio::test(flavor = "multi_thread")]
async fn call_progress_grows_before_the_end() {
    let Some(plugin) = sample("primes") else { return };
    let house = House::new();
    house.publish(plugin).await;
    let (events, outcome) = events(house.start("count_primes", r#"{"below":3000000}"#)).await;
    assert!(text(&outcome.unwrap()).contains("216816"));
    let steps: Vec<f64> = events
        .iter()
        .filter_map(|event| match event {
            CallEvent::Progress { progress, .. } => Some(*progress),
            _ => None,
        })
        .collect();
    assert!(!steps.is_empty());
    assert!(steps.is_sorted_by(|a, b| a < b), "{steps:?}");
}

async fn hostile() -> Option<House> {
    let plugin = sample("hostile")?;
    let house = House::new();
    house.publish(plugin).await;
    Some(house)
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_guest_fails_its_own_call_with_reason() {
    let Some(house) = hostile().await else { return };
    for (tool, kind, words) in [
        ("recurse", FaultKind::Trap, "stack"),
        ("grow", FaultKind::Limit, "64 MiB of memory"),
        ("trap", FaultKind::Trap, "crashed"),
        ("flood_result", FaultKind::Limit, "too much data at once: 9 MiB is the most"),
        ("flood_handles", FaultKind::Limit, "1024 host resources"),
        ("bad_output", FaultKind::InvalidOutput, "/number"),
        ("bad_json", FaultKind::InvalidOutput, "not well-formed JSON"),
        ("bad_utf8", FaultKind::InvalidOutput, "UTF-8"),
    ] {
        let (fault, reason) = fault(house.call(tool, "{}").await);
        assert_eq!(fault, kind, "{tool}: {reason}");
        assert!(reason.contains(words), "{tool}: {reason}");
    }
    let (kind, reason) = fault(house.call("flood_result", r#"{"bytes":5000000}"#).await);
    assert_eq!(kind, FaultKind::Limit);
    assert!(reason.contains("4 MiB is the most"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_event_floods_are_merged() {
    let Some(house) = hostile().await else { return };
    let flood = r#"{"count":20000}"#;
    let started = std::time::Instant::now();
    let (seen, outcome) = events(house.start("flood_progress", flood)).await;
    assert!(!outcome.unwrap().is_error);
    // A burst, then so many per second, plus the last values at the end.
    let allowed = 50 + (started.elapsed().as_secs() as usize + 1) * 50 + 4;
    assert!(seen.len() <= allowed, "{} events", seen.len());
    assert!(seen.iter().any(|event| matches!(event, CallEvent::Status(status) if status == "turn 19999")));

    let logging = house.start_with("flood_log", flood, |spec| spec.facts.log_level = Some(LogLevel::Info));
    let (seen, outcome) = events(logging).await;
    assert!(!outcome.unwrap().is_error);
    let Some(CallEvent::Log { level: LogLevel::Warning, data, .. }) = seen.last() else { panic!("{:?}", seen.last()) };
    assert!(data.as_str().contains("dropped"), "{}", data.as_str());
    assert!(!house.call("flood_stdout", flood).await.unwrap().is_error);
    // Nobody asked for logs: none come.
    assert!(events(house.start("flood_log", flood)).await.0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn ungranted_guest_has_no_files_network_or_environment() {
    let Some(house) = hostile().await else { return };
    for (tool, arguments) in [
        ("read_file", r#"{"path":"/etc/passwd"}"#),
        ("connect", r#"{"host":"127.0.0.1","port":22}"#),
        ("connect", r#"{"host":"example.com","port":80}"#),
    ] {
        let output = house.call(tool, arguments).await.unwrap();
        assert!(output.is_error, "{tool}: {}", text(&output));
    }
    assert_eq!(text(&house.call("environment", "{}").await.unwrap()), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_reaches_only_granted_directory_and_environment() {
    let Some(mut plugin) = sample("hostile") else { return };
    let folder = TempDir::new().unwrap();
    std::fs::create_dir(folder.path().join("open")).unwrap();
    std::fs::write(folder.path().join("open/a.txt"), "inside").unwrap();
    std::fs::write(folder.path().join("secret.txt"), "outside").unwrap();
    std::os::unix::fs::symlink(folder.path().join("secret.txt"), folder.path().join("open/link")).unwrap();
    plugin.grants.directories = vec![policy::DirGrant {
        host: folder.path().join("open"),
        guest: "/data".to_owned(),
        write: false,
        bytes_max: None,
    }];
    plugin.grants.env = vec!["GRANTED".to_owned(), "MISSING".to_owned()];
    let house = House::new();
    house.publish(plugin).await;
    assert_eq!(text(&house.call("read_file", r#"{"path":"/data/a.txt"}"#).await.unwrap()), "inside");
    for path in ["/data/../secret.txt", "/data/link", "/secret.txt"] {
        let output = house.call("read_file", &format!("{{\"path\":\"{path}\"}}")).await.unwrap();
        assert!(output.is_error, "{path}: {}", text(&output));
    }
    assert_eq!(text(&house.call("environment", "{}").await.unwrap()), "GRANTED=yes\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn call_beside_spinning_calls_is_answered() {
    let Some(plugin) = sample("hostile") else { return };
    let house = House::new();
    let hostile = house.sandbox.load(plugin).await.unwrap();
    let text_plugin = house.sandbox.load(sample("text").unwrap()).await.unwrap();
    assert!(house.sandbox.publish(vec![hostile, text_plugin]).1.is_empty());
    let spinning: Vec<_> = (0..16).map(|_| house.start("spin", "{}")).collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    for _ in 0..5 {
        assert_eq!(text(&house.call("echo", r#"{"text":"here"}"#).await.unwrap()), "here");
    }
    let controls: Vec<_> = spinning.iter().map(|running| running.control.clone()).collect();
    drop(spinning);
    // A dropped call uses no CPU time.
    settled(|| controls.iter().map(|control| control.cpu_ms()).collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_arguments_never_reach_the_guest() {
    let Some(plugin) = sample("text") else { return };
    let house = House::new();
    house.publish(plugin).await;
    let running = house.start_with("echo", r#"{"text":"long enough"}"#, |spec| spec.limits.arguments_bytes = 8);
    let outcome = finished(running).await;
    assert!(matches!(&outcome, Err(CallError::InvalidParams(text)) if text.contains("8 bytes")), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn component_inspection_lists_exports_imports_and_tools() {
    let Some(plugin) = sample("text") else { return };
    let Source::File(file) = plugin.component.clone() else { panic!() };
    let house = House::new();
    let seen = house.sandbox.inspect(plugin).await.unwrap();
    assert_eq!(seen.size, std::fs::metadata(file).unwrap().len());
    assert_eq!(seen.digest.len(), 64);
    assert!(seen.exports.iter().any(|name| name == "bulkhead:plugin/tools@0.1.0.call-tool"), "{:?}", seen.exports);
    assert!(seen.imports.iter().all(|name| !name.starts_with("wasi:sockets")), "{:?}", seen.imports);
    assert_eq!(seen.manifest.unwrap().name.as_deref(), Some("text"));
    assert!(seen.tools.iter().any(|tool| tool.name == "echo"));
}
