//! A call under an idempotency key of its client: made once, and found again by a repeated request.
//!
//! Such a call has a record from the start, whatever its client supports, and goes on when its stream is dropped: the
//! next request with the key gets what it came to. To a client without tasks, or of a tool that must not be one, it
//! looks like a plain call; what it asks is answered by another request with the same key, which needs no state.

use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::super::result::Ending;
use super::RoundTrip;
use crate::error::RpcError;
use crate::exchange::{FrameSender, at};
use crate::input_requests::{read_answer, unusable_answer};
use crate::{idempotency, notifications};
use bulkhead_calls::Returned;
use bulkhead_domain::call::CallError;
use bulkhead_domain::task::{Active, Outcome, Phase, Task, TaskOutput};
use bulkhead_tasks::{self as tasks, CallRequest, Job, RequestedTtl, TaskNews, TaskRequest};

impl RoundTrip {
    /// Makes the call or finds it, and stays with it as long as a plain call would.
    pub(super) async fn once(
        &mut self,
        call: CallRequest,
        key: &str,
        frames: &FrameSender,
    ) -> Result<Ending, RpcError> {
        let tasks = self.shared.tasks.clone();
        let is_task_at_once = self.is_task_at_once(&call);
        let origin = idempotency::heard_by_all(self.origin());
        let request = TaskRequest { job: Job::Call(call), origin, ttl: RequestedTtl::Default };
        let made = idempotency::once(&tasks, &self.requestor, request, key).await?;
        if is_task_at_once {
            return Ok(Ending::Task(made));
        }
        let (mut task, mut news) = tasks.watch(&self.requestor, made.id).await?;
        loop {
            if let Some(ending) = self.ending(&mut task).await? {
                return Ok(ending);
            }
            let promote_at = self.promote_at;
            tokio::select! {
                next = self.next(&mut news, &task, frames) => task = next?,
                () = at(promote_at) => return Ok(Ending::Task(task)),
            }
        }
    }

    /// What the call has come to, if it has, or what it needs.
    async fn ending(&mut self, task: &mut Arc<Task>) -> Result<Option<Ending>, RpcError> {
        match &task.phase {
            Phase::Ended(Outcome::Output { .. }) => match self.shared.tasks.output(&self.requestor, task.id).await? {
                TaskOutput::Tool(output) => Ok(Some(Ending::Output(Returned::Tool(output)))),
                _ => Err(RpcError::host_failure(format_args!("task {} is no call of a tool", task.id))),
            },
            Phase::Ended(Outcome::Error(error)) => Err(RpcError::modern(error)),
            Phase::Ended(Outcome::Cancelled) => Err(idempotency::cancelled()),
            Phase::Active(Active::InputRequired) => {
                // It waits as a task for those who can answer one.
                if self.promote_at.is_some() {
                    return Ok(Some(Ending::Task(task.clone())));
                }
                self.answer_input_requests(task).await
            }
            Phase::Active(Active::Queued | Active::Running) | Phase::Paused { .. } => Ok(None),
        }
    }

    /// Gives the answers that this request brought; questions that are left are asked.
    async fn answer_input_requests(&mut self, task: &mut Arc<Task>) -> Result<Option<Ending>, RpcError> {
        let mut given = Vec::new();
        for input in task.outstanding() {
            let Some(raw) = self.fresh.get(&input.issued_key) else { continue };
            let answer = read_answer(&input.request.kind, raw.get())
                .map_err(|reason| unusable_answer(&input.issued_key, &reason))?;
            given.push((input.issued_key.clone(), answer));
        }
        for (key, answer) in given {
            *task = self.shared.tasks.answer(&self.requestor, task.id, &key, answer).await?;
        }
        let left: Vec<_> = task.outstanding().map(|input| (input.issued_key.clone(), input.request.clone())).collect();
        // The question waits for a request that can be asked it.
        if let Some(feature) = self.unable(left.iter().map(|(_, request)| request)) {
            return Err(RpcError::modern(&CallError::MissingCapability(feature)));
        }
        Ok((!left.is_empty()).then_some(Ending::InputRequired { input_requests: left, state: None }))
    }

    /// The record after its next change; what is said meanwhile goes to the stream, as for any plain call.
    async fn next(
        &mut self,
        news: &mut Receiver<TaskNews>,
        task: &Task,
        frames: &FrameSender,
    ) -> Result<Arc<Task>, RpcError> {
        loop {
            match news.recv().await {
                Ok(TaskNews::Changed(changed)) if changed.revision >= task.revision => {
                    return Ok(changed);
                }
                Ok(TaskNews::Changed(_) | TaskNews::Created(_)) => {}
                Ok(TaskNews::Progress { progress, total, message, .. }) => {
                    frames.send(self.progress.report(progress, total, message.as_deref()));
                }
                Ok(TaskNews::Log { level, logger, data, .. }) => {
                    if self.client.log_level.is_some_and(|wanted| level >= wanted) {
                        frames.send(notifications::log(level, logger.as_deref(), &data, None));
                    }
                }
                Ok(TaskNews::Gone(_)) | Err(RecvError::Closed) => return Err(tasks::Error::NotFound.into()),
                Err(RecvError::Lagged(_)) => return Ok(self.shared.tasks.get(&self.requestor, task.id).await?),
            }
        }
    }
}
