//! JSON-RPC 2.0 messages: reading envelopes, writing lines.
//!
//! Owns the shape of a message, not the meaning of any method. Parsing has two phases: the envelope with raw members first,
//! then (see [`params`]) the method's own type, so that one broken member cannot hide whose request it was. Invariant: what is
//! written is one line of JSON, and `id` is never `null`.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::encoded_message::EncodedMessage;
use super::error::RpcError;
use super::reader::{self, reason};
use bulkhead_domain::Json;

/// The id of a request: a string or an integer, as the sender chose it. An id is no number to reckon with, it is repeated: who
/// writes `1.0` and gets `1` back may not know it again. So the one spelling of integers is taken that every reader repeats alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub(crate) enum RequestId {
    Integer(i128),
    Text(String),
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Id;
        impl Visitor<'_> for Id {
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
            fn visit_str<E: de::Error>(self, value: &str) -> Result<RequestId, E> {
                Ok(RequestId::Text(value.to_owned()))
            }
        }
        deserializer.deserialize_any(Id)
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
        struct Token;
        impl Visitor<'_> for Token {
            type Value = ProgressToken;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an integer")
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<ProgressToken, E> {
                Ok(ProgressToken(RequestId::Integer(value.into())))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<ProgressToken, E> {
                Ok(ProgressToken(RequestId::Integer(value.into())))
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<ProgressToken, E> {
                let number = reader::whole(value).ok_or_else(|| E::invalid_type(Unexpected::Float(value), &self))?;
                Ok(ProgressToken(RequestId::Integer(number)))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<ProgressToken, E> {
                Ok(ProgressToken(RequestId::Text(value.to_owned())))
            }
        }
        deserializer.deserialize_any(Token)
    }
}

/// A message of the other side.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    Request { id: RequestId, method: Cow<'a, str>, params: Option<&'a RawValue> },
    Notification { method: Cow<'a, str>, params: Option<&'a RawValue> },
    Response { id: RequestId, outcome: Result<&'a RawValue, PeerError> },
}

impl<'a> Message<'a> {
    /// What a request or a notification is about.
    pub(crate) fn params(&self) -> Option<&'a RawValue> {
        match self {
            Self::Request { params, .. } | Self::Notification { params, .. } => *params,
            Self::Response { .. } => None,
        }
    }
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

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// Keeps `null` apart from an absent member.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Reads a message.
pub(crate) fn parse(bytes: &[u8]) -> Result<Message<'_>, Malformed> {
    let nameless = |error| Malformed { id: None, error: Box::new(error) };
    let text = std::str::from_utf8(bytes).map_err(|_| nameless(RpcError::parse("the message is not UTF-8")))?;
    if text.trim_start().starts_with('[') {
        return Err(nameless(RpcError::invalid_request("batches are not supported: send one message at a time")));
    }
    let envelope: Envelope<'_> = serde_json::from_str(text).map_err(|error| {
        nameless(if error.is_data() {
            let problem = reader::read::<Envelope<'_>>(text, "the message").err().unwrap_or_else(|| reason(&error));
            RpcError::invalid_request(format!("not a JSON-RPC message: {problem}"))
        } else {
            RpcError::parse(format!("not JSON: {error}"))
        })
    })?;
    let id = match envelope.id {
        None => None,
        Some(raw) => Some(
            serde_json::from_str::<RequestId>(raw.get())
                .map_err(|_| nameless(RpcError::invalid_request("id must be a string or an integer")))?,
        ),
    };
    classify(&envelope, id.clone()).map_err(|error| Malformed { id, error: Box::new(error) })
}

fn classify<'a>(envelope: &Envelope<'a>, id: Option<RequestId>) -> Result<Message<'a>, RpcError> {
    if envelope.jsonrpc.is_none_or(|version| version.get() != "\"2.0\"") {
        return Err(RpcError::invalid_request("jsonrpc must be \"2.0\""));
    }
    let params = envelope.params.filter(|raw| raw.get() != "null");
    match (envelope.method, id, envelope.result, envelope.error) {
        (Some(method), id, None, None) => {
            let method = text(method).ok_or_else(|| RpcError::invalid_request("method must be a string"))?;
            Ok(match id {
                Some(id) => Message::Request { id, method, params },
                None => Message::Notification { method, params },
            })
        }
        (None, Some(id), Some(result), None) => Ok(Message::Response { id, outcome: Ok(result) }),
        (None, Some(id), None, Some(error)) => {
            let error = reader::read(error.get(), "error").map_err(RpcError::invalid_request)?;
            Ok(Message::Response { id, outcome: Err(error) })
        }
        _ => Err(RpcError::invalid_request(
            "a message is a request (id, method), a notification (method) or a response (id, and result or error)",
        )),
    }
}

