//! SEP-1686 as it was written: how a client names its own tasks.
//!
//! Owns the client's wish (`_meta["modelcontextprotocol.io/task"]`) and the way between a name on the wire and a task,
//! for both eras: a task of this design is known by the id that its client chose, wherever it is shown. Invariant: a
//! name belongs to its requestor; it is looked up under that requestor alone.
//!
//! The methods of this design (`tasks/get`, `result`, `list`, `delete`) exist in every legacy session, also of
//! 2025-06-18, which has no tasks of the core and sees none. A task of this design is kept from its end; so that it
//! does have one, it fails when it has not ended within `limits.ttl_ms_max` of its creation.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::error::RpcError;
use super::reader;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Design, Task, TaskId, TaskOutput};
use bulkhead_domain::tool::ToolOutput;
use bulkhead_tasks::{self as tasks, RequestedTtl, Tasks};

/// `_meta` of a request that is to be a task.
pub(crate) const TASK: &str = "modelcontextprotocol.io/task";
/// `_meta` of everything that belongs to such a task.
pub(crate) const RELATED_TASK: &str = "modelcontextprotocol.io/related-task";

/// Names are kept in the record and repeated in every message of the task: longer ones would let a client grow both.
const ID_CHARS_MAX: usize = 128;

const ALIAS_PREFIX: &str = "sep1686:";

/// What a client wants to become of its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskMetadata {
    /// The client's own id of the task.
    pub(crate) task_id: String,
    /// How long it is to be kept after its end.
    pub(crate) ttl: RequestedTtl,
}

impl TaskMetadata {
    /// Reads the value of [`TASK`].
    pub(crate) fn read(raw: &RawValue) -> Result<Self, RpcError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Members {
            task_id: String,
            keep_alive: Option<f64>,
        }
        let path = || reader::member("params._meta", TASK);
        let members: Members = reader::read_at(raw.get(), path).map_err(RpcError::invalid_params)?;
        if members.task_id.is_empty() || members.task_id.chars().count() > ID_CHARS_MAX {
            return Err(malformed());
        }
        let keep_alive_ms = members.keep_alive.map(|number| ms(number).ok_or_else(malformed)).transpose()?;
        Ok(Self { task_id: members.task_id, ttl: RequestedTtl::AfterEnd(keep_alive_ms) })
    }

    /// What the metadata of a request's params wishes for. Params that are none are for their method to refuse.
    pub(crate) fn of(params: Option<&str>) -> Result<Option<Self>, RpcError> {
        #[derive(Default, Deserialize)]
        struct Params<'a> {
            #[serde(borrow, default, rename = "_meta")]
            meta: Option<&'a RawValue>,
        }
        #[derive(Default, Deserialize)]
        struct Meta<'a> {
            /// See [`TASK`].
            #[serde(borrow, rename = "modelcontextprotocol.io/task")]
            task: Option<&'a RawValue>,
        }
        let Some(params) = params else { return Ok(None) };
        let meta = reader::read_if_fits::<Params<'_>>(params).unwrap_or_default().meta;
        let meta = meta.map(|meta| reader::read_if_fits::<Meta<'_>>(meta.get()).unwrap_or_default());
        meta.and_then(|meta| meta.task).map(Self::read).transpose()
    }

    /// The name that the store keeps.
    pub(crate) fn alias(&self) -> String {
        alias(&self.task_id)
    }
}

/// JSON knows one kind of number: `60000.0` is a duration like any other.
fn ms(number: f64) -> Option<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; negative ones are refused")]
    (number >= 0.0).then_some(number as u64)
}

fn malformed() -> RpcError {
    RpcError::invalid_params(format!(
        "{} must be an object with taskId, a string of 1 to {ID_CHARS_MAX} characters, and perhaps keepAlive, a number of \
         milliseconds that is not negative",
        reader::member("params._meta", TASK)
    ))
}

/// What is said when a name was given to another call before.
pub(crate) fn id_in_use() -> RpcError {
    RpcError::invalid_params("This taskId was used for another request; choose another one for another request")
}

fn alias(task_id: &str) -> String {
    format!("{ALIAS_PREFIX}{task_id}")
}

/// The id under which clients know a task.
pub(crate) fn wire_id(task: &Task) -> Cow<'_, str> {
    let chosen = task.alias.as_deref().filter(|_| task.design() == Design::Sep1686);
    match chosen.and_then(|alias| alias.strip_prefix(ALIAS_PREFIX)) {
        Some(chosen) => Cow::Borrowed(chosen),
        None => Cow::Owned(task.id.to_string()),
    }
}

/// The requestor's task behind an id on the wire. What is no id at all is answered like an id that nobody has.
pub(crate) async fn find(tasks: &Tasks, requestor: &Requestor, wire_id: &str) -> Result<Arc<Task>, tasks::Error> {
    tasks.find(requestor, TaskId::parse(wire_id), Some(|| alias(wire_id))).await
}

/// The same for designs in which a task is a tool call: tasks of other requests are absent.
pub(crate) async fn find_call(tasks: &Tasks, requestor: &Requestor, wire_id: &str) -> Result<Arc<Task>, tasks::Error> {
    let task = find(tasks, requestor, wire_id).await?;
    if task.work.tool().is_some() { Ok(task) } else { Err(tasks::Error::NotFound) }
}

/// A call of a tool with the output of a task that ended with one.
pub(crate) async fn find_with_output(
    tasks: &Tasks,
    requestor: &Requestor,
    wire_id: &str,
) -> Result<(Arc<Task>, Option<ToolOutput>), tasks::Error> {
    let found = tasks.find_with_output(requestor, TaskId::parse(wire_id), Some(|| alias(wire_id))).await;
    match found? {
        (task, _) if task.work.tool().is_none() => Err(tasks::Error::NotFound),
        (task, Some(TaskOutput::Tool(output))) => Ok((task, Some(output))),
        (task, _) => Ok((task, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<TaskMetadata> {
        TaskMetadata::read(serde_json::from_str(text).unwrap()).ok()
    }

    #[test]
    fn task_metadata_has_id_and_optional_keep_alive() {
        let wish =
            |task_id: &str, ms| Some(TaskMetadata { task_id: task_id.to_owned(), ttl: RequestedTtl::AfterEnd(ms) });
        assert_eq!(read(r#"{"taskId":"a"}"#), wish("a", None));
        assert_eq!(read(r#"{"taskId":"a","keepAlive":null,"more":1}"#), wish("a", None));
        assert_eq!(read(r#"{"taskId":"a","keepAlive":60000}"#), wish("a", Some(60_000)));
        assert_eq!(read(r#"{"taskId":"a","keepAlive":6e4}"#), wish("a", Some(60_000)));
        assert_eq!(read(r#"{"taskId":"a","keepAlive":1e300}"#), wish("a", Some(u64::MAX)));
        let longest = "\u{1F600}".repeat(ID_CHARS_MAX);
        assert_eq!(read(&format!(r#"{{"taskId":"{longest}"}}"#)), wish(&longest, None));
    }

    #[test]
    fn invalid_task_metadata_is_ignored() {
        let long = format!(r#"{{"taskId":"{}"}}"#, "x".repeat(ID_CHARS_MAX + 1));
        for text in [
            &long,
            "null",
            "5",
            "[]",
            "{}",
            r#""a""#,
            r#"{"taskId":""}"#,
            r#"{"taskId":5}"#,
            r#"{"taskId":"a","keepAlive":-1}"#,
            r#"{"taskId":"a","keepAlive":"1"}"#,
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
