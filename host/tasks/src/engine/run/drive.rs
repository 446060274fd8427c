//! One run of one task, from its place in the queue to its outcome.
//!
//! Owns the controls of a running call. A run observes its record: cancelling, pausing, answering or steering is a commit first, and
//! the run sees the new record and acts. Invariant: a panic in here fails this task alone.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::Instrument as _;

use crate::engine::Inner;
use crate::engine::change::ApplyError;
use crate::engine::create::Identity;
use crate::engine::run::guest_driver::{GuestDriver, Started};
use crate::engine::run::queued::{NextRun, leave_queue};
use crate::engine::run::resuming::{self, Journaled, ReplayFailure};
use crate::engine::run::task_call::TaskCall;
use crate::parts::admission::{IdleSlot, IdleState, Permit, PermitRequest};
use crate::parts::call_slot::CallSlot;
use crate::parts::job::{self, Attempt, visits};
use crate::{ClientContext, Error, Fallback, Job, host_failure, incident};
use bulkhead_calls::{CallContext, CallSpec, Operation};
use bulkhead_domain::call::{CallError, ClientFeature, FaultKind};
use bulkhead_domain::crash_points;
use bulkhead_domain::lifecycle::{Event, Refusal};
use bulkhead_domain::task::{Active, Outcome, Phase, PluginVersion, Retention, Task, TaskOutput, Work};
use bulkhead_domain::tool::{ContentKind, ToolOutput};
use bulkhead_traces::{InSpan as _, Span};

/// Between two tries to write an outcome to a store that refuses: the result exists, so it is kept until it is written.
pub(crate) const OUTCOME_RETRY: Duration = Duration::from_secs(1);

/// Characters of a status line.
const STATUS_CHARS_MAX: usize = 200;

/// What a run sees of its task.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    Record(Arc<Task>),
    /// Expired or removed.
    Gone,
}

/// What everybody else can see of a run.
#[derive(Debug)]
pub(crate) struct Run {
    record: watch::Sender<Seen>,
    /// Locked while anybody is told of the task: what is told comes in the order of the commits, and nothing after the end.
    shown: Mutex<RunStatus>,
}

#[derive(Debug, Default)]
struct RunStatus {
    status: Option<String>,
    /// Its place among the paused tasks, from the commit of the pause to that of its end.
    paused: Option<IdleSlot>,
    /// Why its call could not be brought back to where it was.
    replay_failure: Option<ReplayFailure>,
}

/// How a run begins.
pub(crate) enum RunStart {
    /// The record already says that it runs.
    Running(Permit),
    /// It waits for its turn; the place counts as queued. A paused task has no request for a permit yet.
    Queued(IdleSlot, Option<PermitRequest>),
    /// The same, and then it goes on where an earlier run was.
    Resumed(IdleSlot, Option<PermitRequest>),
    /// A plain call that became a task on the way.
    Promoted(Box<GuestDriver>),
}

impl Run {
    pub(crate) fn new(task: Arc<Task>) -> Self {
        Self { record: watch::channel(Seen::Record(task)).0, shown: Mutex::default() }
    }

    /// Shows the run a new record and tells of it, unless it has seen a later one.
    pub(crate) fn see(&self, task: &Arc<Task>, tell: impl FnOnce()) {
        let mut shown = self.shown.lock();
        let newer = self.record.send_if_modified(|seen| match seen {
            Seen::Record(current) if current.revision < task.revision => {
                *seen = Seen::Record(task.clone());
                true
            }
            Seen::Record(_) | Seen::Gone => false,
        });
        if newer {
            shown.paused.take_if(|_| !is_paused(task));
            tell();
        }
    }

    pub(crate) fn gone(&self) {
        self.shown.lock().paused = None;
        self.record.send_replace(Seen::Gone);
    }

