//! The errors by which the host's own imports end a guest. Whose fault each is, and what is told of it, is `fault`'s
//! business.

use std::borrow::Cow;

/// The host could not do its part of a call.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct HostFailure(pub(super) String);

/// A web service did not keep to HTTP, or an MCP server to its protocol; says how.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct BrokenAnswer(pub(super) Cow<'static, str>);

/// Stops a guest that did again what its journal tells of and must do nothing new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the call is where its journal ends")]
pub(super) struct AtMark;
