//! The modern era (2026-07-28): stateless requests, and tasks as an extension that the host decides about.
//!
//! Owns which methods there are and the order in which a request is checked: its `_meta`, what was declared beside it, its
//! revision, its method, its client's capabilities, its params. Invariant: nothing is inferred from an earlier request or from the
//! connection; what a request needs to continue another one it carries itself.

mod bounded_cache;
mod call;
mod call_handle;
mod connection;
mod declared;
mod discover;
#[cfg(any(test, fuzzing))]
pub(in crate::protocol) mod fuzz;
mod listen;
mod meta;
mod multi_round_trip;
mod offers;
mod params_index;
mod result;
mod state;
mod task;
mod tasks;
mod tools;

use std::sync::Arc;

use futures::StreamExt as _;
use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::watch;

use super::capabilities::INTERACTION_EXTENSION;
use super::error::RpcError;
use super::exchange::immediate;
use super::jsonrpc::{Message, RequestId, error_response, response};
use super::{Declared, Exchange, Frame, Peer, ProtocolOptions, Received, Rejection, Shared, VERSIONS};
use crate::domain::requestor::Requestor;
use crate::domain::rights::{Need, Rights};
use crate::protocol::rights;
use crate::runtime::Catalog;
use connection::InFlight;
use meta::Client;
use multi_round_trip::Rounds;
use params_index::Members;

pub use connection::Connection;
pub(super) use meta::{is_modern_version, names_a_version};

/// The revision that is spoken here.
pub(super) const VERSION: &str = "2026-07-28";

/// A method of the modern era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Discover,
    ToolsList,
    ToolsCall,
    Listen,
    TasksGet,
    TasksUpdate,
    TasksCancel,
    TasksSteer,
    TasksPause,
    TasksResume,
    ResourcesList,
    ResourcesTemplatesList,
    ResourcesRead,
    PromptsList,
    PromptsGet,
    Complete,
}

/// What methods have in common.
enum Kind {
    Tasks,
    Steer,
    Pause,
    Other,
}

/// Every method that a client may call.
pub const METHODS: [(&str, Method); 16] = [
    ("server/discover", Method::Discover),
    ("tools/list", Method::ToolsList),
    ("tools/call", Method::ToolsCall),
    ("subscriptions/listen", Method::Listen),
    ("tasks/get", Method::TasksGet),
    ("tasks/update", Method::TasksUpdate),
    ("tasks/cancel", Method::TasksCancel),
    ("tasks/steer", Method::TasksSteer),
    ("tasks/pause", Method::TasksPause),
    ("tasks/resume", Method::TasksResume),
    ("resources/list", Method::ResourcesList),
    ("resources/templates/list", Method::ResourcesTemplatesList),
    ("resources/read", Method::ResourcesRead),
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
            Self::TasksGet | Self::TasksUpdate | Self::TasksCancel => Kind::Tasks,
            Self::TasksSteer => Kind::Steer,
            Self::TasksPause | Self::TasksResume => Kind::Pause,
            Self::Discover
            | Self::ToolsList
            | Self::ToolsCall
            | Self::Listen
            | Self::ResourcesList
            | Self::ResourcesTemplatesList
            | Self::ResourcesRead
            | Self::PromptsList
            | Self::PromptsGet
            | Self::Complete => Kind::Other,
        }
    }

    /// What a requestor must have the right to, whatever the params say. Calls of tools and subscriptions look at that themselves.
    fn needs(self) -> &'static [Need<'static>] {
        match self.kind() {
            Kind::Steer | Kind::Pause => &[Need::Steer],
            Kind::Tasks => &[Need::Tasks],
            Kind::Other => &[],
        }
    }

    /// Whether what a plugin made may be in the response, or in what comes before it. Exhaustive, so that a new method is thought about.
    fn is_answered_at_length(self) -> bool {
        match self {
            Self::ToolsCall
            | Self::Listen
            | Self::TasksGet
            | Self::ResourcesRead
            | Self::PromptsGet
            | Self::Complete => true,
            Self::Discover
            | Self::ToolsList
            | Self::TasksUpdate
            | Self::TasksCancel
            | Self::TasksSteer
            | Self::TasksPause
            | Self::TasksResume
            | Self::ResourcesList
            | Self::ResourcesTemplatesList
            | Self::PromptsList => false,
        }
    }

    /// Refuses a client that did not declare what the method belongs to.
    fn check_capabilities(self, client: &Client) -> Result<(), RpcError> {
        let interaction = |what: &str| {
            let required = json!({"extensions": {INTERACTION_EXTENSION: {what: true}}});
            Err(RpcError::missing_capability(&format!("{INTERACTION_EXTENSION} with {what}"), &required))
        };
        match self.kind() {
            Kind::Steer if !client.interaction.steer => interaction("steer"),
            Kind::Pause if !client.interaction.pause => interaction("pause"),
            Kind::Tasks => client.check_tasks(),
            Kind::Steer | Kind::Pause | Kind::Other => Ok(()),
        }
    }
}

