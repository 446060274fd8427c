//! Every code that leaves the host is written here, and only here.
//!
//! Owns the way from the kinds of failure (a refused request, a guest fault, a host failure) to JSON-RPC errors. A
//! tool's own failure is no error and never gets here. Invariant: the text of a host failure is fixed; what happened is
//! logged under the incident id that the client sees.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::capabilities::TASKS_EXTENSION;
use super::wire::{RelatedTask, single_line};
use bulkhead_domain::Json;
use bulkhead_domain::call::{CallError, ClientFeature, FaultKind};
use bulkhead_limits::Full;
use bulkhead_tasks as tasks;

const PARSE_ERROR: i32 = -32700;
pub(crate) const INVALID_REQUEST: i32 = -32600;
pub(crate) const METHOD_NOT_FOUND: i32 = -32601;
pub(crate) const INVALID_PARAMS: i32 = -32602;
const INTERNAL_ERROR: i32 = -32603;
/// Revision 2025-11-25: resource not found.
const RESOURCE_NOT_FOUND: i32 = -32002;
/// Revision 2026-07-28.
const HEADER_MISMATCH: i32 = -32020;
const MISSING_REQUIRED_CLIENT_CAPABILITY: i32 = -32021;
const UNSUPPORTED_PROTOCOL_VERSION: i32 = -32022;
/// Codes of this host, outside the range that JSON-RPC and MCP keep for themselves.
const TRAP: i32 = 1001;
const GUEST_LIMIT: i32 = 1002;
const DEADLINE: i32 = 1003;
const INVALID_OUTPUT: i32 = 1004;
const QUARANTINED: i32 = 1005;
const QUOTA: i32 = 1010;
const RATE: i32 = 1011;
const INSUFFICIENT_SCOPE: i32 = 1012;
const STORE_UNAVAILABLE: i32 = 1013;

/// When to come back with a call whose answer has no room: as soon as the client has read others.
const ROOM_RETRY_MS: u64 = 1_000;

/// Why a message was refused as a whole; the transport makes a status of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// Not JSON, not JSON-RPC, a batch where there are none, a bad id, a revision that is not spoken.
    Malformed,
    /// A modern request that cannot be served as it is: its `_meta`, what was declared beside it, its revision, or a
    /// capability that its client lacks.
    Unserved,
    /// A legacy request without a session.
    SessionRequired,
    /// A method that the modern era does not know.
    UnknownMethod,
    /// A rate or quota is exhausted, in the modern era.
    TooMany { retry_after_ms: Option<u64> },
    /// The store cannot be reached, in the modern era.
    Unavailable { retry_after_ms: Option<u64> },
    /// The credential is good, but not for this; all of these scopes are needed in addition. The tool is the one that
    /// was to be called.
    Forbidden { scopes: Arc<[String]>, tool: Option<Box<str>> },
}

