//! The journal of a stored task, replayed for an operator: whether its call would do again what it did.
//!
//! Owns that one run. Must not change anything: not the record, not the journal, nor what a run of the task has or its
//! plugin is held to. Invariants: a check reaches nothing outside its sandbox, whatever its tool does; it costs what a
//! replay may cost, in the turn of the task's tenant; and there is one at a time.

use crate::engine::Tasks;
use crate::engine::run::drive::{facts, recall};
use crate::engine::run::resuming::{history, spent};
use crate::error::{Error, host_failure};
use crate::parts::call_identity::{DrawnIdentity, Identity};
use crate::parts::job::Attempt;
use crate::parts::journal::Beginning;
use bulkhead_calls::journal::{Corrupt, Divergence, JournalStatus, list};
use bulkhead_calls::{CallEvent, CallSpec, Journaling, RunningCall};
use bulkhead_domain::call::{CallError, FaultKind};
use bulkhead_domain::task::Task;
use tracing::Instrument as _;

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedJournal {
    pub entries: u64,
    pub bytes: u64,
    /// The step up to which the call is in its journal.
    pub mark: u64,
    /// `None`: the call did again what its journal says.
    pub divergence: Option<Divergence>,
}

/// Why there is nothing to find.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The task has no journal that it could be brought back from, or nothing was kept of its call.
    #[error("nothing is kept of its call")]
    NothingKept,
    /// Its version of the plugin is not there any more.
    #[error("{0}")]
    Lost(String),
    /// By something that is none of the call's own doing.
    #[error("its replay was stopped: {0}")]
    Stopped(String),
    #[error("{0}")]
    Corrupt(Corrupt),
    #[error("{0}")]
    Host(#[from] Error),
}

impl Tasks {
    /// Runs the call of a task again, as far as its journal goes, and without any effect.
    ///
    /// # Errors
    ///
    /// There is nothing to replay, or the replay did not come to a verdict.
    pub async fn check_journal(&self, task: &Task) -> Result<CheckedJournal, CheckError> {
        let _turn = self.inner.checking.lock().await;
        let beginning = Beginning::read(task).ok_or(CheckError::NothingKept)?;
        let kept = history(&self.inner, task).await.map_err(unread)?;
        let (head, history) = kept.ok_or(CheckError::NothingKept)?;
        let entries = list(&history.0).map_err(CheckError::Corrupt)?;
        let mark = entries.last().map_or(0, |last| last.step);
        let bytes = history.0.len() as u64;
        let checked = CheckedJournal { entries: entries.len() as u64, bytes, mark, divergence: None };
        let visit = recall(&self.inner, task).await.map_err(unread)?.into_iter().next();
        let Attempt { plugin, operation, limits, .. } = visit.ok_or(CheckError::NothingKept)?;

        let task_id = beginning.promoted.is_none().then_some(task.id);
        let drawn = DrawnIdentity { seed: task.seed, call_id: task.call_id };
        let attempt = beginning.attempt;
        let identity = Identity { drawn, task_id, attempt, journal: None };
        let spec = CallSpec {
            plugin,
            tenant: task.requestor.tenant,
            operation,
            limits,
            share: self.inner.shares.of(&task.requestor),
            activity: None,
            facts: facts(&self.inner, task, identity).sealed(),
            journaling: Journaling::Check { history, spent: spent(&head) },
        };
        // What the sandbox logs of a divergence is not of a run of the task.
        let span = tracing::info_span!("check of a journal", task.id = %task.id);
        let executor = &self.inner.executor;
        let running = span.in_scope(|| executor.start(spec)).map_err(|error| CheckError::Lost(error.to_string()))?;
        let divergence = verdict(running).instrument(span).await?;
        Ok(CheckedJournal { divergence, ..checked })
    }
}

/// Waits for the end of the replay, which says and asks nothing: if it did, it would get no reply.
async fn verdict(mut running: RunningCall) -> Result<Option<Divergence>, CheckError> {
    let ended = loop {
        match running.events.recv().await {
            Some(CallEvent::Finished(result)) => break result.err(),
            Some(_) => {}
            None => return Err(host_failure("checking a journal", &"its call ended without a result").into()),
        }
    };
    match (running.control.journal().map(|report| &report.status), ended) {
        (Some(JournalStatus::Reached | JournalStatus::Ended), _) => Ok(None),
        (Some(JournalStatus::Diverged(divergence)), _) => Ok(Some(divergence.clone())),
        (Some(JournalStatus::Corrupt(corrupt)), _) => Err(CheckError::Corrupt(*corrupt)),
        (Some(JournalStatus::Demoted(reason)), _) => Err(CheckError::Stopped(reason.to_string())),
        (Some(JournalStatus::Recording | JournalStatus::Replaying), _) | (None, None) => {
            Err(host_failure("checking a journal", &"its call did not come to its end").into())
        }
        (None, Some(error)) => Err(stopped(error)),
    }
}

fn unread(error: CallError) -> CheckError {
    match error {
        CallError::NotFound(what) => CheckError::Lost(what),
        CallError::Internal { incident } => CheckError::Host(Error::Host { incident }),
        _ => CheckError::NothingKept,
    }
}

/// What a plugin says of itself stays with the task's requestor; limits are the host's words.
fn stopped(error: CallError) -> CheckError {
    match error {
        CallError::Internal { incident } => CheckError::Host(Error::Host { incident }),
        CallError::Fault { kind: FaultKind::Limit | FaultKind::Deadline, reason } => CheckError::Stopped(reason),
        other => CheckError::Stopped(other.type_name().to_owned()),
    }
}
