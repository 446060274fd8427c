//! One GET request, with the types of `wasi:http`.

use bulkhead_plugin::{Error, task};
use wasip2::http::outgoing_handler;
use wasip2::http::types::{ErrorCode, Fields, IncomingResponse, OutgoingRequest, Scheme};
use wasip2::io::streams::StreamError;

/// Bytes that are read at a time.
const CHUNK_BYTES: u64 = 64 * 1024;

/// Sends the request and waits for the response's head.
pub(crate) fn get(uri: &http::Uri) -> Result<IncomingResponse, Error> {
    let scheme = match uri.scheme_str() {
        Some("https") => Scheme::Https,
        Some("http") => Scheme::Http,
        _ => return Err(Error::new("the URL must begin with https:// or http://")),
    };
    let Some(authority) = uri.authority() else { return Err(Error::new("the URL names no host")) };
    if authority.as_str().contains('@') {
        return Err(Error::new("the URL must not carry a user name or password"));
    }
    let headers = Fields::new();
    headers
        .append("user-agent", b"bulkhead-plugin-http")
        .map_err(|error| Error::internal(format!("user-agent: {error:?}")))?;
    let request = OutgoingRequest::new(headers);
    let accepted = request
        .set_scheme(Some(&scheme))
        .and_then(|()| request.set_authority(Some(authority.as_str())))
        .and_then(|()| request.set_path_with_query(Some(uri.path_and_query().map_or("/", |path| path.as_str()))));
    if accepted.is_err() {
        return Err(Error::new("the host does not accept this URL"));
    }
    let response = outgoing_handler::handle(request, None).map_err(refused)?;
    response.subscribe().block();
    match response.get() {
        Some(Ok(response)) => response.map_err(refused),
        Some(Err(())) | None => Err(Error::internal("the response was taken before it was there")),
    }
}

/// Reads at most `bytes_max` bytes of the body; also says whether there were more.
pub(crate) fn body(response: &IncomingResponse, bytes_max: usize) -> Result<(Vec<u8>, bool), Error> {
    let body = response.consume().map_err(|()| Error::internal("the body was taken already"))?;
    let stream = body.stream().map_err(|()| Error::internal("the body's stream was taken already"))?;
    let mut bytes = Vec::new();
    while bytes.len() <= bytes_max {
        task::checkpoint()?;
        match stream.blocking_read(CHUNK_BYTES) {
            Ok(chunk) => bytes.extend_from_slice(&chunk),
            Err(StreamError::Closed) => break,
            Err(StreamError::LastOperationFailed(error)) => {
                return Err(Error::new(format!("the body ended early: {}", error.to_debug_string())));
            }
        }
        task::progress(bytes.len() as f64, None, None);
    }
    let truncated = bytes.len() > bytes_max;
    bytes.truncate(bytes_max);
    Ok((bytes, truncated))
}

fn refused(code: ErrorCode) -> Error {
    match code {
        ErrorCode::HttpRequestDenied => Error::new("the operator does not allow this host"),
        ErrorCode::DestinationIpProhibited => Error::new("the host's address is not a public one"),
        other => Error::new(format!("the request failed: {other:?}")),
    }
}
