//! Large bodies, as many as a client can send: what they do to others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use parking_lot::Mutex;
use tests::client::{Client, all_capabilities};
use tests::place::rounds;
use tests::wait::soon;
use tests::{Host, Setup, raw};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const BODY_BYTES: usize = 4_100_000;

/// One connection that is used again and again.
struct Line {
    stream: TcpStream,
    request: Arc<Vec<u8>>,
}

impl Line {
    async fn open(host: &Host, request: &Arc<Vec<u8>>) -> Self {
        Self { stream: raw::connect(host).await, request: Arc::clone(request) }
    }

    /// Sends the request, and gives the status and the body of the answer; `None` when the host has closed the
    /// connection.
    async fn ask(&mut self) -> Option<(u16, String)> {
        // The host may have said no already.
        let _ = self.stream.write_all(&self.request).await;
        let mut heard = Vec::new();
        let mut chunk = vec![0; 16 * 1024];
        loop {
            let read = self.stream.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
            heard.extend_from_slice(&chunk[..read]);
            let Some(end) = heard.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&heard[..end]).to_ascii_lowercase();
            let status = head.split(' ').nth(1)?.parse().ok()?;
            let length = head.split("content-length: ").nth(1)?.split("\r\n").next()?.parse::<usize>().ok()?;
            if heard.len() >= end + 4 + length {
                return Some((status, String::from_utf8_lossy(&heard[end + 4..]).into_owned()));
            }
        }
    }
}

/// A call of `echo` in a session, with this beside the text, in the arguments and in the metadata.
fn call(session: &Client, token: &str, arguments: &str, meta: &str) -> Arc<Vec<u8>> {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"x"{arguments}}},"_meta":{{"a":0{meta}}}}}}}"#
    );
    let session = session.session.as_deref().expect("a session");
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json\r\n\
         MCP-Protocol-Version: 2025-11-25\r\nAuthorization: Bearer {token}\r\nMcp-Session-Id: {session}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    Arc::new([head.into_bytes(), body.into_bytes()].concat())
}

