//! How a task may change: one total function over (task, event, now).
//!
//! Live runs, races between two writers and recovery after a crash all go through [`step`]; everything that it does not
//! allow is a [`Refusal`], never a panic and never a silent change. Terminal phases absorb.

use super::UnixMs;
use super::call::{CallError, FaultKind, InputRequest, InputResponse};
use super::task::{Active, DurableMarker, HELD, Input, Lease, Outcome, Phase, Task};
use super::timeline::{Transition, WakeCause};

/// Times that one task may begin: the first one and two after restarts of the host. Going on where it was is no
/// beginning.
pub const STARTS_MAX: u32 = 3;

/// Questions that one task may ask over its lifetime. A guest that asks for ever would otherwise grow its record
/// without bound.
pub const INPUTS_MAX: usize = 256;

const NOT_HELD: &str = "the task is not held";

/// Something that happens to a task. Events of a run carry its attempt, the fencing token: a run that was given up
/// cannot write.
#[derive(Clone, Debug)]
pub enum Event {
    /// A run begins under this lease. `durable`: it keeps a journal; the marker's attempt is set here.
    Start { lease: Lease, durable: Option<DurableMarker> },
    /// The run asks.
    RequestInput { attempt: u32, requests: Vec<InputRequest> },
    /// A client answers one input request, by its issued key.
    Answer { key: String, answer: InputResponse },
    /// A client sends a message to the run.
    Steer { message: String, queue_max: u32 },
    /// The run takes every waiting message.
    Deliver { attempt: u32 },
    /// Stop for a while.
    Pause { message: Option<String> },
    /// Go on, if nobody holds it.
    Resume,
    /// The host or an operator stops it until an operator releases it, also where it is paused. The message begins with
    /// [`HELD`].
    Hold { message: String },
    /// An operator lets a held task go on.
    Release,
    /// The run ends.
    Finish { attempt: u32, outcome: Outcome, message: Option<String> },
    /// A client or an operator cancels.
    Cancel,
    /// The run was lost with its host.
    Interrupt { how: Interruption },
    /// A run that was lost, or has left memory, goes on in a new one, under this lease. `durable`: what the new run
    /// keeps of itself; its attempt is set here. `cause`: why it goes on, of one that nobody waits for otherwise.
    Continue { lease: Lease, durable: Option<DurableMarker>, cause: Option<WakeCause> },
    /// The run leaves memory: it waits for [`Event::Continue`]. No client sees anything of it.
    Evict { attempt: u32 },
    /// The run can never start: what it needs is gone.
    Abandon { error: CallError, message: String },
    /// An operator ends it as failed, and says why.
    Fail { message: String },
}

/// What becomes of a task whose run was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// It ends: whether it took effect is not known.
    Fail,
    /// It starts again from its beginning, if it has attempts left.
    Rerun,
    /// It stays as it is, and waits for [`Event::Continue`].
    Resume,
}

/// Why an event is not allowed now. The task stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The task is over.
    Ended,
    /// The event is from a run that was given up.
    Stale,
    /// No question with this key is waiting for an answer.
    NotOutstanding,
    /// The steering queue is full.
    QueueFull { queue_max: u32 },
    /// The run has asked more than [`INPUTS_MAX`] questions.
    TooManyInputs,
    /// Not while the task is paused.
    Paused,
    /// Not while the task is held.
    Held,
    /// Not from this phase.
    Illegal(&'static str),
}

/// The task after `event`, or why not. `updated_at` never goes back, even if the clock does.
pub fn step(task: &Task, event: Event, now: UnixMs) -> Result<Task, Refusal> {
    if task.outcome().is_some() {
        return Err(Refusal::Ended);
    }
    let mut next = task.clone();
    next.updated_at = now.max(task.updated_at);
    match event {
        Event::Start { lease, durable } => start(&mut next, lease, durable)?,
        Event::Continue { lease, durable, cause } => {
            go_on(&mut next, lease, durable, cause)?;
            if cause.is_some() {
                next.updated_at = task.updated_at;
            }
        }
        Event::Evict { attempt } => {
            fenced(task, attempt)?;
            evict(&mut next)?;
            next.updated_at = task.updated_at;
        }
        Event::RequestInput { attempt, requests } => {
            fenced(task, attempt)?;
            ask(&mut next, requests)?;
        }
        Event::Answer { key, answer } => answered(&mut next, &key, answer)?,
        Event::Steer { message, queue_max } => {
            if next.steering.len() >= queue_max as usize {
                return Err(Refusal::QueueFull { queue_max });
            }
            next.steering.push(message);
        }
        Event::Deliver { attempt } => {
            fenced(task, attempt)?;
            next.steering_delivered = next.steering_delivered.saturating_add(next.steering.len() as u64);
            next.steering.clear();
        }
        Event::Pause { message } => pause(&mut next, message)?,
        Event::Resume if task.is_held() => return Err(Refusal::Held),
        Event::Resume => go_on_from_pause(&mut next, "the task is not paused")?,
        Event::Hold { message } => hold(&mut next, message)?,
        Event::Release if task.is_held() => go_on_from_pause(&mut next, NOT_HELD)?,
        Event::Release => return Err(Refusal::Illegal(NOT_HELD)),
        Event::Finish { attempt, outcome, message } => {
            fenced(task, attempt)?;
            // What is paused goes on, is cancelled or breaks, but does not complete.
            if let Phase::Paused { .. } = task.phase {
                return Err(Refusal::Paused);
            }
            end(&mut next, outcome, message);
        }
        Event::Cancel => end(&mut next, Outcome::Cancelled, Some("cancelled by request".into())),
        Event::Interrupt { how } => interrupt(&mut next, how),
        Event::Abandon { error, message } => end(&mut next, Outcome::Error(error), Some(message)),
        Event::Fail { message } => {
            // Neither the tool nor the host broke: it was ended from outside, as what is over its time is.
            let error = CallError::Fault { kind: FaultKind::Deadline, reason: message.clone() };
            end(&mut next, Outcome::Error(error), Some(message));
        }
    }
    Ok(next)
}