/// What the era keeps between requests: nothing that a request depends on.
pub(super) struct State {
    server_info: Box<RawValue>,
    rounds: Arc<Rounds>,
    closing: watch::Sender<bool>,
}

#[derive(Serialize)]
struct ServerInfo<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    version: &'a str,
}

impl State {
    pub(super) fn new(options: &ProtocolOptions) -> Self {
        let server_info = ServerInfo {
            name: &options.server_name,
            title: options.server_title.as_deref(),
            version: &options.server_version,
        };
        Self {
            server_info: to_raw_value(&server_info).unwrap_or_else(|_| RawValue::NULL.to_owned()),
            rounds: Arc::new(Rounds::new(&options.cursor_key)),
            closing: watch::Sender::new(false),
        }
    }

    /// Ends every listen stream, those that begin later too.
    pub(super) fn close(&self) {
        self.closing.send_replace(true);
    }
}

/// A request that was checked up to its params.
struct Request<'a> {
    shared: &'a Arc<Shared>,
    requestor: Requestor,
    rights: Rights,
    /// What is offered to the requestor, for the whole of the request.
    catalog: Arc<Catalog>,
    id: RequestId,
    client: Client,
    declared: Option<&'a Declared<'a>>,
    connection: Option<&'a Arc<Connection>>,
    /// Becomes true when the credential of a subscription has ended.
    ends: Option<&'a watch::Receiver<bool>>,
    params: Option<&'a RawValue>,
    /// Those of the params that are looked at more than once.
    members: Members<'a>,
}

/// Takes a message.
pub(super) fn receive(shared: &Arc<Shared>, peer: &Peer<'_>, message: Message<'_>) -> Received {
    match message {
        Message::Request { id, method, params } => {
            let exchange = request(shared, peer, id.clone(), &method, params);
            Received::Exchange(exchange.unwrap_or_else(|error| immediate(refused(&id, &error))))
        }
        // The only one there is cancels, and only where requests share a connection: see `Connection`.
        Message::Notification { .. } => Received::Accepted,
        Message::Response { id, .. } => {
            let error = RpcError::invalid_request(format!("clients of {VERSION} send requests and notifications only"));
            Received::Rejected { rejection: Rejection::Malformed, body: error_response(Some(&id), &error) }
        }
    }
}

fn request(
    shared: &Arc<Shared>,
    peer: &Peer<'_>,
    id: RequestId,
    name: &str,
    params: Option<&RawValue>,
) -> Result<Exchange, RpcError> {
    let meta = meta::read(params)?;
    let method = Method::named(name);
    if let Some(declared) = &peer.declared {
        declared::check(declared, &meta.version, name, method, &meta.members)?;
    }
    if meta.version != VERSION {
        return Err(RpcError::unsupported_version(&VERSIONS, &meta.version));
    }
    let catalog = rights::visible(&peer.rights, shared.tasks.catalog(&peer.requestor));
    let method = method.filter(|method| offers::is_offered(*method, &catalog));
    let method = method.ok_or_else(|| RpcError::unknown_method(name))?;
    let client = meta.client()?;
    method.check_capabilities(&client)?;
    let in_flight = match &peer.connection {
        Some(connection) => Some(connection.begin(&id)?),
        None => None,
    };
    let (declared, connection, ends) = (peer.declared.as_ref(), peer.connection.as_ref(), peer.ends.as_ref());
    rights::check(&peer.rights, method.needs(), || RpcError::unknown_method(name))?;
    if let Some(full) = peer.full.filter(|_| method.is_answered_at_length()) {
        return Err(RpcError::full(full));
    }
    let (requestor, rights, members) = (peer.requestor, peer.rights.clone(), meta.members);
    let request =
        Request { shared, requestor, rights, catalog, id, client, declared, connection, ends, params, members };
    let exchange = match method {
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
        Method::ResourcesList => offers::resources(request),
        Method::ResourcesTemplatesList => offers::templates(&request),
        Method::ResourcesRead => offers::read(request),
        Method::PromptsList => offers::prompts(&request),
        Method::PromptsGet => offers::get_prompt(request),
        Method::Complete => offers::complete(request),
    }?;
    Ok(match in_flight {
        Some(in_flight) => until_cancelled(exchange, in_flight),
        None => exchange,
    })
}

/// Ends without a response when the client cancels the request; what is dropped then stops its call.
fn until_cancelled(exchange: Exchange, in_flight: InFlight) -> Exchange {
    exchange.take_until(async move { in_flight.cancelled().await }).boxed()
}

/// A refusal as a response.
fn refused(id: &RequestId, error: &RpcError) -> Frame {
    Frame { message: error_response(Some(id), error).into(), last: true, rejection: error.rejection.clone() }
}

/// A response, whatever it is.
fn respond<T: Serialize>(id: &RequestId, result: Result<T, RpcError>) -> Frame {
    match result {
        Ok(result) => response(id, &result).into(),
        Err(error) => refused(id, &error),
    }
}
