//! The modern era (2026-07-28): told apart already, not spoken yet.

use super::error::RpcError;
use super::jsonrpc::{Message, error_response};
use super::session::Version;
use super::{PROTOCOL_VERSION, Received, Rejection, declared_version};

/// Refuses a modern message, with the revisions that can be had.
pub(super) fn receive(message: &Message<'_>) -> Received {
    let (id, params) = match message {
        Message::Request { id, params, .. } => (Some(id), *params),
        Message::Notification { params, .. } => (None, *params),
        Message::Response { id, .. } => (Some(id), None),
    };
    let error = match params.and_then(declared_version) {
        Some(requested) => RpcError::unsupported_version(&Version::ALL.map(Version::name), &requested),
        None => RpcError::invalid_params(format!("params._meta must have {PROTOCOL_VERSION}")),
    };
    Received::Rejected { rejection: Rejection::Malformed, body: error_response(id, &error) }
}
