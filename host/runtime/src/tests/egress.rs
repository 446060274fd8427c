//! Outgoing HTTP of a real guest, against a server on this machine.

use parking_lot::Mutex;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

/// Answers every connection with one text, and keeps what it was sent.
pub(super) struct Server {
    pub(super) port: u16,
    seen: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    pub(super) async fn answering(response: &'static str) -> Self {
        Self::start(response, None).await
    }

    /// Over TLS, under this certificate.
    async fn certified(response: &'static str, certificate: &'static [u8]) -> Self {
        let key = PrivateKeyDer::try_from(include_bytes!("tls/localhost.key.der").as_slice()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = config.with_single_cert(vec![certificate.into()], key).unwrap();
        Self::start(response, Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn start(response: &'static str, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let mut stream: Box<dyn bulkhead_net::dial::Stream> = match &tls {
                    None => Box::new(stream),
                    Some(tls) => match tls.accept(stream).await {
                        Ok(stream) => Box::new(stream),
                        // The client does not trust us.
                        Err(_) => continue,
                    },
                };
                let mut request = Vec::new();
                // To the end of the headers, and of a body in chunks.
                let is_chunked = |request: &[u8]| {
                    String::from_utf8_lossy(request).to_ascii_lowercase().contains("transfer-encoding: chunked")
                };
                while !request.ends_with(b"\r\n\r\n") || is_chunked(&request) && !request.ends_with(b"\r\n0\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read(&mut byte).await.unwrap_or(0) == 0 {
                        break;
                    }
                    request.push(byte[0]);
                }
                kept.lock().push(String::from_utf8_lossy(&request).into_owned());
                let _ = stream.write_all(response.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        Self { port, seen, task }
    }

    pub(super) fn seen(&self) -> Vec<String> {
        self.seen.lock().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn house(grants: &[String]) -> Option<House> {
    let mut plugin = sample("http")?;
    plugin.grants.http = grants.iter().map(|grant| grant.parse().unwrap()).collect();
    let house = House::new();
    house.publish(plugin).await;
    Some(house)
}

async fn get(house: &House, url: &str) -> ToolOutput {
    house.call("http_get", &format!("{{\"url\":\"{url}\"}}")).await.unwrap()
}

/// With the plugin that sends whatever it is told to.
async fn sender(grants: &[String]) -> Option<House> {
    let mut plugin = sample("hostile")?;
    plugin.grants.http = grants.iter().map(|grant| grant.parse().unwrap()).collect();
    let house = House::new();
    house.publish(plugin).await;
    Some(house)
}

async fn send(house: &House, wish: serde_json::Value) -> Vec<String> {
    let output = house.call("request", &wish.to_string()).await.unwrap();
    let results: serde_json::Value = serde_json::from_str(output.structured.unwrap().as_str()).unwrap();
    serde_json::from_value(results["results"].clone()).unwrap()
}

pub(super) const HELLO: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nhello";

#[tokio::test(flavor = "multi_thread")]
async fn egress_sends_one_request_with_one_host_header() {
    let server = Server::answering(HELLO).await;
    let origin = format!("http://127.0.0.1:{}", server.port);
    let Some(house) = house(std::slice::from_ref(&origin)).await else { return };
    let output = get(&house, &format!("{origin}/a?b=c")).await;
    assert!(!output.is_error, "{}", text(&output));
    assert!(output.structured.unwrap().as_str().contains("hello"));
    let [request] = server.seen().try_into().unwrap();
    assert!(request.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{request}");
    assert!(!request.to_ascii_lowercase().contains("authorization"), "nobody's token goes along: {request}");
    let hosts: Vec<_> = request.lines().filter(|line| line.to_ascii_lowercase().starts_with("host:")).collect();
    assert_eq!(hosts, [format!("host: 127.0.0.1:{}", server.port)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn egress_without_grant_never_connects() {
    let server = Server::answering(HELLO).await;
    let port = server.port;
    let Some(house) = house(&[format!("http://127.0.0.2:{port}"), "https://example.com".to_owned()]).await else {
        return;
    };
    for url in [
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://127.0.0.2:{port}@127.0.0.1:{port}/"),
        "http://example.com/".to_owned(),
        "https://example.com:8443/".to_owned(),
    ] {
        let output = get(&house, &url).await;
        assert!(output.is_error, "{url}: {}", text(&output));
    }
    assert!(server.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn egress_name_resolving_inside_is_refused() {
    let server = Server::answering(HELLO).await;
    // A name that every resolver leads to loopback, granted as if it were a public one: RFC 6761 names under localhost.
    let Some(house) = house(&[format!("http://*.localhost:{}", server.port)]).await else { return };
    let output = get(&house, &format!("http://inside.localhost:{}/", server.port)).await;
    assert!(output.is_error, "{}", text(&output));
    assert!(server.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn egress_reaches_explicitly_granted_localhost() {
    let server = Server::answering(HELLO).await;
    let origin = format!("http://localhost:{}", server.port);
    let Some(house) = house(std::slice::from_ref(&origin)).await else { return };
    let output = get(&house, &origin).await;
    assert!(!output.is_error, "{}", text(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn egress_redirects_are_not_followed() {
    let server = Server::answering("HTTP/1.1 302 Found\r\nlocation: /there\r\ncontent-length: 0\r\n\r\n").await;
    let origin = format!("http://127.0.0.1:{}", server.port);
    let Some(house) = house(std::slice::from_ref(&origin)).await else { return };
    let output = get(&house, &origin).await;
    assert!(output.structured.unwrap().as_str().contains("302"));
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn egress_reaches_granted_host_over_tls() {
    let server = Server::certified(HELLO, include_bytes!("tls/localhost.der")).await;
    let origin = format!("https://localhost:{}", server.port);
    let Some(house) = house(std::slice::from_ref(&origin)).await else { return };
    let output = get(&house, &format!("{origin}/a")).await;
    assert!(!output.is_error, "{}", text(&output));
    assert!(output.structured.unwrap().as_str().contains("hello"));
    let [request] = server.seen().try_into().unwrap();
    assert!(request.starts_with("GET /a HTTP/1.1\r\n"), "{request}");
    let hosts: Vec<_> = request.lines().filter(|line| line.to_ascii_lowercase().starts_with("host:")).collect();
    assert_eq!(hosts, [format!("host: localhost:{}", server.port)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn egress_sends_nothing_to_untrusted_tls_server() {
    let stranger = Server::certified(HELLO, include_bytes!("tls/stranger.der")).await;
    let other_name = Server::certified(HELLO, include_bytes!("tls/localhost.der")).await;
    let plain = Server::answering(HELLO).await;
    let urls = [
        format!("https://localhost:{}", stranger.port),
        format!("https://127.0.0.1:{}", other_name.port),
        format!("https://localhost:{}", plain.port),
    ];
    let Some(house) = house(&urls).await else { return };
    for url in &urls {
        let output = get(&house, url).await;
        assert!(output.is_error, "{url}: {}", text(&output));
    }
    assert_eq!((stranger.seen(), other_name.seen()), (Vec::new(), Vec::new()));
    assert!(plain.seen().iter().all(|bytes| !bytes.contains("GET")), "a request went out unprotected");
}

#[tokio::test(flavor = "multi_thread")]
async fn egress_never_sends_ungranted_methods_and_paths() {
    let server = Server::answering(HELLO).await;
    let origin = format!("http://127.0.0.1:{}", server.port);
    let Some(house) = sender(&[format!("GET {origin}/v1"), format!("POST {origin}/v1/orders")]).await else { return };
    for (method, path) in [
        ("GET", "/v2"),
        ("GET", "/v1/../v2"),
        ("GET", "/v1/%2e%2e/v2"),
        ("GET", "/v1/%252e%252e/v2"),
        ("GET", "/v1/..%2fv2"),
        ("GET", "//v1"),
        ("DELETE", "/v1"),
        ("POST", "/v1/other"),
        ("get", "/v1"),
        ("CONNECT", "/v1"),
    ] {
        let results = send(&house, serde_json::json!({"method": method, "url": format!("{origin}{path}")})).await;
        assert!(
            results[0].contains("HttpRequestDenied") || results[0].contains("refused"),
            "{method} {path}: {results:?}"
        );
    }
    assert_eq!(server.seen(), Vec::<String>::new());
    for (method, path) in [("GET", "/v1"), ("GET", "/v1/a?b=/../c"), ("POST", "/v1/orders/1")] {
        let results = send(&house, serde_json::json!({"method": method, "url": format!("{origin}{path}")})).await;
        assert_eq!(results, ["200 5 hello"], "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn egress_redirect_target_needs_a_grant() {
    let secret = Server::answering(HELLO).await;
    let allowed = Server::answering(HELLO).await;
    let redirect = |to: &str| -> &'static str {
        let text = format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
        Box::leak(text.into_boxed_str())
    };
    let inside = Server::answering(redirect(&format!("http://127.0.0.1:{}/metadata", secret.port))).await;
    let other_path = Server::answering(redirect(&format!("http://127.0.0.1:{}/v2", allowed.port))).await;
    let fine = Server::answering(redirect(&format!("http://127.0.0.1:{}/v1", allowed.port))).await;
    let grants = [inside.port, other_path.port, fine.port].map(|port| format!("http://127.0.0.1:{port}"));
    let narrow = format!("http://127.0.0.1:{}/v1", allowed.port);
    let Some(house) = sender(&[&grants[..], &[narrow]].concat()).await else { return };
    let follow = async |url: &str| {
        send(&house, serde_json::json!({"method": "GET", "url": url, "follow": true})).await.remove(0)
    };
    assert!(follow(&grants[0]).await.contains("HttpRequestDenied"));
    assert!(follow(&grants[1]).await.contains("HttpRequestDenied"));
    assert_eq!((secret.seen(), allowed.seen()), (Vec::new(), Vec::new()));
    assert_eq!(follow(&grants[2]).await, "200 5 hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn egress_inside_addresses_need_explicit_grants() {
    let server = Server::answering(HELLO).await;
    let port = server.port;
    let Some(house) = sender(&[format!("http://127.0.0.1:{port}"), format!("http://*.localhost:{port}")]).await else {
        return;
    };
    for host in ["[::1]", "[::ffff:127.0.0.1]", "127.0.0.2", "169.254.169.254", "10.0.0.1", "x.localhost", "0.0.0.0"] {
        let url = format!("http://{host}:{port}/");
        let results = send(&house, serde_json::json!({"method": "GET", "url": url})).await;
        let denied = ["HttpRequestDenied", "DestinationIpProhibited", "DnsError"];
        assert!(denied.iter().any(|code| results[0].contains(code)), "{host}: {results:?}");
    }
    // Other spellings of the same address are the same address, or none.
    for host in ["2130706433", "0x7f.1", "127.1", "0177.0.0.1"] {
        let url = format!("http://{host}:{port}/");
        let results = send(&house, serde_json::json!({"method": "GET", "url": url})).await;
        assert!(!results[0].starts_with("200") || server.seen().len() == 1, "{host}: {results:?}");
    }
    assert!(server.seen().is_empty(), "{:?}", server.seen());
}

#[tokio::test(flavor = "multi_thread")]
async fn egress_open_requests_per_call_are_limited() {
    let server = Server::answering(HELLO).await;
    let origin = format!("http://127.0.0.1:{}", server.port);
    let Some(house) = sender(std::slice::from_ref(&origin)).await else { return };
    let wish = serde_json::json!({"method": "GET", "url": origin, "at_once": 20});
    let results = send(&house, wish.clone()).await;
    assert_eq!(results.iter().filter(|result| *result == "200 5 hello").count(), 16, "{results:?}");
    assert_eq!(results.iter().filter(|result| result.contains("ConnectionLimitReached")).count(), 4, "{results:?}");
    let again = send(&house, wish).await;
    assert_eq!(again.iter().filter(|result| *result == "200 5 hello").count(), 16, "the places came back");
}

#[tokio::test(flavor = "multi_thread")]
async fn egress_truncated_or_oversized_response_is_an_error() {
    let short = Server::answering("HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\nhello").await;
    let long: &'static str = Box::leak(
        format!("HTTP/1.1 200 OK\r\nx: {}\r\ncontent-length: 0\r\n\r\n", "y".repeat(100 << 10)).into_boxed_str(),
    );
    let heavy = Server::answering(long).await;
    let urls = [short.port, heavy.port].map(|port| format!("http://127.0.0.1:{port}"));
    let Some(house) = sender(&urls).await else { return };
    let results = send(&house, serde_json::json!({"method": "GET", "url": urls[0]})).await;
    assert!(!results[0].ends_with("hello") || results[0].contains("Error"), "{results:?}");
    let results = send(&house, serde_json::json!({"method": "GET", "url": urls[1]})).await;
    assert!(!results[0].starts_with("200"), "{results:?}");
}
