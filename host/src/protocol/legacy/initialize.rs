//! `initialize`: which revision, and who can do what.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::protocol::capabilities::{Capabilities, client_tasks, features, interaction};
use crate::protocol::error::RpcError;
use crate::protocol::jsonrpc::{self, RequestId};
use crate::protocol::session::{Session, Settled, Version};
use crate::protocol::{Peer, Received, Shared};

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
    capabilities: &'a RawValue,
    server_info: ServerInfo<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
}

#[derive(Serialize)]
struct ServerInfo<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    version: &'a str,
}

/// Opens a session.
pub(super) fn initialize(
    shared: &Arc<Shared>,
    peer: &Peer,
    id: &RequestId,
    params: Option<&RawValue>,
) -> Result<Received, RpcError> {
    if peer.session.is_some() {
        return Err(RpcError::invalid_request("this session was initialized before; begin a new one without its id"));
    }
    let params: Params = jsonrpc::params(params)?;
    let version = Version::named(&params.protocol_version).unwrap_or(Version::V2025_11_25);
    let settled = Settled {
        requestor: peer.requestor,
        version,
        features: features(version, &params.capabilities),
        client_tasks: client_tasks(version, &params.capabilities),
        interaction: interaction(version, &params.capabilities),
        client_name: params.client_info.name,
        client_version: params.client_info.version,
    };
    let generation = *shared.tasks.catalog_changes().borrow();
    let session = Session::open(settled, generation)
        .map_err(|cause| RpcError::host_failure(format_args!("no random bytes for a session: {cause}")))?;
    let options = &shared.options;
    let answer = Answer {
        protocol_version: version.name(),
        capabilities: capabilities(version)?,
        server_info: ServerInfo {
            name: &options.server_name,
            title: options.server_title.as_deref(),
            version: &options.server_version,
        },
        instructions: options.instructions.as_deref(),
    };
    let reply = jsonrpc::response(id, &answer);
    Ok(Received::Opened { session: Arc::new(session), reply })
}

/// What the host can do in this revision.
fn capabilities(version: Version) -> Result<&'static RawValue, RpcError> {
    const WITH_TASKS: &str = r#"{"logging":{},"tools":{"listChanged":true},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}},"experimental":{"dev.bulkhead/task-interaction":{"steer":true,"pause":true}}}"#;
    const WITHOUT: &str = r#"{"logging":{},"tools":{"listChanged":true}}"#;
    serde_json::from_str(if version.has_tasks() { WITH_TASKS } else { WITHOUT })
        .map_err(|cause| RpcError::host_failure(format_args!("the capabilities are no JSON: {cause}")))
}
