//! EDGE: MCP without HTTP.
//!
//! Owns the wire: JSON-RPC, both eras' methods, field names and codes, and how a task is shown. Must not see a header, a token
//! or a byte of storage. Invariant: every request gets exactly one final frame (unless the client cancelled it), and nothing
//! internal has a way into one.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

mod arguments;
mod batch;
mod capabilities;
mod checked_call;
mod cursor;
mod digest;
mod encoded_message;
mod envelope;
mod error;
mod exchange;
mod idempotency;
mod input_requests;
mod inspect_json;
mod jsonrpc;
mod legacy;
mod methods;
mod modern;
mod notifications;
mod operation;
mod reader;
mod request_context;
mod rights;
mod sep1686;
mod server_features;
mod session;
mod task_calls;
#[cfg(test)]
mod tests;
#[cfg(all(fuzzing, not(test)))]
#[expect(dead_code, unused_imports, reason = "the tests are not there")]
mod tests;
mod tool_lists;
mod tool_search;
mod trace;
mod unknown;
mod wire;

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::Stream;
use futures::future::BoxFuture;
use tokio::sync::{oneshot, watch};

use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::rights::Rights;
use bulkhead_domain::task::Era;
use bulkhead_limits::Full;
use bulkhead_metrics::Metrics;
use bulkhead_tasks::Tasks;
use jsonrpc::Message;
use tool_lists::{Offered, ToolLists};

pub use arguments::INLINE_BYTES_MAX;
pub use batch::{BATCH_MESSAGES_MAX, Batch, BatchReceived};
pub use encoded_message::{EncodedMessage, Pieces, SMALL_BYTES};
pub use envelope::Envelope;
pub use input_requests::read_answer;
pub use inspect_json::{output_json, prompt_json, resource_json, template_json, tool_json};
pub use methods::method_names;
pub use modern::Connection;
pub use session::Session;
pub use task_calls::{OfferedTool, TaskCallError, TaskCalls};
#[cfg(any(test, fuzzing))]
pub use tests::fuzz;
pub use tool_lists::{TOOLS_PER_PAGE, ToolListing};
pub use unknown::nearest_name;

/// One JSON-RPC message for the client.
#[derive(Clone, Debug)]
pub struct Frame {
    pub message: EncodedMessage,
    /// The response that ends its exchange.
    pub last: bool,
    /// Set on the response to a modern request that was refused: the status, where one can still be chosen.
    pub rejection: Option<Rejection>,
}

/// The frames of one request, in order; the last one has `last` set and nothing follows it. A request that its client cancelled
/// (`notifications/cancelled`) ends without a last frame: nothing must be answered then.
///
/// Dropping it before that abandons the request. A plain call works only while its exchange is polled; when it is dropped, the
/// call stops (a modern one after the grace period of a guest that looks for signals). So the transport drops the exchange of a
/// modern request when its client is gone, which cancels it, and goes on with that of a legacy one. Tasks go on in any case.
pub type Exchange = Pin<Box<dyn Stream<Item = Frame> + Send>>;

/// Who sent a message.
#[derive(Clone)]
pub struct Peer<'a> {
    pub requestor: Requestor,
    /// What its credential is good for.
    pub rights: Rights,
    /// The legacy session that the message belongs to, if the transport found one.
    pub session: Option<Arc<Session>>,
    /// Headers that declare what the message is; only HTTP has them.
    pub declared: Option<Declared<'a>>,
    /// The header `traceparent` of the request that the message came with, if it has one.
    pub traceparent: Option<&'a str>,
    /// Whose requests can be cancelled by a notification: where several messages share one connection (stdio).
    pub connection: Option<Arc<Connection>>,
    /// A limit of its unread answers that has hardly any room left: requests that may be answered at length are refused.
    pub full: Option<Full>,
    /// Whether the sender reads what is said before a response. If not, only responses reach it this way.
    pub reads_events: bool,
    /// Set to true when the credential of a subscription has ended, so that the subscription ends with a result.
    pub ends: Option<watch::Receiver<bool>>,
}

impl Peer<'_> {
    /// The sender of a message with nothing beside it.
    #[cfg(any(test, fuzzing))]
    fn unheralded(requestor: Requestor, session: Option<Arc<Session>>) -> Self {
        let rights = Rights::default();
        let declared = None;
        let traceparent = None;
        let connection = None;
        Self {
            requestor,
            rights,
            session,
            declared,
            traceparent,
            connection,
            full: None,
            reads_events: true,
            ends: None,
        }
    }
}

