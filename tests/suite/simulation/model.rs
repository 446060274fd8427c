//! What must hold after every step, whatever happened.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bulkhead_domain::call::CallError;
use bulkhead_domain::clock::{Clock as _, ManualClock};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Active, Outcome, Phase, Task, TaskId, TaskOutput};
use bulkhead_domain::tool::ContentKind;
use bulkhead_store::TaskStore as _;
use bulkhead_store::memory::MemoryStore;
use bulkhead_tasks::{Error, Tasks};
use tokio::runtime::Runtime;

use super::guest::Stage;

/// What is known of an acknowledged task.
struct Known {
    requestor: Requestor,
    created_at: u64,
    expires_at: u64,
    updated_at: u64,
    /// Transitions in its timeline, with those that were left out.
    noted: u64,
    /// Once it was seen: how it ended, with its output.
    end: Option<(Outcome, Option<String>)>,
}

/// The model. `check` compares the engine with it.
pub(crate) struct Model {
    requestors: Vec<Requestor>,
    known: Vec<(TaskId, Known)>,
    paused: HashSet<String>,
}

type Verdict = Result<(), String>;

/// Whether the record says that somebody works on it.
pub(crate) fn is_running(task: &Task) -> bool {
    match task.phase {
        Phase::Active(active) | Phase::Paused { before: active } => active != Active::Queued && task.lease.is_some(),
        Phase::Ended(_) => false,
    }
}

impl Model {
    pub(crate) fn new(requestors: Vec<Requestor>) -> Self {
        Self { requestors, known: Vec::new(), paused: HashSet::new() }
    }

    /// A creation was acknowledged.
    pub(crate) fn created(&mut self, task: &Task) {
        let known = Known {
            requestor: task.requestor,
            created_at: task.created_at,
            expires_at: task.expires_at().unwrap_or(u64::MAX),
            updated_at: task.updated_at,
            noted: 0,
            end: None,
        };
        self.known.push((task.id, known));
    }

    /// Acknowledged tasks, in the order of their creation.
    pub(crate) fn ids(&self) -> Vec<(Requestor, TaskId)> {
        self.known.iter().map(|(id, known)| (known.requestor, *id)).collect()
    }

    pub(crate) fn check(&mut self, runtime: &Runtime, tasks: &Tasks, clock: &Arc<ManualClock>) -> Verdict {
        runtime.block_on(async {
            let now = clock.now();
            for (id, known) in &mut self.known {
                check_task(tasks, *id, known, now).await?;
                for other in self.requestors.iter().filter(|other| **other != known.requestor) {
                    let foreign = tasks.get(other, *id).await;
                    ensure(matches!(foreign, Err(Error::NotFound)), || {
                        format!("{id} is seen by another: {foreign:?}")
                    })?;
                }
            }
            for requestor in &self.requestors {
                check_list(tasks, requestor, &self.known, now).await?;
            }
            // What is over its time has been checked once after that; remembering it for ever would only make runs
            // slow.
            self.known.retain(|(_, known)| known.expires_at > now);
            Ok(())
        })
    }

    /// Somebody tried to pause it. A guest on this stage cannot be held, so whether it runs after that is not to be
    /// seen.
    pub(crate) fn paused(&mut self, id: TaskId) {
        self.paused.insert(id.to_string());
    }

    /// Running guests stay below the limit, and no task has two.
    pub(crate) fn check_running(&self, stage: &Stage) -> Verdict {
        let census = stage.census();
        let mut running: HashMap<&str, u32> = HashMap::new();
        for (id, count, alias, computes) in &census {
            ensure(*count <= 1, || format!("{count} guests work on {id}"))?;
            if *computes && !self.paused.contains(id) {
                *running.entry(alias).or_default() += 1;
            }
        }
        for (alias, count) in running {
            ensure(count <= super::RUNNING_MAX, || format!("{count} guests run for {alias}"))?;
        }
        Ok(())
    }

