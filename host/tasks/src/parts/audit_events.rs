//! Events of the engine in the audit log.
//!
//! Must say of arguments, answers and results how many bytes they are, and never what they are.

use std::sync::{Arc, OnceLock};

use crate::error::Error;
use crate::parts::request::CallRequest;
use bulkhead_audit::{Audit, Entry};
use bulkhead_calls::Returned;
use bulkhead_calls::policy::Denial;
use bulkhead_domain::call::CallError;
use bulkhead_domain::lifecycle::Event;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::task::{Outcome, PluginVersion, Task, TaskId, TaskOutput, Work};
use bulkhead_domain::tool::{ContentKind, ResourceBody, ToolOutput};
use bulkhead_metrics::{EvictionCause, TaskMetrics};

/// A request that is not admitted yet: a refusal by any check is logged.
pub(crate) struct RefusalAudit {
    audit: Audit,
    /// `None` without a log.
    entry: Option<Box<Entry>>,
}

impl RefusalAudit {
    /// `tool` is a tool's name, or what else the request is for.
    pub(crate) fn new(audit: &Audit, requestor: &Requestor, tool: &str, plugin: Option<&PluginVersion>) -> Self {
        let entry = audit.is_on().then(|| {
            let entry = Entry::new("call.refused").by(requestor).tool(tool);
            Box::new(match plugin {
                Some(plugin) => entry.plugin(plugin),
                None => entry,
            })
        });
        Self { audit: audit.clone(), entry }
    }

    pub(crate) fn refused(self, error: &Error) {
        if let Some(entry) = self.entry {
            self.audit.note(|| entry.because(&error.to_string()));
        }
    }
}

/// A plain call that has not ended yet. Dropped before its end, it notes that the client left.
pub(crate) struct CallAudit {
    audit: Audit,
    /// `None` without a log, and once the call has ended.
    entry: Option<Box<Entry>>,
}

impl CallAudit {
    pub(crate) fn new(
        audit: &Audit,
        requestor: Requestor,
        plugin: &PluginVersion,
        request: Option<&CallRequest>,
    ) -> Self {
        let entry = audit.is_on().then(|| {
            let entry = Entry::new("call.abandoned").by(&requestor).plugin(plugin);
            Box::new(match request {
                Some(call) => entry.tool(&call.tool.tool.name).arguments(call.arguments.as_str()),
                None => entry,
            })
        });
        Self { audit: audit.clone(), entry }
    }

    pub(crate) fn ended(&mut self, result: &Result<Returned, CallError>) {
        let Some(entry) = self.entry.take() else { return };
        let entry = entry.event("call.ended");
        self.audit.note(|| match result {
            Ok(Returned::Tool(output)) => entry.outcome(outcome_name(output)).result_bytes(bytes(output)),
            Ok(_) => entry.outcome("succeeded"),
            Err(error) => entry.outcome("failed").because(&why(error)),
        });
    }

    /// It goes on as a task, which is noted by itself.
    pub(crate) fn promoted(mut self) {
        self.entry = None;
    }
}

impl Drop for CallAudit {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.audit.note(|| *entry);
        }
    }
}

/// Notes what happens to tasks, and counts it.
#[derive(Clone)]
pub(crate) struct TaskAudit {
    pub(crate) log: Audit,
    /// Empty: nothing is counted.
    pub(crate) metrics: Arc<OnceLock<TaskMetrics>>,
}

impl TaskAudit {
    /// Records the call of a tool that is not offered to its requestor.
    pub(crate) fn note_unknown_tool(&self, requestor: &Requestor, name: &str) {
        self.log.note(|| Entry::new("lookup.failed").by(requestor).tool(name));
    }

    /// Records a request under an alias that its requestor gave to another request before.
    pub(crate) fn note_name_in_use(&self, requestor: &Requestor, work: &Work) {
        let entry = || Entry::new("call.refused").by(requestor).tool(work.label());
        self.log.note(|| entry().because("its name is that of another request"));
    }

    pub(crate) fn note_created(&self, task: &Task, arguments: &str) {
        if let Some(metrics) = self.metrics.get() {
            metrics.created(task.origin.design);
        }
        self.count_ended(task);
        self.log.note(|| Entry::new("task.created").of(task).arguments(arguments));
    }

    /// A call reached for what its plugin is not granted.
    pub(crate) fn note_denied(
        &self,
        requestor: &Requestor,
        plugin: &PluginVersion,
        task: Option<TaskId>,
        denial: &Denial,
    ) {
        if let Some(metrics) = self.metrics.get() {
            metrics.denied(&plugin.name, denial.kind());
        }
        self.log.note(|| {
            let entry = Entry::new("grant.denied").by(requestor).plugin(plugin).because(&denial.to_string());
            match task {
                Some(id) => entry.task(id),
                None => entry,
            }
        });
    }

