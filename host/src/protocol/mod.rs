//! EDGE: MCP without HTTP.
//!
//! Owns the wire: JSON-RPC, both eras' methods, field names and codes, and how a task is shown. Must not see a header, a token
//! or a byte of storage. Invariant: every request gets exactly one final frame (unless the client cancelled it), and nothing
//! internal has a way into one.

mod cursor;
mod error;
mod exchange;
mod jsonrpc;
mod legacy;
mod modern;
mod session;
mod timestamp;
mod wire;

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use serde_json::value::RawValue;

use crate::domain::requestor::Requestor;
use crate::domain::task::Era;
use crate::tasks::Tasks;
use jsonrpc::Message;

pub use legacy::METHODS;
pub use session::Session;

/// One JSON-RPC message for the client, on one line.
#[derive(Clone, Debug)]
pub struct Frame {
    pub message: String,
    /// The response that ends its exchange.
    pub last: bool,
}

/// The frames of one request, in order; the last one has `last` set and nothing follows it. A request that its client cancelled
/// (`notifications/cancelled`) ends without a last frame: nothing must be answered then.
///
/// Dropping it before that abandons the request: what that means (cancel a plain modern call, nothing for a legacy one) is
/// decided by who drops it. A plain call works only while its exchange is polled, and stops at once when it is dropped.
pub type Exchange = Pin<Box<dyn Stream<Item = Frame> + Send>>;

/// Who sent a message.
#[derive(Clone)]
pub struct Peer {
    pub requestor: Requestor,
    /// The legacy session that the message belongs to, if the transport found one.
    pub session: Option<Arc<Session>>,
}

/// What became of a message.
pub enum Received {
    /// A request: its frames. Drive it to the end.
    Exchange(Exchange),
    /// `initialize`: a new session and the reply to it.
    Opened { session: Arc<Session>, reply: String },
    /// A notification or a response: nothing to say.
    Accepted,
    /// Refused before it became a request.
    Rejected { rejection: Rejection, body: String },
}

/// Why a message was refused as a whole; the transport makes a status of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// Not JSON, not JSON-RPC, a batch, a bad id, a revision that is not spoken.
    Malformed,
    /// A legacy request without a session.
    SessionRequired,
    /// A method that the modern era does not know.
    UnknownMethod,
    /// A rate or quota is exhausted, in the modern era.
    TooMany,
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
}

/// The protocol; cheap to clone.
#[derive(Clone)]
pub struct Protocol {
    shared: Arc<Shared>,
}

/// What every exchange needs.
struct Shared {
    tasks: Tasks,
    options: ProtocolOptions,
    carriers: Arc<legacy::Carriers>,
}

impl Protocol {
    /// The protocol in front of a task engine.
    pub fn new(tasks: Tasks, options: ProtocolOptions) -> Self {
        Self { shared: Arc::new(Shared { tasks, options, carriers: Arc::default() }) }
    }

    /// Takes one message: the body of a POST, or a line of stdin.
    pub async fn receive(&self, peer: Peer, message: Bytes) -> Received {
        let message = match jsonrpc::parse(&message) {
            Ok(message) => message,
            Err(malformed) => {
                let body = jsonrpc::error_response(malformed.id.as_ref(), &malformed.error);
                return Received::Rejected { rejection: Rejection::Malformed, body };
            }
        };
        match (era_of(&message), message) {
            (Era::Modern, message) => modern::receive(&message),
            (Era::Legacy, Message::Request { id, method, params }) => {
                legacy::request(&self.shared, &peer, id, &method, params)
            }
            (Era::Legacy, Message::Notification { method, params }) => legacy::notification(&peer, &method, params),
            (Era::Legacy, Message::Response { id, outcome }) => {
                legacy::response(&self.shared, &peer, &id, outcome).await
            }
        }
    }

    /// What the host says to a session outside of any request: the legacy GET stream, or stdout. It never ends by itself.
    ///
    /// Nothing is kept for a session that nobody listens to: questions and a changed tool list are said when somebody does
    /// again. When a session has several of these, the newest speaks. Drop it when its reader is gone, so that what it
    /// carried can go elsewhere.
    pub fn standalone(&self, session: &Arc<Session>) -> Exchange {
        legacy::standalone(&self.shared, session)
    }
}

/// The member of `params._meta` that makes a message a modern one.
const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// Which era a message belongs to: what it says itself decides, never the connection.
fn era_of(message: &Message<'_>) -> Era {
    let (method, params) = match message {
        Message::Request { method, params, .. } | Message::Notification { method, params } => (method, *params),
        Message::Response { .. } => return Era::Legacy,
    };
    let modern = matches!(method.as_ref(), "server/discover" | "subscriptions/listen")
        || params.is_some_and(|params| declared_version(params).is_some());
    if modern { Era::Modern } else { Era::Legacy }
}

/// The version in `params._meta`, whatever its type.
fn declared_version(params: &RawValue) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Params<'a> {
        #[serde(borrow, rename = "_meta")]
        meta: Option<Meta<'a>>,
    }
    #[derive(serde::Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
        version: Option<&'a RawValue>,
    }
    // Nearly every message is spared the second reading.
    if !params.get().contains(PROTOCOL_VERSION) {
        return None;
    }
    let raw = serde_json::from_str::<Params<'_>>(params.get()).ok()?.meta?.version?;
    Some(serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().to_owned()))
}
