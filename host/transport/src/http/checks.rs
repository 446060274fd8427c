//! What a request's headers must be like before anything else looks at it.
//!
//! Owns Host, Origin, CORS, content types and the headers of MCP. Must not read the body. Invariant: a foreign browser
//! page gets nowhere: it cannot name itself as the host (DNS rebinding), nor pass the Origin check, nor read an answer.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use axum::response::Response;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request};
use serde_json::json;

use crate::refusal::Refusal;
use bulkhead_net::address::{is_this_machine, normal_host};
use bulkhead_protocol::{BATCH_VERSION, Declared, Session, VERSIONS, is_modern_version};

use super::Server;

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const LISTEN: &str = "subscriptions/listen";
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Bytes of a header that says which session or event is meant; longer ones are not ours.
const HEADER_VALUE_BYTES_MAX: usize = 512;
/// How long a browser may remember what it was allowed.
const CORS_SECONDS: HeaderValue = HeaderValue::from_static("600");
const CORS_METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
const CORS_EXPOSED: HeaderValue = HeaderValue::from_static("Mcp-Session-Id, WWW-Authenticate");
const CORS_HEADERS: &[&str] = &[
    "authorization",
    "content-type",
    "accept",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "mcp-method",
    "mcp-name",
];
/// Arguments that are repeated beside the message: tools choose their names.
const PARAM_PREFIX: &str = "mcp-param-";

impl Server {
    /// Host and Origin.
    pub(super) fn check_source(&self, request: &request::Parts) -> Result<(), Refusal> {
        let host = single(&request.headers, &header::HOST)?;
        let target = request.uri.authority().map(Authority::as_str);
        if host.is_none() && target.is_none() {
            return Err(Refusal::new(StatusCode::BAD_REQUEST, "The Host header is missing"));
        }
        for name in host.into_iter().chain(target) {
            if !self.is_own_host(name) {
                return Err(Refusal::new(
                    StatusCode::FORBIDDEN,
                    "This host does not answer to the name in the Host header; the operator can add it to server.allowed_hosts",
                ));
            }
        }
        match single(&request.headers, &header::ORIGIN)? {
            Some(origin) if !self.is_known_origin(origin) => Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "Requests from this origin are not allowed; the operator can add it to server.allowed_origins",
            )),
            _ => Ok(()),
        }
    }

    fn is_own_host(&self, name: &str) -> bool {
        if is_plain_loopback(name) {
            return true;
        }
        if self.hosts.contains(&one_spelling(name)) {
            return true;
        }
        // As it was sent: the short spelling of an address of IPv6 is no authority.
        let Ok(authority) = name.parse::<Authority>() else { return false };
        // `user@host` is no Host.
        !name.contains('@') && (is_loopback(authority.host()) || self.hosts.contains(&one_spelling(authority.host())))
    }

    /// Pages on this machine may send requests (whether a browser lets them read the answer is what CORS says, and that
    /// is for configured origins only).
    fn is_known_origin(&self, origin: &str) -> bool {
        if self.is_configured_origin(origin) {
            return true;
        }
        let Some(authority) = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")) else {
            return false;
        };
        !authority.contains('@') && authority.parse::<Authority>().is_ok_and(|authority| is_loopback(authority.host()))
    }

    fn is_configured_origin(&self, origin: &str) -> bool {
        self.options.allowed_origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
    }

    /// Lets pages of configured origins read the response.
    pub(super) fn add_cors(&self, request: &HeaderMap, response: &mut Response) {
        if self.options.allowed_origins.is_empty() {
            return;
        }
        let headers = response.headers_mut();
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
        let Some(origin) = request.get(header::ORIGIN) else { return };
        if origin.to_str().is_ok_and(|origin| self.is_configured_origin(origin)) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, CORS_EXPOSED);
        }
    }

    /// What a browser asks before it sends a page's request.
    pub(super) fn preflight(&self, request: &HeaderMap) -> Response {
        let mut response = Response::default();
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(header::ALLOW, super::endpoint::METHODS);
        let configured = request
            .get(header::ORIGIN)
            .and_then(|origin| origin.to_str().ok())
            .is_some_and(|origin| self.is_configured_origin(origin));
        if configured {
            let names = request.get(header::ACCESS_CONTROL_REQUEST_HEADERS).and_then(|names| names.to_str().ok());
            let allowed = names.unwrap_or_default().split(',').map(str::trim).filter(|name| {
                let name = name.to_ascii_lowercase();
                CORS_HEADERS.contains(&name.as_str()) || name.starts_with(PARAM_PREFIX)
            });
            if let Ok(allowed) = HeaderValue::from_str(&allowed.collect::<Vec<_>>().join(", ")) {
                headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
            }
            headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, CORS_METHODS);
            headers.insert(header::ACCESS_CONTROL_MAX_AGE, CORS_SECONDS);
        }
        response
    }

    /// `MCP-Protocol-Version`: without it a version is assumed, with it it must be one that is spoken here.
    pub(super) fn check_version(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        match single(headers, &PROTOCOL_VERSION)? {
            Some(version) if !VERSIONS.contains(&version) => {
                let message = format!("Unsupported protocol version: this host speaks {}", VERSIONS.join(", "));
                let requested: String = version.chars().take(64).collect();
                Err(Refusal::new(StatusCode::BAD_REQUEST, message)
                    .with_data(&json!({ "supported": VERSIONS, "requested": requested })))
            }
            _ => Ok(()),
        }
    }
}

