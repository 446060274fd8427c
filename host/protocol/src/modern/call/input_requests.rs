//! Questions in the course of a call: answered from what the client has brought, or left to the request that brings the
//! rest.

use super::super::bounded_cache::StateId;
use super::super::multi_round_trip::{Parked, PendingInputRequests, STATE_MS};
use super::super::result::Ending;
use super::super::state::{Position, SealError};
use super::{ActiveCall, PluginCall, RoundTrip, RoundTripError};
use crate::error::RpcError;
use crate::input_requests::{read_answer, unusable_answer};
use bulkhead_domain::call::{CallError, InputRequest, InputRequestError};

/// What came of a question.
pub(super) enum InputOutcome {
    Answered(Box<ActiveCall>),
    Left(Ending),
}

impl RoundTrip {
    /// Answers the guest if every answer is there, else leaves the call to a request that brings them.
    pub(super) fn settle(
        &mut self,
        active: ActiveCall,
        pending: PendingInputRequests,
    ) -> Result<InputOutcome, RoundTripError> {
        let mut answers = Vec::new();
        let mut missing = Vec::new();
        let mut unusable = None;
        for (key, request) in &pending.input_requests {
            let before = active.answers.get(key).and_then(|raw| read_answer(&request.kind, raw.get()).ok());
            match (before, self.fresh.get(key)) {
                (Some(answer), _) => answers.push(answer),
                (None, Some(raw)) => match read_answer(&request.kind, raw.get()) {
                    Ok(answer) => {
                        self.used_answer = true;
                        answers.push(answer);
                    }
                    Err(reason) => unusable = Some(unusable_answer(key, &reason)),
                },
                (None, None) => missing.push((key.clone(), request.clone())),
            }
        }
        if missing.is_empty() && unusable.is_none() {
            self.begin_lease();
            let _ = pending.reply.send(Ok(answers));
            return Ok(InputOutcome::Answered(Box::new(active)));
        }
        let lacking = self.unable(missing.iter().map(|(_, request)| request));
        let refusal = match (unusable, lacking) {
            (Some(refusal), _) => refusal,
            // An earlier request was asked this; the question waits for one that can be.
            (None, Some(feature)) if self.resumed_from.is_some() && !self.used_answer => {
                RpcError::modern(&CallError::MissingCapability(feature))
            }
            (None, Some(feature)) => {
                let _ = pending.reply.send(Err(InputRequestError::Unsupported(feature)));
                return Ok(InputOutcome::Answered(Box::new(active)));
            }
            (None, None) => return self.leave(active, pending, missing),
        };
        if let Some((position, _)) = &self.resumed_from {
            self.park(position.state_id, active, pending);
        }
        Err(RoundTripError::Refused(refusal))
    }

    /// Asks the client, under the state that it came with if it has brought nothing new, else under a new one.
    fn leave(
        &self,
        mut active: ActiveCall,
        pending: PendingInputRequests,
        input_requests: Vec<(String, InputRequest)>,
    ) -> Result<InputOutcome, RoundTripError> {
        if let Some((position, state)) = self.resumed_from.as_ref().filter(|_| !self.used_answer) {
            let state = state.clone();
            self.park(position.state_id, active, pending);
            return Ok(InputOutcome::Left(Ending::InputRequired { input_requests, state: Some(state) }));
        }
        for (key, raw) in &self.fresh {
            active.answers.entry(key.clone()).or_insert_with(|| raw.clone());
        }
        let until = self.shared.tasks.now().saturating_add(STATE_MS);
        let broken = || RpcError::host_failure(format_args!("a requestState cannot be made"));
        let version = match &self.plugin_call {
            PluginCall::Tool(call) => Some(&call.tool.plugin),
            PluginCall::PluginRequests(_) => None,
        };
        let position = Position::new(until, active.answers.clone(), version).map_err(|_| broken())?;
        let binding = self.binding().ok_or_else(broken)?;
        let state = self.shared.modern.rounds.sealer.seal(&binding, &position).map_err(|error| match error {
            SealError::TooLarge => RpcError::invalid_params("the answers of this call are too large to go on with it"),
            SealError::Broken => broken(),
        })?;
        self.park(position.state_id, active, pending);
        Ok(InputOutcome::Left(Ending::InputRequired { input_requests, state: Some(state) }))
    }

    fn park(&self, state_id: StateId, active: ActiveCall, pending: PendingInputRequests) {
        let ActiveCall { mut guest, issued, answers } = active;
        guest.park();
        self.shared.modern.rounds.park(self.requestor, state_id, Parked { guest, pending, issued, answers });
    }
}

/// The plugin's key at first use, then with `-2`, `-3` …: a key names one question of a call.
pub(super) fn issue(issued: &mut Vec<String>, key: &str) -> String {
    let candidates = std::iter::once(key.to_owned()).chain((2u64..).map(|n| format!("{key}-{n}")));
    let key = candidates.into_iter().find(|candidate| !issued.contains(candidate)).unwrap_or_else(|| key.to_owned());
    issued.push(key.clone());
    key
}
