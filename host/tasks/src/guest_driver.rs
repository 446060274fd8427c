//! The part of a run in which a guest is alive: events out, replies in, and a close eye on the record.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::TaskNews;
use super::admission::IdleState;
use super::call_slot::CallSlot;
use super::changes::ApplyError;
use super::engine::Inner;
use super::plain::of_kind;
use super::run::{Run, Seen, Started, is_paused, is_running};
use bulkhead_domain::call::{CallError, InputRequest, InputRequestError, InputResponse};
use bulkhead_domain::lifecycle::{Event, Refusal};
use bulkhead_domain::task::{Outcome, Phase, PluginVersion, Task, TaskOutput};
use bulkhead_runtime::{CallEvent, RunningCall};

/// A sleep this short is not worth giving the permit back for.
const REST_FROM: Duration = Duration::from_millis(20);

pub(super) struct GuestDriver {
    inner: Arc<Inner>,
    run: Arc<Run>,
    seen: watch::Receiver<Seen>,
    /// The record as it was seen last.
    task: Arc<Task>,
    running: RunningCall,
    plugin: PluginVersion,
    cancel_grace: Duration,
    call_slot: CallSlot,
    wait: Wait,
    paused: bool,
    /// The task is over, and the guest has until then to notice.
    grace_until: Option<Instant>,
}

/// What the guest waits for. Its imports are synchronous, so there is at most one such thing.
pub(super) enum Wait {
    Nothing,
    Answers {
        keys: Vec<String>,
        reply: oneshot::Sender<Result<Vec<InputResponse>, InputRequestError>>,
    },
    Sleep {
        at: Instant,
        reply: oneshot::Sender<()>,
    },
    /// Everything is there but the permit to go on.
    Permit(Reply),
}

pub(super) enum Reply {
    Answers(
        oneshot::Sender<Result<Vec<InputResponse>, InputRequestError>>,
        Result<Vec<InputResponse>, InputRequestError>,
    ),
    Slept(oneshot::Sender<()>),
    /// Only the pause is over.
    Nothing,
}

/// What happens next.
enum Next {
    Record,
    GraceOver,
    Awake,
    Permitted,
    Event(Option<CallEvent>),
}

impl GuestDriver {
    pub(super) fn new(
        inner: Arc<Inner>,
        run: Arc<Run>,
        task: Arc<Task>,
        started: Started,
        call_slot: CallSlot,
        wait: Wait,
    ) -> Self {
        let Started { running, plugin, cancel_grace } = started;
        let mut seen = run.watch();
        seen.mark_changed();
        Self {
            inner,
            run,
            seen,
            task,
            running,
            plugin,
            cancel_grace,
            call_slot,
            wait,
            paused: false,
            grace_until: None,
        }
    }

    /// The guest's result and the place that it took up, or `None` when the record is over before the guest is. The guest is stopped
    /// either way.
    pub(super) async fn until_over(mut self) -> Option<(Result<TaskOutput, CallError>, CallSlot)> {
        loop {
            match self.next().await {
                Next::Record => self.observe()?,
                Next::GraceOver => return None,
                Next::Awake => self.awake(),
                Next::Permitted => self.go_on(),
                Next::Event(Some(CallEvent::Finished(result))) => {
                    return Some((result.and_then(of_kind), self.call_slot));
                }
                Next::Event(Some(event)) => self.take(event).await,
                // The sandbox ends every call with `Finished`; a closed stream is a bug there, and the task must not hang on it.
                Next::Event(None) => return Some((Err(CallError::Interrupted), self.call_slot)),
            }
        }
    }

