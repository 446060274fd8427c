//! The journal of a task's call: the port of the sandbox, on the store.
//!
//! Owns the narrowing to one run of one task, and the order of what that run writes. Must not know what a journal says. Invariants: a run
//! has one append under way at most, alone or beside another change, so each goes on from where the one before it ended; and what the
//! store has not confirmed does not count as kept.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::run::OUTCOME_RETRY;
use bulkhead_domain::crash_points;
use bulkhead_domain::task::{DurableMarker, JOURNAL_VERSION, Task};
use bulkhead_runtime::{Fenced, JournalSink, Tail};
use bulkhead_store::journal::{Append, Beside, HeadAfter, JournalHead, JournalState, TaskRef};
use bulkhead_store::{self as store, Store};

/// What all runs of a call share that go on from one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beginning {
    /// The attempt that the guest sees.
    pub(super) attempt: u32,
    /// Questions that were asked before the call began.
    pub(super) inputs: u32,
    /// Runs that went on and wrote nothing at all.
    pub(super) resumes: u32,
}

impl Beginning {
    /// Of a task that begins its call as this attempt.
    pub(super) fn of(task: &Task, attempt: u32) -> Self {
        Self { attempt, inputs: u32::try_from(task.inputs.len()).unwrap_or(u32::MAX), resumes: 0 }
    }

    /// The beginning of the task's present run, if it keeps a journal.
    pub(super) fn read(task: &Task) -> Option<Self> {
        let marker = task.durable.as_ref().filter(|_| task.is_journaled())?;
        let (numbers, rest) = marker.detail().as_chunks::<4>();
        match numbers {
            [attempt, inputs, resumes] if rest.is_empty() => Some(Self {
                attempt: u32::from_le_bytes(*attempt),
                inputs: u32::from_le_bytes(*inputs),
                resumes: u32::from_le_bytes(*resumes),
            }),
            _ => None,
        }
    }

    /// The marker of a run that begins so.
    pub(super) fn marker(self, attempt: u32, engine_hash: u64) -> Option<DurableMarker> {
        let detail = [self.attempt, self.inputs, self.resumes].map(u32::to_le_bytes).concat();
        DurableMarker::new(JOURNAL_VERSION, attempt, engine_hash, detail)
    }
}

/// See the module.
pub(super) struct TaskJournal {
    store: Arc<dyn Store>,
    task: TaskRef,
    attempt: u32,
    /// Questions of the task that are not the call's.
    pub(super) inputs_before: usize,
    kept: AtomicU64,
    /// The pieces that there are.
    rows: Arc<Mutex<u32>>,
    /// Nothing is written any more: what the guest knows is not what the journal says.
    is_closed: AtomicBool,
    this: Weak<Self>,
}

impl fmt::Debug for TaskJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskJournal").field("task", &self.task.id).field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

impl TaskJournal {
    /// The journal of the task's present run, which goes on with this head.
    pub(super) fn new(store: Arc<dyn Store>, task: &Task, inputs_before: usize, head: Option<&JournalHead>) -> Arc<Self> {
        let (rows, kept) = head.map_or((0, 0), |head| (head.rows, head.bytes));
        Arc::new_cyclic(|this| Self {
            store,
            task: TaskRef::of(task),
            attempt: task.attempt,
            inputs_before,
            kept: AtomicU64::new(kept),
            rows: Arc::new(Mutex::new(rows)),
            is_closed: AtomicBool::new(false),
            this: Weak::clone(this),
        })
    }

    /// The run is where the one before it was, and waits there as that one did: being resumed again is no failure of it.
    pub(super) async fn came_back(self: &Arc<Self>) {
        let writer = self.writer().await;
        let TaskRef { requestor, id } = self.task;
        let head = match self.store.journal(&requestor, id).await {
            Ok(Some(head)) if head.resumes_since_growth > 0 => head,
            _ => return,
        };
        let after = HeadAfter { resumes_since_growth: 0, ..head.unchanged() };
        let append = Append { attempt: self.attempt, at_row: *writer.rows, bytes: Vec::new(), head: after, caps: None };
        if let Err(error) = self.store.append(&requestor, id, append).await {
            tracing::debug!(task.id = %id, "that a task came back is not kept: {error}");
        }
    }

    /// Waits until nothing else is being written.
    pub(super) async fn writer(self: &Arc<Self>) -> Writer {
        Writer { rows: Arc::clone(&self.rows).lock_owned().await, journal: Arc::clone(self) }
    }
}

