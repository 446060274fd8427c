//! One run of one task, from its place in the queue to its outcome.
//!
//! Owns the controls of a running call. A run observes its record: cancelling, pausing, answering or steering is a
//! commit first, and the run sees the new record and acts. Invariant: a panic in here fails this task alone.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tracing::Instrument as _;

use super::resuming;
use crate::engine::EngineContext;
use crate::engine::run::dormant::given_up;
use crate::engine::run::finish::{finish, write};
use crate::engine::run::guest_driver::{GuestDriver, Started};
use crate::engine::run::queued::{AdmittedRun, leave_queue, take_up};
use crate::engine::run::resuming::Journaled;
use crate::engine::run::task_call::TaskCall;
use crate::error::{host_failure, incident, internal};
use crate::parts::admission::{IdleSlot, IdleState, Permit};
use crate::parts::call_identity::{DrawnIdentity, Identity};
use crate::parts::call_slot::CallSlot;
use crate::parts::job;
use crate::parts::job::{Attempt, Fallback, Job, visits};
use crate::parts::outcome::line;
use crate::parts::request::ClientContext;
use crate::parts::resting::{Dormancy, NextRun, QueuedRun, Rest};
use crate::parts::run_state::Run;
use crate::parts::watchers::NotificationMark;
use bulkhead_calls::{CallContext, CallSpec, Operation};
use bulkhead_domain::call::{CallError, ClientFeature, FaultKind};
use bulkhead_domain::lifecycle::Event;
use bulkhead_domain::task::{Outcome, PluginVersion, Task, TaskId, TaskOutput, Work};
use bulkhead_traces::{InSpan as _, Span};

/// How a run begins.
pub(crate) enum RunStart {
    /// The record already says that it runs.
    Running(Box<Permit>),
    /// It waits for its turn.
    Queued(Box<QueuedRun>),
    /// It has waited, and has its permit.
    Admitted(Box<AdmittedRun>),
    /// A plain call that became a task on the way.
    Promoted(Box<GuestDriver>),
}

impl RunStart {
    /// At the end of its requestor's queue.
    pub(crate) fn queued(slot: IdleSlot, next: NextRun) -> Self {
        Self::Queued(Box::new(QueuedRun::new(Some(slot), next)))
    }
}

impl EngineContext {
    /// Starts the run of a stored task. A change that was committed before the run existed found no run to notify: if
    /// there was one since this moment, the run reads its record again.
    pub(crate) async fn start_run(
        self: &Arc<Self>,
        task: Arc<Task>,
        begin: RunStart,
        known: Option<Box<Job>>,
        before: NotificationMark,
    ) {
        let run = self.watched(&task, before);
        match begin {
            RunStart::Queued(queued) => self.rest(&run.run, &task.plugin, Rest::Queued(queued)),
            begin => spawn(self.clone(), run.run.clone(), task.clone(), begin, known),
        }
        self.bring_up_to_date(run, &task).await;
    }

    /// Lets a stored task lie dormant that began on an earlier host.
    pub(crate) async fn keep_dormant(self: &Arc<Self>, task: Arc<Task>, dormancy: Dormancy, before: NotificationMark) {
        let run = self.watched(&task, before);
        self.rest(&run.run, &task.plugin, Rest::Dormant(dormancy));
        self.bring_up_to_date(run, &task).await;
    }

    /// Hands a task the permit that it waits for, and returns one that it does not wait for.
    pub(crate) fn admit(self: &Arc<Self>, id: TaskId, permit: Permit) -> Option<Permit> {
        let Some((run, mut queued)) = self.watchers.run(id).and_then(|run| Some((Arc::clone(&run), run.admit()?)))
        else {
            return Some(permit);
        };
        // Its place may come after its permit: then it has no number yet, and stands at the end if it cannot use the
        // permit.
        let number = queued.take_entry().map(|entry| entry.number());
        spawn_admitted(Arc::clone(self), run, AdmittedRun { queued, permit, number });
        None
    }

    /// A run that is told of changes from now on.
    fn watched(&self, task: &Arc<Task>, before: NotificationMark) -> NewRun {
        let run = Arc::new(Run::new(Arc::clone(task), self.gives_up_at(task)));
        let knows_all = self.watchers.start(task.id, Arc::clone(&run), before);
        NewRun { run, knows_all }
    }

    /// Shows a run what it was not told, and counts it if it is paused.
    async fn bring_up_to_date(&self, NewRun { run, knows_all }: NewRun, task: &Task) {
        if !knows_all {
            self.catch_up(&run, task).await;
        }
        if run.is_paused() {
            run.keep_paused(self.admission.keep(&task.requestor, IdleState::Paused));
        }
    }
}

/// A run of this moment.
struct NewRun {
    run: Arc<Run>,
    /// Whether no change came between the record that it has and its first notification.
    knows_all: bool,
}

