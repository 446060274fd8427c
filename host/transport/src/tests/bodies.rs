//! Large bodies: what they wait for, what they count, and whom they do not hold up.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::client::{Client, Reply};
use super::{Edge, Setup, requestor, status_and_body};
use bulkhead_limits::UsageReport as _;

/// A body beyond what is read at once.
const LARGE: usize = 300_000;

fn setup(change: impl FnOnce(&mut Setup)) -> Setup {
    let mut setup = Setup { has_workers: true, ..Setup::default() };
    setup.options.body_bytes_max = 1 << 20;
    change(&mut setup);
    setup
}

fn client(edge: &Edge, token: &str) -> Client {
    edge.client().with("Authorization", &format!("Bearer {token}"))
}

fn message(method: &str, bytes: usize) -> String {
    let mut message = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": {}, "padding": ""});
    let padding = bytes.saturating_sub(message.to_string().len());
    message["padding"] = "x".repeat(padding).into();
    message.to_string()
}

/// Posts without anybody waiting for it.
fn posted(client: &Client, body: String) -> tokio::task::JoinHandle<(u16, Value)> {
    let client = client.clone();
    tokio::spawn(async move { status_and_body(client.post(&body).await).await })
}

/// The bytes of bodies that are in memory, of a requestor, its tenant and the host.
fn held(edge: &Edge) -> [u64; 3] {
    let alice = edge.quota.in_use(&requestor(1));
    let all = edge.quota.in_use_of_all();
    [alice.requestor, alice.tenant, all].map(|taken| {
        let found = taken.into_iter().find(|taken| taken.limit.starts_with("request_bytes_open"));
        found.expect("it is said").in_use
    })
}

#[tokio::test]
async fn large_bodies_do_not_block_connection_threads() {
    let edge = Edge::start(setup(|_| {})).await;
    let alice = client(&edge, "alice");
    let bob = client(&edge, "bob");
    // More than there are threads of either kind.
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let held: Vec<_> = (0..2 * threads + 4).map(|_| posted(&alice, message("hold", LARGE))).collect();
    edge.script.gate.holds(threads as u64).await;
    for client in [&bob, &alice] {
        for _ in 0..20 {
            assert_eq!(client.post(&message("modern", 100)).await.status, 200);
        }
    }
    edge.script.gate.open();
    for held in held {
        assert_eq!(held.await.unwrap().0, 200);
    }
}

#[tokio::test]
async fn a_large_body_does_not_wait_behind_those_of_another_tenant() {
    let edge = Edge::start(setup(|_| {})).await;
    let alice = client(&edge, "alice");
    let bob = client(&edge, "bob");
    let held = posted(&alice, message("hold", LARGE));
    edge.script.gate.holds(1).await;
    let others: Vec<_> = (0..8).map(|_| posted(&alice, message("modern", LARGE))).collect();
    for bytes in [100, LARGE] {
        assert_eq!(bob.post(&message("modern", bytes)).await.status, 200);
    }
    for other in others {
        assert_eq!(other.await.unwrap().0, 200);
    }
    assert!(!held.is_finished());
    edge.script.gate.open();
    assert_eq!(held.await.unwrap().0, 200);
}

#[tokio::test]
async fn request_body_bytes_count_until_message_is_handled() {
    let edge = Edge::start(setup(|_| {})).await;
    let alice = client(&edge, "alice");
    let first = posted(&alice, message("hold", LARGE));
    edge.script.gate.holds(1).await;
    assert_eq!(held(&edge), [LARGE as u64; 3]);
    // It does not say how long it is.
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Authorization: Bearer alice\r\nTransfer-Encoding: chunked\r\n\r\n";
    let body = message("hold", LARGE);
    let mut stream = alice.connect().await;
    let (beginning, rest) = body.split_at(100_000);
    stream.write_all(format!("{head}{:x}\r\n{beginning}\r\n", beginning.len()).as_bytes()).await.unwrap();
    until(|| held(&edge) == [(LARGE + (1 << 20)) as u64; 3]).await;
    stream.write_all(format!("{:x}\r\n{rest}\r\n0\r\n\r\n", rest.len()).as_bytes()).await.unwrap();
    edge.script.gate.holds(2).await;
    assert_eq!(held(&edge), [2 * LARGE as u64; 3], "what it was not is given back");
    edge.script.gate.open();
    assert_eq!((first.await.unwrap().0, Reply::read(stream).await.status), (200, 200));
    until(|| held(&edge) == [0; 3]).await;
}

async fn until(condition: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("it did not come to that");
}

#[tokio::test]
async fn rate_limited_body_is_not_parsed() {
    let edge = Edge::start(setup(|setup| setup.limits.requests_per_second = 1)).await;
    let alice = client(&edge, "alice");
    let mut refused = 0;
    while refused < 10 {
        let before = edge.script.offloads();
        let (status, body) = status_and_body(alice.post(&message("modern", LARGE)).await).await;
        let looked = edge.script.offloads() - before;
        match status {
            200 => assert!(looked > 0, "otherwise nothing is shown"),
            _ => {
                refused += 1;
                assert_eq!((status, looked), (429, 0));
                assert_eq!(body["error"]["data"]["limit"], "requests_per_second");
                assert!(body.get("id").is_none(), "nobody has read it");
            }
        }
    }
    assert_eq!(client(&edge, "bob").post(&message("modern", LARGE)).await.status, 200);
}

#[tokio::test]
async fn request_bytes_over_limit_are_refused_before_sending() {
    let edge = Edge::start(setup(|setup| {
        setup.limits.request_bytes_per_second = 20_000;
        setup.limits.request_bytes_open_per_requestor = 400_000;
    }))
    .await;
    let expecting = |token: &str, bytes: usize| {
        format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Authorization: Bearer {token}\r\nExpect: 100-continue\r\nContent-Length: {bytes}\r\n\r\n"
        )
    };
    // A burst of two seconds, and ten to wait.
    for (bytes, status, limit) in
        [(250_000, 429, "request_bytes_per_second"), (500_000, 413, "request_bytes_open_per_requestor")]
    {
        let reply = edge.client().raw(&expecting("alice", bytes)).await;
        assert_eq!((reply.status, reply.header("retry-after").is_some()), (status, status == 429));
        let body = reply.body().await;
        assert!(body.contains(limit), "{body}");
    }
    assert_eq!((edge.script.offloads(), held(&edge)), (0, [0; 3]));
    // What is refused is charged to nobody, and small bodies are not meant.
    let alice = client(&edge, "alice");
    assert_eq!(alice.post(&message("modern", 70_000)).await.status, 200);
    for _ in 0..50 {
        assert_eq!(alice.post(&message("modern", 10_000)).await.status, 200);
    }
}
