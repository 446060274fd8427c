//! Answers, with the headers that keep a page to itself.
//!
//! Invariant: every answer has them, also a refusal; nothing but style sheet and script may be kept by a browser.

use std::convert::Infallible;

use bytes::Bytes;
use futures::stream::BoxStream;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Either, Full, StreamBody};
use hyper::body::Frame;
use maud::Markup;

/// Pieces of an answer that goes on. They are asked for as the browser takes them, so one that takes nothing holds one
/// piece.
pub(crate) type Pieces = BoxStream<'static, Result<Frame<Bytes>, Infallible>>;
pub(crate) type Body = Either<Full<Bytes>, StreamBody<Pieces>>;
pub(crate) type Answer = Response<Body>;

/// What a page may do: show itself with its own style sheet, and send its own forms.
pub(crate) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types bulkhead";

const ON_EVERYTHING: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

/// A page.
pub(crate) fn page(status: StatusCode, markup: Markup) -> Answer {
    answer(status, "text/html; charset=utf-8", Bytes::from(markup.into_string()))
}

/// Some bytes.
pub(crate) fn answer(status: StatusCode, media: &'static str, body: Bytes) -> Answer {
    let mut response = Response::new(Either::Left(Full::new(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    for (name, value) in ON_EVERYTHING {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Events, one after the other. The next stream gets a connection of its own, which lasts as long as this one did.
pub(crate) fn events(pieces: Pieces) -> Answer {
    let mut response = answer(StatusCode::OK, "text/event-stream", Bytes::new());
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response.map(|_| Either::Right(StreamBody::new(pieces)))
}

/// The text of an answer that does not go on.
pub(crate) async fn text_of(answer: Answer) -> String {
    let Either::Left(body) = answer.into_body() else { return String::new() };
    let bytes = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(never) => match never {},
    };
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Has a page show frames of one other origin.
pub(crate) fn allow_frames(response: &mut Answer, origin: &str) {
    set_policy(response, &format!("{CONTENT_SECURITY_POLICY}; frame-src {origin}"));
}

/// Another policy for one answer; what no header can hold stays as strict as it was.
pub(crate) fn set_policy(response: &mut Answer, policy: &str) {
    if let Ok(policy) = HeaderValue::from_str(policy) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
}

/// After a change: the browser gets the page that shows it.
pub(crate) fn see_other(address: &str) -> Answer {
    let mut response = answer(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", Bytes::new());
    if let Ok(address) = HeaderValue::from_str(address) {
        response.headers_mut().insert(header::LOCATION, address);
    }
    response
}

/// A refusal that no page of ours leads to.
pub(crate) fn refusal(status: StatusCode, message: &'static str) -> Answer {
    let mut response = answer(status, "text/plain; charset=utf-8", Bytes::from_static(message.as_bytes()));
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Says when to try again.
pub(crate) fn retry_after(mut response: Answer, ms: u64) -> Answer {
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1_000).max(1)));
    response
}

/// A cookie for this browser session that no script can read and no foreign page can send; an empty value takes it
/// away.
pub(crate) fn set_cookie(response: &mut Answer, name: &str, value: &str, has_tls: bool) {
    let ends = if value.is_empty() { "; Max-Age=0" } else { "" };
    add_cookie(response, format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict"), ends, has_tls);
}

/// The same for so many seconds, and also sent where a link elsewhere leads here.
pub(crate) fn set_cookie_for_return(response: &mut Answer, name: &str, value: &str, seconds: u64, has_tls: bool) {
    let ends = format!("; Max-Age={seconds}");
    add_cookie(response, format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax"), &ends, has_tls);
}

fn add_cookie(response: &mut Answer, cookie: String, ends: &str, has_tls: bool) {
    let secure = if has_tls { "; Secure" } else { "" };
    if let Ok(cookie) = HeaderValue::from_str(&(cookie + secure + ends)) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}
