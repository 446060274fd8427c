//! The protocol from outside: JSON in, JSON out, over the real engine with a scripted guest and the store in memory.
//! Whatever is said is held against the official schema.

mod apps;
mod asking;
mod augmented;
mod batches;
mod checked_calls;
pub mod fuzz;
mod guest;
mod keyed;
mod lookups;
mod members;
mod modern;
mod offers;
mod official;
mod page_client;
mod plain;
mod sep1686;
mod sessions;
mod skills;
mod task_calls;
mod tasks;
mod tool_lists;
mod tool_search;
#[cfg(test)]
mod transcript;
mod unknown;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
#[cfg(test)]
use expect_test::expect;
use futures::StreamExt as _;
use serde_json::{Value, json};

use super::*;
use bulkhead_domain::UnixMs;
use bulkhead_domain::clock::ManualClock;
use bulkhead_domain::limits::Limits;
use bulkhead_domain::requestor::{RequestorId, TenantId};
use bulkhead_domain::task::PluginVersion;
use bulkhead_store::memory::MemoryStore;
use bulkhead_tasks::{CallHealth, EndedCall};
#[cfg(test)]
use transcript::Transcript;

const ANNA: Requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([1; 16]) };
const BOB: Requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([2; 16]) };

const NOW: u64 = 1_795_226_619_007;
const NOW_TEXT: &str = "2026-11-21T02:03:39.007Z";

fn limits() -> Limits {
    Limits {
        calls_running_per_requestor: 16,
        calls_running_per_tenant: 16,
        calls_running_total: 16,
        call_queue_ms_max: 50,
        tasks_running_per_requestor: 8,
        tasks_queued_per_requestor: 2,
        tasks_waiting_per_requestor: 8,
        tasks_paused_per_requestor: 2,
        tasks_stored_per_requestor: 1000,
        tasks_stored_bytes_per_requestor: 1 << 30,
        tasks_stored_per_tenant: 1000,
        tasks_stored_bytes_per_tenant: 1 << 30,
        requests_per_second: 1000,
        task_creations_per_second: 1000,
        ttl_ms_default: 60_000,
        ttl_ms_max: 120_000,
        ttl_unlimited: false,
        steer_queue: 2,
        steer_bytes_max: 100,
        ..Limits::generous()
    }
}

pub(super) struct World {
    protocol: Protocol,
    pub(super) tasks: Tasks,
    clock: Arc<ManualClock>,
    pub(super) store: Arc<MemoryStore>,
    guests: Arc<guest::Guests>,
}

pub(super) fn world() -> World {
    world_with(10_000)
}

/// One whose plugins offer more than tools.
fn world_offering() -> World {
    world_of(10_000, |guests| guest::Scripted::offering(guests, 3))
}

/// The same without the plugin that breaks.
fn world_nowhere() -> World {
    world_of(10_000, |guests| guest::Scripted::offering(guests, 2))
}

/// Of plugins that nobody is kept from.
struct Healthy;

impl CallHealth for Healthy {
    fn admit(&self, _: &Requestor, _: &PluginVersion, _: UnixMs) -> Result<(), u64> {
        Ok(())
    }

    fn call_ended(&self, _: &EndedCall<'_>) {}

    fn may_keep_journal(&self, _: &PluginVersion) -> bool {
        true
    }

    fn diverged(&self, _: &PluginVersion, _: UnixMs) {}
}

fn world_with(request_timeout_ms: u64) -> World {
    world_of(request_timeout_ms, guest::Scripted::new)
}

fn world_of(request_timeout_ms: u64, scripted: impl FnOnce(Arc<guest::Guests>) -> guest::Scripted) -> World {
    world_on(Arc::new(MemoryStore::new()), Arc::new(ManualClock::at(NOW)), request_timeout_ms, scripted)
}

fn world_on(
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    request_timeout_ms: u64,
    scripted: impl FnOnce(Arc<guest::Guests>) -> guest::Scripted,
) -> World {
    let guests = Arc::<guest::Guests>::default();
    let tasks = Tasks::new(bulkhead_tasks::Options {
        store: store.clone(),
        executor: Arc::new(scripted(guests.clone())),
        health: Arc::new(Healthy),
        clock: clock.clone(),
        limits: limits().into(),
        cpu_weights: std::collections::HashMap::new(),
        audit: bulkhead_audit::Audit::off(),
        tracer: bulkhead_traces::Tracer::default(),
        instances_max: 100,
    })
    .unwrap();
    let options = ProtocolOptions {
        server_name: "bulkhead".into(),
        server_title: None,
        server_version: "0.1.0".into(),
        instructions: None,
        cursor_key: [7; 32],
        request_timeout_ms,
        metrics: bulkhead_metrics::Metrics::off(),
    };
    World { protocol: Protocol::new(tasks.clone(), options), tasks, clock, store, guests }
}

impl World {
    /// Makes every list another one.
    fn change_lists(&self) {
        self.guests.lists.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        self.tasks.lists_changed();
    }

