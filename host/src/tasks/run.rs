//! One run of one task, from its place in the queue to its outcome.
//!
//! Owns the levers of a running call. A run observes its record: whoever cancels, pauses, answers or steers commits first, and the
//! run sees the new record and acts. Invariant: a panic in here fails this task alone.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::watch;
use tracing::Instrument as _;

use super::admission::{Held, Permit, Purpose, Ticket};
use super::creation::Identity;
use super::engine::{ApplyError, Inner};
use super::feed::lock;
use super::identity::{host_failure, incident};
use super::live::{Live, Wait};
use super::occupancy::Occupancy;
use super::{CallRequest, Client, Error};
use crate::domain::Json;
use crate::domain::call::{CallError, ClientFeature, FaultKind};
use crate::domain::lifecycle::{Event, Refusal};
use crate::domain::task::{Active, Outcome, Phase, Retention, Task};
use crate::domain::tool::{ContentKind, ToolOutput};
use crate::runtime::{CallSpec, Running, ToolEntry};

/// Between two tries to write an outcome to a store that refuses: the result exists, so it is kept until it is written.
pub(super) const OUTCOME_RETRY: Duration = Duration::from_secs(1);

/// A status line is a line.
const STATUS_CHARS_MAX: usize = 200;

/// What a run sees of its task.
#[derive(Clone, Debug)]
pub(super) enum Seen {
    Record(Arc<Task>),
    /// Expired or removed.
    Gone,
}

/// What everybody else can see of a run.
#[derive(Debug)]
pub(super) struct Run {
    record: watch::Sender<Seen>,
    status: Mutex<Option<String>>,
}

/// A call that runs, and what it gets when it is cancelled.
pub(super) struct Started {
    pub(super) running: Running,
    pub(super) cancel_grace: Duration,
}

/// How a run begins.
pub(super) enum Begin {
    /// The record already says that it runs.
    Running(Permit),
    /// It waits for its turn; the place counts as queued. A paused task has no ticket yet.
    Queued(Option<Held>, Option<Ticket>),
    /// A plain call that became a task on the way.
    Promoted(Box<(Started, Occupancy, Wait)>),
}

impl Run {
    pub(super) fn new(task: Arc<Task>) -> Self {
        Self { record: watch::channel(Seen::Record(task)).0, status: Mutex::default() }
    }

    /// Shows the run a new record; false when it has seen a later one.
    pub(super) fn see(&self, task: &Arc<Task>) -> bool {
        self.record.send_if_modified(|seen| match seen {
            Seen::Record(current) if current.revision < task.revision => {
                *seen = Seen::Record(task.clone());
                true
            }
            Seen::Record(_) | Seen::Gone => false,
        })
    }

    pub(super) fn gone(&self) {
        self.record.send_replace(Seen::Gone);
    }

    pub(super) fn watch(&self) -> watch::Receiver<Seen> {
        self.record.subscribe()
    }

    /// The record that was seen last.
    pub(super) fn task(&self) -> Option<Arc<Task>> {
        match &*self.record.borrow() {
            Seen::Record(task) => Some(task.clone()),
            Seen::Gone => None,
        }
    }

    pub(super) fn status(&self) -> Option<String> {
        lock(&self.status).clone()
    }

    pub(super) fn set_status(&self, status: String) {
        *lock(&self.status) = Some(line(&status));
    }
}

