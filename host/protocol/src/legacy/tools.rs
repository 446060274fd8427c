//! `tools/list`, and `tools/call` up to the point where it is known to be a plain call or a task.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::server_features::reader;
use super::{Request, call, idempotent_call, sep1686_request, server_requests, tasks};
use crate::arguments::{self, ArgumentError, INLINE_BYTES_MAX};
use crate::error::RpcError;
use crate::exchange::{immediate, streaming};
use crate::jsonrpc::{self, ProgressToken};
use crate::sep1686::{self, TaskMetadata};
use crate::session::Session;
use crate::tool_search::{self, Query, ToolIndex, ToolRequest};
use crate::wire::{Bare, OutputView, PageBody, ToolMembers, ToolView, tool_output};
use crate::{Exchange, idempotency, rights, unknown};
use bulkhead_calls::{ListKind, ToolEntry};
use bulkhead_domain::Json;
use bulkhead_domain::call::ClientFeature;
use bulkhead_domain::rights::{Need, Rights};
use bulkhead_domain::task::{Design, Era, Origin};
use bulkhead_domain::tool::{TaskSupport, Tool};
use bulkhead_domain::toolset::SEARCH_TOOLS;
use bulkhead_tasks::{CallRequest, ClientContext, RequestedTtl, Tasks};

/// `tools/list`.
pub(super) fn list(request: &Request<'_>) -> Result<Exchange, RpcError> {
    let reader = reader(request);
    let members = members(request);
    let view = |tool| ToolView { tool, members };
    if request.search.is_some() {
        let entries = reader.host_tools(request.params)?.into_iter().map(view).collect();
        return Ok(listed(request, entries, None));
    }
    let may = Listed::of(request);
    let page = reader.tools(request.params, request.tools_page, |tool| may.shows(tool))?;
    Ok(listed(request, page.entries.iter().map(|entry| view(&entry.tool)).collect(), page.next_cursor))
}

fn listed(request: &Request<'_>, entries: Vec<ToolView<'_>>, next_cursor: Option<String>) -> Exchange {
    request.session.saw(ListKind::Tools, request.catalog.lists());
    immediate(jsonrpc::response(&request.id, &Bare(PageBody { name: "tools", entries, next_cursor })))
}

fn members(request: &Request<'_>) -> ToolMembers {
    let version = request.session.settled.version;
    match version.has_tasks() {
        true => ToolMembers::WithTasks { tasks: request.rights.has(Need::Tasks) },
        false if version.has_structured_output() => ToolMembers::Basic,
        false => ToolMembers::First,
    }
}

/// The tools that the requestor may call. One that runs only as a task cannot be called where there are no tasks.
struct Listed {
    rights: Rights,
    has_tasks: bool,
}

impl Listed {
    fn of(request: &Request<'_>) -> Self {
        let has_tasks = request.session.settled.version.has_tasks() && request.rights.has(Need::Tasks);
        Self { rights: request.rights.clone(), has_tasks }
    }

    fn shows(&self, tool: &Tool) -> bool {
        rights::may_call(&self.rights, tool, self.has_tasks)
    }
}

