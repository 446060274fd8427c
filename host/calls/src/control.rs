//! The levers on a running call.
//!
//! Owns what a keeper of a call can do to it and see of it. Must not know how a guest is stopped or timed. Invariant: a
//! lever is harmless once the call is over.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::journal::JournalReport;
use bulkhead_domain::call::{ClientFeatures, LogLevel};
use bulkhead_traces::Span;

/// The client of a call: what it receives and can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientView {
    pub features: ClientFeatures,
    pub log_level: Option<LogLevel>,
    pub wants_progress: bool,
}

/// What an executor offers of a call that it runs. Used a few times in a call, never by its guest.
pub trait CallLevers: Any + fmt::Debug + Send + Sync {
    /// Shows the guest that it was cancelled, at its next safe point. Stops nothing: drop
    /// [`StopOnDrop`](super::StopOnDrop) for that.
    fn signal_cancel(&self);

    /// Whether the guest has ever looked at its signals; one that has not gets no grace period.
    fn is_cooperative(&self) -> bool;

    /// Stops the guest where it is, within an epoch tick, even in an endless loop. Both clocks stop.
    fn pause(&self);

    /// Lets a paused guest go on.
    fn resume(&self);

    /// The call is a task from now on. The first id stays.
    fn promoted(&self, task_id: &str);

    /// Another request listens from now on. Nothing of the earlier one's wishes holds any more.
    fn set_client(&self, client: ClientView);

    /// Whether messages wait for the guest. Without, it never asks for them.
    fn steering_pending(&self, pending: bool);

    /// Says in the span of the call, if it has one, that something happened now.
    fn note(&self, what: &'static str);

    /// A span of what the call waits for outside, if the call is recorded.
    fn begin_span(&self, name: &'static str) -> Option<Span>;

    /// What came of the call's journal. `None`: it has none, or it did not come to its end.
    fn journal(&self) -> Option<&JournalReport>;

    /// Whether everything that the call has begun outside is in its journal, so that it can leave memory while it
    /// waits.
    fn can_leave_memory(&self) -> bool;

    /// CPU time so far, in milliseconds.
    fn cpu_ms(&self) -> u64;

    /// How much of it the call would use again if it left memory now.
    fn cpu_ms_to_repeat(&self) -> u64;
}

/// The levers on a running call; cheap to clone.
#[derive(Clone, Debug)]
pub struct Control(Arc<dyn CallLevers>);

impl Control {
    /// Of a call with these levers.
    pub fn new(levers: Arc<dyn CallLevers>) -> Self {
        Self(levers)
    }
}

impl Deref for Control {
    type Target = dyn CallLevers;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}
