//! How tasks change: by their requestors, and by the runs and looks of the engine itself.
//!
//! Invariant: every change is read, step, commit, tell. What is told comes in the order of the commits.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::engine::{EngineContext, Tasks};
use crate::error::Error;
use crate::parts::admission::{IdleState, refused};
use crate::parts::journal::{TaskJournal, full};
use crate::parts::news::TaskNews;
use crate::parts::run_state::Run;
use bulkhead_calls::{Fenced, OpenTail, Tail};
use bulkhead_domain::call::InputResponse;
use bulkhead_domain::lifecycle::{self, Event, Refusal};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{HELD, Task, TaskId, TaskOutput};
use bulkhead_store::journal::{Append, TaskRef};
use bulkhead_store::{self as store, Change, Ownership};

/// Writers of one record that may get in each other's way before something is wrong: every retry means that another one
/// won.
const CONFLICTS_MAX: u32 = 1_000;

const NOT_OUTSTANDING: &str = "no question with this key is waiting for an answer";

/// What a resume of a held task is told.
pub const IS_HELD: &str = "the task is held; an operator releases it, and it can still be cancelled";

/// What a task says that an operator holds, with their own words for it.
pub fn held_by_operator(why: Option<&str>) -> String {
    match why {
        Some(why) => format!("{HELD} by the operator: {why}"),
        None => format!("{HELD} by the operator"),
    }
}

/// A change that was made: the record before and after.
pub(crate) struct Applied {
    pub(crate) before: Arc<Task>,
    pub(crate) after: Arc<Task>,
}

/// Who makes a change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Author {
    /// Its requestor or an operator, whichever host holds the task.
    Requestor,
    /// The host that holds the task. Once another one does, the run is over.
    Holder,
    /// The same, which lets any host go on with the task.
    LeavingHolder,
}

/// What is to happen to a task.
pub(crate) struct Step {
    pub(crate) event: Event,
    pub(crate) output: Option<Arc<TaskOutput>>,
    pub(crate) author: Author,
}

/// Why a change was not made.
#[derive(Debug)]
pub(crate) enum ApplyError {
    NotFound,
    Refused(Refusal),
    Store(store::Error),
}

impl Tasks {
    /// Cancels. The record says so when this returns; the guest gets its grace period.
    pub async fn cancel(&self, requestor: &Requestor, id: TaskId) -> Result<Arc<Task>, Error> {
        self.change(requestor, id, Event::Cancel).await
    }

    /// Answers one question by its issued key. A key that is not outstanding is ignored: repeats are harmless.
    pub async fn answer(
        &self,
        requestor: &Requestor,
        id: TaskId,
        key: &str,
        answer: InputResponse,
    ) -> Result<Arc<Task>, Error> {
        match self.change(requestor, id, Event::Answer { key: key.to_owned(), answer }).await {
            Err(Error::Illegal(NOT_OUTSTANDING)) => self.get(requestor, id).await,
            result => result,
        }
    }

    /// Queues a message for the run.
    pub async fn steer(&self, requestor: &Requestor, id: TaskId, message: String) -> Result<Arc<Task>, Error> {
        let limits = self.limits(requestor);
        if message.len() > limits.steer_bytes_max as usize {
            return Err(Error::Invalid(format!("a message may have at most {} bytes", limits.steer_bytes_max)));
        }
        self.change(requestor, id, Event::Steer { message, queue_max: limits.steer_queue }).await
    }