    /// Keeps a place among the paused tasks, for as long as the record says that this is one.
    pub(crate) fn keep_paused(&self, place: IdleSlot) {
        let mut shown = self.shown.lock();
        if self.task().is_some_and(|task| is_paused(&task)) {
            shown.paused = Some(place);
        }
    }

    /// Comes back when the record does not say any more that the task is paused.
    async fn resumed(&self) {
        let mut seen = self.watch();
        // Fails when the run is gone, and then nobody waits.
        let _ = seen.wait_for(|seen| !matches!(seen, Seen::Record(task) if is_paused(task))).await;
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Seen> {
        self.record.subscribe()
    }

    /// The record that was seen last.
    pub(crate) fn task(&self) -> Option<Arc<Task>> {
        match &*self.record.borrow() {
            Seen::Record(task) => Some(task.clone()),
            Seen::Gone => None,
        }
    }

    pub(crate) fn status(&self) -> Option<String> {
        self.shown.lock().status.clone()
    }

    pub(crate) fn set_status(&self, status: String) {
        self.shown.lock().status = Some(line(&status));
    }

    /// The call could not be brought back to where it was.
    pub(crate) fn set_replay_failure(&self, failure: ReplayFailure) {
        self.shown.lock().replay_failure = Some(failure);
    }

    fn take_replay_failure(&self) -> Option<ReplayFailure> {
        self.shown.lock().replay_failure.take()
    }

    /// Tells something of the task, with what its run last said of itself; of one that is over, nothing.
    pub(crate) fn report(&self, tell: impl FnOnce(&Arc<Task>, Option<&str>)) {
        let shown = self.shown.lock();
        if let Some(task) = self.task().filter(|task| task.outcome().is_none()) {
            tell(&task, shown.status.as_deref());
        }
    }
}

/// Starts the run on the runtime of the caller.
pub(crate) fn spawn(inner: Arc<Inner>, run: Arc<Run>, task: Arc<Task>, begin: RunStart, job: Option<Job>) {
    let span = task_span(&inner, &task);
    let recorded = span.clone();
    let work = async move {
        let left = time_left(&inner, &task);
        let driven = AssertUnwindSafe(Box::pin(drive(&inner, &run, &task, begin, job))).catch_unwind();
        if beside(driven, left, give_up(&inner, &run, &task)).await.is_err() {
            let incident = incident();
            tracing::error!(incident, task.id = %task.id, tool.name = task.work.label(), "a task's run panicked");
            let error = CallError::Internal { incident };
            let message = line(&error.to_string());
            write(&inner, &run, &task, &Event::Abandon { error, message }, None).await;
        }
        if let Some(span) = recorded {
            end_span(&span, &run);
        }
        inner.watchers.end(task.id);
    };
    // The log tells whose request began it.
    tokio::spawn(Box::pin(work).in_span(span).in_current_span());
}

/// The span of a task whose creating request was recorded, in the trace of that request, however long ago that was.
fn task_span(inner: &Inner, task: &Task) -> Option<Span> {
    let span = inner.tracer.go_on("bulkhead.task", task.origin.trace.as_ref()?, task.requestor.tenant)?;
    span.set_name("bulkhead.task", Some(task.work.label()));
    span.began_at(task.created_at);
    Some(span)
}

fn end_span(span: &Span, run: &Run) {
    let task = run.task();
    // Known at the end only: a run begins with the record of the one before it.
    if let Some(task) = &task {
        span.set("bulkhead.attempt", i64::from(task.attempt.max(1)));
    }
    match task.as_ref().and_then(|task| task.outcome()) {
        Some(Outcome::Error(error)) => span.fail(error.type_name()),
        Some(Outcome::Output { is_error: true }) => span.fail("tool_error"),
        Some(Outcome::Cancelled) => span.fail("cancelled"),
        Some(Outcome::Output { is_error: false }) | None => {}
    }
    span.end();
}

/// What is left to a task that is kept from its end: one that never ends would hold its place for ever. Every other one is stopped
/// when it expires.
fn time_left(inner: &Inner, task: &Task) -> Option<Duration> {
    match task.retention {
        Retention::FromCompletion { .. } => {
            let end = task.created_at.saturating_add(inner.admission.limits(&task.requestor).ttl_ms_max);
            Some(Duration::from_millis(end.saturating_sub(inner.clock.now())))
        }
        Retention::FromCreation { .. } | Retention::Unlimited => None,
    }
}

/// Does the work; when its time is over, the other thing beside it. The work is never dropped: it may be about to commit.
async fn beside<F: Future>(work: F, left: Option<Duration>, when_over: impl Future<Output = ()>) -> F::Output {
    let mut work = pin!(work);
    if let Some(left) = left {
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(left) => {}
        }
        return tokio::join!(work, when_over).0;
    }
    work.await
}

