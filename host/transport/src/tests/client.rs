//! A small HTTP client that sends exactly what a test says.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Long enough for a loaded machine; nothing waits for it when all is well.
const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub(super) struct Client {
    address: SocketAddr,
    headers: Vec<(String, String)>,
}

impl Client {
    pub(super) fn new(address: SocketAddr) -> Self {
        let headers = [
            ("Host", "localhost"),
            ("Accept", "application/json, text/event-stream"),
            ("Content-Type", "application/json"),
        ];
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { address, headers }
    }

    /// Sets a header.
    pub(super) fn with(&self, name: &str, value: &str) -> Self {
        let mut client = self.without(name);
        client.headers.push((name.to_owned(), value.to_owned()));
        client
    }

    pub(super) fn without(&self, name: &str) -> Self {
        let mut client = self.clone();
        client.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        client
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .unwrap()
    }

    pub(super) async fn rpc(&self, id: i64, method: &str, params: Value) -> Reply {
        self.post(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()).await
    }

    pub(super) async fn post(&self, body: &str) -> Reply {
        self.send("POST", "/mcp", body).await
    }

    pub(super) async fn get(&self) -> Reply {
        self.send("GET", "/mcp", "").await
    }

    pub(super) async fn send(&self, method: &str, path: &str, body: &str) -> Reply {
        let headers: String = self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        self.raw(&format!("{method} {path} HTTP/1.1\r\n{headers}{length}\r\n{body}")).await
    }

    pub(super) async fn raw(&self, request: &str) -> Reply {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        Reply::read(stream).await
    }

    pub(super) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

pub(super) struct Reply {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    stream: BufReader<TcpStream>,
    /// What came in a chunk and was not asked for yet.
    text: String,
}

impl Reply {
    pub(super) async fn read(stream: TcpStream) -> Self {
        let mut reply = Self { status: 0, headers: Vec::new(), stream: BufReader::new(stream), text: String::new() };
        let status = reply.line().await.expect("a status line");
        reply.status = status.split(' ').nth(1).unwrap().parse().unwrap();
        while let Some(line) = reply.line().await.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').unwrap();
            reply.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        reply
    }

    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = timeout(TIMEOUT, self.stream.read_line(&mut line)).await.expect("no line in time").ok()?;
        (read > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The next chunk; `None` when the body is over or the connection is gone.
    async fn chunk(&mut self) -> Option<String> {
        if let Some(length) = self.header("content-length").map(|length| length.parse().unwrap()) {
            // It is read only once.
            self.headers
                .iter_mut()
                .filter(|(name, _)| name == "content-length")
                .for_each(|(_, value)| *value = "0".into());
            let mut bytes = vec![0; length];
            timeout(TIMEOUT, self.stream.read_exact(&mut bytes)).await.expect("no body in time").ok()?;
            return (length > 0).then(|| String::from_utf8(bytes).unwrap());
        }
        let size = usize::from_str_radix(&self.line().await?, 16).unwrap();
        let mut bytes = vec![0; size + 2];
        timeout(TIMEOUT, self.stream.read_exact(&mut bytes)).await.expect("no chunk in time").ok()?;
        bytes.truncate(size);
        (size > 0).then(|| String::from_utf8(bytes).unwrap())
    }

    /// The whole body.
    pub(super) async fn body(mut self) -> String {
        let mut body = String::new();
        while let Some(chunk) = self.chunk().await {
            body.push_str(&chunk);
        }
        body
    }

    /// The next block of an event stream, comments included.
    pub(super) async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let block = block.to_owned();
                let rest = rest.to_owned();
                self.text = rest;
                return Some(block);
            }
            let chunk = self.chunk().await?;
            self.text.push_str(&chunk);
        }
    }

    /// The next event; comments are passed over.
    pub(super) async fn event(&mut self) -> Option<Event> {
        loop {
            let block = self.block().await?;
            if block.starts_with(':') {
                continue;
            }
            let mut event = Event::default();
            for line in block.lines() {
                match line.split_once(':').unwrap() {
                    ("id", id) => event.id = Some(id.trim().to_owned()),
                    ("retry", _) => event.retry = true,
                    ("data", data) => event.data = data.trim().to_owned(),
                    other => panic!("{other:?}"),
                }
            }
            return Some(event);
        }
    }

    /// The messages until the stream ends.
    pub(super) async fn messages(mut self) -> Vec<Value> {
        let mut messages = Vec::new();
        while let Some(event) = self.event().await {
            if !event.data.is_empty() {
                messages.push(event.message());
            }
        }
        messages
    }

    /// Whether the server closes the connection without another byte.
    pub(super) async fn closed(mut self) -> bool {
        self.line().await.is_none()
    }
}

#[derive(Debug, Default)]
pub(super) struct Event {
    pub(super) id: Option<String>,
    pub(super) retry: bool,
    pub(super) data: String,
}

impl Event {
    pub(super) fn message(&self) -> Value {
        serde_json::from_str(&self.data).unwrap()
    }
}
