//! The legacy era: sessions, `initialize`, and tasks as the 2025-11-25 core and SEP-1686 have them.
//!
//! Owns which methods there are and what a session may do. Invariant: one table names every method.

mod asking;
mod call;
mod get_stream;
mod idempotent_call;
mod initialize;
mod offers;
mod results;
mod sep1686_immediate;
mod sep1686_request;
mod stream_router;
mod tasks;
mod tools;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::error::RpcError;
use super::exchange::immediate;
use super::jsonrpc::{self, PeerError, RequestId, error_response};
use super::sep1686::TaskMetadata;
use super::session::{Expected, Reply, Session, Settled, TaskQuestion};
use super::wire::level;
use super::{Exchange, Frame, Peer, Received, Rejection, Shared, input_requests, rights};
use crate::domain::rights::{Need, Rights};
use crate::runtime::Catalog;

pub(super) use get_stream::standalone;
pub(super) use stream_router::Carriers;

/// A method of the legacy era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Initialize,
    Ping,
    SetLevel,
    ToolsList,
    ToolsCall,
    TasksGet,
    TasksResult,
    TasksList,
    TasksCancel,
    TasksDelete,
    TasksSteer,
    TasksPause,
    TasksResume,
    ResourcesList,
    ResourcesTemplatesList,
    ResourcesRead,
    ResourcesSubscribe,
    ResourcesUnsubscribe,
    PromptsList,
    PromptsGet,
    Complete,
}

/// What methods have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Handshake,
    Tasks,
    Steering,
    Other,
}

/// Every method that a client may call.
pub const METHODS: [(&str, Method); 21] = [
    ("initialize", Method::Initialize),
    ("ping", Method::Ping),
    ("logging/setLevel", Method::SetLevel),
    ("tools/list", Method::ToolsList),
    ("tools/call", Method::ToolsCall),
    ("tasks/get", Method::TasksGet),
    ("tasks/result", Method::TasksResult),
    ("tasks/list", Method::TasksList),
    ("tasks/cancel", Method::TasksCancel),
    ("tasks/delete", Method::TasksDelete),
    ("tasks/steer", Method::TasksSteer),
    ("tasks/pause", Method::TasksPause),
    ("tasks/resume", Method::TasksResume),
    ("resources/list", Method::ResourcesList),
    ("resources/templates/list", Method::ResourcesTemplatesList),
    ("resources/read", Method::ResourcesRead),
    ("resources/subscribe", Method::ResourcesSubscribe),
    ("resources/unsubscribe", Method::ResourcesUnsubscribe),
    ("prompts/list", Method::PromptsList),
    ("prompts/get", Method::PromptsGet),
    ("completion/complete", Method::Complete),
];

impl Method {
    fn named(name: &str) -> Option<Self> {
        METHODS.iter().find(|(known, _)| *known == name).map(|(_, method)| *method)
    }

    /// What the method is about, which decides about the rest. Exhaustive, so that a new method is thought about.
    fn kind(self) -> Kind {
        match self {
            Self::Initialize => Kind::Handshake,
            Self::TasksGet | Self::TasksResult | Self::TasksList | Self::TasksCancel | Self::TasksDelete => Kind::Tasks,
            Self::TasksSteer | Self::TasksPause | Self::TasksResume => Kind::Steering,
            Self::Ping
            | Self::SetLevel
            | Self::ToolsList
            | Self::ToolsCall
            | Self::ResourcesList
            | Self::ResourcesTemplatesList
            | Self::ResourcesRead
            | Self::ResourcesSubscribe
            | Self::ResourcesUnsubscribe
            | Self::PromptsList
            | Self::PromptsGet
            | Self::Complete => Kind::Other,
        }
    }

    /// Whether a request is a task of SEP-1686 when its metadata wishes for one; elsewhere that is ignored, as the design wants it from
    /// whoever chooses not to. A handshake has no session yet that could look at its task, and what is about tasks is answered out of
    /// their records: a task of that would only say again what they say. Calls of tools have a wish too, and read it themselves.
    fn takes_a_wish(self) -> bool {
        self.kind() == Kind::Other
    }

    /// What a requestor must have the right to, whatever the params say. Calls of tools look at that themselves.
    fn needs(self) -> &'static [Need<'static>] {
        match self.kind() {
            Kind::Steering => &[Need::Steer],
            Kind::Tasks => &[Need::Tasks],
            Kind::Handshake | Kind::Other => &[],
        }
    }

    /// Whether what a plugin made is in the response. Exhaustive, so that a new method is thought about.
    fn is_answered_at_length(self) -> bool {
        match self {
            Self::ToolsCall | Self::TasksResult | Self::ResourcesRead | Self::PromptsGet | Self::Complete => true,
            Self::Initialize
            | Self::Ping
            | Self::SetLevel
            | Self::ToolsList
            | Self::TasksGet
            | Self::TasksList
            | Self::TasksCancel
            | Self::TasksDelete
            | Self::TasksSteer
            | Self::TasksPause
            | Self::TasksResume
            | Self::ResourcesList
            | Self::ResourcesTemplatesList
            | Self::ResourcesSubscribe
            | Self::ResourcesUnsubscribe
            | Self::PromptsList => false,
        }
    }

    /// Tasks of the core came with 2025-11-25. SEP-1686 is for every revision: what it has is always there. Steer, pause and resume
    /// are an experiment that a client takes part in or not.
    fn exists_for(self, settled: &Settled) -> bool {
        match self {
            Self::TasksCancel => settled.version.has_tasks(),
            Self::TasksSteer => settled.interaction.steer,
            Self::TasksPause | Self::TasksResume => settled.interaction.pause,
            _ => true,
        }
    }
}

