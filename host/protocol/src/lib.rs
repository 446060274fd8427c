//! EDGE: MCP without HTTP.
//!
//! Owns the wire: JSON-RPC, both eras' methods, field names and codes, and how a task is shown. Must not see a header,
//! a token or a byte of storage. Invariant: every request gets exactly one final frame (unless the client cancelled
//! it), and nothing internal has a way into one.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

mod apps;
mod arguments;
mod batch;
mod capabilities;
mod checked_call;
mod context;
mod cursor;
mod digest;
mod elsewhere;
mod encoded_message;
mod envelope;
mod error;
mod exchange;
mod hearing;
mod idempotency;
mod input_requests;
mod inspect_json;
mod jsonrpc;
mod legacy;
mod live_sessions;
mod message;
mod methods;
mod modern;
mod notifications;
mod operation;
mod page_client;
mod reader;
mod request_context;
mod rights;
mod sep1686;
mod server_features;
mod session;
mod skills;
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
mod version;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::oneshot;

use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::rights::Rights;
use bulkhead_domain::task::Era;
use bulkhead_tasks::Tasks;
use context::ProtocolContext;
use jsonrpc::Message;
use tool_lists::ToolLists;

pub use arguments::INLINE_BYTES_MAX;
pub use batch::{BATCH_MESSAGES_MAX, Batch, BatchReceived};
pub use context::ProtocolOptions;
pub use encoded_message::{EncodedMessage, Pieces, SMALL_BYTES};
pub use envelope::Envelope;
pub use error::Rejection;
pub use exchange::{Exchange, Frame};
pub use input_requests::read_answer;
pub use inspect_json::{output_json, prompt_json, resource_json, template_json, tool_json};
pub use message::{Declared, Peer, Received};
pub use methods::method_names;
pub use modern::Connection;
pub use page_client::{MayBecomeTask, PageAnswer, PageClient, PageList, PageRequest};
pub use session::Session;
pub use task_calls::{OfferedTool, TaskCallError, TaskCalls};
#[cfg(any(test, fuzzing))]
pub use tests::fuzz;
pub use tool_lists::{TOOLS_PER_PAGE, ToolListing};
pub use unknown::nearest_name;
pub use version::{BATCH_VERSION, VERSIONS, is_modern_version};

/// The protocol; cheap to clone.
#[derive(Clone)]
pub struct Protocol {
    shared: Arc<ProtocolContext>,
}

impl Protocol {
    /// The protocol in front of a task engine.
    pub fn new(tasks: Tasks, options: ProtocolOptions) -> Self {
        let modern = modern::State::new(&options);
        let stream_router = Arc::default();
        let tool_lists = ToolLists::default();
        let live_sessions = tasks.is_shared().then(live_sessions::LiveSessions::default);
        let shared = Arc::new(ProtocolContext {
            tasks,
            options,
            stream_router,
            modern,
            tool_lists,
            slow_ms: AtomicU64::new(0),
            live_sessions,
        });
        if shared.live_sessions.is_some() {
            let hearing = Arc::downgrade(&shared);
            shared.tasks.hear_of_clients(Box::new(move |message| {
                if let Some(shared) = hearing.upgrade() {
                    hearing::hear(&shared, message);
                }
            }));
        }
        Self { shared }
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
    /// Takes one message: the body of a POST, or a line of stdin. Long work belongs into the exchange that is returned,
    /// not here: stdio reads its next line only when this is done.
    fn receive(&self, peer: Peer<'_>, envelope: &Envelope) -> Received;

    /// Does work that grows with what a requestor sent, in its tenant's turn, on threads that serve no connection.
    /// Nothing comes if it panics, or the host is going down; when the receiver is dropped before its turn, the work is
    /// not done.
    fn offload(&self, requestor: &Requestor, work: Box<dyn FnOnce() + Send>) -> oneshot::Receiver<()>;

    /// The messages to a session outside of any request: the legacy GET stream, or stdout. It never ends by itself.
    ///
    /// Nothing is kept for a session without a reader: outstanding input requests and changed lists are sent when one
    /// comes back. When a session has several of these streams, only the newest carries messages. Drop it when its
    /// reader is gone, so that its messages can take another stream. `rights` are the reader's.
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
        // Headers or the body decide, never the connection; headers are looked at first, because they are shorter.
        let version = peer.declared.as_ref().and_then(|declared| declared.protocol_version.as_deref());
        let era = if version.is_some_and(is_modern_version) { Era::Modern } else { envelope.era() };
        if let Some((live_sessions, session)) = self.shared.live_sessions.as_ref().zip(peer.session.as_ref()) {
            live_sessions.note(session);
        }
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
            (Era::Legacy, Message::Notification { method, params }) => {
                legacy::notification(&self.shared, &peer, method, params)
            }
            (Era::Legacy, Message::Response { id, outcome }) => legacy::response(&self.shared, &peer, id, outcome),
        }
    }

    fn offload(&self, requestor: &Requestor, work: Box<dyn FnOnce() + Send>) -> oneshot::Receiver<()> {
        self.shared.tasks.offload(requestor, work)
    }

    fn standalone(&self, session: &Arc<Session>, rights: Rights) -> Exchange {
        if let Some(live_sessions) = &self.shared.live_sessions {
            live_sessions.note(session);
        }
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
