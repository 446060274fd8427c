//! `tools/list`, and `tools/call` up to the point where it is known to be a plain call or a task.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::request::Request;
use super::tool_call::Call;
use super::{call, idempotent_call, sep1686_request, server_requests, tasks};
use crate::arguments::CallRefusal;
use crate::checked_call::{self, CallMode, CheckedCall, EraCall};
use crate::error::RpcError;
use crate::exchange::{immediate, streaming};
use crate::jsonrpc::{self, ProgressToken};
use crate::sep1686::{self, TaskMetadata};
use crate::server_features::Page;
use crate::session::Session;
use crate::tool_search::{Query, ToolIndex, ToolRequest};
use crate::wire::{Bare, OutputView, PageBody, ToolMembers, ToolView, tool_output};
use crate::{Exchange, idempotency};
use bulkhead_calls::ListKind;
use bulkhead_domain::call::ClientFeature;
use bulkhead_domain::rights::Need;
use bulkhead_domain::tool::{TaskSupport, Tool};
use bulkhead_tasks::{ClientContext, RequestedTtl};

/// `tools/list`.
pub(super) fn list(request: &Request<'_>) -> Result<Exchange, RpcError> {
    let Page { entries, next_cursor } = request.context.tools(request.params)?;
    let members = members(request);
    let entries = entries.into_iter().map(|tool| ToolView { tool, members }).collect();
    request.session.saw(ListKind::Tools, request.context.catalog.lists());
    Ok(immediate(jsonrpc::response(&request.id, &Bare(PageBody { name: "tools", entries, next_cursor }))))
}

fn members(request: &Request<'_>) -> ToolMembers {
    let version = request.session.settled.version;
    match version.has_tasks() {
        true => ToolMembers::WithTasks { tasks: request.context.has_tasks },
        false if version.has_structured_output() => ToolMembers::Basic,
        false => ToolMembers::First,
    }
}

/// `tools/call` of `search_tools`.
fn search(request: Request<'_>, index: Arc<ToolIndex>, query: Query) -> Result<Exchange, RpcError> {
    let in_flight = call::in_flight(&request)?;
    let version = request.session.settled.version;
    let members = members(&request);
    let context = request.context;
    let id = request.id;
    Ok(streaming(|_| async move {
        let answer = tokio::select! {
            biased;
            () = in_flight.cancelled() => return None,
            answer = query.answer(context, index, members) => answer,
        };
        Some(match answer {
            Ok(output) => {
                let output = tool_output(&output, version);
                jsonrpc::response(&id, &OutputView { output: &output, related: None }).of_tool(output.is_error)
            }
            Err(error) => jsonrpc::error_response(Some(&id), &error),
        })
    }))
}

#[derive(Deserialize)]
struct CallParams<'a> {
    name: String,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    task: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta", default)]
    meta: CallMeta<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallMeta<'a> {
    progress_token: Option<ProgressToken>,
    /// See [`sep1686::TASK`].
    #[serde(borrow, rename = "modelcontextprotocol.io/task")]
    task: Option<&'a RawValue>,
    #[serde(rename = "dev.bulkhead/idempotencyKey")]
    idempotency_key: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TaskParams {
    #[serde(deserialize_with = "some")]
    ttl: Option<Option<u64>>,
}

/// Keeps `null` (for ever) apart from an absent member (the default).
fn some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// What a session says of its call.
struct SessionCall<'a> {
    session: &'a Session,
    /// Whether the requestor has the right to tasks; a revision may have none of the core.
    may_have_tasks: bool,
    reads_events: bool,
    /// `params.task`.
    task: Option<&'a RawValue>,
    /// The metadata of SEP-1686.
    augmented: Option<&'a RawValue>,
    wants_progress: bool,
}