/// Starts the run on the runtime of the caller.
fn spawn(inner: Arc<EngineContext>, run: Arc<Run>, task: Arc<Task>, begin: RunStart, job: Option<Box<Job>>) {
    let span = task_span(&inner, &task);
    let work = drive_to_rest(inner, run, task, begin, job, span.clone());
    // The log tells whose request began it.
    tokio::spawn(Box::pin(work).in_span(span).in_current_span());
}

/// Starts the run of a task that has waited for its permit, which may come on any thread.
fn spawn_admitted(inner: Arc<EngineContext>, run: Arc<Run>, mut admitted: AdmittedRun) {
    let log_span = admitted.queued.log_span.take().map_or_else(tracing::Span::none, |span| *span);
    let runtime = inner.runtime.clone();
    let work = async move {
        let Some((admitted, task)) = take_up(&inner, &run, admitted).await else { return };
        let span = task_span(&inner, &task);
        let begin = RunStart::Admitted(Box::new(admitted));
        Box::pin(drive_to_rest(inner, run, task, begin, None, span.clone())).in_span(span).await;
    };
    runtime.spawn(Box::pin(work).instrument(log_span));
}

/// Drives a task until it is over, or rests.
async fn drive_to_rest(
    inner: Arc<EngineContext>,
    run: Arc<Run>,
    task: Arc<Task>,
    begin: RunStart,
    job: Option<Box<Job>>,
    span: Option<Span>,
) {
    let left = run.gives_up_at.map(|at| Duration::from_millis(at.saturating_sub(inner.clock.now())));
    let driven = Box::pin(drive(inner.clone(), run.clone(), task.clone(), begin, job));
    let driven = AssertUnwindSafe(driven).catch_unwind();
    let ended = match left {
        None => driven.await,
        Some(left) => {
            let give_up = async { Box::pin(give_up(&inner, &run, &task)).await };
            Box::pin(beside(driven, left, give_up)).await
        }
    };
    if ended.is_err() {
        Box::pin(panicked(&inner, &run, &task)).await;
    }
    if let Some(span) = span {
        end_span(&span, &run);
    }
    match run.take_leaving() {
        Some(rest) => inner.rest(&run, &task.plugin, rest),
        None => inner.watchers.end(task.id),
    }
}

/// Ends the record of a task whose run is gone.
async fn panicked(inner: &Arc<EngineContext>, run: &Run, task: &Task) {
    let incident = incident();
    tracing::error!(incident, task.id = %task.id, tool.name = task.work.label(), "a task's run panicked");
    let error = CallError::Internal { incident };
    let message = line(&error.to_string());
    write(inner, run, task, &Event::Abandon { error, message }, None).await;
}

/// The span of a task whose creating request was recorded, in the trace of that request, however long ago that was.
fn task_span(inner: &EngineContext, task: &Task) -> Option<Span> {
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

/// Does the work; when its time is over, the other thing beside it. The work is never dropped: it may be about to
/// commit.
async fn beside<F: Future + Unpin>(mut work: F, left: Duration, when_over: impl Future<Output = ()>) -> F::Output {
    tokio::select! {
        done = &mut work => return done,
        () = tokio::time::sleep(left) => {}
    }
    tokio::join!(work, when_over).0
}

/// Ends the record; the run sees that and stops.
async fn give_up(inner: &Arc<EngineContext>, run: &Run, task: &Task) {
    write(inner, run, task, &given_up(), None).await;
}

/// Drives the task to its end; where it is held on the way, it waits to be tried again.
async fn drive(inner: Arc<EngineContext>, run: Arc<Run>, task: Arc<Task>, begin: RunStart, job: Option<Box<Job>>) {
    if drive_once(&inner, &run, &task, begin, job).await {
        let slot = inner.admission.keep(&task.requestor, IdleState::Queued);
        run.leave(Rest::Queued(Box::new(QueuedRun::new(Some(slot), NextRun::Resume))));
    }
}

/// Whether the task is held.
async fn drive_once(
    inner: &Arc<EngineContext>,
    run: &Arc<Run>,
    task: &Arc<Task>,
    begin: RunStart,
    job: Option<Box<Job>>,
) -> bool {
    let (permit, task, resumes) = match begin {
        RunStart::Promoted(guest) => {
            Box::pin(go_on(inner, run, task, *guest)).await;
            return false;
        }
        RunStart::Running(permit) => (permit, task.clone(), false),
        RunStart::Queued(queued) => {
            run.leave(Rest::Queued(queued));
            return false;
        }
        RunStart::Admitted(admitted) => {
            let resumes = !matches!(admitted.queued.next, NextRun::Start);
            let Some((permit, task)) = leave_queue(inner, run, *admitted).await else { return false };
            (permit, task, resumes)
        }
    };
    Box::pin(call(inner, run, &task, job, resumes, permit)).await
}

/// Follows the call of a task that ran before it became one.
async fn go_on(inner: &Arc<EngineContext>, run: &Arc<Run>, task: &Arc<Task>, guest: GuestDriver) {
    if let Some((result, _)) = follow(inner, run, task, guest).await {
        finish(inner, run, task, result).await;
    }
}

/// Makes the call of a task that has left the queue; whether the task is held.
async fn call(
    inner: &Arc<EngineContext>,
    run: &Arc<Run>,
    task: &Arc<Task>,
    job: Option<Box<Job>>,
    resumes: bool,
    permit: Box<Permit>,
) -> bool {
    let call_slot = CallSlot::new(inner.admission.clone(), task.requestor, true, *permit);
    let visits = match job {
        Some(job) => Ok(job.visits()),
        None => recall(inner, task).await,
    };
    let result = match visits {
        Ok(visits) => visit(inner, run, task, visits, resumes, call_slot).await,
        Err(error) => Some(Err(error)),
    };
    match (result, run.take_replay_failure()) {
        (Some(_), Some(failure)) => {
            inner.audit.note_diverged(task);
            resuming::not_brought_back(inner, run, task, &failure).await
        }
        (Some(result), None) => {
            finish(inner, run, task, result).await;
            false
        }
        (None, _) => false,
    }
}

/// Asks one plugin after the other, until one does not say that it has no such thing. `None`: the task is over.
async fn visit(
    inner: &Arc<EngineContext>,
    run: &Arc<Run>,
    task: &Arc<Task>,
    visits: Vec<Attempt>,
    resumes: bool,
    mut call_slot: CallSlot,
) -> Option<Result<TaskOutput, CallError>> {
    let mut fallback = Fallback::default();
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
                let guest = GuestDriver::new(inner.driver_context(), task.requestor, Some(task.id), started, call_slot);
                let (result, slot) = follow(inner, run, task, guest).await?;
                call_slot = slot;
                result
            }
            Err(error) => Err(error),
        };
        match result {
            Err(error) if fallback.tries_next(&error) => last = error,
            result => return Some(result),
        }
    }
    Some(Err(fallback.conclude(last)))
}