    /// Stops the run for a while, wherever it is. `message` is shown as the status.
    pub async fn pause(&self, requestor: &Requestor, id: TaskId, message: Option<String>) -> Result<Arc<Task>, Error> {
        let inner = &self.inner;
        let event = Event::Pause { message };
        let slot = inner.admission.hold_over_all(requestor, IdleState::Paused).await;
        let slot = match slot.map_err(|error| inner.store_error(error))? {
            Ok(slot) => slot,
            Err(full) => {
                inner.may_look(requestor)?;
                // What cannot be paused says that, however many others are.
                let task = inner.read(requestor, id).await;
                let next =
                    task.and_then(|task| lifecycle::step(&task, event, inner.clock.now()).map_err(ApplyError::Refused));
                self.changed(requestor, id, next)?;
                return Err(refused(full, None));
            }
        };
        let task = self.change(requestor, id, event).await?;
        if let Some(run) = inner.watchers.run(id) {
            run.keep_paused(slot);
        }
        Ok(task)
    }

    /// Lets a paused run go on. A held one is an operator's to release: it may be one that ends its host.
    pub async fn resume(&self, requestor: &Requestor, id: TaskId) -> Result<Arc<Task>, Error> {
        self.change(requestor, id, Event::Resume).await
    }

    /// Ends a task as failed, whatever it is doing. `message` is what its requestor reads.
    pub async fn fail(&self, requestor: &Requestor, id: TaskId, message: String) -> Result<Arc<Task>, Error> {
        self.change(requestor, id, Event::Fail { message }).await
    }

    /// Stops a task until it is released, also one that is paused. `message` is shown as the status. It is not refused
    /// for want of a place among the paused tasks: those are the requestor's to fill.
    pub async fn hold(&self, requestor: &Requestor, id: TaskId, message: String) -> Result<Arc<Task>, Error> {
        let slot = self.inner.admission.keep(requestor, IdleState::Paused);
        let task = self.change(requestor, id, Event::Hold { message }).await?;
        if let Some(run) = self.inner.watchers.run(id) {
            run.keep_paused(slot);
        }
        Ok(task)
    }

    /// Lets a held task go on.
    pub async fn release(&self, requestor: &Requestor, id: TaskId) -> Result<Arc<Task>, Error> {
        self.change(requestor, id, Event::Release).await
    }

    /// How many tasks of this host have left memory.
    pub fn dormant_count(&self) -> usize {
        self.inner.watchers.dormant_count()
    }

    /// How many tasks of this host are held.
    pub fn held_count(&self) -> usize {
        self.inner.watchers.tasks().iter().filter(|task| task.is_held).count()
    }

    /// Removes a task, whatever its phase, and stops its run.
    pub async fn discard(&self, requestor: &Requestor, id: TaskId) -> Result<(), Error> {
        self.inner.expire(requestor, id).await.map_err(|error| self.inner.store_error(error))?;
        self.inner.audit.note_task("task.deleted", requestor, id);
        Ok(())
    }

    /// Removes a task that is over, with everything that belongs to it.
    pub async fn delete(&self, requestor: &Requestor, id: TaskId) -> Result<(), Error> {
        if self.get(requestor, id).await?.outcome().is_none() {
            return Err(Error::Illegal("only a task that is over can be deleted; cancel it first"));
        }
        self.discard(requestor, id).await
    }

    pub(crate) async fn change(&self, requestor: &Requestor, id: TaskId, event: Event) -> Result<Arc<Task>, Error> {
        self.inner.may_look(requestor)?;
        let step = Step { event, output: None, author: Author::Requestor };
        let applied = self.inner.apply_beside(TaskRef { requestor: *requestor, id }, step, &|_, _| None).await;
        Ok(self.changed(requestor, id, applied)?.after)
    }

    /// Takes note of a change that found no task.
    fn changed<T>(&self, requestor: &Requestor, id: TaskId, changed: Result<T, ApplyError>) -> Result<T, Error> {
        changed.map_err(|error| {
            if let ApplyError::NotFound = error {
                self.inner.note_looked("task.changed", requestor, id, false);
            }
            self.inner.apply_error(error)
        })
    }
}

