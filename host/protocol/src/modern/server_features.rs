//! Resources, prompts and completions in the modern era.
//!
//! Lists and completions answer at once and ask nobody. `resources/read` and `prompts/get` are conversations as calls of tools are,
//! except that they never become tasks.

use std::sync::Arc;

use serde::ser::SerializeMap;
use serde_json::json;

use super::call::{PluginCall, PluginRequests, RetryParams, RoundTrip};
use super::result::{Complete, Entries};
use super::tools::scope;
use super::{Request, respond};
use crate::Exchange;
use crate::cursor::Paged;
use crate::error::RpcError;
use crate::exchange::{immediate, streaming};
use crate::jsonrpc::{self, response};
use crate::server_features::{self, CatalogReader, Page};
use crate::wire::{Body, CompletionBody, PageBody, PromptView, ResourceView, TemplateView};
use bulkhead_domain::Json;
use bulkhead_runtime::Operation;
use bulkhead_tasks::{self as tasks, PluginRequest};

/// Plugins may be exchanged while the host runs; who wants to know at once listens.
const TTL_MS: u64 = 60_000;

/// A list with how long, and by whom, it may be kept.
struct CacheableList<B> {
    body: B,
    scope: &'static str,
}

impl<B: Body> Entries for CacheableList<B> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.body.write(map)?;
        map.serialize_entry("ttlMs", &TTL_MS)?;
        map.serialize_entry("cacheScope", self.scope)
    }
}

struct Suggestions<'a>(CompletionBody<'a>);

impl Entries for Suggestions<'_> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.0.write(map)
    }
}

fn asker(request: &Request<'_>) -> CatalogReader {
    CatalogReader {
        shared: Arc::clone(request.shared),
        requestor: request.requestor,
        catalog: Arc::clone(&request.catalog),
    }
}

/// `prompts/list`: the same for everybody who gets the same versions, in the order of names.
pub(super) fn prompts(request: &Request<'_>) -> Result<Exchange, RpcError> {
    let Page { entries, next_cursor } = asker(request).prompts(request.params)?;
    let entries = entries.iter().map(|entry| PromptView { prompt: &entry.prompt, icons: true }).collect();
    let list = CacheableList { body: PageBody { name: "prompts", entries, next_cursor }, scope: scope(request) };
    Ok(immediate(response(&request.id, &Complete::new(&request.shared.modern, list))))
}

/// `resources/templates/list`: likewise.
pub(super) fn templates(request: &Request<'_>) -> Result<Exchange, RpcError> {
    let Page { entries, next_cursor } = asker(request).templates(request.params)?;
    let entries = entries.iter().map(|entry| TemplateView { template: &entry.template, icons: true }).collect();
    let list =
        CacheableList { body: PageBody { name: "resourceTemplates", entries, next_cursor }, scope: scope(request) };
    Ok(immediate(response(&request.id, &Complete::new(&request.shared.modern, list))))
}

/// `resources/list`: a plugin may list other resources for other requestors.
pub(super) fn resources(request: Request<'_>) -> Result<Exchange, RpcError> {
    let paged: Paged = jsonrpc::params(request.params)?;
    let (asker, id) = (asker(&request), request.id);
    Ok(streaming(|_| async move {
        let page = asker.resources(&paged).await;
        let page = page.as_ref().map(|Page { entries, next_cursor }| {
            let entries = entries.iter().map(|resource| ResourceView { resource, icons: true }).collect();
            let body = PageBody { name: "resources", entries, next_cursor: next_cursor.clone() };
            Complete::new(&asker.shared.modern, CacheableList { body, scope: "private" })
        });
        Some(match page {
            Ok(result) => respond(&id, Ok(result)),
            Err(error) => super::refused(&id, error),
        })
    }))
}

/// `completion/complete`.
pub(super) fn complete(request: Request<'_>) -> Result<Exchange, RpcError> {
    let wanted = server_features::wanted(&request.catalog, request.params)?;
    let (asker, id) = (asker(&request), request.id);
    Ok(streaming(|_| async move {
        Some(match asker.complete(wanted).await {
            Ok(completion) => {
                let entries = Suggestions(CompletionBody(&completion));
                respond(&id, Ok(Complete::with_meta(&asker.shared.modern, entries, &completion.meta)))
            }
            Err(error) => super::refused(&id, &error),
        })
    }))
}

/// `resources/read`: asks who may have it, one after the other, until one does.
pub(super) fn read(request: Request<'_>) -> Result<Exchange, RpcError> {
    let uri = server_features::uri(request.params)?;
    let readers = request.catalog.readers(&uri);
    if readers.is_empty() {
        return Err(RpcError::modern_resource_not_found(&uri));
    }
    let client = client(&request);
    let operation = Operation::ReadResource { uri: uri.clone() };
    let requests =
        readers.into_iter().map(|library| PluginRequest { library, operation: operation.clone(), client }).collect();
    // Names of tools hold no spaces: a state that was given for one of these opens for no tool.
    let visits = PluginRequests {
        label: "resources/read ".to_owned(),
        arguments: Json::new(json!({"uri": uri}).to_string()),
        requests,
    };
    converse(request, visits)
}

/// `prompts/get`.
pub(super) fn get_prompt(request: Request<'_>) -> Result<Exchange, RpcError> {
    let (entry, arguments) = server_features::prompt(&request.catalog, request.params)?;
    let bound = json!(arguments).to_string();
    let operation = Operation::GetPrompt { prompt: entry.plugin_prompt.clone(), arguments };
    let requests = vec![PluginRequest { library: Arc::clone(&entry.library), operation, client: client(&request) }];
    let visits = PluginRequests {
        label: format!("prompts/get {}", entry.prompt.described.name),
        arguments: Json::new(bound),
        requests,
    };
    converse(request, visits)
}

fn client(request: &Request<'_>) -> tasks::ClientContext {
    tasks::ClientContext {
        features: request.client.features,
        log_level: request.client.log_level,
        wants_progress: request.client.progress_token.is_some(),
    }
}

fn converse(request: Request<'_>, visits: PluginRequests) -> Result<Exchange, RpcError> {
    let RetryParams { fresh, state } = RetryParams::read(&request.members)?;
    let shared = Arc::clone(request.shared);
    let conversation =
        RoundTrip::new(shared, request.requestor, PluginCall::PluginRequests(visits), request.client, fresh);
    let id = request.id;
    Ok(streaming(|frames| async move { Some(conversation.answer(&id, state, &frames).await) }))
}
