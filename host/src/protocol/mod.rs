//! EDGE: MCP without HTTP.
//!
//! Owns the wire: JSON-RPC, both eras' methods, field names and codes, and how a task is shown. Must not see a header, a token
//! or a byte of storage. Invariant: every request gets exactly one final frame, and nothing internal has a way into one.

use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;

use crate::domain::requestor::Requestor;

/// One JSON-RPC message for the client, on one line.
#[derive(Clone, Debug)]
pub struct Frame {
    pub message: String,
    /// The response that ends its exchange.
    pub last: bool,
}

/// The frames of one request, in order; the last one has `last` set and nothing follows it.
///
/// Dropping it before that abandons the request: what that means (cancel a plain modern call, nothing for a legacy one) is
/// decided by who drops it.
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
    /// Not JSON, not JSON-RPC, a batch, a bad id.
    Malformed,
    /// A legacy request without a session.
    SessionRequired,
    /// A method that the modern era does not know.
    UnknownMethod,
    /// A rate or quota is exhausted, in the modern era.
    TooMany,
}

/// (to be moved to protocol/session.rs)
pub struct Session {}
