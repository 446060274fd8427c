//! What is kept from call to call, and requests of every shape.

use std::fmt::Write as _;
use std::time::Duration;

use bulkhead_plugin::{Error, Json, kv};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wasip2::http::outgoing_handler;
use wasip2::http::types::{Fields, IncomingResponse, Method, OutgoingBody, OutgoingRequest, Scheme};
use wasip2::io::streams::StreamError;

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum What {
    Get,
    Set,
    /// A value of `bytes` bytes.
    Fill,
    Delete,
    Keys,
    /// How many keys a page has, and where the next one begins.
    Page,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Keep {
    what: What,
    /// Or the prefix.
    key: String,
    /// Or the cursor.
    value: Option<String>,
    bytes: Option<usize>,
    ttl_ms: Option<u64>,
}

/// The error is told by its name, so that tests see which one it was.
pub(crate) fn keep(Keep { what, key, value, bytes, ttl_ms }: Keep) -> Result<String, Error> {
    let kept = |value: Vec<u8>| match ttl_ms {
        Some(ttl_ms) => kv::set_for(&key, value, Duration::from_millis(ttl_ms)).map(|()| "kept".to_owned()),
        None => kv::set(&key, value).map(|()| "kept".to_owned()),
    };
    let done = match what {
        What::Get => kv::get(&key).map(|value| match value {
            Some(value) => format!("{} bytes: {}", value.len(), String::from_utf8_lossy(&value[..value.len().min(60)])),
            None => "nothing".to_owned(),
        }),
        What::Set => kept(value.unwrap_or_default().into_bytes()),
        What::Fill => kept(vec![b'x'; bytes.unwrap_or_default()]),
        What::Delete => kv::delete(&key).map(|()| "gone".to_owned()),
        What::Keys => kv::keys(&key).map(|keys| keys.join(" ")),
        What::Page => kv::key_page(&key, value.as_deref()).map(|page| format!("{} {:?}", page.keys.len(), page.next)),
    };
    done.map_err(|error| Error::new(format!("{error:?}")))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Send {
    method: Option<String>,
    url: String,
    #[serde(default)]
    headers: Vec<(String, String)>,
    body: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Seen {
    status: u16,
    /// One line for each.
    headers: String,
    body: String,
}

fn wrong(error: impl std::fmt::Debug) -> Error {
    Error::new(format!("{error:?}"))
}

/// Sends what it is told to, and shows everything that comes back.
pub(crate) fn send(what: Send) -> Result<Json<Seen>, Error> {
    let (scheme, rest) = match what.url.split_once("://") {
        Some(("https", rest)) => (Scheme::Https, rest),
        Some((_, rest)) => (Scheme::Http, rest),
        None => return Err(Error::new("no scheme")),
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let fields = Fields::new();
    for (name, value) in &what.headers {
        fields.append(name, value.as_bytes()).map_err(wrong)?;
    }
    let request = OutgoingRequest::new(fields);
    let method = match what.method.as_deref() {
        None | Some("GET") => Method::Get,
        Some("POST") => Method::Post,
        Some(other) => Method::Other(other.to_owned()),
    };
    let accepted = request
        .set_method(&method)
        .and_then(|()| request.set_scheme(Some(&scheme)))
        .and_then(|()| request.set_authority(Some(authority)))
        .and_then(|()| request.set_path_with_query(Some(path)));
    accepted.map_err(wrong)?;
    let body = request.body().map_err(wrong)?;
    let response = outgoing_handler::handle(request, None).map_err(wrong)?;
    if let Some(text) = &what.body {
        let stream = body.write().map_err(wrong)?;
        for piece in text.as_bytes().chunks(1_000) {
            stream.blocking_write_and_flush(piece).map_err(wrong)?;
        }
    }
    OutgoingBody::finish(body, None).map_err(wrong)?;
    response.subscribe().block();
    let response = match response.get() {
        Some(Ok(response)) => response.map_err(wrong)?,
        other => return Err(wrong(other.is_some())),
    };
    let mut headers = String::new();
    for (name, value) in response.headers().entries() {
        writeln!(headers, "{name}: {}", String::from_utf8_lossy(&value))?;
    }
    Ok(Json(Seen { status: response.status(), headers, body: read(&response)? }))
}

fn read(response: &IncomingResponse) -> Result<String, Error> {
    let body = response.consume().map_err(wrong)?;
    let stream = body.stream().map_err(wrong)?;
    let mut bytes = Vec::new();
    loop {
        match stream.blocking_read(64 << 10) {
            Ok(chunk) => bytes.extend(chunk),
            Err(StreamError::Closed) => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(StreamError::LastOperationFailed(error)) => return Err(Error::new(error.to_debug_string())),
        }
    }
}
