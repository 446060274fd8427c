//! The journal of a task's call: the port of the sandbox, on the store.
//!
//! Owns the narrowing to one run of one task, and the order of what that run writes; of a call that may become a task,
//! also what was kept before it is one. Must not know what a journal says. Invariants: a run has one append under way
//! at most, alone or beside another change, so each goes on from where the one before it ended; what the store has not
//! confirmed does not count as kept; and a call becomes a task while nothing is being written, so whatever it did
//! before is in the journal that its record begins with.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex as SyncMutex;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::parts::outcome::OUTCOME_RETRY;
use bulkhead_calls::{Fenced, JournalSink, Tail};
use bulkhead_domain::UnixMs;
use bulkhead_domain::crash_points;
use bulkhead_domain::task::{DurableMarker, JOURNAL_VERSION, NodeId, Task};
use bulkhead_store::journal::{Append, Beside, HeadAfter, JournalHead, JournalState, TaskRef};
use bulkhead_store::{self as store, Store, StoredCaps};

/// The attempt that a plain call is.
const FIRST_ATTEMPT: u32 = 1;

/// Bytes of the journal of a call that is no task yet: nobody stores them, so they are few.
const HELD_BYTES_MAX: usize = 256 << 10;

/// What is to be kept soon waits so long for something that the call writes anyway, which takes it along: one flush
/// instead of two.
pub(crate) const GATHERED_FOR: Duration = Duration::from_millis(50);

/// What all runs of a call share that go on from one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beginning {
    /// The attempt that the guest sees.
    pub(crate) attempt: u32,
    /// Questions of the task that were asked before the call began.
    pub(crate) inputs: u32,
    /// Runs that went on and wrote nothing at all.
    pub(crate) resumes: u32,
    /// Of a call that became a task on the way: questions that it had been answered before.
    pub(crate) promoted: Option<u32>,
}

impl Beginning {
    /// Of a task that begins its call as this attempt.
    pub(crate) fn of(task: &Task, attempt: u32) -> Self {
        let inputs = u32::try_from(task.inputs.len()).unwrap_or(u32::MAX);
        Self { attempt, inputs, ..Self::default() }
    }

    /// The beginning of the task's present run, if it keeps a journal.
    pub(crate) fn read(task: &Task) -> Option<Self> {
        let marker = task.durable.as_ref().filter(|_| task.is_journaled())?;
        let (numbers, rest) = marker.detail().as_chunks::<4>();
        let [attempt, inputs, resumes, promoted] = numbers else { return None };
        let [attempt, inputs, resumes, promoted] = [attempt, inputs, resumes, promoted].map(|n| u32::from_le_bytes(*n));
        let promoted = promoted.checked_sub(1);
        rest.is_empty().then_some(Self { attempt, inputs, resumes, promoted })
    }

    /// The marker of a run that begins so.
    pub(crate) fn marker(self, attempt: u32, engine_hash: u64) -> Option<DurableMarker> {
        let promoted = self.promoted.map_or(0, |promoted| promoted.saturating_add(1));
        let detail = [self.attempt, self.inputs, self.resumes, promoted].map(u32::to_le_bytes).concat();
        DurableMarker::new(JOURNAL_VERSION, attempt, engine_hash, detail)
    }

    /// Where among the task's questions the one is that the call asks after so many.
    pub(crate) fn input(self, asked_before: usize) -> usize {
        let asked_plainly = self.promoted.unwrap_or(0) as usize;
        (self.inputs as usize).saturating_add(asked_before.saturating_sub(asked_plainly))
    }
}

/// Where journals are kept, and the host whose runs they are: once another one holds a task, its run here appends
/// nothing more.
pub(crate) struct JournalOwner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) node: NodeId,
}

