//! A full disk under durable tasks: what the journal would have to tell of does not happen until there is room, whether
//! the host lives on or is killed meanwhile.

use std::time::Duration;

use serde_json::{Value, json};
use tests::client::text;
use tests::modern::Modern;
use tests::small_disk::SmallDisk;
use tests::wait::until;
use tests::{Host, Setup};

use super::lives::counting_server;
use super::{AT_ONCE, again};

/// Of the data directory, with room for what a host sets aside.
const DISK_MEBIBYTES: u32 = 192;
/// Longer than the pause between two tries to write.
const A_WHILE: Duration = Duration::from_millis(2_500);
/// How long a tool sleeps while its disk is filled, and until its host notices that.
const SLEEP_MS: u64 = 6_000;

async fn status(client: &Modern, id: &str) -> Value {
    client.result("tasks/get", json!({"taskId": id})).await["status"].clone()
}

/// Takes all room, and waits until the host has noticed.
async fn fill(disk: &SmallDisk, host: &Host) {
    disk.fill();
    until_logged(host, "the store is read-only").await;
}

async fn until_logged(host: &Host, words: &str) {
    until(words, async || host.log().contains(words).then_some(())).await;
}

#[tokio::test]
async fn full_disk_keeps_a_request_with_an_effect_back_until_there_is_room() {
    for is_killed in [false, true] {
        let setup = Setup::new();
        let Some(disk) = SmallDisk::mount(setup.data(), DISK_MEBIBYTES) else { return };
        let (origin, sent) = counting_server().await;
        let posts = || sent.lock().posts;
        let grants = format!("durable = \"required\"\n[plugin.grants]\nhttp = [{origin:?}]\n");
        let mut host = setup.plugin("probe", &grants).config(AT_ONCE).start().await;
        let mut client = Modern::full(&host, None);
        let request = json!({"method": "POST", "url": format!("{origin}/pay"), "body": "1", "wait_ms": SLEEP_MS});
        let id = client.task("send", request).await;
        fill(&disk, &host).await;
        until_logged(&host, "a task stands still, its journal cannot be written").await;
        tokio::time::sleep(A_WHILE).await;
        assert_eq!((posts(), status(&client, &id).await), (0, json!("working")), "{}", host.log());
        if is_killed {
            (host, client) = again(host).await;
            until_logged(&host, "tasks of an earlier host stand still until the store takes writes").await;
            tokio::time::sleep(A_WHILE).await;
            assert_eq!((posts(), status(&client, &id).await), (0, json!("working")), "{}", host.log());
        }
        disk.make_room();
        let done = client.until_status(&id, "completed").await;
        assert_eq!(done["result"]["structuredContent"]["body"], "paid", "{done}");
        assert_eq!(posts(), 1, "it is sent once");
    }
}

#[tokio::test]
async fn killed_task_that_could_not_keep_a_value_on_a_full_disk_keeps_it_once() {
    let setup = Setup::new();
    let Some(disk) = SmallDisk::mount(setup.data(), DISK_MEBIBYTES) else { return };
    let host = setup.plugin("probe", "durable = \"required\"\n[plugin.kv]\n").config(AT_ONCE).start().await;
    let client = Modern::full(&host, None);
    let id = client.task("counted_sleeps", json!({"sleeps": 2, "pause_ms": SLEEP_MS})).await;
    until("the first value", async || {
        let kept = Modern::plain(&host, None).tool("keep", json!({"what": "get", "key": "stages"})).await;
        (text(&kept) == "1 bytes: 1").then_some(())
    })
    .await;
    fill(&disk, &host).await;
    // The guest hears that nothing can be written, and its end cannot be written either. Or it stands still, where its
    // sleep was still to be kept when the disk was filled.
    until_logged(&host, "cannot be written").await;
    assert_eq!(status(&client, &id).await, "working");
    let (host, client) = again(host).await;
    disk.make_room();
    let done = client.until_status(&id, "completed").await;
    let staged = &done["result"]["structuredContent"];
    assert_eq!((&staged["attempt"], &staged["counts"]), (&json!(1), &json!([1, 2])), "{done}");
    let kept = Modern::plain(&host, None).tool("keep", json!({"what": "get", "key": "stages"})).await;
    assert_eq!(text(&kept), "1 bytes: 2");
}
