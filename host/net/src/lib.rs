//! From this host to others: connections that go only where they may.
//!
//! Owns resolving, the check of every address, connecting to exactly the checked address, TLS, and the
//! host's own requests. Must not know who asks or why: the caller says which addresses are allowed. Invariant: no byte is sent to an
//! address before it was checked, and a name is resolved once for each connection.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

pub mod address;
pub mod client;
pub mod dial;
