//! Quotas: what is refused, with which words, and that a requestor who is full takes nobody else's place.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::client::{Client, Failure, all_capabilities, text};
use tests::wait::{soon, until};
use tests::{Host, Setup};

async fn two(setup: Setup) -> (Host, Client, Client) {
    let alice = setup.token("alice", "red").await;
    let bob = setup.token("bob", "blue").await;
    let host = setup.start().await;
    let alice = Client::connect_as(&host, Some(&alice), all_capabilities()).await;
    let bob = Client::connect_as(&host, Some(&bob), all_capabilities()).await;
    (host, alice, bob)
}

fn quota(failure: &Failure, limit: &str, value: u64) {
    assert_eq!(failure.code, 1010, "{failure:?}");
    assert_eq!(failure.data["limit"], limit, "{failure:?}");
    assert_eq!(failure.data["value"], value, "{failure:?}");
}

#[tokio::test]
async fn full_task_queue_refuses_and_stores_nothing() {
    let limits =
        "[limits]\ncalls_running_per_requestor = 2\ntasks_running_per_requestor = 2\ntasks_queued_per_requestor = 3";
    let (_host, alice, bob) = two(Setup::with(&["hostile", "text"]).config(limits)).await;
    let mut tasks = Vec::new();
    for at in 0..5 {
        let task = alice.create("spin", json!({})).await.expect("a place");
        assert_eq!(task["status"], "working");
        assert_eq!(task["statusMessage"] == "queued", at >= 2, "two run, three wait: {task}");
        tasks.push(task["taskId"].as_str().expect("an id").to_owned());
    }
    for _ in 0..3 {
        quota(&alice.create("spin", json!({})).await.expect_err("no place"), "tasks_queued_per_requestor", 3);
    }
    assert_eq!(alice.tasks().await.len(), 5, "a refusal leaves nothing behind");
    // Somebody else has places of their own.
    let task = bob.create("spin", json!({})).await.expect("a place");
    assert_ne!(task["statusMessage"], "queued", "{task}");
    // A place that becomes free is given to who waited longest.
    alice.about("tasks/cancel", &tasks[0]).await.expect("it is cancelled");
    until("the first in the queue to run", async || {
        let now = alice.about("tasks/get", &tasks[2]).await.expect("it is there");
        (now["statusMessage"] != "queued").then_some(())
    })
    .await;
    assert_eq!(alice.about("tasks/get", &tasks[3]).await.expect("it is there")["statusMessage"], "queued");
}

/// By default: a requestor's tasks leave places to its own plain calls, and a tenant's to those of its other
/// requestors.
#[tokio::test]
async fn running_tasks_leave_permits_to_plain_calls() {
    let (_host, alice, _bob) = two(Setup::with(&["hostile", "text"])).await;
    let mut tasks = Vec::new();
    for _ in 0..20 {
        let task = alice.create("spin", json!({})).await.expect("a place");
        tasks.push(task["taskId"].as_str().expect("an id").to_owned());
    }
    for at in 0..8 {
        let said = alice.tool("echo", json!({"text": "x"})).await;
        assert!(said.is_ok_and(|said| text(&said) == "x"), "call {at} beside all the tasks that may run");
    }
    for task in tasks {
        alice.about("tasks/cancel", &task).await.expect("it is cancelled");
    }
}

#[tokio::test]
async fn stored_task_quota_is_released_on_expiry() {
    let (_host, alice, bob) = two(Setup::with(&["primes"]).config("[limits]\ntasks_stored_per_requestor = 4")).await;
    let quick =
        async |client: &Client| client.create_with("count_primes", json!({"below": 10}), json!({"ttl": 1200})).await;
    for _ in 0..4 {
        quick(&alice).await.expect("a place");
    }
    quota(&quick(&alice).await.expect_err("no place"), "tasks_stored_per_requestor", 4);
    quick(&bob).await.expect("a place of his own");
    until("a place after the expiry", async || quick(&alice).await.ok()).await;
}

#[tokio::test]
async fn stored_task_bytes_quota_is_enforced() {
    let limits = "[limits]\ntasks_stored_bytes_per_requestor = 262144\ntasks_running_per_requestor = 1\n\
                  tasks_queued_per_requestor = 1\ntasks_waiting_per_requestor = 1\ntasks_paused_per_requestor = 1\n\
                  calls_running_per_requestor = 4\n[call]\narguments_bytes = 131072\nresult_bytes = 16384";
    let (_host, alice, _bob) = two(Setup::with(&["csv"]).config(limits)).await;
    let path = "x".repeat(60_000);
    let mut refused = None;
    for _ in 0..12 {
        // There is no such file, which the tool finds out; what counts is that its arguments are stored with the task.
        match alice.create("csv_profile", json!({"path": path})).await {
            Ok(task) => {
                alice.until_status(task["taskId"].as_str().expect("an id"), "failed").await;
            }
            Err(failure) => {
                refused = Some(failure);
                break;
            }
        }
    }
    quota(&refused.expect("262144 bytes are not enough for 12 x 60000"), "tasks_stored_bytes_per_requestor", 262_144);
}

