//! Resources, prompts and completions in the legacy era.

use std::sync::Arc;

use serde::Deserialize;

use super::call::{StreamedRequest, in_flight};
use super::request::Request;
use super::server_requests;
use crate::cursor::Paged;
use crate::elsewhere;
use crate::error::RpcError;
use crate::exchange::{immediate, streaming};
use crate::jsonrpc::{self, ProgressToken, RequestId, error_response, response};
use crate::methods::Method;
use crate::notifications::ProgressReports;
use crate::request_context::RequestContext;
use crate::server_features::{self, Empty, Page};
use crate::wire::{
    Bare, CompletionBody, ContentsBody, PageBody, PromptBody, PromptView, ResourceView, TemplateView, WithMeta,
    prompt_output,
};
use crate::{EncodedMessage, Exchange};
use bulkhead_calls::{CatalogPlugin, ListKind, Operation, Returned};
use bulkhead_domain::Json;
use bulkhead_domain::call::CallError;
use bulkhead_domain::server_features::{Completion, PromptOutput};
use bulkhead_domain::tool::ResourceContents;
use bulkhead_tasks::{ClientContext, Fallback, FallbackRequest, PluginRequest, of_kind};

/// Resources that one session may follow.
const SUBSCRIPTIONS_MAX: usize = 256;

/// `prompts/list`.
pub(super) fn prompts(request: &Request<'_>) -> Result<Exchange, RpcError> {
    request.session.saw(ListKind::Prompts, request.context.catalog.lists());
    let Page { entries, next_cursor } = request.context.prompts(request.params)?;
    let icons = request.session.settled.version.has_tasks();
    let entries = entries.into_iter().map(|prompt| PromptView { prompt, icons }).collect();
    Ok(immediate(response(&request.id, &Bare(PageBody { name: "prompts", entries, next_cursor }))))
}

/// `resources/templates/list`.
pub(super) fn templates(request: &Request<'_>) -> Result<Exchange, RpcError> {
    let Page { entries, next_cursor } = request.context.templates(request.params)?;
    let icons = request.session.settled.version.has_tasks();
    let entries = entries.into_iter().map(|template| TemplateView { template, icons }).collect();
    Ok(immediate(response(&request.id, &Bare(PageBody { name: "resourceTemplates", entries, next_cursor }))))
}

/// `resources/list`.
pub(super) fn resources(request: Request<'_>) -> Result<Exchange, RpcError> {
    let paged: Paged = jsonrpc::params(request.params)?;
    request.session.saw(ListKind::Resources, request.context.catalog.lists());
    let icons = request.session.settled.version.has_tasks();
    quiet(request, move |context, id| async move {
        let Page { entries, next_cursor } = context.resources(&paged).await?;
        let entries = entries.iter().map(|resource| ResourceView { resource, icons }).collect();
        Ok(response(&id, &Bare(PageBody { name: "resources", entries, next_cursor })))
    })
}

/// `completion/complete`.
pub(super) fn complete(request: Request<'_>) -> Result<Exchange, RpcError> {
    let wanted = server_features::wanted(&request.context.catalog, request.params)?;
    quiet(request, move |context, id| async move {
        let completion: Completion = context.complete(wanted).await?;
        Ok(response(&id, &Bare(WithMeta { body: CompletionBody(&completion), meta: &completion.meta, related: None })))
    })
}

/// `resources/subscribe`. The resource must be there, and who has it is who may say that it changed.
pub(super) fn subscribe(request: Request<'_>) -> Result<Exchange, RpcError> {
    let uri = server_features::uri(request.params)?;
    let session = Arc::clone(request.session);
    quiet(request, move |context, id| async move {
        let owner = context.owner(&uri).await?.ok_or_else(|| RpcError::resource_not_found(&uri))?;
        let is_shared = context.shared.live_sessions.is_some();
        if session.subscribe(&uri, &owner.plugin.name, SUBSCRIPTIONS_MAX, is_shared) {
            if is_shared {
                elsewhere::tell_settled(&context.shared, &session).await;
            }
            Ok(response(&id, &Empty {}))
        } else {
            Err(RpcError::invalid_request(format!("a session may follow {SUBSCRIPTIONS_MAX} resources at most")))
        }
    })
}

/// `resources/unsubscribe`. What is not followed needs no letting go.
pub(super) fn unsubscribe(request: &Request<'_>) -> Result<Exchange, RpcError> {
    let shared = &request.context.shared;
    request.session.unsubscribe(&server_features::uri(request.params)?, shared.live_sessions.is_some());
    Ok(elsewhere::settled(shared, request.session, response(&request.id, &Empty {})))
}

