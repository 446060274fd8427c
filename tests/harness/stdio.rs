//! A host behind stdin and stdout.

use std::collections::HashMap;
use std::process::{ExitStatus, Stdio};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::host::Setup;
use crate::schema::{self, Expected};
use crate::wait::soon;

/// A conversation with `bulkhead stdio`.
pub struct Pipe {
    /// Keeps the folder for as long as the conversation.
    setup: Setup,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    /// Methods of the requests that wait for a response, and whether they are of the newer era.
    open: HashMap<String, (String, bool)>,
    ids: u64,
    /// Of the session.
    version: String,
}

impl Pipe {
    /// Starts it.
    pub fn open(setup: &Setup) -> Self {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(setup.path("log")).expect("a log file");
        let mut command = setup.command("stdio");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        let mut child = command.spawn().expect("the host starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let setup = setup.clone();
        let stdin = child.stdin.take();
        let version = "2025-11-25".to_owned();
        Self { setup, stdin, child, lines, open: HashMap::new(), ids: 0, version }
    }

    /// Starts it and goes through the handshake.
    pub async fn connect(setup: &Setup, capabilities: Value) -> Self {
        Self::connect_as(setup, "2025-11-25", capabilities).await
    }

    /// The same in a session of this revision.
    pub async fn connect_as(setup: &Setup, version: &str, capabilities: Value) -> Self {
        let mut pipe = Self::open(setup);
        version.clone_into(&mut pipe.version);
        let params = json!({"protocolVersion": version, "capabilities": capabilities,
            "clientInfo": {"name": "tests", "version": "1"}});
        let answer = pipe.call("initialize", params).await;
        assert_eq!(answer["result"]["protocolVersion"], version, "{answer}");
        pipe.write(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        pipe
    }

    /// One line as it is.
    pub async fn write_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        stdin.write_all(format!("{line}\n").as_bytes()).await.expect("the host reads");
        stdin.flush().await.expect("the host reads");
    }

    /// One message.
    pub async fn write(&mut self, message: Value) {
        self.write_line(&message.to_string()).await;
    }

    /// Sends a request; its id.
    pub async fn send(&mut self, method: &str, params: Value) -> Value {
        self.ids += 1;
        let id = json!(self.ids);
        let is_modern = params["_meta"].get("io.modelcontextprotocol/protocolVersion").is_some();
        self.open.insert(id.to_string(), (method.to_owned(), is_modern));
        self.write(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        id
    }

    /// The next line, as it is; `None` at the end.
    pub async fn read_line(&mut self) -> Option<Value> {
        let line = soon("a line", self.lines.next_line()).await.expect("stdout is UTF-8")?;
        Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("not MCP on stdout ({error}): {line}")))
    }

    /// The next message, checked; `None` at the end.
    pub async fn read(&mut self) -> Option<Value> {
        let message = self.read_line().await?;
        let response_to = message.get("id").filter(|_| message.get("method").is_none());
        let asked = response_to.and_then(|id| Some((id.clone(), self.open.remove(&id.to_string())?)));
        // One pipe carries both eras: an answer is of its request's, and what belongs to a newer subscription says so.
        let (expected, is_modern) = match asked {
            Some((id, (method, is_modern))) => (Some(Expected { id, method }), is_modern),
            None => (None, message["params"]["_meta"].get("io.modelcontextprotocol/subscriptionId").is_some()),
        };
        let check = if is_modern { schema::check_modern } else { schema::check_of(&self.version) };
        check(&message, expected.as_ref());
        Some(message)
    }

    /// Reads until the response to `id`; what came before is dropped.
    pub async fn response(&mut self, id: &Value) -> Value {
        loop {
            let message = self.read().await.expect("the host is there");
            if message.get("method").is_none() && message.get("id") == Some(id) {
                return message;
            }
        }
    }

    /// A request and its response.
    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.response(&id).await
    }

    /// What the host has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.setup.path("log")).unwrap_or_default()
    }

    /// Closes stdin and waits for the end.
    pub async fn close(self) -> ExitStatus {
        self.close_hearing().await.0
    }

    /// The same, with what was said until then.
    pub async fn close_hearing(mut self) -> (ExitStatus, Vec<Value>) {
        drop(self.stdin.take());
        let mut heard = Vec::new();
        while let Some(message) = self.read().await {
            heard.push(message);
        }
        let status = soon("the host to be gone", self.child.wait()).await.expect("the host can be waited for");
        (status, heard)
    }
}
