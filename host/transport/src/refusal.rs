//! Refusals that the transports make themselves.
//!
//! Owns their JSON-RPC bodies. Must not contain anything that a client did not send or may not know. Invariant: `id` is
//! there only when it could be read, since `null` is against the schemas of both revisions.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use bulkhead_identity::auth::{Limited, Unauthorized};
use bulkhead_limits::Full;
use bulkhead_limits::rate::{Exceeded, TooMany};
use bulkhead_protocol::{Batch, Envelope};

/// The message is not a valid request for this endpoint.
const INVALID_REQUEST: i32 = -32600;
/// The code that clients in the field know for a session that is gone.
const SESSION_UNKNOWN: i32 = -32001;
/// Something is wrong on our side.
const INTERNAL: i32 = -32603;
/// A quota of the requestor is full.
const QUOTA: i32 = 1010;
/// The requestor sends too fast.
const RATE: i32 = 1011;
/// The store cannot be reached.
const STORE_UNAVAILABLE: i32 = 1013;

/// An id that is longer is not echoed: it would grow headers and event ids.
pub(super) const ID_BYTES_MAX: usize = 256;

/// When to come back where nobody can know: places come back all the time.
const PLACE_RETRY_MS: u64 = 1_000;
/// A host that is going down is seldom back sooner.
const DRAINING_RETRY_MS: u64 = 5_000;

/// A refusal: a status for HTTP and a JSON-RPC error for everybody.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    code: i32,
    message: String,
    /// JSON.
    data: Option<String>,
    id: Option<String>,
    pub(super) retry_after_ms: Option<u64>,
    /// The limit that it is about.
    pub(super) limit: Option<&'static str>,
}

