//! JSON-RPC 2.0 messages: what they are made of, reading params, writing lines.
//!
//! Owns the shape of a message, not the meaning of any method. Parsing has two phases: the envelope with raw members
//! first (see [`Envelope`](super::Envelope)), then (see [`params`]) the method's own type, so that one broken member
//! cannot hide whose request it was. Invariant: what is written is one line of JSON, and `id` is never `null`.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::encoded_message::{EncodedMessage, Ending};
use super::error::RpcError;
use super::reader::{self, reason};
use bulkhead_domain::Json;
use bulkhead_metrics::Answer;

/// The id of a request: a string or an integer, as the sender chose it. An id is no number to reckon with, it is
/// repeated: who writes `1.0` and gets `1` back may not know it again. So the one spelling of integers is taken that
/// every reader repeats alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub(crate) enum RequestId {
    Integer(i128),
    Text(String),
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IdVisitor { any_spelling: false })
    }
}

/// Reads a string or an integer.
struct IdVisitor {
    /// Whether `1.0` is an integer, too.
    any_spelling: bool,
}

impl Visitor<'_> for IdVisitor {
    type Value = RequestId;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or an integer")
    }
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<RequestId, E> {
        Ok(RequestId::Integer(value.into()))
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<RequestId, E> {
        Ok(RequestId::Integer(value.into()))
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<RequestId, E> {
        let number = reader::whole(value).filter(|_| self.any_spelling);
        number.map(RequestId::Integer).ok_or_else(|| E::invalid_type(Unexpected::Float(value), &self))
    }
    fn visit_str<E: de::Error>(self, value: &str) -> Result<RequestId, E> {
        Ok(RequestId::Text(value.to_owned()))
    }
}

/// The token under which a client wants to hear of progress.
pub(crate) struct ProgressToken(RequestId);

impl ProgressToken {
    /// As it stands in notifications.
    pub(crate) fn json(&self) -> Option<Json> {
        serde_json::to_string(&self.0).ok().map(Json::new)
    }
}

impl<'de> Deserialize<'de> for ProgressToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IdVisitor { any_spelling: true }).map(Self)
    }
}

/// A message of the other side, as its envelope has it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message<'a> {
    Request { id: &'a RequestId, method: &'a str, params: Option<&'a str> },
    Notification { method: &'a str, params: Option<&'a str> },
    Response { id: &'a RequestId, outcome: Result<&'a str, &'a PeerError> },
}

/// An error that the other side answered with. Only what is of use here.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PeerError {
    #[serde(default)]
    pub(crate) message: String,
}

/// A message that is none.
#[derive(Debug)]
pub(crate) struct Malformed {
    /// The id, where it could be read.
    pub(crate) id: Option<RequestId>,
    pub(crate) error: Box<RpcError>,
}

/// A text; borrowed unless it has escapes.
pub(crate) fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    match serde_json::from_str::<&str>(raw.get()) {
        Ok(plain) => Some(Cow::Borrowed(plain)),
        Err(_) => serde_json::from_str(raw.get()).ok().map(Cow::Owned),
    }
}

/// Reads the params of a method; absent ones are an empty object. Members that the type does not know are ignored.
pub(crate) fn params<'a, T: Deserialize<'a>>(raw: Option<&'a str>) -> Result<T, RpcError> {
    member(raw.unwrap_or("{}"), "params")
}

/// Reads one member of params; `path` names it in the refusal.
pub(crate) fn member<'a, T: Deserialize<'a>>(text: &'a str, path: &str) -> Result<T, RpcError> {
    reader::read(text, path).map_err(RpcError::invalid_params)
}

/// Reads a value and refuses objects that name a member twice: two readers might take different ones. Depth is bounded
/// by `serde_json` (128).
pub(crate) fn strict_value(text: &str) -> Result<Value, String> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Strict.deserialize(&mut deserializer).map_err(|error| reason(&error))?;
    deserializer.end().map_err(|error| reason(&error))?;
    Ok(value)
}

struct Strict;

