//! The modern era (2026-07-28): stateless requests, and tasks as an extension that the host decides about.
//!
//! Owns how each method of the era is carried out and the order in which a request is checked: its `_meta`, what was
//! declared beside it, its revision, its method, its client's capabilities, its params. Invariant: nothing is inferred
//! from an earlier request or from the connection; what a request needs to continue another one it carries itself.

mod bounded_cache;
mod call;
mod call_handle;
mod connection;
mod declared;
mod discover;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod listen;
mod meta;
mod multi_round_trip;
mod params_index;
mod request;
mod result;
mod server_features;
mod server_state;
mod skills;
mod state;
mod task;
mod tasks;
mod tools;

use std::sync::Arc;

use futures::StreamExt as _;
use serde_json::json;

use super::capabilities::INTERACTION_EXTENSION;
use super::error::RpcError;
use super::exchange::immediate;
use super::jsonrpc::{Message, RequestId, error_body};
use super::methods::{Method, Subject};
use super::operation::RequestTarget;
use super::request_context::RequestContext;
use super::version::{MODERN, VERSIONS};
use super::{Exchange, Peer, ProtocolContext, Received, Rejection};
use crate::rights;
use bulkhead_domain::task::Era;
use meta::RequestClient;
use request::{Request, refused};

pub use connection::Connection;
pub(super) use meta::names_a_version;
pub(super) use server_state::State;

/// Refuses a client that did not declare what a method belongs to.
fn check_capabilities(method: Method, client: &RequestClient) -> Result<(), RpcError> {
    let interaction = |what: &str| {
        let required = json!({"extensions": {INTERACTION_EXTENSION: {what: true}}});
        Err(RpcError::missing_capability(&format!("{INTERACTION_EXTENSION} with {what}"), &required))
    };
    match method.subject() {
        Subject::Steer if !client.interaction.steer => interaction("steer"),
        Subject::Pause if !client.interaction.pause => interaction("pause"),
        Subject::Tasks => client.check_tasks(),
        _ => Ok(()),
    }
}

/// Takes a message.
pub(super) fn receive(
    shared: &Arc<ProtocolContext>,
    peer: &Peer<'_>,
    target: &RequestTarget,
    message: Message<'_>,
) -> Received {
    match message {
        Message::Request { id, method, params } => {
            let exchange = request(shared, peer, target, id.clone(), method, params);
            Received::Exchange(exchange.unwrap_or_else(|error| immediate(refused(id, &error))))
        }
        // The only one there is cancels, and only where requests share a connection: see `Connection`.
        Message::Notification { .. } => Received::Accepted,
        Message::Response { id, .. } => {
            let error = RpcError::invalid_request(format!("clients of {MODERN} send requests and notifications only"));
            Received::Rejected { rejection: Rejection::Malformed, body: error_body(Some(id), &error) }
        }
    }
}

fn request(
    shared: &Arc<ProtocolContext>,
    peer: &Peer<'_>,
    target: &RequestTarget,
    id: RequestId,
    name: &str,
    params: Option<&str>,
) -> Result<Exchange, RpcError> {
    let method = Method::named(name, Era::Modern);
    target.set_method(method);
    let meta = meta::read(params)?;
    if let Some(declared) = &peer.declared {
        declared::check(declared, &meta.version, name, method, &meta.members)?;
    }
    if meta.version != MODERN {
        return Err(RpcError::unsupported_version(&VERSIONS, &meta.version));
    }
    let context = RequestContext::new(shared, peer, true);
    let method = method.filter(|method| method.is_offered(&context.catalog));
    let method = method.ok_or_else(|| RpcError::unknown_method(name))?;
    let client = meta.client()?;
    check_capabilities(method, &client)?;
    let in_flight = match &peer.connection {
        Some(connection) => Some(connection.begin(&id)?),
        None => None,
    };
    rights::check(&peer.rights, method.needs(), || RpcError::unknown_method(name))?;
    if let Some(full) = peer.full.filter(|_| method.is_answered_at_length(Era::Modern)) {
        return Err(RpcError::full(full));
    }
    let request = Request {
        context,
        id,
        client,
        declared: peer.declared.as_ref(),
        connection: peer.connection.as_ref(),
        ends: peer.ends.as_ref(),
        params,
        members: meta.members,
        target,
    };
    let exchange = dispatch(method, name, request)?;
    Ok(match in_flight {
        // It ends without a response when the client cancels the request; what is dropped then stops its call.
        Some(in_flight) => exchange.take_until(async move { in_flight.cancelled().await }).boxed(),
        None => exchange,
    })
}

/// Which function carries out which method.
fn dispatch(method: Method, name: &str, request: Request<'_>) -> Result<Exchange, RpcError> {
    match method {
        Method::Discover => Ok(discover::discover(&request)),
        Method::ToolsList => tools::list(&request),
        Method::ToolsCall => call::call(request),
        Method::Listen => listen::listen(request),
        Method::TasksGet => tasks::get(request),
        Method::TasksUpdate => tasks::update(request),
        Method::TasksCancel => tasks::cancel(request),
        Method::TasksSteer => tasks::steer(request),
        Method::TasksPause => tasks::pause(request),
        Method::TasksResume => tasks::resume(request),
        Method::ResourcesList => server_features::resources(request),
        Method::ResourcesTemplatesList => server_features::templates(&request),
        Method::ResourcesRead => server_features::read(request),
        Method::PromptsList => server_features::prompts(&request),
        Method::PromptsGet => server_features::get_prompt(request),
        Method::Complete => server_features::complete(request),
        Method::SkillsList => skills::list(&request),
        Method::SkillsGet => skills::get(&request),
        Method::Initialize
        | Method::Ping
        | Method::SetLevel
        | Method::TasksResult
        | Method::TasksList
        | Method::TasksDelete
        | Method::ResourcesSubscribe
        | Method::ResourcesUnsubscribe => Err(RpcError::unknown_method(name)),
    }
}
