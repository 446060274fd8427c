//! The transports over real sockets, with a protocol whose every frame is scripted.

mod batches;
mod bodies;
mod client;
mod http;
mod limits;
mod modern;
mod scripted;
mod sessions;
mod stdio;
mod streams;

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use bulkhead_domain::clock::ManualClock;
use bulkhead_domain::limits::Limits;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};

use super::http::{HttpOptions, Server, ServerParts, bind};
use super::quota::EdgeQuota;
use super::session::{Registry, SessionOptions};
use bulkhead_identity::auth::{Authenticator, Denied, Scopes, Sender, Verified, Verifier};
use bulkhead_net::server::ConnectionWorkers;
use client::{Client, Reply};
use scripted::{Rows, Script};

/// Three requestors by token, two of them of one tenant, and `local` without one.
struct Tokens;

fn requestor(number: u8) -> Requestor {
    Requestor { tenant: TenantId([number; 16]), id: RequestorId([number; 16]) }
}

#[async_trait]
impl Verifier for Tokens {
    async fn verify(&self, token: &str, _: Sender<'_>) -> Result<Verified, Denied> {
        self.verify_again(token).await
    }

    async fn verify_again(&self, token: &str) -> Result<Verified, Denied> {
        let (requestor, name, tenant) = match token {
            "alice" => (requestor(1), "alice", "one"),
            "bob" => (requestor(2), "bob", "two"),
            "carol" => (Requestor { id: RequestorId([3; 16]), ..requestor(1) }, "carol", "one"),
            "broken" => return Err(Denied::Unavailable { incident: "abc".into() }),
            _ => return Err(Denied::Invalid),
        };
        let name = name.into();
        let tenant = tenant.into();
        Ok(Verified { requestor, name, tenant, scopes: Scopes::All, look_at: u64::MAX, ends_at: u64::MAX })
    }

    async fn anonymous(&self) -> Result<Option<Requestor>, Denied> {
        Ok(Some(requestor(0)))
    }
}

/// How a test differs from the usual.
struct Setup {
    options: HttpOptions,
    sessions: SessionOptions,
    limits: Limits,
    loopback_only: bool,
    rows: Arc<Rows>,
    unready: Option<&'static str>,
    unhealthy: Option<&'static str>,
    has_workers: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            options: HttpOptions {
                credential_failures_per_minute: 1_000_000,
                allowed_hosts: vec![
                    "bulkhead.example".into(),
                    "exact.example:99".into(),
                    "2001:db8::1".into(),
                    "[2001:db8::2]".into(),
                ],
                allowed_origins: vec!["https://app.example".into()],
                drain_ms: 500,
                connections_max: 64,
                connections_per_address: 64,
                header_bytes_max: 4096,
                header_read_ms_max: 5000,
                body_bytes_max: 10_000,
                sse_after_ms: 5000,
                sse_keepalive_ms: 5000,
                trusted_proxies: Vec::new(),
            },
            sessions: SessionOptions { idle_ms_max: 3_600_000, per_requestor: 100 },
            limits: Limits::generous(),
            loopback_only: true,
            rows: Arc::default(),
            unready: None,
            unhealthy: None,
            has_workers: false,
        }
    }
}

/// A running edge.
struct Edge {
    address: SocketAddr,
    script: Arc<Script>,
    quota: Arc<EdgeQuota>,
    sessions: Arc<Registry>,
    clock: Arc<ManualClock>,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
}

impl Edge {
    async fn start(setup: Setup) -> Self {
        let script = Arc::new(Script::default());
        let clock = Arc::new(ManualClock::at(1_000_000));
        let now: bulkhead_domain::clock::SharedClock = clock.clone();
        let quota = Arc::new(EdgeQuota::new(setup.limits.into()));
        let sessions = Registry::open(setup.rows, setup.sessions, quota.clone(), now.clone());
        let sessions = sessions.await.unwrap();
        let sessions = Arc::new(sessions);
        let unready = setup.unready;
        let server = Server::new(ServerParts {
            mcp: script.clone(),
            sessions: sessions.clone(),
            authenticator: Arc::new(Authenticator::new(vec![Arc::new(Tokens)], setup.loopback_only)),
            audit: bulkhead_audit::Audit::off(),
            quota: quota.clone(),
            unready: Box::new(move || unready),
            unhealthy: Box::new(move || setup.unhealthy),
            now,
            options: setup.options,
            certificate: None,
            workers: setup.has_workers.then(|| Arc::new(ConnectionWorkers::start().unwrap())),
        });
        let listener = bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(async {
            let stopped = async {
                let _ = stopped.await;
            };
            server.serve(listener, stopped).await.unwrap();
        });
        Self { address, script, quota, sessions, clock, stop: Some(stop), served }
    }

    async fn usual() -> Self {
        Self::start(Setup::default()).await
    }

    fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// A client in a new session.
    async fn session(&self) -> Client {
        self.session_as(self.client(), "2025-11-25").await
    }

    async fn session_as(&self, client: Client, version: &str) -> Client {
        let reply = client.rpc(1, "initialize", serde_json::json!({ "protocolVersion": version })).await;
        assert_eq!(reply.status, 200);
        let id = reply.header("mcp-session-id").expect("a session id").to_owned();
        client.with("Mcp-Session-Id", &id)
    }

    async fn stop(mut self) {
        let _ = self.stop.take().unwrap().send(());
        self.served.await.unwrap();
    }
}

/// The status and the JSON body of a reply.
async fn status_and_body(reply: Reply) -> (u16, serde_json::Value) {
    let status = reply.status;
    (status, serde_json::from_str(&reply.body().await).unwrap())
}
