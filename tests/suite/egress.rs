//! What a plugin reaches of the network, from the client's request to the server that answers it.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tests::client::{Client, text};
use tests::wait::until;
use tests::{Host, Setup};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// A web server that remembers what it was asked.
pub(crate) struct Web {
    pub(crate) origin: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Web {
    /// Says hello to everybody, or as many bytes as the path `/bytes/COUNT` asks for.
    pub(crate) async fn start() -> Self {
        Self::answering(|request| {
            let path = request.split(' ').nth(1).unwrap_or_default();
            let body = match path.strip_prefix("/bytes/").and_then(|count| count.parse().ok()) {
                Some(count) => (0_u64..).flat_map(|number| format!("{number} ").into_bytes()).take(count).collect(),
                None => b"hello".to_vec(),
            };
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n", body.len());
            [head.into_bytes(), body].concat()
        })
        .await
    }

    /// Answers a whole request, head and body, with these bytes.
    pub(crate) async fn answering(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let origin = format!("http://{}", listener.local_addr().expect("an address"));
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => request.push(byte),
                        Err(_) => break,
                    }
                }
                let head = String::from_utf8_lossy(&request).into_owned();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                let mut body = vec![0; length.unwrap_or_default()];
                // Whoever hung up does not want an answer.
                let _ = stream.read_exact(&mut body).await;
                let request = format!("{head}{}", String::from_utf8_lossy(&body));
                let answer = answer(&request);
                kept.lock().push(request);
                let _ = stream.write_all(&answer).await;
            }
        });
        Self { origin, asked }
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

async fn host(grants: &[&str]) -> (Host, Client) {
    let host = Setup::new().plugin("http", &format!("[plugin.grants]\nhttp = {grants:?}\n")).start().await;
    let client = Client::connect(&host).await;
    (host, client)
}

async fn get(client: &Client, url: &str) -> Value {
    client.tool("http_get", json!({"url": url})).await.expect("a result")
}

#[tokio::test]
async fn egress_to_granted_host_sends_one_host_header() {
    let web = Web::start().await;
    let (_host, client) = host(&[&web.origin]).await;
    let page = get(&client, &format!("{}/page?a=b", web.origin)).await;
    assert_eq!(
        (&page["structuredContent"]["status"], &page["structuredContent"]["body"]),
        (&json!(200), &json!("hello"))
    );
    let asked = web.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert!(asked[0].starts_with("GET /page?a=b HTTP/1.1\r\n"), "{asked:?}");
    let hosts: Vec<_> = asked[0].lines().filter(|line| line.to_ascii_lowercase().starts_with("host:")).collect();
    let authority = web.origin.strip_prefix("http://").expect("an HTTP origin");
    assert_eq!(hosts, [format!("host: {authority}")]);

    let task = client.task("http_get", json!({"url": web.origin})).await;
    client.until_status(&task, "completed").await;
    let page = client.about("tasks/result", &task).await.expect("a result");
    assert_eq!(page["structuredContent"]["body"], "hello");
    assert_eq!(web.asked().len(), 2);
}

#[tokio::test]
async fn egress_to_ungranted_host_never_connects() {
    let web = Web::start().await;
    let other = Web::start().await;
    for grants in [&[&*other.origin][..], &[], &["https://127.0.0.1"]] {
        let (_host, client) = host(grants).await;
        let refused = get(&client, &web.origin).await;
        assert_eq!(refused["isError"], true, "{refused}");
        assert!(!text(&refused).contains("hello"), "{refused}");
    }
    assert_eq!(web.asked(), Vec::<String>::new());
    // The same host reaches what it may: nothing else was in the way.
    let (_host, client) = host(&[&other.origin]).await;
    assert_eq!(get(&client, &other.origin).await["structuredContent"]["body"], "hello");
    until("the other one to be asked", async || (other.asked().len() == 1).then_some(())).await;
}
