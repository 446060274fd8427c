//! Connections: from this host to others, which go only where they may, and from others to this host.
//!
//! Owns resolving, the check of every address, connecting to exactly the checked address, TLS, the host's own requests,
//! and the listeners that HTTP is served on. Must not know who asks or why: the caller says which addresses are
//! allowed, and what answers a request. Invariant: no byte is sent to an address before it was checked, and a name is
//! resolved once for each connection.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

pub mod address;
pub mod client;
pub mod database;
pub mod dial;
pub mod pem;
pub mod server;

use tokio::task::JoinHandle;

/// A task that ends with what holds this.
pub struct AbortOnDrop<T>(pub JoinHandle<T>);

impl<T: Send + 'static> AbortOnDrop<T> {
    pub fn spawn(task: impl Future<Output = T> + Send + 'static) -> Self {
        Self(tokio::spawn(task))
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
