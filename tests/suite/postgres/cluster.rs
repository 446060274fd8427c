//! Several hosts on one PostgreSQL: each serves what the others hold, and goes on with what one of them leaves.

use std::time::Duration;

use bulkhead_store::postgres_server::{self, PostgresServer};
use reqwest::{Method, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tests::client::Client;
use tests::modern::Modern;
use tests::wait::{soon, until};
use tests::{Host, Setup, command};

use crate::durable::{AT_ONCE, question};

/// Long enough for a machine that does other things as well.
const LEASE_MS: u64 = 6_000;
/// Primes below this are not counted within the time of a test.
pub(super) const ENDLESS: u64 = 1_000_000_000_000;

/// A host of this name on a schema that it shares.
pub(super) fn sharing(server: &PostgresServer, schema: &str, name: &str, setup: Setup) -> Setup {
    let url = setup.path("database");
    std::fs::write(&url, server.address()).expect("a file");
    setup.config(&format!(
        "[store]\nengine = \"postgres\"\nurl_file = {url:?}\nschema = \"{schema}\"\n\
         [cluster]\nname = \"{name}\"\nlease_ms = {LEASE_MS}"
    ))
}

/// Two hosts that share a schema, with the same plugins.
pub(crate) async fn two(server: &PostgresServer, setup: impl Fn() -> Setup) -> (Host, Host) {
    let schema = postgres_server::new_schema();
    let one = sharing(server, &schema, "one", setup()).start().await;
    let two = sharing(server, &schema, "two", setup()).start().await;
    (one, two)
}

pub(super) fn desk() -> Setup {
    Setup::new().plugin("desk", "durable = \"auto\"").plugin("primes", "on_restart = \"rerun\"").config(AT_ONCE)
}

async fn update(client: &Modern, id: &str, key: &str, content: Value) {
    let answer = json!({key: {"action": "accept", "content": content}});
    client.result("tasks/update", json!({"taskId": id, "inputResponses": answer})).await;
}

/// Every byte of what a host answers.
async fn answer(client: &Modern, method: &str, params: Value) -> (StatusCode, String) {
    let message = client.message(&json!(7), method, params.clone()).to_string();
    let reply = soon("a reply", client.request(method, &params).body(message).send()).await.expect("it answers");
    (reply.status(), reply.text().await.expect("a text"))
}

fn send(host: &Host, signal: Signal) {
    let process = i32::try_from(host.pid()).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(process, signal).expect("it runs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_host_leaves_its_half_run_tasks_to_another_one_that_asks_nothing_twice() {
    let Some(server) = postgres_server::shared() else { return };
    let (one, two) = two(server, desk).await;
    let before = Modern::full(&one, None);
    let client = Modern::full(&two, None);
    let mut trips = Vec::new();
    for number in 0..3 {
        let id = before.task("book_trip", json!({})).await;
        let first = question(&before, &id, "journey").await;
        assert_eq!(question(&client, &id, "journey").await, first, "each host shows the same");
        if number > 0 {
            // At the host that runs it, and at the other one.
            let at = if number == 1 { &before } else { &client };
            update(at, &id, "journey", json!({"destination": "Oslo", "travellers": 2})).await;
            question(&client, &id, "details").await;
        }
        trips.push((id, number));
    }
    let rerun = before.task("count_primes", json!({"below": 1000})).await;
    before.until_status(&rerun, "completed").await;
    one.kill().await;
    for (id, number) in trips {
        let open = client.result("tasks/get", json!({"taskId": id})).await["inputRequests"].clone();
        assert_eq!(open.as_object().map(|open| open.len()), Some(1), "what was answered is not asked: {open}");
        if number == 0 {
            update(&client, &id, "journey", json!({"destination": "Oslo", "travellers": 2})).await;
        }
        question(&client, &id, "details").await;
        update(&client, &id, "details", json!({"class": "economy", "confirm": true})).await;
        let done = client.until_status(&id, "completed").await;
        assert_eq!(done["result"]["structuredContent"]["summary"], "Booked 2 economy seats to Oslo.", "{done}");
    }
    assert_eq!(client.result("tasks/get", json!({"taskId": rerun})).await["status"], "completed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_do_at_another_host_reaches_the_one_that_runs_the_task() {
    let Some(server) = postgres_server::shared() else { return };
    let (one, two) = two(server, || desk().config("cpu_ms = 600000")).await;
    let here = Modern::full(&one, None);
    let there = Modern::full(&two, None);
    let id = here.task("book_trip", json!({})).await;
    question(&there, &id, "journey").await;
    there.result("tasks/pause", json!({"taskId": id})).await;
    assert_eq!(here.result("tasks/get", json!({"taskId": id})).await["status"], "paused");
    there.result("tasks/resume", json!({"taskId": id})).await;
    update(&there, &id, "journey", json!({"destination": "Oslo", "travellers": 2})).await;
    question(&there, &id, "details").await;
    // One that waits for the result at the other host.
    let waiting = Client::connect(&two).await;
    let waits = tokio::spawn({
        let id = id.clone();
        async move { waiting.about("tasks/result", &id).await }
    });
    update(&there, &id, "details", json!({"class": "economy", "confirm": true})).await;
    here.until_status(&id, "completed").await;
    let result = soon("the result", waits).await.expect("it waits").expect("a result");
    assert_eq!(result["structuredContent"]["summary"], "Booked 2 economy seats to Oslo.", "{result}");

    let endless = here.task("count_primes", json!({"below": ENDLESS})).await;
    until("a guest to compute", async || (one.cpu_ms_in(Duration::from_millis(300)).await >= 60).then_some(())).await;
    let steer = json!({"taskId": endless, "message": "stop"});
    there.result("tasks/steer", steer).await;
    let stopped = there.until_status(&endless, "completed").await;
    assert_eq!(stopped["result"]["structuredContent"]["messages"], json!(["stop"]), "{stopped}");
    let endless = here.task("count_primes", json!({"below": ENDLESS})).await;
    there.result("tasks/cancel", json!({"taskId": endless})).await;
    until("the guest to be stopped", async || (one.cpu_ms_in(Duration::from_millis(300)).await < 60).then_some(()))
        .await;

    assert_eq!(here.result("tasks/get", json!({"taskId": endless})).await["status"], "cancelled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_that_is_not_there_reads_the_same_at_each_host() {
    let Some(server) = postgres_server::shared() else { return };
    let (one, two) = two(server, desk).await;
    let here = Modern::full(&one, None);
    let there = Modern::full(&two, None);
    let legacy = Client::connect(&one).await;
    let short =
        legacy.create_with("count_primes", json!({"below": 1000}), json!({"ttl": 1_000})).await.expect("a task");
    let short = short["taskId"].as_str().expect("an id").to_owned();
    let params = json!({"taskId": short});
    until("the task to expire", async || here.call("tasks/get", params.clone()).await.is_err().then_some(())).await;
    let never = json!({"taskId": short.chars().rev().collect::<String>()});
    for method in ["tasks/get", "tasks/cancel", "tasks/pause"] {
        let expired = answer(&here, method, params.clone()).await;
        assert_eq!(expired, answer(&there, method, params.clone()).await);
        assert_eq!(expired, answer(&there, method, never.clone()).await);
        assert_eq!(expired, answer(&here, method, never.clone()).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_that_stood_still_beyond_its_lease_writes_nothing_of_before_and_joins_again() {
    let Some(server) = postgres_server::shared() else { return };
    let (one, two) = two(server, || desk().config("cpu_ms = 600000")).await;
    let here = Modern::full(&one, None);
    let there = Modern::full(&two, None);
    let id = here.task("count_primes", json!({"below": ENDLESS})).await;
    until("a guest to compute", async || (one.cpu_ms_in(Duration::from_millis(300)).await >= 60).then_some(())).await;
    send(&one, Signal::STOP);
    // Buried by the other one, which begins the count again.
    until("the other host to compute", async || (two.cpu_ms_in(Duration::from_millis(300)).await >= 60).then_some(()))
        .await;
    there.result("tasks/pause", json!({"taskId": id})).await;
    let before = answer(&there, "tasks/get", json!({"taskId": id})).await;
    send(&one, Signal::CONT);
    until("the host to join again", async || {
        let log = one.log();
        (log.contains("joined the others again") && log.contains("ends its runs")).then_some(())
    })
    .await;
    assert_eq!(answer(&there, "tasks/get", json!({"taskId": id})).await, before);
    assert_eq!(here.result("tasks/get", json!({"taskId": id})).await["status"], "paused");
    // It is a host like any other.
    let again = here.task("count_primes", json!({"below": 1000})).await;
    there.until_status(&again, "completed").await;
    here.result("tasks/cancel", json!({"taskId": id})).await;
    assert_eq!(there.result("tasks/get", json!({"taskId": id})).await["status"], "cancelled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_is_used_and_ended_at_any_host_and_a_question_is_answered_at_another_one() {
    let Some(server) = postgres_server::shared() else { return };
    let (one, two) = two(server, desk).await;
    let here = Client::connect(&one).await;
    let mut there = Client::new(&two.url, None);
    there.session = here.session.clone();
    let id = here.task("book_trip", json!({})).await;
    there.until_status(&id, "input_required").await;
    let mut result = here.send("tasks/result", json!({"taskId": id})).await;
    for content in [json!({"destination": "Oslo", "travellers": 2}), json!({"class": "economy", "confirm": true})] {
        let asked = loop {
            let message = soon("a question", result.next()).await.expect("the stream goes on");
            if message["method"] == "elicitation/create" {
                break message;
            }
        };
        there.respond(&asked, json!({"action": "accept", "content": content})).await;
    }
    let done = result.response_after(&mut Vec::new()).await;
    assert_eq!(done["result"]["structuredContent"]["summary"], "Booked 2 economy seats to Oslo.", "{done}");

    let ended = there.request(Method::DELETE).send().await.expect("it answers");
    assert!(ended.status().is_success(), "{}", ended.status());
    for client in [&here, &there] {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
        assert_eq!(client.post(body, None).await.status, StatusCode::NOT_FOUND);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_that_is_ended_leaves_its_tasks_to_the_others_at_once() {
    let Some(server) = postgres_server::shared() else { return };
    let (one, two) = two(server, desk).await;
    let before = Modern::full(&one, None);
    let client = Modern::full(&two, None);
    let id = before.task("book_trip", json!({})).await;
    question(&before, &id, "journey").await;
    let (status, _) = one.terminate().await;
    assert!(status.success());
    update(&client, &id, "journey", json!({"destination": "Oslo", "travellers": 2})).await;
    question(&client, &id, "details").await;
    update(&client, &id, "details", json!({"class": "economy", "confirm": true})).await;
    client.until_status(&id, "completed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_are_granted_to_no_plugin_of_a_host_that_shares_its_database() {
    const TERMS: &str = "[plugin.grants]\nenv = []\n";
    let Some(server) = postgres_server::shared() else { return };
    let schema = postgres_server::new_schema();
    let folder = tempfile::tempdir().expect("a folder");
    let grant = format!("[plugin.grants]\ndirectories = [{{ host = {:?}, guest = \"/data\" }}]\n", folder.path());
    let names_it = |said: &str| said.contains("plugin.primes.grants.directories (/data)") && said.contains("[cluster]");
    let with = |terms: &str| sharing(server, &schema, "one", Setup::new().plugin("primes", terms));
    let host = with(TERMS).start().await;
    let file = host.setup.path("bulkhead.toml");
    let configuration = std::fs::read_to_string(&file).expect("the configuration");
    let changed = configuration.replace(TERMS, &grant);
    assert_ne!(changed, configuration);
    std::fs::write(&file, &changed).expect("the configuration");
    let data = host.setup.data();
    let output = command::output(&mut command::bulkhead(), &["host", "reload", "--data"], Some(&data)).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && names_it(&said), "{said}");
    host.terminate().await;

    let (code, said) = with(&grant).refused().await;
    assert!(code.is_some_and(|code| code != 0) && names_it(&said), "{code:?} {said}");
}
