//! The tools that a requestor may call, and calls of them as tasks, for a page of the host itself that speaks no
//! JSON-RPC.
//!
//! Must not have rules of its own: what is offered, allowed and taken is what `tools/list` and `tools/call` say.
//! Invariant: a tool that is hidden, excluded or not allowed is as absent here as it is there, and a task is made only
//! of arguments that fit.

use std::sync::Arc;

use crate::apps;
use crate::arguments::{self, CallRefusal};
use crate::encoded_message::Ending;
use crate::error::{INVALID_PARAMS, METHOD_NOT_FOUND, RpcError};
use crate::operation::followed_call;
use crate::{Protocol, ProtocolContext, rights};
use bulkhead_calls::ToolEntry;
use bulkhead_domain::Json;
use bulkhead_domain::call::{ClientFeature, ClientFeatures};
use bulkhead_domain::requestor::Requestor;
use bulkhead_domain::rights::{Need, Rights};
use bulkhead_domain::task::{Design, Era, Origin, PluginVersion, Task};
use bulkhead_domain::tool::{TaskSupport, Tool};
use bulkhead_metrics::Answer;
use bulkhead_tasks::{self as tasks, CallRequest, ClientContext, Job, RequestedTtl, TaskRequest};

/// See the module; cheap to clone.
#[derive(Clone)]
pub struct TaskCalls {
    shared: Arc<ProtocolContext>,
}

/// A tool as it is offered to a requestor.
pub struct OfferedTool(Arc<ToolEntry>);

impl OfferedTool {
    pub fn tool(&self) -> &Tool {
        &self.0.tool
    }

    /// The version that a call of it runs.
    pub fn plugin(&self) -> &PluginVersion {
        &self.0.plugin
    }

    /// The URI of the view that is shown for its results.
    pub fn view(&self) -> Option<String> {
        apps::view_of(&self.0.tool)
    }
}

/// Why no task was made.
#[derive(Debug)]
pub enum TaskCallError {
    /// This requestor may call no such tool.
    Absent,
    /// The tool, or the requestor, has no tasks; says which.
    NoTasks(&'static str),
    /// Why the arguments cannot be read.
    Malformed(String),
    /// Why they do not fit the tool.
    Arguments(String),
    Refused(tasks::Error),
}

impl From<CallRefusal> for TaskCallError {
    fn from(refusal: CallRefusal) -> Self {
        match refusal {
            CallRefusal::Error(error) => Self::Malformed(error.message),
            CallRefusal::ToolError(text) => Self::Arguments(text),
        }
    }
}

/// As what a client of MCP would have been answered.
fn how_ended(done: &Result<Arc<Task>, TaskCallError>) -> Ending {
    let answer = match done {
        Ok(_) => Answer::Result,
        Err(TaskCallError::Absent | TaskCallError::Malformed(_)) => Answer::Error(INVALID_PARAMS),
        Err(TaskCallError::NoTasks(_)) => Answer::Error(METHOD_NOT_FOUND),
        Err(TaskCallError::Arguments(_)) => Answer::ToolError,
        Err(TaskCallError::Refused(error)) => {
            let RpcError { code, limit, .. } = error.clone().into();
            return Ending { answer: Answer::Error(code), limit };
        }
    };
    Ending { answer, limit: None }
}

/// What a person in front of a page can be asked for.
fn features() -> ClientFeatures {
    [ClientFeature::ElicitationForm, ClientFeature::ElicitationUrl, ClientFeature::Tasks]
        .into_iter()
        .fold(ClientFeatures::default(), ClientFeatures::with)
}

impl Protocol {
    /// What pages of the host list and call tools with.
    pub fn task_calls(&self) -> TaskCalls {
        TaskCalls { shared: Arc::clone(&self.shared) }
    }
}

impl TaskCalls {
    /// The tools that the requestor may call, in the order of their names. One that searches for tools sees here what
    /// it could find.
    pub fn tools(&self, requestor: &Requestor, rights: &Rights) -> Vec<OfferedTool> {
        let catalog = self.shared.offered(requestor, rights).catalog;
        let has_tasks = rights.has(Need::Tasks);
        let may = |entry: &&Arc<ToolEntry>| rights::may_call(rights, &entry.tool, has_tasks);
        catalog.tools().iter().filter(may).cloned().map(OfferedTool).collect()
    }