impl EngineContext {
    /// Changes a task that this host holds: reads, steps, commits, until no other change was faster; then tells the run
    /// and the watchers. The record that a run holds, if something drives it, is as good as a read: a commit refuses
    /// what is not the newest.
    pub(crate) async fn apply(
        &self,
        requestor: &Requestor,
        id: TaskId,
        event: Event,
        output: Option<Arc<TaskOutput>>,
    ) -> Result<Applied, ApplyError> {
        let step = Step { event, output, author: Author::Holder };
        self.apply_beside(TaskRef { requestor: *requestor, id }, step, &|_, _| None).await
    }

    /// The same for any author, with what goes to the journal of the task's call in the same step: asked for each try,
    /// and told what the record is and will be.
    pub(crate) async fn apply_beside(
        &self,
        TaskRef { requestor, id }: TaskRef,
        Step { event, output, author }: Step,
        journal: &(dyn Fn(&Task, &Task) -> Option<Append> + Send + Sync),
    ) -> Result<Applied, ApplyError> {
        let held = self.watchers.run(id).and_then(|run| run.task());
        let mut held = held.filter(|task| task.requestor == requestor && !self.is_expired(task));
        for _ in 0..CONFLICTS_MAX {
            let held = held.take();
            let (before, may_be_old) = match held {
                Some(task) => (task, true),
                None => match self.read(&requestor, id).await {
                    Ok(task) => (Arc::new(task), false),
                    // Nobody waits for the store: what this host held is others'.
                    Err(ApplyError::Store(store::Error::Lost)) if author != Author::Requestor => {
                        self.watchers.stop(id);
                        return Err(ApplyError::Refused(Refusal::Stale));
                    }
                    Err(error) => return Err(error),
                },
            };
            let task = match lifecycle::step(&before, event.clone(), self.clock.now()) {
                Ok(task) => task,
                Err(_) if may_be_old => continue,
                Err(refusal) => return Err(ApplyError::Refused(refusal)),
            };
            let journal = journal(&before, &task);
            let held_by = (author != Author::Requestor).then(|| self.node());
            let then = if author == Author::LeavingHolder { Ownership::Released } else { Ownership::Stays };
            match self.store.commit(Change { task, output: output.clone(), journal, held_by, then }).await {
                Ok(after) => {
                    let after = Arc::new(after);
                    self.audit.note_changed(&event, &after, output.as_deref());
                    match event {
                        Event::Evict { .. } | Event::Continue { cause: Some(_), .. } => self.watchers.tell_run(&after),
                        _ => self.tell(&after),
                    }
                    return Ok(Applied { before, after });
                }
                Err(store::Error::Conflict) => {}
                Err(store::Error::Fenced) => return Err(ApplyError::Refused(Refusal::Stale)),
                Err(store::Error::Lost) if author != Author::Requestor => {
                    tracing::warn!(task.id = %id, "another host goes on with a task of this one, which stops it");
                    self.watchers.stop(id);
                    return Err(ApplyError::Refused(Refusal::Stale));
                }
                Err(error) => return Err(ApplyError::Store(error)),
            }
        }
        Err(ApplyError::Store(store::Error::Conflict))
    }

    /// Applies what a run does, with the end of its journal: asked for each try, and told what the record is.
    pub(crate) async fn apply_journaled(
        &self,
        task: &Task,
        event: Event,
        journal: &Arc<TaskJournal>,
        tail: &(dyn Fn(&Task) -> Tail + Send + Sync),
    ) -> Result<Applied, ApplyError> {
        let mut writer = journal.writer().await;
        if writer.is_closed() {
            return Err(ApplyError::Refused(Refusal::Stale));
        }
        let tried = Mutex::new(None);
        let append = |before: &Task, _: &Task| {
            let tail = tail(before);
            let append = writer.append(&tail);
            *tried.lock() = append.clone().map(|append| (append, tail));
            append
        };
        let step = Step { event: event.clone(), output: None, author: Author::Holder };
        let applied = self.apply_beside(TaskRef::of(task), step, &append).await;
        match (applied, tried.into_inner()) {
            (Ok(applied), Some((append, tail))) => {
                writer.wrote(&append, &tail);
                Ok(applied)
            }
            (Err(ApplyError::Store(store::Error::Quota { limit, .. })), Some(_)) => {
                let given_up = writer.give_up(full(limit)).await;
                given_up.map_err(|Fenced| ApplyError::Refused(Refusal::Stale))?;
                self.apply(&task.requestor, task.id, event, None).await
            }
            // Nothing was written.
            (Err(error @ ApplyError::Store(store::Error::Unavailable { .. })), _) => Err(error),
            // It may have come through, and nobody heard of it: the guest would go on beside what its journal says.
            (Err(error @ ApplyError::Store(_)), Some((append, tail))) => {
                writer.close_if_wrote(&append, &tail).await;
                Err(error)
            }
            (applied, _) => applied,
        }
    }

