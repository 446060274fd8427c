//! Who is told of tasks: the runs that act on their records, and those who listen to the news.
//!
//! Owns the runs of this host by task, and the channels of the listeners. Must not change a record, nor do what a
//! change means for a task that nothing drives: the engine does, which is told of it. Invariant: a run is told of every
//! change that is committed after the [mark](Watchers::mark) with which it started, or knows that it has to read its
//! record again.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::broadcast;

use crate::parts::feed::Feeds;
use crate::parts::news::TaskNews;
use crate::parts::resting::{Followup, TaskSummary};
use crate::parts::run_state::Run;
use bulkhead_domain::requestor::{Requestor, TenantId};
use bulkhead_domain::task::{PluginVersion, Task, TaskId};
use bulkhead_store::journal::TaskRef;

/// Does what a change means for a task that nothing drives. No run is locked meanwhile.
pub(crate) type Follow = Box<dyn Fn(&Run, Followup) + Send + Sync>;

#[derive(Default)]
pub(crate) struct Watchers {
    feeds: Feeds,
    runs: Mutex<FxHashMap<TaskId, Arc<Run>>>,
    /// Of the tasks that nothing drives.
    versions: Mutex<FxHashSet<Arc<PluginVersion>>>,
    /// Counts the changes that found no run to tell; it moves only while the runs are locked.
    missed: AtomicU64,
    follow: OnceLock<Follow>,
}

impl fmt::Debug for Watchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchers").field("feeds", &self.feeds).finish_non_exhaustive()
    }
}

/// Tasks that clients listen to, and requestors to all of whose tasks clients listen.
#[derive(Debug, Default)]
pub(crate) struct WatchedTasks {
    pub(crate) tasks: Vec<TaskRef>,
    pub(crate) requestors: Vec<Requestor>,
}

/// How many changes had found no run to tell at some moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotificationMark(u64);

impl Watchers {
    /// Who does from now on what a change means for a task that nothing drives, once for ever.
    pub(crate) fn follow_with(&self, follow: Follow) {
        self.follow.get_or_init(|| follow);
    }

    /// Has this done for a task that nothing drives.
    pub(crate) fn follow(&self, run: &Run, followup: Option<Followup>) {
        if let (Some(followup), Some(follow)) = (followup, self.follow.get()) {
            follow(run, followup);
        }
    }

    /// The one copy of this version for all tasks that nothing drives.
    pub(crate) fn shared_version(&self, version: &PluginVersion) -> Arc<PluginVersion> {
        let mut versions = self.versions.lock();
        if let Some(shared) = versions.get(version) {
            return Arc::clone(shared);
        }
        versions.retain(|shared| Arc::strong_count(shared) > 1);
        let shared = Arc::new(version.clone());
        versions.insert(Arc::clone(&shared));
        shared
    }

    /// What [`start`](Self::start) has to know from before the task was stored or read.
    pub(crate) fn mark(&self) -> NotificationMark {
        NotificationMark(self.missed.load(Ordering::Acquire))
    }

    /// Tells a run of changes from now on. `false`: a change since `before` found no run, so the run has to read its
    /// record again.
    pub(crate) fn start(&self, id: TaskId, run: Arc<Run>, before: NotificationMark) -> bool {
        let mut runs = self.runs.lock();
        runs.insert(id, run);
        self.mark() == before
    }

    pub(crate) fn end(&self, id: TaskId) {
        self.runs.lock().remove(&id);
    }

    pub(crate) fn run(&self, id: TaskId) -> Option<Arc<Run>> {
        self.runs.lock().get(&id).cloned()
    }

    /// Where the tasks stand that have runs.
    pub(crate) fn tasks(&self) -> Vec<TaskSummary> {
        self.runs.lock().values().filter_map(|run| run.summary()).collect()
    }

    /// Tells of a change. Without a run the task is over, which was told, or its run is about to begin and will look.
    pub(crate) fn tell(&self, task: &Arc<Task>) {
        if let Some(run) = self.run_to_tell(task.id) {
            self.show(&run, task);
        }
    }

    /// Shows a run its record, and tells the listeners if it is news.
    pub(crate) fn show(&self, run: &Run, task: &Arc<Task>) {
        let followup = run.see(task, || self.publish(&task.requestor, task.id, &TaskNews::Changed(task.clone())));
        self.follow(run, followup);
    }

    /// Shows the task's run its record, which brings nothing new to those who listen.
    pub(crate) fn tell_run(&self, task: &Arc<Task>) {
        if let Some(run) = self.run_to_tell(task.id) {
            let followup = run.see(task, || {});
            self.follow(&run, followup);
        }
    }

    /// Tasks whose calls have left memory.
    pub(crate) fn dormant_count(&self) -> usize {
        self.runs.lock().values().filter(|run| run.is_dormant()).count()
    }

    /// The records of the runs that something drives.
    pub(crate) fn driven(&self) -> Vec<Arc<Task>> {
        self.runs.lock().values().filter_map(|run| run.task()).collect()
    }

    /// Stops the run of a task that is to be removed.
    pub(crate) fn stop(&self, id: TaskId) {
        if let Some(run) = self.run_to_tell(id) {
            self.stop_run(&run);
        }
    }

    /// The same of this run.
    pub(crate) fn stop_run(&self, run: &Run) {
        self.follow(run, run.gone());
    }

    /// Stops the runs of a tenant.
    pub(crate) fn stop_tenant(&self, tenant: TenantId) {
        let runs: Vec<_> = self.runs.lock().values().cloned().collect();
        for run in runs.iter().filter(|run| run.task_ref.requestor.tenant == tenant && !run.is_gone()) {
            self.stop_run(run);
            let TaskRef { requestor, id } = run.task_ref;
            self.publish(&requestor, id, &TaskNews::Gone(id));
        }
    }

    /// Stops every run; how many there are still.
    pub(crate) fn stop_all(&self) -> usize {
        let runs: Vec<_> = self.runs.lock().values().cloned().collect();
        runs.iter().for_each(|run| self.stop_run(run));
        runs.len()
    }

    /// What is listened to.
    pub(crate) fn watched(&self) -> WatchedTasks {
        self.feeds.watched()
    }

    fn run_to_tell(&self, id: TaskId) -> Option<Arc<Run>> {
        let runs = self.runs.lock();
        let run = runs.get(&id).cloned();
        if run.is_none() {
            self.missed.fetch_add(1, Ordering::Release);
        }
        run
    }

    pub(crate) fn publish(&self, requestor: &Requestor, id: TaskId, news: &TaskNews) {
        self.feeds.publish(requestor, id, news);
    }

    /// What happens to one task.
    pub(crate) fn listen_to_task(&self, requestor: &Requestor, id: TaskId) -> broadcast::Receiver<TaskNews> {
        self.feeds.task(requestor, id)
    }

    /// What happens to the tasks of a requestor.
    pub(crate) fn listen(&self, requestor: &Requestor) -> broadcast::Receiver<TaskNews> {
        self.feeds.requestor(requestor)
    }
}