/// The `error` member of a response.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RpcError {
    pub(crate) code: i32,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Box<RawValue>>,
    /// What the modern era makes of it beside the code.
    #[serde(skip)]
    pub(crate) rejection: Option<Rejection>,
    /// The limit that refused the request.
    #[serde(skip)]
    pub(crate) limit: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LimitData {
    limit: &'static str,
    value: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl RpcError {
    fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None, rejection: None, limit: None }
    }

    fn by_limit(self, limit: &'static str) -> Self {
        Self { limit: Some(limit), ..self }
    }

    fn rejected(mut self, rejection: Rejection) -> Self {
        self.rejection = Some(rejection);
        self
    }

    fn with(mut self, data: &impl Serialize) -> Self {
        self.data = to_raw_value(data).ok();
        self
    }

    /// Not JSON.
    pub(crate) fn parse(message: impl Into<String>) -> Self {
        Self::new(PARSE_ERROR, message)
    }

    /// Not a request that can be served at all.
    pub(crate) fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(INVALID_REQUEST, message)
    }

    /// No such method, for this request.
    pub(crate) fn method_not_found(message: impl Into<String>) -> Self {
        Self::new(METHOD_NOT_FOUND, message)
    }

    /// The params are wrong.
    pub(crate) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    /// No level of a log; `path` is its place.
    pub(crate) fn unknown_level(path: &str) -> Self {
        Self::invalid_params(format!(
            "{path} must be one of debug, info, notice, warning, error, critical, alert and emergency"
        ))
    }

    /// The arguments are larger than a call may take.
    pub(crate) fn too_large(limit: &'static str, value: u64) -> Self {
        Self::new(INVALID_PARAMS, format!("the arguments are larger than {value} bytes"))
            .with(&LimitData { limit, value, retry_after_ms: None })
            .by_limit(limit)
    }

    /// A protocol version that is not spoken.
    pub(crate) fn unsupported_version(supported: &[&str], requested: &str) -> Self {
        Self::new(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version")
            .rejected(Rejection::Unserved)
            .with(&serde_json::json!({"supported": supported, "requested": requested}))
    }

    /// A modern request lacks a member of `_meta` that every one must have.
    pub(crate) fn meta_required(message: impl Into<String>) -> Self {
        Self::invalid_params(message).rejected(Rejection::Unserved)
    }

    /// A modern request whose method does not exist in its era.
    pub(crate) fn unknown_method(name: &str) -> Self {
        let name: String = name.chars().take(128).collect();
        Self::method_not_found(format!("Method not found: {name}")).rejected(Rejection::UnknownMethod)
    }

    /// The headers contradict the message.
    pub(crate) fn header_mismatch(message: impl Into<String>) -> Self {
        Self::new(HEADER_MISMATCH, message).rejected(Rejection::Unserved)
    }

    /// The request cannot be served to a client that does not declare these capabilities.
    pub(crate) fn missing_capability(name: &str, required: &serde_json::Value) -> Self {
        Self::new(MISSING_REQUIRED_CLIENT_CAPABILITY, format!("This request needs a client that declares {name}"))
            .rejected(Rejection::Unserved)
            .with(&serde_json::json!({"requiredCapabilities": required}))
    }

    /// The same for the extension of tasks.
    pub(crate) fn tasks_required() -> Self {
        Self::missing_capability(TASKS_EXTENSION, &serde_json::json!({"extensions": {TASKS_EXTENSION: {}}}))
    }

    /// The credential is good, but not for this. All scopes that are needed in addition are named at once.
    pub(crate) fn insufficient_scope(scopes: Vec<String>, tool: Option<&str>) -> Self {
        let data = serde_json::json!({"requiredScopes": scopes});
        Self::new(INSUFFICIENT_SCOPE, "The token is not good for this; get one with the scopes in requiredScopes")
            .rejected(Rejection::Forbidden { scopes: scopes.into(), tool: tool.map(Into::into) })
            .with(&data)
    }

    /// A call was made before under the same key, with other arguments.
    pub(crate) fn idempotency_conflict() -> Self {
        Self::invalid_params("This idempotency key was used with other arguments; use another key for another call")
            .with(&serde_json::json!({"type": "idempotency_key_conflict"}))
    }

    /// Answers that the requestor does not read take up the room for more.
    pub(crate) fn full(full: Full) -> Self {
        let Full { limit, value } = full;
        Self::from(tasks::Error::Quota { limit, value, retry_after_ms: Some(ROOM_RETRY_MS) })
    }

    /// Why a call broke, in the words of the modern era.
    pub(crate) fn modern(error: &CallError) -> Self {
        match error {
            CallError::MissingCapability(ClientFeature::Tasks) => Self::tasks_required(),
            CallError::MissingCapability(feature) => {
                let (name, required) = required_capability(*feature);
                Self::missing_capability(name, &required)
            }
            other => Self::from(other),
        }
    }

    /// No plugin has a resource with this URI, in the words of the legacy era.
    pub(crate) fn resource_not_found(uri: &str) -> Self {
        Self::new(RESOURCE_NOT_FOUND, "Resource not found").with(&serde_json::json!({"uri": uri}))
    }

    /// The same in the words of the modern era.
    pub(crate) fn modern_resource_not_found(uri: &str) -> Self {
        Self::invalid_params("Resource not found").with(&serde_json::json!({"uri": uri}))
    }

    /// What `tasks/result` says about a task that was cancelled: there is nothing that the call would have returned.
    /// Errors have no `_meta`, so the task is named in the data.
    pub(crate) fn task_cancelled(task: &RelatedTask) -> Self {
        Self::new(INTERNAL_ERROR, "The task was cancelled").with(&serde_json::json!({task.key: task}))
    }

    /// A failure of the host: logged here, under the id that the client gets to see.
    pub(crate) fn host_failure(cause: fmt::Arguments<'_>) -> Self {
        let mut bytes = [0; 8];
        let incident = match getrandom::fill(&mut bytes) {
            Ok(()) => format!("{:016x}", u64::from_be_bytes(bytes)),
            Err(_) => "unnumbered".to_owned(),
        };
        tracing::error!(incident, "{cause}");
        Self::incident(&incident)
    }

    fn incident(incident: &str) -> Self {
        Self::new(INTERNAL_ERROR, "Internal error").with(&serde_json::json!({"incident": incident}))
    }
}

