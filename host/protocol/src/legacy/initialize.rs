//! `initialize`: which revision, and who can do what.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::apps;
use crate::capabilities::{Capabilities, client_tasks, features, interaction};
use crate::context::ServerInfo;
use crate::error::RpcError;
use crate::jsonrpc::{self, RequestId};
use crate::methods::methods;
use crate::server_features::{Empty, FeatureCapabilities};
use crate::session::{self, Negotiated, Session};
use crate::skills::{self, SKILLS_EXTENSION};
use crate::version::Version;
use crate::{Peer, ProtocolContext, Received, rights};
use bulkhead_calls::Catalog;
use bulkhead_domain::call::UI_EXTENSION;
use bulkhead_domain::rights::{Need, Rights};
use bulkhead_domain::task::Era;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params {
    protocol_version: String,
    capabilities: Capabilities,
    client_info: Implementation,
}

#[derive(Deserialize)]
struct Implementation {
    name: String,
    version: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    protocol_version: &'static str,
    capabilities: ServerCapabilities,
    server_info: ServerInfo<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
}

/// Opens a session.
pub(super) fn initialize(
    shared: &Arc<ProtocolContext>,
    peer: &Peer<'_>,
    id: &RequestId,
    params: Option<&str>,
) -> Result<Received, RpcError> {
    if peer.session.is_some() {
        return Err(RpcError::invalid_request("this session was initialized before; begin a new one without its id"));
    }
    let params: Params = jsonrpc::params(params)?;
    let version = Version::named(&params.protocol_version).unwrap_or(Version::V2025_11_25);
    let catalog = shared.offered(&peer.requestor, &peer.rights).catalog;
    let settled = Negotiated {
        requestor: peer.requestor,
        version,
        features: features(version, &params.capabilities),
        client_tasks: client_tasks(version, &params.capabilities),
        interaction: interaction(version, &params.capabilities),
        client_name: params.client_info.name,
        client_version: params.client_info.version,
        offered: session::AnnouncedLists { resources: catalog.has_resources(), prompts: catalog.has_prompts() },
    };
    let session = Session::open(settled, catalog.lists())
        .map_err(|cause| RpcError::host_failure(format_args!("no random bytes for a session: {cause}")))?;
    let options = &shared.options;
    let answer = Answer {
        protocol_version: version.name(),
        capabilities: ServerCapabilities::new(version, &catalog, &peer.rights),
        server_info: ServerInfo::from(options),
        instructions: options.instructions.as_deref(),
    };
    let reply = jsonrpc::response(id, &answer).into_text();
    Ok(Received::Opened { session: Arc::new(session), reply })
}

/// The server's capabilities in this revision for a client with these rights. A promise only: each request is checked
/// against the rights that come with it.
#[derive(Serialize)]
struct ServerCapabilities {
    logging: Empty,
    tools: serde_json::Value,
    #[serde(flatten)]
    offered: FeatureCapabilities,
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<serde_json::Value>,
    /// Those of views and of skills: no revision of this era has another one.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    extensions: serde_json::Map<String, serde_json::Value>,
    experimental: Experimental,
}

impl ServerCapabilities {
    fn new(version: Version, catalog: &Catalog, rights: &Rights) -> Self {
        let has_tasks = version.has_tasks() && rights.has(Need::Tasks);
        let extensions = [
            (UI_EXTENSION, apps::any_view(catalog, |tool| rights::may_call(rights, tool, has_tasks))),
            (SKILLS_EXTENSION, skills::any_skill(catalog)),
        ];
        let offered = extensions.into_iter().filter(|(_, is_there)| *is_there && version.has_structured_output());
        let tasks = || json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
        Self {
            logging: Empty {},
            tools: json!({"listChanged": true}),
            offered: FeatureCapabilities::new(catalog),
            tasks: has_tasks.then(tasks),
            extensions: offered.map(|(name, _)| (name.to_owned(), json!({}))).collect(),
            experimental: Experimental::new(version, catalog, rights),
        }
    }
}

/// Vendors' names and drafts: clients that do not know them pass them over.
#[derive(Serialize)]
struct Experimental {
    #[serde(rename = "modelcontextprotocol.io/task", skip_serializing_if = "Option::is_none")]
    sep1686: Option<serde_json::Value>,
    #[serde(rename = "dev.bulkhead/task-interaction", skip_serializing_if = "Option::is_none")]
    interaction: Option<serde_json::Value>,
}

impl Experimental {
    fn new(version: Version, catalog: &Catalog, rights: &Rights) -> Self {
        let sep1686 = || json!({"list": {}, "delete": {}, "requests": augmentable(catalog)});
        let steers = version.has_tasks() && rights.has(Need::Steer);
        Self {
            sep1686: rights.has(Need::Tasks).then(sep1686),
            interaction: steers.then(|| json!({"steer": true, "pause": true})),
        }
    }
}

/// The requests that can be tasks of SEP-1686, by what stands before and after the slash of their names.
fn augmentable(catalog: &Catalog) -> serde_json::Value {
    let mut categories = serde_json::Map::new();
    for (name, _) in methods(Era::Legacy).filter(|(_, method)| method.is_augmentable() && method.is_offered(catalog)) {
        let (category, rest) = name.split_once('/').unwrap_or((name, ""));
        let members = categories.entry(category).or_insert_with(|| serde_json::json!({}));
        if let Some(members) = members.as_object_mut().filter(|_| !rest.is_empty()) {
            members.insert(rest.to_owned(), serde_json::json!({}));
        }
    }
    categories.into()
}