/// What a modern client has to repeat beside its message, so that intermediaries need not read it. As it was read: the protocol
/// compares it with the message.
#[derive(Clone, Debug, Default)]
pub struct Declared<'a> {
    pub protocol_version: Option<Cow<'a, str>>,
    pub method: Option<Cow<'a, str>>,
    pub name: Option<Cow<'a, str>>,
    /// By name (in any case), for each argument that its tool wants repeated.
    pub params: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl Declared<'_> {
    /// An owned copy, which outlives the request that it was read from.
    fn to_owned(&self) -> Declared<'static> {
        let one = |value: &Cow<'_, str>| Cow::Owned(value.clone().into_owned());
        Declared {
            protocol_version: self.protocol_version.as_ref().map(one),
            method: self.method.as_ref().map(one),
            name: self.name.as_ref().map(one),
            params: self.params.iter().map(|(name, value)| (one(name), one(value))).collect(),
        }
    }
}

/// What became of a message.
pub enum Received {
    /// A request: its frames. Drive it to the end.
    Exchange(Exchange),
    /// `initialize`: a new session and the reply to it.
    Opened { session: Arc<Session>, reply: String },
    /// A notification or a response: nothing to say.
    Accepted,
    /// The answer to a question of a task: nothing to say either, once this has been driven to its end.
    Settling(BoxFuture<'static, ()>),
    /// Refused before it became a request.
    Rejected { rejection: Rejection, body: String },
}

/// Why a message was refused as a whole; the transport makes a status of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// Not JSON, not JSON-RPC, a batch where there are none, a bad id, a revision that is not spoken.
    Malformed,
    /// A modern request that cannot be served as it is: its `_meta`, what was declared beside it, its revision, or a capability
    /// that its client lacks.
    Unserved,
    /// A legacy request without a session.
    SessionRequired,
    /// A method that the modern era does not know.
    UnknownMethod,
    /// A rate or quota is exhausted, in the modern era.
    TooMany { retry_after_ms: Option<u64> },
    /// The credential is good, but not for this; all of these scopes are needed in addition. The tool is the one that was to be called.
    Forbidden { scopes: Arc<[String]>, tool: Option<Box<str>> },
}

/// The revisions that are spoken, newest first.
pub const VERSIONS: [&str; 4] =
    [modern::VERSION, session::Version::V2025_11_25.name(), session::Version::V2025_06_18.name(), BATCH_VERSION];

/// The one revision that has batches.
pub const BATCH_VERSION: &str = session::Version::V2025_03_26.name();

/// Whether a name of a revision is that of one without sessions.
pub fn is_modern_version(name: &str) -> bool {
    modern::is_modern_version(name)
}

/// How the host presents itself, and what it needs to speak.
#[derive(Clone, Debug)]
pub struct ProtocolOptions {
    pub server_name: String,
    pub server_title: Option<String>,
    pub server_version: String,
    /// What a client may tell its model about this host.
    pub instructions: Option<String>,
    /// Authenticates cursors; the same after a restart, so that cursors stay good.
    pub cursor_key: [u8; 32],
    /// How long a request to a client (elicitation, sampling, roots) waits for its response.
    pub request_timeout_ms: u64,
    pub metrics: Metrics,
}

/// The protocol; cheap to clone.
#[derive(Clone)]
pub struct Protocol {
    shared: Arc<ProtocolContext>,
}

/// What every exchange needs.
struct ProtocolContext {
    tasks: Tasks,
    options: ProtocolOptions,
    stream_router: Arc<legacy::StreamRouter>,
    modern: modern::State,
    tool_lists: ToolLists,
    /// A request that takes longer is a warning in the log; 0: none is.
    slow_ms: AtomicU64,
}

impl ProtocolContext {
    /// What is offered to a requestor at this moment. A request takes it once, as it does the catalog.
    fn offered(&self, requestor: &Requestor, rights: &Rights) -> Offered {
        let Offered { catalog, search, page } = self.tool_lists.narrowed(rights, self.tasks.catalog(requestor));
        Offered { catalog: rights::visible(rights, catalog), search, page }
    }
}

impl Protocol {
    /// The protocol in front of a task engine.
    pub fn new(tasks: Tasks, options: ProtocolOptions) -> Self {
        let modern = modern::State::new(&options);
        let stream_router = Arc::default();
        let tool_lists = ToolLists::default();
        Self {
            shared: Arc::new(ProtocolContext {
                tasks,
                options,
                stream_router,
                modern,
                tool_lists,
                slow_ms: AtomicU64::new(0),
            }),
        }
    }

