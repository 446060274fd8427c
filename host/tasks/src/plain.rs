//! A plain call of a tool, or another request to a plugin: no record, no disk; it lives as long as its client holds it. A call may
//! be promoted to a task.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::admission::IdleState;
use super::audit_events::CallAudit;
use super::call_slot::CallSlot;
use super::engine::{Inner, refused};
use super::guest_driver::{Reply as LiveReply, Wait as LiveWait};
use super::run::{RunStart, Started};
use super::{CallNews, CallRequest, ClientContext, Error, Job, RequestedTtl, TaskRequest, host_failure, incident};
use bulkhead_domain::call::{CallError, InputRequestError, InputResponse};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{CallId, Origin, PluginVersion, Task};
use bulkhead_domain::tool::ToolOutput;
use bulkhead_runtime::{CallEvent, CallSpec, ClientView, Returned, RunningCall};

/// A call that runs, and will give back a `T`. Dropping it stops the guest at once.
pub struct PlainCall<T = ToolOutput> {
    /// Boxed, because calls are handed on several times.
    work: Box<PlainWork>,
    gives_back: PhantomData<fn() -> T>,
}

/// The call itself, whatever it returns.
struct PlainWork {
    inner: Arc<Inner>,
    requestor: Requestor,
    /// What it can become a task with; calls of tools have it.
    request: Option<CallRequest>,
    plugin: PluginVersion,
    cancel_grace: Duration,
    seed: [u8; 32],
    call_id: CallId,
    running: RunningCall,
    call_slot: CallSlot,
    wait: Wait,
    /// What the guest last said about itself: shown if it becomes a task.
    status: Option<String>,
    unended: CallAudit,
    counted: Counted,
}

/// Counts a plain call for as long as a client waits for it: a drain waits, too.
struct Counted {
    inner: Arc<Inner>,
    counts: bool,
}

impl Counted {
    fn new(inner: &Arc<Inner>) -> Self {
        let mut counted = Self { inner: Arc::clone(inner), counts: false };
        counted.set(true);
        counted
    }

    fn set(&mut self, counts: bool) {
        match (std::mem::replace(&mut self.counts, counts), counts) {
            (false, true) => drop(self.inner.plain_calls.fetch_add(1, Ordering::AcqRel)),
            (true, false) => drop(self.inner.plain_calls.fetch_sub(1, Ordering::AcqRel)),
            _ => {}
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.set(false);
    }
}

enum Wait {
    Nothing,
    Answers {
        answers: oneshot::Receiver<Result<Vec<InputResponse>, InputRequestError>>,
        reply: AnswersReply,
    },
    Sleep {
        at: Instant,
        reply: oneshot::Sender<()>,
    },
    Permit(Reply),
    /// For the word whether it is a task now.
    Detach(oneshot::Sender<Option<String>>),
}

type AnswersReply = oneshot::Sender<Result<Vec<InputResponse>, InputRequestError>>;

enum Reply {
    Answers(AnswersReply, Result<Vec<InputResponse>, InputRequestError>),
    Slept(oneshot::Sender<()>),
}

impl<T> PlainCall<T> {
    /// Marks the call as parked: it has sent an input request, and no client waits for it until the next request continues it. A
    /// drain does not wait for it either.
    pub fn park(&mut self) {
        self.work.counted.set(false);
    }

    /// The same call with its result type erased.
    pub fn erased(self) -> PlainCall<Returned> {
        PlainCall { work: self.work, gives_back: PhantomData }
    }

    /// Another request of the same requestor listens from now on: the guest reports and asks what that one wants and can answer.
    pub fn set_client(&self, client: ClientContext) {
        let ClientContext { features, log_level, wants_progress } = client;
        self.work.running.control.set_client(ClientView { features, log_level, wants_progress });
    }

