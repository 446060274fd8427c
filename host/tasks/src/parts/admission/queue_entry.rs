//! Tasks that wait for a permit without a future of their own: thousands may, for hours.
//!
//! Owns their places in the queues, and the way on which a permit comes to its task. Must not know what a task does
//! with it. Invariants: a permit is handed out while nothing is locked, by one thread at a time and not by one within
//! another, however many tasks refuse theirs; and what a task does not take is free again.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use super::{Admission, Permit, Purpose, Waiter};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::TaskId;
use bulkhead_metrics::Waiting;
use bulkhead_store::journal::TaskRef;

/// How a waiter comes to its permit.
#[derive(Debug)]
pub(super) enum Grant {
    Call(oneshot::Sender<Permit>),
    Task { id: TaskId, since: Instant },
}

/// A task whose turn it is.
pub(super) struct Admitted {
    pub(super) id: TaskId,
    pub(super) since: Instant,
    pub(super) purpose: Purpose,
    pub(super) permit: Permit,
}

/// Takes the permit to its task, and returns it if the task does not wait for one.
pub(super) struct HandPermit(Box<dyn Fn(TaskId, Permit) -> Option<Permit> + Send + Sync>);

impl fmt::Debug for HandPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandPermit").finish_non_exhaustive()
    }
}

/// Where a task stands among those of its requestor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueNumber(u64);

/// A task's place in the queue; dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct QueueEntry {
    admission: Arc<Admission>,
    requestor: Requestor,
    number: u64,
}

impl QueueEntry {
    pub(crate) fn number(&self) -> QueueNumber {
        QueueNumber(self.number)
    }
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        self.admission.leave(&self.requestor, self.number);
    }
}

impl Admission {
    /// How permits come to [tasks](Self::enqueue_task) from now on, once for ever.
    pub(crate) fn hand_permits_with(&self, hand: Box<dyn Fn(TaskId, Permit) -> Option<Permit> + Send + Sync>) {
        self.hand_permit.get_or_init(|| HandPermit(hand));
    }

    /// A place in the queue of the task's requestor: the end, or where one was that had its turn and could not use it.
    /// Its permit may be handed to it before this returns.
    pub(crate) fn enqueue_task(
        self: &Arc<Self>,
        task: TaskRef,
        purpose: Purpose,
        number: Option<QueueNumber>,
    ) -> QueueEntry {
        let TaskRef { requestor, id } = task;
        let mut state = self.state.lock();
        let grant = Grant::Task { id, since: Instant::now() };
        let number = match number {
            Some(QueueNumber(number)) => {
                state.line_up_as(&requestor, Waiter { number, purpose, grant });
                number
            }
            None => state.line_up(&requestor, purpose, grant),
        };
        self.dispatch(state);
        QueueEntry { admission: Arc::clone(self), requestor, number }
    }

    /// Hands a permit to its task, and returns one that is not taken.
    pub(super) fn hand_out(&self, admitted: Admitted) -> Option<Permit> {
        let Admitted { id, since, purpose, permit } = admitted;
        let unused = match self.hand_permit.get() {
            Some(HandPermit(hand)) => hand(id, permit),
            None => Some(permit),
        };
        if let (None, Some(metrics)) = (&unused, self.metrics.get()) {
            let waiting = if purpose == Purpose::Wake { Waiting::Wake } else { Waiting::Task };
            metrics.waited(waiting, since.elapsed());
        }
        unused
    }
}
