//! Trace context that clients send along (`_meta` of a request, in the formats of the W3C), for readers of the host's log.
//!
//! Owns the reading of it and the span around the work of a request. Invariant: what is malformed is passed over: no request fails for
//! its trace. `baggage` is never looked at, because it may hold anything.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use serde::Deserialize;
use serde_json::value::RawValue;
use tracing::Span;

use super::{Exchange, Frame, Received, reader};

/// The length that receivers have to carry; a longer one is useless.
const STATE_BYTES_MAX: usize = 512;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Params<'a> {
    #[serde(borrow, rename = "_meta")]
    meta: Meta<'a>,
}

/// Raw, so that one that is no text does not hide the other.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta<'a> {
    #[serde(borrow)]
    traceparent: Option<&'a RawValue>,
    #[serde(borrow)]
    tracestate: Option<&'a RawValue>,
}

/// The caller's span.
#[derive(Debug, PartialEq, Eq)]
struct Parent {
    trace_id: String,
    parent_id: String,
}

impl Parent {
    /// `VERSION-TRACE-PARENT-FLAGS`; later versions may go on after another hyphen.
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut hex = |digits: usize| {
            let part = parts.next()?;
            let is_hex = part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            (is_hex && part.len() == digits).then_some(part)
        };
        let (version, trace_id, parent_id, _flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        let goes_on = parts.next().is_some();
        let is_nothing = |id: &str| id.bytes().all(|byte| byte == b'0');
        if version == "ff" || (version == "00" && goes_on) || is_nothing(trace_id) || is_nothing(parent_id) {
            return None;
        }
        Some(Self { trace_id: trace_id.to_owned(), parent_id: parent_id.to_owned() })
    }
}

/// A list of `key=value` in visible ASCII.
fn state(text: &str) -> Option<&str> {
    let is_visible = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let is_list = text.split(',').all(|member| member.trim().is_empty() || member.contains('='));
    (is_visible && is_list && !text.is_empty() && text.len() <= STATE_BYTES_MAX).then_some(text)
}

/// The span for a request that names its caller's.
fn span(params: &str) -> Option<Span> {
    if !params.contains("traceparent") {
        return None;
    }
    let text = |raw: Option<&RawValue>| reader::read_if_fits::<String>(raw?.get());
    let Params { meta } = reader::read_if_fits(params)?;
    let Parent { trace_id, parent_id } = Parent::read(&text(meta.traceparent)?)?;
    // At the highest level, so that no setting of the log hides whose warning it is.
    let span = tracing::error_span!("request", trace_id, parent_id, tracestate = tracing::field::Empty);
    if let Some(state) = text(meta.tracestate).as_deref().and_then(state) {
        span.record("tracestate", state);
    }
    Some(span)
}

/// The trace that a request names.
pub(super) fn trace_id(params: &str) -> Option<String> {
    if !params.contains("traceparent") {
        return None;
    }
    let Params { meta } = reader::read_if_fits(params)?;
    let text: String = reader::read_if_fits(meta.traceparent?.get())?;
    Parent::read(&text).map(|parent| parent.trace_id)
}

/// Takes a request, and everything that becomes of it, within the span of its caller.
pub(super) fn within(params: Option<&str>, take: impl FnOnce() -> Received) -> Received {
    let Some(span) = params.and_then(span) else { return take() };
    match span.in_scope(take) {
        Received::Exchange(exchange) => Received::Exchange(Box::pin(Traced { span, exchange })),
        other => other,
    }
}

struct Traced {
    span: Span,
    exchange: Exchange,
}

impl Stream for Traced {
    type Item = Frame;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Frame>> {
        let Self { span, exchange } = &mut *self;
        let _entered = span.enter();
        exchange.as_mut().poll_next(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn traceparent_needs_four_valid_parts() {
        let parent = Parent::read(PARENT).unwrap();
        assert_eq!(parent.trace_id, "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(parent.parent_id, "b7ad6b7169203331");
        assert!(Parent::read(&PARENT.replacen("00", "cc", 1)).is_some(), "a later version");
        assert!(Parent::read(&format!("{}-more", PARENT.replacen("00", "cc", 1))).is_some());
        for wrong in [
            "",
            "00",
            &PARENT[..54],
            &format!("{PARENT}-more"),
            &format!("{PARENT}0"),
            &PARENT.to_uppercase(),
            &PARENT.replacen("00", "ff", 1),
            &PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &PARENT.replace("b7ad6b7169203331", &"0".repeat(16)),
            &PARENT.replace('7', "g"),
        ] {
            assert_eq!(Parent::read(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn tracestate_must_be_a_bounded_list() {
        assert!(state("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE").is_some());
        for wrong in ["", "rojo", "a=1\n", "\u{e9}=1", &format!("a={}", "x".repeat(STATE_BYTES_MAX))] {
            assert_eq!(state(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn malformed_trace_context_is_ignored() {
        let read = |text: &str| span(text).is_some();
        assert!(read(&format!(r#"{{"_meta":{{"traceparent":"{PARENT}","tracestate":5,"baggage":{{}}}}}}"#)));
        for wrong in [
            r#"{"_meta":{"traceparent":5}}"#,
            r#"{"_meta":{"traceparent":"no"}}"#,
            r#"{"_meta":5,"traceparent":1}"#,
            r#"{"traceparent":"no"}"#,
            r#"["traceparent"]"#,
            "{}",
        ] {
            assert!(!read(wrong), "{wrong}");
        }
    }
}
