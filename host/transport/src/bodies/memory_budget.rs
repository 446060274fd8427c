//! Memory for bodies, and the line of those that wait for it.
//!
//! Owns the line. Invariants: room that comes free goes to the first in line that it is enough for; no body overtakes
//! an earlier one of the same requestor; nobody waits behind a body that waits for its own requestor's or tenant's
//! room.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use tokio::sync::oneshot;
use tokio::time::timeout;

use bulkhead_domain::requestor::Requestor;
use bulkhead_limits::{Full, ScopedCounter};

/// See the module.
pub(super) struct MemoryBudget {
    counter: Arc<ScopedCounter>,
    line: Mutex<VecDeque<MemoryWaiter>>,
}

struct MemoryWaiter {
    requestor: Requestor,
    bytes: u64,
    granted: oneshot::Sender<MemoryReservation>,
}

/// Room that is taken, until it is dropped.
pub(super) struct MemoryReservation {
    budget: Arc<MemoryBudget>,
    requestor: Requestor,
    bytes: u64,
}

impl MemoryBudget {
    pub(super) fn new(counter: Arc<ScopedCounter>) -> Arc<Self> {
        Arc::new(Self { counter, line: Mutex::default() })
    }

    pub(super) fn counter(&self) -> &Arc<ScopedCounter> {
        &self.counter
    }

    /// Waits for room, but not longer than this.
    ///
    /// # Errors
    ///
    /// The limit that is full.
    pub(super) async fn take(
        self: &Arc<Self>,
        requestor: &Requestor,
        bytes: u64,
        wait_max: Duration,
    ) -> Result<MemoryReservation, Full> {
        let granted = match self.take_or_wait(requestor, bytes) {
            Ok(held) => return Ok(held),
            Err(granted) => granted,
        };
        match timeout(wait_max, granted).await {
            Ok(Ok(held)) => Ok(held),
            _ => Err(self.blocking(requestor, bytes)),
        }
    }

    /// The limit that so much more goes beyond; the requestor's own where there is room by now.
    fn blocking(&self, requestor: &Requestor, more: u64) -> Full {
        let usages = self.counter.usage(Some(requestor)).map(|(_, usage)| usage);
        let [_, own, _] = usages;
        usages.into_iter().find(|usage| usage.in_use.saturating_add(more) > usage.max).unwrap_or(own).full()
    }

    fn take_or_wait(
        self: &Arc<Self>,
        requestor: &Requestor,
        bytes: u64,
    ) -> Result<MemoryReservation, oneshot::Receiver<MemoryReservation>> {
        let mut line = self.line.lock();
        let is_first = !line.iter().any(|waiting| waiting.requestor == *requestor && !waiting.granted.is_closed());
        if is_first && self.counter.try_add(requestor, bytes).is_ok() {
            return Ok(self.held(requestor, bytes));
        }
        let (granted, grant) = oneshot::channel();
        line.push_back(MemoryWaiter { requestor: *requestor, bytes, granted });
        Err(grant)
    }

    /// Gives what is free to those who wait.
    fn serve(self: &Arc<Self>) {
        let mut line = self.line.lock();
        if line.is_empty() {
            return;
        }
        let mut behind = FxHashSet::default();
        let mut unwanted = Vec::new();
        for waiting in std::mem::take(&mut *line) {
            let MemoryWaiter { requestor, bytes, granted } = &waiting;
            if granted.is_closed() {
                continue;
            }
            if behind.contains(requestor) || self.counter.try_add(requestor, *bytes).is_err() {
                behind.insert(*requestor);
                line.push_back(waiting);
                continue;
            }
            let held = self.held(requestor, *bytes);
            unwanted.extend(waiting.granted.send(held).err());
        }
        // What is dropped serves the line again.
        drop(line);
        drop(unwanted);
    }

    fn held(self: &Arc<Self>, requestor: &Requestor, bytes: u64) -> MemoryReservation {
        MemoryReservation { budget: Arc::clone(self), requestor: *requestor, bytes }
    }
}

impl MemoryReservation {
    pub(super) fn requestor(&self) -> &Requestor {
        &self.requestor
    }

    /// Keeps no more than `bytes`; returns how much that releases.
    pub(super) fn shrink(&mut self, bytes: u64) -> u64 {
        let unused = self.bytes.saturating_sub(bytes);
        if unused > 0 {
            self.bytes = bytes;
            self.budget.counter.release(&self.requestor, unused);
            self.budget.serve();
        }
        unused
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.budget.counter.release(&self.requestor, self.bytes);
        self.budget.serve();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use bulkhead_domain::requestor::{RequestorId, TenantId};
    use bulkhead_limits::Scope;

    const WAIT: Duration = Duration::from_secs(10);

    fn requestor(tenant: u8, id: u8) -> Requestor {
        Requestor { tenant: TenantId([tenant; 16]), id: RequestorId([id; 16]) }
    }

    fn room() -> Arc<MemoryBudget> {
        MemoryBudget::new(ScopedCounter::new(|_| {
            [
                Scope::Tenant.bound("tenant", 150_u64),
                Scope::Requestor.bound("requestor", 100_u64),
                Scope::Total.bound("total", 200_u64),
            ]
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn body_room_timeout_names_the_full_limit() {
        let budget = room();
        let alice = requestor(1, 1);
        let ann = requestor(1, 2);
        let bob = requestor(2, 3);
        let first = budget.take(&alice, 80, WAIT).await.unwrap();
        let full = |value, limit| Some(Full { limit, value });
        assert_eq!(budget.take(&alice, 30, WAIT).await.err(), full(100, "requestor"));
        let _second = budget.take(&ann, 70, WAIT).await.unwrap();
        assert_eq!(budget.take(&ann, 10, WAIT).await.err(), full(150, "tenant"));
        assert_eq!(budget.take(&bob, 60, WAIT).await.err(), full(200, "total"));
        drop(first);
        assert!(budget.take(&bob, 60, WAIT).now_or_never().unwrap().is_ok());
        assert!(budget.line.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn body_room_is_granted_in_order_per_requestor() {
        let budget = room();
        let alice = requestor(1, 1);
        let bob = requestor(2, 2);
        let mut first = budget.take(&alice, 100, WAIT).await.unwrap();
        let mut large = Box::pin(budget.take(&alice, 90, WAIT));
        let mut small = Box::pin(budget.take(&alice, 10, WAIT));
        assert!((&mut large).now_or_never().is_none() && (&mut small).now_or_never().is_none());
        let other =
            budget.take(&bob, 100, WAIT).now_or_never().expect("nobody waits for somebody else's room").unwrap();
        assert_eq!(first.shrink(50), 50);
        assert!((&mut small).now_or_never().is_none(), "it does not overtake what came before it");
        drop(first);
        let large = large.await.unwrap();
        let small = small.await.unwrap();
        assert_eq!(budget.counter.total(), 200);
        drop((large, small, other));
        assert_eq!(budget.counter.total(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_body_room_waiter_leaves_nothing() {
        let budget = room();
        let alice = requestor(1, 1);
        let first = budget.take(&alice, 100, WAIT).await.unwrap();
        for _ in 0..100 {
            assert!(budget.take(&alice, 10, WAIT).now_or_never().is_none());
        }
        // Granted, and never looked at.
        let mut granted = Box::pin(budget.take(&alice, 20, WAIT));
        assert!((&mut granted).now_or_never().is_none());
        drop(first);
        assert_eq!(budget.counter.total(), 20);
        drop(granted);
        assert_eq!((budget.counter.total(), budget.line.lock().len()), (0, 0));
    }
}
