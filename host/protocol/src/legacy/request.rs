//! A request of the legacy era, as its methods take it.

use std::sync::Arc;

use crate::jsonrpc::RequestId;
use crate::operation::RequestTarget;
use crate::request_context::RequestContext;
use crate::session::Session;

/// A request in its session.
pub(super) struct Request<'a> {
    pub(super) context: RequestContext,
    pub(super) session: &'a Arc<Session>,
    pub(super) id: RequestId,
    pub(super) params: Option<&'a str>,
    /// Whether the client reads what is said before the response.
    pub(super) reads_events: bool,
    /// What it turns out to be about, for those who count and record.
    pub(super) target: &'a RequestTarget,
}
