//! A protocol that does what the message says.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

use bulkhead_domain::call::LogLevel;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_domain::rights::Rights;
use bulkhead_protocol::{Envelope, Exchange, Frame, Mcp, Peer, Received, Rejection, Session};
use bulkhead_store::journal::Beside;
use bulkhead_store::{Error, RowKind, RowState, RowStore};
use bulkhead_threads::{MessageWorkers, Share};

/// A session with a queue that a test fills.
pub(super) struct Told {
    queue: Arc<Queue>,
    closed: Mutex<BoxFuture<'static, ()>>,
}

#[derive(Default)]
struct Queue {
    frames: Mutex<VecDeque<Frame>>,
    filled: Notify,
}

impl Told {
    fn new(session: &Arc<Session>) -> Arc<Self> {
        Arc::new(Self { queue: Arc::default(), closed: Mutex::new(session.closed().boxed()) })
    }

    /// Queues a message that belongs to no request.
    pub(super) fn tell(&self, text: &str) {
        let message = json!({ "jsonrpc": "2.0", "method": "notifications/told", "params": text }).to_string();
        self.queue.frames.lock().push_back(Frame { message: message.into(), last: false, rejection: None });
        self.queue.filled.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.lock().as_mut().now_or_never().is_some()
    }
}

/// A session as a handshake leaves it.
fn session(id: &str, requestor: &Requestor, version: &str) -> Arc<Session> {
    let state = json!({"v": 1, "tenant": requestor.tenant.to_string(), "requestor": requestor.id.to_string(),
        "version": version, "features": 0, "client_name": "", "client_version": "", "log_level": "info",
        "initialized": true});
    Arc::new(Session::restore(id, state.to_string().as_bytes()).unwrap())
}

/// The protocol.
#[derive(Default)]
pub(super) struct Script {
    count: AtomicU64,
    pub(super) sessions: Mutex<BTreeMap<String, Arc<Told>>>,
    /// Requests that ran to their end.
    pub(super) finished: Arc<AtomicU64>,
    /// Requests that were dropped before their end.
    pub(super) dropped: Arc<AtomicU64>,
    /// Requests that were begun.
    pub(super) begun: AtomicU64,
    /// Number of offloaded pieces of work.
    offloads: Arc<AtomicU64>,
    message_workers: OnceLock<MessageWorkers>,
    shares: Mutex<BTreeMap<TenantId, Share>>,
    /// Messages that hold their thread up, until they may go on.
    pub(super) gate: Gate,
}

