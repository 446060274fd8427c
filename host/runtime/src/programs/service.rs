//! A web service: one HTTP request in, the response out, and no network between them.
//!
//! Owns both as JSON. A status of 400 or more is an answer like any other; what the service does not answer at all, or
//! breaks off, is a failure. The body is taken while the guest writes it, so that one without an end is stopped at the
//! call's limit.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::try_join;
use http::header::{CONTENT_LENGTH, HOST};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use http_body_util::{BodyExt as _, Full};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use wasmtime::component::Instance;
use wasmtime_wasi_http::p2::bindings::ProxyIndices;
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, Scheme};
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;
use wasmtime_wasi_http::{Error, WasiHttpView as _};

use super::answers::{argument_error, quoted, said, text};
use crate::bindings::exports::bulkhead::plugin::tools::ToolOutput;
use crate::call::Call;
use crate::content::{base64_size, block_size};
use crate::limits::LimitHit;
use crate::trap_causes::BrokenAnswer;
use bulkhead_domain::text::beginning;

/// Headers of one request. Each costs the host much more than its bytes.
const HEADERS_MAX: usize = 256;

/// Whom a request is for that does not say so.
const HOST_NAME: &str = "localhost";

pub(super) fn description(plugin: &str) -> String {
    format!(
        "Sends one HTTP request to the web service {plugin} and returns its response, whatever the status. The service runs inside of the \
         host, for this request alone: it keeps nothing from one request to the next."
    )
}

/// Header values by name: one, or several.
fn headers_schema(description: &str) -> Value {
    let value = json!({"type": ["string", "array"], "items": {"type": "string"}});
    json!({"type": "object", "additionalProperties": value, "description": description})
}

fn encoding_schema() -> Value {
    json!({"type": "string", "enum": ["text", "base64"], "description": "How `body` is written; base64 for what is no text."})
}

pub(super) fn input_schema() -> Value {
    let mut headers = headers_schema("Values by name.");
    if let Some(headers) = headers.as_object_mut() {
        headers.insert("maxProperties".to_owned(), HEADERS_MAX.into());
    }
    json!({
        "type": "object",
        "properties": {
            "method": {"type": "string", "default": "GET", "description": "The method, such as GET or POST."},
            "path": {"type": "string", "default": "/", "description": "The path, with a query if there is one."},
            "headers": headers,
            "body": {"type": "string", "description": "The body of the request."},
            "body_encoding": encoding_schema()
        },
        "additionalProperties": false
    })
}

pub(super) fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "status": {"type": "integer", "minimum": 100, "maximum": 999},
            "headers": headers_schema("Values by name, which is in lower case."),
            "body": {"type": "string"},
            "body_encoding": encoding_schema()
        },
        "required": ["status", "headers", "body", "body_encoding"],
        "additionalProperties": false
    })
}

/// How a body stands in JSON.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum BodyEncoding {
    #[default]
    Text,
    Base64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(default = "get")]
    method: String,
    #[serde(default = "root")]
    path: String,
    #[serde(default)]
    headers: Map<String, Value>,
    #[serde(default)]
    body: String,
    #[serde(default)]
    body_encoding: BodyEncoding,
}

fn get() -> String {
    "GET".to_owned()
}

fn root() -> String {
    "/".to_owned()
}

/// The request that the arguments describe, or which of them is wrong.
fn parse(arguments: &str) -> Result<http::Request<Bytes>, String> {
    let Arguments { method, path, headers, body, body_encoding } = serde_json::from_str(arguments)
        .map_err(|error| format!("The arguments do not fit: {}", argument_error(&error)))?;
    let body = match body_encoding {
        BodyEncoding::Text => Bytes::from(body),
        BodyEncoding::Base64 => STANDARD.decode(body).map_err(|error| format!("body: no base64: {error}"))?.into(),
    };
    if !path.starts_with('/') {
        return Err(format!("path: {} does not begin with a slash", quoted(&path)));
    }
    let mut request = http::Request::new(body);
    *request.method_mut() = Method::from_bytes(method.as_bytes())
        .map_err(|_| format!("method: {} is no method of HTTP", quoted(&method)))?;
    *request.uri_mut() =
        path.parse::<Uri>().map_err(|error| format!("path: {} is not a path of a request: {error}", quoted(&path)))?;
    let headers = parse_headers(&headers)?;
    let size = HeaderValue::from(request.body().len());
    *request.headers_mut() = headers;
    check_host(request.headers())?;
    if !request.headers().contains_key(HOST) {
        request.headers_mut().insert(HOST, HeaderValue::from_static(HOST_NAME));
    }
    // Whatever the caller counted: these are the bytes that come.
    if !request.body().is_empty() || request.headers().contains_key(CONTENT_LENGTH) {
        request.headers_mut().insert(CONTENT_LENGTH, size);
    }
    Ok(request)
}

