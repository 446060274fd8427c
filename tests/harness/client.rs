//! A client of revision 2025-11-25 that hides nothing: raw JSON-RPC over HTTP, with every message of the host checked.

use std::sync::atomic::{AtomicU64, Ordering};

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::host::Host;
use crate::schema::Expected;
use crate::stream::Incoming;
use crate::wait::{soon, until};

/// The key that ties a message to its task.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// A request that needs no session.
pub const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"tests","version":"1"}}}"#;

/// A JSON-RPC error.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub code: i64,
    pub message: String,
    pub data: Value,
}

/// One client, with or without a session.
pub struct Client {
    http: reqwest::Client,
    url: String,
    token: Option<String>,
    pub session: Option<String>,
    pub version: String,
    /// What `initialize` was answered with.
    pub server: Value,
    ids: AtomicU64,
}

/// Everything that a client can declare.
pub fn all_capabilities() -> Value {
    json!({
        "elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {"listChanged": true},
        "experimental": {"dev.bulkhead/task-interaction": {"steer": true, "pause": true}}
    })
}

impl Client {
    /// Knows where the host is; has no session yet.
    pub fn new(url: &str, token: Option<&str>) -> Self {
        Self {
            http: reqwest::Client::builder().no_proxy().build().expect("a client can be built"),
            url: url.to_owned(),
            token: token.map(str::to_owned),
            session: None,
            version: "2025-11-25".to_owned(),
            server: Value::Null,
            ids: AtomicU64::new(1),
        }
    }

    /// In a session, as a client that can do everything.
    pub async fn connect(host: &Host) -> Self {
        Self::connect_as(host, None, all_capabilities()).await
    }

    /// In a session of the requestor behind `token`.
    pub async fn connect_as(host: &Host, token: Option<&str>, capabilities: Value) -> Self {
        let mut client = Self::new(&host.url, token);
        client.initialize(capabilities).await;
        client
    }

    /// Opens a session.
    pub async fn initialize(&mut self, capabilities: Value) {
        let params = json!({
            "protocolVersion": self.version, "capabilities": capabilities,
            "clientInfo": {"name": "tests", "version": "1"}
        });
        self.session = None;
        let mut incoming = self.send("initialize", params).await;
        let message = incoming.response_after(&mut Vec::new()).await;
        assert!(message.get("result").is_some(), "initialize was refused: {message}");
        self.server = message["result"].clone();
        self.version = message["result"]["protocolVersion"].as_str().unwrap_or_default().to_owned();
        let session = incoming.headers.get("mcp-session-id").expect("a session id");
        self.session = Some(session.to_str().expect("visible ASCII").to_owned());
        self.notify("notifications/initialized", json!({})).await;
    }

    /// Another client in the same session. Its ids would clash with those of the first one, so they begin elsewhere.
    pub fn clone_session(&self) -> Self {
        let mut clone = Self::new(&self.url, self.token.as_deref());
        (clone.session, clone.version) = (self.session.clone(), self.version.clone());
        clone.ids = AtomicU64::new(self.next_id() << 32);
        clone
    }

    /// Sends another token from now on.
    pub fn set_token(&mut self, token: &str) {
        self.token = Some(token.to_owned());
    }

    /// The address of the endpoint.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A request with every header that a good client sends.
    pub fn request(&self, method: Method) -> RequestBuilder {
        let mut request = self.http.request(method, &self.url).header("mcp-protocol-version", &self.version);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        request
    }

