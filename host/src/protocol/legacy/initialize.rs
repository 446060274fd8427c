//! `initialize`: which revision, and who can do what.

use std::sync::Arc;

use serde::Deserialize;
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::domain::call::{ClientFeature, ClientFeatures};
use crate::protocol::error::RpcError;
use crate::protocol::jsonrpc::{self, RequestId};
use crate::protocol::session::{ClientTasks, Session, Settled, Version};
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct Capabilities {
    roots: Option<IgnoredAny>,
    sampling: Option<Sampling>,
    elicitation: Option<Elicitation>,
    tasks: Option<TaskAbilities>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Sampling {
    context: Option<IgnoredAny>,
    tools: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Elicitation {
    form: Option<IgnoredAny>,
    url: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TaskAbilities {
    cancel: Option<IgnoredAny>,
    requests: TaskRequests,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TaskRequests {
    sampling: SamplingTasks,
    elicitation: ElicitationTasks,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SamplingTasks {
    #[serde(rename = "createMessage")]
    create_message: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ElicitationTasks {
    create: Option<IgnoredAny>,
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
    const WITH_TASKS: &str = r#"{"logging":{},"tools":{"listChanged":true},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}"#;
    const WITHOUT: &str = r#"{"logging":{},"tools":{"listChanged":true}}"#;
    serde_json::from_str(if version.has_tasks() { WITH_TASKS } else { WITHOUT })
        .map_err(|cause| RpcError::host_failure(format_args!("the capabilities are no JSON: {cause}")))
}

fn features(version: Version, declared: &Capabilities) -> ClientFeatures {
    let newest = version.has_tasks();
    let elicitation = declared.elicitation.as_ref();
    // An empty object means forms: that is how it began.
    let form = elicitation.is_some_and(|modes| !newest || modes.form.is_some() || modes.url.is_none());
    let url = newest && elicitation.is_some_and(|modes| modes.url.is_some());
    let sampling = declared.sampling.as_ref();
    [
        (ClientFeature::ElicitationForm, form),
        (ClientFeature::ElicitationUrl, url),
        (ClientFeature::Sampling, sampling.is_some()),
        (ClientFeature::SamplingTools, newest && sampling.is_some_and(|sampling| sampling.tools.is_some())),
        // The older revision has no word for it, so every client that samples may be asked.
        (ClientFeature::SamplingContext, sampling.is_some_and(|sampling| !newest || sampling.context.is_some())),
        (ClientFeature::Roots, declared.roots.is_some()),
    ]
    .into_iter()
    .filter(|(_, has)| *has)
    .fold(ClientFeatures::default(), |features, (feature, _)| features.with(feature))
}

fn client_tasks(version: Version, declared: &Capabilities) -> ClientTasks {
    match &declared.tasks {
        Some(tasks) if version.has_tasks() => ClientTasks {
            elicitation: tasks.requests.elicitation.create.is_some(),
            sampling: tasks.requests.sampling.create_message.is_some(),
            cancel: tasks.cancel.is_some(),
        },
        _ => ClientTasks::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(json: serde_json::Value) -> Capabilities {
        serde_json::from_value(json).unwrap()
    }

    fn has(version: Version, json: serde_json::Value) -> Vec<ClientFeature> {
        use ClientFeature::{ElicitationForm, ElicitationUrl, Roots, Sampling, SamplingContext, SamplingTools, Tasks};
        let features = features(version, &declared(json));
        [ElicitationForm, ElicitationUrl, Sampling, SamplingTools, SamplingContext, Roots, Tasks]
            .into_iter()
            .filter(|feature| features.contains(*feature))
            .collect()
    }

    #[test]
    fn an_empty_elicitation_means_forms() {
        use serde_json::json;
        let newest = Version::V2025_11_25;
        assert_eq!(has(newest, json!({"elicitation": {}})), [ClientFeature::ElicitationForm]);
        assert_eq!(has(newest, json!({"elicitation": {"url": {}}})), [ClientFeature::ElicitationUrl]);
        assert_eq!(
            has(newest, json!({"roots": {"listChanged": true}, "extensions": {"a": 1}})),
            [ClientFeature::Roots]
        );
        assert_eq!(has(newest, json!({})), []);
        let older = json!({"elicitation": {"url": {}}, "sampling": {"tools": {}}});
        let expected = [ClientFeature::ElicitationForm, ClientFeature::Sampling, ClientFeature::SamplingContext];
        assert_eq!(has(Version::V2025_06_18, older), expected);
    }

    #[test]
    fn client_tasks_are_read_per_request_type() {
        let json =
            serde_json::json!({"tasks": {"list": {}, "cancel": {}, "requests": {"elicitation": {"create": {}}}}});
        let expected = ClientTasks { elicitation: true, sampling: false, cancel: true };
        assert_eq!(client_tasks(Version::V2025_11_25, &declared(json)), expected);
    }
}
