//! Looks over the shoulder of clients that were not written here.
//!
//! Owns a proxy in front of a host and a tap on its pipes. Must not change a byte of what passes. Invariant: each message of the host
//! was checked as it was sent, before any client has made its own sense of it.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use futures::StreamExt as _;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::host::Host;
use crate::schema::{self, Expected};
use crate::stream;

/// Bytes of a request, and between the two ends of a tap.
const BYTES_MAX: usize = 16 << 20;

/// What passed, and what was wrong with it.
#[derive(Default)]
pub struct Witness(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    /// Methods of the client's requests that wait for a response, by id.
    asked: HashMap<String, String>,
    heard: u32,
    faults: Vec<String>,
}

impl Witness {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client says something.
    fn asked(&self, text: &str) {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        if let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) {
            self.seen().asked.insert(id.to_string(), method.to_owned());
        }
    }

    /// The host says something.
    fn heard(&self, text: &str) {
        let checked = catch_unwind(AssertUnwindSafe(|| {
            let message: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("no JSON ({error})"));
            let response_to = message.get("id").filter(|_| message.get("method").is_none());
            let method = response_to.and_then(|id| self.seen().asked.remove(&id.to_string()));
            let expected = response_to.zip(method).map(|(id, method)| Expected { id: id.clone(), method });
            if response_to.is_some_and(|id| !id.is_null()) {
                assert!(expected.is_some(), "an answer to a request that nobody sent");
            }
            schema::check(&message, expected.as_ref());
        }));
        let mut seen = self.seen();
        seen.heard += 1;
        if let Err(fault) = checked {
            let fault = fault.downcast_ref::<String>().cloned().unwrap_or_else(|| "it does not conform".to_owned());
            seen.faults.push(format!("{fault}: {text}"));
        }
    }

    /// Panics unless everything that the host said was right, and there was something.
    pub fn assert_sound(&self) {
        let seen = self.seen();
        assert_eq!(seen.faults, Vec::<String>::new());
        assert!(seen.heard > 0, "nothing came past the witness");
    }
}

/// A proxy in front of a host, for as long as the test runs; its endpoint.
pub async fn before(host: &Host) -> (String, Arc<Witness>) {
    let witness = Arc::new(Witness::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let http = reqwest::Client::builder().no_proxy().build().expect("a client can be built");
    let state = (http, host.address(""), Arc::clone(&witness));
    let proxy = axum::Router::new().fallback(pass).with_state(state);
    tokio::spawn(async move { axum::serve(listener, proxy).await });
    (format!("http://{address}/mcp"), witness)
}

type Passing = (reqwest::Client, String, Arc<Witness>);

async fn pass(State((http, host, witness)): State<Passing>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, BYTES_MAX).await.expect("the request arrives");
    witness.asked(&String::from_utf8_lossy(&body));
    for header in [HOST, CONTENT_LENGTH, TRANSFER_ENCODING] {
        parts.headers.remove(header);
    }
    let sent = http.request(parts.method, format!("{host}{}", parts.uri)).headers(parts.headers).body(body).send();
    let reply = sent.await.expect("the host answers");
    let kind = reply.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
    let mut response = Response::builder().status(reply.status());
    for (name, value) in
        reply.headers().iter().filter(|(name, _)| !matches!(**name, CONTENT_LENGTH | TRANSFER_ENCODING))
    {
        response = response.header(name, value);
    }
    let body = if kind.starts_with("text/event-stream") {
        let mut buffer = Vec::new();
        Body::from_stream(reply.bytes_stream().inspect(move |chunk| {
            buffer.extend_from_slice(chunk.as_ref().map_or(&[][..], Bytes::as_ref));
            for event in stream::take_events(&mut buffer).filter(|event| !event.data.is_empty()) {
                witness.heard(&event.data);
            }
        }))
    } else {
        let whole = reply.bytes().await.expect("the reply arrives");
        if kind.starts_with("application/json") {
            witness.heard(&String::from_utf8_lossy(&whole));
        }
        Body::from(whole)
    };
    response.body(body).expect("what the host sends can be sent on")
}

/// A host behind stdin and stdout with a tap on both; the process, for as long as it is to live.
pub fn between(mut command: Command) -> (Child, DuplexStream, Arc<Witness>) {
    let witness = Arc::new(Witness::default());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().expect("the host starts");
    let (client, here) = tokio::io::duplex(BYTES_MAX);
    let (from_client, to_client) = tokio::io::split(here);
    let (stdin, stdout) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    let (one, other) = (Arc::clone(&witness), Arc::clone(&witness));
    tokio::spawn(tap(from_client, stdin, move |line| one.asked(line)));
    tokio::spawn(tap(stdout, to_client, move |line| other.heard(line)));
    (child, client, witness)
}

async fn tap(from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, note: impl Fn(&str)) {
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        note(&line);
        if to.write_all(format!("{line}\n").as_bytes()).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
}
