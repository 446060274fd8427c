//! Components of WASI 0.3: who loads them, and every limit with the smallest asynchronous guest that runs into it.

use serde_json::json;

use super::egress::{HELLO, Server};
use super::limits::{INSTANCES, Subject, wait_until};
use super::*;
use crate::engine::EngineKind;
use crate::plugin_source::Source;
use crate::wasi_needs::PARTS_MAX;

/// A component with one asynchronous function. `begin` and `go_on` are the bodies of its first part and of its
/// callback; both give back what comes next: 0 is the end, 1 another turn, 2 and sixteen times a set is a wait for that
/// set.
fn component(begin: &str, go_on: &str) -> String {
    format!(
        r#"(component
            (import "wasi:clocks/monotonic-clock@0.3.0" (instance $clock
                (export "wait-for" (func async (param "how-long" u64)))))
            (type $later (future))
            (type $bytes (stream u8))
            (core func $return (canon task.return))
            (core func $set (canon waitable-set.new))
            (core func $join (canon waitable.join))
            (core func $future (canon future.new $later))
            (core func $await (canon future.read $later async))
            (core func $stream (canon stream.new $bytes))
            (core func $wait-for (canon lower (func $clock "wait-for") async))
            (core module $m
                (import "" "return" (func $return))
                (import "" "set" (func $set (result i32)))
                (import "" "join" (func $join (param i32 i32)))
                (import "" "future" (func $future (result i64)))
                (import "" "await" (func $await (param i32 i32) (result i32)))
                (import "" "stream" (func $stream (result i64)))
                (import "" "wait-for" (func $wait-for (param i64) (result i32)))
                (memory 1)
                (func (export "run") (result i32) (local $s i32) {begin})
                (func (export "on") (param i32 i32 i32) (result i32) {go_on}))
            (core instance $i (instantiate $m (with "" (instance
                (export "return" (func $return)) (export "set" (func $set)) (export "join" (func $join))
                (export "future" (func $future)) (export "await" (func $await)) (export "stream" (func $stream))
                (export "wait-for" (func $wait-for))))))
            (func (export "run") async
                (canon lift (core func $i "run") async (callback (core func $i "on")))))"#
    )
}

const RETURN: &str = "(call $return) (i32.const 0)";
const SPIN: &str = "(loop (br 0)) (i32.const 0)";
/// Waits for the clock as long as 64 bits can say.
const SLEEP: &str = "(local.set $s (call $set))
    (call $join (i32.shr_u (call $wait-for (i64.const -1)) (i32.const 4)) (local.get $s))
    (i32.or (i32.const 2) (i32.shl (local.get $s) (i32.const 4)))";
/// Waits for a future whose other end it keeps.
const FORSAKEN: &str = "(local $f i32)
    (local.set $f (i32.wrap_i64 (call $future)))
    (drop (call $await (local.get $f) (i32.const 0)))
    (local.set $s (call $set))
    (call $join (local.get $f) (local.get $s))
    (i32.or (i32.const 2) (i32.shl (local.get $s) (i32.const 4)))";

fn allowed(wat: &str) -> PluginSource {
    PluginSource { wasi: WasiVersion::V0_3, ..strange(wat) }
}

/// Not allowed yet.
fn strange(wat: &str) -> PluginSource {
    let mut source = source(Source::Bytes(wat::parse_str(wat).unwrap().into()));
    source.name = Some("stranger".to_owned());
    source
}

