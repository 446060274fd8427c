//! A message from outside: who sent it, what is declared beside it, and what became of it.
//!
//! Owns what transports and eras tell each other of a message. Must not know what a method is. Invariant: nothing in it
//! is a header or a token; a transport has read those.

use std::borrow::Cow;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::watch;

use super::error::Rejection;
use super::exchange::Exchange;
use super::modern::Connection;
use super::session::Session;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::rights::Rights;
use bulkhead_limits::Full;

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
    /// A limit of its unread answers that has hardly any room left: requests that may be answered at length are
    /// refused.
    pub full: Option<Full>,
    /// Whether the sender reads what is said before a response. If not, only responses reach it this way.
    pub reads_events: bool,
    /// Set to true when the credential of a subscription has ended, so that the subscription ends with a result.
    pub ends: Option<watch::Receiver<bool>>,
}

impl Peer<'_> {
    /// The sender of a message with nothing beside it.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn unheralded(requestor: Requestor, session: Option<Arc<Session>>) -> Self {
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

/// What a modern client has to repeat beside its message, so that intermediaries need not read it. As it was read: the
/// protocol compares it with the message.
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
    pub(crate) fn to_owned(&self) -> Declared<'static> {
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
    /// The answer to a question of a task, or what other hosts are told: nothing to say either, once this has been
    /// driven to its end.
    Settling(BoxFuture<'static, ()>),
    /// Refused before it became a request.
    Rejected { rejection: Rejection, body: String },
}
