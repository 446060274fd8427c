//! Tasks whose host was killed: what becomes of each, and how a call goes on where it was.
//!
//! Owns the decision whether a journal may be trusted, and the limit of tries. Must not know what a journal says.
//! Invariants: a task goes on only where its marker, its attempt and the head of its journal agree; a call without a
//! journal that was to keep one has had no effect, and begins anew; and one that is resumed without coming further is
//! held instead of being tried for ever.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::EngineContext;
use crate::engine::change::{Applied, ApplyError, Author, Step};
use crate::engine::run::finish::write;
use crate::error::{host_failure, internal};
use crate::parts::job::Attempt;
use crate::parts::journal::{Beginning, TaskJournal};
use crate::parts::outcome::{OUTCOME_RETRY, line};
use crate::parts::run_state::{ReplayFailure, Run, is_paused};
use bulkhead_calls::journal::History;
use bulkhead_calls::{Journaling, Spent};
use bulkhead_domain::call::CallError;
use bulkhead_domain::crash_points;
use bulkhead_domain::lifecycle::{Event, Interruption, Refusal};
use bulkhead_domain::task::{Outcome, Task};
use bulkhead_domain::timeline::WakeCause;
use bulkhead_store as store;
use bulkhead_store::journal::{Append, HeadAfter, JournalHead, JournalState, TaskRef};

/// Runs in a row that may go on without coming further.
const RESUMES_MAX: u32 = 3;

/// What a held task says of itself.
const FRUITLESS: &str = "it is held: it was resumed three times and never came further; an operator can release it";
const OTHER_ENGINE: &str = "it is held: it cannot go on with this version of the host; an operator can release it";
/// The same of one that its operator wants to look at first.
pub(crate) const HELD_AT_START: &str =
    "it is held: the host was started with its tasks held; an operator can release it";

/// What becomes of a task whose run is lost.
pub(crate) struct LostRun {
    pub(crate) how: Interruption,
    /// Of the journal by which it goes on, if there is one yet.
    pub(crate) head: Option<JournalHead>,
}

/// What becomes of a task whose run is lost. Fails where the store cannot say at the moment.
pub(crate) async fn lost_run(inner: &EngineContext, task: &Task) -> Result<LostRun, store::Error> {
    let without_journal = |how| Ok(LostRun { how, head: None });
    let Some(name) = task.work.tool() else { return without_journal(Interruption::Fail) };
    let Some(tool) = inner.executor.tool(&task.plugin, name).await else { return without_journal(Interruption::Fail) };
    if tool.journal.is_some()
        && let Kept::Sound(head) = kept(inner, task).await?
    {
        return Ok(LostRun { how: Interruption::Resume, head });
    }
    without_journal(if tool.rerun_on_restart { Interruption::Rerun } else { Interruption::Fail })
}

/// How the status of a task begins that could not go on after a restart; what follows says why.
pub const COULD_NOT: &str = "the host was restarted and the task could not";

/// What happens to a task whose run is lost. One that was to go on and cannot says why, to its requestor and in the
/// log.
pub(crate) async fn interrupted(inner: &EngineContext, task: &Task, how: Interruption) -> Event {
    let hindrance = if how == Interruption::Fail { hindrance(inner, task).await } else { None };
    let Some(why) = hindrance else { return Event::Interrupt { how } };
    tracing::warn!(task.id = %task.id, tool.name = task.work.label(), why, "a task could not go on after a restart");
    Event::Abandon { error: CallError::Interrupted, message: format!("{COULD_NOT} go on: {why}") }
}

/// Why a task that kept a journal cannot go on; `None`: it never was to.
async fn hindrance(inner: &EngineContext, task: &Task) -> Option<String> {
    let name = task.work.tool().filter(|_| task.is_journaled())?;
    let Some(tool) = inner.executor.tool(&task.plugin, name).await else {
        return Some("its component is not loaded any more".to_owned());
    };
    if tool.journal.is_none() {
        return Some("its plugin keeps no journals any more; what it is granted now may be why".to_owned());
    }
    Some(match inner.store.journal(&task.requestor, task.id).await {
        Ok(Some(JournalHead {
            state: JournalState::Demoted { reason } | JournalState::Diverged { reason }, ..
        })) => reason,
        Ok(_) => "its journal is not of its last run".to_owned(),
        Err(_) => "its journal cannot be read".to_owned(),
    })
}