/// Ends the record; the run sees that and stops.
async fn give_up(inner: &Arc<Inner>, run: &Run, task: &Task) {
    let message = "the task did not end within the longest time that a task is kept".to_owned();
    let error = CallError::Fault { kind: FaultKind::Deadline, reason: message.clone() };
    write(inner, run, task, &Event::Abandon { error, message }, None).await;
}

/// Drives the task to its end; where it is held on the way, waits for it to be tried again.
async fn drive(inner: &Arc<Inner>, run: &Arc<Run>, task: &Arc<Task>, begin: RunStart, job: Option<Job>) {
    let mut held = drive_once(inner, run, task, begin, job).await;
    while held {
        let place = inner.admission.keep(&task.requestor, IdleState::Queued);
        held = drive_once(inner, run, task, RunStart::Resumed(place, None), None).await;
    }
}

/// Whether the task is held.
async fn drive_once(inner: &Arc<Inner>, run: &Arc<Run>, task: &Arc<Task>, begin: RunStart, job: Option<Job>) -> bool {
    let (permit, task, resumes) = match begin {
        RunStart::Promoted(guest) => {
            if let Some((result, _)) = follow(run, task, *guest).await {
                finish(inner, run, task, result).await;
            }
            return false;
        }
        RunStart::Running(permit) => (permit, task.clone(), false),
        RunStart::Queued(place, request) => {
            let started = leave_queue(inner, run, task, NextRun::Start(job.as_ref()), request).await;
            let Some((permit, task)) = started else { return false };
            drop(place);
            (permit, task, false)
        }
        RunStart::Resumed(place, request) => {
            let started = leave_queue(inner, run, task, NextRun::Resume, request).await;
            let Some((permit, task)) = started else { return false };
            drop(place);
            (permit, task, true)
        }
    };
    let call_slot = CallSlot::new(inner.admission.clone(), task.requestor, true, permit);
    let visits = match job {
        Some(job) => Ok(job.visits()),
        None => recall(inner, &task).await,
    };
    let result = match visits {
        Ok(visits) => visit(inner, run, &task, (visits, resumes), call_slot).await,
        Err(error) => Some(Err(error)),
    };
    match (result, run.take_replay_failure()) {
        (Some(_), Some(failure)) => {
            inner.note_diverged(&task);
            resuming::not_brought_back(inner, run, &task, &failure).await
        }
        (Some(result), None) => {
            finish(inner, run, &task, result).await;
            false
        }
        (None, _) => false,
    }
}

