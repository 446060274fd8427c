//! Tasks by the version of the plugin that they began with.

use std::collections::HashMap;
use std::sync::Arc;

use super::changes::ApplyError;
use super::engine::Tasks;
use super::feed::lock;
use bulkhead_domain::call::{CallError, FaultKind};
use bulkhead_domain::lifecycle::Event;
use bulkhead_domain::task::{PluginVersion, Task};

/// How tasks of a version end that the operator does not want any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    Cancel,
    Fail,
}

impl Tasks {
    /// How many tasks that are not over belong to each version: those that run, wait, are paused or stand in the queue.
    pub fn by_version(&self) -> HashMap<PluginVersion, usize> {
        let mut counts = HashMap::new();
        for task in self.unfinished() {
            *counts.entry(task.plugin.clone()).or_default() += 1;
        }
        counts
    }

    /// Ends every task of a version.
    pub async fn withdraw(&self, version: &PluginVersion, how: Withdrawal) {
        for task in self.unfinished().into_iter().filter(|task| task.plugin == *version) {
            let event = match how {
                Withdrawal::Cancel => Event::Cancel,
                Withdrawal::Fail => {
                    let message = "the version of the plugin that this task runs was withdrawn".to_owned();
                    let error = CallError::Fault { kind: FaultKind::Deadline, reason: message.clone() };
                    Event::Abandon { error, message }
                }
            };
            match self.inner.apply(&task.requestor, task.id, event, None).await {
                Ok(_) | Err(ApplyError::Refused(_) | ApplyError::NotFound) => {}
                Err(ApplyError::Store(error)) => {
                    tracing::warn!(task.id = %task.id, %error, "a task of a withdrawn version cannot be ended yet");
                }
            }
        }
    }

    fn unfinished(&self) -> Vec<Arc<Task>> {
        let runs = lock(&self.inner.runs);
        runs.values().filter_map(|run| run.task()).filter(|task| task.outcome().is_none()).collect()
    }
}