/// A request in its session.
struct Request<'a> {
    shared: &'a Arc<Shared>,
    session: &'a Arc<Session>,
    /// What is offered to the requestor, for the whole of the request.
    catalog: Arc<Catalog>,
    id: RequestId,
    params: Option<&'a RawValue>,
    rights: Rights,
    /// Whether the client reads what is said before the response.
    reads_events: bool,
}

#[derive(Serialize)]
struct Empty {}

/// Takes a request.
pub(super) fn request(
    shared: &Arc<Shared>,
    peer: &Peer<'_>,
    id: RequestId,
    name: &str,
    params: Option<&RawValue>,
) -> Received {
    let answer = |id: &RequestId, error: &RpcError| Received::Exchange(immediate(refused(id, error)));
    let method = Method::named(name);
    if method == Some(Method::Initialize) {
        return initialize::initialize(shared, peer, &id, params).unwrap_or_else(|error| answer(&id, &error));
    }
    let Some(session) = session_of(peer) else {
        return match method {
            // A pipe may be asked whether it is there before its handshake. Over HTTP a request without a session is lost.
            Some(Method::Ping) if peer.connection.is_some() => {
                Received::Exchange(immediate(jsonrpc::response(&id, &Empty {})))
            }
            _ => session_required(Some(&id)),
        };
    };
    let unknown = || RpcError::method_not_found(format!("Method not found: {}", readable(name)));
    let catalog = rights::visible(&peer.rights, shared.tasks.catalog(session.requestor()));
    let method = method
        .filter(|method| method.exists_for(&session.settled))
        .filter(|method| offers::is_offered(*method, &catalog));
    let Some(method) = method else {
        return answer(&id, &unknown());
    };
    if let Err(error) = rights::check(&peer.rights, method.needs(), unknown) {
        return answer(&id, &error);
    }
    if let Some(full) = peer.full.filter(|_| method.is_answered_at_length()) {
        return answer(&id, &RpcError::full(full));
    }
    let (rights, reads_events) = (peer.rights.clone(), peer.reads_events);
    let request = Request { shared, session, catalog, id: id.clone(), params, rights, reads_events };
    // The design wants its metadata ignored where no task comes of it, and so it is for whoever may have none.
    let takes_a_wish = method.takes_a_wish() && method != Method::ToolsCall && request.rights.has(Need::Tasks);
    let wish = if takes_a_wish { TaskMetadata::of(params) } else { Ok(None) };
    let exchange = wish.and_then(|wish| match wish {
        Some(wish) => sep1686_request::request(method, name, request, wish),
        None => dispatch(method, request),
    });
    exchange.map_or_else(|error| answer(&id, &error), Received::Exchange)
}

/// The requests that can be tasks of SEP-1686, by what stands before and after the slash of their names.
fn augmentable(catalog: &Catalog) -> serde_json::Value {
    let mut categories = serde_json::Map::new();
    for (name, _) in METHODS.iter().filter(|(_, method)| method.takes_a_wish() && offers::is_offered(*method, catalog))
    {
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
        Method::ResourcesList => offers::resources(request),
        Method::ResourcesTemplatesList => offers::templates(&request),
        Method::ResourcesRead => offers::read(request),
        Method::ResourcesSubscribe => offers::subscribe(request),
        Method::ResourcesUnsubscribe => offers::unsubscribe(&request),
        Method::PromptsList => offers::prompts(&request),
        Method::PromptsGet => offers::get_prompt(request),
        Method::Complete => offers::complete(request),
    }
}

/// Takes a notification. What is unknown, malformed or too late is ignored.
pub(super) fn notification(peer: &Peer<'_>, name: &str, params: Option<&RawValue>) -> Received {
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

/// Takes the response to a request of ours. One that is unknown or late is ignored, as is the answer to a task's question from
/// whoever has no right to tasks.
pub(super) fn response(
    shared: &Arc<Shared>,
    peer: &Peer<'_>,
    id: &RequestId,
    outcome: Result<&RawValue, PeerError>,
) -> Received {
    let Some(session) = session_of(peer) else { return session_required(None) };
    let may = |expected: &Expected| expected.question.is_none() || peer.rights.has(Need::Tasks);
    if let Some(expected) = session.take_expected(id, may) {
        let reply: Reply = outcome.map(ToOwned::to_owned);
        match expected.question {
            Some(asked) if asking::client_task(session, &asked.question, &reply).is_none() => {
                let (shared, session) = (Arc::clone(shared), Arc::clone(session));
                return Received::Settling(Box::pin(async move { settle(&shared, &session, &asked, reply).await }));
            }
            // Nobody waits any more: the question will be asked again.
            _ => drop(expected.reply.send(reply)),
        }
    }
    Received::Accepted
}

/// Hands the answer to a task's question on. The first one wins: the engine ignores what comes later.
async fn settle(shared: &Shared, session: &Session, asked: &TaskQuestion, reply: Reply) {
    let answer = input_requests::answer_aside(&shared.tasks, session.requestor(), &asked.question, reply).await;
    match shared.tasks.answer(session.requestor(), asked.task, &asked.issued_key, answer).await {
        Ok(_) => {
            session.forget_question(asked.task, &asked.issued_key);
            shared.carriers.answered(asked.task, &asked.issued_key);
        }
        // The task is over or gone, or the failure was logged where it happened; the question stays open in that case.
        Err(error) => tracing::debug!(task = %asked.task, %error, "an answer came to nothing"),
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
    Received::Rejected { rejection: Rejection::SessionRequired, body: error_response(id, &error) }
}

/// What a caller sent, cut to a length that can be sent back.
fn readable(text: &str) -> String {
    text.chars().take(128).collect()
}
