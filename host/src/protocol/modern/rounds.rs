//! Calls that asked something and wait for a request that goes on with them.
//!
//! Owns which states are good for a turn, so that no call is run twice: a state is, from when it was given until a request has gone on
//! from it, and one that the host knows nothing of, because there were too many or the host was another one, is good for calls only
//! that may run again. Beside that, two shortcuts that no correct answer depends on: guests that stand still where they asked, and
//! what earlier retries came to, for retries whose reply was lost. All are bounded in time, in all, per tenant and per requestor.

use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::guest::Guest;
use super::shelf::{Bounds, Item, Shelf, Ticket};
use super::state::{Answers, Sealer};
use crate::domain::call::{Answer, AskError, InputRequest};
use crate::domain::requestor::Requestor;
use crate::protocol::error::RpcError;

/// How long a client has to come back with its answers.
pub(super) const STATE_MS: u64 = 15 * 60_000;
/// How long a guest stands still for it; afterwards its call is run again from the start.
const PARKED_MS: u64 = 5 * 60_000;
/// Guests of one requestor that stand still where they asked, each with an instance and its memory.
const PARKED_PER_REQUESTOR_MAX: usize = 8;
/// Those of one tenant.
const PARKED_PER_TENANT_MAX: usize = 32;
/// Those of the whole host.
const PARKED_TOTAL_MAX: usize = 64;
const PARKED: Bounds = Bounds {
    weight_max_per_requestor: PARKED_PER_REQUESTOR_MAX,
    weight_max_per_tenant: PARKED_PER_TENANT_MAX,
    weight_max: PARKED_TOTAL_MAX,
};
/// States of one requestor that the host knows at a time.
const STATES_PER_REQUESTOR_MAX: usize = 4096;
/// Those of one tenant.
const STATES_PER_TENANT_MAX: usize = 16_384;
/// Those of the whole host.
const STATES_TOTAL_MAX: usize = 65_536;
const STATES: Bounds = Bounds {
    weight_max_per_requestor: STATES_PER_REQUESTOR_MAX,
    weight_max_per_tenant: STATES_PER_TENANT_MAX,
    weight_max: STATES_TOTAL_MAX,
};
/// Bytes of results that are kept for one requestor, so that a reply that was lost can be given again.
const OUTCOME_BYTES_PER_REQUESTOR_MAX: usize = 8 << 20;
/// Those of one tenant.
const OUTCOME_BYTES_PER_TENANT_MAX: usize = 32 << 20;
/// Those of the whole host.
const OUTCOME_BYTES_TOTAL_MAX: usize = 64 << 20;
const OUTCOMES: Bounds = Bounds {
    weight_max_per_requestor: OUTCOME_BYTES_PER_REQUESTOR_MAX,
    weight_max_per_tenant: OUTCOME_BYTES_PER_TENANT_MAX,
    weight_max: OUTCOME_BYTES_TOTAL_MAX,
};
/// What an entry costs beside the result.
const OUTCOME_BYTES: usize = 512;

/// A guest that asked and stands still.
pub(super) struct Parked {
    pub(super) guest: Guest,
    pub(super) ask: Ask,
    /// Every key that this call has used so far.
    pub(super) issued: Vec<String>,
    /// The answers that it got before.
    pub(super) answers: Answers,
}

/// Questions of a guest, under their issued keys.
pub(super) struct Ask {
    pub(super) questions: Vec<(String, InputRequest)>,
    pub(super) reply: oneshot::Sender<Result<Vec<Answer>, AskError>>,
}

/// What a request came to.
pub(super) type Outcome = Result<Box<RawValue>, RpcError>;

#[derive(Clone)]
enum Round {
    /// Nobody has gone on from this state yet.
    Open,
    /// A request goes on from this state at the moment; ends when it does.
    Running { answers: [u8; 32], over: watch::Receiver<()> },
    /// One has, with these answers; what it came to is in the outcomes, while there is room.
    Done { answers: [u8; 32] },
}

/// What a retry finds.
pub(super) enum Claim {
    /// It is the one that goes on.
    Turn(Turn),
    /// Another one with the same answers was there before.
    Done(Arc<Outcome>),
    /// Another one with other answers was there before.
    Conflict,
    /// There may have been another one, and nobody knows any more what came of it.
    Forgotten,
}

/// See the module.
pub(super) struct Rounds {
    pub(super) sealer: Sealer,
    parked: Arc<Shelf<Parked>>,
    states: Shelf<Round>,
    outcomes: Shelf<Arc<Outcome>>,
}

impl Rounds {
    pub(super) fn new(secret: &[u8; 32]) -> Self {
        Self {
            sealer: Sealer::new(secret),
            parked: Arc::new(Shelf::new(PARKED)),
            states: Shelf::new(STATES),
            outcomes: Shelf::new(OUTCOMES),
        }
    }