fn pause(next: &mut Task, message: Option<String>) -> Result<(), Refusal> {
    let Phase::Active(before) = next.phase else {
        return Err(Refusal::Illegal("the task is already paused"));
    };
    if message.as_deref().is_some_and(says_held) {
        return Err(Refusal::Illegal("only a task that is held says so"));
    }
    next.phase = Phase::Paused { before };
    next.status_message = message;
    note(next, Transition::Paused);
    Ok(())
}

/// A task that its requestor paused is held as well: otherwise they would let it go on.
fn hold(next: &mut Task, message: String) -> Result<(), Refusal> {
    if !says_held(&message) {
        return Err(Refusal::Illegal("a held task says that it is held"));
    }
    if let Phase::Active(before) = next.phase {
        next.phase = Phase::Paused { before };
        note(next, Transition::Paused);
    }
    next.status_message = Some(message);
    Ok(())
}

fn says_held(message: &str) -> bool {
    message.starts_with(HELD)
}

fn go_on_from_pause(next: &mut Task, otherwise: &'static str) -> Result<(), Refusal> {
    let Phase::Paused { before } = next.phase else { return Err(Refusal::Illegal(otherwise)) };
    next.phase = Phase::Active(before);
    next.status_message = None;
    note(next, Transition::Resumed);
    Ok(())
}

fn fenced(task: &Task, attempt: u32) -> Result<(), Refusal> {
    if task.attempt == attempt { Ok(()) } else { Err(Refusal::Stale) }
}

fn start(next: &mut Task, lease: Lease, durable: Option<DurableMarker>) -> Result<(), Refusal> {
    match next.phase {
        Phase::Active(Active::Queued) => {
            next.phase = Phase::Active(Active::Running);
            next.status_message = None;
            begin_attempt(next, lease, durable);
            note(next, Transition::Started { attempt: next.attempt });
            Ok(())
        }
        Phase::Active(_) => Err(Refusal::Illegal("the task already runs")),
        Phase::Paused { .. } => Err(Refusal::Paused),
        Phase::Ended(_) => Err(Refusal::Ended),
    }
}

/// A lease is what tells a task that waits to go on from one that runs.
fn go_on(
    next: &mut Task,
    lease: Lease,
    durable: Option<DurableMarker>,
    cause: Option<WakeCause>,
) -> Result<(), Refusal> {
    if !has_started(&next.phase) {
        return Err(Refusal::Illegal("the task has not started"));
    }
    if next.lease.is_some() {
        return Err(Refusal::Illegal("the task already runs"));
    }
    begin_attempt(next, lease, durable);
    let attempt = next.attempt;
    note(next, cause.map_or(Transition::Continued { attempt }, |cause| Transition::Woken { attempt, cause }));
    Ok(())
}

/// What is asked and answered stays, and so does a pause.
fn evict(next: &mut Task) -> Result<(), Refusal> {
    if !has_started(&next.phase) || next.lease.is_none() {
        return Err(Refusal::Illegal("the task does not run"));
    }
    next.lease = None;
    note(next, Transition::Dormant);
    Ok(())
}

/// From here on, what an earlier run writes is stale.
fn begin_attempt(next: &mut Task, lease: Lease, durable: Option<DurableMarker>) {
    next.lease = Some(lease);
    next.attempt = next.attempt.saturating_add(1);
    next.durable = durable.map(|marker| marker.of_attempt(next.attempt));
}

fn has_started(phase: &Phase) -> bool {
    match phase {
        Phase::Active(active) | Phase::Paused { before: active } => *active != Active::Queued,
        Phase::Ended(_) => false,
    }
}

