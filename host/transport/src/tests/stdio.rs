//! Lines in, lines out.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf, duplex, split,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::quota::EdgeQuota;
use crate::stdio::{StdioOptions, serve_with};
use bulkhead_domain::limits::Limits;
use bulkhead_net::server::{ENDING, Phase};

use super::requestor;
use super::scripted::Script;

struct Pipe {
    script: Arc<Script>,
    write: WriteHalf<DuplexStream>,
    read: BufReader<ReadHalf<DuplexStream>>,
    served: JoinHandle<std::io::Result<()>>,
    phase: watch::Sender<Phase>,
}

impl Pipe {
    fn open() -> Self {
        let script = Arc::new(Script::default());
        let (ours, theirs) = duplex(64 * 1024);
        let (reader, writer) = split(theirs);
        let quota = Arc::new(EdgeQuota::new(Limits::generous().into()));
        let phase = watch::Sender::new(Phase::Serving);
        let options = StdioOptions { line_bytes_max: 1000, quota, phase: phase.clone() };
        let served =
            tokio::spawn(serve_with(script.clone(), requestor(0), reader, writer, options, Duration::from_secs(2)));
        let (read, write) = split(ours);
        Self { script, write, read: BufReader::new(read), served, phase }
    }

    async fn send(&mut self, text: &str) {
        self.write.write_all(text.as_bytes()).await.unwrap();
    }

    async fn request(&mut self, id: i64, method: &str, params: Value) {
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(&format!("{line}\n")).await;
    }

    async fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read =
            timeout(Duration::from_secs(20), self.read.read_line(&mut line)).await.expect("a line in time").unwrap();
        (read > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    async fn initialized() -> Self {
        let mut pipe = Self::open();
        pipe.request(0, "initialize", json!({})).await;
        assert_eq!(pipe.line().await.unwrap()["id"], 0);
        pipe
    }
}

#[tokio::test]
async fn stdio_requests_run_concurrently() {
    let mut pipe = Pipe::initialized().await;
    pipe.request(1, "do", json!({ "ms": 600_000 })).await;
    pipe.request(2, "do", json!({ "steps": 2 })).await;
    for expected in [json!(0), json!(1)] {
        assert_eq!(pipe.line().await.unwrap()["params"]["step"], expected);
    }
    assert_eq!(pipe.line().await.unwrap()["id"], 2);
    pipe.request(3, "do", json!({})).await;
    assert_eq!(pipe.line().await.unwrap()["id"], 3);
}

#[tokio::test]
async fn stdio_byte_order_mark_in_front_of_a_line_is_skipped() {
    let mut pipe = Pipe::open();
    let begin = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {} });
    pipe.send(&format!("\u{feff}{begin}\n")).await;
    let answer = pipe.line().await.unwrap();
    assert!(answer["id"] == 0 && answer.get("error").is_none(), "{answer}");
    pipe.send("\u{feff}\u{feff}{}\n").await;
    assert_eq!(pipe.line().await.unwrap()["error"]["code"], -32700, "one is skipped");
}

#[tokio::test]
async fn stdio_overlong_line_is_refused_and_next_one_served() {
    let mut pipe = Pipe::initialized().await;
    pipe.send(&"x".repeat(50_000)).await;
    let error = pipe.line().await.unwrap();
    assert!(error.get("id").is_none());
    assert!(error["error"]["message"].as_str().unwrap().contains("1000 bytes"));
    pipe.send(&format!("{}\n\r\n  \n", "y".repeat(50_000))).await;
    pipe.request(1, "do", json!({})).await;
    assert_eq!(pipe.line().await.unwrap()["id"], 1, "one error for one line");
    // Complete in one piece, just above the limit, and just at it.
    pipe.send(&format!("{}\n", "z".repeat(1001))).await;
    assert!(pipe.line().await.unwrap().get("error").is_some());
    let exact = format!("{{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"do\",\"params\":{{}}{}}}", " ".repeat(950));
    let exact = exact.replacen(' ', "", exact.len() - 1000);
    assert_eq!(exact.len(), 1000);
    pipe.send(&format!("{exact}\r\n")).await;
    let reply = pipe.line().await.unwrap();
    assert_eq!(reply["error"]["message"].as_str().map(|_| ()), Some(()), "the carriage return counts");
    pipe.send(&format!("{exact}\n")).await;
    assert_eq!(pipe.line().await.unwrap()["id"], 2);
}