    /// A world like [`world_nowhere`] after a crash of this one: what is in the store is all that is left.
    async fn crashed(self) -> Self {
        self.store.restart();
        let world =
            world_on(self.store.clone(), self.clock.clone(), 10_000, |guests| guest::Scripted::offering(guests, 2));
        world.tasks.recover().await.unwrap();
        world
    }

    /// Another host on the same store, which knows nothing else of this one.
    fn restarted(&self) -> Self {
        world_on(self.store.clone(), self.clock.clone(), 10_000, guest::Scripted::new)
    }

    async fn receive(&self, peer: Peer<'_>, message: &str) -> Received {
        match self.protocol.receive(peer, &Envelope::parse(Bytes::copy_from_slice(message.as_bytes()))) {
            Received::Settling(work) => {
                work.await;
                Received::Accepted
            }
            received => received,
        }
    }

    /// A client that has been through the handshake.
    async fn client(&self, requestor: Requestor, version: &str, capabilities: Value) -> Client<'_> {
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": version,
            "capabilities": capabilities, "clientInfo": {"name": "test", "version": "1"}}});
        let received = self.receive(Peer::unheralded(requestor, None), &hello.to_string()).await;
        let Received::Opened { session, reply } = received else { panic!("not opened") };
        official::check(version, "initialize", &serde_json::from_str(&reply).unwrap());
        let client = Client { world: self, session, requestor };
        client.tell(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        client
    }

    /// One that can be asked everything.
    async fn anna(&self) -> Client<'_> {
        let everything = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}});
        self.client(ANNA, "2025-11-25", everything).await
    }
}

#[derive(Clone)]
struct Client<'a> {
    world: &'a World,
    session: Arc<Session>,
    requestor: Requestor,
}

impl Client<'_> {
    fn peer(&self) -> Peer<'static> {
        Peer::unheralded(self.requestor, Some(self.session.clone()))
    }

    /// Sends what has no response.
    async fn tell(&self, message: Value) {
        let received = self.world.receive(self.peer(), &message.to_string()).await;
        assert!(matches!(received, Received::Accepted));
    }

    /// Answers a request of the host.
    async fn answer(&self, request: &Value, result: Value) {
        self.tell(json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
    }

    async fn open(&self, id: u64, method: &'static str, params: Value) -> Talk {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let received = self.world.receive(self.peer(), &message.to_string()).await;
        let Received::Exchange(exchange) = received else { panic!("no exchange for {method}") };
        Talk { exchange, method, version: self.session.protocol_version() }
    }

    /// The response, when nothing is said before it.
    async fn ask(&self, method: &'static str, params: Value) -> Value {
        let mut talk = self.open(1, method, params).await;
        let response = talk.next().await;
        assert!(talk.exchange.next().await.is_none());
        response
    }

    async fn result(&self, method: &'static str, params: Value) -> Value {
        let mut response = self.ask(method, params).await;
        assert!(response["error"].is_null(), "{response}");
        response["result"].take()
    }

    async fn error(&self, method: &'static str, params: Value) -> Value {
        let mut response = self.ask(method, params).await;
        assert!(response["result"].is_null(), "{response}");
        response["error"].take()
    }

    /// Starts a tool as a task and gives its id.
    async fn start(&self, tool: &str) -> String {
        let params = json!({"name": tool, "task": {"ttl": 60_000}, "_meta": {"progressToken": "p"}});
        self.result("tools/call", params).await["task"]["taskId"].as_str().unwrap().to_owned()
    }

    /// Polls until the task has this status.
    async fn until(&self, id: &str, status: &str) -> Value {
        for _ in 0..2000 {
            let task = self.result("tasks/get", json!({"taskId": id})).await;
            if task["status"] == status {
                return task;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("the task never was {status}");
    }

    fn standalone(&self) -> Talk {
        let exchange = self.world.protocol.standalone(&self.session, Rights::default());
        Talk { exchange, method: "", version: self.session.protocol_version() }
    }
}

struct Talk {
    exchange: Exchange,
    method: &'static str,
    version: &'static str,
}

impl Talk {
    /// The next message, checked.
    async fn next(&mut self) -> Value {
        let frame = tokio::time::timeout(Duration::from_secs(10), self.exchange.next()).await;
        let frame = frame.expect("nothing was said in time").expect("the exchange is over");
        assert!(!frame.message.text().contains('\n'));
        let value: Value = serde_json::from_str(&frame.message.text()).unwrap();
        assert_eq!(frame.last, value["method"].is_null());
        official::check(self.version, self.method, &value);
        value
    }

    /// The next message with this method; what comes before is passed over.
    async fn next_of(&mut self, method: &str) -> Value {
        loop {
            let value = self.next().await;
            if value["method"] == method {
                return value;
            }
        }
    }

    /// Whether nothing is said for a while.
    async fn is_silent(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(60), self.exchange.next()).await.is_err()
    }
}
