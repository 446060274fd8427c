//! EDGE: HTTP and stdio, sessions, credentials.
//!
//! Owns everything that is a connection, a header, a stream or a token: what arrives becomes a
//! [`bulkhead_protocol::Peer`] and the [`bulkhead_protocol::Envelope`] of one message, and what comes back becomes a
//! status, a body or an event stream. Must not read a message further than that. Invariant: nothing reaches the
//! protocol before its sender is known and its size is checked.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

mod answer;
mod batch;
mod bodies;
mod ending;
pub mod http;
pub mod quota;
pub mod session;
pub mod stdio;

mod refusal;
mod sse;

#[cfg(test)]
mod tests;
