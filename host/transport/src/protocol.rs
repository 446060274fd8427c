//! The real protocol behind the transports' seam.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::mcp;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::rights::Rights;
use bulkhead_protocol::{self as protocol, Exchange, Protocol};

/// A session together with the protocol that speaks on it.
pub struct Session {
    protocol: Protocol,
    session: Arc<protocol::Session>,
}

impl Session {
    fn of(protocol: &Protocol, session: Arc<protocol::Session>) -> Arc<Self> {
        Arc::new(Self { protocol: protocol.clone(), session })
    }
}

impl mcp::Session for Session {
    fn id(&self) -> &str {
        self.session.id()
    }

    fn version(&self) -> &str {
        self.session.protocol_version()
    }

    fn state(&self) -> Vec<u8> {
        self.session.state()
    }

    fn revision(&self) -> u64 {
        self.session.changes()
    }

    fn standalone(&self, rights: &Rights) -> Exchange {
        self.protocol.standalone(&self.session, rights.clone())
    }

    fn close(&self) {
        self.session.close();
    }
}

impl mcp::Mcp for Protocol {
    type Session = Session;

    fn receive(&self, peer: mcp::Peer<'_, Session>, message: Bytes) -> mcp::Received<Session> {
        let session = peer.session.as_ref().map(|session| Arc::clone(&session.session));
        let mcp::Peer { requestor, rights, declared, connection, full, reads_events, ends, .. } = peer;
        let peer = protocol::Peer { requestor, rights, session, declared, connection, full, reads_events, ends };
        match Self::receive(self, peer, message) {
            protocol::Received::Exchange(exchange) => mcp::Received::Exchange(exchange),
            protocol::Received::Opened { session, reply } => {
                mcp::Received::Opened { session: Session::of(self, session), reply }
            }
            protocol::Received::Accepted => mcp::Received::Accepted,
            protocol::Received::Settling(work) => mcp::Received::Settling(work),
            protocol::Received::Rejected { rejection, body } => mcp::Received::Rejected { rejection, body },
        }
    }

    fn aside<T: Send + 'static>(
        &self,
        requestor: &Requestor,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        Self::aside(self, requestor, work)
    }

    fn restore(&self, requestor: Requestor, id: &str, state: &[u8]) -> Option<Arc<Session>> {
        let session = protocol::Session::restore(id, state)?;
        // A row never speaks for anybody but the requestor under whose key it was found.
        (*session.requestor() == requestor).then(|| Session::of(self, Arc::new(session)))
    }

    fn close(&self) {
        Self::close(self);
    }

    fn versions(&self) -> &[&str] {
        &protocol::VERSIONS
    }
}
