//! What survives: `kill -9` at any moment, restarts, drains.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tests::client::Client;
use tests::modern::Modern;
use tests::place::rounds;
use tests::schema::{self, Expected};
use tests::wait::{PATIENCE, until};
use tests::{Host, Setup, command, store_engine};

use crate::egress::Web;

/// A sequence of numbers that looks random and is the same for the same seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// A task that was acknowledged before the host was killed.
struct Acknowledged {
    id: String,
    below: u64,
    primes: u64,
    /// The result was fetched before the kill.
    fetched: Option<Value>,
}

const COUNTS: [(u64, u64); 4] = [(10, 4), (100, 25), (10_000, 1_229), (3_000_000, 216_816)];

/// Creates tasks as fast as it can until the host is gone; what was acknowledged.
async fn create_until_killed(url: &str, session: &str, seed: u64) -> Vec<Acknowledged> {
    let mut dice = Dice(seed);
    let mut acknowledged: Vec<Acknowledged> = Vec::new();
    let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().expect("a client");
    let ids = AtomicU64::new(0);
    let send = async |method: &str, params: Value| -> Option<Value> {
        // The session's other writers have ids of their own.
        let id = format!("{seed}-{}", ids.fetch_add(1, Ordering::Relaxed));
        let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let request = http
            .post(url)
            .header("mcp-session-id", session)
            .header("mcp-protocol-version", "2025-11-25")
            .header("accept", "application/json, text/event-stream")
            .json(&body);
        let text = request.send().await.ok()?.text().await.ok()?;
        // A reply that broke off in the middle acknowledges nothing.
        let reply: Value = serde_json::from_str(&text).ok()?;
        schema::check(&reply, Some(&Expected { id: json!(id), method: method.to_owned() }));
        Some(reply)
    };
    loop {
        let (below, primes) = COUNTS[dice.next(4) as usize];
        let params = json!({"name": "count_primes", "arguments": {"below": below}, "task": {"ttl": 3_600_000}});
        let Some(reply) = send("tools/call", params).await else { return acknowledged };
        match reply["result"]["task"]["taskId"].as_str() {
            Some(id) => acknowledged.push(Acknowledged { id: id.to_owned(), below, primes, fetched: None }),
            None => assert_eq!(reply["error"]["code"], 1010, "only a full queue may refuse: {reply}"),
        }
        if dice.next(3) == 0 && !acknowledged.is_empty() {
            let at = dice.next(acknowledged.len() as u64) as usize;
            let Some(reply) = send("tasks/get", json!({"taskId": acknowledged[at].id})).await else {
                return acknowledged;
            };
            if reply["result"]["status"] == "completed" {
                let params = json!({"taskId": acknowledged[at].id});
                let Some(result) = send("tasks/result", params).await else { return acknowledged };
                assert!(result.get("result").is_some(), "a completed task gave no result: {result}");
                acknowledged[at].fetched = Some(result["result"].clone());
            }
        }
    }
}

/// Every acknowledged task is there, with the right outcome.
async fn verify(client: &Client, acknowledged: &[Acknowledged], round: u32) {
    for task in acknowledged {
        let now = until("the task to be over", async || {
            let now = client
                .about("tasks/get", &task.id)
                .await
                .unwrap_or_else(|failure| panic!("round {round}: acknowledged task {} is lost: {failure:?}", task.id));
            matches!(now["status"].as_str(), Some("completed" | "failed")).then_some(now)
        })
        .await;
        let result = client.about("tasks/result", &task.id).await;
        if now["status"] == "completed" {
            let result = result.expect("a completed task has a result");
            assert_eq!(result["structuredContent"]["count"], task.primes, "round {round}: primes below {}", task.below);
            if let Some(fetched) = &task.fetched {
                assert_eq!(*fetched, result, "round {round}: a result that was fetched before is another one now");
            }
        } else {
            assert!(task.fetched.is_none(), "round {round}: a result was fetched and is gone: {now}");
            let failure = result.expect_err("an interrupted task has no result");
            assert_eq!(failure.code, -32603);
            let message = now["statusMessage"].as_str().unwrap_or_default();
            assert!(message.contains("host"), "it says honestly what happened: {now}");
        }
    }
}

