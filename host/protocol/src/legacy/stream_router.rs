//! Which open stream carries a task's messages.
//!
//! A question of a task is sent once: to the newest open `tasks/result` whose client can answer it, else to the
//! standalone stream of the session that created the task, else to whichever of them opens next. What was sent on a
//! stream that is gone and was never answered is sent again on the next `tasks/result` or standalone stream, but not on
//! one that was open all the time: its user may still have the first one on the screen.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::input_requests::can_answer;
use bulkhead_domain::call::{ClientFeatures, InputRequestKind};
use bulkhead_domain::task::TaskId;

/// Tasks with an entry; above this, entries without a listener are dropped.
const TASKS_MAX: usize = 4096;

/// See the module. One for the whole host.
#[derive(Default)]
pub(crate) struct StreamRouter {
    tasks: Mutex<HashMap<TaskId, Streams>>,
    ids: AtomicU64,
    /// Counts up when a `tasks/result` closes to which questions were left: they may now go elsewhere.
    closings: watch::Sender<u64>,
}

#[derive(Default)]
struct Streams {
    /// Open `tasks/result` exchanges, oldest first.
    waiters: Vec<WaiterEntry>,
    /// Questions that were sent, by issued key.
    sent: HashMap<String, Delivery>,
    /// Another stream left an input request to a `tasks/result` waiter.
    deferred: bool,
    /// The task has ended. Kept for a while, for streams that have not heard of it and would ask what they heard
    /// before.
    over: bool,
}

struct WaiterEntry {
    stream: u64,
    session: [u8; 16],
    features: ClientFeatures,
}

enum Delivery {
    Waiter(u64),
    Standalone(u64),
    /// On a stream that is gone.
    Lost,
    /// Over: a stream with an older record of the task must not ask again.
    Answered,
}

impl StreamRouter {
    fn tasks_with_room(&self) -> MutexGuard<'_, HashMap<TaskId, Streams>> {
        let mut tasks = self.tasks.lock();
        if tasks.len() >= TASKS_MAX {
            let is_open = |sent: &Delivery| !matches!(sent, Delivery::Lost | Delivery::Answered);
            tasks.retain(|_, streams| !streams.waiters.is_empty() || streams.sent.values().any(is_open));
        }
        tasks
    }

    /// An id for a new stream.
    pub(crate) fn stream_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes an open `tasks/result`.
    pub(crate) fn wait(self: &Arc<Self>, task: TaskId, session: [u8; 16], features: ClientFeatures) -> Waiter {
        let stream = self.stream_id();
        let mut tasks = self.tasks_with_room();
        tasks.entry(task).or_default().waiters.push(WaiterEntry { stream, session, features });
        Waiter { stream_router: Arc::clone(self), task, stream }
    }

    /// Counts the closings of `tasks/result` exchanges.
    pub(crate) fn closings(&self) -> watch::Receiver<u64> {
        self.closings.subscribe()
    }

    /// Whether the standalone stream is to send this question. `opening`: it has just been opened.
    pub(crate) fn claim_standalone(
        &self,
        stream: u64,
        task: TaskId,
        issued_key: &str,
        kind: &InputRequestKind,
        opening: bool,
    ) -> bool {
        let mut tasks = self.tasks_with_room();
        let streams = tasks.entry(task).or_default();
        if streams.over {
            return false;
        }
        if streams.waiters.iter().any(|waiter| can_answer(waiter.features, kind)) {
            streams.deferred = true;
            return false;
        }
        let free = match streams.sent.get(issued_key) {
            None => true,
            Some(Delivery::Lost) => opening,
            Some(Delivery::Waiter(_) | Delivery::Standalone(_) | Delivery::Answered) => false,
        };
        if free {
            streams.sent.insert(issued_key.to_owned(), Delivery::Standalone(stream));
        }
        free
    }

    /// Whether a `tasks/result` of this session is open: then it carries progress and logs, not the standalone stream.
    pub(crate) fn has_waiter(&self, task: TaskId, session: [u8; 16]) -> bool {
        self.tasks
            .lock()
            .get(&task)
            .is_some_and(|streams| streams.waiters.iter().any(|waiter| waiter.session == session))
    }

    /// A question was answered: it is not sent again.
    pub(crate) fn answered(&self, task: TaskId, issued_key: &str) {
        self.mark(task, issued_key, Delivery::Answered);
    }

    /// A question was withdrawn unanswered: it may be sent again.
    pub(crate) fn lost(&self, task: TaskId, issued_key: &str) {
        self.mark(task, issued_key, Delivery::Lost);
    }

    fn mark(&self, task: TaskId, issued_key: &str, as_what: Delivery) {
        if let Some(sent) = self.tasks.lock().get_mut(&task).and_then(|streams| streams.sent.get_mut(issued_key)) {
            *sent = as_what;
        }
    }

    /// A task is over: nothing is asked for it any more.
    pub(crate) fn over(&self, task: TaskId) {
        if let Some(streams) = self.tasks.lock().get_mut(&task) {
            streams.sent.clear();
            streams.over = true;
        }
    }

    /// A standalone stream is gone.
    pub(crate) fn closed_standalone(&self, stream: u64) {
        for streams in self.tasks.lock().values_mut() {
            for sent in streams.sent.values_mut() {
                if matches!(sent, Delivery::Standalone(on) if *on == stream) {
                    *sent = Delivery::Lost;
                }
            }
        }
    }
}

/// An open `tasks/result`, until this is dropped.
pub(crate) struct Waiter {
    stream_router: Arc<StreamRouter>,
    task: TaskId,
    stream: u64,
}