/// Holds threads up.
#[derive(Default)]
pub(super) struct Gate {
    held: AtomicU64,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        self.held.fetch_add(1, Ordering::SeqCst);
        self.opened.wait_while(&mut self.is_open.lock(), |is_open| !*is_open);
    }

    /// Waits until so many are held up.
    pub(super) async fn holds(&self, count: u64) {
        for _ in 0..2_000 {
            if self.held.load(Ordering::SeqCst) >= count {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
        panic!("{} are held up, not {count}", self.held.load(Ordering::SeqCst));
    }

    pub(super) fn open(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
    }
}

/// Counts how an exchange ended.
struct Fate {
    finished: Arc<AtomicU64>,
    dropped: Arc<AtomicU64>,
    done: bool,
}

impl Drop for Fate {
    fn drop(&mut self) {
        let count = if self.done { &self.finished } else { &self.dropped };
        count.fetch_add(1, Ordering::SeqCst);
    }
}

impl Script {
    pub(super) fn told(&self, id: &str) -> Arc<Told> {
        self.sessions.lock()[id].clone()
    }

    pub(super) fn finished(&self) -> u64 {
        self.finished.load(Ordering::SeqCst)
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::SeqCst)
    }

    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    pub(super) fn offloads(&self) -> u64 {
        self.offloads.load(Ordering::SeqCst)
    }

    fn open(&self, requestor: &Requestor, params: &Value, id: &Value) -> Received {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let version = params["protocolVersion"].as_str().unwrap_or("2025-11-25");
        let session = session(&format!("session-{number}"), requestor, version);
        self.sessions.lock().insert(session.id().to_owned(), Told::new(&session));
        Received::Opened { session, reply: answer(id, json!({ "opened": number })) }
    }

    fn exchange(&self, method: &str, id: Value, params: Value) -> Exchange {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let fate = Fate { finished: self.finished.clone(), dropped: self.dropped.clone(), done: false };
        let last = Frame::from(answer(&id, params.clone()));
        let number = |name: &str| params[name].as_u64().unwrap_or(0);
        // `steps` notifications of `bytes` each, `gap_ms` apart, then the answer after `ms`.
        let steps = number("steps");
        let gap_ms = number("gap_ms");
        let ms = number("ms");
        let padding = "x".repeat(number("bytes") as usize);
        assert!(method == "do" || method == "modern");
        stream::unfold((0, Some(fate)), move |(step, fate)| {
            let last = last.clone();
            let padding = padding.clone();
            async move {
                let mut fate = fate?;
                if step < steps {
                    sleep(Duration::from_millis(gap_ms)).await;
                    let params = json!({ "step": step, "padding": padding });
                    let message = json!({ "jsonrpc": "2.0", "method": "notifications/step", "params": params });
                    return Some((
                        Frame { message: message.to_string().into(), last: false, rejection: None },
                        (step + 1, Some(fate)),
                    ));
                }
                sleep(Duration::from_millis(ms)).await;
                fate.done = true;
                drop(fate);
                Some((last, (step, None)))
            }
        })
        .boxed()
    }
}

fn answer(id: &Value, result: Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string()
}

fn rejected(rejection: Rejection, code: i64) -> Received {
    let body = json!({ "jsonrpc": "2.0", "error": { "code": code, "message": "no" } }).to_string();
    Received::Rejected { rejection, body }
}

impl Mcp for Script {
    fn receive(&self, peer: Peer<'_>, envelope: &Envelope) -> Received {
        let Ok(message) = serde_json::from_slice::<Value>(envelope.bytes()) else {
            return rejected(Rejection::Malformed, -32700);
        };
        if message.is_array() {
            return rejected(Rejection::Malformed, -32600);
        }
        let method = message["method"].as_str().unwrap_or("").to_owned();
        match (method.as_str(), &peer.session) {
            ("initialize", None) => self.open(&peer.requestor, &message["params"], &message["id"]),
            ("declared", session) => {
                let declared = peer.declared.unwrap();
                let said = json!({"version": declared.protocol_version, "method": declared.method, "name": declared.name,
                    "params": declared.params, "session": session.is_some()});
                Received::Exchange(stream::iter([Frame::from(answer(&message["id"], said))]).boxed())
            }
            ("refused", _) => {
                let rejection = match message["params"].as_str().unwrap() {
                    "unserved" => Rejection::Unserved,
                    "unknown" => Rejection::UnknownMethod,
                    _ => Rejection::TooMany { retry_after_ms: Some(1_500) },
                };
                let frame = Frame { rejection: Some(rejection), ..Frame::from(answer(&message["id"], json!({}))) };
                Received::Exchange(stream::iter([frame]).boxed())
            }
            ("hold", _) => {
                self.gate.pass();
                Received::Exchange(stream::iter([Frame::from(answer(&message["id"], json!({})))]).boxed())
            }
            ("modern", _) => {
                Received::Exchange(self.exchange(&method, message["id"].clone(), message["params"].clone()))
            }
            (_, None) => rejected(Rejection::SessionRequired, -32600),
            ("set", Some(session)) => {
                session.set_log_level(LogLevel::Alert);
                Received::Accepted
            }
            // As if the client had cancelled it.
            ("cancelled", Some(_)) => Received::Exchange(stream::empty().boxed()),
            ("state", Some(session)) => {
                let state: Value = serde_json::from_slice(&session.state()).unwrap();
                let frame = Frame::from(answer(&message["id"], state["log_level"].clone()));
                Received::Exchange(stream::iter([frame]).boxed())
            }
            ("do", Some(_)) => {
                Received::Exchange(self.exchange(&method, message["id"].clone(), message["params"].clone()))
            }
            _ => Received::Accepted,
        }
    }

