//! What operators see of a task's durability: whether it goes on after its host ends, its journal, and that it is held.
//!
//! Must not show what an entry says: that belongs to the requestor. Invariant: it reads the record and the journal's
//! head, and bytes of a journal only to list its entries; a replay is the engine's.

use super::ControlError;
use super::operator::HostOperator;
use super::views::{DivergenceView, DurableView, JournalEntryView, JournalView, ReplayView};
use bulkhead_calls::journal;
use bulkhead_calls::journal::{Divergence, ListedEntry};
use bulkhead_domain::task::{Active, Phase, Task};
use bulkhead_store::journal::{JournalHead, JournalState};
use bulkhead_tasks::{CheckError, CheckedJournal, held_by_operator};

/// Entries in one reply.
const ENTRIES_MAX: usize = 10_000;
/// What a task that an operator failed says, unless the operator has other words.
const FAILED: &str = "ended by the operator";
/// What an operator may say to a requestor, in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 1_000;

/// Whether a task goes on after its host ends; `None`: it has not begun, or is over, and not because it could not go
/// on.
pub(super) fn durable(task: &Task, head: Option<&JournalHead>) -> Option<DurableView> {
    match task.phase {
        Phase::Ended(_) if has_diverged(head) => Some(durable_of_run(task, head)),
        Phase::Active(Active::Queued) | Phase::Paused { before: Active::Queued } | Phase::Ended(_) => None,
        Phase::Active(_) | Phase::Paused { .. } => Some(durable_of_run(task, head)),
    }
}

/// Whether the call did something else than its journal says, which is kept for that.
fn has_diverged(head: Option<&JournalHead>) -> bool {
    head.is_some_and(|head| matches!(head.state, JournalState::Diverged { .. }))
}

fn durable_of_run(task: &Task, head: Option<&JournalHead>) -> DurableView {
    let no = |reason: &str| DurableView::No { reason: reason.to_owned() };
    if task.work.tool().is_none() {
        return no("only calls of tools are durable");
    }
    if task.durable.is_none() {
        return no("its plugin was not durable when it began");
    }
    if !task.is_journaled() {
        return no("a host that knows no such journals ran it last");
    }
    match head {
        None => DurableView::Journal { entries: 0, bytes: 0, mark: 0, resumes: 0 },
        Some(head) if !head.is_of(task) => no("its journal is of an earlier run"),
        Some(JournalHead { state: JournalState::Demoted { reason }, .. }) => no(reason),
        Some(JournalHead { state: JournalState::Diverged { reason }, .. }) => {
            no(&format!("its journal does not fit: {reason}"))
        }
        Some(&JournalHead { entries, bytes, step: mark, resumes_since_growth: resumes, .. }) => {
            DurableView::Journal { entries, bytes, mark, resumes }
        }
    }
}

/// The same of any task.
fn durable_of_any(task: &Task, head: Option<&JournalHead>) -> DurableView {
    let reason = match task.phase {
        Phase::Ended(_) => "it is over, and its journal went with its end",
        _ => "it has not begun",
    };
    durable(task, head).unwrap_or_else(|| DurableView::No { reason: reason.to_owned() })
}

/// What a requestor is told of an operator's order.
pub(super) fn message_to_requestor(message: &str) -> Result<(), ControlError> {
    let wrong = message.trim().is_empty() || message.len() > MESSAGE_BYTES_MAX;
    if wrong || message.chars().any(char::is_control) {
        return Err(ControlError::Invalid(format!(
            "a message is one line of at most {MESSAGE_BYTES_MAX} bytes; its requestor reads it"
        )));
    }
    Ok(())
}

/// What a task says that an operator holds.
pub(super) fn hold_message(why: Option<&str>) -> Result<String, ControlError> {
    why.map_or(Ok(()), message_to_requestor)?;
    Ok(held_by_operator(why))
}

/// What a task says that an operator ended as failed.
pub(super) fn fail_message(message: Option<String>) -> Result<String, ControlError> {
    let message = message.unwrap_or_else(|| FAILED.to_owned());
    message_to_requestor(&message)?;
    Ok(message)
}

impl HostOperator {
    /// Whether a task goes on after its host ends.
    pub(super) async fn durable(&self, task: &Task) -> Result<Option<DurableView>, ControlError> {
        Ok(durable(task, self.store.journal(&task.requestor, task.id).await?.as_ref()))
    }

    /// Says what lets a task go on that nobody holds: its requestor may have paused it.
    pub(super) async fn must_be_held(&self, id: &str) -> Result<(), ControlError> {
        if self.find(id).await?.is_held() {
            return Ok(());
        }
        Err(ControlError::Invalid(format!(
            "task {id} is not held; `bulkhead tasks resume {id}` lets one go on that is paused"
        )))
    }

    /// The journal of a task's call; its entries from there on, at most so many, where they are asked for.
    pub(super) async fn journal(
        &self,
        id: &str,
        entries_max: Option<usize>,
        from: u32,
    ) -> Result<JournalView, ControlError> {
        let task = self.find(id).await?;
        let head = self.store.journal(&task.requestor, task.id).await?;
        let mut view = JournalView {
            id: task.id.to_string(),
            durable: durable_of_any(&task, head.as_ref()),
            attempt: head.as_ref().map(|head| head.attempt),
            entries_listed: None,
            more: false,
        };
        if let Some(count_max) = entries_max {
            let bytes = self.store.journal_bytes(&task.requestor, task.id).await?;
            let listed = journal::list(&bytes).map_err(|corrupt| ControlError::Failed(corrupt.to_string()))?;
            let mut rest = listed.into_iter().filter(|entry| entry.number >= from);
            let shown = rest.by_ref().take(count_max.min(ENTRIES_MAX)).map(|entry| {
                let ListedEntry { number, step, kind, import, bytes } = entry;
                JournalEntryView { number, step, kind: kind.to_owned(), import, bytes }
            });
            let shown = shown.collect();
            (view.entries_listed, view.more) = (Some(shown), rest.next().is_some());
        }
        Ok(view)
    }

    /// Replays the journal of a task's call, in the host that runs.
    pub(super) async fn replay(&self, id: &str) -> Result<ReplayView, ControlError> {
        let tasks = &self.running_host()?.tasks;
        let task = self.find(id).await?;
        let head = self.store.journal(&task.requestor, task.id).await?;
        if !has_diverged(head.as_ref())
            && let DurableView::No { reason } = durable_of_any(&task, head.as_ref())
        {
            return Err(ControlError::Invalid(format!("task {id} has no journal to replay: {reason}")));
        }
        let checked = tasks.check_journal(&task).await.map_err(|error| unchecked(id, &error))?;
        Ok(replay_view(task.id.to_string(), checked))
    }
}

fn unchecked(id: &str, error: &CheckError) -> ControlError {
    let reason = format!("task {id} cannot be replayed: {error}");
    match error {
        CheckError::NothingKept | CheckError::Lost(_) => ControlError::Invalid(reason),
        CheckError::Stopped(_) | CheckError::Corrupt(_) | CheckError::Host(_) => ControlError::Failed(reason),
    }
}

fn replay_view(id: String, checked: CheckedJournal) -> ReplayView {
    let CheckedJournal { entries, bytes, mark, divergence } = checked;
    let divergence = divergence.map(|Divergence { entry, recorded, requested, step, why }| DivergenceView {
        entry,
        recorded,
        requested,
        step,
        why: why.to_owned(),
    });
    ReplayView { id, agrees: divergence.is_none(), entries, bytes, mark, divergence }
}
