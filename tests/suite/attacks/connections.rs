//! Many connections, slow ones, and those that nobody reads.

use std::time::Duration;

use futures::future::join_all;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tests::client::{Client, all_capabilities, text};
use tests::place::rounds;
use tests::process::{Holdings, memory_bytes};
use tests::wait::{soon, until};
use tests::{Host, Setup, raw};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::{hello, serves_on};

/// As many connections as wanted, if this process and the host may have so many descriptors. Comes before the host,
/// which inherits what this process may.
fn connections(gate: u32, nightly: u32) -> u32 {
    let limit = getrlimit(Resource::Nofile);
    // What is usual is enough for neither; nobody has to ask for what is allowed.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let allowed = limit.maximum.unwrap_or(u64::MAX).saturating_sub(1_000);
    let wanted = rounds(gate, nightly);
    assert!(allowed >= u64::from(wanted), "{allowed} connections instead of {wanted}: `ulimit -Hn` allows no more");
    wanted
}

async fn open(host: &Host, count: u32) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    while streams.len() < count as usize {
        let more = (count as usize - streams.len()).min(500);
        streams.extend(join_all((0..more).map(|_| raw::connect(host))).await);
    }
    streams
}

#[tokio::test]
async fn idle_connections_use_little_memory_and_time_out() {
    let config = "[server]\nconnections_max = 15000\nconnections_per_address = 15000\nheader_read_ms_max = 8000";
    let count = connections(1_000, 10_000);
    let mut host = Setup::with(&["text"]).config(config).start().await;
    serves_on(&mut host, "the start").await;
    let before = Holdings::of(&host);
    let (memory_before, _) = memory_bytes(host.pid());
    let mut streams = open(&host, count).await;
    // Half of them have said something.
    for stream in streams.iter_mut().step_by(2) {
        stream.write_all(b"POST /mcp HTTP/1.1\r\nHost: loc").await.expect("an open connection");
    }
    until("the host to have them all", async || {
        // The connection of what was asked before may still have been counted.
        (Holdings::of(&host).descriptors + 4 >= before.descriptors + count as usize).then_some(())
    })
    .await;
    serves_on(&mut host, "idle connections").await;
    let (memory, _) = memory_bytes(host.pid());
    let each = memory.saturating_sub(memory_before) / u64::from(count);
    println!("{count} idle connections: {before} became {}, {each} bytes each", Holdings::of(&host));
    assert!(each < 48 * 1024, "{each} bytes for each of {count} idle connections");
    until("the host to let them go", async || {
        (Holdings::of(&host).descriptors <= before.descriptors + 4).then_some(())
    })
    .await;
    // Threads of the pool for what blocks end when they have been idle.
    let after = Holdings::of(&host);
    println!("let go: {after}");
    let threads = after.threads;
    assert!(threads <= before.threads, "{threads} threads, {} before", before.threads);
    drop(streams);
    serves_on(&mut host, "idle connections").await;
}

#[tokio::test]
async fn slow_headers_and_bodies_do_not_block_others() {
    let setup = Setup::with(&["text"]).config("[server]\nheader_read_ms_max = 1500");
    let token = setup.token("alice", "red").await;
    let mut host = setup.start().await;
    let bob = Client::connect_as(&host, Some(&token), all_capabilities()).await;
    let heads = join_all((0..rounds(100, 500)).map(|_| raw::connect(&host))).await;
    // A byte now and then does not buy time: whether the connection is cut within five times what headers may take.
    let drip = heads.into_iter().map(|mut stream| async move {
        stream.write_all(b"POST /mcp HTTP/1.1\r\n").await.expect("an open connection");
        for _ in 0..75 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            if stream.write_all(b"X").await.is_err() {
                return true;
            }
        }
        false
    });
    // Bodies of somebody without a token: answered before the body is there.
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let strangers = (0..20).map(|_| async {
        let mut stream = raw::connect(&host).await;
        stream.write_all(format!("{head}Content-Length: 1000000\r\n\r\n").as_bytes()).await.expect("a request");
        raw::hear(&mut stream).await.statuses()
    });
    // Bodies of somebody with one, that never end.
    let mut unending = Vec::new();
    for _ in 0..20 {
        let mut stream = raw::connect(&host).await;
        let request = format!("{head}Authorization: Bearer {token}\r\nContent-Length: 1000000\r\n\r\n{{");
        stream.write_all(request.as_bytes()).await.expect("a request");
        unending.push(stream);
    }
    let others = async {
        for turn in 0..40 {
            let result = bob.tool("echo", json!({"text": turn.to_string()})).await.expect("an echo");
            assert_eq!(text(&result), turn.to_string());
        }
    };
    let (cut, statuses, ()) =
        soon("everybody", async { tokio::join!(join_all(drip), join_all(strangers), others) }).await;
    assert!(cut.iter().all(|cut| *cut), "slow headers live on");
    assert!(statuses.iter().all(|statuses| statuses == &[401]), "{statuses:?}");
    drop(unending);
    assert!(host.is_alive() && !host.log().contains("panicked"), "{}", host.log());
}