#[tokio::test]
async fn task_creation_rate_limit_gives_a_retry_time() {
    let (_host, alice, bob) = two(Setup::with(&["primes"]).config("[limits]\ntask_creations_per_second = 2")).await;
    let mut refused = None;
    for _ in 0..20 {
        if let Err(failure) = alice.create("count_primes", json!({"below": 10})).await {
            refused = Some(failure);
            break;
        }
    }
    let failure = refused.expect("twenty at once are too many");
    assert_eq!((failure.code, &failure.data["limit"]), (1011, &json!("task_creations_per_second")), "{failure:?}");
    let wait = failure.data["retryAfterMs"].as_u64().expect("a time to come back");
    assert!((1..=2000).contains(&wait), "{failure:?}");
    bob.create("count_primes", json!({"below": 10})).await.expect("somebody else is not meant");
    tokio::time::sleep(Duration::from_millis(wait + 50)).await;
    alice.create("count_primes", json!({"below": 10})).await.expect("the time has come");
}

#[tokio::test]
async fn request_rate_limit_is_enforced() {
    let (_host, alice, bob) = two(Setup::with(&["text"]).config("[limits]\nrequests_per_second = 5")).await;
    let mut refused = None;
    for _ in 0..40 {
        if let Err(failure) = alice.call("ping", json!({})).await {
            refused = Some(failure);
            break;
        }
    }
    let failure = refused.expect("forty at once are too many");
    assert_eq!((failure.code, &failure.data["limit"]), (1011, &json!("requests_per_second")), "{failure:?}");
    assert!(failure.data["retryAfterMs"].as_u64().is_some(), "{failure:?}");
    assert_eq!(bob.call("ping", json!({})).await, Ok(json!({})));
}

#[tokio::test]
async fn call_flood_takes_no_permits_of_other_requestors() {
    let config = "[limits]\ncalls_running_per_requestor = 4\ncall_queue_ms_max = 300\n[call]\ncpu_ms = 60000";
    let (_host, alice, bob) = two(Setup::with(&["hostile", "text"]).config(config)).await;
    let flood = async {
        let calls = (0..24).map(|_| alice.tool("spin", json!({})));
        futures::future::join_all(calls).await
    };
    let beside = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let mut slowest = Duration::ZERO;
        for turn in 0..10 {
            let begin = Instant::now();
            let result = bob.tool("echo", json!({"text": turn.to_string()})).await.expect("an echo");
            assert_eq!(text(&result), turn.to_string());
            slowest = slowest.max(begin.elapsed());
        }
        slowest
    };
    tokio::select! {
        ended = flood => {
            // Those without a place are refused; those with one loop until their processor time is used up.
            panic!("the loops ended before the bystander was served: {} of them", ended.len());
        }
        slowest = soon("the bystander", beside) => {
            assert!(slowest < Duration::from_secs(3), "an echo beside the flood took {slowest:?}");
        }
    }
}

#[tokio::test]
async fn plain_call_without_permit_is_refused_after_its_wait() {
    let config = "[limits]\ncalls_running_per_requestor = 2\ncall_queue_ms_max = 200\n[call]\ncpu_ms = 60000";
    let (_host, alice, bob) = two(Setup::with(&["hostile", "text"]).config(config)).await;
    let loops = [alice.task("spin", json!({})).await, alice.task("spin", json!({})).await];
    let begin = Instant::now();
    let refused = alice.tool("echo", json!({"text": "x"})).await.expect_err("two calls run already");
    quota(&refused, "calls_running_per_requestor", 2);
    let waited = begin.elapsed();
    assert!(waited >= Duration::from_millis(180), "it did not wait: {waited:?}");
    assert_eq!(text(&bob.tool("echo", json!({"text": "y"})).await.expect("an echo")), "y");
    alice.about("tasks/cancel", &loops[0]).await.expect("it is cancelled");
    until("the place to be free", async || alice.tool("echo", json!({"text": "z"})).await.ok()).await;
}

#[tokio::test]
async fn a_tenant_has_limits_of_its_own() {
    let setup = Setup::with(&["hostile"]).config("[tenant.red.limits]\ntasks_stored_per_requestor = 2");
    let (_host, alice, bob) = two(setup).await;
    for _ in 0..2 {
        alice.create("trap", json!({})).await.expect("a place");
    }
    quota(&alice.create("trap", json!({})).await.expect_err("no place"), "tasks_stored_per_requestor", 2);
    for _ in 0..4 {
        bob.create("trap", json!({})).await.expect("the tenant blue is not meant");
    }
}

