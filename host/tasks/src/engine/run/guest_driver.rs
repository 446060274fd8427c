//! Drives the guest of one call: what it waits for, the slot that the call occupies, and its reports about its plugin.
//!
//! Owns the running call and its slot. A plain call and the run of a task each hold a driver and decide on the events
//! that it passes on; a promotion moves the driver from the one to the other, and the guest does not notice. Must not
//! know records or clients. Invariant: a guest that has waited goes on only with a permit.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::{Error, host_failure};
use crate::parts::admission::IdleState;
use crate::parts::audit_events::TaskAudit;
use crate::parts::call_health::HealthReporter;
use crate::parts::call_slot::CallSlot;
use crate::parts::catalog_events::CatalogEvents;
use crate::parts::journal::TaskJournal;
use crate::parts::residents::{EvictionCause, ResidentSlot};
use crate::parts::run_state::ReplayFailure;
use bulkhead_calls::journal::JournalStatus;
use bulkhead_calls::{CallEvent, CallSpec, ClientView, Executor, RunningCall};
use bulkhead_domain::call::{CallError, InputRequest, InputRequestError, InputResponse};
use bulkhead_domain::clock::Clock;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{PluginVersion, TaskId};
use bulkhead_domain::{Json, UnixMs};
use bulkhead_traces::Span;

/// Where a request to a client says which trace it is part of.
pub(crate) const TRACEPARENT: &str = "traceparent";

/// A shorter sleep is not worth giving the permit back for.
const REST_FROM: Duration = Duration::from_millis(20);

/// A sleep as long as this has its beginning in the journal, so that it ends in time wherever the call is.
const KEPT_FROM: Duration = Duration::from_secs(1);

/// A guest may ask to sleep for longer than the clock can say; its deadline comes first in any case.
const SLEEP_MAX: Duration = Duration::from_secs(86_400 * 365);

pub(crate) type Answers = Result<Vec<InputResponse>, InputRequestError>;

/// A guest that was started.
pub(crate) struct Started {
    running: RunningCall,
    plugin: PluginVersion,
    cancel_grace: Duration,
    /// Of the call, if it is kept.
    journal: Option<Arc<TaskJournal>>,
}

impl Started {
    pub(crate) fn new(
        executor: &dyn Executor,
        spec: CallSpec,
        journal: Option<Arc<TaskJournal>>,
    ) -> Result<Self, Error> {
        let plugin = spec.plugin.clone();
        let cancel_grace = Duration::from_millis(spec.limits.cancel_grace_ms);
        let running = executor.start(spec).map_err(|error| host_failure("starting a call", &error))?;
        Ok(Self { running, plugin, cancel_grace, journal })
    }

    /// The call is this task from now on.
    pub(crate) fn become_task(&self, id: TaskId) {
        self.running.control.promoted(&id.to_string());
    }
}

/// What a driver works with: it knows no engine.
#[derive(Clone)]
pub(crate) struct DriverContext {
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) lists: Arc<CatalogEvents>,
    pub(crate) health: Arc<HealthReporter>,
    pub(crate) audit: TaskAudit,
    pub(crate) clock: Arc<dyn Clock>,
}

/// See the module. Dropping it stops the guest at once.
pub(crate) struct GuestDriver {
    context: DriverContext,
    pub(crate) requestor: Requestor,
    pub(crate) call_slot: CallSlot,
    guest: Started,
    /// The task that the call is.
    task: Option<TaskId>,
    /// How long the slot had been busy when the guest started: other plugins may have been asked before.
    busy_before: Duration,
    wait: Wait,
    /// Of a task that rests, and may leave memory.
    resident: Option<ResidentSlot>,
    /// Of the requests to the client that the guest waits for, if the call is recorded.
    input_spans: Vec<Span>,
    is_paused: bool,
    is_cancelled: bool,
}

/// What comes next of a guest.
pub(crate) enum GuestNews {
    /// `None`: the sandbox broke off without [`CallEvent::Finished`].
    Event(Option<CallEvent>),
    /// It rests, and is to leave memory.
    Eviction(EvictionCause),
}

/// How a guest rests that may leave memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    pub(crate) is_asleep: bool,
    /// Whether it looks at its signals.
    pub(crate) is_cooperative: bool,
}