#[tokio::test]
async fn stdio_invalid_message_is_answered_with_error() {
    let mut pipe = Pipe::open();
    pipe.send("{\n").await;
    assert_eq!(pipe.line().await.unwrap()["error"]["code"], -32700);
    pipe.request(1, "do", json!({})).await;
    assert!(pipe.line().await.unwrap().get("error").is_some(), "there is no session yet");
}

#[tokio::test]
async fn stdio_notifications_outside_requests_arrive() {
    let mut pipe = Pipe::initialized().await;
    pipe.script.told("session-0").tell("hello");
    assert_eq!(pipe.line().await.unwrap()["params"], "hello");
}

#[tokio::test]
async fn stdio_end_of_input_lets_open_requests_finish() {
    let mut pipe = Pipe::initialized().await;
    pipe.request(1, "do", json!({ "ms": 300 })).await;
    // The last line may lack its end.
    pipe.send(r#"{"jsonrpc":"2.0","id":2,"method":"do","params":{}}"#).await;
    pipe.write.shutdown().await.unwrap();
    let mut ids = vec![pipe.line().await.unwrap()["id"].clone(), pipe.line().await.unwrap()["id"].clone()];
    ids.sort_by_key(Value::as_i64);
    assert_eq!(ids, [json!(1), json!(2)]);
    timeout(Duration::from_secs(20), pipe.served).await.expect("it exits").unwrap().unwrap();
    assert!(pipe.script.told("session-0").is_closed());
}

#[tokio::test]
async fn stdio_endless_request_does_not_block_exit() {
    let mut pipe = Pipe::initialized().await;
    pipe.request(1, "do", json!({ "ms": 600_000 })).await;
    while pipe.script.begun() == 0 {
        tokio::task::yield_now().await;
    }
    pipe.write.shutdown().await.unwrap();
    timeout(Duration::from_secs(30), pipe.served).await.expect("it exits").unwrap().unwrap();
    assert_eq!(pipe.script.dropped(), 1);
}

#[tokio::test]
async fn stdio_ends_when_the_client_is_gone() {
    let Pipe { write, read, served, .. } = Pipe::initialized().await;
    drop((write, read));
    timeout(Duration::from_secs(20), served).await.expect("it exits").unwrap().unwrap();
}

#[tokio::test]
async fn stdio_requests_are_answered_when_the_host_stops() {
    let mut pipe = Pipe::initialized().await;
    pipe.request(1, "do", json!({ "ms": 600_000 })).await;
    pipe.request(2, "do", json!({ "steps": 1, "ms": 600_000 })).await;
    pipe.request(3, "modern", json!({ "ms": 600_000 })).await;
    assert_eq!(pipe.line().await.unwrap()["params"]["step"], 0);
    while pipe.script.begun() < 3 {
        tokio::task::yield_now().await;
    }
    pipe.phase.send_replace(Phase::Draining);
    pipe.request(4, "do", json!({ "ms": 1 })).await;
    assert_eq!(pipe.line().await.unwrap()["id"], 4, "what is open may end, and is polled");
    pipe.phase.send_replace(Phase::Ending);
    let mut ids = Vec::new();
    while let Some(answer) = pipe.line().await {
        assert_eq!(answer["error"]["code"], -32603, "{answer}");
        ids.push(answer["id"].as_i64().unwrap());
    }
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3]);
    timeout(ENDING, pipe.phase.closed()).await.expect("the connection is over");
    pipe.served.await.unwrap().unwrap();
}