/// See the module.
pub(crate) struct TaskJournal {
    owner: JournalOwner,
    /// Empty while the call is no task.
    beginning: OnceLock<Beginning>,
    kept: AtomicU64,
    destination: Arc<Mutex<Destination>>,
    /// Nothing is written any more: what the guest knows is not what the journal says.
    is_closed: AtomicBool,
    /// Nothing is written any more: the journal was given up, and the store knows.
    is_given_up: AtomicBool,
    /// When the call wakes that sleeps, in milliseconds; 0: it does not sleep.
    wake_at: AtomicU64,
    /// What is to be kept soon; each tail has in it what is left of the one before.
    gathered: SyncMutex<Option<Tail>>,
    this: Weak<Self>,
}

/// Where what is kept goes.
enum Destination {
    /// The call is no task: it is held here, to be its task's if it becomes one.
    Held(Held),
    Task(Kept),
}

#[derive(Default)]
struct Held {
    tail: Tail,
    given_up: Option<String>,
}

#[derive(Clone, Copy)]
struct Kept {
    task: TaskRef,
    attempt: u32,
    /// The pieces that there are.
    rows: u32,
    caps: Option<StoredCaps>,
}

impl fmt::Debug for TaskJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskJournal").field("kept", &self.kept()).finish_non_exhaustive()
    }
}

impl TaskJournal {
    /// The journal of the task's present run, which goes on with this head. New bytes have to fit into the caps.
    pub(crate) fn new(
        owner: JournalOwner,
        task: &Task,
        beginning: Beginning,
        head: Option<&JournalHead>,
        caps: StoredCaps,
    ) -> Arc<Self> {
        let (rows, kept) = head.map_or((0, 0), |head| (head.rows, head.bytes));
        let destination = Kept { task: TaskRef::of(task), attempt: task.attempt, rows, caps: Some(caps) };
        Self::at(owner, Some(beginning), Destination::Task(destination), kept)
    }

    /// The journal of a call that may become a task.
    pub(crate) fn held(owner: JournalOwner) -> Arc<Self> {
        Self::at(owner, None, Destination::Held(Held::default()), 0)
    }

    fn at(owner: JournalOwner, beginning: Option<Beginning>, destination: Destination, kept: u64) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            owner,
            beginning: beginning.map(OnceLock::from).unwrap_or_default(),
            kept: AtomicU64::new(kept),
            destination: Arc::new(Mutex::new(destination)),
            is_closed: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
            wake_at: AtomicU64::new(0),
            gathered: SyncMutex::default(),
            this: Weak::clone(this),
        })
    }

    /// Where among the task's questions the one is that the call asks after so many.
    pub(crate) fn input(&self, asked_before: usize) -> usize {
        self.beginning.get().map_or(asked_before, |beginning| beginning.input(asked_before))
    }

    /// The run is where the one before it was, and waits there as that one did: being resumed again is no failure of
    /// it.
    pub(crate) async fn came_back(self: &Arc<Self>) {
        let writer = self.writer().await;
        let Destination::Task(Kept { task: TaskRef { requestor, id }, attempt, rows, .. }) = *writer.destination else {
            return;
        };
        let head = match self.owner.store.journal(&requestor, id).await {
            Ok(Some(head)) if head.resumes_since_growth > 0 => head,
            _ => return,
        };
        let after = HeadAfter { resumes_since_growth: 0, ..head.unchanged() };
        let append = Append { held_by: Some(self.owner.node), ..Append::of_head(attempt, rows, after) };
        if let Err(error) = self.owner.store.append(&requestor, id, append).await {
            tracing::debug!(task.id = %id, "that a task came back is not kept: {error}");
        }
    }

    /// The call sleeps until then, or sleeps no more. It is written with what is written next.
    pub(crate) fn set_wake_at(&self, at: Option<UnixMs>) {
        self.wake_at.store(at.unwrap_or(0), Ordering::Release);
    }

    /// Whether the call is a task.
    pub(crate) fn is_of_task(&self) -> bool {
        self.beginning.get().is_some()
    }

    /// When the call wakes that sleeps.
    pub(crate) fn wake_at(&self) -> Option<UnixMs> {
        Some(self.wake_at.load(Ordering::Acquire)).filter(|at| *at > 0)
    }

    /// Whether the call cannot be brought back by it.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }

    /// Waits until nothing else is being written.
    pub(crate) async fn writer(self: &Arc<Self>) -> Writer {
        Writer { destination: Arc::clone(&self.destination).lock_owned().await, journal: Arc::clone(self) }
    }
}

