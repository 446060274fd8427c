//! When to look at tasks that are not in memory: where their sleep ends, or their time.
//!
//! Must not know what is done then. Invariant: there are at most two entries for a task, which go when it is woken or
//! over.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

use bulkhead_domain::UnixMs;
use bulkhead_domain::task::TaskId;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    due: Mutex<BTreeSet<(UnixMs, TaskId)>>,
    changed: Notify,
}

impl Deadlines {
    pub(crate) fn insert(&self, at: UnixMs, id: TaskId) {
        let mut due = self.due.lock();
        due.insert((at, id));
        if due.first() == Some(&(at, id)) {
            self.changed.notify_one();
        }
    }

    pub(crate) fn remove(&self, at: UnixMs, id: TaskId) {
        self.due.lock().remove(&(at, id));
    }

    /// Takes what is due by now; and when the next one is.
    pub(crate) fn take_due(&self, now: UnixMs) -> (Vec<TaskId>, Option<UnixMs>) {
        let mut due = self.due.lock();
        let mut taken = Vec::new();
        while let Some(&(at, id)) = due.first().filter(|(at, _)| *at <= now) {
            due.remove(&(at, id));
            taken.push(id);
        }
        (taken, due.first().map(|(at, _)| *at))
    }

    /// Comes back when something is due sooner than anything before.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_is_taken_once_in_order() {
        let deadlines = Deadlines::default();
        let [first, second, third] = [1, 2, 3].map(|id| TaskId([id; 16]));
        deadlines.insert(30, third);
        deadlines.insert(20, second);
        deadlines.insert(10, first);
        deadlines.remove(30, third);
        assert_eq!(deadlines.take_due(9), (vec![], Some(10)));
        assert_eq!(deadlines.take_due(20), (vec![first, second], None));
        assert_eq!(deadlines.take_due(20), (vec![], None));
    }
}