/// The guest gets the host as a text of its own, beside the headers, which may hold other bytes.
fn check_host(headers: &HeaderMap) -> Result<(), String> {
    let mut hosts = headers.get_all(HOST).iter();
    let is_host = |value: &HeaderValue| Authority::try_from(value.as_bytes()).is_ok();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => Err("headers: \"host\" has more than one value".to_owned()),
        (Some(host), None) if !is_host(host) => {
            Err("headers: \"host\" is not the name of a host, with a port if there is one".to_owned())
        }
        _ => Ok(()),
    }
}

fn parse_headers(headers: &Map<String, Value>) -> Result<HeaderMap, String> {
    let mut parsed = HeaderMap::new();
    for (name, values) in headers {
        let key = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("headers: {} is not the name of a header", quoted(name)))?;
        let values = match values {
            Value::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        for value in values {
            let value = value.as_str().and_then(|value| HeaderValue::from_str(value).ok());
            let value = value.ok_or_else(|| {
                format!("headers: {} has a value that is not a line of visible characters", quoted(name))
            })?;
            if parsed.len() >= HEADERS_MAX {
                return Err(format!("headers: more than {HEADERS_MAX} values"));
            }
            parsed.append(key.clone(), value);
        }
    }
    Ok(parsed)
}

/// What came of a request.
enum Answer {
    Response(http::response::Parts, Vec<u8>),
    /// The service says why there is none.
    Error(ErrorCode),
    Nothing,
}

/// Has the service answer a request.
pub(super) async fn request(
    service: &ProxyIndices,
    store: &mut wasmtime::Store<Call>,
    instance: &Instance,
    arguments: &str,
) -> wasmtime::Result<ToolOutput> {
    let request = match parse(arguments) {
        Ok(request) => request,
        Err(wrong) => return Ok(said(wrong)),
    };
    let service = service.load(&mut *store, instance)?;
    let bytes_max = store.data().result_bytes;
    let (sender, receiver) = oneshot::channel();
    let mut http = store.data_mut().http();
    let request = http.new_incoming_request(Scheme::Http, request.map(|body| Full::new(body).map_err(no_error)))?;
    let outparam = http.new_response_outparam(sender)?;
    let guest = async {
        service.wasi_http_incoming_handler().call_handle(&mut *store, request, outparam).await?;
        // What the guest still holds would keep the body open although nobody writes any more.
        store.data_mut().drop_resources();
        Ok(())
    };
    let answer = async {
        match receiver.await {
            Ok(Ok(response)) => collect(response, bytes_max).await,
            Ok(Err(code)) => Ok(Answer::Error(code)),
            Err(_) => Ok(Answer::Nothing),
        }
    };
    match try_join(guest, answer).await?.1 {
        Answer::Response(head, body) => Ok(output(&head, body)),
        Answer::Error(code) => Ok(said(unanswered(&code, bytes_max))),
        Answer::Nothing => Err(BrokenAnswer("the service ended without a response".into()).into()),
    }
}

/// It may hold words of the service.
fn unanswered(code: &ErrorCode, bytes_max: u64) -> String {
    let words = format!("The service did not answer: {code:?}");
    let envelope = block_size(&text(""));
    beginning(&words, usize::try_from(bytes_max).unwrap_or(usize::MAX).saturating_sub(envelope)).to_owned()
}

fn no_error(never: std::convert::Infallible) -> Error {
    match never {}
}

/// Reads a body as it is written.
async fn collect(response: http::Response<HyperOutgoingBody>, bytes_max: u64) -> wasmtime::Result<Answer> {
    let (head, mut body) = response.into_parts();
    let mut taken = ResponseBody::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| BrokenAnswer("the service broke off the body of its response".into()))?;
        let Some(data) = frame.data_ref() else { continue };
        taken.add(data, bytes_max)?;
    }
    Ok(Answer::Response(head, taken.finish(bytes_max)?))
}

/// A response body while it comes, and how long it gets as a string of JSON: text with escapes, everything else in
/// base64.
#[derive(Default)]
struct ResponseBody {
    bytes: Vec<u8>,
    /// How much of it is text so far; a character may still be incomplete.
    text_bytes: usize,
    is_binary: bool,
    /// The length with escapes.
    escaped: usize,
}

