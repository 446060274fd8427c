//! The crash matrix: a host that ends itself at a named place, once in its first life and once in its second.
//!
//! Only a build with the feature `crash-points` does that: `XTASK_CRASH_POINTS` says where it is, and without it there is nothing to test.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tests::modern::Modern;
use tests::{Host, Setup, command};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::Instant;

/// Places of a first life, and how often each is tried.
const FIRST: [(&str, u32); 13] = [
    ("ask.before", 2),
    ("ask.after", 2),
    ("kv.before", 2),
    ("kv.after", 2),
    ("append.before", 1),
    ("append.after", 1),
    ("http.kept", 1),
    ("http.answered", 1),
    ("http.outcome", 1),
    ("steering.before", 1),
    ("steering.after", 1),
    ("finish.before", 1),
    ("finish.after", 1),
];
/// Places of a second one.
const SECOND: [&str; 5] = ["wake.permit:1", "wake.loaded:1", "wake.tail:1", "finish.before:1", "finish.after:1"];

const PATIENCE: Duration = Duration::from_secs(60);

/// A server that answers at once, and counts the requests that it was sent.
async fn counting_server() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", listener.local_addr().expect("an address"));
    let count = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n1") {
                    match stream.read_u8().await {
                        Ok(byte) => request.push(byte),
                        Err(_) => return,
                    }
                }
                counted.fetch_add(1, Ordering::SeqCst);
                let answer = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 4\r\n\r\npaid";
                // A host that has ended takes no answer.
                let _ = stream.write_all(answer).await;
            });
        }
    });
    (origin, count)
}

/// The reply, unless the host has ended.
async fn reply(client: &Modern, method: &str, params: Value) -> Option<Value> {
    let message = client.message(&json!(1), method, params.clone()).to_string();
    let sent = client.request(method, &params).timeout(PATIENCE).body(message).send().await.ok()?;
    let reply: Value = serde_json::from_str(&sent.text().await.ok()?).ok()?;
    Some(reply["result"].clone())
}

/// Answers what the task asks, and steers it, until it has ended. `None`: the host has.
async fn drive(client: &Modern, id: &str, is_steered: &mut bool) -> Option<Value> {
    let until = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < until, "the task does not end");
        let now = reply(client, "tasks/get", json!({"taskId": id})).await?;
        match now["status"].as_str() {
            Some("completed" | "failed" | "cancelled") => return Some(now),
            Some("input_required") => {
                for key in now["inputRequests"].as_object().into_iter().flat_map(|open| open.keys()) {
                    let answer = json!({key: {"action": "accept", "content": {"value": key}}});
                    reply(client, "tasks/update", json!({"taskId": id, "inputResponses": answer})).await?;
                }
            }
            _ if !*is_steered => {
                reply(client, "tasks/steer", json!({"taskId": id, "message": "left"})).await?;
                *is_steered = true;
            }
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The task's end after a crash at `first` in its first life and at `second` in its second, and the host that saw it.
async fn lives(setup: &Setup, tool: &str, arguments: &Value, first: &str, second: &str) -> Option<(Value, Host)> {
    let armed = |at: &str| setup.clone().env("CRASH_AT", at);
    let host = armed(first).start().await;
    let client = Modern::full(&host, None);
    let created = reply(&client, "tools/call", json!({"name": tool, "arguments": arguments})).await?;
    let id = created["taskId"].as_str().unwrap_or_else(|| panic!("{tool}: {created}")).to_owned();
    let mut is_steered = tool != "steered";
    if let Some(now) = drive(&client, &id, &mut is_steered).await {
        return Some((now, host));
    }
    if let Ok(host) = armed(second).start_or_end(PATIENCE).await
        && let Some(now) = drive(&Modern::full(&host, None), &id, &mut is_steered).await
    {
        return Some((now, host));
    }
    let host = setup.start().await;
    let now = drive(&Modern::full(&host, None), &id, &mut is_steered).await;
    Some((now.expect("the last host lives on"), host))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn durable_crash_matrix() {
    let Ok(program) = std::env::var("XTASK_CRASH_POINTS") else { return };
    let (mut crashed, mut seconds) = (0_u32, SECOND.iter().cycle());
    for (point, times) in FIRST {
        for count in 1..=times {
            for tool in ["stages", "send", "steered"] {
                let (origin, sent) = counting_server().await;
                let grants = format!("durable = \"auto\"\n[plugin.grants]\nhttp = [{origin:?}]\n[plugin.kv]\n");
                let setup = Setup::new().program(&program).plugin("probe", &grants);
                let setup = setup.config("[call]\npromote_after_ms = 0").shared_code();
                let arguments = match tool {
                    "stages" => json!({"pause_ms": 0}),
                    "send" => json!({"method": "POST", "url": format!("{origin}/pay"), "body": "1"}),
                    _ => json!({}),
                };
                let (first, second) = (format!("{point}:{count}"), *seconds.next().expect("a cycle"));
                let what = format!("{tool}, {first}, {second}");
                let Some((now, host)) = lives(&setup, tool, &arguments, &first, second).await else { continue };
                println!("{what}: {}", now["status"]);
                crashed += u32::from(host.log().matches("took over what an earlier host left").count() > 0);
                check(tool, &what, &now, sent.load(Ordering::SeqCst));
                if tool == "stages" {
                    let kept = Modern::plain(&host, None).tool("keep", json!({"what": "get", "key": "stages"})).await;
                    assert_eq!(tests::client::text(&kept), "1 bytes: 2", "{what}");
                }
            }
        }
    }
    assert!(crashed > 20, "the host ended {crashed} times");
}

fn check(tool: &str, what: &str, now: &Value, sent: usize) {
    assert_eq!(now["status"], "completed", "{what}: {now}");
    let result = &now["result"];
    match tool {
        "stages" => {
            let staged = &result["structuredContent"];
            let answers = [r#"{"value":"first"}"#, r#"{"value":"second"}"#];
            assert_eq!(*staged, json!({"attempt": 1, "counts": [1, 2], "answers": answers}), "{what}");
        }
        "send" => {
            let is_told = result["isError"] == true;
            assert!(sent <= 1, "{what}: it was sent {sent} times");
            assert!(sent == 1 || is_told, "{what}: it was not sent, and the guest does not know: {now}");
        }
        _ => assert!(result.to_string().contains("left"), "{what}: {now}"),
    }
}

#[tokio::test]
async fn release_build_knows_no_crash_points() {
    let said = command::run(&mut command::bulkhead(), &["--version"], None).await;
    assert!(!said.contains("crash"), "{said}");
}