    /// Makes the running call a task, without running anything twice: the record is durable when this returns, and the guest
    /// never notices. When a quota refuses, the call comes back with the reason and goes on plainly.
    pub async fn promote(mut self, origin: Origin, ttl: RequestedTtl) -> Result<Task, (Self, Error)> {
        let Some(call) = self.work.request.clone() else {
            return Err((self, Error::Illegal("only the call of a tool can become a task")));
        };
        if let Err(full) = self.work.call_slot.become_task() {
            return Err((self, refused(full, None)));
        }
        let request = TaskRequest { job: Job::Call(call), origin, ttl };
        let missed_notifications = self.work.inner.missed_notifications();
        let task = match self
            .work
            .inner
            .record_running(&self.work.requestor, request, self.work.seed, self.work.call_id)
            .await
        {
            Ok(task) => Arc::new(task),
            Err(error) => {
                self.work.call_slot.become_plain();
                return Err((self, error));
            }
        };
        let PlainWork { inner, plugin, cancel_grace, running, call_slot, wait, status, unended, .. } = *self.work;
        unended.promoted();
        running.control.promoted(&task.id.to_string());
        let wait = match wait {
            Wait::Sleep { at, reply } => LiveWait::Sleep { at, reply },
            Wait::Permit(Reply::Slept(reply)) => LiveWait::Permit(LiveReply::Slept(reply)),
            Wait::Permit(Reply::Answers(reply, answers)) => LiveWait::Permit(LiveReply::Answers(reply, answers)),
            Wait::Detach(reply) => {
                drop(reply.send(Some(task.id.to_string())));
                LiveWait::Nothing
            }
            // A question that was asked before the task existed is not the task's: the guest hears that nobody answers.
            Wait::Answers { .. } | Wait::Nothing => LiveWait::Nothing,
        };
        let begin = RunStart::Promoted(Box::new((Started { running, plugin, cancel_grace }, call_slot, wait)));
        inner.start_run(task.clone(), begin, None, missed_notifications).await;
        if let Some((status, run)) = status.zip(inner.run(task.id)) {
            run.set_status(status);
        }
        Ok(Task::clone(&task))
    }
}

impl<T: TryFrom<Returned>> PlainCall<T> {
    pub(super) fn start(
        inner: Arc<Inner>,
        requestor: Requestor,
        request: Option<CallRequest>,
        spec: CallSpec,
        call_slot: CallSlot,
    ) -> Result<Self, Error> {
        let (seed, call_id) = (spec.facts.seed, spec.facts.call_id);
        let plugin = spec.plugin.clone();
        let cancel_grace = Duration::from_millis(spec.limits.cancel_grace_ms);
        let running = inner.executor.start(spec).map_err(|error| host_failure("starting a call", &error))?;
        let work = PlainWork {
            unended: CallAudit::new(&inner.audit, requestor, &plugin, request.as_ref()),
            counted: Counted::new(&inner),
            inner,
            requestor,
            request,
            plugin,
            cancel_grace,
            seed,
            call_id,
            running,
            call_slot,
            wait: Wait::Nothing,
            status: None,
        };
        Ok(Self { work: Box::new(work), gives_back: PhantomData })
    }

    /// What happens next; after `Finished` nothing does. Cancel-safe.
    pub async fn next(&mut self) -> CallNews<T> {
        self.work.counted.set(true);
        loop {
            self.wait_over().await;
            let event = match &self.work.wait {
                // The guest stands still until its answers are there; only its end can come before.
                Wait::Answers { .. } => tokio::select! {
                    () = answers_ready(&mut self.work.wait) => continue,
                    event = self.work.running.events.recv() => event,
                },
                _ => self.work.running.events.recv().await,
            };
            if let Some(news) = self.take(event) {
                return news;
            }
        }
    }

    /// Tells the guest, gives it its grace period if it looks for signals, and stops it.
    pub fn cancel(mut self)
    where
        T: 'static,
    {
        let control = self.work.running.control.clone();
        control.signal_cancel();
        if !control.is_cooperative() {
            return;
        }
        self.work.wait = match std::mem::replace(&mut self.work.wait, Wait::Nothing) {
            Wait::Answers { reply, .. } => Wait::Permit(Reply::Answers(reply, Err(InputRequestError::Cancelled))),
            Wait::Sleep { reply, .. } => Wait::Permit(Reply::Slept(reply)),
            other => other,
        };
        let cancel_grace = self.work.cancel_grace;
        tokio::spawn(async move {
            let over = async { while !matches!(self.next().await, CallNews::Finished(_)) {} };
            // Over or not, the guest stops here.
            let _ = tokio::time::timeout(cancel_grace, over).await;
        });
    }

