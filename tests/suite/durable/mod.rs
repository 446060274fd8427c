//! Durable execution: a host is killed in the middle of a tool, and the task goes on where it was.

mod authors;
mod cases;
mod checkpoints;
mod checks;
mod commands;
mod flushes;
mod full_disk;
pub(crate) mod lives;
mod loops;
mod matrix;
mod servers;
mod traced;
mod versions;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::metrics::page_of;
use serde_json::{Value, json};
use tests::client::text;
use tests::modern::Modern;
use tests::wait::until;
use tests::{Host, Setup};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

/// A call becomes a task before it begins.
pub(crate) const AT_ONCE: &str = "[call]\npromote_after_ms = 0";

/// Kills the host and starts it again on the same directory.
async fn again(host: Host) -> (Host, Modern) {
    let host = host.kill().await.start().await;
    let client = Modern::full(&host, None);
    (host, client)
}

/// The request of this key, as soon as the task asks it.
pub(crate) async fn question(client: &Modern, id: &str, key: &str) -> Value {
    until("the question", async || {
        let now = client.result("tasks/get", json!({"taskId": id})).await;
        assert_ne!(now["status"], "failed", "{now}");
        now["inputRequests"].get(key).cloned()
    })
    .await
}

async fn answer(client: &Modern, id: &str, key: &str, content: Value) {
    let answer = json!({key: {"action": "accept", "content": content}});
    client.result("tasks/update", json!({"taskId": id, "inputResponses": answer})).await;
}

#[tokio::test]
async fn killed_task_asks_the_same_question_and_goes_on() {
    let host = Setup::new().plugin("desk", "durable = \"auto\"").config(AT_ONCE).start().await;
    let client = Modern::full(&host, None);
    let id = client.task("book_trip", json!({})).await;
    let first = question(&client, &id, "journey").await;
    let (host, client) = again(host).await;
    let now = client.result("tasks/get", json!({"taskId": id})).await;
    assert_eq!((&now["status"], &now["inputRequests"]["journey"]), (&json!("input_required"), &first), "{now}");

    answer(&client, &id, "journey", json!({"destination": "Oslo", "travellers": 2})).await;
    let second = question(&client, &id, "details").await;
    let (host, client) = again(host).await;
    assert_eq!(question(&client, &id, "details").await, second);
    let now = client.result("tasks/get", json!({"taskId": id})).await;
    assert_eq!(
        now["inputRequests"].as_object().map(|open| open.len()),
        Some(1),
        "what was answered is not asked: {now}"
    );
    // While nobody runs it, an answer is taken, too.
    let (_host, client) = again(host).await;
    answer(&client, &id, "details", json!({"class": "economy", "confirm": true})).await;
    let done = client.until_status(&id, "completed").await;
    let summary = &done["result"]["structuredContent"]["summary"];
    assert_eq!(*summary, "Booked 2 economy seats to Oslo.", "{done}");
}

/// A call that its host promotes while it runs: it counted and slept before it was a task.
#[tokio::test]
async fn killed_task_that_began_as_a_plain_call_goes_on() {
    let config = "[call]\npromote_after_ms = 300";
    let host = Setup::new().plugin("probe", "durable = \"auto\"\n[plugin.kv]\n").config(config).start().await;
    let client = Modern::full(&host, None);
    let id = client.task("counted_sleeps", json!({"sleeps": 4, "pause_ms": 400})).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    let (host, client) = again(host).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    let (host, client) = {
        drop(client);
        again(host).await
    };
    let done = client.until_status(&id, "completed").await;
    let staged = &done["result"]["structuredContent"];
    assert_eq!(*staged, json!({"attempt": 1, "counts": [1, 2, 3, 4], "answers": [id]}), "{done}");
    let kept = Modern::plain(&host, None).tool("keep", json!({"what": "get", "key": "stages"})).await;
    assert_eq!(text(&kept), "1 bytes: 4");
}

#[tokio::test]
async fn killed_task_without_durable_fails_honestly() {
    let host = Setup::new().plugin("desk", "durable = \"off\"").config(AT_ONCE).start().await;
    let client = Modern::full(&host, None);
    let id = client.task("book_trip", json!({})).await;
    question(&client, &id, "journey").await;
    let (_host, client) = again(host).await;
    let failed = client.until_status(&id, "failed").await;
    let message = failed["statusMessage"].as_str().unwrap_or_default();
    assert_eq!(message, "The host stopped while this call ran; the call was not finished", "{failed}");
}

