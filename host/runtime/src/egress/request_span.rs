//! The span of an outgoing request, and what its destination is told of the trace.
//!
//! Must not say a path, a query, a header or a body: they may hold what the guest was given. Invariant: a destination
//! learns of a trace only where its grant says so.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use wasmtime_wasi_http::Error;

use super::response::{Driver, Response};
use crate::secrets::Refusal;
use bulkhead_calls::policy::HttpGrant;
use bulkhead_traces::{Kind, Span};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The methods that have a meaning; a guest may write anything.
const METHODS: [&str; 9] = ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];

/// Begins the span of a request within that of its call.
pub(super) fn begin(call: &Span, method: &http::Method, host: &str, port: u16) -> Option<Span> {
    let method = METHODS.into_iter().find(|known| *known == method.as_str()).unwrap_or("_OTHER");
    let span = call.child(method, Kind::Client)?;
    span.set_name(method, Some(host));
    span.set("http.request.method", method);
    span.set("server.address", host);
    span.set("server.port", i64::from(port));
    Some(span)
}

/// Tells the destination of the trace, if a grant wants that. What the guest says of a trace itself is its own.
pub(super) fn pass_on(span: &Span, grants: &[&HttpGrant], headers: &mut HeaderMap) {
    let is_wanted = grants.iter().any(|grant| grant.trace) && !headers.contains_key(TRACEPARENT);
    if let Ok(value) = HeaderValue::from_str(&span.context().to_string())
        && is_wanted
    {
        headers.insert(TRACEPARENT, value);
    }
}

/// Ends the span when the head of the answer is there, or none comes.
pub(super) fn end(span: &Span, sent: &Result<(Response, Driver), Refusal>) {
    match sent {
        Ok((response, _)) => {
            let status = response.status();
            span.set("http.response.status_code", i64::from(status.as_u16()));
            if status.is_client_error() || status.is_server_error() {
                span.fail(status.as_str());
            }
        }
        Err(Refusal::Missing(_)) => span.fail("refused"),
        Err(Refusal::Failed(error)) => span.fail(kind(error)),
    }
    span.end();
}

fn kind(error: &Error) -> &'static str {
    match error {
        Error::HttpRequestDenied | Error::DestinationIpProhibited | Error::HttpRequestUriInvalid => "refused",
        Error::DnsError { .. } | Error::DestinationNotFound => "dns",
        Error::ConnectionTimeout
        | Error::ConnectionReadTimeout
        | Error::ConnectionWriteTimeout
        | Error::HttpResponseTimeout => "timeout",
        Error::Connect(_) => "connect",
        Error::Tls(_) => "tls",
        _ => "failed",
    }
}