impl From<tasks::Error> for RpcError {
    fn from(error: tasks::Error) -> Self {
        use tasks::{Error, Unavailable};
        match error {
            Error::NotFound => Self::invalid_params("Task not found"),
            Error::Ended => Self::invalid_params("The task is over; this can only be done to a task that is not"),
            Error::Illegal(text) => Self::invalid_params(text),
            Error::Quota { limit, value, retry_after_ms } => {
                let data = LimitData { limit, value, retry_after_ms };
                Self::new(QUOTA, format!("{limit} is at its limit of {value}"))
                    .by_limit(limit)
                    .rejected(Rejection::TooMany { retry_after_ms })
                    .with(&data)
            }
            Error::Rate { limit, value, retry_after_ms } => {
                let retry_after_ms = Some(retry_after_ms);
                let data = LimitData { limit, value, retry_after_ms };
                Self::new(RATE, format!("{limit} is at its limit of {value} per second"))
                    .by_limit(limit)
                    .rejected(Rejection::TooMany { retry_after_ms })
                    .with(&data)
            }
            Error::Invalid(text) => Self::invalid_params(text),
            Error::Unavailable { why: Unavailable::Draining, .. } => {
                Self::new(INTERNAL_ERROR, "The host is shutting down; try again later")
            }
            Error::Unavailable { why: why @ (Unavailable::Store | Unavailable::InDoubt), retry_after_ms } => {
                let data = match why {
                    Unavailable::InDoubt => serde_json::json!({"retryAfterMs": retry_after_ms, "inDoubt": true}),
                    _ => serde_json::json!({"retryAfterMs": retry_after_ms}),
                };
                let rejection = Rejection::Unavailable { retry_after_ms };
                Self::new(STORE_UNAVAILABLE, why.to_string()).rejected(rejection).with(&data)
            }
            Error::Unavailable { why: why @ Unavailable::Erased, .. } => Self::invalid_request(why.to_string()),
            Error::Unavailable { why: ref why @ Unavailable::Quarantined { ref plugin }, retry_after_ms } => {
                let data = serde_json::json!({"plugin": plugin, "retryAfterMs": retry_after_ms});
                Self::new(QUARANTINED, why.to_string()).with(&data)
            }
            Error::Host { incident } => Self::incident(&incident),
        }
    }
}

impl From<&CallError> for RpcError {
    fn from(error: &CallError) -> Self {
        match error {
            CallError::InvalidParams(text) | CallError::NotFound(text) => Self::invalid_params(text.as_str()),
            CallError::MissingCapability(feature) => {
                let (name, required) = required_capability(*feature);
                Self::invalid_request(format!("This call needs a client that declares {name}"))
                    .with(&serde_json::json!({"requiredCapabilities": required}))
            }
            CallError::Custom { code, .. } if (-32768..=-32000).contains(code) => {
                Self::host_failure(format_args!("a plugin's error code {code} lies in the reserved range"))
            }
            CallError::Custom { code, message, data } => {
                let raw = |json: &Json| RawValue::from_string(single_line(json.as_str()).into_owned()).ok();
                Self { data: data.as_ref().and_then(raw), ..Self::new(*code, message.as_str()) }
            }
            CallError::Fault { kind, reason } => {
                let code = match kind {
                    FaultKind::Trap => TRAP,
                    FaultKind::Limit => GUEST_LIMIT,
                    FaultKind::Deadline => DEADLINE,
                    FaultKind::InvalidOutput => INVALID_OUTPUT,
                };
                Self::new(code, reason.as_str())
            }
            CallError::Internal { incident } => Self::incident(incident),
            CallError::Interrupted => {
                Self::new(INTERNAL_ERROR, "The host stopped while this call ran; the call was not finished")
            }
        }
    }
}

