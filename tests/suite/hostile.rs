//! Plugins that attack: the host goes on, and so do the calls of everybody else.

mod siege;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::client::{Client, Failure, all_capabilities, text};
use tests::modern::Modern;
use tests::wait::soon;
use tests::{Host, Setup};

/// What a bystander's echo may take while somebody attacks, on a machine that does other things as well.
const BYSTANDER: Duration = Duration::from_secs(3);

struct Scene {
    host: Host,
    attacker: Client,
    bystander: Client,
}

async fn scene(setup: Setup) -> Scene {
    let mallory = setup.token("mallory", "dark").await;
    let bob = setup.token("bob", "light").await;
    let host = setup.start().await;
    let attacker = Client::connect_as(&host, Some(&mallory), all_capabilities()).await;
    let bystander = Client::connect_as(&host, Some(&bob), all_capabilities()).await;
    Scene { host, attacker, bystander }
}

fn arena() -> Setup {
    Setup::with(&["text", "hostile"]).config("[call]\ncpu_ms = 700\nwall_ms = 60000")
}

async fn echoes(bystander: &Client, while_what: &str) {
    let begin = Instant::now();
    let result = bystander.tool("echo", json!({"text": "still here"})).await.expect("an echo");
    assert_eq!(text(&result), "still here");
    assert!(begin.elapsed() < BYSTANDER, "an echo took {:?} during {while_what}", begin.elapsed());
}

/// How an attack may end.
enum End {
    Error(i64),
    /// The tool's own failure: it was refused and says so.
    Refused,
    /// It gets through, bounded.
    Bounded,
}

#[tokio::test]
async fn operator_reads_what_a_crashed_guest_wrote_to_standard_error() {
    let host = Setup::with(&["hostile"]).start().await;
    let client = Client::connect(&host).await;
    let failure = client.tool("trap", json!({})).await.expect_err("it crashes");
    assert_eq!((failure.code, &*failure.message), (1001, "the tool crashed: it panicked or aborted"));
    let log = host.log();
    let line = log.lines().find(|line| line.contains("a guest crashed")).unwrap_or_else(|| panic!("no line:\n{log}"));
    assert!(line.contains(" INFO ") && line.contains("this plugin traps on purpose"), "{line}");
    assert!(line.contains("plugin=\"hostile\""), "{line}");
}