#[tokio::test]
async fn killed_task_keeps_each_value_once() {
    let host = Setup::new().plugin("probe", "durable = \"auto\"\n[plugin.kv]\n").config(AT_ONCE).start().await;
    let client = Modern::full(&host, None);
    let id = client.task("stages", json!({"pause_ms": 1_500})).await;
    question(&client, &id, "first").await;
    let (host, client) = again(host).await;
    answer(&client, &id, "first", json!({"value": "a"})).await;
    // It has counted, and sleeps.
    tokio::time::sleep(Duration::from_millis(700)).await;
    let (host, client) = again(host).await;
    question(&client, &id, "second").await;
    answer(&client, &id, "second", json!({"value": "b"})).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    let (host, client) = again(host).await;
    let done = client.until_status(&id, "completed").await;
    let staged = &done["result"]["structuredContent"];
    assert_eq!(*staged, json!({"attempt": 1, "counts": [1, 2], "answers": [r#"{"value":"a"}"#, r#"{"value":"b"}"#]}));
    let kept = Modern::plain(&host, None).tool("keep", json!({"what": "get", "key": "stages"})).await;
    assert_eq!(text(&kept), "1 bytes: 2");
}

/// A server that never answers, and counts the requests that it was sent. It holds the first one for ever and hangs up
/// on the others.
async fn silent_server() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", listener.local_addr().expect("an address"));
    let count = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        let mut first = None;
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut begin = [0; 4];
            if stream.read_exact(&mut begin).await.is_ok() {
                counted.fetch_add(1, Ordering::SeqCst);
                first.get_or_insert(stream);
            }
        }
    });
    (origin, count)
}

#[tokio::test]
async fn killed_task_is_told_that_a_post_is_in_doubt_whether_it_is_sent_once_or_again() {
    // What the operator wants, how often it is sent, and what the guest is told.
    let rows = [
        ("", 1, "in doubt: the host stopped after this request was sent"),
        ("in_doubt = \"resend\"\n", 2, "it was sent again and not answered: "),
    ];
    for (in_doubt, sent, words) in rows {
        let (origin, count) = silent_server().await;
        let grants = format!("durable = \"auto\"\n{in_doubt}[plugin.grants]\nhttp = [{origin:?}]\n");
        let setup = Setup::new().plugin("probe", &grants).config(AT_ONCE).config("[metrics]\nlisten = \"127.0.0.1:0\"");
        let host = setup.start().await;
        let client = Modern::full(&host, None);
        let id = client.task("send", json!({"method": "POST", "url": format!("{origin}/pay"), "body": "1"})).await;
        until("the request", async || (count.load(Ordering::SeqCst) == 1).then_some(())).await;
        let (host, client) = again(host).await;
        let done = client.until_status(&id, "completed").await;
        assert_eq!(done["result"]["isError"], true, "the guest is told: {done}");
        assert!(done["result"].to_string().contains(words), "in words that it can tell from others: {done}");
        let page = reqwest::get(page_of(&host)).await.expect("a page").text().await.expect("its text");
        assert!(page.contains("bulkhead_requests_in_doubt_total{plugin=\"probe\"} 1"), "{in_doubt}{page}");
        assert_eq!(count.load(Ordering::SeqCst), sent, "{in_doubt}");
    }
}

#[tokio::test]
async fn plugin_that_cannot_be_durable_is_refused_where_it_has_to_be() {
    let setup = Setup::new();
    let folder = setup.path("files");
    std::fs::create_dir(&folder).expect("a folder");
    let directory = format!("[plugin.grants]\ndirectories = [{{ host = {folder:?}, guest = \"/data\" }}]\n");
    let host = setup.plugin("csv", &format!("durable = \"required\"\n{directory}")).start().await;
    let listed = Modern::plain(&host, None).result("tools/list", json!({})).await;
    assert_eq!(listed["tools"], json!([]), "{listed}");
    let log = host.log();
    assert!(log.contains("requires that it is durable, and directories are granted: /data"), "{log}");
}