async fn run(begin: &str, go_on: &str, change: impl FnOnce(&mut CallLimits)) -> (FaultKind, String) {
    let mut limits = limits();
    change(&mut limits);
    match Subject::of(EngineKind::Concurrent, &component(begin, go_on)).run(&limits).await {
        Err(CallError::Fault { kind, reason }) => (kind, reason),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wasi_03_needs_the_operators_word() {
    let house = House::new();
    let wat = component(RETURN, SPIN);
    let refused = house.sandbox.load(strange(&wat)).await.unwrap_err();
    assert!(!refused.passing);
    let [problem] = refused.problems.as_slice() else { panic!("{refused:?}") };
    assert!(problem.contains("it imports wasi:clocks/monotonic-clock@0.3.0"), "{problem}");
    assert!(problem.contains("wasi = \"0.3\" in its [[plugin]]"), "{problem}");
    let loaded = house.publish(allowed(&wat)).await;
    assert!(loaded.is_typed());
    let output = house.call("run", "{}").await.unwrap();
    assert!(!output.is_error, "{output:?}");
    // The word can be taken back while the plugin is loaded.
    let taken_back = house.sandbox.under(&loaded, &strange(&wat)).await.unwrap_err();
    assert!(taken_back.problems[0].contains("needs WASI 0.3"), "{taken_back:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn component_of_wasi_02_stays_on_its_engine_when_03_is_allowed() {
    let house = House::new();
    let wat = "(component (core module $m (func (export \"run\"))) (core instance $i (instantiate $m))
        (func (export \"run\") (canon lift (core func $i \"run\"))))";
    let loaded = house.publish(allowed(wat)).await;
    let plain = &house.sandbox.host_context.engines.plain().engine;
    assert!(wasmtime::Engine::same(loaded.plugin.instance.engine(), plain));
    house.publish(allowed(&component(RETURN, SPIN))).await;
    assert_ne!(
        house.sandbox.host_context.engines.of(EngineKind::Concurrent).unwrap().hash,
        house.sandbox.engine_hash()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_loop_ends_at_its_limits() {
    let spins = [
        (SPIN, SPIN),
        // In the callback, and by asking for another turn again and again.
        ("(i32.const 1)", SPIN),
        ("(i32.const 1)", "(i32.const 1)"),
    ];
    for (begin, go_on) in spins {
        let ended = run(begin, go_on, |limits| limits.cpu_ms = 100).await;
        assert_eq!(ended, (FaultKind::Limit, "the tool used more than its 100 ms of CPU time".to_owned()), "{go_on}");
        let ended = run(begin, go_on, |limits| limits.wall_ms = 100).await;
        assert_eq!(ended, (FaultKind::Deadline, "the tool did not finish within 100 ms".to_owned()), "{go_on}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_wait_ends_at_its_wall_limit() {
    let ended = run(SLEEP, SPIN, |limits| limits.wall_ms = 100).await;
    assert_eq!(ended, (FaultKind::Deadline, "the tool did not finish within 100 ms".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn future_that_nobody_completes_is_a_fault_at_once() {
    let (kind, reason) = run(FORSAKEN, SPIN, |limits| limits.wall_ms = 60_000).await;
    assert_eq!((kind, reason.as_str()), (FaultKind::Trap, "the tool waits for something that nobody will do"));
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_limit_holds_for_asynchronous_guests() {
    let grow = "(loop (drop (memory.grow (i32.const 16))) (br 0)) (i32.const 0)";
    let (kind, reason) = run(grow, SPIN, |limits| limits.memory_bytes = 8 << 20).await;
    assert_eq!((kind, reason.as_str()), (FaultKind::Limit, "the tool used more than its 8 MiB of memory"));
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_futures_streams_and_waits_are_bounded() {
    for endless in ["(call $future)", "(call $stream)", "(call $set)", "(call $wait-for (i64.const -1))"] {
        let (kind, reason) = run(&format!("(loop (drop {endless}) (br 0)) (i32.const 0)"), SPIN, |_| {}).await;
        assert_eq!(kind, FaultKind::Limit, "{endless}: {reason}");
        assert!(reason.contains("host resources") || reason.contains("handles"), "{endless}: {reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_asynchronous_call_stops_and_frees_its_instance() {
    for (begin, go_on) in [(SPIN, SPIN), ("(i32.const 1)", SPIN), (SLEEP, SPIN), ("(i32.const 1)", "(i32.const 1)")] {
        let subject = Arc::new(Subject::of(EngineKind::Concurrent, &component(begin, go_on)));
        // Many more than the pool holds at once.
        for _ in 0..INSTANCES * 5 {
            let subject = Arc::clone(&subject);
            let running = tokio::spawn(async move { subject.run(&limits()).await });
            tokio::time::sleep(Duration::from_millis(2)).await;
            running.abort();
            assert!(running.await.unwrap_err().is_cancelled());
        }
        let limits = CallLimits { wall_ms: 50, ..limits() };
        let all = futures::future::join_all((0..INSTANCES).map(|_| subject.run(&limits))).await;
        let late = |outcome: &Result<(), CallError>| {
            matches!(outcome, Err(CallError::Fault { kind: FaultKind::Deadline, .. }))
        };
        assert!(all.iter().all(late), "{all:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_asynchronous_loop_stops_its_clocks() {
    for (begin, go_on) in [(SPIN, SPIN), ("(i32.const 1)", "(i32.const 1)")] {
        let subject = Subject::of(EngineKind::Concurrent, &component(begin, go_on));
        let limits = CallLimits { cpu_ms: 300, wall_ms: 60_000, ..limits() };
        let state = Arc::<CallState>::default();
        let control = Control::new(Arc::<CallState>::clone(&state));
        let shared = Arc::clone(&state);
        let running = tokio::spawn(async move { subject.run_with(&limits, shared).await });
        wait_until(|| control.cpu_ms() > 0).await;
        control.pause();
        let cpu = settled(|| control.cpu_ms()).await;
        assert!(state.wall_elapsed().1 && !running.is_finished());
        control.resume();
        wait_until(|| control.cpu_ms() > cpu).await;
        let outcome = tokio::time::timeout(Duration::from_secs(90), running).await.unwrap().unwrap();
        assert!(matches!(outcome, Err(CallError::Fault { kind: FaultKind::Limit, .. })), "{outcome:?}");
    }
}

/// The guest in Rust, allowed and with these grants.
async fn guest(change: impl FnOnce(&mut PluginSource)) -> Option<House> {
    let mut plugin = sample("concurrent")?;
    plugin.wasi = WasiVersion::V0_3;
    change(&mut plugin);
    let house = House::new();
    house.publish(plugin).await;
    Some(house)
}

async fn call(house: &House, tool: &str, arguments: serde_json::Value) -> serde_json::Value {
    let output = house.call(&format!("trial_concurrent_tools_{tool}"), &arguments.to_string()).await.unwrap();
    serde_json::from_str(output.structured.unwrap().as_str()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn http_of_wasi_03_goes_through_the_same_grants() {
    let server = Server::answering(HELLO).await;
    let origin = format!("127.0.0.1:{}", server.port);
    let grant = |plugin: &mut PluginSource| plugin.grants.http = vec![format!("http://{origin}/a").parse().unwrap()];
    let Some(house) = guest(grant).await else { return };
    let fetch = |path: &str, body: Option<&str>| {
        let mut arguments = json!({"authority": origin, "path": path});
        if let Some(body) = body {
            arguments["body"] = json!(body);
        }
        call(&house, "fetch", arguments)
    };
    assert_eq!(fetch("/a?b=c", None).await, json!({"result": "hello"}));
    assert_eq!(fetch("/a", Some("words")).await, json!({"result": "hello"}));
    let [get, post] = server.seen().try_into().unwrap();
    assert!(get.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{get}");
    assert!(post.starts_with("POST /a HTTP/1.1\r\n") && post.contains("words"), "{post}");
    for request in [get, post] {
        let hosts: Vec<_> = request.lines().filter(|line| line.to_ascii_lowercase().starts_with("host:")).collect();
        assert_eq!(hosts, [format!("host: {origin}")]);
    }
    // Another path, and another address of the same machine.
    assert_eq!(fetch("/b", None).await, json!({"error": "ErrorCode::HttpRequestDenied"}));
    let elsewhere = json!({"authority": format!("localhost:{}", server.port), "path": "/a"});
    assert_eq!(call(&house, "fetch", elsewhere).await, json!({"error": "ErrorCode::HttpRequestDenied"}));
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_files_and_sockets_of_wasi_03_are_those_of_02() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("a.txt"), "words").unwrap();
    let Some(bare) = guest(|_| {}).await else { return };
    assert_eq!(call(&bare, "variables", json!({})).await, json!({"result": []}));
    assert!(call(&bare, "read", json!({"path": "/data/a.txt"})).await["error"].is_string());
    let connected = call(&bare, "connect", json!({})).await["result"].to_string();
    assert_eq!(connected.matches("Err(").count(), 3, "{connected}");

    let granted = |plugin: &mut PluginSource| {
        plugin.grants.env = vec!["GRANTED".to_owned()];
        let host = folder.path().to_owned();
        let guest = "/data".to_owned();
        plugin.grants.directories =
            vec![bulkhead_calls::policy::DirGrant { host, guest, write: false, bytes_max: None }];
    };
    let house = guest(granted).await.unwrap();
    assert_eq!(call(&house, "variables", json!({})).await, json!({"result": ["GRANTED"]}));
    assert_eq!(call(&house, "read", json!({"path": "/data/a.txt"})).await, json!({"result": "words"}));
    assert_eq!(call(&house, "print", json!({"text": "a line"})).await, json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn guest_in_rust_runs_into_every_limit() {
    let limits = CallLimits { cpu_ms: 300, memory_bytes: 32 << 20, ..limits() };
    let Some(house) = guest(|plugin| plugin.limits = limits).await else { return };
    let faults = [
        ("spin", "the tool used more than its 300 ms of CPU time"),
        ("grow", "the tool used more than its 32 MiB of memory"),
        ("hoard", "the tool holds"),
        ("stall", "the tool waits for something that nobody will do"),
    ];
    for (tool, expected) in faults {
        let (_, reason) = fault(house.call(&format!("trial_concurrent_tools_{tool}"), "{}").await);
        assert!(reason.starts_with(expected), "{tool}: {reason}");
    }
    let waited = call(&house, "wait-together", json!({"ms": [1000, 1500, 1200]})).await;
    assert!(waited["result"].as_u64().is_some_and(|ms| (1500..3500).contains(&ms)), "together, not in turn: {waited}");
}

/// A component of as many parts as one may have, each of which sleeps in the middle of a call of the next one.
fn chain(parts: u64) -> String {
    let last = component(SLEEP, SPIN).replacen("(component", "(component $p1", 1);
    let links = (2..=parts).map(|at| {
        format!(
            r#"(component $p{at}
                (import "next" (func $next async))
                (core func $return (canon task.return))
                (core func $next-now (canon lower (func $next)))
                (core module $m
                    (import "" "return" (func $return))
                    (import "" "next" (func $next))
                    (func (export "run") (result i32) (call $next) (call $return) (i32.const 0))
                    (func (export "on") (param i32 i32 i32) (result i32) unreachable))
                (core instance $i (instantiate $m (with "" (instance
                    (export "return" (func $return)) (export "next" (func $next-now))))))
                (func (export "run") async
                    (canon lift (core func $i "run") async (callback (core func $i "on")))))
            (instance $i{at} (instantiate $p{at} (with "next" (func $i{before} "run"))))"#,
            before = at - 1
        )
    });
    let links: String = links.collect();
    format!(
        r#"(component
            (import "wasi:clocks/monotonic-clock@0.3.0" (instance $clock
                (export "wait-for" (func async (param "how-long" u64)))))
            {last}
            (instance $i1 (instantiate $p1 (with "wasi:clocks/monotonic-clock@0.3.0" (instance $clock))))
            {links}
            (export "run" (func $i{parts} "run")))"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn sleeping_parts_take_no_stacks_of_other_calls() {
    let refused = House::new().sandbox.load(allowed(&chain(PARTS_MAX + 1))).await.unwrap_err();
    assert!(refused.problems[0].contains("composed of 7 components that run; 6 is the most"), "{refused}");

    let wat = chain(PARTS_MAX);
    House::new().sandbox.load(allowed(&wat)).await.unwrap();
    let subject = Subject::of(EngineKind::Concurrent, &wat);
    let limits = CallLimits { wall_ms: 300, ..limits() };
    // As many as the pool has places for.
    let all = futures::future::join_all((0..INSTANCES).map(|_| subject.run(&limits))).await;
    let late =
        |outcome: &Result<(), CallError>| matches!(outcome, Err(CallError::Fault { kind: FaultKind::Deadline, .. }));
    assert!(all.iter().all(late), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn call_that_waits_for_a_place_ends_at_its_wall_limit() {
    let subject = Subject::of(EngineKind::Concurrent, &component(RETURN, SPIN));
    let engine = subject.host_context.engines.of(EngineKind::Concurrent).unwrap();
    let mut taken = Vec::new();
    for _ in 0..INSTANCES {
        taken.push(engine.slots.acquire(None).await);
    }
    let limits = CallLimits { wall_ms: 100, ..limits() };
    let ended = tokio::time::timeout(Duration::from_secs(20), subject.run(&limits)).await.expect("an end");
    let reason =
        "the tool could not begin within 100 ms: 4 calls of plugins of WASI 0.3 is the most at a time".to_owned();
    assert_eq!(ended, Err(CallError::Fault { kind: FaultKind::Deadline, reason }));
    drop(taken);
    assert_eq!(subject.run(&limits).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_with_all_its_places_keeps_no_other_one_and_no_load_from_theirs() {
    let house = House::new();
    let plugin = allowed(&component(RETURN, SPIN));
    house.publish(plugin.clone()).await;
    let engine = house.sandbox.host_context.engines.of(EngineKind::Concurrent).unwrap();
    let mut taken = Vec::new();
    // All at once: the runtime would make a task wait after some of them.
    let take = || tokio::task::unconstrained(engine.slots.acquire(Some(TENANT)));
    while let Some(slot) = futures::FutureExt::now_or_never(take()) {
        taken.push(slot);
    }
    let call = |tenant: TenantId| {
        house.start_with("run", "{}", move |spec| {
            spec.tenant = tenant;
            spec.limits.wall_ms = 1_000;
        })
    };
    let (kind, reason) = fault(finished(call(TENANT)).await);
    assert_eq!(kind, FaultKind::Deadline);
    assert!(reason.ends_with("448 of them of one tenant"), "{reason}");
    assert!(!finished(call(TenantId([8; 16]))).await.unwrap().is_error);
    house.publish(plugin).await;
}
