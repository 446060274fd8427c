//! The place that one call takes up: running (a permit) or resting (waiting or stopped by a pause), never neither. That
//! its task is paused is counted elsewhere: a pause begins and ends with the record.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::parts::admission::{Admission, IdleSlot, IdleState, Permit, PermitRequest, Purpose};
use crate::parts::residents::{Residence, ResidentSlot};
use bulkhead_domain::limits::Limits;
use bulkhead_domain::requestor::Requestor;
use bulkhead_limits::Full;

/// A task that could not leave memory is not asked again before.
const EVICTION_RETRY: Duration = Duration::from_secs(1);

/// Starts as running, with the permit that was granted.
#[derive(Debug)]
pub(crate) struct CallSlot {
    admission: Arc<Admission>,
    requestor: Requestor,
    task: bool,
    permit: Option<Permit>,
    resting: Option<IdleSlot>,
    /// In the queue for a permit again, still counted as resting.
    returning: Option<PermitRequest>,
    watch: Stopwatch,
}

/// Counts the time in which the call ran, without what it waited for answers, mornings, permits or the end of a pause.
#[derive(Debug)]
struct Stopwatch {
    since: Option<Instant>,
    before: Duration,
}

impl CallSlot {
    pub(crate) fn new(admission: Arc<Admission>, requestor: Requestor, task: bool, permit: Permit) -> Self {
        let watch = Stopwatch { since: Some(Instant::now()), before: Duration::ZERO };
        Self { admission, requestor, task, permit: Some(permit), resting: None, returning: None, watch }
    }

    /// Counts from now on as a task, if there is room for one more, or a place was waited for. What rests needs none.
    pub(crate) async fn become_task(&mut self, task_permit: Option<Permit>) -> Result<(), Full> {
        match (&mut self.permit, task_permit) {
            (Some(permit), Some(task_permit)) => permit.take_place(task_permit),
            (Some(permit), None) => permit.become_task().await?,
            (None, _) => {}
        }
        // The place in the queue is for a permit of a plain call.
        self.returning = None;
        self.task = true;
        Ok(())
    }

    /// Takes [`CallSlot::become_task`] back.
    pub(crate) fn become_plain(&mut self) {
        if let Some(permit) = &mut self.permit {
            permit.become_plain();
        }
        self.returning = None;
        self.task = false;
    }

    /// Gives the running permit back for as long as the call rests. Where there is no room to rest, the call keeps its
    /// permit: it then takes one of its own requestor's places and nobody else's. A call that rests already only counts
    /// as something else.
    pub(crate) fn rest(&mut self, hold: IdleState) {
        self.watch.before += self.watch.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        let held = match self.permit {
            Some(_) => self.admission.hold(&self.requestor, hold).map_err(|full| self.make_room(full)).ok(),
            None => Some(self.admission.keep(&self.requestor, hold)),
        };
        if let Some(held) = held {
            self.resting = Some(held);
            self.returning = None;
            self.permit = None;
        }
    }

    /// The next call that rests finds room.
    fn make_room(&self, full: Full) {
        let tenant = (full.limit != "calls_resting_total").then_some(self.requestor.tenant);
        self.admission.residents.make_room(tenant);
    }

    /// The limits that hold for the call.
    pub(crate) fn limits(&self) -> Arc<Limits> {
        self.admission.limits(&self.requestor)
    }

    /// Counts as one that rests in memory and may leave it: at once, if there was no room for it to rest. `is_pinned`:
    /// it was to leave, and could not.
    pub(crate) fn reside(&self, is_pinned: bool) -> ResidentSlot {
        let after = match (is_pinned, &self.permit) {
            (true, _) => Duration::from_millis(self.limits().task_evict_after_ms).max(EVICTION_RETRY),
            (false, None) => Duration::from_millis(self.limits().task_evict_after_ms),
            (false, Some(_)) => Duration::ZERO,
        };
        let evict_at = Instant::now() + after;
        let residents_max = self.admission.live_limits().base().tasks_resident_total;
        let residents_max = (!is_pinned).then_some(residents_max);
        self.admission.residents.enter(Residence { tenant: self.requestor.tenant, evict_at, residents_max })
    }

    /// The call is over: whatever it held is free.
    pub(crate) fn leave(&mut self) {
        self.permit = None;
        self.resting = None;
        self.returning = None;
    }

    /// Waits for a running permit. Cancel-safe: the place in the queue is kept.
    pub(crate) async fn run(&mut self) {
        while self.permit.is_none() {
            let request = match self.returning.take() {
                Some(request) => request,
                // Calls that go on are never refused a place in the queue.
                None => match self.admission.enqueue(&self.requestor, Purpose::Again { task: self.task }) {
                    Ok(request) => request,
                    Err(_) => return,
                },
            };
            self.permit = self.returning.insert(request).permit().await;
            self.returning = None;
        }
        self.resting = None;
        self.watch.since.get_or_insert_with(Instant::now);
    }

    /// How long the call has been running.
    pub(crate) fn busy(&self) -> Duration {
        self.watch.before + self.watch.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::parts::admission::tests::limits;
    use bulkhead_domain::limits::Limits;
    use bulkhead_domain::requestor::{RequestorId, TenantId};

    #[tokio::test]
    async fn promoted_queued_call_waits_for_a_task_permit() {
        let who = Requestor { tenant: TenantId([1; 16]), id: RequestorId([1; 16]) };
        let admission = Admission::new(Limits { tasks_running_per_requestor: 1, ..limits() }.into(), 4);
        let permit = |purpose| admission.try_permit(&who, purpose).unwrap();
        let mut call = CallSlot::new(admission.clone(), who, false, permit(Purpose::Plain));
        call.rest(IdleState::Waiting);
        let task = permit(Purpose::Task);
        let plain = permit(Purpose::Plain);
        assert!(call.run().now_or_never().is_none(), "it stands in the queue");
        call.become_task(None).await.unwrap();
        drop(plain);
        assert!(call.run().now_or_never().is_none(), "two tasks of this requestor would run");
        drop(task);
        assert!(call.run().now_or_never().is_some());
        assert_eq!(admission.in_use().counts.held(&who).requestor.running_tasks, 1);
    }
}
