//! One legacy session.
//!
//! Owns what `initialize` settled, the log level, the host's requests that wait for the client's answer and the
//! client's requests that can still be cancelled. Must not know which transport carries it. Invariant: its state
//! survives a restart (see [`Session::state`]); what waits does not, and is asked again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::{Notify, SetOnce, mpsc, oneshot};

use super::capabilities::{ClientTasks, Interaction};
use super::jsonrpc::{PeerError, RequestId};
use super::version::Version;
use super::wire::{RelatedTask, level, level_name};
use bulkhead_calls::{ListGenerations, ListKind};
use bulkhead_domain::call::{ClientFeatures, InputRequestKind, LogLevel};
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_domain::task::TaskId;
use subscriptions::Subscriptions;

/// What of a client's name and version is kept.
const CLIENT_TEXT_CHARS_MAX: usize = 200;
/// Requests to one client that may wait at once; a client that answers nothing loses the oldest.
const EXPECTED_MAX: usize = 256;
/// Messages of requests that may wait for a standalone stream whose client does not read; further ones are not said.
const SAID_MAX: usize = 32;

/// What stands in an id of a request before the name of the host that sent it, where there are several.
pub(crate) const HOST: char = '~';

/// How long `notifications/initialized` may be on its way when a call already asks something.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(1);

/// What `initialize` settles.
#[derive(Clone, Debug)]
pub(crate) struct Negotiated {
    pub(crate) interaction: Interaction,
    pub(crate) requestor: Requestor,
    pub(crate) version: Version,
    pub(crate) features: ClientFeatures,
    pub(crate) client_tasks: ClientTasks,
    pub(crate) client_name: String,
    pub(crate) client_version: String,
    pub(crate) offered: AnnouncedLists,
}

/// The features other than tools that the client was told of: it is notified of no other lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AnnouncedLists {
    pub(crate) resources: bool,
    pub(crate) prompts: bool,
}

/// What a client answered: a result as JSON, or an error.
pub(crate) type Reply = Result<Box<str>, PeerError>;

/// An input request of a task, as it was sent to a client; enough to deliver the response.
#[derive(Clone, Debug)]
pub(crate) struct TaskInputRequest {
    pub(crate) task: TaskId,
    /// The same as its client knows it.
    pub(crate) related: RelatedTask,
    pub(crate) issued_key: String,
    pub(crate) kind: InputRequestKind,
}

/// A request of the host that waits for its response.
pub(crate) struct PendingRequest {
    pub(crate) reply: oneshot::Sender<Reply>,
    /// Set when the answer is needed even after the receiver of `reply` is gone.
    pub(crate) input_request: Option<TaskInputRequest>,
}

/// One legacy session of one requestor.
pub struct Session {
    id: String,
    digest: [u8; 16],
    pub(crate) settled: Negotiated,
    initialized: SetOnce<()>,
    /// Makes request ids differ from those before a restart.
    birth: u32,
    changes: AtomicU64,
    live: Mutex<SessionState>,
}

struct SessionState {
    log_level: LogLevel,
    /// The host's requests, by their number.
    expected: BTreeMap<u64, PendingRequest>,
    requests: u64,
    /// The client's requests that can be cancelled.
    in_flight: HashMap<RequestId, Arc<Cancellation>>,
    /// Open standalone streams, oldest first.
    listeners: Vec<Listening>,
    /// The generation of each list that the client knows.
    seen: [Option<u64>; ListKind::ALL.len()],
    /// The resources that the client follows.
    subscriptions: Subscriptions,
}

/// An open standalone stream, as the requests of its session see it.
struct Listening {
    stream: u64,
    sender: mpsc::Sender<String>,
}

impl SessionState {
    fn forget(&mut self, number: u64) -> Option<PendingRequest> {
        let forgotten = self.expected.remove(&number);
        self.rest();
        forgotten
    }

    /// Most sessions are idle most of the time: then they keep no room for what may come.
    fn rest(&mut self) {
        if self.expected.is_empty() {
            self.expected = BTreeMap::new();
        }
        if self.in_flight.is_empty() {
            self.in_flight = HashMap::new();
        }
    }
}

