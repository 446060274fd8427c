//! PORT: the journal of a task's call, beside its record.
//!
//! Owns what a journal is to a store: a stream of bytes that grows, or is replaced as a whole, and a head that says how
//! far it got and which life of the call may go on with it. Must not know what the bytes say. Invariant: a piece of a
//! journal is on disk in the same step as the effect that it tells of, and an append is taken only where it goes on
//! from what is there: another life of the call is fenced.

pub(crate) mod check;
pub(crate) mod layout;
#[cfg(test)]
mod tests;

use async_trait::async_trait;

use super::{Error, StoredCaps};
use bulkhead_domain::UnixMs;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{NodeId, Task, TaskId};

pub use self::layout::{PIECE_BYTES, REASON_BYTES_MAX};

/// The version of heads that this program writes.
pub const HEAD_VERSION: u8 = 1;

/// A task by its full name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskRef {
    pub requestor: Requestor,
    pub id: TaskId,
}

impl TaskRef {
    /// The name of a task.
    pub fn of(task: &Task) -> Self {
        Self { requestor: task.requestor, id: task.id }
    }
}

/// What a journal is good for. Reasons are the host's own words, at most [`REASON_BYTES_MAX`] of them are kept, and
/// nobody seals them: they say nothing of what a guest, a client or a person wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalState {
    /// The call can be brought back to where it was.
    Sound,
    /// The call has left its journal behind for good: there are no pieces any more.
    Demoted { reason: String },
    /// A replay did not fit.
    Diverged { reason: String },
}

/// What an append says about the call, beside its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadAfter {
    /// The last step that the journal covers.
    pub step: u64,
    pub entries: u64,
    /// Used by the call so far.
    pub cpu_us: u64,
    pub wall_us: u64,
    /// How often the call was resumed since it last came further.
    pub resumes_since_growth: u32,
    /// Whether the guest looks at signals.
    pub cooperative: bool,
    pub state: JournalState,
    /// When a sleeping call goes on.
    pub wake_at: Option<UnixMs>,
}

/// How far a journal got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalHead {
    /// How it is written: [`HEAD_VERSION`].
    pub version: u8,
    /// The run that may append.
    pub attempt: u32,
    /// Pieces that there are.
    pub rows: u32,
    /// Bytes of the whole stream; they count as stored.
    pub bytes: u64,
    pub step: u64,
    pub entries: u64,
    pub cpu_us: u64,
    pub wall_us: u64,
    pub resumes_since_growth: u32,
    pub cooperative: bool,
    pub state: JournalState,
    pub wake_at: Option<UnixMs>,
}

impl JournalHead {
    fn new(attempt: u32, rows: u32, bytes: u64, after: HeadAfter) -> Self {
        let HeadAfter { step, entries, cpu_us, wall_us, resumes_since_growth, cooperative, state, wake_at } = after;
        Self {
            version: HEAD_VERSION,
            attempt,
            rows,
            bytes,
            step,
            entries,
            cpu_us,
            wall_us,
            resumes_since_growth,
            cooperative,
            state,
            wake_at,
        }
    }

    /// What an append has to say so that nothing of it changes.
    pub fn unchanged(&self) -> HeadAfter {
        let Self { step, entries, cpu_us, wall_us, resumes_since_growth, cooperative, wake_at, .. } = *self;
        let state = self.state.clone();
        HeadAfter { step, entries, cpu_us, wall_us, resumes_since_growth, cooperative, state, wake_at }
    }

    /// Whether this append made it what it is, as far as a head can say. Of a head that the append was not taken onto.
    pub fn is_after(&self, append: &Append) -> bool {
        let &HeadAfter { step, entries, .. } = &append.head;
        let is_whole =
            !append.replaces || (self.bytes, self.step, self.entries) == (append.bytes.len() as u64, step, entries);
        is_whole && (self.attempt, self.rows) == (append.attempt, append.rows_after())
    }

    /// Whether it tells of the task's present run. Of any other, nothing that it says holds.
    pub fn is_of(&self, task: &Task) -> bool {
        task.is_journaled() && self.attempt == task.attempt
    }
}

