//! Between a host and a client that we did not write: passes everything on, and checks each message of the host as it
//! goes by.
//!
//! Owns one connection's worth of questions and what was wrong with the answers. Must not change what either side
//! sends. Invariant: a message is held against the schema of the revision that its request spoke, so an answer in the
//! other era's words is found.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, StatusCode};
use axum::response::Response;
use futures::StreamExt as _;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::net::TcpListener;
use tokio::process::Child;

use crate::host::{Host, Setup};
use crate::schema::{self, Expected};

/// Bytes of a client's message.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Which revision a conversation is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// 2025-11-25.
    Legacy,
    /// 2026-07-28.
    Modern,
}

/// How many messages of the host went by, and what was wrong with them.
#[derive(Debug, Default)]
struct Seen {
    legacy: usize,
    modern: usize,
    wrong: Vec<String>,
}

/// What a client asked: what its answers are held against.
#[derive(Clone, Debug)]
struct Question {
    era: Era,
    /// For a request; a notification has no answer.
    expected: Option<Expected>,
}

impl Question {
    /// Of a message of the client; a GET has none.
    fn of(message: &[u8]) -> Self {
        let message: Value = serde_json::from_slice(message).unwrap_or_default();
        let version = &message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
        let era = if version == "2026-07-28" { Era::Modern } else { Era::Legacy };
        let expected = match (message.get("id"), message.get("method").and_then(Value::as_str)) {
            (Some(id), Some(method)) => Some(Expected { id: id.clone(), method: method.to_owned() }),
            _ => None,
        };
        Self { era, expected }
    }
}

/// What one relay saw. Clones see the same.
#[derive(Clone, Debug, Default)]
pub struct Witness(Arc<Mutex<Seen>>);

impl Witness {
    /// Looks at one message of the host. The tasks that do this belong to no test: what is wrong is kept for the test's
    /// end.
    fn look(&self, message: &[u8], question: &Question) {
        let checked = catch_unwind(AssertUnwindSafe(|| {
            let message: Value = serde_json::from_slice(message).expect("JSON");
            match question.era {
                Era::Legacy => schema::check(&message, question.expected.as_ref()),
                Era::Modern => schema::check_modern(&message, question.expected.as_ref()),
            }
        }));
        let mut seen = self.0.lock();
        match question.era {
            Era::Legacy => seen.legacy += 1,
            Era::Modern => seen.modern += 1,
        }
        if let Err(panic) = checked {
            let text = panic.downcast_ref::<String>().cloned();
            seen.wrong.push(text.unwrap_or_else(|| String::from_utf8_lossy(message).into_owned()));
        }
    }

    /// Panics when the host sent anything that the official schemas do not know. How many messages it sent: of
    /// 2025-11-25, and of 2026-07-28.
    pub fn content(&self) -> (usize, usize) {
        let seen = self.0.lock();
        assert!(seen.wrong.is_empty(), "the host sent\n{}", seen.wrong.join("\n"));
        (seen.legacy, seen.modern)
    }
}

/// An address to give to a client instead of the host's.
pub struct Relay {
    /// The MCP endpoint.
    pub url: String,
    pub witness: Witness,
}

#[derive(Clone)]
struct Way {
    http: reqwest::Client,
    to: String,
    witness: Witness,
}

impl Relay {
    /// In front of a host, for as long as the test runs.
    pub async fn before(host: &Host) -> Self {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("a port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
        let witness = Witness::default();
        let http = reqwest::Client::builder().no_proxy().build().expect("a client can be built");
        let way = Way { http, to: host.url.clone(), witness: witness.clone() };
        let service = axum::Router::new().fallback(pass_on).with_state(way);
        tokio::spawn(async move { axum::serve(listener, service).await });
        Self { url, witness }
    }
}

/// Headers that belong to one connection, not to the message on it.
fn is_of_connection(name: &HeaderName) -> bool {
    matches!(name.as_str(), "host" | "connection" | "content-length" | "transfer-encoding" | "keep-alive")
}

async fn pass_on(State(way): State<Way>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, MESSAGE_BYTES_MAX).await.expect("the client sends its message");
    let question = Question::of(&body);
    let headers = parts.headers.into_iter().filter_map(|(name, value)| Some((name?, value)));
    let mut forward = way.http.request(parts.method, &way.to).body(body);
    for (name, value) in headers.filter(|(name, _)| !is_of_connection(name)) {
        forward = forward.header(name, value);
    }
    let Ok(answer) = forward.send().await else {
        return Response::builder().status(StatusCode::BAD_GATEWAY).body(Body::empty()).expect("a response");
    };
    let mut response = Response::builder().status(answer.status());
    for (name, value) in answer.headers().iter().filter(|(name, _)| !is_of_connection(name)) {
        response = response.header(name, value);
    }
    let kind = answer.headers().get("content-type").map_or("", |kind| kind.to_str().unwrap_or_default()).to_owned();
    let body = if kind.starts_with("text/event-stream") {
        let mut events = Events { witness: way.witness, question, rest: Vec::new() };
        Body::from_stream(answer.bytes_stream().inspect(move |chunk| {
            if let Ok(chunk) = chunk {
                events.look(chunk);
            }
        }))
    } else {
        let whole = answer.bytes().await.unwrap_or_default();
        if kind.starts_with("application/json") {
            way.witness.look(&whole, &question);
        }
        Body::from(whole)
    };
    response.body(body).expect("a response")
}