    /// Warns in the log of requests that take longer than this from now on; 0: of none.
    pub fn set_slow_ms(&self, slow_ms: u64) {
        self.shared.slow_ms.store(slow_ms, Ordering::Relaxed);
    }

    /// Lists tools in this way from now on, and tells everybody whose lists are others by that.
    pub fn set_tool_listing(&self, listing: ToolListing) {
        self.shared.tool_lists.set(listing);
        self.shared.tasks.lists_changed();
    }
}

/// The protocol, as the transports see it.
pub trait Mcp: Send + Sync + 'static {
    /// Takes one message: the body of a POST, or a line of stdin. Long work belongs into the exchange that is returned, not here: stdio
    /// reads its next line only when this is done.
    fn receive(&self, peer: Peer<'_>, envelope: &Envelope) -> Received;

    /// Does work that grows with what a requestor sent, in its tenant's turn, on threads that serve no connection. Nothing comes if it
    /// panics, or the host is going down; when the receiver is dropped before its turn, the work is not done.
    fn offload(&self, requestor: &Requestor, work: Box<dyn FnOnce() + Send>) -> oneshot::Receiver<()>;

    /// The messages to a session outside of any request: the legacy GET stream, or stdout. It never ends by itself.
    ///
    /// Nothing is kept for a session without a reader: outstanding input requests and changed lists are sent when one comes
    /// back. When a session has several of these streams, only the newest carries messages. Drop it when its reader is gone, so that
    /// its messages can take another stream. `rights` are the reader's.
    fn standalone(&self, session: &Arc<Session>, rights: Rights) -> Exchange;

    /// Ends the streams that last as long as their client listens: the host is going down. Calls go on.
    fn close(&self);
}

impl Mcp for Protocol {
    fn receive(&self, peer: Peer<'_>, envelope: &Envelope) -> Received {
        let message = match envelope.message() {
            Ok(message) => message,
            Err(malformed) => {
                let body = jsonrpc::error_body(malformed.id.as_ref(), &malformed.error);
                return Received::Rejected { rejection: Rejection::Malformed, body };
            }
        };
        if let (Some(connection), Message::Notification { method, params }) = (&peer.connection, &message)
            && connection.cancelled(method, *params)
        {
            return Received::Accepted;
        }
        let era = era_of(envelope, peer.declared.as_ref());
        if era == Era::Legacy
            && let Some(refusal) = unspoken(peer.declared.as_ref())
        {
            return refusal;
        }
        match (era, message) {
            (Era::Modern, message) => operation::followed(&self.shared, &peer, era, &message, |target| {
                modern::receive(&self.shared, &peer, target, message)
            }),
            (Era::Legacy, Message::Request { id, method, params }) => {
                operation::followed(&self.shared, &peer, era, &message, |target| {
                    legacy::request(&self.shared, &peer, target, id, method, params)
                })
            }
            // A line cannot be refused like a POST: what is no request is never answered there.
            (Era::Legacy, Message::Notification { .. }) if peer.connection.is_some() && peer.session.is_none() => {
                Received::Accepted
            }
            (Era::Legacy, Message::Notification { method, params }) => legacy::notification(&peer, method, params),
            (Era::Legacy, Message::Response { id, outcome }) => legacy::response(&self.shared, &peer, id, outcome),
        }
    }

    fn offload(&self, requestor: &Requestor, work: Box<dyn FnOnce() + Send>) -> oneshot::Receiver<()> {
        self.shared.tasks.offload(requestor, work)
    }

    fn standalone(&self, session: &Arc<Session>, rights: Rights) -> Exchange {
        legacy::standalone(&self.shared, session, rights)
    }

    fn close(&self) {
        self.shared.modern.close();
    }
}

/// Refuses a message of the legacy era that is declared to be of a revision that is not spoken.
fn unspoken(declared: Option<&Declared<'_>>) -> Option<Received> {
    let version = declared?.protocol_version.as_deref()?.trim();
    if VERSIONS.contains(&version) {
        return None;
    }
    let requested: String = version.chars().take(64).collect();
    let body = jsonrpc::error_body(None, &error::RpcError::unsupported_version(&VERSIONS, &requested));
    Some(Received::Rejected { rejection: Rejection::Malformed, body })
}

/// The era of a message. Its headers or its body decide, never the connection.
fn era_of(envelope: &Envelope, declared: Option<&Declared<'_>>) -> Era {
    // Looked at first, because it is shorter.
    let declared = declared.and_then(|declared| declared.protocol_version.as_deref());
    if declared.is_some_and(modern::is_modern_version) { Era::Modern } else { envelope.era() }
}
