//! Traces of tasks whose host was killed: the next life goes on in the trace of the request that began the call.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;
use tests::Setup;
use tests::collector::{Collector, Span, attribute, hex};
use tests::modern::Modern;
use tests::wait::until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::AT_ONCE;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// A server that keeps the head of every request, and leaves the first one without an answer.
async fn late_server() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", listener.local_addr().expect("an address"));
    let heads = Arc::<Mutex<Vec<String>>>::default();
    let kept = Arc::clone(&heads);
    tokio::spawn(async move {
        let mut unanswered = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => break,
                }
            }
            kept.lock().push(String::from_utf8_lossy(&head).to_ascii_lowercase());
            if kept.lock().len() == 1 {
                unanswered.push(stream);
                continue;
            }
            let answer = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 4\r\n\r\npage";
            stream.write_all(answer).await.expect("it is taken");
        }
    });
    (origin, heads)
}

fn is_child(child: &Span, parent: &Span) -> bool {
    child.parent_span_id == parent.span_id && child.trace_id == parent.trace_id
}

#[tokio::test]
async fn trace_goes_on_in_the_next_life_of_a_call() {
    let (collector, (origin, heads)) = (Collector::start().await, late_server().await);
    let grants = format!("durable = \"auto\"\n[plugin.grants]\nhttp = [{{ to = '{origin}', trace = true }}]\n");
    let setup = Setup::new().plugin("probe", &grants).config(AT_ONCE).config(&collector.section(""));
    let host = setup.start().await;
    let traced = Modern::full(&host, None).with_meta("traceparent", json!(format!("00-{TRACE}-{CALLER}-01")));
    let id = traced.task("send", json!({"method": "GET", "url": format!("{origin}/page")})).await;
    until("the first request", async || (heads.lock().len() == 1).then_some(())).await;
    // The request that began the task is over: its span does not die with the host.
    let server = collector.until("the server's span", |span| span.name == "tools/call send").await;
    let first_life = collector.spans().len();
    let host = host.kill().await.start().await;
    let client = Modern::full(&host, None);
    let done = client.until_status(&id, "completed").await;
    assert!(done["result"].to_string().contains("page"), "{done}");
    host.terminate().await;

    assert_eq!((hex(&server.trace_id).as_str(), hex(&server.parent_span_id).as_str()), (TRACE, CALLER));
    assert_eq!(first_life, 1, "what was under way when the host was killed has no span of its own");
    let task = collector.one(TRACE, "bulkhead.task send");
    let guest = collector.one(TRACE, "bulkhead.guest probe");
    let sent = collector.one(TRACE, "GET 127.0.0.1");
    assert!(is_child(&task, &server), "the same parent as in the life before: {task:?}");
    assert!(is_child(&guest, &task) && is_child(&sent, &guest), "{guest:?}, {sent:?}");
    assert!(task.start_time_unix_nano < server.end_time_unix_nano, "the task is as old as it was");
    let attempt = |span: &Span| attribute(span, "bulkhead.attempt");
    assert_eq!((attempt(&task).as_deref(), attempt(&guest).as_deref()), (Some("2"), Some("1")), "one call in two runs");

    let heads = heads.lock().clone();
    let told = |head: &str| head.lines().find_map(|line| line.strip_prefix("traceparent: ").map(str::to_owned));
    let [first, second] = &heads[..] else { panic!("a request that only reads is sent again: {heads:?}") };
    assert!(told(first).is_some_and(|told| told.starts_with(&format!("00-{TRACE}-"))), "{first}");
    assert_eq!(told(second), Some(format!("00-{TRACE}-{}-01", hex(&sent.span_id))), "{second}");
}