/// Which limit refused a request, on its response for those who count.
#[derive(Clone, Copy)]
pub(super) struct RefusedBy(pub(super) &'static str);

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, code: INVALID_REQUEST, message, data: None, id: None, retry_after_ms: None, limit: None }
    }

    /// Unknown, ended, expired or another requestor's session: the client cannot tell which.
    pub(super) fn session_unknown() -> Self {
        let message = "There is no such session: send initialize without a session header to open a new one";
        Self { code: SESSION_UNKNOWN, ..Self::new(StatusCode::NOT_FOUND, message) }
    }

    /// The host cannot do it now; `incident` is what the log calls it.
    pub(super) fn host_failure(incident: &str) -> Self {
        let message = "The host failed; the operator finds the reason in the log under the incident id";
        Self { code: INTERNAL, ..Self::new(StatusCode::INTERNAL_SERVER_ERROR, message) }
            .with_data(&json!({ "incident": incident }))
    }

    /// The store cannot be reached, so nothing was done.
    pub(super) fn store_unavailable(retry_after_ms: u64) -> Self {
        let message = "The store cannot be reached at the moment; nothing was done, try again later";
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self { code: STORE_UNAVAILABLE, retry_after_ms: Some(retry_after_ms), ..Self::new(status, message) }
            .with_data(&json!({ "retryAfterMs": retry_after_ms }))
    }

    pub(super) fn draining() -> Self {
        let message = "The host is shutting down: connect again later";
        let retry_after_ms = Some(DRAINING_RETRY_MS);
        Self { code: INTERNAL, retry_after_ms, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }

    /// The host goes down before the request has come to its end. Nothing says when to try again: it may have had an
    /// effect.
    pub(super) fn stopped() -> Self {
        let message = "The host is shutting down and stopped while this call ran; the call was not finished";
        Self { code: INTERNAL, ..Self::new(StatusCode::OK, message) }
    }

    pub(super) fn rate(exceeded: &Exceeded) -> Self {
        let Exceeded { limit, value, retry_after_ms } = *exceeded;
        let message = format!("Too many requests: {limit} is at its limit of {value}");
        Self { code: RATE, ..Self::too_many(message, limit, value.into(), retry_after_ms) }
    }

    /// A batch of more messages than the rate lets through at once. Nothing says when to try again: it never passes.
    pub(super) fn batch_above_rate(too_many: &TooMany) -> Self {
        let TooMany { limit, value, at_once_max } = *too_many;
        Self { code: RATE, ..Self::too_large_batch(limit, value.into(), at_once_max.into()) }
    }

    /// The same with more messages than there are places for open requests.
    pub(super) fn batch_above_quota(Full { limit, value }: Full) -> Self {
        Self { code: QUOTA, ..Self::too_large_batch(limit, value, value) }
    }

    fn too_large_batch(limit: &'static str, value: u64, messages_max: u64) -> Self {
        let message = format!(
            "The batch has more messages than {limit}, which is {value}, allows at once: {messages_max} is the most. Send it in \
             several batches"
        );
        let data = json!({ "limit": limit, "value": value, "batchMessagesMax": messages_max });
        Self { limit: Some(limit), ..Self::new(StatusCode::PAYLOAD_TOO_LARGE, message).with_data(&data) }
    }

    /// Too many bytes of large bodies.
    pub(super) fn bytes(exceeded: &Exceeded) -> Self {
        let Exceeded { limit, value, retry_after_ms } = *exceeded;
        let message = format!("Too many bytes in request bodies: {limit} is at its limit of {value}");
        Self { code: RATE, ..Self::too_many(message, limit, value.into(), retry_after_ms) }
    }

    pub(super) fn quota(Full { limit, value }: Full) -> Self {
        let message = format!("{limit} is at its limit of {value}");
        Self { code: QUOTA, ..Self::too_many(message, limit, value, PLACE_RETRY_MS) }
    }

    /// A call was made, and there is no room for its answer. Nothing says when to try again, since that would make the
    /// call once more.
    pub(super) fn unread(Full { limit, value }: Full) -> Self {
        let message = format!(
            "{limit} is at its limit of {value}: the answer was dropped, because answers that are not read yet take up the room; \
             read those first"
        );
        let refusal = Self { code: QUOTA, limit: Some(limit), ..Self::new(StatusCode::OK, message) };
        refusal.with_data(&json!({ "limit": limit, "value": value }))
    }

    /// Too many credentials from one address were none.
    pub(super) fn failures(value: u32, retry_after_ms: u64) -> Self {
        let message = "Too many invalid credentials came from this address: send a valid one, or try again later";
        let limit = "credential_failures_per_minute";
        Self { code: RATE, ..Self::too_many(message.to_owned(), limit, value.into(), retry_after_ms) }
    }

    fn too_many(message: String, limit: &'static str, value: u64, retry_after_ms: u64) -> Self {
        let retry_after_ms = Some(retry_after_ms);
        let limit_of = Some(limit);
        Self { retry_after_ms, limit: limit_of, ..Self::new(StatusCode::TOO_MANY_REQUESTS, message) }
            .with_data(&json!({ "limit": limit, "value": value, "retryAfterMs": retry_after_ms }))
    }

    /// The stream cannot be continued: what it said is gone.
    pub(super) fn stream_lost() -> Self {
        let message = "The stream cannot be resumed because its messages are no longer kept; a task that it was about can \
                       still be read with tasks/get";
        Self { code: INTERNAL, ..Self::new(StatusCode::OK, message) }
    }

    pub(super) fn with_data(self, data: &Value) -> Self {
        Self { data: Some(data.to_string()), ..self }
    }

    /// Under another status.
    pub(super) fn at(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Answers the request with this id.
    pub(super) fn to(self, id: Option<String>) -> Self {
        Self { id, ..self }
    }

    /// Answers every request of a batch; `None` when it has none.
    pub(super) fn batch_body(&mut self, batch: &Batch) -> Option<String> {
        let ids = batch.ids().map(|id| Some(id.to_owned()).filter(|id| id.len() <= ID_BYTES_MAX));
        let bodies: Vec<_> = ids
            .map(|id| {
                self.id = id;
                self.body()
            })
            .collect();
        (!bodies.is_empty()).then(|| format!("[{}]", bodies.join(",")))
    }

    /// Over HTTP.
    pub(super) fn response(&self) -> Response {
        let mut response = Response::new(Body::from(self.body()));
        *response.status_mut() = self.status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        retry_after(&mut response, self.retry_after_ms);
        if let Some(limit) = self.limit {
            response.extensions_mut().insert(RefusedBy(limit));
        }
        response
    }

    /// The JSON-RPC error, on one line.
    pub(super) fn body(&self) -> String {
        let Self { code, message, data, id, .. } = self;
        let id = id.as_ref().map(|id| format!(r#""id":{id},"#)).unwrap_or_default();
        let data = data.as_ref().map(|data| format!(r#","data":{data}"#)).unwrap_or_default();
        let message = Value::from(message.as_str());
        format!(r#"{{"jsonrpc":"2.0",{id}"error":{{"code":{code},"message":{message}{data}}}}}"#)
    }
}

impl From<&Unauthorized> for Refusal {
    fn from(unauthorized: &Unauthorized) -> Self {
        match unauthorized {
            Unauthorized::Missing => {
                Self::new(StatusCode::UNAUTHORIZED, "A bearer token is required: send Authorization: Bearer TOKEN")
            }
            Unauthorized::Malformed => Self::new(
                StatusCode::BAD_REQUEST,
                "The Authorization header is malformed: send exactly one, as Bearer TOKEN",
            ),
            Unauthorized::Invalid => Self::new(StatusCode::UNAUTHORIZED, "The bearer token is not valid"),
            Unauthorized::Unavailable { incident } => Self::host_failure(incident),
            Unauthorized::StoreUnavailable { retry_after_ms } => Self::store_unavailable(*retry_after_ms),
            Unauthorized::Limited(Limited::Failures(exceeded)) => {
                Self::failures(exceeded.per_minute, exceeded.retry_after_ms)
            }
            Unauthorized::Limited(Limited::Rate(exceeded)) => Self::rate(exceeded),
            Unauthorized::Limited(Limited::Full(full)) => Self::quota(*full),
        }
    }
}

/// Says when to come back, in the whole seconds that the header has.
pub(super) fn retry_after(response: &mut Response, retry_after_ms: Option<u64>) {
    if let Some(ms) = retry_after_ms {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1_000).max(1)));
    }
}

/// The id of a request as it was written; `None` for anything that is not a request with an id of bearable length.
pub(super) fn request_id(envelope: &Envelope) -> Option<String> {
    envelope.id().filter(|id| id.len() <= ID_BYTES_MAX).map(str::to_owned)
}

/// Checks that a text is one JSON string or integer of bearable length.
pub(super) fn usable_id(text: &str) -> Option<String> {
    let good = text.len() <= ID_BYTES_MAX
        && match serde_json::from_str::<Value>(text).ok()? {
            Value::String(_) => true,
            Value::Number(number) => number.is_i64() || number.is_u64(),
            _ => false,
        };
    good.then(|| text.to_owned())
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn refusal_echoes_request_ids_of_bearable_length() {
        let id = |letters: usize| {
            let message = format!(r#"{{"id":"{}","method":"ping"}}"#, "a".repeat(letters));
            request_id(&Envelope::parse(message.into())).map(|id| id.len())
        };
        assert_eq!((id(ID_BYTES_MAX - 2), id(ID_BYTES_MAX - 1)), (Some(ID_BYTES_MAX), None));
    }

    #[test]
    fn refusal_omits_an_unknown_request_id() {
        let rate = || Refusal::rate(&Exceeded { limit: "requests_per_second", value: 200, retry_after_ms: 5 });
        let body = rate().body();
        let value: Value = serde_json::from_str(&body).unwrap();
        assert!(value.get("id").is_none());
        assert_eq!(value["error"]["code"], 1011);
        assert_eq!(value["error"]["data"]["retryAfterMs"], 5);
        assert!(rate().to(Some("3".into())).body().starts_with(r#"{"jsonrpc":"2.0","id":3,"#));
    }
}
