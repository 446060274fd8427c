//! Keys under which a client asks for one call, however often it asks.
//!
//! A key belongs to its requestor and its tool, and is bound to the arguments; it is kept for as long as the task that
//! was made under it.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::digest::digest;
use super::error::RpcError;
use super::reader;
use bulkhead_domain::Json;
use bulkhead_domain::call::LogLevel;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Origin, Task, Work};
use bulkhead_tasks::{Once, TaskRequest, Tasks};

/// Characters of a client's key.
const CHARS_MAX: usize = 128;

/// Whether a text can be a key.
pub(crate) fn checked(key: String) -> Result<String, RpcError> {
    let fits = !key.is_empty() && key.chars().count() <= CHARS_MAX;
    fits.then_some(key).ok_or_else(|| {
        let path = reader::member("params._meta", "dev.bulkhead/idempotencyKey");
        RpcError::invalid_params(format!("{path} must be a string of 1 to {CHARS_MAX} characters"))
    })
}

/// The error for a repeated request whose call was cancelled.
pub(crate) fn cancelled() -> RpcError {
    RpcError::invalid_params("The call with this idempotency key was cancelled; use another key")
}

/// The origin of a call whose news several requests may want to hear: each passes on what it wants itself.
pub(crate) fn heard_by_all(origin: Origin) -> Origin {
    let progress_token = origin.progress_token.or_else(|| Some(Json::new("0")));
    Origin { log_level: Some(LogLevel::Debug), progress_token, ..origin }
}

/// Makes a task, or finds the one that was made under the same key.
pub(crate) async fn once(
    tasks: &Tasks,
    requestor: &Requestor,
    request: TaskRequest,
    key: &str,
) -> Result<Arc<Task>, RpcError> {
    let alias = alias(request.job.work().label(), key);
    made_once(tasks, requestor, request, &alias).await?.ok_or_else(RpcError::idempotency_conflict)
}

/// Makes a task under a name of its requestor's, or finds the one that was made under it. `None`: that was made of
/// another request.
pub(crate) async fn made_once(
    tasks: &Tasks,
    requestor: &Requestor,
    request: TaskRequest,
    alias: &str,
) -> Result<Option<Arc<Task>>, RpcError> {
    let work = request.job.work();
    let arguments = request.job.request().clone();
    let Once { task, found } = tasks.create_once(requestor, request, alias).await?;
    let is_the_same = !found || is_made_of(tasks, &task, &work, &arguments).await?;
    if !is_the_same {
        tasks.note_name_in_use(requestor, &work);
    }
    Ok(is_the_same.then_some(task))
}

/// Whether a task does this work with these arguments.
pub(crate) async fn is_made_of(tasks: &Tasks, task: &Task, work: &Work, arguments: &Json) -> Result<bool, RpcError> {
    let before = tasks.request_of(task).await?;
    Ok(task.work == *work && same(before.as_str(), arguments.as_str()))
}

/// Names the call among those of its requestor. Keys of two tools are two keys.
fn alias(tool: &str, key: &str) -> String {
    let mut hash = Sha256::new();
    for part in [tool, key] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let name: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("idempotency:{name}")
}

/// Whether two texts are the same JSON value.
fn same(one: &str, other: &str) -> bool {
    let value = |text: &str| serde_json::from_str(text).ok().map(|value| digest(&value));
    one == other || value(one).is_some_and(|one| value(other) == Some(one))
}
