//! What tests let go wrong.
//!
//! Must not change what is stored.

use super::MemoryStore;
use crate::Error;
use bulkhead_domain::task::TaskId;

/// What is to go wrong.
#[derive(Default)]
pub(super) struct Faults {
    /// What is said of it; without that, that the engine failed.
    pub(super) error: Option<fn() -> Error>,
    pub(super) read_only: Option<String>,
    pub(super) writes_failing: u32,
    pub(super) acknowledgements_lost: u32,
    pub(super) reads_failing: u32,
    /// What cannot be removed.
    pub(super) broken: Vec<TaskId>,
    /// Nothing that is to be removed ever is.
    pub(super) removals_hang: bool,
    pub(super) closed: bool,
}

impl Faults {
    pub(super) fn error(&self, what: &str) -> Error {
        self.error.map_or_else(|| Error::Engine(format!("{what} was made to fail")), |error| error())
    }
}

impl MemoryStore {
    /// What is made to fail from now on fails with this error.
    pub fn fail_with(&self, error: fn() -> Error) {
        self.state.lock().faults.error = Some(error);
    }

    /// The next `count` writes fail and change nothing.
    pub fn fail_next_writes(&self, count: u32) {
        self.state.lock().faults.writes_failing = count;
    }

    /// The next `count` writes take effect, and are reported as failed: what a caller sees when the reply gets lost.
    pub fn lose_next_acknowledgements(&self, count: u32) {
        self.state.lock().faults.acknowledgements_lost = count;
    }

    /// This task cannot be removed any more.
    pub fn break_task(&self, id: TaskId) {
        self.state.lock().faults.broken.push(id);
    }

    /// A removal of a task takes for ever from now on.
    pub fn hang_removals(&self) {
        self.state.lock().faults.removals_hang = true;
    }

    /// The next `count` reads fail.
    pub fn fail_next_reads(&self, count: u32) {
        self.state.lock().faults.reads_failing = count;
    }

    /// Refuses writes from now on (with a reason), or accepts them again (`None`).
    pub fn set_read_only(&self, reason: Option<String>) {
        self.state.lock().faults.read_only = reason;
    }
}