/// What is at its default is left out: every session has a row, and most clients declare little.
#[derive(Serialize, Deserialize)]
struct State {
    v: u8,
    tenant: String,
    requestor: String,
    version: String,
    features: u16,
    #[serde(default, skip_serializing_if = "is_default")]
    client_tasks: ClientTasks,
    #[serde(default, skip_serializing_if = "is_default")]
    interaction: Interaction,
    client_name: String,
    client_version: String,
    log_level: String,
    initialized: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    offered: AnnouncedLists,
    /// Where several hosts serve the client.
    #[serde(default, skip_serializing_if = "is_default")]
    subscriptions: String,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Session {
    /// A session under a new random id.
    pub(crate) fn open(settled: Negotiated, lists: ListGenerations) -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 24];
        getrandom::fill(&mut bytes)?;
        let session = Self::new(URL_SAFE_NO_PAD.encode(bytes), settled, LogLevel::Info, false)?;
        for kind in ListKind::ALL {
            session.saw(kind, lists);
        }
        Ok(session)
    }

    fn new(
        id: String,
        mut settled: Negotiated,
        log_level: LogLevel,
        initialized: bool,
    ) -> Result<Self, getrandom::Error> {
        for text in [&mut settled.client_name, &mut settled.client_version] {
            *text = text.chars().filter(|c| !c.is_control()).take(CLIENT_TEXT_CHARS_MAX).collect();
        }
        let mut birth = [0; 4];
        getrandom::fill(&mut birth)?;
        let live = SessionState {
            log_level,
            expected: BTreeMap::new(),
            requests: 0,
            in_flight: HashMap::new(),
            listeners: Vec::new(),
            seen: Default::default(),
            subscriptions: Subscriptions::default(),
        };
        Ok(Self {
            digest: Self::digest_of(&id),
            id,
            settled,
            initialized: SetOnce::new_with(initialized.then_some(())),
            birth: u32::from_be_bytes(birth),
            changes: AtomicU64::new(0),
            live: Mutex::new(live),
        })
    }

    /// The id that the client shows: 192 random bits in visible ASCII. A bearer secret: keep only its digest.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The first 16 bytes of the SHA-256 of the id.
    pub fn digest(&self) -> [u8; 16] {
        self.digest
    }

    /// The digest of an id that a client shows.
    pub fn digest_of(id: &str) -> [u8; 16] {
        let mut digest = [0; 16];
        digest.iter_mut().zip(Sha256::digest(id.as_bytes())).for_each(|(to, from)| *to = from);
        digest
    }

    /// The requestor that may use this session.
    pub fn requestor(&self) -> &Requestor {
        &self.settled.requestor
    }

    /// The negotiated revision, such as `2025-11-25`.
    pub fn protocol_version(&self) -> &'static str {
        self.settled.version.name()
    }

    /// Whether several messages may come in one array.
    pub fn takes_batches(&self) -> bool {
        self.settled.version.has_batches()
    }

    /// Name and version that the client gave for itself, cut to a readable length; not to be trusted.
    pub fn client(&self) -> (&str, &str) {
        (&self.settled.client_name, &self.settled.client_version)
    }

    /// Grows whenever [`Session::state`] is different from before.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Everything that has to survive a restart, without the id; at most 4,000 bytes.
    pub fn state(&self) -> Vec<u8> {
        let state = State {
            v: 1,
            tenant: self.settled.requestor.tenant.to_string(),
            requestor: self.settled.requestor.id.to_string(),
            version: self.settled.version.name().to_owned(),
            features: self.settled.features.0,
            client_tasks: self.settled.client_tasks,
            interaction: self.settled.interaction,
            client_name: self.settled.client_name.clone(),
            client_version: self.settled.client_version.clone(),
            log_level: level_name(self.log_level()).to_owned(),
            initialized: self.initialized.initialized(),
            offered: self.settled.offered,
            subscriptions: self.live.lock().subscriptions.encode(),
        };
        serde_json::to_vec(&state).unwrap_or_default()
    }

    /// Revives a session under the id that the client showed; `None` when the bytes make no sense.
    pub fn restore(id: &str, state: &[u8]) -> Option<Self> {
        let state: State = serde_json::from_slice(state).ok()?;
        let requestor =
            Requestor { tenant: TenantId::parse(&state.tenant)?, id: RequestorId::parse(&state.requestor)? };
        let settled = Negotiated {
            requestor,
            version: Version::named(&state.version)?,
            features: ClientFeatures(state.features),
            client_tasks: state.client_tasks,
            interaction: state.interaction,
            client_name: state.client_name,
            client_version: state.client_version,
            offered: state.offered,
        };
        if state.v != 1 {
            return None;
        }
        let session = Self::new(id.to_owned(), settled, level(&state.log_level)?, state.initialized).ok()?;
        session.live.lock().subscriptions = Subscriptions::decode(&state.subscriptions);
        Some(session)
    }

    /// Takes over what another host has settled of this session since: that its client is ready, which log level it
    /// set, and which resources it follows.
    pub fn adopt(&self, state: &[u8]) {
        let Ok(state) = serde_json::from_slice::<State>(state) else { return };
        let mut live = self.live.lock();
        if live.subscriptions.encode() != state.subscriptions {
            live.subscriptions = Subscriptions::decode(&state.subscriptions);
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        drop(live);
        if state.initialized {
            self.set_initialized();
        }
        if let Some(level) = level(&state.log_level)
            && level != self.log_level()
        {
            self.set_log_level(level);
        }
    }

    /// The session is over: its plain calls are cancelled, and nothing is expected of its client any more. Tasks go on.
    pub fn close(&self) {
        let mut live = self.live.lock();
        live.in_flight.values().for_each(|cancellation| cancellation.cancelled.notify_one());
        live.expected.clear();
    }

    /// Done once the session is closed, whose requests are cancelled then.
    #[cfg(feature = "testing")]
    pub fn closed(self: &Arc<Self>) -> impl Future<Output = ()> + Send + use<> {
        let request = self.begin(&RequestId::Text("closed".to_owned()));
        async move {
            match request {
                Some(request) => request.cancelled().await,
                None => std::future::pending().await,
            }
        }
    }

    pub(crate) fn log_level(&self) -> LogLevel {
        self.live.lock().log_level
    }

    /// Sets the least severe level that the client wants to read.
    pub fn set_log_level(&self, level: LogLevel) {
        self.live.lock().log_level = level;
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn set_initialized(&self) {
        if self.initialized.set(()).is_ok() {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Returns once the client said `notifications/initialized`: nothing is sent on our own before that.
    pub(crate) async fn ready(&self) {
        self.initialized.wait().await;
    }

    /// Returns once the client may be asked something for a call of its own: it said so, or it seems to have forgotten
    /// to.
    pub(crate) async fn askable(&self) {
        // Whoever calls a tool without a word is served as well, a little later.
        let _ = tokio::time::timeout(FORGOTTEN_AFTER, self.ready()).await;
    }

    /// A new request to the client: its number, and where its reply will come.
    pub(crate) fn expect(&self, input_request: Option<TaskInputRequest>) -> (u64, oneshot::Receiver<Reply>) {
        let (reply, receiver) = oneshot::channel();
        let mut live = self.live.lock();
        live.requests += 1;
        let number = live.requests;
        live.expected.insert(number, PendingRequest { reply, input_request });
        if live.expected.len() > EXPECTED_MAX {
            live.expected.pop_first();
        }
        (number, receiver)
    }

    /// The id of a request on the wire.
    pub(crate) fn request_id(&self, number: u64) -> String {
        format!("{:08x}-{number}", self.birth)
    }

    /// The request that a response belongs to; each only once. One that may not be taken goes on waiting.
    pub(crate) fn take_expected(
        &self,
        id: &RequestId,
        may: impl FnOnce(&PendingRequest) -> bool,
    ) -> Option<PendingRequest> {
        let RequestId::Text(text) = id else { return None };
        let (birth, number) = text.split_once('-')?;
        // Behind it there may be the names of the host and of the question, for other hosts.
        let number = number.split([HOST, '.']).next()?;
        if birth != format!("{:08x}", self.birth) {
            return None;
        }
        let number = number.parse().ok()?;
        let mut live = self.live.lock();
        live.expected.get(&number).filter(|expected| may(expected))?;
        live.forget(number)
    }

    /// Gives up on a request; whether it still waited.
    pub(crate) fn forget(&self, number: u64) -> bool {
        self.live.lock().forget(number).is_some()
    }

    /// Gives up on every request for one question of a task.
    pub(crate) fn forget_input_request(&self, task: TaskId, issued_key: &str) {
        let mut live = self.live.lock();
        live.expected.retain(|_, expected| {
            expected
                .input_request
                .as_ref()
                .is_none_or(|input_request| input_request.task != task || input_request.issued_key != issued_key)
        });
        live.rest();
    }

    /// Notes a request that can be cancelled; `None` when its id is in use.
    pub(crate) fn begin(self: &Arc<Self>, id: &RequestId) -> Option<InFlight> {
        let cancellation = Arc::<Cancellation>::default();
        let mut live = self.live.lock();
        if live.in_flight.contains_key(id) {
            return None;
        }
        live.in_flight.insert(id.clone(), Arc::clone(&cancellation));
        Some(InFlight { session: Arc::clone(self), id: id.clone(), cancellation })
    }

    /// The client cancels a request; whether it is known here and not over.
    pub(crate) fn cancel(&self, id: &RequestId) -> bool {
        let live = self.live.lock();
        let Some(cancellation) = live.in_flight.get(id) else { return false };
        cancellation.by_client.store(true, Ordering::Release);
        cancellation.cancelled.notify_one();
        true
    }

    /// Notes an open standalone stream.
    pub(crate) fn listen(self: &Arc<Self>, stream: u64) -> Listener {
        let (sender, to_say) = mpsc::channel(SAID_MAX);
        self.live.lock().listeners.push(Listening { stream, sender });
        Listener { session: Arc::clone(self), stream, to_say }
    }

    /// The standalone stream that carries messages: the newest.
    pub(crate) fn speaks_on(&self) -> Option<u64> {
        self.live.lock().listeners.last().map(|listening| listening.stream)
    }

    /// The sender of messages on that stream; `None` without a listener, or before the handshake is over.
    pub(crate) fn standalone(&self) -> Option<mpsc::Sender<String>> {
        let is_ready = self.initialized.initialized();
        self.live.lock().listeners.last().filter(|_| is_ready).map(|listening| listening.sender.clone())
    }

    /// Forgets which lists the client knows.
    pub(crate) fn unsee(&self) {
        self.live.lock().seen = Default::default();
    }

    /// Notes that the client knows this generation of a list; whether that is news.
    pub(crate) fn saw(&self, kind: ListKind, lists: ListGenerations) -> bool {
        let generation = Some(lists.of(kind));
        let mut live = self.live.lock();
        let [tools, resources, prompts] = &mut live.seen;
        let seen = match kind {
            ListKind::Tools => tools,
            ListKind::Resources => resources,
            ListKind::Prompts => prompts,
        };
        std::mem::replace(seen, generation) != generation
    }

    /// Whether the client was told that there is such a list.
    pub(crate) fn is_offered(&self, kind: ListKind) -> bool {
        match kind {
            ListKind::Tools => true,
            ListKind::Resources => self.settled.offered.resources,
            ListKind::Prompts => self.settled.offered.prompts,
        }
    }

    /// Follows a resource that this plugin has; false when the client follows as many as it may. It ends with the host:
    /// a client that comes back after a restart asks again. `is_shared`: other hosts are to know of it.
    pub(crate) fn subscribe(&self, uri: &str, plugin: &str, count_max: usize, is_shared: bool) -> bool {
        let is_added = self.live.lock().subscriptions.add(uri, plugin, count_max, is_shared);
        if is_added && is_shared {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        is_added
    }

    /// Follows a resource no more.
    pub(crate) fn unsubscribe(&self, uri: &str, is_shared: bool) {
        let is_removed = self.live.lock().subscriptions.remove(uri);
        if is_removed && is_shared {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Whether the client follows a resource that this plugin has.
    pub(crate) fn follows(&self, uri: &str, plugin: &str) -> bool {
        self.live.lock().subscriptions.has(uri, plugin)
    }
}

/// Tells a request that its client no longer waits for it.
#[derive(Default)]
struct Cancellation {
    cancelled: Notify,
    by_client: AtomicBool,
}

/// A request of the client, until this is dropped.
pub(crate) struct InFlight {
    session: Arc<Session>,
    id: RequestId,
    cancellation: Arc<Cancellation>,
}

impl InFlight {
    /// Returns when the client cancels the request, or its session is over.
    pub(crate) async fn cancelled(&self) {
        self.cancellation.cancelled.notified().await;
    }

    /// Whether it was the client that cancelled the request.
    pub(crate) fn is_cancelled_by_client(&self) -> bool {
        self.cancellation.by_client.load(Ordering::Acquire)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut live = self.session.live.lock();
        live.in_flight.remove(&self.id);
        live.rest();
    }
}

/// An open standalone stream, until this is dropped.
pub(crate) struct Listener {
    session: Arc<Session>,
    pub(crate) stream: u64,
    /// What requests of the session have to say on it.
    pub(crate) to_say: mpsc::Receiver<String>,
}

impl Listener {
    /// Whether messages go to this stream and not to another one of the session.
    pub(crate) fn speaks(&self) -> bool {
        self.session.speaks_on() == Some(self.stream)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.session.live.lock().listeners.retain(|listening| listening.stream != self.stream);
    }
}

mod subscriptions;
#[cfg(test)]
mod tests;
