//! The errors of a server as those of `wit/`.

use serde::Deserialize;

use super::messages::{Members, RpcError};
use super::multi_round_trip::InputNeeded;
use crate::bindings::bulkhead::plugin::task;
use crate::bindings::bulkhead::plugin::types as wit;

const INVALID_PARAMS: i64 = -32602;
const METHOD_NOT_FOUND: i64 = -32601;
const RESOURCE_NOT_FOUND: i64 = -32002;
const MISSING_CAPABILITY: i64 = -32021;
const URL_ELICITATION_REQUIRED: i64 = -32042;

/// What an error comes to.
pub(super) enum Failure {
    Error(wit::CallError),
    /// The same request again, after the client was sent to these addresses.
    InputNeeded(InputNeeded),
}

#[derive(Deserialize)]
struct Required {
    elicitations: Vec<Elicitation>,
}

#[derive(Deserialize)]
struct Elicitation {
    message: String,
    url: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Missing {
    required_capabilities: Capabilities,
}

#[derive(Deserialize)]
struct Capabilities {
    elicitation: Option<Members>,
    sampling: Option<Members>,
    roots: Option<Members>,
}

/// An error's meaning. `reads`: the request was for a resource, whose absence 2026-07-28 has no code for.
pub(super) fn failure(error: RpcError, reads: bool) -> Failure {
    let data = error.data.as_ref().map_or("{}", |data| data.get());
    let is_absence = reads || error.message.to_ascii_lowercase().contains("not found");
    let call_error = match error.code {
        INVALID_PARAMS if is_absence => wit::CallError::NotFound(error.message),
        INVALID_PARAMS => wit::CallError::InvalidParams(error.message),
        RESOURCE_NOT_FOUND | METHOD_NOT_FOUND => wit::CallError::NotFound(error.message),
        MISSING_CAPABILITY => match serde_json::from_str(data).ok().and_then(feature) {
            Some(feature) => wit::CallError::MissingCapability(feature),
            None => internal(&error),
        },
        URL_ELICITATION_REQUIRED => match serde_json::from_str::<Required>(data) {
            Ok(Required { elicitations }) => return Failure::InputNeeded(addresses(elicitations)),
            Err(_) => internal(&error),
        },
        _ => internal(&error),
    };
    Failure::Error(call_error)
}

fn internal(error: &RpcError) -> wit::CallError {
    wit::CallError::Internal(format!("the MCP server answered with error {}: {}", error.code, error.message))
}

fn feature(missing: Missing) -> Option<wit::ClientFeature> {
    let Capabilities { elicitation, sampling, roots } = missing.required_capabilities;
    let has = |members: &Option<Members>, name: &str| {
        members.as_ref().is_some_and(|members| members.0.iter().any(|(member, _)| member == name))
    };
    Some(match (&elicitation, &sampling, &roots) {
        (Some(_), ..) if has(&elicitation, "url") => wit::ClientFeature::ElicitationUrl,
        (Some(_), ..) => wit::ClientFeature::ElicitationForm,
        (_, Some(_), _) if has(&sampling, "tools") => wit::ClientFeature::SamplingTools,
        (_, Some(_), _) if has(&sampling, "context") => wit::ClientFeature::SamplingContext,
        (_, Some(_), _) => wit::ClientFeature::Sampling,
        (.., Some(_)) => wit::ClientFeature::Roots,
        _ => return None,
    })
}

fn addresses(elicitations: Vec<Elicitation>) -> InputNeeded {
    let request = |(at, Elicitation { message, url }): (usize, Elicitation)| task::InputRequest {
        key: format!("url-{}", at + 1),
        question: task::Question::Url(task::UrlRequest { message, url }),
        meta: Vec::new(),
    };
    InputNeeded {
        requests: elicitations.into_iter().enumerate().map(request).collect(),
        state: None,
        is_agreement: true,
    }
}