fn ask(next: &mut Task, requests: Vec<InputRequest>) -> Result<(), Refusal> {
    if requests.is_empty() {
        return Err(Refusal::Illegal("nothing is asked"));
    }
    if next.inputs.len().saturating_add(requests.len()) > INPUTS_MAX {
        return Err(Refusal::TooManyInputs);
    }
    let issued = count(requests.len());
    for request in requests {
        let issued_key = issue_key(&next.inputs, &request.key);
        next.inputs.push(Input { issued_key, request, answer: None });
    }
    set_active(next, Active::InputRequired)?;
    note(next, Transition::InputRequested { requests: issued });
    Ok(())
}

/// The plugin's key at first use, then with `-2`, `-3` …: a key never names two questions of one task.
fn issue_key(inputs: &[Input], key: &str) -> String {
    let taken = |candidate: &str| inputs.iter().any(|input| input.issued_key == candidate);
    if !taken(key) {
        return key.to_owned();
    }
    (2u64..).map(|n| format!("{key}-{n}")).find(|candidate| !taken(candidate)).unwrap_or_else(|| key.to_owned())
}

fn answered(next: &mut Task, key: &str, answer: InputResponse) -> Result<(), Refusal> {
    let input = next.inputs.iter_mut().find(|input| input.issued_key == key && input.answer.is_none());
    input.ok_or(Refusal::NotOutstanding)?.answer = Some(answer);
    let open = count(next.outstanding().count());
    if open == 0 {
        set_active(next, Active::Running)?;
    }
    note(next, Transition::Answered { open });
    Ok(())
}

/// Moves the active phase, under a pause too: what happens meanwhile shows after resume.
fn set_active(next: &mut Task, active: Active) -> Result<(), Refusal> {
    match &mut next.phase {
        Phase::Active(Active::Queued) | Phase::Paused { before: Active::Queued } => {
            Err(Refusal::Illegal("the task has not started"))
        }
        Phase::Active(current) | Phase::Paused { before: current } => {
            *current = active;
            Ok(())
        }
        Phase::Ended(_) => Err(Refusal::Ended),
    }
}

/// Notes what happened to the task at the time of this change.
fn note(next: &mut Task, transition: Transition) {
    next.timeline.note(next.updated_at, transition);
}

/// Notes what begins no timeline: the members of the record say it all.
fn note_if_begun(next: &mut Task, transition: Transition) {
    if !next.timeline.is_empty() {
        note(next, transition);
    }
}

/// A number of questions; [`INPUTS_MAX`] bounds it.
fn count(requests: usize) -> u32 {
    u32::try_from(requests).unwrap_or(u32::MAX)
}

fn end(next: &mut Task, outcome: Outcome, message: Option<String>) {
    match (&outcome, &next.phase) {
        (Outcome::Cancelled, Phase::Active(from)) => {
            let from = *from;
            note(next, Transition::Cancelled { from, is_paused: false });
        }
        (Outcome::Cancelled, Phase::Paused { before }) => {
            let from = *before;
            note(next, Transition::Cancelled { from, is_paused: true });
        }
        (Outcome::Output { is_error: false }, _) => note_if_begun(next, Transition::Succeeded),
        (Outcome::Output { is_error: true }, _) => note_if_begun(next, Transition::ToolError),
        (Outcome::Error(_), _) => note_if_begun(next, Transition::Failed),
        (Outcome::Cancelled, Phase::Ended(_)) => {}
    }
    next.phase = Phase::Ended(outcome);
    next.status_message = message;
    next.lease = None;
    next.steering.clear();
}

fn interrupt(next: &mut Task, how: Interruption) {
    if !has_started(&next.phase) {
        // Nothing ran, so nothing is lost: it keeps its place.
        return;
    }
    match how {
        Interruption::Resume => {
            // One that waits already has lost no further run.
            if next.timeline.at_rest_since().is_none() {
                note(next, Transition::Interrupted);
            }
            next.lease = None;
        }
        Interruption::Rerun if next.starts() < STARTS_MAX => {
            note(next, Transition::Interrupted);
            queue_again(next);
        }
        Interruption::Rerun => {
            note(next, Transition::Interrupted);
            fail(
                next,
                format!("the host was restarted while the task ran, and it had begun {STARTS_MAX} times already"),
            );
        }
        Interruption::Fail => {
            note(next, Transition::Interrupted);
            fail(next, "the host was restarted while the task ran; whether it took effect is not known".to_owned());
        }
    }
}

fn fail(next: &mut Task, message: String) {
    end(next, Outcome::Error(CallError::Interrupted), Some(message));
}

fn queue_again(next: &mut Task) {
    for input in next.inputs.iter_mut().filter(|input| input.answer.is_none()) {
        input.answer = Some(InputResponse::Refused("the call was started again".into()));
    }
    next.lease = None;
    match &mut next.phase {
        Phase::Active(active) | Phase::Paused { before: active } => *active = Active::Queued,
        Phase::Ended(_) => {}
    }
    // What holds a task is its words.
    if !next.is_held() {
        next.status_message = Some("queued again after a restart of the host".into());
    }
}

#[cfg(test)]
mod tests;
