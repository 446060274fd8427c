//! The modern era from outside.

mod calls;
mod keys;
mod listen;
mod multi_round_trip;
mod requests;
mod tasks;

use std::sync::atomic::Ordering;

use super::*;
use bulkhead_store::TaskStore as _;

const TASKS: &str = "io.modelcontextprotocol/tasks";

/// A client of one capability set. Each of its requests stands alone.
#[derive(Clone)]
pub(super) struct Modern<'a> {
    world: &'a World,
    requestor: Requestor,
    capabilities: Value,
    /// More members of `_meta`.
    meta: Value,
    /// Whether the messages come over HTTP.
    declares: bool,
    rights: Rights,
}

impl World {
    /// A client that can be asked everything and knows no tasks.
    pub(super) fn plain(&self) -> Modern<'_> {
        let capabilities = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}});
        Modern {
            world: self,
            requestor: ANNA,
            capabilities,
            meta: json!({}),
            declares: true,
            rights: Rights::default(),
        }
    }

    /// One that knows tasks as well.
    pub(super) fn tasked(&self) -> Modern<'_> {
        self.plain().with_extension(TASKS, json!({}))
    }

    async fn stored(&self) -> usize {
        self.store.scan(None, 100).await.unwrap().len()
    }

    fn started(&self) -> u64 {
        self.guests.started.load(Ordering::SeqCst)
    }

    /// Waits until no guest is alive.
    async fn quiet(&self) {
        for _ in 0..500 {
            if self.guests.living.load(Ordering::SeqCst) == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("a guest goes on");
    }
}

impl<'a> Modern<'a> {
    /// The same with these capabilities in place of its own.
    pub(super) fn with_capabilities(self, capabilities: Value) -> Self {
        Self { capabilities, ..self }
    }

    fn with_extension(mut self, id: &str, settings: Value) -> Self {
        self.capabilities["extensions"][id] = settings;
        self
    }

    pub(super) fn with_meta(mut self, key: &str, value: Value) -> Self {
        self.meta[key] = value;
        self
    }

    fn of(mut self, requestor: Requestor) -> Self {
        self.requestor = requestor;
        self
    }

    pub(super) fn with_rights(mut self, rights: Rights) -> Self {
        self.rights = rights;
        self
    }

    fn lacking(mut self, capability: &str) -> Self {
        self.capabilities.as_object_mut().unwrap().remove(capability);
        self
    }

    fn message(&self, id: &Value, method: &str, params: &Value) -> Value {
        let mut meta = self.meta.clone();
        meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
        meta["io.modelcontextprotocol/clientInfo"] = json!({"name": "test", "version": "1"});
        let mut params = params.clone();
        params["_meta"] = meta;
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    /// What an honest client declares.
    fn declared(&self, method: &str, params: &Value) -> Option<Declared<'static>> {
        let name = params["name"].as_str().or(params["taskId"].as_str()).or(params["uri"].as_str());
        let region = params["arguments"]["region"].as_str();
        self.declares.then(|| Declared {
            protocol_version: Some("2026-07-28".into()),
            method: Some(method.to_owned().into()),
            name: name.map(|name| name.to_owned().into()),
            params: region.map(|region| ("region".into(), region.to_owned().into())).into_iter().collect(),
        })
    }

    fn peer(&self, declared: Option<Declared<'static>>) -> Peer<'static> {
        Peer { rights: self.rights.clone(), declared, ..Peer::unheralded(self.requestor, None) }
    }

    pub(super) async fn open(&self, method: &'static str, params: Value) -> Stream<'a> {
        self.open_as(json!(1), method, params).await
    }

    async fn open_as(&self, id: Value, method: &'static str, params: Value) -> Stream<'a> {
        let message = self.message(&id, method, &params);
        let peer = self.peer(self.declared(method, &params));
        let Received::Exchange(exchange) = self.world.receive(peer, &message.to_string()).await else {
            panic!("no exchange for {method}")
        };
        Stream { exchange, method, id, _world: self.world }
    }

    /// The response, when nothing is said before it.
    pub(super) async fn ask(&self, method: &'static str, params: Value) -> Value {
        let mut stream = self.open(method, params).await;
        let (response, _) = stream.last().await;
        response
    }

    pub(super) async fn result(&self, method: &'static str, params: Value) -> Value {
        let mut response = self.ask(method, params).await;
        assert!(response["error"].is_null(), "{response}");
        response["result"].take()
    }

    async fn call(&self, tool: &str) -> Value {
        self.result("tools/call", json!({"name": tool, "arguments": {}})).await
    }

    /// The code of a refusal, and what a transport makes of it.
    pub(super) async fn refusal(&self, method: &'static str, params: Value) -> (i64, Option<Rejection>) {
        let (response, rejection) = self.open(method, params).await.last().await;
        (response["error"]["code"].as_i64().unwrap_or_else(|| panic!("{response}")), rejection)
    }

    async fn until(&self, id: &Value, status: &str) -> Value {
        for _ in 0..1000 {
            let task = self.result("tasks/get", json!({"taskId": id})).await;
            if task["status"] == status {
                return task;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("the task never was {status}");
    }
}

pub(super) struct Stream<'a> {
    exchange: Exchange,
    method: &'static str,
    id: Value,
    _world: &'a World,
}

impl Stream<'_> {
    async fn frame(&mut self) -> (Value, Frame) {
        let frame = tokio::time::timeout(Duration::from_secs(10), self.exchange.next()).await;
        let frame = frame.expect("nothing was said in time").expect("the exchange is over");
        assert!(!frame.message.text().contains('\n'));
        let value: Value = serde_json::from_str(&frame.message.text()).unwrap();
        assert_eq!(frame.last, value["method"].is_null());
        if frame.last {
            assert_eq!(value["id"], self.id);
        }
        official::check_modern(self.method, &value);
        (value, frame)
    }

    pub(super) async fn next(&mut self) -> Value {
        self.frame().await.0
    }

    /// The response, which must be next, and nothing after it.
    async fn last(&mut self) -> (Value, Option<Rejection>) {
        let (value, frame) = self.frame().await;
        assert!(frame.last, "{value}");
        assert!(self.exchange.next().await.is_none());
        (value, frame.rejection)
    }

    pub(super) async fn is_silent(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(60), self.exchange.next()).await.is_err()
    }
}
