//! A batch: several messages in one array, which revision 2025-03-26 has and no other.
//!
//! Owns where its messages begin and end, and which messages may not be in one. Must not charge for them: the
//! transports do that before the first of them is received. Invariant: a batch is bounded before its messages are read,
//! and each of its requests gets one response.

use std::fmt;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::envelope::{Envelope, span_of};
use super::error::RpcError;
use super::jsonrpc::{Message, error_body};
use super::reader::reason;
use super::{Exchange, Mcp, Peer, Received};
use bulkhead_domain::task::Era;

/// Messages of one batch. Each of them is charged, and all may run at once.
pub const BATCH_MESSAGES_MAX: usize = 50;

/// The messages of one array.
pub struct Batch {
    messages: Vec<Envelope>,
}

/// What became of the messages of a batch.
#[derive(Default)]
pub struct BatchReceived {
    /// Requests, with their ids as they are written. Drive each to its end.
    pub exchanges: Vec<(Option<String>, Exchange)>,
    /// Responses that are there already.
    pub responses: Vec<String>,
    /// Answers to questions of tasks: nothing is said once they are driven to their ends.
    pub settling: Vec<BoxFuture<'static, ()>>,
}

impl Batch {
    /// Whether these bytes are an array, if they are JSON.
    pub fn begins(bytes: &[u8]) -> bool {
        bytes.trim_ascii_start().first() == Some(&b'[')
    }

    /// Reads an array.
    ///
    /// # Errors
    ///
    /// The body of the refusal of one that is no batch.
    pub fn parse(bytes: &Bytes) -> Result<Self, String> {
        let refused = |error: RpcError| error_body(None, &error);
        let text = std::str::from_utf8(bytes).map_err(|_| refused(RpcError::parse("the message is not UTF-8")))?;
        let Elements(elements) = serde_json::from_str(text).map_err(|error| {
            refused(match error.is_data() {
                true => RpcError::invalid_request(reason(&error)),
                false => RpcError::parse(format!("not JSON: {error}")),
            })
        })?;
        if elements.is_empty() {
            return Err(refused(RpcError::invalid_request("a batch holds at least one message")));
        }
        let messages = elements.iter().map(|raw| Envelope::parse(bytes.slice(span_of(text, raw.get())))).collect();
        Ok(Self { messages })
    }

    /// How many messages there are; each is to be charged.
    pub fn count(&self) -> usize {
        self.messages.len()
    }

    /// The ids of its requests as they are written.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.messages.iter().filter_map(Envelope::id)
    }

    /// Takes every message, in their order.
    pub fn receive(&self, mcp: &dyn Mcp, peer: &Peer<'_>) -> BatchReceived {
        let mut received = BatchReceived::default();
        for envelope in &self.messages {
            if let Some(error) = refusal(envelope) {
                if let Ok(Message::Request { id, .. }) = envelope.message() {
                    received.responses.push(error_body(Some(id), &error));
                }
                continue;
            }
            match mcp.receive(peer.clone(), envelope) {
                Received::Exchange(exchange) => received.exchanges.push((envelope.id().map(str::to_owned), exchange)),
                // What opens a session was refused.
                Received::Opened { .. } | Received::Accepted => {}
                Received::Settling(work) => received.settling.push(work),
                Received::Rejected { body, .. } => received.responses.push(body),
            }
        }
        received
    }
}

/// Why a message may not be in a batch.
fn refusal(envelope: &Envelope) -> Option<RpcError> {
    if envelope.era() == Era::Modern {
        return Some(RpcError::invalid_request("the revision of this message has no batches: send it alone"));
    }
    let opens = matches!(envelope.message(), Ok(Message::Request { method: "initialize", .. }));
    opens.then(|| RpcError::invalid_request("initialize must not be in a batch: send it alone"))
}

/// The elements of an array, as they are written; not more than a batch may have.
struct Elements<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for Elements<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Elements<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of messages")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = seq.next_element()? {
                    if elements.len() == BATCH_MESSAGES_MAX {
                        let text = format!("a batch holds at most {BATCH_MESSAGES_MAX} messages");
                        return Err(de::Error::custom(text));
                    }
                    elements.push(element);
                }
                Ok(Elements(elements))
            }
        }
        deserializer.deserialize_seq(Each)
    }
}
