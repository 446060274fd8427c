//! Sends requests of every kind, and goes after redirects like a library that trusts whoever answers.

use bulkhead_plugin::{Error, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wasip2::http::outgoing_handler;
use wasip2::http::types::{Fields, IncomingResponse, Method, OutgoingBody, OutgoingRequest, Scheme};
use wasip2::io::streams::StreamError;

/// Bytes that are sent at a time.
const CHUNK: usize = 4096;
/// Redirects that are gone after.
const REDIRECTS_MAX: usize = 5;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Wish {
    /// Like GET.
    method: String,
    /// As it goes to the host.
    url: String,
    /// The size of the body that is sent.
    #[serde(default)]
    body_bytes: usize,
    /// Whether to go where the answer says.
    #[serde(default)]
    follow: bool,
    /// How many requests are kept open at the same time.
    #[serde(default = "one")]
    at_once: usize,
}

fn one() -> usize {
    1
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Answered {
    /// For each request: its status and body, or its error.
    results: Vec<String>,
}

pub(crate) fn send(wish: Wish) -> Result<Json<Answered>, Error> {
    let mut open = Vec::new();
    let mut results = Vec::new();
    for _ in 0..wish.at_once.max(1) {
        match follow(&wish) {
            Ok(response) => open.push(response),
            Err(error) => results.push(error),
        }
    }
    for response in open {
        let status = response.status();
        results.push(match body(&response) {
            Ok(text) => format!("{status} {text}"),
            Err(error) => format!("{status} {error}"),
        });
    }
    Ok(Json(Answered { results }))
}

fn follow(wish: &Wish) -> Result<IncomingResponse, String> {
    let mut url = wish.url.clone();
    for _ in 0..REDIRECTS_MAX {
        let response = request(&wish.method, &url, wish.body_bytes)?;
        let location = response.headers().get("location").first().cloned();
        match location {
            Some(location) if wish.follow => url = String::from_utf8_lossy(&location).into_owned(),
            _ => return Ok(response),
        }
    }
    Err("too many redirects".to_owned())
}

fn request(method: &str, url: &str, body_bytes: usize) -> Result<IncomingResponse, String> {
    let (scheme, rest) = url.split_once("://").ok_or("no scheme")?;
    let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let scheme = if scheme == "https" { Scheme::Https } else { Scheme::Http };
    let method = match method {
        "GET" => Method::Get,
        "POST" => Method::Post,
        "DELETE" => Method::Delete,
        other => Method::Other(other.to_owned()),
    };
    let request = OutgoingRequest::new(Fields::new());
    request
        .set_method(&method)
        .and_then(|()| request.set_scheme(Some(&scheme)))
        .and_then(|()| request.set_authority(Some(authority)))
        .and_then(|()| request.set_path_with_query(Some(path)))
        .map_err(|()| "the request was refused".to_owned())?;
    let outgoing = request.body().map_err(|()| "there is no body".to_owned())?;
    let response = outgoing_handler::handle(request, None).map_err(|code| format!("{code:?}"))?;
    let sent = fill(&outgoing, body_bytes);
    OutgoingBody::finish(outgoing, None).map_err(|code| format!("{code:?}"))?;
    response.subscribe().block();
    match response.get() {
        Some(Ok(Ok(response))) => Ok(response),
        Some(Ok(Err(code))) => Err(format!("{code:?}")),
        // What went wrong with the body says more than that there is no answer.
        Some(Err(())) | None => Err(sent.err().unwrap_or_else(|| "no response".to_owned())),
    }
}

fn fill(body: &OutgoingBody, bytes: usize) -> Result<(), String> {
    let stream = body.write().map_err(|()| "the body was taken".to_owned())?;
    let mut left = bytes;
    while left > 0 {
        let chunk = left.min(CHUNK);
        stream.blocking_write_and_flush(&vec![b'x'; chunk]).map_err(|_| format!("{} of {bytes} sent", bytes - left))?;
        left -= chunk;
    }
    Ok(())
}

fn body(response: &IncomingResponse) -> Result<String, String> {
    let body = response.consume().map_err(|()| "the body was taken".to_owned())?;
    let stream = body.stream().map_err(|()| "the stream was taken".to_owned())?;
    let mut bytes = 0;
    let mut text = Vec::new();
    loop {
        match stream.blocking_read(CHUNK as u64) {
            Ok(chunk) => {
                bytes += chunk.len();
                if text.len() < CHUNK {
                    text.extend_from_slice(&chunk);
                }
            }
            Err(StreamError::Closed) => return Ok(format!("{bytes} {}", String::from_utf8_lossy(&text))),
            Err(StreamError::LastOperationFailed(error)) => {
                return Err(format!("{bytes} {}", error.to_debug_string()));
            }
        }
    }
}