/// `tools/call` of `search_tools`.
fn search(request: &Request<'_>, index: &Arc<ToolIndex>, query: Query) -> Result<Exchange, RpcError> {
    let in_flight = call::in_flight(request)?;
    let shared = Arc::clone(request.shared);
    let session = Arc::clone(request.session);
    let id = request.id.clone();
    let index = Arc::clone(index);
    let catalog = Arc::clone(&request.catalog);
    let listed = Listed::of(request);
    let members = members(request);
    let may = move |entry: &ToolEntry| catalog.get(&entry.tool.name).is_some() && listed.shows(&entry.tool);
    Ok(streaming(|_| async move {
        let answer = query.answer(&shared.tasks, session.requestor(), index, members, may);
        let answer = tokio::select! {
            biased;
            () = in_flight.cancelled() => return None,
            answer = answer => answer,
        };
        Some(match answer {
            Ok(output) => {
                let output = tool_output(&output, session.settled.version);
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

/// A `tools/call` whose shape was checked; its arguments were, unless they are large.
pub(super) struct Call {
    pub(super) request: CallRequest,
    pub(super) progress_token: Option<Json>,
    pub(super) session: Arc<Session>,
    /// Whether the client reads what is said before the response.
    pub(super) reads_events: bool,
    /// Set for a call or a task that is to be made once.
    pub(super) idempotency_key: Option<String>,
    unchecked: bool,
    /// In what they do not fit the tool's schema.
    argument_error: Option<String>,
}

impl Call {
    /// Where a task that is made of it comes from.
    pub(super) fn origin(&self, design: Design) -> Origin {
        let ClientContext { features, log_level, .. } = self.request.client;
        Origin {
            era: Era::Legacy,
            design,
            session: Some(self.session.digest()),
            features,
            log_level,
            progress_token: self.progress_token.clone(),
            trace: None,
        }
    }

    /// Whether the arguments fit; large ones are checked now, off the threads that serve other requests.
    pub(super) async fn check(&mut self, tasks: &Tasks) -> Result<(), ArgumentError> {
        if let Some(text) = self.argument_error.take() {
            return Err(ArgumentError::Schema(text));
        }
        if !std::mem::take(&mut self.unchecked) {
            return Ok(());
        }
        let CallRequest { tool, arguments, .. } = &self.request;
        arguments::fit_offloaded(tasks, self.session.requestor(), Arc::clone(tool), arguments.clone()).await
    }
}

/// What a call is to become.
enum CallMode {
    Plain,
    /// A task of the core.
    Task(RequestedTtl),
    /// A task of SEP-1686; the request is answered all the same.
    Augmented(TaskMetadata),
}

impl CallMode {
    /// What the client wishes, as far as the session and the tool allow it. A wish that is not understood there is none.
    fn read(params: &CallParams<'_>, session: &Session, tool: &Tool, rights: &Rights) -> Result<Self, RpcError> {
        let core = params.task.filter(|_| session.settled.version.has_tasks());
        // The design wants its metadata ignored where no task comes of it. A tool that runs only as a task cannot ignore it: then the
        // caller hears what it lacks.
        let takes = match tool.task_support {
            TaskSupport::Forbidden => false,
            TaskSupport::Optional => rights.has(Need::Tasks),
            TaskSupport::Required => true,
        };
        let augmented = params.meta.task.filter(|_| takes);
        match (tool.task_support, core, augmented) {
            (TaskSupport::Forbidden, Some(_), _) => {
                Err(RpcError::method_not_found(format!("{} cannot be called as a task", tool.name)))
            }
            (TaskSupport::Required, None, None) => {
                Err(RpcError::method_not_found(format!("{} can only be called as a task", tool.name)))
            }
            (_, Some(_), Some(_)) => Err(RpcError::invalid_params(format!(
                "params.task and params._meta[{:?}] are two ways to ask for a task: use one of them",
                sep1686::TASK
            ))),
            (_, None, Some(wish)) => Ok(Self::Augmented(TaskMetadata::read(wish)?)),
            (_, None, None) => Ok(Self::Plain),
            (_, Some(task), None) => {
                Ok(Self::Task(match jsonrpc::member::<TaskParams>(task.get(), "params.task")?.ttl {
                    None => RequestedTtl::Default,
                    Some(None) => RequestedTtl::Unlimited,
                    Some(Some(ms)) => RequestedTtl::Ms(ms),
                }))
            }
        }
    }

    /// The key that the call is to be made once under.
    fn checked_key(&self, key: Option<String>) -> Result<Option<String>, RpcError> {
        let key = key.map(idempotency::checked).transpose()?;
        match (self, &key) {
            (Self::Augmented(_), Some(_)) => Err(RpcError::invalid_params(
                "the taskId is the idempotency key of such a call: leave params._meta[\"dev.bulkhead/idempotencyKey\"] out",
            )),
            _ => Ok(key),
        }
    }
}

/// `tools/call`.
pub(super) fn call(request: Request<'_>) -> Result<Exchange, RpcError> {
    let mut params: CallParams<'_> = jsonrpc::params(request.params)?;
    let session = request.session;
    let name = std::mem::take(&mut params.name);
    let arguments = params.arguments.map(RawValue::get);
    let asked = match tool_search::resolve(request.search.is_some(), name, arguments) {
        Ok(asked) => asked,
        // Who asked for a task does not expect a result.
        Err(text) if params.task.is_some() => return Err(RpcError::invalid_params(text)),
        Err(text) => return Ok(immediate(call::failure(&request.id, text))),
    };
    let arguments = match (asked, &request.search) {
        (ToolRequest::Search(query), Some(index)) => {
            if params.task.is_some() && session.settled.version.has_tasks() {
                return Err(RpcError::method_not_found(format!("{SEARCH_TOOLS} cannot be called as a task")));
            }
            return search(&request, index, query);
        }
        (ToolRequest::Search(_), None) => return Err(unknown::refusal("tool", SEARCH_TOOLS, std::iter::empty())),
        (ToolRequest::Call { name, arguments, .. }, _) => {
            params.name = name;
            arguments
        }
    };
    let unknown = || {
        request.shared.tasks.note_unknown_tool(session.requestor(), &params.name);
        let may = Listed::of(&request);
        let own = tool_search::suggestions(request.search.is_some(), &params.name);
        let tools = request.catalog.tools().iter().map(|entry| &entry.tool).filter(|tool| may.shows(tool));
        unknown::refusal("tool", &params.name, own.chain(tools.map(|tool| tool.name.as_str())))
    };
    let call = [Need::Tool(&params.name)];
    let both = [Need::Tool(&params.name), Need::Tasks];
    let wants_task = params.task.is_some();
    if !request.rights.has(Need::Tool(&params.name)) {
        // All that it takes is said at once.
        let needs: &[Need<'_>] = if wants_task { &both } else { &call };
        rights::check(&request.rights, needs, unknown)?;
    }
    let tool = request.catalog.get(&params.name).ok_or_else(unknown)?;
    request.target.set_tool(tool);
    let manner = CallMode::read(&params, session, &tool.tool, &request.rights)?;
    if !matches!(manner, CallMode::Plain) {
        let name = &tool.tool.name;
        rights::check(&request.rights, &[Need::Tool(name), Need::Tasks], || {
            RpcError::method_not_found(format!("{name} cannot be called as a task"))
        })?;
    }
    let idempotency_key = manner.checked_key(params.meta.idempotency_key)?;
    let arguments = arguments::object(tool, arguments)?;
    let unchecked = arguments.len() > INLINE_BYTES_MAX;
    let argument_error = match unchecked {
        true => None,
        false => match (arguments::fit(tool, arguments), &manner) {
            (Ok(()), _) => None,
            // The task that the client asked for is made all the same, and fails with this.
            (Err(ArgumentError::Schema(text)), CallMode::Task(_)) => Some(text),
            (Err(ArgumentError::Schema(text)), CallMode::Plain | CallMode::Augmented(_)) => {
                return Ok(immediate(call::failure(&request.id, text)));
            }
            (Err(ArgumentError::Malformed(error)), _) => return Err(error),
        },
    };
    let mut features = match manner {
        // What a task asks can be answered on any stream, as long as it waits.
        CallMode::Task(_) => session.settled.features,
        CallMode::Plain | CallMode::Augmented(_) => server_requests::features(session, request.reads_events),
    };
    if !matches!(manner, CallMode::Plain) {
        features = features.with(ClientFeature::Tasks);
    }
    let client = ClientContext {
        features,
        log_level: Some(session.log_level()),
        wants_progress: params.meta.progress_token.is_some(),
    };
    let mut call = Call {
        request: CallRequest {
            tool: Arc::clone(tool),
            arguments: Json::new(arguments),
            client,
            related: Vec::new(),
            may_become_task: false,
        },
        progress_token: params.meta.progress_token.and_then(|token| token.json()),
        session: Arc::clone(session),
        reads_events: request.reads_events,
        idempotency_key,
        unchecked,
        argument_error,
    };
    match manner {
        CallMode::Plain => match call.idempotency_key.take() {
            Some(key) => idempotent_call::call(request, call, key),
            None => call::plain(request, call),
        },
        CallMode::Task(ttl) => Ok(tasks::create(request, call, ttl)),
        CallMode::Augmented(wish) => sep1686_request::call(request, call, wish),
    }
}
