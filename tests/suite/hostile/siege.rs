//! All attacks at once and again and again: the others are served, and nothing is left behind.

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};
use tests::client::{Client, Failure, all_capabilities, text};
use tests::place::rounds;
use tests::process::{Holdings, memory_bytes};
use tests::wait::until;
use tests::{Host, Setup, command};

use super::BYSTANDER;

/// Each attack of the guest, as small as it still is one.
fn attacks() -> [(&'static str, Value); 17] {
    [
        ("spin", json!({})),
        ("recurse", json!({})),
        ("grow", json!({})),
        ("flood_result", json!({})),
        ("flood_log", json!({"count": 2_000})),
        ("flood_progress", json!({"count": 5_000})),
        ("flood_stdout", json!({"count": 1_000})),
        ("flood_handles", json!({})),
        ("trap", json!({})),
        ("read_file", json!({"path": "/etc/passwd"})),
        ("write_file", json!({"path": "/tmp/bulkhead-hostile", "text": "x"})),
        ("environment", json!({})),
        ("connect", json!({"host": "localhost", "port": 22})),
        ("ignore_cancel", json!({})),
        ("bad_output", json!({})),
        ("bad_json", json!({})),
        ("bad_utf8", json!({})),
    ]
}

/// Memory that one attack may take: what `[call]` below allows, and what the host needs beside it.
const CALL_BYTES: u64 = 8 << 20;

fn setup() -> Setup {
    let config = format!(
        "[call]\ncpu_ms = 100\nwall_ms = 2000\nmemory_bytes = {CALL_BYTES}\nresult_bytes = 65536\n[limits]\n\
         requests_per_second = 100000\ntask_creations_per_second = 100000\ncalls_running_total = 16\n\
         calls_running_per_tenant = 8\ncalls_running_per_requestor = 8"
    );
    Setup::with(&["text", "primes", "hostile"]).config(&config)
}

/// What an attack may come to: data or an error of ours; never a failure of the host.
fn judge(tool: &str, outcome: &Result<Value, Failure>) {
    if let Err(failure) = outcome {
        assert!((1001..=1011).contains(&failure.code), "{tool}: {failure:?}");
    }
}

/// One attack: as a plain call, as a task that is cancelled at once, as a task that nobody looks after, or from a
/// client that hangs up.
async fn attack(client: &Client, number: u32) {
    let all = attacks();
    let (tool, arguments) = all[number as usize % all.len()].clone();
    match number / 17 % 4 {
        0 => judge(tool, &client.tool(tool, arguments).await),
        1 => {
            let task = client.create_with(tool, arguments, json!({"ttl": 1_000})).await;
            judge(tool, &task);
            if let Ok(task) = task {
                // It may be over already.
                let _ = client.about("tasks/cancel", task["taskId"].as_str().expect("an id")).await;
            }
        }
        2 => judge(tool, &client.create_with(tool, arguments, json!({"ttl": 1_000})).await),
        _ => {
            let call = client.tool(tool, arguments);
            let _ = tokio::time::timeout(Duration::from_millis(5), call).await;
        }
    }
}

async fn echo(client: &Client, words: &str) -> Duration {
    let begin = Instant::now();
    let result = client.tool("echo", json!({"text": words})).await.expect("an echo");
    assert_eq!(text(&result), words, "somebody else's answer");
    begin.elapsed()
}

async fn client(host: &Host, token: &str) -> Client {
    Client::connect_as(host, Some(token), all_capabilities()).await
}

/// Whether the log tells of a panic of the host's own.
fn has_panicked(host: &Host) -> bool {
    host.log().lines().any(|line| line.contains("panicked") && !line.contains("a guest crashed"))
}

#[tokio::test]
async fn other_tenants_are_served_while_every_attack_runs() {
    let setup = setup();
    let mallory = setup.token("mallory", "dark").await;
    let mut bystanders = Vec::new();
    for name in ["bob", "carol", "dave"] {
        bystanders.push(setup.token(name, "light").await);
    }
    let mut host = setup.start().await;
    let attacker = client(&host, &mallory).await;
    let bystanders = join_all(bystanders.iter().map(|token| client(&host, token))).await;
    for bystander in &bystanders {
        echo(bystander, "peace").await;
    }
    let (before, _) = memory_bytes(host.pid());
    let end = Instant::now() + Duration::from_secs(rounds(8, 120).into());
    let legion = join_all((0..12).map(|at| {
        let attacker = &attacker;
        async move {
            let mut number = at * 5;
            while Instant::now() < end {
                attack(attacker, number).await;
                number += 1;
            }
            number - at * 5
        }
    }));
    let others = join_all(bystanders.iter().enumerate().map(|(at, bystander)| async move {
        let mut times = Vec::new();
        while Instant::now() < end {
            times.push(echo(bystander, &format!("{at} {}", times.len())).await);
            let task = bystander.task("count_primes", json!({"below": 100})).await;
            bystander.until_status(&task, "completed").await;
            let result = bystander.about("tasks/result", &task).await.expect("a result");
            assert!(result.to_string().contains("25"), "somebody else's result: {result}");
        }
        times
    }));
    let (fought, times) = tokio::join!(legion, others);
    assert!(fought.iter().sum::<u32>() >= 12, "hardly an attack was made: {fought:?}");
    let mut times: Vec<_> = times.into_iter().flatten().collect();
    times.sort();
    let p99 = times[times.len() * 99 / 100];
    println!("{} attacks, {} echoes, p99 {p99:?}", fought.iter().sum::<u32>(), times.len());
    assert!(p99 < BYSTANDER, "of {} echoes, one in a hundred took {p99:?}", times.len());
    let (_, most) = memory_bytes(host.pid());
    // Eight run at a time; what a slot of the pool once had it may keep.
    let allowed = before + 16 * (CALL_BYTES + (4 << 20)) + (128 << 20);
    assert!(most < allowed, "{most} bytes at most, {before} before");
    assert!(host.is_alive() && !has_panicked(&host), "{}", host.log());
}

#[tokio::test]
async fn attacks_leave_no_resources_behind() {
    let setup = setup().own_code();
    let temporary = setup.path("tmp");
    std::fs::create_dir(&temporary).expect("a folder");
    let setup = setup.env("TMPDIR", temporary.to_str().expect("a path"));
    let mallory = setup.token("mallory", "dark").await;
    let bob = setup.token("bob", "light").await;
    let mut host = setup.start().await;
    let attacker = client(&host, &mallory).await;
    let bystander = client(&host, &bob).await;
    let wave = async |from: u32, count: u32| {
        let mut begun = from;
        while begun < from + count {
            join_all((begun..begun + 12).map(|number| attack(&attacker, number))).await;
            begun += 12;
        }
        until("the tasks to be gone", async || attacker.tasks().await.is_empty().then_some(())).await;
    };
    // Threads and connections that are there from the first time on are no loss.
    wave(0, 17 * 4).await;
    echo(&bystander, "peace").await;
    // Each token has a row for its last use, which is written some seconds later.
    until("the uses of the tokens to be written", async || {
        let listed = command::json(&["token", "list"], &setup.data()).await;
        let tokens = listed["tokens"].as_array().expect("tokens");
        tokens.iter().all(|token| !token["last_used_at"].is_null()).then_some(())
    })
    .await;
    let before = Holdings::of(&host);
    let (memory_before, _) = memory_bytes(host.pid());
    let kept = command::json(&["store", "check"], &setup.data()).await;

    let count = rounds(17 * 8, 10_000);
    let begin = Instant::now();
    let mut mebibytes = Vec::new();
    for from in (0..count).step_by(500) {
        wave(1_000 + from, 500.min(count - from)).await;
        echo(&bystander, "still here").await;
        mebibytes.push(memory_bytes(host.pid()).0 >> 20);
    }
    let took = begin.elapsed();
    let after = until("everything to be given back", async || {
        let now = Holdings::of(&host);
        let same = now.threads <= before.threads
            && now.children == before.children
            // Connections that the attackers' client keeps open.
            && now.descriptors <= before.descriptors + 16
            && now.mappings <= before.mappings + 128
            && now.files == before.files;
        same.then(|| now.clone()).or_else(|| {
            eprintln!("{now:?} instead of {before:?}");
            None
        })
    })
    .await;
    let (memory, _) = memory_bytes(host.pid());
    println!("{count} attacks in {took:?}: {before} and {memory_before} bytes became {after} and {memory} bytes");
    println!("MiB after each wave of them: {mebibytes:?}");
    assert!(memory < memory_before + (96 << 20), "{memory} bytes after {count} attacks, {memory_before} before");
    // What is over its time is swept a little later.
    until("the store to hold what it held", async || {
        let left = command::json(&["store", "check"], &setup.data()).await;
        let same = ["tasks", "rows", "files", "problems"].iter().all(|what| left[what] == kept[what]);
        same.then_some(()).or_else(|| {
            eprintln!("{left} instead of {kept}");
            None
        })
    })
    .await;
    let files = std::fs::read_dir(&temporary).expect("a folder").count();
    assert_eq!(files, 0, "files in the temporary folder");
    // One second may hold the end of the last sweep; a guest that was left behind fills each of them.
    let mut seconds = Vec::new();
    while seconds.last().is_none_or(|used| *used >= 100) {
        assert!(seconds.len() < 30, "milliseconds of processor time in seconds of peace: {seconds:?}");
        seconds.push(host.cpu_ms_in(Duration::from_secs(1)).await);
    }
    assert!(!std::path::Path::new("/tmp/bulkhead-hostile").exists(), "a guest wrote a file");
    assert!(host.is_alive() && !has_panicked(&host), "{}", host.log());
}
