//! Outgoing HTTP of a real guest, against a server on this machine.

use std::sync::Mutex;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Answers every connection with one text, and keeps what it was sent.
struct Server {
    port: u16,
    seen: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    async fn answering(response: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read(&mut byte).await.unwrap_or(0) == 0 {
                        break;
                    }
                    request.push(byte[0]);
                }
                kept.lock().unwrap().push(String::from_utf8(request).unwrap());
                let _ = stream.write_all(response.as_bytes()).await;
            }
        });
        Self { port, seen, task }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
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

const HELLO: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nhello";

#[tokio::test(flavor = "multi_thread")]
async fn a_granted_host_sees_one_request_with_exactly_one_host_header() {
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
async fn what_is_not_granted_is_never_connected_to() {
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
async fn a_name_that_leads_inside_is_refused_after_its_resolution() {
    let server = Server::answering(HELLO).await;
    // A name that every resolver leads to loopback, granted as if it were a public one: RFC 6761 names under localhost.
    let Some(house) = house(&[format!("http://*.localhost:{}", server.port)]).await else { return };
    let output = get(&house, &format!("http://inside.localhost:{}/", server.port)).await;
    assert!(output.is_error, "{}", text(&output));
    assert!(server.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn localhost_is_reached_when_it_was_written_down() {
    let server = Server::answering(HELLO).await;
    let origin = format!("http://localhost:{}", server.port);
    let Some(house) = house(std::slice::from_ref(&origin)).await else { return };
    let output = get(&house, &origin).await;
    assert!(!output.is_error, "{}", text(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_are_not_followed() {
    let server = Server::answering("HTTP/1.1 302 Found\r\nlocation: /there\r\ncontent-length: 0\r\n\r\n").await;
    let origin = format!("http://127.0.0.1:{}", server.port);
    let Some(house) = house(std::slice::from_ref(&origin)).await else { return };
    let output = get(&house, &origin).await;
    assert!(output.structured.unwrap().as_str().contains("302"));
    assert_eq!(server.seen().len(), 1);
}
