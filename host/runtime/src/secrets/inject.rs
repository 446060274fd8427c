//! A request on its way out: placeholders become values.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, RANGE, TRANSFER_ENCODING,
};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use wasmtime_wasi_http::{Error, WasiBody};

use super::scrub::{Scrubber, scrub_headers, scrubbed};
use super::{HttpGrant, PLACEHOLDER_BYTES_MAX, Target, find, json_escaped, percent_encoded};
use bulkhead_calls::policy::{DeniedSecret, SecretPlace};
use bulkhead_calls::secrets::{InjectionPoints, Secret};

/// Bytes of a body in which placeholders are filled; a larger one may hold none.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Placeholders in one request. Stops a guest from making the host build requests of megabytes out of a few bytes.
const PLACEHOLDERS_MAX: u32 = 16;

/// Codings of answers that are told by their names (the registry of HTTP content codings).
const CODINGS: [&str; 8] = ["gzip", "x-gzip", "compress", "x-compress", "deflate", "br", "zstd", "dcb"];

/// Why a request does not go out. Names the secret, never its value.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// A placeholder stands for nothing that may go there.
    Missing(DeniedSecret),
    /// It cannot be done, whatever is granted.
    Failed(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// What to look for in the answer.
#[derive(Debug)]
pub(crate) struct Injected(Option<Scrubber>);

impl Injected {
    /// The answer without any value that goes to the server that it comes from, by whatever method and path.
    ///
    /// # Errors
    ///
    /// It is compressed, although that was not asked for, so it cannot be searched.
    pub(crate) fn scrub(self, response: http::Response<WasiBody>) -> Result<http::Response<WasiBody>, Error> {
        let Some(scrubber) = self.0 else { return Ok(response) };
        let (mut head, body) = response.into_parts();
        refuse_encoded(&head.headers)?;
        scrub_headers(&scrubber, &mut head.headers);
        // The length may be another one.
        head.headers.remove(CONTENT_LENGTH);
        Ok(http::Response::from_parts(head, scrubbed(scrubber, body)))
    }
}

/// Refuses an answer that is anything but plain, by any header that says so. Only a known coding is named: a server may
/// write a value there.
fn refuse_encoded(headers: &HeaderMap) -> Result<(), Error> {
    let codings = |name, plain: &'static [&'static str]| {
        let values = headers.get_all(name).into_iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        let mut codings = values.map(<[u8]>::trim_ascii).filter(|coding| !coding.is_empty());
        codings.find(|coding| !plain.iter().any(|plain| coding.eq_ignore_ascii_case(plain.as_bytes())))
    };
    let content = codings(CONTENT_ENCODING, &["identity"]);
    let Some(coding) = content.or_else(|| codings(TRANSFER_ENCODING, &["identity", "chunked"])) else { return Ok(()) };
    let known = CODINGS.iter().find(|known| coding.eq_ignore_ascii_case(known.as_bytes()));
    Err(Error::HttpResponseContentCoding(known.map(|known| (*known).to_owned())))
}

/// Puts values in the place of placeholders, where a secret of the plugin is bound to this target.
///
/// # Errors
///
/// A header, the path or the query names a secret that is not bound to this place and target, or a body one that is
/// bound to others.
pub(crate) async fn inject(
    request: http::Request<WasiBody>,
    secrets: &[Secret],
    target: Target<'_>,
) -> Result<(http::Request<WasiBody>, Injected), Refusal> {
    let of = |is_meant: &dyn Fn(&HttpGrant) -> bool| -> Vec<&Secret> {
        secrets.iter().filter(|secret| secret.destinations.iter().any(is_meant)).collect()
    };
    let bound = of(&|to| target.is_within(to));
    // A server may repeat a value under any path of its own, whichever it was sent to.
    let known = of(&|to| target.is_at(to));
    let (mut head, mut body) = request.into_parts();
    let mut filling = Filling { bound: &bound, left: PLACEHOLDERS_MAX };
    for value in head.headers.values_mut() {
        if let Some(filled) =
            filling.fill(value.as_bytes(), SecretPlace::Header, |_| true, |places| places.header, str::to_owned)?
        {
            let mut filled = HeaderValue::from_bytes(&filled)
                .map_err(|_| Error::HttpRequestHeaderSize { field_name: None, field_size: None })?;
            filled.set_sensitive(true);
            *value = filled;
        }
    }
    head.uri = filling.uri(&head.uri)?;
    if !known.is_empty() {
        // What comes back must be readable, and whole: two halves of a value are no value.
        head.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        head.headers.remove(RANGE);
    }
    if bound.iter().any(|secret| secret.places.body) {
        body = filling.body(secrets, &mut head.headers, body).await?;
    }
    let scrubber = (!known.is_empty()).then(|| Scrubber::new(&known));
    Ok((http::Request::from_parts(head, body), Injected(scrubber)))
}

/// Placeholders of one request.
struct Filling<'a> {
    bound: &'a [&'a Secret],
    left: u32,
}