/// The right to write one journal.
pub(crate) struct Writer {
    journal: Arc<TaskJournal>,
    destination: OwnedMutexGuard<Destination>,
}

impl Writer {
    /// Whether the guest knows something else than its journal says: it must do nothing more that the journal would
    /// have to tell of.
    pub(crate) fn is_closed(&self) -> bool {
        self.journal.is_closed.load(Ordering::Acquire)
    }

    /// What of the tail is not kept yet, for a change that it goes along with. `None`: nothing, or nothing is kept any
    /// more.
    pub(crate) fn append(&self, tail: &Tail) -> Option<Append> {
        if self.journal.is_given_up.load(Ordering::Acquire) {
            return None;
        }
        let known = usize::try_from(self.journal.kept().saturating_sub(tail.at)).unwrap_or(usize::MAX);
        let bytes = tail.bytes.get(known..).filter(|bytes| !bytes.is_empty())?;
        // Of a stream that begins anew, what comes behind what is kept already only goes on.
        let replaces = tail.begins && known == 0;
        Some(Append { replaces, ..self.append_of(bytes.to_vec(), tail, JournalState::Sound) })
    }

    /// An append, with the task that it belongs to. `None`: the call is no task, and the append is [held](Self::wrote)
    /// once the change is made.
    pub(crate) fn beside(&self, append: Append) -> Option<Beside> {
        let Destination::Task(kept) = &*self.destination else { return None };
        Some((kept.task, append))
    }

    fn append_of(&self, bytes: Vec<u8>, so_far: &Tail, state: JournalState) -> Append {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let head = HeadAfter {
            step: so_far.step,
            entries: u64::from(so_far.entries),
            cpu_us: us(so_far.spent.cpu),
            wall_us: us(so_far.spent.wall),
            resumes_since_growth: 0,
            cooperative: false,
            state,
            wake_at: self.journal.wake_at(),
        };
        let (attempt, at_row, caps) = match &*self.destination {
            Destination::Held(_) => (FIRST_ATTEMPT, 0, None),
            Destination::Task(kept) => (kept.attempt, kept.rows, kept.caps),
        };
        Append { bytes, caps, held_by: Some(self.journal.owner.node), ..Append::of_head(attempt, at_row, head) }
    }

    /// What is appended is kept, as far as it can be: in the store, which has it, or here. The tail is the one that it
    /// was made of.
    pub(crate) fn wrote(&mut self, append: &Append, tail: &Tail) {
        match append.replaces {
            true => self.journal.kept.store(tail.at.saturating_add(append.bytes.len() as u64), Ordering::Release),
            false => _ = self.journal.kept.fetch_add(append.bytes.len() as u64, Ordering::AcqRel),
        }
        match &mut *self.destination {
            Destination::Task(kept) => kept.rows = append.rows_after(),
            Destination::Held(held) if held.tail.bytes.len().saturating_add(append.bytes.len()) > HELD_BYTES_MAX => {
                held.give_up(format!("it saw more than {} KiB before it became a task", HELD_BYTES_MAX >> 10));
                self.journal.is_given_up.store(true, Ordering::Release);
            }
            Destination::Held(held) => {
                let mut bytes = std::mem::take(&mut held.tail.bytes);
                bytes.extend_from_slice(&append.bytes);
                let &Tail { step, entries, answered, spent, .. } = tail;
                held.tail = Tail { bytes, step, entries, answered, spent, ..Tail::default() };
            }
        }
    }