    async fn next(&mut self) -> Next {
        let grace_until = self.grace_until;
        let grace = async {
            match grace_until {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let call_slot = &mut self.call_slot;
        let (wait, paused) = (&self.wait, self.paused);
        let ready = async {
            match wait {
                Wait::Sleep { at, .. } => {
                    tokio::time::sleep_until(*at).await;
                    Next::Awake
                }
                Wait::Permit(_) if !paused => {
                    call_slot.run().await;
                    Next::Permitted
                }
                Wait::Nothing | Wait::Answers { .. } | Wait::Permit(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            changed = self.seen.changed() => if changed.is_ok() { Next::Record } else { Next::GraceOver },
            () = grace => Next::GraceOver,
            next = ready => next,
            event = self.running.events.recv() => Next::Event(event),
        }
    }

    /// Acts on the record as it is now. `None`: stop the guest at once.
    fn observe(&mut self) -> Option<()> {
        let Seen::Record(task) = self.seen.borrow_and_update().clone() else { return None };
        self.task = task;
        if self.grace_until.is_some() {
            return Some(());
        }
        if self.task.outcome().is_some() {
            return self.wind_down();
        }
        if !is_running(&self.task) {
            // Given up, and queued again for another run.
            return None;
        }
        // First: a guest that is paused takes no message any more, also none that came with the pause.
        self.observe_pause();
        self.running.control.steering_pending(!self.task.steering.is_empty());
        self.observe_answers();
        self.stand_still();
        Some(())
    }

    /// The task is over for everybody else: the guest gets its grace period if it ever looked for signals.
    fn wind_down(&mut self) -> Option<()> {
        let control = &self.running.control;
        control.signal_cancel();
        if !control.is_cooperative() || self.task.outcome() != Some(&Outcome::Cancelled) {
            return None;
        }
        self.grace_until = Some(Instant::now() + self.cancel_grace);
        self.paused = false;
        // A guest that noticed would compute: one that rests needs a permit first, like any that goes on.
        self.wait = Wait::Permit(match std::mem::replace(&mut self.wait, Wait::Nothing) {
            Wait::Answers { reply, .. } | Wait::Permit(Reply::Answers(reply, _)) => {
                Reply::Answers(reply, Err(InputRequestError::Cancelled))
            }
            Wait::Sleep { reply, .. } | Wait::Permit(Reply::Slept(reply)) => Reply::Slept(reply),
            Wait::Nothing | Wait::Permit(Reply::Nothing) => Reply::Nothing,
        });
        Some(())
    }

    fn observe_pause(&mut self) {
        let paused = is_paused(&self.task);
        if paused && !self.paused {
            self.running.control.pause();
        }
        if !paused && self.paused && matches!(self.wait, Wait::Nothing) {
            self.wait = Wait::Permit(Reply::Nothing);
        }
        self.paused = paused;
    }

    /// A paused guest gives its permit back. One that waits for something goes on waiting, in the place that it has for that.
    fn stand_still(&mut self) {
        if self.paused && matches!(self.wait, Wait::Nothing | Wait::Permit(_)) {
            self.call_slot.rest(IdleState::Stopped);
        }
    }

    fn observe_answers(&mut self) {
        let Wait::Answers { keys, .. } = &self.wait else { return };
        let answer = |key: &String| {
            let input = self.task.inputs.iter().find(|input| input.issued_key == *key);
            input.and_then(|input| input.answer.clone())
        };
        let Some(answers) = keys.iter().map(answer).collect::<Option<Vec<_>>>() else { return };
        if let Wait::Answers { reply, .. } = std::mem::replace(&mut self.wait, Wait::Nothing) {
            self.wait = Wait::Permit(Reply::Answers(reply, Ok(answers)));
        }
    }

    fn awake(&mut self) {
        if let Wait::Sleep { reply, .. } = std::mem::replace(&mut self.wait, Wait::Nothing) {
            self.wait = Wait::Permit(Reply::Slept(reply));
        }
        self.stand_still();
    }

    fn go_on(&mut self) {
        self.running.control.resume();
        if let Wait::Permit(reply) = std::mem::replace(&mut self.wait, Wait::Nothing) {
            match reply {
                Reply::Answers(reply, answers) => drop(reply.send(answers)),
                Reply::Slept(reply) => {
                    let _ = reply.send(());
                }
                Reply::Nothing => {}
            }
        }
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
            CallEvent::InputRequests { requests, reply } => self.ask(requests, reply).await,
            CallEvent::Detach { reply } => drop(reply.send(Some(id.to_string()))),
            CallEvent::Steering { reply } => self.deliver(reply).await,
            CallEvent::Sleep { ms, reply } => self.sleep(ms, reply),
            CallEvent::ListsChanged(kind) => self.inner.lists.says(&self.plugin, kind),
            CallEvent::GrantDenied(grant) => {
                self.inner.note_denied(&self.task.requestor, &self.plugin, Some(id), &grant)
            }
            CallEvent::ResourceUpdated(uri) => {
                let catalog = self.inner.catalog(&self.task.requestor);
                self.inner.lists.updated(&catalog, &self.task.requestor, &self.plugin.name, uri);
            }
            CallEvent::Finished(_) => {}
        }
    }

    async fn ask(
        &mut self,
        requests: Vec<InputRequest>,
        reply: oneshot::Sender<Result<Vec<InputResponse>, InputRequestError>>,
    ) {
        if self.grace_until.is_some() {
            drop(reply.send(Err(InputRequestError::Cancelled)));
            return;
        }
        let count = requests.len();
        let event = Event::RequestInput { attempt: self.task.attempt, requests };
        match self.inner.apply(&self.task.requestor, self.task.id, event, None).await {
            Ok(applied) => {
                let inputs = &applied.after.inputs;
                let first = inputs.len().saturating_sub(count);
                let keys = inputs.iter().skip(first).map(|input| input.issued_key.clone()).collect();
                self.wait = Wait::Answers { keys, reply };
                self.call_slot.rest(IdleState::Waiting);
            }
            Err(ApplyError::Refused(Refusal::TooManyInputs)) => {
                drop(reply.send(Err(InputRequestError::Invalid("this task has asked too many questions".into()))));
            }
            Err(ApplyError::Refused(_) | ApplyError::NotFound) => drop(reply.send(Err(InputRequestError::Cancelled))),
            Err(ApplyError::Store(error)) => {
                tracing::warn!(task.id = %self.task.id, "a question cannot be stored: {error}");
                drop(reply.send(Err(InputRequestError::Unreachable("the host cannot store the question now".into()))));
            }
        }
    }

    /// Each message is delivered once at most: it leaves the record before the guest gets it. What a run took that was lost with its host
    /// is not given to the next one.
    async fn deliver(&mut self, reply: oneshot::Sender<Vec<String>>) {
        let pending = self.run.task().is_some_and(|task| !task.steering.is_empty());
        if self.grace_until.is_some() || !pending {
            drop(reply.send(Vec::new()));
            return;
        }
        let event = Event::Deliver { attempt: self.task.attempt };
        let messages = match self.inner.apply(&self.task.requestor, self.task.id, event, None).await {
            Ok(applied) => applied.before.steering,
            Err(ApplyError::Refused(_) | ApplyError::NotFound) => Vec::new(),
            Err(ApplyError::Store(error)) => {
                tracing::warn!(task.id = %self.task.id, "messages stay in the queue, the store refuses: {error}");
                Vec::new()
            }
        };
        drop(reply.send(messages));
    }

    fn sleep(&mut self, ms: u64, reply: oneshot::Sender<()>) {
        if self.grace_until.is_some() {
            let _ = reply.send(());
            return;
        }
        let sleep = Duration::from_millis(ms);
        if sleep >= REST_FROM {
            self.call_slot.rest(IdleState::Waiting);
        }
        // A guest may ask for longer than the clock can say; its deadline comes first in any case.
        let at =
            Instant::now().checked_add(sleep).unwrap_or_else(|| Instant::now() + Duration::from_secs(86_400 * 365));
        self.wait = Wait::Sleep { at, reply };
    }

    fn report(&self, news: TaskNews) {
        self.run.report(|task, _| self.inner.feeds.publish(&task.requestor, task.id, &news));
    }

    /// Tells the newest record that there is, which may be one that this run has yet to act on.
    fn report_status(&self) {
        self.run.report(|task, status| {
            if let Phase::Active(_) = task.phase {
                let mut said = Task::clone(task);
                said.status_message = status.map(str::to_owned);
                self.inner.feeds.publish(&task.requestor, task.id, &TaskNews::Changed(Arc::new(said)));
            }
        });
    }
}