    /// Lets a guest stand still until somebody comes with this ticket, or its time is over.
    pub(super) fn park(&self, requestor: Requestor, ticket: Ticket, parked: Parked) {
        let until = Instant::now() + Duration::from_millis(PARKED_MS);
        self.parked.put(Item { ticket, requestor, weight: 1, until, value: parked });
        let shelf: Weak<_> = Arc::downgrade(&self.parked);
        tokio::spawn(async move {
            tokio::time::sleep_until(until).await;
            if let Some(shelf) = shelf.upgrade() {
                shelf.expire();
            }
        });
    }

    /// The guest that stands still under a ticket.
    pub(super) fn unpark(&self, ticket: &Ticket) -> Option<Parked> {
        self.parked.take(ticket)
    }

    /// Notes a state that is given to a client.
    pub(super) fn open(&self, requestor: Requestor, ticket: Ticket) {
        self.states.put(item(requestor, ticket, 1, Round::Open));
    }

    /// Whose turn it is to go on from a state. Waits while an equal request does. `again`: the call may be run a second time.
    pub(super) async fn claim(
        self: &Arc<Self>,
        requestor: Requestor,
        ticket: Ticket,
        answers: [u8; 32],
        again: bool,
    ) -> Claim {
        loop {
            let (over, ends) = watch::channel(());
            let running = item(requestor, ticket, 1, Round::Running { answers, over: ends });
            let is_free = |round: Option<&Round>| round.map_or(again, |round| matches!(round, Round::Open));
            match self.states.put_if(running, is_free) {
                Ok(()) => {
                    let rounds = Arc::clone(self);
                    return Claim::Turn(Turn { rounds, requestor, ticket, answers, concluded: false, _over: over });
                }
                Err(None) => return Claim::Forgotten,
                Err(Some(Round::Done { answers: other })) if other == answers => match self.outcomes.get(&ticket) {
                    Some(outcome) => return Claim::Done(outcome),
                    None if again => self.open(requestor, ticket),
                    None => return Claim::Forgotten,
                },
                Err(Some(Round::Running { answers: other, mut over })) if other == answers => {
                    // Fails when the sender is gone, which is what is waited for.
                    let _ = over.changed().await;
                }
                Err(Some(_)) => return Claim::Conflict,
            }
        }
    }
}

fn item<V>(requestor: Requestor, ticket: Ticket, weight: usize, value: V) -> Item<V> {
    Item { ticket, requestor, weight, until: Instant::now() + Duration::from_millis(STATE_MS), value }
}

/// The right to go on from a state. Dropping it gives the right to the next one, as if nothing had been tried.
pub(super) struct Turn {
    rounds: Arc<Rounds>,
    requestor: Requestor,
    ticket: Ticket,
    answers: [u8; 32],
    concluded: bool,
    _over: watch::Sender<()>,
}

impl Turn {
    /// Keeps what it came to, for equal requests.
    pub(super) fn conclude(mut self, outcome: Outcome) {
        let weight = OUTCOME_BYTES + outcome.as_ref().map_or(0, |result| result.get().len());
        self.rounds.outcomes.put(item(self.requestor, self.ticket, weight, Arc::new(outcome)));
        self.rounds.states.put(item(self.requestor, self.ticket, 1, Round::Done { answers: self.answers }));
        self.concluded = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.concluded {
            self.rounds.open(self.requestor, self.ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::requestor::{RequestorId, TenantId};

    const ANNA: Requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([1; 16]) };
    const TICKET: Ticket = [7; 16];

    async fn claim(rounds: &Arc<Rounds>, again: bool) -> Claim {
        rounds.claim(ANNA, TICKET, [1; 32], again).await
    }

    #[tokio::test]
    async fn a_state_that_was_gone_on_from_is_not_run_again_when_its_outcome_is_pushed_out() {
        let rounds = Arc::new(Rounds::new(&[0; 32]));
        rounds.open(ANNA, TICKET);
        let Claim::Turn(turn) = claim(&rounds, false).await else { panic!("it is free") };
        turn.conclude(Ok(RawValue::NULL.to_owned()));
        assert!(matches!(claim(&rounds, false).await, Claim::Done(_)));
        rounds.outcomes.take(&TICKET);
        assert!(matches!(claim(&rounds, false).await, Claim::Forgotten));
        assert!(matches!(rounds.claim(ANNA, TICKET, [2; 32], true).await, Claim::Conflict));
        assert!(matches!(claim(&rounds, true).await, Claim::Turn(_)), "a call that may run again does");
    }

    #[tokio::test]
    async fn a_state_that_nobody_knows_is_good_only_for_what_may_run_again() {
        let rounds = Arc::new(Rounds::new(&[0; 32]));
        assert!(matches!(claim(&rounds, false).await, Claim::Forgotten));
        let Claim::Turn(turn) = claim(&rounds, true).await else { panic!("it may run again") };
        drop(turn);
        assert!(matches!(claim(&rounds, false).await, Claim::Turn(_)), "given back, it is free");
    }
}