    /// Finds out whether the store has it, where the change that it went along with does not say.
    pub(crate) async fn look(&mut self, append: &Append, tail: &Tail) -> Result<bool, store::Error> {
        let Destination::Task(Kept { task: TaskRef { requestor, id }, .. }) = *self.destination else {
            return Ok(false);
        };
        let head = self.journal.owner.store.journal(&requestor, id).await?;
        let wrote = head.is_some_and(|head| head.is_after(append));
        if wrote {
            self.wrote(append, tail);
        }
        Ok(wrote)
    }

    /// Writes nothing any more if the store has it, or may have it.
    pub(crate) async fn close_if_wrote(&mut self, append: &Append, tail: &Tail) {
        if !matches!(self.look(append, tail).await, Ok(false)) {
            self.journal.is_closed.store(true, Ordering::Release);
        }
    }

    /// Keeps a tail by itself. A journal that does not fit into what its requestor may store is given up.
    async fn keep(&mut self, tail: &Tail) -> Result<(), Fenced> {
        let Some(append) = self.append(tail) else { return Ok(()) };
        match self.write(&append, tail).await? {
            Written::Kept => Ok(()),
            Written::Full(why) => self.give_up(why).await,
        }
    }

    /// Gives the journal up for good, durable on return: the call could not be brought back by it.
    pub(crate) async fn give_up(&mut self, reason: String) -> Result<(), Fenced> {
        if let Destination::Held(held) = &mut *self.destination {
            held.give_up(reason);
        } else {
            let append = self.append_of(Vec::new(), &Tail::default(), JournalState::Demoted { reason });
            self.write(&Append { caps: None, ..append }, &Tail::default()).await?;
        }
        self.journal.is_given_up.store(true, Ordering::Release);
        Ok(())
    }

    /// Keeps what is still to be kept, and gives what the head says of a call that leaves memory. `None`: it cannot be
    /// brought back.
    pub(crate) async fn at_rest(&mut self, is_cooperative: bool) -> Result<Option<Append>, Fenced> {
        let gathered = self.journal.gathered.lock().take();
        if let Some(tail) = gathered {
            self.keep(&tail).await?;
        }
        let Destination::Task(Kept { task: TaskRef { requestor, id }, attempt, rows, .. }) = *self.destination else {
            return Ok(None);
        };
        if self.is_closed() || self.journal.is_given_up() {
            return Ok(None);
        }
        let so_far = self.append_of(Vec::new(), &Tail::default(), JournalState::Sound);
        let before = match self.journal.owner.store.journal(&requestor, id).await {
            Ok(Some(head)) if (head.attempt, head.rows) == (attempt, rows) && head.state == JournalState::Sound => {
                head.unchanged()
            }
            Ok(None) if rows == 0 => so_far.head.clone(),
            Ok(_) | Err(_) => return Ok(None),
        };
        // It rests where it should: being woken again is no failure of it.
        let wake_at = so_far.head.wake_at;
        let head = HeadAfter { resumes_since_growth: 0, cooperative: is_cooperative, wake_at, ..before };
        Ok(Some(Append { head, caps: None, held_by: None, ..so_far }))
    }

    /// Writes nothing any more: the call has left memory.
    pub(crate) fn close(self) {
        self.journal.is_closed.store(true, Ordering::Release);
    }