    /// Takes the waiting messages for a run, with the end of its journal, which says what they are.
    pub(crate) async fn deliver(
        &self,
        task: &Task,
        journaled: Option<(&Arc<TaskJournal>, OpenTail)>,
    ) -> Result<Vec<String>, ApplyError> {
        let event = Event::Deliver { attempt: task.attempt };
        let applied = match journaled {
            None => self.apply(&task.requestor, task.id, event, None).await,
            Some((journal, open)) => {
                let tail = |before: &Task| open.with_messages(&before.steering);
                self.apply_journaled(task, event, journal, &tail).await
            }
        };
        Ok(applied?.before.steering.clone())
    }

    async fn read(&self, requestor: &Requestor, id: TaskId) -> Result<Task, ApplyError> {
        let task = self.store.get(requestor, id).await.map_err(ApplyError::Store)?;
        task.filter(|task| !self.is_expired(task)).ok_or(ApplyError::NotFound)
    }

    fn tell(&self, task: &Arc<Task>) {
        if task.retention_starts_with_end() {
            self.may_expire(task);
        }
        if self.store.is_shared() && self.watchers.run(task.id).is_none() {
            // It runs elsewhere, and whoever listens to it here is told what is stored.
            self.others.look.notify_one();
        }
        self.watchers.tell(task);
    }

    /// Shows a run what became of its record before the run could be told.
    pub(crate) async fn catch_up(&self, run: &Run, task: &Task) {
        match self.store.get(&task.requestor, task.id).await {
            Ok(Some(task)) => self.watchers.show(run, &Arc::new(task)),
            Ok(None) => self.watchers.stop_run(run),
            Err(error) => tracing::warn!(task.id = %task.id, "a run goes by the record that it has: {error}"),
        }
    }

    /// Removes a task that is over its time, and stops its run.
    pub(crate) async fn expire(&self, requestor: &Requestor, id: TaskId) -> Result<(), store::Error> {
        self.watchers.stop(id);
        self.store.remove(requestor, id).await?;
        self.watchers.publish(requestor, id, &TaskNews::Gone(id));
        Ok(())
    }

    pub(crate) fn apply_error(&self, error: ApplyError) -> Error {
        match error {
            ApplyError::NotFound => Error::NotFound,
            ApplyError::Store(error) => self.store_error(error),
            ApplyError::Refused(Refusal::Ended) => Error::Ended,
            ApplyError::Refused(Refusal::Held) => Error::Illegal(IS_HELD),
            ApplyError::Refused(Refusal::Paused) => Error::Illegal("the task is paused"),
            ApplyError::Refused(Refusal::NotOutstanding) => Error::Illegal(NOT_OUTSTANDING),
            ApplyError::Refused(Refusal::Illegal(why)) => Error::Illegal(why),
            ApplyError::Refused(Refusal::QueueFull { queue_max }) => Error::Invalid(format!(
                "the task already has {queue_max} messages waiting; try again when it has taken them"
            )),
            ApplyError::Refused(Refusal::Stale) => Error::Illegal("the run was given up"),
            ApplyError::Refused(Refusal::TooManyInputs) => Error::Illegal("the task has asked too many questions"),
        }
    }
}