/// Those of the last round, and some older ones.
async fn verify_some(client: &Client, all: &[Acknowledged], created: usize, dice: &mut Dice, round: u32) {
    let (older, recent) = all.split_at(all.len() - created);
    verify(client, recent, round).await;
    for _ in 0..50.min(older.len()) {
        let at = dice.next(older.len() as u64) as usize;
        verify(client, &older[at..=at], round).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_at_random_moments_loses_no_acknowledged_task() {
    let seed = std::env::var("XTASK_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5EED_u64);
    println!("seed {seed}; set XTASK_TEST_SEED to repeat it");
    let mut dice = Dice(seed);
    let limits = "[limits]\nrequests_per_second = 100000\ntask_creations_per_second = 100000\ntasks_queued_per_requestor = 2000\n\
                  tasks_stored_per_requestor = 1000000\ntasks_stored_per_tenant = 1000000";
    let mut setup = Setup::with(&["primes"]).config(limits);
    let mut all = Vec::<Acknowledged>::new();
    let mut created = 0;
    let mut in_vain = 0;
    let count = rounds(6, 60);
    for round in 0..count {
        let host = setup.start().await;
        let client = Client::connect(&host).await;
        verify_some(&client, &all, created, &mut dice, round).await;
        let session = client.session.clone().expect("a session");
        let writers = (0..4).map(|_| {
            let url = host.url.clone();
            let session = session.clone();
            let seed = dice.next(u64::MAX) | 1;
            tokio::spawn(async move { create_until_killed(&url, &session, seed).await })
        });
        let writers: Vec<_> = writers.collect();
        tokio::time::sleep(Duration::from_millis(50 + dice.next(700))).await;
        setup = host.kill().await;
        let before = all.len();
        for writer in writers {
            all.extend(writer.await.expect("the writer ends with the host"));
        }
        created = all.len() - before;
        // A busy disk may take longer for the first one.
        in_vain += u32::from(created == 0);
    }
    println!("{} tasks in {count} rounds, {in_vain} of them before the first was acknowledged", all.len());
    assert!(in_vain * 2 < count, "nothing was acknowledged in {in_vain} of {count} rounds, so little was tested");
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    verify(&client, &all, u32::MAX).await;
    let listed = client.tasks().await;
    let known: Vec<_> = listed.iter().filter_map(|task| task["taskId"].as_str()).collect();
    assert!(all.iter().all(|task| known.contains(&task.id.as_str())), "what can be read is listed");
}

/// A rebuild beside the writers; whether it was done. `None`: the host was killed meanwhile.
async fn rebuild(setup: &Setup) -> Option<Value> {
    let data = setup.data();
    let output =
        command::output(&mut command::bulkhead(), &["store", "rebuild", "--json", "--data"], Some(&data)).await;
    output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("it prints JSON"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rebuild_under_writes_survives_kills() {
    if store_engine::is_left_out("a database is not rebuilt in use") {
        return;
    }
    let mut dice = Dice(0x00DD_BA11_u64);
    let limits = "[limits]\nrequests_per_second = 100000\ntask_creations_per_second = 100000\ntasks_queued_per_requestor = 2000\n\
                  tasks_stored_per_requestor = 1000000\ntasks_stored_per_tenant = 1000000";
    let mut setup = Setup::with(&["primes", "desk"]).config(limits);
    let mut all = Vec::<Acknowledged>::new();
    let mut created = 0;
    let mut rebuilt = 0;
    for round in 0..rounds(6, 60) {
        let host = setup.start().await;
        let client = Client::connect(&host).await;
        verify_some(&client, &all, created, &mut dice, round).await;
        let waiting = client.task("wait", json!({"ms": 1_500})).await;
        let session = client.session.clone().expect("a session");
        let writers = (0..3).map(|_| {
            let url = host.url.clone();
            let session = session.clone();
            let seed = dice.next(u64::MAX) | 1;
            tokio::spawn(async move { create_until_killed(&url, &session, seed).await })
        });
        let writers: Vec<_> = writers.collect();
        tokio::time::sleep(Duration::from_millis(150)).await;
        if round % 2 == 0 {
            let done = rebuild(&setup).await.expect("a rebuild beside a running host works");
            assert_eq!(done["lost"], json!([]), "{done}");
            assert!(done["tasks"].as_u64().is_some_and(|tasks| tasks > 0), "{done}");
            rebuilt += 1;
            let old = done["old_store"].as_str().expect("the old store is kept");
            assert!(std::path::Path::new(old).join("sled/db").exists(), "{done}");
            assert_eq!(client.until_status(&waiting, "completed").await["taskId"], waiting.as_str());
            let said = client.about("tasks/result", &waiting).await.expect("a task that ran meanwhile has its result");
            assert_eq!(said["structuredContent"]["waited_ms"], 1_500);
            setup = host.kill().await;
        } else {
            let running = tokio::spawn({
                let setup = setup.clone();
                async move { rebuild(&setup).await }
            });
            tokio::time::sleep(Duration::from_millis(dice.next(250))).await;
            setup = host.kill().await;
            running.await.expect("the command ends with the host");
        }
        let before = all.len();
        for writer in writers {
            all.extend(writer.await.expect("the writer ends with the host"));
        }
        created = all.len() - before;
    }
    assert!(rebuilt > 0 && !all.is_empty());
    let (_host, client) = primes_host(&setup).await;
    verify(&client, &all, u32::MAX).await;
    let report = command::json(&["store", "check"], &setup.data()).await;
    assert_eq!(report["problems"], json!([]), "{report}");
}

async fn primes_host(setup: &Setup) -> (Host, Client) {
    let host = setup.start().await;
    let client = Client::connect(&host).await;
    (host, client)
}

/// Plugins whose running tasks end with their host.
fn not_durable() -> Setup {
    ["primes", "desk"].into_iter().fold(Setup::new(), |setup, name| setup.plugin(name, "durable = \"off\""))
}

#[tokio::test]
async fn recovery_fails_running_task_that_is_not_durable_and_keeps_results() {
    let setup = not_durable();
    let (host, client) = primes_host(&setup).await;
    let done = client.task("count_primes", json!({"below": 1000})).await;
    client.until_status(&done, "completed").await;
    let result = client.about("tasks/result", &done).await.expect("a result");
    let before = client.about("tasks/get", &done).await.expect("it is there");
    let running = client.task("wait", json!({"ms": 600_000})).await;
    let asking = client.task("book_trip", json!({})).await;
    client.until_status(&asking, "input_required").await;
    let setup = host.kill().await;

    let (_host, client) = primes_host(&setup).await;
    assert_eq!(client.about("tasks/get", &done).await.expect("it is there"), before, "nothing of it changed");
    assert_eq!(client.about("tasks/result", &done).await.expect("a result"), result);
    for lost in [&running, &asking] {
        let failed = client.until_status(lost, "failed").await;
        let said = failed["statusMessage"].as_str().unwrap_or_default().to_lowercase();
        assert!(said.contains("host"), "it says what happened: {failed}");
        let error = client.about("tasks/result", lost).await.expect_err("there is no result");
        assert_eq!(error.code, -32603);
    }
}

/// Asks for a task's result in the same words each time; the bytes of the reply.
async fn result_bytes(client: &Client, task: &str) -> String {
    let body = json!({"jsonrpc": "2.0", "id": "r", "method": "tasks/result", "params": {"taskId": task}});
    let mut reply =
        client.post(body.to_string(), Some(Expected { id: json!("r"), method: "tasks/result".to_owned() })).await;
    let message = reply.next().await.expect("a result");
    assert!(message.get("result").is_some() && !reply.is_stream(), "{message}");
    reply.text
}

#[tokio::test]
async fn task_results_of_every_size_survive_kills() {
    let web = Web::start().await;
    let setup = Setup::new().plugin("http", &format!("[plugin.grants]\nhttp = [{:?}]\n", web.origin));
    let (mut host, mut client) = primes_host(&setup).await;
    let mut tasks = Vec::new();
    let mut before = Vec::new();
    // The page is in a result twice: as text and as structured content.
    for bytes in [10, 20_000, 100_000] {
        let task = client.task("http_get", json!({"url": format!("{}/bytes/{bytes}", web.origin)})).await;
        client.until_status(&task, "completed").await;
        let reply = result_bytes(&client, &task).await;
        assert!((2 * bytes..2 * bytes + 1_000).contains(&reply.len()), "{bytes} bytes made a reply of {}", reply.len());
        tasks.push(task);
        before.push(reply);
        // Each one dies with the last acknowledgement still fresh.
        let setup = host.kill().await;
        (host, client) = primes_host(&setup).await;
        for (task, before) in tasks.iter().zip(&before) {
            assert!(result_bytes(&client, task).await == *before, "a result is another one after the kill");
        }
    }
    host.kill().await;
    let report = command::json(&["store", "check"], &setup.data()).await;
    // A disk has the large result in a file of its own, a database has it in its row.
    let files = usize::from(!store_engine::is_postgres());
    assert_eq!((&report["problems"], &report["files"]), (&json!([]), &json!(files)), "{report}");
}

#[tokio::test]
async fn recovery_reruns_idempotent_tool_when_allowed() {
    let setup =
        Setup::new().plugin("primes", "durable = \"off\"\non_restart = \"rerun\"").config("[call]\ncpu_ms = 600000");
    let (host, client) = primes_host(&setup).await;
    let id = client.task("count_primes", json!({"below": 300_000_000})).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(client.about("tasks/get", &id).await.expect("it runs")["status"], "working");
    let setup = host.kill().await;

    let (_host, client) = primes_host(&setup).await;
    let now = client.about("tasks/get", &id).await.expect("it is there");
    assert_eq!(now["status"], "working", "it runs again: {now}");
    let quick = client.task("count_primes", json!({"below": 100})).await;
    client.until_status(&quick, "completed").await;
    client.about("tasks/cancel", &id).await.expect("it can be cancelled like any other");
}

#[tokio::test]
async fn recovery_rerun_ends_after_three_attempts() {
    let setup =
        Setup::new().plugin("primes", "durable = \"off\"\non_restart = \"rerun\"").config("[call]\ncpu_ms = 600000");
    let (mut host, client) = primes_host(&setup).await;
    let endless = client.task("count_primes", json!({"below": 1_000_000_000_000_u64})).await;
    let short = client.task("count_primes", json!({"below": 10_000})).await;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let setup = host.kill().await;
        host = setup.start().await;
    }
    let client = Client::connect(&host).await;
    let failed = client.until_status(&endless, "failed").await;
    assert!(failed["statusMessage"].as_str().is_some_and(|text| !text.is_empty()), "{failed}");
    client.until_status(&short, "completed").await;
    assert_eq!(client.about("tasks/result", &short).await.expect("a result")["structuredContent"]["count"], 1229);
}

#[tokio::test]
async fn queued_tasks_run_after_a_restart() {
    let limits = "[limits]\ncalls_running_per_requestor = 1\ntasks_running_per_requestor = 1";
    let setup = not_durable().config(limits);
    let (host, client) = primes_host(&setup).await;
    let first = client.task("wait", json!({"ms": 600_000})).await;
    // A sleeping task gives its place back, so a looping one would be needed to hold it; counting far enough does.
    let holding = client.task("count_primes", json!({"below": 100_000_000_000_u64})).await;
    let mut queued = Vec::new();
    for _ in 0..5 {
        queued.push(client.task("count_primes", json!({"below": 100})).await);
    }
    assert_eq!(client.about("tasks/get", &queued[4]).await.expect("it is there")["status"], "working");
    let setup = host.kill().await;
    let (_host, client) = primes_host(&setup).await;
    for id in &queued {
        client.until_status(id, "completed").await;
    }
    for id in [&first, &holding] {
        client.until_status(id, "failed").await;
    }
}

#[tokio::test]
async fn a_drain_lets_running_calls_end_and_exits_with_success() {
    let setup = Setup::with(&["desk"]).config("[server]\ndrain_ms = 5000");
    let (host, client) = primes_host(&setup).await;
    let call = client.tool("wait", json!({"ms": 800}));
    let stop = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        host.terminate().await
    };
    let (result, (status, _setup)) = tokio::join!(call, stop);
    assert_eq!(result.expect("the call ends in peace")["structuredContent"]["waited_ms"], 800);
    assert_eq!(status.code(), Some(0));
}

/// A guest that computes comes to no await by itself.
#[tokio::test]
async fn calls_that_compute_are_answered_when_their_host_stops() {
    let limits = "[server]\ndrain_ms = 200\n[call]\ncpu_ms = 600000\nwall_ms = 600000";
    let setup = Setup::with(&["hostile"]).config(limits);
    let host = setup.start().await;
    let legacy = Client::connect(&host).await;
    let modern = Modern::plain(&host, None);
    let params = json!({"name": "spin", "arguments": {}, "_meta": {"progressToken": 1}});
    let calls =
        async { tokio::join!(legacy.call("tools/call", params.clone()), modern.call("tools/call", params.clone())) };
    let stop = async {
        until("both calls to compute", async || {
            let limits = command::json(&["limits"], &setup.data()).await;
            (limits["host"]["calls_running_total"]["in_use"] == 2 && host.cpu_ms() > 0).then_some(())
        })
        .await;
        host.terminate().await
    };
    let (answers, (status, _)) = tokio::join!(calls, stop);
    assert_eq!(status.code(), Some(0));
    for answer in [answers.0, answers.1] {
        let failure = answer.expect_err("it computes for ever");
        assert_eq!(failure.code, -32603, "{failure:?}");
        assert!(
            failure.message.starts_with("The host is shutting down and stopped while this call ran"),
            "{failure:?}"
        );
    }
}

#[tokio::test]
async fn drain_ends_at_its_time_limit() {
    // Else it would go on after the next start, until it has used up its CPU time.
    let setup = Setup::new().plugin("hostile", "durable = \"off\"").config("[server]\ndrain_ms = 300");
    let (host, client) = primes_host(&setup).await;
    let id = client.task("spin", json!({})).await;
    let begin = std::time::Instant::now();
    let (status, setup) = host.terminate().await;
    assert_eq!(status.code(), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(10), "the drain took {:?}", begin.elapsed());
    let (_host, client) = primes_host(&setup).await;
    client.until_status(&id, "failed").await;
}
