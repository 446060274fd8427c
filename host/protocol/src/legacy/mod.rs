//! The legacy era: sessions, `initialize`, and tasks as the 2025-11-25 core and SEP-1686 have them.
//!
//! Owns how each method of the era is carried out and what a session may do. Must not know the modern era. Invariant: a request is checked
//! in one order: session, method, rights, room for its answer, params.

mod call;
mod get_stream;
mod idempotent_call;
mod initialize;
mod results;
mod sep1686_immediate;
mod sep1686_request;
mod server_features;
mod server_requests;
mod stream_router;
mod tasks;
mod tools;

use std::sync::Arc;

use serde::Deserialize;

use super::error::RpcError;
use super::exchange::immediate;
use super::jsonrpc::{self, PeerError, RequestId, error_body, error_response};
use super::methods::{Method, Subject, methods};
use super::operation::RequestTarget;
use super::request_context::RequestContext;
use super::sep1686::TaskMetadata;
use super::server_features::Empty;
use super::session::{Negotiated, PendingRequest, Reply, Session, TaskInputRequest};
use super::wire::level;
use super::{Exchange, Frame, Peer, ProtocolContext, Received, Rejection, input_requests, rights};
use bulkhead_calls::Catalog;
use bulkhead_domain::rights::Need;
use bulkhead_domain::task::Era;

pub(super) use get_stream::standalone;
pub(super) use stream_router::StreamRouter;

/// Whether a request is a task of SEP-1686 when its metadata asks for one; elsewhere the metadata is ignored, as SEP-1686 requires of
/// servers that do not support tasks for a request. A handshake has no session yet that could read its task, and requests about tasks are
/// answered out of their records. `tools/call` reads its metadata itself.
fn is_augmentable(method: Method) -> bool {
    !matches!(method.subject(), Subject::Handshake | Subject::Tasks | Subject::Steer | Subject::Pause)
}

/// Whether a session knows a method. Tasks of the core came with 2025-11-25; the methods of SEP-1686 are there in every revision. Steer,
/// pause and resume are an experiment that a client declares.
fn exists_for(method: Method, settled: &Negotiated) -> bool {
    match method.subject() {
        Subject::Steer => settled.interaction.steer,
        Subject::Pause => settled.interaction.pause,
        _ => method != Method::TasksCancel || settled.version.has_tasks(),
    }
}

/// A request in its session.
struct Request<'a> {
    context: RequestContext,
    session: &'a Arc<Session>,
    id: RequestId,
    params: Option<&'a str>,
    /// Whether the client reads what is said before the response.
    reads_events: bool,
    /// What it turns out to be about, for those who count and record.
    target: &'a RequestTarget,
}

/// Takes a request.
pub(super) fn request(
    shared: &Arc<ProtocolContext>,
    peer: &Peer<'_>,
    target: &RequestTarget,
    id: &RequestId,
    name: &str,
    params: Option<&str>,
) -> Received {
    let answer = |id: &RequestId, error: &RpcError| Received::Exchange(immediate(refused(id, error)));
    let method = Method::named(name, Era::Legacy);
    target.set_method(method);
    if method == Some(Method::Initialize) {
        return initialize::initialize(shared, peer, id, params).unwrap_or_else(|error| answer(id, &error));
    }
    let Some(session) = session_of(peer) else {
        return match method {
            // A pipe may be asked whether it is there before its handshake. Over HTTP a request without a session is lost.
            Some(Method::Ping) if peer.connection.is_some() => {
                Received::Exchange(immediate(jsonrpc::response(id, &Empty {})))
            }
            _ => session_required(Some(id)),
        };
    };
    let unknown = || RpcError::method_not_found(format!("Method not found: {}", readable(name)));
    let context = RequestContext::new(shared, peer, session.settled.version.has_tasks());
    let exists = |method: &Method| exists_for(*method, &session.settled) && method.is_offered(&context.catalog);
    let Some(method) = method.filter(exists) else {
        return answer(id, &unknown());
    };
    if let Err(error) = rights::check(&peer.rights, method.needs(), unknown) {
        return answer(id, &error);
    }
    if let Some(full) = peer.full.filter(|_| method.is_answered_at_length(Era::Legacy)) {
        return answer(id, &RpcError::full(full));
    }
    let request = Request { context, session, id: id.clone(), params, reads_events: peer.reads_events, target };
    // The design wants its metadata ignored where no task comes of it, and so it is for requestors that may have none.
    let may_be_a_task = is_augmentable(method) && method != Method::ToolsCall && peer.rights.has(Need::Tasks);
    let metadata = if may_be_a_task { TaskMetadata::of(params) } else { Ok(None) };
    let exchange = metadata.and_then(|metadata| match metadata {
        Some(metadata) => sep1686_request::request(method, name, request, metadata),
        None => dispatch(method, request),
    });
    exchange.map_or_else(|error| answer(id, &error), Received::Exchange)
}

/// The requests that can be tasks of SEP-1686, by what stands before and after the slash of their names.
fn augmentable(catalog: &Catalog) -> serde_json::Value {
    let mut categories = serde_json::Map::new();
    for (name, _) in methods(Era::Legacy).filter(|(_, method)| is_augmentable(*method) && method.is_offered(catalog)) {
        let (category, rest) = name.split_once('/').unwrap_or((name, ""));
        let members = categories.entry(category).or_insert_with(|| serde_json::json!({}));
        if let Some(members) = members.as_object_mut().filter(|_| !rest.is_empty()) {
            members.insert(rest.to_owned(), serde_json::json!({}));
        }
    }
    categories.into()
}