    async fn write(&mut self, append: &Append, tail: &Tail) -> Result<Written, Fenced> {
        let Destination::Task(Kept { task: TaskRef { requestor, id }, .. }) = *self.destination else {
            self.wrote(append, tail);
            return Ok(Written::Kept);
        };
        let mut may_be_there = false;
        let mut warned = false;
        loop {
            if self.is_closed() {
                return Err(Fenced);
            }
            crash_points::reach("append.before");
            let appended = self.journal.owner.store.append(&requestor, id, append.clone()).await;
            crash_points::reach("append.after");
            match appended {
                Ok(_) => {
                    self.wrote(append, tail);
                    return Ok(Written::Kept);
                }
                Err(store::Error::Quota { limit, .. }) => return Ok(Written::Full(full(limit))),
                // A try before may have come through, and nobody heard of it.
                Err(store::Error::Fenced) if may_be_there && matches!(self.look(append, tail).await, Ok(true)) => {
                    return Ok(Written::Kept);
                }
                Err(store::Error::Fenced | store::Error::Lost) => return Err(Fenced),
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

    /// What the record of the task begins with that the call becomes, whose attempt is this one: its marker, and the
    /// journal so far.
    pub(crate) fn promoted(&self, attempt: u32, engine_hash: u64) -> Option<(DurableMarker, Append)> {
        let Destination::Held(held) = &*self.destination else { return None };
        let beginning =
            Beginning { attempt: FIRST_ATTEMPT, promoted: Some(held.tail.answered), ..Beginning::default() };
        let (bytes, state) = match &held.given_up {
            Some(reason) => (Vec::new(), JournalState::Demoted { reason: reason.clone() }),
            None => (held.tail.bytes.clone(), JournalState::Sound),
        };
        let append = Append { attempt, ..self.append_of(bytes, &held.tail, state) };
        Some((beginning.marker(attempt, engine_hash)?, append))
    }

    /// The record is there: from now on everything is kept beside it.
    pub(crate) fn moved(&mut self, task: &Task, append: &Append, caps: StoredCaps) {
        if let Some(beginning) = Beginning::read(task) {
            self.journal.beginning.get_or_init(|| beginning);
        }
        let attempt = task.attempt;
        let rows = append.rows_after();
        let task = TaskRef::of(task);
        *self.destination = Destination::Task(Kept { task, attempt, rows, caps: Some(caps) });
    }
}

impl Held {
    fn give_up(&mut self, reason: String) {
        self.tail = Tail::default();
        self.given_up.get_or_insert(reason);
    }
}

/// What came of a write.
enum Written {
    Kept,
    /// There is no room, and why.
    Full(String),
}

/// Why a journal is given up that does not fit.
pub(crate) fn full(limit: &str) -> String {
    format!("the bytes that may be stored are used up ({limit})")
}

#[async_trait]
impl JournalSink for TaskJournal {
    fn kept(&self) -> u64 {
        self.kept.load(Ordering::Acquire)
    }

    fn is_eager(&self) -> bool {
        self.beginning.get().is_none()
    }

    async fn append(&self, tail: Tail) -> Result<(), Fenced> {
        self.this.upgrade().ok_or(Fenced)?.writer().await.keep(&tail).await
    }

    fn submit(&self, tail: Tail) {
        let Some(journal) = self.this.upgrade() else { return };
        if self.is_eager()
            && let Ok(destination) = Arc::clone(&self.destination).try_lock_owned()
        {
            let mut writer = Writer { destination, journal: Arc::clone(&journal) };
            if matches!(*writer.destination, Destination::Held(_)) {
                if let Some(append) = writer.append(&tail) {
                    writer.wrote(&append, &tail);
                }
                return;
            }
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        // A call that may become a task has to show its journal at any time.
        let gathered_for = if self.is_eager() { Duration::ZERO } else { GATHERED_FOR };
        if self.gathered.lock().replace(tail).is_none() {
            runtime.spawn(async move {
                tokio::time::sleep(gathered_for).await;
                // First the right to write: what is taken is not to be overtaken by the last thing that is written.
                let mut writer = journal.writer().await;
                let tail = journal.gathered.lock().take();
                if let Some(tail) = tail {
                    // Who is fenced hears of it where it waits.
                    let _ = writer.keep(&tail).await;
                }
            });
        }
    }

    async fn give_up(&self, reason: String) -> Result<(), Fenced> {
        self.this.upgrade().ok_or(Fenced)?.writer().await.give_up(reason).await
    }
}

#[cfg(test)]
mod tests;
