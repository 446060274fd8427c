//! The legacy era: sessions, `initialize`, and tasks as the 2025-11-25 core and SEP-1686 have them.
//!
//! Owns how each method of the era is carried out and what a session may do. Must not know the modern era. Invariant: a
//! request is checked in one order: session, method, rights, room for its answer, params.

mod call;
mod dispatch;
mod get_stream;
mod idempotent_call;
mod initialize;
mod request;
mod results;
mod sep1686_immediate;
mod sep1686_request;
mod server_features;
mod server_requests;
mod skills;
mod stream_router;
mod tasks;
mod tool_call;
mod tools;

use std::sync::Arc;

use serde::Deserialize;

use super::elsewhere;
use super::error::RpcError;
use super::exchange::immediate;
use super::jsonrpc::{self, PeerError, RequestId, error_body, error_response};
use super::methods::{Method, Subject};
use super::operation::RequestTarget;
use super::request_context::RequestContext;
use super::sep1686::TaskMetadata;
use super::server_features::Empty;
use super::session::{Negotiated, PendingRequest, Reply, Session};
use super::{Frame, Peer, ProtocolContext, Received, Rejection, rights};
use bulkhead_domain::rights::Need;
use bulkhead_domain::task::Era;
use dispatch::dispatch;
use request::Request;

pub(super) use get_stream::standalone;
pub(super) use stream_router::StreamRouter;

/// Whether a session knows a method. Tasks of the core came with 2025-11-25; the methods of SEP-1686 are there in every
/// revision. Steer, pause and resume are an experiment that a client declares.
fn exists_for(method: Method, settled: &Negotiated) -> bool {
    match method.subject() {
        Subject::Steer => settled.interaction.steer,
        Subject::Pause => settled.interaction.pause,
        _ => method != Method::TasksCancel || settled.version.has_tasks(),
    }
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
            // A pipe may be asked whether it is there before its handshake. Over HTTP a request without a session is
            // lost.
            Some(Method::Ping) if peer.connection.is_some() => {
                Received::Exchange(immediate(jsonrpc::response(id, &Empty {})))
            }
            _ => session_required(Some(id)),
        };
    };
    // What a caller sent is cut to a length that can be sent back.
    let shown: String = name.chars().take(128).collect();
    let unknown = || RpcError::method_not_found(format!("Method not found: {shown}"));
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
    let may_be_a_task = method.is_augmentable() && method != Method::ToolsCall && peer.rights.has(Need::Tasks);
    let metadata = if may_be_a_task { TaskMetadata::of(params) } else { Ok(None) };
    let exchange = metadata.and_then(|metadata| match metadata {
        None => dispatch(method, request),
        Some(metadata) => match server_features::taskable(method, &request)? {
            Some(taskable) => sep1686_request::request(request, taskable, metadata),
            None => sep1686_immediate::answer(method, name, request, metadata),
        },
    });
    exchange.map_or_else(|error| answer(id, &error), Received::Exchange)
}

/// Takes a notification. What is unknown, malformed or too late is ignored.
pub(super) fn notification(
    shared: &Arc<ProtocolContext>,
    peer: &Peer<'_>,
    name: &str,
    params: Option<&str>,
) -> Received {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Cancelled {
        request_id: RequestId,
    }
    let Some(session) = session_of(peer) else { return session_required(None) };
    match name {
        "notifications/initialized" => {
            session.set_initialized();
            elsewhere::notified(shared, session, None)
        }
        "notifications/cancelled" => match jsonrpc::params::<Cancelled>(params) {
            Ok(Cancelled { request_id }) if !session.cancel(&request_id) => {
                elsewhere::notified(shared, session, Some(request_id))
            }
            _ => Received::Accepted,
        },
        // Roots are asked for anew each time, progress of our own requests is not followed, client tasks are polled.
        _ => Received::Accepted,
    }
}

/// Takes the response to a request of ours. One that is unknown or late is ignored, as is the response to a task's
/// input request from a client that has no right to tasks.
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
                return Received::Settling(Box::pin(async move {
                    server_requests::settle(&shared, &session, &input_request, reply).await
                }));
            }
            // Nobody waits any more: the question will be asked again.
            _ => drop(pending.reply.send(reply)),
        }
    } else if shared.tasks.is_shared() {
        let shared = Arc::clone(shared);
        let session = Arc::clone(session);
        let id = id.clone();
        let has_tasks = peer.rights.has(Need::Tasks);
        let reply: Reply = outcome.map(Into::into).map_err(Clone::clone);
        return Received::Settling(Box::pin(async move {
            let question = match has_tasks {
                true => server_requests::asked_elsewhere(&shared, &session, &id).await,
                false => None,
            };
            match question {
                Some(question) if server_requests::client_task(&session, &question.kind, &reply).is_none() => {
                    server_requests::settle(&shared, &session, &question, reply).await;
                }
                // The host that asked waits for it, or polls the task that the client made of it.
                _ => elsewhere::pass_on(&shared, &session, &id, reply, has_tasks).await,
            }
        }));
    }
    Received::Accepted
}

/// Takes the response to a request of this host that came to another one. Answers to questions of tasks are in the
/// record by now.
pub(super) fn replied_elsewhere(session: &Session, id: String, reply: Reply, has_tasks: bool) {
    let may = |pending: &PendingRequest| match &pending.input_request {
        None => true,
        Some(input_request) => {
            has_tasks && server_requests::client_task(session, &input_request.kind, &reply).is_some()
        }
    };
    if let Some(pending) = session.take_expected(&RequestId::Text(id), may) {
        // Fails when nobody waits any more.
        let _ = pending.reply.send(reply);
    }
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
