//! One message of a server, read.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::requests::{GREETING_ID, PROGRESS_TOKEN, REQUEST_ID};
use crate::bindings::bulkhead::plugin::types as wit;
use crate::json::is_reserved;
use bulkhead_calls::ListKind;
use bulkhead_domain::Json;
use bulkhead_domain::call::LogLevel;

/// What a message is to the call.
#[derive(Debug)]
pub(super) enum Message {
    /// The call is over.
    Reply(Reply),
    Progress {
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    },
    Log {
        level: LogLevel,
        logger: Option<String>,
        data: String,
    },
    ListsChanged(ListKind),
    ResourceUpdated(String),
    /// The answer to the handshake; the error that it may be.
    Greeting(Option<RpcError>),
    /// What the server asks.
    Request(ServerRequest),
    /// Nothing of the call's.
    Stray,
}

/// How a request was answered.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    /// The text of an object.
    Result(Json),
    Error(RpcError),
}

/// A request of the server's own.
#[derive(Debug)]
pub(super) struct ServerRequest {
    /// A number or a text.
    pub(super) id: Value,
    pub(super) method: String,
    params: Option<Box<RawValue>>,
}

impl ServerRequest {
    /// The text of an object, unless the server wrote something else.
    pub(super) fn params(&self) -> &str {
        self.params.as_deref().map_or("{}", RawValue::get)
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct RpcError {
    pub(super) code: i64,
    #[serde(default)]
    pub(super) message: String,
    pub(super) data: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Cow<'a, str>,
    id: Option<Value>,
    method: Option<String>,
    params: Option<Box<RawValue>>,
    result: Option<Box<RawValue>>,
    error: Option<RpcError>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Progress {
    progress_token: Value,
    progress: f64,
    total: Option<f64>,
    message: Option<String>,
}

#[derive(Deserialize)]
struct Log {
    level: Level,
    logger: Option<String>,
    data: Box<RawValue>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

#[derive(Deserialize)]
struct Updated {
    uri: String,
}

/// Reads a text that is an object of JSON.
pub(super) fn read(text: &Json) -> Message {
    let Ok(envelope) = serde_json::from_str::<Envelope<'_>>(text.as_str()) else { return Message::Stray };
    let Envelope { jsonrpc, id, method, params, result, error } = envelope;
    if jsonrpc != "2.0" {
        return Message::Stray;
    }
    let is_ours = id.as_ref().is_some_and(|id| *id == REQUEST_ID);
    let is_greeting = id.as_ref().is_some_and(|id| *id == GREETING_ID);
    match (method, result, error) {
        (Some(method), None, None) if id.is_none() => {
            notification(&method, params.as_deref().map_or("{}", RawValue::get))
        }
        (Some(method), None, None) => match id {
            Some(id @ (Value::String(_) | Value::Number(_))) => Message::Request(ServerRequest { id, method, params }),
            _ => Message::Stray,
        },
        (None, Some(_), None) if is_greeting => Message::Greeting(None),
        (None, None, Some(error)) if is_greeting => Message::Greeting(Some(error)),
        (None, Some(result), None) if is_ours && result.get().starts_with('{') => {
            Message::Reply(Reply::Result(Json::new(result.get())))
        }
        // Without an id if the server did not get to know it.
        (None, None, Some(error)) if is_ours || id.is_none() => Message::Reply(Reply::Error(error)),
        _ => Message::Stray,
    }
}

fn notification(method: &str, params: &str) -> Message {
    let read = match method {
        "notifications/progress" => serde_json::from_str(params).ok().and_then(|progress: Progress| {
            let Progress { progress_token, progress, total, message } = progress;
            (progress_token == PROGRESS_TOKEN).then_some(Message::Progress { progress, total, message })
        }),
        "notifications/message" => serde_json::from_str(params).ok().map(|Log { level, logger, data }| {
            let level = level.into();
            Message::Log { level, logger, data: data.get().to_owned() }
        }),
        "notifications/tools/list_changed" => Some(Message::ListsChanged(ListKind::Tools)),
        "notifications/prompts/list_changed" => Some(Message::ListsChanged(ListKind::Prompts)),
        "notifications/resources/list_changed" => Some(Message::ListsChanged(ListKind::Resources)),
        "notifications/resources/updated" => {
            serde_json::from_str(params).ok().map(|Updated { uri }| Message::ResourceUpdated(uri))
        }
        _ => None,
    };
    read.unwrap_or(Message::Stray)
}

impl From<Level> for LogLevel {
    fn from(level: Level) -> Self {
        match level {
            Level::Debug => Self::Debug,
            Level::Info => Self::Info,
            Level::Notice => Self::Notice,
            Level::Warning => Self::Warning,
            Level::Error => Self::Error,
            Level::Critical => Self::Critical,
            Level::Alert => Self::Alert,
            Level::Emergency => Self::Emergency,
        }
    }
}

/// The members of an object in their order, each as it was written.
#[derive(Debug, Default)]
pub(super) struct Members(pub(super) Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Members;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

impl Members {
    /// As `_meta` of a plugin, without what belongs to the protocol; `dropped` hears of that.
    pub(super) fn into_meta(self, mut dropped: impl FnMut(&str)) -> wit::Meta {
        let mut meta = Vec::new();
        for (key, value) in self.0 {
            if is_reserved(&key) {
                dropped(&key);
            } else {
                meta.push((key, value.get().to_owned()));
            }
        }
        meta
    }

    /// The text of the object without one member.
    pub(super) fn without(&self, member: &str) -> String {
        let kept = self.0.iter().filter(|(name, _)| name != member);
        let kept: Vec<_> =
            kept.map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), value.get())).collect();
        format!("{{{}}}", kept.join(","))
    }
}

/// The `_meta` of something, if it has any.
pub(super) fn meta(members: Option<Members>) -> wit::Meta {
    members.unwrap_or_default().into_meta(|_| {})
}