    /// Records that are neither over nor over their time.
    pub(crate) fn unfinished(
        &self,
        runtime: &Runtime,
        store: &Arc<MemoryStore>,
        clock: &Arc<ManualClock>,
    ) -> Vec<Task> {
        let all = runtime.block_on(store.scan(None, 10_000)).expect("the store is healthy again");
        let now = clock.now();
        let open = |task: &Task| task.outcome().is_none() && task.expires_at().is_none_or(|at| at > now);
        all.into_iter().filter(open).collect()
    }
}

fn ensure(holds: bool, say: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(say()) }
}

async fn check_task(tasks: &Tasks, id: TaskId, known: &mut Known, now: u64) -> Verdict {
    let read = tasks.get(&known.requestor, id).await;
    if known.expires_at <= now {
        return ensure(matches!(read, Err(Error::NotFound)), || format!("{id} is over its time and is read: {read:?}"));
    }
    let task = read.map_err(|error| format!("acknowledged task {id} cannot be read: {error:?}"))?;
    ensure(task.created_at == known.created_at, || format!("{id} was created at another time"))?;
    ensure(task.updated_at >= known.updated_at, || format!("{id} went back in time"))?;
    known.updated_at = task.updated_at;
    let timeline = &task.timeline;
    let noted = timeline.entries().len() as u64 + timeline.left_out();
    ensure(noted >= known.noted, || format!("{id} forgot what had happened to it: {timeline:?}"))?;
    known.noted = noted;
    if let Some(last) = timeline.entries().last().filter(|_| task.outcome().is_some()) {
        ensure(last.at == task.updated_at, || format!("the end of {id} is not in its timeline: {timeline:?}"))?;
    }
    let end = match task.outcome() {
        None => None,
        Some(outcome @ Outcome::Output { .. }) => {
            let output = tasks.output(&known.requestor, id).await;
            let output = output.map_err(|error| format!("{id} ended with an output that is not there: {error:?}"))?;
            let TaskOutput::Tool(output) = output else { return Err(format!("{id} has no output of a tool")) };
            let text = output.content.iter().find_map(|content| match &content.kind {
                ContentKind::Text(text) => Some(text.clone()),
                _ => None,
            });
            ensure(text.as_deref() == Some(&format!("output of {id}")), || format!("{id} has the output {text:?}"))?;
            Some((outcome.clone(), text))
        }
        Some(Outcome::Error(CallError::Interrupted)) if task.work.tool() == Some("lasting") => {
            return Err(format!(
                "{id} was lost with its host, and its call keeps a journal: {:?}",
                task.status_message
            ));
        }
        Some(outcome) => Some((outcome.clone(), None)),
    };
    let again = task.inputs.windows(2).any(|pair| pair[0].answer.is_none() && pair[1].answer.is_none());
    ensure(!again || task.work.tool() != Some("lasting"), || format!("{id} asked again: {:?}", task.inputs))?;
    match (&known.end, &end) {
        (Some(before), after) => {
            ensure(after.as_ref() == Some(before), || format!("{id} had ended with {before:?} and is now {after:?}"))?;
        }
        (None, _) => known.end = end,
    }
    Ok(())
}

async fn check_list(tasks: &Tasks, requestor: &Requestor, known: &[(TaskId, Known)], now: u64) -> Verdict {
    let listed =
        tasks.list(requestor, None, 10_000).await.map_err(|error| format!("the list cannot be read: {error:?}"))?;
    for task in &listed {
        ensure(task.requestor == *requestor, || format!("{} is in the list of another", task.id))?;
    }
    for (id, known) in known.iter().filter(|(_, known)| known.requestor == *requestor && known.expires_at > now) {
        let _ = known;
        ensure(listed.iter().any(|task| task.id == *id), || format!("{id} can be read and is not listed"))?;
    }
    Ok(())
}
