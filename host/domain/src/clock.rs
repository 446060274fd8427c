//! The time of day, as something that is passed in.
//!
//! Owns which of three times answers a question: the host's, which is stored and never runs backwards; a steady one,
//! for durations within this process; and the system's as it stands, for ends that others have set. Must not read a
//! clock: the program brings the one of its machine.

use std::sync::Arc;

use crate::UnixMs;
#[cfg(any(test, feature = "testing"))]
pub use crate::testing::ManualClock;

/// Where times come from.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch, for what is kept: never less than an earlier answer, and never standing still
    /// for long.
    fn now(&self) -> UnixMs;

    /// The Unix time at which this clock was made, and what has passed since. Nobody can set it: leases, idle sessions
    /// and the next look at a credential go by it.
    fn steady(&self) -> UnixMs;

    /// The system's clock as it stands. It may go back: credentials end by it, since others have said when.
    fn system(&self) -> UnixMs;
}

/// A clock that the parts of the host share.
pub type SharedClock = Arc<dyn Clock>;
