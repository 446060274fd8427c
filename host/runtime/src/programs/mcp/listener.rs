//! What a server says while it works, on its way to the client and to the operator's log.
//!
//! Invariant: what is nothing of the call's is logged and dropped, and there is a bound on it.

use tracing::Level;

use super::messages::{Message, Reply, ServerRequest, read};
use crate::events::Outbox;
use crate::json::{accept, accept_object};
use crate::limits::LimitHit;
use bulkhead_calls::ClientView;
use bulkhead_domain::Json;
use bulkhead_domain::text::{beginning, escaped};

/// Bytes that are nothing of the call's, in one answer. Stops a server that fills the log.
const STRAY_BYTES_MAX: u64 = 64 << 10;
/// Bytes of one message in the operator's log.
const LOGGED_BYTES_MAX: usize = 1024;

/// What a message is to who listens.
#[derive(Debug)]
pub(super) enum Heard {
    /// The answer to the call.
    Reply(Reply),
    /// What the server asks meanwhile.
    Request(ServerRequest),
}

pub(super) struct Listener {
    pub(super) plugin: String,
    pub(super) outbox: Outbox,
    pub(super) audience: ClientView,
    /// Whether the server can be answered.
    is_conversation: bool,
    awaits_greeting: bool,
    stray_bytes: u64,
}

impl Listener {
    pub(super) fn new(plugin: &str, outbox: Outbox, audience: ClientView) -> Self {
        let plugin = plugin.to_owned();
        Self { plugin, outbox, audience, is_conversation: false, awaits_greeting: false, stray_bytes: 0 }
    }

    /// The same of a server that reads on, and that may have to answer a handshake first.
    pub(super) fn in_conversation(self, awaits_greeting: bool) -> Self {
        Self { is_conversation: true, awaits_greeting, ..self }
    }

    /// Takes a message; what has to be acted on comes back.
    ///
    /// # Errors
    ///
    /// Too much of what was said is nothing of the call's.
    pub(super) fn hear(&mut self, message: &[u8]) -> Result<Option<Heard>, LimitHit> {
        let text = std::str::from_utf8(message).ok().and_then(|text| accept_object(text).ok());
        match text.as_ref().map_or(Message::Stray, read) {
            Message::Reply(reply) => return Ok(Some(Heard::Reply(reply))),
            Message::Request(request) if self.is_conversation => return Ok(Some(Heard::Request(request))),
            Message::Greeting(refusal) if self.awaits_greeting => {
                self.awaits_greeting = false;
                return Ok(refusal.map(|error| Heard::Reply(Reply::Error(error))));
            }
            Message::Progress { progress, total, message } => {
                if self.audience.wants_progress {
                    self.outbox.progress(progress, total, message);
                }
            }
            Message::Log { level, logger, data } => {
                self.note("guest log", &data);
                if self.audience.log_level.is_some_and(|lowest| level >= lowest) {
                    let data = accept(&data).unwrap_or_else(|_| Json::new("null"));
                    self.outbox.log(level, logger, data);
                }
            }
            Message::ListsChanged(kind) => self.outbox.lists_changed(kind),
            Message::ResourceUpdated(uri) => self.outbox.resource_updated(uri),
            Message::Stray | Message::Request(_) | Message::Greeting(_) => {
                self.note("a message of an MCP server that is none of its call", &String::from_utf8_lossy(message));
                self.stray_bytes += message.len() as u64;
                if self.stray_bytes > STRAY_BYTES_MAX {
                    return Err(LimitHit::StrayMessages { bytes_max: STRAY_BYTES_MAX });
                }
            }
        }
        Ok(None)
    }

    fn note(&self, what: &'static str, text: &str) {
        if tracing::enabled!(Level::DEBUG) && !self.outbox.is_silent() {
            let text = escaped(beginning(text, LOGGED_BYTES_MAX));
            tracing::debug!(plugin = self.plugin, text, what);
        }
    }
}