    /// Something that happened to a task without a change of its record.
    pub(crate) fn note_task(&self, event: &'static str, requestor: &Requestor, id: TaskId) {
        self.log.note(|| Entry::new(event).by(requestor).task(id));
    }

    /// Counts a task if this is its end: no change comes after it.
    fn count_ended(&self, task: &Task) {
        if let (Some(metrics), Some(outcome)) = (self.metrics.get(), task.outcome()) {
            metrics.ended(outcome);
        }
    }

    /// A call could not be brought back to where it was.
    pub(crate) fn note_diverged(&self, task: &Task) {
        if let Some(metrics) = self.metrics.get() {
            metrics.diverged();
        }
        self.log.note(|| Entry::new("task.diverged").of(task));
    }

    /// A call has left memory.
    pub(crate) fn note_evicted(&self, cause: EvictionCause) {
        if let Some(metrics) = self.metrics.get() {
            metrics.evicted(cause);
        }
    }

    pub(crate) fn note_changed(&self, event: &Event, task: &Task, output: Option<&TaskOutput>) {
        self.count_ended(task);
        if let (Some(metrics), Event::Continue { cause, .. }) = (self.metrics.get(), event) {
            match cause {
                Some(cause) => metrics.woken(*cause),
                None => metrics.resumed(),
            }
        }
        if !self.log.is_on() {
            return;
        }
        let entry = |event| Entry::new(event).of(task);
        let entry = match event {
            Event::Answer { .. } => entry("task.answered"),
            Event::Steer { message, .. } => entry("task.steered").count(message.len() as u64),
            Event::Hold { .. } => entry("task.held"),
            Event::Pause { .. } => entry("task.paused"),
            Event::Resume | Event::Release => entry("task.resumed"),
            Event::Cancel => entry("task.cancelled"),
            Event::Fail { .. } => entry("task.failed"),
            Event::RequestInput { .. } => entry("task.asked"),
            Event::Continue { cause: None, .. } => entry("task.continued"),
            Event::Start { .. } | Event::Deliver { .. } | Event::Evict { .. } | Event::Continue { .. } => return,
            Event::Interrupt { .. } if task.outcome().is_none() => entry("task.interrupted"),
            Event::Finish { .. } | Event::Interrupt { .. } | Event::Abandon { .. } => {
                return self.note_completed(task, output);
            }
        };
        self.log.note(|| entry);
    }

    pub(crate) fn note_completed(&self, task: &Task, output: Option<&TaskOutput>) {
        self.log.note(|| {
            let entry = Entry::new("task.completed").of(task);
            match (task.outcome(), output) {
                (Some(Outcome::Output { .. }), Some(TaskOutput::Tool(output))) => {
                    entry.outcome(outcome_name(output)).result_bytes(bytes(output))
                }
                (Some(Outcome::Output { .. }), _) => entry.outcome("succeeded"),
                (Some(Outcome::Error(error)), _) => entry.outcome("failed").because(&why(error)),
                _ => entry,
            }
        });
    }
}

fn outcome_name(output: &ToolOutput) -> &'static str {
    if output.is_error { "tool_error" } else { "succeeded" }
}

/// Which kind of failure: its text may quote what the guest was given.
fn why(error: &CallError) -> String {
    match error {
        CallError::InvalidParams(_) => "invalid params".to_owned(),
        CallError::NotFound(_) => "not found".to_owned(),
        CallError::MissingCapability(feature) => format!("the client lacks {feature}"),
        CallError::Custom { code, .. } => format!("code {code}"),
        CallError::Fault { kind, .. } => format!("fault: {kind:?}"),
        CallError::Internal { incident } => format!("incident {incident}"),
        CallError::Interrupted => "interrupted".to_owned(),
    }
}

fn bytes(output: &ToolOutput) -> u64 {
    let content = output.content.iter().map(|content| match &content.kind {
        ContentKind::Text(text) => text.len(),
        ContentKind::Image { data, .. } | ContentKind::Audio { data, .. } => data.len(),
        ContentKind::ResourceLink(link) => link.uri.len(),
        ContentKind::Resource(contents) => match &contents.body {
            ResourceBody::Text(text) => text.len(),
            ResourceBody::Blob(data) => data.len(),
        },
    });
    let structured = output.structured.as_ref().map_or(0, |json| json.as_str().len());
    (content.sum::<usize>() + structured) as u64
}