/// The right to write one journal.
pub(super) struct Writer {
    journal: Arc<TaskJournal>,
    rows: OwnedMutexGuard<u32>,
}

impl Writer {
    /// What of the tail is not kept yet, for a change that it goes along with. `None`: nothing.
    pub(super) fn append(&self, tail: &Tail) -> Option<Append> {
        let known = usize::try_from(self.journal.kept().saturating_sub(tail.at)).unwrap_or(usize::MAX);
        let bytes = tail.bytes.get(known..).filter(|bytes| !bytes.is_empty())?;
        Some(self.append_of(bytes.to_vec(), tail.step, u64::from(tail.entries), JournalState::Sound))
    }

    /// An append, with the task that it belongs to.
    pub(super) fn beside(&self, append: Append) -> Beside {
        (self.journal.task, append)
    }

    fn append_of(&self, bytes: Vec<u8>, step: u64, entries: u64, state: JournalState) -> Append {
        let head = HeadAfter {
            step,
            entries,
            cpu_us: 0,
            wall_us: 0,
            resumes_since_growth: 0,
            cooperative: false,
            state,
            wake_at: None,
        };
        Append { attempt: self.journal.attempt, at_row: *self.rows, bytes, head, caps: None }
    }

    /// The store has it.
    pub(super) fn wrote(&mut self, append: &Append) {
        *self.rows = append.rows_after();
        self.journal.kept.fetch_add(append.bytes.len() as u64, Ordering::AcqRel);
    }

    /// Finds out whether the store has it, where the change that it went along with does not say.
    pub(super) async fn look(&mut self, append: &Append) -> Result<bool, store::Error> {
        let TaskRef { requestor, id } = self.journal.task;
        let head = self.journal.store.journal(&requestor, id).await?;
        let wrote = head.is_some_and(|head| head.attempt == append.attempt && head.rows == append.rows_after());
        if wrote {
            self.wrote(append);
        }
        Ok(wrote)
    }

    /// Writes nothing any more if the store has it, or may have it.
    pub(super) async fn close_if_wrote(&mut self, append: &Append) {
        if !matches!(self.look(append).await, Ok(false)) {
            self.journal.is_closed.store(true, Ordering::Release);
        }
    }

    async fn write(mut self, append: &Append) -> Result<(), Fenced> {
        let TaskRef { requestor, id } = self.journal.task;
        let (mut may_be_there, mut warned) = (false, false);
        loop {
            if self.journal.is_closed.load(Ordering::Acquire) {
                return Err(Fenced);
            }
            crash_points::reach("append.before");
            let appended = self.journal.store.append(&requestor, id, append.clone()).await;
            crash_points::reach("append.after");
            match appended {
                Ok(_) => {
                    self.wrote(append);
                    return Ok(());
                }
                // A try before may have come through, and nobody heard of it.
                Err(store::Error::Fenced) if may_be_there && matches!(self.look(append).await, Ok(true)) => return Ok(()),
                Err(store::Error::Fenced) => return Err(Fenced),
                Err(error) => {
                    may_be_there = true;
                    if !std::mem::replace(&mut warned, true) {
                        tracing::warn!(task.id = %id, "a task stands still, its journal cannot be written: {error}");
                    }
                    tokio::time::sleep(OUTCOME_RETRY).await;
                }
            }
        }
    }
}

#[async_trait]
impl JournalSink for TaskJournal {
    fn kept(&self) -> u64 {
        self.kept.load(Ordering::Acquire)
    }

    async fn append(&self, tail: Tail) -> Result<(), Fenced> {
        let writer = self.this.upgrade().ok_or(Fenced)?.writer().await;
        match writer.append(&tail) {
            Some(append) => writer.write(&append).await,
            None => Ok(()),
        }
    }

    fn submit(&self, tail: Tail) {
        let (Some(journal), Ok(runtime)) = (self.this.upgrade(), tokio::runtime::Handle::try_current()) else { return };
        runtime.spawn(async move {
            // Who is fenced hears of it where it waits.
            let _ = journal.append(tail).await;
        });
    }

    async fn give_up(&self, reason: String) -> Result<(), Fenced> {
        let writer = self.this.upgrade().ok_or(Fenced)?.writer().await;
        let append = writer.append_of(Vec::new(), 0, 0, JournalState::Demoted { reason });
        writer.write(&append).await
    }
}

#[cfg(test)]
mod tests;