/// Connections whose answers nobody reads: what waits for them is bounded.
#[tokio::test]
async fn unread_connections_use_bounded_memory() {
    // Beyond them an answer is a short refusal.
    let limits = "[limits]\nrequests_per_second = 1000000\nrequests_per_second_per_tenant = 1000000";
    let mut host = Setup::with(&["text", "conformance"]).config(limits).start().await;
    let client = Client::connect(&host).await;
    let session = client.session.clone().expect("a session");
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Session-Id: {session}\r\nContent-Length: {}\r\n\r\n{list}",
        list.len()
    );
    // The answers are some hundred times larger than what asks for them.
    let many = request.repeat(2_000);
    let (before, _) = memory_bytes(host.pid());
    let readers = rounds(50, 400);
    let mut streams = join_all((0..readers).map(|_| raw::connect(&host))).await;
    for stream in &mut streams {
        // As much as the host takes; it stops reading when nobody reads what it says.
        let _ = tokio::time::timeout(Duration::from_millis(50), stream.write_all(many.as_bytes())).await;
    }
    for turn in 0..20 {
        let result = client.tool("echo", json!({"text": turn.to_string()})).await.expect("an echo");
        assert_eq!(text(&result), turn.to_string());
    }
    let (memory, _) = memory_bytes(host.pid());
    let each = memory.saturating_sub(before) / u64::from(readers);
    assert!(each < 1 << 20, "{each} bytes for each of {readers} connections that nobody reads");
    drop(streams);
    serves_on(&mut host, "readers that do not read").await;
}

/// Guests that report as fast as they can, on streams that nobody reads, and streams without end.
#[tokio::test]
async fn notification_floods_are_bounded() {
    let setup = Setup::with(&["text", "hostile"]).config("[call]\ncpu_ms = 3000");
    let mallory = setup.token("mallory", "dark").await;
    let bob = setup.token("bob", "light").await;
    let mut host = setup.start().await;
    let attacker = Client::connect_as(&host, Some(&mallory), all_capabilities()).await;
    let bystander = Client::connect_as(&host, Some(&bob), all_capabilities()).await;
    let (before, _) = memory_bytes(host.pid());
    let flood = json!({"name": "flood_progress", "arguments": {"count": 30_000}, "_meta": {"progressToken": 1}});
    let floods = rounds(8, 32);
    let unread = join_all((0..floods).map(|_| attacker.send("tools/call", flood.clone()))).await;
    // Streams of the session beyond what one may have, and the same stream resumed again and again.
    let mut standing = Vec::new();
    for _ in 0..30 {
        standing.push(attacker.listen().await);
    }
    let refused = standing.iter().filter(|stream| stream.status.as_u16() == 409).count();
    assert_eq!(refused, 30 - 8, "a session has eight standing streams at most");
    for turn in 0..20 {
        let result = bystander.tool("echo", json!({"text": turn.to_string()})).await.expect("an echo");
        assert_eq!(text(&result), turn.to_string());
    }
    let (memory, _) = memory_bytes(host.pid());
    let grown = memory.saturating_sub(before);
    // An instance of a guest, its output and its log of events.
    assert!(grown < u64::from(floods) * (24 << 20) + (64 << 20), "{grown} bytes for {floods} floods");
    drop((unread, standing));
    let heard = raw::exchange(&host, hello().as_bytes()).await;
    assert_eq!(heard.statuses(), [401], "{heard:?}");
    assert!(host.is_alive() && !host.log().contains("panicked"), "{}", host.log());
}