    /// Ends a wait whose time has come: sleeps to their end, takes a permit again, and replies.
    async fn wait_over(&mut self) {
        if matches!(self.work.wait, Wait::Detach(_))
            && let Wait::Detach(reply) = std::mem::replace(&mut self.work.wait, Wait::Nothing)
        {
            drop(reply.send(None));
        }
        if let Wait::Sleep { at, .. } = &self.work.wait {
            tokio::time::sleep_until(*at).await;
            if let Wait::Sleep { reply, .. } = std::mem::replace(&mut self.work.wait, Wait::Nothing) {
                self.work.wait = Wait::Permit(Reply::Slept(reply));
            }
        }
        if matches!(self.work.wait, Wait::Permit(_)) {
            self.work.call_slot.run().await;
            match std::mem::replace(&mut self.work.wait, Wait::Nothing) {
                Wait::Permit(Reply::Answers(reply, answers)) => drop(reply.send(answers)),
                Wait::Permit(Reply::Slept(reply)) => {
                    let _ = reply.send(());
                }
                _ => {}
            }
        }
    }

    fn take(&mut self, event: Option<CallEvent>) -> Option<CallNews<T>> {
        match event {
            Some(CallEvent::Progress { progress, total, message }) => {
                self.work.status = message.clone().or_else(|| self.work.status.take());
                Some(CallNews::Progress { progress, total, message })
            }
            Some(CallEvent::Log { level, logger, data }) => Some(CallNews::Log { level, logger, data }),
            Some(CallEvent::InputRequests { requests, reply }) => {
                let (answer, answers) = oneshot::channel();
                self.work.call_slot.rest(IdleState::Waiting);
                self.work.wait = Wait::Answers { answers, reply };
                Some(CallNews::InputRequests { requests, reply: answer })
            }
            Some(CallEvent::Sleep { ms, reply }) => {
                self.work.call_slot.rest(IdleState::Waiting);
                let at = Instant::now().checked_add(Duration::from_millis(ms));
                let at = at.unwrap_or_else(|| Instant::now() + Duration::from_secs(86_400 * 365));
                self.work.wait = Wait::Sleep { at, reply };
                None
            }
            Some(CallEvent::Detach { reply }) => {
                self.work.wait = Wait::Detach(reply);
                Some(CallNews::Detach)
            }
            Some(CallEvent::Steering { reply }) => {
                drop(reply.send(Vec::new()));
                None
            }
            Some(CallEvent::ListsChanged(kind)) => {
                self.work.inner.lists.says(&self.work.plugin, kind);
                None
            }
            Some(CallEvent::GrantDenied(grant)) => {
                let PlainWork { inner, requestor, plugin, .. } = &*self.work;
                inner.note_denied(requestor, plugin, None, &grant);
                None
            }
            Some(CallEvent::ResourceUpdated(uri)) => {
                let PlainWork { inner, requestor, plugin, .. } = &*self.work;
                inner.lists.updated(&inner.catalog(requestor), requestor, &plugin.name, uri);
                None
            }
            Some(CallEvent::Status(status)) => {
                self.work.status = Some(status);
                None
            }
            Some(CallEvent::Finished(result)) => {
                let busy = self.work.call_slot.busy();
                self.work.call_slot.leave();
                self.work.unended.ended(&result);
                let PlainWork { inner, requestor, plugin, request, .. } = &*self.work;
                let tool = request.as_ref().map_or("", |request| &request.tool.tool.name);
                inner.call_ended(requestor, plugin, tool, &result, busy);
                Some(CallNews::Finished(result.and_then(of_kind)))
            }
            None => {
                self.work.call_slot.leave();
                let incident = incident();
                tracing::error!(incident, "a call ended without saying how");
                Some(CallNews::Finished(Err(CallError::Internal { incident })))
            }
        }
    }
}

/// What was asked for, out of what a plugin gave back.
pub(super) fn of_kind<T: TryFrom<Returned>>(returned: Returned) -> Result<T, CallError> {
    T::try_from(returned).map_err(|_| {
        let incident = incident();
        tracing::error!(incident, "an operation gave back what belongs to another one");
        CallError::Internal { incident }
    })
}

/// Moves on once the answers (or the news that there will be none) are there.
async fn answers_ready(wait: &mut Wait) {
    let Wait::Answers { answers, .. } = wait else { return };
    let result = answers.await;
    let result = result.unwrap_or_else(|_| Err(InputRequestError::Unreachable("the client is gone".into())));
    if let Wait::Answers { reply, .. } = std::mem::replace(wait, Wait::Nothing) {
        *wait = Wait::Permit(Reply::Answers(reply, result));
    }
}
