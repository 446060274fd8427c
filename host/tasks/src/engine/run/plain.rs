//! A plain call of a tool, or another request to a plugin: no record, no disk; it lives as long as its client holds it.
//! A call may be promoted to a task, and takes the journal along that it kept in memory until then.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::engine::EngineContext;
use crate::engine::run::drive::RunStart;
use crate::engine::run::guest_driver::{Answers, GuestDriver, Started};
use crate::error::{Error, incident};
use crate::parts::admission::{Permit, PermitRequest, Purpose, refused};
use crate::parts::audit_events::CallAudit;
use crate::parts::call_identity::DrawnIdentity;
use crate::parts::call_slot::CallSlot;
use crate::parts::job::{Job, RequestedTtl, TaskRequest};
use crate::parts::journal::TaskJournal;
use crate::parts::news::CallNews;
use crate::parts::request::{CallRequest, ClientContext};
use bulkhead_calls::{CallEvent, CallSpec, ClientView, Returned};
use bulkhead_domain::call::{CallError, InputRequestError};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Origin, Task};

/// A call that runs. Dropping it stops the guest at once.
pub struct PlainCall {
    /// Boxed, because calls are handed on several times.
    work: Box<PlainWork>,
}

/// The call itself.
struct PlainWork {
    inner: Arc<EngineContext>,
    guest: GuestDriver,
    /// What it can become a task with; calls of tools have it.
    request: Option<CallRequest>,
    identity: DrawnIdentity,
    /// The answers that the guest waits for.
    answers: Option<oneshot::Receiver<Answers>>,
    /// It may become a task and found no place among the running ones: its place in the queue, and what it got there.
    promotion: Option<PermitRequest>,
    permit: Option<Permit>,
    /// For the word whether it is a task now.
    detach: Option<oneshot::Sender<Option<String>>>,
    /// What the guest last said about itself: shown if it becomes a task.
    status: Option<String>,
    audit: CallAudit,
    counted: Counted,
}

/// Counts a plain call for as long as a client waits for it: a drain waits, too.
struct Counted {
    inner: Arc<EngineContext>,
    counts: bool,
}

impl Counted {
    fn new(inner: &Arc<EngineContext>) -> Self {
        let mut counted = Self { inner: Arc::clone(inner), counts: false };
        counted.set(true);
        counted
    }

    fn set(&mut self, counts: bool) {
        match (std::mem::replace(&mut self.counts, counts), counts) {
            (false, true) => self.inner.availability.plain_call_begins(),
            (true, false) => self.inner.availability.plain_call_ends(),
            _ => {}
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.set(false);
    }
}

impl PlainCall {
    /// Marks the call as parked: it has sent an input request, and no client waits for it until the next request
    /// continues it. A drain does not wait for it either.
    pub fn park(&mut self) {
        self.work.counted.set(false);
        self.work.give_up_place();
    }

    /// Another request of the same requestor listens from now on: the guest reports and asks what that one wants and
    /// can answer.
    pub fn set_client(&self, client: ClientContext) {
        let ClientContext { features, log_level, wants_progress } = client;
        self.work.guest.set_client(ClientView { features, log_level, wants_progress });
    }

    /// Makes the running call a task, without running anything twice: the record is durable when this returns, and the
    /// guest never notices. When a quota refuses, the call comes back with the reason and goes on plainly. If that is
    /// for want of a place among the running tasks, the call has its turn: [`CallNews::Detach`] comes when there is
    /// one.
    pub async fn promote(mut self, origin: Origin, ttl: RequestedTtl) -> Result<Arc<Task>, (Self, Error)> {
        let work = &mut *self.work;
        let Some(call) = work.request.clone() else {
            return Err((self, Error::Illegal("only the call of a tool can become a task")));
        };
        if let Err(full) = work.guest.call_slot.become_task(work.permit.take()).await {
            // It stands in the queue for a place among the running tasks, once.
            if work.promotion.is_none() {
                work.promotion = work.inner.admission.enqueue(&work.guest.requestor, Purpose::Promotion).ok();
            }
            return Err((self, refused(full, None)));
        }
        work.promotion = None;
        let request = TaskRequest { job: Job::Call(call), origin, ttl };
        let missed_notifications = work.inner.watchers.mark();
        let journal = work.guest.journal();
        let recorded = work.inner.record_running(&work.guest.requestor, request, work.identity, journal).await;
        let task = match recorded {
            Ok(task) => task,
            Err(error) => {
                work.guest.call_slot.become_plain();
                return Err((self, error));
            }
        };
        let PlainWork { inner, mut guest, detach, status, audit, .. } = *self.work;
        if let Some(metrics) = inner.audit.metrics.get() {
            metrics.promoted();
        }
        audit.promoted();
        guest.become_task(task.id);
        if let Some(reply) = detach {
            drop(reply.send(Some(task.id.to_string())));
        }
        // What was asked before the task existed is not the task's.
        guest.answer(Err(InputRequestError::Unreachable("there is no way to reach the client".to_owned())));
        inner.start_run(task.clone(), RunStart::Promoted(Box::new(guest)), None, missed_notifications).await;
        if let Some((status, run)) = status.zip(inner.watchers.run(task.id)) {
            run.set_status(status);
        }
        Ok(task)
    }

