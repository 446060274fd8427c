//! What hosts on one PostgreSQL have in common beside tasks: limits, tokens and plugins.

use std::time::Duration;

use bulkhead_store::postgres_server::{self, PostgresServer};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::client::{Client, HELLO, all_capabilities, text};
use tests::modern::Modern;
use tests::place::variant;
use tests::wait::until;
use tests::{Host, Setup, command};

use super::cluster::{ENDLESS, sharing, two};

const DIFF: [&str; 2] = ["The texts are the same.", "The texts are the SAME."];
const RUNNING_MAX: usize = 2;
const QUEUED_MAX: usize = 4;

/// How many tasks run, or wait for their turn, in one look at all of them.
async fn states(client: &Client) -> (usize, usize) {
    let tasks = client.tasks().await;
    let working = tasks.iter().filter(|task| task["status"] == "working");
    let (queued, running): (Vec<_>, Vec<_>) = working.partition(|task| task["statusMessage"] == "queued");
    (running.len(), queued.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_and_queued_tasks_are_limited_over_all_hosts_together() {
    let Some(server) = postgres_server::shared() else { return };
    let setup = || {
        Setup::new().plugin("primes", "").config(&format!(
            "[call]\ncpu_ms = 600000\n[limits]\ntasks_running_per_requestor = {RUNNING_MAX}\ntasks_queued_per_requestor = {QUEUED_MAX}"
        ))
    };
    let (one, two) = two(server, setup).await;
    let clients = [Client::connect(&one).await, Client::connect(&two).await];
    let mut ids = Vec::new();
    for number in 0..RUNNING_MAX + QUEUED_MAX {
        let client = clients.iter().cycle().nth(number).expect("one of two");
        ids.push(client.task("count_primes", json!({"below": ENDLESS})).await);
        let (running, queued) = states(&clients[0]).await;
        assert!(running <= RUNNING_MAX && running + queued == number + 1, "{running} run and {queued} wait");
    }
    for client in &clients {
        let refused = client.create("count_primes", json!({"below": ENDLESS})).await.expect_err("there is no room");
        assert!(format!("{refused:?}").contains("tasks_queued_per_requestor"), "{refused:?}");
    }
    // Each task that ends lets another one begin, wherever both are; and none begins before.
    let mut left = RUNNING_MAX + QUEUED_MAX;
    while left > 0 {
        let wanted = left.min(RUNNING_MAX);
        let running = until("the next task to run", async || {
            let (running, _) = states(&clients[left % 2]).await;
            assert!(running <= RUNNING_MAX, "{running} run");
            (running == wanted).then_some(running)
        })
        .await;
        assert_eq!(running, wanted);
        let tasks = clients[0].tasks().await;
        let runs = |task: &&Value| task["status"] == "working" && task["statusMessage"] != "queued";
        let id = tasks.iter().find(runs).and_then(|task| task["taskId"].as_str()).expect("one that runs").to_owned();
        assert!(ids.contains(&id));
        clients[(left + 1) % 2].about("tasks/cancel", &id).await.expect("it is cancelled");
        left -= 1;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_that_each_host_counts_are_split_among_those_that_live() {
    let Some(server) = postgres_server::shared() else { return };
    let schema = postgres_server::new_schema();
    let setup = || {
        Setup::new()
            .plugin("primes", "")
            .config("[limits]\ncalls_running_per_requestor = 8\ntasks_running_per_requestor = 4")
    };
    let one = sharing(server, &schema, "one", setup()).start().await;
    // As the host has it in force: the limits of those who use something.
    let client = Client::connect(&one).await;
    client.task("count_primes", json!({"below": ENDLESS})).await;
    let max = async |expected: u64| {
        let limits = command::json(&["limits"], &one.setup.data()).await;
        let is = limits["requestors"][0]["limits"]["calls_running_per_requestor"]["max"] == expected;
        is.then_some(())
    };
    until("the whole", async || max(8).await).await;
    let two = sharing(server, &schema, "two", setup()).start().await;
    until("half of it", async || max(4).await).await;
    two.terminate().await;
    until("the whole again", async || max(8).await).await;
}

/// Whether a request with this token is let in.
async fn is_let_in(host: &Host, token: &str) -> bool {
    let mut client = Client::new(&host.url, Some(token));
    client.session = None;
    client.post(HELLO, None).await.status == StatusCode::OK
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_that_is_revoked_at_one_host_is_refused_at_the_other_one() {
    let Some(server) = postgres_server::shared() else { return };
    let (one, two) = two(server, || Setup::new().plugin("primes", "")).await;
    let made = command::json(&["token", "create", "--requestor", "anna"], &one.setup.data()).await;
    let token = made["token"].as_str().expect("a token").to_owned();
    let id = made["id"].as_str().expect("an id").to_owned();
    assert!(is_let_in(&one, &token).await && is_let_in(&two, &token).await, "at once");
    command::json(&["token", "revoke", &id], &one.setup.data()).await;
    assert!(!is_let_in(&one, &token).await);
    tokio::time::timeout(Duration::from_secs(20), async {
        while is_let_in(&two, &token).await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .expect("it is refused there, too");
}

async fn says(client: &Modern, what: &str) -> bool {
    let called = client.call("tools/call", json!({"name": "diff", "arguments": {"before": "a", "after": "a"}})).await;
    called.is_ok_and(|result| text(&result) == what)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugin_that_is_added_switched_and_rolled_back_at_one_host_is_so_at_the_others() {
    let Some(server) = postgres_server::shared() else { return };
    let schema = postgres_server::new_schema();
    let start = async |server: &PostgresServer, name: &str| {
        sharing(server, &schema, name, Setup::new().plugin("primes", "")).start().await
    };
    let one = start(server, "one").await;
    let two = start(server, "two").await;
    let here = Modern::plain(&one, None);
    let there = Modern::plain(&two, None);
    let file = |number: usize| {
        let path = one.setup.path(&format!("text-{number}.wasm"));
        std::fs::write(&path, variant("text", DIFF[0], DIFF[number])).expect("a component");
        path.display().to_string()
    };
    command::json(&["plugin", "add", &file(0), "--name", "text"], &one.setup.data()).await;
    assert!(says(&here, DIFF[0]).await);
    until("the plugin at the other host", async || says(&there, DIFF[0]).await.then_some(())).await;
    // Staged at one host, switched to at the other, which fetches the component.
    let staged = command::json(&["plugin", "stage", &file(1), "--name", "text"], &one.setup.data()).await;
    let version = format!("text@{}", staged["version"].as_str().expect("a digest"));
    command::json(&["plugin", "activate", &version], &two.setup.data()).await;
    assert!(says(&there, DIFF[1]).await);
    until("the switch at the first host", async || says(&here, DIFF[1]).await.then_some(())).await;
    command::json(&["plugin", "rollback", "text"], &one.setup.data()).await;
    assert!(says(&here, DIFF[0]).await);
    until("the way back at the other host", async || says(&there, DIFF[0]).await.then_some(())).await;
    // A host that comes later has neither file.
    let three = start(server, "three").await;
    let later = Client::connect_as(&three, None, all_capabilities()).await;
    let called = later.tool("diff", json!({"before": "a", "after": "a"})).await.expect("it is there");
    assert_eq!(text(&called), DIFF[0]);
    command::json(&["plugin", "remove", "text"], &three.setup.data()).await;
    until("the end of it at the others", async || (!says(&here, DIFF[0]).await).then_some(())).await;
    until("the end of it at the others", async || (!says(&there, DIFF[0]).await).then_some(())).await;
}
