//! Listeners of operators as a page in a browser finds them.

use std::sync::Arc;

use bulkhead_audit::Audit;
use bulkhead_metrics::{Metrics, Readings};
use bulkhead_store::memory::MemoryStore;
use futures::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::commands::TenantList;
use crate::remote::{AdminTokenDigest, Remote, RemoteParts};
use crate::scrape::{Scrape, ScrapeParts};
use crate::wire::write_request;

/// The status of the metrics for a request with these headers.
async fn status(secret: Option<&str>, headers: &str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let parts = ScrapeParts {
        listener,
        secret: secret.map(AdminTokenDigest::of_token),
        certificate: None,
        metrics: Metrics::default(),
        reader: Arc::new(|| async { Readings::default() }.boxed()),
    };
    let _scrape = Scrape::spawn(parts).unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET /metrics HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer)[9..12].parse().unwrap()
}

/// The status of a command to the administrators' listener with these headers, and what it says.
async fn admin_status(headers: &str) -> (u16, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let parts = RemoteParts {
        listener,
        secret: AdminTokenDigest::of_token("secret"),
        certificate: None,
        operator: Arc::new(super::operator(&Arc::new(MemoryStore::new()))),
        audit: Audit::off(),
    };
    let _remote = Remote::spawn(parts).unwrap();
    let body = String::from_utf8(write_request(&TenantList {}.into()).unwrap()).unwrap();
    let request = format!(
        "POST /admin HTTP/1.1\r\n{headers}Authorization: Bearer secret\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    (answer[9..12].parse().unwrap(), answer)
}

#[tokio::test]
async fn commands_in_the_clear_are_taken_by_names_of_this_machine_alone_and_from_no_page() {
    let rows = [
        ("Host: 127.0.0.1:8810\r\n", 200),
        ("Host: localhost\r\nSec-Fetch-Site: none\r\n", 200),
        ("Host: evil.example\r\n", 403),
        ("Host: 127.0.0.1.evil.example:8810\r\n", 403),
        ("Host: localhost\r\nOrigin: http://localhost\r\n", 403),
        ("Host: localhost\r\nOrigin: null\r\n", 403),
        ("Host: localhost\r\nSec-Fetch-Site: cross-site\r\n", 403),
        ("Host: localhost\r\nSec-Fetch-Site: same-site\r\n", 403),
    ];
    for (headers, expected) in rows {
        let (status, answer) = admin_status(headers).await;
        assert_eq!(status, expected, "{headers}: {answer}");
        assert_eq!(answer.contains("tenants"), expected == 200, "{headers}: {answer}");
    }
}

#[tokio::test]
async fn metrics_without_a_token_are_read_by_names_of_this_machine_alone() {
    assert_eq!(status(None, "Host: 127.0.0.1:9464\r\n").await, 200);
    for name in ["evil.example", "127.0.0.1.evil.example"] {
        assert_eq!(status(None, &format!("Host: {name}\r\n")).await, 403, "{name}");
    }
    assert_eq!(status(None, "Host: localhost\r\nSec-Fetch-Site: same-site\r\n").await, 403);
    let with_token = "Host: host.example\r\nAuthorization: Bearer secret\r\n";
    assert_eq!(status(Some("secret"), with_token).await, 200, "the token keeps pages out");
}