/// A request that waits and sends no messages before its response.
fn quiet<W>(request: Request<'_>, work: impl FnOnce(RequestContext, RequestId) -> W) -> Result<Exchange, RpcError>
where
    W: Future<Output = Result<EncodedMessage, RpcError>> + Send + 'static,
{
    let in_flight = in_flight(&request)?;
    let work = work(request.context, request.id.clone());
    let id = request.id;
    Ok(streaming(|_| async move {
        tokio::select! {
            biased;
            () = in_flight.cancelled() => None,
            done = work => Some(done.unwrap_or_else(|error| error_response(Some(&id), &error))),
        }
    }))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WithProgress {
    #[serde(rename = "_meta")]
    meta: ProgressMeta,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ProgressMeta {
    progress_token: Option<ProgressToken>,
}

/// The token under which progress is wanted.
pub(super) fn progress_token(params: Option<&str>) -> Result<Option<Json>, RpcError> {
    let token = jsonrpc::params::<WithProgress>(params)?.meta.progress_token;
    Ok(token.and_then(|token| token.json()))
}

/// A request to plugins that can be a task.
pub(super) struct TaskableRequest {
    pub(super) fallback_request: FallbackRequest,
    /// That of the resource that it is about.
    pub(super) uri: Option<String>,
}

/// What plugins are asked for by a request; `None`: the host answers it itself.
pub(super) fn taskable(method: Method, request: &Request<'_>) -> Result<Option<TaskableRequest>, RpcError> {
    let catalog = &request.context.catalog;
    let (operation, first, others, uri) = match method {
        Method::ResourcesRead => {
            let uri = server_features::uri(request.params)?;
            let mut readers = catalog.readers(&uri).into_iter();
            let Some(first) = readers.next() else { return Ok(None) };
            (Operation::ReadResource { uri: uri.clone() }, first, readers.collect(), Some(uri))
        }
        Method::PromptsGet => {
            let (entry, arguments) = server_features::prompt(catalog, request.params)?;
            let operation = Operation::GetPrompt { prompt: entry.plugin_prompt.clone(), arguments };
            (operation, Arc::clone(&entry.library), Vec::new(), None)
        }
        Method::Complete => match server_features::wanted(catalog, request.params)?.operation() {
            Some((library, operation)) => (operation, library, Vec::new(), None),
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    Ok(FallbackRequest::new(operation, first, others).map(|fallback_request| TaskableRequest { fallback_request, uri }))
}

/// `resources/read`: asks who may have it, one after the other, until one does.
pub(super) fn read(request: Request<'_>) -> Result<Exchange, RpcError> {
    let uri = server_features::uri(request.params)?;
    let readers = request.context.catalog.readers(&uri);
    let visits = readers.into_iter().map(|library| (library, Operation::ReadResource { uri: uri.clone() })).collect();
    visit(request, visits, move |id, result: Option<Result<Vec<ResourceContents>, CallError>>| match result {
        Some(Ok(contents)) => response(id, &Bare(ContentsBody(&contents))),
        Some(Err(CallError::NotFound(_))) | None => error_response(Some(id), &RpcError::resource_not_found(&uri)),
        Some(Err(error)) => error_response(Some(id), &RpcError::from(&error)),
    })
}

/// `prompts/get`.
pub(super) fn get_prompt(request: Request<'_>) -> Result<Exchange, RpcError> {
    let (entry, arguments) = server_features::prompt(&request.context.catalog, request.params)?;
    request.target.set_prompt(&entry);
    let operation = Operation::GetPrompt { prompt: entry.plugin_prompt.clone(), arguments };
    let visits = vec![(Arc::clone(&entry.library), operation)];
    let version = request.session.settled.version;
    visit(request, visits, move |id, result: Option<Result<PromptOutput, CallError>>| match result {
        Some(Ok(output)) => {
            let output = prompt_output(&output, version);
            response(id, &Bare(WithMeta { body: PromptBody(&output), meta: &output.meta, related: None }))
        }
        Some(Err(error)) => error_response(Some(id), &RpcError::from(&error)),
        None => error_response(Some(id), &RpcError::invalid_params("Unknown prompt")),
    })
}

/// Asks plugins in order, until one does not say that there is no such thing, and talks with the client for it on the
/// way.
fn visit<T>(
    request: Request<'_>,
    visits: Vec<(Arc<CatalogPlugin>, Operation)>,
    render: impl Fn(&RequestId, Option<Result<T, CallError>>) -> EncodedMessage + Send + 'static,
) -> Result<Exchange, RpcError>
where
    T: TryFrom<Returned> + Send + 'static,
{
    let in_flight = in_flight(&request)?;
    let token = progress_token(request.params)?;
    let shared = request.context.shared;
    let session = Arc::clone(request.session);
    let id = request.id;
    let reads_events = request.reads_events;
    let client = ClientContext {
        features: server_requests::features(&session, reads_events),
        log_level: Some(session.log_level()),
        wants_progress: token.is_some(),
    };
    Ok(streaming(|frames| async move {
        let streamed = StreamedRequest { shared, session, frames, reads_events };
        let mut progress = ProgressReports::new(token, None);
        let mut last = None;
        let mut fallback = Fallback::default();
        // Kept until the result is rendered, as that of a call of a tool.
        let mut permit = None;
        for (library, operation) in visits {
            let request = PluginRequest { library, operation, client };
            let started = tokio::select! {
                biased;
                () = in_flight.cancelled() => return None,
                started = streamed.shared.tasks.request(streamed.session.requestor(), request) => started,
            };
            let call = match started {
                Ok(call) => call,
                Err(error) => return Some(error_response(Some(&id), &error.into())),
            };
            let (result, call) = streamed.converse(call, &mut progress, &in_flight).await?;
            let result = result.and_then(of_kind);
            let falls_back = result.as_ref().is_err_and(|error| fallback.tries_next(error));
            last = Some(result);
            permit = (!falls_back).then_some(call);
            if !falls_back {
                break;
            }
        }
        let last = last.map(|result| result.map_err(|error| fallback.conclude(error)));
        let response = render(&id, last);
        drop(permit);
        Some(response)
    }))
}