impl Waiter {
    /// Whether this exchange is to send a question. `opening`: it has just been opened, and takes over from older ones.
    pub(crate) fn claim(&self, issued_key: &str, kind: &InputRequestKind, opening: bool) -> bool {
        let mut tasks = self.stream_router.tasks.lock();
        let streams = tasks.entry(self.task).or_default();
        let newest = streams.waiters.iter().rev().find(|waiter| can_answer(waiter.features, kind));
        if streams.over || newest.is_none_or(|waiter| waiter.stream != self.stream) {
            streams.deferred = true;
            return false;
        }
        let free = match streams.sent.get(issued_key) {
            None | Some(Delivery::Lost) => true,
            Some(Delivery::Waiter(_)) => opening,
            Some(Delivery::Standalone(_) | Delivery::Answered) => false,
        };
        if free {
            streams.sent.insert(issued_key.to_owned(), Delivery::Waiter(self.stream));
        }
        free
    }

    /// Whether this exchange carries the task's progress and logs to `session`: the newest of that session does.
    pub(crate) fn carries(&self, session: [u8; 16]) -> bool {
        self.stream_router.tasks.lock().get(&self.task).is_some_and(|streams| {
            let newest = streams.waiters.iter().rev().find(|waiter| waiter.session == session);
            newest.is_some_and(|waiter| waiter.stream == self.stream)
        })
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut tasks = self.stream_router.tasks.lock();
        let Some(streams) = tasks.get_mut(&self.task) else { return };
        streams.waiters.retain(|waiter| waiter.stream != self.stream);
        for sent in streams.sent.values_mut() {
            if matches!(sent, Delivery::Waiter(on) if *on == self.stream) {
                *sent = Delivery::Lost;
            }
        }
        let deferred = std::mem::take(&mut streams.deferred);
        if streams.waiters.is_empty() && streams.sent.is_empty() && !streams.over {
            tasks.remove(&self.task);
        }
        drop(tasks);
        if deferred {
            self.stream_router.closings.send_modify(|closings| *closings += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_domain::call::ClientFeature;

    const TASK: TaskId = TaskId([1; 16]);
    const SESSION: [u8; 16] = [2; 16];

    fn roots() -> ClientFeatures {
        ClientFeatures::default().with(ClientFeature::Roots)
    }

    #[test]
    fn input_request_is_routed_to_one_stream() {
        let stream_router = Arc::new(StreamRouter::default());
        assert!(stream_router.claim_standalone(7, TASK, "a", &InputRequestKind::Roots, false));
        assert!(!stream_router.claim_standalone(8, TASK, "a", &InputRequestKind::Roots, true));
        let waiter = stream_router.wait(TASK, SESSION, roots());
        assert!(!waiter.claim("a", &InputRequestKind::Roots, true), "it is on the standalone stream");
        assert!(waiter.claim("b", &InputRequestKind::Roots, false));
        let closings = stream_router.closings();
        assert!(
            !stream_router.claim_standalone(7, TASK, "c", &InputRequestKind::Roots, false),
            "a waiter can answer it"
        );
        drop(waiter);
        assert!(closings.has_changed().unwrap());
        assert!(stream_router.claim_standalone(7, TASK, "c", &InputRequestKind::Roots, false));
    }

    #[test]
    fn unanswered_input_request_is_resent_on_next_result_stream() {
        let stream_router = Arc::new(StreamRouter::default());
        let first = stream_router.wait(TASK, SESSION, roots());
        assert!(first.claim("a", &InputRequestKind::Roots, true));
        drop(first);
        assert!(
            !stream_router.claim_standalone(7, TASK, "a", &InputRequestKind::Roots, false),
            "it may still be on the screen"
        );
        assert!(stream_router.wait(TASK, SESSION, roots()).claim("a", &InputRequestKind::Roots, true));
        assert!(stream_router.claim_standalone(8, TASK, "a", &InputRequestKind::Roots, true));
    }

    #[test]
    fn answered_input_request_is_not_resent() {
        let stream_router = Arc::new(StreamRouter::default());
        let waiter = stream_router.wait(TASK, SESSION, roots());
        assert!(waiter.claim("a", &InputRequestKind::Roots, true));
        stream_router.answered(TASK, "a");
        assert!(!waiter.claim("a", &InputRequestKind::Roots, true));
        stream_router.over(TASK);
        drop(waiter);
        assert!(!stream_router.claim_standalone(7, TASK, "b", &InputRequestKind::Roots, true));
    }

    #[test]
    fn input_request_skips_streams_of_incapable_clients() {
        let stream_router = Arc::new(StreamRouter::default());
        let waiter = stream_router.wait(TASK, SESSION, ClientFeatures::default());
        assert!(!waiter.claim("a", &InputRequestKind::Roots, true));
        assert!(stream_router.claim_standalone(7, TASK, "a", &InputRequestKind::Roots, false));
    }

    #[test]
    fn newest_result_stream_of_a_session_carries_notifications() {
        let stream_router = Arc::new(StreamRouter::default());
        let first = stream_router.wait(TASK, SESSION, roots());
        assert!(first.carries(SESSION));
        let second = stream_router.wait(TASK, SESSION, roots());
        assert!(!first.carries(SESSION) && second.carries(SESSION));
        drop(second);
        assert!(first.carries(SESSION) && stream_router.has_waiter(TASK, SESSION));
        drop(first);
        assert!(stream_router.tasks.lock().is_empty());
    }
}
