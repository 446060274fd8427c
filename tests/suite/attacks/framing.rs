//! Where one request ends and the next begins; headers and paths that want to be something else.

use tests::client::HELLO;
use tests::raw::{self, Heard};
use tests::{Host, Setup};

use super::{hello, serves_on};

/// A request that nobody sent, if the host reads a body as one: its answer is the only 404 around.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";

async fn host() -> Host {
    Setup::with(&["text"]).config("[server]\nheader_read_ms_max = 2000").start().await
}

fn post(headers: &str, body: &str) -> String {
    format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}\r\n\r\n{body}")
}

fn in_chunks(body: &str) -> String {
    format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

/// Nothing behind the first request was taken for another one, and nothing more can come on this connection.
fn is_cut(what: &str, heard: &Heard, statuses: &[u16]) {
    let seen = heard.statuses();
    assert!(!seen.contains(&404), "{what}: a request was smuggled: {heard:?}");
    assert!(seen.len() <= 1 && seen.iter().all(|status| statuses.contains(status)), "{what}: {heard:?}");
    assert!(heard.closed, "{what}: the connection goes on: {heard:?}");
    assert_eq!(heard.rest, b"", "{what}: {heard:?}");
}

#[tokio::test]
async fn conflicting_lengths_do_not_smuggle_requests() {
    let mut host = host().await;
    let both = HELLO.len() + SMUGGLED.len();
    let nothing = format!("0\r\n\r\n{SMUGGLED}");
    let chunked = in_chunks(HELLO) + SMUGGLED;
    // What is refused, and what is read in the one way that RFC 9112 allows; then the connection ends.
    let shapes: Vec<(&str, String, &[u16])> = vec![
        (
            "a length before chunks",
            post(&format!("Content-Length: {}\r\nTransfer-Encoding: chunked", nothing.len()), &nothing),
            &[400],
        ),
        (
            "a length behind chunks",
            post(&format!("Transfer-Encoding: chunked\r\nContent-Length: {}", nothing.len()), &nothing),
            &[400],
        ),
        (
            "chunks with a message and a length",
            post(&format!("Content-Length: {}\r\nTransfer-Encoding: chunked", HELLO.len()), &chunked),
            &[200, 400],
        ),
        (
            "two lengths",
            post(&format!("Content-Length: {}\r\nContent-Length: {both}", HELLO.len()), &format!("{HELLO}{SMUGGLED}")),
            &[400],
        ),
        (
            "two lengths in one line",
            post(&format!("Content-Length: {}, {both}", HELLO.len()), &format!("{HELLO}{SMUGGLED}")),
            &[400],
        ),
        (
            "a length with a sign",
            post(&format!("Content-Length: +{}", HELLO.len()), &format!("{HELLO}{SMUGGLED}")),
            &[400],
        ),
        ("a negative length", post("Content-Length: -1", SMUGGLED), &[400]),
        ("a length in hexadecimal", post("Content-Length: 0x5", SMUGGLED), &[400]),
        ("a length with a space inside", post("Content-Length: 1 0", SMUGGLED), &[400]),
        ("a length beyond all numbers", post("Content-Length: 99999999999999999999999", SMUGGLED), &[400]),
        ("an empty length", post("Content-Length: ", SMUGGLED), &[400]),
        ("chunks that are not the last coding", post("Transfer-Encoding: chunked, identity", &nothing), &[400]),
        ("a coding that is none", post("Transfer-Encoding: xchunked", &nothing), &[400]),
        (
            "two lines of codings, the last one unknown",
            post("Transfer-Encoding: chunked\r\nTransfer-Encoding: cow", &nothing),
            &[400],
        ),
        ("a name with a space behind", post("Transfer-Encoding : chunked", &nothing), &[400]),
        ("a name with a tab behind", post("Content-Length\t: 5", SMUGGLED), &[400]),
        ("a folded line", post("X-Folded: a\r\n Transfer-Encoding: chunked", SMUGGLED), &[400]),
        ("a folded coding", post("Transfer-Encoding:\r\n chunked", &nothing), &[400]),
        (
            "a line that begins with a space",
            format!("POST /mcp HTTP/1.1\r\n Host: localhost\r\n\r\n{SMUGGLED}"),
            &[400],
        ),
        ("a coding that ends in a vertical tab", post("Transfer-Encoding: \u{b}chunked", &nothing), &[400]),
        (
            "an older version with chunks",
            format!("POST /mcp HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{nothing}"),
            &[400],
        ),
    ];
    for (what, bytes, statuses) in shapes {
        is_cut(what, &raw::exchange(&host, bytes.as_bytes()).await, statuses);
        serves_on(&mut host, what).await;
    }
}

#[tokio::test]
async fn bad_chunked_body_ends_the_connection() {
    let mut host = host().await;
    let chunk = |size: &str| post("Transfer-Encoding: chunked", &format!("{size}\r\n{HELLO}\r\n0\r\n\r\n{SMUGGLED}"));
    let length = format!("{:x}", HELLO.len());
    for (what, bytes) in [
        ("a size beyond all numbers", chunk("fffffffffffffffff")),
        ("a size with a prefix", chunk(&format!("0x{length}"))),
        ("a negative size", chunk("-1")),
        ("no size", chunk("")),
        ("a size that is none", chunk("zz")),
        ("a size that is too small", chunk("1")),
        ("a line end inside an extension", chunk(&format!("{length};a\n0"))),
        ("an endless extension", chunk(&format!("{length};{}", "x".repeat(100_000)))),
        (
            "no line end behind the data",
            post("Transfer-Encoding: chunked", &format!("{length}\r\n{HELLO}0\r\n\r\n{SMUGGLED}")),
        ),
        (
            "endless trailers",
            post(
                "Transfer-Encoding: chunked",
                &format!("{length}\r\n{HELLO}\r\n0\r\n{}\r\n{SMUGGLED}", "a: b\r\n".repeat(20_000)),
            ),
        ),
        (
            "a trailer that wants to be a header",
            post(
                "Transfer-Encoding: chunked",
                &format!("{length}\r\n{HELLO}\r\n0\r\nHost: evil.example\r\n\r\n{SMUGGLED}"),
            ),
        ),
    ] {
        let heard = raw::exchange(&host, bytes.as_bytes()).await;
        is_cut(what, &heard, &[200, 400, 408, 413]);
        serves_on(&mut host, what).await;
    }
    // In good chunks a message is a message, and the last one of its connection.
    let heard =
        raw::exchange(&host, (post("Transfer-Encoding: chunked", &in_chunks(HELLO)) + SMUGGLED).as_bytes()).await;
    is_cut("good chunks", &heard, &[200]);
    assert_eq!(heard.answers[0].header("connection"), Some("close"));
}

#[tokio::test]
async fn invalid_request_lines_and_http_versions_are_refused() {
    let mut host = host().await;
    for (what, bytes) in [
        ("no version", format!("GET /healthz\r\n\r\n{SMUGGLED}")),
        ("another version", format!("GET /healthz HTTP/9.9\r\nHost: localhost\r\n\r\n{SMUGGLED}")),
        ("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned()),
        ("TLS", "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\u{fc}\u{3}\u{3}\r\n\r\n".to_owned()),
        ("a null byte in a value", format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n{SMUGGLED}")),
        ("a null byte in a name", format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX\0: b\r\n\r\n{SMUGGLED}")),
        ("a lone carriage return", format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\rY: b\r\n\r\n{SMUGGLED}")),
        ("no name", format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n: b\r\n\r\n{SMUGGLED}")),
        ("no colon", format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX\r\n\r\n{SMUGGLED}")),
        (
            "a control character in the target",
            format!("GET /health\u{1}z HTTP/1.1\r\nHost: localhost\r\n\r\n{SMUGGLED}"),
        ),
        ("a space in the target", format!("GET /health z HTTP/1.1\r\nHost: localhost\r\n\r\n{SMUGGLED}")),
        ("a method that is none", format!("GE\u{1}T /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n{SMUGGLED}")),
        ("nothing but line ends", "\r\n".repeat(100_000)),
        ("an endless line", "x".repeat(1 << 20)),
    ] {
        let heard = raw::exchange(&host, bytes.as_bytes()).await;
        is_cut(what, &heard, &[400, 414, 431, 505]);
        serves_on(&mut host, what).await;
    }
    // A line may end in a line feed alone (RFC 9112 section 2.2): the same request, and no other one.
    let heard = raw::exchange(&host, hello().replace("\r\n", "\n").as_bytes()).await;
    assert!(heard.statuses() == [200] || heard.statuses() == [400], "{heard:?}");
    // A body that its request has no use for is not the next request.
    let body =
        format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{SMUGGLED}", SMUGGLED.len());
    let heard = raw::exchange(&host, body.as_bytes()).await;
    assert_eq!(heard.statuses(), [200], "{heard:?}");
    // Several requests in one piece are answered one after the other.
    let heard = raw::exchange(&host, hello().repeat(3).as_bytes()).await;
    assert_eq!(heard.statuses(), [200, 200, 200], "{heard:?}");
}

#[tokio::test]
async fn spoofed_host_headers_are_refused() {
    let mut host = host().await;
    for (what, head, status) in [
        ("no host", "POST /mcp HTTP/1.1\r\n", 400),
        ("two hosts", "POST /mcp HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n", 400),
        ("the same host twice", "POST /mcp HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n", 400),
        ("a rebound name", "POST /mcp HTTP/1.1\r\nHost: evil.example\r\n", 403),
        ("a name that begins like ours", "POST /mcp HTTP/1.1\r\nHost: localhost.evil.example\r\n", 403),
        ("a name in front of ours", "POST /mcp HTTP/1.1\r\nHost: evil.example@localhost\r\n", 403),
        ("another one in the target", "POST http://evil.example/mcp HTTP/1.1\r\nHost: localhost\r\n", 403),
        ("ours in the target only", "POST http://localhost/mcp HTTP/1.1\r\nHost: evil.example\r\n", 403),
        ("a page of somebody else", "POST /mcp HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n", 403),
        ("a page of nobody", "POST /mcp HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\n", 403),
        (
            "two origins",
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nOrigin: http://localhost\r\n",
            400,
        ),
    ] {
        let headers = format!("Connection: close\r\nContent-Type: application/json\r\nContent-Length: {}", HELLO.len());
        let request = format!("{head}{headers}\r\n\r\n{HELLO}");
        let heard = raw::exchange(&host, request.as_bytes()).await;
        assert_eq!(heard.statuses(), [status], "{what}: {heard:?}");
        assert!(!heard.answers[0].body.contains("result"), "{what}: {heard:?}");
        serves_on(&mut host, what).await;
    }
}

#[tokio::test]
async fn other_http_paths_are_refused() {
    let mut host = host().await;
    for path in [
        "/mcp/",
        "/MCP",
        "//mcp",
        "/./mcp",
        "/mcp/../mcp",
        "/%6dcp",
        "/mcp%00",
        "/mcp%2f",
        "/mcp;a=b",
        "/..%2fmcp",
        "/mcp\\",
        "/healthz/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/.well-known/../../etc/passwd",
        "/.well-known/oauth-protected-resource/../../mcp",
        "/.well-known/%2e%2e/mcp",
        "*",
        "evil.example:443",
    ] {
        for method in ["GET", "POST", "DELETE", "OPTIONS", "CONNECT", "TRACE", "FOO"] {
            let headers = "Host: localhost\r\nConnection: close\r\nContent-Length: 0";
            let request = format!("{method} {path} HTTP/1.1\r\n{headers}\r\n\r\n");
            let heard = raw::exchange(&host, request.as_bytes()).await;
            let seen = heard.statuses();
            assert!(seen.len() == 1 && (400..500).contains(&seen[0]), "{method} {path}: {heard:?}");
            assert!(!heard.answers[0].body.contains("root:"), "{method} {path}: {heard:?}");
        }
    }
    serves_on(&mut host, "paths").await;
    // With a query it is the endpoint still; nothing is read from there.
    let heard = raw::exchange(&host, hello().replace("/mcp", "/mcp?a=b#c").as_bytes()).await;
    assert!(heard.statuses() == [200] || heard.statuses() == [400], "{heard:?}");
}

/// What a client writes comes back inside of JSON, never as a header or a line of a stream.
#[tokio::test]
async fn client_text_cannot_inject_headers_or_stream_events() {
    let mut host = host().await;
    let evil = "a\\r\\nX-Injected: 1\\r\\n\\r\\ndata: {\\\"injected\\\":1}\\n\\n";
    let messages = [
        format!(r#"{{"jsonrpc":"2.0","id":"{evil}","method":"ping"}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":"{evil}","method":"{evil}"}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{evil}"}}}}"#),
        format!(
            r#"{{"jsonrpc":"2.0","id":"{evil}","method":"tools/call","params":{{"name":"{evil}","_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
        ),
        format!(
            r#"{{"jsonrpc":"2.0","id":"{evil}","method":"server/discover","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"{evil}"}}}}}}"#
        ),
    ];
    for message in &messages {
        let modern = message.contains("2026-07-28");
        let further = if modern { "Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n" } else { "" };
        let request = post(&format!("{further}Content-Length: {}", message.len()), message);
        let heard = raw::exchange(&host, request.as_bytes()).await;
        assert_eq!(heard.answers.len(), 1, "{message}: {heard:?}");
        let answer = &heard.answers[0];
        assert_eq!(answer.header("x-injected"), None, "{message}: {heard:?}");
        assert!(!answer.body.contains('\n') && !answer.body.contains('\r'), "{message}: {heard:?}");
        serde_json::from_str::<serde_json::Value>(&answer.body).expect("JSON");
        serves_on(&mut host, message).await;
    }
    // Beside the message: bytes that are no text, wrapped control characters, far too many.
    for name in ["\u{80}\u{ff}", "=?base64?DQpYLUluamVjdGVkOiAx?=", "=?base64?!!!?=", "a\tb", &"x".repeat(20_000)] {
        let headers = format!(
            "Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: ping\r\nMcp-Name: {name}\r\nMcp-Session-Id: {name}"
        );
        let request = post(&format!("{headers}\r\nContent-Length: {}", HELLO.len()), HELLO);
        let heard = raw::exchange(&host, request.as_bytes()).await;
        assert!(heard.statuses().iter().all(|status| (400..500).contains(status)), "{name}: {heard:?}");
        assert!(heard.answers.iter().all(|answer| answer.header("x-injected").is_none()), "{name}: {heard:?}");
        serves_on(&mut host, name).await;
    }
}
