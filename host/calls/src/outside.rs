//! What stands in for the world outside while a plugin's tests run: recorded answers instead of a network, and a clock
//! that stands.
//!
//! Owns the port alone. Must not decide what is granted: a request comes here after every check that it would have
//! passed on its way out. Invariant: with such a world, nothing of a call leaves the machine.

use std::fmt;

use bytes::Bytes;

/// Answers for the world outside.
pub trait OutsideWorld: fmt::Debug + Send + Sync + 'static {
    /// What every wall clock shows, in milliseconds since the Unix epoch. `None`: the time of the machine.
    fn unix_ms(&self) -> Option<u64>;

    /// The answer to a request as it would have left, secrets and all. `None`: nobody expected it, and the guest is
    /// denied it.
    fn answer(&self, request: http::Request<Bytes>) -> Option<http::Response<Bytes>>;
}
