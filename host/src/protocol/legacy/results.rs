//! `tasks/result`: waits for the end of a task, and carries its questions and reports meanwhile.

use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::Request;
use super::asking::Offers;
use super::call::in_flight;
use super::tasks::named;
use crate::domain::task::{Outcome, Task, TaskId};
use crate::protocol::error::RpcError;
use crate::protocol::exchange::{Outlet, talk};
use crate::protocol::jsonrpc::{RequestId, error_response, response};
use crate::protocol::notices::{self, ProgressReports};
use crate::protocol::session::{InFlight, Session};
use crate::protocol::wire::OutputView;
use crate::protocol::{Exchange, Shared};
use crate::tasks::{self, TaskNews};

/// `tasks/result`.
pub(super) fn result(request: Request<'_>) -> Result<Exchange, RpcError> {
    let task = named(&request)?;
    let in_flight = in_flight(&request)?;
    let (shared, session) = (Arc::clone(request.shared), Arc::clone(request.session));
    let id = request.id;
    Ok(talk(|outlet| async move {
        let waiting = Waiting { shared, session, outlet, id: task };
        match waiting.outcome(&in_flight).await {
            Ok(Some(task)) => Some(waiting.response(&id, &task).await),
            Ok(None) => None,
            Err(error) => Some(error_response(Some(&id), &RpcError::from(&error))),
        }
    }))
}

struct Waiting {
    shared: Arc<Shared>,
    session: Arc<Session>,
    outlet: Outlet,
    id: TaskId,
}

enum Next {
    News(Result<TaskNews, RecvError>),
    /// Another stream closed, or an offer came to its end: look again at who asks what.
    Look,
    Cancelled,
}

impl Waiting {
    /// The task once it is over; `None` when the client does not want to know any more.
    async fn outcome(&self, in_flight: &InFlight) -> Result<Option<Arc<Task>>, tasks::Error> {
        let (task, news) = self.shared.tasks.watch(self.session.requestor(), self.id).await?;
        let task = Arc::new(task);
        if task.outcome().is_some() {
            return Ok(Some(task));
        }
        self.wait(task, news, in_flight).await
    }

    async fn wait(
        &self,
        mut task: Arc<Task>,
        mut news: Receiver<TaskNews>,
        in_flight: &InFlight,
    ) -> Result<Option<Arc<Task>>, tasks::Error> {
        let carriers = &self.shared.carriers;
        let digest = self.session.digest();
        let is_creator = task.origin.session == Some(digest);
        let mut closings = carriers.closings();
        let waiter = carriers.wait(self.id, digest, self.session.settled.features);
        let mut offers = Offers::new(&self.shared, &self.session, self.outlet.clone());
        let mut progress = ProgressReports::new(task.origin.progress_token.clone(), Some(self.id));
        offers.update(&task, |key, question| waiter.claim(key, question, true));
        loop {
            let next = tokio::select! {
                biased;
                () = in_flight.cancelled() => Next::Cancelled,
                news = news.recv() => Next::News(news),
                () = offers.settle() => Next::Look,
                // Fails only when the sender is gone, and that lives as long as we do.
                _ = closings.changed() => Next::Look,
            };
            match next {
                Next::Cancelled => return Ok(None),
                Next::Look => {}
                Next::News(Ok(TaskNews::Changed(changed))) => task = changed,
                Next::News(Ok(TaskNews::Gone(_))) => return Err(tasks::Error::NotFound),
                Next::News(Ok(TaskNews::Progress { progress: at, total, message, .. })) => {
                    if is_creator && waiter.carries(digest) {
                        self.outlet.say(progress.report(at, total, message.as_deref()));
                    }
                    continue;
                }
                Next::News(Ok(TaskNews::Log { level, logger, data, .. })) => {
                    if is_creator && level >= self.session.log_level() && waiter.carries(digest) {
                        self.outlet.say(notices::log(level, logger.as_deref(), &data, Some(self.id)));
                    }
                    continue;
                }
                Next::News(Err(RecvError::Lagged(_))) => {
                    task = Arc::new(self.shared.tasks.get(self.session.requestor(), self.id).await?);
                }
                Next::News(Err(RecvError::Closed)) => return Err(tasks::Error::draining()),
            }
            if task.outcome().is_some() {
                offers.close(self.id);
                carriers.over(self.id);
                return Ok(Some(task));
            }
            offers.update(&task, |key, question| waiter.claim(key, question, false));
        }
    }

    /// What the call would have answered, had it been a plain one.
    async fn response(&self, id: &RequestId, task: &Task) -> String {
        let error = match task.outcome() {
            Some(Outcome::Output { .. }) => match self.shared.tasks.output(self.session.requestor(), self.id).await {
                Ok(output) => return response(id, &OutputView { output: &output, related: Some(self.id) }),
                Err(error) => RpcError::from(&error),
            },
            Some(Outcome::Error(error)) => RpcError::from(error),
            Some(Outcome::Cancelled) => RpcError::task_cancelled(self.id),
            None => RpcError::host_failure(format_args!("task {} was taken for ended", self.id)),
        };
        error_response(Some(id), &error)
    }
}
