//! What other hosts tell of clients, and what is done with it.
//!
//! Must not answer. Invariants: what is said of a session that is not in memory here is passed over; and so is a
//! message that cannot be read, such as that of a newer host.

use super::context::ProtocolContext;
use super::elsewhere::{ClientMessage, ClientNews};
use super::jsonrpc::PeerError;
use super::legacy;

/// Does what another host tells.
pub(crate) fn hear(shared: &ProtocolContext, message: &[u8]) {
    let Ok(ClientMessage { session, news }) = serde_json::from_slice(message) else { return };
    let session = shared.live_sessions.as_ref().and_then(|sessions| sessions.find(&session));
    match (news, session) {
        (ClientNews::GoesOn(state_id), _) => shared.modern.forget_parked(&state_id),
        (ClientNews::Replied { id, result, error, has_tasks }, Some(session)) => {
            let reply = match result {
                Some(result) => Ok(Box::<str>::from(result)),
                None => Err(PeerError { message: error }),
            };
            legacy::replied_elsewhere(&session, id, reply, has_tasks);
        }
        (ClientNews::Cancelled(id), Some(session)) => _ = session.cancel(&id),
        (ClientNews::Settled(state), Some(session)) => session.adopt(state.as_bytes()),
        (_, None) => {}
    }
}