/// Large bodies of four kinds. An id can be open once in a session, so each connection has a session of its own.
fn large(session: &Client, token: &str, kind: usize) -> Arc<Vec<u8>> {
    let times = |text: &str| text.repeat(BODY_BYTES / text.len());
    match kind % 4 {
        0 => call(session, token, &format!(r#","more":"{}""#, times("x")), ""),
        1 => call(session, token, "", &format!(r#","numbers":[{}0]"#, times("7,"))),
        2 => call(session, token, "", &times(r#","member":{"b":[1,true,"c"]}"#)),
        _ => call(session, token, &format!(r#","objects":[{}0]"#, times(r#"{"a":1,"b":[2]},"#)), ""),
    }
}

/// What came of a flood.
#[derive(Default)]
struct Answers {
    served: AtomicU64,
    refused: AtomicU64,
    cut: AtomicU64,
    limits: Mutex<Vec<String>>,
}

/// Sends large bodies over so many connections of one token until it is dropped; every answer leads to the next
/// request.
async fn flood(host: &Host, token: &str, connections: usize) -> (Vec<tokio::task::JoinHandle<()>>, Arc<Answers>) {
    let answers = Arc::<Answers>::default();
    let sessions = join_all((0..connections).map(|_| Client::connect_as(host, Some(token), all_capabilities()))).await;
    let mut floods = Vec::new();
    for (kind, session) in sessions.iter().enumerate() {
        let request = large(session, token, kind);
        let mut line = Line::open(host, &request).await;
        let answers = Arc::clone(&answers);
        let address = raw::address(host);
        floods.push(tokio::spawn(async move {
            loop {
                match line.ask().await {
                    Some((200, _)) => _ = answers.served.fetch_add(1, Ordering::Relaxed),
                    Some((status, body)) => {
                        assert_eq!(status, 429, "{body}");
                        answers.refused.fetch_add(1, Ordering::Relaxed);
                        answers.limits.lock().push(body);
                    }
                    None => {
                        answers.cut.fetch_add(1, Ordering::Relaxed);
                        line.stream = TcpStream::connect(&address).await.expect("a connection");
                    }
                }
            }
        }));
    }
    (floods, answers)
}

/// How long somebody else waits for an echo, here and at the control, in turn.
async fn echoes(lines: &mut [Line; 2], count: u32) -> [Vec<Duration>; 2] {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..count {
        for (line, times) in lines.iter_mut().zip(&mut times) {
            let begun = Instant::now();
            let (status, body) = soon("an echo", line.ask()).await.expect("an answer");
            assert!(status == 200 && body.contains("\"text\":\"x\""), "{status} {body}");
            times.push(begun.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    times.iter_mut().for_each(|times| times.sort_unstable());
    times
}

fn at(times: &[Duration], percent: usize) -> f64 {
    times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1_000.0
}

/// Against a host of its own on the same machine, which sees nothing of the flood but that the machine is busy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_body_flood_does_not_slow_other_tenants() {
    let at_night = rounds(0, 1) == 1;
    let connections = rounds(8, 48) as usize;
    for (config, is_above_the_rate) in [
        ("", false),
        ("[limits]\nrequest_bytes_per_second = 8000000\nrequest_bytes_open_per_requestor = 8300000", true),
    ] {
        let setup = Setup::with(&["text"]).config(config);
        let alice = setup.token("alice", "red").await;
        let bob = setup.token("bob", "blue").await;
        let mut host = setup.start().await;
        let other = Setup::with(&["text"]);
        let token = other.token("bob", "blue").await;
        let control = other.start().await;
        let echo = async |host: &Host, token: &str| {
            let session = Client::connect_as(host, Some(token), all_capabilities()).await;
            Line::open(host, &call(&session, token, "", "")).await
        };
        let mut lines = [echo(&host, &bob).await, echo(&control, &token).await];
        let [before, _] = echoes(&mut lines, rounds(20, 300)).await;
        let (floods, answers) = flood(&host, &alice, connections).await;
        // To begin a flood may take longer than a connection may be idle.
        lines = [echo(&host, &bob).await, echo(&control, &token).await];
        let begun = Instant::now();
        let mut during = [Vec::new(), Vec::new()];
        // Until each connection has had some answers.
        while during[0].is_empty() || answers.served.load(Ordering::Relaxed) < u64::from(rounds(16, 400)) {
            let more = echoes(&mut lines, rounds(20, 300)).await;
            during.iter_mut().zip(more).for_each(|(all, more)| all.extend(more));
            assert!(begun.elapsed() < Duration::from_secs(180), "the flood is not served");
            if is_above_the_rate && begun.elapsed() > Duration::from_secs(u64::from(rounds(3, 20))) {
                break;
            }
        }
        floods.iter().for_each(tokio::task::JoinHandle::abort);
        during.iter_mut().for_each(|times| times.sort_unstable());
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let served = count(&answers.served);
        let refused = count(&answers.refused);
        let cut = count(&answers.cut);
        let [here, control] = [0, 1].map(|host| [50, 90, 99].map(|percent| at(&during[host], percent)));
        println!(
            "{connections} connections, {served} bodies answered, {refused} refused, {cut} cut in {:.1} s; echo in ms \
             p50 {:.1} p99 {:.1} before; p50 {:.1} p90 {:.1} p99 {:.1} during, p50 {:.1} p90 {:.1} p99 {:.1} at the control",
            begun.elapsed().as_secs_f64(),
            at(&before, 50),
            at(&before, 99),
            here[0],
            here[1],
            here[2],
            control[0],
            control[1],
            control[2]
        );
        if is_above_the_rate {
            let limits = answers.limits.lock();
            // So many refusals a second are above the rate of requests, too.
            let other = limits
                .iter()
                .find(|body| !["request_bytes_", "requests_per_second"].iter().any(|of| body.contains(of)));
            assert!(other.is_none(), "{other:?}");
            assert!(!at_night || refused > 0, "so much is too much");
        } else {
            assert!(served * 10 >= (served + refused + cut) * 9, "{served} served, {refused} refused, {cut} cut");
        }
        if at_night {
            assert!(here[2] <= 3.0 * control[2].max(2.0), "p99 {} ms, {} at the control", here[2], control[2]);
        }
        serves_on_for(&mut host, &mut lines[0]).await;
    }
}

/// The flood is over, and the host as it was.
async fn serves_on_for(host: &mut Host, line: &mut Line) {
    assert!(host.is_alive() && !host.log().contains("panicked"), "{}", host.log());
    let (status, _) = soon("an echo", line.ask()).await.expect("an answer");
    assert_eq!(status, 200);
}
