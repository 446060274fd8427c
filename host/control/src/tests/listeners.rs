//! Listeners of operators as a page in a browser finds them.

use std::sync::Arc;

use bulkhead_metrics::{Metrics, Readings};
use futures::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::remote::AdminTokenDigest;
use crate::scrape::{Scrape, ScrapeParts};

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