/// Asks one plugin after the other, until one does not say that it has no such thing. `None`: the task is over.
async fn visit(
    inner: &Arc<Inner>,
    run: &Arc<Run>,
    task: &Arc<Task>,
    (visits, resumes): (Vec<Attempt>, bool),
    mut call_slot: CallSlot,
) -> Option<Result<TaskOutput, CallError>> {
    let mut absence = Fallback::default();
    let mut last = CallError::Interrupted;
    for (at, visit) in visits.into_iter().enumerate() {
        let started = match at {
            // It was let in when the task was created.
            0 => start(inner, task, visit, resumes).await,
            _ => {
                // The guest before may have ended while it rested.
                call_slot.run().await;
                // It may have been cancelled meanwhile: then nobody else is asked.
                if run.task().is_none_or(|task| task.outcome().is_some()) {
                    return None;
                }
                match admitted(inner, task, &visit.plugin) {
                    Ok(()) => start(inner, task, visit, false).await,
                    Err(error) => Err(error),
                }
            }
        };
        let result = match started {
            Ok(started) => {
                let guest = GuestDriver::new(inner.clone(), task.requestor, Some(task.id), started, call_slot);
                let (result, slot) = follow(run, task, guest).await?;
                call_slot = slot;
                result
            }
            Err(error) => Err(error),
        };
        match result {
            Err(error) if absence.goes_on(&error) => last = error,
            result => return Some(result),
        }
    }
    Some(Err(absence.conclude(last)))
}

/// Whether a plugin may be asked after another one. One that this requestor is kept from counts as one that broke.
fn admitted(inner: &Inner, task: &Task, plugin: &PluginVersion) -> Result<(), CallError> {
    let admitted = inner.admit_healthy(&task.requestor, plugin);
    admitted.map_err(|error| CallError::Fault { kind: FaultKind::Limit, reason: error.to_string() })
}

/// The guest's result and the slot that it occupied; `None`: the task is over.
async fn follow(
    run: &Arc<Run>,
    task: &Arc<Task>,
    guest: GuestDriver,
) -> Option<(Result<TaskOutput, CallError>, CallSlot)> {
    let inner = guest.inner.clone();
    let started_at = inner.clock.now();
    let ended = TaskCall::new(run.clone(), task.clone(), guest).run().await?;
    let took_ms = inner.clock.now().saturating_sub(started_at);
    inner.poll_intervals.learn(&task.requestor, task.work.label(), took_ms);
    Some(ended)
}

async fn start(inner: &Arc<Inner>, task: &Task, visit: Attempt, resumes: bool) -> Result<Started, CallError> {
    let Journaled { journaling, journal, attempt, was_promoted } =
        resuming::journaled(inner, task, &visit, resumes).await?;
    let &Task { seed, call_id, id, .. } = task;
    let task_id = (!was_promoted).then_some(id);
    let facts = facts(inner, task, Identity { seed, call_id, task_id, attempt, journal: journal.clone() });
    let Attempt { plugin, operation, limits, .. } = visit;
    let tenant = task.requestor.tenant;
    let (share, activity) = inner.shares.for_call(&task.requestor);
    let spec = CallSpec { plugin, tenant, operation, limits, share, activity, facts, journaling };
    let started = Started::new(inner, spec, journal).map_err(internal)?;
    if was_promoted {
        started.become_task(id);
    }
    Ok(started)
}

/// What the guest of a task may know of its call.
pub(crate) fn facts(inner: &Inner, task: &Task, identity: Identity) -> CallContext {
    let origin = &task.origin;
    let client = ClientContext {
        features: origin.features.with(ClientFeature::Tasks),
        log_level: origin.log_level,
        wants_progress: origin.progress_token.is_some(),
    };
    inner.facts(&task.requestor, client, identity, &task.related)
}