/// What is kept of a call.
enum Kept {
    /// All that brings it back to where it was; no head, as long as it had nothing to write.
    Sound(Option<JournalHead>),
    Nothing,
}

async fn kept(inner: &EngineContext, task: &Task) -> Result<Kept, store::Error> {
    if Beginning::read(task).is_none() {
        return Ok(Kept::Nothing);
    }
    match inner.store.journal(&task.requestor, task.id).await {
        Ok(None) => Ok(Kept::Sound(None)),
        Ok(Some(head)) if head.attempt == task.attempt && head.state == JournalState::Sound => {
            Ok(Kept::Sound(Some(head)))
        }
        Ok(Some(_)) => Ok(Kept::Nothing),
        Err(error @ store::Error::Corrupt(_)) => {
            tracing::warn!(task.id = %task.id, "the journal of a task cannot be read: {error}");
            Ok(Kept::Nothing)
        }
        Err(error) => Err(error),
    }
}

/// Why a task that could go on does not; `None`: nothing keeps it.
pub(crate) fn holding(task: &Task, head: Option<&JournalHead>) -> Option<&'static str> {
    let resumes = resumes(&Beginning::read(task)?, head);
    (resumes >= RESUMES_MAX).then_some(FRUITLESS)
}

fn resumes(beginning: &Beginning, head: Option<&JournalHead>) -> u32 {
    head.map_or(beginning.resumes, |head| head.resumes_since_growth)
}

/// Marks the record as running again, and takes the journal over. `cause`: why a task goes on that was dormant.
pub(crate) async fn mark_resumed(
    inner: &EngineContext,
    task: &Task,
    cause: Option<WakeCause>,
) -> Result<Applied, ApplyError> {
    crash_points::reach("wake.permit");
    let head = inner.store.journal(&task.requestor, task.id).await.map_err(ApplyError::Store)?;
    let beginning = Beginning::read(task).ok_or(ApplyError::Refused(Refusal::Stale))?;
    let beginning = Beginning { resumes: resumes(&beginning, head.as_ref()).saturating_add(1), ..beginning };
    // Of the engine that began the call: only that one can be held to what the journal says.
    let engine_hash = task.durable.as_ref().map_or(0, |marker| marker.engine_hash);
    let durable = beginning.marker(task.attempt, engine_hash);
    let event = Event::Continue { lease: inner.lease(), durable, cause };
    let takes_over = |_: &Task, next: &Task| head.as_ref().map(|head| Append::resuming(head, next.attempt));
    let step = Step { event, output: None, author: Author::Holder };
    inner.apply_beside(TaskRef::of(task), step, &takes_over).await
}

/// What a run that keeps a journal begins with.
pub(crate) struct Journaled {
    pub(crate) journaling: Journaling,
    /// None of a run that keeps none.
    pub(crate) journal: Option<Arc<TaskJournal>>,
    /// The attempt that the guest sees.
    pub(crate) attempt: u32,
    /// Whether the call began as a plain one: its guest is told on the way that it is a task.
    pub(crate) was_promoted: bool,
}

pub(crate) fn spent(head: &JournalHead) -> Spent {
    Spent { cpu: Duration::from_micros(head.cpu_us), wall: Duration::from_micros(head.wall_us) }
}

/// What the run of a task begins with: `resumes` says whether it goes on from an earlier one.
pub(crate) async fn journaled(
    inner: &EngineContext,
    task: &Task,
    visit: &Attempt,
    resumes: bool,
) -> Result<Journaled, CallError> {
    let (Some(policy), Some(beginning)) = (visit.journal.clone(), Beginning::read(task)) else {
        let journaling = Journaling::Off;
        let attempt = task.starts();
        return Ok(Journaled { journaling, journal: None, attempt, was_promoted: false });
    };
    let history = if resumes { history(inner, task).await? } else { None };
    let head = history.as_ref().map(|(head, _)| head);
    let caps = inner.stored_caps(&task.requestor);
    let journal = TaskJournal::new(inner.journal_owner(), task, beginning, head, caps);
    let sink = Arc::clone(&journal);
    let journaling = match history {
        Some((head, history)) => Journaling::From { history, spent: spent(&head), sink, policy },
        None => Journaling::To { sink, policy },
    };
    let attempt = beginning.attempt;
    let was_promoted = beginning.promoted.is_some();
    Ok(Journaled { journaling, journal: Some(journal), attempt, was_promoted })
}

