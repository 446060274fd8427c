//! What this host knows of the others that share its store.
//!
//! Must not read the store. Invariant: what is kept of tasks that run elsewhere is forgotten once nobody here listens
//! to them.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::parts::host_messages::ClientMessages;
use crate::parts::watchers::WatchedTasks;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{PluginVersion, TaskId};
use bulkhead_store::journal::TaskRef;

/// Versions that this host is known to lack; of further ones, tasks are claimed and left again.
const LACKING_MAX: usize = 64;
/// After which time a version is tried again: its component may have come.
const LACKING_FOR: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct OtherHosts {
    /// Something was changed here that runs elsewhere.
    pub(crate) look: Notify,
    /// Tasks may have become free.
    pub(crate) claim: Notify,
    lacking: Mutex<Vec<(PluginVersion, Instant)>>,
    /// Reads what others tell of clients.
    pub(crate) client_messages: ClientMessages,
}

impl OtherHosts {
    /// Notes that a task of a version was left to the others, because this host lacks it.
    pub(crate) fn lacks(&self, version: &PluginVersion) {
        let mut lacking = self.lacking.lock();
        if lacking.len() < LACKING_MAX {
            lacking.push((version.clone(), Instant::now()));
        }
    }

    /// Versions of which no tasks are claimed at the moment.
    pub(crate) fn lacking(&self) -> Vec<PluginVersion> {
        let mut lacking = self.lacking.lock();
        lacking.retain(|(_, since)| since.elapsed() < LACKING_FOR);
        lacking.iter().map(|(version, _)| version.clone()).collect()
    }
}

/// A task that was seen not to be over.
struct SeenTask {
    revision: u64,
    /// Its run is here, and tells by itself.
    is_here: bool,
}

/// What was told last of tasks that are listened to here and run elsewhere.
#[derive(Default)]
pub(crate) struct SeenTasks {
    tasks: HashMap<TaskRef, Option<u64>>,
    unfinished: HashMap<Requestor, HashMap<TaskId, SeenTask>>,
}

/// What is to be told.
#[derive(Default)]
pub(crate) struct SeenChanges {
    pub(crate) created: HashSet<TaskRef>,
    pub(crate) changed: HashSet<TaskRef>,
}

impl SeenTasks {
    /// Compares with what is stored now. Of a task that a client begins to listen to, its record is told once: it may
    /// have changed between that listener's own look and this one.
    pub(crate) fn compare(
        &mut self,
        watched: &WatchedTasks,
        revisions: &HashMap<TaskRef, u64>,
        unfinished: &HashMap<TaskRef, u64>,
        is_here: impl Fn(TaskId) -> bool,
    ) -> SeenChanges {
        let mut changes = SeenChanges::default();
        let tasks: HashMap<_, _> = watched.tasks.iter().map(|task| (*task, revisions.get(task).copied())).collect();
        for (task, revision) in &tasks {
            if self.tasks.get(task) != Some(revision) {
                changes.changed.insert(*task);
            }
        }
        self.tasks = tasks;
        let mut now: HashMap<Requestor, HashMap<TaskId, SeenTask>> =
            watched.requestors.iter().map(|requestor| (*requestor, HashMap::new())).collect();
        for (task, revision) in unfinished {
            if let Some(of_requestor) = now.get_mut(&task.requestor) {
                of_requestor.insert(task.id, SeenTask { revision: *revision, is_here: is_here(task.id) });
            }
        }
        for (requestor, tasks) in &now {
            let Some(before) = self.unfinished.get(requestor) else { continue };
            let name = |id: &TaskId| TaskRef { requestor: *requestor, id: *id };
            for (id, seen) in tasks.iter().filter(|(_, seen)| !seen.is_here) {
                match before.get(id) {
                    None => _ = changes.created.insert(name(id)),
                    Some(before) if before.revision != seen.revision => _ = changes.changed.insert(name(id)),
                    Some(_) => {}
                }
            }
            let gone = before.iter().filter(|(id, seen)| !seen.is_here && !tasks.contains_key(*id));
            changes.changed.extend(gone.map(|(id, _)| name(id)));
        }
        self.unfinished = now;
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_domain::requestor::{RequestorId, TenantId};

    const OWNER: Requestor = Requestor { tenant: TenantId([1; 16]), id: RequestorId([1; 16]) };

    fn name(number: u8) -> TaskRef {
        TaskRef { requestor: OWNER, id: TaskId([number; 16]) }
    }

    fn stored(tasks: &[(u8, u64)]) -> HashMap<TaskRef, u64> {
        tasks.iter().map(|(number, revision)| (name(*number), *revision)).collect()
    }

    #[test]
    fn task_that_runs_elsewhere_is_told_once_for_each_change() {
        let mut seen = SeenTasks::default();
        let watched = WatchedTasks { tasks: vec![name(1)], requestors: vec![OWNER] };
        let mut look = |revisions: &[(u8, u64)], unfinished: &[(u8, u64)]| {
            let changes = seen.compare(&watched, &stored(revisions), &stored(unfinished), |id| id == name(9).id);
            let mut changed: Vec<_> = changes.changed.into_iter().map(|task| task.id.0[0]).collect();
            changed.sort_unstable();
            (changes.created.into_iter().map(|task| task.id.0[0]).collect::<Vec<_>>(), changed)
        };
        assert_eq!(look(&[(1, 5)], &[(1, 5), (2, 1)]), (vec![], vec![1]), "whoever listens to it looks once");
        assert_eq!(look(&[(1, 5)], &[(1, 5), (2, 1)]), (vec![], vec![]));
        assert_eq!(look(&[(1, 6)], &[(1, 6), (2, 1), (3, 1)]), (vec![3], vec![1]));
        assert_eq!(
            look(&[(1, 6)], &[(1, 6), (3, 2), (9, 1)]),
            (vec![], vec![2, 3]),
            "one ended, one changed, one is here"
        );
        assert_eq!(look(&[], &[(3, 2)]), (vec![], vec![1]), "it is gone");
        assert_eq!(look(&[], &[(3, 2)]), (vec![], vec![]));
    }

    #[test]
    fn lacking_versions_are_bounded() {
        let others = OtherHosts::default();
        for number in 0..=u8::MAX {
            others.lacks(&PluginVersion { name: "p".to_owned(), digest: [number; 32] });
        }
        assert_eq!(others.lacking().len(), LACKING_MAX);
    }
}
