//! What takes a version back by itself: calls that break or take longer, as long as they are not those of one requestor
//! alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};
use tests::client::Client;
use tests::wait::until;
use tests::{Setup, command, place};

use crate::canary::{FIRST, listed, run, said, stage};

async fn tokens<const N: usize>(setup: &Setup, of: [(&str, &str); N]) -> [String; N] {
    let mut tokens = Vec::new();
    for (requestor, tenant) in of {
        tokens.push(setup.token(requestor, tenant).await);
    }
    tokens.try_into().expect("as many")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn faulty_canary_is_rolled_back_without_affecting_others() {
    let limits = "[limits]\nrequests_per_second = 100000";
    let setup = Setup::with(&["text"]).config(limits);
    let [alice, bob, eve] = tokens(&setup, [("alice", "red"), ("bob", "blue"), ("eve", "blue")]).await;
    let host = setup.start().await;
    let over = Arc::new(AtomicBool::new(false));
    let calls = Arc::new(AtomicU64::new(0));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let client = Client::connect_as(&host, Some(&alice), json!({})).await;
        let over = over.clone();
        let calls = calls.clone();
        callers.spawn(async move {
            while !over.load(Ordering::SeqCst) {
                assert_eq!(said(&client).await, FIRST, "on the active version no call fails");
                calls.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    // Another plugin altogether, whose only merit is that it breaks.
    let hostile = std::fs::read(place::component("hostile")).expect("the component can be read");
    stage(&setup, "text", &hostile).await;
    let begin = [
        "activate",
        "text",
        "--tenant",
        "blue",
        "--accept",
        "--max-fault-percent",
        "50",
        "--min-calls",
        "6",
        "--window",
        "1h",
    ];
    run(&setup, &begin).await;
    let client = Client::connect_as(&host, Some(&bob), json!({})).await;
    // A tool's own failures are none of the plugin's.
    for _ in 0..8 {
        client.tool("read_file", json!({"path": "/etc/passwd"})).await.expect("a result");
    }
    // What one requestor breaks keeps that one away, and takes the version from nobody else.
    let trap = async |client: &Client| client.tool("trap", json!({})).await.expect_err("it traps, or is gone").code;
    let mut broke = 0;
    while trap(&client).await == 1001 {
        broke += 1;
    }
    assert_eq!(broke, 10, "then the plugin is quarantined for bob");
    let line = listed(&setup, "text").await;
    assert_eq!(line["canary"]["seen"], json!({"calls": 18, "faults": 10}), "{line}");
    until("the list to say so", async || {
        // Each try that breaks keeps bob away for longer.
        trap(&client).await;
        let plain = command::run(&mut command::bulkhead(), &["plugin", "list", "--data"], Some(&setup.data())).await;
        plain.contains("text (canary): kept from 1 requestors for now").then_some(())
    })
    .await;
    // As soon as it breaks for somebody else as well, it goes.
    let other = Client::connect_as(&host, Some(&eve), json!({})).await;
    let broke = AtomicU64::new(0);
    let taken_back = until("the canary to be taken back", async || {
        match trap(&other).await {
            1001 => drop(broke.fetch_add(1, Ordering::SeqCst)),
            code => assert_eq!(code, -32602, "gone"),
        }
        let line = listed(&setup, "text").await;
        line["canary"].is_null().then_some(line)
    })
    .await;
    let broke = broke.into_inner();
    assert!(broke >= 6, "so many of the calls without bob's had to break, not {broke}");
    let why = taken_back["taken_back"]["why"].as_str().expect("a reason");
    assert!(why.contains("calls broke") && why.contains("50 %"), "{taken_back}");
    assert_eq!(said(&client).await, FIRST, "bob has the active version again");
    assert!(host.log().contains("the canary failed and was taken back"));
    let plain = command::run(&mut command::bulkhead(), &["plugin", "list", "--data"], Some(&setup.data())).await;
    assert!(plain.contains("was taken back"), "{plain}");
    over.store(true, Ordering::SeqCst);
    while let Some(done) = callers.join_next().await {
        done.expect("no call failed");
    }
    assert!(calls.load(Ordering::SeqCst) > 10, "there was load");
    // It stays taken back, and why is known.
    host.kill().await;
    let host = setup.start().await;
    assert_eq!(said(&Client::connect_as(&host, Some(&bob), json!({})).await).await, FIRST);
    assert_eq!(listed(&setup, "text").await["taken_back"]["why"], why);
}

/// A component with one function that counts down from a number, in a loop that nothing shortens.
fn worker(rounds: u64) -> Vec<u8> {
    let text = format!(
        r#"(component
            (core module $code
                (func (export "work") (local $left i64)
                    (local.set $left (i64.const {rounds}))
                    (loop $again
                        (local.set $left (i64.sub (local.get $left) (i64.const 1)))
                        (br_if $again (i64.ne (local.get $left) (i64.const 0))))))
            (core instance $made (instantiate $code))
            (func (export "work") (canon lift (core func $made "work"))))"#
    );
    wat::parse_str(text).expect("a component")
}

#[tokio::test]
async fn slower_canary_is_rolled_back() {
    let setup = Setup::new();
    let of = [("alice", "red"), ("anna", "red"), ("bob", "blue"), ("eve", "blue")];
    let [alice, anna, bob, eve] = tokens(&setup, of).await;
    let host = setup.start().await;
    let path = setup.path("worker.wasm");
    std::fs::write(&path, worker(1_000)).expect("the component is written");
    run(&setup, &["add", &path.display().to_string(), "--name", "worker"]).await;
    let first = listed(&setup, "worker").await["active"].clone();
    stage(&setup, "worker", &worker(200_000_000)).await;
    let begin = [
        &["activate", "worker", "--tenant", "blue"][..],
        &["--max-latency-ratio", "3", "--min-calls", "5", "--window", "1h"],
    ];
    run(&setup, &begin.concat()).await;
    let work = async |token: &str, calls: usize| {
        let client = Client::connect_as(&host, Some(token), json!({})).await;
        for _ in 0..calls {
            let done = client.tool("work", json!({})).await.expect("a result");
            assert_ne!(done["isError"], true, "{done}");
        }
    };
    work(&alice, 40).await;
    work(&anna, 40).await;
    // Slow for one requestor: that may be what this one asks for.
    work(&bob, 8).await;
    let line = listed(&setup, "worker").await;
    assert_eq!(line["canary"]["seen"], json!({"calls": 8, "faults": 0}), "it is still there: {line}");
    let taken_back = until("the canary to be taken back", async || {
        work(&eve, 1).await;
        let line = listed(&setup, "worker").await;
        line["canary"].is_null().then_some(line)
    })
    .await;
    assert_eq!((&taken_back["active"], &taken_back["state"]), (&first, &Value::from("active")), "{taken_back}");
    let why = taken_back["taken_back"]["why"].as_str().expect("a reason");
    assert!(why.contains("calls of \"work\" took up to") && why.contains("3.00 times"), "{why}");
    // Whoever had it has the quick one again, and no call failed.
    assert_ne!(taken_back["taken_back"]["version"], first);
    work(&bob, 1).await;
    assert!(host.log().contains("the canary failed and was taken back"));
}