    pub(crate) fn start(
        inner: Arc<EngineContext>,
        requestor: Requestor,
        request: Option<CallRequest>,
        spec: CallSpec,
        journal: Option<Arc<TaskJournal>>,
        call_slot: CallSlot,
    ) -> Result<Self, Error> {
        let identity = DrawnIdentity { seed: spec.facts.seed, call_id: spec.facts.call_id };
        let started = Started::new(&*inner.executor, spec, journal)?;
        let guest = GuestDriver::new(inner.driver_context(), requestor, None, started, call_slot);
        let work = PlainWork {
            audit: CallAudit::new(&inner.audit.log, requestor, guest.plugin(), request.as_ref()),
            counted: Counted::new(&inner),
            inner,
            guest,
            request,
            identity,
            answers: None,
            promotion: None,
            permit: None,
            detach: None,
            status: None,
        };
        Ok(Self { work: Box::new(work) })
    }

    /// What happens next; after `Finished` nothing does. Cancel-safe.
    pub async fn next(&mut self) -> CallNews {
        let work = &mut *self.work;
        work.counted.set(true);
        if let Some(reply) = work.detach.take() {
            drop(reply.send(None));
        }
        // One that was granted, and not used, was not wanted.
        work.permit = None;
        loop {
            let event = match &mut work.answers {
                None => tokio::select! {
                    biased;
                    event = work.guest.next() => event,
                    permit = granted(&mut work.promotion) => {
                        work.promotion = None;
                        work.permit = permit;
                        return CallNews::Detach;
                    }
                },
                // The guest stands still until its answers are there; only its end can come before.
                Some(answers) => tokio::select! {
                    answered = answers => {
                        work.answers = None;
                        let gone = || Err(InputRequestError::Unreachable("the client is gone".to_owned()));
                        work.guest.answer(answered.unwrap_or_else(|_| gone()));
                        continue;
                    }
                    event = work.guest.next() => event,
                },
            };
            if let Some(news) = work.take(event) {
                return news;
            }
        }
    }

    /// Tells the guest, gives it its grace period if it looks for signals, and stops it.
    pub fn cancel(mut self) {
        let Some(cancel_grace) = self.work.guest.cancel() else { return };
        self.work.answers = None;
        self.work.give_up_place();
        tokio::spawn(async move {
            let over = async { while !matches!(self.next().await, CallNews::Finished(_)) {} };
            // Over or not, the guest stops here.
            let _ = tokio::time::timeout(cancel_grace, over).await;
        });
    }
}

impl PlainWork {
    fn take(&mut self, event: Option<CallEvent>) -> Option<CallNews> {
        let Some(event) = event else { return Some(CallNews::Finished(Err(self.broken_off()))) };
        match event {
            CallEvent::Progress { progress, total, message } => {
                self.status = message.clone().or_else(|| self.status.take());
                Some(CallNews::Progress { progress, total, message })
            }
            CallEvent::Log { level, logger, data } => Some(CallNews::Log { level, logger, data }),
            CallEvent::InputRequests { requests, reply, .. } => {
                let (answer, answers) = oneshot::channel();
                self.guest.await_answers(reply);
                self.answers = Some(answers);
                Some(CallNews::InputRequests { requests, reply: answer })
            }
            CallEvent::Detach { reply } => {
                self.detach = Some(reply);
                Some(CallNews::Detach)
            }
            CallEvent::Steering { reply, .. } => {
                drop(reply.send(Vec::new()));
                None
            }
            CallEvent::Status(status) => {
                self.status = Some(status);
                None
            }
            CallEvent::Finished(result) => Some(CallNews::Finished(self.finish(result))),
            // The driver deals with all others.
            _ => None,
        }
    }

    fn give_up_place(&mut self) {
        self.promotion = None;
        self.permit = None;
    }

    fn broken_off(&mut self) -> CallError {
        self.give_up_place();
        self.guest.call_slot.leave();
        let incident = incident();
        tracing::error!(incident, "a call ended without saying how");
        CallError::Internal { incident }
    }

    fn finish(&mut self, result: Result<Returned, CallError>) -> Result<Returned, CallError> {
        let tool = self.request.as_ref().map_or("", |request| &request.tool.tool.name);
        self.guest.report_end(tool, &result);
        self.give_up_place();
        self.guest.call_slot.leave();
        self.audit.ended(&result);
        result
    }
}

/// The place that is waited for; without one, for ever.
async fn granted(promotion: &mut Option<PermitRequest>) -> Option<Permit> {
    match promotion {
        Some(request) => request.permit().await,
        None => std::future::pending().await,
    }
}