#[tokio::test]
async fn tenant_limit_holds_for_any_number_of_requestors() {
    let limits = "[limits]\ncalls_running_per_requestor = 2\ntasks_running_per_requestor = 2\ncalls_running_per_tenant = 3\n\
                  tasks_queued_per_requestor = 2\ntasks_queued_per_tenant = 4\n[tenant.blue.limits]\ntasks_queued_per_tenant = 1";
    let setup = Setup::with(&["hostile", "text"]).config(limits);
    let mut tokens = Vec::new();
    for at in 0..6 {
        tokens.push(setup.token(&format!("red-{at}"), "red").await);
    }
    let bob = setup.token("bob", "blue").await;
    let host = setup.start().await;
    let mut created = 0;
    for token in &tokens {
        let client = Client::connect_as(&host, Some(token), all_capabilities()).await;
        for _ in 0..2 {
            match client.create("spin", json!({})).await {
                Ok(_) => created += 1,
                Err(failure) => {
                    quota(&failure, "tasks_queued_per_tenant", 4);
                    assert!(failure.data["retryAfterMs"].is_u64(), "{failure:?}");
                }
            }
        }
    }
    assert_eq!(created, 7, "three run, four wait");
    let bob = Client::connect_as(&host, Some(&bob), all_capabilities()).await;
    for _ in 0..3 {
        bob.create("spin", json!({})).await.expect("a place of his own tenant");
    }
    quota(&bob.create("spin", json!({})).await.expect_err("no place"), "tasks_queued_per_tenant", 1);
}

#[tokio::test]
async fn tenant_rate_limit_holds_for_many_requestors() {
    let limits = "[limits]\nrequests_per_second = 10\nrequests_per_second_per_tenant = 10";
    let setup = Setup::with(&["text"]).config(limits);
    let tokens =
        [setup.token("alice", "red").await, setup.token("anna", "red").await, setup.token("alex", "red").await];
    let bob = setup.token("bob", "blue").await;
    let host = setup.start().await;
    let mut clients = Vec::new();
    for token in &tokens {
        clients.push(Client::connect_as(&host, Some(token), all_capabilities()).await);
    }
    let bob = Client::connect_as(&host, Some(&bob), all_capabilities()).await;
    let mut refused = None;
    for at in 0..90 {
        if let Err(failure) = clients[at % 3].call("ping", json!({})).await {
            refused = Some(failure);
            break;
        }
    }
    let failure = refused.expect("ninety at once are too many for three");
    let wanted = (1011, &json!("requests_per_second_per_tenant"), &json!(10));
    assert_eq!((failure.code, &failure.data["limit"], &failure.data["value"]), wanted, "{failure:?}");
    bob.call("ping", json!({})).await.expect("another tenant is not meant");
}

#[tokio::test]
async fn waiting_input_requests_take_no_running_permit() {
    let limits =
        "[limits]\ncalls_running_per_requestor = 2\ntasks_running_per_requestor = 2\ntasks_waiting_per_requestor = 6";
    let (_host, alice, _bob) = two(Setup::with(&["desk", "text"]).config(limits)).await;
    let mut asking: Vec<String> = Vec::new();
    for _ in 0..5 {
        let id = alice.task("book_trip", json!({})).await;
        alice.until_status(&id, "input_required").await;
        asking.push(id);
    }
    assert_eq!(text(&alice.tool("echo", json!({"text": "x"})).await.expect("both places are free")), "x");
    let statuses: Vec<Value> = alice.tasks().await.iter().map(|task| task["status"].clone()).collect();
    assert_eq!(statuses, vec![json!("input_required"); 5]);
}

#[tokio::test]
async fn oversized_arguments_and_results_are_refused_by_name() {
    let config = "[call]\narguments_bytes = 2048\nresult_bytes = 4096";
    let (_host, alice, _bob) = two(Setup::with(&["text", "hostile"]).config(config)).await;
    let refused = alice.tool("echo", json!({"text": "x".repeat(4000)})).await.expect_err("too large");
    assert_eq!((refused.code, &refused.data["limit"]), (-32602, &json!("arguments_bytes")), "{refused:?}");
    let refused = alice.tool("flood_result", json!({"bytes": 10_000})).await.expect_err("too large");
    assert_eq!(refused.code, 1002, "{refused:?}");
    let fits = alice.tool("flood_result", json!({"bytes": 2_000})).await.expect("it fits");
    assert_eq!(text(&fits).len(), 2_000);
}
