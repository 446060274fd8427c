//! A call that its client made a task of SEP-1686: the task is announced, and the request is answered all the same.
//!
//! Must not matter to the task: it goes on when nobody waits for the response any more. Only a client that cancels the request cancels
//! the task. Invariant: a client's id names one call; asked for again with the same tool and arguments it is the same task, and with
//! others a refusal.

use std::sync::Arc;

use super::Request;
use super::call::{failure, in_flight};
use super::results::{Reports, Waiting};
use super::tools::Call;
use crate::domain::task::{Design, Task, TaskId};
use crate::protocol::arguments::Misfit;
use crate::protocol::error::RpcError;
use crate::protocol::exchange::{Outlet, talk};
use crate::protocol::jsonrpc::{RequestId, error_response};
use crate::protocol::notices;
use crate::protocol::sep1686::{Wish, id_in_use};
use crate::protocol::session::{InFlight, Session};
use crate::protocol::{Exchange, Shared, idempotency};
use crate::tasks::{self, TaskRequest};

/// Starts the exchange.
pub(super) fn call(request: Request<'_>, call: Call, wish: Wish) -> Result<Exchange, RpcError> {
    let in_flight = in_flight(&request)?;
    let (shared, session) = (Arc::clone(request.shared), Arc::clone(request.session));
    let id = request.id;
    Ok(talk(|outlet| async move {
        let augmented = Augmented { shared, session, outlet };
        augmented.run(&id, call, &wish, &in_flight).await
    }))
}

struct Augmented {
    shared: Arc<Shared>,
    session: Arc<Session>,
    outlet: Outlet,
}

impl Augmented {
    async fn run(self, id: &RequestId, mut call: Call, wish: &Wish, in_flight: &InFlight) -> Option<String> {
        let reports = Reports { progress_token: call.progress_token.clone(), are_wanted: true };
        let task = tokio::select! {
            biased;
            // A creation that is given up leaves nothing behind.
            () = in_flight.cancelled() => return None,
            task = self.task(id, &mut call, wish) => task,
        };
        let task = match task {
            Ok(task) => task,
            Err(response) => return Some(response),
        };
        self.outlet.say(notices::created(&task));
        let (shared, session) = (Arc::clone(&self.shared), Arc::clone(&self.session));
        let waiting = Waiting::new(shared, session, self.outlet.clone(), &task);
        match waiting.outcome(reports, in_flight).await {
            Ok(Some(task)) => Some(waiting.response(id, &task).await),
            Ok(None) => {
                if in_flight.is_cancelled_by_client() {
                    self.cancel(task.id).await;
                }
                None
            }
            Err(error) => Some(error_response(Some(id), &RpcError::from(&error))),
        }
    }

    /// The task, made now or before; or the response that says why there is none.
    async fn task(&self, id: &RequestId, call: &mut Call, wish: &Wish) -> Result<Task, String> {
        match call.check().await {
            Ok(()) => {}
            Err(Misfit::Malformed(error)) => return Err(error_response(Some(id), &error)),
            // What a plain call would say; there is nothing to wait for.
            Err(Misfit::Schema(text)) => return Err(failure(id, text)),
        }
        let request = TaskRequest {
            call: call.request.clone(),
            origin: call.origin(Design::Sep1686),
            ttl: wish.ttl,
            output: None,
        };
        self.once(request, wish).await.map_err(|error| error_response(Some(id), &error))
    }

    async fn once(&self, request: TaskRequest, wish: &Wish) -> Result<Task, RpcError> {
        let (tasks, requestor) = (&self.shared.tasks, self.session.requestor());
        // An id of the host's must stay the name of its own task.
        if let Some(id) = TaskId::parse(&wish.task_id) {
            match tasks.get(requestor, id).await {
                Ok(_) => return Err(id_in_use()),
                Err(tasks::Error::NotFound) => {}
                Err(error) => return Err(RpcError::from(&error)),
            }
        }
        idempotency::made_once(tasks, requestor, request, &wish.alias()).await?.ok_or_else(id_in_use)
    }

    async fn cancel(&self, id: TaskId) {
        match self.shared.tasks.cancel(self.session.requestor(), id).await {
            Ok(_) | Err(tasks::Error::Ended | tasks::Error::NotFound) => {}
            // Nobody can be answered any more; its client polls and sees that the task goes on.
            Err(error) => tracing::warn!(task.id = %id, "a task could not be cancelled: {error}"),
        }
    }
}
