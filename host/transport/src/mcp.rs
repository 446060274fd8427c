//! What the transports ask of the protocol.
//!
//! Owns the seam and nothing else: HTTP and stdio are written against it, so that their tests can script every frame.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::{oneshot, watch};

use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::rights::Rights;
use bulkhead_limits::Full;
use bulkhead_protocol::{Connection, Declared, Exchange, Rejection};

/// A legacy session, as far as a transport needs to know it.
pub trait Session: Send + Sync + 'static {
    /// Visible ASCII, at least 128 random bits.
    fn id(&self) -> &str;

    /// The negotiated protocol version.
    fn version(&self) -> &str;

    /// What has to be kept to restore the session after a restart.
    fn state(&self) -> Vec<u8>;

    /// Moves whenever [`state`](Self::state) changes, so that unchanged sessions are not written again.
    fn revision(&self) -> u64;

    /// Messages that belong to no request. What was not taken stays for the next stream; dropping one loses nothing.
    /// The rights are the reader's.
    fn standalone(&self, rights: &Rights) -> Exchange;

    /// The session is over: whatever it holds may go.
    fn close(&self);
}

/// Who sent a message.
pub struct Peer<'a, S> {
    pub requestor: Requestor,
    pub rights: Rights,
    pub session: Option<Arc<S>>,
    /// What the headers say about the message; `None` where there are none.
    pub declared: Option<Declared<'a>>,
    /// Set where several messages share one connection.
    pub connection: Option<Arc<Connection>>,
    /// A limit of its unread answers that has hardly any room left.
    pub full: Option<Full>,
    /// Whether the client reads what is said before a response.
    pub reads_events: bool,
    /// Set for a subscription that is to end with a result when its credential does; becomes true then.
    pub ends: Option<watch::Receiver<bool>>,
}

/// What became of a message.
pub enum Received<S> {
    /// A request: its frames.
    Exchange(Exchange),
    /// A new session and the reply to the request that opened it.
    Opened { session: Arc<S>, reply: String },
    /// Nothing to say.
    Accepted,
    /// Nothing to say once this is done; it has to be driven to its end, whether or not anybody waits for it.
    Settling(BoxFuture<'static, ()>),
    /// Refused before it became a request.
    Rejected { rejection: Rejection, body: String },
}

/// The protocol.
pub trait Mcp: Send + Sync + 'static {
    type Session: Session;

    /// Takes one message. Long work belongs into the exchange that is returned, not here: stdio reads its next line only when
    /// this is done.
    fn receive(&self, peer: Peer<'_, Self::Session>, message: Bytes) -> Received<Self::Session>;

    /// Does work that grows with what a requestor sent, in its tenant's turn, on threads that serve nobody's connection. Nothing
    /// comes if it panics, or the host is going down.
    fn aside<T: Send + 'static>(
        &self,
        requestor: &Requestor,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T>;

    /// A session as it was when its state was saved; `None` if the state cannot be understood.
    fn restore(&self, requestor: Requestor, id: &str, state: &[u8]) -> Option<Arc<Self::Session>>;

    /// The host stops: ends what would last as long as its client listens. Calls go on.
    fn close(&self) {}

    /// Protocol versions that a client may name in a header, newest first.
    fn versions(&self) -> &[&str];
}