impl Filling<'_> {
    /// The text with values in it; `None` when there was no placeholder that is meant as one.
    fn fill(
        &mut self,
        text: &[u8],
        location: SecretPlace,
        is_meant: impl Fn(&str) -> bool,
        fits: fn(InjectionPoints) -> bool,
        written: fn(&str) -> String,
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let mut filled = Vec::new();
        let mut at = 0;
        let mut copied = 0;
        while let Some((found, name)) = find(text, at) {
            at = found.end;
            if !is_meant(name) {
                continue;
            }
            let secret = self.bound.iter().find(|secret| secret.name == name && fits(secret.places));
            let secret = secret.ok_or_else(|| Refusal::Missing(DeniedSecret { name: name.to_owned(), location }))?;
            self.left = self.left.checked_sub(1).ok_or(Error::HttpRequestHeaderSectionSize(None))?;
            filled.extend(text.get(copied..found.start).unwrap_or_default());
            filled.extend(written(&secret.value).into_bytes());
            copied = found.end;
        }
        if copied == 0 {
            return Ok(None);
        }
        filled.extend(text.get(copied..).unwrap_or_default());
        Ok(Some(filled))
    }

    fn uri(&mut self, uri: &http::Uri) -> Result<http::Uri, Refusal> {
        let Some(whole) = uri.path_and_query() else { return Ok(uri.clone()) };
        // A path is written into the logs of every server on the way.
        self.fill(whole.path().as_bytes(), SecretPlace::Path, |_| true, |_| false, str::to_owned)?;
        let query = whole.query().unwrap_or_default().as_bytes();
        let Some(query) = self.fill(query, SecretPlace::Query, |_| true, |places| places.query, percent_encoded)?
        else {
            return Ok(uri.clone());
        };
        let query = String::from_utf8(query).map_err(|_| Error::HttpRequestUriInvalid)?;
        let filled = format!("{}?{query}", whole.path()).parse().map_err(|_| Error::HttpRequestUriInvalid)?;
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = Some(filled);
        Ok(http::Uri::from_parts(parts).map_err(|_| Error::HttpRequestUriInvalid)?)
    }

    /// The body with values in it, if it is not compressed; a large one ends with an error where it would need any. In
    /// a body, a name that is no secret of the plugin's is a text like any other.
    async fn body(
        &mut self,
        secrets: &[Secret],
        headers: &mut HeaderMap,
        mut body: WasiBody,
    ) -> Result<WasiBody, Refusal> {
        let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        let is_large = length.is_some_and(|length| length > BODY_BYTES_MAX);
        if headers.contains_key(CONTENT_ENCODING) || body.is_end_stream() {
            return Ok(body);
        }
        if is_large {
            return Ok(Unfilled::new(body, secrets).boxed_unsync());
        }
        let mut text = Vec::new();
        let mut trailers = None;
        while let Some(frame) = body.frame().await {
            match frame?.into_data() {
                Ok(data) => text.extend(data),
                Err(frame) => trailers = Some(frame),
            }
            if text.len() > BODY_BYTES_MAX {
                let whole = Queued { frames: [Frame::data(text.into())].into(), rest: Some(body) }.boxed_unsync();
                return Ok(Unfilled::new(whole, secrets).boxed_unsync());
            }
        }
        let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let written = match media_type.as_str() {
            "application/x-www-form-urlencoded" => percent_encoded,
            "application/json" => json_escaped,
            other if other.ends_with("+json") => json_escaped,
            _ => str::to_owned,
        };
        let is_known = |name: &str| secrets.iter().any(|secret| secret.name == name);
        if let Some(filled) = self.fill(&text, SecretPlace::Body, is_known, |places| places.body, written)? {
            text = filled;
            if length.is_some() {
                headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
            }
        }
        let frames = [Frame::data(Bytes::from(text))].into_iter().chain(trailers).collect();
        Ok(Queued { frames, rest: None }.boxed_unsync())
    }
}

/// A body that is too large to be filled. It ends before the first placeholder of a secret: a server would take the
/// name for the value.
struct Unfilled {
    body: WasiBody,
    names: Vec<String>,
    /// The end of what went out, in which a placeholder may have begun.
    before: Vec<u8>,
}

impl Unfilled {
    fn new(body: WasiBody, secrets: &[Secret]) -> Self {
        Self { body, names: secrets.iter().map(|secret| secret.name.clone()).collect(), before: Vec::new() }
    }

    /// Whether a placeholder ends in these bytes.
    fn names_a_secret(&mut self, bytes: &[u8]) -> bool {
        let mut text = std::mem::take(&mut self.before);
        text.extend_from_slice(bytes);
        let mut at = 0;
        while let Some((found, name)) = find(&text, at) {
            if self.names.iter().any(|known| known == name) {
                return true;
            }
            at = found.end;
        }
        self.before = text.split_off(text.len().saturating_sub(PLACEHOLDER_BYTES_MAX));
        false
    }
}

impl Body for Unfilled {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
            && self.names_a_secret(data)
        {
            return Poll::Ready(Some(Err(Error::HttpRequestBodySize(Some(BODY_BYTES_MAX as u64)))));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Frames that were read already, and the rest.
struct Queued {
    frames: VecDeque<Frame<Bytes>>,
    rest: Option<WasiBody>,
}

impl Body for Queued {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match (self.frames.pop_front(), &mut self.rest) {
            (Some(frame), _) => Poll::Ready(Some(Ok(frame))),
            (None, Some(rest)) => Pin::new(rest).poll_frame(cx),
            (None, None) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }
}
