//! The call of a task: its guest, and the record that decides what becomes of it.
//!
//! Must not write an outcome. Invariant: cancelling, pausing, answering and steering are commits first; the call reads
//! the new record and acts on it.

use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::engine::EngineContext;
use crate::engine::change::{Applied, ApplyError};
use crate::engine::run::guest_driver::{Answers, GuestDriver, GuestNews, TRACEPARENT};
use crate::parts::call_slot::CallSlot;
use crate::parts::journal::TaskJournal;
use crate::parts::news::{TaskNews, of_kind};
use crate::parts::outcome::OUTCOME_RETRY;
use crate::parts::residents::EvictionCause;
use crate::parts::resting::{Dormancy, Rest};
use crate::parts::run_state::{ReplayFailure, Run, Seen, is_paused, is_running};
use bulkhead_calls::{CallEvent, JournaledQuestion, OpenTail};
use bulkhead_domain::call::{CallError, InputRequest, InputRequestError, InputResponse};
use bulkhead_domain::crash_points;
use bulkhead_domain::lifecycle::{Event, Refusal};
use bulkhead_domain::task::{Input, Outcome, Phase, Task, TaskOutput};
use bulkhead_store as store;

pub(crate) struct TaskCall {
    inner: Arc<EngineContext>,
    guest: GuestDriver,
    run: Arc<Run>,
    seen: watch::Receiver<Seen>,
    /// The record as it was seen last.
    task: Arc<Task>,
    /// The issued keys of the input requests that the guest waits for.
    issued_keys: Vec<String>,
    /// The task is over, and the guest has until then to notice.
    grace_until: Option<Instant>,
    /// Why the journal of an earlier run cannot bring the call back.
    replay_failure: Option<ReplayFailure>,
}

/// Whether two questions say the same, beside which trace they are part of.
fn is_same_question(before: &InputRequest, request: &InputRequest) -> bool {
    let meta = |request: &InputRequest| {
        let own = request.meta.iter().filter(|(key, _)| key != TRACEPARENT);
        own.cloned().collect::<Vec<_>>()
    };
    (&before.key, &before.kind) == (&request.key, &request.kind) && meta(before) == meta(request)
}

/// What happens next.
enum Next {
    Record,
    GraceOver,
    Event(Option<CallEvent>),
    Eviction(EvictionCause),
}

impl TaskCall {
    pub(crate) fn new(inner: Arc<EngineContext>, run: Arc<Run>, task: Arc<Task>, guest: GuestDriver) -> Self {
        let mut seen = run.watch();
        seen.mark_changed();
        Self { inner, guest, run, seen, task, issued_keys: Vec::new(), grace_until: None, replay_failure: None }
    }

    /// The guest's result and the slot that it occupied, or `None` when the record is over before the guest is, or the
    /// call has left memory. The guest is stopped either way.
    pub(crate) async fn run(mut self) -> Option<(Result<TaskOutput, CallError>, CallSlot)> {
        let result = loop {
            if self.replay_failure.is_some() {
                break Err(CallError::Interrupted);
            }
            match self.next().await {
                Next::Record => self.observe()?,
                Next::GraceOver => return None,
                Next::Eviction(cause) if self.leave_memory(cause).await => return None,
                Next::Eviction(_) => self.guest.stay(),
                Next::Event(Some(CallEvent::Finished(result))) => break result.and_then(of_kind),
                Next::Event(Some(event)) => self.take(event).await,
                // The sandbox ends every call with `Finished`; a closed stream is a bug there, and the task must not
                // hang on it.
                Next::Event(None) => break Err(CallError::Interrupted),
            }
        };
        if let Some(failure) = self.replay_failure.take().or_else(|| self.guest.replay_failure()) {
            self.run.set_replay_failure(failure);
        }
        self.guest.report_end(self.task.work.label(), &result);
        Some((result, self.guest.call_slot))
    }

