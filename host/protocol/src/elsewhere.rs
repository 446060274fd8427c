//! What hosts that share a store tell one another of clients: a client's requests land at any of them.
//!
//! Owns the form of these messages, and when one is sent. Must not know how it travels. Invariants: a message is about
//! a session that its sender has found for the requestor of the request, so that no client answers, cancels or changes
//! anything for another; a host without others tells nothing.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::context::ProtocolContext;
use super::exchange::{Exchange, deferred, immediate};
use super::jsonrpc::RequestId;
use super::message::Received;
use super::session::{HOST, Reply, Session};
use crate::EncodedMessage;
use bulkhead_domain::task::NodeId;

/// Characters of an id that other hosts are asked to cancel.
const CANCELLED_CHARS_MAX: usize = 256;

/// One message.
#[derive(Serialize, Deserialize)]
pub(crate) struct ClientMessage {
    /// The digest of the id of the session that it is about.
    pub(crate) session: [u8; 16],
    pub(crate) news: ClientNews,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum ClientNews {
    /// The client has answered a request of the host that gets this.
    Replied {
        id: String,
        result: Option<Box<RawValue>>,
        error: String,
        /// Whether the client may answer questions of tasks.
        has_tasks: bool,
    },
    /// The client no longer waits for a request of its own.
    Cancelled(RequestId),
    /// What is to be known of the session is different.
    Settled(String),
    /// A call that stands still goes on at another host.
    GoesOn([u8; 16]),
}

/// The host that sent a request with this id.
fn sender_of(id: &str) -> Option<NodeId> {
    let (_, behind) = id.split_once(HOST)?;
    NodeId::parse(behind.split('.').next()?)
}

/// Tells the host that sent a request of its answer, which no request of this host waits for.
pub(crate) async fn pass_on(
    shared: &ProtocolContext,
    session: &Session,
    id: &RequestId,
    reply: Reply,
    has_tasks: bool,
) {
    let RequestId::Text(id) = id else { return };
    let Some(host) = sender_of(id).filter(|host| shared.tasks.host_name() != Some(*host)) else { return };
    let (result, error) = match reply {
        Ok(result) => (RawValue::from_string(result.into()).ok(), String::new()),
        Err(error) => (None, error.message),
    };
    let news = ClientNews::Replied { id: id.clone(), result, error, has_tasks };
    send(shared, Some(host), session.digest(), news).await;
}

/// Tells all other hosts something of a session.
pub(crate) async fn tell(shared: &ProtocolContext, session: &Session, news: ClientNews) {
    send(shared, None, session.digest(), news).await;
}

/// Tells all other hosts what is to be known of a session by now.
pub(crate) async fn tell_settled(shared: &ProtocolContext, session: &Session) {
    if let Ok(state) = String::from_utf8(session.state()) {
        tell(shared, session, ClientNews::Settled(state)).await;
    }
}

/// Tells all other hosts that a call goes on here from a state.
pub(crate) async fn tell_going_on(shared: &ProtocolContext, state_id: [u8; 16]) {
    send(shared, None, [0; 16], ClientNews::GoesOn(state_id)).await;
}

/// The response to a request that changed its session, once other hosts are told of that.
pub(crate) fn settled(shared: &Arc<ProtocolContext>, session: &Arc<Session>, response: EncodedMessage) -> Exchange {
    if shared.live_sessions.is_none() {
        return immediate(response);
    }
    let shared = Arc::clone(shared);
    let session = Arc::clone(session);
    deferred(async move {
        tell_settled(&shared, &session).await;
        response
    })
}

/// What becomes of a notification that cancels a request, or that changed its session.
pub(crate) fn notified(shared: &Arc<ProtocolContext>, session: &Arc<Session>, cancels: Option<RequestId>) -> Received {
    let is_short = |id: &RequestId| !matches!(id, RequestId::Text(text) if text.len() > CANCELLED_CHARS_MAX);
    if shared.live_sessions.is_none() || cancels.as_ref().is_some_and(|id| !is_short(id)) {
        return Received::Accepted;
    }
    let shared = Arc::clone(shared);
    let session = Arc::clone(session);
    Received::Settling(Box::pin(async move {
        match cancels {
            Some(id) => tell(&shared, &session, ClientNews::Cancelled(id)).await,
            None => tell_settled(&shared, &session).await,
        }
    }))
}

async fn send(shared: &ProtocolContext, to: Option<NodeId>, session: [u8; 16], news: ClientNews) {
    if shared.live_sessions.is_none() {
        return;
    }
    let Ok(message) = serde_json::to_vec(&ClientMessage { session, news }) else { return };
    if let Err(error) = shared.tasks.send_to_hosts(to, message).await {
        tracing::debug!(%error, "other hosts are not told of a client");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_names_the_host_that_sent_the_request() {
        let host = NodeId([0xab; 16]);
        for id in [format!("00000001-7~{host}"), format!("00000001-7~{host}.{}.0011", "c".repeat(32))] {
            assert_eq!(sender_of(&id), Some(host), "{id}");
        }
        for id in ["", "00000001-7", "00000001-7~", "00000001-7~zz", "~.~"] {
            assert_eq!(sender_of(id), None, "{id}");
        }
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let result = RawValue::from_string(r#"{"action":"accept"}"#.to_owned()).unwrap();
        let replied =
            ClientNews::Replied { id: "a".to_owned(), result: Some(result), error: String::new(), has_tasks: true };
        for news in [replied, ClientNews::Cancelled(RequestId::Integer(7)), ClientNews::GoesOn([3; 16])] {
            let bytes = serde_json::to_vec(&ClientMessage { session: [1; 16], news }).unwrap();
            let again: ClientMessage = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(again.session, [1; 16]);
            assert_eq!(serde_json::to_vec(&again).unwrap(), bytes);
        }
    }
}