impl EraCall for SessionCall<'_> {
    fn requests_task(&self, _: Option<&Tool>) -> bool {
        self.task.is_some()
    }

    /// A wish that is not understood in this revision is none.
    fn mode(&self, tool: &Tool) -> Result<CallMode, RpcError> {
        let core = self.task.filter(|_| self.session.settled.version.has_tasks());
        // The design wants its metadata ignored where no task comes of it. A tool that runs only as a task cannot
        // ignore it: then the caller hears what it lacks.
        let takes = match tool.task_support {
            TaskSupport::Forbidden => false,
            TaskSupport::Optional => self.may_have_tasks,
            TaskSupport::Required => true,
        };
        match (tool.task_support, core, self.augmented.filter(|_| takes)) {
            (TaskSupport::Forbidden, Some(_), _) => Err(self.no_task(&tool.name)),
            (TaskSupport::Required, None, None) => {
                Err(RpcError::method_not_found(format!("{} can only be called as a task", tool.name)))
            }
            (_, Some(_), Some(_)) => Err(RpcError::invalid_params(format!(
                "params.task and params._meta[{:?}] are two ways to ask for a task: use one of them",
                sep1686::TASK
            ))),
            (_, None, Some(metadata)) => Ok(CallMode::Augmented(TaskMetadata::read(metadata)?)),
            (_, None, None) => Ok(CallMode::Plain { may_become_task: false }),
            (_, Some(task), None) => {
                Ok(CallMode::Task(match jsonrpc::member::<TaskParams>(task.get(), "params.task")?.ttl {
                    None => RequestedTtl::Default,
                    Some(None) => RequestedTtl::Unlimited,
                    Some(Some(ms)) => RequestedTtl::Ms(ms),
                }))
            }
        }
    }

    fn no_task(&self, name: &str) -> RpcError {
        RpcError::method_not_found(format!("{name} cannot be called as a task"))
    }

    fn client(&self, mode: &CallMode) -> ClientContext {
        let on_stream = || server_requests::features(self.session, self.reads_events);
        let features = match mode {
            CallMode::Plain { .. } => on_stream(),
            CallMode::Augmented(_) => on_stream().with(ClientFeature::Tasks),
            // What a task asks can be answered on any stream, as long as it waits.
            CallMode::Task(_) => self.session.settled.features.with(ClientFeature::Tasks),
        };
        ClientContext { features, log_level: Some(self.session.log_level()), wants_progress: self.wants_progress }
    }
}

/// The key that a call of this mode is to be made once under.
fn checked_key(mode: &CallMode, key: Option<String>) -> Result<Option<String>, RpcError> {
    let key = key.map(idempotency::checked).transpose()?;
    match (mode, &key) {
        (CallMode::Augmented(_), Some(_)) => Err(RpcError::invalid_params(
            "the taskId is the idempotency key of such a call: leave params._meta[\"dev.bulkhead/idempotencyKey\"] out",
        )),
        _ => Ok(key),
    }
}

/// `tools/call`.
pub(super) fn call(request: Request<'_>) -> Result<Exchange, RpcError> {
    let CallParams { name, arguments, task, meta } = jsonrpc::params(request.params)?;
    let context = &request.context;
    let era = SessionCall {
        session: request.session,
        may_have_tasks: context.rights.has(Need::Tasks),
        reads_events: request.reads_events,
        task,
        augmented: meta.task,
        wants_progress: meta.progress_token.is_some(),
    };
    let (name, arguments) = match checked_call::named(context, &era, name, arguments.map(RawValue::get)) {
        Ok(ToolRequest::Call { name, arguments, .. }) => (name, arguments),
        Ok(ToolRequest::Search { index, query }) => return search(request, index, query),
        Err(CallRefusal::ToolError(text)) => return Ok(immediate(call::failure(&request.id, text))),
        Err(CallRefusal::Error(error)) => return Err(error),
    };
    let tool = context.tool(&name)?;
    request.target.set_tool(tool);
    let checked = CheckedCall::new(context, &era, tool, arguments)?;
    let mut call = Call {
        idempotency_key: checked_key(&checked.mode, meta.idempotency_key)?,
        request: checked.request,
        progress_token: meta.progress_token.and_then(|token| token.json()),
        session: Arc::clone(request.session),
        reads_events: request.reads_events,
    };
    match checked.mode {
        CallMode::Plain { .. } => match call.idempotency_key.take() {
            Some(key) => idempotent_call::call(request, call, key),
            None => call::plain(request, call),
        },
        CallMode::Task(ttl) => Ok(tasks::create(request, call, ttl)),
        CallMode::Augmented(metadata) => sep1686_request::call(request, call, metadata),
    }
}