    async fn next(&mut self) -> Next {
        let grace_until = self.grace_until;
        let grace = async {
            match grace_until {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            changed = self.seen.changed() => if changed.is_ok() { Next::Record } else { Next::GraceOver },
            () = grace => Next::GraceOver,
            news = self.guest.news() => match news {
                GuestNews::Event(event) => Next::Event(event),
                GuestNews::Eviction(cause) => Next::Eviction(cause),
            },
        }
    }

    /// Takes a call that rests out of memory. Whether the record says so: then the guest is to be stopped.
    async fn leave_memory(&mut self, cause: EvictionCause) -> bool {
        let Some((rest, journal)) = self.guest.leaves_memory().zip(self.guest.journal().cloned()) else { return false };
        let inner = Arc::clone(&self.inner);
        crash_points::reach("evict.before");
        let evicted = inner.evict(&self.task, &journal, rest.is_cooperative).await;
        crash_points::reach("evict.after");
        if let Err(error) = evicted {
            tracing::debug!(task.id = %self.task.id, "a task does not leave memory: {error:?}");
            // It may have come through, and nobody heard of it.
            inner.catch_up(&self.run, &self.task).await;
        }
        let is_out = |task: &Arc<Task>| task.outcome().is_none() && task.lease.is_none();
        let Some(task) = self.run.task().filter(|task| is_out(task) && task.attempt == self.task.attempt) else {
            return false;
        };
        inner.audit.note_evicted(cause);
        self.run.leave(Rest::Dormant(Dormancy {
            wake_at: journal.wake_at(),
            is_asleep: rest.is_asleep,
            is_cooperative: rest.is_cooperative,
            steering: self.task.steering.len(),
            was_paused: is_paused(&task),
        }));
        true
    }

    /// Acts on the record as it is now. `None`: stop the guest at once.
    fn observe(&mut self) -> Option<()> {
        let Seen::Record(task) = self.seen.borrow_and_update().clone() else { return None };
        self.task = task;
        if self.grace_until.is_some() {
            return Some(());
        }
        match self.task.outcome() {
            // The task is over for its requestor: the guest gets its grace period if it ever looked for signals.
            Some(Outcome::Cancelled) => self.grace_until = Some(Instant::now() + self.guest.cancel()?),
            Some(_) => return None,
            // Given up: another run starts again, or goes on.
            None if !is_running(&self.task) || self.task.lease.is_none() => return None,
            None => {
                // First: a guest that is paused takes no message any more, also none that came with the pause.
                self.guest.set_paused(is_paused(&self.task));
                self.guest.set_steering_pending(!self.task.steering.is_empty());
                self.pass_answers();
            }
        }
        Some(())
    }

    /// Lets the guest have its answers once all of them are there.
    fn pass_answers(&mut self) {
        if let Some(answers) = self.take_answers() {
            self.guest.answer(Ok(answers));
        }
    }

    fn take_answers(&mut self) -> Option<Vec<InputResponse>> {
        if self.issued_keys.is_empty() {
            return None;
        }
        let answer = |key: &String| {
            let input = self.task.inputs.iter().find(|input| input.issued_key == *key);
            input.and_then(|input| input.answer.clone())
        };
        let answers = self.issued_keys.iter().map(answer).collect::<Option<Vec<_>>>()?;
        self.issued_keys.clear();
        Some(answers)
    }

    async fn take(&mut self, event: CallEvent) {
        let id = self.task.id;
        match event {
            CallEvent::Progress { progress, total, message } => {
                if let Some(message) = &message {
                    self.run.set_status(message.clone());
                }
                self.report(TaskNews::Progress { id, progress, total, message });
            }
            CallEvent::Status(status) => {
                self.run.set_status(status);
                self.report_status();
            }
            CallEvent::Log { level, logger, data } => self.report(TaskNews::Log { id, level, logger, data }),
            CallEvent::InputRequests { requests, journal, reply } => self.ask(requests, journal, reply).await,
            CallEvent::Detach { reply } => drop(reply.send(Some(id.to_string()))),
            CallEvent::Steering { journal, reply } => self.deliver(journal, reply).await,
            // The driver deals with all others.
            _ => {}
        }
    }

    async fn ask(
        &mut self,
        requests: Vec<InputRequest>,
        journaled: Option<JournaledQuestion>,
        reply: oneshot::Sender<Answers>,
    ) {
        let count = requests.len();
        let journal = self.guest.journal().cloned();
        let journaled = journal.as_ref().zip(journaled);
        if let Some((journal, question)) = &journaled
            && self.ask_again(&requests, journal.input(question.asked_before))
        {
            let journal = Arc::clone(journal);
            tokio::spawn(async move { journal.came_back().await });
            // One that was woken by its answers goes on with the permit that it was woken with.
            return match self.take_answers() {
                Some(answers) if !is_paused(&self.task) => self.guest.give_answers(reply, Ok(answers)),
                answers => {
                    self.guest.await_answers(reply);
                    answers.map_or((), |answers| self.guest.answer(Ok(answers)))
                }
            };
        }
        crash_points::reach("ask.before");
        let applied = store_question(&self.inner, &self.task, &requests, journaled).await;
        crash_points::reach("ask.after");
        let error = match applied {
            Ok(applied) => {
                let inputs = &applied.after.inputs;
                let first = inputs.len().saturating_sub(count);
                self.issued_keys = inputs.iter().skip(first).map(|input| input.issued_key.clone()).collect();
                self.guest.await_answers(reply);
                return;
            }
            Err(ApplyError::Refused(Refusal::TooManyInputs)) => {
                InputRequestError::Invalid("this task has asked too many questions".into())
            }
            Err(ApplyError::Refused(_) | ApplyError::NotFound) => InputRequestError::Cancelled,
            Err(ApplyError::Store(error)) => {
                tracing::warn!(task.id = %self.task.id, "a question cannot be stored: {error}");
                InputRequestError::Unreachable("the host cannot store the question now".into())
            }
        };
        self.guest.refuse_input(reply, error);
    }

    /// Whether an earlier run has asked this already, after so many other questions: then it is the same question, and
    /// its answers are in the record or come there.
    fn ask_again(&mut self, requests: &[InputRequest], asked_before: usize) -> bool {
        let known: Vec<_> = self.task.inputs.iter().skip(asked_before).take(requests.len()).collect();
        if known.is_empty() {
            return false;
        }
        let is_same = |(input, request): (&&Input, &InputRequest)| is_same_question(&input.request, request);
        if known.len() == requests.len() && known.iter().zip(requests).all(is_same) {
            self.issued_keys = known.iter().map(|input| input.issued_key.clone()).collect();
            return true;
        }
        let why = format!("question {} is another one than was asked before", asked_before + 1);
        self.replay_failure = Some(ReplayFailure { why, is_divergence: true });
        true
    }

    /// Each message is delivered once at most: it leaves the record before the guest gets it. What a run took that was
    /// lost with its host is not given to the next one.
    async fn deliver(&mut self, open: Option<OpenTail>, reply: oneshot::Sender<Vec<String>>) {
        let mut messages = Vec::new();
        if self.run.task().is_some_and(|task| !task.steering.is_empty()) {
            let journal = self.guest.journal().cloned();
            let journaled = journal.as_ref().zip(open);
            crash_points::reach("steering.before");
            let delivered = self.inner.deliver(&self.task, journaled).await;
            crash_points::reach("steering.after");
            match delivered {
                Ok(delivered) => messages = delivered,
                Err(ApplyError::Refused(_) | ApplyError::NotFound) => {}
                Err(ApplyError::Store(error)) => {
                    tracing::warn!(task.id = %self.task.id, "messages stay in the queue, the store refuses: {error}");
                }
            }
        }
        drop(reply.send(messages));
    }

    fn report(&self, news: TaskNews) {
        self.run.report(|task, _| self.inner.watchers.publish(&task.requestor, task.id, &news));
    }

    /// Tells the newest record that there is, which may be one that this run has yet to act on.
    fn report_status(&self) {
        self.run.report(|task, status| {
            if let Phase::Active(_) = task.phase {
                let mut shown = Task::clone(task);
                shown.status_message = status.map(str::to_owned);
                self.inner.watchers.publish(&task.requestor, task.id, &TaskNews::Changed(Arc::new(shown)));
            }
        });
    }
}

/// Puts a question into the record. A store that cannot be reached is waited for: nothing was written, and the guest
/// waits anyway.
async fn store_question(
    inner: &EngineContext,
    task: &Task,
    requests: &[InputRequest],
    journaled: Option<(&Arc<TaskJournal>, JournaledQuestion)>,
) -> Result<Applied, ApplyError> {
    loop {
        let event = Event::RequestInput { attempt: task.attempt, requests: requests.to_vec() };
        let applied = match &journaled {
            Some((journal, question)) => inner.apply_journaled(task, event, journal, &|_| question.tail.clone()).await,
            None => inner.apply(&task.requestor, task.id, event, None).await,
        };
        match applied {
            Err(ApplyError::Store(store::Error::Unavailable { .. })) => tokio::time::sleep(OUTCOME_RETRY).await,
            applied => return applied,
        }
    }
}