macro_rules! visit_scalars {
    ($($method:ident($type:ty))*) => {$(
        fn $method<E>(self, value: $type) -> Result<Value, E> {
            Ok(value.into())
        }
    )*};
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    visit_scalars! {
        visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) visit_str(&str) visit_string(String)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element_seed(Strict)? {
            values.push(value);
        }
        Ok(values.into())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = serde_json::Map::new();
        while let Some(name) = map.next_key::<String>()? {
            if members.contains_key(&name) {
                return Err(de::Error::custom(format_args!("the member `{name}` is there twice")));
            }
            let value = map.next_value_seed(Strict)?;
            members.insert(name, value);
        }
        Ok(members.into())
    }
}

#[derive(Serialize)]
struct Reply<'a, T> {
    jsonrpc: &'static str,
    id: &'a RequestId,
    result: &'a T,
}

#[derive(Serialize)]
struct ErrorReply<'a> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RequestId>,
    error: &'a RpcError,
}

#[derive(Serialize)]
struct Call<'a, T> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a T>,
}

/// The response to a request. A result that cannot be written (JSON text of a guest that is none) becomes a host
/// failure.
pub(crate) fn response<T: Serialize>(id: &RequestId, result: &T) -> EncodedMessage {
    EncodedMessage::of(&Reply { jsonrpc: "2.0", id, result }).unwrap_or_else(|cause| {
        error_response(Some(id), &RpcError::host_failure(format_args!("a result cannot be written: {cause}")))
    })
}

/// The response to a request that failed; without an id where none could be read.
pub(crate) fn error_response(id: Option<&RequestId>, error: &RpcError) -> EncodedMessage {
    EncodedMessage::from(error_body(id, error)).ending(Ending { answer: Answer::Error(error.code), limit: error.limit })
}

/// The same for a message that was refused before it became a request.
pub(crate) fn error_body(id: Option<&RequestId>, error: &RpcError) -> String {
    serde_json::to_string(&ErrorReply { jsonrpc: "2.0", id, error })
        .unwrap_or_else(|_| r#"{"jsonrpc":"2.0","error":{"code":-32603,"message":"Internal error"}}"#.to_owned())
}

/// A notification; `None` when its params cannot be written, which is not worth failing anything for.
pub(crate) fn notification<T: Serialize>(method: &str, params: Option<&T>) -> Option<String> {
    serde_json::to_string(&Call { jsonrpc: "2.0", id: None, method, params }).ok()
}

/// The same for one that may be large.
pub(crate) fn large_notification<T: Serialize>(method: &str, params: &T) -> Option<EncodedMessage> {
    EncodedMessage::of(&Call { jsonrpc: "2.0", id: None, method, params: Some(params) }).ok()
}

/// A request of the host to a client; `None` when its params cannot be written.
pub(crate) fn request<T: Serialize>(id: &str, method: &str, params: &T) -> Option<String> {
    serde_json::to_string(&Call { jsonrpc: "2.0", id: Some(id), method, params: Some(params) }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_members_and_deep_nesting_are_refused() {
        assert!(strict_value(r#"{"a":{"b":1,"b":2}}"#).unwrap_err().contains("`b`"));
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert!(strict_value(&deep).unwrap_err().contains("recursion"));
        assert_eq!(strict_value(r#"{"a":[1,-2,1.5,"x",null,true]}"#).unwrap()["a"][2], 1.5);
    }

    #[test]
    fn request_params_must_be_an_object() {
        #[derive(Deserialize)]
        struct Named {
            #[expect(dead_code, reason = "only its presence is asked for")]
            name: String,
        }
        assert_eq!(params::<Named>(Some(r#"["x"]"#)).err().unwrap().code, -32602);
        assert_eq!(params::<Named>(None).err().unwrap().message, "params.name is missing; it must be a string");
    }

    #[test]
    fn error_response_without_id_omits_the_member() {
        let line = error_response(None, &RpcError::parse("x")).into_text();
        assert_eq!(line, r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"x"}}"#);
    }
}
