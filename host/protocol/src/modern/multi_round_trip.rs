//! Calls that sent input requests and wait for the request that continues them.
//!
//! Owns which request states may be continued, so that no call runs twice: a state may be continued once, on this host
//! or the next one. The request that continues it marks the state as used in the store before a guest gets the answers.
//! The mark is removed when the request has no effect, and stays when the host dies within it, because the outcome is
//! unknown then. Calls that may run again need no mark. The table in memory joins equal requests and detects one with
//! other answers. There are two shortcuts that no correct answer depends on: parked guests, and the outcomes of earlier
//! retries, for retries whose reply was lost. All are bounded in time, in all, per tenant and per requestor.

use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::bounded_cache::{BoundedCache, CacheEntry, CacheLimits, StateId};
use super::call_handle::CallHandle;
use super::state::{Answers, Position, Sealer};
use crate::error::RpcError;
use bulkhead_domain::UnixMs;
use bulkhead_domain::call::{InputRequest, InputRequestError, InputResponse};
use bulkhead_domain::requestor::Requestor;
use bulkhead_tasks::{self as tasks, Tasks};

/// How long a client has to come back with its answers.
pub(super) const STATE_MS: u64 = 15 * 60_000;
/// How long a guest stays parked; afterwards its call is run again from the start.
const PARKED_MS: u64 = 5 * 60_000;
/// Parked guests of one requestor, each with an instance and its memory.
const PARKED_PER_REQUESTOR_MAX: u64 = 8;
/// Those of one tenant.
const PARKED_PER_TENANT_MAX: u64 = 32;
/// Those of the whole host.
const PARKED_TOTAL_MAX: u64 = 64;
const PARKED: CacheLimits = CacheLimits {
    weight_max_per_requestor: PARKED_PER_REQUESTOR_MAX,
    weight_max_per_tenant: PARKED_PER_TENANT_MAX,
    weight_max: PARKED_TOTAL_MAX,
};
/// States of one requestor that the host knows to have been answered.
const STATES_PER_REQUESTOR_MAX: u64 = 4096;
/// Those of one tenant.
const STATES_PER_TENANT_MAX: u64 = 16_384;
/// Those of the whole host.
const STATES_TOTAL_MAX: u64 = 65_536;
const STATES: CacheLimits = CacheLimits {
    weight_max_per_requestor: STATES_PER_REQUESTOR_MAX,
    weight_max_per_tenant: STATES_PER_TENANT_MAX,
    weight_max: STATES_TOTAL_MAX,
};
/// Bytes of results that are kept for one requestor, so that a reply that was lost can be given again.
const OUTCOME_BYTES_PER_REQUESTOR_MAX: u64 = 8 << 20;
/// Those of one tenant.
const OUTCOME_BYTES_PER_TENANT_MAX: u64 = 32 << 20;
/// Those of the whole host.
const OUTCOME_BYTES_TOTAL_MAX: u64 = 64 << 20;
const OUTCOMES: CacheLimits = CacheLimits {
    weight_max_per_requestor: OUTCOME_BYTES_PER_REQUESTOR_MAX,
    weight_max_per_tenant: OUTCOME_BYTES_PER_TENANT_MAX,
    weight_max: OUTCOME_BYTES_TOTAL_MAX,
};
/// Memory of an entry in addition to the result.
const OUTCOME_BYTES: u64 = 512;

/// A guest that sent input requests and waits for the answers.
pub(super) struct Parked {
    pub(super) guest: CallHandle,
    pub(super) pending: PendingInputRequests,
    /// Every key that this call has used so far.
    pub(super) issued: Vec<String>,
    /// The answers that it got before.
    pub(super) answers: Answers,
}

/// Questions of a guest, under their issued keys.
pub(super) struct PendingInputRequests {
    pub(super) input_requests: Vec<(String, InputRequest)>,
    pub(super) reply: oneshot::Sender<Result<Vec<InputResponse>, InputRequestError>>,
}

