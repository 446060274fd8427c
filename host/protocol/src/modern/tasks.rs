//! The methods of the extension, and steer, pause and resume.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::request::{Request, respond};
use super::result::Complete;
use super::task::{Detailed, Face};
use crate::error::RpcError;
use crate::exchange::deferred;
use crate::input_requests::{read_answer, unusable_answer};
use crate::jsonrpc;
use crate::request_context::RequestContext;
use crate::sep1686::{find_call as find, find_with_output};
use crate::{Exchange, ProtocolContext};
use bulkhead_domain::call::InputResponse;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Phase, Task};
use bulkhead_tasks as tasks;

/// The id on the wire.
fn named(request: &Request<'_>) -> Result<String, RpcError> {
    request.members.task_id.required("params.taskId")
}

/// An exchange whose response is a task as it stands after `change`.
fn showing<W>(request: Request<'_>, change: impl FnOnce(Arc<ProtocolContext>, Requestor) -> W) -> Exchange
where
    W: Future<Output = Result<Arc<Task>, tasks::Error>> + Send + 'static,
{
    let face = Face::of(&request);
    let RequestContext { shared, requestor, .. } = request.context;
    let id = request.id;
    let changed = change(Arc::clone(&shared), requestor);
    deferred(async move {
        let detailed = async { Detailed::read(&shared, &requestor, changed.await?, face).await };
        respond(&id, detailed.await.map(|detailed| Complete::new(&shared.modern, detailed)).map_err(RpcError::from))
    })
}

/// An exchange whose response only says that it was understood.
fn acknowledging<W>(request: Request<'_>, change: impl FnOnce(Arc<ProtocolContext>, Requestor) -> W) -> Exchange
where
    W: Future<Output = Result<(), RpcError>> + Send + 'static,
{
    let RequestContext { shared, requestor, .. } = request.context;
    let id = request.id;
    let changed = change(Arc::clone(&shared), requestor);
    deferred(async move { respond(&id, changed.await.map(|()| Complete::new(&shared.modern, ()))) })
}

/// What comes too late changes nothing, and is no mistake.
fn unless_ended<T>(changed: Result<T, tasks::Error>) -> Result<(), RpcError> {
    match changed {
        Ok(_) | Err(tasks::Error::Ended) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// `tasks/get`.
pub(super) fn get(request: Request<'_>) -> Result<Exchange, RpcError> {
    let task = named(&request)?;
    let face = Face::of(&request);
    let RequestContext { shared, requestor, .. } = request.context;
    let id = request.id;
    Ok(deferred(async move {
        let found = find_with_output(&shared.tasks, &requestor, &task).await.map_err(RpcError::from);
        respond(&id, found.map(|(task, output)| Complete::new(&shared.modern, Detailed::new(task, output, face))))
    }))
}

/// `tasks/cancel`. A task that is over stays as it is.
pub(super) fn cancel(request: Request<'_>) -> Result<Exchange, RpcError> {
    let task = named(&request)?;
    Ok(acknowledging(request, move |shared, requestor| async move {
        let task = find(&shared.tasks, &requestor, &task).await?;
        unless_ended(shared.tasks.cancel(&requestor, task.id).await)
    }))
}

/// `tasks/update`: answers to some or all of the questions. Keys that wait for no answer are ignored, and so is an
/// answer that comes too late; one that does not fit its question refuses the whole request.
pub(super) fn update(request: Request<'_>) -> Result<Exchange, RpcError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Update {
        task_id: String,
        input_responses: HashMap<String, Box<RawValue>>,
    }
    let update: Update = jsonrpc::params(request.params)?;
    let sees_paused = request.client.interaction.pause;
    Ok(acknowledging(request, move |shared, requestor| async move {
        let task = find(&shared.tasks, &requestor, &update.task_id).await?;
        if sees_paused && matches!(task.phase, Phase::Paused { .. }) {
            return Err(RpcError::invalid_params("The task is paused; resume it before its questions are answered"));
        }
        for (key, answer) in answers(&task, &update.input_responses)? {
            unless_ended(shared.tasks.answer(&requestor, task.id, &key, answer).await)?;
        }
        Ok(())
    }))
}

fn answers(task: &Task, responses: &HashMap<String, Box<RawValue>>) -> Result<Vec<(String, InputResponse)>, RpcError> {
    let outstanding = task.outstanding().filter_map(|input| {
        let response = responses.get(&input.issued_key)?;
        Some((input, read_answer(&input.request.kind, response.get())))
    });
    outstanding
        .map(|(input, answer)| {
            let key = &input.issued_key;
            Ok((key.clone(), answer.map_err(|reason| unusable_answer(key, &reason))?))
        })
        .collect()
}

/// `tasks/steer`: a message for the run, durable before the acknowledgement.
pub(super) fn steer(request: Request<'_>) -> Result<Exchange, RpcError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Steer {
        task_id: String,
        message: String,
    }
    let steer: Steer = jsonrpc::params(request.params)?;
    Ok(acknowledging(request, move |shared, requestor| async move {
        let task = find(&shared.tasks, &requestor, &steer.task_id).await?;
        shared.tasks.steer(&requestor, task.id, steer.message).await?;
        Ok(())
    }))
}

/// `tasks/pause`.
pub(super) fn pause(request: Request<'_>) -> Result<Exchange, RpcError> {
    let task = named(&request)?;
    Ok(showing(request, move |shared, requestor| async move {
        let task = find(&shared.tasks, &requestor, &task).await?;
        shared.tasks.pause(&requestor, task.id, Some("paused by request".to_owned())).await
    }))
}

/// `tasks/resume`.
pub(super) fn resume(request: Request<'_>) -> Result<Exchange, RpcError> {
    let task = named(&request)?;
    Ok(showing(request, move |shared, requestor| async move {
        let task = find(&shared.tasks, &requestor, &task).await?;
        shared.tasks.resume(&requestor, task.id).await
    }))
}