/// The name of a feature, and the client capability that would declare it.
fn required_capability(feature: ClientFeature) -> (&'static str, serde_json::Value) {
    use serde_json::json;
    match feature {
        ClientFeature::ElicitationForm => ("elicitation.form", json!({"elicitation": {"form": {}}})),
        ClientFeature::ElicitationUrl => ("elicitation.url", json!({"elicitation": {"url": {}}})),
        ClientFeature::Sampling => ("sampling", json!({"sampling": {}})),
        ClientFeature::SamplingTools => ("sampling.tools", json!({"sampling": {"tools": {}}})),
        ClientFeature::SamplingContext => ("sampling.context", json!({"sampling": {"context": {}}})),
        ClientFeature::Roots => ("roots", json!({"roots": {}})),
        ClientFeature::Tasks => ("tasks", json!({"tasks": {}})),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(error: &RpcError) -> serde_json::Value {
        serde_json::to_value(error).unwrap()
    }

    #[test]
    fn quota_and_rate_errors_name_limit_and_retry_time() {
        let quota = tasks::Error::Quota { limit: "tasks_queued_per_requestor", value: 256, retry_after_ms: Some(1000) };
        let expected = serde_json::json!({"code": 1010, "message": "tasks_queued_per_requestor is at its limit of 256",
            "data": {"limit": "tasks_queued_per_requestor", "value": 256, "retryAfterMs": 1000}});
        assert_eq!(json(&RpcError::from(quota)), expected);
        let rate = tasks::Error::Rate { limit: "requests_per_second", value: 200, retry_after_ms: 5 };
        assert_eq!(json(&RpcError::from(rate))["code"], 1011);
    }

    #[test]
    fn missing_capability_has_a_code_per_revision() {
        let error = CallError::MissingCapability(ClientFeature::ElicitationUrl);
        assert_eq!(json(&RpcError::from(&error))["code"], -32600);
        let modern = RpcError::modern(&error);
        assert_eq!(modern.rejection, Some(Rejection::Unserved));
        assert_eq!(json(&modern)["code"], -32021);
        assert_eq!(json(&modern)["data"]["requiredCapabilities"], serde_json::json!({"elicitation": {"url": {}}}));
        let tasks = json(&RpcError::modern(&CallError::MissingCapability(ClientFeature::Tasks)));
        let required = serde_json::json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
        assert_eq!(tasks["data"]["requiredCapabilities"], required);
    }

    #[test]
    fn host_error_shows_fixed_text_and_incident() {
        let expected =
            serde_json::json!({"code": -32603, "message": "Internal error", "data": {"incident": "0badcafe"}});
        assert_eq!(json(&RpcError::from(tasks::Error::Host { incident: "0badcafe".into() })), expected);
        assert_eq!(json(&RpcError::from(&CallError::Internal { incident: "0badcafe".into() })), expected);
    }

    #[test]
    fn plugin_error_cannot_use_a_reserved_code() {
        let custom = |code| CallError::Custom { code, message: "x".into(), data: Some(Json::new("[1,\n2]")) };
        assert_eq!(json(&RpcError::from(&custom(-32601)))["code"], -32603);
        assert_eq!(json(&RpcError::from(&custom(42))), serde_json::json!({"code": 42, "message": "x", "data": [1, 2]}));
    }

    #[test]
    fn quarantine_error_names_plugin_and_retry_time() {
        let why = tasks::Unavailable::Quarantined { plugin: "csv".into() };
        let shown = json(&RpcError::from(tasks::Error::Unavailable { why, retry_after_ms: Some(990) }));
        assert_eq!(
            (&shown["code"], &shown["data"]),
            (&1005.into(), &serde_json::json!({"plugin": "csv", "retryAfterMs": 990}))
        );
        assert!(shown["message"].as_str().unwrap().contains("csv"));
        let draining = json(&RpcError::from(tasks::Error::draining()));
        assert_eq!((&draining["code"], draining.get("data")), (&(-32603).into(), None));
    }

    #[test]
    fn store_that_is_away_says_when_to_come_back_and_whether_something_may_have_been_done() {
        let shown = |why| {
            let error = RpcError::from(tasks::Error::Unavailable { why, retry_after_ms: Some(250) });
            assert_eq!(error.rejection, Some(Rejection::Unavailable { retry_after_ms: Some(250) }));
            let shown = json(&error);
            (shown["code"].clone(), shown["data"].clone())
        };
        let away = serde_json::json!({"retryAfterMs": 250});
        assert_eq!(shown(tasks::Unavailable::Store), (1013.into(), away));
        let in_doubt = serde_json::json!({"retryAfterMs": 250, "inDoubt": true});
        assert_eq!(shown(tasks::Unavailable::InDoubt), (1013.into(), in_doubt));
    }

    #[test]
    fn each_fault_kind_has_its_error_code() {
        for (kind, code) in [
            (FaultKind::Trap, 1001),
            (FaultKind::Limit, 1002),
            (FaultKind::Deadline, 1003),
            (FaultKind::InvalidOutput, 1004),
        ] {
            assert_eq!(RpcError::from(&CallError::Fault { kind, reason: "r".into() }).code, code);
        }
    }
}