/// The outcome of a request.
pub(super) type Outcome = Result<Box<RawValue>, RpcError>;

#[derive(Clone)]
enum Round {
    /// A request continues this state now; `over` closes when it ends.
    Running { answers: [u8; 32], over: watch::Receiver<()> },
    /// A request has continued this state with these answers; its outcome is in `outcomes` until it is evicted.
    Done { answers: [u8; 32] },
}

/// What a retry finds.
pub(super) enum Claim {
    /// This request continues the state.
    Granted(StateLease),
    /// Another one with the same answers was there before.
    Done(Arc<Outcome>),
    /// Another one with other answers was there before.
    Conflict,
    /// Another one was there before, and its outcome is no longer known.
    Forgotten,
}

/// See the module.
pub(super) struct MultiRoundTrips {
    pub(super) sealer: Sealer,
    parked: Arc<BoundedCache<Parked>>,
    states: BoundedCache<Round>,
    outcomes: BoundedCache<Arc<Outcome>>,
}

impl MultiRoundTrips {
    pub(super) fn new(secret: &[u8; 32]) -> Self {
        Self {
            sealer: Sealer::new(secret),
            parked: Arc::new(BoundedCache::new(PARKED)),
            states: BoundedCache::new(STATES),
            outcomes: BoundedCache::new(OUTCOMES),
        }
    }

    /// Parks a guest until a request brings this state id, or its time is over.
    pub(super) fn park(&self, requestor: Requestor, state_id: StateId, parked: Parked) {
        let until = Instant::now() + Duration::from_millis(PARKED_MS);
        self.parked.put(CacheEntry { id: state_id, requestor, weight: 1, until, value: parked });
        let cache: Weak<_> = Arc::downgrade(&self.parked);
        tokio::spawn(async move {
            tokio::time::sleep_until(until).await;
            if let Some(cache) = cache.upgrade() {
                cache.expire();
            }
        });
    }

    /// Removes and returns the guest that is parked under a state id.
    pub(super) fn unpark(&self, state_id: &StateId) -> Option<Parked> {
        self.parked.take(state_id)
    }

    /// Claims the right to continue a state. Waits while an equal request continues it. `again`: the call may be run a
    /// second time.
    pub(super) async fn claim(
        self: &Arc<Self>,
        tasks: &Tasks,
        requestor: Requestor,
        position: &Position,
        answers: [u8; 32],
        may_run_again: bool,
    ) -> Result<Claim, tasks::Error> {
        let state_id = position.state_id;
        let until = position.until;
        loop {
            let (over, ends) = watch::channel(());
            let running = item(requestor, state_id, 1, Round::Running { answers, over: ends });
            match self.states.put_if(running, |round| self.is_free(&state_id, round, answers, may_run_again)) {
                Ok(()) => {
                    let rounds = Arc::clone(self);
                    let tasks = tasks.clone();
                    let stage = Stage::Unmarked;
                    let lease =
                        StateLease { rounds, tasks, requestor, state_id, until, answers, stage, over: Some(over) };
                    return if may_run_again { Ok(Claim::Granted(lease)) } else { lease.marked().await };
                }
                Err(Some(Round::Done { answers: other })) if other == answers => match self.outcomes.get(&state_id) {
                    Some(outcome) => return Ok(Claim::Done(outcome)),
                    // It went just now, so that the state is free.
                    None if may_run_again => {}
                    None => return Ok(Claim::Forgotten),
                },
                Err(Some(Round::Running { answers: other, mut over })) if other == answers => {
                    // Fails when the sender is gone, which is what is waited for.
                    let _ = over.changed().await;
                }
                Err(_) => return Ok(Claim::Conflict),
            }
        }
    }