/// What the guest waits for. Its imports are synchronous, so there is at most one such thing.
enum Wait {
    Nothing,
    Answers(oneshot::Sender<Answers>),
    Sleep {
        until: Instant,
        /// Whether its end is in the journal.
        is_kept: bool,
        reply: oneshot::Sender<()>,
    },
    /// Everything is there but the permit to go on.
    Permit(Reply),
}

enum Reply {
    Answers(oneshot::Sender<Answers>, Answers),
    Slept(oneshot::Sender<()>),
    /// The guest was paused and waits for no reply.
    Nothing,
}

impl GuestDriver {
    pub(crate) fn new(
        context: DriverContext,
        requestor: Requestor,
        task: Option<TaskId>,
        guest: Started,
        call_slot: CallSlot,
    ) -> Self {
        let busy_before = call_slot.busy();
        let wait = Wait::Nothing;
        let is_paused = false;
        let is_cancelled = false;
        let input_spans = Vec::new();
        let resident = None;
        Self {
            context,
            requestor,
            call_slot,
            guest,
            task,
            busy_before,
            wait,
            resident,
            input_spans,
            is_paused,
            is_cancelled,
        }
    }

    pub(crate) fn journal(&self) -> Option<&Arc<TaskJournal>> {
        self.guest.journal.as_ref()
    }

    /// Why the call could not be brought back to where it was, if that is why it ended.
    pub(crate) fn replay_failure(&self) -> Option<ReplayFailure> {
        match &self.guest.running.control.journal()?.status {
            JournalStatus::Diverged(divergence) => {
                Some(ReplayFailure { why: divergence.to_string(), is_divergence: true })
            }
            JournalStatus::Corrupt(corrupt) => Some(ReplayFailure { why: corrupt.to_string(), is_divergence: false }),
            _ => None,
        }
    }

    pub(crate) fn plugin(&self) -> &PluginVersion {
        &self.guest.plugin
    }

