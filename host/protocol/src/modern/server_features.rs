//! Resources, prompts and completions in the modern era.
//!
//! Lists and completions answer at once and ask nobody. `resources/read` and `prompts/get` are conversations as calls
//! of tools are, except that they never become tasks.

use std::sync::Arc;

use serde_json::json;

use super::call::{PluginCall, PluginRequests, RetryParams, RoundTrip};
use super::request::{Request, refused};
use super::result::{Cacheable, Complete};
use super::tools::scope;
use crate::cursor::Paged;
use crate::error::RpcError;
use crate::exchange::{deferred, immediate, streaming};
use crate::jsonrpc::{self, RequestId, response};
use crate::request_context::RequestContext;
use crate::server_features::{self, Page};
use crate::wire::{CompletionBody, PageBody, PromptView, ResourceView, TemplateView};
use crate::{EncodedMessage, Exchange, Frame};
use bulkhead_calls::Operation;
use bulkhead_domain::Json;
use bulkhead_tasks::PluginRequest;

/// `prompts/list`: the same for everybody who gets the same versions, in the order of names.
pub(super) fn prompts(request: &Request<'_>) -> Result<Exchange, RpcError> {
    let Page { entries, next_cursor } = request.context.prompts(request.params)?;
    let entries = entries.into_iter().map(|prompt| PromptView { prompt, icons: true }).collect();
    let list = Cacheable { body: PageBody { name: "prompts", entries, next_cursor }, scope: scope(request) };
    Ok(immediate(response(&request.id, &Complete::new(&request.context.shared.modern, list))))
}

/// `resources/templates/list`: likewise.
pub(super) fn templates(request: &Request<'_>) -> Result<Exchange, RpcError> {
    let Page { entries, next_cursor } = request.context.templates(request.params)?;
    let entries = entries.into_iter().map(|template| TemplateView { template, icons: true }).collect();
    let list = Cacheable { body: PageBody { name: "resourceTemplates", entries, next_cursor }, scope: scope(request) };
    Ok(immediate(response(&request.id, &Complete::new(&request.context.shared.modern, list))))
}

/// `resources/list`: a plugin may list other resources for other requestors.
pub(super) fn resources(request: Request<'_>) -> Result<Exchange, RpcError> {
    let paged: Paged = jsonrpc::params(request.params)?;
    Ok(quiet(request, move |context, id| async move {
        let Page { entries, next_cursor } = context.resources(&paged).await?;
        let entries = entries.iter().map(|resource| ResourceView { resource, icons: true }).collect();
        let list = Cacheable { body: PageBody { name: "resources", entries, next_cursor }, scope: "private" };
        Ok(response(&id, &Complete::new(&context.shared.modern, list)))
    }))
}

/// `completion/complete`.
pub(super) fn complete(request: Request<'_>) -> Result<Exchange, RpcError> {
    let wanted = server_features::wanted(&request.context.catalog, request.params)?;
    Ok(quiet(request, move |context, id| async move {
        let completion = context.complete(wanted).await?;
        let state = &context.shared.modern;
        Ok(response(&id, &Complete::with_meta(state, CompletionBody(&completion), &completion.meta)))
    }))
}

/// A request that takes some waiting and says nothing on the way.
fn quiet<W>(request: Request<'_>, work: impl FnOnce(RequestContext, RequestId) -> W) -> Exchange
where
    W: Future<Output = Result<EncodedMessage, RpcError>> + Send + 'static,
{
    let work = work(request.context, request.id.clone());
    let id = request.id;
    deferred(async move { work.await.map_or_else(|error| refused(&id, &error), Frame::from) })
}

/// `resources/read`: asks who may have it, one after the other, until one does.
pub(super) fn read(request: Request<'_>) -> Result<Exchange, RpcError> {
    let uri = server_features::uri(request.params)?;
    let readers = request.context.catalog.readers(&uri);
    if readers.is_empty() {
        return Err(RpcError::modern_resource_not_found(&uri));
    }
    let client = request.client.to_context();
    let operation = Operation::ReadResource { uri: uri.clone() };
    let requests =
        readers.into_iter().map(|library| PluginRequest { library, operation: operation.clone(), client }).collect();
    // Names of tools hold no spaces: a state that was given for one of these opens for no tool.
    let plugin_requests = PluginRequests {
        label: "resources/read ".to_owned(),
        arguments: Json::new(json!({"uri": uri}).to_string()),
        requests,
    };
    round_trip(request, plugin_requests)
}

/// `prompts/get`.
pub(super) fn get_prompt(request: Request<'_>) -> Result<Exchange, RpcError> {
    let (entry, arguments) = server_features::prompt(&request.context.catalog, request.params)?;
    request.target.set_prompt(&entry);
    let bound = json!(arguments).to_string();
    let operation = Operation::GetPrompt { prompt: entry.plugin_prompt.clone(), arguments };
    let requests =
        vec![PluginRequest { library: Arc::clone(&entry.library), operation, client: request.client.to_context() }];
    let plugin_requests = PluginRequests {
        label: format!("prompts/get {}", entry.prompt.described.name),
        arguments: Json::new(bound),
        requests,
    };
    round_trip(request, plugin_requests)
}

fn round_trip(request: Request<'_>, plugin_requests: PluginRequests) -> Result<Exchange, RpcError> {
    let RetryParams { fresh, state } = RetryParams::read(&request.members)?;
    let round_trip =
        RoundTrip::new(&request.context, PluginCall::PluginRequests(plugin_requests), request.client, fresh);
    let id = request.id;
    Ok(streaming(|frames| async move { Some(round_trip.answer(&id, state, &frames).await) }))
}