    fn is_free(&self, state_id: &StateId, round: Option<&Round>, answers: [u8; 32], may_run_again: bool) -> bool {
        match round {
            None => true,
            Some(Round::Done { answers: other }) => {
                may_run_again && *other == answers && self.outcomes.get(state_id).is_none()
            }
            Some(Round::Running { .. }) => false,
        }
    }
}

fn item<V>(requestor: Requestor, state_id: StateId, weight: u64, value: V) -> CacheEntry<V> {
    CacheEntry { id: state_id, requestor, weight, until: Instant::now() + Duration::from_millis(STATE_MS), value }
}

/// Progress of a continued state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The store has no mark and needs none.
    Unmarked,
    /// The store has a mark, and no guest has received the answers.
    Marked,
    /// A guest has received the answers.
    Begun,
}

/// The right to go on from a state. Dropping it gives the right to the next one, as if nothing had been tried, unless a
/// guest has begun: then the state stays used.
pub(super) struct StateLease {
    rounds: Arc<MultiRoundTrips>,
    tasks: Tasks,
    requestor: Requestor,
    state_id: StateId,
    until: UnixMs,
    answers: [u8; 32],
    stage: Stage,
    /// Until the turn is over.
    over: Option<watch::Sender<()>>,
}

impl StateLease {
    /// Marks the state as used, unless it is.
    async fn marked(mut self) -> Result<Claim, tasks::Error> {
        // To its end, even if the request is dropped: only then it is known whether the mark is this turn's to take
        // back.
        let marking = tokio::spawn(async move {
            if !self.tasks.use_once(&self.requestor, self.state_id, self.until).await? {
                return Ok(Claim::Forgotten);
            }
            self.stage = Stage::Marked;
            Ok(Claim::Granted(self))
        });
        marking.await.unwrap_or(Ok(Claim::Forgotten))
    }

    /// A guest gets the answers now.
    pub(super) fn begin(&mut self) {
        if self.stage == Stage::Marked {
            self.stage = Stage::Begun;
        }
    }

    /// Keeps the outcome for equal requests.
    pub(super) fn conclude(mut self, outcome: Outcome) {
        let weight = OUTCOME_BYTES + outcome.as_ref().map_or(0, |result| result.get().len() as u64);
        self.rounds.outcomes.put(item(self.requestor, self.state_id, weight, Arc::new(outcome)));
        self.rounds.states.put(item(self.requestor, self.state_id, 1, Round::Done { answers: self.answers }));
        self.over = None;
    }

    /// Nothing came of it: the state is as good as before when this returns.
    pub(super) async fn unmark(mut self) {
        if self.stage == Stage::Begun {
            self.stage = Stage::Marked;
        }
        if let Some(release) = self.release() {
            let _ = release.await;
        }
    }

    /// Ends the lease for waiting requests, after the mark was removed from the store.
    fn release(&mut self) -> Option<JoinHandle<()>> {
        let over = self.over.take()?;
        let rounds = Arc::clone(&self.rounds);
        let requestor = self.requestor;
        let state_id = self.state_id;
        let until = self.until;
        let runtime = Handle::try_current().ok().filter(|_| self.stage == Stage::Marked);
        let Some(runtime) = runtime else {
            rounds.states.take(&state_id);
            return None;
        };
        let tasks = self.tasks.clone();
        Some(runtime.spawn(async move {
            if let Err(error) = tasks.unuse(&requestor, state_id, until).await {
                tracing::warn!(%error, "a state of a call stays used, although nothing came of it");
            }
            rounds.states.take(&state_id);
            drop(over);
        }))
    }
}

impl Drop for StateLease {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{World, world};
    use bulkhead_domain::requestor::{RequestorId, TenantId};

