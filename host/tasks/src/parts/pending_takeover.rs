//! What an earlier host left and is still to be taken over.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Mutex;

use crate::parts::watchers::NotificationMark;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Task, TaskId};
use bulkhead_store as store;

/// What is still to be taken over.
pub(crate) struct Takeover {
    /// From before the first was claimed.
    pub(crate) mark: NotificationMark,
    /// Whether each task is held until an operator releases it.
    pub(crate) holds_all: bool,
    pub(crate) has_claimed_all: bool,
    /// After which task the next ones are claimed.
    pub(crate) after: Option<(Requestor, TaskId)>,
    /// What was claimed, and the store refused for the moment.
    pub(crate) claimed: Vec<Task>,
}

/// The takeover, as long as it is not over.
#[derive(Default)]
pub(crate) struct PendingTakeover {
    pub(crate) is_pending: AtomicBool,
    pub(crate) takeover: Mutex<Option<Takeover>>,
    has_warned: AtomicBool,
}

impl PendingTakeover {
    /// Tells the log once: a takeover is tried again each second.
    pub(crate) fn warn(&self, error: &store::Error) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!("tasks of an earlier host cannot be taken over yet, and are tried again: {error}");
        }
    }
}