/// A session of the revision that has batches, and no other, takes messages that are said to be of it.
pub(super) fn check_agreed(headers: &HeaderMap, session: &Session) -> Result<(), Refusal> {
    let agreed = session.protocol_version();
    match single(headers, &PROTOCOL_VERSION)? {
        Some(declared) if declared != agreed && [declared, agreed].contains(&BATCH_VERSION) => {
            let message = format!("This session agreed on {agreed}: send MCP-Protocol-Version: {agreed}");
            Err(Refusal::new(StatusCode::BAD_REQUEST, message))
        }
        _ => Ok(()),
    }
}

/// Whether the request speaks a revision that has sessions.
pub(super) fn is_legacy(headers: &HeaderMap) -> bool {
    let version = headers.get(PROTOCOL_VERSION).and_then(|version| version.to_str().ok());
    !version.is_some_and(is_modern_version)
}

/// What the headers say about the message, as it stands there: the protocol judges it.
pub(super) fn declared(headers: &HeaderMap) -> Declared<'_> {
    fn text(value: &HeaderValue) -> Cow<'_, str> {
        String::from_utf8_lossy(value.as_bytes())
    }
    let one = |name: HeaderName| {
        let values = headers.get_all(name).iter().map(text);
        values.reduce(|all, value| Cow::Owned(format!("{all}, {value}")))
    };
    let params = headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str().strip_prefix(PARAM_PREFIX)?.into(), text(value))));
    Declared { protocol_version: one(PROTOCOL_VERSION), method: one(METHOD), name: one(NAME), params: params.collect() }
}

/// Whether the request is for a stream that goes on telling things. The protocol makes sure that the header says what
/// the message does.
pub(super) fn listens(headers: &HeaderMap) -> bool {
    headers.get(METHOD).is_some_and(|method| method == LISTEN)
}

/// The id of the session that the request belongs to. One that cannot be ours reads as an unknown one.
pub(super) fn session_id(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    match single(headers, &SESSION_ID)? {
        Some(id) if id.len() > HEADER_VALUE_BYTES_MAX => Err(Refusal::session_unknown()),
        id => Ok(id),
    }
}

pub(super) fn last_event_id(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    single(headers, &LAST_EVENT_ID)
}

/// What the client can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accepts {
    pub(super) json: bool,
    pub(super) events: bool,
}

/// Reads `Accept`; without one, everything is fine.
pub(super) fn accepts(headers: &HeaderMap) -> Accepts {
    let mut accepts = Accepts { json: false, events: false };
    match headers.get(header::ACCEPT) {
        None => return Accepts { json: true, events: true },
        // As the specification asks for it: whatever more is said, both will do.
        Some(value) if value == "application/json, text/event-stream" => return Accepts { json: true, events: true },
        Some(_) => {}
    }
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in values.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let refused = parts.any(|part| {
            part.strip_prefix("q=")
                .is_some_and(|quality| quality.trim().parse::<f32>().is_ok_and(|quality| quality <= 0.0))
        });
        if !refused {
            let is_one_of = |names: [&str; 3]| names.iter().any(|name| media.eq_ignore_ascii_case(name));
            accepts.json |= is_one_of(["*/*", "application/*", "application/json"]);
            accepts.events |= is_one_of(["*/*", "text/*", "text/event-stream"]);
        }
    }
    accepts
}