/// The messages of one event stream.
struct Events {
    witness: Witness,
    question: Question,
    /// The beginning of a line.
    rest: Vec<u8>,
}

impl Events {
    fn look(&mut self, chunk: &Bytes) {
        self.rest.extend_from_slice(chunk);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            // The host writes one line of data for each event; an empty one begins a stream that can be resumed.
            let data = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii);
            if let Some(data) = data.filter(|data| !data.is_empty()) {
                self.witness.look(data, &self.question);
            }
        }
    }
}

/// A host behind stdin and stdout, and what a client reads and writes instead of them.
pub struct RelayedPipe {
    /// For the client to read from and to write to.
    pub ends: (DuplexStream, DuplexStream),
    pub witness: Witness,
    /// The process; it is killed when this goes.
    pub child: Child,
}

/// Starts a host behind stdin and stdout for one client of one era.
pub fn pipe(setup: &Setup, era: Era) -> RelayedPipe {
    let mut command = setup.command("stdio");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().expect("the host starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let stdout = child.stdout.take().expect("a pipe");
    let (from_host, mut to_client) = tokio::io::duplex(MESSAGE_BYTES_MAX);
    let (to_host, from_client) = tokio::io::duplex(MESSAGE_BYTES_MAX);
    let witness = Witness::default();
    let questions = Arc::new(Mutex::new(HashMap::<String, Question>::new()));
    let asked = Arc::clone(&questions);
    tokio::spawn(async move {
        let mut lines = BufReader::new(from_client).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let question = Question::of(line.as_bytes());
            if let Some(expected) = &question.expected {
                let mut asked = asked.lock();
                asked.insert(expected.id.to_string(), question.clone());
            }
            if stdin.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                return;
            }
        }
    });
    let witnessing = witness.clone();
    tokio::spawn(async move {
        let mut lines = BufReader::new(stdout).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Value = serde_json::from_str(&line).unwrap_or_default();
            let answered = message.get("id").filter(|_| message.get("method").is_none());
            let question = answered.and_then(|id| questions.lock().remove(&id.to_string()));
            if question.is_none() && answered.is_some_and(|id| !id.is_null()) {
                witnessing.0.lock().wrong.push(format!("an answer to a request that nobody sent: {line}"));
            }
            // What is no answer is of the era of the only client.
            witnessing.look(line.as_bytes(), &question.unwrap_or(Question { era, expected: None }));
            if to_client.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                return;
            }
        }
    });
    RelayedPipe { ends: (from_host, to_host), witness, child }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tasks/cancel","params":{"taskId":"a","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    const GOOD: &str = r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"a","version":"1"}}}}"#;
    const OLDER: &str = r#"{"jsonrpc":"2.0","id":7,"result":{"taskId":"a","status":"cancelled"}}"#;

    #[test]
    fn relay_checks_answer_against_the_asking_era() {
        let witness = Witness::default();
        let question = Question::of(ASKED.as_bytes());
        witness.look(GOOD.as_bytes(), &question);
        assert_eq!(witness.content(), (0, 1));
        witness.look(OLDER.as_bytes(), &question);
        assert_eq!(witness.0.lock().wrong.len(), 1);
    }

    #[test]
    fn relay_checks_every_stream_event_in_any_chunking() {
        let witness = Witness::default();
        let mut events =
            Events { witness: witness.clone(), question: Question::of(ASKED.as_bytes()), rest: Vec::new() };
        let stream = format!(": still here\n\ndata: {OLDER}\n\ndata: {GOOD}\n\n");
        for chunk in stream.as_bytes().chunks(9) {
            events.look(&Bytes::copy_from_slice(chunk));
        }
        let seen = witness.0.lock();
        assert_eq!((seen.modern, seen.wrong.len()), (2, 1));
    }
}