    const ANNA: Requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([1; 16]) };

    struct Bed {
        rounds: Arc<MultiRoundTrips>,
        world: World,
        position: Position,
    }

    impl Bed {
        fn new() -> Self {
            let world = world();
            let position = Position::new(world.tasks.now() + STATE_MS, Answers::new(), None).unwrap();
            Self { rounds: Arc::new(MultiRoundTrips::new(&[0; 32])), world, position }
        }

        /// As after a restart: what is in the store is all that is known.
        fn forgets(&mut self) {
            self.rounds = Arc::new(MultiRoundTrips::new(&[0; 32]));
        }

        async fn claim_with(&self, answers: u8, may_run_again: bool) -> Claim {
            let Self { rounds, world, position } = self;
            rounds.claim(&world.tasks, ANNA, position, [answers; 32], may_run_again).await.unwrap()
        }

        async fn claim(&self) -> Claim {
            self.claim_with(1, false).await
        }

        async fn lease(&self, may_run_again: bool) -> StateLease {
            let Claim::Granted(lease) = self.claim_with(1, may_run_again).await else { panic!("it is free") };
            lease
        }
    }

    fn null() -> Outcome {
        Ok(RawValue::NULL.to_owned())
    }

    #[tokio::test]
    async fn used_request_state_is_not_rerun_after_outcome_eviction() {
        let bed = Bed::new();
        bed.lease(false).await.conclude(null());
        assert!(matches!(bed.claim().await, Claim::Done(_)));
        bed.rounds.outcomes.take(&bed.position.state_id);
        assert!(matches!(bed.claim().await, Claim::Forgotten));
        assert!(matches!(bed.claim_with(2, true).await, Claim::Conflict));
        bed.lease(true).await.conclude(null());
    }

    #[tokio::test]
    async fn request_state_is_used_once_across_restart() {
        let mut bed = Bed::new();
        bed.lease(false).await.conclude(null());
        for _ in 0..2 {
            bed.forgets();
            assert!(matches!(bed.claim().await, Claim::Forgotten));
            assert!(matches!(bed.claim_with(2, false).await, Claim::Forgotten));
        }
        drop(bed.lease(true).await);
        assert!(matches!(bed.claim().await, Claim::Forgotten), "who needs no mark takes none back");
    }

    #[tokio::test]
    async fn interrupted_round_keeps_request_state_used() {
        let mut bed = Bed::new();
        let lease = bed.lease(false).await;
        bed.forgets();
        assert!(matches!(bed.claim().await, Claim::Forgotten), "the one before may be at it, or have died of it");
        lease.unmark().await;
        assert!(matches!(bed.claim().await, Claim::Granted(_)));
    }

    #[tokio::test]
    async fn round_without_effect_leaves_request_state_usable() {
        let bed = Bed::new();
        // Refused, or asked again; a guest may have heard of it, and stands still again.
        let mut lease = bed.lease(false).await;
        lease.begin();
        lease.unmark().await;
        let Claim::Granted(lease) = bed.claim_with(2, false).await else { panic!("good for other answers at once") };
        lease.unmark().await;
        // Dropped before it began: whoever comes with the same waits until that is written.
        drop(bed.lease(false).await);
        let mut lease = bed.lease(false).await;
        lease.begin();
        drop(lease);
        assert!(matches!(bed.claim().await, Claim::Forgotten), "a guest had the answers");
    }

    #[tokio::test]
    async fn dropped_claim_keeps_used_request_state_mark() {
        let mut bed = Bed::new();
        bed.lease(false).await.conclude(null());
        bed.forgets();
        for polls in 0..8 {
            let mut claim = Box::pin(bed.claim());
            for _ in 0..polls {
                if futures::poll!(&mut claim).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(claim);
        }
        assert!(matches!(bed.claim().await, Claim::Forgotten));
    }

    #[tokio::test]
    async fn request_state_claim_fails_without_store_write() {
        let bed = Bed::new();
        bed.world.store.fail_next_writes(1);
        let claim = bed.rounds.claim(&bed.world.tasks, ANNA, &bed.position, [1; 32], false).await;
        assert!(matches!(claim, Err(tasks::Error::Host { .. })));
        bed.lease(false).await.conclude(null());
    }
}
