//! What a task is made of, and the visits to plugins that its run makes.
//!
//! Owns the form in which a request to a plugin lies beside its record, so that a run after a restart knows what was
//! wanted. Must not run anything. Invariants: what was stored reads back as the same request, for no plugin that its
//! requestor could not reach when it was made; two requests are the same if their stored forms are, whichever plugins
//! could be asked.
//!
//! A task is not always the call of a tool: SEP-1686 is for every request. A read, a prompt or a completion runs like a
//! call, and is asked of one plugin after the other where several may have it. What the host answers itself is recorded
//! as a task that is over. To clients of the tasks extension, where tasks are calls of tools, such a task is absent.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::parts::audit_events::RefusalAudit;
use crate::parts::request::CallRequest;
use bulkhead_audit::Audit;
use bulkhead_calls::{CatalogPlugin, JournalPolicy, Operation, ToolEntry};
use bulkhead_domain::Json;
use bulkhead_domain::call::CallError;
use bulkhead_domain::limits::CallLimits;
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::server_features::{PartialArgument, Reference};
use bulkhead_domain::task::{Origin, PluginVersion, TaskId, TaskOutput, Work};
use bulkhead_domain::tool::ToolOutput;
use bulkhead_metrics::ActivityCounts;

const ANSWERED: &Work = &Work::Answered;

/// How long a client would like its task to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedTtl {
    Default,
    Ms(u64),
    Unlimited,
    /// So many milliseconds after its end; `None`: as long as the host likes.
    AfterEnd(Option<u64>),
}

/// A task to be made.
#[derive(Clone, Debug)]
pub struct TaskRequest {
    pub job: Job,
    pub origin: Origin,
    pub ttl: RequestedTtl,
}

/// What a task is to do.
#[derive(Clone, Debug)]
pub enum Job {
    Call(CallRequest),
    /// A call that came to this before it began, such as one whose arguments do not fit: the task is over from the
    /// start.
    Refused(CallRequest, ToolOutput),
    /// Another request to plugins.
    FallbackRequest(FallbackRequest),
    /// A request that the host itself has answered: the task is over from the start. Both texts are the caller's own.
    Answered {
        request: Json,
        answer: Json,
    },
}

/// A request to plugins that is no call of a tool: asked one after the other, until one does not say that it has no
/// such thing.
#[derive(Clone, Debug)]
pub struct FallbackRequest {
    work: Work,
    operation: Operation,
    request: Json,
    stored: Json,
    first: Arc<CatalogPlugin>,
    others: Vec<Arc<CatalogPlugin>>,
}

impl FallbackRequest {
    /// `None` for operations that no task does: calls of tools are another kind of job, and pages of lists are put
    /// together by the host.
    pub fn new(operation: Operation, first: Arc<CatalogPlugin>, others: Vec<Arc<CatalogPlugin>>) -> Option<Self> {
        let (work, stored) = Stored::of(&operation, &first.plugin.name)?;
        let request = stored.json()?;
        let names = others.iter().map(|other| other.plugin.name.clone()).collect();
        let stored = stored.asked_of(names).json()?;
        Some(Self { work, operation, request, stored, first, others })
    }
}

/// One visit to a plugin.
pub(crate) struct Attempt {
    pub(crate) plugin: PluginVersion,
    pub(crate) operation: Operation,
    pub(crate) limits: CallLimits,
    /// How it keeps a journal, if it may.
    pub(crate) journal: Option<JournalPolicy>,
}

impl Job {
    /// What the record says of it.
    pub fn work(&self) -> Work {
        match self {
            Self::Call(call) | Self::Refused(call, _) => Work::Tool(call.tool.tool.name.clone()),
            Self::FallbackRequest(ask) => ask.work.clone(),
            Self::Answered { .. } => Work::Answered,
        }
    }

    /// Where its calls are counted by tool; of what the host answers itself nothing is.
    pub(crate) fn activity(&self) -> Option<&Arc<ActivityCounts>> {
        match self {
            Self::Call(call) | Self::Refused(call, _) => Some(&call.tool.activity),
            Self::FallbackRequest(ask) => Some(&ask.first.activity),
            Self::Answered { .. } => None,
        }
    }

    /// As the audit log hears of it, before anything is made of it.
    pub(crate) fn refusal_audit(&self, audit: &Audit, requestor: &Requestor) -> RefusalAudit {
        let label = match self {
            Self::Call(call) | Self::Refused(call, _) => &call.tool.tool.name,
            Self::FallbackRequest(ask) => ask.work.label(),
            Self::Answered { .. } => ANSWERED.label(),
        };
        RefusalAudit::new(audit, requestor, label, self.first().map(|(plugin, _)| plugin))
    }