    /// One of them.
    pub fn tool(&self, requestor: &Requestor, rights: &Rights, name: &str) -> Option<OfferedTool> {
        let catalog = self.shared.offered(requestor, rights).catalog;
        let entry = catalog.get(name).filter(|entry| rights::may_call(rights, &entry.tool, rights.has(Need::Tasks)))?;
        Some(OfferedTool(Arc::clone(entry)))
    }

    /// The tool that the view of another one means by a name: one of the same plugin.
    pub fn tool_of_view(
        &self,
        requestor: &Requestor,
        rights: &Rights,
        shown: &OfferedTool,
        name: &str,
    ) -> Option<OfferedTool> {
        let catalog = self.shared.offered(requestor, rights).catalog;
        let has_tasks = rights.has(Need::Tasks);
        let may = |tool: &Tool| rights::may_call(rights, tool, has_tasks);
        apps::meant_by_view_of(&catalog, shown.plugin(), name, may).cloned().map(OfferedTool)
    }

    /// The plugins that this requestor's tenant is shown, in the order of their names, in the versions that this
    /// requestor gets. Its rights narrow nothing: they are about tools.
    pub fn plugins(&self, requestor: &Requestor, rights: &Rights) -> Vec<PluginVersion> {
        let catalog = self.shared.tool_lists.narrowed(rights, self.shared.tasks.catalog(requestor)).catalog;
        let of_tools = catalog.tools().iter().map(|tool| &tool.plugin);
        let of_libraries = catalog.libraries().iter().filter(|library| library.offers_anything());
        let mut plugins: Vec<_> = of_tools.chain(of_libraries.map(|library| &library.plugin)).cloned().collect();
        plugins.sort_by(|one, other| one.name.cmp(&other.name));
        plugins.dedup();
        plugins
    }

    /// Calls a tool as a task, which is durable when this returns. `arguments` is the text of a JSON object.
    ///
    /// # Errors
    ///
    /// Nothing was made, for this reason.
    pub async fn call(
        &self,
        requestor: &Requestor,
        rights: &Rights,
        name: &str,
        arguments: &str,
    ) -> Result<Arc<Task>, TaskCallError> {
        let offered = self.tool(requestor, rights, name).map(|OfferedTool(tool)| tool);
        let call = self.begin(requestor, rights, name, offered.clone(), arguments);
        followed_call(&self.shared, requestor, offered.as_ref(), call, how_ended).await
    }

    async fn begin(
        &self,
        requestor: &Requestor,
        rights: &Rights,
        name: &str,
        tool: Option<Arc<ToolEntry>>,
        arguments: &str,
    ) -> Result<Arc<Task>, TaskCallError> {
        let tasks = &self.shared.tasks;
        let Some(tool) = tool else {
            tasks.note_unknown_tool(requestor, name);
            return Err(TaskCallError::Absent);
        };
        if !rights.has(Need::Tasks) {
            return Err(TaskCallError::NoTasks("your token does not allow tasks"));
        }
        if tool.tool.task_support == TaskSupport::Forbidden {
            return Err(TaskCallError::NoTasks("this tool cannot be called as a task"));
        }
        let arguments = Json::new(arguments::object(&tool, Some(arguments)).map_err(CallRefusal::Error)?);
        let features = features();
        let client = ClientContext { features, log_level: None, wants_progress: false };
        let call = CallRequest { tool, arguments, client, related: Vec::new(), may_become_task: false };
        arguments::check(tasks, requestor, &call).await?;
        let origin = Origin {
            era: Era::Legacy,
            design: Design::Core2025,
            session: None,
            features,
            log_level: None,
            progress_token: None,
            trace: None,
        };
        let request = TaskRequest { job: Job::Call(call), origin, ttl: RequestedTtl::Default };
        tasks.create(requestor, request).await.map_err(TaskCallError::Refused)
    }
}