/// A text; borrowed unless it has escapes.
pub(crate) fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    match serde_json::from_str::<&str>(raw.get()) {
        Ok(plain) => Some(Cow::Borrowed(plain)),
        Err(_) => serde_json::from_str(raw.get()).ok().map(Cow::Owned),
    }
}

/// Reads the params of a method; absent ones are an empty object. Members that the type does not know are ignored.
pub(crate) fn params<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Result<T, RpcError> {
    member(raw.map_or("{}", RawValue::get), "params")
}

/// Reads one member of params; `path` names it in the refusal.
pub(crate) fn member<'a, T: Deserialize<'a>>(text: &'a str, path: &str) -> Result<T, RpcError> {
    reader::read(text, path).map_err(RpcError::invalid_params)
}

/// Reads a value and refuses objects that name a member twice: two readers might take different ones. Depth is bounded by
/// `serde_json` (128).
pub(crate) fn strict_value(text: &str) -> Result<Value, String> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Strict.deserialize(&mut deserializer).map_err(|error| reason(&error))?;
    deserializer.end().map_err(|error| reason(&error))?;
    Ok(value)
}

struct Strict;

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
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
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

/// The response to a request. A result that cannot be written (JSON text of a guest that is none) becomes a host failure.
pub(crate) fn response<T: Serialize>(id: &RequestId, result: &T) -> EncodedMessage {
    EncodedMessage::of(&Reply { jsonrpc: "2.0", id, result }).unwrap_or_else(|cause| {
        error_response(Some(id), &RpcError::host_failure(format_args!("a result cannot be written: {cause}"))).into()
    })
}

/// The response to a request that failed; without an id where none could be read.
pub(crate) fn error_response(id: Option<&RequestId>, error: &RpcError) -> String {
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

    fn refusal(text: &str) -> (Option<RequestId>, i32) {
        let malformed = parse(text.as_bytes()).unwrap_err();
        (malformed.id, malformed.error.code)
    }

    #[test]
    fn jsonrpc_message_kinds_are_told_apart() {
        let request = parse(br#"{"jsonrpc":"2.0","id":1,"method":"ping","extra":[1]}"#).unwrap();
        assert!(
            matches!(request, Message::Request { id: RequestId::Integer(1), method, params: None } if method == "ping")
        );
        let notification = parse(br#"{"jsonrpc":"2.0","method":"a\u0062"}"#).unwrap();
        assert!(matches!(notification, Message::Notification { method, .. } if method == "ab"));
        let response = parse(br#"{"jsonrpc":"2.0","id":"x","result":{}}"#).unwrap();
        assert!(matches!(response, Message::Response { outcome: Ok(_), .. }));
        let error = parse(br#"{"jsonrpc":"2.0","id":"x","error":{"code":-1,"message":"no"}}"#).unwrap();
        assert!(matches!(error, Message::Response { outcome: Err(error), .. } if error.message == "no"));
    }

    #[test]
    fn bad_request_ids_are_refused_without_id() {
        for id in ["null", "1.5", "1.0", "true", "[]", "{}", "1e3"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            assert_eq!(refusal(&text), (None, -32600), "{id}");
        }
    }

    #[test]
    fn malformed_request_with_valid_id_is_refused_with_id() {
        let seven = Some(RequestId::Integer(7));
        assert_eq!(refusal(r#"{"id":7,"method":"ping"}"#), (seven.clone(), -32600));
        assert_eq!(refusal(r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#), (seven.clone(), -32600));
        assert_eq!(refusal(r#"{"jsonrpc":"2.0","id":7,"method":1}"#), (seven.clone(), -32600));
        assert_eq!(refusal(r#"{"jsonrpc":"2.0","id":7}"#), (seven.clone(), -32600));
        assert_eq!(refusal(r#"{"jsonrpc":"2.0","id":7,"method":"a","result":{}}"#), (seven, -32600));
    }

    #[test]
    fn invalid_json_and_invalid_message_have_different_codes() {
        assert_eq!(refusal("{").1, -32700);
        assert_eq!(refusal("").1, -32700);
        assert_eq!(refusal("7").1, -32600);
        assert_eq!(refusal(" [{\"jsonrpc\":\"2.0\"}]").1, -32600);
        assert_eq!(refusal(r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#).1, -32600);
        assert_eq!(parse(b"{\"jsonrpc\":\"\xff\"}").unwrap_err().error.code, -32700);
    }

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
        let list: &RawValue = serde_json::from_str(r#"["x"]"#).unwrap();
        assert_eq!(params::<Named>(Some(list)).err().unwrap().code, -32602);
        assert_eq!(params::<Named>(None).err().unwrap().message, "params.name is missing; it must be a string");
    }

    #[test]
    fn error_response_without_id_omits_the_member() {
        let line = error_response(None, &RpcError::parse("x"));
        assert_eq!(line, r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"x"}}"#);
    }
}
