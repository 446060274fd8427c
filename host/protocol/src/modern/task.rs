//! A task as the extension shows it.

use std::sync::Arc;

use serde::Serialize;
use serde::ser::SerializeMap;

use super::request::Request;
use super::result::{Inlined, InputRequests};
use crate::error::RpcError;
use crate::wire::{Body, active_name, broken, entry_if, paused, ttl_ms};
use crate::{ProtocolContext, sep1686};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Active, Outcome, Phase, Task, TaskOutput};
use bulkhead_domain::timestamp::iso8601;
use bulkhead_domain::tool::ToolOutput;
use bulkhead_tasks as tasks;

/// What the reader of a task knows beyond the extension's five statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Face {
    sees_paused: bool,
}

impl Face {
    /// Only what the extension has.
    pub(super) fn plain() -> Self {
        Self { sees_paused: false }
    }

    pub(super) fn of(request: &Request<'_>) -> Self {
        Self { sees_paused: request.client.interaction.pause }
    }

    fn status(self, task: &Task) -> (&'static str, Option<String>) {
        let message = || task.status_message.clone();
        match &task.phase {
            Phase::Active(Active::Queued) => ("working", Some("queued: waits for its turn".to_owned())),
            Phase::Active(active) => (active_name(*active), message()),
            Phase::Paused { .. } if self.sees_paused => ("paused", message()),
            Phase::Paused { before } => (active_name(*before), Some(paused(task))),
            Phase::Ended(Outcome::Output { .. }) => ("completed", message()),
            Phase::Ended(Outcome::Error(error)) => ("failed", Some(broken(task, RpcError::modern(error)))),
            Phase::Ended(Outcome::Cancelled) => ("cancelled", message()),
        }
    }
}

/// `Task`: what every variant has.
pub(super) fn write_task<M: SerializeMap>(map: &mut M, task: &Task, face: Face) -> Result<(), M::Error> {
    let (status, message) = face.status(task);
    map.serialize_entry("taskId", &sep1686::wire_id(task))?;
    map.serialize_entry("status", status)?;
    entry_if(map, "statusMessage", message)?;
    map.serialize_entry("createdAt", &iso8601(task.created_at))?;
    map.serialize_entry("lastUpdatedAt", &iso8601(task.updated_at))?;
    map.serialize_entry("ttlMs", &ttl_ms(task))?;
    map.serialize_entry("pollIntervalMs", &task.poll_interval_ms)
}

/// `DetailedTask`: a task with its outcome or its input requests.
pub(super) struct Detailed {
    pub(super) task: Arc<Task>,
    output: Option<ToolOutput>,
    face: Face,
}

impl Detailed {
    /// A task with the output that it ended with.
    pub(super) fn new(task: Arc<Task>, output: Option<ToolOutput>, face: Face) -> Self {
        Self { task, output, face }
    }

    /// Reads the output of a task that has one.
    pub(super) async fn read(
        shared: &ProtocolContext,
        requestor: &Requestor,
        task: Arc<Task>,
        face: Face,
    ) -> Result<Self, tasks::Error> {
        let output = match task.outcome() {
            Some(Outcome::Output { .. }) => match shared.tasks.output(requestor, task.id).await? {
                TaskOutput::Tool(output) => Some(output),
                // In this era tasks are calls of tools.
                _ => return Err(tasks::Error::NotFound),
            },
            Some(Outcome::Error(_) | Outcome::Cancelled) | None => None,
        };
        Ok(Self { task, output, face })
    }
}

impl Body for Detailed {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        write_task(map, &self.task, self.face)?;
        match &self.task.phase {
            Phase::Active(Active::InputRequired) => {
                map.serialize_entry("inputRequests", &InputRequests::outstanding(&self.task))
            }
            Phase::Paused { before: Active::InputRequired } if !self.face.sees_paused => {
                map.serialize_entry("inputRequests", &InputRequests::outstanding(&self.task))
            }
            Phase::Active(_) | Phase::Paused { .. } | Phase::Ended(Outcome::Cancelled) => Ok(()),
            Phase::Ended(Outcome::Output { .. }) => entry_if(map, "result", self.output.as_ref().map(Inlined)),
            Phase::Ended(Outcome::Error(error)) => map.serialize_entry("error", &RpcError::modern(error)),
        }
    }
}

/// The entries alone, with the `_meta` of a notification.
pub(super) struct TaskNotification<'a, M> {
    pub(super) detailed: &'a Detailed,
    pub(super) meta: M,
}

impl<T: Serialize> Serialize for TaskNotification<'_, T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.detailed.write(&mut map)?;
        map.serialize_entry("_meta", &self.meta)?;
        map.end()
    }
}