    /// A POST of exactly this body.
    pub async fn post(&self, body: impl Into<String>, expected: Option<Expected>) -> Incoming {
        let request = self
            .request(Method::POST)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body.into());
        let response = soon("a reply", request.send()).await.unwrap_or_else(|error| panic!("POST failed: {error}"));
        Incoming::of(response, expected).await.of_session(&self.version)
    }

    /// Sends a built request and reads what comes back; for header tests.
    pub async fn exchange(&self, request: RequestBuilder) -> Incoming {
        let response = soon("a reply", request.send()).await.expect("the request is answered");
        Incoming::of(response, None).await.of_session(&self.version)
    }

    fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request and gives its reply as it comes.
    pub async fn send(&self, method: &str, params: Value) -> Incoming {
        let id = json!(self.next_id());
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.post(message.to_string(), Some(Expected { id, method: method.to_owned() })).await
    }

    /// The result or error of a request, with every message that came before it.
    pub async fn call_hearing(&self, method: &str, params: Value) -> (Result<Value, Failure>, Vec<Value>) {
        let mut heard = Vec::new();
        let message = self.send(method, params).await.response_after(&mut heard).await;
        (outcome(message), heard)
    }

    /// The result or error of a request.
    pub async fn call(&self, method: &str, params: Value) -> Result<Value, Failure> {
        self.call_hearing(method, params).await.0
    }

    /// A notification; it is accepted.
    pub async fn notify(&self, method: &str, params: Value) {
        self.tell(json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    /// The response to a request of the host.
    pub async fn respond(&self, request: &Value, result: Value) {
        self.tell(json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
    }

    /// An error in response to a request of the host.
    pub async fn refuse(&self, request: &Value, code: i64, message: &str) {
        let error = json!({"code": code, "message": message});
        self.tell(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
    }

    async fn tell(&self, message: Value) {
        let reply = self.post(message.to_string(), None).await;
        assert_eq!(reply.status, StatusCode::ACCEPTED, "{message}: {}", reply.text);
        assert_eq!(reply.text, "", "nothing is said about {message}");
    }

    /// The session's GET stream.
    pub async fn listen(&self) -> Incoming {
        self.listen_from(None).await
    }

    /// The stream that an event id belongs to, from after that event.
    pub async fn listen_from(&self, last_event_id: Option<&str>) -> Incoming {
        let mut request = self.request(Method::GET).header("accept", "text/event-stream");
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        self.exchange(request).await
    }

    /// A plain call of a tool.
    pub async fn tool(&self, name: &str, arguments: Value) -> Result<Value, Failure> {
        self.call("tools/call", json!({"name": name, "arguments": arguments})).await
    }

    /// A call of a tool as a task; its `Task`.
    pub async fn create(&self, name: &str, arguments: Value) -> Result<Value, Failure> {
        self.create_with(name, arguments, json!({"ttl": 600_000})).await
    }

    /// A call of a tool as a task with these task parameters.
    pub async fn create_with(&self, name: &str, arguments: Value, task: Value) -> Result<Value, Failure> {
        let result = self.call("tools/call", json!({"name": name, "arguments": arguments, "task": task})).await?;
        Ok(result["task"].clone())
    }

    /// The id of a new task.
    pub async fn task(&self, name: &str, arguments: Value) -> String {
        let task = self.create(name, arguments).await.unwrap_or_else(|failure| panic!("{name}: {failure:?}"));
        task["taskId"].as_str().expect("a task has an id").to_owned()
    }

    /// One of the methods that take a task id.
    pub async fn about(&self, method: &str, task: &str) -> Result<Value, Failure> {
        self.call(method, json!({"taskId": task})).await
    }

    /// The task, once it has this status; another terminal status is a failure.
    pub async fn until_status(&self, task: &str, status: &str) -> Value {
        until(&format!("{task} to be {status}"), async || {
            let now = self.about("tasks/get", task).await.unwrap_or_else(|failure| panic!("tasks/get: {failure:?}"));
            let is = now["status"].as_str().unwrap_or_default();
            assert!(is == status || !matches!(is, "completed" | "failed" | "cancelled"), "not {status}: {now}");
            (is == status).then_some(now)
        })
        .await
    }

    /// Every task that `tasks/list` names, over all pages.
    pub async fn tasks(&self) -> Vec<Value> {
        let mut tasks = Vec::new();
        let mut cursor = None::<Value>;
        loop {
            let params = cursor.map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
            let page = self.call("tasks/list", params).await.expect("tasks/list works");
            tasks.extend(page["tasks"].as_array().cloned().unwrap_or_default());
            match page.get("nextCursor") {
                Some(next) => cursor = Some(next.clone()),
                None => return tasks,
            }
        }
    }
}

/// The text of a result's first content block.
pub fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}"))
}

pub(crate) fn outcome(message: Value) -> Result<Value, Failure> {
    match message.get("error") {
        None => Ok(message["result"].clone()),
        Some(error) => Err(Failure {
            code: error["code"].as_i64().unwrap_or_default(),
            message: error["message"].as_str().unwrap_or_default().to_owned(),
            data: error.get("data").cloned().unwrap_or_default(),
        }),
    }
}
