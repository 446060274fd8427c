//! What hosts that share a store tell one another beside the records: of lists and resources of plugins, and of
//! clients.
//!
//! Owns the form of a message, and those that wait to be sent. Must not send or read one. Invariants: nothing that must
//! not be lost is told this way; and a message that cannot be read, such as that of a newer host, is passed over.

use std::sync::OnceLock;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use bulkhead_calls::ListKind;
use bulkhead_domain::requestor::{Requestor, RequestorId, TenantId};
use bulkhead_domain::task::PluginVersion;

/// Messages of plugins to other hosts that may wait to be sent; a further one is dropped.
const OUTBOX_MAX: usize = 256;
/// Messages of plugins that other hosts get at once.
const SENT_AT_ONCE_MAX: usize = 64;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HostMessage {
    /// A version says that a list of its own is different now.
    ListChanged { plugin: String, digest: [u8; 32], kind: u8 },
    /// A plugin says that a resource is; `only`: to this requestor alone.
    ResourceUpdated { plugin: String, uri: String, only: Option<[[u8; 16]; 2]> },
    /// What the protocol has to tell of a client.
    Client(Vec<u8>),
}

impl HostMessage {
    pub(crate) fn list_changed(version: &PluginVersion, kind: ListKind) -> Option<Self> {
        let kind = u8::try_from(ListKind::ALL.iter().position(|known| *known == kind)?).ok()?;
        Some(Self::ListChanged { plugin: version.name.clone(), digest: version.digest, kind })
    }

    pub(crate) fn resource_updated(plugin: String, uri: String, only: Option<&Requestor>) -> Self {
        Self::ResourceUpdated { plugin, uri, only: only.map(|only| [only.tenant.0, only.id.0]) }
    }

    /// As other hosts get them.
    pub(crate) fn encode(messages: &[Self]) -> Option<Vec<u8>> {
        postcard::to_extend(messages, Vec::new()).ok()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Vec<Self> {
        postcard::from_bytes(bytes).unwrap_or_default()
    }
}

/// The list that a message names.
pub(crate) fn list_kind(kind: u8) -> Option<ListKind> {
    ListKind::ALL.get(usize::from(kind)).copied()
}

/// The requestor that a message names.
pub(crate) fn requestor(parts: [[u8; 16]; 2]) -> Requestor {
    let [tenant, id] = parts;
    Requestor { tenant: TenantId(tenant), id: RequestorId(id) }
}

/// Messages of plugins that wait to be sent.
pub(crate) struct Outbox {
    sender: mpsc::Sender<HostMessage>,
    waiting: Mutex<Option<mpsc::Receiver<HostMessage>>>,
}

impl Default for Outbox {
    fn default() -> Self {
        let (sender, waiting) = mpsc::channel(OUTBOX_MAX);
        Self { sender, waiting: Mutex::new(Some(waiting)) }
    }
}

impl Outbox {
    /// Has a message sent, unless too many wait.
    pub(crate) fn put(&self, message: Option<HostMessage>) {
        if let Some(message) = message {
            let _ = self.sender.try_send(message);
        }
    }

    /// What waits, for the one who sends it.
    pub(crate) fn take_waiting(&self) -> Option<mpsc::Receiver<HostMessage>> {
        self.waiting.lock().take()
    }
}

/// Waits for messages, and takes those that are there.
pub(crate) async fn next_of(waiting: &mut mpsc::Receiver<HostMessage>) -> Vec<HostMessage> {
    let mut messages = Vec::new();
    waiting.recv_many(&mut messages, SENT_AT_ONCE_MAX).await;
    messages.dedup();
    messages
}

/// Reads what other hosts tell of clients.
pub type ClientMessageReader = Box<dyn Fn(&[u8]) + Send + Sync>;
pub(crate) type ClientMessages = OnceLock<ClientMessageReader>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written_and_nothing_else_is() {
        let requestor_before = Requestor { tenant: TenantId([1; 16]), id: RequestorId([2; 16]) };
        let version = PluginVersion { name: "p".to_owned(), digest: [3; 32] };
        let messages = vec![
            HostMessage::list_changed(&version, ListKind::Prompts).unwrap(),
            HostMessage::resource_updated("p".to_owned(), "a://b".to_owned(), Some(&requestor_before)),
            HostMessage::Client(vec![1, 2]),
        ];
        let bytes = HostMessage::encode(&messages).unwrap();
        assert_eq!(HostMessage::decode(&bytes), messages);
        assert_eq!(HostMessage::decode(&bytes[..bytes.len() - 1]), []);
        assert_eq!(HostMessage::decode(&[1, 9]), [], "of a newer host");
        assert_eq!(list_kind(2), Some(ListKind::Prompts));
        assert_eq!(list_kind(3), None);
        assert_eq!(requestor([[1; 16], [2; 16]]), requestor_before);
    }

    #[tokio::test]
    async fn messages_that_wait_are_bounded_and_those_of_a_loop_are_one() {
        let outbox = Outbox::default();
        for _ in 0..2 * OUTBOX_MAX {
            outbox.put(Some(HostMessage::Client(Vec::new())));
        }
        let mut waiting = outbox.take_waiting().unwrap();
        assert_eq!(waiting.len(), OUTBOX_MAX);
        assert_eq!(next_of(&mut waiting).await.len(), 1);
        assert_eq!(waiting.len(), OUTBOX_MAX - SENT_AT_ONCE_MAX);
    }
}
