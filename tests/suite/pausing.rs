//! Pauses and messages of real guests: what they stop, what they are counted against, and what of them survives `kill
//! -9`.

use std::time::Duration;

use serde_json::{Value, json};
use tests::client::{Client, Failure};
use tests::modern::Modern;
use tests::wait::until;
use tests::{Host, Setup};

/// Primes below this are not counted within the time of a test.
const ENDLESS: u64 = 1_000_000_000_000;

fn rerunning(limits: &str) -> Setup {
    Setup::new().plugin("primes", "on_restart = \"rerun\"").config(&format!("[call]\ncpu_ms = 600000\n{limits}"))
}

/// Who makes tasks at once, and who pauses and steers them; the same requestor.
async fn clients(host: &Host) -> (Client, Modern) {
    (Client::connect(host).await, Modern::full(host, None))
}

async fn pause(client: &Modern, task: &str) -> Result<Value, Failure> {
    client.call("tasks/pause", json!({"taskId": task})).await
}

async fn stop(client: &Modern, task: &str) {
    client.result("tasks/steer", json!({"taskId": task, "message": "stop"})).await;
}

/// The count ended because it took the message, and no other one.
async fn until_stopped(client: &Modern, task: &str) {
    let done = client.until_status(task, "completed").await;
    let count = &done["result"]["structuredContent"];
    assert_eq!((&count["messages"], &count["complete"]), (&json!(["stop"]), &json!(false)), "{done}");
}

async fn computes(host: &Host) {
    until("a guest to compute", async || (host.cpu_ms_in(Duration::from_millis(300)).await >= 60).then_some(())).await;
}

fn is_full(refused: Result<Value, Failure>) {
    let failure = refused.expect_err("there is no place");
    assert_eq!((failure.code, &failure.data["limit"]), (1010, &json!("tasks_paused_per_requestor")), "{failure:?}");
}

#[tokio::test]
async fn paused_loop_uses_no_cpu_until_resume() {
    let host = Setup::with(&["hostile"]).config("[call]\ncpu_ms = 600000").start().await;
    let (legacy, modern) = clients(&host).await;
    let task = legacy.task("spin", json!({})).await;
    computes(&host).await;
    pause(&modern, &task).await.expect("it runs");
    // What was begun with the request may still be going on.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let used = host.cpu_ms_in(Duration::from_millis(600)).await;
    assert!(used <= 60, "{used} ms of a paused loop");
    modern.result("tasks/resume", json!({"taskId": task})).await;
    computes(&host).await;
    modern.result("tasks/cancel", json!({"taskId": task})).await;
}

#[tokio::test]
async fn paused_task_and_steering_survive_a_kill() {
    let setup = rerunning("");
    let host = setup.start().await;
    let (legacy, modern) = clients(&host).await;
    let task = legacy.task("count_primes", json!({"below": ENDLESS})).await;
    computes(&host).await;
    pause(&modern, &task).await.expect("it runs");
    stop(&modern, &task).await;
    let setup = host.kill().await;

    let host = setup.start().await;
    let (_legacy, modern) = clients(&host).await;
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(modern.result("tasks/get", json!({"taskId": task})).await["status"], "paused");
    }
    assert_eq!(modern.result("tasks/resume", json!({"taskId": task})).await["status"], "working");
    until_stopped(&modern, &task).await;
}

#[tokio::test]
async fn acknowledged_steering_reaches_queued_task_after_kill() {
    let setup = rerunning("[limits]\ncalls_running_per_requestor = 1\ntasks_running_per_requestor = 1");
    let host = setup.start().await;
    let (legacy, modern) = clients(&host).await;
    let holding = legacy.task("count_primes", json!({"below": ENDLESS})).await;
    let queued = legacy.task("count_primes", json!({"below": ENDLESS})).await;
    stop(&modern, &queued).await;
    let setup = host.kill().await;

    let host = setup.start().await;
    let (_legacy, modern) = clients(&host).await;
    modern.result("tasks/cancel", json!({"taskId": holding})).await;
    until_stopped(&modern, &queued).await;
}

#[tokio::test]
async fn paused_task_limit_covers_running_queued_and_recovered_tasks() {
    let limits =
        "[limits]\ncalls_running_per_requestor = 1\ntasks_running_per_requestor = 1\ntasks_paused_per_requestor = 1";
    let host = rerunning(limits).start().await;
    let (legacy, modern) = clients(&host).await;
    let mut tasks = Vec::new();
    for _ in 0..3 {
        tasks.push(legacy.task("count_primes", json!({"below": ENDLESS})).await);
    }
    let runs = &tasks[0];
    let waits = &tasks[1];
    let paused = &tasks[2];
    pause(&modern, paused).await.expect("there is a place for one");
    is_full(pause(&modern, runs).await);
    is_full(pause(&modern, waits).await);
    let again = pause(&modern, paused).await.expect_err("it is paused");
    assert_eq!(again.code, -32602, "{again:?}");
    let setup = host.kill().await;

    let host = setup.start().await;
    let (_legacy, modern) = clients(&host).await;
    is_full(pause(&modern, waits).await);
    modern.result("tasks/resume", json!({"taskId": paused})).await;
    pause(&modern, waits).await.expect("its place is free again");
}

#[tokio::test]
async fn shutdown_does_not_wait_for_a_parked_guest() {
    let host = Setup::with(&["desk"]).config("[server]\ndrain_ms = 300000").start().await;
    let asked = Modern::plain(&host, None).tool("book_trip", json!({})).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let (status, _) = host.terminate().await;
    assert!(status.success(), "{status}");
}