#[tokio::test]
async fn every_hostile_call_ends_without_affecting_others() {
    let Scene { mut host, attacker, bystander } = scene(arena()).await;
    let attacks: [(&str, Value, End); 16] = [
        ("spin", json!({}), End::Error(1002)),
        ("recurse", json!({}), End::Error(1001)),
        ("grow", json!({}), End::Error(1002)),
        ("flood_result", json!({}), End::Error(1002)),
        ("flood_log", json!({"count": 20_000}), End::Bounded),
        ("flood_progress", json!({"count": 50_000}), End::Bounded),
        ("flood_stdout", json!({"count": 5_000}), End::Bounded),
        ("flood_handles", json!({}), End::Error(1002)),
        ("trap", json!({}), End::Error(1001)),
        ("read_file", json!({"path": "/etc/passwd"}), End::Refused),
        ("read_file", json!({"path": "../../../../etc/passwd"}), End::Refused),
        ("connect", json!({"host": "127.0.0.1", "port": 22}), End::Refused),
        ("connect", json!({"host": "localhost", "port": 22}), End::Refused),
        ("bad_output", json!({}), End::Error(1004)),
        ("bad_json", json!({}), End::Error(1004)),
        ("bad_utf8", json!({}), End::Error(1004)),
    ];
    for (tool, arguments, end) in attacks {
        let what = format!("{tool} {arguments}");
        let attack = attacker.tool(tool, arguments);
        let beside = async {
            for _ in 0..3 {
                echoes(&bystander, &what).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let (outcome, ()) = soon(&what, async { tokio::join!(attack, beside) }).await;
        judge(&what, outcome, &end);
        assert!(host.is_alive(), "{what} took the host down:\n{}", host.log());
    }
    echoes(&bystander, "peace").await;
}

/// The clients read every message as JSON of Unicode characters, as each parser does, and refuse one that holds half a
/// pair.
#[tokio::test]
async fn half_a_surrogate_pair_of_a_guest_leaves_whole_messages_in_both_eras() {
    let setup = Setup::with(&["hostile"]);
    let host = setup.start().await;
    let legacy = Client::connect(&host).await;
    let modern = Modern::full(&host, None).with_meta("io.modelcontextprotocol/logLevel", json!("debug"));
    let cut = json!({"cut\u{fffd}": "ab\u{fffd}", "whole": "\u{1f600}"});
    let call = json!({"name": "half_pairs", "arguments": {}});

    let (outcome, legacy_heard) = legacy.call_hearing("tools/call", call.clone()).await;
    let mut modern_heard = Vec::new();
    let answer = modern.send("tools/call", call).await.response_after(&mut modern_heard).await;
    let legacy_task = legacy.task("half_pairs", json!({})).await;
    legacy.until_status(&legacy_task, "completed").await;
    let modern_task = modern.task("half_pairs", json!({"detaches": true})).await;
    modern.until_status(&modern_task, "completed").await;
    host.kill().await;
    let host = setup.start().await;
    let legacy = Client::connect(&host).await;
    let modern = Modern::full(&host, None);
    let results = [
        ("a call of 2025-11-25", outcome.expect("a result")),
        ("a call of 2026-07-28", answer["result"].clone()),
        ("a stored result of 2025-11-25", legacy.about("tasks/result", &legacy_task).await.expect("a result")),
        ("a stored result of 2026-07-28", modern.until_status(&modern_task, "completed").await["result"].clone()),
    ];
    for (what, result) in results {
        assert_eq!(result["structuredContent"], cut, "{what}: {result}");
        assert_eq!(result["content"][0]["_meta"]["example.com/cut"], "\u{fffd}", "{what}: {result}");
    }
    for (era, heard) in [("2025-11-25", legacy_heard), ("2026-07-28", modern_heard)] {
        let logged: Vec<_> = heard.iter().filter(|message| message["method"] == "notifications/message").collect();
        assert_eq!(logged.len(), 1, "{era}: {heard:?}");
        assert_eq!(logged[0]["params"]["data"], cut, "{era}");
    }
}

fn judge(what: &str, outcome: Result<Value, Failure>, end: &End) {
    match (end, outcome) {
        (End::Error(code), Err(failure)) => {
            assert_eq!(failure.code, *code, "{what}: {failure:?}");
            assert!(
                !failure.message.is_empty() && !failure.message.contains(".rs"),
                "{what}: no internals: {failure:?}"
            );
        }
        (End::Refused, Ok(result)) => assert_eq!(result["isError"], true, "{what}: {result}"),
        (End::Refused, Err(failure)) => assert!((1001..=1004).contains(&failure.code), "{what}: {failure:?}"),
        (End::Bounded, Ok(result)) => assert_ne!(result["isError"], true, "{what}: {result}"),
        (End::Bounded, Err(failure)) => assert_eq!(failure.code, 1002, "{what}: {failure:?}"),
        (End::Error(_), Ok(result)) => panic!("{what} got through: {result}"),
    }
}

#[tokio::test]
async fn guest_without_grant_sees_no_environment() {
    let Scene { host: _host, attacker, .. } = scene(arena().env("SECRET_OF_THE_HOST", "hunter2")).await;
    let result = attacker.tool("environment", json!({})).await.expect("a result");
    assert_eq!(text(&result), "", "nothing is granted");
}

#[tokio::test]
async fn guest_sees_granted_environment_keys_only() {
    let setup = Setup::new().plugin("hostile", "[plugin.grants]\nenv = [\"GREETING\"]").env("GREETING", "hello");
    let host = setup.env("SECRET_OF_THE_HOST", "hunter2").start().await;
    let client = Client::connect(&host).await;
    let result = client.tool("environment", json!({})).await.expect("a result");
    assert_eq!(text(&result), "GREETING=hello\n");
}

#[tokio::test]
async fn granted_directory_cannot_be_left() {
    let setup = Setup::new();
    let folder = setup.path("granted");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("inside.txt"), "inside").expect("a file");
    std::fs::write(setup.path("outside.txt"), "outside").expect("a file");
    std::os::unix::fs::symlink(setup.path("outside.txt"), folder.join("link.txt")).expect("a link");
    let grant = format!("[plugin.grants]\ndirectories = [{{ host = {folder:?}, guest = \"/data\", write = false }}]");
    let host = setup.plugin("hostile", &grant).start().await;
    let client = Client::connect(&host).await;
    let read = async |path: &str| client.tool("read_file", json!({"path": path})).await.expect("a result");
    assert_eq!(text(&read("/data/inside.txt").await), "inside");
    for path in ["/data/../outside.txt", "/data/link.txt", "/etc/passwd", "/data/missing"] {
        assert_eq!(read(path).await["isError"], true, "{path}");
    }
}

#[tokio::test]
async fn cancel_of_concurrent_loops_frees_the_processor() {
    let setup = Setup::with(&["text", "hostile"]).config("[call]\ncpu_ms = 600000");
    let Scene { host, attacker, bystander } = scene(setup).await;
    let mut loops = Vec::new();
    for _ in 0..16 {
        loops.push(attacker.task("spin", json!({})).await);
    }
    for _ in 0..10 {
        echoes(&bystander, "sixteen loops").await;
    }
    for id in &loops {
        let begin = Instant::now();
        attacker.about("tasks/get", id).await.expect("it is there");
        assert!(begin.elapsed() < BYSTANDER, "tasks/get took {:?}", begin.elapsed());
    }
    for id in &loops {
        attacker.about("tasks/cancel", id).await.expect("it is cancelled");
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = host.cpu_ms();
    tokio::time::sleep(Duration::from_millis(1000)).await;
    let used = host.cpu_ms() - before;
    assert!(used < 300, "the cancelled loops still used {used} ms of processor time in a second");
}

#[tokio::test]
async fn guest_ignoring_cancel_is_stopped() {
    let Scene { host: _host, attacker, .. } = scene(arena()).await;
    let mut before = Vec::new();
    for _ in 0..16 {
        before.push(attacker.task("ignore_cancel", json!({})).await);
    }
    for id in &before {
        attacker.about("tasks/cancel", id).await.expect("it is cancelled");
    }
    tokio::time::sleep(Duration::from_millis(600)).await;
    // All sixteen places are free again: a new task runs instead of being queued.
    let task = attacker.create("ignore_cancel", json!({})).await.expect("a task");
    assert_ne!(task["statusMessage"], "queued", "{task}");
}

#[tokio::test]
async fn bad_components_do_not_stop_other_plugins() {
    let bad = [
        "bad_import",
        "bad_many",
        "bad_name",
        "bad_panic",
        "bad_schema",
        "bad_schema_json",
        "bad_spin",
        "bad_twins",
        "bad_utf8",
    ];
    let setup = bad.iter().fold(Setup::with(&["text"]), |setup, name| setup.plugin(name, ""));
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    let page = client.call("tools/list", json!({})).await.expect("a list");
    let names: Vec<_> = page["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["diff", "echo", "word_count"]);
    assert_eq!(text(&client.tool("echo", json!({"text": "x"})).await.expect("an echo")), "x");
    let log = host.log();
    for name in bad {
        assert!(log.contains(name), "the log does not say what is wrong with {name}:\n{log}");
    }
}

#[tokio::test]
async fn tool_name_clash_names_both_and_prefix_resolves_it() {
    let host = Setup::with(&["text", "clash"]).start().await;
    let log = host.log();
    let line = log
        .lines()
        .find(|line| line.contains("clash") && !line.contains("loading plugins"))
        .unwrap_or_else(|| panic!("nothing about it:\n{log}"));
    assert!(line.contains("text"), "both are named: {line}");
    let client = Client::connect(&host).await;
    assert_eq!(text(&client.tool("echo", json!({"text": "x"})).await.expect("the first one serves")), "x");

    let host = Setup::with(&["text"]).plugin("clash", "prefix = \"other_\"").start().await;
    let client = Client::connect(&host).await;
    let page = client.call("tools/list", json!({})).await.expect("a list");
    let tools = page["tools"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "other_echo"), "{page}");
    assert!(tools.iter().any(|tool| tool["name"] == "echo"), "{page}");
}