/// More of a journal. With no bytes it changes the head alone.
#[derive(Clone, Debug)]
pub struct Append {
    /// The run that it comes from.
    pub attempt: u32,
    /// The precondition: the pieces that there are. 0 begins a journal.
    pub at_row: u32,
    pub bytes: Vec<u8>,
    /// The bytes are the whole stream from now on: the pieces that there are go in the same step.
    pub replaces: bool,
    /// What the head says afterwards. With [`JournalState::Demoted`], no bytes are written and the pieces go.
    pub head: HeadAfter,
    /// What the bytes have to fit into, beside everything else that is stored; `None`: they are counted, and fit.
    pub caps: Option<StoredCaps>,
    /// The host of the run. [`Error::Lost`] where another one holds the task. Looked at where the append comes without
    /// a change of the record, which names its own.
    pub held_by: Option<NodeId>,
}

impl Append {
    /// Takes a journal over for a later run, in the commit of the record that begins it: from then on, no earlier run
    /// appends.
    pub fn resuming(head: &JournalHead, attempt: u32) -> Self {
        let resumes_since_growth = head.resumes_since_growth.saturating_add(1);
        let after = HeadAfter { resumes_since_growth, ..head.unchanged() };
        Self::of_head(attempt, head.rows, after)
    }

    /// Changes the head alone of a journal with so many pieces.
    pub fn of_head(attempt: u32, at_row: u32, head: HeadAfter) -> Self {
        Self { attempt, at_row, bytes: Vec::new(), replaces: false, head, caps: None, held_by: None }
    }

    /// Where the append after this one goes on, once this one is taken.
    pub fn rows_after(&self) -> u32 {
        match self.head.state {
            JournalState::Demoted { .. } => 0,
            JournalState::Sound | JournalState::Diverged { .. } => self.rows_before().saturating_add(self.rows()),
        }
    }

    /// The numbers of its pieces, and beyond.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        self.rows_before().saturating_add(1)..=u32::MAX
    }

    /// The pieces that stay in front of its own.
    fn rows_before(&self) -> u32 {
        if self.replaces { 0 } else { self.at_row }
    }

    fn rows(&self) -> u32 {
        u32::try_from(self.bytes.len().div_ceil(PIECE_BYTES)).unwrap_or(u32::MAX)
    }

    /// The head after this append. `record` is the attempt that the task's record says in the same step, where that is
    /// known: it has to be known where there is no head yet.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] when it does not go on from what is there.
    pub(crate) fn onto(&self, present: Option<&JournalHead>, record: Option<u32>) -> Result<JournalHead, Error> {
        let takes_over = |head: &JournalHead| record.is_some() && head.attempt < self.attempt;
        let continues = match present {
            None => self.at_row == 0,
            Some(head) => head.rows == self.at_row && (head.attempt == self.attempt || takes_over(head)),
        };
        let fits = self.at_row.checked_add(self.rows()).is_some();
        if !continues || !fits || record.is_some_and(|attempt| attempt != self.attempt) {
            return Err(Error::Fenced);
        }
        let bytes = match self.head.state {
            JournalState::Demoted { .. } => 0,
            JournalState::Sound | JournalState::Diverged { .. } => {
                let before = present.filter(|_| !self.replaces).map_or(0, |head| head.bytes);
                before.saturating_add(self.bytes.len() as u64)
            }
        };
        Ok(JournalHead::new(self.attempt, self.rows_after(), bytes, self.head.clone()))
    }
}

/// An append that is made in the same step as something else, with the task that it belongs to.
pub type Beside = (TaskRef, Append);

/// Journals. Besides [`JournalStore::append`], a journal grows with the creation or a commit of its task and with a
/// change of rows. It goes with its task; at the end of its task, unless that commit appends to it; and with a commit
/// that raises the attempt and does not take it over.
#[async_trait]
pub trait JournalStore: Send + Sync + 'static {
    /// How far the journal got; `None`: there is none.
    async fn journal(&self, requestor: &Requestor, id: TaskId) -> Result<Option<JournalHead>, Error>;

    /// The whole stream; empty where there is none.
    async fn journal_bytes(&self, requestor: &Requestor, id: TaskId) -> Result<Vec<u8>, Error>;

    /// Appends, durable on return. [`Error::Fenced`]: the task is gone or over, or another life of the call writes its
    /// journal; [`Error::Lost`]: another host holds the task.
    async fn append(&self, requestor: &Requestor, id: TaskId, append: Append) -> Result<JournalHead, Error>;

    /// Removes a journal that was kept beyond the end of its task. One that is not there, or whose task is not over, is
    /// left alone.
    async fn remove_journal(&self, requestor: &Requestor, id: TaskId) -> Result<(), Error>;
}