/// What a task from before a restart needs to run: its work as the version offers it that it was created with.
pub(crate) async fn recall(inner: &Arc<Inner>, task: &Task) -> Result<Vec<Attempt>, CallError> {
    let arguments = inner.store.arguments(&task.requestor, task.id).await;
    let arguments = arguments
        .map_err(|error| internal(host_failure("reading arguments", &error)))?
        .ok_or(CallError::Interrupted)?;
    if let Work::Tool(name) = &task.work {
        let tool = inner.executor.tool(&task.plugin, name).await;
        let tool = tool.ok_or_else(|| {
            CallError::NotFound(format!("the tool {name} is no longer loaded in the version of this call"))
        })?;
        let operation = Operation::CallTool { tool: tool.plugin_tool.clone(), arguments };
        let plugin = task.plugin.clone();
        let limits = tool.limits.clone();
        let journal = tool.journal.clone();
        return Ok(vec![Attempt { plugin, operation, limits, journal }]);
    }
    let (operation, asked) = job::operation(&arguments).ok_or(CallError::Interrupted)?;
    let first = inner.executor.library(&task.plugin).await;
    let first = first.ok_or_else(|| {
        let name = &task.plugin.name;
        CallError::NotFound(format!("the plugin {name} is no longer loaded in the version of this request"))
    })?;
    let others = match &operation {
        Operation::ReadResource { uri } => inner.catalog(&task.requestor).readers(uri),
        _ => Vec::new(),
    };
    // What its requestor may use is known only while it asks.
    let others = others.into_iter().filter(|other| asked.contains(&other.plugin.name)).collect();
    Ok(visits(&operation, first, others))
}

pub(crate) fn internal(error: Error) -> CallError {
    match error {
        Error::Host { incident } => CallError::Internal { incident },
        _ => CallError::Interrupted,
    }
}

/// Writes the outcome. A store that refuses is asked again until it takes it or the task is gone: the work was done.
async fn finish(inner: &Arc<Inner>, run: &Run, task: &Task, result: Result<TaskOutput, CallError>) {
    let (outcome, message, output) = match result {
        Ok(output) => {
            let (outcome, message) = outcome(&output);
            (outcome, message, Some(Arc::new(output)))
        }
        Err(error) => {
            let message = Some(line(&error.to_string()));
            (Outcome::Error(error), message, None)
        }
    };
    write(inner, run, task, &Event::Finish { attempt: task.attempt, outcome, message }, output).await;
}

/// How a task ended that came to this, and what its status says of it.
pub(crate) fn outcome(output: &TaskOutput) -> (Outcome, Option<String>) {
    let message = match output {
        TaskOutput::Tool(output) if output.is_error => first_line(output),
        _ => None,
    };
    (Outcome::Output { is_error: output.is_error() }, message)
}

/// Commits an end, however often the store refuses. A call that ended just before its pause has an outcome that waits for the resume:
/// a paused task does not complete.
pub(crate) async fn write(inner: &Arc<Inner>, run: &Run, task: &Task, end: &Event, output: Option<Arc<TaskOutput>>) {
    let mut warned = false;
    crash_points::reach("finish.before");
    loop {
        match inner.apply(&task.requestor, task.id, end.clone(), output.clone()).await {
            Ok(_) | Err(ApplyError::NotFound) => return crash_points::reach("finish.after"),
            Err(ApplyError::Refused(refusal)) => {
                // The run may have yet to see what the record says: that it is paused, or over.
                inner.catch_up(run, task).await;
                if refusal != Refusal::Paused {
                    return;
                }
                run.resumed().await;
            }
            Err(ApplyError::Store(error)) => {
                if !std::mem::replace(&mut warned, true) {
                    tracing::warn!(task.id = %task.id, "an outcome cannot be written and is kept in memory: {error}");
                }
                tokio::time::sleep(OUTCOME_RETRY).await;
            }
        }
    }
}

fn first_line(output: &ToolOutput) -> Option<String> {
    output.content.iter().find_map(|content| match &content.kind {
        ContentKind::Text(text) => Some(line(text)),
        _ => None,
    })
}

/// One line without control characters, cut where it gets long.
pub(crate) fn line(text: &str) -> String {
    let visible = text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control());
    visible.take(STATUS_CHARS_MAX).collect()
}

/// Whether the record says that the task is paused.
pub(crate) fn is_paused(task: &Task) -> bool {
    matches!(task.phase, Phase::Paused { .. })
}

/// Whether the record says that a run of this host goes on.
pub(crate) fn is_running(task: &Task) -> bool {
    match task.phase {
        Phase::Active(active) | Phase::Paused { before: active } => active != Active::Queued,
        Phase::Ended(_) => false,
    }
}
