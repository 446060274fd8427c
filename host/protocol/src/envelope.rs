//! The envelope of a message: what it is, whose answer it wants, and of which era it is.
//!
//! Owns the one reading of a message's outermost members, which the transports look at and the eras go on from. Must
//! not know any method's params. Invariant: a part is kept as its span in the bytes, so that a large message is in
//! memory once.

use std::ops::Range;
use std::sync::OnceLock;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};
use serde_json::value::RawValue;

use super::error::RpcError;
use super::jsonrpc::{Malformed, Message, PeerError, RequestId};
use super::modern;
use super::reader::{self, reason};
use bulkhead_domain::task::Era;

/// One message as it arrived, read once.
pub struct Envelope {
    bytes: Bytes,
    kind: Result<Kind, Malformed>,
    /// The id as it is written; only that of a request.
    id: Option<Span>,
    era: OnceLock<Era>,
}

/// Where a part stands in the bytes.
pub(crate) type Span = Range<usize>;

enum Kind {
    Request { id: RequestId, method: Method, params: Option<Span> },
    Notification { method: Method, params: Option<Span> },
    Response { id: RequestId, outcome: Result<Span, PeerError> },
}

/// The name of a method.
enum Method {
    Plain(Span),
    /// It was written with escapes.
    Unescaped(String),
}

#[derive(Deserialize)]
struct Members<'a> {
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

impl Envelope {
    /// Reads a message. One that is malformed is refused when it is received, so that every refusal before that names
    /// its id.
    pub fn parse(bytes: Bytes) -> Self {
        let (kind, id) = read(&bytes);
        Self { bytes, kind, id, era: OnceLock::new() }
    }

    /// The id of a request as it is written; of anything else `None`. It may be of any length.
    pub fn id(&self) -> Option<&str> {
        std::str::from_utf8(self.bytes.get(self.id.clone()?)?).ok()
    }

    /// The whole message.
    #[cfg(feature = "testing")]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The era that the message says itself. A malformed message says nothing.
    pub fn era(&self) -> Era {
        *self.era.get_or_init(|| match self.message() {
            Ok(Message::Request { method, params, .. } | Message::Notification { method, params })
                if matches!(method, "server/discover" | "subscriptions/listen")
                    || params.is_some_and(modern::names_a_version) =>
            {
                Era::Modern
            }
            _ => Era::Legacy,
        })
    }

    /// The message, or why it is none.
    pub(crate) fn message(&self) -> Result<Message<'_>, &Malformed> {
        // It was found to be one when it was read.
        let text = std::str::from_utf8(&self.bytes).unwrap_or_default();
        let part = |span: &Span| text.get(span.clone()).unwrap_or_default();
        Ok(match self.kind.as_ref()? {
            Kind::Request { id, method, params } => {
                Message::Request { id, method: method.name(text), params: params.as_ref().map(part) }
            }
            Kind::Notification { method, params } => {
                Message::Notification { method: method.name(text), params: params.as_ref().map(part) }
            }
            Kind::Response { id, outcome } => Message::Response { id, outcome: outcome.as_ref().map(part) },
        })
    }
}

/// What a message is, and the span of its id if it is a request.
fn read(bytes: &[u8]) -> (Result<Kind, Malformed>, Option<Span>) {
    let nameless = |error| Err(Malformed { id: None, error: Box::new(error) });
    let Ok(text) = std::str::from_utf8(bytes) else {
        return (nameless(RpcError::parse("the message is not UTF-8")), None);
    };
    if text.trim_start().starts_with('[') {
        let refusal =
            RpcError::invalid_request("batches are not supported in this revision: send one message at a time");
        return (nameless(refusal), None);
    }
    let members: Members<'_> = match serde_json::from_str(text) {
        Ok(members) => members,
        Err(error) if error.is_data() => {
            let problem = reader::read::<Members<'_>>(text, "the message").err().unwrap_or_else(|| reason(&error));
            let refusal = RpcError::invalid_request(format!("not a JSON-RPC message: {problem}"));
            return (nameless(refusal), id_of_unfit(text));
        }
        Err(error) => return (nameless(RpcError::parse(format!("not JSON: {error}"))), None),
    };
    let id = match members.id.map(|raw| serde_json::from_str::<RequestId>(raw.get())).transpose() {
        Ok(id) => id,
        Err(_) => return (nameless(RpcError::invalid_request("id must be a string or an integer")), None),
    };
    let is_request = members.method.is_some_and(|method| method.get() != "null");
    let span = members.id.filter(|_| is_request).map(|id| span_of(text, id.get()));
    let kind = classify(text, &members, id.clone()).map_err(|error| Malformed { id, error: Box::new(error) });
    (kind, span)
}

/// The id of a request in which other members are there twice.
fn id_of_unfit(text: &str) -> Option<Span> {
    #[derive(Deserialize)]
    struct Unfit<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
        method: Option<IgnoredAny>,
    }
    let unfit = reader::read_if_fits::<Unfit<'_>>(text).filter(|unfit| unfit.method.is_some())?;
    serde_json::from_str::<RequestId>(unfit.id.get()).ok()?;
    Some(span_of(text, unfit.id.get()))
}

