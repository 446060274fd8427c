//! What runs: guests, plain calls and tasks.

pub(crate) mod drive;
pub(crate) mod finish;
pub(crate) mod guest_driver;
pub(crate) mod plain;
pub(crate) mod queued;
pub(crate) mod resuming;
pub(crate) mod task_call;