    fn offload(&self, requestor: &Requestor, work: Box<dyn FnOnce() + Send>) -> oneshot::Receiver<()> {
        let workers =
            self.message_workers.get_or_init(|| MessageWorkers::start(&tokio::runtime::Handle::current()).unwrap());
        let share = self.shares.lock().entry(requestor.tenant).or_default().clone();
        let offloads = self.offloads.clone();
        workers.run(&share, move || {
            offloads.fetch_add(1, Ordering::SeqCst);
            work()
        })
    }

    fn standalone(&self, session: &Arc<Session>, _: Rights) -> Exchange {
        let mut sessions = self.sessions.lock();
        let told = sessions.entry(session.id().to_owned()).or_insert_with(|| Told::new(session));
        stream::unfold(told.queue.clone(), |queue| async move {
            loop {
                let frame = queue.frames.lock().pop_front();
                if let Some(frame) = frame {
                    return Some((frame, queue));
                }
                queue.filled.notified().await;
            }
        })
        .boxed()
    }

    fn close(&self) {}
}

type RowKey = (RowKind, Vec<u8>);

/// Rows in memory; writes can be made to fail.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) rows: Mutex<BTreeMap<RowKey, Vec<u8>>>,
    pub(super) read_only: AtomicBool,
    /// Rows that were asked for, there or not.
    pub(super) asked: AtomicU64,
    /// The next read waits between the look and the answer.
    pub(super) hold_next_read: AtomicBool,
    pub(super) reads: Notify,
    pub(super) go_on: Notify,
}

#[async_trait]
impl RowStore for Rows {
    async fn row(&self, kind: RowKind, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let row = self.rows.lock().get(&(kind, key.to_vec())).cloned();
        if self.hold_next_read.swap(false, Ordering::SeqCst) {
            self.reads.notify_one();
            self.go_on.notified().await;
        }
        Ok(row)
    }

    async fn put_row(&self, kind: RowKind, key: &[u8], value: Vec<u8>, absent_only: bool) -> Result<(), Error> {
        if self.read_only.load(Ordering::Relaxed) {
            return Err(Error::ReadOnly("the disk is full".into()));
        }
        let mut rows = self.rows.lock();
        if absent_only && rows.contains_key(&(kind, key.to_vec())) {
            return Err(Error::Exists);
        }
        rows.insert((kind, key.to_vec()), value);
        Ok(())
    }

    async fn change_rows(
        &self,
        kind: RowKind,
        expected: Vec<RowState>,
        changes: Vec<RowState>,
        _: Option<Beside>,
    ) -> Result<(), Error> {
        let mut rows = self.rows.lock();
        if expected.into_iter().any(|(key, value)| rows.get(&(kind, key)) != value.as_ref()) {
            return Err(Error::Conflict);
        }
        for (key, value) in changes {
            match value {
                Some(value) => rows.insert((kind, key), value),
                None => rows.remove(&(kind, key)),
            };
        }
        Ok(())
    }

    async fn remove_row(&self, kind: RowKind, key: &[u8]) -> Result<(), Error> {
        self.rows.lock().remove(&(kind, key.to_vec()));
        Ok(())
    }

    async fn rows(
        &self,
        kind: RowKind,
        after: Option<&[u8]>,
        count_max: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Error> {
        let rows = self.rows.lock();
        let later =
            rows.iter().filter(|((other, key), _)| *other == kind && after.is_none_or(|after| key.as_slice() > after));
        Ok(later.take(count_max).map(|((_, key), value)| (key.clone(), value.clone())).collect())
    }
}
