//! A request of the modern era, as its methods take it, and the frame that answers it.

use std::sync::Arc;

use serde::Serialize;
use tokio::sync::watch;

use super::connection::Connection;
use super::meta::RequestClient;
use super::params_index::Members;
use crate::error::RpcError;
use crate::jsonrpc::{RequestId, error_response, response};
use crate::operation::RequestTarget;
use crate::request_context::RequestContext;
use crate::{Declared, Frame};

/// A request that was checked up to its params.
pub(super) struct Request<'a> {
    pub(super) context: RequestContext,
    pub(super) id: RequestId,
    pub(super) client: RequestClient,
    pub(super) declared: Option<&'a Declared<'a>>,
    pub(super) connection: Option<&'a Arc<Connection>>,
    /// Becomes true when the credential of a subscription has ended.
    pub(super) ends: Option<&'a watch::Receiver<bool>>,
    pub(super) params: Option<&'a str>,
    /// Those of the params that are looked at more than once.
    pub(super) members: Members<'a>,
    /// What it turns out to be about, for those who count and record.
    pub(super) target: &'a RequestTarget,
}

/// A refusal as a response.
pub(super) fn refused(id: &RequestId, error: &RpcError) -> Frame {
    Frame { message: error_response(Some(id), error), last: true, rejection: error.rejection.clone() }
}

/// A response, whatever it is.
pub(super) fn respond<T: Serialize>(id: &RequestId, result: Result<T, RpcError>) -> Frame {
    match result {
        Ok(result) => response(id, &result).into(),
        Err(error) => refused(id, &error),
    }
}
