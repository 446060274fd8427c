//! Calls that asked something and wait for a request that goes on with them.
//!
//! Owns two shortcuts, neither of which a correct answer depends on: guests that stand still where they asked, and what earlier
//! retries came to, so that a retry whose reply was lost gets the same one. Both are bounded in time, in all, per tenant and per requestor.

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
    /// A request goes on from this state at the moment; ends when it does.
    Running {
        answers: [u8; 32],
        over: watch::Receiver<()>,
    },
    Done {
        answers: [u8; 32],
        outcome: Arc<Outcome>,
    },
}

/// What a retry finds.
pub(super) enum Claim {
    /// It is the one that goes on.
    Turn(Turn),
    /// Another one with the same answers was there before.
    Done(Arc<Outcome>),
    /// Another one with other answers was there before.
    Conflict,
}

/// See the module.
pub(super) struct Rounds {
    pub(super) sealer: Sealer,
    parked: Arc<Shelf<Parked>>,
    outcomes: Shelf<Round>,
}

impl Rounds {
    pub(super) fn new(secret: &[u8; 32]) -> Self {
        Self { sealer: Sealer::new(secret), parked: Arc::new(Shelf::new(PARKED)), outcomes: Shelf::new(OUTCOMES) }
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

    /// Whose turn it is to go on from a state. Waits while an equal request does.
    pub(super) async fn claim(self: &Arc<Self>, requestor: Requestor, ticket: Ticket, answers: [u8; 32]) -> Claim {
        loop {
            let (over, ends) = watch::channel(());
            let item = || self.item(requestor, ticket, OUTCOME_BYTES, Round::Running { answers, over: ends });
            match self.outcomes.get_or_put(&ticket, item) {
                None => {
                    let rounds = Arc::clone(self);
                    return Claim::Turn(Turn { rounds, requestor, ticket, answers, concluded: false, _over: over });
                }
                Some(Round::Done { answers: other, outcome }) if other == answers => return Claim::Done(outcome),
                Some(Round::Running { answers: other, mut over }) if other == answers => {
                    // Fails when the sender is gone, which is what is waited for.
                    let _ = over.changed().await;
                }
                Some(Round::Done { .. } | Round::Running { .. }) => return Claim::Conflict,
            }
        }
    }

    fn item(&self, requestor: Requestor, ticket: Ticket, weight: usize, value: Round) -> Item<Round> {
        Item { ticket, requestor, weight, until: Instant::now() + Duration::from_millis(STATE_MS), value }
    }
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
        let done = Round::Done { answers: self.answers, outcome: Arc::new(outcome) };
        self.rounds.outcomes.put(self.rounds.item(self.requestor, self.ticket, weight, done));
        self.concluded = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.concluded {
            self.rounds.outcomes.take(&self.ticket);
        }
    }
}