    /// What is stored beside the record.
    pub(crate) fn stored(&self) -> &Json {
        match self {
            Self::FallbackRequest(ask) => &ask.stored,
            Self::Call(_) | Self::Refused(..) | Self::Answered { .. } => self.request(),
        }
    }

    /// What tells it from another job of the same work.
    pub fn request(&self) -> &Json {
        match self {
            Self::Call(call) | Self::Refused(call, _) => &call.arguments,
            Self::FallbackRequest(ask) => &ask.request,
            Self::Answered { request, .. } => request,
        }
    }

    /// The plugin that runs first, and the most that it may give back, in bytes.
    pub(crate) fn first(&self) -> Option<(&PluginVersion, u64)> {
        match self {
            Self::Call(call) | Self::Refused(call, _) => Some((&call.tool.plugin, call.tool.limits.result_bytes)),
            Self::FallbackRequest(ask) => Some((&ask.first.plugin, ask.first.limits.result_bytes)),
            Self::Answered { .. } => None,
        }
    }

    /// What it came to already.
    pub(crate) fn output(&self) -> Option<TaskOutput> {
        match self {
            Self::Call(_) | Self::FallbackRequest(_) => None,
            Self::Refused(_, output) => Some(TaskOutput::Tool(output.clone())),
            Self::Answered { answer, .. } => Some(TaskOutput::Answer(answer.clone())),
        }
    }

    /// The tool that it runs.
    pub(crate) fn tool(&self) -> Option<&ToolEntry> {
        match self {
            Self::Call(call) => Some(&call.tool),
            Self::Refused(..) | Self::FallbackRequest(_) | Self::Answered { .. } => None,
        }
    }

    pub(crate) fn related(&self) -> &[TaskId] {
        match self {
            Self::Call(call) | Self::Refused(call, _) => &call.related,
            Self::FallbackRequest(_) | Self::Answered { .. } => &[],
        }
    }

    /// What a run of it does; nothing, where the task is over from the start.
    pub(crate) fn visits(self) -> Vec<Attempt> {
        match self {
            Self::Call(call) => {
                let plugin = call.tool.plugin.clone();
                let limits = call.tool.limits.clone();
                let operation = Operation::CallTool { tool: call.tool.plugin_tool.clone(), arguments: call.arguments };
                vec![Attempt { plugin, operation, limits, journal: call.tool.journal.clone() }]
            }
            Self::FallbackRequest(FallbackRequest { operation, first, others, .. }) => {
                visits(&operation, first, others)
            }
            Self::Refused(..) | Self::Answered { .. } => Vec::new(),
        }
    }
}

/// The same operation on each plugin.
pub(crate) fn visits(
    operation: &Operation,
    first: Arc<CatalogPlugin>,
    others: Vec<Arc<CatalogPlugin>>,
) -> Vec<Attempt> {
    let libraries = std::iter::once(first).chain(others);
    libraries
        .map(|library| Attempt {
            plugin: library.plugin.clone(),
            operation: operation.clone(),
            limits: library.limits.clone(),
            journal: None,
        })
        .collect()
}

/// What was wanted, out of what was stored, and the plugins that could be asked beside the first one.
pub(crate) fn operation(stored: &Json) -> Option<(Operation, Vec<String>)> {
    serde_json::from_str::<Stored>(stored.as_str()).ok().map(Stored::operation)
}

/// [`Job::request`] of a task, out of what was stored.
pub(crate) fn request(work: &Work, stored: Json) -> Json {
    let read = match work {
        Work::Resource => serde_json::from_str::<Stored>(stored.as_str()).ok(),
        Work::Tool(_) | Work::Prompt | Work::Completion | Work::Answered => None,
    };
    read.and_then(|read| read.asked_of(Vec::new()).json()).unwrap_or(stored)
}