impl ResponseBody {
    /// Takes more, unless it can only get too long, whatever still comes.
    fn add(&mut self, data: &[u8], bytes_max: u64) -> Result<(), LimitHit> {
        if (self.bytes.len() + data.len()) as u64 > bytes_max {
            return Err(LimitHit::Output { what: "response body", bytes_max });
        }
        self.bytes.extend_from_slice(data);
        self.escaped += data.iter().map(|byte| escaped_size(*byte)).sum::<usize>();
        if !self.is_binary {
            match std::str::from_utf8(self.bytes.get(self.text_bytes..).unwrap_or_default()) {
                Ok(text) => self.text_bytes += text.len(),
                Err(error) => {
                    self.text_bytes += error.valid_up_to();
                    self.is_binary = error.error_len().is_some();
                }
            }
        }
        let encoded = if self.is_binary { self.base64() } else { self.base64().min(self.escaped) };
        check_encoded(encoded, bytes_max)
    }

    fn finish(self, bytes_max: u64) -> Result<Vec<u8>, LimitHit> {
        let is_text = self.text_bytes == self.bytes.len();
        check_encoded(if is_text { self.escaped } else { self.base64() }, bytes_max)?;
        Ok(self.bytes)
    }

    fn base64(&self) -> usize {
        base64_size(&self.bytes)
    }
}

fn check_encoded(bytes: usize, bytes_max: u64) -> Result<(), LimitHit> {
    let hit = LimitHit::Output { what: "response body as a string of JSON", bytes_max };
    if bytes as u64 > bytes_max { Err(hit) } else { Ok(()) }
}

/// What becomes of one byte of a text in a string of JSON.
fn escaped_size(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0C => 2,
        0..0x20 => 6,
        _ => 1,
    }
}