/// Starts the run on the runtime of the caller.
pub(super) fn spawn(
    inner: Arc<Inner>,
    run: Arc<Run>,
    task: Arc<Task>,
    begin: Begin,
    known: Option<(Arc<ToolEntry>, Json)>,
) {
    let work = async move {
        let left = time_left(&inner, &task);
        let driven = AssertUnwindSafe(drive(&inner, &run, &task, begin, known)).catch_unwind();
        if beside(driven, left, give_up(&inner, &task)).await.is_err() {
            let incident = incident();
            tracing::error!(incident, task.id = %task.id, tool.name = task.tool, "a task's run panicked");
            let error = CallError::Internal { incident };
            let message = line(&error.to_string());
            write(&inner, &task, &Event::Abandon { error, message }, None).await;
        }
        lock(&inner.runs).remove(&task.id);
    };
    // The log tells whose request began it.
    tokio::spawn(work.in_current_span());
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
async fn give_up(inner: &Arc<Inner>, task: &Task) {
    let message = "the task did not end within the longest time that a task is kept".to_owned();
    let error = CallError::Fault { kind: FaultKind::Deadline, reason: message.clone() };
    write(inner, task, &Event::Abandon { error, message }, None).await;
}

async fn drive(
    inner: &Arc<Inner>,
    run: &Arc<Run>,
    task: &Arc<Task>,
    begin: Begin,
    known: Option<(Arc<ToolEntry>, Json)>,
) {
    let (permit, task) = match begin {
        Begin::Promoted(call) => {
            let (started, occupancy, wait) = *call;
            return live(inner, run, task, started, occupancy, wait).await;
        }
        Begin::Running(permit) => (permit, task.clone()),
        Begin::Queued(place, ticket) => {
            let Some(started) = wait_for_turn(inner, run, task, ticket).await else { return };
            drop(place);
            started
        }
    };
    let occupancy = Occupancy::new(inner.admission.clone(), task.requestor, true, permit);
    match begin_call(inner, &task, known).await {
        Ok(started) => live(inner, run, &task, started, occupancy, Wait::Nothing).await,
        Err(error) => finish(inner, &task, task.attempt, Err(error)).await,
    }
}

async fn live(
    inner: &Arc<Inner>,
    run: &Arc<Run>,
    task: &Arc<Task>,
    started: Started,
    occupancy: Occupancy,
    wait: Wait,
) {
    let started_at = inner.clock.now();
    let live = Live::new(inner.clone(), run.clone(), task.clone(), started, occupancy, wait);
    let Some((result, busy)) = live.until_over().await else { return };
    inner.call_ended(&task.requestor, &task.plugin, &task.tool, &result, busy);
    inner.durations.learn(&task.requestor, &task.tool, inner.clock.now().saturating_sub(started_at));
    finish(inner, task, task.attempt, result).await;
}

/// Waits in the queue, and marks the record as running when it is this task's turn. `None`: the task is over.
async fn wait_for_turn(
    inner: &Arc<Inner>,
    run: &Arc<Run>,
    task: &Arc<Task>,
    mut ticket: Option<Ticket>,
) -> Option<(Permit, Arc<Task>)> {
    let mut seen = run.watch();
    loop {
        let paused = match &*seen.borrow_and_update() {
            Seen::Record(task) if task.outcome().is_none() => matches!(task.phase, Phase::Paused { .. }),
            Seen::Record(_) | Seen::Gone => return None,
        };
        if paused {
            ticket = None;
            seen.changed().await.ok()?;
            continue;
        }
        let place = match &mut ticket {
            Some(place) => place,
            None => ticket.insert(inner.admission.enqueue(&task.requestor, Purpose::Task).ok()?),
        };
        let permit = tokio::select! {
            permit = place.permit() => permit?,
            changed = seen.changed() => {
                changed.ok()?;
                continue;
            }
        };
        ticket = None;
        let lease = inner.lease(inner.clock.now());
        match inner.apply(&task.requestor, task.id, Event::Start { lease }, None).await {
            Ok(applied) => return Some((permit, applied.after)),
            Err(ApplyError::Refused(Refusal::Illegal(_))) => {}
            Err(ApplyError::Refused(_) | ApplyError::NotFound) => return None,
            Err(ApplyError::Store(error)) => {
                // Nothing has run yet: give the permit to somebody who does not need to write, and try again.
                drop(permit);
                tracing::warn!(task.id = %task.id, "a queued task cannot be started: {error}");
                tokio::time::sleep(OUTCOME_RETRY).await;
            }
        }
    }
}

async fn begin_call(
    inner: &Arc<Inner>,
    task: &Task,
    known: Option<(Arc<ToolEntry>, Json)>,
) -> Result<Started, CallError> {
    let (tool, arguments) = match known {
        Some(known) => known,
        None => recall(inner, task).await?,
    };
    let origin = &task.origin;
    let client = Client {
        features: origin.features.with(ClientFeature::Tasks),
        log_level: origin.log_level,
        wants_progress: origin.progress_token.is_some(),
    };
    let cancel_grace = Duration::from_millis(tool.limits.cancel_grace_ms);
    let request = CallRequest { tool, arguments, client, related: Vec::new() };
    let identity = Identity { seed: task.seed, call_id: task.call_id, task_id: Some(task.id), attempt: task.attempt };
    let spec =
        CallSpec { plugin: task.plugin.clone(), ..inner.spec(&task.requestor, &request, identity, &task.related) };
    let running = inner.executor.start(spec).map_err(|error| broken("starting a call", &error))?;
    Ok(Started { running, cancel_grace })
}

/// What a task from before a restart needs to run: the tool as the version offers it that it was created with.
async fn recall(inner: &Arc<Inner>, task: &Task) -> Result<(Arc<ToolEntry>, Json), CallError> {
    let tool = inner.executor.tool(&task.plugin, &task.tool).await;
    let tool = tool.ok_or_else(|| {
        CallError::NotFound(format!("the tool {} is no longer loaded in the version of this call", task.tool))
    })?;
    let arguments = inner.store.arguments(&task.requestor, task.id).await;
    let arguments = arguments.map_err(|error| broken("reading arguments", &error))?;
    arguments.map(|arguments| (tool, arguments)).ok_or(CallError::Interrupted)
}

fn broken(what: &str, error: &dyn std::fmt::Display) -> CallError {
    match host_failure(what, error) {
        Error::Host { incident } => CallError::Internal { incident },
        _ => CallError::Interrupted,
    }
}

/// Writes the outcome. A store that refuses is asked again until it takes it or the task is gone: the work was done.
async fn finish(inner: &Arc<Inner>, task: &Task, attempt: u32, result: Result<ToolOutput, CallError>) {
    let (outcome, message, output) = match result {
        Ok(output) => {
            let message = output.is_error.then(|| first_line(&output)).flatten();
            (Outcome::Output { is_error: output.is_error }, message, Some(output))
        }
        Err(error) => {
            let message = Some(line(&error.to_string()));
            (Outcome::Error(error), message, None)
        }
    };
    write(inner, task, &Event::Finish { attempt, outcome, message }, output).await;
}

/// Commits an end, however often the store refuses.
async fn write(inner: &Arc<Inner>, task: &Task, end: &Event, output: Option<ToolOutput>) {
    let mut warned = false;
    loop {
        match inner.apply(&task.requestor, task.id, end.clone(), output.clone()).await {
            Ok(_) | Err(ApplyError::Refused(_) | ApplyError::NotFound) => return,
            Err(ApplyError::Store(error)) => {
                if !std::mem::replace(&mut warned, true) {
                    tracing::warn!(task.id = %task.id, "an outcome cannot be written and is kept in memory: {error}");
                }
                tokio::time::sleep(OUTCOME_RETRY).await;
            }
        }
    }
}

pub(super) fn first_line(output: &ToolOutput) -> Option<String> {
    output.content.iter().find_map(|content| match &content.kind {
        ContentKind::Text(text) => Some(line(text)),
        _ => None,
    })
}

/// One line without control characters, cut where it gets long.
fn line(text: &str) -> String {
    let visible = text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control());
    visible.take(STATUS_CHARS_MAX).collect()
}

/// Whether a lost run may start again.
pub(super) async fn may_rerun(inner: &Inner, task: &Task) -> bool {
    let tool = inner.executor.tool(&task.plugin, &task.tool).await;
    tool.is_some_and(|tool| tool.rerun_on_restart)
}

/// Whether the record says that a run of this host goes on.
pub(super) fn is_running(task: &Task) -> bool {
    match task.phase {
        Phase::Active(active) | Phase::Paused { before: active } => active != Active::Queued,
        Phase::Ended(_) => false,
    }
}