fn dispatch(method: Method, request: Request<'_>) -> Result<Exchange, RpcError> {
    match method {
        Method::Initialize | Method::Ping => Ok(immediate(jsonrpc::response(&request.id, &Empty {}))),
        Method::SetLevel => set_level(&request),
        Method::ToolsList => tools::list(&request),
        Method::ToolsCall => tools::call(request),
        Method::TasksGet => tasks::get(request),
        Method::TasksResult => results::result(request),
        Method::TasksList => tasks::list(request),
        Method::TasksCancel => tasks::cancel(request),
        Method::TasksDelete => tasks::delete(request),
        Method::TasksSteer => tasks::steer(request),
        Method::TasksPause => tasks::pause(request),
        Method::TasksResume => tasks::resume(request),
        Method::ResourcesList => server_features::resources(request),
        Method::ResourcesTemplatesList => server_features::templates(&request),
        Method::ResourcesRead => server_features::read(request),
        Method::ResourcesSubscribe => server_features::subscribe(request),
        Method::ResourcesUnsubscribe => server_features::unsubscribe(&request),
        Method::PromptsList => server_features::prompts(&request),
        Method::PromptsGet => server_features::get_prompt(request),
        Method::Complete => server_features::complete(request),
        Method::Discover | Method::Listen | Method::TasksUpdate => Err(RpcError::method_not_found("Method not found")),
    }
}

/// Takes a notification. What is unknown, malformed or too late is ignored.
pub(super) fn notification(peer: &Peer<'_>, name: &str, params: Option<&str>) -> Received {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Cancelled {
        request_id: RequestId,
    }
    let Some(session) = session_of(peer) else { return session_required(None) };
    match name {
        "notifications/initialized" => session.set_initialized(),
        "notifications/cancelled" => {
            if let Ok(cancelled) = jsonrpc::params::<Cancelled>(params) {
                session.cancel(&cancelled.request_id);
            }
        }
        // Roots are asked for anew each time, progress of our own requests is not followed, client tasks are polled.
        _ => {}
    }
    Received::Accepted
}

/// Takes the response to a request of ours. One that is unknown or late is ignored, as is the response to a task's input request from
/// a client that has no right to tasks.
pub(super) fn response(
    shared: &Arc<ProtocolContext>,
    peer: &Peer<'_>,
    id: &RequestId,
    outcome: Result<&str, &PeerError>,
) -> Received {
    let Some(session) = session_of(peer) else { return session_required(None) };
    let may = |pending: &PendingRequest| pending.input_request.is_none() || peer.rights.has(Need::Tasks);
    if let Some(pending) = session.take_expected(id, may) {
        let reply: Reply = outcome.map(Into::into).map_err(Clone::clone);
        match pending.input_request {
            Some(input_request) if server_requests::client_task(session, &input_request.kind, &reply).is_none() => {
                let shared = Arc::clone(shared);
                let session = Arc::clone(session);
                return Received::Settling(Box::pin(
                    async move { settle(&shared, &session, &input_request, reply).await },
                ));
            }
            // Nobody waits any more: the question will be asked again.
            _ => drop(pending.reply.send(reply)),
        }
    }
    Received::Accepted
}

/// Hands the answer to a task's question on. The first one wins: the engine ignores what comes later.
async fn settle(shared: &ProtocolContext, session: &Session, input_request: &TaskInputRequest, reply: Reply) {
    let answer = input_requests::answer_offloaded(&shared.tasks, session.requestor(), &input_request.kind, reply).await;
    match shared.tasks.answer(session.requestor(), input_request.task, &input_request.issued_key, answer).await {
        Ok(_) => {
            session.forget_input_request(input_request.task, &input_request.issued_key);
            shared.stream_router.answered(input_request.task, &input_request.issued_key);
        }
        // The task is over or gone, or the failure was logged where it happened; the question stays open in that case.
        Err(error) => tracing::debug!(task = %input_request.task, %error, "an answer came to nothing"),
    }
}

fn set_level(request: &Request<'_>) -> Result<Exchange, RpcError> {
    #[derive(Deserialize)]
    struct SetLevel {
        level: String,
    }
    let wanted: SetLevel = jsonrpc::params(request.params)?;
    let level = level(&wanted.level).ok_or_else(|| RpcError::unknown_level("params.level"))?;
    request.session.set_log_level(level);
    Ok(immediate(jsonrpc::response(&request.id, &Empty {})))
}

/// A refusal as a response. Only what a client has to do something about outside of MCP has a status of its own.
fn refused(id: &RequestId, error: &RpcError) -> Frame {
    let rejection = error.rejection.clone().filter(|rejection| matches!(rejection, Rejection::Forbidden { .. }));
    Frame { rejection, ..Frame::from(error_response(Some(id), error)) }
}

/// The session, if it is this requestor's.
fn session_of<'a>(peer: &'a Peer<'_>) -> Option<&'a Arc<Session>> {
    peer.session.as_ref().filter(|session| *session.requestor() == peer.requestor)
}

fn session_required(id: Option<&RequestId>) -> Received {
    let error = RpcError::invalid_request("there is no session: send initialize first");
    Received::Rejected { rejection: Rejection::SessionRequired, body: error_body(id, &error) }
}

/// What a caller sent, cut to a length that can be sent back.
fn readable(text: &str) -> String {
    text.chars().take(128).collect()
}