/// What the client can read of answers to a POST, which may be JSON in any case.
pub(super) fn accepts_answers(headers: &HeaderMap) -> Result<Accepts, Refusal> {
    Some(accepts(headers)).filter(|accepts| accepts.json).ok_or_else(|| {
        Refusal::new(
            StatusCode::NOT_ACCEPTABLE,
            "Answers come as JSON or events: send Accept: application/json, text/event-stream",
        )
    })
}

/// Refuses a body that would have to be unpacked.
pub(super) fn check_coding(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut codings = headers.get_all(header::CONTENT_ENCODING).iter();
    if codings.any(|coding| !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity")) {
        return Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "Compressed bodies are not taken: send the body without a Content-Encoding header",
        ));
    }
    Ok(())
}

pub(super) fn check_content_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let media = single(headers, &header::CONTENT_TYPE)?.and_then(|value| value.split(';').next()).map(str::trim);
    if media.is_some_and(|media| media.eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "The body must be sent as Content-Type: application/json"))
}

/// The value of a header that may be there once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let wrong =
        || Refusal::new(StatusCode::BAD_REQUEST, format!("The header {name} must be sent once, in visible ASCII"));
    if values.next().is_some() {
        return Err(wrong());
    }
    value.to_str().map(|value| Some(value.trim())).map_err(|_| wrong())
}

/// A host, with a port or without, as it is compared: in lower case, without the dot of a complete name, and an address
/// of IPv6 in its shortest form, in brackets only where a port follows.
pub(super) fn one_spelling(host: &str) -> String {
    let host = host.to_ascii_lowercase();
    let inside = host.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (address, port) = inside.unwrap_or((&host, ""));
    match address.parse::<Ipv6Addr>() {
        Ok(address) if port.is_empty() => address.to_string(),
        Ok(address) => format!("[{address}]{port}"),
        Err(_) => host.strip_suffix('.').map_or_else(|| host.clone(), str::to_owned),
    }
}

fn is_loopback(host: &str) -> bool {
    is_this_machine(&normal_host(host))
}

/// Whether a Host is the usual spelling of this machine's, with a port or without: what need not be looked at more
/// closely.
fn is_plain_loopback(host: &str) -> bool {
    let (name, port) = host.split_once(':').unwrap_or((host, "80"));
    matches!(name, "127.0.0.1" | "localhost") && port.parse::<u16>().is_ok() && !port.starts_with('+')
}

/// The methods that the endpoint knows.
pub(super) fn is_known_method(method: &Method) -> bool {
    [Method::GET, Method::POST, Method::DELETE, Method::OPTIONS].contains(method)
}

#[cfg(test)]
mod unit {
    use super::*;

    fn accept(value: &str) -> Accepts {
        accepts(&HeaderMap::from_iter([(header::ACCEPT, value.parse().unwrap())]))
    }

    #[test]
    fn accept_header_is_read_with_wildcards_and_qualities() {
        assert_eq!(accepts(&HeaderMap::new()), Accepts { json: true, events: true });
        assert_eq!(accept("application/json, text/event-stream"), Accepts { json: true, events: true });
        assert_eq!(accept("Application/JSON; charset=utf-8;q=0.5"), Accepts { json: true, events: false });
        assert_eq!(accept("*/*;q=0.1"), Accepts { json: true, events: true });
        assert_eq!(accept("application/json;q=0, text/*"), Accepts { json: false, events: true });
        assert_eq!(accept("text/html"), Accepts { json: false, events: false });
    }

    #[test]
    fn host_header_spelling_is_normalized() {
        for name in ["2001:db8::1", "[2001:DB8::1]", "[2001:db8:0:0::1]"] {
            assert_eq!(one_spelling(name), "2001:db8::1");
        }
        assert_eq!(one_spelling("[2001:DB8:0::1]:443"), "[2001:db8::1]:443");
        for name in ["example.com:80", "[example.com]", "[::1", "127.0.0.1"] {
            assert_eq!(one_spelling(name), name);
        }
        assert_eq!(one_spelling("Example.COM"), "example.com");
        assert_eq!(one_spelling("Example.COM."), "example.com");
    }

    #[test]
    fn loopback_host_names_are_recognized() {
        for name in
            ["localhost", "LOCALHOST", "localhost.", "127.0.0.1", "127.8.8.8", "[::1]", "::1", "[::ffff:127.0.0.1]"]
        {
            assert!(is_loopback(name), "{name}");
        }
        for name in ["localhost.evil.example", "10.0.0.1", "[::2]", "[::ffff:10.0.0.1]", "127.0.0.1.example", ".", ""] {
            assert!(!is_loopback(name), "{name}");
        }
    }
}
