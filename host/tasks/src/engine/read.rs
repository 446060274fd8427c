//! What requestors read of their tasks.
//!
//! Must not change anything. Invariant: an absent, expired or foreign task reads the same, and a running task shows
//! what its run last reported.

use std::sync::Arc;

use tokio::sync::broadcast;

use crate::engine::{EngineContext, Tasks};
use crate::error::Error;
use crate::parts::job;
use crate::parts::news::TaskNews;
use bulkhead_audit::Entry;
use bulkhead_domain::Json;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Outcome, Phase, Task, TaskId, TaskOutput, Work};
use bulkhead_store::ListPosition;

impl Tasks {
    /// What a task was made of: the arguments of a call as they arrived, of anything else what
    /// [`Job::request`](crate::Job::request) said.
    pub async fn request_of(&self, task: &Task) -> Result<Json, Error> {
        self.inner.may_look(&task.requestor)?;
        let stored = self.inner.store.arguments(&task.requestor, task.id).await;
        let stored = stored.map_err(|error| self.inner.store_error(error))?.ok_or(Error::NotFound)?;
        Ok(job::request(&task.work, stored))
    }

    /// The record, with what the run last said about itself.
    pub async fn get(&self, requestor: &Requestor, id: TaskId) -> Result<Arc<Task>, Error> {
        self.find(requestor, Some(id), None::<fn() -> String>).await
    }

    /// The task that its requestor created under this alias, if there is one. For callers that create the task
    /// otherwise, so finding none does not count as a failed look-up.
    pub async fn named(&self, requestor: &Requestor, alias: &str) -> Result<Option<Arc<Task>>, Error> {
        let task = self.inner.look(requestor, self.inner.behind(requestor, alias).await?).await?;
        Ok(task.map(|task| Arc::new(self.inner.with_live_status(task))))
    }

    /// The task of this id, or else that of this name. However it ends, this is one look.
    pub async fn find(
        &self,
        requestor: &Requestor,
        id: Option<TaskId>,
        alias: Option<impl FnOnce() -> String>,
    ) -> Result<Arc<Task>, Error> {
        let inner = &self.inner;
        inner.may_look(requestor)?;
        let mut task = inner.look(requestor, id).await?;
        if let (None, Some(alias)) = (&task, alias) {
            task = inner.look(requestor, inner.behind(requestor, &alias()).await?).await?;
        }
        let task = inner.noted(requestor, id, task)?;
        Ok(Arc::new(inner.with_live_status(task)))
    }

    /// The same with the output of a task that ended with one.
    pub async fn find_with_output(
        &self,
        requestor: &Requestor,
        id: Option<TaskId>,
        alias: Option<impl FnOnce() -> String>,
    ) -> Result<(Arc<Task>, Option<TaskOutput>), Error> {
        let inner = &self.inner;
        inner.may_look(requestor)?;
        let mut found = inner.look_with_output(requestor, id).await?;
        if let (None, Some(alias)) = (&found, alias) {
            found = inner.look_with_output(requestor, inner.behind(requestor, &alias()).await?).await?;
        }
        let (task, output) = found.unzip();
        let task = inner.noted(requestor, id, task)?;
        match (task.outcome(), output.flatten()) {
            (Some(Outcome::Output { .. }), Some(output)) => {
                inner.audit.note_task("task.result_read", requestor, task.id);
                Ok((Arc::new(task), Some(output)))
            }
            (Some(Outcome::Output { .. }), None) => Err(Error::NotFound),
            _ => Ok((Arc::new(inner.with_live_status(task)), None)),
        }
    }

    /// The same for a client that found the task before and is told of its changes: it polls nothing, and the audit log
    /// knows that it looks. A result is noted all the same.
    pub async fn follow_with_output(
        &self,
        requestor: &Requestor,
        id: TaskId,
    ) -> Result<(Arc<Task>, Option<TaskOutput>), Error> {
        let inner = &self.inner;
        let (task, output) = inner.look_with_output(requestor, Some(id)).await?.ok_or(Error::NotFound)?;
        let output = output.filter(|_| matches!(task.outcome(), Some(Outcome::Output { .. })));
        if output.is_some() {
            inner.audit.note_task("task.result_read", requestor, id);
        }
        Ok((Arc::new(inner.with_live_status(task)), output))
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
        let mut after = after;
        let mut found = Vec::new();
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
    ) -> Result<(Arc<Task>, broadcast::Receiver<TaskNews>), Error> {
        let news = self.inner.watchers.listen_to_task(requestor, id);
        Ok((self.get(requestor, id).await?, news))
    }