    /// The next event that the owner decides on; `None` if the sandbox broke off without [`CallEvent::Finished`].
    /// Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<CallEvent> {
        loop {
            if let GuestNews::Event(event) = self.news().await {
                return event;
            }
        }
    }

    /// The same of a task, which may have to leave memory while it rests. Cancel-safe.
    pub(crate) async fn news(&mut self) -> GuestNews {
        loop {
            self.note_rest();
            let event = match (&self.wait, &mut self.resident) {
                (Wait::Nothing | Wait::Answers(_), None) => self.guest.running.events.recv().await,
                (_, resident) => tokio::select! {
                    biased;
                    () = Self::wait_over(&self.wait, &mut self.call_slot, self.is_paused) => {
                        self.advance();
                        continue;
                    }
                    event = self.guest.running.events.recv() => event,
                    cause = is_due(resident) => return GuestNews::Eviction(cause),
                },
            };
            let Some(event) = event else { return GuestNews::Event(None) };
            if let Some(event) = self.handle(event) {
                return GuestNews::Event(Some(event));
            }
        }
    }

    /// How the guest rests, if it is a task's whose journal may bring it back.
    fn rest(&self) -> Option<Rest> {
        let journal = self.journal().filter(|journal| self.task.is_some() && !journal.is_given_up())?;
        let is_asleep = matches!(self.wait, Wait::Sleep { is_kept: true, .. });
        let is_stopped = self.is_paused && matches!(self.wait, Wait::Nothing | Wait::Permit(_));
        let rests = is_asleep || is_stopped || matches!(self.wait, Wait::Answers(_));
        let is_cooperative = self.guest.running.control.is_cooperative();
        (rests && !self.is_cancelled && journal.is_of_task()).then_some(Rest { is_asleep, is_cooperative })
    }

    fn note_rest(&mut self) {
        match self.rest() {
            None => self.resident = None,
            Some(_) if self.resident.is_none() => self.resident = Some(self.call_slot.reside(false)),
            Some(_) => {}
        }
    }

    /// How the guest rests, if it can leave memory: nothing that it began outside is under way, and it computed little,
    /// which it does again.
    pub(crate) fn leaves_memory(&self) -> Option<Rest> {
        let control = &self.guest.running.control;
        let is_cheap = control.cpu_ms_to_repeat() <= self.call_slot.limits().task_evict_cpu_ms;
        self.rest().filter(|_| is_cheap && control.can_leave_memory())
    }

    /// It was to leave memory, and stays for now.
    pub(crate) fn stay(&mut self) {
        self.resident = Some(self.call_slot.reside(true));
    }

    async fn wait_over(wait: &Wait, call_slot: &mut CallSlot, is_paused: bool) {
        match wait {
            Wait::Sleep { until, .. } => tokio::time::sleep_until(*until).await,
            Wait::Permit(_) if !is_paused => call_slot.run().await,
            Wait::Nothing | Wait::Answers(_) | Wait::Permit(_) => std::future::pending().await,
        }
    }

    /// After a sleep, waits for a permit; with a permit, lets the guest go on.
    fn advance(&mut self) {
        match std::mem::replace(&mut self.wait, Wait::Nothing) {
            Wait::Sleep { reply, .. } => {
                self.set_wake_at(None);
                self.wait_for_permit(Reply::Slept(reply));
            }
            Wait::Permit(reply) => {
                self.guest.running.control.resume();
                self.guest.running.control.note("goes_on");
                match reply {
                    Reply::Answers(reply, answers) => drop(reply.send(answers)),
                    Reply::Slept(reply) => reply.send(()).unwrap_or_default(),
                    Reply::Nothing => {}
                }
            }
            other => self.wait = other,
        }
    }

    fn wait_for_permit(&mut self, reply: Reply) {
        self.guest.running.control.note("waits_for_permit");
        self.wait = Wait::Permit(reply);
        self.rest_if_paused();
    }

    /// A paused guest gives its permit back. One that waits for something goes on waiting, in the place that it has for
    /// that.
    fn rest_if_paused(&mut self) {
        if self.is_paused && matches!(self.wait, Wait::Nothing | Wait::Permit(_)) {
            self.call_slot.rest(IdleState::Stopped);
        }
    }

    /// Deals with what needs no decision.
    fn handle(&mut self, event: CallEvent) -> Option<CallEvent> {
        match event {
            CallEvent::Sleep { ms, reply } => self.sleep(Duration::from_millis(ms), reply),
            CallEvent::InputRequests { reply, .. } if self.is_cancelled => {
                drop(reply.send(Err(InputRequestError::Cancelled)));
            }
            CallEvent::InputRequests { mut requests, journal, reply } => {
                self.begin_input_spans(&mut requests);
                return Some(CallEvent::InputRequests { requests, journal, reply });
            }
            CallEvent::Steering { reply, .. } if self.is_cancelled => drop(reply.send(Vec::new())),
            CallEvent::ListsChanged(kind) => self.context.lists.note_changed_list(&self.guest.plugin, kind),
            CallEvent::GrantDenied(denial) => {
                self.context.audit.note_denied(&self.requestor, &self.guest.plugin, self.task, &denial)
            }
            CallEvent::ResourceUpdated(uri) => {
                let catalog = self.context.executor.catalog_for(&|route| route.includes(&self.requestor));
                self.context.lists.updated(&catalog, &self.requestor, &self.guest.plugin.name, uri);
            }
            event => return Some(event),
        }
        None
    }

    fn sleep(&mut self, sleep: Duration, reply: oneshot::Sender<()>) {
        if self.is_cancelled {
            let _ = reply.send(());
            return;
        }
        self.guest.running.control.note("sleep");
        if sleep >= REST_FROM {
            self.call_slot.rest(IdleState::Waiting);
        }
        let sleep = sleep.min(SLEEP_MAX);
        let is_kept = sleep >= KEPT_FROM;
        if is_kept {
            let ms = u64::try_from(sleep.as_millis()).unwrap_or(u64::MAX);
            self.set_wake_at(Some(self.context.clock.now().saturating_add(ms)));
        }
        self.wait = Wait::Sleep { until: Instant::now() + sleep, is_kept, reply };
    }

    fn set_wake_at(&self, at: Option<UnixMs>) {
        if let Some(journal) = self.journal() {
            journal.set_wake_at(at);
        }
    }

    /// Each request to the client is a span, and tells the client which. What the guest says of a trace itself is its
    /// own.
    fn begin_input_spans(&mut self, requests: &mut [InputRequest]) {
        for request in requests {
            let name = request.kind.operation_name();
            let Some(span) = self.guest.running.control.begin_span(name) else { return };
            span.set("mcp.method.name", name);
            if !request.meta.iter().any(|(key, _)| key == TRACEPARENT) {
                request.meta.push((TRACEPARENT.to_owned(), Json::new(format!("\"{}\"", span.context()))));
            }
            self.input_spans.push(span);
        }
    }

    fn end_input_spans(&mut self, answers: &Answers) {
        for (at, span) in self.input_spans.drain(..).enumerate() {
            match answers.as_ref().map(|answers| answers.get(at)) {
                Ok(Some(InputResponse::Refused(_))) => span.fail("refused"),
                Ok(_) => {}
                Err(error) => span.fail(error.type_name()),
            }
            span.end();
        }
    }

    /// The guest goes on at once, without any answer.
    pub(crate) fn refuse_input(&mut self, reply: oneshot::Sender<Answers>, error: InputRequestError) {
        self.give_answers(reply, Err(error));
    }

    /// The guest goes on at once, with what is known already.
    pub(crate) fn give_answers(&mut self, reply: oneshot::Sender<Answers>, answers: Answers) {
        self.end_input_spans(&answers);
        drop(reply.send(answers));
    }

    /// The guest rests until its owner has the [answers](Self::answer).
    pub(crate) fn await_answers(&mut self, reply: oneshot::Sender<Answers>) {
        self.guest.running.control.note("input_required");
        self.call_slot.rest(IdleState::Waiting);
        self.wait = Wait::Answers(reply);
    }

    /// Lets the guest have what it waits for, if it waits for answers.
    pub(crate) fn answer(&mut self, answers: Answers) {
        match std::mem::replace(&mut self.wait, Wait::Nothing) {
            Wait::Answers(reply) => {
                self.end_input_spans(&answers);
                self.wait_for_permit(Reply::Answers(reply, answers));
            }
            other => self.wait = other,
        }
    }

    pub(crate) fn set_paused(&mut self, is_paused: bool) {
        match (std::mem::replace(&mut self.is_paused, is_paused), is_paused) {
            (false, true) => {
                self.guest.running.control.pause();
                self.guest.running.control.note("paused");
                self.rest_if_paused();
            }
            (true, false) if matches!(self.wait, Wait::Nothing) => self.wait = Wait::Permit(Reply::Nothing),
            _ => {}
        }
    }

    /// Shows the guest that the call is cancelled. Returns how long it has to notice; `None` if it never looked for
    /// signals.
    pub(crate) fn cancel(&mut self) -> Option<Duration> {
        self.end_input_spans(&Err(InputRequestError::Cancelled));
        let control = &self.guest.running.control;
        control.signal_cancel();
        if !control.is_cooperative() {
            return None;
        }
        (self.is_cancelled, self.is_paused) = (true, false);
        // A guest that notices computes: one that rests needs a permit first, like any that goes on.
        self.wait = Wait::Permit(match std::mem::replace(&mut self.wait, Wait::Nothing) {
            Wait::Answers(reply) | Wait::Permit(Reply::Answers(reply, _)) => {
                Reply::Answers(reply, Err(InputRequestError::Cancelled))
            }
            Wait::Sleep { reply, .. } | Wait::Permit(Reply::Slept(reply)) => Reply::Slept(reply),
            Wait::Nothing | Wait::Permit(Reply::Nothing) => Reply::Nothing,
        });
        Some(self.guest.cancel_grace)
    }

    /// The call is this task from now on.
    pub(crate) fn become_task(&mut self, id: TaskId) {
        self.task = Some(id);
        self.guest.become_task(id);
    }

    pub(crate) fn set_client(&self, client: ClientView) {
        self.guest.running.control.set_client(client);
    }

    pub(crate) fn set_steering_pending(&self, pending: bool) {
        self.guest.running.control.steering_pending(pending);
    }

    /// Reports the end of the call to the health of its plugin. `label`: the tool's name, or what else the call was
    /// for.
    pub(crate) fn report_end<T>(&self, label: &str, result: &Result<T, CallError>) {
        let busy = self.call_slot.busy().saturating_sub(self.busy_before);
        self.context.health.call_ended(&self.requestor, &self.guest.plugin, label, result, busy);
    }
}

/// Why a guest that rests is to leave memory, once it is.
async fn is_due(resident: &mut Option<ResidentSlot>) -> EvictionCause {
    match resident {
        Some(resident) => resident.is_due().await,
        None => std::future::pending().await,
    }
}