fn classify(text: &str, members: &Members<'_>, id: Option<RequestId>) -> Result<Kind, RpcError> {
    if members.jsonrpc.is_none_or(|version| version.get() != "\"2.0\"") {
        return Err(RpcError::invalid_request("jsonrpc must be \"2.0\""));
    }
    let params = members.params.map(RawValue::get).filter(|raw| *raw != "null").map(|raw| span_of(text, raw));
    match (members.method, id, members.result, members.error) {
        (Some(method), id, None, None) => {
            let method =
                Method::read(text, method).ok_or_else(|| RpcError::invalid_request("method must be a string"))?;
            Ok(match id {
                Some(id) => Kind::Request { id, method, params },
                None => Kind::Notification { method, params },
            })
        }
        (None, Some(id), Some(result), None) => Ok(Kind::Response { id, outcome: Ok(span_of(text, result.get())) }),
        (None, Some(id), None, Some(error)) => {
            let error = reader::read(error.get(), "error").map_err(RpcError::invalid_request)?;
            Ok(Kind::Response { id, outcome: Err(error) })
        }
        _ => Err(RpcError::invalid_request(
            "a message is a request (id, method), a notification (method) or a response (id, and result or error)",
        )),
    }
}

impl Method {
    fn name<'a>(&'a self, message: &'a str) -> &'a str {
        match self {
            Self::Plain(span) => message.get(span.clone()).unwrap_or_default(),
            Self::Unescaped(name) => name,
        }
    }

    fn read(message: &str, raw: &RawValue) -> Option<Self> {
        match serde_json::from_str::<&str>(raw.get()) {
            Ok(name) => Some(Self::Plain(span_of(message, name))),
            Err(_) => serde_json::from_str(raw.get()).ok().map(Self::Unescaped),
        }
    }
}

/// Where a part of a text stands in it.
pub(crate) fn span_of(text: &str, part: &str) -> Span {
    let begin = part.as_ptr().addr().saturating_sub(text.as_ptr().addr());
    begin..begin + part.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: impl AsRef<[u8]>) -> Envelope {
        Envelope::parse(Bytes::copy_from_slice(text.as_ref()))
    }

    fn refusal(text: &str) -> (Option<RequestId>, i32) {
        let envelope = parse(text);
        let malformed = envelope.message().unwrap_err();
        (malformed.id.clone(), malformed.error.code)
    }

    #[test]
    fn jsonrpc_message_kinds_are_told_apart() {
        let request = parse(r#"{"jsonrpc":"2.0","id":1,"method":"ping","extra":[1]}"#);
        let message = request.message().unwrap();
        assert!(matches!(message, Message::Request { id: RequestId::Integer(1), method: "ping", params: None }));
        let notification = parse(r#"{"jsonrpc":"2.0","method":"a\u0062","params": {"é": 1} }"#);
        let message = notification.message().unwrap();
        assert!(matches!(message, Message::Notification { method: "ab", params: Some("{\"é\": 1}") }), "{message:?}");
        let response = parse(r#"{"jsonrpc":"2.0","id":"x","result":{}}"#);
        assert!(matches!(response.message().unwrap(), Message::Response { outcome: Ok("{}"), .. }));
        let error = parse(r#"{"jsonrpc":"2.0","id":"x","error":{"code":-1,"message":"no"}}"#);
        let message = error.message().unwrap();
        assert!(matches!(message, Message::Response { outcome: Err(error), .. } if error.message == "no"));
    }

    #[test]
    fn envelope_names_the_id_of_requests_only() {
        let id = |text: &str| parse(text).id().map(str::to_owned);
        assert_eq!(id(r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#).as_deref(), Some("7"));
        // As it is written, whatever else is wrong.
        assert_eq!(id(r#"{"id": "a\"b" ,"method":"ping"}"#).as_deref(), Some(r#""a\"b""#));
        assert_eq!(id(r#"{"id":1,"method":5,"params":1,"params":2}"#).as_deref(), Some("1"));
        for none in [
            r#"{"id":1.5,"method":"x"}"#,
            r#"{"id":null,"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"{"id":1,"method":null}"#,
            r#"{"id":1,"id":2,"method":"x"}"#,
            r#"{"id":1,"method":"x","params":1,"params":2"#,
            "[]",
            "{",
            "[7,1]",
        ] {
            assert_eq!(id(none), None, "{none}");
        }
    }

    #[test]
    fn era_is_what_the_message_says_itself() {
        let era = |text: &str| parse(text).era();
        let with = |member: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{{member}}}}}"#);
        let modern = [
            with(r#""_meta":{"io.modelcontextprotocol/protocolVersion":7}"#),
            with(r#""_m\u0065ta":{"io.modelcontextprotocol\/protocolVersio\u006e":"1900-01-01"}"#),
            r#"{"jsonrpc":"2.0","id":1,"method":"server/discover"}"#.to_owned(),
            r#"{"jsonrpc":"2.0","method":"subscriptions\/listen"}"#.to_owned(),
        ];
        assert!(modern.iter().all(|text| era(text) == Era::Modern));
        let legacy = [
            with(r#""_meta":{"io.modelcontextprotocol/protocolVersion":null}"#),
            with(r#""text":"io.modelcontextprotocol/protocolVersion""#),
            with(r#""_meta":["io.modelcontextprotocol/protocolVersion"]"#),
            r#"{"jsonrpc":"2.0","id":1,"result":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#
                .to_owned(),
            r#"{"id":1,"method":"server/discover"}"#.to_owned(),
        ];
        assert!(legacy.iter().all(|text| era(text) == Era::Legacy));
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
        let not_utf8 = parse(b"{\"jsonrpc\":\"\xff\"}");
        assert_eq!(not_utf8.message().unwrap_err().error.code, -32700);
    }
}
