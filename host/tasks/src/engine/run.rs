//! What runs: guests, plain calls and tasks.
//!
//! Must not know the subjects above it, but how a record changes. Invariant: a guest runs only with a permit.

pub(crate) mod dormant;
pub(crate) mod drive;
pub(crate) mod finish;
pub(crate) mod guest_driver;
pub(crate) mod plain;
pub(crate) mod queued;
pub(crate) mod resuming;
pub(crate) mod task_call;
