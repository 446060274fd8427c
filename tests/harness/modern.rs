//! A client of revision 2026-07-28: every request stands alone and says who asks for what.

use reqwest::RequestBuilder;
use serde_json::{Value, json};

use crate::client::{Failure, outcome};
use crate::host::Host;
use crate::schema::Expected;
use crate::stream::Incoming;
use crate::wait::{soon, until};

/// The extension of tasks.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";
/// Steer, pause and resume.
pub const INTERACTION: &str = "dev.bulkhead/task-interaction";

/// One client, with what it declares in each request.
#[derive(Clone)]
pub struct Modern {
    http: reqwest::Client,
    url: String,
    token: Option<String>,
    pub capabilities: Value,
    /// Further members of `_meta`.
    pub meta: Value,
}

impl Modern {
    /// One that can be asked everything and knows no tasks.
    pub fn plain(host: &Host, token: Option<&str>) -> Self {
        Self {
            http: reqwest::Client::builder().no_proxy().build().expect("a client can be built"),
            url: host.url.clone(),
            token: token.map(str::to_owned),
            capabilities: json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}),
            meta: json!({}),
        }
    }

    /// One that knows tasks and how to steer and pause them.
    pub fn full(host: &Host, token: Option<&str>) -> Self {
        let mut client = Self::plain(host, token);
        client.capabilities["extensions"] = json!({TASKS: {}, INTERACTION: {"steer": true, "pause": true}});
        client
    }

    /// With one more member of `_meta`.
    pub fn with_meta(&self, key: &str, value: Value) -> Self {
        let mut client = self.clone();
        client.meta[key] = value;
        client
    }

    /// A message as this client writes it.
    pub fn message(&self, id: &Value, method: &str, mut params: Value) -> Value {
        let mut meta = self.meta.clone();
        meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
        meta["io.modelcontextprotocol/clientInfo"] = json!({"name": "tests", "version": "1"});
        params["_meta"] = meta;
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    /// A POST with every header that a good client sends.
    pub fn request(&self, method: &str, params: &Value) -> RequestBuilder {
        let mut request = self
            .http
            .post(&self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method);
        let named = ["name", "taskId", "uri"].iter().find_map(|member| params[*member].as_str());
        if let Some(name) = named {
            request = request.header("mcp-name", name);
        }
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Sends a request and gives its reply as it comes.
    pub async fn send(&self, method: &str, params: Value) -> Incoming {
        let id = json!(1);
        let request = self.request(method, &params).body(self.message(&id, method, params).to_string());
        let response = soon("a reply", request.send()).await.unwrap_or_else(|error| panic!("POST failed: {error}"));
        Incoming::of(response, Some(Expected { id, method: method.to_owned() })).await.modern()
    }

    /// The result or error of a request.
    pub async fn call(&self, method: &str, params: Value) -> Result<Value, Failure> {
        outcome(self.send(method, params).await.response_after(&mut Vec::new()).await)
    }

    /// The result of a request that must have one.
    pub async fn result(&self, method: &str, params: Value) -> Value {
        self.call(method, params).await.unwrap_or_else(|failure| panic!("{method}: {failure:?}"))
    }

    /// A call of a tool.
    pub async fn tool(&self, name: &str, arguments: Value) -> Value {
        self.result("tools/call", json!({"name": name, "arguments": arguments})).await
    }

    /// The id of the task that a call becomes.
    pub async fn task(&self, name: &str, arguments: Value) -> String {
        let created = self.tool(name, arguments).await;
        assert_eq!(created["resultType"], "task", "{name}: {created}");
        created["taskId"].as_str().expect("a task has an id").to_owned()
    }

    /// The task, once it has this status; another terminal status is a failure.
    pub async fn until_status(&self, task: &str, status: &str) -> Value {
        until(&format!("{task} to be {status}"), async || {
            let now = self.result("tasks/get", json!({"taskId": task})).await;
            let is = now["status"].as_str().unwrap_or_default();
            assert!(is == status || !matches!(is, "completed" | "failed" | "cancelled"), "not {status}: {now}");
            (is == status).then_some(now)
        })
        .await
    }
}
