//! What requestors read of their tasks.
//!
//! Must not change anything. Invariant: what is absent, over its time or somebody else's reads the same, and a running task shows what
//! its run last said about itself.

use tokio::sync::broadcast;

use super::engine::Inner;
use super::feed::lock;
use super::{Error, TaskNews, Tasks};
use crate::domain::Json;
use crate::domain::requestor::Requestor;
use crate::domain::task::{Outcome, Phase, Task, TaskId, TaskOutput};
use crate::store::ListPosition;

impl Tasks {
    /// The arguments of a task's work: those of a call as they arrived, of anything else what [`Job::arguments`] said.
    pub async fn arguments(&self, requestor: &Requestor, id: TaskId) -> Result<Json, Error> {
        self.inner.may_look(requestor)?;
        let arguments = self.inner.store.arguments(requestor, id).await;
        arguments.map_err(|error| self.inner.store_error(error))?.ok_or(Error::NotFound)
    }

    /// The record, with what the run last said about itself.
    pub async fn get(&self, requestor: &Requestor, id: TaskId) -> Result<Task, Error> {
        let inner = &self.inner;
        inner.may_look(requestor)?;
        let task = inner.store.get(requestor, id).await.map_err(|error| inner.store_error(error))?;
        let task = task.filter(|task| !inner.is_expired(task));
        inner.note_looked("task.read", requestor, id, task.is_some());
        task.inspect(|task| inner.polled(task)).map(|task| inner.with_live_status(task)).ok_or(Error::NotFound)
    }

    /// The same with the output of a task that ended with one.
    pub async fn get_with_output(
        &self,
        requestor: &Requestor,
        id: TaskId,
    ) -> Result<(Task, Option<TaskOutput>), Error> {
        let inner = &self.inner;
        inner.may_look(requestor)?;
        let found = inner.store.with_output(requestor, id).await.map_err(|error| inner.store_error(error))?;
        let found = found.filter(|(task, _)| !inner.is_expired(task));
        inner.note_looked("task.read", requestor, id, found.is_some());
        let (task, output) = found.ok_or(Error::NotFound)?;
        inner.polled(&task);
        match (task.outcome(), output) {
            (Some(Outcome::Output { .. }), Some(output)) => {
                inner.note_task("task.result_read", requestor, id);
                Ok((task, Some(output)))
            }
            (Some(Outcome::Output { .. }), None) => Err(Error::NotFound),
            _ => Ok((inner.with_live_status(task), None)),
        }
    }

    /// The task that was created under a name of its requestor's.
    pub async fn named(&self, requestor: &Requestor, alias: &str) -> Result<Task, Error> {
        self.inner.may_look(requestor)?;
        let id = self.inner.store.by_alias(requestor, alias).await.map_err(|error| self.inner.store_error(error))?;
        match id {
            Some(id) => self.get(requestor, id).await,
            None => {
                self.inner.note_unknown_name(requestor);
                Err(Error::NotFound)
            }
        }
    }

    /// The output of a task that ended with one.
    pub async fn output(&self, requestor: &Requestor, id: TaskId) -> Result<TaskOutput, Error> {
        self.inner.may_look(requestor)?;
        let output = self.inner.store.output(requestor, id).await.map_err(|error| self.inner.store_error(error))?;
        self.inner.note_looked("task.result_read", requestor, id, output.is_some());
        output.ok_or(Error::NotFound)
    }

    /// Tasks of this requestor, newest first. Fewer than `count_max` means that there are no more.
    pub async fn list(
        &self,
        requestor: &Requestor,
        after: Option<ListPosition>,
        count_max: usize,
    ) -> Result<Vec<Task>, Error> {
        let inner = &self.inner;
        let (mut after, mut found) = (after, Vec::new());
        while found.len() < count_max {
            let wanted = count_max - found.len();
            let page = inner.store.list(requestor, after, wanted).await.map_err(|error| inner.store_error(error))?;
            let exhausted = page.len() < wanted;
            after = page.last().map(|task| ListPosition { created_at: task.created_at, id: task.id }).or(after);
            found.extend(
                page.into_iter().filter(|task| !inner.is_expired(task)).map(|task| inner.with_live_status(task)),
            );
            if exhausted {
                break;
            }
        }
        Ok(found)
    }

    /// Listens first and reads then: nothing is missed between.
    pub async fn watch(
        &self,
        requestor: &Requestor,
        id: TaskId,
    ) -> Result<(Task, broadcast::Receiver<TaskNews>), Error> {
        let news = self.inner.feeds.task(requestor, id);
        Ok((self.get(requestor, id).await?, news))
    }

    /// Everything that happens to this requestor's tasks.
    pub fn feed(&self, requestor: &Requestor) -> broadcast::Receiver<TaskNews> {
        self.inner.feeds.requestor(requestor)
    }
}

impl Inner {
    fn with_live_status(&self, mut task: Task) -> Task {
        if let Phase::Active(_) = task.phase
            && let Some(run) = lock(&self.runs).get(&task.id)
            && let Some(status) = run.status()
        {
            task.status_message = Some(status);
        }
        task
    }
}