/// Reads as soon as the store can be reached: a run is not ended by a store that is away for a while.
pub(crate) async fn when_reachable<T, F>(read: impl Fn() -> F) -> Result<T, store::Error>
where
    F: Future<Output = Result<T, store::Error>>,
{
    loop {
        match read().await {
            Err(store::Error::Unavailable { .. }) => tokio::time::sleep(OUTCOME_RETRY).await,
            read => return read,
        }
    }
}

/// What is kept of the task's call; `None`: nothing.
pub(crate) async fn history(inner: &EngineContext, task: &Task) -> Result<Option<(JournalHead, History)>, CallError> {
    let failed = |error: store::Error| internal(host_failure("reading a journal", &error));
    let head = when_reachable(|| inner.store.journal(&task.requestor, task.id)).await.map_err(failed)?;
    let Some(head) = head.filter(|head| head.rows > 0) else { return Ok(None) };
    let bytes = when_reachable(|| inner.store.journal_bytes(&task.requestor, task.id)).await.map_err(failed)?;
    crash_points::reach("wake.loaded");
    Ok(Some((head, History(bytes.into()))))
}

/// What becomes of a task whose call could not be brought back: it is held where another engine began it, which may
/// bring it back, and ends otherwise. Whether it is held.
pub(crate) async fn not_brought_back(
    inner: &Arc<EngineContext>,
    run: &Run,
    task: &Task,
    failure: &ReplayFailure,
) -> bool {
    let divergence = failure.why.as_str();
    let engine_hash = task.durable.as_ref().map_or(0, |marker| marker.engine_hash);
    if engine_hash == inner.executor.engine_hash() {
        let message = format!("{COULD_NOT} be brought back to where it was ({divergence})");
        let kept = diverged_journal(inner, task, divergence).await;
        lose(inner, run, task, &message, kept).await;
        if failure.is_divergence {
            inner.health.report_divergence(&task.plugin);
        }
        return false;
    }
    tracing::warn!(task.id = %task.id, divergence, "a task is held: it does not go on with this version of the host");
    hold(inner, run, task, OTHER_ENGINE).await
}

/// Keeps the journal beyond the end of its task, for operators: it says what the call did before. It goes with its
/// task.
async fn diverged_journal(inner: &EngineContext, task: &Task, divergence: &str) -> Option<Append> {
    let head = inner.store.journal(&task.requestor, task.id).await.ok().flatten()?;
    let state = JournalState::Diverged { reason: divergence.to_owned() };
    let after = HeadAfter { state, ..head.unchanged() };
    Some(Append::of_head(task.attempt, head.rows, after))
}

/// Ends a task whose call could not be brought back to where it was. What was kept of it goes along where it can: the
/// end counts more.
async fn lose(inner: &Arc<EngineContext>, run: &Run, task: &Task, message: &str, kept: Option<Append>) {
    let outcome = Outcome::Error(CallError::Interrupted);
    let message = Some(line(message));
    let end = Event::Finish { attempt: task.attempt, outcome, message };
    let step = Step { event: end.clone(), output: None, author: Author::Holder };
    if kept.is_some() && inner.apply_beside(TaskRef::of(task), step, &|_, _| kept.clone()).await.is_ok() {
        return;
    }
    write(inner, run, task, &end, None).await;
}

/// Takes the run back and pauses the task, until an operator releases it. Whether that is so.
async fn hold(inner: &Arc<EngineContext>, run: &Run, task: &Task, why: &str) -> bool {
    let message = why.to_owned();
    for event in [Event::Interrupt { how: Interruption::Resume }, Event::Hold { message }] {
        if let Err(error) = inner.apply(&task.requestor, task.id, event, None).await {
            tracing::warn!(task.id = %task.id, "a task could not be held: {error:?}");
            // The record decides: it is over, or still says that it runs.
            inner.catch_up(run, task).await;
        }
    }
    run.task().is_some_and(|task| is_paused(&task) && task.lease.is_none())
}
