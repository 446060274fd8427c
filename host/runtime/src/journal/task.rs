//! What a journaled guest learns of its own call: its client, its questions, its signals, being a task, and sleep.
//!
//! Owns what of that is an entry. Each function is an observation of one import, for calls with and without a journal.
//! Invariant: a guest that runs again learns the same at the same step.

use std::time::Duration;

use super::codec::{decode, encode};
use super::entry::CommandKind;
use super::values::{Answers, digest_of_requests};
use crate::call::Call;
use bulkhead_calls::ClientView;
use bulkhead_domain::call::InputRequest;

/// A sleep as long as this is kept before it begins: its end is known from then on.
const KEPT_SLEEP_MS: u64 = 1000;

/// What a guest has to do to sleep.
pub(crate) enum Sleep {
    /// It did that in an earlier run.
    Over,
    /// So long, until this time of its clock.
    Wait(Duration, u64),
}

impl Call {
    /// What the guest knows of its client from here on.
    pub(crate) fn shown_audience(&mut self) -> wasmtime::Result<ClientView> {
        let current = self.shared.audience(&self.facts);
        let Some(journal) = &mut self.journal else { return Ok(current) };
        if let Some(bytes) = journal.state.take_value()? {
            let Some(audience) = decode(&bytes) else {
                return Err(journal.state.diverge_after("the value cannot be read").into());
            };
            journal.audience = audience;
        } else if !journal.is_replaying() && current != journal.audience {
            journal.state.put_value(encode(&current));
            journal.audience = current;
        }
        Ok(journal.audience)
    }

    /// Whether the guest is a task, as it knows from here on.
    pub(crate) fn shown_task(&mut self) -> wasmtime::Result<Option<String>> {
        let current = self.shared.task_id();
        let Some(journal) = &mut self.journal else {
            return Ok(current.map(str::to_owned).or_else(|| self.facts.task_id.clone()));
        };
        if journal.task_id.is_none() {
            if let Some(id) = journal.state.take_promotion()? {
                journal.task_id = Some(id);
            } else if let Some(id) = current.filter(|_| !journal.is_replaying()) {
                journal.state.put_promotion(id.to_owned());
                journal.state.put_mark();
                journal.task_id = Some(id.to_owned());
            }
        }
        Ok(journal.task_id.clone())
    }

    /// Whether the guest has to ask for itself to become a task, or did so in an earlier run.
    pub(crate) fn has_to_ask(&mut self) -> wasmtime::Result<bool> {
        let Some(journal) = &mut self.journal else { return Ok(true) };
        let has_to_ask = journal.state.goes_on();
        self.settle()?;
        Ok(has_to_ask)
    }

    /// The messages that the guest got here in an earlier run. `None`: it has to fetch them.
    pub(crate) fn recorded_messages(&mut self) -> wasmtime::Result<Option<Vec<String>>> {
        let Some(journal) = &mut self.journal else { return Ok(None) };
        let Some(bytes) = journal.state.take_value()? else {
            return Ok(journal.is_replaying().then(Vec::new));
        };
        match decode(&bytes) {
            Some(messages) => Ok(Some(messages)),
            None => Err(journal.state.diverge_after("the value cannot be read").into()),
        }
    }

    /// Keeps messages that the guest is given.
    pub(crate) fn record_messages(&mut self, messages: &Vec<String>) {
        if let Some(journal) = self.journal.as_mut().filter(|_| !messages.is_empty()) {
            journal.state.put_value(encode(messages));
            journal.state.put_mark();
        }
    }

    /// The signals that the guest sees from here on, of which these are set.
    pub(crate) fn shown_signals(&mut self, current: u8) -> wasmtime::Result<u8> {
        match &self.journal {
            None => return Ok(current),
            // The guest sees no time here. A task writes it down all the same: a journal that grows says that its call
            // gets on.
            Some(journal) if journal.is_of_plain_call() => self.observe_responses()?,
            Some(_) => self.observe()?,
        }
        let Some(journal) = &mut self.journal else { return Ok(current) };
        if let Some(signals) = journal.state.take_signals()? {
            journal.signals = signals;
        } else if !journal.is_replaying() && current != journal.signals {
            journal.state.put_signals(current);
            journal.signals = current;
        }
        Ok(journal.signals)
    }

    /// The attempt that the call began as.
    pub(crate) fn shown_attempt(&self) -> u32 {
        self.journal.as_ref().map_or(self.facts.attempt, |journal| journal.attempt)
    }

    /// The answers to these questions from an earlier run. `None`: they have to be asked, and their being asked is
    /// kept.
    pub(crate) fn recorded_answers(&mut self, requests: &[InputRequest]) -> wasmtime::Result<Option<Answers>> {
        let Some(journal) = &mut self.journal else { return Ok(None) };
        let number = journal.next_command();
        let digest = digest_of_requests(requests);
        if !journal.state.must_command(CommandKind::Question, number, digest)? {
            journal.state.put_command(CommandKind::Question, number, digest);
            journal.state.put_mark();
        }
        // An answer that was still awaited is awaited again.
        let recorded = journal.state.must_value()?;
        let answers = match recorded {
            None => None,
            Some(bytes) => match decode(&bytes) {
                Some(answers) => Some(answers),
                None => return Err(journal.state.diverge_after("the value cannot be read").into()),
            },
        };
        if matches!(answers, Some(Some(Ok(_)))) {
            journal.requests_answered += requests.len();
        }
        self.settle()?;
        Ok(answers)
    }

    /// Keeps answers that the guest is given.
    pub(crate) fn record_answers(&mut self, answers: &Answers) {
        if let Some(journal) = &mut self.journal {
            if let Some(Ok(answers)) = answers {
                journal.requests_answered += answers.len();
            }
            journal.state.put_value(encode(answers));
            journal.keep_much();
        }
    }

    /// What is to be done for a sleep of so many milliseconds.
    pub(crate) fn sleep_of(&mut self, ms: u64) -> wasmtime::Result<Sleep> {
        let Some(journal) = &mut self.journal else { return Ok(Sleep::Wait(Duration::from_millis(ms), 0)) };
        let until = journal.clock.look(&mut journal.state)?.saturating_add(ms);
        let is_known = journal.state.take_sleep()?;
        if journal.is_replaying() && !journal.state.goes_on() {
            journal.clock.slept_until(until);
            return Ok(Sleep::Over);
        }
        self.settle()?;
        let Some(journal) = &mut self.journal else { return Ok(Sleep::Over) };
        if ms >= KEPT_SLEEP_MS {
            if !is_known {
                journal.state.put_sleep();
            }
            journal.state.put_mark();
            journal.keep_soon();
        }
        Ok(Sleep::Wait(journal.clock.until(until), until))
    }

    /// A sleep is over.
    pub(crate) fn slept(&mut self, until: u64) {
        if let Some(journal) = &mut self.journal {
            journal.clock.slept_until(until);
        }
    }
}
