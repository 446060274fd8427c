//! Durable tasks that rest in memory, and which of them leave it next.
//!
//! Owns the order in which they came to rest. Must not take a call out of memory: its run does, once it is signalled,
//! and may find that it cannot. Invariant: a task is signalled once for each time that it comes to rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use bulkhead_domain::requestor::TenantId;
pub(crate) use bulkhead_metrics::EvictionCause;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Residents {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next_number: u64,
    /// The one that has rested longest comes first.
    by_age: BTreeMap<u64, Resident>,
    is_draining: bool,
}

#[derive(Debug)]
struct Resident {
    tenant: TenantId,
    signal: oneshot::Sender<EvictionCause>,
}

/// What a task has while it rests in memory. Dropping it ends that.
#[derive(Debug)]
pub(crate) struct ResidentSlot {
    residents: Arc<Residents>,
    number: u64,
    signalled: oneshot::Receiver<EvictionCause>,
    evict_at: Instant,
}

/// How a task comes to rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Residence {
    pub(crate) tenant: TenantId,
    pub(crate) evict_at: Instant,
    /// Residents that there may be. `None`: the task could not leave memory, and stays beside them.
    pub(crate) residents_max: Option<u32>,
}

impl Residents {
    /// A task rests from now on. Those that have rested longest are signalled, until there are no more than there may
    /// be.
    pub(crate) fn enter(self: &Arc<Self>, residence: Residence) -> ResidentSlot {
        let Residence { tenant, evict_at, residents_max } = residence;
        let (signal, signalled) = oneshot::channel();
        let mut state = self.state.lock();
        let number = state.next_number;
        state.next_number += 1;
        state.by_age.insert(number, Resident { tenant, signal });
        if let Some(residents_max) = residents_max {
            while state.by_age.len() > residents_max as usize {
                state.signal_first(EvictionCause::Number);
            }
            if state.is_draining {
                state.signal(number, EvictionCause::Drain);
            }
        }
        drop(state);
        ResidentSlot { residents: Arc::clone(self), number, signalled, evict_at }
    }

    /// Another call needs the room: of its tenant, if that is what is full.
    pub(crate) fn make_room(&self, tenant: Option<TenantId>) {
        let mut state = self.state.lock();
        let found = state.by_age.iter().find(|(_, resident)| tenant.is_none_or(|tenant| resident.tenant == tenant));
        if let Some(number) = found.map(|(number, _)| *number) {
            state.signal(number, EvictionCause::Pressure);
        }
    }

    /// The host goes down: all leave memory that can, and so do those that come to rest from now on.
    pub(crate) fn drain(&self) {
        let mut state = self.state.lock();
        state.is_draining = true;
        while !state.by_age.is_empty() {
            state.signal_first(EvictionCause::Drain);
        }
    }
}

impl State {
    fn signal_first(&mut self, cause: EvictionCause) {
        if let Some(number) = self.by_age.keys().next().copied() {
            self.signal(number, cause);
        }
    }

    fn signal(&mut self, number: u64, cause: EvictionCause) {
        if let Some(resident) = self.by_age.remove(&number) {
            // Its run may have gone on at this very moment.
            let _ = resident.signal.send(cause);
        }
    }
}

impl ResidentSlot {
    /// Comes back when the task is to leave memory, once.
    pub(crate) async fn is_due(&mut self) -> EvictionCause {
        tokio::select! {
            biased;
            Ok(cause) = &mut self.signalled => cause,
            () = tokio::time::sleep_until(self.evict_at) => EvictionCause::Age,
        }
    }
}

impl Drop for ResidentSlot {
    fn drop(&mut self) {
        self.residents.state.lock().by_age.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;

    use super::*;

    fn enter(residents: &Arc<Residents>, tenant: u8, residents_max: Option<u32>) -> ResidentSlot {
        let evict_at = Instant::now() + Duration::from_secs(60);
        residents.enter(Residence { tenant: TenantId([tenant; 16]), evict_at, residents_max })
    }

    fn cause(slot: &mut ResidentSlot) -> Option<EvictionCause> {
        slot.is_due().now_or_never()
    }

    #[tokio::test]
    async fn those_that_rested_longest_leave_first() {
        let residents = Arc::<Residents>::default();
        let mut slots: Vec<_> = (0..4).map(|_| enter(&residents, 1, Some(2))).collect();
        let causes: Vec<_> = slots.iter_mut().map(cause).collect();
        let number = Some(EvictionCause::Number);
        assert_eq!(causes, [number, number, None, None]);
    }

    #[tokio::test]
    async fn one_that_goes_on_makes_no_other_leave() {
        let residents = Arc::<Residents>::default();
        drop(enter(&residents, 1, Some(1)));
        let mut first = enter(&residents, 1, Some(1));
        assert_eq!(cause(&mut first), None);
        let mut pinned = enter(&residents, 1, None);
        assert_eq!((cause(&mut first), cause(&mut pinned)), (None, None), "it could not leave");
    }

    #[tokio::test]
    async fn room_of_a_tenant_is_made_by_its_own() {
        let residents = Arc::<Residents>::default();
        let mut other = enter(&residents, 1, Some(9));
        let mut own = enter(&residents, 2, Some(9));
        residents.make_room(Some(TenantId([2; 16])));
        residents.make_room(Some(TenantId([2; 16])));
        assert_eq!((cause(&mut other), cause(&mut own)), (None, Some(EvictionCause::Pressure)));
        residents.make_room(None);
        assert_eq!(cause(&mut other), Some(EvictionCause::Pressure));
    }

    #[tokio::test]
    async fn drain_lets_nobody_stay() {
        let residents = Arc::<Residents>::default();
        let mut before = enter(&residents, 1, Some(9));
        residents.drain();
        let mut after = enter(&residents, 1, Some(9));
        let drain = Some(EvictionCause::Drain);
        assert_eq!((cause(&mut before), cause(&mut after)), (drain, drain));
    }

    #[tokio::test(start_paused = true)]
    async fn task_that_rests_for_long_leaves() {
        let residents = Arc::<Residents>::default();
        let mut slot = enter(&residents, 1, Some(9));
        assert_eq!(slot.is_due().await, EvictionCause::Age);
    }
}