/// A request to plugins as it is stored. Names of prompts and templates are the plugin's own, so the plugin is named
/// with them.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stored {
    ReadResource {
        uri: String,
        /// Names of plugins.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        others: Vec<String>,
    },
    GetPrompt {
        plugin: String,
        prompt: String,
        arguments: Vec<(String, String)>,
    },
    Complete {
        plugin: String,
        of: StoredReference,
        name: String,
        value: String,
        context: Vec<(String, String)>,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredReference {
    Prompt(String),
    Template(String),
}

impl Stored {
    fn of(operation: &Operation, plugin: &str) -> Option<(Work, Self)> {
        let plugin = plugin.to_owned();
        Some(match operation.clone() {
            Operation::ReadResource { uri } => (Work::Resource, Self::ReadResource { uri, others: Vec::new() }),
            Operation::GetPrompt { prompt, arguments } => (Work::Prompt, Self::GetPrompt { plugin, prompt, arguments }),
            Operation::Complete { reference, argument: PartialArgument { name, value, context } } => {
                let of = match reference {
                    Reference::Prompt(prompt) => StoredReference::Prompt(prompt),
                    Reference::Template(template) => StoredReference::Template(template),
                };
                (Work::Completion, Self::Complete { plugin, of, name, value, context })
            }
            Operation::CallTool { .. } | Operation::ListResources { .. } => return None,
        })
    }

    /// The same with those who could be asked beside the first one. A resource is looked for; everything else belongs
    /// to one plugin.
    fn asked_of(self, others: Vec<String>) -> Self {
        match self {
            Self::ReadResource { uri, .. } => Self::ReadResource { uri, others },
            other => other,
        }
    }

    fn json(&self) -> Option<Json> {
        serde_json::to_string(self).ok().map(Json::new)
    }

    fn operation(self) -> (Operation, Vec<String>) {
        match self {
            Self::ReadResource { uri, others } => (Operation::ReadResource { uri }, others),
            Self::GetPrompt { prompt, arguments, .. } => (Operation::GetPrompt { prompt, arguments }, Vec::new()),
            Self::Complete { of, name, value, context, .. } => {
                let reference = match of {
                    StoredReference::Prompt(prompt) => Reference::Prompt(prompt),
                    StoredReference::Template(template) => Reference::Template(template),
                };
                let argument = PartialArgument { name, value, context };
                (Operation::Complete { reference, argument }, Vec::new())
            }
        }
    }
}

/// What is known when one plugin after the other did not have something. One that breaks hides no other one's.
#[derive(Debug, Default)]
pub struct Fallback {
    /// The first one that broke: it may have had it.
    pub broke: Option<CallError>,
}

impl Fallback {
    /// Whether another plugin is to be asked after this answer.
    pub fn tries_next(&mut self, error: &CallError) -> bool {
        match error {
            CallError::NotFound(_) => true,
            CallError::Fault { .. } | CallError::Internal { .. } => {
                self.broke.get_or_insert_with(|| error.clone());
                true
            }
            _ => false,
        }
    }

    /// What it comes to when nobody is left: the error of the last one, unless one broke before.
    pub fn conclude(self, last: CallError) -> CallError {
        self.broke.unwrap_or(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_task_request_round_trips() {
        let pairs = vec![("a".to_owned(), "1".to_owned())];
        let argument = PartialArgument { name: "n".to_owned(), value: "v".to_owned(), context: pairs.clone() };
        let operations = [
            Operation::ReadResource { uri: "a://1".to_owned() },
            Operation::GetPrompt { prompt: "p".to_owned(), arguments: pairs },
            Operation::Complete { reference: Reference::Prompt("p".to_owned()), argument: argument.clone() },
            Operation::Complete { reference: Reference::Template("a://{n}".to_owned()), argument },
        ];
        let mut texts = Vec::new();
        for wanted in operations {
            let (_, stored) = Stored::of(&wanted, "plugin").unwrap();
            let text = serde_json::to_string(&stored).unwrap();
            let read = operation(&Json::new(text.clone())).unwrap();
            assert_eq!(format!("{read:?}"), format!("{:?}", (wanted, [""; 0])));
            assert!(!texts.contains(&text));
            texts.push(text);
        }
        assert!(operation(&Json::new(r#"{"call_tool":{}}"#)).is_none());
        assert!(Stored::of(&Operation::ListResources { cursor: None }, "plugin").is_none());
    }

    #[test]
    fn stored_read_keeps_its_plugins_outside_request_identity() {
        let (work, stored) = Stored::of(&Operation::ReadResource { uri: "a://1".to_owned() }, "plugin").unwrap();
        let alone = stored.json().unwrap();
        let several = stored.asked_of(vec!["second".to_owned()]).json().unwrap();
        assert_eq!(operation(&several).unwrap().1, ["second"]);
        for stored in [&several, &alone] {
            assert_eq!(request(&work, stored.clone()), alone);
        }
        assert_eq!(
            request(&Work::Tool("t".to_owned()), several.clone()),
            several,
            "the arguments of a call are its own"
        );
    }
}