    /// Everything that happens to this requestor's tasks.
    pub fn feed(&self, requestor: &Requestor) -> broadcast::Receiver<TaskNews> {
        self.inner.watchers.listen(requestor)
    }

    /// Records the call of a tool that is not offered to its requestor.
    pub fn note_unknown_tool(&self, requestor: &Requestor, name: &str) {
        self.inner.audit.note_unknown_tool(requestor, name);
    }

    /// Records a request under an alias that its requestor gave to another request before.
    pub fn note_name_in_use(&self, requestor: &Requestor, work: &Work) {
        self.inner.audit.note_name_in_use(requestor, work);
    }
}

impl EngineContext {
    /// Whether a requestor may look for anything at the moment.
    pub(crate) fn may_look(&self, requestor: &Requestor) -> Result<(), Error> {
        self.abuse_detector.admit(requestor, || self.admission.limits(requestor), self.clock.now())
    }

    /// Counts a look-up of a task that is absent or belongs to another requestor.
    pub(crate) fn looked_in_vain(&self, requestor: &Requestor) {
        let report = self.abuse_detector.failed(requestor, &self.admission.limits(requestor), self.clock.now());
        if let Some(report) = report {
            report.log(requestor, &self.audit.log);
        }
    }

    /// Counts a poll of a task's status.
    pub(crate) fn polled(&self, task: &Task) {
        // What is over does not change any more: nobody waits for it.
        if task.outcome().is_none() {
            let report = self.abuse_detector.polled(task, &self.admission.limits(&task.requestor), self.clock.now());
            if let Some(report) = report {
                report.log(&task.requestor, &self.audit.log);
            }
        }
    }

    /// Records the use of an alias under which the requestor created nothing.
    pub(crate) fn note_unknown_name(&self, requestor: &Requestor) {
        self.looked_in_vain(requestor);
        self.audit.log.note(|| Entry::new("lookup.failed").by(requestor).because("a name of a task"));
    }

    /// Records whether a look-up of a task succeeded.
    pub(crate) fn note_looked(&self, event: &'static str, requestor: &Requestor, id: TaskId, found: bool) {
        if !found {
            self.looked_in_vain(requestor);
        }
        self.audit.note_task(if found { event } else { "lookup.failed" }, requestor, id);
    }

    async fn look(&self, requestor: &Requestor, id: Option<TaskId>) -> Result<Option<Task>, Error> {
        let Some(id) = id else { return Ok(None) };
        let task = self.store.get(requestor, id).await.map_err(|error| self.store_error(error))?;
        Ok(task.filter(|task| !self.is_expired(task)))
    }

    async fn look_with_output(
        &self,
        requestor: &Requestor,
        id: Option<TaskId>,
    ) -> Result<Option<(Task, Option<TaskOutput>)>, Error> {
        let Some(id) = id else { return Ok(None) };
        let found = self.store.with_output(requestor, id).await.map_err(|error| self.store_error(error))?;
        Ok(found.filter(|(task, _)| !self.is_expired(task)))
    }

    async fn behind(&self, requestor: &Requestor, alias: &str) -> Result<Option<TaskId>, Error> {
        self.store.by_alias(requestor, alias).await.map_err(|error| self.store_error(error))
    }

    /// Takes note of a look, and of what came of it.
    fn noted(&self, requestor: &Requestor, id: Option<TaskId>, task: Option<Task>) -> Result<Task, Error> {
        match task {
            Some(task) => {
                self.audit.note_task("task.read", requestor, task.id);
                self.polled(&task);
                Ok(task)
            }
            None => {
                match id {
                    Some(id) => self.note_looked("task.read", requestor, id, false),
                    None => self.note_unknown_name(requestor),
                }
                Err(Error::NotFound)
            }
        }
    }

    fn with_live_status(&self, mut task: Task) -> Task {
        if let Phase::Active(_) = task.phase
            && let Some(run) = self.watchers.run(task.id)
            && let Some(status) = run.status()
        {
            task.status_message = Some(status);
        }
        task
    }
}
