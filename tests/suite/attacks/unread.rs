//! Answers that nobody reads: what waits is counted, bounded and given back, and who reads slowly gets every byte.

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};
use tests::client::{Client, Failure, all_capabilities, text};
use tests::modern::Modern;
use tests::place::rounds;
use tests::process::memory_bytes;
use tests::wait::{soon, until};
use tests::{Host, Setup, command, raw};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// Takes six bytes on the wire.
const CONTROL: &str = "\u{1}";
const LIMIT: &str = "answer_bytes_per_requestor";

/// A connection on which the kernel takes little of what nobody reads.
async fn narrow(host: &Host) -> TcpStream {
    let address = raw::address(host).parse().expect("an address");
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    socket.connect(address).await.expect("a connection")
}

/// A call whose result is so long.
fn flood(bytes: usize) -> Value {
    json!({"name": "flood_result", "arguments": {"bytes": bytes, "of": CONTROL}})
}

/// A call as a session of 2025-11-25 sends it.
fn legacy_call(client: &Client, token: &str, params: &Value, accept: &str) -> String {
    let session = client.session.as_deref().expect("a session");
    let body = json!({"jsonrpc": "2.0", "id": "u", "method": "tools/call", "params": params}).to_string();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: {accept}\r\n\
         Authorization: Bearer {token}\r\nMcp-Session-Id: {session}\r\nMcp-Protocol-Version: 2025-11-25\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The same as a client of 2026-07-28 sends it.
fn modern_call(client: &Modern, token: &str, params: Value) -> String {
    let body = client.message(&json!("u"), "tools/call", params).to_string();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nAuthorization: Bearer {token}\r\n\
         Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: flood_result\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// How much of a limit of unread answers is in use by all.
async fn waiting(host: &Host) -> u64 {
    let (_, shown) = command::outcome(&["limits"], &host.setup.data()).await;
    shown["host"]["answer_bytes_total"]["in_use"].as_u64().unwrap_or_else(|| panic!("a number: {shown}"))
}

/// Waits until something waits, and what is in use has not changed for a while.
async fn settled(host: &Host) -> u64 {
    let mut last = until("an answer to wait", async || Some(waiting(host).await).filter(|bytes| *bytes > 0)).await;
    let mut same = 0;
    while same < 5 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = waiting(host).await;
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    last
}

/// The final response on a connection, read to its end. A body or a stream of events. `None`: a stream that its reader
/// was too slow for ended before the response, with what it takes to resume it.
async fn response(mut stream: TcpStream) -> Option<Value> {
    let mut bytes = Vec::new();
    soon("the whole answer", stream.read_to_end(&mut bytes)).await.expect("it ends in order");
    let answer = String::from_utf8(bytes).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("headers");
    let head = head.to_lowercase();
    if let Some(length) = head.lines().find_map(|line| line.strip_prefix("content-length: ")) {
        assert_eq!(length.parse(), Ok(body.len()), "{head}");
        return Some(serde_json::from_str(body).expect("JSON"));
    }
    let whole = if head.contains("transfer-encoding: chunked") { unchunked(body) } else { body.to_owned() };
    let is_response = |line: &&str| line.starts_with("data: {") && line.contains("\"id\":");
    let Some(last) = whole.lines().rfind(is_response) else {
        assert!(whole.starts_with("id: ") && whole.contains("\nretry: "), "no response: {whole:.2000}");
        return None;
    };
    Some(serde_json::from_str(last.trim_start_matches("data: ")).expect("JSON"))
}

fn unchunked(body: &str) -> String {
    let mut left = body;
    let mut whole = String::new();
    while let Some((size, rest)) = left.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        if size == 0 {
            break;
        }
        let (chunk, rest) = rest.split_at(size);
        whole.push_str(chunk);
        left = rest.trim_start_matches("\r\n");
    }
    whole
}

fn refused(failure: &Failure) {
    assert_eq!((failure.code, &failure.data["limit"]), (1010, &json!(LIMIT)), "{failure:?}");
}

/// Connections that ask for a large result each and read nothing, in each way that there is to be answered.
async fn unread(host: &Host, token: &str, count: u32, bytes: usize) -> Vec<TcpStream> {
    let client = Client::connect_as(host, Some(token), all_capabilities()).await;
    let modern = Modern::plain(host, Some(token));
    let reporting = |bytes| {
        let mut params = flood(bytes);
        params["arguments"]["reports"] = json!(true);
        params
    };
    let mut with_progress = reporting(bytes);
    with_progress["_meta"] = json!({"progressToken": 1});
    let reports = modern.with_meta("progressToken", json!(1));
    let ways = [
        legacy_call(&client, token, &flood(bytes), "application/json"),
        legacy_call(&client, token, &with_progress, "application/json, text/event-stream"),
        modern_call(&modern, token, flood(bytes)),
        modern_call(&reports, token, reporting(bytes)),
    ];
    let mut streams = Vec::new();
    for at in 0..count as usize {
        let mut stream = narrow(host).await;
        // In a session an id belongs to one request at a time.
        let request = ways[at % ways.len()].replace("\"id\":\"u\"", &format!("\"id\":\"{at:04}\""));
        let request = with_length(&request);
        stream.write_all(request.as_bytes()).await.expect("an open connection");
        streams.push(stream);
    }
    streams
}

/// The request with the length that its body has.
fn with_length(request: &str) -> String {
    let (head, body) = request.split_once("\r\n\r\n").expect("headers");
    let head = head.rsplit_once("Content-Length: ").expect("a length").0;
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn unread_answers_are_counted_and_bounded_by_quota() {
    const BYTES: usize = 1_000_000;
    const MAX: u64 = 3 << 20;
    let limits = format!(
        "[limits]\n{LIMIT} = {MAX}\nevent_bytes_per_requestor = {MAX}\nrequests_per_second = 10000\n\
         requests_per_second_per_tenant = 10000\n[call]\nresult_bytes = 1048576"
    );
    let setup = Setup::with(&["text", "hostile"]).config(&limits);
    let mallory = setup.token("mallory", "dark").await;
    let bob = setup.token("bob", "light").await;
    let mut host = setup.start().await;
    let attacker = Client::connect_as(&host, Some(&mallory), all_capabilities()).await;
    let bystander = Client::connect_as(&host, Some(&bob), all_capabilities()).await;
    let task = attacker.task("flood_result", flood(BYTES)["arguments"].clone()).await;
    attacker.until_status(&task, "completed").await;
    attacker.tool("flood_result", flood(BYTES)["arguments"].clone()).await.expect("it is read");
    let (before, _) = memory_bytes(host.pid());
    let streams = unread(&host, &mallory, 60, BYTES).await;
    let held = settled(&host).await;
    let grown = memory_bytes(host.pid()).0.saturating_sub(before);
    println!("{held} bytes wait, the host grew by {grown}");
    // More than three quarters, so that nothing new starts, and never more than all.
    assert!((MAX / 4 * 3..=MAX).contains(&held), "{held} bytes are counted");
    // Rendered they are 360 MB. Sixteen guests with their memory have been there as well.
    assert!(grown < 160 << 20, "the host grew by {grown} bytes");

    // Nothing new that may be long, and everything else.
    refused(&attacker.tool("echo", json!({"text": "a"})).await.expect_err("no room"));
    refused(&attacker.about("tasks/result", &task).await.expect_err("no room"));
    attacker.call("ping", json!({})).await.expect("it is short");
    assert_eq!(attacker.about("tasks/get", &task).await.expect("it is short")["status"], "completed");
    let echo = bystander.tool("echo", json!({"text": "b"})).await.expect("room of his own");
    assert_eq!(text(&echo), "b");
    bystander.tool("flood_result", flood(BYTES)["arguments"].clone()).await.expect("room of his own");

    // Who reads late gets all of it, or the reason.
    let expected = CONTROL.repeat(BYTES);
    let answers = join_all(streams.into_iter().map(response)).await;
    let (whole, errors): (Vec<_>, Vec<_>) =
        answers.into_iter().flatten().partition(|answer| answer.get("result").is_some());
    for answer in &whole {
        assert!(text(&answer["result"]) == expected, "a result is another one");
    }
    // Some waited for a turn in vain.
    let limits = [LIMIT, "event_bytes_per_requestor", "calls_running_per_requestor", "calls_queued_per_requestor"];
    let of = |answer: &Value| answer["error"]["data"]["limit"].as_str().unwrap_or_default().to_owned();
    for answer in &errors {
        assert!(limits.contains(&of(answer).as_str()), "{answer}");
        assert_eq!(answer["error"]["code"], 1010, "{answer}");
    }
    assert!(errors.iter().any(|answer| of(answer) == LIMIT), "nothing was refused for {LIMIT}");
    println!("{} whole, {} refused", whole.len(), errors.len());
    assert!(whole.len() >= 2, "those that had room are read");
    until("everything to be given back", async || (waiting(&host).await == 0).then_some(())).await;
    let result = attacker.about("tasks/result", &task).await.expect("it was kept");
    assert!(text(&result) == expected, "a result is another one");

    // Connections that are dropped give back what waited for them.
    drop(unread(&host, &mallory, 8, BYTES).await);
    until("everything to be given back", async || (waiting(&host).await == 0).then_some(())).await;
    attacker.tool("echo", json!({"text": "a"})).await.expect("room again");
    assert!(host.is_alive() && !host.log().contains("panicked"), "{}", host.log());
}

#[tokio::test]
async fn concurrent_large_answers_are_all_delivered() {
    const BYTES: usize = 1 << 20;
    let setup = Setup::with(&["hostile"]);
    let token = setup.token("alice", "red").await;
    let host = setup.start().await;
    let expected = CONTROL.repeat(BYTES);
    let client = Client::connect_as(&host, Some(&token), all_capabilities()).await;
    let calls = (0..24).map(|_| client.tool("flood_result", flood(BYTES)["arguments"].clone()));
    for result in join_all(calls).await {
        assert!(text(&result.expect("a result")) == expected, "a result is another one");
    }
}

/// Milliseconds that 99 of 100 echoes take at most, one after the other for so long.
async fn p99(client: &Client, time: Duration) -> f64 {
    let begin = Instant::now();
    let mut each = Vec::new();
    while begin.elapsed() < time {
        let one = Instant::now();
        client.tool("echo", json!({"text": "a"})).await.expect("an echo");
        each.push(one.elapsed().as_secs_f64() * 1e3);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    each.sort_by(f64::total_cmp);
    each[each.len() * 99 / 100]
}

/// Default limits, results as large as they may be, and as many connections as one address may have.
#[tokio::test]
async fn unread_answers_use_bounded_memory_without_slowing_others() {
    let count = rounds(40, 900);
    let bytes = 4_100_000;
    let setup = || Setup::with(&["text", "hostile"]);
    let (setup, control) = (setup(), setup());
    let mallory = setup.token("mallory", "dark").await;
    let bob = setup.token("bob", "light").await;
    let bert = control.token("bert", "light").await;
    let mut host = setup.start().await;
    let control = control.start().await;
    let bystander = Client::connect_as(&host, Some(&bob), all_capabilities()).await;
    let beside = Client::connect_as(&control, Some(&bert), all_capabilities()).await;
    p99(&bystander, Duration::from_millis(500)).await;
    let (before, _) = memory_bytes(host.pid());
    let time = Duration::from_secs(rounds(1, 20).into());
    let (streams, own, other) =
        tokio::join!(unread(&host, &mallory, count, bytes), p99(&bystander, time), p99(&beside, time),);
    let held = settled(&host).await;
    let (now, most) = memory_bytes(host.pid());
    let grown = now.saturating_sub(before);
    let peak = most.saturating_sub(before);
    println!(
        "{count} unread: {held} bytes wait, {before} grew by {grown}, at most {peak}; p99 {own:.1} ms, control {other:.1} ms"
    );
    // Rendered, forty results are a gigabyte. The guests that were running have been there as well, here beside other
    // tests.
    let most_mib: u64 = if rounds(0, 1) == 1 { 256 } else { 512 };
    assert!(grown < most_mib << 20, "the host grew by {grown} bytes");
    if rounds(0, 1) == 1 {
        assert!(peak < most_mib << 20, "the host grew by {peak} bytes at times");
        assert!(own < other + 25.0, "p99 {own:.1} ms, {other:.1} ms beside a host that nobody attacks");
        // Who does not read for a minute is let go.
        tokio::time::sleep(Duration::from_secs(65)).await;
        assert_eq!(waiting(&host).await, 0, "everything is given back");
    }
    drop(streams);
    bystander.tool("echo", json!({"text": "a"})).await.expect("an echo");
    assert!(host.is_alive() && !host.log().contains("panicked"), "{}", host.log());
}