fn output(head: &http::response::Parts, body: Vec<u8>) -> ToolOutput {
    let mut headers = Map::new();
    for name in head.headers.keys() {
        let values = head.headers.get_all(name).iter();
        let mut values: Vec<_> =
            values.map(|value| Value::from(String::from_utf8_lossy(value.as_bytes()).into_owned())).collect();
        let value = if values.len() == 1 { values.remove(0) } else { Value::Array(values) };
        headers.insert(name.as_str().to_owned(), value);
    }
    let (body, encoding) = match String::from_utf8(body) {
        Ok(text) => (text, "text"),
        Err(binary) => (STANDARD.encode(binary.as_bytes()), "base64"),
    };
    let response = json!({"status": head.status.as_u16(), "headers": headers, "body": body, "body_encoding": encoding});
    ToolOutput { content: Vec::new(), structured: Some(response.to_string()), is_error: false, meta: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &Value) -> http::Request<Bytes> {
        parse(&arguments.to_string()).unwrap()
    }

    #[test]
    fn request_has_defaults_and_a_host() {
        let request = parsed(&json!({}));
        assert_eq!((request.method(), request.uri().to_string().as_str()), (&Method::GET, "/"));
        assert_eq!(request.headers()[HOST], "localhost");
        assert!(!request.headers().contains_key(CONTENT_LENGTH));
    }

    #[test]
    fn request_carries_what_the_arguments_say() {
        let request = parsed(&json!({"method": "POST", "path": "/a?b=c", "body": "/wA=", "body_encoding": "base64",
            "headers": {"Host": "example.com", "content-length": "99", "X-Twice": ["one", "two"]}}));
        assert_eq!(request.uri().path_and_query().unwrap(), "/a?b=c");
        assert_eq!(request.headers()[HOST], "example.com");
        assert_eq!(request.headers()[CONTENT_LENGTH], "2", "the bytes that come are counted here");
        assert_eq!(request.headers().get_all("x-twice").iter().count(), 2);
        assert_eq!(request.body().as_ref(), [0xFF, 0]);
    }

    #[test]
    fn request_that_is_no_http_is_refused_by_member() {
        let many = Value::from(vec!["x"; HEADERS_MAX + 1]);
        for (arguments, why) in [
            (json!({"method": "GE T"}), "method: \"GE T\""),
            (json!({"path": "example.com"}), "path: \"example.com\" does not begin"),
            (json!({"path": "/a b"}), "path: \"/a b\" is not"),
            (json!({"headers": {"a b": "x"}}), "headers: \"a b\""),
            (json!({"headers": {"a": "x\r\ny: z"}}), "headers: \"a\" has a value"),
            (json!({"headers": {"a": many}}), "more than 256"),
            (json!({"headers": {"Host": "é"}}), "headers: \"host\" is not the name of a host"),
            (json!({"headers": {"host": ""}}), "headers: \"host\" is not the name of a host"),
            (json!({"headers": {"host": "a/b"}}), "headers: \"host\" is not the name of a host"),
            (json!({"headers": {"host": ["a", "é"]}}), "headers: \"host\" has more than one value"),
            (json!({"body": "?", "body_encoding": "base64"}), "body: no base64"),
            (json!({"url": "/"}), "unknown field `url`"),
        ] {
            let wrong = parse(&arguments.to_string()).unwrap_err();
            assert!(wrong.contains(why), "{wrong}");
        }
    }

    #[test]
    fn refusal_quotes_the_beginning_of_what_it_refuses() {
        let long = "x".repeat(100_000);
        for wrong in [
            json!({"path": long}),
            json!({"path": format!("/{long}\u{7f}")}),
            json!({"method": format!("{long} ")}),
            json!({"headers": {format!("{long} "): "a"}}),
            json!({"headers": {"x".repeat(60_000): 1}}),
            json!({long.as_str(): 1}),
            json!({"body_encoding": long}),
        ] {
            let refused = parse(&wrong.to_string()).unwrap_err();
            assert!(refused.contains("xxx") && refused.len() < 400, "{} bytes", refused.len());
        }
    }

    #[test]
    fn response_body_counts_as_it_stands_in_the_result() {
        let taken = |pieces: &[&[u8]], bytes_max| {
            let mut body = ResponseBody::default();
            pieces.iter().try_for_each(|piece| body.add(piece, bytes_max))?;
            body.finish(bytes_max)
        };
        let ascii: Vec<u8> = (0..=0x7F).collect();
        let texts = ["", "plain", "gr\u{fc}n \u{6f22}", std::str::from_utf8(&ascii).unwrap()];
        for text in texts {
            let size = serde_json::to_string(text).unwrap().len() as u64 - 2;
            // Also if it comes in the middle of its characters.
            let pieces: Vec<_> = text.as_bytes().chunks(1).collect();
            assert_eq!(taken(&pieces, size), Ok(text.as_bytes().to_vec()), "{text}");
            if size > 0 {
                assert!(taken(&pieces, size - 1).is_err(), "{text}");
            }
        }
        for binary in [&[0xFF; 100][..], b"half a character \xC3", &[[0; 60], [0xFF; 60]].concat()[..]] {
            let size = STANDARD.encode(binary).len() as u64;
            let pieces: Vec<_> = binary.chunks(7).collect();
            assert_eq!(taken(&pieces, size), Ok(binary.to_vec()), "{binary:?}");
            let refused = taken(&pieces, size - 1).unwrap_err().to_string();
            assert!(refused.contains("response body as a string of JSON is longer than"), "{refused}");
        }
        let endless = std::iter::repeat(&[0xFF; 10][..]);
        let mut body = ResponseBody::default();
        assert!(endless.take(10).try_for_each(|piece| body.add(piece, 100)).is_err(), "it is stopped while it comes");
        assert!(body.bytes.len() <= 80, "{}", body.bytes.len());
    }

    #[test]
    fn words_of_a_service_without_an_answer_fit_into_a_result() {
        let words = unanswered(&ErrorCode::InternalError(Some("x".repeat(10_000))), 1024);
        assert!(
            words.starts_with("The service did not answer: ") && block_size(&text(words.as_str())) <= 1024,
            "{words}"
        );
    }

    #[test]
    fn response_is_told_with_repeated_headers_and_encoding() {
        let response = http::Response::builder()
            .status(404)
            .header("set-cookie", "a=1")
            .header("set-cookie", "b=2")
            .header("content-type", "image/png");
        let (head, ()) = response.body(()).unwrap().into_parts();
        let told = |body: &[u8]| {
            let output = output(&head, body.to_vec());
            assert!(!output.is_error, "a status is an answer");
            serde_json::from_str::<Value>(&output.structured.unwrap()).unwrap()
        };
        let headers = json!({"set-cookie": ["a=1", "b=2"], "content-type": "image/png"});
        assert_eq!(told(b"hi"), json!({"status": 404, "headers": headers, "body": "hi", "body_encoding": "text"}));
        assert_eq!(told(&[0xFF, 0])["body"], "/wA=");
        assert_eq!(told(&[0xFF, 0])["body_encoding"], "base64");
    }
}