/// Whether a plugin may be asked after another one. One that this requestor is kept from counts as one that broke.
fn admitted(inner: &EngineContext, task: &Task, plugin: &PluginVersion) -> Result<(), CallError> {
    let admitted = inner.health.admit(&task.requestor, plugin);
    admitted.map_err(|error| CallError::Fault { kind: FaultKind::Limit, reason: error.to_string() })
}

/// The guest's result and the slot that it occupied; `None`: the task is over.
async fn follow(
    inner: &Arc<EngineContext>,
    run: &Arc<Run>,
    task: &Arc<Task>,
    guest: GuestDriver,
) -> Option<(Result<TaskOutput, CallError>, CallSlot)> {
    let started_at = inner.clock.now();
    let ended = TaskCall::new(inner.clone(), run.clone(), task.clone(), guest).run().await?;
    let took_ms = inner.clock.now().saturating_sub(started_at);
    inner.poll_intervals.learn(&task.requestor, task.work.label(), took_ms);
    Some(ended)
}

async fn start(inner: &Arc<EngineContext>, task: &Task, visit: Attempt, resumes: bool) -> Result<Started, CallError> {
    let Journaled { journaling, journal, attempt, was_promoted } =
        resuming::journaled(inner, task, &visit, resumes).await?;
    let &Task { seed, call_id, id, .. } = task;
    let drawn = DrawnIdentity { seed, call_id };
    let task_id = (!was_promoted).then_some(id);
    let facts = facts(inner, task, Identity { drawn, task_id, attempt, journal: journal.clone() });
    let Attempt { plugin, operation, limits, .. } = visit;
    let tenant = task.requestor.tenant;
    let (share, activity) = inner.shares.for_call(&task.requestor);
    let spec = CallSpec { plugin, tenant, operation, limits, share, activity, facts, journaling };
    let started = Started::new(&*inner.executor, spec, journal).map_err(internal)?;
    if was_promoted {
        started.become_task(id);
    }
    Ok(started)
}

/// What the guest of a task may know of its call.
pub(crate) fn facts(inner: &EngineContext, task: &Task, identity: Identity) -> CallContext {
    let origin = &task.origin;
    let client = ClientContext {
        features: origin.features.with(ClientFeature::Tasks),
        log_level: origin.log_level,
        wants_progress: origin.progress_token.is_some(),
    };
    inner.facts(&task.requestor, client, identity, &task.related)
}

/// What a task from before a restart needs to run: its work as the version offers it that it was created with.
pub(crate) async fn recall(inner: &Arc<EngineContext>, task: &Task) -> Result<Vec<Attempt>, CallError> {
    let arguments = resuming::when_reachable(|| inner.store.arguments(&task.requestor, task.id)).await;
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
    let (operation, arguments) = job::operation(&arguments).ok_or(CallError::Interrupted)?;
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
    let others = others.into_iter().filter(|other| arguments.contains(&other.plugin.name)).collect();
    Ok(visits(&operation, first, others))
}
